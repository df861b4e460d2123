//! Requests to the broker. The broker answers each of these in one place, `executor/src/plan.rs`.

use crate::command::Bash;
use crate::digest::Digest;
use crate::effect::Effect;
use crate::limit::{self, TooLarge, at_least_one, at_most, in_range};
use crate::path::ZonePath;
use crate::scope::Risk;
use crate::service::Service;
use crate::state::State;
use crate::suite::Framework;
use serde::{Deserialize, Serialize};

/// A client's number for one call, unique on its connection while the call is under way.
pub type CallId = u64;

/// One tool call. Names are those of the tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    Service(Service),
}

/// Reads a regular file, or part of it by lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRead {
    pub path: ZonePath,
    /// First line, counted from 1.
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

/// Writes a file: parents are made, the mode of an existing file is kept, and readers see the old file or the new one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileWrite {
    pub path: ZonePath,
    /// Its whole new content, at most [`limit::WRITE`] bytes.
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
    pub path: ZonePath,
    /// The replacements, each made in the result of the one before; 1 to [`limit::EDITS`].
    pub edits: Vec<Edit>,
    /// Digest the existing file must have.
    pub expected_sha256: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// The text that is there; not empty.
    pub old: String,
    /// The text that shall be there.
    pub new: String,
    /// The occurrences that are meant.
    pub occurrence: Occurrence,
}

/// The occurrences of a text that an edit changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrence {
    /// The only one: more than one, or none, is an error that says how many there are.
    Only,
    /// All, of which there must be at least one.
    All,
    /// Exactly this many, replaced together.
    Exactly(u32),
    /// The only one, or of several the one that begins closest to this line, from 1; two that are equally close are an error.
    Near(u64),
}

impl Occurrence {
    /// The one of `places`, the offsets of a text in `content` in ascending order, that begins closest to `line`; `None` if there is
    /// none, or if two are equally close.
    pub fn nearest(
        content: &[u8],
        places: impl Iterator<Item = usize>,
        line: u64,
    ) -> Option<usize> {
        let (mut at, mut counted) = (1, 0);
        let mut closest = None;
        let mut best = u64::MAX;
        for place in places {
            let ends = content.get(counted..place).unwrap_or_default();
            at += ends.iter().filter(|byte| **byte == b'\n').count() as u64;
            counted = place;
            let distance = line.abs_diff(at);
            if distance < best {
                (best, closest) = (distance, Some(place));
            } else if distance == best {
                closest = None;
            }
        }
        closest
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileList {
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
    /// In which order files are searched, and so which of them an answer with a limit has.
    pub sort: GrepSort,
}

/// An order of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrepSort {
    Path,
    /// The one changed last first.
    Modified,
}

/// Reads the output of a background process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundLog {
    /// Number of the background process.
    pub id: u64,
    /// First byte, counted from 0; the last `most` bytes if absent.
    pub from: Option<u64>,
    /// At most this many bytes, 1 to [`limit::LOG`].
    pub most: u32,
}

/// Ends a background process and everything it started; answered when all of it is dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundKill {
    /// Number of the background process.
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
    /// Number of the change to undo.
    pub change: u64,
    /// The file it was; named here so that it is decided on like the path of any write.
    pub path: ZonePath,
    /// Whether the file may be replaced though it is no longer what the change left.
    pub force: bool,
}

/// Reads a piece of a regular file as bytes: the tool `view_image`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBytes {
    pub path: ZonePath,
    /// First byte, counted from 0.
    pub offset: u64,
    /// How many bytes, 1 to [`limit::READ`].
    pub limit: u32,
}

impl Request {
    /// Checks every limit of [`limit`] that the type does not hold by itself.
    pub fn check(&self) -> Result<(), TooLarge> {
        match self {
            Request::Bash(bash) => bash.check(),
            Request::FileRead(read) => {
                at_least_one("offset", read.offset).and(at_least_one("limit", read.limit))
            }
            Request::FileWrite(write) => {
                at_most("content", write.content.len(), limit::WRITE, "bytes")
            }
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
                at_most(
                    "include",
                    grep.include.as_ref().map_or(0, String::len),
                    limit::PATTERN,
                    "bytes",
                )?;
                in_range("context", grep.context.into(), 0, 20)?;
                in_range("limit", grep.limit.into(), 1, limit::ENTRIES.into())
            }
            Request::BackgroundLog(log) => in_range("most", log.most.into(), 1, limit::LOG.into()),
            Request::History(history) => {
                in_range("limit", history.limit.into(), 1, limit::CHANGES.into())
            }
            Request::BackgroundList | Request::BackgroundKill(_) | Request::Undo(_) => Ok(()),
            Request::FileBytes(bytes) => {
                in_range("limit", bytes.limit.into(), 1, limit::READ as u64)
            }
            Request::State(state) => state.check(),
            Request::Effect(effect) => effect.check(&Request::TOOLS),
            Request::Service(service) => service.check(),
        }
    }

    /// Names of the broker's own tools; the others are those of [`StateTool`](crate::StateTool).
    pub const TOOLS: [&'static str; 14] = [
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
        "service",
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
            Request::Service(_) => "service",
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

    /// The command it runs, if it runs one.
    pub fn command(&self) -> Option<&Bash> {
        match self {
            Request::Bash(bash) => Some(bash),
            Request::FileRead(_)
            | Request::FileWrite(_)
            | Request::FileEdit(_)
            | Request::FileList(_)
            | Request::Glob(_)
            | Request::Grep(_)
            | Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_)
            | Request::Undo(_)
            | Request::FileBytes(_)
            | Request::State(_)
            | Request::Effect(_)
            | Request::Service(_) => None,
        }
    }

    /// How much harm the tool can do.
    pub fn risk(&self) -> Risk {
        match self {
            Request::Bash(_) | Request::Service(_) => Risk::High,
            Request::FileWrite(_) | Request::FileEdit(_) | Request::Undo(_) => Risk::Medium,
            Request::FileRead(_) | Request::FileList(_) | Request::Glob(_) | Request::Grep(_) => {
                Risk::Low
            }
            Request::FileBytes(_) | Request::State(_) => Risk::Low,
            // They reach only what the session has started.
            Request::BackgroundList | Request::BackgroundLog(_) | Request::BackgroundKill(_) => {
                Risk::Low
            }
            Request::History(_) => Risk::Low,
            Request::Effect(effect) => effect.risk(),
        }
    }
}

impl FileEdit {
    fn check(&self) -> Result<(), TooLarge> {
        in_range("edits", self.edits.len() as u64, 1, limit::EDITS as u64)?;
        let bytes = self
            .edits
            .iter()
            .map(|edit| edit.old.len() + edit.new.len())
            .sum();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_closest_to_the_line_is_chosen_and_a_tie_is_ambiguous() {
        let content = b"x\n.\nx\n.\n.\nx x\n";
        let places = [0, 4, 10, 12];
        let nearest = |line| Occurrence::nearest(content, places.into_iter(), line);
        let found = [0, 1, 2, 3, 4, 5, 6, u64::MAX].map(nearest);
        assert_eq!(
            found,
            [Some(0), Some(0), None, Some(4), Some(4), None, None, None]
        );
        assert_eq!(Occurrence::nearest(content, [].into_iter(), 1), None);
    }
    use crate::command::{Command, Stdin, Terminal};
    use crate::path::Zone;
    use serde_bytes::ByteBuf;

    fn shell(text: String) -> Request {
        Request::Bash(Bash {
            command: Command::Shell(text),
            directory: None,
            timeout_s: None,
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
            split: false,
            attended: false,
        })
    }

    #[test]
    fn streams_are_apart_only_where_there_are_two() {
        let terminal = Terminal {
            rows: 1,
            columns: 1,
            term: "xterm".into(),
        };
        for (stdin, background, fits) in [
            (Stdin::Null, false, true),
            (Stdin::Stream, false, true),
            (Stdin::Terminal(terminal), false, false),
            (Stdin::Null, true, false),
        ] {
            let Request::Bash(bash) = shell("x".into()) else {
                unreachable!()
            };
            let request = Request::Bash(Bash {
                stdin,
                background,
                split: true,
                attended: false,
                ..bash
            });
            assert_eq!(request.check().is_ok(), fits, "{request:?}");
        }
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
        assert!(write(limit::WRITE).check().is_ok());
        assert!(write(limit::WRITE + 1).check().is_err());
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
        let Request::Bash(bash) = shell(String::new()) else {
            unreachable!()
        };
        let none = Bash {
            command: Command::Arguments(vec![]),
            ..bash.clone()
        };
        assert!(none.check().is_err());
        let many = |count| Bash {
            command: Command::Arguments(vec![ByteBuf::new(); count]),
            ..bash.clone()
        };
        assert!(many(limit::ARGUMENTS).check().is_ok());
        let over = many(limit::ARGUMENTS + 1).check().unwrap_err().to_string();
        let want =
            "command: at most 65536 arguments, this has 65537; hand over more by a file or a pipe";
        assert_eq!(over, want);
        let sized = |sizes: &[usize]| {
            let arguments = sizes
                .iter()
                .map(|size| ByteBuf::from(vec![b'x'; *size]))
                .collect();
            Bash {
                command: Command::Arguments(arguments),
                ..bash.clone()
            }
            .check()
        };
        assert!(sized(&[limit::ARGUMENT]).is_ok() && sized(&[limit::ARGUMENT + 1]).is_err());
        let parts = 10;
        let each = limit::COMMAND / parts - limit::ARGUMENT_COST;
        assert!(sized(&vec![each; parts]).is_ok());
        assert!(sized(&[vec![each; parts - 1], vec![each + 1]].concat()).is_err());
        let terminal = Terminal {
            rows: 1,
            columns: 1,
            term: "x;rm".into(),
        };
        assert!(
            Bash {
                stdin: Stdin::Terminal(terminal),
                ..bash.clone()
            }
            .check()
            .is_err()
        );
        let background = Bash {
            background: true,
            ..bash
        };
        assert!(background.check().is_ok());
        assert!(
            Bash {
                stdin: Stdin::Stream,
                ..background
            }
            .check()
            .is_err()
        );
    }

    #[test]
    fn log_and_history_requests_are_limited() {
        for (most, fine) in [
            (0, false),
            (1, true),
            (limit::LOG, true),
            (limit::LOG + 1, false),
        ] {
            let log = Request::BackgroundLog(BackgroundLog {
                id: 1,
                from: None,
                most,
            });
            assert_eq!(log.check().is_ok(), fine, "{most}");
        }
        for (limit, fine) in [
            (0, false),
            (1, true),
            (limit::CHANGES, true),
            (limit::CHANGES + 1, false),
        ] {
            assert_eq!(
                Request::History(History { limit }).check().is_ok(),
                fine,
                "{limit}"
            );
        }
    }
}
