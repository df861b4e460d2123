//! Tools that run commands and manage background processes.

use crate::input::{ToolInput, seconds};
use crate::input_error::InputError;
use crate::plan::{Plan, PlanContext};
use broker_protocol::{Command, Request, Stdin, limit};
use schemars::JsonSchema;
use serde::Deserialize;

/// Default size, in bytes, of a piece of a background process's output.
const LOG_BYTES: u32 = 8 * 1024;

/// Runs a command in a sandboxed cell and returns its output and exit code. A string runs with `bash -c`; a list of strings
/// runs as a program with its arguments, without a shell. The project is writable, system files can only be read, the home
/// directory and /tmp are the cell's own, and there is no network but the hosts that the user has opened, through the proxy in
/// HTTP_PROXY; a host that is refused the user can grant, for one call or for good: ask for it by name. Memory, processes and
/// time are limited. What a command was denied, by which rule and what would open it, stands in its error. Processes left
/// behind are killed when the command ends. With `background` the call returns at once with a number, and the command runs on
/// until it ends or is killed, or the session ends.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bash {
    /// A shell command, or a program and its arguments.
    command: CommandLine,
    /// Time limit in seconds; the policy's maximum is never exceeded.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
    /// Ends the command after this many seconds without output.
    #[schemars(range(min = 1))]
    idle_timeout: Option<u64>,
    /// Working directory, relative to the project root; where the session's commands start if absent: mostly the root itself.
    cwd: Option<String>,
    /// What the command is for, in a few words, for the user.
    #[serde(rename = "description")]
    _description: Option<String>,
    /// Give the command a standard input that the caller feeds.
    #[serde(default)]
    stdin: bool,
    /// Return at once and let the command run on, as for a server.
    #[serde(default)]
    background: bool,
    /// Keep standard error apart from the output: the result is standard output alone.
    #[serde(default)]
    split: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum CommandLine {
    Shell(String),
    Arguments(#[schemars(length(min = 1))] Vec<String>),
}

impl ToolInput for Bash {
    fn plan(self, context: &PlanContext<'_>) -> Result<Plan, InputError> {
        let command = match self.command {
            CommandLine::Shell(text) => Command::Shell(text),
            CommandLine::Arguments(words) => Command::Arguments(
                words
                    .into_iter()
                    .map(|word| word.into_bytes().into())
                    .collect(),
            ),
        };
        Ok(Plan::Request(Request::Bash(broker_protocol::Bash {
            command,
            directory: context.directory(self.cwd.as_deref())?,
            timeout_s: seconds(self.timeout),
            idle_timeout_s: seconds(self.idle_timeout),
            stdin: if self.stdin {
                Stdin::Stream
            } else {
                Stdin::Null
            },
            live: false,
            background: self.background,
            split: self.split,
            attended: false,
        })))
    }
}

/// Lists the session's background processes, those that have ended too.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackgroundList {}

impl ToolInput for BackgroundList {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Request(Request::BackgroundList))
    }
}

/// Reads what a background process has printed: the last of it, or from an offset on.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackgroundLog {
    /// The number that `bash` returned.
    #[schemars(range(min = 1))]
    id: u64,
    /// First byte, counted from 0.
    offset: Option<u64>,
    /// At most this many bytes; 8192 if absent.
    #[schemars(range(min = 1, max = limit::LOG))]
    bytes: Option<u32>,
}

impl ToolInput for BackgroundLog {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let most = self.bytes.unwrap_or(LOG_BYTES);
        let log = broker_protocol::BackgroundLog {
            id: self.id,
            from: self.offset,
            most,
        };
        Ok(Plan::Request(Request::BackgroundLog(log)))
    }
}

/// Ends a background process and everything it has started.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BackgroundKill {
    /// The number that `bash` returned.
    #[schemars(range(min = 1))]
    id: u64,
}

impl ToolInput for BackgroundKill {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::Request(Request::BackgroundKill(
            broker_protocol::BackgroundKill { id: self.id },
        )))
    }
}
