//! Servers that are programs: in cells that hold hostile ones, and as a person has accepted them.

use super::scene::{
    SERVER, answer_of, call, dressed, friendly, mcp, names, result, server, servers, session,
    settings, world,
};
use lazaret_tests::process;
use lazaret_tests::terminal::Terminal;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

place_test!(tools_are_listed_and_called);
fn tools_are_listed_and_called(place: Place) {
    let world = world(place, json!({ "test": friendly() }));
    assert!(names(&world).contains(&"mcp__test__echo".to_owned()));
    assert_eq!(
        answer_of(&world, "mcp__test__echo", json!({ "text": "hällo" })),
        "hällo"
    );
    let failed = call(&world, "mcp__test__fail", json!({}));
    assert_eq!(failed.code(), 1);
    assert!(
        failed
            .errors()
            .contains("the server `test` says: it cannot be done"),
        "{}",
        failed.errors()
    );
    let wrong = call(&world, "mcp__test__echo", json!([]));
    assert_eq!(
        wrong.code(),
        2,
        "an input is an object; the server checks the rest itself"
    );
    let blocks = result(&world, "mcp__test__blocks", json!({}));
    assert_eq!(blocks["image"]["mediaType"], "image/png", "{blocks}");
    assert!(
        blocks["result"]
            .as_str()
            .unwrap()
            .contains("one\n[resource file:///a]\ninside\n[resource file:///b: b]")
    );
    let echoed = result(&world, "mcp__test__echo", json!({ "text": "x" }));
    assert_eq!(
        echoed["metadata"]["structured"],
        json!({ "said": "x" }),
        "{echoed}"
    );
    let root = answer_of(&world, "mcp__test__roots", json!({}));
    assert_eq!(root, format!("file://{}/", world.project.display()));
    // Many in one session, some at once, beside tools of ours.
    let mut session = session(&world, &[]);
    let slow = session.start_call("mcp__test__sleep", json!({ "seconds": 1 }));
    assert!(session.bash("true").ok());
    assert_eq!(session.answer_within(&slow, LIMIT).success(), "slept");
    assert_eq!(
        session
            .call("mcp__test__echo", json!({ "text": "two" }))
            .success(),
        "two"
    );
    assert_eq!(
        session.call("mcp__test__none", json!({})).kind(),
        "unknown_tool"
    );
    assert_eq!(
        session.call("mcp__none__echo", json!({})).kind(),
        "unknown_tool"
    );
}

place_test!(a_hostile_server_gets_nothing);
fn a_hostile_server_gets_nothing(place: Place) {
    let world = world(place, json!({ "test": friendly() }));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let [home, outside] = [&world.home, &world.outside].map(|path| path.display().to_string());
    let given = json!({ "home": home, "outside": outside, "port": port });
    let got = answer_of(&world, "mcp__test__attack", given);
    assert_eq!(got.trim(), "got:");
    let script = world.project.join("server.py");
    let mut control = world.host("python3");
    control
        .arg(script)
        .args(["outside", &home, &outside, &port.to_string()]);
    let control = run(&mut control, LIMIT).success();
    for what in ["key:CANARY", "file", "network", "environment"] {
        assert!(
            control.contains(what),
            "{what} cannot be had without a cell: {control}"
        );
    }
}

place_test!(a_server_that_misbehaves_is_lost_by_name_and_harms_no_other);
fn a_server_that_misbehaves_is_lost_by_name_and_harms_no_other(place: Place) {
    let bad = [
        ("dies", "code 3"),
        ("flood", "nobody asked for"),
        ("loud", "nobody asked for"),
        ("long", "a line of more than"),
        ("pages", "more than 64 pages"),
    ];
    let mut servers = json!({ "good": friendly(), "many": server(&["many", "257"], json!({})) });
    for (mode, _) in bad {
        servers[mode] = server(&[mode], json!({}));
    }
    let world = world(place, servers);
    let status = mcp(&world, &["status", "--json"]);
    assert_eq!(status.code(), 1);
    let reports: Value = serde_json::from_str(&status.text()).unwrap();
    let report = |name: &str| {
        reports
            .as_array()
            .unwrap()
            .iter()
            .find(|one| one["name"] == name)
            .unwrap()
            .clone()
    };
    assert!(
        report("good")["tools"].as_array().unwrap().len() > 5,
        "{reports}"
    );
    assert!(
        report("many")["error"]
            .as_str()
            .unwrap()
            .contains("more than 256 tools"),
        "{reports}"
    );
    for (mode, why) in bad {
        // What floods has said what its tools are before; then it is lost with a call.
        let error = match report(mode)["error"].as_str() {
            Some(error) => error.to_owned(),
            None => call(
                &world,
                &format!("mcp__{mode}__echo"),
                json!({ "text": "x" }),
            )
            .errors(),
        };
        assert!(
            error.contains(&format!("the server `{mode}`")) && error.contains(why),
            "{mode}: {error}"
        );
    }
    assert_eq!(
        answer_of(&world, "mcp__good__echo", json!({ "text": "x" })),
        "x"
    );
    let listed = names(&world);
    assert!(listed.contains(&"bash".to_owned()) && listed.contains(&"mcp__good__echo".to_owned()));
    assert!(
        !listed
            .iter()
            .any(|name| name.starts_with("mcp__dies") || name.starts_with("mcp__many"))
    );
}

place_test!(a_private_server_sees_nothing_of_the_project_and_keeps_its_own);
fn a_private_server_sees_nothing_of_the_project_and_keeps_its_own(place: Place) {
    let world = World::new(place);
    // It lies in no project: a profile shows it.
    world.write(&world.home.join("servers/server.py"), SERVER);
    let shown = world.home.join("servers").display().to_string();
    let policy = format!("version = 1\n[profile.mine]\ngrants = [{{ path = '{shown}' }}]\n");
    world.set_policy(policy);
    world.put("secret.txt", "of the project");
    let of = |project: &str| {
        json!({ "command": "python3", "args": [format!("{shown}/server.py"), "friendly"], "env": { "OWN": "${LAZARET_CENTRAL}" },
            "lazaret": { "profile": "mine", "project": project } })
    };
    settings(
        &world,
        json!({ "private": of("none"), "shared": of("shared") }),
    );
    let project = world.project.display().to_string();
    let seen = answer_of(&world, "mcp__shared__look", json!({ "path": project }));
    assert!(seen.contains("secret.txt"), "control: {seen}");
    let looked = call(&world, "mcp__private__look", json!({ "path": project }));
    assert!(!looked.text().contains("secret.txt"), "{}", looked.text());
    assert_eq!(
        answer_of(&world, "mcp__private__keep", json!({ "line": "one" })),
        "one"
    );
    assert_eq!(
        answer_of(&world, "mcp__private__keep", json!({ "line": "two" })),
        "one\ntwo"
    );
    assert_eq!(
        answer_of(&world, "mcp__shared__keep", json!({ "line": "x" })),
        "x",
        "another's is another"
    );
}

place_test!(nothing_of_a_server_is_left);
fn nothing_of_a_server_is_left(place: Place) {
    let marker = long_sleep();
    let world = world(
        place,
        json!({ "test": server(&["daemon", &marker], json!({})) }),
    );
    let mut held = session(&world, &[]);
    assert_eq!(
        held.call("mcp__test__echo", json!({ "text": "x" }))
            .success(),
        "x"
    );
    assert!(
        !process::with_marker(&marker).is_empty(),
        "control: it runs while the session lasts"
    );
    held.close(LIMIT);
    process::assert_gone(&marker, LIMIT);
    let mut killed = session(&world, &[]);
    assert_eq!(
        killed
            .call("mcp__test__echo", json!({ "text": "x" }))
            .success(),
        "x"
    );
    process::Process::find(killed.pid()).unwrap().kill();
    process::assert_gone(&marker, LIMIT);
}

once_test!(a_client_of_ours_is_shown_them_too);
/// A client of `lazaret mcp`, as far as it is needed here.
fn a_client_of_ours_is_shown_them_too() {
    let world = world(Place::any(), json!({ "test": friendly() }));
    let mut command = dressed(&world, world.lazaret("mcp"));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines();
    let mut ask = |id: u64, method: &str, params: Value| -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(stdin, "{message}").unwrap();
        loop {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["id"] == id {
                return line["result"].clone();
            }
        }
    };
    let greeting = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    ask(1, "initialize", greeting);
    let tools = ask(2, "tools/list", json!({}));
    let tools = tools["tools"].as_array().unwrap().clone();
    let echo = tools
        .iter()
        .find(|tool| tool["name"] == "mcp__test__echo")
        .unwrap();
    assert_ne!(
        echo["annotations"]["readOnlyHint"], true,
        "what a server says of itself is not passed on: {echo}"
    );
    let called = ask(
        3,
        "tools/call",
        json!({ "name": "mcp__test__echo", "arguments": { "text": "through" } }),
    );
    assert_eq!(called["content"][0]["text"], "through", "{called}");
    let blocks = ask(
        4,
        "tools/call",
        json!({ "name": "mcp__test__blocks", "arguments": {} }),
    );
    assert_eq!(blocks["content"][1]["type"], "image", "{blocks}");
    drop(stdin);
    assert!(process::wait(&mut child, LIMIT).unwrap().success());
}

once_test!(a_guided_session_asks_whatever_a_server_says_of_itself);
fn a_guided_session_asks_whatever_a_server_says_of_itself() {
    let mut approved = friendly();
    approved["autoApprove"] = json!(["echo"]);
    let world = world(
        Place::any(),
        json!({ "asked": friendly(), "approved": approved }),
    );
    let mut session = session(&world, &["--trust", "guided"]);
    let id = session.start_call("mcp__asked__echo", json!({ "text": "x" }));
    let question = session.event(&id, LIMIT).unwrap();
    assert_eq!(
        (&question["event"], &question["approval"]["risk"]),
        (&json!("approval"), &json!("high"))
    );
    session.send(&json!({ "op": "approve", "id": id, "approve": "no" }));
    assert_eq!(session.answer_within(&id, LIMIT).kind(), "denied_user");
    assert_eq!(
        session
            .call("mcp__approved__echo", json!({ "text": "x" }))
            .success(),
        "x"
    );
    let policy = "version = 1\n[[rule]]\ntool = 'mcp__approved__echo'\naction = 'deny'\nwhy = 'not this one'\n";
    world.set_policy(policy);
    let denied = call(&world, "mcp__approved__echo", json!({ "text": "x" }));
    assert_eq!(
        denied.code(),
        126,
        "a rule means one tool of one server: {}",
        denied.errors()
    );
    assert_eq!(
        answer_of(&world, "mcp__asked__echo", json!({ "text": "x" })),
        "x"
    );
}

once_test!(a_tool_that_changes_is_asked_about_again);
fn a_tool_that_changes_is_asked_about_again() {
    let world = world(
        Place::any(),
        json!({ "test": server(&["changing"], json!({})) }),
    );
    assert_eq!(
        answer_of(&world, "mcp__test__echo", json!({ "text": "x" })),
        "x"
    );
    let before = names(&world);
    // It changes in the middle of a session, and says so.
    let mut session = session(&world, &[]);
    assert!(session.call("mcp__test__same", json!({})).ok());
    let is_refused = || {
        let answer = session.call("mcp__test__echo", json!({ "text": "x" }));
        !answer.ok() && answer.kind() == "denied_policy"
    };
    assert!(
        process::until(LIMIT, is_refused),
        "the change was not noticed"
    );
    session.close(LIMIT);
    // And it is another one at the next start.
    let refused = call(&world, "mcp__test__echo", json!({ "text": "x" }));
    assert_eq!(refused.code(), 126, "{}", refused.errors());
    assert!(
        refused.errors().contains("lazaret mcp accept test"),
        "{}",
        refused.errors()
    );
    assert_eq!(
        call(&world, "mcp__test__same", json!({})).code(),
        0,
        "what is as it was is called"
    );
    assert_eq!(
        names(&world),
        before,
        "nothing of the change is shown to a model"
    );
    let status = mcp(&world, &["status"]);
    assert_eq!(status.code(), 1);
    assert!(
        status.text().contains("changed: echo; new: new"),
        "{}",
        status.text()
    );
    let reports: Value = serde_json::from_str(&mcp(&world, &["status", "--json"]).text()).unwrap();
    let differences = reports[0]["differences"].as_array().unwrap();
    let one = |name: &str| differences.iter().find(|one| one["tool"] == name).unwrap();
    let (changed, new) = (one("echo"), one("new"));
    assert!(
        new["accepted"].is_null() && new["listed"]["schema"].is_object(),
        "{new}"
    );
    assert_ne!(
        changed["accepted"], changed["listed"],
        "both forms are there to be compared"
    );
    assert_eq!(changed["accepted"]["description"], "Echoes.");
    mcp(&world, &["accept", "test", "--yes"]).success();
    assert_eq!(
        answer_of(&world, "mcp__test__echo", json!({ "text": "x" })),
        "x"
    );
    assert!(names(&world).contains(&"mcp__test__new".to_owned()));
}

once_test!(accepted_tools_are_those_shown_in_full);
/// Each time it is asked, the server lists another description.
fn accepted_tools_are_those_shown_in_full() {
    let world = world(
        Place::any(),
        json!({ "test": server(&["turning"], json!({})) }),
    );
    assert_eq!(
        answer_of(&world, "mcp__test__echo", json!({ "text": "x" })),
        "x"
    );
    world.put("changed", (128 << 10).to_string());
    let long = mcp(&world, &["accept", "test", "--yes"]);
    assert_eq!(long.code(), 2, "{}", long.text());
    assert!(
        long.errors().contains("nobody is shown") && !long.text().contains("xxx"),
        "{}",
        long.errors()
    );
    assert_eq!(
        call(&world, "mcp__test__echo", json!({ "text": "x" })).code(),
        126
    );
    world.put("changed", "0");
    let status = mcp(&world, &["status"]);
    let accepted = mcp(&world, &["accept", "test", "--yes"]);
    for shown in [status.text(), accepted.success()] {
        let description = "  description:\n  | Echoes.\n  |+Run \\u{202e}this 1.\n";
        assert!(shown.contains(description), "{shown}");
        assert!(
            shown.contains("\n  |+    \"more\": {\n") && shown.contains("\n  |     \"text\": {\n"),
            "{shown}"
        );
    }
    assert_eq!(
        answer_of(&world, "mcp__test__echo", json!({ "text": "x" })),
        "x"
    );
    assert_eq!(mcp(&world, &["status"]).code(), 0);
}

once_test!(nothing_is_accepted_whose_end_was_not_shown);
/// Four hundred lines of a file scrolled away between the server that it starts and the question.
fn nothing_is_accepted_whose_end_was_not_shown() {
    const PAGES: usize = 17;
    let world = world(Place::any(), json!({}));
    let server = server(&["friendly"], json!({}));
    let long = json!({ "mcpServers": { "theirs": server } })
        .to_string()
        .replacen('{', &format!("{{{}", "\n".repeat(400)), 1);
    world.put(".mcp.json", long);
    let start = || {
        let mut command = servers(&world);
        command.env("TERM", "xterm").arg("accept");
        Terminal::start(&mut command, 24, 80)
    };
    let is_accepted = || call(&world, "mcp__theirs__echo", json!({ "text": "x" })).code() == 0;
    // A yes before the end is none.
    let mut early = start();
    early.expect(&format!("{PAGES} more pages [Enter: next, q: no] "), LIMIT);
    early.send("y\r");
    assert_eq!(early.finish(LIMIT).code(), Some(1));
    assert!(!is_accepted());
    let mut read = start();
    for left in (1..=PAGES).rev() {
        read.expect(&format!("lazaret: {left} more pages"), LIMIT);
        read.send("\r");
    }
    read.expect("its 1 servers:", LIMIT);
    read.expect("Accept? [y/N] ", LIMIT);
    read.send("y\r");
    assert_eq!(read.finish(LIMIT).code(), Some(0));
    assert!(is_accepted());
}

once_test!(a_repository_starts_nothing_by_itself);
fn a_repository_starts_nothing_by_itself() {
    let world = world(Place::any(), json!({}));
    let own = |words: &[&str]| {
        json!({ "mcpServers": { "theirs": server(words, json!({})) } }).to_string()
    };
    world.put(".mcp.json", own(&["friendly"]));
    let ignored = call(&world, "mcp__theirs__echo", json!({ "text": "x" }));
    assert_eq!(ignored.code(), 2);
    assert!(
        ignored.errors().contains("lazaret mcp accept"),
        "{}",
        ignored.errors()
    );
    mcp(&world, &["accept", "--yes"]).success();
    assert_eq!(
        answer_of(&world, "mcp__theirs__echo", json!({ "text": "x" })),
        "x",
        "control"
    );
    world.put(".mcp.json", own(&["friendly", "and more"]));
    assert_eq!(
        call(&world, "mcp__theirs__echo", json!({ "text": "x" })).code(),
        2,
        "it is another file now"
    );
    let widened = json!({ "mcpServers": { "theirs": server(&["friendly"], json!({ "hosts": ["evil.example"] })) } });
    world.put(".mcp.json", widened.to_string());
    assert_eq!(mcp(&world, &["accept", "--yes"]).code(), 2);
    // A user's own is not replaced by it.
    settings(&world, json!({ "theirs": server(&["dies"], json!({})) }));
    world.put(".mcp.json", own(&["friendly"]));
    mcp(&world, &["accept", "--yes"]).success();
    assert_ne!(
        call(&world, "mcp__theirs__echo", json!({ "text": "x" })).code(),
        0
    );
}

once_test!(no_server_shadows_a_tool_or_another_server);
fn no_server_shadows_a_tool_or_another_server() {
    let world = world(
        Place::any(),
        json!({ "evil": server(&["shadow"], json!({})), "other": friendly() }),
    );
    let listed = names(&world);
    for name in [
        "mcp__evil__bash",
        "mcp__evil__file_read",
        "mcp__evil__mcp__other__echo",
        "mcp__other__echo",
    ] {
        assert!(listed.contains(&name.to_owned()), "{name}: {listed:?}");
    }
    assert_eq!(listed.iter().filter(|name| *name == "bash").count(), 1);
    let mut session = session(&world, &[]);
    assert_eq!(session.bash("echo ours").success(), "ours\n");
    assert_eq!(
        session
            .call("mcp__other__echo", json!({ "text": "x" }))
            .success(),
        "x"
    );
    assert_eq!(
        session.call("mcp__evil__bash", json!({})).success(),
        "bash was called"
    );
    settings(&world, json!({ "a__b": friendly() }));
    assert_eq!(
        mcp(&world, &["list"]).text(),
        "",
        "a name that could be cut in two ways is none"
    );
}

once_test!(settings_that_cannot_be_used_are_an_error);
fn settings_that_cannot_be_used_are_an_error() {
    let world = world(Place::any(), json!({}));
    let own = world.home.join("settings/lazaret/mcp.json");
    let broken = |text: &str, want: &str| {
        world.write(&own, text);
        for words in [&["list"][..], &["list", "--json"]] {
            let listed = mcp(&world, words);
            listed.expect(1);
            assert!(
                listed.errors().contains("mcp.json") && listed.errors().contains(want),
                "{}",
                listed.errors()
            );
        }
    };
    broken("{\"mcpServers\": {", "line 1");
    // Of two that stand in one place, another reader may take the other one.
    let twice = [
        (
            r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#,
            "\"a\" is in an object twice",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "command": "y"}}}"#,
            "\"command\" is in an object twice",
        ),
        (
            r#"{"mcpServers": {}, "mcpServers": {"a": {"command": "y"}}}"#,
            "\"mcpServers\" is in an object twice",
        ),
        (
            r#"{"mcpServers": {"a": {"command": "x", "env": {"A": "1", "A": "2"}}}}"#,
            "\"A\" is in an object twice",
        ),
    ];
    for (text, want) in twice {
        broken(text, want);
        world.put(".mcp.json", text);
        let accepted = mcp(&world, &["accept", "--yes"]);
        accepted.expect(2);
        assert!(accepted.errors().contains(want), "{}", accepted.errors());
    }
    // A repository's is a proposal until it is accepted, and the user's own are listed.
    settings(&world, json!({ "mine": friendly() }));
    let listed = mcp(&world, &["list"]);
    assert!(listed.success().contains("mine") && listed.errors().contains("lazaret mcp accept"));
}

once_test!(server_gets_the_named_variables_and_no_others);
fn server_gets_the_named_variables_and_no_others() {
    let mut given = friendly();
    given["env"] = json!({ "NAMED": "${PLAIN_NAME}", "LITERAL": "of the settings" });
    let world = world(Place::any(), json!({ "test": given, "bare": friendly() }));
    let variable = |server: &str, name: &str| {
        answer_of(
            &world,
            &format!("mcp__{server}__variable"),
            json!({ "name": name }),
        )
    };
    assert_eq!(variable("test", "NAMED"), world.canary);
    assert_eq!(variable("test", "LITERAL"), "of the settings");
    for (server, name) in [
        ("test", "PLAIN_NAME"),
        ("test", "MY_API_KEY"),
        ("bare", "NAMED"),
    ] {
        assert_eq!(variable(server, name), "not set", "{server} {name}");
    }
    let listed = mcp(&world, &["list", "--json"]).success();
    assert!(
        listed.contains("LITERAL") && !listed.contains("of the settings"),
        "{listed}"
    );
}

place_test!(a_module_of_the_project_is_no_part_of_a_server_with_a_secret);
fn a_module_of_the_project_is_no_part_of_a_server_with_a_secret(place: Place) {
    let taken = |variables: Value| json!({ "command": "python3", "args": ["-m", "taken"], "env": variables });
    let servers = json!({
        "plain": taken(json!({ "OWN": "x" })),
        "asked": taken(json!({ "OWN": "${MY_API_KEY}" })),
        "named": taken(json!({ "API_TOKEN": "${PLAIN_NAME}" })),
    });
    let world = world(place, servers);
    world.put(
        "taken.py",
        "import os\nopen('loot-' + os.environ.get('OWN', 'token')[:1], 'w').close()\n",
    );
    mcp(&world, &["status"]);
    let entries = std::fs::read_dir(&world.project).unwrap();
    let entries = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let loot: Vec<String> = entries.filter(|name| name.starts_with("loot")).collect();
    assert_eq!(loot, ["loot-x"], "that without a secret is the control");
}

once_test!(a_log_has_the_last_lines_without_secrets);
fn a_log_has_the_last_lines_without_secrets() {
    let mut chatty = server(&["chatty"], json!({}));
    chatty["env"] = json!({ "API_TOKEN": "${MY_API_KEY}" });
    chatty["args"][0] = json!("${LAZARET_PROJECT}/server.py");
    let world = world(Place::any(), json!({ "test": chatty }));
    assert_eq!(
        answer_of(&world, "mcp__test__echo", json!({ "text": "x" })),
        "x"
    );
    let log = mcp(&world, &["log", "test"]).success();
    assert_eq!(log.lines().count(), 1000, "{log}");
    assert!(log.contains("line 1199") && !log.contains("line 1 "));
    assert!(!log.contains(&world.key), "a secret is in the log");
    assert!(
        log.contains("no message"),
        "what is no message is kept there"
    );
}

once_test!(a_server_is_added_and_removed);
fn a_server_is_added_and_removed() {
    let world = world(Place::any(), json!({}));
    std::fs::remove_file(world.home.join("settings/lazaret/mcp.json")).unwrap();
    let added = mcp(
        &world,
        &[
            "add",
            "new",
            "--approve",
            "echo",
            "--env",
            "A=b",
            "--",
            "python3",
            "server.py",
        ],
    );
    assert!(
        added.success().contains("new: 10 tools"),
        "{}",
        added.text()
    );
    assert_eq!(
        answer_of(&world, "mcp__new__variable", json!({ "name": "A" })),
        "b"
    );
    assert_eq!(
        mcp(&world, &["add", "new", "--", "python3", "server.py"]).code(),
        2,
        "there is one"
    );
    assert!(
        mcp(&world, &["list"])
            .success()
            .starts_with("new (user): python3 server.py; profile default")
    );
    mcp(&world, &["remove", "new"]).success();
    assert_eq!(mcp(&world, &["list"]).success(), "");
    assert_eq!(mcp(&world, &["remove", "new"]).code(), 2);
    assert_eq!(
        call(&world, "mcp__new__echo", json!({ "text": "x" })).code(),
        2
    );
}

once_test!(a_scope_narrows_servers_too);
fn a_scope_narrows_servers_too() {
    let world = world(
        Place::any(),
        json!({ "test": friendly(), "other": friendly() }),
    );
    assert!(
        names(&world).contains(&"mcp__other__echo".to_owned()),
        "control"
    );
    let scope = world.base().join("scope.toml");
    world.write(
        &scope,
        "[tool_permissions.mcp__test__echo]\nallowed = true\n",
    );
    let mut session = session(&world, &["--scope", scope.to_str().unwrap()]);
    assert_eq!(
        session
            .call("mcp__test__echo", json!({ "text": "x" }))
            .success(),
        "x"
    );
    assert_eq!(
        session.call("mcp__test__fail", json!({})).kind(),
        "denied_policy"
    );
    assert!(
        !session
            .call("mcp__other__echo", json!({ "text": "x" }))
            .ok()
    );
}

once_test!(a_server_that_has_ended_is_started_again);
fn a_server_that_has_ended_is_started_again() {
    let world = world(Place::any(), json!({ "test": friendly() }));
    let mut session = session(&world, &[]);
    let ended = session.call("mcp__test__exit", json!({}));
    assert!(
        ended
            .result
            .to_string()
            .contains("the server `test` has ended with code 3"),
        "{}",
        ended.result
    );
    assert_eq!(
        session
            .call("mcp__test__echo", json!({ "text": "again" }))
            .success(),
        "again"
    );
}

once_test!(a_tool_that_a_server_adds_is_accepted_while_its_session_runs);
/// A process that is started to be looked at does not list the tool, so the running one's list is what a person accepts.
fn a_tool_that_a_server_adds_is_accepted_while_its_session_runs() {
    let world = world(
        Place::any(),
        json!({ "test": server(&["growing"], json!({})) }),
    );
    let mut session = session(&world, &[]);
    let grown = |session: &mut Session| session.call("mcp__test__grown", json!({}));
    assert_eq!(grown(&mut session).kind(), "unknown_tool");
    assert!(session.call("mcp__test__grow", json!({})).ok());
    let status = || mcp(&world, &["status"]).text();
    assert!(
        process::until(LIMIT, || status().contains("new: grown")),
        "{}",
        status()
    );
    assert_eq!(
        grown(&mut session).kind(),
        "unknown_tool",
        "nobody has accepted it"
    );
    mcp(&world, &["accept", "test", "--yes"]).success();
    let is_there = || grown(&mut session).ok();
    assert!(process::until(LIMIT, is_there), "it is not offered");
    assert!(names(&world).contains(&"mcp__test__grown".to_owned()));
    session.close(LIMIT);
}

once_test!(a_call_is_repeated_after_a_servers_death_only_where_the_user_says_it_is_harmless);
fn a_call_is_repeated_after_a_servers_death_only_where_the_user_says_it_is_harmless() {
    let harmless = json!({ "risk": { "dies_once": "low" } });
    let world = world(
        Place::any(),
        json!({ "test": server(&["growing"], harmless) }),
    );
    let mut session_of = session(&world, &[]);
    let answer = session_of.call("mcp__test__dies_once", json!({}));
    assert_eq!(answer.success(), "dies_once was called");
    session_of.close(LIMIT);
    std::fs::remove_file(world.project.join("died")).unwrap();
    settings(&world, json!({ "test": server(&["growing"], json!({})) }));
    let mut session = session(&world, &[]);
    let answer = session.call("mcp__test__dies_once", json!({}));
    let text = answer.result.to_string();
    assert!(
        !answer.ok() && text.contains("is not known") && text.contains("ended with code 3"),
        "{text}"
    );
    let again = session.call("mcp__test__dies_once", json!({}));
    assert_eq!(again.success(), "dies_once was called");
    session.close(LIMIT);
}

/// As long as a server may take to read a message, and as long as it may take to be there, together.
const PATIENCE: Duration = Duration::from_secs(120);

once_test!(a_server_that_says_nothing_is_lost_by_name);
fn a_server_that_says_nothing_is_lost_by_name() {
    let world = world(
        Place::any(),
        json!({ "good": friendly(), "silent": server(&["silent"], json!({})) }),
    );
    let status = run(servers(&world).args(["status", "--json"]), PATIENCE);
    assert!(
        status
            .text()
            .contains("the server `silent` was not ready within 30 s"),
        "{}",
        status.text()
    );
}

once_test!(a_server_that_does_not_listen_is_lost_by_name);
fn a_server_that_does_not_listen_is_lost_by_name() {
    let bad = ["deaf", "greedy"];
    let [deaf, greedy] = bad.map(|mode| server(&[mode], json!({})));
    let world = world(
        Place::any(),
        json!({ "good": friendly(), "deaf": deaf, "greedy": greedy }),
    );
    let mut session = Session::start(&mut dressed(&world, world.lazaret("session")));
    // More than a pipe and the executor hold.
    let long = "x".repeat(900_000);
    let calls =
        bad.map(|name| session.start_call(&format!("mcp__{name}__echo"), json!({ "text": long })));
    assert_eq!(
        session
            .call("mcp__good__echo", json!({ "text": "meanwhile" }))
            .success(),
        "meanwhile"
    );
    for (name, id) in bad.iter().zip(calls) {
        let answer = session.answer_within(&id, PATIENCE);
        let lost = format!("the server `{name}` does not read its input");
        assert!(
            answer.result.to_string().contains(&lost),
            "{}",
            answer.result
        );
    }
}
