//! The loopback of a flat session: programs of its cells talk to each other over TCP, and with nobody else, in either direction.
//!
//! Attacks are run without a cell first, where they must work.

use lazaret_tests::place::Privilege;
use lazaret_tests::{Finished, LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

fn cell(world: &World, script: &str, code: &str) -> Finished {
    world.put(script, code);
    world.in_cell(&format!("python3 {script}"))
}

fn host(world: &World, script: &str) -> Finished {
    run(
        world
            .host("python3")
            .current_dir(&world.project)
            .arg(script),
        LIMIT,
    )
}

const WORK: &str = r#"
import asyncio, errno, http.server, multiprocessing.managers, os, socket, struct, threading, time, urllib.request

def pair(family=socket.AF_INET, bind='127.0.0.1', to='127.0.0.1'):
    l = socket.socket(family); l.setsockopt(1, 2, 1); l.bind((bind, 0)); l.listen(8)
    c = socket.create_connection((to, l.getsockname()[1]), 5); a, p = l.accept()
    c.sendall(b'ping'); assert a.recv(4) == b'ping'; a.sendall(b'pong'); assert c.recv(4) == b'pong'
    assert c.getpeername()[1] == l.getsockname()[1] and a.getpeername()[1] == c.getsockname()[1] == p[1]
    assert '127.0.0.1' in p[0]; a.close(); assert c.recv(1) == b''; return l

for how in [(2, '127.0.0.1', '127.0.0.1'), (2, '0.0.0.0', '127.0.0.1'), (2, '', 'localhost'), (2, '127.0.0.1', '0.0.0.0'),
            (10, '::1', '::1'), (10, '::', '::1'), (10, '::', '127.0.0.1'), (10, '::ffff:127.0.0.1', '127.0.0.1'),
            (2, '127.0.0.1', '::ffff:127.0.0.1')]:
    l = pair(*how); name = l.getsockname()
    assert name[0] == {'::1': '::1', '::': '::ffff:127.0.0.1'}.get(how[1], '::ffff:127.0.0.1' if how[0] == 10 else '127.0.0.1'), name
    l.close()
    try: socket.create_connection((how[2], name[1]), 2); print('still there', how)
    except ConnectionRefusedError: pass
    again = socket.socket(how[0]); again.setsockopt(1, 2, 1); again.bind((how[1], name[1])); again.listen(); again.close()

def refused(want, call):
    try: call()
    except OSError as e: assert e.errno == want, (e, want)
    else: raise AssertionError('allowed')
l = pair()
refused(errno.EADDRINUSE, lambda: socket.socket().bind(l.getsockname()))
refused(errno.EINVAL, lambda: l.bind(('127.0.0.1', 0)))
for address in ['192.0.2.2', '127.0.0.2', '224.0.0.1', '255.255.255.255']:
    refused(errno.EADDRNOTAVAIL, lambda: socket.socket().bind((address, 0)))
for address in ['192.0.2.1', '8.8.8.8', '224.0.0.1', '255.255.255.255']:
    refused(errno.ENETUNREACH, lambda: socket.socket().connect((address, 80)))
refused(errno.ENETUNREACH, lambda: socket.socket(10).connect(('fe80::1', 80)))
refused(errno.ENETUNREACH, lambda: socket.socket(10).connect(('::ffff:8.8.8.8', 80)))
refused(errno.EADDRNOTAVAIL, lambda: socket.socket(10).bind(('fe80::1', 0)))
for port in [0, 1, 65535]: refused(errno.ECONNREFUSED, lambda: socket.socket().connect(('127.0.0.1', port)))
refused(errno.ENOTCONN, lambda: socket.socket().getpeername())
try: socket.socket().bind(('127.0.0.1', 80))  # Where a machine gives that to everybody, it is the cell's own.
except PermissionError: pass
c = socket.create_connection(l.getsockname()); refused(errno.EISCONN, lambda: c.connect(l.getsockname()))
only = socket.socket(10); only.setsockopt(41, 26, 1); only.bind(('::', 0)); only.listen()
refused(errno.ECONNREFUSED, lambda: socket.create_connection(('127.0.0.1', only.getsockname()[1]), 2))
socket.create_connection(('::1', only.getsockname()[1]), 2)
# Bound and not listening yet; an address of the client's own; no address at all.
b = socket.socket(); b.bind(('127.0.0.1', 0)); refused(errno.ECONNREFUSED, lambda: socket.socket().connect(b.getsockname()))
c = socket.create_connection(l.getsockname(), 5, source_address=('127.0.0.1', 0)); assert c.getsockname()[0] == '127.0.0.1'
u = socket.socket(); u.listen(); assert u.getsockname()[0] == '127.0.0.1'; socket.create_connection(u.getsockname(), 2)
# A reset when that is asked for.
l = pair(); c = socket.create_connection(l.getsockname()); a, _ = l.accept()
c.setsockopt(1, 13, struct.pack('ii', 1, 0)); c.close()
try: a.recv(1); print('no reset')
except ConnectionResetError: pass
# An accept that is waited for ends with its listener.
threading.Thread(target=lambda: (time.sleep(.2), l.shutdown(2))).start()
refused(errno.EINVAL, l.accept)

class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
class Server(http.server.ThreadingHTTPServer): request_queue_size = 500
s = Server(('', 0), Quiet); threading.Thread(target=s.serve_forever, daemon=True).start()
for _ in range(100): assert urllib.request.urlopen(f'http://localhost:{s.server_port}/work.py').read(7) == b'\nimport'
many = [socket.create_connection(('127.0.0.1', s.server_port)) for _ in range(200)]; [m.close() for m in many]
s.shutdown()

async def main():
    async def echo(r, w): w.write(await r.read(4)); await w.drain(); w.close()
    for host in ['127.0.0.1', 'localhost', '::1', None]:
        server = await asyncio.start_server(echo, host, 0)
        address = server.sockets[-1].getsockname()
        async def one():
            r, w = await asyncio.open_connection(*address[:2]); w.write(b'data'); assert await r.read() == b'data'; w.close()
        await asyncio.gather(*[one() for _ in range(200)])
        server.close(); await server.wait_closed()
        refused(errno.ECONNREFUSED, lambda: socket.create_connection(address[:2], 2))
asyncio.run(main())

class Manager(multiprocessing.managers.BaseManager): pass
Manager.register('table', dict, exposed=['__setitem__', '__getitem__'])
m = Manager(('127.0.0.1', 0), b'k'); m.start(); m.table().__setitem__('a', 1)
o = Manager(m.address, b'k'); o.connect(); m.shutdown()

# A listener that only a grandchild has left, and one that came over a Unix socket.
l = pair(); r, w = os.pipe()
if os.fork() == 0:
    if os.fork() == 0: os.write(w, b'x'); a, _ = l.accept(); a.sendall(b'child'); os._exit(0)
    os._exit(0)
os.wait(); os.read(r, 1); name = l.getsockname(); l.close(); assert socket.create_connection(name, 2).recv(9) == b'child'
l = pair(); name = l.getsockname(); x, y = socket.socketpair(); socket.send_fds(x, [b'f'], [l.fileno()]); l.close()
l = socket.socket(fileno=socket.recv_fds(y, 1, 1)[1][0]); socket.create_connection(name, 2); l.accept()
# One port for several, and more connections than descriptors.
port = 0; several = []
for i in range(3):
    l = socket.socket(); l.setsockopt(1, 15, 1); l.bind(('127.0.0.1', port)); l.listen(500); port = l.getsockname()[1]; several.append(l)
[l.close() for l in several[1:]]
for i in range(3000): c = socket.create_connection(('127.0.0.1', port), 2); several[0].accept()[0].close(); c.close()
print('ok')
"#;

place_test!(programs_talk_to_their_own_servers, flat_only);
fn programs_talk_to_their_own_servers(place: Place) {
    let world = &World::new(place);
    let inside = cell(world, "work.py", WORK);
    // Where no socket can be taken, none that is connected is reset.
    let reset = if place.permits(Privilege::OthersDescriptors) {
        ""
    } else {
        "no reset\n"
    };
    assert_eq!(
        inside.success(),
        format!("{reset}ok\n"),
        "{}",
        inside.errors()
    );
}

const SUITE: &str = r#"
import http.client, http.server, socketserver, threading, unittest
class Echo(socketserver.StreamRequestHandler):
    def handle(self): self.wfile.write(self.rfile.readline().upper())
class T(unittest.TestCase):
    def setUp(self):
        self.server = socketserver.TCPServer(('localhost', 0), Echo); threading.Thread(target=self.server.serve_forever).start()
    def tearDown(self): self.server.shutdown(); self.server.server_close()
    def test_address(self): self.assertEqual(self.server.server_address[0], '127.0.0.1')
    def test_echo(self):
        import socket
        with socket.create_connection(self.server.server_address) as c:
            c.sendall(b'hello\n'); self.assertEqual(c.recv(9), b'HELLO\n')
"#;

const NODE: &str = "
const http = require('http'), net = require('net');
const server = http.createServer((q, r) => r.end('hello ' + q.socket.remoteAddress.replace('::ffff:', '')));
server.listen(0, () => http.get({ port: server.address().port }, r => r.on('data', d => {
    console.log(String(d)); server.close();
    const refused = net.connect(server.address()?.port ?? 1, '127.0.0.1'); refused.on('error', e => console.log(e.code));
})));";

place_test!(suites_and_servers_of_others_work, flat_only);
fn suites_and_servers_of_others_work(place: Place) {
    let world = &World::new(place);
    world.put("test_echo.py", SUITE);
    let printed = world.in_cell(
        "python3 -m unittest -q 2>&1 | tail -1; python3 -m http.server 8123 > log 2>&1 & \
            until curl -sf http://127.0.0.1:8123/test_echo.py > got; do sleep 0.1; done
            cmp got test_echo.py && echo same; kill $!",
    );
    assert_eq!(printed.text(), "OK\nsame\n", "{}", printed.errors());
    if run(world.host("node").args(["-e", "1"]), LIMIT).code() == 0 {
        world.put("server.js", NODE);
        let printed = world.in_cell("node server.js");
        assert_eq!(
            printed.success(),
            "hello 127.0.0.1\nECONNREFUSED\n",
            "{}",
            printed.errors()
        );
    }
}

/// Listens and says what it hears; `port` says where.
const OPEN: &str = r#"
import os, socket, sys
family, address, port = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
l = socket.socket(family)
if address == 'used':
    # On its way to a listener without room, and given up: it has no port any more, but still says one.
    full = socket.socket(family); full.bind(('127.0.0.1' if family == 2 else '::1', 0)); full.listen(0)
    others = []
    for _ in range(9):
        l = socket.socket(family); l.setblocking(False); others.append(l)
        try: l.connect(full.getsockname())
        except BlockingIOError: pass
    l.shutdown(1); l.setblocking(True)
elif address != 'none': l.bind((address, port))
l.listen(); l.settimeout(float(sys.argv[4]))
with open('port.new', 'w') as f: f.write(str(l.getsockname()[1]))
os.rename('port.new', 'port')
try:
    while True: a, _ = l.accept(); a.settimeout(float(sys.argv[4])); print('GOT', a.recv(99).decode()); break
except TimeoutError: print('nobody')
"#;

/// Says that something is over, also when it has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls every address of the machine at the port that a program has written down, until it has ended.
fn call_while<T>(world: &World, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    let mut addresses: Vec<IpAddr> = ["127.0.0.1", "::1"].map(|ip| ip.parse().unwrap()).to_vec();
    // No packet is sent: this asks which address the machine would use.
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.77:9")?;
        socket.local_addr()
    });
    addresses.extend(outward.map(|address| address.ip()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let port = fs::read_to_string(world.project.join("port"))
                    .ok()
                    .and_then(|text| text.parse().ok());
                for address in port
                    .iter()
                    .flat_map(|port| addresses.iter().map(|ip| SocketAddr::new(*ip, *port)))
                {
                    if let Ok(mut stream) =
                        TcpStream::connect_timeout(&address, Duration::from_millis(100))
                    {
                        let _ = stream.write_all(world.canary.as_bytes());
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let _over = Over(&done);
        work()
    })
}

place_test!(no_program_of_the_machine_comes_to_a_cells_server, flat_only);
fn no_program_of_the_machine_comes_to_a_cells_server(place: Place) {
    let world = &World::new(place);
    world.put("open.py", OPEN);
    let free = own_port();
    for (family, address, port) in [
        (2, "127.0.0.1", free),
        (2, "0.0.0.0", 0),
        (2, "none", 0),
        (2, "used", 0),
        (10, "used", 0),
        (10, "::1", 0),
        (10, "::", 0),
        (10, "none", 0),
    ] {
        let words = |seconds: u64| format!("open.py {family} {address} {port} {seconds}");
        let _ = fs::remove_file(world.project.join("port"));
        let inside = call_while(world, || world.in_cell(&format!("python3 {}", words(3))));
        assert_eq!(
            inside.success(),
            "nobody\n",
            "{}: {}",
            words(3),
            inside.errors()
        );
        let _ = fs::remove_file(world.project.join("port"));
        let mut control = world.host("python3");
        // Somebody comes, if on a busy machine not soon.
        control
            .current_dir(&world.project)
            .args(words(LIMIT.as_secs() / 2).split(' '));
        let outside = call_while(world, || run(&mut control, LIMIT));
        assert_eq!(
            outside.success(),
            format!("GOT {}\n", world.canary),
            "the control of {}",
            words(3)
        );
    }
}

/// Opens and closes a listener in every way there is, and connects to its port all the time, in every way there is.
const RACE: &str = r#"
import os, random, select, socket, struct, sys, threading, time
port = int(open('port').read()); begin = time.time(); end = begin + float(sys.argv[1]); own = [0]; open('ready', 'w').close()
# A busy machine may need longer for as many tries on both sides.
def going(): return time.time() < end or time.time() < begin + 150 and not (own[0] > 200 and os.path.exists('enough'))
def listen():
    while going():
        l = socket.socket(); l.setsockopt(1, 2, 1)
        try: l.bind(('127.0.0.1', port)); l.listen(random.choice([0, 1, 99]))
        except OSError: l.close(); continue
        time.sleep(random.random() / 200)
        try:
            random.choice([lambda: l.shutdown(2), lambda: l.shutdown(0), lambda: None, lambda: l.connect(('127.0.0.1', port))])()
        except OSError: pass
        if random.random() < .2: time.sleep(.02)
        l.close()
def connect():
    while going():
        c = socket.socket(); c.setblocking(random.random() < .3); copy = c.dup()
        try: c.connect((random.choice(['127.0.0.1', '0.0.0.0']), port))
        except OSError: pass
        try: copy.send(b'x')
        except OSError: pass
        if random.random() < .5: c.close()
        select.select([copy], [], [], .02); copy.setblocking(False)
        try:
            heard = copy.recv(99)
            if heard: print('GOT', heard.decode()); sys.stdout.flush(); os._exit(0)
        except OSError: pass
        c.close(); copy.close(); own[0] += 1
part = {'listen': [listen], 'connect': [connect] * 3}.get(sys.argv[-1], [listen, connect, connect, connect])
threads = [threading.Thread(target=t) for t in part]
[t.start() for t in threads]; [t.join() for t in threads]; print('tried', own[0] > 200)
"#;

/// A port that the kernel gives to nobody by itself, below the range of Linux for that (32768 on): while neither the cell nor the
/// host has it, no other program gets it.
fn own_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (number % 20_000) as u16;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

/// How often a server has to have taken a port so that something can be said of it.
const ENOUGH: u32 = 21;

/// Takes the port on all addresses whenever it can be had, once the program says `ready`, keeps it for some time, and answers with the
/// secret. It says itself when the port is `taken`, and when that was `enough`.
fn take_while<T>(world: &World, port: u16, keep: Duration, work: impl FnOnce() -> T) -> (T, u32) {
    let (done, ready) = (AtomicBool::new(false), world.project.join("ready"));
    let _ = fs::remove_file(&ready);
    let says = |name: &str| fs::write(world.project.join(name), "").unwrap();
    for name in ["taken", "enough"] {
        let _ = fs::remove_file(world.project.join(name));
    }
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut taken = 0;
            while !ready.exists() && !done.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            while !done.load(Ordering::Relaxed) {
                // The standard library sets SO_REUSEADDR.
                let Ok(listener) = TcpListener::bind(("0.0.0.0", port)) else {
                    std::thread::sleep(Duration::from_micros(100));
                    continue;
                };
                taken += 1;
                match taken {
                    1 => says("taken"),
                    ENOUGH => says("enough"),
                    _ => {}
                }
                listener.set_nonblocking(true).unwrap();
                let until = Instant::now() + keep;
                while Instant::now() < until && !done.load(Ordering::Relaxed) {
                    let Ok((mut stream, _)) = listener.accept() else {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    };
                    let _ = stream.write_all(world.canary.as_bytes());
                }
                drop(listener);
                std::thread::sleep(Duration::from_millis(5));
            }
            taken
        });
        let result = {
            let _over = Over(&done);
            work()
        };
        (result, host.join().unwrap())
    })
}

place_test!(
    a_server_that_takes_over_a_cells_port_is_not_reached,
    flat_only
);
fn a_server_that_takes_over_a_cells_port_is_not_reached(place: Place) {
    const SHORT: Duration = Duration::from_millis(10);
    let world = &World::new(place);
    let port = own_port();
    world.put("port", port.to_string());
    world.put("race.py", RACE);
    let (inside, taken) = take_while(world, port, SHORT, || world.in_cell("python3 race.py 5"));
    assert_eq!(inside.success(), "tried True\n", "{}", inside.errors());
    assert!(taken >= ENOUGH, "the host took the port {taken} times only");
    // It ends as soon as it has got something.
    let control = || {
        run(
            world
                .host("python3")
                .current_dir(&world.project)
                .args(["race.py", "150"]),
            LIMIT,
        )
    };
    let (outside, _) = take_while(world, port, SHORT, control);
    assert_eq!(
        outside.success(),
        format!("GOT {}\n", world.canary),
        "the control"
    );
}

place_test!(
    a_server_that_takes_over_the_port_of_an_earlier_call_is_not_reached,
    flat_only
);
fn a_server_that_takes_over_the_port_of_an_earlier_call_is_not_reached(place: Place) {
    const SHORT: Duration = Duration::from_millis(10);
    let world = &World::new(place);
    let port = own_port();
    world.put("port", port.to_string());
    world.put("race.py", RACE);
    let mut session = Session::open(world);
    let (inside, taken) = take_while(world, port, SHORT, || {
        let listens = json!({"command": "python3 race.py 300 listen", "background": true});
        session.call("bash", listens).success();
        let connects = json!({"command": "python3 race.py 5 connect", "timeout": LIMIT.as_secs()});
        session.call("bash", connects).success().to_owned()
    });
    assert_eq!(inside, "tried True\n");
    assert!(taken >= ENOUGH, "the host took the port {taken} times only");
    // The control is that of the attack within one call.
}

/// Serves over both families; its first word is its port.
const SERVER: &str = r#"
import socket, sys, threading
def serve(family, address):
    l = socket.socket(family); l.setsockopt(1, 2, 1)
    if family == 10: l.setsockopt(41, 26, 1)
    l.bind((address, int(sys.argv[1]))); l.listen()
    while True:
        a, name = l.accept(); a.sendall(f'{sys.argv[2]} {name[0]}'.encode()); a.close()
for how in [(2, '127.0.0.1'), (10, '::1')]: threading.Thread(target=serve, args=how).start()
"#;

/// Connects in every way until there is a server, or it is sure that there is none.
const CLIENT: &str = r#"
import select, socket, sys, time
def blocking(address): return socket.create_connection((address, port), 50)
def waiting(address):
    c = socket.socket(10 if ':' in address else 2); c.connect((address, port)); return c
def polling(address):
    c = socket.socket(10 if ':' in address else 2); c.setblocking(False)
    try: c.connect((address, port))
    except BlockingIOError: assert select.select([], [c], [], 50)[1]
    if c.getsockopt(1, 4): raise ConnectionRefusedError
    c.setblocking(True); return c
port = int(sys.argv[1]); end = time.time() + float(sys.argv[2])
for address in ['127.0.0.1', '::1']:
    for way in [blocking, waiting, polling]:
        while True:
            try: c = way(address); break
            except ConnectionRefusedError:
                if time.time() > end: print('refused'); sys.exit()
                time.sleep(.1)
        assert c.getpeername()[:2] == (address, port), c.getpeername()
        said = b''
        while more := c.recv(99): said += more
        print(way.__name__, said.decode()); c.close()
"#;

place_test!(calls_of_a_session_reach_each_others_servers);
/// As in the namespaced tier, where the session has a network of its own: a server in the background, and one of a later call.
fn calls_of_a_session_reach_each_others_servers(place: Place) {
    let world = &World::new(place);
    let port = own_port();
    let secret = &world.canary;
    world.put("server.py", SERVER);
    world.put("client.py", CLIENT);
    let mut session = Session::open(world);
    let background = |line: String| json!({"command": line, "background": true});
    let serves = background(format!("python3 server.py {port} {secret}"));
    session.call("bash", serves).success();
    let ways = |address: &str| {
        ["blocking", "waiting", "polling"].map(|way| format!("{way} {secret} {address}\n"))
    };
    let reached = [ways("127.0.0.1"), ways("::1")].concat().concat();
    let said = session.bash(&format!("python3 client.py {port} 50"));
    // In the flat tier clients of IPv6 have such an address.
    let heard = said.success().replace("::ffff:127.0.0.1", "::1");
    assert_eq!(heard, reached, "{}", said.result);
    // The port is in use in the whole session.
    let again = session.bash(&format!("python3 server.py {port} x"));
    assert!(
        again.result.to_string().contains("Address already in use"),
        "{}",
        again.result
    );
    // Another session, and the machine.
    let mut other = Session::open(world);
    let refused = other.bash(&format!("python3 client.py {port} 1"));
    assert_eq!(refused.success(), "refused\n", "{}", refused.result);
    let outside = run(
        world.host("python3").current_dir(&world.project).args([
            "client.py",
            &port.to_string(),
            "1",
        ]),
        LIMIT,
    );
    assert_eq!(outside.success(), "refused\n", "{}", outside.errors());
    // The server has ended: whoever has its port now is not reached.
    session.call("background_kill", json!({"id": 1})).success();
    let machine = TcpListener::bind(("0.0.0.0", port)).unwrap();
    let after = session.bash(&format!("python3 client.py {port} 1"));
    assert_eq!(after.success(), "refused\n", "{}", after.result);
    assert!(
        TcpStream::connect(machine.local_addr().unwrap()).is_ok(),
        "the control"
    );
    drop(machine);
    // The other way round: what runs in the background reaches a later call.
    let other = own_port();
    session
        .call(
            "bash",
            background(format!("python3 client.py {other} 150 > heard")),
        )
        .success();
    let serves = format!(
        "python3 server.py {other} {secret} & until [ -s heard ]; do sleep 0.1; done; cat heard"
    );
    let serves = session.call(
        "bash",
        json!({"command": serves, "timeout": LIMIT.as_secs()}),
    );
    assert!(
        serves
            .result
            .to_string()
            .contains(&format!("polling {secret}")),
        "{}",
        serves.result
    );
}

/// Connections that wait for room with a listener, which then goes. The kernel asks again after a second.
const LATE: &str = r#"
import os, signal, socket, sys, time
port = int(open('port').read()); way = sys.argv[1]
l = socket.socket(); l.setsockopt(1, 2, 1); l.bind(('127.0.0.1', port)); l.listen(0); open('ready', 'w').close()
waiting = [socket.socket() for _ in range(12)]; children = []
for c in waiting:
    if way == 'blocking':
        child = os.fork()
        if child == 0: c.connect(('127.0.0.1', port)); os._exit(0)
        children.append(child)
    else:
        c.setblocking(False)
        try: c.connect(('127.0.0.1', port))
        except BlockingIOError: pass
# Killed while they wait; a busy machine may need longer to get there.
def waits(child):
    try: return open(f'/proc/{child}/stat').read().rsplit(')')[1].split()[0] in 'SZ'
    except OSError: return True
while not all(map(waits, children)): time.sleep(.05)
time.sleep(.2)
for child in children: os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
if way == 'shutdown': l.shutdown(2)
else: l.close()
begin = time.time()
while not os.path.exists('taken') and time.time() < begin + 60: time.sleep(.01)
end = time.time() + float(sys.argv[2])
while time.time() < end:
    for c in waiting:
        c.setblocking(False)
        try: heard = c.recv(99)
        except OSError: continue
        if heard: print('GOT', heard.decode()); sys.exit()
    time.sleep(.01)
print('nothing')
"#;

place_test!(open_connection_does_not_go_to_a_later_server, flat_only);
fn open_connection_does_not_go_to_a_later_server(place: Place) {
    let world = &World::new(place);
    world.put("late.py", LATE);
    for way in ["close", "shutdown", "blocking"] {
        let port = own_port();
        world.put("port", port.to_string());
        let script = format!("python3 late.py {way} 5");
        let (inside, taken) = take_while(world, port, LIMIT, || world.in_cell(&script));
        assert_eq!(inside.success(), "nothing\n", "{way}: {}", inside.errors());
        assert!(taken > 0, "{way}: the host did not get the port");
        let control = || {
            run(
                world
                    .host("python3")
                    .current_dir(&world.project)
                    .args(["late.py", way, "100"]),
                LIMIT,
            )
        };
        // Another one: what came about at the first may not be over yet.
        let port = own_port();
        world.put("port", port.to_string());
        let (outside, _) = take_while(world, port, LIMIT, control);
        assert_eq!(
            outside.success(),
            format!("GOT {}\n", world.canary),
            "the control of {way}"
        );
    }
}

const QUEUE: &str = r#"
import errno, os, select, socket, struct, threading, time
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(0); name = l.getsockname()
def begin():
    c = socket.socket(); c.setblocking(False)
    try: c.connect(name)
    except BlockingIOError: pass
    return c
# Few: the kernel asks again after 1, 3, 7, 15, 31 s, and on a busy machine each time only one gets in before the queue is full again.
waiting = [begin() for _ in range(4)]
done = []
def block():
    c = socket.socket(); c.connect(name); done.append(c)
blocked = [threading.Thread(target=block, daemon=True) for _ in range(2)]; [t.start() for t in blocked]
time.sleep(.3); assert not done
start = time.time()
for i in range(100): open('f', 'w').close()
# The queue is full for as long as nobody accepts: whoever waited for it would wait for two minutes.
assert time.time() - start < 60, 'the supervisor waits'
again = []
def accept():
    while True:
        try: again.append(l.accept())
        except OSError: return
threading.Thread(target=accept, daemon=True).start()
[t.join() for t in blocked]; assert len(done) == 2
for c in waiting: assert select.select([], [c], [], 40)[1] and c.getsockopt(1, 4) == 0, c
# Those that are on their way when the listener goes end with it.
l2 = socket.socket(); l2.bind(('127.0.0.1', 0)); l2.listen(0); name = l2.getsockname()
late = [begin() for _ in range(20)]; time.sleep(.1); l2.shutdown(2)
for c in late: assert select.select([], [c], [], 15)[1]
assert any(c.getsockopt(1, 4) for c in late)
# A close that would wait, of a socket that the supervisor may have last.
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()
for i in range(20):
    c = socket.create_connection(l.getsockname()); a, _ = l.accept()
    c.setsockopt(1, 13, struct.pack('ii', 1, 1000)); c.setblocking(False)
    try:
        while True: c.send(b'x' * 65536)
    except BlockingIOError: pass
    fd = c.fileno()
    def ask():
        try:
            for _ in range(200): c.getpeername()
        except OSError: pass
    t = threading.Thread(target=ask); t.start(); time.sleep(.001); c.close(); t.join(); again.append(a)
start = time.time(); open('f', 'w').close(); assert time.time() - start < 60
# Too many at once.
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen(0); name = l.getsockname(); crowd = []
try:
    for _ in range(400): c = socket.socket(); c.setblocking(False); crowd.append(c); c.connect_ex(name) == errno.EAGAIN and 1 / 0
except ZeroDivisionError: print('ok', len(crowd) > 100)
open('f', 'w').close()
"#;

place_test!(a_full_queue_stops_nobody_else, flat_only);
fn a_full_queue_stops_nobody_else(place: Place) {
    let world = &World::new(place);
    let inside = cell(world, "queue.py", QUEUE);
    assert_eq!(inside.success(), "ok True\n", "{}", inside.errors());
}

place_test!(a_cell_does_not_reach_the_server_of_another, flat_only);
fn a_cell_does_not_reach_the_server_of_another(place: Place) {
    let world = &World::new(place);
    let serve = "import os, socket, sys, time
l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()
open('port.new', 'w').write(str(l.getsockname()[1])); os.rename('port.new', 'port'); l.settimeout(.1)
while not os.path.exists('over'):
    try: l.accept()[0].sendall(sys.argv[1].encode()); break
    except TimeoutError: pass
else: print('nobody')";
    let reach = "import os, socket, time
while not os.path.exists('port'): time.sleep(.05)
print(socket.create_connection(('127.0.0.1', int(open('port').read())), 60).recv(99).decode())";
    world.put("serve.py", serve);
    world.put("reach.py", reach);
    let served = format!("python3 serve.py {}", world.canary);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| world.in_cell(&served));
        let client = world.in_cell("python3 reach.py");
        world.put("over", "");
        assert!(
            client.errors().contains("ConnectionRefusedError"),
            "{}",
            client.errors()
        );
        assert_eq!(server.join().unwrap().text(), "nobody\n");
    });
    for name in ["port", "over"] {
        fs::remove_file(world.project.join(name)).unwrap();
    }
    std::thread::scope(|scope| {
        let mut command = world.host("python3");
        command
            .current_dir(&world.project)
            .arg("serve.py")
            .arg(&world.canary);
        scope.spawn(move || run(&mut command, LIMIT));
        let client = host(world, "reach.py");
        assert_eq!(
            client.success(),
            format!("{}\n", world.canary),
            "the control"
        );
    });
}

place_test!(tcp_has_two_walls, flat_only);
/// The supervisor, and Landlock behind it: without either the other holds.
fn tcp_has_two_walls(place: Place) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let connect = format!(
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {})); print(\"GOT\")'",
        listener.local_addr().unwrap().port()
    );
    let bind =
        "python3 -c 'import socket; socket.socket().bind((\"127.0.0.1\", 0)); print(\"GOT\")'";
    let world = &World::new(place);
    for script in [&connect, bind] {
        assert_eq!(world.on_host(script).success(), "GOT\n", "the control");
    }
    for (without, error) in [
        ("protected-names", "Permission denied"),
        ("landlock-network", "refused"),
    ] {
        let world = World::ablated(world.place, without);
        let inside = world.in_cell(&connect);
        assert!(
            inside.errors().contains(error),
            "without {without}: {}",
            inside.errors()
        );
    }
    let world = World::ablated(world.place, "protected-names");
    let inside = world.in_cell(bind);
    assert!(
        inside.errors().contains("Permission denied"),
        "{}",
        inside.errors()
    );
}

/// A cell's own socket, and nothing of the machine's that can be asked through one.
/// Options of sockets that no list of ours names, and two that it does.
const OPTIONS: &str = r#"
import errno, socket, struct
one = struct.pack('i', 1)
# SO_LOCK_FILTER, SO_ZEROCOPY, SO_MAX_PACING_RATE; IP_OPTIONS; TCP_FASTOPEN_CONNECT
others = [(1, 44, one), (1, 60, one), (1, 47, one), (0, 4, b''), (6, 30, one)]
for level, option, value in others + [(1, 9, one), (6, 1, one)]:
    try:
        socket.socket().setsockopt(level, option, value)
        print(level, option, 'set')
    except OSError as error:
        print(level, option, errno.errorcode[error.errno])
"#;

place_test!(only_what_programs_set_is_set, flat_only);
fn only_what_programs_set_is_set(place: Place) {
    let world = World::new(place);
    world.put("options.py", OPTIONS);
    let without = host(&world, "options.py").success();
    assert_eq!(without.matches("set\n").count(), 7, "{without}");
    let (refused, set) = (
        "1 44 EPERM\n1 60 EPERM\n1 47 EPERM\n0 4 EPERM\n6 30 EPERM\n",
        "1 9 set\n6 1 set\n",
    );
    assert_eq!(
        cell(&world, "options.py", OPTIONS).success(),
        format!("{refused}{set}")
    );
}

place_test!(a_socket_says_nothing_of_the_machine, flat_only);
fn a_socket_says_nothing_of_the_machine(place: Place) {
    let world = &World::new(place);
    // SIOCGIFMETRIC, SIOCGIFMAP; how many interfaces there are, and what any but the loopback says.
    let ask = "import fcntl, os, socket, struct
s = socket.socket()
def ask(request, value):
    try: return fcntl.ioctl(s, request, value)
    except PermissionError: return b'refused'
    except OSError as error: return str(error.errno).encode()
for request in [0x891d, 0x8970]: print(ask(request, struct.pack('256s', b'lo'))[:7].replace(b'lo' + bytes(5), b'GOT').decode())
print(struct.unpack('iP', ask(0x8912, struct.pack('iP', 0, 0)))[0])
for name in os.environ.get('NAMES', '').split(): print([ask(request, struct.pack('256s', name.encode()))[:2] for request in (0x8913, 0x8915, 0x8921, 0x8927, 0x8933)])";
    let names: Vec<String> = std::fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lo")
        .collect();
    let ask = format!(
        "import os\nos.environ['NAMES'] = '{}'\n{ask}",
        names.join(" ")
    );
    let nothing = "[b'19', b'19', b'19', b'19', b'19']\n".repeat(names.len());
    let inside = cell(world, "ask.py", &ask);
    assert_eq!(inside.success(), format!("refused\nrefused\n40\n{nothing}"));
    let outside = host(world, "ask.py").success();
    assert!(outside.starts_with("GOT\nGOT\n"), "the control: {outside}");
    assert!(names.is_empty() || !outside.contains(&nothing), "{outside}");
}
