//! `subagent` is a tool like any other: scopes, rules, trust and options close it, and both records have its calls.

use super::chats::{Printed, chat};
use super::vendors::Vendor;
use lazaret_tests::approval::{audited, set_policy};
use lazaret_tests::model_server::{ModelServer, Reply, ReplyEnd};
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;

const VENDOR: Vendor = Vendor::Claude;
/// Requests of a run whose subagent was permitted, and of one whose subagent was not.
const ANSWERED: usize = 4;
const REFUSED: usize = 3;

/// A model that asks a subagent, which reads a file, and is done.
fn asking() -> ModelServer {
    ModelServer::start(vec![
        VENDOR.answer("", &[("m1", "subagent", question())]),
        VENDOR.answer("", &[("s1", "file_read", json!({"path": "a.txt"}))]),
        VENDOR.answer("It is 42.", &[]),
        VENDOR.answer("They say 42.", &[]),
    ])
}

fn question() -> Value {
    json!({"question": "What is in a.txt?"})
}

/// A chat with settings of the user's in `settings`.
fn chat_of(world: &World, server: &ModelServer, words: &[&str]) -> Command {
    world.put("a.txt", "the answer is 42");
    let mut command = chat(world, VENDOR, server);
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .args(words)
        .arg("ask");
    command
}

/// The error of the call `m1`, or none, and the requests that the model has got.
fn outcome(printed: &Printed, server: &ModelServer) -> (Value, usize) {
    let results = printed.all("tool-result");
    let of_it = results.iter().find(|result| result["toolId"] == "m1");
    let kind = of_it.map(|result| result["error"]["code"].clone());
    (kind.expect("a result"), server.asked().len())
}

fn outcome_with(world: &World, words: &[&str]) -> (Value, usize) {
    let server = asking();
    let printed = Printed::of(&mut chat_of(world, &server, words));
    outcome(&printed, &server)
}

place_test!(a_scope_closes_it_and_opens_it);
fn a_scope_closes_it_and_opens_it(place: Place) {
    let world = World::new(place);
    let scope = |text: &str| {
        let text = format!("tool_permissions:\n  file_read: {{ allowed: true }}\n{text}");
        world.put("scope.yaml", text).to_str().unwrap().to_owned()
    };
    let closed = outcome_with(&world, &["--scope", &scope("")]);
    assert_eq!(closed, (json!("unknown_tool"), REFUSED));
    let open = scope("  subagent: { allowed: true }\n");
    assert_eq!(
        outcome_with(&world, &["--scope", &open]),
        (Value::Null, ANSWERED)
    );
    // Nothing in the repository's own files opens it, and no scope opens the tools that are not in it.
    let only = "tool_permissions:\n  subagent: { allowed: true }\n";
    let only = world.put("scope.yaml", only).to_str().unwrap().to_owned();
    let server = asking();
    let printed = Printed::of(&mut chat_of(&world, &server, &["--scope", &only]));
    let results = printed.all("tool-result");
    let inner = results.iter().find(|result| result["toolId"] == "s1");
    assert_eq!(inner.unwrap()["error"]["code"], "unknown_tool");
}

place_test!(audit_and_transcript_have_the_subagent_call);
fn audit_and_transcript_have_the_subagent_call(place: Place) {
    let world = World::new(place);
    assert_eq!(outcome_with(&world, &[]), (Value::Null, ANSWERED));
    let calls = audited(&world, "call");
    let tools: Vec<&Value> = calls.iter().map(|call| &call["tool"]).collect();
    assert!(tools.contains(&&json!("subagent")), "{calls:#?}");
    let runs = fs::read_dir(world.state.join("lazaret/runs")).unwrap();
    let run = runs.flatten().last().unwrap().path().join("runlog.jsonl");
    let text = fs::read_to_string(run).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of_it = |kind: &str| {
        let is = |line: &&Value| line["kind"] == kind && line["payload"]["tool"] == "subagent";
        lines.iter().find(is).cloned().expect(kind)
    };
    assert_eq!(of_it("tool_call")["payload"]["input"], question());
    assert_eq!(of_it("tool_result")["payload"]["result"], "It is 42.");
}

once_test!(subagent_needs_approval_where_every_call_does);
fn subagent_needs_approval_where_every_call_does() {
    let world = World::new(Place::any());
    // Nobody can answer.
    let supervised = outcome_with(&world, &["--trust", "supervised"]);
    assert_eq!(supervised, (json!("denied_user"), REFUSED));
    for trust in ["guided", "autonomous"] {
        let asked = outcome_with(&world, &["--trust", trust]);
        assert_eq!(asked, (Value::Null, ANSWERED), "{trust}");
    }
}

once_test!(a_rule_decides_on_its_question);
fn a_rule_decides_on_its_question() {
    let world = World::new(Place::any());
    let rule = |when: &str| {
        set_policy(
            &world,
            &format!(
                "[[rule]]\ntool = 'subagent'\naction = 'deny'\nwhy = 'Not this.'\nwhen = [{{ param = 'input', contains = '{when}' }}]"
            ),
        );
        outcome_with(&world, &["--trust", "autonomous"])
    };
    assert_eq!(rule("another.txt"), (Value::Null, ANSWERED));
    assert_eq!(rule("a.txt"), (json!("denied_policy"), REFUSED));
    // One that denies every call hides it.
    set_policy(
        &world,
        "[[rule]]\ntool = 'subagent'\naction = 'deny'\nwhy = 'Never.'",
    );
    assert_eq!(outcome_with(&world, &[]), (json!("unknown_tool"), REFUSED));
}

once_test!(subagents_can_be_switched_off);
fn subagents_can_be_switched_off() {
    let world = World::new(Place::any());
    let listed = |words: &[&str]| {
        let mut tools = world.program("lazaret");
        let listed = run(tools.args(["tools", "--json"]).args(words), LIMIT).success();
        listed.contains("\"name\":\"subagent\"")
    };
    assert!(listed(&[]) && !listed(&["--disable", "subagent"]));
    let off = outcome_with(&world, &["--disable", "subagent"]);
    assert_eq!(off, (json!("unknown_tool"), REFUSED));
}

once_test!(a_scope_limits_its_time_and_its_calls_end_with_a_result);
fn a_scope_limits_its_time_and_its_calls_end_with_a_result() {
    // On a busy machine it may not get to its model within a short time limit.
    assert!([2, 10, 40].into_iter().any(subagent_that_asks_is_ended));
}

fn subagent_that_asks_is_ended(seconds: u32) -> bool {
    let world = World::new(Place::any());
    let scope = format!(
        "tool_permissions:\n  file_read: {{ allowed: true }}\n  subagent: {{ allowed: true, timeout: {seconds}s }}\n"
    );
    let scope = world.put("scope.yaml", scope).to_str().unwrap().to_owned();
    let hanging = Reply {
        end: ReplyEnd::Hang,
        ..VENDOR.answer("I think", &[])
    };
    let cut = hanging.body.find("message_delta").unwrap();
    let hanging = Reply {
        body: hanging.body[..cut].to_owned(),
        ..hanging
    };
    let server = ModelServer::start(vec![
        VENDOR.answer("", &[("m1", "subagent", question())]),
        hanging,
        VENDOR.answer("So be it.", &[]),
    ]);
    let printed = Printed::of(&mut chat_of(&world, &server, &["--scope", &scope]));
    let (starts, results) = (printed.all("tool-start"), printed.all("tool-result"));
    assert_eq!(starts.len(), results.len());
    let (ended, requests) = outcome(&printed, &server);
    assert_eq!(ended, "timeout");
    if requests != 3 {
        return false;
    }
    printed.finished.success();
    assert_eq!(printed.text(), "So be it.");
    true
}

once_test!(several_in_a_batch_are_answered);
fn several_in_a_batch_are_answered() {
    let world = World::new(Place::any());
    let ask = |text: &str| json!({"tool_name": "subagent", "parameters": {"question": text}});
    let batch = json!({"invocations": [ask("one"), ask("two")]});
    let server = ModelServer::answering("127.0.0.1", move |request| {
        let messages = request.body["messages"].to_string();
        match () {
            () if messages.contains("tool_result") => VENDOR.answer("Both.", &[]),
            () if messages.contains("\"one\"") => VENDOR.answer("first", &[]),
            () if messages.contains("\"two\"") => VENDOR.answer("second", &[]),
            () => VENDOR.answer("", &[("m1", "batch", batch.clone())]),
        }
    });
    let printed = Printed::of(&mut chat_of(&world, &server, &[]));
    assert_eq!(printed.text(), "Both.");
    let result = printed.one("tool-result")["result"].to_string();
    let places = [result.find("first"), result.find("second")];
    assert!(
        places[0].is_some() && places[0] < places[1],
        "in the order of the calls: {result}"
    );
}
