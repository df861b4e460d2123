//! A model's server on this machine that does not run: named with the command that starts it, and started only where the user's
//! settings say how.

use super::chats::{Printed, configure};
use lazaret_tests::process::{self, Process, until};
use lazaret_tests::{LIMIT, Place, World, once_test, run};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// Speaks like Ollama, and leaves its number in a file.
const SERVER: &str = r#"#!/usr/bin/python3
import http.server, json, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/show":
            answer = {"capabilities": ["completion", "tools"], "model_info": {"x.context_length": 8192}}
        else:
            answer = {"message": {"role": "assistant", "content": "Here I am."}, "done": True, "done_reason": "stop"}
        body = (json.dumps(answer) + "\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
keys = [name in os.environ for name in ("ANTHROPIC_API_KEY", "MODEL_TOKEN", "PLAIN")]
open(sys.argv[1], "w").write(f"{os.getpid()} {os.getsid(0)} {keys}")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
"#;

/// A port on which nobody listens.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn chat(world: &World, port: u16, start: &str) -> Command {
    let mut command = world.lazaret("chat");
    command.args(["--json", "--provider", "ollama", "--model", "m", "x"]);
    let config = format!("[providers.ollama]\nbase_url = \"http://localhost:{port}\"\n{start}");
    configure(world, &mut command, &config);
    command.env("ANTHROPIC_API_KEY", "sk-not-for-the-server");
    let policy = "version = 1\n[credential.one]\nfrom = { env = 'MODEL_TOKEN' }\nhosts = ['a.example:443']\nattach = 'bearer'\n";
    world.write(&world.home.join("config/lazaret/policy.toml"), policy);
    command
        .env("MODEL_TOKEN", "not-for-the-server-either")
        .env("PLAIN", "x");
    command
}

once_test!(a_server_that_does_not_run_is_named_and_started_only_where_the_settings_say_how);
fn a_server_that_does_not_run_is_named_and_started_only_where_the_settings_say_how() {
    let world = World::new(Place::any());
    let program = world.home.join("server");
    world.write(&program, SERVER);
    run(world.host("chmod").arg("755").arg(&program), LIMIT).success();
    let (port, told) = (free_port(), world.home.join("told"));
    let unsaid = Printed::of(&mut chat(&world, port, ""));
    let error = unsaid.one("error");
    assert_eq!(error["code"], "connection_error");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("`ollama serve`"),
        "{error}"
    );
    assert!(!told.exists());
    let start = format!("start = [{program:?}, {told:?}, \"{port}\"]\n");
    let started = Printed::of(&mut chat(&world, port, &start));
    started.finished.success();
    assert_eq!(started.text(), "Here I am.");
    // It is not ours: it runs on, in a process session of its own, without our keys, and is not started twice.
    let first = fs::read_to_string(&told).unwrap();
    let words: Vec<&str> = first.splitn(3, ' ').collect();
    assert!(
        words[0] == words[1] && words[2] == "[False, False, True]",
        "{first}"
    );
    Printed::of(&mut chat(&world, port, &start))
        .finished
        .success();
    assert_eq!(fs::read_to_string(&told).unwrap(), first);
    let pid: i32 = words[0].parse().unwrap();
    process::kill_tree(pid);
    assert!(until(LIMIT, || Process::find(pid).is_none()));
}

once_test!(a_server_of_the_project_is_not_started);
fn a_server_of_the_project_is_not_started() {
    let world = World::new(Place::any());
    let told = world.home.join("told");
    let text = format!("#!/bin/sh\necho x > {}\n", told.display());
    let [own, free] = [world.project.join("helper"), world.home.join("server")];
    world.write(&own, &text);
    world.write(&free, format!("#!/usr/bin/env helper\n{text}"));
    let mode = |path: &Path| {
        run(world.host("chmod").arg("755").arg(path), LIMIT).success();
    };
    mode(&own);
    mode(&free);
    let tried = |program: &Path| {
        let mut command = world.program("lazaret-executor");
        command.arg("start").args([&*world.project, program]);
        command.env("PATH", format!("{}:/usr/bin:/bin", world.project.display()));
        run(&mut command, LIMIT);
        told.exists()
    };
    assert!(!tried(&own) && !tried(&free));
    world.write(&free, &text);
    mode(&free);
    assert!(tried(&free), "the control");
}

once_test!(a_server_is_started_by_its_full_path_and_only_for_this_machine);
fn a_server_is_started_by_its_full_path_and_only_for_this_machine() {
    let world = World::new(Place::any());
    let relative = run(
        &mut chat(&world, free_port(), "start = [\"ollama\", \"serve\"]\n"),
        LIMIT,
    );
    relative.expect(2);
    assert!(
        relative.errors().contains("full path"),
        "{}",
        relative.errors()
    );
    let mut command = world.lazaret("chat");
    command.args(["--provider", "claude", "--model", "m", "x"]);
    configure(
        &world,
        &mut command,
        "[providers.claude]\nstart = [\"/bin/true\"]\n",
    );
    let elsewhere = run(&mut command, LIMIT);
    elsewhere.expect(2);
    assert!(
        elsewhere.errors().contains("not of this machine"),
        "{}",
        elsewhere.errors()
    );
}
