//! The run log: what was asked of Lazaret in one run of it, and what it answered, as lines of JSON.
//!
//! `runs/RUN/runlog.jsonl` in the state directory, only ever appended to. A line is `{ts, kind, step, payload}`: seconds
//! since 1970, one of [`KINDS`], the number of the tool call it belongs to (0 for the session), and what there is to say.
//! `payload.id` is the client's name for a call of `lazaret session`; `payload.call` is the call's number in the broker's
//! audit, within the session of the last `session_start`.
//!
//! A line is one write, so that a death at any time leaves whole lines; it is not brought to disk by us. In a session with
//! many calls it is written once nobody waits for us: after a call's request is on its way, and after its result is. Texts
//! in it are without known secrets and at most 2,000 characters long. A log that cannot be written is said once and given
//! up: what must not be missing stands in the audit.

use super::cli::say;
use super::secrets::known;
use super::state;
use crate::domain::answer::{About, Answer};
use crate::domain::time::Utc;
use crate::domain::violation::SecurityEvent;
use crate::ports::{Approval, Observer};
use broker_protocol::{CallId, Challenge, Failed, Opened};
use serde::Serialize;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Every kind of line.
pub const KINDS: [&str; 10] = [
    "session_start",
    "register",
    "unregister",
    "tool_call",
    "tool_result",
    "tool_error",
    "security_event",
    "approval",
    "session_end",
    "log_full",
];

/// Runs that are kept; the oldest go first, and none that is under way.
pub const RUNS_MAX: usize = 200;
/// Bytes of one log; then it says that it is full and has no more lines but its end.
pub const BYTES_MAX: u64 = 8 << 20;

const NAME: &str = "runlog.jsonl";
/// Most lines that wait to be written.
const WAITING_MAX: usize = 64;

/// The log of this run.
#[derive(Default)]
pub struct RunLog {
    file: RefCell<Option<File>>,
    bytes: Cell<u64>,
    steps: Cell<u64>,
    errors: Cell<u64>,
    /// What is not written yet.
    waiting: RefCell<Vec<Entry>>,
    /// Whether [`RunLog::write_later`] runs, and is told that something waits.
    is_late: Cell<bool>,
    told: Notify,
}

/// What one line says.
struct Entry {
    ts: f64,
    step: u64,
    said: Said,
}

enum Said {
    /// This, which is without secrets.
    Payload(&'static str, Value),
    /// That a call has its answer: what of it is looked through when it is written. The text is brief.
    Answer { about: Box<About>, error: Option<Failed>, text: String },
}

#[derive(Serialize)]
struct Line {
    ts: f64,
    kind: &'static str,
    step: u64,
    payload: Value,
}

/// Every call passes here, whoever makes it.
impl Observer for RunLog {
    fn asked(&self, call: u64, id: Option<&Value>, batch: Option<u64>, tool: &str, input: &Value) {
        if self.is_on() {
            let payload = json!({
                "id": id.map(|id| known().value(id)),
                "batch": batch,
                "tool": known().brief(tool),
                "input": known().value(input),
            });
            self.say(call, Said::Payload("tool_call", payload));
        }
    }

    fn started(&self, _: u64, _: CallId) {}

    fn approval(&self, call: u64, challenge: &Challenge, answer: Option<Approval>) {
        let answer = answer.map(|answer| match answer {
            Approval::Yes(extent) => extent.name(),
            Approval::No => "no",
        });
        let (risk, channel) = (challenge.risk.name(), challenge.channel.name());
        let payload = json!({
            "digest": challenge.digest.to_string(), "rule": challenge.rule, "risk": risk, "channel": channel, "answer": answer,
        });
        self.note("approval", call, &payload);
    }

    fn violated(&self, call: u64, event: &SecurityEvent) {
        if self.is_on() {
            let mut payload = known().value(&json!(event));
            payload["event_type"] = "sandbox_violation".into();
            self.say(call, Said::Payload("security_event", payload));
        }
    }

    fn answered(&self, call: u64, answer: &Answer) {
        self.steps.set(self.steps.get() + 1);
        self.errors.set(self.errors.get() + u64::from(answer.error.is_some()));
        if self.is_on() {
            let text = known().brief(&String::from_utf8_lossy(&answer.text));
            let (about, error) = (Box::new(answer.about.clone()), answer.error.clone());
            self.say(call, Said::Answer { about, error, text });
        }
    }
}

impl Said {
    /// The kind of line, and what it says.
    fn line(self) -> (&'static str, Value) {
        let (about, error, text) = match self {
            Said::Payload(kind, payload) => return (kind, payload),
            Said::Answer { about, error, text } => (about, error, text),
        };
        let mut payload = json!({ "call": about.call, "tool": about.tool, "stage": "result" });
        let mut kind = "tool_result";
        if let Some(error) = error {
            kind = "tool_error";
            payload["stage"] = error.kind.layer().name().into();
            payload["error"] = error.kind.name().into();
            payload["message"] = known().brief(&error.message).into();
        }
        payload["result"] = text.into();
        payload["metadataType"] = about.details.type_name().into();
        payload["metadata"] = known().value(&json!(about));
        (kind, payload)
    }
}

impl RunLog {
    /// Begins the log of a run, or none if it is `off`.
    pub fn begin(off: bool) -> Self {
        let file = if off { None } else { create().map_err(|error| complain(&error)).ok() };
        Self { file: RefCell::new(file), ..Self::default() }
    }

    /// From now on lines are written by this task, in the turn after the one that has said them.
    pub async fn write_later(self: Rc<Self>) {
        self.is_late.set(true);
        loop {
            self.told.notified().await;
            self.write();
        }
    }

    /// A session was opened for `command`.
    pub fn session(&self, command: &str, opened: &Opened) {
        let layers = opened.layers.iter().filter_map(|report| match report.state {
            broker_protocol::LayerState::InForce(_) => Some(report.layer.name()),
            broker_protocol::LayerState::Missing { .. } => None,
        });
        let payload = json!({
            "command": command,
            "version": env!("CARGO_PKG_VERSION"),
            "session": opened.session,
            "project": opened.project,
            "central": opened.central,
            "profile": opened.profile,
            "policy": opened.policy.to_string(),
            "tier": opened.tier.name(),
            "layers": layers.collect::<Vec<_>>(),
        });
        self.note("session_start", 0, &payload);
    }

    /// The run is over: what is told last.
    pub fn end(&self, reason: &str) {
        if !self.is_on() {
            return;
        }
        self.is_late.set(false);
        self.write();
        // A full log has its end all the same.
        self.bytes.set(0);
        let payload = json!({ "reason": reason, "calls": self.steps.get(), "errors": self.errors.get() });
        self.say(0, Said::Payload("session_end", payload));
    }

    /// Writes a line of this kind, one of [`KINDS`], without secrets in it.
    pub fn note(&self, kind: &'static str, step: u64, payload: &Value) {
        self.say(step, Said::Payload(kind, known().value(payload)));
    }

    fn is_on(&self) -> bool {
        self.file.borrow().is_some()
    }

    /// Has a line written.
    fn say(&self, step: u64, said: Said) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut waiting = self.waiting.borrow_mut();
        waiting.push(Entry { ts: since.as_micros() as f64 / 1e6, step, said });
        if self.is_late.get() && waiting.len() < WAITING_MAX {
            self.told.notify_one();
        } else {
            drop(waiting);
            self.write();
        }
    }

    /// Writes what waits.
    fn write(&self) {
        for Entry { ts, step, said } in self.waiting.take() {
            if self.bytes.get() > BYTES_MAX {
                continue;
            }
            let (kind, payload) = said.line();
            self.append(&Line { ts, kind, step, payload });
            if self.bytes.get() > BYTES_MAX {
                self.append(&Line { ts, kind: "log_full", step, payload: json!({ "bytes": BYTES_MAX }) });
            }
        }
    }

    fn append(&self, line: &Line) {
        let mut file = self.file.borrow_mut();
        let Some(open) = file.as_mut() else { return };
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut line| {
            line.push(b'\n');
            self.bytes.set(self.bytes.get() + line.len() as u64);
            open.write_all(&line)
        });
        if let Err(error) = written {
            complain(&error);
            *file = None;
        }
    }
}

fn complain(error: &io::Error) {
    say::problem(&format!(
        "this run has no log: {error} in {}; --no-log asks for none",
        directory().display()
    ));
}

fn directory() -> PathBuf {
    state::directory().join("runs")
}

#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
fn create() -> io::Result<File> {
    let runs = directory();
    DirBuilder::new().recursive(true).mode(0o700).create(&runs)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let id = format!(
        "{}-{:06}-{}",
        Utc::from_seconds(now.as_secs()).compact(),
        now.subsec_micros(),
        std::process::id()
    );
    let run = runs.join(id);
    let file = match make_room(&run) {
        Some(file) => file,
        None => {
            DirBuilder::new().mode(0o700).create(&run)?;
            OpenOptions::new().append(true).create_new(true).mode(0o600).open(run.join(NAME))?
        }
    };
    // Held until we end, however we end: a run that is under way is not removed.
    file.try_lock_shared()?;
    Ok(file)
}

/// Gives `run` the place of the oldest run, where there are as many as are kept, and removes others beyond those. A file that
/// is used again costs a filesystem a tenth of one removed and one made. Later we could not do this: see `confine`. What
/// cannot be had or removed is passed over: no old run is worth the log of this one.
#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
fn make_room(run: &Path) -> Option<File> {
    let runs = ids().unwrap_or_default();
    let mut surplus = (runs.len() + 1).saturating_sub(RUNS_MAX);
    let mut place = None;
    for id in runs {
        if surplus == 0 {
            break;
        }
        let old = directory().join(id);
        // Where a link stands in the place of a log, it is not ours.
        let opened = OpenOptions::new().append(true).custom_flags(nix::libc::O_NOFOLLOW).open(old.join(NAME));
        let Some(file) = opened.ok().filter(|file| file.try_lock().is_ok()) else { continue };
        let gone = if place.is_none() {
            place = use_again(&old, file, run).ok();
            place.is_some()
        } else {
            std::fs::remove_file(old.join(NAME)).and_then(|()| std::fs::remove_dir(&old)).is_ok()
        };
        surplus -= usize::from(gone);
    }
    place
}

/// Makes the run `old`, with this log, the run `run`, with an empty one, or leaves it as it is.
#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
fn use_again(old: &Path, log: File, run: &Path) -> io::Result<File> {
    std::fs::rename(old, run)?;
    match log.set_len(0) {
        Ok(()) => Ok(log),
        Err(error) => std::fs::rename(run, old).and(Err(error)),
    }
}

/// The runs there are, oldest first.
#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
pub fn ids() -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(directory()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut ids: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|id| is_id(id))
        .collect();
    ids.sort();
    Ok(ids)
}

/// A run's id leads to no other place.
fn is_id(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Every whole line of a run, with its JSON; none if there is no such run.
pub fn lines(id: &str) -> io::Result<Option<Vec<Value>>> {
    let text = match open(id)? {
        Some(mut file) => {
            let mut text = Vec::new();
            Read::by_ref(&mut file).take(2 * BYTES_MAX).read_to_end(&mut text)?;
            text
        }
        None => return Ok(None),
    };
    // What is no JSON was cut off by a death in the middle of a write.
    Ok(Some(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()))
}

/// First and last line of a run.
pub fn ends(id: &str) -> io::Result<Option<(Value, Value)>> {
    const END: u64 = 64 * 1024;
    let Some(mut file) = open(id)? else { return Ok(None) };
    let mut read = |from: u64| -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(&mut file).take(END).read_to_end(&mut text)?;
        Ok(text)
    };
    let first = read(0)?;
    let length = file_length(id)?;
    let last = read(length.saturating_sub(END))?;
    let value =
        |line: Option<&[u8]>| line.and_then(|line| serde_json::from_slice(line).ok()).unwrap_or(Value::Null);
    let last = last.strip_suffix(b"\n").unwrap_or(&last);
    Ok(Some((value(first.split(|b| *b == b'\n').next()), value(last.rsplit(|b| *b == b'\n').next()))))
}

fn file_length(id: &str) -> io::Result<u64> {
    Ok(std::fs::metadata(directory().join(id).join(NAME))?.len())
}

#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
fn open(id: &str) -> io::Result<Option<File>> {
    if !is_id(id) {
        return Ok(None);
    }
    match File::open(directory().join(id).join(NAME)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // A test may open what it likes.
mod tests {
    use super::*;

    #[test]
    fn a_full_log_says_so_once_and_has_its_end() {
        let file = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
        let log = RunLog { file: RefCell::new(Some(file)), ..RunLog::default() };
        let line = json!({ "text": "x".repeat(1900) });
        while log.bytes.get() <= BYTES_MAX {
            log.note("approval", 1, &line);
        }
        let full = log.bytes.get();
        assert!(full <= BYTES_MAX + 4096, "{full}");
        log.note("approval", 1, &line);
        assert_eq!(log.bytes.get(), full);
    }

    #[test]
    fn no_id_leads_elsewhere() {
        for id in ["", ".", "..", "../x", "a/b", "a.b", "a\0", "é", &"a".repeat(65)] {
            assert!(!is_id(id), "{id}");
            assert!(open(id).unwrap().is_none());
        }
        assert!(is_id("20261120-100234-000001-99"));
    }
}
