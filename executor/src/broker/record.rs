//! What the audit says: one event a record, as JSON.
//!
//! Nothing of a request's input is in it but its digest and the path it is about: input may hold secrets, and so may a
//! path, from which known ones are taken out. Messages are left out too; they may quote input.

use broker_protocol::{
    CallId, Digest, Ended, ErrorKind, Extent, Failed, LayerSet, Outcome, Request, Tier, Usage, ZonePath,
    frame,
};
use policies::secret::Secret;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

/// One record, without its hash.
#[derive(Serialize)]
pub struct Record<'a> {
    /// Counts the records of the chain from 1.
    pub seq: u64,
    /// Seconds since 1970, to the microsecond, by this machine's clock: it may jump, `seq` does not.
    pub ts: f64,
    /// The session, unless there was none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<&'a str>,
    /// What happened.
    #[serde(flatten)]
    pub event: Event<'a>,
}

/// What happened.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event<'a> {
    /// A session was opened.
    Opened {
        /// Its roots.
        project: &'a str,
        /// Its roots.
        central: &'a str,
        /// Its profile.
        profile: &'a str,
        /// Digest of its policy.
        policy: String,
        /// Its tier.
        tier: &'static str,
        /// The layers in force.
        layers: Vec<&'static str>,
        /// Process number of this broker.
        broker: u32,
    },
    /// A command is about to start: what it does is not undone where this broker does not live to see its end.
    Started(Asking<'a>),
    /// A request has ended. Each has one of these.
    Call(Box<Ending<'a>>),
    /// A text that an effect has brought the client stands in a file.
    Kept {
        /// The effect's call.
        call: CallId,
        /// The effect's tool.
        tool: &'a str,
        /// The file.
        path: String,
        /// Bytes in it.
        bytes: u64,
        /// Their SHA-256.
        sha256: String,
        /// Whether that is all of the text.
        whole: bool,
    },
    /// A self-attack has ended.
    Attack {
        /// The client's number for it.
        call: CallId,
        /// Attacks tried.
        tried: usize,
        /// Those that the cell did not hold, known ones left out.
        failed: usize,
    },
    /// The client broke the protocol, or the session could not go on.
    Fault {
        /// Which of them.
        error: &'static str,
    },
    /// The session is over.
    Closed {
        /// Requests it has ended.
        calls: u64,
    },
    /// The chain was found not to end where its head says. It goes on in a new file.
    Break {
        /// What was found.
        found: &'static str,
    },
}

/// What is known of a request from its beginning.
#[derive(Serialize)]
pub struct Asking<'a> {
    /// The client's number for it.
    call: CallId,
    tool: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// SHA-256 of the request as it stands on the wire.
    request: String,
    /// `allow`, `ask`, `deny`, or `none` where it was not even decided on.
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    /// What let it run where it was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<&'static str>,
}

/// A request and how it ended.
#[derive(Serialize)]
pub struct Ending<'a> {
    #[serde(flatten)]
    asked: Asking<'a>,
    policy: String,
    tier: &'static str,
    layers: Vec<&'static str>,
    /// How it ended.
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    #[serde(skip_serializing_if = "is_false")]
    violation: bool,
    usage: Used,
}

/// What it used: microseconds, KiB, bytes.
#[derive(Serialize)]
struct Used {
    wall_us: u64,
    user_us: u64,
    system_us: u64,
    peak_kib: u64,
    stdin_bytes: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

/// What stays of a request until it has ended.
#[derive(Clone, Debug)]
pub struct Asked {
    tool: String,
    path: Option<String>,
    request: Digest,
    /// The rule that asked about it, and what let it run, if anything has.
    question: Option<(String, Option<&'static str>)>,
}

impl Asked {
    /// Takes it from `request`, without known secrets.
    pub fn of(request: &Request, secrets: &[Secret]) -> Self {
        let path = path(request).map(|path| redacted(path.to_string(), secrets));
        Self { tool: request.tool().to_owned(), path, request: digest(request), question: None }
    }

    /// What a self-attack is to the audit where it does not come to an end.
    pub fn attack() -> Self {
        Self { tool: "self_attack".to_owned(), path: None, request: Digest([0; 32]), question: None }
    }

    /// Says that `rule` asks about it.
    pub fn ask(&mut self, rule: String) {
        self.question = Some((rule, None));
    }

    /// Says that it was allowed.
    pub fn grant(&mut self, extent: Extent) {
        if let Some((_, grant)) = &mut self.question {
            *grant = Some(extent.name());
        }
    }

    /// What is recorded before it starts.
    pub fn asking(&self, call: CallId) -> Asking<'_> {
        let (verdict, rule, grant) = match &self.question {
            Some((rule, grant)) => ("ask", Some(rule.as_str()), *grant),
            None => ("allow", None, None),
        };
        let request = self.request.to_string();
        Asking { call, tool: &self.tool, path: self.path.as_deref(), request, verdict, rule, grant }
    }
}

/// The walls around a request.
#[derive(Clone, Copy)]
pub struct Around {
    /// Digest of the policy.
    pub policy: Digest,
    /// The tier.
    pub tier: Tier,
    /// The layers in force.
    pub layers: LayerSet,
}

impl<'a> Ending<'a> {
    /// What is recorded of a request that has ended, before its client is told.
    pub fn new(call: CallId, asked: &'a Asked, around: Around, outcome: &'a Outcome, usage: &Usage) -> Self {
        let mut asked = asked.asking(call);
        let mut violation = false;
        let (mut exit, mut signal, mut limit) = (None, None, None);
        let end = match outcome {
            Outcome::Ran(ran) => match ran.ended {
                Ended::Exited(code) => {
                    exit = Some(code);
                    "exited"
                }
                Ended::Signalled(number) => {
                    signal = Some(number);
                    "signalled"
                }
                Ended::TimedOut => "timed_out",
                Ended::Idle => "idle",
                Ended::Cancelled => "cancelled",
                Ended::Limited(which) => {
                    limit = Some(which.name());
                    "limited"
                }
                Ended::NotStarted(_) => "not_started",
                Ended::NoDirectory(_) => "no_directory",
            },
            // Whether the tool did its work stands in the worker's answer, which nobody reads here.
            Outcome::Answered => "answered",
            Outcome::Refused(refused) => {
                (asked.verdict, asked.rule) = ("deny", Some(refused.rule.as_str()));
                violation = refused.violation;
                "refused"
            }
            Outcome::Failed(failed) => {
                if matches!(failed.kind, ErrorKind::InvalidInput) {
                    asked.verdict = "none";
                }
                "failed"
            }
            Outcome::Broken(_) => "broken",
            Outcome::Granted => "granted",
        };
        let error = outcome.error().map(ErrorKind::name);
        let layers = names(around.layers);
        let (policy, tier, usage) = (around.policy.to_string(), around.tier.name(), used(usage));
        Self { asked, policy, tier, layers, end, exit, signal, limit, error, violation, usage }
    }

    /// Whether it must be on the disk before anybody is told.
    pub fn is_urgent(&self) -> bool {
        self.asked.verdict == "deny"
    }
}

/// The record of a connection that ends for `failed`.
pub fn fault(failed: &Failed) -> Event<'static> {
    Event::Fault { error: failed.kind.name() }
}

/// The names of layers.
pub fn names(layers: LayerSet) -> Vec<&'static str> {
    layers.iter().map(|layer| layer.name()).collect()
}

fn used(usage: &Usage) -> Used {
    let Usage { wall_us, user_us, system_us, peak_kib, stdin_bytes, stdout_bytes, stderr_bytes } = *usage;
    Used { wall_us, user_us, system_us, peak_kib, stdin_bytes, stdout_bytes, stderr_bytes }
}

/// SHA-256 of a request in its one encoding.
fn digest(request: &Request) -> Digest {
    // It came in a frame, so it is small enough to be encoded again.
    let bytes = frame::encode_whole(request).unwrap_or_default();
    Digest(Sha256::digest(&bytes).into())
}

fn path(request: &Request) -> Option<&ZonePath> {
    match request {
        Request::Bash(bash) => bash.directory.as_ref(),
        Request::FileRead(read) => Some(&read.path),
        Request::FileWrite(write) => Some(&write.path),
        Request::FileEdit(edit) => Some(&edit.path),
        Request::FileList(list) => Some(&list.path),
        Request::Glob(glob) => Some(&glob.path),
        Request::Grep(grep) => Some(&grep.path),
        Request::Undo(undo) => Some(&undo.path),
        Request::FileBytes(bytes) => Some(&bytes.path),
        // Its tool says which file, or it has none.
        Request::State(_)
        | Request::Effect(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::BackgroundKill(_)
        | Request::History(_) => None,
    }
}

/// `text` with the name of each known secret in its place.
pub fn redacted(text: String, secrets: &[Secret]) -> String {
    secrets.iter().fold(text, |text, secret| match std::str::from_utf8(&secret.value) {
        Ok(value) if text.contains(value) => text.replace(value, &format!("[redacted:{}]", secret.name)),
        // A value that is no text stands in none.
        _ => text,
    })
}
