//! Ports of this machine's loopback that a policy or an option opens to cells: these are reached, at the address that they have outside,
//! and nothing else of the machine is.
//!
//! Each attack is run without a cell first, where it must work.

use lazaret_fakes::EchoServer;
use lazaret_tests::approval::audited;
use lazaret_tests::process::{below, until};
use lazaret_tests::{Finished, LIMIT, Place, Serving, Session, World, place_test};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

fn cell_with(world: &World, options: &[&str], script: &str) -> Finished {
    world.in_cell_with(&[&["--profile", "net"], options].concat(), script)
}

fn session(world: &World) -> Session {
    Session::start(world.configured("session").args(["--profile", "net"]))
}

/// Ways to the server at this port that ordinary clients go, and what each sees as the other end.
const WAYS: &str = r#"
import asyncio, socket, sys
port = int(sys.argv[1])
def talk(s, name):
    f = s.makefile('rwb'); assert f.readline() == b'hello\n'
    f.write(b'a line\n'); f.flush(); assert f.readline() == b'a line\n'
    assert s.getpeername()[:2] == (name, port), s.getpeername()
def connect(family, to, name, bind=None, block=True):
    s = socket.socket(family); s.settimeout(100)
    if bind: s.bind(bind)
    if not block: s.setblocking(False); assert s.connect_ex((to, port)) in (0, 115); s.settimeout(100)
    else: s.connect((to, port))
    talk(s, name); s.close()
connect(2, '127.0.0.1', '127.0.0.1')
connect(2, '127.0.0.1', '127.0.0.1', block=False)
connect(2, '0.0.0.0', '127.0.0.1')
connect(2, '127.0.0.1', '127.0.0.1', bind=('127.0.0.1', 0))
connect(2, '127.0.0.1', '127.0.0.1', bind=('0.0.0.0', 0))
connect(10, '::ffff:127.0.0.1', '::ffff:127.0.0.1')
if len(sys.argv) > 2: connect(10, '::1', '::1')
with socket.create_connection(('localhost', port), 100) as s: assert s.recv(6) == b'hello\n'
async def main():
    async def one():
        r, w = await asyncio.open_connection('127.0.0.1', port); assert await r.readline() == b'hello\n'
        data = b'x' * 300000; w.write(data); assert await r.readexactly(300000) == data
        w.write_eof(); assert await r.read() == b''
    await asyncio.gather(*[one() for _ in range(40)])
asyncio.run(main())
print('ok')
"#;

place_test!(a_port_of_this_machine_is_reached_as_outside);
fn a_port_of_this_machine_is_reached_as_outside(place: Place) {
    let server = EchoServer::start("::");
    let world = World::networked(place, "", &format!("connect = [{}]", server.port));
    world.put("ways.py", WAYS);
    let words = format!("python3 ways.py {} v6", server.port);
    world.on_host(&format!("cd {} && {words}", world.project.display()));
    let done = cell_with(&world, &[], &words);
    assert_eq!(done.success(), "ok\n", "{}", done.errors());
    let records = audited(&world, "connection");
    let want = json!(["127.0.0.1", server.port, "allowed"]);
    let is_one = |one: &&Value| json!([one["host"], one["port"], one["verdict"]]) == want;
    assert_eq!(records.iter().filter(is_one).count(), records.len());
    assert!(records.len() > 40, "{}", records.len());
    // Programs are not told of a proxy that reaches no host.
    let env = cell_with(&world, &[], "env").success();
    assert!(!env.contains("61080"), "{env}");
}

place_test!(many_connections_are_no_fault_of_a_session_without_hosts);
fn many_connections_are_no_fault_of_a_session_without_hosts(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let world = World::networked(place, "", &format!("connect = [{}]", server.port));
    let script = format!(
        "for i in $(seq 200); do read line <>/dev/tcp/127.0.0.1/{}; echo $line; done | sort | uniq -c | tr -s ' '",
        server.port
    );
    let control = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(control.stdout, b" 200 hello\n");
    let done = cell_with(&world, &[], &script);
    assert_eq!(done.success(), " 200 hello\n", "{}", done.errors());
    let answer = session(&world).bash(&script);
    assert_eq!(answer.success(), " 200 hello\n", "{}", answer.result);
}

place_test!(an_option_opens_a_port_of_a_server_on_either_family);
fn an_option_opens_a_port_of_a_server_on_either_family(place: Place) {
    for at in ["127.0.0.1", "::1"] {
        let server = EchoServer::start(at);
        let world = World::networked(place, "", "");
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{} && head -1 <&3", server.port);
        let refused = cell_with(&world, &["-v"], &script);
        let port = server.port.to_string();
        assert_ne!(refused.code(), 0, "the control");
        let errors = refused.errors();
        assert!(errors.contains(&format!("--connect {port}")), "{errors}");
        let done = cell_with(&world, &["-v", "--connect", &port], &script);
        assert_eq!(done.success(), "hello\n", "{at}: {}", done.errors());
        let notice = format!("127.0.0.1 at port {port}");
        assert!(done.errors().contains(&notice), "{}", done.errors());
    }
    let world = World::networked(place, "", "");
    let asked = cell_with(&world, &["--allow-host", "127.0.0.1:8080"], "true");
    assert!(
        asked.errors().contains("`--connect 8080`"),
        "{}",
        asked.errors()
    );
    let zero = cell_with(&world, &["--connect", "0"], "true");
    assert_eq!(zero.code(), 125, "{}", zero.errors());
}

/// Ways to what the policy does not open, one a line: `NAME GOT` or `NAME` and why not.
const PAST: &str = r#"
import socket, struct, sys
open_, other = int(sys.argv[1]), int(sys.argv[2])
outside = len(sys.argv) > 3
patience = 60 if outside else 5
def attempt(name, attack):
    try: got = attack()
    except Exception as error: print(name, type(error).__name__, error)
    else: print(name, 'GOT' if got else 'nothing')
def connect(family, to, port):
    s = socket.socket(family); s.settimeout(patience); s.connect((to, port)); return s.recv(6) == b'hello\n'
def proxied(request, to):
    # Outside there is no relay: what it would connect to is the control.
    if outside: return connect(2, '127.0.0.1', to)
    s = socket.create_connection(('127.0.0.1', 61080), 60); s.sendall(request); data = b''
    while b'hello' not in data:
        more = s.recv(4096)
        if not more: return False
        data += more
    return True
def socks(host, port):
    return proxied(b'\x05\x01\x00\x05\x01\x00\x03' + bytes([len(host)]) + host + struct.pack('>H', port), port)
def fast_open():
    s = socket.socket(); s.sendto(b'x', 0x20000000, ('127.0.0.1', other)); return s.recv(6) == b'hello\n'
def again():
    # A socket that was connected to the port that is open.
    s = socket.create_connection(('127.0.0.1', open_), 60); s.recv(6)
    s.connect_ex(('127.0.0.1', other)); s.close(); return connect(2, '127.0.0.1', other)
attempt('other', lambda: connect(2, '127.0.0.1', other))
attempt('other-6', lambda: connect(10, '::1', other))
attempt('other-mapped', lambda: connect(10, '::ffff:127.0.0.1', other))
attempt('other-any', lambda: connect(2, '0.0.0.0', other))
attempt('open-at-127.0.0.2', lambda: connect(2, '127.0.0.2', open_))
attempt('open-at-127.1.1.1', lambda: connect(2, '127.1.1.1', open_))
attempt('fast-open', fast_open)
attempt('again', again)
for host in ['127.0.0.1', 'localhost', '[::1]', '127.0.0.2']:
    for port in [open_, other]:
        attempt(f'proxy-{host}-{port == open_}', lambda: proxied(f'CONNECT {host}:{port} HTTP/1.1\r\n\r\n'.encode(), port))
attempt('get', lambda: proxied(f'GET http://127.0.0.1:{other}/ HTTP/1.1\r\n\r\n'.encode(), other))
attempt('socks', lambda: socks(b'127.0.0.1', other))
attempt('socks-name', lambda: socks(b'localhost', open_))
"#;

place_test!(nothing_else_of_this_machine_is_reached);
fn nothing_else_of_this_machine_is_reached(place: Place) {
    let (open, other) = (EchoServer::start("::"), EchoServer::start("::"));
    let world = World::networked(
        place,
        "",
        &format!("connect = [{}]\nallow = ['*']", open.port),
    );
    world.put("past.py", PAST);
    let words = format!("python3 past.py {} {}", open.port, other.port);
    let outside = world.on_host(&format!(
        "cd {} && {words} outside",
        world.project.display()
    ));
    let outside = outside.success();
    let count = outside.lines().count();
    let got = |text: &str| text.lines().filter(|line| line.ends_with(" GOT")).count();
    // A machine may have Fast Open switched off.
    assert!(
        got(&outside) + 1 >= count && count == 19,
        "the control: {outside}"
    );
    let inside = cell_with(&world, &[], &words);
    let inside = inside.success();
    assert_eq!(
        (inside.lines().count(), got(&inside)),
        (count, 0),
        "{inside}"
    );
    println!("{place:?}: {count} of {count} ways to other ports refused");
}

/// A client that follows redirects from the open port, as a browser does, to each place that its arguments name.
const FOLLOW: &str = r#"
for way in "$@"; do
    got=$(curl -sS -L -m 10 $WITH "http://127.0.0.1:$OPEN/$way" 2>/dev/null)
    case "$got" in *reached*) echo "$way GOT" ;; *) echo "$way no" ;; esac
done
"#;

/// A server of HTTP that sends each client to the place that its path names: `HOST:PORT`.
fn redirecting() -> (u16, Serving) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = Serving::start(listener, |mut client| {
        let mut head = [0; 4096];
        let length = client.read(&mut head).unwrap_or(0);
        let head = String::from_utf8_lossy(&head[..length]).into_owned();
        let to = head
            .split(' ')
            .nth(1)
            .unwrap_or("/")
            .trim_start_matches('/');
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: http://{to}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let _ = client.write_all(answer.as_bytes());
    });
    (port, serving)
}

place_test!(a_service_at_an_open_port_sends_clients_to_no_closed_one);
fn a_service_at_an_open_port_sends_clients_to_no_closed_one(place: Place) {
    let (port, _redirecting) = redirecting();
    let listener = TcpListener::bind("[::]:0").unwrap();
    let closed = listener.local_addr().unwrap().port();
    let _serving = Serving::start(listener, |mut client| {
        let _ = client.read(&mut [0; 4096]);
        let _ = client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nreached");
    });
    let network = format!("connect = [{port}]\nallow = ['*']");
    let world = World::networked(place, "", &network);
    world.put("follow.sh", FOLLOW);
    let hosts = ["127.0.0.1", "localhost", "[::1]", "127.0.0.2", "0.0.0.0"];
    let ways = hosts.map(|host| format!("'{host}:{closed}'")).join(" ");
    let line = |with: &str| format!("OPEN={port} WITH=\"{with}\" bash follow.sh {ways}");
    let plain = line("-g --noproxy *");
    let outside = world.on_host(&format!("cd {} && {plain}", world.project.display()));
    let got = |text: &str| text.lines().filter(|line| line.ends_with(" GOT")).count();
    let outside = outside.success();
    assert_eq!(got(&outside), hosts.len(), "the control: {outside}");
    // By itself, and as a client that takes what is elsewhere by way of the relay.
    for with in [
        "-g --noproxy *",
        "-g --noproxy 127.0.0.1 -x http://127.0.0.1:61080",
    ] {
        let inside = cell_with(&world, &[], &line(with)).success();
        assert_eq!(
            (inside.lines().count(), got(&inside)),
            (hosts.len(), 0),
            "{inside}"
        );
    }
}

place_test!(a_server_of_the_cell_comes_first);
fn a_server_of_the_cell_comes_first(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let world = World::networked(place, "", &format!("connect = [{}]", server.port));
    world.put(
        "own.py",
        r#"
import socket, sys, threading
port = int(sys.argv[1])
def ask():
    with socket.create_connection(('127.0.0.1', port), 20) as s: return s.recv(6)
print(ask())
l = socket.socket(); l.setsockopt(1, 2, 1); l.bind(('127.0.0.1', port)); l.listen()
def serve():
    c, _ = l.accept(); c.sendall(b'own\n'); c.close()
t = threading.Thread(target=serve); t.start(); print(ask()); t.join(); l.close()
print(ask())
"#,
    );
    let done = cell_with(&world, &[], &format!("python3 own.py {}", server.port));
    let want = "b'hello\\n'\nb'own\\n'\nb'hello\\n'\n";
    assert_eq!(done.success(), want, "{}", done.errors());
}

place_test!(files_that_bound_the_network_bound_ports);
fn files_that_bound_the_network_bound_ports(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let port = server.port.to_string();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && head -1 <&3");
    for (bound, opens) in [
        (format!("[network]\nconnect = [{port}]"), true),
        ("[network]\nconnect = [1]".to_owned(), false),
        ("[network]\nallow = ['*']".to_owned(), false),
    ] {
        let world = World::networked(place, &bound, &format!("connect = [{port}]"));
        let by_profile = cell_with(&world, &[], &script);
        assert_eq!(
            by_profile.code() == 0,
            opens,
            "{bound}: {}",
            by_profile.errors()
        );
        let asked = cell_with(&world, &["--connect", &port], &script);
        assert_eq!(asked.code() == 0, opens, "{bound}: {}", asked.errors());
        assert!(
            opens || asked.errors().contains("does not name it"),
            "{}",
            asked.errors()
        );
    }
}

place_test!(a_gateway_that_ends_is_followed_by_one_with_the_same_ports);
fn a_gateway_that_ends_is_followed_by_one_with_the_same_ports(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let world = World::networked(place, "", &format!("connect = [{}]", server.port));
    let mut session = session(&world);
    let ask = format!("exec 3<>/dev/tcp/127.0.0.1/{} && head -1 <&3", server.port);
    assert_eq!(session.bash(&ask).success().trim(), "hello");
    let gateways = below(session.pid());
    let gateway = gateways.iter().find(|one| one.name == "lazaret-gateway");
    let gateway = gateway.expect("the session has one");
    // In the middle of a connection.
    let hold = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; head -1 <&3 >got; cat <&3; echo cut",
        server.port
    );
    let id = session.start_call("bash", json!({ "command": hold }));
    let got = world.project.join("got");
    assert!(until(LIMIT, || fs::read(&got).is_ok_and(|got| got == b"hello\n")));
    gateway.kill();
    let answer = session.answer_within(&id, LIMIT);
    assert!(answer.success().contains("cut"), "{}", answer.text());
    // That the gateway has ended is named in this result, if the one before came first.
    let after = session.bash(&ask);
    assert!(
        after.success().trim().ends_with("hello"),
        "{}",
        after.text()
    );
    assert!(session.close(LIMIT).success());
}

place_test!(a_port_where_nobody_listens_is_recorded_and_reset);
fn a_port_where_nobody_listens_is_recorded_and_reset(place: Place) {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let world = World::networked(place, "", &format!("connect = [{port}]"));
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; head -1 <&3");
    let done = cell_with(&world, &[], &script);
    assert_eq!(done.text(), "", "{}", done.errors());
    let records = audited(&world, "connection");
    let verdicts: Vec<_> = records.iter().map(|one| &one["verdict"]).collect();
    assert_eq!(verdicts, ["unreachable"]);
}
