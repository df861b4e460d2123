//! Each vendor's wire, its errors, and keys.

use super::chats::{Printed, chat};
use super::vendors::Vendor;
use lazaret_tests::model_server::{ModelServer, Reply, ReplyEnd, SeenRequest};
use lazaret_tests::process::{Running, contains, until, with_environment, with_marker};
use lazaret_tests::{LIMIT, Place, Terminal, World, once_test, run};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A world for tests that do not depend on the place.
pub fn world() -> World {
    World::new(Place::any())
}

/// Where the order of events of each vendor is kept.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/events");

/// Compares the events of a run, a line each, with those that are kept. `LAZARET_GOLDEN=write` writes them again.
#[track_caller]
fn compare_with_golden(vendor: Vendor, printed: &Printed) {
    let path = format!("{GOLDEN}/{}.txt", vendor.name());
    let now = printed.lines().join("\n") + "\n";
    if std::env::var_os("LAZARET_GOLDEN").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let then = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        then, now,
        "{path}: write it again with LAZARET_GOLDEN=write, and look"
    );
}

once_test!(two_calls_in_one_answer_of_each_vendor);
fn two_calls_in_one_answer_of_each_vendor() {
    for vendor in Vendor::ALL {
        let world = World::new(Place::any());
        world.put("a.txt", "content of a");
        let calls = [
            (
                "call_1",
                "bash",
                json!({"command": "echo from bash | tee made"}),
            ),
            ("call_2", "file_read", json!({"path": "a.txt"})),
        ];
        let replies = vec![
            vendor.answer("I will look.", &calls),
            vendor.answer("Done: two files. €", &[]),
        ];
        let server = ModelServer::start(vendor.inquiry().into_iter().chain(replies).collect());
        let printed = Printed::of(chat(&world, vendor, &server).args([
            "--trust",
            "autonomous",
            "list files",
        ]));
        printed.finished.success();
        compare_with_golden(vendor, &printed);
        assert_eq!(printed.text(), "I will look.Done: two files. €");
        assert_eq!(world.get("made"), b"from bash\n");
        let end = printed.one("stream-end");
        assert_eq!(
            (&end["reason"], &end["partial"], &end["turns"]),
            (&json!("done"), &json!(false), &json!(2))
        );
        assert_eq!(
            end["usage"],
            json!({"inputTokens": 200, "outputTokens": 20, "cachedTokens": 0})
        );
        // The figure of the last turn is that of the run.
        assert_eq!(printed.all("turn-end")[1]["context"], end["context"]);
        let asked = server.asked();
        let last = &asked.last().unwrap().body;
        for (id, want) in [("call_1", "from bash\n"), ("call_2", "content of a")] {
            let (text, is_error) = vendor
                .result_of(last, id)
                .unwrap_or_else(|| panic!("{vendor:?}: {id}: {last}"));
            assert!(text.contains(want) && !is_error, "{vendor:?}: {text}");
        }
    }
}

once_test!(a_tool_without_arguments_is_called_with_none);
fn a_tool_without_arguments_is_called_with_none() {
    for vendor in Vendor::ALL {
        let world = world();
        let whole = vendor.answer("", &[("call_1", "todo_read", json!({}))]);
        // Pieces that are empty, as vendors send them where there is nothing to say.
        let empty = |text: String, piece: &str| text.replace(&format!(":\"{piece}\""), ":\"\"");
        let body = ["{", "}", "{}"].into_iter().fold(whole.body.clone(), empty);
        assert!(
            matches!(vendor, Vendor::Ollama) || body != whole.body,
            "{vendor:?}: {body}"
        );
        let replies = [Reply { body, ..whole }, vendor.answer("Done.", &[])];
        let server = ModelServer::start(vendor.inquiry().into_iter().chain(replies).collect());
        let printed =
            Printed::of(chat(&world, vendor, &server).args(["--trust", "autonomous", "x"]));
        printed.finished.success();
        assert_eq!(printed.one("tool-start")["input"], json!({}), "{vendor:?}");
        assert_eq!(
            printed.one("tool-result")["status"],
            "success",
            "{vendor:?}"
        );
    }
}

once_test!(a_stop_with_calls_makes_the_calls);
fn a_stop_with_calls_makes_the_calls() {
    let (world, vendor) = (world(), Vendor::OpenAiChat);
    let first = vendor.answer("", &[("call_1", "bash", json!({"command": "touch made"}))]);
    assert!(
        first.body.contains(r#""finish_reason":"stop""#)
            && !first.body.contains(r#":"tool_calls""#)
    );
    let server = ModelServer::start(vec![first, vendor.answer("Done.", &[])]);
    let printed = Printed::of(chat(&world, vendor, &server).args(["--trust", "autonomous", "x"]));
    printed.finished.success();
    assert!(world.project.join("made").exists());
}

once_test!(failed_and_whole_results_go_back_in_one_message);
fn failed_and_whole_results_go_back_in_one_message() {
    let (world, vendor) = (world(), Vendor::Claude);
    let calls = [
        ("call_1", "bash", json!({"command": "exit 3"})),
        ("call_2", "bash", json!({"command": "echo whole"})),
    ];
    let server = ModelServer::start(vec![vendor.answer("", &calls), vendor.answer("Done.", &[])]);
    let printed = Printed::of(chat(&world, vendor, &server).args(["--trust", "autonomous", "x"]));
    printed.finished.success();
    let asked = server.asked();
    let body = &asked.last().unwrap().body;
    let last = body["messages"].as_array().unwrap().last().unwrap();
    let blocks: Vec<_> = last["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| &block["type"])
        .collect();
    assert_eq!(
        (&last["role"], blocks),
        (&json!("user"), vec![&json!("tool_result"); 2]),
        "{last}"
    );
    let (failed, whole) = (
        vendor.result_of(body, "call_1").unwrap(),
        vendor.result_of(body, "call_2").unwrap(),
    );
    assert!(failed.1 && failed.0.contains("code 3"), "{failed:?}");
    assert!(!whole.1 && whole.0.contains("whole"), "{whole:?}");
}

once_test!(answers_may_come_byte_by_byte_and_with_characters_cut);
fn answers_may_come_byte_by_byte_and_with_characters_cut() {
    for vendor in Vendor::ALL {
        let world = world();
        let reply = Reply {
            piece: 1,
            ..vendor.answer("Grüße, 世界 😀", &[])
        };
        let server = ModelServer::start(vendor.inquiry().into_iter().chain([reply]).collect());
        let printed = Printed::of(chat(&world, vendor, &server).arg("hello"));
        printed.finished.success();
        assert_eq!(printed.text(), "Grüße, 世界 😀", "{vendor:?}");
    }
}

once_test!(a_busy_provider_is_asked_again_and_a_broken_answer_is_an_error);
fn a_busy_provider_is_asked_again_and_a_broken_answer_is_an_error() {
    let vendor = Vendor::Claude;
    let busy = |status, kind: &str| Reply {
        head: "Retry-After: 0\r\n".into(),
        ..Reply::status(
            status,
            &json!({"type": "error", "error": {"type": kind, "message": "not now"}}),
        )
    };
    let replies = vec![
        busy(429, "rate_limit_error"),
        busy(529, "overloaded_error"),
        vendor.answer("At last.", &[]),
    ];
    let server = ModelServer::start(replies);
    let printed = Printed::of(chat(&world(), vendor, &server).arg("x"));
    printed.finished.success();
    let retries: Vec<_> = printed
        .all("retry")
        .iter()
        .map(|retry| retry["code"].as_str().unwrap())
        .collect();
    assert_eq!(
        (retries, printed.text().as_str()),
        (vec!["rate_limit", "overloaded"], "At last.")
    );

    let whole = vendor.answer(
        "So far",
        &[("c", "bash", json!({"command": "touch never"}))],
    );
    let cut_at = |text: &str| Reply {
        body: whole.body[..whole.body.find(text).unwrap()].to_owned(),
        end: ReplyEnd::Cut,
        ..whole.clone()
    };
    let error =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let body = cut_at("event: message_delta").body;
    let malformed = Reply {
        body: format!("{body}data: {{\"type\": \n\n"),
        ..whole.clone()
    };
    let failed = Reply {
        body: format!("{body}event: error\ndata: {error}\n\n"),
        ..whole.clone()
    };
    for (reply, code) in [
        (cut_at("event: message_delta"), "connection_error"),
        (malformed, "provider_error"),
        (failed, "overloaded"),
    ] {
        let world = world();
        let server = ModelServer::start(vec![reply]);
        let printed =
            Printed::of(chat(&world, vendor, &server).args(["--trust", "autonomous", "x"]));
        printed.finished.expect(1);
        assert_eq!(
            (&printed.one("error")["code"], printed.text().as_str()),
            (&json!(code), "So far")
        );
        assert_eq!(
            (printed.reason(), &printed.one("stream-end")["partial"]),
            ("error", &json!(true))
        );
        // A call of an answer that has not ended is not made.
        assert!(printed.all("tool-start").is_empty() && !world.project.join("never").exists());
        assert_eq!(
            server.asked().len(),
            1,
            "what was shown is not asked for twice"
        );
    }

    // On a busy machine the text may come after a short time limit.
    let has_come = |seconds: u32| {
        let server = ModelServer::start(vec![Reply {
            end: ReplyEnd::Hang,
            ..cut_at("event: message_delta")
        }]);
        let world = world();
        let mut command = chat(&world, vendor, &server);
        command.args(["--turn-timeout", &seconds.to_string(), "x"]);
        let printed = Printed::of(&mut command);
        printed.finished.expect(124);
        assert_eq!(printed.one("error")["code"], "timeout");
        printed.text() == "So far"
    };
    assert!([2, 10, 40].into_iter().any(has_come));
}

once_test!(errors_are_typed_and_not_repeated);
fn errors_are_typed_and_not_repeated() {
    let cases = [
        // Asked for once more with less in the request.
        (400, "invalid_request", 2),
        (401, "auth_error", 1),
        // Without sizes no other model is chosen.
        (404, "model_not_found", 2),
        (413, "invalid_request", 1),
    ];
    for vendor in [Vendor::Claude, Vendor::OpenAi, Vendor::OpenAiChat] {
        for (status, code, asked) in cases {
            let why = json!({"error": {"message": "because \u{1b}[2J"}});
            let server = ModelServer::start(vec![Reply::status(status, &why)]);
            let printed = Printed::of(chat(&world(), vendor, &server).arg("x"));
            printed.finished.expect(1);
            let error = printed.one("error");
            assert_eq!(error["code"], code, "{vendor:?} {status}");
            let message = error["message"].as_str().unwrap();
            assert!(
                message.contains("because") && !message.contains('\u{1b}'),
                "{message}"
            );
            assert_eq!(server.asked().len(), asked, "{vendor:?} {status}");
        }
    }
    // Nobody listens.
    let world = world();
    let mut command = world.lazaret("chat");
    command.args([
        "--json",
        "--provider",
        "ollama",
        "--model",
        "m",
        "--base-url",
        "http://127.0.0.1:1",
        "x",
    ]);
    let printed = Printed::of(&mut command);
    let message = printed.one("error")["message"].as_str().unwrap().to_owned();
    assert!(
        message.contains("127.0.0.1:1") && message.contains("ollama serve"),
        "{message}"
    );
    assert!(
        message.contains("ANTHROPIC_API_KEY") && message.contains("--provider"),
        "{message}"
    );
}

once_test!(a_model_without_tools_is_an_error_before_anything_is_sent);
fn a_model_without_tools_is_an_error_before_anything_is_sent() {
    let shown = json!({"capabilities": ["completion"]});
    let listed =
        json!({"models": [{"name": "small", "model": "small"}, {"name": "able", "model": "able"}]});
    let able = json!({"capabilities": ["completion", "tools"]});
    let replies = [&shown, &listed, &shown, &able]
        .map(|body| Reply::status(200, body))
        .to_vec();
    let server = ModelServer::start(replies);
    let printed = Printed::of(chat(&world(), Vendor::Ollama, &server).arg("x"));
    printed.finished.expect(4);
    let error = printed.one("error");
    assert_eq!(error["code"], "no_tools");
    assert!(
        error["message"].as_str().unwrap().contains("able"),
        "{error}"
    );
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| !asked.line.contains("/api/chat"))
    );
}

once_test!(a_server_that_refuses_tools_is_not_asked_again);
fn a_server_that_refuses_tools_is_not_asked_again() {
    let body = |capable: bool| match capable {
        true => json!({"capabilities": ["completion", "tools"]}),
        false => json!({"capabilities": ["completion"]}),
    };
    let listed =
        json!({"models": [{"name": "small", "model": "small"}, {"name": "able", "model": "able"}]});
    let refused = json!({"error": "registry.ollama.ai/library/a-model does not support tools"});
    let server = ModelServer::start(vec![
        Reply::status(200, &body(true)),
        Reply::status(400, &refused),
        Reply::status(200, &listed),
        Reply::status(200, &body(false)),
        Reply::status(200, &body(true)),
    ]);
    let printed = Printed::of(chat(&world(), Vendor::Ollama, &server).arg("x"));
    printed.finished.expect(4);
    let error = printed.one("error");
    assert_eq!(error["code"], "no_tools");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("able") && !message.contains("small"),
        "{message}"
    );
    let asked = server.asked();
    let chats = asked.iter().filter(|one| one.line.contains("/api/chat"));
    assert_eq!(chats.count(), 1);
}

once_test!(a_rejected_request_is_repeated_once_with_less_in_it);
fn a_rejected_request_is_repeated_once_with_less_in_it() {
    let vendor = Vendor::Claude;
    let why = json!({"error": {"message": "cache_control: unknown field"}});
    let server = ModelServer::start(vec![Reply::status(400, &why), vendor.answer("hi", &[])]);
    let world = world();
    let mut command = chat(&world, vendor, &server);
    let printed = Printed::of(command.args(["--thinking", "2000", "x"]));
    printed.finished.success();
    assert_eq!(printed.text(), "hi");
    assert_eq!(printed.one("retry")["code"], "invalid_request");
    let asked = server.asked();
    let has = |at: usize, text: &str| asked[at].body.to_string().contains(text);
    assert!(has(0, "cache_control") && has(0, "thinking"));
    assert!(!has(1, "cache_control") && asked[1].body.get("thinking").is_none());
    assert!(has(1, "\"bash\""), "it keeps its tools");
}

/// Models on this machine, of which `m` is none; the smallest one makes vectors, and the next one calls no tools.
fn local_models(asked: &SeenRequest) -> Reply {
    let sizes = [
        ("vectors", "0.1B"),
        ("mute", "1B"),
        ("able", "8.0B"),
        ("big", "70B"),
    ];
    let model = asked.body["model"].as_str().unwrap_or_default();
    let size = sizes.iter().find(|(name, _)| *name == model);
    let absent = json!({"error": "model 'm' not found"});
    match (asked.line.contains("/api/tags"), size) {
        (true, _) => {
            let entry = |(name, size): &(&str, &str)| json!({"model": name, "details": {"parameter_size": size}});
            let all: Vec<Value> = sizes.iter().map(entry).collect();
            Reply::status(200, &json!({"models": all}))
        }
        (false, None) => Reply::status(404, &absent),
        (false, Some(_)) if asked.line.contains("/api/chat") => {
            Vendor::Ollama.answer(&format!("I am {model}."), &[])
        }
        (false, Some((name, size))) => {
            let capabilities = match *name {
                "vectors" => json!(["embedding"]),
                "mute" => json!(["completion"]),
                _ => json!(["completion", "tools"]),
            };
            let shown = json!({"capabilities": capabilities, "details": {"parameter_size": size}});
            Reply::status(200, &shown)
        }
    }
}

once_test!(the_smallest_capable_model_stands_for_one_that_is_absent_and_says_so);
fn the_smallest_capable_model_stands_for_one_that_is_absent_and_says_so() {
    let world = world();
    let answered = |model: &str| {
        let server = ModelServer::answering("127.0.0.1", local_models);
        let mut command = world.lazaret("chat");
        command.args(["--json", "--provider", "ollama", "--model", model]);
        Printed::of(command.args(["--base-url", &server.url(), "x"]))
    };
    let printed = answered("m");
    printed.finished.success();
    assert_eq!(printed.text(), "I am able.");
    let notice = printed.one("notice");
    assert_eq!(notice["kind"], "model_replaced");
    let message = notice["message"].as_str().unwrap();
    assert!(
        message.contains("\"m\"") && message.contains("able"),
        "{message}"
    );
    let printed = answered("big");
    assert_eq!(printed.text(), "I am big.");
    assert!(printed.all("notice").is_empty());
}

/// Every file below a folder that holds `text`.
pub fn files_with(folder: &Path, text: &str) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if fs::read(&path).is_ok_and(|bytes| contains(&bytes, text.as_bytes())) {
            found.push(path);
        }
    }
    found
}

once_test!(a_key_goes_to_its_provider_and_nowhere_else);
fn a_key_goes_to_its_provider_and_nowhere_else() {
    let world = world();
    let key = format!("sk-{}", lazaret_tests::world::unique());
    let file = world.home.join("key");
    world.write(&file, format!("{key}\n"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    // The vendor repeats it, and so does the model.
    let echo = |status| {
        Reply::status(
            status,
            &json!({"error": {"message": format!("wrong key {key}")}}),
        )
    };
    let (front, back) = key.split_at(9);
    let said = Vendor::Claude.answer(
        &format!("your key is {front}{back}, I run it"),
        &[(
            "c",
            "bash",
            json!({"command": format!("echo {key}; echo {front}''{back}; env; cat /proc/self/environ")}),
        )],
    );
    let replies = vec![said, Vendor::Claude.answer("done", &[]), echo(401)];
    let server = ModelServer::start(replies);
    let mut outputs = Vec::new();
    for code in [0, 1] {
        let mut command = chat(&world, Vendor::Claude, &server);
        command
            .arg("--key-file")
            .arg(&file)
            .args(["--trust", "autonomous", "--input-events", "x"]);
        let printed = Printed::of(&mut command);
        printed.finished.expect(code);
        outputs.push(printed.finished.text() + &printed.finished.errors());
    }
    // The control: it was sent, and the model did say it.
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| asked.head.contains(&format!("x-api-key: {key}")))
    );
    assert!(
        outputs[0].contains("[redacted:MODEL_KEY]") && outputs[1].contains("[redacted:MODEL_KEY]")
    );
    for output in outputs {
        assert!(!output.contains(&key), "{output}");
    }
    for folder in [&world.state, &world.central, &world.project] {
        let found = files_with(folder, &key);
        // The executor runs what it is asked to run, and its audit has no inputs.
        assert!(found.is_empty(), "{found:?}");
    }
}

once_test!(a_key_that_others_can_read_is_not_taken);
fn a_key_that_others_can_read_is_not_taken() {
    let world = world();
    let file = world.home.join("key");
    world.write(&file, "sk-1234567890");
    let server = ModelServer::start(vec![]);
    let chat = |arguments: &[&str]| {
        let mut command = chat(&world, Vendor::Claude, &server);
        run(command.args(arguments).arg("x"), LIMIT)
    };
    let path = file.to_str().unwrap().to_owned();
    let finished = chat(&["--key-file", &path]);
    finished.expect(2);
    assert!(
        finished.errors().contains("chmod 600"),
        "{}",
        finished.errors()
    );
    let far = chat(&["--key-file", &path, "--base-url", "http://models.example"]);
    far.expect(2);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = world.lazaret("chat");
    command.args([
        "--provider",
        "claude",
        "--base-url",
        "http://models.example",
        "--key-file",
        &path,
        "x",
    ]);
    let finished = run(&mut command, LIMIT);
    finished.expect(2);
    assert!(
        finished.errors().contains("clear text"),
        "{}",
        finished.errors()
    );
    // Without a key nothing is asked of the vendor.
    let mut command = world.lazaret("chat");
    let finished = run(
        command.args(["--provider", "claude", "--model", "m", "x"]),
        LIMIT,
    );
    finished.expect(2);
    assert!(
        finished.errors().contains("ANTHROPIC_API_KEY"),
        "{}",
        finished.errors()
    );
    assert!(server.asked().is_empty());
}

once_test!(no_process_has_the_keys_in_its_environment);
/// A key of the environment reaches no process that a chat starts, and the chat itself starts anew without it.
fn no_process_has_the_keys_in_its_environment() {
    let world = world();
    let key = format!("sk-{}", lazaret_tests::world::unique());
    let marker = lazaret_tests::world::long_sleep();
    let call = ("c", "bash", json!({"command": format!("sleep {marker}")}));
    let server = ModelServer::start(vec![Vendor::Claude.answer("", &[call])]);
    let mut command = chat(&world, Vendor::Claude, &server);
    command
        .env("ANTHROPIC_API_KEY", &key)
        .env("OPENAI_API_KEY", &key)
        .args(["--trust", "autonomous", "x"]);
    let mut running = Running::start(&mut command);
    let sleep = format!("sleep {marker}");
    assert!(until(LIMIT, || with_marker(&sleep)
        .iter()
        .any(|process| process.name == "sleep")));
    let holders = || -> Vec<_> {
        let all = with_environment(&key).into_iter();
        all.map(|process| process.pid).collect()
    };
    assert_eq!(holders(), Vec::<i32>::new());
    let mut control = world.host("sleep");
    let mut control = Running::start(control.arg(marker).env("ANTHROPIC_API_KEY", &key));
    assert!(until(LIMIT, || holders() == [control.pid()]), "control");
    let _ = control.child.kill();
    control.finish(LIMIT);
    let _ = running.child.kill();
    running.finish(LIMIT);
}

once_test!(a_server_that_echoes_a_key_shows_it_nowhere);
/// In lists of models, by the command and in a chat.
fn a_server_that_echoes_a_key_shows_it_nowhere() {
    let world = world();
    let secret = "Sup3rS3cretValue-XyZ";
    let shown = |known: bool| {
        let listed = json!({"data": [{"id": format!("gpt-4o-{secret}"), "object": "model"}]});
        let server = ModelServer::start((0..8).map(|_| Reply::status(200, &listed)).collect());
        let dress = |command: &mut Command| {
            command.args(["--provider", "openai-chat", "--base-url", &server.url()]);
            if known {
                command.env("OPENAI_API_KEY", secret);
            }
        };
        let mut models = world.program("lazaret");
        dress(models.arg("models"));
        let models = run(&mut models, LIMIT).success();
        let mut chat = world.lazaret("chat");
        dress(chat.args(["--model", "x"]));
        let mut terminal = Terminal::start(&mut chat, 30, 100);
        terminal.expect("> ", LIMIT);
        terminal.send("/model\n");
        terminal.expect("gpt-4o-", LIMIT);
        terminal.expect("> ", LIMIT);
        terminal.send("\x04");
        terminal.finish(LIMIT);
        [models, terminal.screen()].map(|text| text.contains(secret))
    };
    assert_eq!(shown(false), [true; 2], "control");
    assert_eq!(shown(true), [false; 2]);
}

once_test!(models_are_listed);
fn models_are_listed() {
    let world = world();
    let listed = json!({"models": [
        {"model": "big", "details": {"parameter_size": "70B"}},
        {"model": "nomic-embed", "details": {"parameter_size": "137M"}},
    ]});
    let shown = |capabilities: &[&str], size: &str| json!({"capabilities": capabilities, "details": {"parameter_size": size}, "model_info": {"x.context_length": 4096}});
    let replies = [
        listed,
        shown(&["completion", "tools"], "70B"),
        shown(&["embedding"], "137M"),
    ];
    let server = ModelServer::start(
        replies
            .iter()
            .map(|body| Reply::status(200, body))
            .collect(),
    );
    let mut command = world.program("lazaret");
    command.args([
        "models",
        "--provider",
        "ollama",
        "--json",
        "--base-url",
        &server.url(),
    ]);
    let models: serde_json::Value =
        serde_json::from_str(&run(&mut command, LIMIT).success()).unwrap();
    let want = json!({"id": "big", "supports_tools": true, "chat": true, "context_window": 4096, "size_b": 70.0, "price_class": "local"});
    assert_eq!((&models[0], &models[1]["chat"]), (&want, &json!(false)));
    let server = ModelServer::start(vec![Reply::status(
        401,
        &json!({"error": {"message": "no"}}),
    )]);
    let mut command = world.program("lazaret");
    command.args([
        "models",
        "--provider",
        "openai",
        "--base-url",
        &server.url(),
    ]);
    let finished = run(&mut command, LIMIT);
    finished.expect(1);
    assert!(
        finished.errors().contains("auth_error"),
        "{}",
        finished.errors()
    );
}
