//! The loop: approvals, limits, ends, and what stays of a chat.

use super::chats::{Printed, chat, configure, play, script};
use super::vendors::Vendor;
use lazaret_tests::model_server::ModelServer;
use lazaret_tests::process::{self, Process, Running, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Terminal, World, once_test, place_test, run};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

fn world() -> World {
    World::new(Place::any())
}

/// Asks nothing, and bears violations.
fn trusting(command: &mut Command) -> &mut Command {
    command.args([
        "--trust",
        "autonomous",
        "--max-violations",
        "3",
        "--turn-timeout",
        "50",
    ])
}

place_test!(commands_have_the_network_that_is_allowed);
fn commands_have_the_network_that_is_allowed(place: Place) {
    let world = World::new(place);
    let look = json!({ "command": "echo \"proxy:$HTTPS_PROXY\" > seen; curl -sS -m 20 https://other.example/ 2>> seen; true" });
    let turns = script(&[("Look.", &[("bash", look)]), ("Done.", &[])]);
    Printed::of(trusting(&mut play(&world, &turns)).arg("go"))
        .finished
        .success();
    // Without a word about hosts there is none.
    assert!(String::from_utf8_lossy(&world.get("seen")).starts_with("proxy:\n"));
    let mut allowed = play(&world, &turns);
    Printed::of(trusting(allowed.args(["--allow-host", "allowed.example:443"])).arg("go"))
        .finished
        .success();
    let seen = String::from_utf8(world.get("seen")).unwrap();
    assert!(
        seen.starts_with("proxy:http://") && seen.contains("403"),
        "{seen}"
    );
}

once_test!(the_tour_needs_no_key);
fn the_tour_needs_no_key() {
    let world = World::new(Place::any());
    world.put("README.md", "# hello");
    let mut command = world.lazaret("chat");
    let printed =
        Printed::of(trusting(command.args(["--json", "--provider", "mock"])).arg("Show me around"));
    printed.finished.success();
    assert_eq!(printed.reason(), "done");
    let results: Vec<_> = printed
        .all("tool-result")
        .iter()
        .map(|result| result["status"].as_str().unwrap())
        .collect();
    assert_eq!(results, ["success", "success", "success", "error"]);
    let shown = printed.all("tool-result")[2]["result"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        shown.contains("cannot access") && !shown.contains(&world.canary),
        "{shown}"
    );
    // As text, without a terminal: the model's words and nothing else.
    let mut command = world.lazaret("chat");
    let finished = run(
        trusting(command.args(["--provider", "mock"])).arg("Show me around"),
        LIMIT,
    );
    assert!(
        finished.success().starts_with("Let me look around"),
        "{}",
        finished.text()
    );
    assert!(!finished.text().contains('●'));
}

place_test!(a_call_that_nobody_can_approve_is_denied);
fn a_call_that_nobody_can_approve_is_denied(place: Place) {
    let world = World::new(place);
    world.put("a.txt", "content");
    let turns = script(&[
        (
            "",
            &[
                ("file_read", json!({"path": "a.txt"})),
                ("bash", json!({"command": "touch made"})),
            ],
        ),
        ("I could not.", &[]),
    ]);
    let printed = Printed::of(play(&world, &turns).arg("x"));
    printed.finished.success();
    let confirm = printed.one("tool-confirm");
    assert_eq!(
        (&confirm["toolName"], &confirm["risk"], &confirm["channel"]),
        (&json!("bash"), &json!("high"), &json!("relay"))
    );
    assert_eq!(confirm["input"]["command"], "touch made");
    let result = printed.all("tool-result")[1];
    assert_eq!(
        (&result["status"], &result["error"]["code"]),
        (&json!("error"), &json!("denied_user"))
    );
    assert!(!world.project.join("made").exists());
    assert_eq!(printed.text(), "I could not.");
    assert!(
        printed.finished.errors().contains("--trust"),
        "{}",
        printed.finished.errors()
    );
}

fn sleeping(marker: &str) -> bool {
    process::with_marker(&format!("sleep {marker}"))
        .iter()
        .any(|process| process.name == "sleep")
}

fn signal(running: &Running, signal: Signal) {
    kill(Pid::from_raw(running.pid()), signal).unwrap();
}

place_test!(a_cancelled_run_leaves_no_process);
fn a_cancelled_run_leaves_no_process(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let command = format!("trap '' HUP INT TERM; setsid sleep {marker} & sleep {marker}");
    let turns = script(&[(
        "",
        &[
            ("bash", json!({ "command": command })),
            ("bash", json!({"command": "touch after"})),
        ],
    )]);
    let running = Running::start(trusting(&mut play(&world, &turns)).arg("x"));
    assert!(until(LIMIT, || sleeping(&marker)));
    let below = process::below(running.pid());
    signal(&running, Signal::SIGTERM);
    let printed = Printed::from(running.finish(LIMIT));
    printed.finished.expect(128 + 15);
    let end = printed.one("stream-end");
    assert_eq!(
        (&end["reason"], &end["partial"]),
        (&json!("cancelled"), &json!(true))
    );
    assert_eq!(printed.one("tool-result")["error"]["code"], "cancelled");
    assert!(!world.project.join("after").exists());
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
    assert_eq!(process::left_after(&below, LIMIT), []);
}

place_test!(a_lost_executor_is_replaced_and_the_run_goes_on);
fn a_lost_executor_is_replaced_and_the_run_goes_on(place: Place) {
    let world = World::new(place);
    let marker = long_sleep();
    let turns = script(&[
        (
            "",
            &[("bash", json!({"command": format!("sleep {marker}")}))],
        ),
        ("", &[("bash", json!({"command": "echo again > made"}))]),
        ("It works again.", &[]),
    ]);
    let running = Running::start(trusting(&mut play(&world, &turns)).arg("x"));
    assert!(until(LIMIT, || sleeping(&marker)));
    // The broker: the spawner has made it, and the rest is below it.
    let brokers: Vec<Process> = process::below(running.pid())
        .into_iter()
        .filter(|process| process.name == "lazaret-executo" && process.parent != running.pid())
        .collect();
    assert_eq!(brokers.len(), 1, "{:#?}", process::tree(running.pid()));
    brokers[0].kill();
    let printed = Printed::from(running.finish(LIMIT));
    printed.finished.success();
    assert_eq!(printed.one("notice")["kind"], "executor_lost");
    let replaced: Vec<_> = printed
        .all("session")
        .iter()
        .map(|session| session["replaced"].clone())
        .collect();
    assert_eq!(replaced, [json!(false), json!(true)]);
    assert_eq!(world.get("made"), b"again\n");
    process::assert_gone(&format!("sleep {marker}"), LIMIT);
}

/// Answers a question until `text` follows. It takes an answer when it has stood for 0.4 s, and says of an earlier one that it came too
/// soon: only then is it answered again, later, since a second answer would be one to the next question.
fn answer(terminal: &mut Terminal, keys: &str, text: &str) {
    let mut pause = Duration::from_millis(500);
    loop {
        let is_answered = |terminal: &mut Terminal| terminal.screen().contains(text);
        let early = |terminal: &mut Terminal| terminal.screen().matches("came too soon").count();
        until(pause, || is_answered(terminal));
        let before = early(terminal);
        terminal.send(keys);
        until(LIMIT, || is_answered(terminal) || early(terminal) > before);
        if early(terminal) == before {
            return terminal.expect(text, LIMIT);
        }
        pause *= 2;
    }
}

once_test!(a_person_at_a_terminal_is_asked);
fn a_person_at_a_terminal_is_asked() {
    let world = world();
    let turns = script(&[
        ("One.", &[("bash", json!({"command": "echo yes > made"}))]),
        ("Two.", &[("bash", json!({"command": "echo no > other"}))]),
        ("Three.", &[]),
        ("Four.", &[]),
    ]);
    let path = world.home.join("script.json");
    world.write(&path, turns.to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--provider", "mock", "--script"])
        .arg(path)
        .arg("begin");
    let mut terminal = Terminal::start(&mut command, 30, 100);
    terminal.expect("bash wants to run", LIMIT);
    terminal.expect("echo yes > made", LIMIT);
    terminal.send("what?\n");
    terminal.expect("type y, s, n or q", LIMIT);
    terminal.expect("bash wants to run", LIMIT);
    terminal.expect("s for this very call again", LIMIT);
    answer(&mut terminal, "y\n", "Two.");
    terminal.expect("bash wants to run", LIMIT);
    answer(&mut terminal, "n\n", "Three.");
    terminal.expect("> ", LIMIT);
    terminal.send("and on\n");
    terminal.expect("Four.", LIMIT);
    terminal.expect("> ", LIMIT);
    terminal.send("\x04");
    assert_eq!(terminal.finish(LIMIT).code(), Some(0));
    assert_eq!(world.get("made"), b"yes\n");
    assert!(!world.project.join("other").exists());
}

once_test!(text_typed_before_a_question_does_not_answer_it);
/// A person who types ahead approves nothing that they have not seen.
fn text_typed_before_a_question_does_not_answer_it() {
    let world = world();
    let mut turns = script(&[
        ("One.", &[("bash", json!({"command": "touch made"}))]),
        ("Two.", &[]),
    ]);
    // The question comes when the keys have long been struck.
    turns["pauseMs"] = 500.into();
    let path = world.home.join("script.json");
    world.write(&path, turns.to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--provider", "mock", "--script"])
        .arg(path)
        .arg("begin");
    let mut terminal = Terminal::start(&mut command, 30, 100);
    terminal.send("y\ny\n");
    terminal.expect("bash wants to run", LIMIT);
    terminal.send("n\n");
    terminal.expect("Two.", LIMIT);
    terminal.expect("> ", LIMIT);
    terminal.send("\x04");
    assert_eq!(terminal.finish(LIMIT).code(), Some(0));
    assert!(!world.project.join("made").exists());
}

once_test!(the_first_interrupt_ends_the_call_and_the_second_the_run);
fn the_first_interrupt_ends_the_call_and_the_second_the_run() {
    let world = world();
    let (first, second) = (long_sleep(), long_sleep());
    let sleep = |marker: &str| ("bash", json!({"command": format!("sleep {marker}")}));
    let turns = script(&[
        ("", &[sleep(&first)]),
        ("", &[sleep(&second)]),
        ("never", &[]),
    ]);
    let running = Running::start(trusting(&mut play(&world, &turns)).arg("x"));
    assert!(until(LIMIT, || sleeping(&first)));
    signal(&running, Signal::SIGINT);
    assert!(until(LIMIT, || sleeping(&second)), "the run goes on");
    signal(&running, Signal::SIGINT);
    let printed = Printed::from(running.finish(LIMIT));
    printed.finished.expect(130);
    assert_eq!(
        (printed.reason(), printed.text().as_str()),
        ("cancelled", "")
    );
    let kinds: Vec<_> = printed
        .all("tool-result")
        .iter()
        .map(|result| result["error"]["code"].clone())
        .collect();
    assert_eq!(kinds, ["cancelled", "cancelled"]);
}

once_test!(two_hundred_turns_are_the_last_and_then_there_are_no_tools);
fn two_hundred_turns_are_the_last_and_then_there_are_no_tools() {
    let world = world();
    let mut turns = script(&[("again ", &[("thinking", json!({"thought": "hm"}))])]);
    turns["repeat"] = true.into();
    let printed = Printed::of(trusting(&mut play(&world, &turns)).arg("x"));
    printed.finished.expect(5);
    assert!(
        printed.finished.errors().contains("200 turns"),
        "{}",
        printed.finished.errors()
    );
    assert_eq!(
        (printed.all("turn-end").len(), printed.reason()),
        (201, "turn_limit")
    );
    assert_eq!(printed.all("tool-result").len(), 200);
    assert!(
        printed
            .all("notice")
            .iter()
            .any(|notice| notice["kind"] == "turn_limit")
    );
}

once_test!(a_full_context_takes_the_tools_away);
fn a_full_context_takes_the_tools_away() {
    let world = world();
    let call = |number: u32| json!({"name": "thinking", "input": {"thought": format!("{number}")}});
    let usage = |tokens: u32| json!({"inputTokens": tokens, "outputTokens": 10});
    let turns = json!({"contextWindow": 8000, "turns": [
        {"toolCalls": [call(1)], "usage": usage(1000)},
        {"toolCalls": [call(2)], "usage": usage(7500)},
        {"text": "In short: no.", "toolCalls": [call(3)], "usage": usage(7600)},
    ]});
    let printed = Printed::of(trusting(&mut play(&world, &turns)).arg("x"));
    printed.finished.expect(5);
    assert!(
        printed.finished.errors().contains("the context is full"),
        "{}",
        printed.finished.errors()
    );
    assert_eq!(
        (printed.reason(), printed.text().as_str()),
        ("context_budget", "In short: no.")
    );
    assert_eq!(printed.all("tool-result").len(), 2);
    assert_eq!(
        printed.all("turn-end")[1]["context"],
        json!({"usedTokens": 7510, "window": 8000, "share": 0.93875})
    );
    assert_eq!(printed.one("notice")["kind"], "context_budget");
}

once_test!(a_large_result_ends_no_run);
/// The model reports no usage, so all is estimated.
fn a_large_result_ends_no_run() {
    let world = world();
    let large =
        json!({"name": "bash", "input": {"command": "head -c 90000 /dev/zero | tr '\\0' x"}});
    let calls = vec![json!({ "toolCalls": [large] }); 6];
    let turns: Vec<Value> = calls
        .into_iter()
        .chain([json!({"text": "Done."})])
        .collect();
    let mut command = play(&world, &json!({"contextWindow": 32000, "turns": turns}));
    // As much is shown as to a model with a large context.
    let printed = Printed::of(trusting(command.args(["--model-profile", "standard"])).arg("x"));
    printed.finished.success();
    assert_eq!(
        (printed.reason(), printed.text().as_str()),
        ("done", "Done.")
    );
    assert_eq!(printed.all("tool-result").len(), 6);
    let turns = printed.all("turn-end");
    let shares = turns
        .iter()
        .map(|turn| turn["context"]["share"].as_f64().unwrap());
    assert!(
        shares.into_iter().all(|share| 0.1 < share && share < 1.0),
        "{turns:#?}"
    );
    assert!(
        printed.all("tool-result")[0]["result"]
            .as_str()
            .unwrap()
            .len()
            > 80_000
    );
    // Without a word about it, a model with a small context is shown less.
    let printed = Printed::of(
        trusting(&mut play(
            &world,
            &json!({"contextWindow": 32000, "turns": [{"toolCalls": [large]}, {"text": "Done."}]}),
        ))
        .arg("x"),
    );
    assert!(printed.one("tool-result")["result"].as_str().unwrap().len() < 6_000);
}

once_test!(the_room_that_must_be_left_can_be_set);
fn the_room_that_must_be_left_can_be_set() {
    let world = world();
    let call = json!({"name": "thinking", "input": {"thought": "hm"}});
    let used = json!({"toolCalls": [call], "usage": {"inputTokens": 17000, "outputTokens": 10}});
    let turns = json!({"contextWindow": 32000, "turns": [used, {"text": "Done."}]});
    for (reserve, reason) in [("14000", "done"), ("15500", "context_budget")] {
        let mut command = play(&world, &turns);
        let printed = Printed::of(trusting(command.args(["--context-reserve", reserve])).arg("x"));
        assert_eq!(printed.reason(), reason, "{reserve}");
    }
}

once_test!(violations_end_a_run);
fn violations_end_a_run() {
    let world = world();
    let out = ("file_read", json!({"path": "../outside/secret.txt"}));
    let turns = script(&[
        ("", &[out.clone(), out.clone(), out.clone()]),
        ("never", &[]),
    ]);
    for (max, seen) in [("2", 2), ("1", 1)] {
        let mut command = play(&world, &turns);
        let printed =
            Printed::of(command.args(["--trust", "autonomous", "--max-violations", max, "x"]));
        printed.finished.expect(3);
        assert_eq!(
            (printed.reason(), printed.text().as_str()),
            ("violations", "")
        );
        assert!(printed.all("security-event").len() >= seen);
        assert_eq!(printed.one("stream-end")["partial"], true);
    }
    // The control: none ends it, and the model goes on.
    let printed = Printed::of(play(&world, &turns).args([
        "--trust",
        "autonomous",
        "--max-violations",
        "0",
        "x",
    ]));
    assert_eq!(
        (printed.reason(), printed.text().as_str()),
        ("done", "never")
    );
    assert!(!printed.finished.text().contains(&world.canary));
}

once_test!(a_circle_is_noticed);
fn a_circle_is_noticed() {
    let same = &[("bash", json!({"command": "echo same"}))];
    let turns = script(&[("", same), ("", same), ("", same), ("done", &[])]);
    let printed = Printed::of(trusting(&mut play(&world(), &turns)).arg("x"));
    printed.finished.success();
    assert_eq!(printed.one("notice")["kind"], "loop_detected");
}

once_test!(a_tool_that_was_not_shown_cannot_be_called);
fn a_tool_that_was_not_shown_cannot_be_called() {
    let world = world();
    let batch =
        json!({"invocations": [{"tool_name": "shell", "parameters": {"command": "touch made"}}]});
    let calls = [
        ("bash", json!({"command": "touch made"})),
        ("shell", json!({"command": "touch made"})),
        ("batch", batch),
    ];
    let turns = script(&[("", &calls), ("no", &[])]);
    // The control: without the pack all of them run.
    let printed = Printed::of(trusting(&mut play(&world, &turns)).arg("x"));
    assert!(
        printed
            .all("tool-result")
            .iter()
            .all(|result| result["status"] == "success")
    );
    std::fs::remove_file(world.project.join("made")).unwrap();
    let config = "[[packs]]\nname = \"reader\"\ntools = [\"file_read\", \"batch\"]\n";
    let mut command = play(&world, &turns);
    configure(&world, &mut command, config);
    let printed = Printed::of(trusting(&mut command).args(["--pack", "reader", "x"]));
    printed.finished.success();
    for result in printed.all("tool-result") {
        assert_eq!(result["error"]["code"], "unknown_tool", "{result}");
    }
    assert!(!world.project.join("made").exists());
}

once_test!(malformed_input_goes_back_to_the_model);
fn malformed_input_goes_back_to_the_model() {
    let world = world();
    let vendor = Vendor::OpenAiChat;
    let mut first = vendor.answer("", &[("c1", "bash", json!({"command": "touch made"}))]);
    first.body = first.body.replace("touch made", "touch made\\\\");
    let broken = first.body.contains("made\\\\");
    let server = ModelServer::start(vec![first, vendor.answer("sorry", &[])]);
    let printed = Printed::of(trusting(&mut chat(&world, vendor, &server)).arg("x"));
    assert!(broken, "the control: the input is no JSON any more");
    printed.finished.success();
    assert_eq!(printed.one("tool-result")["error"]["code"], "invalid_input");
    assert!(!world.project.join("made").exists());
    let (text, _) = vendor.result_of(&server.asked()[1].body, "c1").unwrap();
    assert!(text.contains("no JSON"), "{text}");
}

once_test!(a_pack_ends_with_finish_task_and_its_gates_hold);
fn a_pack_ends_with_finish_task_and_its_gates_hold() {
    let finish = |input: Value| ("finish_task", input);
    let good = json!({"summary": "fixed", "tests_verified": true});
    let turns = script(&[
        ("", &[finish(good.clone())]),
        ("", &[("bash", json!({"command": "true"}))]),
        (
            "",
            &[finish(json!({"summary": "fixed", "tests_verified": false}))],
        ),
        (
            "",
            &[
                finish(good.clone()),
                ("bash", json!({"command": "touch after"})),
            ],
        ),
    ]);
    let world = world();
    let printed =
        Printed::of(trusting(&mut play(&world, &turns)).args(["--pack", "engineering", "fix"]));
    printed.finished.success();
    assert_eq!(printed.reason(), "finished");
    assert_eq!(
        printed.one("stream-end")["result"],
        json!({"action": "final", "summary": "fixed", "tests_verified": true})
    );
    let gates = printed
        .all("notice")
        .iter()
        .filter(|notice| notice["kind"] == "quality_gate_failed")
        .count();
    assert_eq!((gates, world.project.join("after").exists()), (2, false));
    // Refused too often, it ends, and says that it is not good.
    let lazy = script(&[
        ("", &[finish(good.clone())]),
        ("", &[finish(good.clone())]),
        ("", &[finish(good)]),
    ]);
    let printed =
        Printed::of(trusting(&mut play(&world, &lazy)).args(["--pack", "engineering", "fix"]));
    printed.finished.expect(1);
    assert_eq!(printed.reason(), "quality_gate");
}

once_test!(a_pack_without_its_end_is_asked_twice_and_then_text_counts);
fn a_pack_without_its_end_is_asked_twice_and_then_text_counts() {
    let turns = script(&[("I think", &[]), ("I said", &[]), ("It is so.", &[])]);
    let printed =
        Printed::of(trusting(&mut play(&world(), &turns)).args(["--pack", "research", "why"]));
    printed.finished.expect(1);
    let kinds: Vec<_> = printed
        .all("notice")
        .iter()
        .map(|notice| notice["kind"].clone())
        .collect();
    assert_eq!(kinds, ["corrective_reprompt", "corrective_reprompt"]);
    assert_eq!(
        printed.one("stream-end")["result"],
        json!({"action": "final", "text": "It is so."})
    );
}

once_test!(a_subagent_answers_with_tools_that_only_read);
fn a_subagent_answers_with_tools_that_only_read() {
    let world = world();
    world.put("a.txt", "the answer is 42");
    let vendor = Vendor::Claude;
    let replies = vec![
        vendor.answer(
            "",
            &[(
                "m1",
                "subagent",
                json!({"question": "What is in a.txt?", "model_strength": "weak"}),
            )],
        ),
        vendor.answer(
            "",
            &[
                ("s1", "file_read", json!({"path": "a.txt"})),
                ("s2", "bash", json!({"command": "touch made"})),
            ],
        ),
        vendor.answer("It is 42.", &[]),
        vendor.answer("They say 42.", &[]),
    ];
    let server = ModelServer::start(replies);
    let printed = Printed::of(trusting(&mut chat(&world, vendor, &server)).arg("ask"));
    printed.finished.success();
    // Its words are for the model that asked.
    assert_eq!(printed.text(), "They say 42.");
    let results = printed.all("tool-result");
    let inner: Vec<_> = results
        .iter()
        .filter(|result| result["parentToolId"] == "m1")
        .collect();
    assert_eq!(
        (&inner[0]["status"], &inner[1]["error"]["code"]),
        (&json!("success"), &json!("unknown_tool"))
    );
    assert!(!world.project.join("made").exists());
    let asked = server.asked();
    assert_eq!(
        vendor.result_of(&asked[3].body, "m1"),
        Some(("It is 42.".into(), false))
    );
    let tools: Vec<_> = asked[1].body["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].clone())
        .collect();
    assert!(
        !tools.contains(&json!("bash")) && !tools.contains(&json!("subagent")),
        "{tools:?}"
    );
    assert_eq!(
        asked[1].body["messages"].as_array().unwrap().len(),
        1,
        "it knows nothing of the conversation"
    );
}

once_test!(no_call_of_a_subagent_has_the_id_of_an_earlier_one);
/// An answer to a question names its call by ID.
fn no_call_of_a_subagent_has_the_id_of_an_earlier_one() {
    let world = world();
    world.put("a.txt", "a");
    let vendor = Vendor::Claude;
    let read = || ("x1", "file_read", json!({"path": "a.txt"}));
    let ask = |id| (id, "subagent", json!({"question": "What is in a.txt?"}));
    let server = ModelServer::start(vec![
        vendor.answer("", &[read()]),
        vendor.answer("", &[ask("s1")]),
        vendor.answer("", &[read()]),
        vendor.answer("It is a.", &[]),
        vendor.answer("", &[ask("s2")]),
        vendor.answer("", &[read()]),
        vendor.answer("It is a.", &[]),
        vendor.answer("", &[read()]),
        vendor.answer("done", &[]),
    ]);
    let printed = Printed::of(trusting(&mut chat(&world, vendor, &server)).arg("x"));
    printed.finished.success();
    let starts = printed.all("tool-start");
    let ids: Vec<_> = starts
        .iter()
        .map(|start| start["toolId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["x1", "s1", "x1-2", "s2", "x1-3", "x1-4"]);
}

once_test!(calls_without_effects_run_concurrently_and_answer_in_order);
fn calls_without_effects_run_concurrently_and_answer_in_order() {
    let world = world();
    world.put("a.txt", "a");
    let vendor = Vendor::Claude;
    let calls = [
        ("r1", "file_read", json!({"path": "a.txt"})),
        ("r2", "file_list", json!({})),
        ("w", "file_write", json!({"path": "b.txt", "content": "b"})),
        ("r3", "file_read", json!({"path": "b.txt"})),
    ];
    let server = ModelServer::start(vec![vendor.answer("", &calls), vendor.answer("done", &[])]);
    let printed = Printed::of(trusting(&mut chat(&world, vendor, &server)).arg("x"));
    printed.finished.success();
    let words: Vec<String> = printed
        .events
        .iter()
        .filter(|event| {
            ["chat:tool-start", "chat:tool-result"]
                .iter()
                .any(|kind| event["type"] == *kind)
        })
        .map(|event| {
            format!(
                "{} {}",
                event["type"].as_str().unwrap(),
                event["payload"]["toolId"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        words[..2],
        ["chat:tool-start r1", "chat:tool-start r2"],
        "both have begun before one has ended"
    );
    assert_eq!(
        words[4..],
        [
            "chat:tool-start w",
            "chat:tool-result w",
            "chat:tool-start r3",
            "chat:tool-result r3"
        ]
    );
    let content = server.asked()[1].body["messages"][2]["content"].clone();
    let ids: Vec<_> = content
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["tool_use_id"].clone())
        .collect();
    assert_eq!(ids, ["r1", "r2", "w", "r3"]);
}

once_test!(a_chat_is_resumed_and_replayed);
fn a_chat_is_resumed_and_replayed() {
    let world = world();
    let turns = script(&[
        ("First.", &[("bash", json!({"command": "echo one"}))]),
        ("Second.", &[]),
        ("Third, after a while.", &[]),
    ]);
    let first = Printed::of(trusting(&mut play(&world, &turns)).arg("begin"));
    first.finished.success();
    let replay = |arguments: &[&str]| {
        run(
            world
                .lazaret("chat")
                .args(["--replay", "last"])
                .args(arguments),
            LIMIT,
        )
    };
    assert_eq!(
        replay(&["--json"]).success(),
        first.finished.text(),
        "the same events in the same order"
    );
    assert!(replay(&[]).success().contains("First."));
    let second =
        Printed::of(trusting(&mut play(&world, &turns)).args(["--resume", "last", "go on"]));
    assert_eq!(second.text(), "Third, after a while.");
    let id = &first.one("stream-start")["conversationId"];
    assert_eq!(id, &second.one("stream-start")["conversationId"]);
    assert_eq!(
        replay(&["--json"]).success(),
        first.finished.text() + &second.finished.text()
    );
    for wrong in ["../runs/x", "none"] {
        run(world.lazaret("chat").args(["--replay", wrong]), LIMIT).expect(2);
    }
    // Nobody else reads it.
    let folder = world.state.join("lazaret/chats");
    let modes = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777
    };
    let file = std::fs::read_dir(&folder)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!((modes(&folder), modes(&file)), (0o700, 0o600));
}

once_test!(a_project_configures_nothing);
/// Files of a repository are no settings of ours.
fn a_project_configures_nothing() {
    let world = world();
    let server = ModelServer::start(vec![]);
    let config = format!(
        "provider = \"claude\"\n[providers.claude]\nbase_url = \"{}\"\n",
        server.url()
    );
    for place in [
        "agent.toml",
        ".lazaret/agent.toml",
        ".config/lazaret/agent.toml",
        "lazaret/agent.toml",
    ] {
        world.put(place, &config);
    }
    let turns = script(&[("hi", &[])]);
    Printed::of(play(&world, &turns).arg("x"))
        .finished
        .success();
    // Where it is the vendor's own server that is meant, a key is needed.
    let mut command = world.lazaret("chat");
    run(
        command.args(["--json", "--provider", "claude", "--model", "m", "x"]),
        LIMIT,
    )
    .expect(2);
    assert!(server.asked().is_empty());
    // The control: as the user's own it is taken.
    let mut command = world.lazaret("chat");
    configure(&world, &mut command, &config);
    run(command.args(["--json", "--model", "m", "x"]), LIMIT);
    assert!(!server.asked().is_empty());
}
