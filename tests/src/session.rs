//! A client of `lazaret session`: JSON lines in and out.

use crate::process;
use crate::process::LIMIT;
use crate::world::World;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

pub struct Session {
    pub child: Child,
    /// The session as its first line described it.
    pub ready: Value,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Events of calls that no test has requested yet.
    waiting: HashMap<String, Vec<Value>>,
    next: u64,
}

/// Every event of one call; the result comes last.
#[derive(Debug)]
pub struct Answer {
    /// Its output and other events, in order.
    pub events: Vec<Value>,
    pub result: Value,
}

impl Session {
    /// Opens a session in a world.
    #[track_caller]
    pub fn open(world: &World) -> Self {
        Self::start(&mut world.lazaret("session"))
    }

    /// Starts a prepared `lazaret session` command.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let described = format!("{command:?}");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {described}: {error}"));
        let stdin = child.stdin.take();
        let lines = read_lines(child.stdout.take().expect("stdout is a pipe"));
        let errors = child.stderr.take().expect("stderr is a pipe");
        let errors = thread::spawn(move || std::io::read_to_string(errors).unwrap_or_default());
        let Ok(first) = lines.recv_timeout(LIMIT) else {
            let _ = child.kill();
            let status = child.wait();
            panic!(
                "{described}: no first line, {status:?}\n{}",
                errors.join().unwrap_or_default()
            );
        };
        assert_eq!(
            first["event"], "ready",
            "the first line of a session: {first}"
        );
        Self {
            child,
            ready: first["session"].clone(),
            stdin,
            lines,
            waiting: HashMap::new(),
            next: 0,
        }
    }

    /// The process id of `lazaret session`.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Sends one line; panics if the session does not accept it.
    #[track_caller]
    pub fn send(&mut self, line: &Value) {
        self.try_send(line).expect("the session takes a line");
    }

    pub fn try_send(&mut self, line: &Value) -> std::io::Result<()> {
        let stdin = self.stdin.as_mut().expect("the session's input is open");
        stdin.write_all(format!("{line}\n").as_bytes())
    }

    /// Starts a call and returns its ID.
    #[track_caller]
    pub fn start_call(&mut self, tool: &str, input: Value) -> String {
        self.next += 1;
        let id = format!("call-{}", self.next);
        self.send(&json!({"id": id, "tool": tool, "input": input}));
        id
    }

    pub fn cancel(&mut self, id: &str) {
        self.send(&json!({"id": id, "cancel": true}));
    }

    /// All events of a call until its result. Panics if that does not come within `limit`.
    #[track_caller]
    pub fn answer_within(&mut self, id: &str, limit: Duration) -> Answer {
        let end = Instant::now() + limit;
        loop {
            let events = self.waiting.entry(id.to_owned()).or_default();
            if events
                .last()
                .is_some_and(|event| event["event"] == "result")
            {
                let mut events = self.waiting.remove(id).unwrap_or_default();
                let result = events.pop().expect("the result was there a line ago");
                return Answer { events, result };
            }
            let left = end.saturating_duration_since(Instant::now());
            let line = self.line(left).unwrap_or_else(|| {
                panic!("no result of {id} within {limit:?}: {:?}", self.waiting)
            });
            let owner = line["id"].as_str().unwrap_or("").to_owned();
            self.waiting.entry(owner).or_default().push(line);
        }
    }

    /// The next event of a call, if one arrives within `limit`.
    pub fn event(&mut self, id: &str, limit: Duration) -> Option<Value> {
        let end = Instant::now() + limit;
        loop {
            let events = self.waiting.entry(id.to_owned()).or_default();
            if !events.is_empty() {
                return Some(events.remove(0));
            }
            let line = self.line(end.saturating_duration_since(Instant::now()))?;
            let owner = line["id"].as_str().unwrap_or("").to_owned();
            self.waiting.entry(owner).or_default().push(line);
        }
    }

    /// The next line, if one arrives within `limit`.
    pub fn line(&mut self, limit: Duration) -> Option<Value> {
        self.lines.recv_timeout(limit).ok()
    }

    /// One call from start to result.
    #[track_caller]
    pub fn call(&mut self, tool: &str, input: Value) -> Answer {
        let id = self.start_call(tool, input);
        self.answer_within(&id, LIMIT)
    }

    /// One shell command from start to result.
    #[track_caller]
    pub fn bash(&mut self, command: &str) -> Answer {
        self.call("bash", json!({"command": command}))
    }

    /// Closes the session's input and waits for its end.
    #[track_caller]
    pub fn close(mut self, limit: Duration) -> ExitStatus {
        drop(self.stdin.take());
        process::wait(&mut self.child, limit)
            .unwrap_or_else(|| panic!("the session is not over after {limit:?}"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if process::wait(&mut self.child, LIMIT).is_none() {
            process::kill_tree(self.pid());
            let _ = self.child.wait();
        }
    }
}

impl Answer {
    /// Whether the call succeeded.
    pub fn ok(&self) -> bool {
        self.result["status"] == "success"
    }

    /// The text of the result; if it is empty, the error.
    pub fn text(&self) -> &str {
        rendered(&self.result)
    }

    /// The text of the result of a call that must have succeeded.
    #[track_caller]
    pub fn success(&self) -> &str {
        assert!(self.ok(), "the call failed: {}", self.result);
        self.text()
    }

    /// The kind of the error; empty if there is none.
    pub fn kind(&self) -> &str {
        self.result["error"]["code"].as_str().unwrap_or_default()
    }

    /// The exit code in the metadata.
    pub fn exit_code(&self) -> Option<i64> {
        self.result["metadata"]["exitCode"].as_i64()
    }
}

/// The text of a result without the error before it; if it is empty, the error.
pub fn rendered(result: &Value) -> &str {
    let text = result["result"].as_str().unwrap_or_default();
    let inside = result["error"]["message"].as_str().and_then(|error| {
        text.strip_prefix("<error>")?
            .strip_prefix(error)?
            .strip_prefix("</error>\n<result>")?
            .strip_suffix("</result>")
    });
    inside.unwrap_or(text)
}

fn read_lines(stream: impl std::io::Read + Send + 'static) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let value = serde_json::from_str(&line)
                .unwrap_or_else(|_| json!({"event": "not JSON", "line": line}));
            if sender.send(value).is_err() {
                return;
            }
        }
    });
    receiver
}
