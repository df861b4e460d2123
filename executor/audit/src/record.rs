//! The records of the audit: one event each, as JSON.
//!
//! Nothing of a request's input is in it but its digest and the path it is about: input may hold secrets, and so may a
//! path, and the name of a client's tool or server, from which known ones are taken out. Messages are left out too; they may
//! quote input.

use broker_protocol::gateway::{ConnectionEnds, CredentialReport};
use broker_protocol::{
    CallId, ConnectionReport, Decision, Digest, Ended, ErrorKind, Extent, Failed, LayerSet, Lease,
    Opened, Outcome, Request, Spill, Tier, Usage, ZonePath, frame,
};
use policies::secret::Secret;
use sha2::{Digest as _, Sha256};
use std::fmt::{Display, Write as _};
use std::time::Duration;

/// Bytes of the record of an ordinary call, and of a part of it: a string that grows is copied several times.
const CALL: usize = 1024;
const PART: usize = 320;

/// How a lease has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// Its call is over.
    Call,
    Time,
    Revoked,
    /// Another object lies at its path.
    Changed,
}

impl LeaseEnd {
    fn name(self) -> &'static str {
        match self {
            LeaseEnd::Call => "call",
            LeaseEnd::Time => "time",
            LeaseEnd::Revoked => "revoked",
            LeaseEnd::Changed => "changed",
        }
    }
}

/// The fields of one record.
pub struct Record(String);

impl Record {
    fn new(kind: &str) -> Self {
        Self(String::with_capacity(CALL)).text("kind", kind)
    }

    /// The whole record as a JSON object: `seq` counts the records of the chain from 1, and `ts` is
    /// in seconds since 1970 by this machine's clock, which may jump.
    pub(crate) fn object(&self, seq: u64, ts: Duration, session: Option<&str>) -> String {
        let head = Self(String::with_capacity(PART)).value("seq", seq);
        let head = head.value(
            "ts",
            format_args!("{}.{:06}", ts.as_secs(), ts.subsec_micros()),
        );
        let head = head.optional("session", session);
        ["{", &head.0, ",", &self.0, "}"].concat()
    }

    /// A session is open.
    pub fn opened(opened: &Opened, [project, central]: [&str; 2], layers: LayerSet) -> Self {
        Self::new("opened")
            .text("project", project)
            .text("central", central)
            .text("profile", &opened.profile)
            .text("policy", &opened.policy.to_string())
            .text("tier", opened.tier.name())
            .layers(layers)
            .value("broker", std::process::id())
    }

    /// Adds that the session's changes are thrown away.
    #[must_use]
    pub fn throw_away(self) -> Self {
        self.value("throw_away", true)
    }

    /// Adds that the session's sandbox stood ready before its client came.
    #[must_use]
    pub fn warm(self) -> Self {
        self.value("warm", true)
    }

    /// Adds that the session hides no name.
    #[must_use]
    pub fn hiding_nothing(self) -> Self {
        self.value("hides", false)
    }

    /// Adds the protected names that the session's profile opens, and how many files of secrets its commands can read.
    #[must_use]
    pub fn with_opened(self, names: &[String], shown: usize) -> Self {
        let record = if names.is_empty() {
            self
        } else {
            self.text("opened_names", &names.join(", "))
        };
        if shown == 0 {
            record
        } else {
            record.value("shown_secrets", shown)
        }
    }

    /// A call that runs a command or changes something may begin.
    pub(crate) fn started(call: CallId, entry: &AuditEntry) -> Self {
        entry.describe("started", call, entry.verdict())
    }

    /// A call has ended. Each call has exactly one such record.
    pub fn ended(
        call: CallId,
        entry: &AuditEntry,
        facts: SessionFacts,
        (outcome, usage): (&Outcome, &Usage),
        secrets: &[Secret],
    ) -> Self {
        let (verdict, rule) = entry.verdict();
        let refused_by;
        let verdict = match outcome {
            Outcome::Refused(refused) => {
                // The rule of a scope has the tool's name.
                refused_by = redacted(refused.rule.clone(), secrets);
                ("deny", Some(refused_by.as_str()))
            }
            // It was not even decided on.
            Outcome::Failed(Failed {
                kind: ErrorKind::InvalidInput,
                ..
            }) => ("none", rule),
            Outcome::Ran(_)
            | Outcome::Answered
            | Outcome::Failed(_)
            | Outcome::Broken(_)
            | Outcome::Granted => (verdict, rule),
        };
        let record = entry
            .describe("call", call, verdict)
            .text("policy", &facts.policy.to_string())
            .text("tier", facts.tier.name())
            .layers(facts.layers);
        record
            .end(outcome)
            .optional("error", outcome.error().map(ErrorKind::name))
            .violation(outcome)
            .usage(usage)
    }

    /// A text returned by an effect was saved to a file.
    pub fn kept(call: CallId, tool: &str, spill: &Spill, sha256: &Digest) -> Self {
        Self::new("kept")
            .value("call", call)
            .text("tool", tool)
            .text("path", &spill.path.to_string())
            .value("bytes", spill.bytes)
            .text("sha256", &sha256.to_string())
            .value("whole", spill.whole)
    }

    /// An approver is shown the file at `path`, which a call would change.
    pub fn preview(call: CallId, path: &str) -> Self {
        Self::new("preview").value("call", call).text("path", path)
    }

    /// The verdict on a connection that a cell wanted, or on several equal ones, as the client reports it.
    /// `why` is there for what the gateway refused of an open connection, where host and verdict do not say it.
    pub fn connection(host: &str, why: Option<&str>, report: &ConnectionReport) -> Self {
        Self::new("connection")
            .text("host", host)
            .value("port", report.port)
            .text("verdict", report.verdict.name())
            .value("count", report.count)
            .of_call(report.call)
            .optional("why", why)
    }

    /// Connections of cells have ended, as the gateway reports them: with the bytes that whoever has connected has sent and received.
    pub fn disconnected(host: &str, ends: &ConnectionEnds) -> Self {
        Self::new("disconnected")
            .text("host", host)
            .value("port", ends.port)
            .text("verdict", ends.verdict.name())
            .value("count", ends.count)
            .value("sent", ends.sent)
            .value("received", ends.received)
            .of_call(ends.call)
    }

    /// Uses of a credential by cells, as the gateway reports them: with its name in the policy.
    pub fn credential(name: &str, host: &str, report: &CredentialReport) -> Self {
        Self::new("credential")
            .text("name", name)
            .text("host", host)
            .value("port", report.port)
            .text("method", &report.method)
            .text("verdict", report.verdict.name())
            .value("count", report.count)
            .of_call(report.call)
    }

    /// A question about a request of a call's program, by the gateway's number.
    pub fn request_asked((call, question): (CallId, u32), rule: &str, about: &str) -> Self {
        Self::new("request_asked")
            .value("call", call)
            .value("question", question)
            .text("rule", rule)
            .text("about", about)
    }

    /// A login that the policy allows unasked, signed by the user's ssh agent with one of the keys of this name.
    pub fn ssh_login(call: CallId, keys: &str, (host, port): (&str, u16)) -> Self {
        Self::new("ssh_login")
            .value("call", call)
            .text("keys", keys)
            .text("host", host)
            .value("port", port)
    }

    pub fn request_answered((call, question): (CallId, u32), decision: Decision) -> Self {
        let (name, extent) = match decision {
            Decision::Granted(extent) => ("granted", Some(extent.name())),
            Decision::Refused => ("refused", None),
            Decision::Expired => ("expired", None),
            Decision::Cancelled => ("cancelled", None),
        };
        Self::new("request_answered")
            .value("call", call)
            .value("question", question)
            .text("answer", name)
            .optional("grant", extent)
    }

    /// A request of a call's program uses the grant that the answer to question `by` left.
    pub fn request_granted((call, question): (CallId, u32), by: (CallId, u32)) -> Self {
        Self::new("request_granted")
            .value("call", call)
            .value("question", question)
            .value("by_call", by.0)
            .value("by_question", by.1)
    }

    /// A lease begins; `what` is its host, port or path without secrets.
    pub fn leased(lease: &Lease, what: &str, extent: Extent) -> Self {
        let record = Self::new("lease")
            .value("lease", lease.lease)
            .value("call", lease.call)
            .text(lease.opens.parts().0, what)
            .text("grant", extent.name());
        match extent {
            Extent::Minutes(minutes) => record.value("minutes", minutes),
            Extent::Once | Extent::Session => record,
        }
    }

    /// It is so no more.
    pub fn lease_ended(lease: u64, how: LeaseEnd) -> Self {
        Self::new("lease_ended")
            .value("lease", lease)
            .text("end", how.name())
    }

    /// The client broke the protocol, or the session could not continue.
    pub fn fault(kind: ErrorKind) -> Self {
        Self::new("fault").text("error", kind.name())
    }

    /// The session is over, after this many calls.
    pub(crate) fn closed(calls: u64) -> Self {
        Self::new("closed").value("calls", calls)
    }

    /// The chain did not end where its head says. It continues in a new file.
    pub(crate) fn chain_break(found: &str) -> Self {
        Self::new("break").text("found", found)
    }

    /// A file of the chain is removed, which ended with this record.
    pub(crate) fn pruned(file: u64, last: u64, last_hash: &Digest) -> Self {
        Self::new("pruned")
            .value("file", file)
            .value("last", last)
            .text("last_hash", &last_hash.to_string())
    }

    fn end(self, outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Ran(ran) => match ran.ended {
                Ended::Exited(code) => self.text("end", "exited").value("exit", code),
                Ended::Signalled(number) => self.text("end", "signalled").value("signal", number),
                Ended::TimedOut => self.text("end", "timed_out"),
                Ended::Idle => self.text("end", "idle"),
                Ended::Cancelled => self.text("end", "cancelled"),
                Ended::Limited(limit) => self.text("end", "limited").text("limit", limit.name()),
                Ended::NotStarted(_) => self.text("end", "not_started"),
                Ended::NoDirectory(_) => self.text("end", "no_directory"),
            },
            // Whether the tool succeeded is in the worker's answer, which is not parsed here.
            Outcome::Answered => self.text("end", "answered"),
            Outcome::Refused(_) => self.text("end", "refused"),
            Outcome::Failed(_) => self.text("end", "failed"),
            Outcome::Broken(_) => self.text("end", "broken"),
            Outcome::Granted => self.text("end", "granted"),
        }
    }

    fn violation(self, outcome: &Outcome) -> Self {
        let is_violation = matches!(outcome, Outcome::Refused(refused) if refused.violation);
        if is_violation {
            self.value("violation", true)
        } else {
            self
        }
    }

    fn usage(self, usage: &Usage) -> Self {
        let fields = Self(String::with_capacity(PART))
            .value("wall_us", usage.wall_us)
            .value("user_us", usage.user_us)
            .value("system_us", usage.system_us)
            .value("peak_kib", usage.peak_kib)
            .value("stdin_bytes", usage.stdin_bytes)
            .value("stdout_bytes", usage.stdout_bytes)
            .value("stderr_bytes", usage.stderr_bytes);
        self.value("usage", format_args!("{{{}}}", fields.0))
    }

    fn layers(self, layers: LayerSet) -> Self {
        let mut names = String::with_capacity(PART);
        for layer in layers.iter() {
            names.extend([
                if names.is_empty() { "\"" } else { ",\"" },
                layer.name(),
                "\"",
            ]);
        }
        self.value("layers", format_args!("[{names}]"))
    }

    fn optional(self, name: &str, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.text(name, text),
            None => self,
        }
    }

    fn of_call(self, call: Option<CallId>) -> Self {
        match call {
            Some(call) => self.value("call", call),
            None => self,
        }
    }

    /// Adds a string (RFC 8259, section 7).
    fn text(self, name: &str, text: &str) -> Self {
        if text
            .bytes()
            .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
        {
            return self.value(name, format_args!("\"{text}\""));
        }
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for character in text.chars() {
            match character {
                '"' | '\\' => quoted.extend(['\\', character]),
                '\0'..='\u{1f}' => {
                    // Writing to a String cannot fail.
                    let _ = write!(quoted, "\\u{:04x}", u32::from(character));
                }
                _ => quoted.push(character),
            }
        }
        quoted.push('"');
        self.value(name, quoted)
    }

    /// Adds what is JSON already.
    fn value(mut self, name: &str, json: impl Display) -> Self {
        let comma = if self.0.is_empty() { "" } else { "," };
        let _ = write!(self.0, "{comma}\"{name}\":{json}");
        self
    }
}

/// The facts of a request that its record needs when it ends.
#[derive(Clone, Debug)]
pub struct AuditEntry {
    tool: String,
    /// The name of a service.
    name: Option<String>,
    path: Option<String>,
    request: Digest,
    /// The rule that asked about it, and the extent of the approval with which it runs, if any.
    question: Option<(String, Option<&'static str>)>,
}

impl AuditEntry {
    /// The entry of a request, with the rule that asks about it and the result of the question.
    pub fn new(
        request: &Request,
        question: Option<(String, Option<&'static str>)>,
        secrets: &[Secret],
    ) -> Self {
        let path = path(request).map(|path| redacted(path.to_string(), secrets));
        let name = if let Request::Service(service) = request {
            Some(service.name.clone())
        } else {
            None
        };
        let name = name.map(|name| redacted(name, secrets));
        let tool = redacted(request.tool().to_owned(), secrets);
        Self {
            tool,
            name,
            path,
            request: digest(request),
            question,
        }
    }

    /// The verdict, `allow` or `ask`, and the rule that asked.
    fn verdict(&self) -> (&'static str, Option<&str>) {
        match &self.question {
            Some((rule, _)) => ("ask", Some(rule)),
            None => ("allow", None),
        }
    }

    fn describe(&self, kind: &str, call: CallId, (verdict, rule): (&str, Option<&str>)) -> Record {
        let grant = self.question.as_ref().and_then(|(_, grant)| *grant);
        Record::new(kind)
            .value("call", call)
            .text("tool", &self.tool)
            .optional("name", self.name.as_deref())
            .optional("path", self.path.as_deref())
            .text("request", &self.request.to_string())
            .text("verdict", verdict)
            .optional("rule", rule)
            .optional("grant", grant)
    }
}

/// Whether a request has effects that this broker's death would not undo.
pub(crate) fn is_recorded_at_start(request: &Request) -> bool {
    match request {
        Request::Bash(_)
        | Request::Service(_)
        | Request::FileWrite(_)
        | Request::FileEdit(_)
        | Request::Undo(_) => true,
        Request::State(state) => state.change.is_some(),
        Request::FileRead(_)
        | Request::FileList(_)
        | Request::Glob(_)
        | Request::Grep(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::BackgroundKill(_)
        | Request::History(_)
        | Request::FileBytes(_)
        | Request::Effect(_) => false,
    }
}

/// The facts that apply to every call of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionFacts {
    /// Of the policy in force.
    pub policy: Digest,
    /// How its cells are closed.
    pub tier: Tier,
    pub layers: LayerSet,
}

/// SHA-256 of a request in its canonical encoding.
fn digest(request: &Request) -> Digest {
    // Its parts arrived within their limits, so it is small enough to be encoded again.
    let bytes = frame::encode_request(request).unwrap_or_default();
    Digest(Sha256::digest(&bytes).into())
}

fn path(request: &Request) -> Option<&ZonePath> {
    match request {
        Request::Bash(bash) => bash.directory.as_ref(),
        Request::Service(service) => service.directory.as_ref(),
        Request::FileRead(read) => Some(&read.path),
        Request::FileWrite(write) => Some(&write.path),
        Request::FileEdit(edit) => Some(&edit.path),
        Request::FileList(list) => Some(&list.path),
        Request::Glob(glob) => Some(&glob.path),
        Request::Grep(grep) => Some(&grep.path),
        Request::Undo(undo) => Some(&undo.path),
        Request::FileBytes(bytes) => Some(&bytes.path),
        // The tool always uses the same file, or none.
        Request::State(_)
        | Request::Effect(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::BackgroundKill(_)
        | Request::History(_) => None,
    }
}

/// Returns `text` with each known secret replaced by its name.
pub fn redacted(text: String, secrets: &[Secret]) -> String {
    secrets.iter().fold(text, |text, secret| {
        match std::str::from_utf8(&secret.value) {
            Ok(value) if text.contains(value) => {
                text.replace(value, &format!("[redacted:{}]", secret.name))
            }
            // A secret that is not valid text occurs in no text.
            _ => text,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_json_whatever_its_texts() {
        let text: String = (0..0x80u8)
            .map(char::from)
            .chain("é\u{2028}😀".chars())
            .collect();
        let record = Record::chain_break(&text)
            .value("calls", 7)
            .layers(LayerSet::default());
        let object = record.object(3, Duration::from_micros(1_700_000_000_000_042), Some("s"));
        let read: serde_json::Value = serde_json::from_str(&object).unwrap();
        assert_eq!(read["found"], text);
        assert_eq!(
            (&read["seq"], &read["calls"], &read["session"]),
            (&3.into(), &7.into(), &"s".into())
        );
        assert_eq!(
            (&read["ts"], &read["layers"]),
            (&1_700_000_000.000_042.into(), &serde_json::json!([]))
        );
    }
}
