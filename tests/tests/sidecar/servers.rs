//! The user's MCP servers in the sessions of `lazaret serve`: each session has its own, in cells, as a person has accepted them.

use super::mcp::{Client, messages, request};
use super::messages::{payloads, script};
use crate::servers::scene::{SERVER, dressed, friendly, mcp, server, settings, world};
use lazaret_tests::process::{self, Process, until};
use lazaret_tests::sidecar::{Sidecar, WebSocket};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test};
use serde_json::{Value, json};
use std::io::{ErrorKind, Read};
use std::net::TcpListener;

fn start(world: &World, turns: &Value) -> Sidecar {
    Sidecar::of(&mut dressed(world, Sidecar::command(world, turns)))
}

/// A server without a project.
fn start_nowhere(world: &World, turns: &Value) -> Sidecar {
    Sidecar::of(&mut dressed(world, Sidecar::command_nowhere(world, turns)))
}

/// A script that calls tools once.
fn calls(calls: &[(&str, Value)]) -> Value {
    script(&[("", calls), ("Done", &[])])
}

fn say(client: &mut WebSocket, conversation: &str, more: Value) -> Vec<Value> {
    let mut payload =
        json!({"content": "x", "conversationId": conversation, "trust": "autonomous"});
    payload
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    client.say("chat:send", payload);
    client.to_end()
}

/// The results of calls, or the kinds of their errors.
fn results(messages: &[Value]) -> Vec<String> {
    let result = |one: &&Value| {
        let text = one["error"]["code"].as_str().or(one["result"].as_str());
        text.unwrap_or_else(|| panic!("{one}"))
            .trim_end()
            .to_owned()
    };
    payloads(messages, "chat:tool-result")
        .iter()
        .map(result)
        .collect()
}

fn notices(messages: &[Value]) -> Vec<String> {
    let notices = payloads(messages, "chat:notice");
    let missing = notices
        .iter()
        .filter(|notice| notice["kind"] == "server_missing");
    missing
        .map(|notice| notice["message"].as_str().unwrap().to_owned())
        .collect()
}

fn is_listed(sidecar: &Sidecar, name: &str) -> bool {
    let listed = sidecar.get("/tools").json();
    listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .any(|tool| tool["name"] == name)
}

place_test!(a_conversation_calls_a_server_in_a_cell);
fn a_conversation_calls_a_server_in_a_cell(place: Place) {
    let mut approved = friendly();
    approved["autoApprove"] = json!(["echo"]);
    let world = world(place, json!({ "test": friendly(), "approved": approved }));
    let echo = |server: &str| (format!("mcp__{server}__echo"), json!({ "text": "hällo" }));
    let (test, approved) = (echo("test"), echo("approved"));
    let turns = calls(&[
        (&approved.0, approved.1),
        (&test.0, test.1),
        ("mcp__test__roots", json!({})),
    ]);
    let sidecar = start(&world, &turns);
    for name in ["mcp__test__echo", "mcp__approved__echo", "bash"] {
        assert!(is_listed(&sidecar, name), "{name}");
    }
    let mut client = sidecar.client();
    let root = format!("file://{}/", world.project.display());
    assert_eq!(
        results(&say(&mut client, "c", json!({}))),
        ["hällo", "hällo", &root]
    );
    // Whatever a server says of itself, its tools are asked about unless the settings say otherwise.
    client.say(
        "chat:send",
        json!({ "content": "x", "conversationId": "d", "trust": "guided" }),
    );
    for _ in 0..2 {
        let confirm = client.next_of("chat:tool-confirm");
        assert!(
            confirm["toolName"]
                .as_str()
                .unwrap()
                .starts_with("mcp__test__"),
            "{confirm}"
        );
        assert_eq!(confirm["risk"], "high", "{confirm}");
        client.say(
            "chat:tool-approve",
            json!({ "toolId": confirm["toolId"], "answer": "no" }),
        );
    }
    assert_eq!(
        results(&client.to_end()),
        ["hällo", "denied_user", "denied_user"]
    );
    let run = json!({ "prompt": "x", "trust": "autonomous" });
    let stream = sidecar.send("POST", "/run/stream", &run).body;
    assert!(stream.matches("\"hällo\"").count() >= 2, "{stream}");
    let closed = json!({ "prompt": "x", "trust": "autonomous", "networkAllowed": false });
    let stream = sidecar.send("POST", "/run/stream", &closed).body;
    assert!(!stream.contains("\"result\":\"hällo\""), "{stream}");
    sidecar.send("PUT", "/settings", &json!({ "trust": "autonomous" }));
    let client = Client::open(&sidecar, json!({}));
    let listed = messages(&client.post(&request(2, "tools/list", json!({})))).remove(0);
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    let listed = tools
        .iter()
        .find(|tool| tool["name"] == "mcp__test__echo")
        .unwrap();
    assert_ne!(listed["annotations"]["readOnlyHint"], true, "{listed}");
    let call = json!({ "name": "mcp__test__echo", "arguments": { "text": "hällo" } });
    let called = messages(&client.post(&request(3, "tools/call", call)))
        .pop()
        .unwrap();
    assert_eq!(called["result"]["content"][0]["text"], "hällo", "{called}");
    sidecar.end().success();
}

place_test!(a_hostile_server_of_a_conversation_gets_nothing);
fn a_hostile_server_of_a_conversation_gets_nothing(place: Place) {
    let world = world(place, json!({ "test": friendly() }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let [home, outside] = [&world.home, &world.outside].map(|path| path.display().to_string());
    let attack = json!({ "home": home, "outside": outside, "port": port });
    let sidecar = start(&world, &calls(&[("mcp__test__attack", attack)]));
    assert_eq!(
        results(&say(&mut sidecar.client(), "c", json!({}))),
        ["got:"]
    );
    let mut control = world.host("python3");
    control.arg(world.project.join("server.py")).args([
        "outside",
        &home,
        &outside,
        &port.to_string(),
    ]);
    let control = lazaret_tests::run(&mut control, LIMIT).success();
    for what in ["key:CANARY", "file", "network", "environment"] {
        assert!(
            control.contains(what),
            "{what} cannot be had without a cell: {control}"
        );
    }
    sidecar.end().success();
}

place_test!(each_session_has_servers_of_its_own_and_none_is_left);
fn each_session_has_servers_of_its_own_and_none_is_left(place: Place) {
    let marker = long_sleep();
    let world = world(
        place,
        json!({ "test": server(&["daemon", &marker], json!({})) }),
    );
    let running = || {
        process::with_marker(&marker)
            .iter()
            .filter(|process| process.name == "sleep")
            .count()
    };
    let becomes = |count: usize| process::until(LIMIT, || running() == count);
    let turns = script(&[
        ("", &[("mcp__test__echo", json!({ "text": "x" }))]),
        ("Done", &[]),
        ("", &[("mcp__test__exit", json!({}))]),
        ("Done", &[]),
        ("", &[("mcp__test__echo", json!({ "text": "y" }))]),
        ("Done", &[]),
    ]);
    let sidecar = start(&world, &turns);
    let mut client = sidecar.client();
    assert!(
        is_listed(&sidecar, "mcp__test__echo") && becomes(0),
        "what is started for a list ends"
    );
    for (conversation, count) in [("c", 1), ("d", 2)] {
        assert_eq!(results(&say(&mut client, conversation, json!({}))), ["x"]);
        assert!(
            becomes(count),
            "{conversation} has one of its own: {}",
            running()
        );
    }
    // One of them ends its server, and the other one's goes on.
    say(&mut client, "c", json!({}));
    assert!(becomes(1), "{}", running());
    assert_eq!(
        results(&say(&mut client, "c", json!({}))),
        ["y"],
        "it is started again"
    );
    assert!(becomes(2), "{}", running());
    // A run without a conversation leaves none, nor does a client that has ended its session, nor a session that is replaced.
    let run = json!({ "prompt": "x", "trust": "autonomous" });
    assert!(
        sidecar.send("POST", "/run", &run).body.contains("Done") && becomes(2),
        "{}",
        running()
    );
    sidecar.send("PUT", "/settings", &json!({ "trust": "autonomous" }));
    let other = Client::open(&sidecar, json!({}));
    let call = json!({ "name": "mcp__test__echo", "arguments": { "text": "x" } });
    assert!(
        other
            .post(&request(3, "tools/call", call))
            .body
            .contains("\"isError\":false")
    );
    assert!(becomes(3), "{}", running());
    assert_eq!(other.close().status, 202);
    assert!(becomes(2), "{}", running());
    say(
        &mut client,
        "d",
        json!({ "profile": "default", "history": [] }),
    );
    assert!(becomes(2), "{}", running());
    sidecar.end().success();
    process::assert_gone(&marker, LIMIT);
    let sidecar = start(&world, &turns);
    assert_eq!(results(&say(&mut sidecar.client(), "c", json!({}))), ["x"]);
    assert!(becomes(1));
    Process::find(sidecar.running.child.id() as i32)
        .unwrap()
        .kill();
    process::assert_gone(&marker, LIMIT);
}

once_test!(a_server_that_fails_is_named_and_the_conversation_goes_on);
fn a_server_that_fails_is_named_and_the_conversation_goes_on() {
    let world = world(
        Place::any(),
        json!({ "good": friendly(), "dies": server(&["dies"], json!({})) }),
    );
    let turns = calls(&[
        ("mcp__good__echo", json!({ "text": "x" })),
        ("bash", json!({ "command": "echo ours" })),
        ("mcp__dies__echo", json!({ "text": "x" })),
    ]);
    let sidecar = start(&world, &turns);
    assert!(is_listed(&sidecar, "mcp__good__echo") && !is_listed(&sidecar, "mcp__dies__echo"));
    let mut client = sidecar.client();
    let all = say(&mut client, "c", json!({}));
    assert_eq!(results(&all), ["x", "ours", "unknown_tool"]);
    let [notice] = &notices(&all)[..] else {
        panic!("{all:#?}")
    };
    assert!(
        notice.contains("the server `dies` has ended with code 3"),
        "{notice}"
    );
    let next = say(&mut client, "c", json!({ "history": [] }));
    assert_eq!(
        (results(&next).len(), notices(&next).len()),
        (3, 0),
        "the session is the same"
    );
    let errors = sidecar.end().errors();
    // For the list, and for the conversation.
    assert_eq!(
        errors
            .matches("the server `dies` has ended with code 3")
            .count(),
        2,
        "{errors}"
    );
    assert!(
        mcp(&world, &["log", "dies"])
            .success()
            .contains("server dies starts")
    );
}

once_test!(a_server_that_says_nothing_delays_its_own_tools_alone);
fn a_server_that_says_nothing_delays_its_own_tools_alone() {
    let world = world(
        Place::any(),
        json!({ "silent": server(&["silent"], json!({})) }),
    );
    let sidecar = start(&world, &script(&[("Never said", &[])]));
    let mut list = sidecar.begin("GET /tools", &sidecar.head(), b"");
    let mut client = sidecar.client();
    assert_eq!(sidecar.get("/health").status, 200);
    // The list waits by now: a run that waited for the same server would end after it.
    let waits = || {
        let below = process::below(sidecar.running.pid());
        below
            .iter()
            .any(|process| process.command == "python3 server.py silent")
    };
    assert!(until(LIMIT, waits));
    client.say(
        "chat:send",
        json!({ "content": "x", "conversationId": "c" }),
    );
    client.say("chat:cancel", json!({ "conversationId": "c" }));
    let all = client.to_end();
    assert_eq!(
        payloads(&all, "chat:stream-end")[0]["reason"],
        "cancelled",
        "{all:#?}"
    );
    // All of that came before the server was given up.
    list.set_nonblocking(true).unwrap();
    let waits = list.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(waits, Err(ErrorKind::WouldBlock));
    list.set_nonblocking(false).unwrap();
    let mut answer = String::new();
    list.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("\"bash\""),
        "{answer}"
    );
    let errors = sidecar.end().errors();
    assert!(
        errors.contains("the server `silent` was not ready within 30 s"),
        "{errors}"
    );
}

once_test!(a_tool_that_has_changed_is_not_called);
fn a_tool_that_has_changed_is_not_called() {
    let world = world(
        Place::any(),
        json!({ "test": server(&["changing"], json!({})) }),
    );
    let echo = calls(&[
        ("mcp__test__echo", json!({ "text": "x" })),
        ("mcp__test__new", json!({})),
    ]);
    let sidecar = start(&world, &echo);
    assert!(is_listed(&sidecar, "mcp__test__echo"));
    let mut client = sidecar.client();
    assert_eq!(
        results(&say(&mut client, "c", json!({}))),
        ["x", "unknown_tool"],
        "control"
    );
    world.put("changed", "");
    assert_eq!(
        results(&say(&mut client, "d", json!({}))),
        ["denied_policy", "unknown_tool"]
    );
    sidecar.end().success();
    mcp(&world, &["accept", "test", "--yes"]).success();
    let sidecar = start(&world, &echo);
    assert_eq!(
        results(&say(&mut sidecar.client(), "c", json!({}))),
        ["x", "new was called"]
    );
}

once_test!(a_tool_that_a_server_adds_is_a_notice_of_the_run);
fn a_tool_that_a_server_adds_is_a_notice_of_the_run() {
    let world = world(
        Place::any(),
        json!({ "test": server(&["growing"], json!({})) }),
    );
    let turns = script(&[
        ("", &[("mcp__test__grow", json!({}))]),
        ("", &[("bash", json!({ "command": "sleep 4; echo later" }))]),
        ("", &[("bash", json!({ "command": "sleep 4; echo last" }))]),
        ("Done", &[]),
    ]);
    let sidecar = start(&world, &turns);
    let mut client = sidecar.client();
    let changed = |messages: &[Value]| {
        let notices = payloads(messages, "chat:notice");
        let changed = notices
            .iter()
            .filter(|notice| notice["kind"] == "server_changed");
        changed
            .map(|notice| notice["message"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let notices = changed(&say(&mut client, "c", json!({})));
    assert!(
        notices.len() == 1 && notices[0].contains("test") && notices[0].contains("mcp accept"),
        "{notices:?}"
    );
}

once_test!(settings_that_cannot_be_used_are_named_at_the_start);
fn settings_that_cannot_be_used_are_named_at_the_start() {
    let world = world(Place::any(), json!({}));
    world.write(
        &world.home.join("settings/lazaret/mcp.json"),
        "{\"mcpServers\": {",
    );
    let sidecar = start(
        &world,
        &calls(&[("bash", json!({ "command": "echo ours" }))]),
    );
    assert_eq!(
        results(&say(&mut sidecar.client(), "c", json!({}))),
        ["ours"]
    );
    let errors = sidecar.end().errors();
    assert_eq!(
        errors.matches("no server of yours is used").count(),
        1,
        "{errors}"
    );
    assert!(
        errors.contains("mcp.json") && errors.contains("line 1"),
        "{errors}"
    );
}

once_test!(a_repository_s_servers_are_those_of_the_project_of_the_start);
fn a_repository_s_servers_are_those_of_the_project_of_the_start() {
    let world = world(Place::any(), json!({ "mine": friendly() }));
    world.put(
        ".mcp.json",
        json!({ "mcpServers": { "theirs": friendly() } }).to_string(),
    );
    let echo = |server: &str| (format!("mcp__{server}__echo"), json!({ "text": "x" }));
    let (mine, theirs) = (echo("mine"), echo("theirs"));
    let turns = calls(&[(&mine.0, mine.1), (&theirs.0, theirs.1)]);
    let proposed = start(&world, &turns);
    assert_eq!(
        results(&say(&mut proposed.client(), "c", json!({}))),
        ["x", "unknown_tool"]
    );
    let errors = proposed.end().errors();
    assert!(errors.contains("lazaret mcp accept"), "{errors}");
    mcp(&world, &["accept", "--yes"]).success();
    let accepted = start(&world, &turns);
    let all = say(&mut accepted.client(), "c", json!({}));
    assert_eq!(
        (results(&all), notices(&all).len()),
        (vec!["x".to_owned(), "x".into()], 0)
    );
    accepted.end().success();
    // A server that was started for no project has given up all files by the time that one is named.
    let elsewhere = start_nowhere(&world, &turns);
    let all = say(
        &mut elsewhere.client(),
        "c",
        json!({ "project": world.project }),
    );
    assert_eq!(results(&all), ["x", "unknown_tool"]);
    let [notice] = &notices(&all)[..] else {
        panic!("{all:#?}")
    };
    assert!(notice.contains(".mcp.json is not read"), "{notice}");
    let errors = elsewhere.end().errors();
    assert_eq!(
        errors.matches(".mcp.json is not read").count(),
        1,
        "{errors}"
    );
}

once_test!(without_a_project_there_are_servers_that_need_none);
fn without_a_project_there_are_servers_that_need_none() {
    let world = World::new(Place::any());
    world.write(&world.home.join("servers/server.py"), SERVER);
    let shown = world.home.join("servers").display().to_string();
    let policy = format!("version = 1\n[profile.mine]\ngrants = [{{ path = '{shown}' }}]\n");
    world.set_policy(policy);
    let of = |project: &str| {
        json!({ "command": "python3", "args": [format!("{shown}/server.py"), "friendly"],
            "lazaret": { "profile": "mine", "project": project } })
    };
    settings(
        &world,
        json!({ "private": of("none"), "shared": of("shared") }),
    );
    let echo = |server: &str| (format!("mcp__{server}__echo"), json!({ "text": "x" }));
    let (private, shared) = (echo("private"), echo("shared"));
    let turns = calls(&[
        (&private.0, private.1),
        (&shared.0, shared.1),
        ("bash", json!({ "command": "true" })),
        ("mcp__private__fail", json!({})),
    ]);
    let sidecar = start_nowhere(&world, &turns);
    let mut client = sidecar.client();
    let none = say(&mut client, "none", json!({}));
    assert_eq!(
        results(&none),
        ["x", "unknown_tool", "unknown_tool", "io"],
        "{none:#?}"
    );
    let scope = json!({ "mcp__private__echo": { "allowed": true }, "mcp__shared__echo": { "allowed": true } });
    let narrowed = say(&mut client, "narrowed", json!({ "scope": scope }));
    assert_eq!(
        results(&narrowed),
        ["x", "unknown_tool", "unknown_tool", "unknown_tool"],
        "{narrowed:#?}"
    );
    let project = say(&mut client, "project", json!({ "project": world.project }));
    assert_eq!(results(&project)[..2], ["x", "x"], "{project:#?}");
    assert!(is_listed(&sidecar, "mcp__private__echo") && is_listed(&sidecar, "mcp__shared__echo"));
    sidecar.end().success();
}

once_test!(a_scope_of_the_client_narrows_servers_too);
fn a_scope_of_the_client_narrows_servers_too() {
    let world = world(
        Place::any(),
        json!({ "test": friendly(), "other": friendly() }),
    );
    let turns = calls(&[
        ("mcp__test__echo", json!({ "text": "x" })),
        ("mcp__test__roots", json!({})),
        ("mcp__other__echo", json!({ "text": "x" })),
    ]);
    let sidecar = start(&world, &turns);
    let scope = json!({ "mcp__test__echo": { "allowed": true } });
    let all = say(&mut sidecar.client(), "c", json!({ "scope": scope }));
    assert_eq!(
        results(&all),
        ["x", "unknown_tool", "unknown_tool"],
        "{all:#?}"
    );
    let all = say(&mut sidecar.client(), "d", json!({}));
    assert_eq!(results(&all)[2], "x", "control");
    sidecar.end().success();
}
