//! Metadata of a call, besides its text, as JSON for results and records.

use crate::denials;
use crate::findings;
use crate::test_report::Counts;
use broker_protocol::{CallId, Denials, Findings, LeftRunning, Roots, Spill, Usage, limit};
use orchestrator_text::diff::FileDiff;
use orchestrator_text::escape;
use orchestrator_text::redact::Redactor;
use orchestrator_text::truncate::note;
use serde::Serialize;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// The metadata of a call.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The tool's canonical name.
    pub tool: Cow<'static, str>,
    /// The call ID in the broker's audit, if the call got that far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The exit code of a command that exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The resources that it used.
    pub usage: UsageJson,
    /// Names of the layers that were in force around it.
    pub layers: Vec<&'static str>,
    /// What the text leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncation>,
    /// The file with the whole of a foreign text.
    #[serde(rename = "spill", skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedOutput>,
    /// Standard error of a command that keeps its streams apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<StderrText>,
    /// The processes that a command left running; they were killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_running: Option<LeftProcesses>,
    /// How many unsafe characters and sequences were removed from the text.
    #[serde(skip_serializing_if = "is_zero")]
    pub stripped: u64,
    /// Whether known secrets were removed from the text: writing it back would destroy them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
    /// What was found in the project since the last result that reported it; whichever call caused it.
    #[serde(
        skip_serializing_if = "Findings::is_empty",
        serialize_with = "findings::field"
    )]
    pub found: Findings,
    /// What it was denied, as far as the executor knows.
    #[serde(flatten, serialize_with = "denials::fields")]
    pub denied: Denials,
    /// Hosts and paths that were granted to it beyond those of the session.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<String>,
    /// Metadata of this particular tool.
    #[serde(flatten)]
    pub details: Details,
}

/// Processes that were still running when the program of a command had ended.
#[derive(Clone, Debug, Serialize)]
pub struct LeftProcesses {
    /// How many; [`limit::LEFT_RUNNING`] means that many or more.
    pub count: u8,
    /// The names of the first ones, chosen by the program, without secrets and unsafe characters.
    pub names: Vec<String>,
}

impl LeftProcesses {
    /// The processes of `left`, if there are any.
    pub fn of(left: &LeftRunning, redactor: &Redactor) -> Option<Self> {
        let name = |name: &String| escape::one_line(&redactor.text(name));
        (left.count > 0).then(|| Self {
            count: left.count,
            names: left.names.iter().map(name).collect(),
        })
    }
}

impl fmt::Display for LeftProcesses {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let count = match self.count {
            1 => "1 process was".to_owned(),
            limit::LEFT_RUNNING => format!("{} or more processes were", limit::LEFT_RUNNING),
            count => format!("{count} processes were"),
        };
        let names = self.names.join(", ");
        write!(
            f,
            "{count} still running at the end of the command and killed: {names}"
        )
    }
}

/// [`Usage`] in JSON.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageJson {
    pub wall_us: u64,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) peak_kib: u64,
    pub(crate) stdin_bytes: u64,
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
}

impl UsageJson {
    /// Adds the usage of a call that ran at the same time: the elapsed time is not added, and peak memory is one maximum.
    pub fn add(&mut self, other: &UsageJson) {
        self.user_us += other.user_us;
        self.system_us += other.system_us;
        self.peak_kib = self.peak_kib.max(other.peak_kib);
        self.stdin_bytes += other.stdin_bytes;
        self.stdout_bytes += other.stdout_bytes;
        self.stderr_bytes += other.stderr_bytes;
    }
}

/// Standard error, if it is kept apart.
#[derive(Clone, Debug, Serialize)]
pub struct StderrText {
    /// Bytes that are not UTF-8 are replaced in JSON.
    #[serde(serialize_with = "lossy")]
    pub text: Vec<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill: Option<SavedOutput>,
}

/// What a text leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Truncation {
    /// The total size; absent if it was not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total: Option<u64>,
    /// How much of it is in the text.
    pub shown: u64,
    /// Which part: `head`, `tail`, or `both` ends.
    pub strategy: &'static str,
    /// The absolute path of the file that has all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Metadata that is specific to one tool.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Details {
    #[default]
    #[serde(serialize_with = "nothing")]
    None,
    Command {
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        spill: Option<SavedOutput>,
        /// The policy profile that would show the program which this cell does not have.
        #[serde(skip_serializing_if = "Option::is_none")]
        profile: Option<String>,
    },
    Read {
        path: String,
        first_line: u64,
        lines: u64,
        size: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        /// The number of lines of the whole file; absent if they were not counted.
        #[serde(skip_serializing_if = "Option::is_none")]
        total_lines: Option<u64>,
        /// The offset to continue reading from, if the file goes on.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
        /// Number of lines that were cut.
        #[serde(skip_serializing_if = "is_zero")]
        cut_lines: u64,
    },
    Written {
        path: String,
        bytes: u64,
        created: bool,
        sha256: String,
        /// The change's number; absent if it cannot be undone.
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
        /// Empty for a file that is new.
        #[serde(flatten)]
        diff: FileDiff,
    },
    Edited {
        path: String,
        replaced: Vec<u32>,
        bytes: u64,
        sha256: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
        #[serde(flatten)]
        diff: FileDiff,
    },
    Searched {
        provider: &'static str,
        result_count: u64,
    },
    Fetched {
        url: String,
        media_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<String>,
        /// How many elements the selector matched.
        #[serde(skip_serializing_if = "Option::is_none")]
        elements: Option<u64>,
        bytes: u64,
        timeout: u32,
    },
    Found {
        path: String,
        count: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        binary: Option<u64>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        in_part: Vec<PartFile>,
    },
    Started {
        background: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        log: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
    },
    Background {
        processes: Vec<Process>,
    },
    Logged {
        /// Number of the first byte of the text.
        offset: u64,
        /// The offset to continue reading from.
        next: u64,
        total: u64,
        alive: bool,
    },
    Changes {
        changes: Vec<Changed>,
    },
    Undone {
        path: String,
        bytes: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sha256: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        change: Option<u64>,
    },
    Image {
        path: String,
        media_type: &'static str,
        size: u64,
    },
    Viewed {
        url: String,
        media_type: &'static str,
        size: u64,
        timeout: u32,
    },
    State {
        count: u64,
    },
    Tests {
        framework: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        tests: Option<Counts>,
        partial: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        spill: Option<SavedOutput>,
    },
    Batch {
        invocations: Vec<Value>,
        failed: u64,
    },
    Finished {
        finished: Value,
    },
    Other {
        structured: Value,
    },
}

/// A file that was searched only in part.
#[derive(Clone, Debug, Serialize)]
pub struct PartFile {
    pub path: String,
    pub why: &'static str,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Process {
    pub id: u64,
    pub command: String,
    pub(crate) started_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// `alive`, or how it ended.
    pub state: String,
    /// The exit code, if it exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub usage: UsageJson,
}

/// A change of a file tool.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    pub number: u64,
    pub session: String,
    pub call: u64,
    pub time_ms: u64,
    pub path: String,
    /// Digest; `null` if the file did not exist.
    pub before: Option<String>,
    pub after: Option<String>,
}

impl Details {
    /// The name of this variant in records.
    pub fn type_name(&self) -> &'static str {
        match self {
            Details::None => "none",
            Details::Command { .. } => "command",
            Details::Read { .. } => "read",
            Details::Written { .. } => "written",
            Details::Edited { .. } => "edited",
            Details::Found { .. } => "found",
            Details::Searched { .. } => "searched",
            Details::Fetched { .. } => "fetched",
            Details::Started { .. } => "started",
            Details::Background { .. } => "background",
            Details::Logged { .. } => "logged",
            Details::Changes { .. } => "changes",
            Details::Undone { .. } => "undone",
            Details::Image { .. } => "image",
            Details::Viewed { .. } => "viewed",
            Details::State { .. } => "kept",
            Details::Tests { .. } => "tests",
            Details::Batch { .. } => "batch",
            Details::Finished { .. } => "finished",
            Details::Other { .. } => "other",
        }
    }
}

fn lossy<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

fn nothing<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    serializer.serialize_map(Some(0))?.end()
}

/// The file that holds an output longer than what is shown.
#[derive(Clone, Debug, Serialize)]
pub struct SavedOutput {
    /// Absolute, so that both commands and file tools find it.
    pub path: String,
    /// Bytes in it.
    pub bytes: u64,
    /// Whether the file holds the entire output.
    pub whole: bool,
}

impl Metadata {
    /// Metadata of a call with only its tool and `details`.
    pub fn of(tool: Cow<'static, str>, details: Details) -> Self {
        Self {
            tool,
            details,
            ..Self::default()
        }
    }

    /// Adds what the call's last request used and the layers in force around it.
    pub fn with_request(self, request: &Metadata) -> Self {
        Self {
            usage: request.usage.clone(),
            layers: request.layers.clone(),
            ..self
        }
    }
}

impl Truncation {
    /// The note for the text about what was left out.
    pub fn note(&self) -> String {
        note(self.total, self.shown, self.strategy, self.full.as_deref())
    }
}

impl SavedOutput {
    /// Resolves `spill` to its absolute path.
    pub fn of(spill: &Spill, roots: &Roots) -> Self {
        Self {
            path: roots.absolute(&spill.path),
            bytes: spill.bytes,
            whole: spill.whole,
        }
    }
}

impl From<Usage> for UsageJson {
    fn from(usage: Usage) -> Self {
        Self {
            wall_us: usage.wall_us,
            user_us: usage.user_us,
            system_us: usage.system_us,
            peak_kib: usage.peak_kib,
            stdin_bytes: usage.stdin_bytes,
            stdout_bytes: usage.stdout_bytes,
            stderr_bytes: usage.stderr_bytes,
        }
    }
}
