//! Programs that know of no proxy reach the allowed hosts by addresses of the session's own, and nothing else by those.
//!
//! The hosts are names that nobody resolves: a company's proxy of the test leads them to its servers. Without the table of hosts the
//! same programs find no name, which is the control of what works; the hosts that are allowed are the control of what does not.

use lazaret_fakes::EchoServer;
use lazaret_tests::approval::audited;
use lazaret_tests::connect_proxy::ConnectProxy;
use lazaret_tests::not_run;
use lazaret_tests::process::until;
use lazaret_tests::programs::need;
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{Finished, LIMIT, Place, Session, User, World, place_test, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The world of a user whose cells reach hosts of this table, all of them the server at this port.
struct Hosts {
    world: World,
    proxy: ConnectProxy,
}

impl Hosts {
    fn new(place: Place, port: u16, network: &str) -> Self {
        let (world, proxy) = (World::new(place), ConnectProxy::to(port));
        let text = format!(
            "version = 1\n[gateway]\n{}\nproxy_names = true\n[profile.net.network]\n{network}\n",
            proxy.line()
        );
        world.write(&world.home.join("settings/lazaret/policy.toml"), text);
        Self { world, proxy }
    }

    fn dressed(&self, words: &str) -> Command {
        let mut command = self.world.lazaret(words);
        command.env("XDG_CONFIG_HOME", self.world.home.join("settings"));
        command.args(["--profile", "net"]);
        command
    }

    /// A script in a cell whose programs are told of no proxy.
    fn cell(&self, script: &str) -> Finished {
        let script = format!("{WITHOUT_PROXY}; {script}");
        let mut command = self.dressed("run");
        run(command.args(["-v", "--", "bash", "-c", &script]), LIMIT)
    }

    fn python(&self, program: &str, words: &str) -> Finished {
        self.world.put("program.py", program);
        self.cell(&format!("python3 program.py {words}"))
    }

    fn session(&self) -> Session {
        Session::start(&mut self.dressed("session"))
    }
}

const WITHOUT_PROXY: &str = "unset ${!HTTP*} ${!HTTPS*} ${!ALL*} http_proxy https_proxy all_proxy";

/// Ways that ordinary clients go to a host by its name, and what each sees as the other end.
const WAYS: &str = r#"
import asyncio, socket
name, port = 'db.example', 5432
def talk(s, at):
    f = s.makefile('rwb'); assert f.readline() == b'hello\n'
    f.write(b'a line\n'); f.flush(); assert f.readline() == b'a line\n'
    assert s.getpeername()[:2] == (at, port), s.getpeername()
    assert s.getsockname()[0] in ('127.0.0.1', '::ffff:127.0.0.1'), s.getsockname()
def connect(family, to, at=None, bind=None, block=True):
    s = socket.socket(family); s.settimeout(100)
    if bind: s.bind(bind)
    if not block: s.setblocking(False); assert s.connect_ex((to, port)) in (0, 115); s.settimeout(100)
    else: s.connect((to, port))
    talk(s, at or to); s.close()
ip = socket.gethostbyname(name)
assert ip.startswith(('198.18.', '198.19.')), ip
for flags in (0, socket.AI_ADDRCONFIG):
    found = socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM, 0, flags)
    assert [one[4] for one in found] == [(ip, port)], found
try: socket.getaddrinfo(name, port, socket.AF_INET6); assert False
except socket.gaierror: pass
assert socket.gethostbyname('localhost') == '127.0.0.1'
assert socket.gethostbyname(socket.gethostname()).startswith('127.')
connect(2, name, ip); connect(2, ip); connect(2, ip, block=False)
connect(2, ip, bind=('127.0.0.1', 0)); connect(2, ip, bind=('0.0.0.0', 0))
connect(10, '::ffff:' + ip)
with socket.create_connection((name, port), 100) as s: talk(s, ip)
async def main():
    async def one():
        r, w = await asyncio.open_connection(name, port); assert await r.readline() == b'hello\n'
        data = b'x' * 300000; w.write(data); assert await r.readexactly(300000) == data
        w.write_eof(); assert await r.read() == b''
    await asyncio.gather(*[one() for _ in range(20)])
asyncio.run(main())
# In any file that names what the machine's does.
assert open('/etc/hosts').read() == open('/proc/self/root/etc/hosts').read() == open('/etc/../etc/hosts').read()
print('ok')
"#;

place_test!(programs_that_know_of_no_proxy_reach_a_host);
fn programs_that_know_of_no_proxy_reach_a_host(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let pattern = Hosts::new(place, server.port, "allow = ['*.example:5432']");
    let done = pattern.python(WAYS, "");
    assert!(
        done.errors().contains("gaierror"),
        "the control: {}",
        done.errors()
    );
    let hosts = Hosts::new(place, server.port, "allow = ['db.example:5432']");
    let done = hosts.python(WAYS, "");
    assert_eq!(done.success(), "ok\n", "{}", done.errors());
    let records = audited(&hosts.world, "connection");
    let want = json!(["db.example", 5432, "allowed"]);
    let is_one = |one: &&Value| json!([one["host"], one["port"], one["verdict"]]) == want;
    assert_eq!(records.iter().filter(is_one).count(), records.len());
    assert_eq!(records.len(), 27, "{records:?}");
    let asked = hosts.proxy.targets();
    assert!(asked.len() == 27 && asked.iter().all(|target| target == "db.example:5432"));
}

place_test!(an_address_of_the_session_leads_nowhere_outside_it);
/// From the machine itself, whose own way such an address goes.
fn an_address_of_the_session_leads_nowhere_outside_it(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let hosts = Hosts::new(place, server.port, "allow = ['db.example:5432']");
    let mut session = hosts.session();
    let greets = format!(
        "{WITHOUT_PROXY}; python3 -c \"import socket; s = socket.create_connection(('db.example', 5432), 100); \
         print(s.getpeername()[0], s.makefile().readline())\""
    );
    let seen = session.bash(&greets).success().to_owned();
    let (address, greeting) = seen.trim().split_once(' ').unwrap();
    assert_eq!(greeting, "hello", "the control");
    assert_eq!(hosts.proxy.targets().len(), 1);
    for port in [5432, server.port, 443, 1080] {
        let place = format!("{address}:{port}").parse().unwrap();
        let Ok(mut stream) = TcpStream::connect_timeout(&place, Duration::from_secs(1)) else {
            continue;
        };
        // Whoever answers on the machine's own way has nothing to do with the session.
        stream
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        let mut got = [0; 6];
        let _ = stream.read(&mut got);
        assert_ne!(&got, b"hello\n", "{place}");
    }
    assert!(hosts.proxy.targets().is_empty());
    assert_eq!(
        session.bash(&greets).success(),
        seen,
        "it still leads there"
    );
}

const NESTED: &str = r#"
import socket
s = socket.create_connection(('inside.example', 3128), 100)
s.sendall(b'CONNECT db.example:5432 HTTP/1.1\r\nHost: db.example:5432\r\n\r\n')
f = s.makefile('rb'); assert b' 200 ' in f.readline()
while f.readline().strip(): pass
assert f.readline() == b'hello\n'
try: socket.create_connection(('db.example', 5432), 100); print('GOT')
except socket.gaierror: print('ok')
"#;

place_test!(a_proxy_inside_the_company_is_tunnelled_to);
/// An allowed host that is a proxy itself: the gateway carries the tunnel inside of the connection, and reads none of it. The control is
/// the host behind it, which is not allowed.
fn a_proxy_inside_the_company_is_tunnelled_to(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let inside = ConnectProxy::to(server.port);
    let hosts = Hosts::new(place, inside.port, "allow = ['inside.example:3128']");
    let done = hosts.python(NESTED, "");
    assert_eq!(done.success(), "ok\n", "{}", done.errors());
    assert_eq!(hosts.proxy.targets(), ["inside.example:3128"]);
    assert_eq!(inside.targets(), ["db.example:5432"]);
}

/// Ways by which a program might get further than to its hosts, one a line: `NAME GOT` or `NAME` and why not.
const PAST: &str = r#"
import socket, sys
other = sys.argv[1]
name, port = 'db.example', 5432
ip = socket.gethostbyname(name)
def attempt(name, attack):
    try: got = attack()
    except Exception as error: print(name, type(error).__name__, error)
    else: print(name, 'GOT' if got else 'nothing')
def connect(to, at=port, family=socket.AF_INET, only=None):
    s = socket.socket(family); s.settimeout(60)
    if only is not None: s.setsockopt(41, 26, only)
    s.connect((to, at)); return s.recv(6) == b'hello\n'
def fast_open():
    s = socket.socket(); s.settimeout(60); s.sendto(b'x', 0x20000000, (ip, port)); return s.recv(6) == b'hello\n'
def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.sendto(b'x', (ip, port)); return s.recv(6)
def serve(at, family=socket.AF_INET):
    s = socket.socket(family); s.bind((at, port)); s.listen(); return True
def forged(*parts):
    # What a supervisor tells the gateway of a connection, from a connection to the relay.
    s = socket.create_connection(('127.0.0.1', 61080), 60)
    mine = socket.inet_aton('127.0.0.1') + s.getsockname()[1].to_bytes(2, 'big')
    s.sendall(b''.join(part or mine for part in parts)); return b'hello' in s.recv(4096)
def again(to, at):
    # A socket that was connected to a host, connected once more.
    s = socket.create_connection((name, port), 60); s.recv(6)
    assert s.connect_ex((to, at)) != 0; assert s.getpeername() == (ip, port)
    s.close(); return connect(to, at)
def mixed():
    # While a first attempt may still be under way.
    s = socket.socket(); s.setblocking(False); s.connect_ex((ip, port)); s.connect_ex(('198.19.250.250', port))
    s.settimeout(60); s.recv(6); return s.getpeername() != (ip, port)
def stale():
    # A socket that is connected already asks for another host, and then its address asks the relay.
    s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('127.0.0.1', 0)); s.connect((ip, port)); s.recv(6)
    s.connect_ex((socket.gethostbyname('b.example'), port)); mine = s.getsockname()
    s.setsockopt(1, 13, (1).to_bytes(4, 'little') + bytes(4)); s.close()
    s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(mine); s.settimeout(60); s.connect(('127.0.0.1', 61080))
    s.sendall(b'CONNECT c.example:80 HTTP/1.1\r\n\r\n'); got = s.recv(4096); assert got; return not got.startswith(b'HTTP/1.1 403')
attempt('control', lambda: connect(ip))
attempt('control-mapped', lambda: connect('::ffff:' + ip, family=10))
attempt('other-port', lambda: connect(ip, 22))
attempt('no-port', lambda: connect(ip, 0))
attempt('of-another-session', lambda: connect(other))
attempt('of-nobody', lambda: connect('198.19.250.250'))
attempt('of-nobody-mapped', lambda: connect('::ffff:198.19.250.250', family=10))
attempt('of-the-loopback', lambda: connect('198.18.0.1'))
attempt('only-6', lambda: connect('::ffff:' + ip, family=10, only=1))
attempt('compatible', lambda: connect('::' + ip, family=10))
attempt('beside', lambda: connect('198.20.0.1'))
attempt('fast-open', fast_open)
attempt('datagram', datagram)
attempt('bind', lambda: serve(ip))
attempt('bind-mapped', lambda: serve('::ffff:' + ip, 10))
attempt('bind-of-another-session', lambda: serve(other))
attempt('bind-of-the-loopback', lambda: serve('198.18.0.1'))
attempt('forged', lambda: forged(None, port.to_bytes(2, 'big'), b'db.example'))
attempt('forged-lines', lambda: forged(None, port.to_bytes(2, 'big'), b'db.example\r\n\r\n'))
attempt('again', lambda: again('198.19.250.250', port))
attempt('again-other-port', lambda: again(ip, 22))
attempt('mixed', mixed)
attempt('stale', stale)
"#;

place_test!(addresses_of_hosts_lead_to_these_alone);
fn addresses_of_hosts_lead_to_these_alone(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let network = "allow = ['db.example:5432', 'b.example']";
    let hosts = Hosts::new(place, server.port, network);
    let other = Hosts::new(place, server.port, "allow = ['b.example', 'c.example']");
    // While that session is open.
    let mut session = other.session();
    let found = session.bash("getent ahostsv4 b.example | head -1");
    let found = found
        .success()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    assert!(found.starts_with("198.1"), "{found}");
    let got = session.bash(&format!("read line <>/dev/tcp/{found}/80; echo $line"));
    assert!(
        got.success().contains("hello"),
        "the control: {}",
        got.text()
    );
    let done = hosts.python(PAST, &found);
    let text = done.success();
    let all = text.lines().count();
    let is_got = |line: &&str| line.ends_with(" GOT");
    let reached: Vec<_> = text.lines().filter(is_got).collect();
    assert_eq!(reached, ["control GOT", "control-mapped GOT"], "{text}");
    assert_eq!(all, 23, "{text}");
    let errors = done.errors();
    assert!(
        errors.contains("db.example:22 is not among the hosts of this session"),
        "{errors}"
    );
    for refused in [
        &format!("{found}:5432"),
        "198.19.250.250:5432",
        "198.18.0.1:5432",
    ] {
        let said = format!("connect {refused}: No host of this session has this address");
        let said_often = format!("connect {refused} (");
        assert!(
            errors.contains(&said) || errors.contains(&said_often),
            "{refused}: {errors}"
        );
    }
    assert!(session.close(LIMIT).success());
    println!(
        "{place:?}: {} of {} ways past the hosts refused",
        all - 2,
        all - 2
    );
}

/// Sends what begins TLS with this name to a host, and says what comes back after the server's own words.
const HELLO: &str = r#"
import socket, ssl, sys
host, name = sys.argv[1:]
to, out = ssl.MemoryBIO(), ssl.MemoryBIO()
tls = ssl._create_unverified_context().wrap_bio(to, out, server_hostname=name)
try: tls.do_handshake()
except ssl.SSLWantReadError: pass
s = socket.create_connection((host, 443), 100)
assert s.recv(6) == b'hello\n'
s.sendall(out.read())
try: print('GOT' if s.recv(10) else 'cut')
except ConnectionResetError: print('cut')
"#;

place_test!(tls_for_another_host_gets_no_further);
fn tls_for_another_host_gets_no_further(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let network = "allow = ['a.example:443', 'b.example:443']";
    let hosts = Hosts::new(place, server.port, network);
    let done = hosts.python(HELLO, "a.example a.example");
    assert_eq!(done.success(), "GOT\n", "the control: {}", done.errors());
    let name = |sent: &[u8]| sent.windows(9).any(|part| part.ends_with(b".example"));
    assert!(name(&server.take()), "the control");
    for other in ["b.example", "c.example"] {
        let done = hosts.python(HELLO, &format!("a.example {other}"));
        assert_eq!(done.success(), "cut\n", "{other}: {}", done.errors());
        assert_eq!(server.take(), b"", "{other}");
        let said = "the connection was requested for a.example, and its TLS asks for another host";
        assert!(done.errors().contains(said), "{other}: {}", done.errors());
    }
}

place_test!(no_server_of_a_cell_takes_the_place_of_a_host);
fn no_server_of_a_cell_takes_the_place_of_a_host(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let hosts = Hosts::new(place, server.port, "allow = ['db.example:5432']");
    let program = r"
import socket, threading
def serve(family, at):
    s = socket.socket(family); s.setsockopt(1, 2, 1); s.setsockopt(1, 15, 1)
    if family == 10: s.setsockopt(41, 26, 1)
    s.bind((at, 5432)); s.listen()
    def run():
        while True: s.accept()[0].sendall(b'forged')
    threading.Thread(target=run, daemon=True).start()
serve(2, '0.0.0.0'); serve(10, '::')
def ask(name):
    with socket.create_connection((name, 5432), 60) as s: return s.recv(6)
print(ask('127.0.0.1'), ask('db.example'))
";
    let done = hosts.python(program, "");
    assert_eq!(
        done.success(),
        "b'forged' b'hello\\n'\n",
        "{}",
        done.errors()
    );
}

place_test!(the_sessions_file_says_more_than_the_machines_and_changes_neither);
fn the_sessions_file_says_more_than_the_machines_and_changes_neither(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let network = "allow = ['db.example:5432', '*.d.example', '1.1.1.1']";
    let hosts = Hosts::new(place, server.port, network);
    let machine = fs::read_to_string("/etc/hosts").unwrap();
    let without = World::new(place).in_cell("cat /etc/hosts").success();
    let done = hosts.cell(
        "cat /etc/hosts; for to in '>>' '>' '<>'; do eval \"echo 10.0.0.1 evil.example 2>/dev/null $to/etc/hosts\"; done 2>/dev/null
         mv /etc/hosts /etc/was 2>/dev/null; ln -sf /tmp/x /etc/hosts 2>/dev/null; cat /etc/hosts",
    );
    let text = done.success();
    assert!(!text.contains("evil"), "{text}");
    let (first, again) = text.split_at(text.len() / 2);
    assert_eq!(first, again);
    let ours: Vec<_> = first
        .lines()
        .filter(|line| line.starts_with("198.1"))
        .collect();
    assert!(
        ours.len() == 1 && ours[0].ends_with(" db.example"),
        "{first}"
    );
    // Each entry that a cell without hosts has.
    let entries = |text: &str| {
        let line = |line: &str| {
            let words: Vec<_> = line.split('#').next()?.split_whitespace().collect();
            (!words.is_empty()).then(|| words.join(" "))
        };
        text.lines().filter_map(line).collect::<Vec<_>>()
    };
    let mut has = entries(first);
    has.retain(|entry| !entry.ends_with(" db.example"));
    assert_eq!(has, entries(&without));
    assert_eq!(fs::read_to_string("/etc/hosts").unwrap(), machine);
}

place_test!(a_flood_to_a_host_leaves_the_session_alive);
fn a_flood_to_a_host_leaves_the_session_alive(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let hosts = Hosts::new(place, server.port, "allow = ['db.example:5432']");
    hosts.world.put(
        "flood.py",
        "import socket\nip = socket.gethostbyname('db.example')\nopen = []\nfor n in range(600):\n    s = socket.socket(); s.setblocking(False)\n    s.connect_ex((ip, 5432 if n % 2 else 22)); open.append(s)\nprint(len(open))\n",
    );
    let mut session = hosts.session();
    let flood = session.bash("python3 flood.py");
    assert!(flood.success().contains("600"), "{}", flood.text());
    // What has gone meanwhile is still waiting at the gateway, and a program is told to try again.
    let ask = "for i in $(seq 100); do read line <>/dev/tcp/db.example/5432 && break; sleep 0.5; done 2>/dev/null; echo $line";
    let answer = session.bash(ask);
    assert!(answer.success().contains("hello"), "{}", answer.text());
    assert!(session.close(LIMIT).success());
}

/// Answers each request with its path.
const PATHS: &str = r"
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, file=log, flush=True)
        self.send_response(200); self.end_headers(); self.wfile.write(b'served ' + self.path.encode())
    def log_message(self, *arguments): pass
";

place_test!(rules_for_requests_hold_for_programs_that_know_of_no_proxy);
fn rules_for_requests_hold_for_programs_that_know_of_no_proxy(place: Place) {
    let world = World::new(place);
    let server = TlsHost::start(&world, &["api.example"], PATHS);
    let proxy = ConnectProxy::to(server.port);
    let text = format!(
        "version = 1\n[gateway]\n{}\nproxy_names = true\nca = '{}'\n[profile.net.network]\nallow = ['api.example:443']\n\
         [[profile.net.network.http]]\nhost = 'api.example'\nmethods = ['GET']\npaths = ['/public/*']\naction = 'allow'\n",
        proxy.line(),
        server.authority().display(),
    );
    world.write(&world.home.join("settings/lazaret/policy.toml"), text);
    let hosts = Hosts { world, proxy };
    let done = hosts.cell(
        "for way in public/a secret/a; do curl -sS -m 60 --noproxy '*' -w ' %{http_code} %{remote_ip}\n' https://api.example/$way; done",
    );
    let text = done.success();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("served /public/a 200 198.1"), "{text}");
    assert!(text.contains(" 403 198.1"), "{text}");
    assert_eq!(server.log(), ["/public/a"]);
    assert!(
        done.errors().contains("GET /secret/a at api.example:443"),
        "{}",
        done.errors()
    );
}

/// PostgreSQL with a database of its own, until it is dropped.
struct Database {
    port: u16,
    _world: World,
    server: Child,
}

impl Database {
    /// One of an ordinary user's, as it runs as no other.
    fn start(place: Place) -> Self {
        let user = User::Ordinary;
        let world = World::new(Place { user, ..place });
        let programs = world.on_host("command -v psql initdb postgres | wc -l");
        if programs.success() != "3\n" {
            not_run("no PostgreSQL in the path: apt-get install postgresql");
        }
        let data = world.outside.join("database");
        let at = data.display();
        world
            .on_host(&format!("initdb -A trust -U lazaret -N -D {at} 2>&1"))
            .success();
        // It takes no port that the kernel chooses.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut server = world.host("postgres");
        server
            .args([
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "unix_socket_directories=",
            ])
            .args(["-p", &port.to_string(), "-D"])
            .arg(&data)
            .stderr(Stdio::null());
        let server = server.spawn().unwrap();
        let ready = || {
            let asked =
                format!("psql -w -h 127.0.0.1 -p {port} -U lazaret -d postgres -c 'select 1'");
            world.on_host(&asked).code() == 0
        };
        assert!(until(LIMIT, ready), "PostgreSQL does not start");
        Self {
            port,
            _world: world,
            server,
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // By this signal it ends its own processes at once.
        let _ = kill(Pid::from_raw(self.server.id() as i32), Signal::SIGQUIT);
        let _ = self.server.wait();
    }
}

place_test!(a_database_is_used_by_its_own_client);
fn a_database_is_used_by_its_own_client(place: Place) {
    let database = Database::start(place);
    let ask = "psql -w -h db.example -U lazaret -d postgres -Atc 'select 6 * 7'";
    let pattern = Hosts::new(place, database.port, "allow = ['*.example']");
    assert_ne!(pattern.cell(ask).code(), 0, "the control");
    let hosts = Hosts::new(place, database.port, "allow = ['db.example:5432']");
    let done = hosts.cell(ask);
    assert_eq!(done.success(), "42\n", "{}", done.errors());
    let other = hosts.cell(&ask.replace("-w", "-w -p 5433"));
    assert_ne!(other.code(), 0, "{}", other.text());
    let said = "db.example:5433 is not among";
    assert!(other.errors().contains(said), "{}", other.errors());
}

place_test!(ssh_reaches_a_host_without_settings);
fn ssh_reaches_a_host_without_settings(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let hosts = Hosts::new(place, server.port, "allow = ['git.example:22']");
    let ssh = "timeout 5 ssh -o StrictHostKeyChecking=no -o BatchMode=yes git.example true";
    let pattern = Hosts::new(place, server.port, "allow = ['*.example']");
    pattern.cell(ssh);
    assert_eq!(server.take(), b"", "the control");
    // The server is none of ssh's, but it has heard of it.
    hosts.cell(ssh);
    assert!(server.take().starts_with(b"SSH-2.0-"));
}

place_test!(java_reaches_a_host_without_settings);
fn java_reaches_a_host_without_settings(place: Place) {
    need("javac", "default-jdk-headless");
    let server = EchoServer::start("127.0.0.1");
    let hosts = Hosts::new(place, server.port, "allow = ['git.example:22']");
    let java = "public class S { public static void main(String[] a) throws Exception {
        try (var s = new java.net.Socket(\"git.example\", 22)) {
            System.out.println(new String(s.getInputStream().readNBytes(5)) + s.getPort()); } } }";
    hosts.world.put("S.java", java);
    hosts.world.set_up("javac S.java");
    for way in ["", "-Djava.net.preferIPv4Stack=true"] {
        let done = hosts.cell(&format!("java {way} -cp . S"));
        assert_eq!(done.success(), "hello22\n", "{}", done.errors());
    }
}
