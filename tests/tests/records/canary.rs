//! A known secret is in nothing that a model is shown and in nothing that is written down.

use lazaret_tests::process::{contains, until};
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Output and records of one run of everything that could show the key.
struct Shown {
    /// Where the key is found.
    places: Vec<String>,
    /// How many places were looked at.
    looked: usize,
}

impl Shown {
    fn search(&mut self, place: impl Into<String>, bytes: &[u8], world: &World) {
        self.looked += 1;
        // The middle of the key, too: no half of it.
        if contains(bytes, world.key.as_bytes()) || contains(bytes, world.canary.as_bytes()) {
            self.places.push(place.into());
        }
    }

    fn look_below(&mut self, folder: &Path, world: &World) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.look_below(&path, world);
            } else {
                self.search(
                    path.display().to_string(),
                    &fs::read(&path).unwrap_or_default(),
                    world,
                );
            }
            self.search(
                format!("name {}", path.display()),
                path.as_os_str().as_encoded_bytes(),
                world,
            );
        }
    }
}

/// Has tools print the key in every way that shows it whole. `prepare` decides what Lazaret knows.
fn everything(world: &World, prepare: impl Fn(&mut Command)) -> Shown {
    let mut rendered = Shown {
        places: Vec::new(),
        looked: 0,
    };
    let key = &world.key;
    let (first, second) = key.split_at(key.len() / 2);
    world.put("leak.txt", format!("before\n{key}\nafter\n"));
    world.put(&format!("named-{key}"), "x");
    let letters: String = key
        .chars()
        .map(|c| format!("printf {c}; sleep 0.01; "))
        .collect();
    // The kept output ends in the middle of a key, and begins in the middle of one.
    let flood = format!("yes {key}{key} | tr -d '\\n' | head -c 300000");
    let calls = [
        ("bash", json!({"command": "cat leak.txt; cat leak.txt >&2"})),
        (
            "bash",
            json!({"command": format!("printf {first}; sleep 0.1; printf {second}")}),
        ),
        ("bash", json!({"command": letters})),
        ("bash", json!({"command": flood})),
        (
            "bash",
            json!({"command": format!("printf '\\xff'; cat leak.txt; {key}")}),
        ),
        ("bash", json!({"command": "ls; exit 1"})),
        ("file_read", json!({"path": "leak.txt"})),
        ("grep", json!({"pattern": "KEY"})),
        ("grep", json!({"pattern": format!("({key}")})),
        ("glob", json!({"pattern": "named*"})),
        ("file_list", json!({"path": "."})),
        ("file_read", json!({"path": format!("absent-{key}")})),
        ("file_read", json!({"path": format!(".env/{key}")})),
        ("file_read", json!({"path": format!("/{key}/{key}")})),
        (
            "file_edit",
            json!({"path": "leak.txt", "edits": [{"old": format!("not {key}"), "new": key}]}),
        ),
        (
            "file_write",
            json!({"path": format!("new-{key}"), "content": key}),
        ),
        (key.as_str(), json!({key: key})),
        ("bash", json!({key: key})),
        ("bash", json!({"command": 1, "timeout": key})),
    ];
    let mut command = world.lazaret("session");
    prepare(&mut command);
    let mut session = Session::start(&mut command);
    for (tool, input) in &calls {
        let answer = session.call(tool, input.clone());
        let stream = |name: &str| -> String {
            let of = |event: &&Value| event["stream"] == name;
            answer
                .events
                .iter()
                .filter(of)
                .filter_map(|event| event["chunk"].as_str())
                .collect()
        };
        rendered.search(
            format!("output of {tool} {input}"),
            stream("stdout").as_bytes(),
            world,
        );
        rendered.search(
            format!("errors of {tool} {input}"),
            stream("stderr").as_bytes(),
            world,
        );
        let text = |value: &Value| value.to_string().into_bytes();
        answer
            .events
            .iter()
            .for_each(|event| rendered.search(format!("an event of {tool}"), &text(event), world));
        rendered.search(
            format!("the result of {tool} {input}"),
            &text(&answer.result),
            world,
        );
    }
    session.send(&json!({"id": "odd", "tool": "bash", key: 1}));
    let odd = session.answer_within("odd", LIMIT);
    rendered.search(
        "the answer to a wrong line",
        odd.result.to_string().as_bytes(),
        world,
    );
    session.close(LIMIT);
    let mut command = world.lazaret("session");
    prepare(command.args(["--trust", "guided"]));
    let mut session = Session::start(&mut command);
    let id = session.start_call(
        "bash",
        json!({"command": format!("echo {key}"), "description": key}),
    );
    let question = session.event(&id, LIMIT).unwrap();
    rendered.search(
        "the question about a call",
        question.to_string().as_bytes(),
        world,
    );
    session.cancel(&id);
    session.answer_within(&id, LIMIT);
    session.close(LIMIT);
    for (tool, input) in &calls {
        for json in [false, true] {
            let mut command = world.lazaret_call(tool, input);
            if json {
                command.arg("--json");
            }
            prepare(&mut command);
            let finished = run(&mut command, LIMIT);
            rendered.search(
                format!("stdout of call {tool} {input}"),
                &finished.stdout,
                world,
            );
            rendered.search(
                format!("stderr of call {tool} {input}"),
                &finished.stderr,
                world,
            );
        }
    }
    let mut command = world.lazaret("run");
    prepare(command.args(["--json", "--", "cat", "leak.txt", key]));
    let finished = run(&mut command, LIMIT);
    rendered.search("stdout of run --json", &finished.stdout, world);
    rendered.search("stderr of run --json", &finished.stderr, world);
    rendered.look_below(&world.state, world);
    rendered
}

place_test!(a_known_secret_is_shown_and_recorded_nowhere, ordinary_only);
fn a_known_secret_is_shown_and_recorded_nowhere(place: Place) {
    let world = World::new(place);
    let rendered = everything(&world, |_| {});
    assert!(rendered.places.is_empty(), "{:#?}", rendered.places);
    // The control: a Lazaret that does not know the key shows and records it.
    let control = World::new(place);
    let found = everything(&control, |command| {
        command.env_remove("MY_API_KEY").env_remove("PLAIN_NAME");
    });
    let has = |part: &str| found.places.iter().any(|place| place.contains(part));
    for part in [
        "output of",
        "the question",
        "the result of",
        "stdout of call",
        "stderr of call",
        "runlog.jsonl",
        "audit-0",
    ] {
        assert!(
            has(part),
            "the control shows no key in {part}: {:#?}",
            found.places
        );
    }
    println!(
        "places looked at: {}, with the key: 0; without redaction: {} of {}",
        rendered.looked,
        found.places.len(),
        found.looked
    );
}

place_test!(
    no_page_of_a_text_shows_a_part_of_a_known_secret,
    ordinary_only
);
/// Pages of a log and a file that is too long begin and end in the middle of a key, or lie in it.
fn no_page_of_a_text_shows_a_part_of_a_known_secret(place: Place) {
    let parts = |known: bool| -> Vec<String> {
        let world = World::new(place);
        let key = world.key.clone();
        let has_part = |text: &str| {
            key.as_bytes()
                .windows(8)
                .any(|part| contains(text.as_bytes(), part))
        };
        let (before, behind) = ("x".repeat(100), "y".repeat(100));
        world.put("leak.txt", format!("{before}{key}{behind}"));
        let mut command = world.lazaret("session");
        if !known {
            command.env_remove("MY_API_KEY").env_remove("PLAIN_NAME");
        }
        let mut session = Session::start(&mut command);
        let mut found = Vec::new();
        let started = session.call(
            "bash",
            json!({"command": "cat leak.txt; cat", "background": true}),
        );
        let id = started.result["metadata"]["background"].clone();
        let all = json!({"id": id, "offset": 0, "bytes": 4096});
        let printed = || {
            session.call("background_log", all.clone()).result["metadata"]["total"]
                == 200 + key.len()
        };
        assert!(until(LIMIT, printed), "it prints");
        for bytes in [8, 12, 20, key.len() + 8] {
            for offset in 80..100 + key.len() {
                let page = session.call(
                    "background_log",
                    json!({"id": id, "offset": offset, "bytes": bytes}),
                );
                assert_eq!(page.result["metadata"]["next"], offset + bytes);
                if has_part(page.success()) {
                    found.push(format!("{bytes} bytes at {offset}"));
                }
            }
        }
        for shown in [8, key.len() / 2, key.len() - 1] {
            world.put(
                "long.txt",
                format!("{}{key}{behind}", "x".repeat((1 << 20) - shown)),
            );
            let read = session.call("file_read", json!({"path": "long.txt"}));
            // The note behind it names the file, whose folder has a part of the canary in its name.
            if has_part(read.success().split("[truncated").next().unwrap()) {
                found.push(format!("a file up to byte {shown}"));
            }
        }
        session.close(LIMIT);
        found
    };
    assert_eq!(parts(true), Vec::<String>::new());
    let control = parts(false);
    assert!(
        control.iter().any(|part| part.starts_with("a file")) && control.len() > 20,
        "{control:?}"
    );
}

once_test!(short_values_and_plain_names_are_left_alone);
fn short_values_and_plain_names_are_left_alone() {
    let world = World::new(lazaret_tests::Place::any());
    world.put("text", "1234567 12345678 /run/agent/socket");
    let mut command = world.lazaret_call("file_read", &json!({"path": "text"}));
    command.envs([
        ("A_TOKEN", "1234567"),
        ("PLAIN", "12345678"),
        ("SSH_AUTH_SOCK", "/run/agent/socket"),
    ]);
    assert_eq!(
        run(&mut command, LIMIT).success().trim_end(),
        "1234567 12345678 /run/agent/socket"
    );
    command.env("B_TOKEN", "12345678");
    assert_eq!(
        run(&mut command, LIMIT).success().trim_end(),
        "1234567 [redacted:B_TOKEN] /run/agent/socket"
    );
}

once_test!(a_variable_with_an_open_word_in_its_name_may_hold_a_secret);
fn a_variable_with_an_open_word_in_its_name_may_hold_a_secret() {
    let world = World::new(Place::any());
    for (name, shown) in [
        ("AUTHORIZATION", "[redacted:AUTHORIZATION]"),
        ("AUTHORIZATION_TOKEN", "[redacted:AUTHORIZATION_TOKEN]"),
        ("HTTP_AUTHORIZATION", "[redacted:HTTP_AUTHORIZATION]"),
        ("AUTHORITY_API_KEY", "[redacted:AUTHORITY_API_KEY]"),
        ("DB_PASS", "[redacted:DB_PASS]"),
        ("MYSQL_PWD", "[redacted:MYSQL_PWD]"),
        ("AUTHOR", "abcdef0123456789XYZ"),
        ("GIT_AUTHOR_NAME", "abcdef0123456789XYZ"),
    ] {
        let mut command =
            world.lazaret_call("bash", &json!({"command": "echo abcdef0123456789XYZ"}));
        command.env(name, "abcdef0123456789XYZ");
        assert_eq!(
            run(&mut command, LIMIT).success().trim_end(),
            shown,
            "{name}"
        );
    }
}

once_test!(a_secret_in_an_address_is_found_however_it_is_encoded);
fn a_secret_in_an_address_is_found_however_it_is_encoded() {
    let world = World::new(Place::any());
    for form in [
        "wJalrXUtnFEMI/K7MDENG%2BbPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI%2FK7MDENG+bPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI%2fK7MDENG%2bbPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI%252FK7MDENG%252BbPxRfiCYEXAMPLEKEY",
    ] {
        let print = format!("echo https://u:{form}@h/");
        let mut command = world.lazaret_call("bash", &json!({"command": print}));
        command.env(
            "AWS_SECRET_ACCESS_KEY",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        );
        let shown = run(&mut command, LIMIT).success();
        assert_eq!(
            shown.trim_end(),
            "https://u:[redacted:AWS_SECRET_ACCESS_KEY]@h/",
            "{form}"
        );
    }
}

once_test!(no_id_that_a_model_chose_shows_a_secret);
fn no_id_that_a_model_chose_shows_a_secret() {
    let world = World::new(Place::any());
    let secret = "Sup3rS3cretValue-XyZ";
    let call = json!({"id": secret, "name": "bash", "input": {"command": "true"}});
    let turns = json!({"turns": [{"text": "", "toolCalls": [call]}, {"text": "Done."}]});
    let path = world.home.join("script.json");
    world.write(&path, turns.to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--json", "--provider", "mock", "--script"])
        .arg(path)
        .arg("x");
    let control = run(&mut command, LIMIT).success();
    assert!(control.contains(secret), "the control: {control}");
    let shown = run(command.env("X_TOKEN", secret), LIMIT).success();
    assert!(
        !shown.contains(secret) && shown.contains("_redacted_X_TOKEN_"),
        "{shown}"
    );
}

once_test!(a_secret_in_the_name_of_a_tool_is_in_neither_record);
/// A tool of the client's own, and a server of the user's: both are called, and both have the secret as their name.
fn a_secret_in_the_name_of_a_tool_is_in_neither_record() {
    let secret = "Sup3rS3cretValue-XyZ";
    let recorded = |known: bool| {
        let mut world = World::new(Place::any());
        // The value that is searched for.
        world.canary = secret.to_owned();
        let server = json!({"command": "python3", "args": ["server.py", "friendly"]});
        let settings = json!({"mcpServers": {(secret): server}}).to_string();
        world.put("server.py", include_str!("../../fixtures/mcp_server.py"));
        world.write(&world.home.join("settings/lazaret/mcp.json"), settings);
        let mut command = world.configured("session");
        if known {
            command.env("X_TOKEN", secret);
        }
        let mut session = Session::start(&mut command);
        let tool = json!({"name": secret, "description": "d", "inputSchema": {"type": "object"}});
        session.send(&json!({"id": "r", "register": tool}));
        session.event("r", LIMIT).unwrap();
        let id = session.start_call(secret, json!({}));
        assert_eq!(session.event(&id, LIMIT).unwrap()["event"], "execute");
        session.send(&json!({"id": id, "result": "done"}));
        assert_eq!(session.answer_within(&id, LIMIT).success(), "done");
        let echo = format!("mcp__{secret}__echo");
        assert_eq!(session.call(&echo, json!({"text": "x"})).success(), "x");
        session.close(LIMIT);
        let mut shown = Shown {
            places: Vec::new(),
            looked: 0,
        };
        shown.look_below(&world.state.join("lazaret/audit"), &world);
        shown.look_below(&world.state.join("lazaret/runs"), &world);
        shown.places
    };
    let control = recorded(false);
    assert!(
        ["audit-000001", "runlog"]
            .iter()
            .all(|part| control.iter().any(|place| place.contains(part)))
    );
    assert_eq!(recorded(true), Vec::<String>::new());
}

place_test!(
    no_line_of_a_secret_of_several_is_in_a_diff_or_a_numbered_file,
    ordinary_only
);
/// A diff and a numbered read put something before each line of a secret, and may begin and end in the middle of one.
fn no_line_of_a_secret_of_several_is_in_a_diff_or_a_numbered_file(place: Place) {
    let lines: Vec<String> = (0..12)
        .map(|line| format!("{line:02}-{}", lazaret_tests::world::unique()))
        .collect();
    let key = lines.join("\n");
    // Before the key, in it, behind it, and instead of all of it.
    let edits = [
        ("before", "b"),
        (&lines[5][3..], "broken"),
        ("after", "a"),
        (&key, "gone"),
    ];
    let rendered = |known: bool| -> Vec<String> {
        let world = World::new(place);
        let mut command = world.lazaret("session");
        if known {
            command.env("MY_PRIVATE_KEY", &key);
        }
        let mut session = Session::start(&mut command);
        let mut found = Vec::new();
        let mut search = |what: &str, text: &str| {
            found.extend(
                lines
                    .iter()
                    .filter(|line| text.contains(*line))
                    .map(|line| format!("{what}: {line}")),
            );
        };
        for (old, new) in edits {
            world.put("leak.txt", format!("1\nbefore\nkey={key};\nafter\n2\n"));
            for input in [
                json!({"path": "leak.txt"}),
                json!({"path": "leak.txt", "offset": 4, "limit": 3}),
            ] {
                let mut input = input;
                input["numbered"] = true.into();
                let read = session.call("file_read", input);
                search("a numbered file", &read.result.to_string());
                // Every line keeps its number.
                let after = read.success().contains("    15\tafter");
                assert!(
                    after
                        || read
                            .success()
                            .contains("[10 lines remaining - use offset=7]"),
                    "{}",
                    read.result
                );
            }
            let edited = session.call(
                "file_edit",
                json!({"path": "leak.txt", "old": old, "new": new}),
            );
            let diff = edited.result["metadata"]["diff"].as_str().unwrap();
            assert_eq!(known, diff.contains("[redacted:MY_PRIVATE_KEY]"), "{diff}");
            assert!(diff.contains("\n+") && diff.contains("\n-"), "{diff}");
            search("the result", &edited.result.to_string());
        }
        session.close(LIMIT);
        let runs = fs::read_dir(world.state.join("lazaret/runs")).unwrap();
        for run in runs {
            let text = fs::read_to_string(run.unwrap().path().join("runlog.jsonl")).unwrap();
            // The request names it, the answer must not.
            text.lines()
                .filter(|line| line.contains("\"tool_result\""))
                .for_each(|line| search("the run log", line));
        }
        found
    };
    assert_eq!(rendered(true), Vec::<String>::new());
    let control = rendered(false);
    assert!(
        ["the result", "a numbered file", "the run log"]
            .iter()
            .all(|what| control.iter().any(|one| one.starts_with(what))),
        "{control:?}"
    );
}
