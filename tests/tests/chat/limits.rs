//! Limits and packs of the user's settings, and what the run log says of a run.

use super::chats::{Printed, chat, configure, play, script};
use super::vendors::Vendor;
use crate::large_writes::largest;
use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::{LIMIT, Place, World, once_test, process, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn world() -> World {
    World::new(Place::any())
}

/// A chat whose model calls a tool in each of three turns; returns how it ended and after how many turns.
fn ended(world: &World, config: &str, words: &[&str]) -> (String, Value) {
    let turn = json!({"toolCalls": [{"name": "file_list", "input": {}}]});
    let turns = json!({"turns": [turn, turn, turn, {"text": "done"}]});
    let mut command = play(world, &turns);
    configure(world, &mut command, config);
    let printed = Printed::of(command.args(words).arg("x"));
    let end = printed.one("stream-end");
    (printed.reason().to_owned(), end["turns"].clone())
}

once_test!(a_limit_of_the_settings_holds_and_a_pack_and_an_option_come_before_it);
fn a_limit_of_the_settings_holds_and_a_pack_and_an_option_come_before_it() {
    let world = world();
    let done = ("done".to_owned(), json!(4));
    let limited = |turns: u64| ("turn_limit".to_owned(), json!(turns));
    assert_eq!(ended(&world, "", &[]), done);
    let config = "[limits]\nmax_turns = 1\n[[packs]]\nname = \"p\"\nlimits = { max_turns = 2 }\n";
    assert_eq!(ended(&world, config, &[]), limited(2));
    assert_eq!(ended(&world, config, &["--pack", "p"]), limited(3));
    let words = ["--pack", "p", "--max-turns", "3"];
    assert_eq!(ended(&world, config, &words), limited(4));
    // Time, which a script uses up between its pieces.
    let slow = json!({"pauseMs": 3000, "turns": [{"text": "a text of more than one piece, and of more than two"}]});
    let mut command = play(&world, &slow);
    configure(&world, &mut command, "limits = { timeout_s = 1 }\n");
    let printed = Printed::of(command.arg("x"));
    assert_eq!(printed.reason(), "timeout");
    printed.finished.expect(124);
    let mut command = play(&world, &slow);
    configure(&world, &mut command, "limits = { timeout_s = 1 }\n");
    let printed = Printed::of(command.args(["--timeout", "0", "x"]));
    assert_eq!(printed.reason(), "done");
}

once_test!(a_model_of_each_vendor_makes_the_largest_write);
/// An input arrives in one line or in many pieces.
fn a_model_of_each_vendor_makes_the_largest_write() {
    for vendor in Vendor::ALL {
        let world = world();
        let content = largest(b'a');
        let input = json!({"path": "file", "content": content});
        let answers = [
            vendor.answer("", &[("c1", "file_write", input)]),
            vendor.answer("written", &[]),
        ];
        let replies = vendor.inquiry().into_iter().chain(answers);
        let large = |reply| Reply {
            piece: 64 << 10,
            ..reply
        };
        let server = ModelServer::start(replies.map(large).collect());
        let mut command = chat(&world, vendor, &server);
        let printed = Printed::of(command.args(["--trust", "autonomous", "x"]));
        let result = printed.one("tool-result");
        assert_eq!(result["status"], "success", "{vendor:?}: {result:.400}");
        assert_eq!(world.get("file"), content.as_bytes(), "{vendor:?}");
    }
}

once_test!(without_the_network_there_are_no_web_tools_and_commands_reach_no_host);
fn without_the_network_there_are_no_web_tools_and_commands_reach_no_host() {
    let world = world();
    let listed = |words: &[&str]| {
        let server = ModelServer::start(vec![Vendor::Claude.answer("hi", &[])]);
        let mut command = chat(&world, Vendor::Claude, &server);
        Printed::of(command.args(words).arg("x")).finished.success();
        server.asked()[0].body["tools"].to_string()
    };
    for words in [&[][..], &["--network-allowed"], &["--network-allowed=true"]] {
        assert!(listed(words).contains("\"web_search\""), "{words:?}");
    }
    let closed = listed(&["--network-allowed=false"]);
    assert!(
        !closed.contains("\"web_search\"")
            && !closed.contains("\"web_fetch\"")
            && closed.contains("\"bash\""),
        "{closed}"
    );
    let refused = |words: &[&str]| {
        let mut command = play(&world, &script(&[("hi", &[])]));
        run(command.args(words).arg("x"), LIMIT).expect(2);
    };
    refused(&["--network-allowed=false", "--allow-host", "a.example"]);
    refused(&["--network-allowed=false", "--scope", "none"]);
    // A host that the profile allows: the control, then without the network.
    let policy = "version = 1\n[profile.open]\nnetwork = { allow = [\"a.example\"] }\n";
    world.write(&world.home.join("config/lazaret/policy.toml"), policy);
    let connection = json!({"command": "echo ${https_proxy:-none}"});
    let turns = script(&[("", &[("bash", connection)]), ("", &[])]);
    let proxy = |words: &[&str]| {
        let mut command = play(&world, &turns);
        configure(&world, &mut command, "");
        let printed = Printed::of(
            command
                .args(["--profile", "open", "--trust", "autonomous"])
                .args(words)
                .arg("x"),
        );
        printed.one("tool-result")["result"]
            .as_str()
            .unwrap()
            .trim()
            .to_owned()
    };
    assert!(proxy(&[]).starts_with("http"), "the control");
    assert_eq!(proxy(&["--network-allowed=false"]), "none");
}

once_test!(a_limit_out_of_range_is_an_error_with_its_name);
fn a_limit_out_of_range_is_an_error_with_its_name() {
    let world = world();
    for (config, name) in [
        ("limits = { max_turns = 0 }\n", "max_turns"),
        ("limits = { timeout_s = 90000 }\n", "timeout_s"),
        (
            "[[packs]]\nname = \"p\"\nlimits = { max_tokens = 0 }\n",
            "max_tokens",
        ),
        ("limits = { turns = 3 }\n", "turns"),
    ] {
        let mut command = play(&world, &script(&[("hi", &[])]));
        configure(&world, &mut command, config);
        let finished = run(command.arg("x"), LIMIT);
        assert_eq!(finished.code(), 2, "{config}");
        let errors = finished.errors();
        assert!(
            errors.contains(name) && errors.contains("agent.toml"),
            "{errors}"
        );
    }
}

once_test!(the_tokens_of_an_answer_are_sent_to_each_vendor);
fn the_tokens_of_an_answer_are_sent_to_each_vendor() {
    let world = world();
    for (vendor, field, unset) in [
        (Vendor::Claude, "/max_tokens", json!(8192)),
        (Vendor::OpenAi, "/max_output_tokens", Value::Null),
        (Vendor::OpenAiChat, "/max_tokens", Value::Null),
        (Vendor::Ollama, "/options/num_predict", Value::Null),
    ] {
        let sent = |config: &str| {
            let replies = vendor
                .inquiry()
                .into_iter()
                .chain([vendor.answer("hi", &[])]);
            let server = ModelServer::start(replies.collect());
            let mut command = chat(&world, vendor, &server);
            configure(&world, &mut command, config);
            Printed::of(command.arg("x")).finished.success();
            let asked = server.asked();
            asked.last().unwrap().body.pointer(field).cloned()
        };
        assert_eq!(sent("").unwrap_or_default(), unset, "{vendor:?}");
        let set = sent("limits = { max_tokens = 321 }\n");
        assert_eq!(set, Some(json!(321)), "{vendor:?}");
    }
}

/// The tools that a chat with this pack lists to its model, or its error.
fn listed(world: &World, tools: &str) -> Result<Vec<Value>, Value> {
    let server = ModelServer::start(vec![Vendor::Claude.answer("hi", &[])]);
    let mut command = chat(world, Vendor::Claude, &server);
    let config = format!("[[packs]]\nname = \"p\"\ntools = {tools}\n");
    configure(world, &mut command, &config);
    let printed = Printed::of(command.args(["--pack", "p", "x"]));
    if let Some(error) = printed.all("error").first() {
        assert!(server.asked().is_empty());
        return Err((*error).clone());
    }
    let tools = server.asked()[0].body["tools"].clone();
    let tools = tools.as_array().cloned().unwrap_or_default();
    Ok(tools.iter().map(|tool| tool["name"].clone()).collect())
}

once_test!(a_pack_may_name_tools_by_pattern);
fn a_pack_may_name_tools_by_pattern() {
    let world = world();
    let file = listed(&world, "[\"file_*\", \"Grep\"]").unwrap();
    assert_eq!(
        file,
        ["file_edit", "file_list", "file_read", "file_write", "grep"]
    );
    assert!(listed(&world, "[\"*\"]").unwrap().contains(&json!("bash")));
}

once_test!(a_tool_that_a_pack_names_and_nobody_has_is_an_error);
fn a_tool_that_a_pack_names_and_nobody_has_is_an_error() {
    let world = world();
    for tools in ["[\"no_such_tool\"]", "[\"nothing_*\"]", "[\"b*h\"]"] {
        let mut command = play(&world, &script(&[("hi", &[])]));
        let config = format!("[[packs]]\nname = \"p\"\ntools = {tools}\n");
        configure(&world, &mut command, &config);
        let finished = run(command.arg("x"), LIMIT);
        assert_eq!(finished.code(), 2, "{tools}");
        assert!(
            finished.errors().contains("there is no tool"),
            "{}",
            finished.errors()
        );
    }
    for tool in ["mcp__wiki__find", "mcp__wiki__*"] {
        let error = listed(&world, &format!("[\"file_read\", \"{tool}\"]")).unwrap_err();
        assert_eq!(error["code"], "unknown_tool");
        assert!(error["message"].as_str().unwrap().contains(tool), "{error}");
    }
}

/// The lines of the newest run log.
fn lines(world: &World) -> Vec<Value> {
    let runs = fs::read_dir(world.state.join("lazaret/runs")).unwrap();
    let mut runs: Vec<_> = runs.flatten().map(|entry| entry.path()).collect();
    runs.sort();
    let text = fs::read_to_string(runs.last().unwrap().join("runlog.jsonl")).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    let kinds = lines.iter().map(|line| line["kind"].as_str().unwrap());
    kinds.collect()
}

once_test!(the_run_log_has_what_a_model_was_asked_and_how_the_run_ended);
fn the_run_log_has_what_a_model_was_asked_and_how_the_run_ended() {
    let world = world();
    let vendor = Vendor::Claude;
    let key = format!("sk-{}", lazaret_tests::world::unique());
    let same = |id: &'static str| vendor.answer("again", &[(id, "file_list", json!({}))]);
    let long = format!("{} with {key} in it {}", "x".repeat(1990), "y".repeat(900));
    let busy = Reply::status(529, &json!({"error": {"message": "busy"}}));
    let server = ModelServer::start(vec![
        busy,
        same("a"),
        same("b"),
        same("c"),
        vendor.answer(&long, &[]),
    ]);
    let mut command = chat(&world, vendor, &server);
    command.env("ANTHROPIC_API_KEY", &key).arg("x");
    Printed::of(&mut command).finished.success();
    let lines = lines(&world);
    assert_eq!(
        kinds(&lines),
        [
            "run_start",
            "session_start",
            "llm_request",
            "llm_response",
            "retry",
            "llm_request",
            "llm_response",
            "tool_call",
            "tool_result",
            "llm_request",
            "llm_response",
            "tool_call",
            "tool_result",
            "llm_request",
            "llm_response",
            "tool_call",
            "tool_result",
            "loop_detected",
            "llm_request",
            "llm_response",
            "run_complete",
            "session_end",
        ]
    );
    let of = |kind: &str, at: usize| {
        let all = lines.iter().filter(|line| line["kind"] == kind);
        all.map(|line| line["payload"].clone()).nth(at).unwrap()
    };
    assert_eq!(of("llm_response", 0)["error"], "overloaded");
    assert_eq!(of("llm_request", 1)["attempt"], 2);
    assert_eq!(of("llm_response", 1)["calls"], json!(["file_list"]));
    let last = of("llm_response", 4)["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        last.chars().count() < 2_100 && !last.contains(&key[..12]),
        "{last}"
    );
    assert_eq!(
        (
            &of("run_complete", 0)["reason"],
            &of("run_complete", 0)["turns"]
        ),
        (&json!("done"), &json!(4))
    );
    // A list of runs begins where the session does.
    let list = run(
        world.program("lazaret").args(["log", "list", "--json"]),
        LIMIT,
    )
    .success();
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(list[0]["command"], "chat");
}

once_test!(the_run_log_of_a_server_has_its_runs);
fn the_run_log_of_a_server_has_its_runs() {
    let world = world();
    let turns = script(&[("", &[("file_list", json!({}))]), ("Done.", &[])]);
    let sidecar = Sidecar::start(&world, &turns, &[]);
    let mut client = sidecar.client();
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "c", "trust": "autonomous"}),
    );
    client.to_end();
    let has_ended = || kinds(&lines(&world)).contains(&"run_complete");
    process::until(LIMIT, has_ended);
    let all = lines(&world);
    for kind in ["run_start", "llm_request", "llm_response", "tool_call"] {
        assert!(kinds(&all).contains(&kind), "{kind}: {all:#?}");
    }
    let end = all.iter().find(|line| line["kind"] == "run_complete");
    assert_eq!(end.unwrap()["payload"]["conversation"], "c");
    // A run that cannot begin is recorded too.
    client.say(
        "chat:send",
        json!({"content": "x", "conversationId": "d", "project": "/nonexistent"}),
    );
    client.to_end();
    let has_failed = || kinds(&lines(&world)).contains(&"run_error");
    process::until(LIMIT, has_failed);
}

once_test!(search_engines_may_be_in_the_settings_and_their_key_is_shown_nowhere);
fn search_engines_may_be_in_the_settings_and_their_key_is_shown_nowhere() {
    let world = world();
    let key = format!("brave-{}", lazaret_tests::world::unique());
    let file = world.home.join("brave.key");
    world.write(&file, &key);
    let repeated = key.clone();
    let engine = ModelServer::answering("127.0.0.1", move |request| {
        let page = json!({"title": format!("found with {repeated}"), "url": "https://example.org/", "description": "d",
            "content": "c"});
        let (brave, searxng) = (json!({"web": {"results": [page]}}), json!({"results": []}));
        match request.line.contains("format=json") {
            true => Reply::status(200, &searxng),
            false => Reply::status(200, &brave),
        }
    });
    let config = format!(
        "search = {{ searxng_url = \"{}\", brave_key_file = \"{}\" }}\n",
        engine.url(),
        file.display()
    );
    let turns = script(&[("", &[("web_search", json!({"query": "q"}))]), ("ok", &[])]);
    let searched = |config: &str| {
        let mut command = play(&world, &turns);
        configure(&world, &mut command, config);
        command.env("BRAVE_SEARCH_URL", engine.url());
        run(command.arg("x"), LIMIT)
    };
    // Others can read the file.
    assert_eq!(searched(&config).code(), 2);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let printed = Printed::from(searched(&config));
    let result = printed.one("tool-result");
    assert!(
        result["result"].to_string().contains("[redacted"),
        "{result}"
    );
    assert!(!printed.finished.text().contains(&key));
    let asked = engine.asked();
    let headed = asked.iter().filter(|one| one.head.contains(&key));
    assert_eq!((asked.len(), headed.count()), (2, 1));
    // The control: without the settings there is no engine.
    let printed = Printed::from(searched(""));
    assert_eq!(printed.one("tool-result")["status"], "error");
}
