//! Violations: attempts of calls to get outside their permissions, and how many of them end a session.

use broker_protocol::Trust;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;

/// A violation, for the client and for records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SecurityEvent {
    /// Always `sandbox_violation` so far.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The tool's canonical name.
    pub tool: String,
    /// What the call tried.
    pub message: String,
    /// How many the session has seen, with this one.
    pub violations: u32,
    /// How many end the session; absent where none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_violations: Option<u32>,
}

impl SecurityEvent {
    /// A violation that is the `violations`th of its session.
    pub fn new(tool: &str, message: &str, violations: u32, max_violations: Option<u32>) -> Self {
        let (tool, message) = (tool.to_owned(), message.to_owned());
        Self {
            kind: "sandbox_violation",
            tool,
            message,
            violations,
            max_violations,
        }
    }
}

/// How many violations end a session with `trust` by default. One is enough if nobody is asked.
pub fn default_max(trust: Trust) -> u32 {
    match trust {
        Trust::Autonomous => 1,
        Trust::Supervised | Trust::Guided => 3,
    }
}
