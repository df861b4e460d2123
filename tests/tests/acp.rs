//! `lazaret acp` between an editor, which is played here, and an agent, which does whatever it is told.

use crate::guards::{BLOCKED, GUARD, dressed, guarded};
use lazaret_tests::process::{self, Process, left_after, until};
use lazaret_tests::{LIMIT, Place, World, once_test, place_test, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

const AGENT: &str = include_str!("../fixtures/acp_agent.py");

struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// The agent's description of itself.
    agent: Value,
    /// The option with which questions are answered, and the questions that came.
    answer: &'static str,
    asked: Vec<Value>,
    /// The methods of what it was told.
    told: Vec<String>,
    last: u64,
}

impl Editor {
    fn open(world: &World, options: &[&str], mode: &str) -> Self {
        Self::open_with(world, options, mode, &[])
    }

    fn open_with(world: &World, options: &[&str], mode: &str, variables: &[(&str, &str)]) -> Self {
        let mut editor = Self::start(world, options, mode, variables);
        let capabilities = json!({ "fs": { "readTextFile": false }, "terminal": false });
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        editor.agent = editor.request("initialize", params)["result"]["_meta"].clone();
        let created = editor.request(
            "session/new",
            json!({ "cwd": world.project, "mcpServers": [] }),
        );
        assert_eq!(created["result"]["sessionId"], "s1", "{created}");
        editor
    }

    fn start(world: &World, options: &[&str], mode: &str, variables: &[(&str, &str)]) -> Self {
        let script = world.base().join("agent.py");
        world.write(&script, AGENT);
        let mut command = world.lazaret("acp");
        command
            .args(options)
            .args(["--", "python3"])
            .arg(script)
            .arg(mode)
            .envs(variables.iter().copied());
        Self::of(&mut command)
    }

    fn of(command: &mut Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Self {
            child,
            stdin,
            lines,
            agent: Value::Null,
            answer: "no",
            asked: vec![],
            told: vec![],
            last: 0,
        }
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

    #[track_caller]
    fn request(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let id = self.last;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let message = self.lines.recv_timeout(LIMIT).unwrap();
            if message["method"] == "session/request_permission" {
                let outcome = json!({ "outcome": "selected", "optionId": self.answer });
                self.send(
                    &json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "outcome": outcome } }),
                );
                self.asked.push(message["params"].clone());
            } else if message["id"] == id {
                return message;
            } else if message["id"].is_null() {
                self.told
                    .push(message["method"].as_str().unwrap().to_owned());
            }
        }
    }

    /// Has the agent do something; what came of each step.
    #[track_caller]
    fn prompt(&mut self, steps: &[Value]) -> Vec<Value> {
        let text = json!(steps).to_string();
        let prompt = json!({ "sessionId": "s1", "prompt": [{ "type": "text", "text": text }] });
        let answer = self.request("session/prompt", prompt);
        answer["result"]["_meta"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer}"))
            .clone()
    }

    /// Runs a command in a terminal to its end: its status, and its output.
    #[track_caller]
    fn terminal(&mut self, create: Value) -> (Value, String) {
        let id = self.create(create);
        let about = json!({ "terminalId": id });
        let steps = [
            "terminal/wait_for_exit",
            "terminal/output",
            "terminal/release",
        ]
        .map(|method| ask(method, about.clone()));
        let answers = self.prompt(&steps);
        assert_eq!(
            answers[1]["result"]["exitStatus"], answers[0]["result"],
            "{answers:?}"
        );
        assert_eq!(answers[2]["result"], json!({}));
        (
            answers[0]["result"].clone(),
            answers[1]["result"]["output"].as_str().unwrap().to_owned(),
        )
    }

    #[track_caller]
    fn create(&mut self, create: Value) -> Value {
        let created = self
            .prompt(std::slice::from_ref(&ask("terminal/create", create)))
            .remove(0);
        assert!(created["result"]["terminalId"].is_string(), "{created}");
        created["result"]["terminalId"].clone()
    }

    fn agent_process(&self) -> Process {
        Process::find(self.agent["pid"].as_i64().unwrap() as i32).unwrap()
    }

    /// Closes the editor's end; the exit code of `lazaret acp`.
    #[track_caller]
    fn close(mut self) -> i32 {
        self.stdin = None;
        process::wait(&mut self.child, LIMIT)
            .unwrap()
            .code()
            .unwrap()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(method: &str, params: Value) -> Value {
    json!({ "ask": method, "params": params })
}

fn exited(code: u32) -> Value {
    json!({ "exitCode": code })
}

/// A world with a key in its home, and what tries to read it and to leave the project.
fn attacked(place: Place) -> (World, String) {
    let world = World::new(place);
    world.write(&world.home.join(".ssh/id_rsa"), "the key\n");
    let (key, made) = (world.home.join(".ssh/id_rsa"), world.base().join("made"));
    let attack = format!("cat {}; touch {}; true", key.display(), made.display());
    (world, attack)
}

/// Checks that the attack got nothing; the agent itself, outside of cells, gets all of it.
#[track_caller]
fn got_nothing(world: &World, editor: &mut Editor, attack: &str, output: &str) {
    assert!(
        !output.contains("the key") && !world.base().join("made").exists(),
        "{output}"
    );
    let control = editor.prompt(&[json!({ "own": attack })]).remove(0);
    assert!(
        control.as_str().unwrap().contains("the key") && world.base().join("made").exists(),
        "{control}"
    );
}

place_test!(files_are_those_of_cells);
fn files_are_those_of_cells(place: Place) {
    let (world, attack) = attacked(place);
    world.put("a.txt", "one\ntwo\nthree\n");
    let mut editor = Editor::open(&world, &[], "");
    let (inside, key) = (world.project.join("a.txt"), world.home.join(".ssh/id_rsa"));
    let (new, outside) = (world.project.join("sub/b.txt"), world.base().join("made"));
    let read = |path: &std::path::Path| ask("fs/read_text_file", json!({ "path": path }));
    let write = |path: &std::path::Path| {
        ask(
            "fs/write_text_file",
            json!({ "path": path, "content": "new \u{202e} text" }),
        )
    };
    let lines = ask(
        "fs/read_text_file",
        json!({ "path": inside, "line": 2, "limit": 1 }),
    );
    let relative = read("a.txt".as_ref());
    let steps = [
        read(&inside),
        lines,
        write(&new),
        write(&inside),
        read(&new),
        read(&key),
        write(&outside),
    ];
    let answers = editor.prompt(&steps);
    assert_eq!(
        answers[0]["result"],
        json!({ "content": "one\ntwo\nthree\n" }),
        "{answers:?}"
    );
    assert_eq!(
        answers[1]["result"],
        json!({ "content": "two\n" }),
        "{answers:?}"
    );
    assert_eq!(answers[2]["result"], json!({}), "{answers:?}");
    // One that was not read before too.
    assert_eq!(answers[3]["result"], json!({}), "{answers:?}");
    assert_eq!(
        answers[4]["result"],
        json!({ "content": "new \u{202e} text" }),
        "{answers:?}"
    );
    assert_eq!(world.get("sub/b.txt"), "new \u{202e} text".as_bytes());
    for refused in &answers[5..] {
        assert_eq!(refused["error"]["data"]["code"], "violation", "{refused}");
    }
    let gone = read(&world.project.join("gone"));
    let answers = editor.prompt(&[relative, gone]);
    assert_eq!(answers[0]["error"]["code"], -32602, "{answers:?}");
    assert_eq!(answers[1]["error"]["code"], -32002, "{answers:?}");
    got_nothing(&world, &mut editor, &attack, "");
    assert_eq!(editor.close(), 0);
}

place_test!(commands_run_in_cells);
fn commands_run_in_cells(place: Place) {
    let (world, attack) = attacked(place);
    let mut editor = Editor::open(&world, &[], "");
    let (status, output) = editor.terminal(json!({ "command": attack }));
    assert_eq!(status, exited(0));
    got_nothing(&world, &mut editor, &attack, &output);
    world.make_folder(&world.project.join("sub"));
    let create = json!({
        "command": "bash", "args": ["-c", "pwd; echo \"$A\"; exit 3"], "cwd": world.project.join("sub"),
        "env": [{ "name": "A", "value": "b c" }],
    });
    let (status, output) = editor.terminal(create);
    assert_eq!(status, exited(3));
    assert_eq!(
        output,
        format!("{}\nb c\n", world.project.join("sub").display())
    );
    let (status, output) = editor.terminal(json!({ "command": "/nowhere/x", "args": ["y"] }));
    assert!(
        status["exitCode"] == 127 && output.contains("lazaret: "),
        "{status} {output}"
    );
    let (status, output) = editor.terminal(json!({ "command": "true", "cwd": world.base() }));
    assert!(
        status["exitCode"] == 126 && output.contains("lazaret: "),
        "{status} {output}"
    );
    assert_eq!(editor.close(), 0);
}

place_test!(the_shell_of_the_agent_is_a_cells);
fn the_shell_of_the_agent_is_a_cells(place: Place) {
    let (world, attack) = attacked(place);
    let mut editor = Editor::open(&world, &[], "");
    let output = editor
        .prompt(&[json!({ "shell": format!("{attack}; echo end > here") })])
        .remove(0);
    assert_eq!(world.get("here"), b"end\n");
    got_nothing(&world, &mut editor, &attack, output.as_str().unwrap());
}

once_test!(the_sessions_options_hold_for_the_agents_shell);
fn the_sessions_options_hold_for_the_agents_shell() {
    let world = World::new(Place::any());
    let shell = |editor: &mut Editor, command: &str| {
        let output = editor.prompt(&[json!({ "shell": command })]).remove(0);
        output.as_str().unwrap().to_owned()
    };
    let path = |name: &str| world.base().join(name).to_str().unwrap().to_owned();
    world.write(&world.base().join("data/d.txt"), "the data\n");
    let show = format!("touch by-shell; cat {}; echo end", path("data/d.txt"));
    let mut control = Editor::open(&world, &[], "");
    let output = shell(&mut control, &show);
    assert!(
        output.contains("end") && !output.contains("the data"),
        "{output}"
    );
    std::fs::remove_file(world.project.join("by-shell")).unwrap();
    let mut granted = Editor::open(&world, &["--read", &path("data")], "");
    assert!(shell(&mut granted, &show).contains("the data"));
    std::fs::remove_file(world.project.join("by-shell")).unwrap();

    let closed = "tool_permissions: {file_read: {allowed: true}, bash: {allowed: false}}\n";
    let scope = world.put("scope.yaml", closed);
    let mut editor = Editor::open(&world, &["--scope", scope.to_str().unwrap()], "");
    let (status, _) = editor.terminal(json!({ "command": "touch by-terminal" }));
    assert_eq!(status, exited(126));
    // What a command could write there counts no more.
    world.put("scope.yaml", "tool_permissions: {bash: {allowed: true}}\n");
    let output = shell(&mut editor, "touch by-shell; echo end");
    assert_eq!(output, "");
    for made in ["by-shell", "by-terminal"] {
        assert!(!world.project.join(made).exists(), "{made}");
    }
}

place_test!(a_question_is_put_to_the_editors_user);
fn a_question_is_put_to_the_editors_user(place: Place) {
    let world = World::new(place);
    let mut editor = Editor::open(&world, &["--trust", "supervised"], "");
    let command = "echo \u{202e} > made # and nothing else";
    let (status, output) = editor.terminal(json!({ "command": command }));
    assert!(
        status["exitCode"] == 126 && output.contains("lazaret: "),
        "{status} {output}"
    );
    assert!(!world.project.join("made").exists());
    editor.answer = "once";
    assert_eq!(editor.terminal(json!({ "command": command })).0, exited(0));
    assert!(world.project.join("made").exists());
    let shown = editor.asked[1]["toolCall"]["content"][0]["content"]["text"]
        .as_str()
        .unwrap();
    assert!(
        shown.contains("| command: echo ") && shown.contains("u{202e} > made # and nothing"),
        "{shown}"
    );
    assert_eq!(
        (editor.asked.len(), &editor.asked[1]["sessionId"]),
        (2, &json!("s1"))
    );
    // An agent that could foretell the id would write over what the editor shows of the question.
    let id = |asked: &Value| asked["toolCall"]["toolCallId"].as_str().unwrap().to_owned();
    let [first, second] = [id(&editor.asked[0]), id(&editor.asked[1])];
    let is_nonce = |id: &str| {
        id.strip_prefix("lazaret-")
            .is_some_and(|nonce| nonce.len() >= 16)
    };
    assert!(
        is_nonce(&first) && is_nonce(&second) && first[..16] != second[..16],
        "{first} {second}"
    );
    // A command that cannot be shown whole is not asked about.
    let long = format!("touch made2 #{}", "\n#".repeat(500));
    assert_eq!(editor.terminal(json!({ "command": long })).0, exited(126));
    assert!(editor.asked.len() == 2 && !world.project.join("made2").exists());
}

once_test!(a_terminal_lives_until_it_is_released);
fn a_terminal_lives_until_it_is_released() {
    let world = World::new(Place::any());
    let mut editor = Editor::open(&world, &[], "");
    let id = editor.create(json!({ "command": "echo begun; sleep 600" }));
    let about = |method| ask(method, json!({ "terminalId": id }));
    let has_begun = until(LIMIT, || {
        let output = editor.prompt(&[about("terminal/output")]).remove(0);
        assert!(output["result"]["exitStatus"].is_null(), "{output}");
        output["result"]["output"] == "begun\n"
    });
    assert!(has_begun);
    let other = ask(
        "terminal/output",
        json!({ "terminalId": id, "sessionId": "s2" }),
    );
    let steps = [
        other,
        about("terminal/kill"),
        about("terminal/wait_for_exit"),
        about("terminal/release"),
        about("terminal/output"),
    ];
    let answers = editor.prompt(&steps);
    assert_eq!(answers[0]["error"]["code"], -32002, "{answers:?}");
    assert_eq!(
        answers[2]["result"],
        json!({ "signal": "SIGKILL" }),
        "{answers:?}"
    );
    assert_eq!(answers[4]["error"]["code"], -32002, "{answers:?}");
}

once_test!(oversized_editor_requests_are_refused);
fn oversized_editor_requests_are_refused() {
    let world = World::new(Place::any());
    world.put("long.txt", "x\n".repeat(1 << 20));
    let mut editor = Editor::open(&world, &[], "");
    let read = ask(
        "fs/read_text_file",
        json!({ "path": world.project.join("long.txt") }),
    );
    let cut = editor.prompt(&[read]).remove(0);
    assert_eq!(cut["error"]["code"], -32602, "{cut}");
    let create = json!({ "command": "printf %09d {1..99}", "outputByteLimit": 20 });
    let id = editor.create(create);
    let about = |method| ask(method, json!({ "terminalId": id }));
    let output = editor
        .prompt(&[about("terminal/wait_for_exit"), about("terminal/output")])
        .remove(1);
    assert_eq!(
        output["result"]["output"], "97000000098000000099",
        "{output}"
    );
    assert_eq!(output["result"]["truncated"], true);
    let steps = vec![ask("terminal/create", json!({ "command": "true" })); 64];
    let answers = editor.prompt(&steps);
    assert!(
        answers[62]["result"].is_object() && answers[63]["error"].is_object(),
        "{:?}",
        &answers[62..]
    );
}

once_test!(a_secret_is_not_lost_by_writing_back_what_was_read);
fn a_secret_is_not_lost_by_writing_back_what_was_read() {
    let world = World::new(Place::any());
    world.put("settings", "first\ntoken = abcdef-0123456789\n");
    let path = world.project.join("settings");
    let read = ask("fs/read_text_file", json!({ "path": path }));
    let first = ask("fs/read_text_file", json!({ "path": path, "limit": 1 }));
    let secret = [("DEPLOY_TOKEN", "abcdef-0123456789")];
    let mut editor = Editor::open_with(&world, &[], "", &secret);
    let answers = editor.prompt(&[read.clone(), first]);
    assert_eq!(answers[0]["error"]["code"], -32602, "{answers:?}");
    assert!(
        !answers[0].to_string().contains("0123456789"),
        "{answers:?}"
    );
    assert_eq!(
        answers[1]["result"],
        json!({ "content": "first\n" }),
        "{answers:?}"
    );
    // A mark that stands in the file itself is text like any other.
    world.put("settings", "token = [redacted:DEPLOY_TOKEN]\n");
    let answers = editor.prompt(std::slice::from_ref(&read));
    assert_eq!(
        answers[0]["result"]["content"], "token = [redacted:DEPLOY_TOKEN]\n",
        "{answers:?}"
    );
    // Control: what is no secret is read.
    world.put("settings", "token = abcdef-0123456789\n");
    let answers = Editor::open(&world, &[], "").prompt(&[read]);
    assert_eq!(
        answers[0]["result"]["content"], "token = abcdef-0123456789\n",
        "{answers:?}"
    );
}

once_test!(work_in_cells_is_not_reported_to_the_editor);
fn work_in_cells_is_not_reported_to_the_editor() {
    let world = World::new(Place::any());
    let mut editor = Editor::open(&world, &[], "");
    let tell = |method: &str| {
        let params = json!({ "sessionId": "s1", "path": world.base().join("made"), "content": "" });
        json!({ "tell": { "method": method, "params": params } })
    };
    editor.prompt(
        &[
            "fs/write_text_file",
            "fs/other",
            "terminal/create",
            "terminal/other",
        ]
        .map(tell),
    );
    editor.prompt(&[tell("x/other")]);
    assert_eq!(editor.told, ["session/update", "session/update", "x/other"]);
}

once_test!(other_messages_pass_whole);
fn other_messages_pass_whole() {
    let world = World::new(Place::any());
    let mut editor = Editor::open(&world, &[], "");
    let offered =
        json!({ "fs": { "readTextFile": true, "writeTextFile": true }, "terminal": true });
    assert_eq!(editor.agent["client"]["clientCapabilities"], offered);
    // An id of ours is not the agent's to use: the editor's answer would come to us.
    let stolen = json!({ "id": "lazaret-1", "method": "session/request_permission", "params": {} });
    let steps = [
        json!({ "line": "no JSON" }),
        json!({ "line": "[]" }),
        json!({ "line": stolen.to_string() }),
    ];
    let codes: Vec<_> = editor
        .prompt(&steps)
        .iter()
        .map(|answer| answer["error"]["code"].clone())
        .collect();
    assert_eq!(codes, [-32700, -32600, -32600]);
    let steps = [
        ask("fs/other", json!({})),
        ask("terminal/create", json!({ "command": 1 })),
    ];
    let codes: Vec<_> = editor
        .prompt(&steps)
        .iter()
        .map(|answer| answer["error"]["code"].clone())
        .collect();
    assert_eq!(codes, [-32601, -32602]);
    let own = json!({ "toolCall": {}, "options": [], "_meta": { "\u{e4}": [1, null] } });
    editor.answer = "mine";
    let answer = editor
        .prompt(&[ask("session/request_permission", own)])
        .remove(0);
    assert_eq!(answer["result"]["outcome"]["optionId"], "mine");
    assert_eq!(editor.asked[0]["_meta"], json!({ "\u{e4}": [1, null] }));
    for line in ["{", "[]", &format!("{{\"x\":\"{}\"}}", "x".repeat(5 << 20))] {
        editor.send_line(line);
        let answer = editor.lines.recv_timeout(LIMIT).unwrap();
        assert!(
            answer["error"]["code"].is_i64() && answer["id"].is_null(),
            "{answer}"
        );
    }
    editor.send(
        &json!({ "jsonrpc": "2.0", "id": 99, "method": "session/new", "params": { "cwd": world.project } }),
    );
    assert_eq!(editor.lines.recv_timeout(LIMIT).unwrap()["id"], 99);
}

once_test!(a_directory_outside_the_project_is_refused);
fn a_directory_outside_the_project_is_refused() {
    let world = World::new(Place::any());
    let mut editor = Editor::open(&world, &[], "");
    std::os::unix::fs::symlink(world.base(), world.project.join("out")).unwrap();
    let (project, out) = (&world.project, world.project.join("out"));
    let refused = [
        (json!({ "cwd": world.base() }), "--project"),
        (json!({ "cwd": world.project.join("..") }), "--project"),
        (json!({ "cwd": out }), "--project"),
        (json!({ "cwd": "sub" }), "sub"),
        (json!({ "cwd": world.project.join("absent") }), "absent"),
        (json!({ "cwd": 7 }), "cwd"),
        (json!({}), "cwd"),
        (
            json!({ "cwd": project, "additionalDirectories": [out] }),
            "--project",
        ),
        (
            json!({ "cwd": project, "additionalDirectories": out }),
            "additionalDirectories",
        ),
    ];
    for (mut params, word) in refused {
        params["mcpServers"] = json!([]);
        let answer = editor.request("session/new", params);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(word) && answer["error"]["code"] == -32602,
            "{answer}"
        );
    }
    std::fs::create_dir_all(world.project.join("sub")).unwrap();
    let inside = editor.request(
        "session/new",
        json!({ "cwd": world.project.join("sub"), "mcpServers": [] }),
    );
    assert_eq!(inside["result"]["sessionId"], "s1");
}

once_test!(an_agent_ends_with_its_editor);
fn an_agent_ends_with_its_editor() {
    for mode in ["", "stubborn"] {
        let world = World::new(Place::any());
        let mut editor = Editor::open(&world, &[], mode);
        editor.create(json!({ "command": "sleep 600" }));
        let agent = editor.agent_process();
        assert_eq!(editor.close(), 0);
        assert!(left_after(&[agent], LIMIT).is_empty());
        let mut editor = Editor::open(&world, &[], mode);
        let agent = editor.agent_process();
        editor.child.kill().unwrap();
        assert!(left_after(&[agent], LIMIT).is_empty());
    }
}

once_test!(an_agent_that_ends_ends_the_session);
fn an_agent_that_ends_ends_the_session() {
    let world = World::new(Place::any());
    let mut editor = Editor::open(&world, &[], "");
    let text = json!([{ "exit": 7 }]).to_string();
    let prompt = json!({ "sessionId": "s1", "prompt": [{ "type": "text", "text": text }] });
    editor
        .send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": prompt }));
    assert_eq!(
        process::wait(&mut editor.child, LIMIT).unwrap().code(),
        Some(1)
    );
}

once_test!(invalid_argument_ends_acp_before_it_begins);
/// Whether its input has an end or not.
fn invalid_argument_ends_acp_before_it_begins() {
    let world = World::new(Place::any());
    for (arguments, code, why) in [
        (&["--", "/nowhere/agent"][..], 127, "/nowhere/agent"),
        (&["--", "nowhere-agent"], 127, "nowhere-agent"),
        (&["--read", "/nowhere", "--", "cat"], 2, "/nowhere"),
        (&["--allow-host", "b@d", "--", "cat"], 2, "b@d"),
        (&["--project", "/etc", "--", "cat"], 2, "/etc"),
    ] {
        let finished = run(world.program("lazaret").arg("acp").args(arguments), LIMIT);
        assert_eq!(finished.code(), code, "{arguments:?}: {}", finished.text());
        assert!(
            finished.errors().contains(why),
            "{arguments:?}: {}",
            finished.errors()
        );
        let mut editor = Editor::of(world.program("lazaret").arg("acp").args(arguments));
        assert_eq!(
            process::wait(&mut editor.child, LIMIT).unwrap().code(),
            Some(code),
            "{arguments:?}"
        );
    }
}

place_test!(files_and_commands_of_an_agent_are_guarded_by_the_users_hooks);
fn files_and_commands_of_an_agent_are_guarded_by_the_users_hooks(place: Place) {
    let world = World::new(place);
    guarded(&world, "before_tool", GUARD, "");
    let script = world.base().join("agent.py");
    world.write(&script, AGENT);
    let mut command = dressed(&world, world.lazaret("acp"));
    command.args(["--", "python3"]).arg(script).arg("plain");
    let mut editor = Editor::of(&mut command);
    editor.request(
        "initialize",
        json!({ "protocolVersion": 1, "clientCapabilities": {} }),
    );
    editor.request(
        "session/new",
        json!({ "cwd": world.project, "mcpServers": [] }),
    );
    let run = |name: &str| json!({ "command": "touch", "args": [name] });
    assert_eq!(editor.terminal(run("made")).0, exited(0), "control");
    let write = |name: &str| {
        let params = json!({ "path": world.project.join(name), "content": "x" });
        ask("fs/write_text_file", params)
    };
    let refused = editor.prompt(&[write("secret"), ask("terminal/create", run("secret"))]);
    let shelled = editor.prompt(&[json!({ "shell": "touch secret; true" })]);
    let written = json!(refused).to_string();
    assert!(written.contains(BLOCKED), "{written} {shelled:?}");
    assert!(world.project.join("made").exists() && !world.project.join("secret").exists());
    editor.close();
}
