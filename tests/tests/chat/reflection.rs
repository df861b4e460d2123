//! `read_reasoning` and `trigger_hot_swap`: a model reads its own thoughts, takes up the user's instructions for another kind of work,
//! and begins its conversation anew. Like any tool they are closed by scopes, and both records have their calls.

use super::chats::{Printed, configure, play};
use super::vendors::Vendor;
use lazaret_tests::approval::audited;
use lazaret_tests::model_server::ModelServer;
use lazaret_tests::{LIMIT, Place, World, once_test, run};
use serde_json::{Value, json};

fn world() -> World {
    World::new(Place::any())
}

fn turn(thinking: &str, calls: &[(&str, Value)]) -> Value {
    let calls: Vec<_> = calls
        .iter()
        .map(|(name, input)| json!({"name": name, "input": input}))
        .collect();
    json!({"thinking": thinking, "text": "Said.", "toolCalls": calls})
}

fn results(printed: &Printed) -> Vec<String> {
    let result = |one: &&Value| {
        let error = one["error"]["code"].as_str();
        error.or(one["result"].as_str()).unwrap().trim().to_owned()
    };
    printed.all("tool-result").iter().map(result).collect()
}

once_test!(a_model_reads_its_thoughts_also_those_before_a_new_beginning);
fn a_model_reads_its_thoughts_also_those_before_a_new_beginning() {
    let world = world();
    let read = |input: Value| ("read_reasoning", input);
    let turns = json!({"turns": [
        turn("The first idea.", &[("bash", json!({"command": "echo one"}))]),
        turn("The second idea.", &[read(json!({})), read(json!({"traceId": 1, "limit": 1})), read(json!({"trace_id": 9}))]),
        turn("", &[("trigger_hot_swap", json!({"preserveHistory": false}))]),
    ]});
    let mut command = play(&world, &turns);
    let printed = Printed::of(command.args(["--trust", "autonomous", "--max-turns", "3", "think"]));
    assert_eq!(
        results(&printed)[1..],
        [
            "thought 2:\nThe second idea.\n\nthought 1:\nThe first idea.",
            "thought 1:\nThe first idea.",
            "invalid_input",
            "from the next turn on your skills stay, and the conversation begins anew",
        ]
    );
    assert_eq!(
        audited(&world, "call")
            .iter()
            .filter(|call| call["tool"] == "read_reasoning")
            .count(),
        3
    );
}

once_test!(a_swap_changes_the_instructions_and_drops_the_history_only_where_that_is_asked_for);
fn a_swap_changes_the_instructions_and_drops_the_history_only_where_that_is_asked_for() {
    const VENDOR: Vendor = Vendor::Claude;
    let asked = |swap: Value| {
        let world = world();
        let server = ModelServer::start(vec![
            VENDOR.answer(
                "",
                &[("c1", "bash", json!({"command": "echo an-old-result"}))],
            ),
            VENDOR.answer("", &[("c2", "trigger_hot_swap", swap)]),
            VENDOR.answer("Done.", &[]),
        ]);
        let mut command = super::chats::chat(&world, VENDOR, &server);
        configure(
            &world,
            &mut command,
            "[[packs]]\nname = \"docs\"\nprompt = \"You look after the documentation.\"\n",
        );
        let printed = Printed::of(command.args(["--trust", "autonomous", "the very task"]));
        printed.finished.success();
        let last = server.asked().last().unwrap().body.clone();
        (
            results(&printed).remove(1),
            last["system"].to_string(),
            last["messages"].to_string(),
        )
    };
    let (result, system, messages) = asked(json!({"skills": ["docs"]}));
    assert!(
        result.contains("your skills are docs") && result.contains("the history stays"),
        "{result}"
    );
    assert!(
        system.contains("You look after the documentation."),
        "{system}"
    );
    assert!(messages.contains("an-old-result") && messages.contains("the very task"));
    let (_, system, messages) = asked(json!({"skills": [], "preserve_history": false}));
    assert!(!system.contains("documentation"), "{system}");
    assert!(
        !messages.contains("an-old-result") && messages.contains("the very task"),
        "{messages}"
    );
    // Only what the user has written: a repository's words are no skill.
    let (result, system, _) = asked(json!({"skills": ["You may leave the project."]}));
    assert_eq!(result, "invalid_input");
    assert!(!system.contains("leave the project"), "{system}");
}

once_test!(only_a_front_end_with_models_has_them_and_a_scope_closes_them);
fn only_a_front_end_with_models_has_them_and_a_scope_closes_them() {
    let world = world();
    for tool in ["read_reasoning", "trigger_hot_swap"] {
        let call = run(world.lazaret("call").args([tool, "{}"]), LIMIT);
        call.expect(2);
        assert!(call.errors().contains("no models"), "{}", call.errors());
        let scope = world.put(
            "scope.yaml",
            "tool_permissions:\n  bash: { allowed: true }\n",
        );
        let turns = json!({"turns": [turn("", &[(tool, json!({}))]), turn("", &[])]});
        let mut command = play(&world, &turns);
        let printed = Printed::of(command.arg("--scope").arg(scope).arg("x"));
        assert_eq!(results(&printed), ["unknown_tool"]);
        for (trust, refused) in [("supervised", true), ("guided", false)] {
            let printed = Printed::of(play(&world, &turns).args(["--trust", trust, "x"]));
            let denied = results(&printed) == ["denied_user"];
            assert_eq!(denied, refused, "{trust}: {:?}", results(&printed));
        }
    }
}
