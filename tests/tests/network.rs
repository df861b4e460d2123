//! The network of cells: the hosts that a policy or a session allows are reached, by way of the relay, and nothing else is.
//!
//! Each attack is run without a cell first, where it must work. The servers are the tests' own, on this machine's loopback, which
//! a policy opens by its `private` places; that a name on the list reaches no such address without is a test of its own.

use broker_protocol::{ErrorKind, Failed, FromBroker, NetworkRequest, Open, ToBroker};
use lazaret_fakes::PongServer;
use lazaret_tests::approval::audited;
use lazaret_tests::wire::{Received, opening};
use lazaret_tests::{Broker, Finished, LIMIT, Place, Session, World, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::thread;

/// A world whose user's policy has a profile `net`, with this table in its `network`, and what comes `behind`.
fn world(place: Place, network: &str, behind: &str) -> World {
    World::networked(place, "", &format!("{network}\n{behind}"))
}

/// `script` in a cell of the profile `net`, with these options before.
fn cell_with(world: &World, options: &[&str], script: &str) -> Finished {
    world.in_cell_with(&[&["--profile", "net"], options].concat(), script)
}

fn cell(world: &World, script: &str) -> Finished {
    cell_with(world, &[], script)
}

/// The places by which a policy allows the server, and a table that does.
fn allowing(server: &PongServer) -> String {
    let port = server.port;
    format!("allow = ['localhost:{port}']\nprivate = ['localhost:{port}']")
}

place_test!(allowed_hosts_are_reached_by_the_clients_that_people_use);
fn allowed_hosts_are_reached_by_the_clients_that_people_use(place: Place) {
    let server = PongServer::start();
    let (world, port) = (world(place, &allowing(&server), ""), server.port);
    // Clients leave out a proxy for the own machine: here the name stands for a host of the internet.
    let script = format!(
        "set -e; export NO_PROXY= no_proxy=
         curl -sS http://localhost:{port}/; curl -sSp http://localhost:{port}/
         curl -sS -x socks5h://127.0.0.1:61080 http://localhost:{port}/
         python3 -c 'import urllib.request as u; print(u.urlopen(\"http://localhost:{port}/\").read().decode(), end=\"\")'"
    );
    let done = cell(&world, &script);
    assert_eq!(done.success(), "pong".repeat(4), "{}", done.errors());
    assert_eq!(server.hits(), 4);
    let records = audited(&world, "connection");
    let want = json!(["localhost", port, "allowed"]);
    let ends = audited(&world, "disconnected");
    let sum = |name: &str| {
        ends.iter()
            .filter_map(|one| one[name].as_u64())
            .sum::<u64>()
    };
    assert_eq!(sum("count"), 4, "{ends:?}");
    // Each request has a line, each answer its `pong` too.
    assert!(sum("sent") > 4 * 16 && sum("received") > 4 * 20, "{ends:?}");
    assert!(
        records.len() == 4
            && records
                .iter()
                .all(|one| json!([one["host"], one["port"], one["verdict"]]) == want)
    );
    run(
        world
            .program("lazaret")
            .env("XDG_CONFIG_HOME", world.home.join("settings"))
            .args(["audit", "verify"]),
        LIMIT,
    )
    .success();
}

place_test!(a_host_that_is_not_allowed_is_refused_named_and_recorded);
fn a_host_that_is_not_allowed_is_refused_named_and_recorded(place: Place) {
    let server = PongServer::start();
    let world = world(place, &allowing(&server), "");
    let done = cell(
        &world,
        "curl -sS http://other.example/; curl -sS https://registry.npmjs.org/; true",
    );
    assert!(
        done.text()
            .contains("other.example:80 is not among the hosts"),
        "{}",
        done.text()
    );
    let errors = done.errors();
    assert!(errors.contains("403"), "{errors}");
    assert!(
        errors.contains("refused: other.example:80")
            && errors.contains("--allow-host other.example:80"),
        "{errors}"
    );
    assert!(errors.contains("--allow-net npm allows it"), "{errors}");
    let records = audited(&world, "connection");
    let verdicts: Vec<_> = records
        .iter()
        .map(|one| (one["host"].clone(), one["verdict"].clone()))
        .collect();
    assert_eq!(
        json!(verdicts),
        json!([
            ["other.example", "not_listed"],
            ["registry.npmjs.org", "not_listed"]
        ])
    );
    let runs = fs::read_dir(world.state.join("lazaret/runs"))
        .unwrap()
        .flatten()
        .next()
        .unwrap();
    let log = fs::read_to_string(runs.path().join("runlog.jsonl")).unwrap();
    let line = log
        .lines()
        .find(|line| line.contains("\"connection\""))
        .unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["payload"]["verdict"], "not_listed");
    assert!(
        line["payload"]["why"]
            .as_str()
            .unwrap()
            .contains("--allow-host"),
        "{line}"
    );
}

place_test!(a_refused_host_stands_in_the_result);
/// In every front end the result of the command says it: a program may hide what it was told.
fn a_refused_host_stands_in_the_result(place: Place) {
    let server = PongServer::start();
    let world = world(place, &allowing(&server), "");
    let wants = "curl -sS https://registry.npmjs.org/ >/dev/null 2>&1; curl -sS http://other.example:81/ >/dev/null 2>&1; true";
    let mut session = Session::start(world.configured("session").args(["--profile", "net"]));
    let quiet = session.bash("true").result;
    assert!(quiet["metadata"].get("denied").is_none(), "{quiet}");
    let result = session.bash(wants).result;
    let told = |metadata: &Value| {
        let denied = metadata["denied"].as_array().cloned().unwrap_or_default();
        let one = |one: &Value| {
            json!([
                one["what"]["target"],
                one["by"]["kind"],
                one["remedy"]["option"]
            ])
        };
        denied.iter().map(one).collect::<Vec<_>>()
    };
    let want = vec![
        json!([
            "registry.npmjs.org:443",
            "hosts",
            "--allow-net npm, for good with `lazaret policy allow registry.npmjs.org:443`"
        ]),
        json!([
            "other.example:81",
            "hosts",
            "--allow-host other.example:81, for good with `lazaret policy allow other.example:81`"
        ]),
    ];
    assert_eq!(told(&result["metadata"]), want, "{result}");
    // A command that succeeds in spite of it needs no advice.
    assert!(
        !result["result"]
            .as_str()
            .unwrap()
            .contains("--allow-net npm"),
        "{result}"
    );
    let mut call = world.configured("call");
    call.args(["--profile", "net", "--json", "bash"])
        .arg(json!({"command": wants}).to_string());
    let called: Value = serde_json::from_str(&run(&mut call, LIMIT).text()).unwrap();
    assert_eq!(told(&called["metadata"]), want, "{called}");
    let printed = cell(&world, wants).errors();
    assert_eq!(
        printed.matches("registry.npmjs.org").count(),
        1,
        "once: {printed}"
    );
}

/// Ways to a server that do not ask the relay, one a line: `NAME GOT` or `NAME` and why not.
const PAST: &str = r#"
import os, socket, struct, sys
# Outside something answers, if on a busy machine not soon.
tcp, udp, patience = int(sys.argv[1]), int(sys.argv[2]), 60 if 'outside' in sys.argv else 3
def attempt(name, attack):
    try: got = attack()
    except Exception as error: print(name, type(error).__name__, error)
    else: print(name, 'GOT' if got else 'nothing')
def connect(family, address):
    s = socket.socket(family); s.settimeout(patience); s.connect(address); s.sendall(b'GET / HTTP/1.0\r\n\r\n')
    return b'pong' in s.recv(4096)
def datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(patience); s.sendto(b'ping', ('127.0.0.1', udp))
    return s.recv(16) == b'pong'
def connected_datagram():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(patience); s.connect(('127.0.0.1', udp)); s.send(b'ping')
    return s.recv(16) == b'pong'
def resolver():
    # A question about `a.example` to the server, as if that were one.
    q = b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00\x00\x01\x00\x01'
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(patience); s.sendto(q, ('127.0.0.1', udp))
    return len(s.recv(64)) > 0
attempt('tcp', lambda: connect(socket.AF_INET, ('127.0.0.1', tcp)))
attempt('mapped', lambda: connect(socket.AF_INET6, ('::ffff:127.0.0.1', tcp)))
attempt('any', lambda: connect(socket.AF_INET, ('0.0.0.0', tcp)))
attempt('udp', datagram)
attempt('udp-connected', connected_datagram)
attempt('dns', resolver)
"#;

place_test!(nothing_goes_past_the_relay);
fn nothing_goes_past_the_relay(place: Place) {
    let server = PongServer::start();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp = datagrams.local_addr().unwrap().port();
    thread::spawn(move || {
        while let Ok((_, from)) = datagrams.recv_from(&mut [0; 64]) {
            let _ = datagrams.send_to(b"pong", from);
        }
    });
    let world = world(place, &allowing(&server), "");
    world.put("past.py", PAST);
    let ports = [server.port.to_string(), udp.to_string()];
    let outside = run(
        world
            .host("python3")
            .current_dir(&world.project)
            .arg("past.py")
            .args(&ports)
            .arg("outside"),
        LIMIT,
    )
    .success();
    assert!(
        outside.lines().count() == 6 && outside.lines().all(|line| line.ends_with(" GOT")),
        "the control: {outside}"
    );
    let before = server.hits();
    let inside = cell(
        &world,
        &format!(
            "python3 past.py {}; getent hosts localhost.example. || echo no names",
            ports.join(" ")
        ),
    );
    let inside = inside.success();
    assert!(
        inside.lines().count() == 7 && !inside.contains("GOT"),
        "{inside}"
    );
    assert!(inside.ends_with("no names\n"), "{inside}");
    assert_eq!(server.hits(), before);
    println!("{place:?}: 6 of 6 ways past the relay refused");
}

place_test!(a_name_reaches_no_private_address_by_itself);
fn a_name_reaches_no_private_address_by_itself(place: Place) {
    let server = PongServer::start();
    let port = server.port;
    let world = world(place, "allow = ['*']", "");
    let names = [
        "localhost",
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "LOCALHOST.",
    ];
    let script: String = names
        .iter()
        .map(|name| format!("printf 'CONNECT {name}:{port} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n' >&3; head -1 <&3; exec 3<>/dev/tcp/127.0.0.1/61080; "))
        .collect();
    let done = cell(
        &world,
        &format!("exec 3<>/dev/tcp/127.0.0.1/61080; {script}"),
    );
    let answers = done.success();
    let refused = answers
        .lines()
        .filter(|line| line.starts_with("HTTP/1.1 403 Forbidden: lazaret: "))
        .count();
    assert_eq!((refused, server.hits()), (names.len(), 0), "{answers}");
    // The same server is reached where the policy names it: the control.
    let open = self::world(place, &allowing(&server), "");
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT LOCALHOST.:{port} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    );
    assert!(cell(&open, &script).success().ends_with("pong"));
    let counted: u64 = audited(&world, "connection")
        .iter()
        .filter(|one| one["verdict"] == "not_public")
        .filter_map(|one| one["count"].as_u64())
        .sum();
    assert_eq!(counted, names.len() as u64);
}

place_test!(programs_know_of_the_relay_where_there_is_one);
fn programs_know_of_the_relay_where_there_is_one(place: Place) {
    let world = world(
        place,
        "allow = ['a.example']",
        "[profile.off]\nextends = ['node', 'python']\n",
    );
    let with = cell(&world, "env").success();
    for variable in [
        "HTTPS_PROXY",
        "http_proxy",
        "npm_config_https_proxy",
        "PIP_PROXY",
        "CARGO_HTTP_PROXY",
    ] {
        assert!(
            with.contains(&format!("{variable}=http://127.0.0.1:61080\n")),
            "{variable}: {with}"
        );
    }
    let mut off = world.configured("run");
    off.args([
        "--profile",
        "off",
        "--",
        "bash",
        "-c",
        "env; exec 3<>/dev/tcp/127.0.0.1/61080",
    ]);
    let off = run(&mut off, LIMIT);
    assert!(
        !off.text().to_lowercase().contains("proxy"),
        "{}",
        off.text()
    );
    assert!(
        off.text().contains("PIP_NO_INDEX=1") && off.errors().contains("refused"),
        "{}",
        off.errors()
    );
    let mut on = world.configured("run");
    on.args(["--profile", "off", "--allow-host", "a.example", "--", "env"]);
    let on = run(&mut on, LIMIT).success();
    assert!(
        on.contains("HTTPS_PROXY=")
            && !on.contains("PIP_NO_INDEX")
            && !on.contains("npm_config_prefer_offline")
            && !on.contains("npm_config_fetch_retries"),
        "{on}"
    );
}

place_test!(files_of_the_policy_bound_what_a_session_asks_for);
fn files_of_the_policy_bound_what_a_session_asks_for(place: Place) {
    let server = PongServer::start();
    let port = server.port;
    let asked = format!("localhost:{port}");
    let script = format!("curl -sS --noproxy '' http://localhost:{port}/");
    let free = world(place, &format!("private = ['{asked}']"), "");
    assert_eq!(
        cell_with(&free, &["--allow-host", &asked], &script).success(),
        "pong",
        "the control"
    );
    let bounded = world(
        place,
        &format!("private = ['{asked}']"),
        "[network]\nallow = ['*.example']\n",
    );
    let done = cell_with(&bounded, &["--allow-host", &asked], &script);
    assert_ne!(done.code(), 0);
    assert!(
        done.errors()
            .contains("does not allow cells to reach localhost"),
        "{}",
        done.errors()
    );
    let wide = cell_with(
        &bounded,
        &["--allow-host", "*"],
        &format!("{script}; curl -sS http://b.test/"),
    );
    assert!(
        wide.text().contains("b.test:80 is not among"),
        "{} {}",
        wide.text(),
        wide.errors()
    );
    let closed = world(
        place,
        &allowing(&server),
        "[network]\nallow = []\nprivate = []\n",
    );
    let done = cell(
        &closed,
        "env | grep -ci proxy; exec 3<>/dev/tcp/127.0.0.1/61080",
    );
    assert!(
        done.text() == "0\n" && done.errors().contains("refused"),
        "{} {}",
        done.text(),
        done.errors()
    );
    for (options, want) in [
        (
            ["--allow-net", "nmp"],
            "there is no preset `nmp`; there are: crates",
        ),
        (["--allow-host", "https://a.example"], "a host is"),
        (["--allow-host", "0x7f.1"], "a host is"),
    ] {
        let done = cell_with(&free, &options, "true");
        assert!(
            done.code() != 0 && done.errors().contains(want),
            "{options:?}: {}",
            done.errors()
        );
    }
}

place_test!(a_repository_opens_no_host);
fn a_repository_opens_no_host(place: Place) {
    let server = PongServer::start();
    let world = World::new(place);
    let text = format!(
        "version = 1\n[profile.default.network]\n{}\n[network]\nallow = ['*']\n",
        allowing(&server)
    );
    for name in [
        "policy.toml",
        "lazaret/policy.toml",
        ".lazaret/policy.toml",
        ".config/lazaret/policy.toml",
        "presets.toml",
    ] {
        world.put(name, &text);
    }
    let script = format!(
        "curl -sS --noproxy '' -x http://127.0.0.1:61080 http://localhost:{}/",
        server.port
    );
    let done = world.in_cell(&script);
    assert!(done.code() != 0 && server.hits() == 0, "{}", done.text());
}

place_test!(a_session_carries_the_network_of_all_its_calls);
fn a_session_carries_the_network_of_all_its_calls(place: Place) {
    let server = PongServer::start();
    let (world, port) = (world(place, &allowing(&server), ""), server.port);
    let mut command = world.configured("session");
    command.args(["--profile", "net", "--allow-net", "pypi"]);
    let mut session = Session::start(&mut command);
    let hosts = session.ready["hosts"].to_string();
    assert!(
        hosts.contains("localhost") && hosts.contains("pypi.org:443"),
        "{hosts}"
    );
    let script = format!("curl -sS --noproxy '' http://localhost:{port}/");
    for _ in 0..3 {
        assert!(session.bash(&script).success().contains("pong"));
    }
    let background = session.call(
        "bash",
        json!({"command": format!("{script} >got; sleep 60"), "background": true}),
    );
    background.success();
    let come = lazaret_tests::process::until(LIMIT, || {
        fs::read(world.project.join("got")).is_ok_and(|got| got == b"pong")
    });
    assert!(come, "a background process has no network");
    // A scope can close it again.
    world.put(
        "scope.yaml",
        "tool_permissions:\n  bash: { allowed: true, network: false }\n",
    );
    let mut closed = world.configured("call");
    closed
        .args(["--profile", "net", "--scope"])
        .arg(world.project.join("scope.yaml"));
    closed.args(["bash", r#"{"command":"env | grep -ci proxy; true"}"#]);
    assert!(run(&mut closed, LIMIT).success().starts_with('0'));
    assert!(session.close(LIMIT).success());
}

place_test!(a_flood_of_connections_leaves_the_session_alive);
fn a_flood_of_connections_leaves_the_session_alive(place: Place) {
    let server = PongServer::start();
    let (world, port) = (world(place, &allowing(&server), ""), server.port);
    world.put(
        "flood.py",
        "import socket\nopen = []\nfor n in range(600):\n    s = socket.socket(); s.setblocking(False)\n    try: s.connect(('127.0.0.1', 61080))\n    except BlockingIOError: pass\n    open.append(s)\nfor s in open[::2]:\n    try: s.send(b'CONNECT x')\n    except OSError: pass\nprint(len(open))\n",
    );
    let mut command = world.configured("session");
    let mut session = Session::start(command.args(["--profile", "net"]));
    assert!(session.bash("python3 flood.py").success().contains("600"));
    let answer = session.bash(&format!("curl -sS --noproxy '' http://localhost:{port}/"));
    assert!(answer.success().contains("pong"));
    assert!(session.close(LIMIT).success());
}

place_test!(repeated_refusals_are_counted_in_the_records);
/// A cell that asks for refused hosts in a loop wrote 15 to 20 KB a second into the records.
fn repeated_refusals_are_counted_in_the_records(place: Place) {
    let server = PongServer::start();
    let world = world(place, &allowing(&server), "");
    let ask = |names: &str| {
        format!(
            "import socket
for n in range(300):
    s = socket.create_connection(('127.0.0.1', 61080))
    s.sendall(f'CONNECT {names} HTTP/1.1\\r\\n\\r\\n'.encode())
    assert b' 403 ' in s.recv(100)
"
        )
    };
    world.put("same.py", ask("same.example:443"));
    world.put("many.py", ask("{n}.example:443"));
    assert_eq!(cell(&world, "python3 same.py && echo ok").success(), "ok\n");
    let same = audited(&world, "connection");
    assert_eq!((same.len(), attempts(&same)), (2, 300), "{same:?}");
    assert_eq!(cell(&world, "python3 many.py && echo ok").success(), "ok\n");
    let both = audited(&world, "connection");
    // Of so many hosts, the first are named and the others counted.
    assert_eq!(attempts(&both), 600, "{both:?}");
    assert!(
        (60..80).contains(&(both.len() - same.len())),
        "{}",
        both.len()
    );
    // What was reached is recorded each time: the control.
    let port = server.port;
    let again = format!("for n in 1 2 3; do curl -sS --noproxy '' http://localhost:{port}/; done");
    assert_eq!(cell(&world, &again).success(), "pong".repeat(3));
    assert_eq!(audited(&world, "connection").len(), both.len() + 3);
}

/// For how many connections records stand.
fn attempts(records: &[Value]) -> u64 {
    records.iter().filter_map(|one| one["count"].as_u64()).sum()
}

/// The listening sockets of this machine's loopback outside 127.0.0.0/16, as a relay of the flat tier has them.
fn drawn_listeners() -> Vec<SocketAddr> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields.get(1)?.split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_le_bytes());
        let drawn = fields.get(3) == Some(&"0A") && ip.is_loopback() && ip.octets()[1] != 0;
        drawn.then_some(SocketAddr::from((ip, u16::from_str_radix(port, 16).ok()?)))
    });
    rows.collect()
}

place_test!(the_relay_of_a_flat_session_serves_its_cells_only, flat_only);
fn the_relay_of_a_flat_session_serves_its_cells_only(place: Place) {
    let server = PongServer::start();
    let (world, port) = (world(place, &allowing(&server), ""), server.port);
    let before = drawn_listeners();
    let mut command = world.configured("session");
    let mut session = Session::start(command.args(["--profile", "net"]));
    let inside = session.bash(&format!("curl -sS --noproxy '' http://localhost:{port}/"));
    assert!(inside.success().contains("pong"), "the control");
    // Suites run side by side: each that is new is tried, ours among them.
    let relays: Vec<_> = drawn_listeners()
        .into_iter()
        .filter(|at| !before.contains(at))
        .collect();
    assert!(!relays.is_empty(), "the relay is not found");
    let hits = server.hits();
    for at in relays {
        let Ok(mut stranger) = TcpStream::connect(at) else {
            continue;
        };
        stranger.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stranger.write_all(
            format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n").as_bytes(),
        );
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        // A server of a suite beside this one may be among them; a relay speaks HTTP.
        assert!(
            !answer.contains("HTTP/") && !answer.contains("pong"),
            "{at}: {answer}"
        );
    }
    assert_eq!(server.hits(), hits);
    // Nor the cell of a session that has no network.
    let other = world.in_cell("exec 3<>/dev/tcp/127.0.0.1/61080");
    assert!(other.errors().contains("refused"), "{}", other.errors());
    // A program cannot take the port from the relay, and sees it by the name that it called.
    let names = session.bash("python3 -c \"import socket; s = socket.socket(); s.connect(('127.0.0.1', 61080)); print(s.getpeername())
try: socket.socket().bind(('127.0.0.1', 61080))
except OSError as error: print(error.errno)\"");
    assert!(
        names.success().contains("('127.0.0.1', 61080)\n98"),
        "{}",
        names.text()
    );
    assert!(session.close(LIMIT).success());
}

place_test!(the_relay_ends_with_its_session);
fn the_relay_ends_with_its_session(place: Place) {
    let server = PongServer::start();
    let world = world(place, &allowing(&server), "");
    let mut command = world.configured("session");
    let mut session = Session::start(command.args(["--profile", "net"]));
    // A connection that is open, in the background, when `lazaret` is killed.
    let hold = format!(
        "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT localhost:{} HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3 >got; sleep 600",
        server.port
    );
    session
        .call("bash", json!({"command": hold, "background": true}))
        .success();
    let open =
        || fs::read(world.project.join("got")).is_ok_and(|got| got.starts_with(b"HTTP/1.1 200"));
    assert!(lazaret_tests::process::until(LIMIT, open));
    let below = lazaret_tests::process::tree(session.pid());
    session.child.kill().unwrap();
    let _ = session.child.wait();
    assert!(lazaret_tests::process::left_after(&below, LIMIT).is_empty());
}

place_test!(hosts_of_a_session_are_held_to_the_protocol);
fn hosts_of_a_session_are_held_to_the_protocol(place: Place) {
    let world = World::new(place);
    let (_, opened) = Broker::open(&world);
    assert_eq!(opened.network, None);
    let open = |hosts: Vec<String>| {
        let network = NetworkRequest {
            hosts,
            ..NetworkRequest::default()
        };
        let mut broker = Broker::greeted(&world);
        broker.send(&ToBroker::Open(Open {
            network: Some(network),
            ..opening(&world)
        }));
        broker
    };
    let mut with = open(vec!["a.example:443".into()]);
    let Received::Message(FromBroker::Opened(opened)) = with.receive(LIMIT) else {
        panic!("no session")
    };
    assert_eq!(
        opened.network.unwrap().lists[0].allow.as_ref().unwrap()[..],
        ["a.example:443".to_owned()]
    );
    for hosts in [
        vec!["A B".to_owned()],
        vec!["x".repeat(261)],
        vec!["a.example".to_owned(); 257],
    ] {
        let got = open(hosts).receive(LIMIT);
        let Received::Message(FromBroker::Fault(Failed { kind, .. })) = got else {
            panic!("{got:?}")
        };
        assert_eq!(kind, ErrorKind::InvalidInput);
    }
}
