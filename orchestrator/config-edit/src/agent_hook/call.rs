//! A shell call of an agent, and the decision on it.

use serde_json::{Map, Value};
use std::path::PathBuf;

/// A command that an agent is about to run.
#[derive(Debug, PartialEq)]
pub struct ShellCall {
    pub command: String,
    pub directory: Option<PathBuf>,
    /// The tool's complete input; the command is one field of it.
    pub input: Map<String, Value>,
    /// Whether the agent is only planning, so that its user has to decide on each command.
    pub plans_only: bool,
}

/// The decision on a command.
#[derive(Debug, PartialEq, Eq)]
pub enum HookDecision {
    /// Run this command line instead.
    Allow {
        /// The command line that runs in a cell.
        command: String,
    },
    /// Run it in a cell once the agent's user has approved it.
    Ask {
        /// The command line that runs in a cell.
        command: String,
        why: String,
    },
    Deny {
        why: String,
    },
}
