//! The broker's answers.

use crate::digest::Digest;
use crate::limit::{self, TooLarge, at_most};
use crate::path::ZonePath;
use crate::request::CallId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// A command ran; [`Ran::ended`] has the way it ended.
    Ran(Ran),
    /// A file tool has answered, in the parts sent before.
    Answered,
    /// The policy denied it, and nothing was done.
    Refused(Refused),
    /// The work could not be done.
    Failed(Failed),
    /// Our own machinery failed.
    Broken(Broken),
    /// The client may carry out the effect itself; the executor has no part in it.
    Granted,
}

/// The result of a command that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub ended: Ended,
    /// Its output: both streams in order of arrival, or standard output alone if they are separate.
    pub output: Captured,
    /// The file with all of it, if that is more than `output` contains.
    pub spill: Option<Spill>,
    /// Standard error, if it is separate.
    pub stderr: Option<Box<Stderr>>,
    /// The time limit that was in force, in seconds; it may be less than was requested.
    pub timeout_s: Option<u32>,
    /// A profile that would provide a program missing from this cell.
    pub profile: Option<String>,
    /// The processes that its program has left running when it ended by itself.
    pub leftover: LeftRunning,
}

/// Processes that were still running when the program of a command had ended; they were killed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftRunning {
    /// How many; [`limit::LEFT_RUNNING`] means that many or more.
    pub count: u8,
    /// The names of the first ones. The program has chosen them.
    pub names: Vec<String>,
}

/// Standard error of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stderr {
    pub output: Captured,
    /// The file with all of it, if that is more than `output` contains.
    pub spill: Option<Spill>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// The program exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// Killed at its time limit.
    TimedOut,
    /// Killed after it had printed nothing for its idle time.
    Idle,
    /// The client ended it.
    Cancelled,
    /// A resource limit ended it.
    Limited(Limit),
    /// The program could not be started, with the error number of `execve`.
    NotStarted(i32),
    /// Its working directory could not be entered, with the error number of `chdir`.
    NoDirectory(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// Total bytes of output.
    Output,
    /// CPU seconds.
    Cpu,
    Memory,
    /// Size of one file.
    FileSize,
    Processes,
    /// Bytes written.
    Written,
    /// The share of the machine's memory.
    MemoryShare,
    /// The share of the free space of a root's file system.
    DiskShare,
}

impl Limit {
    /// The name of the limit's key in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Output => "output",
            Limit::Cpu => "cpu_s",
            Limit::Memory => "memory",
            Limit::FileSize => "file_size",
            Limit::Processes => "processes",
            Limit::Written => "written",
            Limit::MemoryShare => "memory_share",
            Limit::DiskShare => "disk_share",
        }
    }
}

/// The kept part of an output: all of it, or its beginning and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The first bytes.
    #[serde(with = "serde_bytes")]
    pub head: Vec<u8>,
    /// The last bytes, if the middle is left out; otherwise empty.
    #[serde(with = "serde_bytes")]
    pub tail: Vec<u8>,
    /// Bytes left out between them.
    pub omitted: u64,
}

/// A file in the central root that contains a command's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spill {
    pub path: ZonePath,
    /// Bytes in it.
    pub bytes: u64,
    /// Whether that is the whole output; it stops at the policy's maximum.
    pub whole: bool,
}

/// The resources that a call has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Microseconds from when the broker reads the request to when it writes the outcome.
    pub wall_us: u64,
    /// Microseconds of CPU in user mode, of all processes of the call that were reaped.
    pub user_us: u64,
    /// Microseconds of CPU in kernel mode, of the same processes.
    pub system_us: u64,
    /// Largest resident memory of one process of the call, in KiB.
    pub peak_kib: u64,
    /// Bytes of standard input that were passed to the command.
    pub stdin_bytes: u64,
    /// Bytes the command wrote to standard output, or of a file tool's answer.
    pub stdout_bytes: u64,
    /// Bytes the command wrote to standard error.
    pub stderr_bytes: u64,
}

/// The policy denied it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("refused by policy rule `{rule}`: {why}")]
pub struct Refused {
    /// The rule, by its name in the policy.
    pub rule: String,
    /// Its reason, for the user and the model.
    pub why: String,
    /// Whether the call tried to go beyond what it may touch, and did not only lack a permission.
    pub violation: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("{message}")]
pub struct Failed {
    /// The kind of failure: the only part on which a decision may depend.
    pub kind: ErrorKind,
    /// For people: what happened, why, what to do.
    pub message: String,
}

impl Failed {
    /// The caller requested something impossible.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::InvalidInput,
            message: message.into(),
        }
    }

    /// Lazaret or its machine failed, whatever the request was.
    pub fn internal(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Internal,
            message: message.into(),
        }
    }
}

/// Our machinery failed; the session may continue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("lazaret itself failed: {message}")]
pub struct Broken {
    /// For people: which part, and the system's error.
    pub message: String,
}

/// Every kind of failure, with the name it has in results (`requirements.md`, section F).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorKind {
    InvalidInput,
    UnknownTool,
    DeniedPolicy,
    DeniedUser,
    ApprovalTimeout,
    Violation,
    NotFound,
    Io,
    ExitNonzero,
    Timeout,
    IdleTimeout,
    Cancelled,
    ResourceLimit,
    ExecutorLost,
    Protocol,
    Internal,
}

/// The stage of a call at which an error arose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorLayer {
    Validation,
    Policy,
    Execution,
    Result,
}

impl ErrorKind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::InvalidInput => "invalid_input",
            ErrorKind::UnknownTool => "unknown_tool",
            ErrorKind::DeniedPolicy => "denied_policy",
            ErrorKind::DeniedUser => "denied_user",
            ErrorKind::ApprovalTimeout => "approval_timeout",
            ErrorKind::Violation => "violation",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Io => "io",
            ErrorKind::ExitNonzero => "exit_nonzero",
            ErrorKind::Timeout => "timeout",
            ErrorKind::IdleTimeout => "idle_timeout",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::ResourceLimit => "resource_limit",
            ErrorKind::ExecutorLost => "executor_lost",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Internal => "internal",
        }
    }

    /// The stage at which this kind arises.
    pub fn layer(self) -> ErrorLayer {
        match self {
            ErrorKind::InvalidInput | ErrorKind::UnknownTool => ErrorLayer::Validation,
            ErrorKind::DeniedPolicy
            | ErrorKind::DeniedUser
            | ErrorKind::ApprovalTimeout
            | ErrorKind::Violation => ErrorLayer::Policy,
            ErrorKind::Timeout
            | ErrorKind::IdleTimeout
            | ErrorKind::Cancelled
            | ErrorKind::ResourceLimit
            | ErrorKind::ExecutorLost
            | ErrorKind::Protocol
            | ErrorKind::Internal => ErrorLayer::Execution,
            ErrorKind::NotFound | ErrorKind::Io | ErrorKind::ExitNonzero => ErrorLayer::Result,
        }
    }
}

impl ErrorLayer {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ErrorLayer::Validation => "validation",
            ErrorLayer::Policy => "policy",
            ErrorLayer::Execution => "execution",
            ErrorLayer::Result => "result",
        }
    }
}

/// The decoded parts of an answer: a file tool's, or one about background processes.
pub type FileAnswer = Result<FileReply, Failed>;

/// The answer of a file tool that succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    Read(Read),
    Written(Written),
    Edited(Edited),
    Listed(Listed),
    Walked(Walked),
    Grepped(Grepped),
    Started(Started),
    Background(Vec<Background>),
    Logged(Logged),
    Killed(Background),
    History(Changes),
    Undone(Undone),
    Bytes(Bytes),
}

/// Lines of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The bytes as they are, line ends included.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// Number of the first line in `content`, from 1.
    pub first_line: u64,
    /// Lines in `content`; a last line without a line end counts.
    pub lines: u64,
    /// Size of the whole file in bytes.
    pub size: u64,
    /// Where `content` stops, if more was requested.
    pub truncated: Option<Truncated>,
    /// Digest of the whole file, if all of it is in `content`.
    pub sha256: Option<Digest>,
    /// Lines in the whole file, counted as in `lines`; `None` if there are more and they were not counted.
    pub total_lines: Option<u64>,
}

/// An answer that stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncated {
    /// The total, in bytes of a file or in entries; `None` if it was not counted.
    pub total: Option<u64>,
    /// How much of it is in the answer.
    pub shown: u64,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// The bytes; fewer than requested if the file ends.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// Size of the whole file in bytes.
    pub size: u64,
}

/// A file was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Bytes of its content.
    pub bytes: u64,
    /// Whether it did not exist before.
    pub created: bool,
    /// Digest of its content.
    pub sha256: Digest,
    /// Number of the change, to undo it; `None` if the previous content could not be saved.
    pub change: Option<u64>,
    /// Changes in an existing file, in the order of the file; at most [`limit::HUNKS`]
    /// bytes together. `None` if it is more, or the old content was too large to compare.
    pub hunks: Option<Vec<Hunk>>,
}

/// A file was edited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edited {
    /// Number of replacements for each edit.
    pub replaced: Vec<u32>,
    /// Bytes of the new content.
    pub bytes: u64,
    /// Digest of the new content.
    pub sha256: Digest,
    /// Number of the change, to undo it; `None` if the previous content could not be saved.
    pub change: Option<u64>,
    /// Changes in the order of the file; at most [`limit::HUNKS`] bytes together. `None`
    /// if it is more.
    pub hunks: Option<Vec<Hunk>>,
}

/// A place at which two states of a file differ: whole lines, with up to three unchanged ones around them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hunk {
    /// Number of the first line in the old file, from 1.
    pub old_start: u64,
    /// Number of the first line in the new file, from 1.
    pub new_start: u64,
    /// The lines as they were, line ends included.
    #[serde(with = "serde_bytes")]
    pub old: Vec<u8>,
    /// The lines as they are.
    #[serde(with = "serde_bytes")]
    pub new: Vec<u8>,
}

/// The entries of a directory, sorted by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    pub entries: Vec<ListedEntry>,
    /// Where the list stops, if there is more.
    pub truncated: Option<Truncated>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedEntry {
    /// Path below the listed directory, bytes that are not UTF-8 replaced.
    pub path: String,
    pub kind: ListedKind,
    /// Size of a regular file in bytes; otherwise 0.
    pub size: u64,
    /// Its permission bits, as `chmod` has them; 0 if it was gone when they were read.
    pub mode: u16,
    /// When its content was changed last, in milliseconds since 1970; 0 as above.
    pub modified_ms: i64,
}

/// The kind of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListedKind {
    File,
    Directory,
    /// A symbolic link; it is not followed.
    Link,
    /// A FIFO, socket or device.
    Other,
}

/// Files found by name, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walked {
    /// Paths below the zone's root, bytes that are not UTF-8 replaced.
    pub paths: Vec<String>,
    /// Where the list stops, if there is more.
    pub truncated: Option<Truncated>,
}

/// Lines found by `grep`, by file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grepped {
    /// Files with a match, sorted by path.
    pub matches: Vec<Match>,
    /// Where the list stops, if there is more; counted in matching lines.
    pub truncated: Option<Truncated>,
    /// Number of binary files that were skipped.
    pub binary: u64,
    /// Files that were searched only partly, by path: the first [`limit::IN_PART`] of them.
    pub in_part: Vec<InPart>,
    /// How many there are.
    pub in_part_count: u64,
}

/// A file that was searched only partly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InPart {
    /// Path below the zone's root, bytes that are not UTF-8 replaced.
    pub path: String,
    pub why: Unsearched,
}

/// Why a part of a file was not searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unsearched {
    /// A line is longer than the maximum that is searched.
    LongLine,
    /// The rest cannot be read.
    Unreadable,
}

impl Unsearched {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Unsearched::LongLine => "long_line",
            Unsearched::Unreadable => "unreadable",
        }
    }
}

/// Matching lines of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Match {
    /// Path below the zone's root, bytes that are not UTF-8 replaced.
    pub path: String,
    /// The lines, in order.
    pub lines: Vec<MatchLine>,
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchLine {
    /// Its number, from 1.
    pub number: u64,
    /// Whether it matches, or stands beside one that does.
    pub matched: bool,
    /// Its text without the line end, bytes that are not UTF-8 replaced, cut at 500 bytes.
    pub text: String,
}

/// A background process has been started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its number in this session.
    pub id: u64,
    /// The file its output goes to, if one could be made.
    pub log: Option<ZonePath>,
    /// Its time limit in seconds, if it has one; it may be less than was asked for.
    pub timeout_s: Option<u32>,
}

/// A background process, at work or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Background {
    /// Its number in this session.
    pub id: u64,
    /// The beginning of its command, bytes that are not UTF-8 replaced; at most 1 KiB.
    pub command: String,
    /// When it was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// The file its output goes to, if one could be made.
    pub log: Option<ZonePath>,
    /// How it ended; `None` while it is alive. [`Err`] if our own machinery failed.
    pub ended: Option<Result<Ended, Broken>>,
    /// Resource usage. CPU and memory of a living one are read from its processes.
    pub usage: Usage,
}

/// A piece of a background process's output, both streams as they came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Number of its first byte, from 0. It is not the one that was asked for where that is not kept.
    pub from: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
    /// Output on each side of it, at most [`limit::LOG_MARGIN`] bytes: shown to nobody.
    #[serde(with = "serde_bytes")]
    pub before: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub behind: Vec<u8>,
    /// Bytes the process has printed so far.
    pub total: u64,
    /// Whether it is alive.
    pub alive: bool,
}

/// Changes made by file tools, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    pub changes: Vec<FileChange>,
    /// Where the list stops, if there is more.
    pub truncated: Option<Truncated>,
}

/// A change that a file tool has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    pub number: u64,
    /// The session that made it, as [`Opened`](crate::Opened) and the audit name it.
    pub session: String,
    /// The call that made it; numbers of calls begin anew with each session.
    pub call: CallId,
    /// When, in milliseconds since 1970.
    pub time_ms: u64,
    pub path: ZonePath,
    /// Digest of what was there before; `None` if there was no file.
    pub before: Option<Digest>,
    /// Digest of what was there afterwards; `None` if there was no file.
    pub after: Option<Digest>,
}

/// A change was undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Digest of what the file holds now; `None` if it is removed.
    pub sha256: Option<Digest>,
    /// Bytes of it.
    pub bytes: u64,
    /// Number of this change, to undo it; `None` if what was there before could not be kept.
    pub change: Option<u64>,
}

impl FileReply {
    /// Checks every limit that the type does not hold by itself.
    pub fn check(&self) -> Result<(), TooLarge> {
        let hunks = match self {
            FileReply::Written(written) => &written.hunks,
            FileReply::Edited(edited) => &edited.hunks,
            FileReply::Read(_)
            | FileReply::Listed(_)
            | FileReply::Walked(_)
            | FileReply::Grepped(_)
            | FileReply::Started(_)
            | FileReply::Background(_)
            | FileReply::Logged(_)
            | FileReply::Killed(_)
            | FileReply::History(_)
            | FileReply::Undone(_)
            | FileReply::Bytes(_) => return Ok(()),
        };
        let bytes = hunks
            .iter()
            .flatten()
            .map(|hunk| hunk.old.len() + hunk.new.len())
            .sum();
        at_most("hunks", bytes, limit::HUNKS, "bytes")
    }
}

impl Ended {
    /// The error this end is, if it is one.
    pub fn error(self) -> Option<ErrorKind> {
        match self {
            Ended::Exited(0) => None,
            Ended::Exited(_) | Ended::Signalled(_) => Some(ErrorKind::ExitNonzero),
            Ended::TimedOut => Some(ErrorKind::Timeout),
            Ended::Idle => Some(ErrorKind::IdleTimeout),
            Ended::Cancelled => Some(ErrorKind::Cancelled),
            Ended::Limited(_) => Some(ErrorKind::ResourceLimit),
            Ended::NotStarted(errno) | Ended::NoDirectory(errno) => Some(match is_missing(errno) {
                true => ErrorKind::NotFound,
                false => ErrorKind::Io,
            }),
        }
    }
}

/// Whether this error number says that there is no such file or directory.
fn is_missing(errno: i32) -> bool {
    use std::io::{Error, ErrorKind};
    matches!(
        Error::from_raw_os_error(errno).kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory
    )
}

impl Outcome {
    /// The error this outcome is, if it is one. A file tool's own failure stands in its answer.
    pub fn error(&self) -> Option<ErrorKind> {
        match self {
            Outcome::Ran(ran) => ran.ended.error(),
            Outcome::Answered | Outcome::Granted => None,
            Outcome::Refused(refused) if refused.violation => Some(ErrorKind::Violation),
            Outcome::Refused(_) => Some(ErrorKind::DeniedPolicy),
            Outcome::Failed(failed) => Some(failed.kind),
            Outcome::Broken(_) => Some(ErrorKind::Internal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_hold_their_limit_at_its_edge() {
        let edited = |old: usize, new: usize| {
            let hunk = |old, new| Hunk {
                old_start: 1,
                new_start: 1,
                old: vec![0; old],
                new: vec![0; new],
            };
            let hunks = Some(vec![hunk(old, 0), hunk(0, new)]);
            let reply = Edited {
                replaced: vec![1],
                bytes: 1,
                sha256: Digest([0; 32]),
                change: None,
                hunks,
            };
            FileReply::Edited(reply).check()
        };
        assert!(
            edited(limit::HUNKS, 0).is_ok() && edited(limit::HUNKS / 2, limit::HUNKS / 2).is_ok()
        );
        assert_eq!(
            edited(limit::HUNKS, 1).map_err(|error| error.field),
            Err("hunks")
        );
        let (bytes, created, sha256, change) = (1, false, Digest([0; 32]), None);
        let hunks = Some(vec![Hunk {
            old_start: 1,
            new_start: 1,
            old: vec![],
            new: vec![0; limit::HUNKS + 1],
        }]);
        let written = Written {
            bytes,
            created,
            sha256,
            change,
            hunks,
        };
        assert!(FileReply::Written(written).check().is_err());
    }
}
