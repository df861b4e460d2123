//! Calls that tried to leave what they may touch, and when a session has had enough of them.

use super::answer::Answer;
use broker_protocol::{ErrorKind, Trust};
use serde::Serialize;

/// One such call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityEvent {
    /// What happened: always `sandbox_violation` so far.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The tool's canonical name.
    pub tool: String,
    /// What it tried, in words.
    pub message: String,
    /// How many there were so far.
    pub violations: u32,
    /// How many end the session; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_violations: Option<u32>,
}

impl SecurityEvent {
    /// That of `answer`, the `violations`th of its session.
    pub fn of(answer: &Answer, violations: u32, max_violations: Option<u32>) -> Option<Self> {
        let error = answer.error.as_ref().filter(|error| error.kind == ErrorKind::Violation)?;
        let (tool, message) = (answer.about.tool.to_string(), error.message.clone());
        Some(Self { kind: "sandbox_violation", tool, message, violations, max_violations })
    }
}

/// How many violations end a session for which `trust` was asked, if nobody says. Where nobody is asked, one is enough.
pub fn most(trust: Trust) -> u32 {
    match trust {
        Trust::Autonomous => 1,
        Trust::Supervised | Trust::Guided => 3,
    }
}
