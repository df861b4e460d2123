//! Who is asked, by trust: AC-21, AC-22, AC-23.

use lazaret_tests::approval::{dressed, set_policy};
use lazaret_tests::process::{self, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{Session, World, matrix};
use serde_json::{Value, json};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// A session whose policy trusts it with no more than `trust`.
fn session(world: &World, trust: &str) -> Session {
    set_policy(world, &format!("timeout_s = 2\ntrust = \"{trust}\""));
    Session::start(&mut dressed(world, world.lazaret("session")))
}

fn is_question(event: &Value) -> bool {
    event["event"] == "approval"
}

#[test]
fn ac_21_a_guided_session_reads_without_asking() {
    matrix(|place| {
        let world = World::new(place);
        world.put("test.txt", "hello");
        let mut session = session(&world, "guided");
        let answer = session.call("file_read", json!({ "path": "test.txt" }));
        assert!(answer.success().contains("hello"));
        assert!(!answer.events.iter().any(is_question), "{answer:?}");
    });
}

#[test]
fn ac_22_a_guided_session_asks_before_bash_and_nothing_runs_until_the_answer() {
    matrix(|place| {
        let world = World::new(place);
        let mut session = session(&world, "guided");
        let marker = long_sleep();
        let input = json!({ "command": format!("touch ran; sleep {marker}") });
        let id = session.start_call("bash", input.clone());
        let question = session.event(&id, SOON).unwrap();
        assert!(is_question(&question), "{question}");
        assert_eq!((&question["tool"], &question["input"]), (&json!("bash"), &input));
        let approval = &question["approval"];
        assert_eq!((&approval["risk"], &approval["expiresS"]), (&json!("high"), &json!(2)));
        assert_eq!(approval["digest"].as_str().unwrap().len(), 64);
        let ran = || world.project.join("ran").exists() || !process::with_marker(&marker).is_empty();
        assert!(!until(Duration::from_millis(300), ran), "it ran before the answer");
        session.send(&json!({ "id": id, "approve": "once" }));
        assert!(until(SOON, || !process::with_marker(&marker).is_empty()), "the answer did nothing");
        session.cancel(&id);
        assert_eq!(session.answer_within(&id, SOON).kind(), "cancelled");
        // A no, and no answer at all.
        let id = session.start_call("bash", json!({ "command": "touch refused" }));
        assert!(is_question(&session.event(&id, SOON).unwrap()));
        session.send(&json!({ "id": id, "approve": "no" }));
        assert_eq!(session.answer_within(&id, SOON).kind(), "denied_user");
        let silent = session.call("bash", json!({ "command": "touch silent" }));
        assert_eq!(silent.kind(), "approval_timeout");
        assert_eq!(silent.result["error"]["layer"], "policy");
        for name in ["refused", "silent"] {
            assert!(!world.project.join(name).exists(), "{name}");
        }
        // For the session: asked once.
        let id = session.start_call("bash", json!({ "command": "true" }));
        assert!(is_question(&session.event(&id, SOON).unwrap()));
        session.send(&json!({ "id": id, "approve": "session" }));
        session.answer_within(&id, SOON).success();
        session.bash("true").success();
        // What lasts is listed and taken back, and then it is asked again.
        session.send(&json!({ "id": "g", "grants": true }));
        let list = session.event("g", SOON).unwrap();
        assert_eq!((&list["grants"][0]["tool"], &list["grants"][0]["calls"]), (&json!("bash"), &json!(2)));
        session.send(&json!({ "id": "g", "revoke": list["grants"][0]["grant"] }));
        assert_eq!(session.event("g", SOON).unwrap()["grants"], json!([]));
        let id = session.start_call("bash", json!({ "command": "true" }));
        assert!(is_question(&session.event(&id, SOON).unwrap()));
        session.cancel(&id);
        assert_eq!(session.answer_within(&id, SOON).kind(), "cancelled");
    });
}

#[test]
fn ac_23_an_autonomous_session_does_not_ask() {
    matrix(|place| {
        let world = World::new(place);
        let mut session = session(&world, "autonomous");
        let answer = session.bash("echo hello");
        assert!(answer.success().contains("hello"));
        let written = session.call("file_write", json!({ "path": "a", "content": "x" }));
        assert!(written.ok() && !answer.events.iter().chain(&written.events).any(is_question));
    });
}
