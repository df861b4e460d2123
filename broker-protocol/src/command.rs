//! A command, and the source of its input.

use crate::limit::{self, TooLarge, at_most, in_range, no_nul};
use crate::path::ZonePath;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// Runs a command in a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bash {
    pub command: Command,
    /// Working directory; the project root if absent.
    pub directory: Option<ZonePath>,
    /// Time limit in seconds, 1 to [`limit::TIMEOUT_S`]; the policy's default if absent, and never above its
    /// maximum. For an attended call, absent means no limit, except that of the session's scope and the policy's for such calls.
    pub timeout_s: Option<u32>,
    /// Ends the call after this many seconds without output.
    pub idle_timeout_s: Option<u32>,
    /// Where standard input comes from.
    pub stdin: Stdin,
    /// Whether output is also sent as it is produced, as [`FromBroker::Output`](crate::FromBroker::Output).
    pub live: bool,
    /// Whether the call is answered at once and its processes live on, until they end, are killed, or the session ends. Then
    /// there is no time limit unless `timeout_s` sets one or the session's scope has one, no standard input, and no live output.
    pub background: bool,
    /// Whether standard output and error are separate in the outcome, each up to half of what is
    /// kept. Not with a terminal, which has one stream, nor in the background, which has one log.
    pub split: bool,
    /// Whether a person has started it and can end it: the policy's time limits for the calls of a model do not count. A call with a
    /// terminal is always attended. This is the client's word, and grants nothing that a background call does not have.
    pub attended: bool,
}

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
    /// A pipe fed by [`ToBroker::Input`](crate::ToBroker::Input).
    Stream,
    /// A new pseudo-terminal: it is standard input, output and error, and the command's controlling terminal.
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

impl Command {
    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        match self {
            Command::Shell(text) => {
                at_most("command", text.len(), limit::COMMAND, "bytes")?;
                no_nul("command", text.as_bytes())
            }
            Command::Arguments(arguments) => Self::check_arguments(arguments),
        }
    }

    fn check_arguments(arguments: &[ByteBuf]) -> Result<(), TooLarge> {
        if arguments.is_empty() {
            return Err(TooLarge {
                field: "command",
                rule: "it names no program".into(),
            });
        }
        let bytes = arguments
            .iter()
            .map(|argument| argument.len() + limit::ARGUMENT_COST)
            .sum();
        let longest = arguments
            .iter()
            .map(|argument| argument.len())
            .max()
            .unwrap_or(0);
        at_most("command", arguments.len(), limit::ARGUMENTS, "arguments")
            .and(at_most("command", bytes, limit::COMMAND, "bytes"))
            .and(at_most(
                "command",
                longest,
                limit::ARGUMENT,
                "bytes in one argument",
            ))
            .map_err(|error| TooLarge {
                rule: error.rule + "; hand over more by a file or a pipe",
                ..error
            })?;
        arguments
            .iter()
            .try_for_each(|argument| no_nul("command", argument))
    }
}

impl Bash {
    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        self.command.check()?;
        for (field, seconds) in [
            ("timeout", self.timeout_s),
            ("idle_timeout", self.idle_timeout_s),
        ] {
            if let Some(seconds) = seconds {
                in_range(field, seconds.into(), 1, limit::TIMEOUT_S.into())?;
            }
        }
        let has_one_stream = self.background || matches!(self.stdin, Stdin::Terminal(_));
        if self.split && has_one_stream {
            let rule = "neither a terminal nor a background process keeps its streams apart".into();
            return Err(TooLarge {
                field: "split",
                rule,
            });
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
    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        at_most("term", self.term.len(), 64, "bytes")?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
        if self.term.bytes().all(allowed) {
            return Ok(());
        }
        Err(TooLarge {
            field: "term",
            rule: "only letters, digits, '+', '-', '.' and '_'".into(),
        })
    }
}
