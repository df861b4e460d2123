//! The relay as programs use it: with real sockets, and a resolver that the test controls.

use super::*;
use broker_protocol::{Decoder, Lease};
use policies::web::WebTable;
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Instant;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{oneshot, watch};

/// A resolver that returns the next answer for each query, and then keeps returning the last one.
struct Script(Vec<Vec<&'static str>>, RefCell<usize>);

impl Resolve for Script {
    async fn resolve(&self, _: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let turn = self.1.replace_with(|turn| *turn + 1).min(self.0.len() - 1);
        Ok(self.0[turn]
            .iter()
            .map(|ip| SocketAddr::new(ip.parse::<IpAddr>().unwrap(), port))
            .collect())
    }
}

fn policy(own: &str) -> WebPolicy {
    WebPolicy {
        own: toml::from_str::<WebTable>(own).unwrap(),
        bounds: vec![],
    }
}

/// A host that echoes the input of each connection after a mark.
fn echo() -> (u16, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let copy = listener.try_clone().unwrap();
    thread::spawn(move || {
        while let Ok((mut program, _)) = copy.accept() {
            thread::spawn(move || {
                let _ = program.write_all(b"host:");
                let mut bytes = [0; 65536];
                while let Ok(length @ 1..) = program.read(&mut bytes) {
                    if program.write_all(&bytes[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (listener.local_addr().unwrap().port(), listener)
}

/// A relay that runs on a thread of its own until it is dropped.
struct Running {
    at: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// The broker's end of the control socket, and the other, from which nobody reads.
    broker: UnixStream,
    theirs: Option<UnixStream>,
    leases: watch::Sender<Vec<Lease>>,
}

impl Running {
    fn start(own: String, answers: &[&[&'static str]]) -> Self {
        Self::with(own, answers, None, Vec::new())
    }

    fn with(
        own: String,
        answers: &[&[&'static str]],
        announcements: Option<UnixDatagram>,
        ports: Vec<u16>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let script = answers.iter().map(|answer| answer.to_vec()).collect();
        let (stop, stopped) = oneshot::channel();
        let (granted, leases) = watch::channel(Vec::new());
        let (ours, broker) = UnixStream::pair().unwrap();
        let theirs = ours.try_clone().unwrap();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread()
                .enable_all()
                .build_local(LocalOptions::default())
                .unwrap();
            runtime.block_on(async move {
                let resolver = Script(script, RefCell::new(0));
                let relay = Relay::with_resolver(
                    CellHosts::new(policy(&own), leases),
                    resolver,
                    ReportSender::new(ours).unwrap(),
                )
                .with_ports(ports);
                let unannounced = Unannounced::refused_if(announcements.is_some());
                let (line, unused) = UnixDatagram::pair().unwrap();
                let announcements = announcements.unwrap_or(unused);
                let (agents, _agents) = UnixDatagram::pair().unwrap();
                let descriptors = vec![
                    listener.into(),
                    announcements.into(),
                    line.into(),
                    agents.into(),
                ];
                let sockets = RelaySockets::new(descriptors, unannounced, &[]);
                let sockets = sockets.unwrap().unwrap();
                tokio::select! {
                    served = relay.serve(sockets) => served.unwrap(),
                    _ = stopped => {}
                }
            });
        });
        Self {
            broker,
            theirs: Some(theirs),
            at,
            stop: Some(stop),
            thread: Some(thread),
            leases: granted,
        }
    }

    fn connect(&self) -> TcpStream {
        let program = TcpStream::connect(self.at).unwrap();
        program
            .set_read_timeout(Some(Duration::from_secs(100)))
            .unwrap();
        program
    }

    /// Sends `request`, closes the sending side and reads to the end.
    fn ask(&self, request: &[u8]) -> String {
        let mut program = self.connect();
        program.write_all(request).unwrap();
        program.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        program.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn tunnel(&self, to: &str) -> String {
        self.ask(format!("CONNECT {to} HTTP/1.1\r\n\r\nhello").as_bytes())
    }

    /// Ends it; returns its decisions.
    fn end(mut self) -> Vec<ConnectionReport> {
        let _ = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
        let (mut bytes, mut decoder) = (Vec::new(), Decoder::new());
        drop(self.theirs.take());
        self.broker.read_to_end(&mut bytes).unwrap();
        decoder.push(&bytes);
        let mut reports = Vec::new();
        while let Some(frame) = decoder.next().unwrap() {
            match frame {
                FromGateway::Connected(report) => reports.push(report),
                FromGateway::Disconnected(_) => {}
                other => panic!("{other:?}"),
            }
        }
        reports
    }
}

fn verdicts(decisions: &[ConnectionReport]) -> Vec<ConnectionVerdict> {
    decisions.iter().map(|one| one.verdict).collect()
}

const ESTABLISHED: &str = "HTTP/1.1 200 Connection established\r\n\r\nhost:hello";

#[test]
fn a_host_of_the_list_is_reached_in_three_ways() {
    let (port, _host) = echo();
    let own = format!("allow = ['a.example:{port}']\nprivate = ['127.0.0.1:{port}']");
    let relay = Running::start(own, &[&["127.0.0.1"]]);
    assert_eq!(relay.tunnel(&format!("A.EXAMPLE.:{port}")), ESTABLISHED);
    let plain = relay.ask(
        format!("PUT http://a.example:{port}/x HTTP/1.1\r\nContent-Length: 2\r\n\r\nab").as_bytes(),
    );
    assert_eq!(
        plain,
        format!(
            "host:PUT /x HTTP/1.1\r\nHost: a.example:{port}\r\nContent-Length: 2\r\nConnection: close\r\n\r\nab"
        )
    );
    let socks = [
        b"\x05\x01\x00\x05\x01\x00\x03\x09a.example",
        &port.to_be_bytes()[..],
        b"hello",
    ]
    .concat();
    assert_eq!(
        relay.ask(&socks),
        "\x05\0\x05\0\0\x01\0\0\0\0\0\0host:hello"
    );
    let decisions = relay.end();
    assert_eq!(verdicts(&decisions), [ConnectionVerdict::Allowed; 3]);
    assert!(
        decisions
            .iter()
            .all(|one| one.host == "a.example" && one.port == port && one.why.is_none())
    );
}

/// Without checks, each would reach the host: the first test is the control.
#[test]
fn unlisted_host_is_refused_in_every_spelling() {
    let (port, _host) = echo();
    let relay = Running::start(
        format!("allow = ['a.example:{port}', '*.b.example:{port}']"),
        &[&["127.0.0.1"]],
    );
    for host in [
        "c.example",
        "b.example",
        "a.example.c.example",
        "xa.example",
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "localhost",
    ] {
        let answer = relay.tunnel(&format!("{host}:{port}"));
        assert!(
            answer.starts_with("HTTP/1.1 403 Forbidden: lazaret: "),
            "{host}: {answer}"
        );
        let plain = relay.ask(format!("GET http://{host}:{port}/ HTTP/1.1\r\n\r\n").as_bytes());
        assert!(plain.starts_with("HTTP/1.1 403 "), "{host}: {plain}");
    }
    assert!(
        relay
            .tunnel(&format!("a.example:{}", port.wrapping_add(1).max(1)))
            .starts_with("HTTP/1.1 403 ")
    );
    let socks = [
        b"\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01",
        &port.to_be_bytes()[..],
    ]
    .concat();
    assert_eq!(relay.ask(&socks), "\x05\0\x05\x02\0\x01\0\0\0\0\0\0");
    let decisions = relay.end();
    assert!(
        decisions
            .iter()
            .all(|one| one.verdict.is_refusal() && one.why.is_some()),
        "{decisions:?}"
    );
}

#[test]
fn a_name_on_the_list_reaches_no_address_that_is_not_public() {
    let (port, _host) = echo();
    for answers in [
        &["127.0.0.1"][..],
        &["203.0.113.1", "127.0.0.1"],
        &["::1"],
        &["169.254.169.254"],
        &["10.0.0.1"],
    ] {
        let relay = Running::start(
            format!("allow = ['*']\nprivate = ['203.0.113.1:{port}']"),
            &[answers],
        );
        let answer = relay.tunnel(&format!("a.example:{port}"));
        assert!(
            answer.starts_with("HTTP/1.1 403 Forbidden: lazaret: a.example is at "),
            "{answers:?}: {answer}"
        );
        assert_eq!(verdicts(&relay.end()), [ConnectionVerdict::NotPublic]);
    }
}

/// A name is resolved once for each connection, and the checked address is connected to, even if the resolver changes its answer.
#[test]
fn a_name_that_changes_its_answer_gets_nobody_elsewhere() {
    let (port, _host) = echo();
    let own = format!("allow = ['*']\nprivate = ['127.0.0.1:{port}']");
    let relay = Running::start(own, &[&["127.0.0.1"], &["127.0.0.2"]]);
    assert_eq!(relay.tunnel(&format!("a.example:{port}")), ESTABLISHED);
    assert!(
        relay
            .tunnel(&format!("a.example:{port}"))
            .contains("403 Forbidden")
    );
    assert_eq!(
        verdicts(&relay.end()),
        [ConnectionVerdict::Allowed, ConnectionVerdict::NotPublic]
    );
}

#[test]
fn malformed_request_gets_an_error_answer() {
    let relay = Running::start("allow = ['*']".into(), &[&["127.0.0.1"]]);
    for (request, want) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "HTTP/1.1 400 "),
        (b"CONNECT a\0b:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        (b"CONNECT u@a.example:443 HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "),
        (
            b"CONNECT a.example:443@b.example HTTP/1.1\r\n\r\n",
            "HTTP/1.1 400 ",
        ),
        (b"\x16\x03\x01\x02\x00\x01", "HTTP/1.1 400 "),
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", "HTTP/1.1 400 "),
        (
            b"\x05\x01\x00\x05\x03\x00\x01\x08\x08\x08\x08\x00\x35",
            "\x05\0\x05\x07",
        ),
        (b"\x05\x01\x02", "\x05\u{fffd}"),
    ] {
        let answer = relay.ask(request);
        assert!(answer.starts_with(want), "{request:?}: {answer:?}");
    }
    let long = [
        b"CONNECT a.example:443 HTTP/1.1\r\nA: ",
        &[b'x'; HEAD_MAX][..],
    ]
    .concat();
    assert!(relay.ask(&long).starts_with("HTTP/1.1 431 "));
    assert!(
        relay
            .end()
            .iter()
            .all(|one| one.verdict == ConnectionVerdict::Malformed && one.host.is_empty())
    );
}

#[test]
fn a_host_that_cannot_be_reached_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let own = format!("allow = ['*']\nprivate = ['127.0.0.1:{closed}']");
    let relay = Running::start(own, &[&["127.0.0.1"]]);
    assert!(
        relay
            .tunnel(&format!("a.example:{closed}"))
            .starts_with("HTTP/1.1 502 Bad Gateway: lazaret: cannot connect")
    );
    let socks = [
        b"\x05\x01\x00\x05\x01\x00\x03\x09a.example",
        &closed.to_be_bytes()[..],
    ]
    .concat();
    assert_eq!(relay.ask(&socks).as_bytes()[3], 5);
    assert_eq!(verdicts(&relay.end()), [ConnectionVerdict::Unreachable; 2]);
}

/// Silent connections use up the places; further ones wait, and are served when one ends.
#[test]
fn a_flood_waits_for_its_places_and_harms_nobody_after_it() {
    let (port, _host) = echo();
    let own = format!("allow = ['*']\nprivate = ['127.0.0.1:{port}']");
    let relay = Running::start(own, &[&["127.0.0.1"]]);
    let mut silent: Vec<TcpStream> = (0..AT_ONCE + 20).map(|_| relay.connect()).collect();
    let mut late = relay.connect();
    late.write_all(format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\nhello").as_bytes())
        .unwrap();
    late.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert!(late.read(&mut [0]).is_err(), "it is served before its turn");
    silent.clear();
    late.set_read_timeout(Some(Duration::from_secs(100)))
        .unwrap();
    late.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    late.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, ESTABLISHED);
    relay.end();
}

/// A byte now and then is not enough to keep a place.
#[test]
fn a_slow_request_is_ended_in_time() {
    let relay = Running::start("allow = ['*']".into(), &[&["127.0.0.1"]]);
    let (mut program, begun) = (relay.connect(), Instant::now());
    let mut writer = program.try_clone().unwrap();
    let slow = thread::spawn(move || {
        for byte in b"CONNECT a.example:443 HTTP/1.1\r\n".iter().cycle() {
            if writer.write_all(&[*byte]).is_err()
                || begun.elapsed() > Duration::from_secs(HEAD_S + 100)
            {
                return;
            }
            thread::sleep(Duration::from_millis(200));
        }
    });
    let mut answer = String::new();
    program.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(begun.elapsed() >= Duration::from_secs(HEAD_S));
    drop(program);
    slow.join().unwrap();
    relay.end();
}

/// If one side does not read, the other is stopped, and nothing is lost.
#[test]
fn bytes_come_whole_and_in_order_through_a_slow_reader() {
    let (port, _host) = echo();
    let own = format!("allow = ['*']\nprivate = ['127.0.0.1:{port}']");
    let relay = Running::start(own, &[&["127.0.0.1"]]);
    let mut program = relay.connect();
    program
        .write_all(format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\n").as_bytes())
        .unwrap();
    let sent: Vec<u8> = (0..8_000_000_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let (mut writer, bytes) = (program.try_clone().unwrap(), sent.clone());
    let writing = thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    thread::sleep(Duration::from_millis(300));
    let mut got = Vec::new();
    program.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    let start = got.windows(5).position(|five| five == b"host:").unwrap() + 5;
    assert!(
        got[start..] == sent[..],
        "{} of {}",
        got.len() - start,
        sent.len()
    );
    relay.end();
}

#[test]
fn unannounced_connection_is_not_served() {
    let (port, _host) = echo();
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let own = format!("allow = ['*']\nprivate = ['127.0.0.1:{port}']");
    let relay = Running::with(own, &[&["127.0.0.1"]], Some(theirs), Vec::new());
    let request = format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\nhello");
    let mut stranger = relay.connect();
    // The connection may be closed before.
    let _ = stranger.write_all(request.as_bytes());
    let read = stranger.read(&mut [0; 16]);
    assert!(!read.as_ref().is_ok_and(|length| *length > 0), "{read:?}");
    let answer = ask_announced(&ours, relay.at, (0, 0), &request);
    assert_eq!(answer, ESTABLISHED);
    assert_eq!(verdicts(&relay.end()), [ConnectionVerdict::Allowed]);
}

#[test]
fn a_port_of_this_machine_is_served_if_the_policy_opens_it() {
    let ((open, _one), (closed, _other)) = (echo(), echo());
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let relay = Running::with(String::new(), &[], Some(theirs), vec![open]);
    let ask = |port: u16| ask_announced(&ours, relay.at, (port, 0), "hello");
    assert_eq!(ask(open), "host:hello");
    assert_eq!(ask(closed), "");
    let decisions = relay.end();
    assert_eq!(
        verdicts(&decisions),
        [ConnectionVerdict::Allowed, ConnectionVerdict::NotListed]
    );
    assert_eq!(decisions[0].host, "127.0.0.1");
}

/// Asks like a program whose supervisor announces its connection: first an address, then the announcement with a port of this machine and
/// a call, then the connection.
fn ask_announced(
    supervisor: &UnixDatagram,
    at: SocketAddr,
    (port, call): (u16, CallId),
    request: &str,
) -> String {
    // What is refused is reset, maybe before it knows that it is connected.
    let Ok(mut program) = announced(supervisor, at, (port, call)) else {
        return String::new();
    };
    let mut answer = Vec::new();
    let _ = program.write_all(request.as_bytes());
    let _ = program.shutdown(std::net::Shutdown::Write);
    let _ = program.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn announced(
    supervisor: &UnixDatagram,
    at: SocketAddr,
    (port, call): (u16, CallId),
) -> io::Result<TcpStream> {
    let (connect, name) = bound_socket();
    let SocketAddr::V4(name) = name else {
        panic!("{name:?}")
    };
    let [from, port] = [name.port(), port].map(u16::to_be_bytes);
    let announcement = [&name.ip().octets()[..], &from, &port, &call.to_be_bytes()].concat();
    supervisor.send(&announcement).unwrap();
    connect(at)
}

/// A socket with an address, and a function that connects it.
fn bound_socket() -> (impl FnOnce(SocketAddr) -> io::Result<TcpStream>, SocketAddr) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let name = socket.local_addr().unwrap();
    let connect = move |at| {
        let stream = runtime.block_on(socket.connect(at))?.into_std()?;
        stream.set_nonblocking(false)?;
        Ok(stream)
    };
    (connect, name)
}

fn lease(host: String, alone: bool) -> Lease {
    Lease {
        lease: 1,
        opens: broker_protocol::Leased::Host(host),
        call: 7,
        alone,
    }
}

#[test]
fn a_lease_opens_its_host_until_it_ends() {
    let (port, _host) = echo();
    let relay = Running::start("private = ['127.0.0.0/8']".into(), &[&["127.0.0.1"]]);
    let to = format!("a.example:{port}");
    assert!(relay.tunnel(&to).starts_with("HTTP/1.1 403"), "the control");
    relay.leases.send(vec![lease(to.clone(), false)]).unwrap();
    assert!(relay.tunnel(&to).ends_with("host:hello"));
    for other in [
        format!("b.example:{port}"),
        format!("x.a.example:{port}"),
        "a.example:1".to_owned(),
    ] {
        assert!(relay.tunnel(&other).starts_with("HTTP/1.1 403"), "{other}");
    }
    // An open connection ends with the relay.
    let mut open = relay.connect();
    open.write_all(format!("CONNECT {to} HTTP/1.1\r\n\r\n").as_bytes())
        .unwrap();
    let mut begun = [0; 5];
    while begun != *b"host:" {
        begun.rotate_left(1);
        open.read_exact(&mut begun[4..]).unwrap();
    }
    relay.leases.send(vec![]).unwrap();
    assert_eq!(open.read(&mut begun).unwrap_or(0), 0);
    assert!(relay.tunnel(&to).starts_with("HTTP/1.1 403"));
}

#[test]
fn a_leased_port_of_this_machine_is_its_calls_until_it_ends() {
    let ((port, _host), (other, _other)) = (echo(), echo());
    let (relay, supervisor) = told_of_calls();
    let ask = |port, call| ask_announced(&supervisor, relay.at, (port, call), "hello");
    assert_eq!(ask(port, 7), "", "the control");
    let lease = |call, alone| Lease {
        lease: 1,
        opens: broker_protocol::Leased::Port(port),
        call,
        alone,
    };
    relay.leases.send(vec![lease(7, true)]).unwrap();
    assert_eq!(ask(port, 7), "host:hello");
    for call in [6, 8, 0] {
        assert_eq!(ask(port, call), "", "{call}");
    }
    assert_eq!(ask(other, 7), "");
    // A lease is of a port, and no host at it is open.
    let head = format!("CONNECT a.example:{port} HTTP/1.1\r\n\r\nhello");
    assert!(ask_announced(&supervisor, relay.at, (0, 7), &head).starts_with("HTTP/1.1 403"));
    relay.leases.send(vec![lease(0, true)]).unwrap();
    assert_eq!(ask(port, 0), "", "connections of no call");
    relay.leases.send(vec![lease(7, false)]).unwrap();
    assert_eq!([ask(port, 8), ask(port, 0)], ["host:hello"; 2]);
    // An open connection ends with it.
    let (leases, ender) = (relay.leases.clone(), supervisor.try_clone().unwrap());
    let mut open = announced(&ender, relay.at, (port, 8)).unwrap();
    let mut begun = [0; 5];
    open.read_exact(&mut begun).unwrap();
    leases.send(vec![]).unwrap();
    assert_eq!(open.read(&mut begun).unwrap_or(0), 0);
    assert_eq!(ask(port, 8), "");
}

#[test]
fn a_lease_of_a_port_on_its_way_is_waited_for() {
    let (port, _host) = echo();
    let (mut relay, supervisor) = told_of_calls();
    relay.broker.write_all(b"frame").unwrap();
    let late = Lease {
        opens: broker_protocol::Leased::Port(port),
        ..lease(String::new(), true)
    };
    let (leases, mut unread) = (relay.leases.clone(), relay.theirs.take().unwrap());
    let teller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        leases.send(vec![late]).unwrap();
        unread.read_exact(&mut [0; 5]).unwrap();
    });
    let answer = ask_announced(&supervisor, relay.at, (port, 7), "hello");
    assert_eq!(answer, "host:hello");
    teller.join().unwrap();
}

/// A relay that hears of each connection's call, and the supervisors' socket.
fn told_of_calls() -> (Running, UnixDatagram) {
    let (supervisor, theirs) = UnixDatagram::pair().unwrap();
    let own = "private = ['127.0.0.0/8']".into();
    let relay = Running::with(own, &[&["127.0.0.1"]], Some(theirs), Vec::new());
    (relay, supervisor)
}

#[test]
fn a_lease_of_a_call_opens_nothing_to_another() {
    let (port, _host) = echo();
    let (relay, supervisor) = told_of_calls();
    let ask = |call: CallId, head: &str| ask_announced(&supervisor, relay.at, (0, call), head);
    let to = format!("a.example:{port}");
    let head = format!("CONNECT {to} HTTP/1.1\r\n\r\nhello");
    // What a program says of itself counts for nothing.
    let dressed =
        format!("CONNECT {to} HTTP/1.1\r\nProxy-Authorization: Basic bGVhc2U6Nw==\r\n\r\nhello");
    relay.leases.send(vec![lease(to.clone(), true)]).unwrap();
    assert!(ask(7, &head).ends_with("host:hello"), "the control");
    for other in [6, 8, 0] {
        for head in [&head, &dressed] {
            assert!(ask(other, head).starts_with("HTTP/1.1 403"), "{other}");
        }
    }
    // The number of a call is none that connections of no call have.
    let of_none = Lease {
        call: 0,
        ..lease(to.clone(), true)
    };
    relay.leases.send(vec![of_none]).unwrap();
    assert!(ask(0, &head).starts_with("HTTP/1.1 403"));
    relay.leases.send(vec![]).unwrap();
    assert!(ask(7, &head).starts_with("HTTP/1.1 403"), "it is over");
}

#[test]
fn a_lease_on_its_way_is_waited_for() {
    let (port, _host) = echo();
    let (mut relay, supervisor) = told_of_calls();
    let to = format!("a.example:{port}");
    // Bytes of the broker that nobody has read yet.
    relay.broker.write_all(b"frame").unwrap();
    let (leases, late) = (relay.leases.clone(), vec![lease(to.clone(), true)]);
    let mut unread = relay.theirs.take().unwrap();
    let teller = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        leases.send(late).unwrap();
        unread.read_exact(&mut [0; 5]).unwrap();
    });
    let head = format!("CONNECT {to} HTTP/1.1\r\n\r\nhello");
    let answer = ask_announced(&supervisor, relay.at, (0, 7), &head);
    assert!(answer.ends_with("host:hello"), "{answer}");
    teller.join().unwrap();
}
