//! Who is asked before a call, by trust, for every tool.

use super::policy::{GOLDEN, example};
use super::tools::png;
use lazaret_tests::approval::{dressed, set_policy};
use lazaret_tests::process::{self, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run, run_with_input};
use serde_json::{Value, json};
use std::time::Duration;

/// `lazaret session` with these words, where a question waits for longer than any answer takes.
fn session(world: &World, words: &[&str]) -> Session {
    patient(world, 600, words)
}

/// A session that waits for so many seconds.
fn patient(world: &World, seconds: u32, words: &[&str]) -> Session {
    set_policy(world, &format!("timeout_s = {seconds}"));
    let mut command = dressed(world, world.lazaret("session"));
    Session::start(command.args(words))
}

fn is_question(event: &Value) -> bool {
    event["event"] == "approval"
}

place_test!(a_guided_session_reads_without_asking);
fn a_guided_session_reads_without_asking(place: Place) {
    let world = World::new(place);
    world.put("test.txt", "hello");
    let mut session = session(&world, &["--trust", "guided"]);
    let answer = session.call("file_read", json!({ "path": "test.txt" }));
    assert!(answer.success().contains("hello"));
    assert!(!answer.events.iter().any(is_question), "{answer:?}");
}

place_test!(a_guided_session_asks_before_bash_and_nothing_runs_until_the_answer);
fn a_guided_session_asks_before_bash_and_nothing_runs_until_the_answer(place: Place) {
    let world = World::new(place);
    // Without a policy of one's own.
    let mut usual = Session::start(world.lazaret("session").args(["--trust", "guided"]));
    let id = usual.start_call("bash", json!({ "command": "touch ran" }));
    assert_eq!(usual.event(&id, LIMIT).unwrap()["approval"]["expiresS"], 30);
    usual.cancel(&id);
    assert_eq!(usual.answer_within(&id, LIMIT).kind(), "cancelled");
    // Where no answer can come any more, nothing waits for one.
    let input = json!({ "id": 1, "tool": "bash", "input": { "command": "touch ran" } }).to_string();
    let mut command = world.lazaret("session");
    let printed =
        run_with_input(command.args(["--trust", "guided"]), input.as_bytes(), LIMIT).success();
    let result: Value = serde_json::from_str(printed.lines().last().unwrap()).unwrap();
    assert_eq!(result["error"]["code"], "denied_user", "{printed}");
    let mut session = session(&world, &["--trust", "guided"]);
    let marker = long_sleep();
    let input = json!({ "command": format!("touch ran; sleep {marker}") });
    let id = session.start_call("bash", input.clone());
    let question = session.event(&id, LIMIT).unwrap();
    assert!(is_question(&question), "{question}");
    assert_eq!(
        (&question["tool"], &question["input"]),
        (&json!("bash"), &input)
    );
    let approval = &question["approval"];
    assert_eq!(
        (&approval["risk"], &approval["expiresS"]),
        (&json!("high"), &json!(600))
    );
    assert_eq!(approval["digest"].as_str().unwrap().len(), 64);
    let ran = || world.project.join("ran").exists() || !process::with_marker(&marker).is_empty();
    assert!(
        !until(Duration::from_millis(300), ran),
        "it ran before the answer"
    );
    session.send(&json!({ "id": id, "approve": "once" }));
    assert!(
        until(LIMIT, || !process::with_marker(&marker).is_empty()),
        "the answer did nothing"
    );
    session.cancel(&id);
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
    // A no, and no answer at all.
    let id = session.start_call("bash", json!({ "command": "touch refused" }));
    assert!(is_question(&session.event(&id, LIMIT).unwrap()));
    session.send(&json!({ "id": id, "approve": "no" }));
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "denied_user");
    // An answer without a question is reported, and does not answer a later call.
    for late in [id.as_str(), "never"] {
        session.send(&json!({ "id": late, "approve": "once" }));
        let notice = session.event(late, LIMIT).unwrap();
        assert_eq!(
            (&notice["event"], &notice["error"]["code"]),
            (&json!("notice"), &json!("invalid_input"))
        );
    }
    let mut impatient = patient(&world, 1, &["--trust", "guided"]);
    let silent = impatient.call("bash", json!({ "command": "touch silent" }));
    assert_eq!(silent.kind(), "approval_timeout");
    assert_eq!(silent.result["error"]["layer"], "policy");
    for name in ["refused", "silent"] {
        assert!(!world.project.join(name).exists(), "{name}");
    }
    // For the session: asked once.
    let id = session.start_call("bash", json!({ "command": "true" }));
    assert!(is_question(&session.event(&id, LIMIT).unwrap()));
    session.send(&json!({ "id": id, "approve": "session" }));
    session.answer_within(&id, LIMIT).success();
    session.bash("true").success();
    // What lasts is listed and taken back, and then it is asked again.
    session.send(&json!({ "id": "g", "grants": true }));
    let list = session.event("g", LIMIT).unwrap();
    assert_eq!(
        (&list["grants"][0]["tool"], &list["grants"][0]["calls"]),
        (&json!("bash"), &json!(2))
    );
    session.send(&json!({ "id": "g", "revoke": list["grants"][0]["grant"] }));
    assert_eq!(session.event("g", LIMIT).unwrap()["grants"], json!([]));
    let id = session.start_call("bash", json!({ "command": "true" }));
    assert!(is_question(&session.event(&id, LIMIT).unwrap()));
    session.cancel(&id);
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
}

place_test!(a_no_that_stops_cancels_the_other_calls_and_the_rest_of_a_batch);
fn a_no_that_stops_cancels_the_other_calls_and_the_rest_of_a_batch(place: Place) {
    let world = World::new(place);
    let mut session = session(&world, &["--trust", "guided"]);
    let marker = long_sleep();
    let refused = |session: &mut Session, answer: &str| {
        let running = session.start_call("bash", json!({ "command": format!("sleep {marker}") }));
        assert!(is_question(&session.event(&running, LIMIT).unwrap()));
        session.send(&json!({ "id": running, "approve": "once" }));
        assert!(until(LIMIT, || !process::with_marker(&marker).is_empty()));
        let id = session.start_call("bash", json!({ "command": "touch refused" }));
        assert!(is_question(&session.event(&id, LIMIT).unwrap()));
        session.send(&json!({ "id": id, "approve": answer }));
        assert_eq!(session.answer_within(&id, LIMIT).kind(), "denied_user");
        running
    };
    // The control: a no is about its call only.
    let running = refused(&mut session, "no");
    // While a program replaces another, it has no words for a moment.
    assert!(until(LIMIT, || !process::with_marker(&marker).is_empty()));
    session.cancel(&running);
    session.answer_within(&running, LIMIT);
    let running = refused(&mut session, "no_and_stop");
    assert_eq!(session.answer_within(&running, LIMIT).kind(), "cancelled");
    let touch =
        |name: &str| json!({ "tool": "bash", "input": { "command": format!("touch {name}") } });
    let id = session.start_call(
        "batch",
        json!({ "invocations": [touch("first"), touch("second")] }),
    );
    for _ in 0..2 {
        assert!(is_question(&session.event(&id, LIMIT).unwrap()));
    }
    session.send(&json!({ "id": id, "part": 0, "approve": "no_and_stop" }));
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
    for name in ["refused", "first", "second"] {
        assert!(!world.project.join(name).exists(), "{name}");
    }
    // The session goes on.
    let id = session.start_call("bash", json!({ "command": "echo on" }));
    assert!(is_question(&session.event(&id, LIMIT).unwrap()));
    session.send(&json!({ "id": id, "approve": "once" }));
    assert!(session.answer_within(&id, LIMIT).success().contains("on"));
}

place_test!(an_answer_has_one_spelling);
fn an_answer_has_one_spelling(place: Place) {
    let world = World::new(place);
    let mut session = session(&world, &["--trust", "guided"]);
    let id = session.start_call("bash", json!({ "command": "touch made" }));
    assert!(is_question(&session.event(&id, LIMIT).unwrap()));
    for wrong in [
        json!({ "approve": true }),
        json!({ "approve": "yes" }),
        json!({ "approve": "once", "minutes": 10 }),
        json!({ "approve": { "minutes": 1441 } }),
    ] {
        let mut line = wrong.clone();
        line["id"] = json!(id);
        session.send(&line);
        let notice = session.event(&id, LIMIT).unwrap();
        assert_eq!(notice["event"], "notice", "{wrong}: {notice}");
    }
    assert!(!world.project.join("made").exists());
    // The control. The call wants nothing, so it is allowed this once.
    session.send(&json!({ "id": id, "approve": { "minutes": 1440 } }));
    session.answer_within(&id, LIMIT).success();
    assert!(world.project.join("made").exists());
    session.send(&json!({ "id": "g", "grants": true }));
    assert_eq!(session.event("g", LIMIT).unwrap()["grants"], json!([]));
}

place_test!(an_autonomous_session_does_not_ask);
fn an_autonomous_session_does_not_ask(place: Place) {
    let world = World::new(place);
    let mut session = session(&world, &["--trust", "autonomous"]);
    let answer = session.bash("echo hello");
    assert!(answer.success().contains("hello"));
    let written = session.call("file_write", json!({ "path": "a", "content": "x" }));
    assert!(written.ok() && !answer.events.iter().chain(&written.events).any(is_question));
}

place_test!(every_tool_is_asked_about_as_the_matrix_says);
/// A session asks as the matrix says, tool by tool, and does nothing that was not allowed.
fn every_tool_is_asked_about_as_the_matrix_says(place: Place) {
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    for (column, trust) in ["supervised", "guided", "autonomous"].iter().enumerate() {
        let world = World::new(place);
        let mut session = session(&world, &["--trust", trust, "--max-violations", "0"]);
        for row in golden.lines().skip(1) {
            let row: Vec<&str> = row.split_whitespace().collect();
            let (tool, verdict) = (row[0], row[2 + column]);
            // A session has no models; a chat asks (`chat::subagents`, `chat::reflection`).
            if ["subagent", "read_reasoning", "trigger_hot_swap"].contains(&tool) {
                continue;
            }
            let id = session.start_call(tool, example(tool));
            let first = session.event(&id, LIMIT).unwrap();
            assert_eq!(
                is_question(&first),
                verdict == "ask",
                "{trust} {tool}: {first}"
            );
            if is_question(&first) {
                assert_eq!(first["tool"], tool);
                session.send(&json!({ "id": id, "approve": "no" }));
                assert_eq!(
                    session.answer_within(&id, LIMIT).kind(),
                    "denied_user",
                    "{trust} {tool}"
                );
            } else if first["event"] != "result" {
                session.answer_within(&id, LIMIT);
            }
        }
        for made in ["bash", "written"] {
            assert_eq!(
                world.project.join(made).exists(),
                *trust == "autonomous",
                "{trust}: {made}"
            );
        }
    }
}

place_test!(a_supervised_call_of_several_requests_is_one_question);
/// A call is asked about once, also where it is more than one request.
fn a_supervised_call_of_several_requests_is_one_question(place: Place) {
    let world = World::new(place);
    world.put("a.png", png(2_500_000));
    let mut session = session(&world, &["--trust", "supervised"]);
    for (tool, input) in [
        (
            "todo_write",
            json!({ "todos": [{ "content": "x", "status": "pending" }] }),
        ),
        ("memory", json!({ "action": "set", "key": "k", "value": 1 })),
        ("view_image", json!({ "path": "a.png" })),
    ] {
        let id = session.start_call(tool, input);
        assert!(is_question(&session.event(&id, LIMIT).unwrap()), "{tool}");
        session.send(&json!({ "id": id, "approve": "once" }));
        let answer = session.answer_within(&id, LIMIT);
        answer.success();
        assert!(
            !answer.events.iter().any(is_question),
            "{tool}: {:?}",
            answer.events
        );
    }
}

place_test!(each_call_of_a_batch_has_its_own_question_and_answer);
/// The calls of a batch are asked about side by side, each by itself, and each has its own answer.
fn each_call_of_a_batch_has_its_own_question_and_answer(place: Place) {
    let world = World::new(place);
    let mut session = session(&world, &["--trust", "guided"]);
    let touch =
        |name: &str| json!({ "tool": "bash", "input": { "command": format!("touch {name}") } });
    let calls = [
        touch("first"),
        json!({ "tool": "glob", "input": { "pattern": "*" } }),
        touch("third"),
    ];
    let id = session.start_call("batch", json!({ "invocations": calls }));
    let mut questions = [
        session.event(&id, LIMIT).unwrap(),
        session.event(&id, LIMIT).unwrap(),
    ];
    questions.sort_by_key(|question| question["part"].as_u64());
    for (question, (part, name)) in questions.iter().zip([(0, "first"), (2, "third")]) {
        assert_eq!(
            (&question["part"], &question["tool"]),
            (&json!(part), &json!("bash")),
            "{question}"
        );
        assert_eq!(question["input"]["command"], format!("touch {name}"));
    }
    // Which one is meant has to be said, and each answer is for one.
    session.send(&json!({ "id": id, "approve": "once" }));
    let notice = session.event(&id, LIMIT).unwrap();
    assert_eq!(
        (&notice["event"], &notice["error"]["code"]),
        (&json!("notice"), &json!("invalid_input"))
    );
    session.send(&json!({ "id": id, "part": 2, "approve": "once" }));
    assert!(
        until(LIMIT, || world.project.join("third").exists()),
        "the answer did nothing"
    );
    session.send(&json!({ "id": id, "approve": "no" }));
    let answer = session.answer_within(&id, LIMIT);
    let made = &answer.result["metadata"]["invocations"];
    let kinds = [0, 1, 2].map(|part: usize| {
        made[part]["error"]["code"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    });
    assert_eq!(kinds, ["denied_user", "", ""], "{}", answer.result);
    assert!(!world.project.join("first").exists());
    // What was asked and answered stands in the run log, with the call it is about.
    session.close(LIMIT);
    let logged =
        |words: &[&str]| run(world.program("lazaret").arg("log").args(words), LIMIT).success();
    let list: Value = serde_json::from_str(&logged(&["list", "--json"])).unwrap();
    let lines = logged(&["show", list[0]["run"].as_str().unwrap(), "--json"]);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut answers: Vec<String> = lines
        .filter(|line| line["kind"] == "approval" && !line["payload"]["answer"].is_null())
        .map(|line| {
            format!(
                "{} {}",
                line["step"],
                line["payload"]["answer"].as_str().unwrap()
            )
        })
        .collect();
    answers.sort();
    assert_eq!(answers, ["2 no", "4 once"]);
}
