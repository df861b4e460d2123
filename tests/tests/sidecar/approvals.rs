//! Approvals in the stream: questions, their answers, and who may give them.

use super::messages::{payloads, script};
use lazaret_tests::approval::audited;
use lazaret_tests::sidecar::{HttpAnswer, Sidecar, WebSocket};
use lazaret_tests::{Place, World, once_test, place_test};
use serde_json::{Value, json};

/// A file that only its name closes.
const CI: &str = ".github/workflows/ci.yml";

fn begin(client: &mut WebSocket, conversation: &str) {
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": conversation}),
    );
}

fn touch(name: &str) -> (&'static str, Value) {
    ("bash", json!({"command": format!("touch {name}")}))
}

fn approve(client: &mut WebSocket, answer: Value) {
    client.say("chat:tool-approve", answer);
}

place_test!(a_call_that_is_asked_about_starts_nothing_before_its_answer);
fn a_call_that_is_asked_about_starts_nothing_before_its_answer(place: Place) {
    let world = World::new(place);
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[touch("made")]), ("Done", &[])]),
        &[],
    );
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let confirm = client.next_of("chat:tool-confirm");
    for field in ["rule", "why", "risk", "channel", "session", "digest"] {
        assert!(
            confirm[field].as_str().is_some_and(|text| !text.is_empty()),
            "{field}: {confirm}"
        );
    }
    assert_eq!(
        (&confirm["risk"], &confirm["input"]["command"]),
        (&json!("high"), &json!("touch made"))
    );
    assert!(
        (1..=30).contains(&confirm["expiresS"].as_u64().unwrap()),
        "{confirm}"
    );
    assert!(!world.project.join("made").exists());
    approve(
        &mut client,
        json!({"toolId": confirm["toolId"], "approved": true}),
    );
    let all = client.to_end();
    assert_eq!(payloads(&all, "chat:tool-result")[0]["status"], "success");
    assert!(world.project.join("made").exists());
    sidecar.end().success();
}

once_test!(ac_34_an_answer_goes_to_the_call_that_it_names);
/// Two conversations wait at once, under ids that their models chose: the second is answered first.
fn ac_34_an_answer_goes_to_the_call_that_it_names() {
    let world = World::new(Place::any());
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[touch("made-$$")]), ("Done", &[])]),
        &[],
    );
    let mut clients = [sidecar.client(), sidecar.client()];
    let ids = ["one", "two"];
    for (client, id) in clients.iter_mut().zip(ids) {
        begin(client, id);
    }
    let [one, two] = [0, 1].map(|number| clients[number].next_of("chat:tool-confirm"));
    assert_eq!(
        one["toolId"], two["toolId"],
        "scripts name their calls alike"
    );
    approve(
        &mut clients[1],
        json!({"toolId": two["toolId"], "approved": true}),
    );
    assert_eq!(
        clients[1].next_of("request:error")["code"],
        "ambiguous_tool_id"
    );
    for wrong in ["call_99", "", "../x"] {
        approve(&mut clients[1], json!({"toolId": wrong, "approved": true}));
        assert_eq!(
            clients[1].next_of("request:error")["code"],
            "unknown_tool_id",
            "{wrong}"
        );
    }
    approve(
        &mut clients[1],
        json!({"toolId": two["toolId"], "approved": true, "conversationId": "two"}),
    );
    assert_eq!(
        payloads(&clients[1].to_end(), "chat:tool-result")[0]["status"],
        "success"
    );
    let made = || {
        std::fs::read_dir(&world.project)
            .unwrap()
            .filter(|one| {
                one.as_ref()
                    .unwrap()
                    .file_name()
                    .to_string_lossy()
                    .starts_with("made")
            })
            .count()
    };
    assert_eq!(made(), 1);
    // Now it is the only one that waits.
    approve(
        &mut clients[0],
        json!({"toolId": one["toolId"], "approved": false}),
    );
    let all = clients[0].to_end();
    assert_eq!(
        payloads(&all, "chat:tool-result")[0]["error"]["code"],
        "denied_user"
    );
    assert_eq!(made(), 1);
}

fn world() -> World {
    World::new(Place::any())
}

once_test!(a_question_that_nobody_answers_is_a_no_after_its_time);
fn a_question_that_nobody_answers_is_a_no_after_its_time() {
    let world = world();
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[touch("made")]), ("Done", &[])]),
        &[],
    );
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let all = client.to_end();
    assert_eq!(payloads(&all, "chat:tool-confirm")[0]["expiresS"], 30);
    assert_eq!(
        payloads(&all, "chat:tool-result")[0]["error"]["code"],
        "approval_timeout",
        "{all:#?}"
    );
    assert!(!world.project.join("made").exists());
}

once_test!(an_answer_for_the_session_covers_what_it_names_and_no_more);
fn an_answer_for_the_session_covers_what_it_names_and_no_more() {
    let world = world();
    let write = |path: &str| ("file_write", json!({"path": path, "content": "x"}));
    let turns = script(&[
        ("", &[write("a"), write("b"), touch("made")]),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let first = client.next_of("chat:tool-confirm");
    approve(
        &mut client,
        json!({"toolId": first["toolId"], "answer": "session"}),
    );
    assert_eq!(first["diff"], "+x", "{first}");
    let mut next = client.next_of("chat:tool-confirm");
    if first["session"] != "rule" {
        // The same rule, another call.
        approve(
            &mut client,
            json!({"toolId": next["toolId"], "answer": "once"}),
        );
        next = client.next_of("chat:tool-confirm");
    }
    assert_eq!(next["toolName"], "bash", "{first} {next}");
    approve(
        &mut client,
        json!({"toolId": next["toolId"], "answer": "no"}),
    );
    client.to_end();
    assert!(world.project.join("a").exists() && world.project.join("b").exists());
    assert!(!world.project.join("made").exists());
}

once_test!(a_no_that_stops_ends_the_run);
fn a_no_that_stops_ends_the_run() {
    let world = world();
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[touch("one"), touch("two")]), ("Never", &[])]),
        &[],
    );
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let confirm = client.next_of("chat:tool-confirm");
    approve(
        &mut client,
        json!({"toolId": confirm["toolId"], "answer": "no_and_stop"}),
    );
    let all = client.to_end();
    assert_eq!(payloads(&all, "chat:stream-end")[0]["reason"], "cancelled");
    assert!(payloads(&all, "chat:text-delta").is_empty());
    assert!(!world.project.join("one").exists() && !world.project.join("two").exists());
}

place_test!(minutes_open_a_wanted_file_to_the_next_calls_of_the_conversation);
fn minutes_open_a_wanted_file_to_the_next_calls_of_the_conversation(place: Place) {
    let world = World::new(place);
    world.put(CI, "old");
    let write = |content: &str| {
        (
            "file_write",
            json!({"path": CI, "content": content, "overwrite": true}),
        )
    };
    let turns = script(&[
        ("", &[("file_read", json!({"path": CI}))]),
        ("", &[write("one")]),
        ("", &[write("two")]),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let first = client.next_of("chat:tool-confirm");
    assert!(
        first["wants"]["write"][0]
            .as_str()
            .is_some_and(|path| path.ends_with(CI)),
        "{first}"
    );
    approve(
        &mut client,
        json!({"toolId": first["toolId"], "answer": {"minutes": 10}}),
    );
    let written = client.next_of("chat:tool-result");
    assert_eq!(written["status"], "success", "{written}");
    // Only the rule of the trust asks now.
    let second = client.next_of("chat:tool-confirm");
    assert!(second.get("wants").is_none(), "{second}");
    assert_eq!(world.get(CI), b"one");
    approve(
        &mut client,
        json!({"toolId": second["toolId"], "answer": "once"}),
    );
    client.to_end();
    assert_eq!(world.get(CI), b"two");
    assert_eq!(audited(&world, "lease")[0]["minutes"], 10);
}

once_test!(a_violation_has_an_event_and_too_many_end_the_run);
fn a_violation_has_an_event_and_too_many_end_the_run() {
    let world = world();
    let read = || ("file_read", json!({"path": "../outside/secret.txt"}));
    let turns = script(&[
        ("", &[read()]),
        ("", &[read()]),
        ("", &[read()]),
        ("Never", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let all = client.to_end();
    let events = payloads(&all, "chat:security-event");
    let counts: Vec<_> = events
        .iter()
        .map(|event| event["violations"].clone())
        .collect();
    assert_eq!(counts, [1, 2, 3], "{all:#?}");
    assert!(
        events
            .iter()
            .all(|event| event["type"] == "sandbox_violation" && event["maxViolations"] == 3)
    );
    assert_eq!(payloads(&all, "chat:stream-end")[0]["reason"], "violations");
    assert!(!format!("{all:?}").contains(&world.canary));
}

once_test!(an_answer_by_another_client_counts_and_a_second_one_does_not);
fn an_answer_by_another_client_counts_and_a_second_one_does_not() {
    let world = world();
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[touch("made")]), ("Done", &[])]),
        &[],
    );
    let (mut first, mut second) = (sidecar.client(), sidecar.client());
    begin(&mut first, "c");
    let confirm = first.next_of("chat:tool-confirm");
    // A client that comes later sees what waits.
    second.say("chat:resume", json!({"conversationId": "c"}));
    assert_eq!(second.next_of("chat:tool-confirm"), confirm);
    approve(
        &mut second,
        json!({"toolId": confirm["toolId"], "approved": true}),
    );
    first.to_end();
    approve(
        &mut first,
        json!({"toolId": confirm["toolId"], "approved": true}),
    );
    assert_eq!(first.next_of("request:error")["code"], "unknown_tool_id");
    assert!(world.project.join("made").exists());
}

once_test!(a_yes_to_what_was_not_shown_or_was_another_question_is_an_error);
fn a_yes_to_what_was_not_shown_or_was_another_question_is_an_error() {
    let world = world();
    let hidden = (
        "bash",
        json!({"command": "touch hidden", "description": "x".repeat(70 << 10)}),
    );
    let write = (
        "file_write",
        json!({"file_path": "src/made", "content": "x"}),
    );
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[hidden, write]), ("Done", &[])]),
        &[],
    );
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let confirm = client.next_of("chat:tool-confirm");
    assert!(
        confirm["input"].is_null() && confirm["path"].is_null(),
        "{confirm}"
    );
    let id = &confirm["toolId"];
    for yes in [
        json!({"answer": "once"}),
        json!({"answer": "session"}),
        json!({"approved": true}),
    ] {
        let mut yes = yes;
        (yes["toolId"], yes["digest"]) = (id.clone(), confirm["digest"].clone());
        approve(&mut client, yes);
        assert_eq!(client.next_of("request:error")["code"], "not_shown");
    }
    let http = format!("/runs/{}/approve", confirm["messageId"].as_str().unwrap());
    assert_eq!(
        sidecar
            .send("POST", &http, &json!({"toolId": id, "approved": true}))
            .status,
        409
    );
    approve(&mut client, json!({"toolId": id, "answer": "no"}));
    let next = client.next_of("chat:tool-confirm");
    assert_eq!(
        (&next["path"], &next["diff"]),
        (&json!("src/made"), &json!("+x")),
        "{next}"
    );
    for answer in ["once", "no"] {
        let other =
            json!({"toolId": next["toolId"], "answer": answer, "digest": confirm["digest"]});
        approve(&mut client, other);
        assert_eq!(client.next_of("request:error")["code"], "other_digest");
    }
    approve(
        &mut client,
        json!({"toolId": next["toolId"], "answer": "once", "digest": next["digest"]}),
    );
    client.to_end();
    assert!(world.project.join("src/made").exists() && !world.project.join("hidden").exists());
}

place_test!(a_question_shows_the_difference_to_the_file_on_disk);
/// The page shows `diff`: what would change, and not only what would be there. A session that may not read the file is not shown it.
fn a_question_shows_the_difference_to_the_file_on_disk(place: Place) {
    let world = World::new(place);
    world.put("file", "one\ntwo\nthree\n");
    let write = (
        "file_write",
        json!({"path": "file", "content": "one\n2\nthree\n"}),
    );
    let edit = json!({"path": "file", "edits": [{"old": "three", "new": "3"}]});
    let turns = script(&[
        (
            "",
            &[
                ("file_read", json!({"path": "file"})),
                write,
                ("file_edit", edit),
            ],
        ),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let ask = |client: &mut WebSocket, more: Value| {
        let mut payload = json!({"content": "x", "conversationId": "c", "trust": "guided"});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        client.say("chat:send", payload);
    };
    let yes = |client: &mut WebSocket, confirm: &Value| {
        approve(
            client,
            json!({"toolId": confirm["toolId"], "answer": "once", "digest": confirm["digest"]}),
        );
    };
    let mut client = sidecar.client();
    ask(&mut client, json!({}));
    let first = client.next_of("chat:tool-confirm");
    assert_eq!(
        first["diff"], "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three",
        "{first}"
    );
    yes(&mut client, &first);
    let second = client.next_of("chat:tool-confirm");
    assert_eq!(
        second["diff"], "@@ -1,3 +1,3 @@\n one\n 2\n-three\n+3",
        "{second}"
    );
    yes(&mut client, &second);
    client.to_end();
    assert_eq!(world.get("file"), b"one\n2\n3\n");
    world.put("file", "hidden\n");
    let scope = json!({"conversationId": "d", "scope": {"file_write": {"allowed": true}}});
    ask(&mut client, scope);
    let blind = client.next_of("chat:tool-confirm");
    assert_eq!(blind["diff"], "+one\n+2\n+three", "{blind}");
}

place_test!(a_change_of_a_closed_file_is_asked_about_with_its_difference);
/// A name that a profile could open: the session asks, and the answer counts for that file and no longer than it says.
fn a_change_of_a_closed_file_is_asked_about_with_its_difference(place: Place) {
    const CI: &str = ".github/workflows/ci.yml";
    let world = World::new(place);
    world.put(CI, "one\ntwo\n");
    world.put(".envrc", "one\n");
    let edit = |path: &str, old: &str, new: &str| {
        let edits = json!([{"old": old, "new": new}]);
        ("file_edit", json!({"path": path, "edits": edits}))
    };
    let read = |path: &str| ("file_read", json!({"path": path}));
    let turns = script(&[
        (
            "",
            &[
                read(CI),
                read(".envrc"),
                edit(".envrc", "one", "1"),
                edit(CI, "two", "2"),
                edit(CI, "one", "1"),
            ],
        ),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let ask = |client: &mut WebSocket, trust: &str| {
        let payload = json!({"content": "x", "conversationId": trust, "trust": trust});
        client.say("chat:send", payload);
    };
    let answer = |client: &mut WebSocket, confirm: &Value, answer: &str| {
        let said =
            json!({"toolId": confirm["toolId"], "answer": answer, "digest": confirm["digest"]});
        approve(client, said);
    };
    let mut client = sidecar.client();
    ask(&mut client, "guided");
    let first = client.next_of("chat:tool-confirm");
    assert_eq!(first["diff"], "@@ -1,2 +1,2 @@\n one\n-two\n+2", "{first}");
    assert!(
        first.to_string().contains("change the file"),
        "what is asked for: {first}"
    );
    answer(&mut client, &first, "once");
    let second = client.next_of("chat:tool-confirm");
    assert_eq!(second["diff"], "@@ -1,2 +1,2 @@\n-one\n+1\n 2", "{second}");
    answer(&mut client, &second, "no");
    client.to_end();
    assert_eq!(world.get(CI), b"one\n2\n");
    assert_eq!(world.get(".envrc"), b"one\n", "no profile could open it");
    world.put(CI, "one\ntwo\n");
    ask(&mut client, "autonomous");
    client.to_end();
    assert_eq!(world.get(CI), b"one\ntwo\n", "who asks about nothing");
}

once_test!(over_http_a_question_is_a_no_unless_somebody_answers);
fn over_http_a_question_is_a_no_unless_somebody_answers() {
    let world = world();
    let sidecar = Sidecar::start(
        &world,
        &script(&[("", &[touch("made")]), ("Done.", &[])]),
        &[],
    );
    let answer = sidecar.send("POST", "/run", &json!({"prompt": "x"})).json();
    assert_eq!(
        (&answer["text"], &answer["_meta"]["reason"]),
        (&json!("Done."), &json!("done")),
        "{answer}"
    );
    assert!(!world.project.join("made").exists());
    let body = json!({"prompt": "x", "approvals": true, "conversationId": "c"}).to_string();
    let mut waiting = sidecar.begin("POST /run", &sidecar.json_head(), body.as_bytes());
    let mut client = sidecar.client();
    loop {
        client.say("chat:resume", json!({"conversationId": "c"}));
        if client.next_message()["type"] == "chat:resumed" {
            break;
        }
    }
    let confirm = client.next_of("chat:tool-confirm");
    let approve = format!("/runs/{}/approve", confirm["messageId"].as_str().unwrap());
    let wrong = sidecar.send("POST", &approve, &json!({"toolId": "x", "approved": true}));
    assert_eq!(wrong.status, 404, "{wrong:?}");
    let body = json!({"toolId": confirm["toolId"], "approved": true});
    assert_eq!(sidecar.send("POST", &approve, &body).status, 200);
    assert_eq!(HttpAnswer::read(&mut waiting).json()["text"], "Done.");
    assert!(world.project.join("made").exists());
}

once_test!(a_batch_is_answered_without_part_where_the_meaning_is_clear);
/// Clients that know no `part` send only the call's ID.
fn a_batch_is_answered_without_part_where_the_meaning_is_clear() {
    let world = World::new(Place::any());
    let touch = |name: &str| json!({"tool_name": "bash", "parameters": {"command": format!("touch {name}")}});
    let batch = |names: &[&str]| {
        let invocations: Vec<_> = names.iter().map(|name| touch(name)).collect();
        ("batch", json!({"invocations": invocations}))
    };
    let turns = script(&[
        ("", &[batch(&["one", "two"])]),
        ("", &[batch(&["three", "four"])]),
        ("Done", &[]),
    ]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    begin(&mut client, "c");
    let ask = |client: &mut WebSocket| [(); 2].map(|()| client.next_of("chat:tool-confirm"));
    let first = ask(&mut client);
    let id = &first[0]["toolId"];
    approve(&mut client, json!({"toolId": id, "approved": true}));
    let error = client.next_of("request:error");
    assert_eq!(error["code"], "ambiguous_tool_id");
    assert!(error["message"].to_string().contains("part"), "{error}");
    // The digest says which one; then only one waits.
    let digest = &first[0]["digest"];
    approve(
        &mut client,
        json!({"toolId": id, "approved": true, "digest": digest}),
    );
    approve(&mut client, json!({"toolId": id, "approved": true}));
    let second = ask(&mut client);
    approve(
        &mut client,
        json!({"toolId": second[0]["toolId"], "approved": false}),
    );
    let all = client.to_end();
    let made = ["one", "two", "three", "four"].map(|name| world.project.join(name).exists());
    assert_eq!(made, [true, true, false, false], "{all:#?}");
    let results = payloads(&all, "chat:tool-result");
    let kind = results.last().map(|result| &result["error"]["code"]);
    assert_eq!(kind, Some(&json!("denied_user")), "{all:#?}");
}
