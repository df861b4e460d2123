//! Ports of this machine that lead to servers in cells: for this user's programs, to servers of the session alone, while it lasts.
//!
//! Each attack is run without a cell or as the session's user first, where it must work.

use lazaret_tests::approval::audited;
use lazaret_tests::process::{Running, below, until};
use lazaret_tests::remote_server::{dressed, settings};
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::{Finished, LIMIT, Place, Serving, Session, World, place_test, run};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

/// A server of a cell: `AT PORT` or more of them. It says its name first, then sends back what it gets, and `end` when its client ends.
const SERVER: &str = r#"
import asyncio, socket, sys
name = sys.argv[1]
async def serve(r, w):
    try:
        w.write(name.encode() + b'\n')
        while data := await r.read(1 << 16): w.write(data); await w.drain()
        w.write(b'end\n'); await w.drain(); w.close()
    except ConnectionError: pass
async def main():
    for at, port in zip(sys.argv[2::2], sys.argv[3::2]):
        family = socket.AF_INET6 if ':' in at else socket.AF_INET
        await asyncio.start_server(serve, at, int(port), family=family, backlog=200)
    print('ready', flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"#;

/// A port of this machine that nobody has at present, and no test of this program gets again. Below those that a kernel assigns, so that
/// no connection takes it meanwhile.
fn free_port() -> u16 {
    static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut given = GIVEN.lock().unwrap();
    let given = given.get_or_insert_default();
    let free = |port: u16| {
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            && TcpListener::bind((Ipv6Addr::LOCALHOST, port)).is_ok()
    };
    let begin = (std::process::id() % 20_000) as u16;
    let ports = (0..20_000).map(|at| 11_000 + (begin + at) % 20_000);
    let found = ports
        .into_iter()
        .find(|port| !given.contains(port) && free(*port));
    let port = found.expect("a port is free");
    given.insert(port);
    port
}

/// A world whose user's policy has a profile `net` with this `network`, after what comes `before`.
fn world(place: Place, before: &str, network: &str) -> World {
    let world = World::networked(place, before, network);
    world.put("server.py", SERVER);
    world
}

fn command(world: &World, subcommand: &str) -> Command {
    let mut command = world.configured(subcommand);
    command.args(["--profile", "net"]);
    command
}

fn session(world: &World) -> Session {
    Session::start(&mut command(world, "session"))
}

fn run_with(world: &World, options: &[&str], script: &str) -> Finished {
    world.in_cell_with(&[&["--profile", "net"], options].concat(), script)
}

/// Starts the server in the background of a session.
#[track_caller]
fn serve(session: &mut Session, name: &str, at: &str, port: u16) {
    let line = format!("exec python3 server.py {name} {at} {port}");
    let input = json!({ "command": line, "background": true });
    session.call("bash", input).success();
}

/// The first line that a client of this user gets at a port of this machine, which a server in a cell sends by itself.
fn greeting(world: &World, at: &str, port: u16) -> String {
    let script = format!("exec 3<>/dev/tcp/{at}/{port} && head -1 <&3");
    run(
        world.host("timeout").args(["20", "bash", "-c", &script]),
        LIMIT,
    )
    .text()
}

fn is_greeted(world: &World, port: u16, want: &str) -> bool {
    until(LIMIT, || greeting(world, "127.0.0.1", port).trim() == want)
}

fn verdicts(world: &World) -> Vec<(String, u64)> {
    let records = audited(world, "connection");
    let of = |one: &Value| {
        let count = one["count"].as_u64().unwrap_or(1);
        (one["verdict"].as_str().unwrap().to_owned(), count)
    };
    records.iter().map(of).collect()
}

fn count_of(world: &World, verdict: &str) -> u64 {
    let all = verdicts(world).into_iter();
    all.filter(|(name, _)| name == verdict)
        .map(|(_, count)| count)
        .sum()
}

/// That the audit counts so many connections, once the broker has ended too.
#[track_caller]
fn assert_counted(world: &World, verdict: &str, least: u64) {
    let counted = until(LIMIT, || count_of(world, verdict) >= least);
    assert!(counted, "{verdict}: {:?}", verdicts(world));
}

place_test!(a_published_port_leads_to_a_server_at_any_address);
fn a_published_port_leads_to_a_server_at_any_address(place: Place) {
    for at in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
        let (machine, cell) = (free_port(), free_port());
        let world = world(place, "", &format!("publish = ['{machine}:{cell}']"));
        let mut session = session(&world);
        assert_eq!(greeting(&world, "127.0.0.1", machine), "", "the control");
        serve(&mut session, "own", at, cell);
        assert!(is_greeted(&world, machine, "own"), "{at}");
        for to in ["::1", "localhost"] {
            assert_eq!(greeting(&world, to, machine), "own\n", "{at} by {to}");
        }
        assert!(session.close(LIMIT).success());
        assert_counted(&world, "published", 3);
        assert_counted(&world, "unreachable", 1);
        // The ports are gone with the session.
        let is_free = || {
            TcpListener::bind((Ipv4Addr::LOCALHOST, machine)).is_ok()
                && TcpListener::bind((Ipv6Addr::LOCALHOST, machine)).is_ok()
        };
        assert!(until(LIMIT, is_free));
    }
}

/// Behaviour of ordinary clients at a port, with a server that speaks first.
const CLIENT: &str = r#"
import asyncio, hashlib, socket, sys
port = int(sys.argv[1])
async def open():
    r, w = await asyncio.open_connection('127.0.0.1', port)
    assert await r.readline() == b'own\n'
    return r, w
async def talk():
    r, w = await open()
    for i in range(20):
        w.write(b'line %d\n' % i); assert await r.readline() == b'line %d\n' % i
    w.write_eof(); assert await r.read() == b'end\n', 'half a close'
    w.close()
async def much():
    r, w = await open()
    block = bytes(range(256)) * 4096; count = 64
    async def send():
        for _ in range(count): w.write(block); await w.drain()
        w.write_eof()
    async def take():
        got = hashlib.sha256(); length = 0
        while data := await r.read(1 << 20): got.update(data); length += len(data)
        want = hashlib.sha256()
        for _ in range(count): want.update(block)
        want.update(b'end\n')
        assert length == count * len(block) + 4 and got.digest() == want.digest(), length
    await asyncio.gather(send(), take()); w.close()
async def many():
    # More than have a place at once: the rest waits until some end.
    rest = [await open() for _ in range(60)]
    await asyncio.gather(*[talk() for _ in range(100)])
    for r, w in rest: w.write(b'still\n'); assert await r.readline() == b'still\n'; w.close()
async def slow():
    # One that does not read stops only its own connection.
    r, w = await open()
    w.transport.pause_reading()
    for _ in range(4000):
        w.write(b'x' * 65536)
        try: await asyncio.wait_for(w.drain(), .2)
        except asyncio.TimeoutError: break
    else: raise SystemExit('nothing stops it')
    await talk(); w.transport.abort()
async def main():
    for one in (talk, slow, many, much): await asyncio.wait_for(one(), 150)
asyncio.run(main()); print('ok')
"#;

place_test!(clients_use_a_published_server_as_one_outside);
fn clients_use_a_published_server_as_one_outside(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let world = world(place, "", &format!("publish = ['{machine}:{cell}']"));
    world.put("client.py", CLIENT);
    let client = |port: u16| {
        world.on_host(&format!(
            "python3 {}/client.py {port}",
            world.project.display()
        ))
    };
    {
        let mut outside = world.host("python3");
        let at = ["server.py", "own", "127.0.0.1", &cell.to_string()].map(str::to_owned);
        let mut outside = Running::start(outside.current_dir(&world.project).args(at));
        outside.wait_for("ready", LIMIT);
        assert_eq!(client(cell).success(), "ok\n", "the control");
        outside.child.kill().unwrap();
        outside.finish(LIMIT);
    }
    let mut session = session(&world);
    serve(&mut session, "own", "127.0.0.1", cell);
    assert!(is_greeted(&world, machine, "own"));
    let done = client(machine);
    assert_eq!(done.success(), "ok\n", "{}", done.errors());
    assert!(session.close(LIMIT).success());
    // Each is counted, and few are records.
    assert_counted(&world, "published", 160);
    assert!(verdicts(&world).len() < 20, "{:?}", verdicts(&world));
}

place_test!(another_users_program_is_not_led_in, needs_root);
fn another_users_program_is_not_led_in(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let world = world(place, "", &format!("publish = ['{machine}:{cell}']"));
    let mut session = session(&world);
    serve(&mut session, "own", "127.0.0.1", cell);
    assert!(is_greeted(&world, machine, "own"), "the control");
    let own = place.account().uid.as_raw();
    // In a place of an ordinary user, root is another one too.
    let others = [0, 65534].into_iter().filter(|uid| *uid != own);
    let mut tried = 0;
    for (uid, at) in others.flat_map(|uid| ["127.0.0.1", "::1"].map(|at| (uid, at))) {
        let mut other = Command::new("timeout");
        let script = format!("exec 3<>/dev/tcp/{at}/{machine}; head -1 <&3");
        other.uid(uid).gid(uid).current_dir("/");
        let refused = run(other.args(["20", "bash", "-c", &script]), LIMIT);
        assert_eq!(refused.text(), "", "{uid} at {at}");
        tried += 1;
    }
    assert_eq!(greeting(&world, "127.0.0.1", machine), "own\n");
    assert!(session.close(LIMIT).success());
    assert_counted(&world, "stranger", tried);
}

place_test!(servers_of_the_machine_and_of_other_sessions_are_not_led_to);
fn servers_of_the_machine_and_of_other_sessions_are_not_led_to(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let host: Vec<_> = [("127.0.0.1", "v4"), ("::1", "v6")]
        .into_iter()
        .map(|(at, _)| {
            let listener = TcpListener::bind((at, cell)).unwrap();
            Serving::start(listener, |mut client| drop(client.write_all(b"machine\n")))
        })
        .collect();
    let first = world(place, "", &format!("publish = ['{machine}:{cell}']"));
    assert_eq!(
        greeting(&first, "127.0.0.1", cell),
        "machine\n",
        "the control"
    );
    let second = world(place, "", "publish = []");
    let (mut ours, mut other) = (session(&first), session(&second));
    serve(&mut other, "other", "127.0.0.1", cell);
    // It is in its own session.
    let ask = format!("exec 3<>/dev/tcp/127.0.0.1/{cell} && head -1 <&3");
    assert!(until(LIMIT, || other.bash(&ask).text().contains("other")));
    for at in ["127.0.0.1", "::1"] {
        assert_eq!(greeting(&first, at, machine), "", "{at}");
    }
    // With one of its own, it is this one, at the same port as the machine's.
    serve(&mut ours, "ours", "127.0.0.1", cell);
    assert!(is_greeted(&first, machine, "ours"));
    assert_eq!(greeting(&first, "127.0.0.1", cell), "machine\n");
    drop(host);
    assert!(other.close(LIMIT).success());
    assert!(ours.close(LIMIT).success());
}

place_test!(no_cell_reaches_a_published_port_of_this_machine);
fn no_cell_reaches_a_published_port_of_this_machine(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let own = world(
        place,
        "",
        &format!("publish = ['{machine}:{cell}']\nallow = ['*']"),
    );
    let other = world(place, "", "allow = ['*']");
    let (mut first, mut second) = (session(&own), session(&other));
    serve(&mut first, "own", "127.0.0.1", cell);
    assert!(is_greeted(&own, machine, "own"), "the control");
    let ways = [
        format!("exec 3<>/dev/tcp/127.0.0.1/{machine} && timeout 5 head -1 <&3"),
        format!("exec 3<>/dev/tcp/::1/{machine} && timeout 5 head -1 <&3"),
        format!(
            "curl -sS -m 10 -x http://127.0.0.1:61080 -p telnet://127.0.0.1:{machine} </dev/null"
        ),
        format!(
            "curl -sS -m 10 -x socks5h://127.0.0.1:61080 telnet://localhost:{machine} </dev/null"
        ),
    ];
    for (way, session) in ways.iter().flat_map(|way| [(way, 0), (way, 1)]) {
        let answer = match session {
            0 => first.bash(way),
            _ => second.bash(way),
        };
        assert!(
            !answer.text().contains("own"),
            "{session} {way}: {}",
            answer.text()
        );
    }
    // Neither takes the port from the server that it leads to.
    let take = format!("exec python3 server.py thief 127.0.0.1 {machine}");
    for session in [&mut first, &mut second] {
        let input = json!({ "command": take, "background": true });
        session.call("bash", input).success();
    }
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(greeting(&own, "127.0.0.1", machine), "own\n");
    assert!(first.close(LIMIT).success());
    assert!(second.close(LIMIT).success());
}

place_test!(the_successor_of_a_gateway_publishes_the_same_ports);
fn the_successor_of_a_gateway_publishes_the_same_ports(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let world = world(place, "", &format!("publish = ['{machine}:{cell}']"));
    let mut session = session(&world);
    serve(&mut session, "own", "::", cell);
    assert!(is_greeted(&world, machine, "own"));
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{machine}; cat <&3; echo cut");
    let mut client = Running::start(world.host("bash").args(["-c", &script]));
    client.wait_for("own\n", LIMIT);
    let all = below(session.pid());
    let gateway = all.iter().find(|one| one.name == "lazaret-gateway");
    gateway.expect("a session that publishes has one").kill();
    // Nobody else gets the port meanwhile.
    assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, machine)).is_err());
    client.wait_for("cut", LIMIT);
    assert!(is_greeted(&world, machine, "own"));
    assert!(session.close(LIMIT).success());
}

place_test!(a_port_that_cannot_be_published_is_named_before_anything_runs);
fn a_port_that_cannot_be_published_is_named_before_anything_runs(place: Place) {
    let world = world(place, "", "");
    for at in ["127.0.0.1", "::1"] {
        let listener = TcpListener::bind((at, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let option = format!("--publish={port}:3000");
        let refused = run_with(&world, &[&option], "echo ran");
        assert_eq!((refused.code(), refused.text()), (125, String::new()));
        let errors = refused.errors();
        let want = format!("port {port} of this machine cannot be published");
        assert!(
            errors.contains(&want) && errors.contains("--publish OTHER:3000"),
            "{errors}"
        );
        drop(listener);
        assert_eq!(run_with(&world, &[&option], "echo ran").success(), "ran\n");
    }
    let low = run_with(&world, &["--publish=89:3000"], "echo ran");
    let bound = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let bound: u16 = bound.unwrap().trim().parse().unwrap();
    if bound > 89 && !place.account().uid.is_root() {
        assert_eq!(low.code(), 125, "{}", low.errors());
        assert!(low.errors().contains("below 1024"), "{}", low.errors());
    }
    for wrong in [
        "--publish=0",
        "--publish=1:2:3",
        "--publish=127.0.0.1:80",
        "--publish=70000",
    ] {
        assert_eq!(run_with(&world, &[wrong], "true").code(), 125, "{wrong}");
    }
    // It is the relay's: programs of this machine would have the session's hosts.
    for options in [
        &["--publish=61080"][..],
        &["--publish=3000:61080", "--allow-host=a.example"],
    ] {
        let relay = run_with(&world, options, "true");
        assert_eq!(relay.code(), 125, "{options:?}");
        assert!(relay.errors().contains("their proxy"), "{}", relay.errors());
    }
    let port = free_port();
    let twice = [format!("--publish={port}:1"), format!("--publish={port}:2")];
    let twice = run_with(&world, &[&twice[0], &twice[1]], "true");
    assert!(
        twice.errors().contains("published twice"),
        "{}",
        twice.errors()
    );
}

place_test!(a_command_of_run_is_reached_while_it_runs);
fn a_command_of_run_is_reached_while_it_runs(place: Place) {
    let (world, port) = (world(place, "", ""), free_port());
    let mut command = command(&world, "run");
    command.args([
        "-v",
        &format!("--publish={port}"),
        "--",
        "python3",
        "server.py",
        "own",
    ]);
    let mut running = Running::start(command.args(["::", &port.to_string()]));
    assert!(is_greeted(&world, port, "own"));
    running.child.kill().unwrap();
    let done = running.finish(LIMIT);
    let notice = format!("127.0.0.1:{port} of this machine leads to port {port} of commands");
    assert!(done.errors().contains(&notice), "{}", done.errors());
    let is_free = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    assert!(until(LIMIT, is_free));
}

place_test!(the_port_leads_nowhere_when_its_server_has_ended);
fn the_port_leads_nowhere_when_its_server_has_ended(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let world = world(place, "", &format!("publish = ['{machine}:{cell}']"));
    let mut session = session(&world);
    for name in ["first", "second"] {
        let line = format!(
            "python3 server.py {name} 127.0.0.1 {cell} & for i in $(seq 300); do [ -e end-{name} ] && exit; sleep .1; done"
        );
        let id = session.start_call("bash", json!({ "command": line }));
        assert!(is_greeted(&world, machine, name));
        world.put(&format!("end-{name}"), "");
        session.answer_within(&id, LIMIT).success();
        assert_eq!(greeting(&world, "127.0.0.1", machine), "", "{name}");
    }
    assert!(session.close(LIMIT).success());
}

place_test!(a_project_publishes_nothing_and_bounds_hold);
fn a_project_publishes_nothing_and_bounds_hold(place: Place) {
    let (port, cell) = (free_port(), free_port());
    let publish = format!("publish = ['{port}:{cell}']");
    let is_bound = || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err();
    for (before, own, option, opens) in [
        (
            format!("[network]\npublish = [{port}]"),
            &publish[..],
            false,
            true,
        ),
        (format!("[network]\npublish = [{port}]"), "", true, true),
        (
            "[network]\npublish = [1]".to_owned(),
            &publish,
            false,
            false,
        ),
        (
            "[network]\nallow = ['*']".to_owned(),
            &publish,
            false,
            false,
        ),
        ("[network]\nallow = ['*']".to_owned(), "", true, false),
    ] {
        let world = world(place, &before, own);
        let option = option.then(|| format!("--publish={port}:{cell}"));
        let mut command = command(&world, "session");
        command.args(&option);
        if option.is_some() && !opens {
            let refused = run(&mut command, LIMIT);
            assert!(
                refused.errors().contains("does not name it"),
                "{}",
                refused.errors()
            );
            continue;
        }
        let mut session = Session::start(&mut command);
        session.bash("true").success();
        assert_eq!(is_bound(), opens, "{before} {own}");
        assert!(session.close(LIMIT).success());
    }
    // What a project says opens nothing, even where the user trusts it.
    for text in [
        format!("[profile.net.network]\n{publish}"),
        format!("[network]\n{publish}"),
    ] {
        let world = world(place, "", "");
        world.put(".lazaret/policy.toml", format!("version = 1\n{text}\n"));
        let done = run_with(&world, &[], "sleep 1");
        assert!(!is_bound(), "{text}: {}", done.errors());
        let mut session = Session::start(&mut command(&world, "session"));
        session.bash("true");
        assert!(!is_bound(), "{text}");
        session.close(LIMIT);
    }
}

place_test!(a_port_of_a_server_of_the_settings_is_published_while_it_runs);
/// Of an MCP server, which is a service of a session of its own, with its own profile.
fn a_port_of_a_server_of_the_settings_is_published_while_it_runs(place: Place) {
    let (machine, cell) = (free_port(), free_port());
    let world = world(place, "", &format!("publish = ['{machine}:{cell}']"));
    world.put("mcp.py", include_str!("../fixtures/mcp_server.py"));
    let both =
        format!("python3 server.py service 127.0.0.1 {cell} >&2 & exec python3 mcp.py friendly");
    let entry = |profile: &str| {
        let ours = json!({ "profile": profile });
        json!({ "there": { "command": "bash", "args": ["-c", both], "lazaret": ours } })
    };
    for (profile, want) in [("default", ""), ("net", "service")] {
        settings(&world, entry(profile));
        let mut session = Session::start(&mut dressed(&world, world.lazaret("session")));
        let said = session.call("mcp__there__echo", json!({ "text": "x" }));
        assert_eq!(said.success(), "x");
        match want {
            "" => assert_eq!(greeting(&world, "127.0.0.1", machine), "", "control"),
            want => assert!(is_greeted(&world, machine, want)),
        }
        assert!(session.close(LIMIT).success());
        let is_gone = || greeting(&world, "127.0.0.1", machine).is_empty();
        assert!(until(LIMIT, is_gone));
    }
}

place_test!(front_ends_publish_for_their_sessions);
fn front_ends_publish_for_their_sessions(place: Place) {
    let (world, cell) = (world(place, "", ""), free_port());
    let line = format!("exec python3 server.py own 127.0.0.1 {cell}");
    let input = json!({ "command": line, "background": true });
    let option = |port: u16| ["--publish".to_owned(), format!("{port}:{cell}")];

    let port = free_port();
    let mut mcp = command(&world, "mcp");
    let mut mcp = Running::start(mcp.args(["--trust", "autonomous"]).args(option(port)));
    let messages = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "bash", "arguments": input.clone() } }),
    ];
    let mut stdin = mcp.child.stdin.take().unwrap();
    for message in messages {
        writeln!(stdin, "{message}").unwrap();
    }
    assert!(is_greeted(&world, port, "own"), "mcp");
    drop(stdin);
    mcp.finish(LIMIT);

    let (port, path) = (free_port(), world.home.join("script.json"));
    let script = json!({ "turns": [
        { "text": "", "toolCalls": [{ "name": "bash", "input": input }] },
        { "text": "Done", "toolCalls": [] } ] });
    world.write(&path, script.to_string());
    let mut serve = command(&world, "serve");
    serve.args([
        "--listen",
        "127.0.0.1:0",
        "--provider",
        "mock",
        "--trust",
        "autonomous",
    ]);
    let sidecar = Sidecar::of(serve.arg("--script").arg(path).args(option(port)));
    let mut client = sidecar.client();
    let said = json!({ "content": "x", "conversationId": "c" });
    client.say("chat:send", said);
    assert!(is_greeted(&world, port, "own"), "serve");
    sidecar.end();
}
