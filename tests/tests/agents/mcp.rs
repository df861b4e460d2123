//! `lazaret mcp` as a client of the protocol sees it.

use crate::guards::{BLOCKED, GUARD, dressed, guarded};
use crate::large_writes::largest;
use crate::servers::scene;
use lazaret_tests::process::{self, assert_gone, until};
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Notifications that came before they were asked for.
    notes: VecDeque<Value>,
    /// The answer to an elicitation, and those that came.
    answer: Value,
    elicited: Vec<Value>,
    roots: Vec<String>,
    next: u64,
}

impl Client {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "bad": line }));
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let answer = json!({ "action": "cancel" });
        let (notes, elicited, roots) = Default::default();
        Self {
            child,
            stdin,
            lines,
            notes,
            answer,
            elicited,
            roots,
            next: 0,
        }
    }

    /// A client that has been greeted, with these capabilities.
    fn open(command: &mut Command, capabilities: Value) -> Self {
        let mut client = Self::start(command);
        client.greet("2025-11-25", capabilities);
        client
    }

    fn greet(&mut self, version: &str, capabilities: Value) -> Value {
        let result = self.request(
            "initialize",
            json!({ "protocolVersion": version, "capabilities": capabilities,
                "clientInfo": { "name": "test", "version": "1" } }),
        );
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        result["result"].clone()
    }

    fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string());
    }

    fn send_line(&mut self, line: &str) {
        self.stdin
            .as_mut()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    fn start_request(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.send(
            &json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }),
        );
        self.next
    }

    /// The answer to a request; the server's own requests are answered meanwhile.
    fn answer_to(&mut self, id: u64) -> Value {
        loop {
            let message = self.lines.recv_timeout(LIMIT).expect("the server answers");
            match message["method"].as_str() {
                None if message["id"] == id => return message,
                None => panic!("an answer to nothing: {message}"),
                Some("roots/list") => {
                    let roots: Vec<_> =
                        self.roots.iter().map(|uri| json!({ "uri": uri })).collect();
                    self.send(
                        &json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "roots": roots } }),
                    );
                }
                Some("elicitation/create") => {
                    self.elicited.push(message["params"].clone());
                    let answer = self.answer.clone();
                    self.send(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer }));
                }
                Some(_) => self.notes.push_back(message),
            }
        }
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_request(method, params);
        self.answer_to(id)
    }

    fn call(&mut self, tool: &str, input: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": input }));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    fn bash(&mut self, command: &str) -> Value {
        self.call("bash", json!({ "command": command }))
    }

    fn note(&mut self, method: &str) -> Value {
        loop {
            if let Some(at) = self.notes.iter().position(|note| note["method"] == method) {
                return self.notes.remove(at).unwrap()["params"].clone();
            }
            let message = self
                .lines
                .recv_timeout(LIMIT)
                .expect("a notification comes");
            self.notes.push_back(message);
        }
    }

    fn close(mut self) -> ExitStatus {
        drop(self.stdin.take());
        process::wait(&mut self.child, LIMIT).expect("the server ends with its input")
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if process::wait(&mut self.child, LIMIT).is_none() {
            process::kill_tree(self.child.id() as i32);
            let _ = self.child.wait();
        }
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

fn server(world: &World) -> Command {
    world.lazaret("mcp")
}

place_test!(tools_work_and_reach_nothing_outside);
fn tools_work_and_reach_nothing_outside(place: Place) {
    let world = World::new(place);
    world.put("file", "one\ntwo\n");
    let mut client = Client::open(&mut server(&world), json!({}));
    let attack = format!(
        "cat ~/.ssh/id_rsa {}/secret.txt; touch ../outside/new; env; echo out > made; exit 3",
        world.outside.display()
    );
    let attacked = client.bash(&attack);
    assert_eq!(
        (&attacked["isError"], world.get("made")),
        (&json!(true), b"out\n".to_vec())
    );
    assert!(
        !attacked.to_string().contains(&world.canary) && !world.outside.join("new").exists(),
        "{attacked}"
    );
    assert_eq!(attacked["structuredContent"]["metadata"]["exitCode"], 3);
    let read = client.call("file_read", json!({ "path": "file" }));
    assert!(
        text(&read).contains("one\ntwo") && read["isError"] == false,
        "{read}"
    );
    let edit = json!({ "path": "file", "edits": [{ "old": "two", "new": "three" }] });
    assert_eq!(client.call("file_edit", edit)["isError"], false);
    assert_eq!(world.get("file"), b"one\nthree\n");
    let outside = client.call(
        "file_read",
        json!({ "path": world.home.join(".ssh/id_rsa") }),
    );
    assert_eq!(
        outside["structuredContent"]["error"]["code"], "violation",
        "{outside}"
    );
    assert_eq!(client.note("notifications/message")["level"], "info");
    assert_eq!(
        client.note("notifications/message")["level"],
        "warning",
        "a violation is logged"
    );
    let found = client.call("grep", json!({ "pattern": "three" }));
    assert!(text(&found).contains("file"), "{found}");
    let marker = long_sleep();
    let started = client.call(
        "bash",
        json!({ "command": format!("sleep {marker}"), "background": true }),
    );
    assert_eq!(started["isError"], false, "{started}");
    assert_eq!(client.close().code(), Some(0));
    assert_gone(&marker, LIMIT);
}

place_test!(a_cancelled_request_ends_its_command);
fn a_cancelled_request_ends_its_command(place: Place) {
    let world = World::new(place);
    let mut client = Client::open(&mut server(&world), json!({}));
    let marker = long_sleep();
    let params = json!({ "name": "bash", "arguments": { "command": format!("touch begun; sleep {marker}") } });
    let id = client.start_request("tools/call", params);
    assert!(
        until(LIMIT, || world.project.join("begun").exists()),
        "the command begins"
    );
    client.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
    );
    assert_gone(&marker, LIMIT);
    assert!(
        text(&client.bash("echo next")).contains("next"),
        "the server goes on"
    );
}

place_test!(a_question_is_put_to_the_clients_user);
fn a_question_is_put_to_the_clients_user(place: Place) {
    let world = World::new(place);
    let mut command = server(&world);
    let mut client = Client::open(
        command.args(["--trust", "guided"]),
        json!({ "elicitation": { "form": {} } }),
    );
    let accept = |answer: &str| json!({ "action": "accept", "content": { "answer": answer } });
    for (answer, runs) in [
        (json!({ "action": "cancel" }), false),
        (json!({ "action": "decline" }), false),
        (accept("no"), false),
        (json!({ "action": "accept" }), false),
        (accept("once"), true),
        (accept("once"), true),
    ] {
        client.answer = answer.clone();
        let before = client.elicited.len();
        let called = client.bash("touch made; echo ran");
        assert_eq!(
            (called["isError"] == false, client.elicited.len()),
            (runs, before + 1),
            "{answer}: {called}"
        );
        assert_eq!(
            std::fs::remove_file(world.project.join("made")).is_ok(),
            runs,
            "{answer}"
        );
    }
    let question = client.elicited.last().unwrap();
    assert!(
        question["message"].as_str().unwrap().contains("touch made"),
        "{question}"
    );
    assert_eq!(question["requestedSchema"]["required"], json!(["answer"]));
    // It shows what runs, as it was typed; a secret and what was typed in its place are told apart.
    client.answer = accept("no");
    let typed = r"grep 'a\.b' x; echo '\\' [redacted:MY_API_KEY]";
    for (command, shown) in [
        (
            typed.to_owned(),
            typed.replace("[redacted", r"\u{5b}redacted"),
        ),
        (
            format!("echo {}\x1b", world.key),
            r"echo [redacted:MY_API_KEY]\u{1b}".to_owned(),
        ),
    ] {
        client.bash(&command);
        let question = client.elicited.last().unwrap()["message"].as_str().unwrap();
        assert!(
            question.contains(&format!("| command: {shown}\n")),
            "{question}"
        );
    }
    client.answer = accept("session");
    client.bash("touch made").get("isError").unwrap();
    let before = client.elicited.len();
    assert_eq!(client.bash("touch made")["isError"], false);
    assert_eq!(client.elicited.len(), before, "allowed for the session");
    assert_eq!(client.call("file_list", json!({}))["isError"], false);
    assert_eq!(
        client.elicited.len(),
        before,
        "nobody is asked about what changes nothing"
    );
}

once_test!(a_client_of_each_version_is_greeted);
fn a_client_of_each_version_is_greeted() {
    let world = World::new(Place::any());
    for (asked, spoken) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start(&mut server(&world));
        let greeted = client.greet(asked, json!({}));
        assert_eq!(greeted["protocolVersion"], spoken, "{greeted}");
        assert_eq!(greeted["serverInfo"]["name"], "lazaret");
        assert!(
            greeted["instructions"]
                .as_str()
                .unwrap()
                .contains("No call is asked about"),
            "{greeted}"
        );
        assert!(client.request("ping", json!({}))["result"].is_object());
    }
    // A client that begins with the version after ours is told what there is, and goes on with the one before.
    let mut client = Client::start(&mut server(&world));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = client.request("server/discover", json!({ "_meta": meta }));
    assert!(
        discovered["error"].to_string().contains("2025-11-25"),
        "{discovered}"
    );
    assert_eq!(
        client.greet("2025-11-25", json!({}))["protocolVersion"],
        "2025-11-25"
    );
    // Trust and violations are said first.
    let mut command = server(&world);
    let mut client = Client::start(command.args(["--trust", "guided"]));
    let greeted = client.greet("2025-11-25", json!({}))["instructions"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        greeted.contains("Trust is guided") && greeted.contains("3 attempts"),
        "{greeted}"
    );
}

once_test!(tools_are_listed_with_schemas_and_hints);
fn tools_are_listed_with_schemas_and_hints() {
    let world = World::new(Place::any());
    let list = |arguments: &[&str]| {
        let mut command = server(&world);
        let mut client = Client::open(command.args(arguments), json!({}));
        client.request("tools/list", json!({}))["result"]["tools"]
            .as_array()
            .unwrap()
            .clone()
    };
    let names = |tools: &[Value]| {
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let tools = list(&[]);
    let shown = names(&tools);
    assert!(
        ["bash", "file_read", "grep", "web_fetch"]
            .iter()
            .all(|name| shown.iter().any(|one| one == name)),
        "{shown:?}"
    );
    assert!(
        !["todo_write", "thinking", "batch"]
            .iter()
            .any(|name| shown.iter().any(|one| one == name)),
        "{shown:?}"
    );
    for tool in &tools {
        assert_eq!(
            (&tool["inputSchema"]["type"], &tool["outputSchema"]["type"]),
            (&json!("object"), &json!("object"))
        );
        assert!(
            !tool["description"].as_str().unwrap().is_empty()
                && !tool["inputSchema"].to_string().contains("$ref"),
            "{tool}"
        );
    }
    let hints = |name: &str| {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
        let hints = &tool["annotations"];
        (
            hints["readOnlyHint"].clone(),
            hints["destructiveHint"].clone(),
            hints["openWorldHint"].clone(),
        )
    };
    assert_eq!(hints("bash"), (json!(false), json!(true), json!(false)));
    assert_eq!(
        hints("file_read"),
        (json!(true), json!(false), json!(false))
    );
    assert_eq!(hints("web_fetch"), (json!(true), json!(false), json!(true)));
    assert_eq!(
        hints("background_kill"),
        (json!(false), json!(false), json!(false))
    );
    assert!(names(&list(&["--all-tools"])).contains(&"todo_write".to_owned()));
    assert!(!names(&list(&["--disable", "bash"])).contains(&"bash".to_owned()));
    // A tool that there is not, is an error of the protocol.
    let mut client = Client::open(&mut server(&world), json!({}));
    let answer = client.request(
        "tools/call",
        json!({ "name": "no_such_tool", "arguments": {} }),
    );
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let wrong = client.call("file_read", json!({ "path": 5 }));
    assert!(
        wrong["isError"] == true && text(&wrong).contains("path"),
        "{wrong}"
    );
}

once_test!(results_keep_to_their_schema);
fn results_keep_to_their_schema() {
    let world = World::new(Place::any());
    world.put("pixel.png", PIXEL);
    let mut client = Client::open(&mut server(&world), json!({}));
    let image = client.call("view_image", json!({ "path": "pixel.png" }));
    let block = image["content"]
        .as_array()
        .unwrap()
        .iter()
        .find(|block| block["type"] == "image");
    assert_eq!(block.unwrap()["mimeType"], "image/png", "{image}");
    for (tool, input) in [
        ("bash", json!({ "command": "echo out; echo err >&2" })),
        ("bash", json!({ "command": "exit 4" })),
        ("bash", json!({ "command": "printf '\\377'" })),
        ("file_read", json!({ "path": "none" })),
        ("file_list", json!({})),
        ("view_image", json!({ "path": "pixel.png" })),
        ("run_tests", json!({ "framework": "none-such" })),
    ] {
        let result = client.call(tool, input.clone());
        let structured = &result["structuredContent"];
        let failed = result["isError"] == true;
        assert_eq!(
            structured["status"],
            if failed { "error" } else { "success" },
            "{result}"
        );
        assert!(
            structured["result"].is_string() && structured["metadata"]["layers"].is_null(),
            "{result}"
        );
        assert_eq!(
            result["_meta"]["lazaret/metadata"]["tool"], tool,
            "{result}"
        );
        assert_eq!(structured["error"]["code"].is_string(), failed, "{result}");
        assert!(!text(&result).is_empty() || tool == "bash", "{result}");
    }
}

once_test!(live_output_is_progress);
fn live_output_is_progress() {
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    let command = "echo first; until test -e go; do sleep 0.01; done; echo second";
    let id = client.start_request(
        "tools/call",
        json!({ "name": "bash", "arguments": { "command": command }, "_meta": { "progressToken": "p" } }),
    );
    let first = loop {
        let note = client.note("notifications/progress");
        if note["message"]
            .as_str()
            .unwrap_or_default()
            .contains("first")
        {
            break note;
        }
    };
    assert_eq!(first["progressToken"], "p");
    world.put("go", "");
    let answer = client.answer_to(id);
    assert!(text(&answer["result"]).contains("second"), "{answer}");
    let last = client.note("notifications/progress");
    assert!(
        last["progress"].as_f64() > first["progress"].as_f64(),
        "{last}"
    );
    client.bash("echo quiet");
    assert!(
        client
            .notes
            .iter()
            .all(|note| note["method"] != "notifications/progress"),
        "none was asked for"
    );
}

once_test!(long_output_is_a_resource);
fn long_output_is_a_resource() {
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    let long = client.bash("seq 1 100000");
    let link = long["content"]
        .as_array()
        .unwrap()
        .iter()
        .find(|block| block["type"] == "resource_link");
    let uri =
        link.unwrap_or_else(|| panic!("{}", long["structuredContent"]["metadata"]))["uri"].clone();
    let whole = client.request("resources/read", json!({ "uri": uri }));
    let text = whole["result"]["contents"][0]["text"].as_str().unwrap();
    assert!(
        text.starts_with("1\n2\n") && text.trim_end().ends_with("100000"),
        "{} bytes",
        text.len()
    );
    let listed = client.request("resources/list", json!({}));
    let uris: Vec<_> = listed["result"]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["uri"].clone())
        .collect();
    assert_eq!(uris, [json!("lazaret://history"), uri]);
    client.call("file_write", json!({ "path": "new", "content": "x" }));
    let history = client.request("resources/read", json!({ "uri": "lazaret://history" }));
    assert!(
        history["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("new"),
        "{history}"
    );
    for uri in [
        "lazaret://output/none",
        "lazaret://output/../memory",
        "file:///etc/passwd",
        "lazaret://output/",
    ] {
        let none = client.request("resources/read", json!({ "uri": uri }));
        assert!(none["error"]["code"].is_number(), "{uri}: {none}");
    }
    assert!(
        client.request("resources/templates/list", json!({}))["result"]["resourceTemplates"][0]
            .is_object()
    );
}

/// `lazaret mcp` without a project, in a directory.
fn anywhere(world: &World, directory: &Path) -> Command {
    let mut command = world.program("lazaret");
    command.arg("mcp").current_dir(directory);
    command
}

once_test!(the_project_is_the_clients);
fn the_project_is_the_clients() {
    let world = World::new(Place::any());
    world.put("sub dir/file", "");
    let roots = json!({ "roots": { "listChanged": true } });
    let where_it_is = |client: &mut Client| text(&client.bash("pwd -P")).trim().to_owned();
    let uri = |path: &Path| format!("file://{}", path.display().to_string().replace(' ', "%20"));
    let (project, sub) = (
        world.project.display().to_string(),
        world.project.join("sub dir"),
    );
    let mut client = Client::open(&mut anywhere(&world, &world.outside), json!({}));
    assert_eq!(
        where_it_is(&mut client),
        world.outside.display().to_string(),
        "where it was started"
    );
    let mut client = Client::open(&mut anywhere(&world, &world.outside), roots.clone());
    client.roots = vec!["https://example.com/".into(), uri(&world.project)];
    assert_eq!(where_it_is(&mut client), project, "the client's root");
    client.roots = vec![uri(&sub)];
    assert_eq!(
        where_it_is(&mut client),
        project,
        "it was not said that they have changed"
    );
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
    assert_eq!(where_it_is(&mut client), sub.display().to_string());
    let mut command = anywhere(&world, &world.project);
    let mut client = Client::open(command.env("CLAUDE_PROJECT_DIR", &sub), roots.clone());
    client.roots = vec![uri(&world.project)];
    assert_eq!(
        where_it_is(&mut client),
        sub.display().to_string(),
        "Claude Code says it by a variable"
    );
    let mut command = server(&world);
    let mut client = Client::open(command.env("CLAUDE_PROJECT_DIR", &sub), roots);
    client.roots = vec![uri(&sub)];
    assert_eq!(where_it_is(&mut client), project, "the user has named it");
}

once_test!(a_client_is_told_when_the_list_of_tools_has_changed);
fn a_client_is_told_when_the_list_of_tools_has_changed() {
    let growing = json!({ "test": scene::server(&["growing"], json!({})) });
    let world = scene::world(Place::any(), growing);
    let mut client = Client::open(&mut scene::dressed(&world, server(&world)), json!({}));
    let names = |client: &mut Client| {
        client.request("tools/list", json!({}))["result"]["tools"].to_string()
    };
    assert!(names(&mut client).contains("mcp__test__grow\""));
    client.call("mcp__test__grow", json!({}));
    let status = || scene::mcp(&world, &["status"]).text();
    assert!(
        until(LIMIT, || status().contains("new: grown")),
        "{}",
        status()
    );
    assert!(
        !names(&mut client).contains("mcp__test__grown"),
        "nobody has accepted it"
    );
    scene::mcp(&world, &["accept", "test", "--yes"]).success();
    client.note("notifications/tools/list_changed");
    assert!(names(&mut client).contains("mcp__test__grown"));
}

once_test!(the_largest_write_is_a_call);
fn the_largest_write_is_a_call() {
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    let content = largest(b'a');
    let input = json!({ "path": "file", "content": content });
    let written = client.call("file_write", input);
    assert_eq!(written["isError"], false, "{:.400}", written.to_string());
    assert_eq!(world.get("file"), content.as_bytes());
}

once_test!(calls_at_once_have_a_limit);
fn calls_at_once_have_a_limit() {
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    assert_eq!(client.bash("true")["isError"], false);
    let wait = json!({ "name": "bash", "arguments": { "command": "until [ -e go ]; do sleep 0.05; done" } });
    let calls: Vec<u64> = (0..70)
        .map(|_| client.start_request("tools/call", wait.clone()))
        .collect();
    let mut refused = 0;
    while refused < 70 - 64 {
        let answer = client.lines.recv_timeout(LIMIT).expect("an answer");
        if !answer["id"].is_null() {
            assert_eq!(answer["error"]["code"], -32000, "{answer}");
            refused += 1;
        }
    }
    world.put("go", "");
    let mut answered = 0;
    while answered < calls.len() - refused {
        let answer = client.lines.recv_timeout(LIMIT).expect("an answer");
        if !answer["id"].is_null() {
            assert_eq!(answer["result"]["isError"], false, "{answer}");
            answered += 1;
        }
    }
    assert_eq!(client.bash("true")["isError"], false, "there is room again");
}

once_test!(a_scope_narrows_the_session);
fn a_scope_narrows_the_session() {
    let world = World::new(Place::any());
    world.put("file", "content");
    let scope = world.outside.join("scope.yaml");
    world.write(
        &scope,
        "tool_permissions:\n  file_read: { allowed: true }\n",
    );
    let mut client = Client::open(server(&world).arg("--scope").arg(&scope), json!({}));
    let read = client.call("file_read", json!({ "path": "file" }));
    assert!(text(&read).contains("content"), "{read}");
    let ran = client.call("bash", json!({ "command": "true" }));
    assert_eq!(ran["isError"], true, "{ran}");
}

once_test!(a_root_that_may_be_none_is_an_error_of_the_call);
fn a_root_that_may_be_none_is_an_error_of_the_call() {
    let world = World::new(Place::any());
    let roots = json!({ "roots": { "listChanged": true } });
    for root in [
        "/".to_owned(),
        "/etc".into(),
        world.home.display().to_string(),
        "/none/such".into(),
    ] {
        let mut client = Client::open(&mut anywhere(&world, Path::new("/")), roots.clone());
        client.roots = vec![format!("file://{root}")];
        let refused = client.bash("touch made");
        assert!(
            refused["isError"] == true && text(&refused).len() > 20,
            "{root}: {refused}"
        );
        assert_eq!(refused["structuredContent"]["status"], "error");
        client.roots = vec![format!("file://{}", world.project.display())];
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" }));
        assert_eq!(
            client.bash("touch made")["isError"],
            false,
            "the server goes on with another root"
        );
    }
    assert!(world.project.join("made").exists() && !world.home.join("made").exists());
}

once_test!(without_a_way_to_ask_a_call_is_refused_with_the_remedy);
fn without_a_way_to_ask_a_call_is_refused_with_the_remedy() {
    let world = World::new(Place::any());
    let mut command = server(&world);
    let mut client = Client::open(command.args(["--trust", "guided"]), json!({}));
    let refused = client.bash("touch made");
    assert!(
        refused["isError"] == true && text(&refused).contains("cannot be asked"),
        "{refused}"
    );
    assert!(
        text(&refused).contains("--trust") && !world.project.join("made").exists(),
        "{refused}"
    );
    assert_eq!(client.call("file_list", json!({}))["isError"], false);
}

once_test!(no_answer_to_a_wrong_line_is_lost_under_load);
/// Each wrong line comes right behind a request whose answer is on its way.
fn no_answer_to_a_wrong_line_is_lost_under_load() {
    const LINES: usize = 300;
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    let pairs = (0..LINES).map(|id| {
        format!(
            "{}\n{{}}\n",
            json!({ "jsonrpc": "2.0", "id": 10_000 + id, "method": "ping" })
        )
    });
    client
        .stdin
        .as_mut()
        .unwrap()
        .write_all(pairs.collect::<String>().as_bytes())
        .unwrap();
    let answers: Vec<Value> = (0..2 * LINES)
        .map_while(|_| client.lines.recv_timeout(LIMIT).ok())
        .collect();
    let errors = answers
        .iter()
        .filter(|answer| answer["error"]["code"] == -32600)
        .count();
    assert_eq!((answers.len(), errors), (2 * LINES, LINES));
}

once_test!(lines_that_are_no_messages_are_answered);
fn lines_that_are_no_messages_are_answered() {
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    for (line, code) in [
        ("{", -32700),
        ("[1,2]", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":77}", -32600),
        (&format!("\"{}\"", "x".repeat(33 << 20)), -32700),
        (&"[".repeat(100_000), -32700),
    ] {
        client.send_line(line);
        let answer = client.lines.recv_timeout(LIMIT).expect("an answer");
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    let unknown = client.request("no/such", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    assert_eq!(
        unknown["error"]["message"],
        "there is no method \"no/such\""
    );
    let wrong = client.request("tools/call", json!({ "name": "bash", "arguments": [] }));
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
    assert!(
        wrong["error"]["message"]
            .as_str()
            .unwrap()
            .contains("arguments"),
        "{wrong}"
    );
    // Of two requests with one id, the second is refused; its number is free again behind the answer. The session is open by then,
    // and has told of it.
    client.bash("true");
    for round in 0..2 {
        let go = format!("go-{round}");
        let call = |word: &str| {
            let command = format!("until [ -e {go} ]; do sleep 0.05; done; echo {word}");
            let arguments = json!({ "command": command });
            json!({ "jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": { "name": "bash", "arguments": arguments } })
        };
        client.send(&call("first"));
        client.send(&call("second"));
        let refused = client.lines.recv_timeout(LIMIT).unwrap();
        assert_eq!(
            (&refused["error"]["code"], &refused["id"]),
            (&json!(-32600), &Value::Null),
            "{refused}"
        );
        world.put(&go, "");
        assert!(text(&client.answer_to(900)["result"]).contains("first"));
    }
    client.send_line("");
    assert!(text(&client.bash("echo still here")).contains("still here"));
    assert_eq!(client.close().code(), Some(0));
    // One that goes before it was greeted, and one that sends something else first.
    let mut early = Client::start(&mut server(&world));
    assert!(early.request("ping", json!({}))["result"].is_object());
    for method in ["tools/list", "no/such"] {
        let refused = early.request(method, json!({}));
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains("`initialize`"),
            "{refused}"
        );
    }
    early.greet("2025-11-25", json!({}));
    assert!(early.request("tools/list", json!({}))["result"].is_object());
    assert_eq!(early.close().code(), Some(0));
    assert_eq!(Client::start(&mut server(&world)).close().code(), Some(0));
}

once_test!(a_log_has_the_level_that_was_set);
fn a_log_has_the_level_that_was_set() {
    let world = World::new(Place::any());
    let mut client = Client::open(&mut server(&world), json!({}));
    assert!(client.request("logging/setLevel", json!({ "level": "error" }))["result"].is_object());
    client.call("file_read", json!({ "path": "/etc/shadow" }));
    client.bash("true");
    assert!(client.notes.is_empty(), "{:?}", client.notes);
    client.request("logging/setLevel", json!({ "level": "warning" }));
    client.call("file_read", json!({ "path": "/etc/shadow" }));
    assert_eq!(
        client.note("notifications/message")["data"]["violations"],
        2
    );
}

once_test!(the_home_is_that_of_the_account_as_everywhere);
/// The session is opened by a process that has confined itself, and can read no database of accounts by then.
fn the_home_is_that_of_the_account_as_everywhere() {
    let world = World::new(Place::any());
    let home = world.base().join("other");
    world.make_folder(&home);
    let command = |subcommand: &str| {
        let mut command = world.program("lazaret");
        command
            .arg(subcommand)
            .arg("--project")
            .arg(&world.project)
            .env("HOME", &home);
        command
    };
    let session = Session::start(&mut command("session"));
    let central = session.ready["central"].clone();
    session.close(LIMIT);
    let mut client = Client::open(&mut command("mcp"), json!({}));
    client.bash("true");
    assert_eq!(
        client.note("notifications/message")["data"]["central"],
        central
    );
    let folder = Path::new(central.as_str().unwrap()).to_owned();
    assert!(!folder.starts_with(world.base()), "{}", folder.display());
    std::fs::remove_dir_all(folder).unwrap();
}

once_test!(invalid_option_ends_a_server_before_it_serves);
fn invalid_option_ends_a_server_before_it_serves() {
    let world = World::new(Place::any());
    for server in ["mcp", "serve"] {
        for (option, value) in [
            ("--project", "/absent"),
            ("--project", "/etc"),
            ("--project", world.home.to_str().unwrap()),
            ("--read", "/absent"),
            ("--allow-host", "b@d"),
            ("--allow-net", "none"),
        ] {
            let mut command = world.program("lazaret");
            let finished = run(command.args([server, option, value]), LIMIT);
            assert!(
                finished.code() == 2 && finished.stdout.is_empty(),
                "{server}: {}",
                finished.text()
            );
            assert!(
                finished.errors().contains(value),
                "{server}: {}",
                finished.errors()
            );
        }
    }
}

once_test!(a_client_that_would_show_structure_gets_text);
/// Claude Code shows its model the structure in the place of the text, where there is one.
fn a_client_that_would_show_structure_gets_text() {
    let world = World::new(Place::any());
    let mut client = Client::start(&mut server(&world));
    client.request(
        "initialize",
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "claude-code", "version": "2" } }),
    );
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let tools = client.request("tools/list", json!({}));
    assert!(
        tools["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .all(|tool| tool["outputSchema"].is_null())
    );
    let result = client.bash("echo out");
    assert!(
        result["structuredContent"].is_null() && text(&result).contains("out"),
        "{result}"
    );
}

/// A picture of one point.
const PIXEL: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0,
    1, 0, 0, 0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54,
    0x78, 0x9c, 0x63, 0, 1, 0, 0, 5, 0, 1, 0x0d, 0x0a, 0x2d, 0xb4, 0, 0, 0, 0, 0x49, 0x45, 0x4e,
    0x44, 0xae, 0x42, 0x60, 0x82,
];

place_test!(calls_of_a_client_are_guarded_by_the_users_hooks);
fn calls_of_a_client_are_guarded_by_the_users_hooks(place: Place) {
    let world = World::new(place);
    guarded(&world, "before_tool", GUARD, "");
    let mut client = Client::open(&mut dressed(&world, server(&world)), json!({}));
    assert_eq!(client.bash("touch made")["isError"], false, "control");
    let refused = client.bash("touch secret");
    assert_eq!(
        (&refused["isError"], text(&refused)),
        (&json!(true), BLOCKED)
    );
    let note = client.note("notifications/message");
    assert_eq!(note["level"], "info", "the session: {note}");
    let note = client.note("notifications/message");
    assert_eq!(
        (&note["level"], &note["data"]["outcome"]),
        (&json!("warning"), &json!("blocked"))
    );
    assert!(world.project.join("made").exists() && !world.project.join("secret").exists());
    client.close();
}
