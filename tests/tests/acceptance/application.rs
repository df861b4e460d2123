//! Tools that the application of a session brings itself, through the real programs.

use lazaret_tests::approval::{dressed, set_policy};
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run};
use serde_json::{Value, json};

/// Rules about a tool that Lazaret does not know before it is registered.
const RULES: &str = r#"timeout_s = 600
[[rule]]
tool = "drop"
action = "deny"
why = "Nobody drops."
[[rule]]
tool = "deploy"
action = "deny"
why = "Not there."
when = [{ param = "input", contains = "production" }]
[[rule]]
tool = "deploy"
action = "ask"
why = "Look where it goes."
"#;

fn register(session: &mut Session, name: &str, risk: &str) {
    let schema =
        json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]});
    let tool = json!({"name": name, "description": "d", "inputSchema": schema, "risk": risk});
    session.send(&json!({"id": "r", "register": tool}));
    let printed = session.event("r", LIMIT).unwrap();
    assert_eq!(
        (&printed["event"], &printed["tool"]),
        (&json!("registered"), &json!(name))
    );
}

/// The first event of a call.
fn first(session: &mut Session, tool: &str, input: Value) -> (String, Value) {
    let id = session.start_call(tool, input);
    let event = session.event(&id, LIMIT).unwrap();
    (id, event)
}

place_test!(an_application_brings_a_tool_and_carries_it_out);
fn an_application_brings_a_tool_and_carries_it_out(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    register(&mut session, "deploy", "high");
    let (id, event) = first(&mut session, "deploy", json!({"to": "here"}));
    assert_eq!(
        event,
        json!({"id": id, "event": "execute", "tool": "deploy", "input": {"to": "here"}})
    );
    // While it works, it may use the session itself.
    session.bash("echo built").success();
    session.send(&json!({"id": id, "result": "deployed\u{1b}]0;x\u{7}"}));
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!(answer.success(), "deployed");
    assert!(
        answer.result["metadata"]["call"].is_u64(),
        "{}",
        answer.result
    );
    // Wrong input comes neither to the executor nor to the application.
    assert_eq!(session.call("deploy", json!({})).kind(), "invalid_input");
    session.send(&json!({"id": "u", "unregister": "deploy"}));
    assert_eq!(session.event("u", LIMIT).unwrap()["event"], "unregistered");
    assert_eq!(
        session.call("deploy", json!({"to": "here"})).kind(),
        "unknown_tool"
    );
}

place_test!(an_applications_tool_is_asked_about_by_its_risk);
fn an_applications_tool_is_asked_about_by_its_risk(place: Place) {
    for (trust, low, high) in [
        ("supervised", true, true),
        ("guided", false, true),
        ("autonomous", false, false),
    ] {
        let world = World::new(place);
        let open = |seconds: u32| {
            set_policy(&world, &format!("timeout_s = {seconds}"));
            Session::start(dressed(&world, world.lazaret("session")).args(["--trust", trust]))
        };
        let mut session = open(600);
        register(&mut session, "look", "low");
        register(&mut session, "deploy", "high");
        for (tool, asked) in [("look", low), ("deploy", high)] {
            let (id, event) = first(&mut session, tool, json!({"to": "x"}));
            let want = if asked { "approval" } else { "execute" };
            assert_eq!(event["event"], want, "{trust} {tool}: {event}");
            if asked {
                assert_eq!(
                    (&event["tool"], &event["input"]),
                    (&json!(tool), &json!({"to": "x"}))
                );
                session.send(&json!({"id": id, "approve": "once"}));
                assert_eq!(
                    session.event(&id, LIMIT).unwrap()["event"],
                    "execute",
                    "{trust} {tool}"
                );
            }
            session.send(&json!({"id": id, "result": "done"}));
            session.answer_within(&id, LIMIT).success();
        }
        if high {
            // A no, and no answer: the application hears nothing of either.
            let (id, _) = first(&mut session, "deploy", json!({"to": "x"}));
            session.send(&json!({"id": id, "approve": "no"}));
            let refused = session.answer_within(&id, LIMIT);
            assert_eq!((refused.kind(), refused.events.len()), ("denied_user", 0));
            let mut session = open(1);
            register(&mut session, "deploy", "high");
            let silent = session.call("deploy", json!({"to": "x"}));
            assert_eq!(
                (silent.kind(), silent.events.len()),
                ("approval_timeout", 1)
            );
        }
    }
}

place_test!(a_registration_is_recorded_and_its_grants_end_with_it);
/// The run log has the tools that there were, and a permission of one for the session ends with it.
fn a_registration_is_recorded_and_its_grants_end_with_it(place: Place) {
    let world = World::new(place);
    set_policy(&world, "timeout_s = 600");
    let mut session =
        Session::start(dressed(&world, world.lazaret("session")).args(["--trust", "guided"]));
    let unregister = |session: &mut Session, name: &str| {
        session.send(&json!({"id": "u", "unregister": name}));
        session.event("u", LIMIT).unwrap()["event"].clone()
    };
    // Whether a call is asked about; it is carried out in the end.
    let is_asked = |session: &mut Session, tool: &str, answer: &str| {
        let (id, event) = first(session, tool, json!({"to": "x"}));
        let asked = event["event"] == "approval";
        if asked {
            session.send(&json!({"id": id, "approve": answer}));
            assert_eq!(session.event(&id, LIMIT).unwrap()["event"], "execute");
        }
        session.send(&json!({"id": id, "result": "done"}));
        session.answer_within(&id, LIMIT).success();
        asked
    };
    let grants = |session: &mut Session| {
        session.send(&json!({"id": "g", "grants": true}));
        let listed = session.event("g", LIMIT).unwrap();
        let tools = listed["grants"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["tool"].clone());
        tools.collect::<Vec<_>>()
    };
    for name in ["deploy", "other"] {
        register(&mut session, name, "high");
        assert!(is_asked(&mut session, name, "session"));
        assert!(!is_asked(&mut session, name, "no"), "the grant is none");
    }
    assert_eq!(grants(&mut session), ["deploy", "other"]);
    assert_eq!(unregister(&mut session, "deploy"), "unregistered");
    assert_eq!(grants(&mut session), ["other"]);
    register(&mut session, "deploy", "high");
    assert!(
        is_asked(&mut session, "deploy", "once"),
        "a grant outlived its tool"
    );
    assert!(
        !is_asked(&mut session, "other", "no"),
        "another tool's grant is gone"
    );
    // A refused change is not recorded.
    assert_eq!(unregister(&mut session, "bash"), "result");
    session.close(LIMIT);
    let logged =
        |words: &[&str]| run(world.program("lazaret").arg("log").args(words), LIMIT).success();
    let list: Value = serde_json::from_str(&logged(&["list", "--json"])).unwrap();
    let lines = logged(&["show", list[0]["run"].as_str().unwrap(), "--json"]);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own: Vec<Value> = lines
        .filter(|line| line["kind"].as_str().unwrap().ends_with("register"))
        .collect();
    let printed: Vec<_> = own
        .iter()
        .map(|line| [&line["kind"], &line["payload"]["tool"]])
        .collect();
    assert_eq!(
        printed,
        [
            ["register", "deploy"],
            ["register", "other"],
            ["unregister", "deploy"],
            ["register", "deploy"]
        ]
    );
    let payload = &own[0]["payload"];
    assert_eq!(
        [
            &payload["id"],
            &payload["description"],
            &payload["risk"],
            &payload["timeout"]
        ],
        [&json!("r"), &json!("d"), &json!("high"), &json!(60)]
    );
    assert!(
        payload["inputSchema"]
            .as_str()
            .unwrap()
            .contains("\"required\":[\"to\"]"),
        "{payload}"
    );
    assert!(logged(&["search", "unregister"]).contains("deploy"));
}

place_test!(rules_and_the_audit_know_an_applications_tool_by_its_name);
fn rules_and_the_audit_know_an_applications_tool_by_its_name(place: Place) {
    let world = World::new(place);
    set_policy(&world, RULES);
    let mut session =
        Session::start(dressed(&world, world.lazaret("session")).args(["--trust", "guided"]));
    register(&mut session, "drop", "low");
    register(&mut session, "deploy", "low");
    for (tool, to) in [("drop", "x"), ("deploy", "production-1")] {
        let answer = session.call(tool, json!({"to": to}));
        assert_eq!(
            (answer.kind(), answer.events.len()),
            ("denied_policy", 0),
            "{tool}"
        );
    }
    let (id, event) = first(&mut session, "deploy", json!({"to": "staging"}));
    assert_eq!(
        (&event["event"], &event["approval"]["why"]),
        (&json!("approval"), &json!("Look where it goes."))
    );
    session.send(&json!({"id": id, "approve": "once"}));
    assert_eq!(session.event(&id, LIMIT).unwrap()["event"], "execute");
    // Whatever the application says came of it: what the executor knows is that it gave leave.
    session.send(&json!({"id": id, "error": {"message": "it fell over"}}));
    let answer = session.answer_within(&id, LIMIT);
    assert_eq!((answer.kind(), answer.text()), ("io", "it fell over"));
    session.close(LIMIT);
    let mut show = dressed(&world, world.program("lazaret"));
    let records = run(show.args(["audit", "show", "--json"]), LIMIT).success();
    let records = records
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls: Vec<Value> = records.filter(|record| record["kind"] == "call").collect();
    let ends: Vec<_> = calls
        .iter()
        .map(|call| ["tool", "verdict", "end"].map(|key| call[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        ends,
        [
            ["drop", "deny", "refused"],
            ["deploy", "deny", "refused"],
            ["deploy", "ask", "granted"]
        ]
    );
    assert_eq!(calls[2]["grant"], "once");
    let digests: Vec<_> = calls
        .iter()
        .map(|call| call["request"].as_str().unwrap())
        .collect();
    assert!(
        digests.iter().all(|digest| digest.len() == 64) && digests[1] != digests[2],
        "{digests:?}"
    );
    // The run log has it with its words, and the call that joins the two.
    let mut log = dressed(&world, world.program("lazaret"));
    let found = run(log.args(["log", "search", "it fell over"]), LIMIT).success();
    assert!(found.contains("deploy"), "{found}");
}

place_test!(a_scope_hides_an_applications_tool_and_the_executor_agrees);
fn a_scope_hides_an_applications_tool_and_the_executor_agrees(place: Place) {
    let world = World::new(place);
    let scope = world.put(
        "scope.yaml",
        "tool_permissions:\n  deploy: { allowed: true }\n",
    );
    let mut session = Session::start(world.lazaret("session").arg("--scope").arg(&scope));
    register(&mut session, "deploy", "low");
    register(&mut session, "drop", "low");
    session.send(&json!({"id": "l", "tools": true}));
    let listed = session.event("l", LIMIT).unwrap();
    let names: Vec<_> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(names, ["deploy"]);
    assert_eq!(
        session.call("drop", json!({"to": "x"})).kind(),
        "denied_policy"
    );
    let (id, event) = first(&mut session, "deploy", json!({"to": "x"}));
    assert_eq!(event["event"], "execute", "{event}");
    session.cancel(&id);
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "cancelled");
}
