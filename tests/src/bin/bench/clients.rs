//! Programs to measure, and the clients that measure them: without threads, and with little work of their own.

use lazaret_tests::World;
use lazaret_tests::process;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub fn spawn(command: &mut Command) {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{command:?} failed"
    );
}

pub fn bubblewrap(world: &World, command: &[&str]) -> Command {
    let project = world.project.to_str().expect("a name of ours");
    let mut bwrap = world.host("bwrap");
    bwrap.args([
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
    ]);
    bwrap.args(["--bind", project, project, "--chdir", project]);
    bwrap
        .args(["--unshare-all", "--die-with-parent", "--new-session"])
        .args(command);
    bwrap
}

/// A client of `lazaret session`.
pub struct Lines(Piped);

impl Lines {
    pub fn open(world: &World, options: &[&str]) -> Self {
        let mut lines = Self(Piped::start(world.lazaret("session").args(options)));
        let first = lines.0.line();
        assert!(
            first.contains("\"ready\""),
            "the session did not open: {first}"
        );
        lines
    }

    pub fn pid(&self) -> i32 {
        self.0.pid()
    }

    pub fn bash(&mut self, command: &str) {
        self.call("bash", &json!({ "command": command }));
    }

    pub fn call(&mut self, tool: &str, input: &Value) {
        self.0
            .say(&json!({"id": "1", "tool": tool, "input": input}));
        loop {
            let line = self.0.line();
            if line.contains("\"event\":\"result\"") {
                assert!(line.contains("\"success\""), "{line}");
                return;
            }
        }
    }
}

/// A client of `lazaret mcp`.
pub struct Mcp {
    piped: Piped,
    id: u64,
}

impl Mcp {
    pub fn open(world: &World) -> Self {
        let mut command = world.lazaret("mcp");
        command.arg("--trust").arg("autonomous");
        let mut mcp = Self {
            piped: Piped::start(&mut command),
            id: 0,
        };
        let client = json!({"name": "bench", "version": "1"});
        mcp.ask(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}),
        );
        mcp.piped
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        mcp
    }

    pub fn bash(&mut self, command: &str) {
        let answer = self.ask(
            "tools/call",
            &json!({"name": "bash", "arguments": {"command": command}}),
        );
        assert!(answer["result"]["isError"] != true, "{answer}");
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.id += 1;
        self.piped
            .say(&json!({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}));
        loop {
            let answer: Value = serde_json::from_str(&self.piped.line()).expect("a message");
            if answer["id"] == self.id {
                assert!(answer["result"].is_object(), "{answer}");
                return answer;
            }
        }
    }
}

/// A program with which lines are exchanged.
struct Piped {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Piped {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("lazaret starts");
        let stdin = child.stdin.take().expect("stdin is a pipe");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        Self {
            child,
            stdin,
            stdout,
        }
    }

    fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    fn say(&mut self, message: &Value) {
        self.stdin
            .write_all(format!("{message}\n").as_bytes())
            .expect("it takes a line");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stdout.read_line(&mut line).expect("it answers");
        assert!(length > 0, "it has ended");
        line
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        process::kill_tree(self.pid());
        let _ = self.child.wait();
    }
}

/// A peer of a socket that echoes its input.
pub struct Echo(UnixStream);

impl Echo {
    pub fn start() -> Self {
        let (ours, mut theirs) = UnixStream::pair().expect("a socketpair can be had");
        std::thread::spawn(move || {
            let mut buffer = [0; 100];
            while theirs
                .read_exact(&mut buffer)
                .and_then(|()| theirs.write_all(&buffer))
                .is_ok()
            {}
        });
        Self(ours)
    }

    pub fn round_trip(&mut self) {
        let mut buffer = [7; 100];
        let sent = self
            .0
            .write_all(&buffer)
            .and_then(|()| self.0.read_exact(&mut buffer));
        assert!(sent.is_ok(), "the echo is gone");
    }
}
