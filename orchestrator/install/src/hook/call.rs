//! A shell call of an agent, and what becomes of it.

use serde_json::{Map, Value};
use std::path::PathBuf;

/// A command that an agent is about to run.
#[derive(Debug, PartialEq)]
pub struct ShellCall {
    /// The command line.
    pub command: String,
    /// Where the agent stands.
    pub directory: Option<PathBuf>,
    /// All of the tool's input, of which the command is one field.
    pub input: Map<String, Value>,
    /// Whether the agent is to change nothing now, so that its user decides on each command.
    pub plans_only: bool,
}

/// What becomes of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Decision {
    /// This command line runs in its place.
    Allow {
        /// In a cell.
        command: String,
    },
    /// The same, once the agent's user has said yes.
    Ask {
        /// In a cell.
        command: String,
        /// For the user.
        why: String,
    },
    /// It does not run.
    Deny {
        /// For the model.
        why: String,
    },
}
