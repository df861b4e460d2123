//! The gateway of a session as a process: what it holds, what happens when it ends, and with whom it ends.

use broker_protocol::VERSION;
use lazaret_tests::process::{Process, below, left_after, until};
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Serving, Session, World, place_test, run};
use nix::unistd::geteuid;
use serde_json::json;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// A server of this machine that answers each request with `pong`.
fn server() -> (u16, Serving) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = Serving::start(listener, |mut client| {
        let _ = client.read(&mut [0; 4096]);
        let _ = client
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npong");
    });
    (port, serving)
}

/// A session whose cells reach the server at this port by the name `localhost`.
fn session(world: &World, port: u16) -> Session {
    let settings = world.home.join("settings");
    let place = format!("['localhost:{port}']");
    let text = format!("version = 1\n[profile.net.network]\nallow = {place}\nprivate = {place}\n");
    world.write(&settings.join("lazaret/policy.toml"), text);
    let mut command = world.lazaret("session");
    command.env("XDG_CONFIG_HOME", settings);
    Session::start(command.args(["--profile", "net"]))
}

/// Asks for the server from a cell.
fn ask(session: &mut Session, port: u16) -> Answer {
    session.bash(&format!(
        "curl -sS -m 20 --noproxy '' http://localhost:{port}/ 2>&1"
    ))
}

fn gateways(session: &Session) -> Vec<Process> {
    let mut all = below(session.pid());
    all.retain(|process| process.name == "lazaret-gateway");
    all
}

#[track_caller]
fn gateway(session: &Session) -> Process {
    let all = gateways(session);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.into_iter().next().unwrap()
}

fn kill(process: &Process) {
    process.kill();
    assert!(until(LIMIT, || !process.is_alive()));
}

/// Findings about gateways with this result.
fn reported(answer: &Answer) -> Vec<String> {
    let found = answer.result["metadata"]["found"].as_array();
    let of_gateways = found
        .into_iter()
        .flatten()
        .filter(|one| one["kind"] == "gateway");
    of_gateways
        .map(|one| one["why"].as_str().unwrap().to_owned())
        .collect()
}

place_test!(a_session_without_a_network_has_no_gateway);
fn a_session_without_a_network_has_no_gateway(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("true").success();
    assert!(gateways(&session).is_empty());
    assert!(session.close(LIMIT).success());
}

place_test!(a_gateway_that_is_killed_is_followed_by_another);
fn a_gateway_that_is_killed_is_followed_by_another(place: Place) {
    let ((port, _serving), world) = (server(), World::new(place));
    let mut session = session(&world, port);
    assert!(ask(&mut session, port).success().contains("pong"));
    // Between two calls.
    let first = gateway(&session);
    kill(&first);
    let answer = ask(&mut session, port);
    assert!(answer.success().contains("pong"), "{}", answer.text());
    let why = reported(&answer);
    assert!(
        why.len() == 1 && why[0].contains("has ended") && why[0].contains("Another one serves now"),
        "{why:?}"
    );
    // In the middle of a connection.
    let second = gateway(&session);
    assert_ne!(first.pid, second.pid);
    let hold = format!(
        "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT localhost:{port} HTTP/1.1\\r\\n\\r\\n' >&3
         head -1 <&3 >got; cat <&3; echo cut"
    );
    let id = session.start_call("bash", json!({ "command": hold }));
    let open =
        || fs::read(world.project.join("got")).is_ok_and(|got| got.starts_with(b"HTTP/1.1 200"));
    assert!(until(LIMIT, open));
    kill(&second);
    let answer = session.answer_within(&id, LIMIT);
    assert!(answer.success().contains("cut"), "{}", answer.text());
    let answer = ask(&mut session, port);
    assert!(answer.success().contains("pong"), "{}", answer.text());
    assert!(session.close(LIMIT).success());
}

place_test!(after_many_gateways_commands_have_no_network);
fn after_many_gateways_commands_have_no_network(place: Place) {
    let ((port, _serving), world) = (server(), World::new(place));
    let mut session = session(&world, port);
    for _ in 0..9 {
        assert!(ask(&mut session, port).success().contains("pong"));
        kill(&gateway(&session));
    }
    let answer = ask(&mut session, port);
    assert!(
        !answer.text().contains("pong") && answer.text().contains("curl: (7)"),
        "{}",
        answer.text()
    );
    let why = reported(&answer);
    assert!(
        why.iter().any(|why| why.contains("no other is started")),
        "{why:?}"
    );
    assert!(gateways(&session).is_empty());
    assert_eq!(session.bash("echo on").success(), "on\n");
    assert!(session.close(LIMIT).success());
}

fn assert_holds_sockets_alone(process: &str) {
    let held = || -> Vec<_> {
        fs::read_dir(format!("{process}/fd"))
            .unwrap()
            .map(|entry| fs::read_link(entry.unwrap().path()).unwrap_or_default())
            .collect()
    };
    // The connection of the request may still be open.
    assert!(until(LIMIT, || held().len() < 16), "{:?}", held());
    let held = held();
    let is_ours = |held: &Path| {
        let text = held.to_str().unwrap();
        ["socket:", "anon_inode:[event", "/dev/null", "pipe:"]
            .iter()
            .any(|ours| text.starts_with(ours))
    };
    assert!(held.iter().all(|held| is_ours(held)), "{held:?}");
    let environment = fs::read_to_string(format!("{process}/environ")).unwrap();
    assert_eq!(environment, format!("LAZARET_PROTOCOL={VERSION}\0"));
    let cwd = fs::read_link(format!("{process}/cwd")).unwrap();
    assert_eq!(cwd, Path::new("/"));
}

place_test!(a_gateway_holds_its_sockets_and_nothing_else);
fn a_gateway_holds_its_sockets_and_nothing_else(place: Place) {
    let ((port, _serving), world) = (server(), World::new(place));
    let mut session = session(&world, port);
    assert!(ask(&mut session, port).success().contains("pong"));
    let at = format!("/proc/{}", gateway(&session).pid);
    if geteuid().is_root() {
        assert_holds_sockets_alone(&at);
    } else {
        // It cannot be traced, so its own user sees nothing of it.
        let refused = fs::read_dir(format!("{at}/fd")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    }
    let status = fs::read_to_string(format!("{at}/status")).unwrap();
    for line in [
        "Seccomp:\t2",
        "NoNewPrivs:\t1",
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapAmb:\t0000000000000000",
    ] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    assert!(session.close(LIMIT).success());
}

place_test!(a_gateway_ends_with_its_session);
fn a_gateway_ends_with_its_session(place: Place) {
    let ((port, _serving), world) = (server(), World::new(place));
    let ends: [fn(Session); 3] = [
        |session| assert!(session.close(LIMIT).success()),
        |mut session| {
            let _ = session.child.kill();
            let _ = session.child.wait();
        },
        |mut session| {
            let all = below(session.pid());
            let broker = all.iter().find(|one| one.name == "lazaret-executo");
            broker.unwrap().kill();
            let _ = session.child.kill();
            let _ = session.child.wait();
        },
    ];
    for end in ends {
        let mut session = session(&world, port);
        assert!(ask(&mut session, port).success().contains("pong"));
        let gateways = [gateway(&session)];
        end(session);
        assert!(left_after(&gateways, LIMIT).is_empty());
    }
}

place_test!(without_its_program_a_session_with_a_network_does_not_open);
fn without_its_program_a_session_with_a_network_does_not_open(place: Place) {
    let world = World::new(place);
    let programs = world.home.join("programs");
    fs::create_dir(&programs).unwrap();
    for name in ["lazaret", "lazaret-executor", "lazaret-worker"] {
        // By another process: a program cannot be started while a fork of this one has it open for writing.
        let mut copy = Command::new("cp");
        copy.arg(lazaret_tests::programs::path(name)).arg(&programs);
        run(&mut copy, LIMIT).success();
        world.own(&programs.join(name));
    }
    world.own(&programs);
    let lazaret = |options: &[&str]| {
        let mut command = world.host(programs.join("lazaret").to_str().unwrap());
        command.args(["run", "--project"]).arg(&world.project);
        run(command.args(options).args(["--", "echo", "on"]), LIMIT)
    };
    assert_eq!(lazaret(&[]).success(), "on\n");
    let refused = lazaret(&["--allow-host", "a.example:443"]);
    let errors = refused.errors();
    assert!(
        refused.code() == 125 && errors.contains("install it beside `lazaret-executor`"),
        "{errors}"
    );
}
