//! Leases: what a call wants beyond what its session has is granted by somebody, to what was asked about, for as long as was said,
//! and to nothing else.
//!
//! The server is the tests' own, on this machine's loopback, which the policy opens by its address and not by its name: what is
//! granted is the name at its port.

use broker_protocol::{
    CallId, Challenge, Coverage, ErrorKind, Extent, FromBroker, GrantFault, Lease, Outcome,
    Request, ToBroker, Wants,
};
use lazaret_fakes::{EchoServer, PongServer};
use lazaret_tests::approval::{
    Approver, asked, audited, broker_with_leases, dressed, make_runtime, start_wanting,
    verify_audit,
};
use lazaret_tests::process::until;
use lazaret_tests::programs::need;
use lazaret_tests::terminal::Terminal;
use lazaret_tests::wire::{shell, yes};
use lazaret_tests::{Broker, LIMIT, Place, Session, World, place_test, run};
use serde_json::json;
use std::fs;
use std::time::Duration;

/// A world whose policy opens the addresses of this machine, by no name; and has these lines.
fn world(place: Place, lines: &str) -> World {
    let world = World::new(place);
    let text = format!("version = 1\n[profile.net.network]\nprivate = ['127.0.0.0/8']\n{lines}\n");
    world.set_policy(text);
    make_runtime(&world);
    world
}

/// A world whose policy opens nothing of this machine, and has these lines.
fn closed_world(place: Place, lines: &str) -> World {
    let world = World::new(place);
    let text = format!("version = 1\n[profile.net.network]\nallow = []\n{lines}\n");
    world.set_policy(text);
    make_runtime(&world);
    world
}

fn session(world: &World, options: &[&str]) -> Session {
    let mut command = dressed(world, world.lazaret("session"));
    Session::start(command.args(["--profile", "net"]).args(options))
}

/// Starts a command that wants these hosts.
fn start(session: &mut Session, id: &str, command: &str, hosts: &[&str]) {
    start_wanting(session, id, command, &json!({ "hosts": hosts }));
}

place_test!(a_host_is_granted_to_one_call_and_no_other);
fn a_host_is_granted_to_one_call_and_no_other(place: Place) {
    let server = PongServer::start();
    let (world, host) = (world(place, ""), server.host());
    let mut session = session(&world, &["--leases"]);
    let before = session.bash(&server.ask()).result;
    assert!(
        before["result"]
            .as_str()
            .unwrap()
            .contains("not among the hosts"),
        "the control: {before}"
    );
    let wait = format!(
        "{}; touch here; while [ -e here ]; do sleep 0.05; done",
        server.ask()
    );
    start(&mut session, "a", &wait, &[&host]);
    let question = asked(&mut session, "a");
    assert_eq!(
        (&question["rule"], &question["session"]),
        (&json!("lease"), &json!("wants"))
    );
    assert_eq!(question["wants"], json!({ "hosts": [host] }));
    assert_eq!(server.hits(), 0, "nothing runs before the answer");
    session.send(&json!({"id": "a", "approve": "once"}));
    let here = world.project.join("here");
    assert!(until(LIMIT, || here.exists()), "the command was not run");
    assert_eq!(server.hits(), 1);
    // While it runs: another call of the session, by any way.
    let other = format!(
        "{}; curl -sS --noproxy '' -x socks5h://127.0.0.1:61080 http://{host}/; true",
        server.ask()
    );
    let other = session.bash(&other).result;
    assert!(
        !other["result"].as_str().unwrap().contains("pong"),
        "{other}"
    );
    assert!(other["metadata"].get("leases").is_none(), "{other}");
    session.send(&json!({"id": "g", "grants": true}));
    let listed = session.event("g", LIMIT).unwrap()["grants"].clone();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["host"]),
        (1, &json!(host))
    );
    fs::remove_file(here).unwrap();
    let answer = session.answer_within("a", LIMIT);
    assert!(answer.success().contains("pong"));
    assert_eq!(answer.result["metadata"]["leases"], json!([host]));
    // And after it.
    assert!(!session.bash(&server.ask()).text().contains("pong"));
    assert_eq!(server.hits(), 1);
    assert!(session.close(LIMIT).success());
    let (begun, ended) = (audited(&world, "lease"), audited(&world, "lease_ended"));
    assert_eq!(
        (begun.len(), &begun[0]["host"], &begun[0]["grant"]),
        (1, &json!(host), &json!("once"))
    );
    assert_eq!((ended.len(), &ended[0]["end"]), (1, &json!("call")));
    verify_audit(&world);
}

/// Asks a host by the relay with no more than its name.
fn raw_request(host: &str) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT {host} HTTP/1.1\\r\\n\\r\\nGET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    )
}

place_test!(a_lease_is_its_calls_whatever_programs_say_of_themselves);
/// The supervisor says whose a connection is. The same requests, at the same time: from the call, from another one, and from processes
/// in the background, whose connections are of no call.
fn a_lease_is_its_calls_whatever_programs_say_of_themselves(place: Place) {
    let server = PongServer::start();
    let (world, host) = (world(place, ""), server.host());
    let mut session = session(&world, &["--leases"]);
    let ways = format!(
        "({}) 2>&1; curl -sS --noproxy '' -x socks5h://127.0.0.1:61080 http://{host}/ 2>&1; echo; \
         curl -sS --noproxy '' -x http://lease:0123456789abcdef0123456789abcdef@127.0.0.1:61080 http://{host}/ 2>&1",
        raw_request(&host)
    );
    world.put("ways", &ways);
    let background = "until [ -e here ]; do sleep 0.05; done; bash ways > background; touch done";
    let input = json!({ "command": background, "background": true });
    let id = session.start_call("bash", input);
    session.answer_within(&id, LIMIT).success();
    let wait = "bash ways; touch here; while [ -e here ]; do sleep 0.05; done";
    start(&mut session, "a", wait, &[&host]);
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "once"}));
    let [here, done] = ["here", "done"].map(|name| world.project.join(name));
    assert!(until(LIMIT, || here.exists()), "the command was not run");
    assert_eq!(server.hits(), 3, "the control");
    let other = session.bash("bash ways");
    assert!(!other.text().contains("pong"), "{}", other.text());
    assert!(
        until(LIMIT, || done.exists()),
        "nothing ran in the background"
    );
    let other = fs::read_to_string(world.project.join("background")).unwrap();
    assert!(!other.contains("pong") && other.contains("403"), "{other}");
    assert_eq!(server.hits(), 3);
    fs::remove_file(here).unwrap();
    let answer = session.answer_within("a", LIMIT);
    assert_eq!(answer.success().matches("pong").count(), 3);
    assert!(session.close(LIMIT).success());
}

place_test!(a_lease_is_used_by_java);
/// A JVM answers no proxy that wants a password for CONNECT, unless its user changes its settings.
fn a_lease_is_used_by_java(place: Place) {
    need("javac", "default-jdk-headless");
    let server = PongServer::start();
    let (world, host) = (world(place, ""), server.host());
    let java = "public class S { public static void main(String[] a) throws Exception {
        var at = new java.net.InetSocketAddress(\"127.0.0.1\", 61080);
        var proxy = new java.net.Proxy(java.net.Proxy.Type.HTTP, at);
        var c = new java.net.URL(a[0]).openConnection(proxy);
        System.out.println(new String(c.getInputStream().readAllBytes())); } }";
    world.put("S.java", java);
    world.set_up("javac S.java");
    let mut session = session(&world, &["--leases"]);
    let ask = format!("java -cp . S http://{host}/");
    assert!(!session.bash(&ask).text().contains("pong"), "the control");
    start(&mut session, "a", &ask, &[&host]);
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "once"}));
    let answer = session.answer_within("a", LIMIT);
    assert!(answer.success().contains("pong"), "{}", answer.text());
    assert!(session.close(LIMIT).success());
}

place_test!(revoked_host_grant_of_a_session_ends);
fn revoked_host_grant_of_a_session_ends(place: Place) {
    let server = PongServer::start();
    let (world, host) = (world(place, ""), server.host());
    let mut first = session(&world, &["--leases"]);
    start(&mut first, "a", &server.ask(), &[&host]);
    asked(&mut first, "a");
    first.send(&json!({"id": "a", "approve": {"minutes": 30}}));
    assert!(first.answer_within("a", LIMIT).success().contains("pong"));
    let next = first.bash(&server.ask());
    assert!(next.success().contains("pong"));
    assert_eq!(next.result["metadata"]["leases"], json!([host]));
    // What the session has is not asked about again.
    start(&mut first, "b", &server.ask(), &[&host]);
    assert!(first.answer_within("b", LIMIT).success().contains("pong"));
    // It is of this session.
    let mut second = session(&world, &["--leases"]);
    assert!(!second.bash(&server.ask()).text().contains("pong"));
    assert!(second.close(LIMIT).success());
    // A connection that is open ends with it, and no other begins.
    let hold = format!(
        "exec 3<>/dev/tcp/127.0.0.1/61080; printf 'CONNECT {host} HTTP/1.1\\r\\n\\r\\nHOLD' >&3; cat <&3; echo ended"
    );
    let id = first.start_call("bash", json!({ "command": hold, "timeout": 600 }));
    let held = until(LIMIT, || {
        first
            .event(&id, Duration::from_secs(5))
            .is_some_and(|event| event.to_string().contains("held"))
    });
    assert!(held, "no connection to hold");
    first.send(&json!({"id": "g", "grants": true}));
    let listed = first.event("g", LIMIT).unwrap()["grants"].clone();
    assert!(
        listed[0]["endsS"].as_u64().unwrap() <= 1800 && listed[0]["calls"] == 2,
        "{listed}"
    );
    first.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
    assert_eq!(first.event("r", LIMIT).unwrap()["grants"], json!([]));
    assert!(first.answer_within(&id, LIMIT).success().contains("ended"));
    assert!(!first.bash(&server.ask()).text().contains("pong"));
    first.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
    assert_eq!(first.event("r", LIMIT).unwrap()["event"], "notice");
    assert!(first.close(LIMIT).success());
    assert_eq!(audited(&world, "lease")[0]["minutes"], 30);
    assert_eq!(audited(&world, "lease_ended")[0]["end"], "revoked");
}

fn command(text: &str) -> Request {
    Request::Bash(shell(text))
}

#[track_caller]
fn ask(broker: &mut Broker, call: CallId, request: Request, hosts: &[&str]) -> Challenge {
    let wants = Wants {
        hosts: hosts.iter().map(ToString::to_string).collect(),
        ..Wants::default()
    };
    broker.send(&ToBroker::WantingCall {
        call,
        request,
        wants,
    });
    broker.challenge(call)
}

#[track_caller]
fn leases(broker: &mut Broker) -> Vec<Lease> {
    match broker.message() {
        FromBroker::Leases(leases) => leases,
        other => panic!("no leases: {other:?}"),
    }
}

place_test!(a_grant_is_for_what_was_asked_about);
/// At the border: what a client can do that is not ours.
fn a_grant_is_for_what_was_asked_about(place: Place) {
    let world = world(place, "");
    let mut first = broker_with_leases(&world, "net");
    let narrow = ask(&mut first, 1, command("true"), &["a.example:443"]);
    assert_eq!(
        (narrow.covers, &narrow.wants.hosts[..]),
        (Coverage::Wants, &["a.example:443".to_owned()][..])
    );
    // Widened: the same command with another host, and with one more.
    let mut tried = 0;
    for (call, hosts) in [
        (2, &["b.example:443"][..]),
        (3, &["a.example:443", "b.example:443"]),
    ] {
        let wide = ask(&mut first, call, command("true"), hosts);
        assert_ne!(wide.digest, narrow.digest);
        assert_eq!(
            first.refused_grant(yes(call, &narrow, Extent::Session)),
            GrantFault::OtherQuestion
        );
        let forged = Challenge {
            nonce: wide.nonce,
            ..narrow.clone()
        };
        assert_eq!(
            first.refused_grant(yes(call, &forged, Extent::Session)),
            GrantFault::OtherCall
        );
        first.send(&ToBroker::Refuse { call });
        assert_eq!(
            first.done(call).outcome.error(),
            Some(ErrorKind::DeniedUser)
        );
        tried += 2;
    }
    // Other input.
    let other = ask(&mut first, 4, command("false"), &["a.example:443"]);
    let forged = Challenge {
        nonce: other.nonce,
        ..narrow.clone()
    };
    assert_eq!(
        first.refused_grant(yes(4, &forged, Extent::Once)),
        GrantFault::OtherCall
    );
    // Another session's.
    let mut second = broker_with_leases(&world, "net");
    let theirs = ask(&mut second, 1, command("true"), &["a.example:443"]);
    assert_ne!(theirs.digest, narrow.digest);
    assert_eq!(
        second.refused_grant(yes(1, &narrow, Extent::Session)),
        GrantFault::OtherQuestion
    );
    // The honest one, and replayed.
    first.send(&ToBroker::Grant(yes(1, &narrow, Extent::Once)));
    let granted = leases(&mut first);
    assert_eq!(
        (granted.len(), granted[0].call, granted[0].opens.host()),
        (1, 1, Some("a.example:443"))
    );
    assert!(granted[0].alone);
    assert_eq!(
        leases(&mut first),
        [],
        "it ends with its call, before its end is told"
    );
    assert!(matches!(first.done(1).outcome, Outcome::Ran(_)));
    assert_eq!(
        first.refused_grant(yes(1, &narrow, Extent::Session)),
        GrantFault::NotWaiting
    );
    let again = ask(&mut first, 1, command("true"), &["a.example:443"]);
    assert_eq!(
        first.refused_grant(yes(1, &narrow, Extent::Session)),
        GrantFault::OtherQuestion
    );
    first.send(&ToBroker::Grant(yes(1, &again, Extent::Once)));
    assert_ne!(leases(&mut first)[0].lease, granted[0].lease);
    let nothing = Wants {
        hosts: vec!["x".into(); 17],
        ..Wants::default()
    };
    second.send(&ToBroker::WantingCall {
        call: 9,
        request: command("true"),
        wants: nothing,
    });
    assert_eq!(
        second.done(9).outcome.error(),
        Some(ErrorKind::InvalidInput)
    );
    println!(
        "{place:?}: {} of {} grants for something else refused",
        tried + 4,
        tried + 4
    );
}

place_test!(nobody_is_asked_where_nobody_answers);
fn nobody_is_asked_where_nobody_answers(place: Place) {
    let server = PongServer::start();
    let world = world(place, "");
    let mut quiet = session(&world, &[]);
    start(&mut quiet, "a", &server.ask(), &[&server.host()]);
    let answer = quiet.answer_within("a", LIMIT);
    assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
    assert!(
        answer.text().contains("grants no more hosts"),
        "{}",
        answer.text()
    );
    assert!(answer.events.is_empty() && server.hits() == 0);
    assert!(quiet.close(LIMIT).success());
    // Nor is there an answer when the client has said its last word.
    let mut ended = session(&world, &["--leases"]);
    start(&mut ended, "a", &server.ask(), &[&server.host()]);
    asked(&mut ended, "a");
    assert!(ended.close(LIMIT).success());
    assert_eq!((server.hits(), audited(&world, "lease").len()), (0, 0));
}

place_test!(host_that_cannot_be_granted_is_refused_with_its_reason);
fn host_that_cannot_be_granted_is_refused_with_its_reason(place: Place) {
    let server = PongServer::start();
    let world = world(place, "[network]\nallow = ['localhost']");
    let mut session = session(&world, &["--leases", "--trust", "guided"]);
    for (host, why) in [
        ("a.example:443", "the policy does not allow cells to reach"),
        ("localhost", "one host and one port"),
        ("*:443", "one host and one port"),
        ("*.example:443", "one host and one port"),
        ("127.0.0.1:80", "one host and one port"),
        ("[::1]:80", "one host and one port"),
        ("LOCALHOST:80", "one host and one port"),
        ("localhost:80\n", "one host and one port"),
        ("localhost:0", "one host and one port"),
    ] {
        start(&mut session, "a", "true", &[host]);
        let answer = session.answer_within("a", LIMIT);
        assert!(answer.events.is_empty(), "asked about {host}");
        assert_eq!(answer.kind(), "denied_policy", "{host}: {}", answer.result);
        assert!(answer.text().contains(why), "{host}: {}", answer.text());
    }
    // Not by a file tool, nor in the background.
    for line in [
        json!({"id": "a", "tool": "file_list", "input": {}, "wants": {"hosts": [server.host()]}}),
        json!({"id": "a", "tool": "bash", "input": {"command": "true", "background": true}, "wants": {"hosts": [server.host()]}}),
    ] {
        session.send(&line);
        let answer = session.answer_within("a", LIMIT);
        assert_eq!(answer.kind(), "denied_policy");
        let advice = &answer.result["metadata"]["denied"][0]["remedy"]["advice"];
        assert!(
            advice
                .as_str()
                .is_some_and(|text| text.contains("use a foreground `bash` call for `wants`")),
            "{}",
            answer.result
        );
    }
    // Two questions are one: the policy's, and the host's. The answer for the session is to the host alone.
    start(&mut session, "b", &server.ask(), &[&server.host()]);
    let question = asked(&mut session, "b");
    assert_eq!(
        (&question["rule"], &question["session"]),
        (&json!("trust:guided"), &json!("wants"))
    );
    session.send(&json!({"id": "b", "approve": "session"}));
    assert!(session.answer_within("b", LIMIT).success().contains("pong"));
    let id = session.start_call("bash", json!({ "command": server.ask() }));
    assert_eq!(asked(&mut session, &id)["rule"], "trust:guided");
    session.send(&json!({"id": id, "approve": "once"}));
    assert!(session.answer_within(&id, LIMIT).success().contains("pong"));
    assert!(session.close(LIMIT).success());
    // A scope that closes the network to commands leaves nothing to grant.
    world.put(
        "scope.yaml",
        "tool_permissions:\n  bash: { allowed: true, network: false }\n",
    );
    let scope = world.project.join("scope.yaml");
    let mut scoped = self::session(&world, &["--leases", "--scope", scope.to_str().unwrap()]);
    start(&mut scoped, "a", &server.ask(), &[&server.host()]);
    assert_eq!(scoped.answer_within("a", LIMIT).kind(), "denied_policy");
    assert!(scoped.close(LIMIT).success());
}

place_test!(a_client_does_not_grant_to_itself_where_answers_come_from_elsewhere);
fn a_client_does_not_grant_to_itself_where_answers_come_from_elsewhere(place: Place) {
    let server = PongServer::start();
    let world = world(
        place,
        "[approval]\ntimeout_s = 600\nchannel = 'separate'\nterminal = false",
    );
    // Nor in what the session opens with: of that nobody is asked.
    let data = world.outside.to_str().unwrap();
    for wider in [
        ["--allow-host", &*server.host()],
        ["--allow-net", "npm"],
        ["--read", data],
        ["--write", data],
    ] {
        let mut command = dressed(&world, world.lazaret("run"));
        let done = run(
            command
                .args(["--profile", "net"])
                .args(wider)
                .args(["--", "true"]),
            LIMIT,
        );
        assert!(
            done.errors()
                .contains("answers from `lazaret approve` alone"),
            "{wider:?}: {}",
            done.errors()
        );
    }
    let mut session = session(&world, &["--leases"]);
    let mut approver = Approver::start(&world);
    for (id, approve, want) in [("a", "no", false), ("b", "session", true)] {
        start(&mut session, id, &server.ask(), &[&server.host()]);
        assert_eq!(asked(&mut session, id)["channel"], "separate");
        session.send(&json!({"id": id, "approve": "session"}));
        assert_eq!(
            session.event(id, LIMIT).unwrap()["event"],
            "notice",
            "it was taken"
        );
        let shown = approver.answer(approve);
        assert!(shown.to_string().contains(&server.host()), "{shown}");
        assert_eq!(
            session.answer_within(id, LIMIT).text().contains("pong"),
            want
        );
    }
    assert_eq!(server.hits(), 1);
    assert!(session.close(LIMIT).success());
    // Nor is a person's answer for good taken from here.
    let mut command = dressed(&world, world.lazaret("run"));
    command.args([
        "--profile",
        "net",
        "--",
        "bash",
        "-c",
        &format!("{} | grep pong", server.ask()),
    ]);
    let mut terminal = Terminal::start(&mut command, 24, 300);
    terminal.expect("for this session / no", LIMIT);
    terminal.answer("session\n", "waiting for `lazaret approve`");
    // Keys that came twice on a busy machine may have the question asked anew.
    let is_granted = until(LIMIT, || {
        if let Some(asked) = approver.event("approval", Duration::from_millis(100)) {
            approver.send(
                &json!({ "session": asked["session"], "call": asked["call"], "approve": "once" }),
            );
        }
        terminal.shows("pong", Duration::ZERO)
    });
    assert!(is_granted, "{}", terminal.screen());
    assert!(terminal.finish(LIMIT).success());
}

place_test!(a_person_at_a_terminal_is_asked_and_the_command_runs_again);
fn a_person_at_a_terminal_is_asked_and_the_command_runs_again(place: Place) {
    let server = PongServer::start();
    let world = world(place, "");
    let start = |script: &str| {
        let mut command = dressed(&world, world.lazaret("run"));
        command.args(["--profile", "net", "--", "bash", "-c", script]);
        Terminal::start(&mut command, 24, 200)
    };
    let script = format!("echo run; {} | grep pong", server.ask());
    let question = format!("tried to reach {}", server.host());
    for (invalid, answer) in [(None, "\n"), (Some("x\n"), "no\n")] {
        let mut terminal = start(&script);
        terminal.expect(&question, LIMIT);
        if let Some(invalid) = invalid {
            terminal.answer(
                invalid,
                "that is no answer to this question: `y` or `o` once",
            );
            terminal.expect(&question, LIMIT);
        }
        terminal.insist(answer, Terminal::has_ended);
        assert_eq!(
            terminal.finish(LIMIT).code(),
            Some(1),
            "{}",
            terminal.screen()
        );
        assert_eq!(terminal.screen().matches("run\r\n").count(), 1);
    }
    assert_eq!(server.hits(), 0, "the control");
    // What was typed before the question is no answer to it; on a busy machine it comes after.
    let is_discarded = || {
        let before = server.hits();
        let mut terminal = start(&script);
        terminal.expect(&question, LIMIT);
        terminal.send("o\n");
        let is_quiet = !terminal.shows("pong", Duration::from_secs(2));
        let is_discarded = is_quiet && server.hits() == before;
        if is_quiet {
            terminal.answer("y\n", "pong");
        }
        assert!(terminal.finish(LIMIT).success(), "{}", terminal.screen());
        assert!(terminal.is_restored());
        is_discarded
    };
    assert!((0..5).any(|_| is_discarded()));
    let before = server.hits();
    // A command that goes well is not asked about, nor one in a pipe.
    let mut terminal = start(&format!("{}; true", server.ask()));
    assert!(terminal.finish(LIMIT).success() && !terminal.screen().contains(&question));
    let mut piped = dressed(&world, world.lazaret("run"));
    let done = run(
        piped.args(["--profile", "net", "--", "bash", "-c", &script]),
        LIMIT,
    );
    assert!(done.code() == 1 && !done.errors().contains(&question));
    assert_eq!(server.hits(), before);
}

place_test!(always_is_written_into_the_users_own_file);
fn always_is_written_into_the_users_own_file(place: Place) {
    let server = PongServer::start();
    let world = world(place, "# Mine");
    let file = world.policy();
    let before = fs::read_to_string(&file).unwrap();
    let mut command = dressed(&world, world.lazaret("run"));
    command.args([
        "--profile",
        "net",
        "--",
        "bash",
        "-c",
        &format!("{} | grep pong", server.ask()),
    ]);
    let mut terminal = Terminal::start(&mut command, 24, 300);
    terminal.expect("/ always / no", LIMIT);
    // A letter could be meant for a question that the command has printed.
    for short in ["a\n", "always\n", "a other.example:443\n"] {
        terminal.answer(short, "/ always / no");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let always = format!("always {}\n", server.host());
    terminal.answer(&always, "is open to the profile net");
    terminal.expect("pong", LIMIT);
    assert!(terminal.finish(LIMIT).success(), "{}", terminal.screen());
    let after = fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("# Mine") && after.contains("# Allowed always by `lazaret run`"),
        "{after}"
    );
    let backups = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let backups: Vec<_> = backups.filter(|path| *path != file).collect();
    assert_eq!(backups.len(), 1, "{backups:?}");
    assert_eq!(fs::read_to_string(&backups[0]).unwrap(), before);
    // From now on without a question, and for no other host.
    let pipe = |script: &str| {
        let mut command = dressed(&world, world.lazaret("run"));
        run(
            command.args(["--profile", "net", "--", "bash", "-c", script]),
            LIMIT,
        )
    };
    assert_eq!(pipe(&server.ask()).success(), "pong");
    let other = PongServer::start();
    assert!(
        !pipe(&format!("{}; true", other.ask()))
            .text()
            .contains("pong")
            && other.hits() == 0
    );
    // What would say more, or cannot be said, is not written.
    let allow = |host: &str, profile: &str| {
        let mut command = dressed(&world, world.lazaret("policy"));
        run(command.args(["allow", host, "--profile", profile]), LIMIT)
    };
    for (host, profile) in [
        ("*:443", "net"),
        ("127.0.0.1:80", "net"),
        ("a.example:443", "none"),
    ] {
        assert_ne!(allow(host, profile).code(), 0, "{host} {profile}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), after);
    world.write(
        &file,
        "version = 1\n[profile.my-default]\nextends = 'rust'\n",
    );
    let refused = allow("a.example:443", "default");
    assert!(
        refused.code() != 0 && refused.errors().contains("yourself"),
        "{}",
        refused.errors()
    );
    world.write(&file, "version = 1\n[network]\nallow = []\n");
    assert!(
        allow("a.example:443", "default")
            .errors()
            .contains("does not allow")
    );
    world.write(
        &file,
        "version = 1\n[profile.net.network]\npresets = ['npm']\n[profile.sub]\nextends = 'net'\n",
    );
    let told = allow("a.example:443", "net");
    assert!(
        told.success().contains("to what extends it: sub"),
        "{}",
        told.text()
    );
}

place_test!(host_that_a_shipped_profile_lacks_is_allowed_in_an_own_profile);
/// The command that denials recommend, on a machine without a policy, and with the file that the README recommends.
fn host_that_a_shipped_profile_lacks_is_allowed_in_an_own_profile(place: Place) {
    let world = World::new(place);
    let file = world.policy();
    let policy = |words: &[&str]| run(dressed(&world, world.lazaret("policy")).args(words), LIMIT);
    let allow = |words: &[&str]| policy(&[&["allow"], words].concat());
    let shown = || -> serde_json::Value {
        serde_json::from_str(&policy(&["show", "--json"]).success()).unwrap()
    };
    let profile = || shown()["profile"].as_str().unwrap().to_owned();
    assert_eq!(profile(), "default");
    let told = allow(&["a.example:443"]);
    assert!(
        told.success().contains("my-default")
            && told.text().contains("sessions that name no profile"),
        "{}",
        told.text()
    );
    assert_eq!(profile(), "my-default");
    assert!(
        shown()["network"].to_string().contains("a.example:443"),
        "{}",
        shown()["network"]
    );
    // The session that has asked goes on with the profile that it has.
    allow(&["b.example:443", "--profile", "default"]).success();
    allow(&["c.example:443"]).success();
    // A script that sets a machine up may say it again.
    let before = fs::read_to_string(&file).unwrap();
    assert!(
        allow(&["b.example:443"])
            .success()
            .contains("has it already")
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    // However fast they come, each text before is kept.
    let kept = fs::read_dir(file.parent().unwrap())
        .unwrap()
        .flatten()
        .map(|entry| entry.path());
    let kept: Vec<_> = kept
        .filter(|path| *path != file)
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let hosts = |text: &String| text.matches(".example:443").count();
    let mut kept: Vec<_> = kept.iter().map(hosts).collect();
    kept.sort_unstable();
    assert_eq!(kept, [1, 2]);
    let text = fs::read_to_string(&file).unwrap();
    let read: toml::Table = text.parse().unwrap();
    let own = json!({"extends": "default", "network": {"allow": ["a.example:443", "b.example:443", "c.example:443"]}});
    assert_eq!(json!(read["profile"]["my-default"]), own, "{text}");
    assert_eq!(
        text.matches("# Allowed always by `lazaret policy allow`")
            .count(),
        4,
        "{text}"
    );
    // `auto` chooses for every project as before, but for the profile that has more.
    for before in [
        "version = 1\ndefault_profile = \"auto\"\n",
        "version = 1\nprofile = 'auto' # mine\n[[rule]]\ntool = 'bash'\naction = 'ask'\nwhy = 'x'\n",
    ] {
        world.write(&file, before);
        let files = ["package.json", "go.mod", "Cargo.toml"];
        let chosen = || {
            let mut chosen = vec![profile()];
            for name in files {
                world.put(name, "");
                chosen.push(profile());
            }
            files
                .iter()
                .for_each(|name| fs::remove_file(world.project.join(name)).unwrap());
            chosen
        };
        assert_eq!(chosen(), ["default", "node", "go", "rust"]);
        world.put("package.json", "");
        let told = allow(&["a.example:443"]);
        assert!(
            told.success().contains("`auto` chooses it"),
            "{}",
            told.text()
        );
        world.put("Cargo.toml", "");
        allow(&["/var/log"]).success();
        ["package.json", "Cargo.toml"]
            .iter()
            .for_each(|name| fs::remove_file(world.project.join(name)).unwrap());
        assert_eq!(chosen(), ["default", "my-node", "go", "my-rust"]);
        allow(&["a.example:443"]).success();
        assert_eq!(
            chosen(),
            ["my-default", "my-node", "go", "my-rust"],
            "{}",
            fs::read_to_string(&file).unwrap()
        );
        assert_eq!(profile(), "my-default");
    }
    // What the files do not choose is named.
    let told = allow(&["a.example:443", "--profile", "read-only"]);
    assert!(told.success().contains("my-read-only"), "{}", told.text());
}

place_test!(programs_are_offline_until_a_host_is_granted);
fn programs_are_offline_until_a_host_is_granted(place: Place) {
    let world = World::new(place);
    let text = "version = 1\n[profile.net.environment.offline]\nPIP_NO_INDEX = '1'\n";
    world.set_policy(text);
    let mut session = session(&world, &["--leases"]);
    let show = "echo ${PIP_NO_INDEX-online} ${HTTPS_PROXY%%:*}";
    assert_eq!(session.bash(show).success().trim(), "1 http");
    start(&mut session, "a", show, &["a.example:443"]);
    asked(&mut session, "a");
    session.send(&json!({"id": "a", "approve": "once"}));
    assert_eq!(
        session.answer_within("a", LIMIT).success().trim(),
        "online http"
    );
    assert_eq!(session.bash(show).success().trim(), "1 http");
    assert!(session.close(LIMIT).success());
}

/// Reads the line that a server at this port of the loopback says, or why there is none.
fn say(port: u16) -> String {
    format!("(exec 3<>/dev/tcp/127.0.0.1/{port} && timeout 60 head -1 <&3) 2>&1")
}

/// The routes of a call to a server at `port`: its own address, its other names, and the relay.
fn routes(port: u16) -> String {
    let relay = raw_request(&format!("127.0.0.1:{port}"));
    let six = "import socket,sys; s = socket.create_connection(('::1', int(sys.argv[1])), 60); print(s.recv(6))";
    format!(
        "{}; (exec 3<>/dev/tcp/0.0.0.0/{port} && timeout 60 head -1 <&3) 2>&1; python3 -c \"{six}\" {port} 2>&1; \
         curl -sS -m 60 --noproxy '' -x socks5h://127.0.0.1:61080 http://127.0.0.1:{port}/ 2>&1; ({relay}) 2>&1; echo",
        say(port)
    )
}

place_test!(a_port_of_this_machine_is_granted_to_one_call_and_no_other);
fn a_port_of_this_machine_is_granted_to_one_call_and_no_other(place: Place) {
    let (server, other) = (EchoServer::start("127.0.0.1"), EchoServer::start("::"));
    let offline = "[profile.net.environment.offline]\nPIP_NO_INDEX = '1'";
    let (world, port) = (closed_world(place, offline), server.port);
    let outside = world.on_host(&format!("{}; {}", say(port), say(other.port)));
    assert_eq!(outside.success(), "hello\nhello\n", "the control");
    let mut session = session(&world, &["--leases"]);
    world.put("ways", routes(port));
    world.put("others", routes(other.port));
    let refused = session.bash("bash ways; false");
    assert!(!refused.text().contains("hello"), "{}", refused.text());
    // What was refused is named with what would open it.
    let address = json!(format!("127.0.0.1:{port}"));
    let denied = refused.result["metadata"]["denied"].clone();
    let denied = denied.as_array().unwrap().iter();
    let mut remedies = denied.filter(|denial| denial["what"]["target"] == address);
    let remedy = remedies.next().expect("a denial")["remedy"].to_string();
    assert!(
        remedy.contains(&format!("--connect {port}")) && remedy.contains("`wants`"),
        "{remedy}"
    );
    let background = "until [ -e here ]; do sleep 0.05; done; bash ways > background; touch done";
    let input = json!({ "command": background, "background": true });
    let id = session.start_call("bash", input);
    session.answer_within(&id, LIMIT).success();
    let wait = format!(
        "{}; touch asked; bash others > others.got; env > env; touch here; while [ -e here ]; do sleep 0.05; done",
        say(port)
    );
    start_wanting(&mut session, "a", &wait, &json!({ "connect": [port] }));
    let question = asked(&mut session, "a");
    let shown = format!("connect to port {port} of this machine's loopback");
    assert!(
        question["why"].as_str().unwrap().contains(&shown),
        "{question}"
    );
    assert_eq!(
        [&question["rule"], &question["session"], &question["wants"]],
        [
            &json!("lease"),
            &json!("wants"),
            &json!({ "connect": [port] })
        ]
    );
    session.send(&json!({"id": "a", "approve": "once"}));
    let [here, done] = ["here", "done"].map(|name| world.project.join(name));
    assert!(until(LIMIT, || here.exists()), "the command was not run");
    // While it runs: another call, a process in the background, and the call itself at another port.
    let another = session.bash("bash ways");
    assert!(!another.text().contains("hello"), "{}", another.text());
    assert!(another.result["metadata"].get("leases").is_none());
    assert!(until(LIMIT, || done.exists()), "nothing ran there");
    let read = |name: &str| fs::read_to_string(world.project.join(name)).unwrap();
    for got in ["background", "others.got"].map(read) {
        assert!(!got.contains("hello") && got.contains("refused"), "{got}");
    }
    assert!(read("env").contains("PIP_NO_INDEX=1"), "a port is no host");
    session.send(&json!({"id": "g", "grants": true}));
    let listed = session.event("g", LIMIT).unwrap()["grants"].clone();
    assert_eq!(
        (listed.as_array().unwrap().len(), &listed[0]["connect"]),
        (1, &json!(port))
    );
    fs::remove_file(here).unwrap();
    let answer = session.answer_within("a", LIMIT);
    assert!(answer.success().contains("hello"), "{}", answer.text());
    let leased = json!([format!("connect {port}")]);
    assert_eq!(answer.result["metadata"]["leases"], leased);
    // And after it.
    let after = session.bash("bash ways");
    assert!(!after.text().contains("hello"), "{}", after.text());
    assert!(session.close(LIMIT).success());
    let (begun, ended) = (audited(&world, "lease"), audited(&world, "lease_ended"));
    assert_eq!(
        (begun.len(), &begun[0]["connect"], &begun[0]["grant"]),
        (1, &json!(port.to_string()), &json!("once"))
    );
    assert_eq!((ended.len(), &ended[0]["end"]), (1, &json!("call")));
    verify_audit(&world);
}

place_test!(a_port_granted_for_minutes_ends_with_its_connections);
fn a_port_granted_for_minutes_ends_with_its_connections(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let (world, port) = (closed_world(place, ""), server.port);
    let mut first = session(&world, &["--leases"]);
    let wants = json!({ "connect": [port] });
    start_wanting(&mut first, "a", &say(port), &wants);
    asked(&mut first, "a");
    first.send(&json!({"id": "a", "approve": {"minutes": 30}}));
    assert!(first.answer_within("a", LIMIT).success().contains("hello"));
    // For every call, without another question; for processes in the background; and in no other session.
    assert!(first.bash(&say(port)).success().contains("hello"));
    start_wanting(&mut first, "b", &say(port), &wants);
    assert!(first.answer_within("b", LIMIT).success().contains("hello"));
    let input =
        json!({ "command": format!("{} > got; touch done", say(port)), "background": true });
    let id = first.start_call("bash", input);
    first.answer_within(&id, LIMIT).success();
    let done = world.project.join("done");
    assert!(until(LIMIT, || done.exists()));
    assert_eq!(
        fs::read_to_string(world.project.join("got")).unwrap(),
        "hello\n"
    );
    let mut second = session(&world, &["--leases"]);
    assert!(!second.bash(&say(port)).text().contains("hello"));
    assert!(second.close(LIMIT).success());
    // A connection that is open ends with it, and no other begins: not by the call that had it when it began, either.
    let hold = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; head -1 <&3 > held; cat <&3; {}; echo ended",
        say(port)
    );
    let id = first.start_call("bash", json!({ "command": hold, "timeout": 600 }));
    let held = world.project.join("held");
    assert!(until(LIMIT, || fs::read(&held).is_ok_and(|got| got == b"hello\n")));
    first.send(&json!({"id": "g", "grants": true}));
    let listed = first.event("g", LIMIT).unwrap()["grants"].clone();
    assert!(listed[0]["endsS"].as_u64().unwrap() <= 1800, "{listed}");
    first.send(&json!({"id": "r", "revoke": listed[0]["grant"]}));
    assert_eq!(first.event("r", LIMIT).unwrap()["grants"], json!([]));
    let answer = first.answer_within(&id, LIMIT);
    let text = answer.success();
    assert!(
        text.contains("ended") && !text.contains("hello"),
        "the control is `held`: {text}"
    );
    assert!(!first.bash(&say(port)).text().contains("hello"));
    assert!(first.close(LIMIT).success());
    assert_eq!(audited(&world, "lease")[0]["minutes"], 30);
    assert_eq!(audited(&world, "lease_ended")[0]["end"], "revoked");
}

place_test!(a_port_that_cannot_be_granted_is_refused);
fn a_port_that_cannot_be_granted_is_refused(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let port = server.port;
    let world = World::new(place);
    make_runtime(&world);
    // What the profile has is not asked about, and a file that bounds the network bounds leases, also where it names hosts alone.
    for (bound, grants) in [
        (String::new(), true),
        (format!("[network]\nconnect = [{port}]"), true),
        ("[network]\nconnect = [1]".to_owned(), false),
        ("[network]\nallow = ['*']".to_owned(), false),
    ] {
        let text = format!("version = 1\n{bound}\n[profile.net.network]\nconnect = [1]\n");
        world.set_policy(text);
        let mut session = session(&world, &["--leases"]);
        start_wanting(&mut session, "a", &say(port), &json!({ "connect": [port] }));
        if grants {
            asked(&mut session, "a");
            session.send(&json!({"id": "a", "approve": "once"}));
        }
        let answer = session.answer_within("a", LIMIT);
        assert_eq!(answer.text().contains("hello"), grants, "{bound}");
        let refused = session.bash(&format!("{}; false", say(port)));
        let remedy = refused.result["metadata"]["denied"][0]["remedy"].to_string();
        assert_eq!(
            remedy.contains("--connect") && remedy.contains("`wants`"),
            grants,
            "{remedy}"
        );
        if !grants {
            assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
            assert!(answer.text().contains("does not name it"), "{bound}");
            assert!(
                answer.events.is_empty(),
                "nobody is asked what nobody may grant"
            );
        }
        assert!(session.close(LIMIT).success());
    }
    world.set_policy("version = 1\n[profile.net.network]\nconnect = [1]\n");
    let mut session = session(&world, &["--leases"]);
    start_wanting(&mut session, "a", "true", &json!({ "connect": [1] }));
    session.answer_within("a", LIMIT).success();
    let wants = json!({ "connect": [port] });
    for line in [
        json!({"id": "a", "tool": "file_list", "input": {}, "wants": wants}),
        json!({"id": "a", "tool": "bash", "input": {"command": "true", "background": true}, "wants": wants}),
        json!({"id": "a", "tool": "bash", "input": {"command": "true"}, "wants": {"connect": [61080]}}),
    ] {
        session.send(&line);
        let answer = session.answer_within("a", LIMIT);
        assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
        assert!(answer.events.is_empty());
    }
    for wrong in [
        json!([0]),
        json!([65536]),
        json!(["5432"]),
        json!(vec![5432; 17]),
    ] {
        start_wanting(&mut session, "a", "true", &json!({ "connect": wrong }));
        let answer = session.answer_within("a", LIMIT);
        assert_eq!(answer.kind(), "invalid_input", "{wrong}: {}", answer.result);
    }
    assert!(session.close(LIMIT).success());
    let mut without = self::session(&world, &[]);
    start_wanting(&mut without, "a", &say(port), &wants);
    let answer = without.answer_within("a", LIMIT);
    assert_eq!(answer.kind(), "denied_policy", "{}", answer.result);
    assert!(without.close(LIMIT).success());
}

place_test!(a_person_is_asked_about_a_port_and_may_open_it_for_good);
fn a_person_is_asked_about_a_port_and_may_open_it_for_good(place: Place) {
    let server = EchoServer::start("127.0.0.1");
    let (world, port) = (closed_world(place, "# Mine"), server.port);
    let script = format!("{} | grep hello", say(port));
    let command = |world: &World| {
        let mut command = dressed(world, world.lazaret("run"));
        command.args(["--profile", "net", "--", "bash", "-c", &script]);
        command
    };
    let question = format!("tried to connect to port {port} of this machine");
    for (answer, code) in [("no\n", 1), ("o\n", 0)] {
        let mut terminal = Terminal::start(&mut command(&world), 24, 300);
        terminal.expect(&question, LIMIT);
        terminal.insist(answer, Terminal::has_ended);
        let ended = terminal.finish(LIMIT).code();
        assert_eq!(ended, Some(code), "{}", terminal.screen());
    }
    let mut terminal = Terminal::start(&mut command(&world), 24, 300);
    terminal.expect("/ always / no", LIMIT);
    terminal.answer(&format!("always {port}\n"), "is open to the profile net");
    terminal.expect("hello", LIMIT);
    assert!(terminal.finish(LIMIT).success(), "{}", terminal.screen());
    let after = fs::read_to_string(world.policy()).unwrap();
    assert!(
        after.contains("# Mine") && after.contains("connect = ["),
        "{after}"
    );
    // From now on without a question, and no other port.
    assert_eq!(run(&mut command(&world), LIMIT).success(), "hello\n");
    let other = EchoServer::start("127.0.0.1");
    let mut allow = dressed(&world, world.lazaret("policy"));
    allow.args(["allow", "--profile", "net", &other.port.to_string()]);
    run(&mut allow, LIMIT).success();
    let after = fs::read_to_string(world.policy()).unwrap();
    assert!(after.contains(&other.port.to_string()), "{after}");
    let mut again = dressed(&world, world.lazaret("policy"));
    again.args(["allow", "--profile", "net", &other.port.to_string()]);
    assert!(run(&mut again, LIMIT).text().contains("already"));
}
