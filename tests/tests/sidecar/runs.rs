//! Runs and their events: the criteria of acceptance that are about them, by their numbers.

use super::messages::{order, payloads, script};
use crate::chat::vendors::Vendor;
use lazaret_tests::approval::audited;
use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::process::{self, until};
use lazaret_tests::sidecar::{Sidecar, WebSocket};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::time::Duration;

fn world() -> World {
    World::new(Place::any())
}

fn say(client: &mut WebSocket, more: Value) -> Vec<Value> {
    let mut payload = json!({"content": "x", "conversationId": "c", "trust": "autonomous"});
    payload
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    client.say("chat:send", payload);
    client.to_end()
}

fn text(messages: &[Value]) -> String {
    payloads(messages, "chat:text-delta")
        .iter()
        .filter_map(|payload| payload["content"].as_str())
        .collect()
}

once_test!(ac_30_the_events_of_a_run_come_in_their_order);
fn ac_30_the_events_of_a_run_come_in_their_order() {
    let world = World::new(Place::any());
    world.put("a.txt", "content");
    let turns = script(&[
        (
            "One",
            &[
                ("file_read", json!({"path": "a.txt"})),
                ("bash", json!({"command": "echo hello"})),
            ],
        ),
        ("Two", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    let all = say(&mut client, json!({}));
    let want = [
        "stream-start",
        "session",
        "text-delta",
        "turn-end",
        "tool-start",
        "tool-result",
        "tool-start",
        "tool-delta",
        "tool-result",
        "text-delta",
        "turn-end",
        "stream-end",
    ];
    assert_eq!(order(&all), want, "{all:#?}");
    let sequences: Vec<u64> = all
        .iter()
        .map(|message| message["sequence"].as_u64().unwrap())
        .collect();
    assert_eq!(sequences, (1..=all.len() as u64).collect::<Vec<_>>());
    for message in &all {
        let payload = &message["payload"];
        assert!(
            payload["conversationId"] == "c"
                && payload["messageId"].as_str().unwrap().starts_with("run-")
        );
        assert!(message["timestamp"].as_u64().unwrap() > 1_600_000_000_000);
    }
    let [read, bash] = payloads(&all, "chat:tool-result")[..] else {
        panic!("{all:#?}")
    };
    assert_eq!(
        (&read["status"], &bash["status"]),
        (&json!("success"), &json!("success"))
    );
    assert!(
        read["result"].as_str().unwrap().contains("content"),
        "{read}"
    );
    assert_eq!(payloads(&all, "chat:tool-delta")[0]["chunk"], "hello\n");
    let end = payloads(&all, "chat:stream-end")[0];
    assert_eq!(
        (&end["partial"], &end["reason"]),
        (&json!(false), &json!("done"))
    );
    let turns = payloads(&all, "chat:turn-end");
    assert_eq!(
        turns.last().unwrap()["context"],
        end["context"],
        "one figure"
    );
    sidecar.end().success();
}

fn sleeping(marker: &str) -> bool {
    process::with_marker(&format!("sleep {marker}"))
        .iter()
        .any(|process| process.name == "sleep")
}

place_test!(ac_32_a_cancelled_run_is_partial_and_leaves_no_process);
fn ac_32_a_cancelled_run_is_partial_and_leaves_no_process(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let command = format!("trap '' HUP INT TERM; setsid sleep {marker} & sleep {marker}");
    let turns = script(&[
        ("", &[("bash", json!({ "command": command }))]),
        ("Never said", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    assert!(until(LIMIT, || sleeping(&marker)));
    client.say("chat:cancel", json!({"conversation_id": "c"}));
    let all = client.to_end();
    // By the time that the run is over, nothing of it is left.
    process::assert_gone(&format!("sleep {marker}"), Duration::ZERO);
    assert_eq!(
        payloads(&all, "chat:tool-result")[0]["error"]["code"],
        "cancelled"
    );
    let end = payloads(&all, "chat:stream-end")[0];
    assert_eq!(
        (&end["reason"], &end["partial"]),
        (&json!("cancelled"), &json!(true))
    );
    assert_eq!(text(&all), "");
    client.say("chat:cancel", json!({"conversationId": "c"}));
    assert_eq!(client.next_of("request:error")["code"], "not_running");
    sidecar.end().success();
}

once_test!(ac_25_to_28_each_vendors_calls_arrive_whole_and_are_answered);
fn ac_25_to_28_each_vendors_calls_arrive_whole_and_are_answered() {
    for vendor in Vendor::ALL {
        let world = world();
        world.put("a.txt", "content of a");
        let calls = [
            ("call_1", "file_read", json!({"path": "a.txt"})),
            ("call_2", "bash", json!({"command": "echo two"})),
        ];
        let replies = vendor.inquiry().into_iter();
        let server = ModelServer::start(
            replies
                .chain([
                    vendor.answer("Let me see.", &calls),
                    vendor.answer("Done.", &[]),
                ])
                .collect(),
        );
        let mut command = world.lazaret("serve");
        command.args([
            "--listen",
            "127.0.0.1:0",
            "--provider",
            vendor.name(),
            "--base-url",
            &server.url(),
        ]);
        let sidecar = Sidecar::of(&mut command);
        let mut client = sidecar.client();
        let all = say(
            &mut client,
            json!({"model": "a-model", "apiKey": "sk-a-key-of-the-client"}),
        );
        let starts = payloads(&all, "chat:tool-start");
        let started: Vec<_> = starts
            .iter()
            .map(|one| (&one["toolId"], &one["toolName"], &one["input"]))
            .collect();
        let want: Vec<_> = calls
            .iter()
            .map(|(id, name, input)| (json!(id), json!(name), input))
            .collect();
        let want: Vec<_> = want
            .iter()
            .map(|(id, name, input)| (id, name, *input))
            .collect();
        assert_eq!(started, want, "{vendor:?}: {all:#?}");
        assert_eq!(text(&all), "Let me see.Done.", "{vendor:?}");
        // The tools went to the vendor, and the results too.
        let asked = server.asked();
        let first = asked
            .iter()
            .find(|request| request.body["tools"].is_array())
            .expect("tools");
        assert!(
            first.body["tools"].to_string().contains("file_read"),
            "{vendor:?}"
        );
        let result = vendor
            .result_of(&asked.last().unwrap().body, "call_1")
            .expect("a result");
        assert!(result.0.contains("content of a"), "{vendor:?}: {result:?}");
        assert!(
            !format!("{all:?}").contains("sk-a-key-of-the-client"),
            "{vendor:?}"
        );
        sidecar.end().success();
    }
}

once_test!(ac_29_a_run_without_calls_has_no_events_of_tools);
fn ac_29_a_run_without_calls_has_no_events_of_tools() {
    let world = world();
    let sidecar = Sidecar::start(&world, &script(&[("Just text.", &[])]), &[]);
    let all = say(&mut sidecar.client(), json!({}));
    assert_eq!(
        order(&all),
        [
            "stream-start",
            "session",
            "text-delta",
            "turn-end",
            "stream-end"
        ]
    );
    assert_eq!(text(&all), "Just text.");
}

once_test!(ac_31_two_hundred_turns_are_the_last);
fn ac_31_two_hundred_turns_are_the_last() {
    let turns = json!({"repeat": true, "turns": [{"toolCalls": [{"name": "thinking", "input": {"thought": "hm"}}]}]});
    let world = world();
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let all = say(&mut sidecar.client(), json!({}));
    let end = payloads(&all, "chat:stream-end")[0];
    assert_eq!(
        (&end["reason"], &end["turns"]),
        (&json!("turn_limit"), &json!(201)),
        "{end}"
    );
    assert_eq!(payloads(&all, "chat:tool-result").len(), 200);
}

once_test!(ac_33_a_project_has_its_tools_and_without_one_there_are_none_for_files);
fn ac_33_a_project_has_its_tools_and_without_one_there_are_none_for_files() {
    let world = world();
    world.put("a.txt", "content");
    let turns = script(&[
        (
            "",
            &[
                ("file_read", json!({"path": "a.txt"})),
                ("bash", json!({"command": "ls"})),
            ],
        ),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::of(&mut Sidecar::command_nowhere(&world, &turns));
    let mut client = sidecar.client();
    let none = say(&mut client, json!({"conversationId": "none"}));
    assert_eq!(payloads(&none, "chat:notice")[0]["kind"], "no_project");
    let kinds: Vec<_> = payloads(&none, "chat:tool-result")
        .iter()
        .map(|one| one["error"]["code"].clone())
        .collect();
    assert_eq!(kinds, ["unknown_tool", "unknown_tool"], "{none:#?}");
    let project = say(&mut client, json!({"project": world.project}));
    let session = payloads(&project, "chat:session")[0];
    assert_eq!(session["project"], json!(world.project));
    let results = payloads(&project, "chat:tool-result");
    assert!(
        results.iter().all(|one| one["status"] == "success"),
        "{results:#?}"
    );
    assert!(results[1]["result"].as_str().unwrap().contains("a.txt"));
    // A project that is none is said, and the run ends as every run does.
    for none in ["/does/not/exist", "/etc", "/"] {
        let wrong = say(
            &mut client,
            json!({"conversationId": "wrong", "project": none}),
        );
        assert_eq!(order(&wrong), ["stream-start", "error", "stream-end"]);
        assert_eq!(
            payloads(&wrong, "chat:error")[0]["code"],
            "session_refused",
            "{none}"
        );
    }
    assert!(
        sidecar.get("/tools").json()["tools"]
            .to_string()
            .contains("\"file_read\"")
    );
}

once_test!(a_conversation_goes_on_and_a_history_counts_more);
fn a_conversation_goes_on_and_a_history_counts_more() {
    // The script answers by how many answers there are already.
    let turns = script(&[("First.", &[]), ("Second.", &[]), ("Third.", &[])]);
    let world = world();
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    assert_eq!(text(&say(&mut client, json!({}))), "First.");
    assert_eq!(text(&say(&mut client, json!({}))), "Second.");
    let history = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    assert_eq!(
        text(&say(&mut client, json!({"history": history}))),
        "Second."
    );
    assert_eq!(
        text(&say(&mut client, json!({"conversationId": "other"}))),
        "First."
    );
}

once_test!(reconnected_client_hears_missed_events);
fn reconnected_client_hears_missed_events() {
    let world = world();
    let turns = script(&[
        (
            "Begun.",
            &[(
                "bash",
                json!({"command": "while [ ! -e go ]; do sleep 0.05; done; echo went"}),
            )],
        ),
        ("Done.", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut first = sidecar.client();
    first.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    let mut last = Value::Null;
    while last["type"] != "chat:tool-start" {
        last = first.next_message();
    }
    drop(first);
    let mut second = sidecar.client();
    second.say(
        "chat:resume",
        json!({"conversationId": "c", "after": last["sequence"]}),
    );
    let resumed = second.next_of("chat:resumed");
    assert_eq!(
        (&resumed["running"], &resumed["missed"]),
        (&json!(true), &json!(false))
    );
    world.put("go", "");
    let rest = second.to_end();
    let sequences: Vec<u64> = rest
        .iter()
        .map(|message| message["sequence"].as_u64().unwrap())
        .collect();
    let from = last["sequence"].as_u64().unwrap() + 1;
    assert_eq!(
        sequences,
        (from..from + rest.len() as u64).collect::<Vec<_>>()
    );
    assert_eq!(text(&rest), "Done.");
    // After the end too, from the beginning.
    let mut third = sidecar.client();
    third.say("chat:resume", json!({"conversationId": "c"}));
    assert_eq!(third.next_of("chat:resumed")["running"], false);
    assert_eq!(text(&third.to_end()), "Begun.Done.");
    let listed = sidecar.get("/conversations").json();
    let listed = &listed["conversations"][0];
    assert_eq!(
        (&listed["conversationId"], &listed["title"]),
        (&json!("c"), &json!("x")),
        "{listed}"
    );
    assert_eq!(
        (&listed["running"], &listed["waiting"]),
        (&json!(false), &json!(0)),
        "{listed}"
    );
    let detail = sidecar.get("/conversations/c").json();
    assert_eq!(
        detail["asked"],
        json!([{"messageId": resumed["messageId"], "content": "x"}])
    );
    third.say("chat:resume", json!({"conversationId": "unknown"}));
    assert_eq!(
        third.next_of("request:error")["code"],
        "unknown_conversation"
    );
}

once_test!(a_run_that_nobody_hears_any_more_ends);
fn a_run_that_nobody_hears_any_more_ends() {
    let world = world();
    let marker = long_sleep();
    let turns = script(&[
        (
            "",
            &[("bash", json!({"command": format!("sleep {marker}")}))],
        ),
        ("Never", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    assert!(until(LIMIT, || sleeping(&marker)));
    drop(client);
    // Half a minute to come back.
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
    let mut client = sidecar.client();
    client.say("chat:resume", json!({"conversationId": "c"}));
    assert_eq!(
        payloads(&client.to_end(), "chat:stream-end")[0]["reason"],
        "cancelled"
    );
}

once_test!(a_run_is_replayed_from_its_transcript_where_one_is_written);
/// A replay has the events in the order in which a client got them, without a model.
fn a_run_is_replayed_from_its_transcript_where_one_is_written() {
    let world = world();
    let turns = script(&[
        ("First.", &[("bash", json!({"command": "echo one"}))]),
        ("Second.", &[]),
        ("Third.", &[]),
    ]);
    let replay = |id: &str| {
        run(
            world.lazaret("chat").args(["--json", "--replay", id]),
            LIMIT,
        )
    };
    let events = |messages: &[Value]| {
        let event = |one: &Value| json!([one["type"], one["payload"], one["timestamp"]]);
        messages.iter().map(event).collect::<Vec<_>>()
    };
    let unrecorded = Sidecar::start(&world, &turns, &[]);
    say(&mut unrecorded.client(), json!({}));
    replay("c").expect(2);
    drop(unrecorded);
    let sidecar = Sidecar::start(&world, &turns, &["--transcripts"]);
    let mut client = sidecar.client();
    let mut heard = say(&mut client, json!({}));
    heard.extend(say(&mut client, json!({})));
    // One that cannot begin is recorded too.
    let other = json!({"conversationId": "d", "project": "/"});
    let failed = say(&mut client, other);
    sidecar.end().success();
    for (id, heard) in [("c", heard), ("d", failed)] {
        let replayed: Vec<Value> = replay(id)
            .success()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events(&replayed), events(&heard), "{id}");
    }
}

once_test!(the_hits_of_a_search_are_deltas_before_its_result);
fn the_hits_of_a_search_are_deltas_before_its_result() {
    let world = world();
    let hit = |name: &str| json!({"title": name, "url": format!("https://{name}.example/"), "content": "text"});
    let found = json!({"results": [hit("one"), hit("two"), hit("three")]});
    let engine = ModelServer::start(vec![Reply::status(200, &found)]);
    let turns = script(&[
        ("", &[("web_search", json!({"query": "q"}))]),
        ("Done", &[]),
    ]);
    let mut command = Sidecar::command(&world, &turns);
    let sidecar = Sidecar::of(command.env("SEARXNG_URL", engine.url()));
    let all = say(&mut sidecar.client(), json!({}));
    let kinds: Vec<&str> = all
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    let of_call: Vec<&str> = kinds
        .into_iter()
        .filter(|kind| kind.starts_with("chat:tool-"))
        .collect();
    let [start, deltas @ .., result] = &of_call[..] else {
        panic!("{of_call:?}")
    };
    assert_eq!((*start, *result), ("chat:tool-start", "chat:tool-result"));
    assert!(
        deltas.len() == 3 && deltas.iter().all(|one| *one == "chat:tool-delta"),
        "{deltas:?}"
    );
    let streamed: String = payloads(&all, "chat:tool-delta")
        .iter()
        .filter_map(|delta| delta["chunk"].as_str())
        .collect();
    let result = payloads(&all, "chat:tool-result")[0]["result"]
        .as_str()
        .unwrap();
    let shown = |text: &str| {
        ["one", "two", "three"].map(|name| text.find(&format!("https://{name}.example/")))
    };
    assert!(shown(&streamed).iter().all(Option::is_some), "{streamed}");
    assert!(
        shown(&streamed).is_sorted() && shown(result).is_sorted(),
        "{streamed}{result}"
    );
}

once_test!(names_are_written_in_the_other_case_where_that_is_asked_for);
fn names_are_written_in_the_other_case_where_that_is_asked_for() {
    let world = world();
    let turns = script(&[
        (
            "",
            &[("bash", json!({"command": "echo x", "idleTimeout": 5}))],
        ),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &["--wire-case", "snake"]);
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversation_id": "c", "trust": "autonomous"}),
    );
    let all = client.to_end();
    let start = payloads(&all, "chat:tool-start")[0];
    assert!(
        start["tool_id"].is_string()
            && start["tool_name"] == "bash"
            && start["message_id"].is_string(),
        "{start}"
    );
    assert_eq!(
        start["input"]["idleTimeout"], 5,
        "what the model has named stays"
    );
    let end = payloads(&all, "chat:stream-end")[0];
    assert!(
        end["usage"]["input_tokens"].is_u64() && end["context"]["used_tokens"].is_u64(),
        "{end}"
    );
    assert!(
        !all.iter()
            .any(|message| message["payload"].get("conversationId").is_some())
    );
}

once_test!(a_typed_client_with_empty_fields_is_understood_and_told_errors_in_its_words);
fn a_typed_client_with_empty_fields_is_understood_and_told_errors_in_its_words() {
    let world = world();
    let sidecar = Sidecar::start(&world, &script(&[("Done", &[])]), &["--wire-case", "snake"]);
    let mut client = sidecar.client();
    let mut send = json!({"conversation_id": "", "content": "x", "model": "", "provider": "",
        "system_prompt": "", "api_key": "", "history": null});
    client.say("chat:send", send.clone());
    let all = client.to_end();
    assert_eq!(
        payloads(&all, "chat:stream-end")[0]["reason"],
        "done",
        "{all:#?}"
    );
    send["system_prompt"] = "x".repeat(65 << 10).into();
    send["conversation_id"] = "mine".into();
    client.say("chat:send", send);
    let refused = client.next_of("request:error");
    // A client of the first wire waits for this one.
    let error = client.next_of("chat:error");
    assert_eq!(
        (&error["code"], &error["conversation_id"]),
        (&json!("invalid_request"), &json!("mine"))
    );
    for error in [refused, error] {
        let message = error["message"].to_string();
        assert!(message.contains("system_prompt"), "{message}");
    }
}

once_test!(a_client_carries_out_calls_of_its_own_tools);
fn a_client_carries_out_calls_of_its_own_tools() {
    let turns = script(&[
        ("", &[("deploy", json!({"to": "staging"}))]),
        ("Deployed.", &[]),
    ]);
    let world = world();
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    let tool = json!({"name": "deploy", "description": "Deploys.", "risk": "low", "inputSchema":
        {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}});
    client.say("tool:register", tool.clone());
    client.say("tool:register", tool);
    assert_eq!(
        client.next_of("request:error")["code"],
        "invalid_tool",
        "twice"
    );
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    let execute = client.next_of("tool:execute");
    assert_eq!(
        (&execute["toolName"], &execute["input"]),
        (&json!("deploy"), &json!({"to": "staging"}))
    );
    let other = json!({"executionId": "execution-99", "content": "x"});
    client.say("tool:answer", other);
    assert_eq!(client.next_of("request:error")["code"], "unknown_execution");
    client.say(
        "tool:answer",
        json!({"executionId": execute["executionId"], "content": "it is up"}),
    );
    let all = client.to_end();
    assert_eq!(
        payloads(&all, "chat:tool-result")[0]["result"],
        "it is up",
        "{all:#?}"
    );
    // Another client has no such tool, and one that is gone leaves no call open.
    let mut second = sidecar.client();
    let all = say(&mut second, json!({"history": []}));
    assert_eq!(
        payloads(&all, "chat:tool-result")[0]["error"]["code"],
        "unknown_tool"
    );
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "d", "trust": "autonomous"}),
    );
    client.next_of("tool:execute");
    second.say("chat:resume", json!({"conversationId": "d"}));
    second.next_of("chat:resumed");
    drop(client);
    let all = second.to_end();
    assert_eq!(
        payloads(&all, "chat:tool-result")[0]["error"]["code"],
        "cancelled",
        "{all:#?}"
    );
}

once_test!(a_provider_that_fails_ends_the_run_with_its_name);
fn a_provider_that_fails_ends_the_run_with_its_name() {
    let world = world();
    let turns = json!({"turns": [{"text": "So far", "error": "cut"}]});
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    let all = say(&mut client, json!({}));
    assert_eq!(payloads(&all, "chat:error")[0]["code"], "connection_error");
    assert_eq!(payloads(&all, "chat:stream-end")[0]["partial"], true);
    // No key, and nothing was sent anywhere.
    let all = say(
        &mut client,
        json!({"provider": "claude", "model": "m", "conversationId": "d"}),
    );
    assert_eq!(
        payloads(&all, "chat:error")[0]["code"],
        "auth_error",
        "{all:#?}"
    );
    client.say("chat:send", json!({"content": "x", "provider": "none"}));
    assert_eq!(client.next_of("request:error")["code"], "unknown_provider");
}

once_test!(trust_falls_at_once_and_rises_with_the_next_run);
fn trust_falls_at_once_and_rises_with_the_next_run() {
    let world = world();
    let wait =
        |name: &str| json!({"command": format!("while [ ! -e {name} ]; do sleep 0.05; done")});
    let turns = script(&[
        ("", &[("bash", wait("one"))]),
        ("", &[("bash", json!({"command": "touch two"}))]),
        ("Done", &[]),
        ("", &[("bash", json!({"command": "touch three"}))]),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    client.next_of("chat:tool-start");
    client.say(
        "chat:trust",
        json!({"conversationId": "c", "trust": "supervised"}),
    );
    // Up again, which is for the next run only.
    client.say(
        "chat:trust",
        json!({"conversationId": "c", "trust": "autonomous"}),
    );
    client.text(&json!({"type": "chat:trust", "requestId": "r", "payload": {"conversationId": "c", "trust": "autonomous"}}).to_string());
    assert_eq!(client.next_of("request:ok")["requestId"], "r");
    world.put("one", "");
    let confirm = client.next_of("chat:tool-confirm");
    assert_eq!(confirm["toolName"], "bash");
    assert!(!world.project.join("two").exists());
    client.say(
        "chat:tool-approve",
        json!({"toolId": confirm["toolId"], "answer": "once"}),
    );
    client.to_end();
    assert!(world.project.join("two").exists());
    client.say("chat:send", json!({"content": "x", "conversationId": "c"}));
    let all = client.to_end();
    assert_eq!(payloads(&all, "chat:tool-confirm").len(), 0, "{all:#?}");
    assert!(world.project.join("three").exists());
    // The default of the settings.
    assert_eq!(sidecar.get("/settings").json()["trust"], "guided");
    assert_eq!(
        sidecar
            .send("PUT", "/settings", &json!({"trust": "yolo"}))
            .json()["trust"],
        "autonomous"
    );
}

once_test!(a_scope_of_the_client_narrows_its_session);
fn a_scope_of_the_client_narrows_its_session() {
    let world = world();
    world.put("a.txt", "content");
    let turns = script(&[
        (
            "",
            &[
                ("file_read", json!({"path": "a.txt"})),
                ("bash", json!({"command": "touch made"})),
            ],
        ),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    let all = say(
        &mut client,
        json!({"scope": {"file_read": {"allowed": true}}}),
    );
    let statuses: Vec<_> = payloads(&all, "chat:tool-result")
        .iter()
        .map(|one| one["status"].clone())
        .collect();
    assert_eq!(statuses, ["success", "error"], "{all:#?}");
    assert!(!world.project.join("made").exists());
    client.say(
        "chat:send",
        json!({"content": "x", "scope": {"file_read": {"allowed": "perhaps"}}}),
    );
    assert_eq!(client.next_of("request:error")["code"], "invalid_request");
}

once_test!(output_that_is_no_text_is_base64);
fn output_that_is_no_text_is_base64() {
    let turns = script(&[
        (
            "",
            &[("bash", json!({"command": "printf '\\342\\377' >&2"}))],
        ),
        ("Done", &[]),
    ]);
    let world = world();
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let all = say(&mut sidecar.client(), json!({}));
    let delta = payloads(&all, "chat:tool-delta")[0];
    assert_eq!(
        (&delta["stream"], &delta["chunkBase64"]),
        (&json!("stderr"), &json!("4v8=")),
        "{all:#?}"
    );
}

once_test!(hooks_of_the_user_judge_calls_and_hear_of_a_session_once);
fn hooks_of_the_user_judge_calls_and_hear_of_a_session_once() {
    let world = world();
    let settings = world.home.join("config/lazaret");
    let events = [
        (
            "hello",
            "session_start",
            "echo '{\"allow\": true, \"askAgent\": \"welcome\"}'",
        ),
        (
            "guard",
            "before_tool",
            "grep -q secret && echo '{\"allow\": false}' || echo '{\"allow\": true}'",
        ),
        ("bye", "session_end", "exit 7"),
    ];
    let mut text = String::new();
    for (name, event, script) in events {
        world.write(&settings.join(name), format!("#!/bin/bash\n{script}\n"));
        text += &format!(
            "[[hooks]]\nname = '{name}'\nevent = '{event}'\nprogram = '{name}'\ntimeout_s = 30\n"
        );
    }
    world.write(&settings.join("agent.toml"), text);
    let dressed = |mut command: std::process::Command| {
        command.env("XDG_CONFIG_HOME", world.home.join("config"));
        command.env("XDG_DATA_HOME", world.home.join("data"));
        command
    };
    for (name, _, _) in events {
        let mut accept = dressed(world.program("lazaret"));
        run(accept.args(["chat-hooks", "accept", "--yes", name]), LIMIT).success();
    }
    let touch = |name: &str| ("bash", json!({ "command": format!("touch {name}") }));
    let turns = script(&[
        ("", &[touch("made"), touch("secret")]),
        ("One", &[]),
        ("Two", &[]),
    ]);
    let sidecar = Sidecar::of(&mut dressed(Sidecar::command(&world, &turns)));
    let mut client = sidecar.client();
    let outcomes = |messages: &[Value]| -> Vec<_> {
        payloads(messages, "chat:hook")
            .iter()
            .map(|hook| hook["outcome"].clone())
            .collect()
    };
    let first = say(&mut client, json!({}));
    assert_eq!(
        outcomes(&first),
        ["asked", "allowed", "blocked"],
        "{first:#?}"
    );
    assert!(world.project.join("made").exists() && !world.project.join("secret").exists());
    let second = say(&mut client, json!({}));
    assert_eq!(
        (self::text(&second), outcomes(&second)),
        ("Two".to_owned(), vec![]),
        "{second:#?}"
    );
    let ended = sidecar.end();
    assert_eq!(
        ended
            .errors()
            .matches("the hook `bye` has ended with code 7")
            .count(),
        1,
        "{}",
        ended.errors()
    );
}

place_test!(connections_are_shown_as_they_are_made_with_their_verdict);
/// The first of a kind comes while the command runs, and the number of the others at its end. Another call has none of them.
fn connections_are_shown_as_they_are_made_with_their_verdict(place: Place) {
    let host = ModelServer::answering("127.0.0.1", |_| Reply::status(200, &json!({})));
    let port = host.url().rsplit(':').next().unwrap().to_owned();
    let world = World::networked(
        place,
        "",
        &format!("allow = ['localhost:{port}']\nprivate = ['localhost:{port}']"),
    );
    let ask = "curl -s --noproxy '' -o /dev/null";
    let many = format!(
        "for n in 1 2 3; do {ask} http://localhost:{port}/; done; {ask} https://closed.example; until [ -e go ]; do sleep 0.05; done"
    );
    let turns = script(&[
        ("", &[("bash", json!({ "command": many }))]),
        ("", &[("bash", json!({ "command": "true" }))]),
        ("Done", &[]),
    ]);
    let mut command = Sidecar::command(&world, &turns);
    command
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .args(["--profile", "net"]);
    let sidecar = Sidecar::of(&mut command);
    let mut client = sidecar.client();
    let payload = json!({"content": "x", "conversationId": "c", "trust": "autonomous"});
    client.say("chat:send", payload);
    let call = client.next_of("chat:tool-start")["toolId"].clone();
    let first = client.next_of("chat:connection");
    let closed = client.next_of("chat:connection");
    world.put("go", "");
    let rest = client.to_end();
    let at = |one: &Value| {
        (
            one["host"].clone(),
            one["verdict"].clone(),
            one["count"].clone(),
        )
    };
    let here = |count| (json!("localhost"), json!("allowed"), json!(count));
    assert_eq!(at(&first), here(1));
    assert_eq!(
        at(&closed),
        (json!("closed.example"), json!("not_listed"), json!(1))
    );
    assert!(
        closed["why"].as_str().is_some_and(|why| !why.is_empty()),
        "{closed}"
    );
    let counted = payloads(&rest, "chat:connection");
    assert_eq!(
        counted.iter().map(|one| at(one)).collect::<Vec<_>>(),
        [here(2)]
    );
    let all = [&first, &closed, counted[0]];
    assert!(all.iter().all(|one| one["toolId"] == call), "{all:?}");
    // Its record has the call too.
    let audited = audited(&world, "connection");
    let of_call = audited.iter().all(|record| record["call"].is_u64());
    assert!(!audited.is_empty() && of_call, "{audited:?}");
}
