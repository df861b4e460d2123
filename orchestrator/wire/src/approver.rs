//! The messages between `lazaret approve --json` and the program that asks the user: one object a line.

use crate::approval::{Answer, ApprovalRequest};
use crate::error::ErrorBody;
use crate::json::GrantJson;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line to the program.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(
    tag = "event",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum ApproverEvent<'a> {
    /// A session is open, and its questions come from now on.
    Session {
        session: &'a str,
        opened: OpenedJson<'a>,
    },
    /// A call waits for an answer.
    Approval(Box<PendingLine<'a>>),
    /// A call waits no more.
    Ended {
        session: &'a str,
        call: u64,
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["granted", "refused", "expired", "cancelled"])))]
        decision: &'static str,
    },
    /// The executor has not accepted an answer; the call may wait still.
    NotTaken {
        session: &'a str,
        call: u64,
        not_taken: &'static str,
    },
    Grants {
        session: &'a str,
        grants: Vec<GrantJson<'a>>,
    },
    /// No more questions come from this session.
    Over { session: &'a str, error: ErrorBody },
    /// A line of the program was not carried out.
    Notice { error: ErrorBody },
}

#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PendingLine<'a> {
    pub session: &'a str,
    pub call: u64,
    pub approval: ApprovalRequest,
    pub tool: &'a str,
    pub input: Value,
    /// The call's subject, in words.
    pub about: &'a [String],
    /// Its effect, line by line.
    pub body: &'a [String],
    /// How many bytes its input has.
    pub bytes: usize,
}

/// The layers and limits of a session whose calls ask here.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OpenedJson<'a> {
    pub project: &'a str,
    pub central: &'a str,
    pub profile: &'a str,
    pub policy: String,
    pub tier: &'static str,
}

/// A line from the program: `call` and `approve`, or `grants`, or `revoke`.
#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApproverCommand {
    pub session: String,
    pub call: Option<u64>,
    pub approve: Option<Answer>,
    #[serde(default)]
    pub grants: bool,
    pub revoke: Option<u64>,
}
