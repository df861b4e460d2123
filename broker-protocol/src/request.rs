//! What may be asked of the broker. The broker answers each of these in one place, `executor/src/broker/session.rs`.

use crate::{Digest, Effect, Framework, Grant, Hello, Open, Risk, Zone, ZonePath};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

/// Limits at the border: what is larger is refused as a whole.
pub mod limit {
    /// Bytes of all arguments together, and of a shell command. The kernel's own limit on one argument is 128 KiB
    /// (`MAX_ARG_STRLEN` in `linux/binfmts.h`).
    pub const COMMAND: usize = 128 * 1024 - 1;
    /// Arguments of one command.
    pub const ARGUMENTS: usize = 4096;
    /// Bytes that one `file_write` may write, and that one `file_edit` may carry.
    pub const CONTENT: usize = 1_000_000;
    /// Bytes of a file that one `file_read` answers with; the rest is named in a note.
    pub const READ: usize = 1 << 20;
    /// Bytes of the encoded answer of a file tool, over all its parts.
    pub const ANSWER: usize = 4 << 20;
    /// Bytes of all hunks that say what a write or an edit has changed, old and new together.
    pub const HUNKS: usize = 64 * 1024;
    /// Replacements in one `file_edit`.
    pub const EDITS: usize = 256;
    /// Bytes of a pattern of `glob` or `grep`.
    pub const PATTERN: usize = 4096;
    /// Entries that `file_list` and `glob`, and lines that `grep`, answer with.
    pub const ENTRIES: u32 = 10_000;
    /// Files that `grep` names because it searched them in part.
    pub const IN_PART: usize = 20;
    /// Calls under way at once on one connection.
    pub const CALLS: usize = 64;
    /// Bytes of live output a call may send before the client gives more credit.
    pub const OUTPUT_WINDOW: u32 = 256 * 1024;
    /// Bytes of standard input a client may send before the broker gives more credit.
    pub const INPUT_WINDOW: u32 = 256 * 1024;
    /// Bytes of output or input in one frame.
    pub const CHUNK: usize = 64 * 1024;
    /// Background processes alive at once in one session.
    pub const BACKGROUND: usize = 16;
    /// Background processes that a session lists; of more, the one that ended longest ago is forgotten.
    pub const BACKGROUND_LISTED: usize = 64;
    /// Bytes of a background process's output that one answer holds.
    pub const LOG: u32 = 64 * 1024;
    /// Changes that one `history` answers with.
    pub const CHANGES: u32 = 1000;
    /// Longest time limit, in seconds; a policy may set a shorter one.
    pub const TIMEOUT_S: u32 = 86_400;
    /// Permissions of a scope.
    pub const PERMISSIONS: usize = 256;
    /// Globs of one permission.
    pub const SCOPE_PATHS: usize = 64;
    /// Bytes of one such glob.
    pub const SCOPE_PATH: usize = 1024;
    /// Bytes of a tool's name.
    pub const TOOL_NAME: usize = 128;
    /// Bytes of what one small tool keeps.
    pub const STATE: usize = 256 * 1024;
    /// Effects of which the client may still have texts kept; of more, the oldest may not any more.
    pub const KEEPS: usize = 64;
    /// Bytes of such texts that a session keeps in all, each file counted as at least [`KEPT_BLOCK`]. One of them is
    /// kept up to the policy's `spill`, as a command's output is.
    pub const KEPT: u64 = 64 << 20;
    /// What a file takes on a disk at least.
    pub const KEPT_BLOCK: u64 = 4096;
}

/// A client's number for one call, unique on its connection while the call is under way.
pub type CallId = u64;

/// A frame to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBroker {
    /// First frame of a connection.
    Hello(Hello),
    /// Asks what this machine offers. Allowed once greeted, before a session is open.
    Probe,
    /// Opens the session.
    Open(Open),
    /// Starts a call.
    Call {
        /// The client's number for it.
        call: CallId,
        /// What to do.
        request: Request,
    },
    /// Bytes for the standard input of a call, within its window.
    Input {
        /// Which call.
        call: CallId,
        /// At most [`limit::CHUNK`] bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Ends the standard input of a call.
    InputEnd {
        /// Which call.
        call: CallId,
    },
    /// The client's window changed its size.
    Resize {
        /// Which call; it must have a terminal.
        call: CallId,
        /// Rows of characters.
        rows: u16,
        /// Columns of characters.
        columns: u16,
    },
    /// Sends a signal to the main process of a call.
    Signal {
        /// Which call.
        call: CallId,
        /// Which signal.
        signal: Signal,
    },
    /// The client has taken this many bytes of a call's live output and will take as many more.
    Credit {
        /// Which call.
        call: CallId,
        /// How many bytes.
        bytes: u32,
    },
    /// Ends a call: its process tree is killed, and its outcome says so.
    Cancel {
        /// Which call.
        call: CallId,
    },
    /// Has the broker attack a cell of this session. Allowed while no call is under way; it is a call itself until
    /// [`FromBroker::Attacked`](crate::FromBroker::Attacked), or a `Done` that says why not, ends it.
    Attack {
        /// The client's number for it.
        call: CallId,
    },
    /// Says yes to a call that waits for an answer. One that is not taken is answered by
    /// [`FromBroker::Ungranted`](crate::FromBroker::Ungranted).
    Grant(Grant),
    /// Says no to a call that waits for an answer.
    Refuse {
        /// Which call.
        call: CallId,
    },
    /// Asks for the grants that last for the session.
    Grants,
    /// Takes one of them back; answered like [`ToBroker::Grants`].
    Revoke {
        /// Which, by its number.
        grant: u64,
    },
    /// A piece of a text that an effect has brought the client, to be kept where `file_read` opens it. The effect's call must
    /// have ended as [`Outcome::Granted`](crate::Outcome::Granted), and has one text. The last piece is answered by
    /// [`FromBroker::Kept`](crate::FromBroker::Kept).
    Keep {
        /// The effect's call.
        call: CallId,
        /// At most [`limit::CHUNK`] bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// Whether nothing more comes.
        last: bool,
    },
}

/// Signals a client may send to what it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// `SIGINT`.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGHUP`.
    Hangup,
    /// `SIGQUIT`.
    Quit,
}

/// One tool call. Names are those of the tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // Each variant carries the type of its name.
pub enum Request {
    Bash(Bash),
    FileRead(FileRead),
    FileWrite(FileWrite),
    FileEdit(FileEdit),
    FileList(FileList),
    Glob(Glob),
    Grep(Grep),
    BackgroundList,
    BackgroundLog(BackgroundLog),
    BackgroundKill(BackgroundKill),
    History(History),
    Undo(Undo),
    FileBytes(FileBytes),
    State(State),
    Effect(Effect),
}

/// Runs a command in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bash {
    /// What to run.
    pub command: Command,
    /// Working directory; the project root if absent.
    pub directory: Option<ZonePath>,
    /// Wall time in seconds, 1 to [`limit::TIMEOUT_S`]; the policy's default if absent, and never above its maximum.
    /// For a call with a terminal, absent means none, but for what the session's scope says.
    pub timeout_s: Option<u32>,
    /// Ends the call after this many seconds without output.
    pub idle_timeout_s: Option<u32>,
    /// Where standard input comes from.
    pub stdin: Stdin,
    /// Whether output is also sent while it comes, as [`FromBroker::Output`](crate::FromBroker::Output).
    pub live: bool,
    /// Whether the call is answered at once and its processes live on, until they end, are killed, or the session ends.
    /// Then there is no time limit unless `timeout_s` asks for one or the session's scope has one, no standard input, and no live output.
    pub background: bool,
}

/// A command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// For `bash -c`.
    Shell(String),
    /// A program, found by the cell's `PATH`, and its arguments. Not empty.
    Arguments(Vec<ByteBuf>),
}

/// Where a command's standard input comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stdin {
    /// `/dev/null`.
    Null,
    /// A pipe fed by [`ToBroker::Input`].
    Stream,
    /// A pseudo-terminal of its own: it is standard input, output and error, and the command's controlling terminal.
    Terminal(Terminal),
}

/// A terminal's first state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Rows of characters.
    pub rows: u16,
    /// Columns of characters.
    pub columns: u16,
    /// Value of `TERM`: letters, digits, `+`, `-`, `.`, `_`.
    pub term: String,
}

/// Reads a regular file, or part of it by lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRead {
    /// Which file.
    pub path: ZonePath,
    /// First line, counted from 1.
    pub offset: Option<u64>,
    /// How many lines.
    pub limit: Option<u64>,
}

/// Writes a file: parents are made, the mode of an existing file is kept, and readers see the old file or the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWrite {
    /// Which file.
    pub path: ZonePath,
    /// Its whole new content, at most [`limit::CONTENT`] bytes.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// Whether an existing file may be replaced.
    pub overwrite: bool,
    /// Digest the existing file must have.
    pub expected_sha256: Option<Digest>,
}

/// Replaces exact texts in a file, all or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEdit {
    /// Which file.
    pub path: ZonePath,
    /// The replacements, each made in the result of the one before; 1 to [`limit::EDITS`].
    pub edits: Vec<Edit>,
    /// Digest the existing file must have.
    pub expected_sha256: Option<Digest>,
}

/// One replacement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The text that is there; not empty.
    pub old: String,
    /// The text that shall be there.
    pub new: String,
    /// Which of its places are meant.
    pub occurrence: Occurrence,
}

/// Which places of a text an edit means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrence {
    /// The only one: more than one, or none, is an error that says how many there are.
    Only,
    /// All, of which there must be at least one.
    All,
    /// Exactly this many, replaced together.
    Exactly(u32),
}

/// Lists a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
    /// Which directory.
    pub path: ZonePath,
    /// How many levels down, from 1.
    pub depth: u16,
    /// Whether names that begin with a dot are listed.
    pub hidden: bool,
    /// At most this many entries, up to [`limit::ENTRIES`].
    pub limit: u32,
}

/// Finds files by name, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glob {
    /// `*` stays within a name, `**` crosses directories, `{a,b}` and `[a-z]` choose.
    pub pattern: String,
    /// The directory to look in.
    pub path: ZonePath,
    /// Whether names that begin with a dot are looked at.
    pub hidden: bool,
    /// Whether files named by ignore files are looked at too.
    pub ignored: bool,
    /// At most this many files, up to [`limit::ENTRIES`].
    pub limit: u32,
}

/// Finds lines by a regular expression.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grep {
    /// The expression, in the syntax of Rust's `regex` crate.
    pub pattern: String,
    /// Whether the pattern is plain text.
    pub literal: bool,
    /// Whether the case of letters does not matter.
    pub ignore_case: bool,
    /// A directory, or one file.
    pub path: ZonePath,
    /// Only files whose name or path matches this glob.
    pub include: Option<String>,
    /// Whether files named by ignore files are looked at too.
    pub ignored: bool,
    /// Lines of context before and after each match, at most 20.
    pub context: u16,
    /// At most this many matching lines, up to [`limit::ENTRIES`].
    pub limit: u32,
}

/// Reads the output of a background process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundLog {
    /// Which one, by the number it was given.
    pub id: u64,
    /// First byte, counted from 0; the last `most` bytes if absent.
    pub from: Option<u64>,
    /// At most this many bytes, 1 to [`limit::LOG`].
    pub most: u32,
}

/// Ends a background process and everything it started; answered when all of it is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundKill {
    /// Which one, by the number it was given.
    pub id: u64,
}

/// Lists what the file tools have changed below these roots, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// At most this many changes, 1 to [`limit::CHANGES`].
    pub limit: u32,
}

/// Brings back what a change of a file tool has replaced. It is a change itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// Which change, by its number.
    pub change: u64,
    /// The file it was; named here so that it is decided on like the path of any write.
    pub path: ZonePath,
    /// Whether the file may be replaced though it is no longer what the change left.
    pub force: bool,
}

/// Reads a piece of a regular file as bytes: the tool `view_image`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBytes {
    /// Which file.
    pub path: ZonePath,
    /// First byte, counted from 0.
    pub offset: u64,
    /// How many bytes, 1 to [`limit::READ`].
    pub limit: u32,
}

/// Reads or replaces what a small tool keeps between calls: one file for each kind, below `central:state`. It is no secret
/// and no authority: a command may write there too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The tool that asks. It decides which file.
    pub tool: StateTool,
    /// What to replace it with; absent, it is read.
    pub change: Option<StateChange>,
}

/// The tools that keep something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // Each is the tool of its name.
pub enum StateTool {
    TodoRead,
    TodoWrite,
    Memory,
    GoalCreate,
    GoalSwitch,
    GoalComplete,
    GoalList,
    Checkpoint,
}

/// A new state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// All of it, at most [`limit::STATE`] bytes.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// Digest of the state it replaces; absent, there must be none.
    pub expected_sha256: Option<Digest>,
}

impl StateTool {
    /// Every tool, in the order of their numbers.
    pub const ALL: [StateTool; 8] = [
        StateTool::TodoRead,
        StateTool::TodoWrite,
        StateTool::Memory,
        StateTool::GoalCreate,
        StateTool::GoalSwitch,
        StateTool::GoalComplete,
        StateTool::GoalList,
        StateTool::Checkpoint,
    ];

    /// The tool's canonical name.
    pub fn name(self) -> &'static str {
        match self {
            StateTool::TodoRead => "todo_read",
            StateTool::TodoWrite => "todo_write",
            StateTool::Memory => "memory",
            StateTool::GoalCreate => "goal_create",
            StateTool::GoalSwitch => "goal_switch",
            StateTool::GoalComplete => "goal_complete",
            StateTool::GoalList => "goal_list",
            StateTool::Checkpoint => "checkpoint",
        }
    }

    /// The file of its state, below the central root.
    pub fn file(self) -> &'static str {
        match self {
            StateTool::TodoRead | StateTool::TodoWrite => "state/todo.json",
            StateTool::Memory => "state/memory.json",
            StateTool::GoalCreate
            | StateTool::GoalSwitch
            | StateTool::GoalComplete
            | StateTool::GoalList
            | StateTool::Checkpoint => "state/goals.json",
        }
    }

    /// Whether it only reads.
    pub fn only_reads(self) -> bool {
        matches!(self, StateTool::TodoRead | StateTool::GoalList)
    }
}

impl State {
    /// The file of its state.
    pub fn path(&self) -> ZonePath {
        ZonePath::known(Zone::Central, self.tool.file())
    }

    fn check(&self) -> Result<(), TooLarge> {
        match &self.change {
            Some(_) if self.tool.only_reads() => {
                Err(TooLarge { field: "change", rule: format!("`{}` only reads", self.tool.name()) })
            }
            Some(change) => at_most("content", change.content.len(), limit::STATE, "bytes"),
            None => Ok(()),
        }
    }
}

/// A request is over one of the limits of [`limit`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field}: {rule}")]
pub struct TooLarge {
    /// The field at fault.
    pub field: &'static str,
    /// What is asked of it.
    pub rule: String,
}

impl Request {
    /// Checks every limit of [`limit`] that the type does not hold by itself.
    pub fn check(&self) -> Result<(), TooLarge> {
        match self {
            Request::Bash(bash) => bash.check(),
            Request::FileRead(read) => {
                at_least_one("offset", read.offset).and(at_least_one("limit", read.limit))
            }
            Request::FileWrite(write) => at_most("content", write.content.len(), limit::CONTENT, "bytes"),
            Request::FileEdit(edit) => edit.check(),
            Request::FileList(list) => {
                in_range("limit", list.limit.into(), 1, limit::ENTRIES.into())?;
                in_range("depth", list.depth.into(), 1, 64)
            }
            Request::Glob(glob) => {
                at_most("pattern", glob.pattern.len(), limit::PATTERN, "bytes")?;
                in_range("limit", glob.limit.into(), 1, limit::ENTRIES.into())
            }
            Request::Grep(grep) => {
                at_most("pattern", grep.pattern.len(), limit::PATTERN, "bytes")?;
                at_most("include", grep.include.as_ref().map_or(0, String::len), limit::PATTERN, "bytes")?;
                in_range("context", grep.context.into(), 0, 20)?;
                in_range("limit", grep.limit.into(), 1, limit::ENTRIES.into())
            }
            Request::BackgroundLog(log) => in_range("most", log.most.into(), 1, limit::LOG.into()),
            Request::History(history) => in_range("limit", history.limit.into(), 1, limit::CHANGES.into()),
            Request::BackgroundList | Request::BackgroundKill(_) | Request::Undo(_) => Ok(()),
            Request::FileBytes(bytes) => in_range("limit", bytes.limit.into(), 1, limit::READ as u64),
            Request::State(state) => state.check(),
            Request::Effect(effect) => effect.check(),
        }
    }

    /// Names of the broker's own tools; the others are those of [`StateTool`].
    pub const TOOLS: [&'static str; 13] = [
        "bash",
        "file_read",
        "file_write",
        "file_edit",
        "file_list",
        "glob",
        "grep",
        "background_list",
        "background_log",
        "background_kill",
        "history",
        "undo",
        "view_image",
    ];

    /// The tool's name in policies, results and the audit.
    pub fn tool(&self) -> &str {
        match self {
            Request::Bash(_) => "bash",
            Request::FileRead(_) => "file_read",
            Request::FileWrite(_) => "file_write",
            Request::FileEdit(_) => "file_edit",
            Request::FileList(_) => "file_list",
            Request::Glob(_) => "glob",
            Request::Grep(_) => "grep",
            Request::BackgroundList => "background_list",
            Request::BackgroundLog(_) => "background_log",
            Request::BackgroundKill(_) => "background_kill",
            Request::History(_) => "history",
            Request::Undo(_) => "undo",
            Request::FileBytes(_) => "view_image",
            Request::State(state) => state.tool.name(),
            Request::Effect(effect) => effect.tool(),
        }
    }

    /// The tool's name in questions and in the grants that answer them: that of [`Request::tool`], but for a command that is a
    /// test suite's and nothing more.
    pub fn asked_as(&self) -> &str {
        match self {
            Request::Bash(bash) if Framework::of(bash).is_some() => Framework::TOOL,
            request => request.tool(),
        }
    }

    /// How much harm the tool can do.
    pub fn risk(&self) -> Risk {
        match self {
            Request::Bash(_) => Risk::High,
            Request::FileWrite(_) | Request::FileEdit(_) | Request::Undo(_) => Risk::Medium,
            Request::FileRead(_) | Request::FileList(_) | Request::Glob(_) | Request::Grep(_) => Risk::Low,
            Request::FileBytes(_) | Request::State(_) => Risk::Low,
            // They reach only what the session has started.
            Request::BackgroundList | Request::BackgroundLog(_) | Request::BackgroundKill(_) => Risk::Low,
            Request::History(_) => Risk::Low,
            Request::Effect(effect) => effect.risk(),
        }
    }
}

impl Bash {
    fn check(&self) -> Result<(), TooLarge> {
        match &self.command {
            Command::Shell(text) => {
                at_most("command", text.len(), limit::COMMAND, "bytes")?;
                no_nul("command", text.as_bytes())?;
            }
            Command::Arguments(arguments) => {
                if arguments.is_empty() {
                    return Err(TooLarge { field: "command", rule: "it names no program".into() });
                }
                let bytes = arguments.iter().map(|argument| argument.len() + 1).sum();
                at_most("command", arguments.len(), limit::ARGUMENTS, "arguments")
                    .and(at_most("command", bytes, limit::COMMAND, "bytes"))
                    .map_err(|error| TooLarge {
                        rule: error.rule + "; hand over more by a file or a pipe",
                        ..error
                    })?;
                arguments.iter().try_for_each(|argument| no_nul("command", argument))?;
            }
        }
        for (field, seconds) in [("timeout", self.timeout_s), ("idle_timeout", self.idle_timeout_s)] {
            if let Some(seconds) = seconds {
                in_range(field, seconds.into(), 1, limit::TIMEOUT_S.into())?;
            }
        }
        match &self.stdin {
            Stdin::Stream | Stdin::Terminal(_) if self.background => Err(TooLarge {
                field: "background",
                rule: "a background process has no standard input".into(),
            }),
            Stdin::Null | Stdin::Stream => Ok(()),
            Stdin::Terminal(terminal) => terminal.check(),
        }
    }
}

impl Terminal {
    fn check(&self) -> Result<(), TooLarge> {
        at_most("term", self.term.len(), 64, "bytes")?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
        if self.term.bytes().all(allowed) {
            return Ok(());
        }
        Err(TooLarge { field: "term", rule: "only letters, digits, '+', '-', '.' and '_'".into() })
    }
}

impl FileEdit {
    fn check(&self) -> Result<(), TooLarge> {
        in_range("edits", self.edits.len() as u64, 1, limit::EDITS as u64)?;
        let bytes = self.edits.iter().map(|edit| edit.old.len() + edit.new.len()).sum();
        at_most("edits", bytes, limit::CONTENT, "bytes")?;
        for edit in &self.edits {
            if edit.old.is_empty() {
                return Err(TooLarge {
                    field: "edits.old",
                    rule: "not empty; a file is written by `file_write`".into(),
                });
            }
            if let Occurrence::Exactly(count) = edit.occurrence {
                in_range("edits.occurrence", count.into(), 1, limit::CONTENT as u64)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn at_most(field: &'static str, got: usize, most: usize, unit: &str) -> Result<(), TooLarge> {
    if got <= most {
        return Ok(());
    }
    Err(TooLarge { field, rule: format!("at most {most} {unit}, this has {got}") })
}

pub(crate) fn in_range(field: &'static str, got: u64, least: u64, most: u64) -> Result<(), TooLarge> {
    if (least..=most).contains(&got) {
        return Ok(());
    }
    Err(TooLarge { field, rule: format!("a whole number between {least} and {most}, this is {got}") })
}

fn at_least_one(field: &'static str, got: Option<u64>) -> Result<(), TooLarge> {
    in_range(field, got.unwrap_or(1), 1, u64::MAX)
}

fn no_nul(field: &'static str, bytes: &[u8]) -> Result<(), TooLarge> {
    if bytes.contains(&0) {
        return Err(TooLarge { field, rule: "a command cannot contain a NUL byte".into() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Zone;

    fn shell(text: String) -> Request {
        Request::Bash(Bash {
            command: Command::Shell(text),
            directory: None,
            timeout_s: None,
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
        })
    }

    #[test]
    fn each_limit_holds_at_its_edge() {
        assert!(shell("x".repeat(limit::COMMAND)).check().is_ok());
        assert!(shell("x".repeat(limit::COMMAND + 1)).check().is_err());
        assert!(shell("a\0b".into()).check().is_err());
        let write = |len| {
            Request::FileWrite(FileWrite {
                path: ZonePath::root(Zone::Project),
                content: vec![0; len],
                overwrite: true,
                expected_sha256: None,
            })
        };
        assert!(write(limit::CONTENT).check().is_ok());
        assert!(write(limit::CONTENT + 1).check().is_err());
        let read = |offset| {
            Request::FileRead(FileRead {
                path: ZonePath::root(Zone::Project),
                offset: Some(offset),
                limit: None,
            })
        };
        assert!(read(1).check().is_ok());
        assert!(read(0).check().is_err());
    }

    #[test]
    fn an_empty_command_line_is_refused() {
        let Request::Bash(bash) = shell(String::new()) else { unreachable!() };
        let none = Bash { command: Command::Arguments(vec![]), ..bash.clone() };
        assert!(none.check().is_err());
        let many = |count| Bash { command: Command::Arguments(vec![ByteBuf::new(); count]), ..bash.clone() };
        assert!(many(limit::ARGUMENTS).check().is_ok());
        let over = many(limit::ARGUMENTS + 1).check().unwrap_err().to_string();
        let want = "command: at most 4096 arguments, this has 4097; hand over more by a file or a pipe";
        assert_eq!(over, want);
        let terminal = Terminal { rows: 1, columns: 1, term: "x;rm".into() };
        assert!(Bash { stdin: Stdin::Terminal(terminal), ..bash.clone() }.check().is_err());
        let background = Bash { background: true, ..bash };
        assert!(background.check().is_ok());
        assert!(Bash { stdin: Stdin::Stream, ..background }.check().is_err());
    }

    #[test]
    fn what_is_asked_of_a_log_and_a_history_is_bounded() {
        for (most, fine) in [(0, false), (1, true), (limit::LOG, true), (limit::LOG + 1, false)] {
            let log = Request::BackgroundLog(BackgroundLog { id: 1, from: None, most });
            assert_eq!(log.check().is_ok(), fine, "{most}");
        }
        for (limit, fine) in [(0, false), (1, true), (limit::CHANGES, true), (limit::CHANGES + 1, false)] {
            assert_eq!(Request::History(History { limit }).check().is_ok(), fine, "{limit}");
        }
    }
}
