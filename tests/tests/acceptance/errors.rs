//! Errors in JSON: one form, whatever front end writes them.

use lazaret_tests::approval::Approver;
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::process::Command;

/// The codes of the schema of `lazaret serve`, by which each error is checked.
fn codes(world: &World) -> Vec<Value> {
    let mut serve = world.lazaret("serve");
    let described = run(serve.arg("--asyncapi"), LIMIT);
    let schema: Value = serde_json::from_str(&described.success()).unwrap();
    let schemas = &schema["components"]["schemas"];
    let error = &schemas["chat:error"];
    assert!(error.is_null(), "its payload has the fields itself");
    schemas["ErrorCode"]["enum"].as_array().unwrap().clone()
}

/// Checks that `error` is an error body with this code.
#[track_caller]
fn check(known: &[Value], error: &Value, code: &str) {
    assert_eq!(error["code"], code, "{error}");
    assert!(known.contains(&error["code"]), "{error}");
    assert!(!error["message"].as_str().unwrap().is_empty(), "{error}");
    let fields = error.as_object().unwrap().keys();
    let envelope = ["requestType", "requestId"];
    let own = ["code", "layer", "message", "advice", "retryAfterS"];
    for field in fields {
        let is_known = own.iter().chain(&envelope).any(|known| known == field);
        assert!(is_known, "{field}: {error}");
    }
}

/// The only line that a command prints, and its exit code.
#[track_caller]
fn line(mut command: Command, words: &[&str]) -> (i32, Value) {
    let finished = run(command.args(words), LIMIT);
    let text = finished.text();
    let parsed = serde_json::from_str(&text);
    let line = parsed.unwrap_or_else(|error| panic!("{words:?}: {error}: {finished:?}"));
    assert!(
        !finished.errors().is_empty(),
        "{words:?}: people read it too"
    );
    (finished.code(), line)
}

place_test!(each_command_prints_its_error_as_json);
fn each_command_prints_its_error_as_json(place: Place) {
    let world = World::new(place);
    let known = codes(&world);
    let profile = ["--json", "--profile", "no-such"];
    let after = |words: &[&'static str]| [&profile, words].concat();
    for (command, words, exit) in [
        ("run", after(&["--", "true"]), 125),
        ("why", after(&["--", "true"]), 2),
        ("call", [&["ls", "{}"][..], &profile].concat(), 2),
        ("history", profile.to_vec(), 2),
        ("undo", after(&["1"]), 2),
    ] {
        let (code, printed) = line(world.lazaret(command), &words);
        assert_eq!(code, exit, "{command}: {printed}");
        check(&known, &printed["error"], "invalid_input");
    }
    let (_, printed) = line(
        world.lazaret("policy"),
        &["show", "--json", "--profile", "no-such"],
    );
    check(&known, &printed["error"], "invalid_input");
    // Wrong arguments too, and with the exit code that they have without it.
    for (command, words, exit) in [
        ("run", &["--json", "--bogus", "--", "ls"][..], 125),
        ("run", &["--json"], 125),
        ("undo", &["--json", "x"], 2),
        ("history", &["--json", "--bogus"], 2),
        ("policy", &["explain", "--json", "bash", "{}"], 2),
        ("doctor", &["--json", "--bogus"], 2),
    ] {
        let (code, printed) = line(world.lazaret(command), words);
        assert_eq!(code, exit, "{command}: {printed}");
        check(&known, &printed["error"], "invalid_input");
    }
    let (_, chat) = line(
        world.lazaret("chat"),
        &["--json", "--provider", "nope", "hi"],
    );
    assert_eq!(chat["type"], "chat:error", "{chat}");
    check(&known, &chat["payload"], "invalid_input");
    for (words, code) in [
        (
            &["audit", "verify", "--json", "--head", "zz"][..],
            "invalid_input",
        ),
        (&["log", "show", "--json", "nosuch"], "not_found"),
        (&["warm", "status", "--json"], "not_found"),
    ] {
        let (_, printed) = line(world.program("lazaret"), words);
        check(&known, &printed["error"], code);
    }
    // An option of the command that is run is none of ours.
    let bare = ["--bogus", "--", "ls", "--json"];
    let theirs = run(world.lazaret("run").args(bare), LIMIT);
    assert_eq!((theirs.code(), theirs.text().as_str()), (125, ""));
    // The control: without --json the error is a text alone.
    let text = run(
        world
            .lazaret("why")
            .args(["--profile", "no-such", "--", "true"]),
        LIMIT,
    );
    assert_eq!((text.code(), text.text().as_str()), (2, ""));
    // A provider that is none, and one that does not answer.
    for (base, code) in [
        ("ftp://a", "invalid_input"),
        ("http://127.0.0.1:1", "connection_error"),
    ] {
        let words = [
            "--json",
            "--provider",
            "ollama",
            "--base-url",
            base,
            "hello",
        ];
        let (exit, printed) = line(world.lazaret("chat"), &words);
        assert_ne!(exit, 0);
        assert_eq!(printed["type"], "chat:error", "{printed}");
        check(&known, &printed["payload"], code);
    }
    let mut session = world.lazaret("session");
    session.args(["--profile", "no-such"]);
    let (code, fault) = line(session, &[]);
    assert_eq!((code, &fault["event"]), (2, &json!("fault")), "{fault}");
    check(&known, &fault["error"], "invalid_input");
}

place_test!(an_approver_reads_what_is_wrong_with_its_line);
fn an_approver_reads_what_is_wrong_with_its_line(place: Place) {
    let world = World::new(place);
    let known = codes(&world);
    let mut approver = Approver::start(&world);
    for (wrong, code) in [
        (json!("no object"), "invalid_input"),
        (json!({"session": "1-0", "call": 7}), "invalid_input"),
        (
            json!({"session": "1-0", "call": 7, "approve": "once"}),
            "not_waiting",
        ),
        (
            json!({"session": "1-0", "call": 7, "approve": "no_and_stop"}),
            "not_offered",
        ),
    ] {
        approver.send(&wrong);
        let notice = approver.event("notice", LIMIT).expect("nothing was said");
        check(&known, &notice["error"], code);
    }
}

once_test!(a_server_answers_errors_over_http_and_websocket_alike);
fn a_server_answers_errors_over_http_and_websocket_alike() {
    let world = World::new(Place::any());
    let known = codes(&world);
    let sidecar = Sidecar::start(&world, &json!({"turns": []}), &[]);
    let refused = sidecar.raw("GET /health", &[], b"");
    check(&known, &refused.json()["error"], "wrong_host");
    for (method, path, body, code) in [
        ("GET", "/nothing", json!(null), "not_found"),
        ("PUT", "/health", json!({}), "method_not_allowed"),
        ("POST", "/run", json!({"prompt": 1}), "invalid_request"),
        ("POST", "/runs/none/cancel", json!({}), "unknown_run"),
    ] {
        let answer = sidecar.send(method, path, &body);
        check(&known, &answer.json()["error"], code);
    }
    let mut client = sidecar.client();
    client.say("chat:cancel", json!({"conversationId": "none"}));
    let refused = client.next_of("request:error");
    check(&known, &refused, "unknown_conversation");
    // A run's error has the same fields in its event and in its status.
    client.say("chat:send", json!({"content": "x"}));
    let event = client.next_of("chat:error");
    let run = event["messageId"].as_str().unwrap().to_owned();
    client.next_of("chat:stream-end");
    let status = sidecar.get(&format!("/runs/{run}/status")).json();
    check(&known, &status["error"], "invalid_request");
    for field in ["code", "message", "advice"] {
        assert_eq!(status["error"][field], event[field], "{event}");
    }
}
