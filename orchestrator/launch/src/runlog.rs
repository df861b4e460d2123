//! The run log: the requests to Lazaret in one run, and its answers, as lines of JSON.
//!
//! `runs/RUN/runlog.jsonl` in the state directory, only ever appended to. A line is `{ts, kind, step, payload}`: seconds since
//! 1970, its kind, the number of the tool call it belongs to (0 for the session), and its data. It is a subscriber of the
//! front ends' event stream, so it contains what they show. `payload.id` is the client's ID of a call in `lazaret session`;
//! `payload.call` is the call's ID in the broker's audit, within the session of the last `session_start`.
//!
//! A line is one write, so that a death at any time leaves whole lines; it is not synced to disk by us. In a session with many
//! calls it is written 20 milliseconds after the event, for several calls together. Texts in it are at most 2,000 characters long. A
//! log that cannot be written is reported once and given up: what must not be missing is in the audit.

use crate::runlog_files::{self, BYTES_MAX};
use broker_protocol::{Challenge, ConnectionReport, LayerState, Opened};
use orchestrator_engine::{ApprovalAnswer, Body, CallResult, Event, Subscriber};
use orchestrator_text::escape::for_terminal;
use orchestrator_text::known::redactor;
use orchestrator_text::redact::change_texts;
use orchestrator_text::truncate::brief;
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Kinds of lines that sessions have.
pub const KINDS: [&str; 12] = [
    "session_start",
    "register",
    "unregister",
    "tool_call",
    "tool_result",
    "tool_error",
    "security_event",
    "approval",
    "connection",
    "hook",
    "session_end",
    "log_full",
];

/// How long lines wait in a session with many calls: longer than a short call takes, which then does not have to set a timer.
pub const PAUSE: Duration = Duration::from_millis(20);

/// Most lines that wait to be written.
const WAITING_MAX: usize = 64;

/// Turns of the runtime from an event to the last task that it makes ready.
const TURNS: usize = 4;

/// The log of this run.
pub struct RunLog {
    command: &'static str,
    complain: fn(&str),
    file: RefCell<Option<File>>,
    bytes: Cell<u64>,
    calls: Cell<u64>,
    errors: Cell<u64>,
    waiting: RefCell<Vec<(f64, WaitingEntry)>>,
    /// Whether [`RunLog::write_later`] runs and is notified of waiting lines.
    is_late: Cell<bool>,
    arrived: Notify,
}

/// An entry that waits to be written.
enum WaitingEntry {
    /// An event of a session.
    Event(Event),
    /// Kind and payload of a line of an agent's run.
    Run(&'static str, Value),
}

#[derive(Serialize)]
struct RunLogLine {
    ts: f64,
    kind: &'static str,
    step: u64,
    payload: Value,
}

impl Subscriber for RunLog {
    fn hear(&self, event: &Event) {
        if let Body::Result(result) = &*event.body {
            self.calls.set(self.calls.get() + 1);
            self.errors
                .set(self.errors.get() + u64::from(result.error.is_some()));
        }
        if self.file.borrow().is_some() {
            self.add(WaitingEntry::Event(event.clone()));
        }
    }
}

impl RunLog {
    /// Begins the log of a run of `command`. An error that prevents writing is reported to `complain`, once.
    pub(crate) fn begin(command: &'static str, complain: fn(&str)) -> Self {
        let file = runlog_files::create();
        let file = file.map_err(|error| complain(&problem(&error))).ok();
        Self {
            file: RefCell::new(file),
            ..Self::off(command, complain)
        }
    }

    /// No log of a run of `command`.
    pub(crate) fn off(command: &'static str, complain: fn(&str)) -> Self {
        Self {
            complain,
            command,
            file: RefCell::new(None),
            bytes: Cell::new(0),
            calls: Cell::new(0),
            errors: Cell::new(0),
            waiting: RefCell::default(),
            is_late: Cell::new(false),
            arrived: Notify::new(),
        }
    }

    /// Adds a line of an agent's run.
    pub fn add_of_run(&self, kind: &'static str, payload: Value) {
        self.add(WaitingEntry::Run(kind, payload));
    }

    fn add(&self, line: WaitingEntry) {
        if self.file.borrow().is_none() {
            return;
        }
        let mut waiting = self.waiting.borrow_mut();
        waiting.push((now(), line));
        if self.is_late.get() && waiting.len() < WAITING_MAX {
            self.arrived.notify_one();
        } else {
            drop(waiting);
            self.write();
        }
    }

    /// From now on this task writes the lines, in the turn after their events, and not before `pause` is over. Otherwise, when calls
    /// follow each other at once, logging competes with client and executor for the CPU.
    pub async fn write_later(self: Rc<Self>, pause: Duration) {
        self.is_late.set(true);
        loop {
            self.arrived.notified().await;
            if pause.is_zero() {
                // Who waits for us goes first: tasks that are ready and those that they make so, as a session that has opened makes
                // its first call, and who was sent something and woke on this processor.
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
                std::thread::yield_now();
            } else {
                tokio::time::sleep(pause).await;
            }
            self.write();
        }
    }

    /// Ends the log: writes waiting lines, and the last line.
    pub fn end(&self, reason: &str) {
        self.is_late.set(false);
        self.write();
        // Even a full log gets its last line.
        let payload =
            json!({ "reason": reason, "calls": self.calls.get(), "errors": self.errors.get() });
        self.append(&RunLogLine {
            ts: now(),
            kind: "session_end",
            step: 0,
            payload,
        });
    }

    fn write(&self) {
        for (ts, waiting) in self.waiting.take() {
            let (line, step) = match waiting {
                WaitingEntry::Event(event) => (self.line(&event), event.call),
                WaitingEntry::Run(kind, payload) => (Some((kind, payload)), 0),
            };
            let Some((kind, mut payload)) = line else {
                continue;
            };
            if self.bytes.get() > BYTES_MAX {
                continue;
            }
            // What a client names, its tools among it, is in events as it is.
            change_texts(&mut payload, &|text| {
                let cut = brief(text);
                let clear = redactor().text(&cut);
                let shown = for_terminal(&clear);
                let shown = brief(&shown);
                (shown != text).then(|| shown.into_owned())
            });
            self.append(&RunLogLine {
                ts,
                kind,
                step,
                payload,
            });
            if self.bytes.get() > BYTES_MAX {
                let payload = json!({ "bytes": BYTES_MAX });
                self.append(&RunLogLine {
                    ts,
                    kind: "log_full",
                    step,
                    payload,
                });
            }
        }
    }

    fn append(&self, line: &RunLogLine) {
        let mut file = self.file.borrow_mut();
        let Some(open) = file.as_mut() else { return };
        let written = serde_json::to_vec(line)
            .map_err(io::Error::from)
            .and_then(|mut line| {
                line.push(b'\n');
                self.bytes.set(self.bytes.get() + line.len() as u64);
                open.write_all(&line)
            });
        if let Err(error) = written {
            (self.complain)(&problem(&error));
            *file = None;
        }
    }

    /// Kind and payload of an event's line; `None` for events that are not recorded.
    fn line(&self, event: &Event) -> Option<(&'static str, Value)> {
        let batch = event.part.map(|part| part.batch);
        Some(match &*event.body {
            Body::SessionOpened(opened) => ("session_start", session_start(self.command, opened)),
            Body::ToolRegistered {
                client_id,
                tool,
                description,
                schema,
                risk,
                timeout_s,
            } => (
                "register",
                json!({ "id": client_id, "tool": tool, "description": description, "inputSchema": schema,
                    "risk": risk, "timeout": timeout_s }),
            ),
            Body::ToolUnregistered { client_id, tool } => {
                ("unregister", json!({ "id": client_id, "tool": tool }))
            }
            Body::Requested {
                client_id,
                tool,
                input,
            } => (
                "tool_call",
                json!({ "id": client_id, "batch": batch, "tool": tool, "input": input }),
            ),
            Body::ApprovalWanted(question) => ("approval", approval(&question.challenge, None)),
            Body::ApprovalGiven {
                challenge,
                approval: answer,
            } => ("approval", approval(challenge, Some(*answer))),
            Body::Violation(violation) => {
                let mut payload = json!(violation);
                payload["event_type"] = "sandbox_violation".into();
                ("security_event", payload)
            }
            Body::Hook(ran) => ("hook", json!(ran)),
            Body::Connection(ConnectionReport {
                host,
                port,
                verdict,
                why,
                count,
                ..
            }) => (
                "connection",
                json!({ "host": host, "port": port, "verdict": verdict.name(), "why": why, "count": count }),
            ),
            Body::Result(result) => call_result(result),
            Body::RequestSent { .. } | Body::Suspended | Body::Output { .. } => return None,
        })
    }
}

fn now() -> f64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_micros() as f64 / 1e6
}

fn session_start(command: &str, opened: &Opened) -> Value {
    let in_force = opened
        .layers
        .iter()
        .filter(|report| matches!(report.state, LayerState::InForce(_)));
    json!({
        "command": command,
        "version": env!("CARGO_PKG_VERSION"),
        "session": opened.session,
        "project": opened.project,
        "central": opened.central,
        "profile": opened.profile,
        "policy": opened.policy.to_string(),
        "tier": opened.tier.name(),
        "layers": in_force.map(|report| report.layer.name()).collect::<Vec<_>>(),
    })
}

fn approval(challenge: &Challenge, answer: Option<ApprovalAnswer>) -> Value {
    let answer = answer.map(|answer| match answer {
        ApprovalAnswer::Yes(extent) => extent.name(),
        ApprovalAnswer::No => "no",
    });
    let (risk, channel) = (challenge.risk.name(), challenge.channel.name());
    json!({ "digest": challenge.digest.to_string(), "rule": challenge.rule, "risk": risk, "channel": channel, "answer": answer })
}

fn call_result(result: &CallResult) -> (&'static str, Value) {
    // Converting bytes that are no text may produce a secret, so the text is searched again.
    let text = match String::from_utf8_lossy(&result.text) {
        Cow::Borrowed(text) => Cow::Borrowed(text),
        Cow::Owned(text) => Cow::Owned(redactor().text(&text).into_owned()),
    };
    let text = brief(&text);
    let mut payload = json!({ "call": result.number(), "tool": result.tool(), "stage": "result" });
    let mut kind = "tool_result";
    if let Some(error) = &result.error {
        kind = "tool_error";
        payload["stage"] = error.kind.layer().name().into();
        payload["error"] = error.kind.name().into();
        payload["message"] = error.message.as_str().into();
    }
    payload["result"] = (*text).into();
    payload["metadataType"] = result.metadata_type().into();
    payload["metadata"] = json!(result.metadata());
    (kind, payload)
}

fn problem(error: &io::Error) -> String {
    format!(
        "this run has no log: {error} in {}; --no-log asks for none",
        runlog_files::directory().display()
    )
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test may open what it likes.
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_full_log_ends_with_a_line_that_says_so_and_with_its_last_one() {
        let log = RunLog::off("test", |_| {});
        let path = std::env::temp_dir().join(format!("lazaret-runlog-{}", std::process::id()));
        log.file.replace(Some(File::create(&path).unwrap()));
        let client_id = json!("x".repeat(1900));
        let body = Arc::new(Body::ToolUnregistered {
            client_id,
            tool: "t".into(),
        });
        let event = Event {
            call: 1,
            part: None,
            body,
        };
        while log.bytes.get() <= BYTES_MAX {
            Subscriber::hear(&log, &event);
        }
        let full = log.bytes.get();
        assert!(full <= BYTES_MAX + 4096, "{full}");
        Subscriber::hear(&log, &event);
        assert_eq!(log.bytes.get(), full);
        log.end("full");
        let text = std::fs::read_to_string(&path).unwrap();
        let kinds: Vec<Value> = text
            .lines()
            .rev()
            .take(3)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let kinds: Vec<&str> = kinds
            .iter()
            .map(|line| line["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["session_end", "log_full", "unregister"]);
        std::fs::remove_file(path).unwrap();
    }
}
