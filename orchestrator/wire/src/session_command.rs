//! What a client of `lazaret session` may say: the fields of each line, by its `op`. Without `op`, a key that only one operation has
//! names it.

use crate::approval::Answer;
use crate::client_tool::Registration;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OpName {
    Call,
    Stdin,
    Cancel,
    Approve,
    Grants,
    Revoke,
    History,
    Undo,
    Register,
    Unregister,
    Tools,
    Result,
    Error,
}

impl OpName {
    pub const ALL: [Self; 13] = [
        Self::Call,
        Self::Stdin,
        Self::Cancel,
        Self::Approve,
        Self::Grants,
        Self::Revoke,
        Self::History,
        Self::Undo,
        Self::Register,
        Self::Unregister,
        Self::Tools,
        Self::Result,
        Self::Error,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Stdin => "stdin",
            Self::Cancel => "cancel",
            Self::Approve => "approve",
            Self::Grants => "grants",
            Self::Revoke => "revoke",
            Self::History => "history",
            Self::Undo => "undo",
            Self::Register => "register",
            Self::Unregister => "unregister",
            Self::Tools => "tools",
            Self::Result => "result",
            Self::Error => "error",
        }
    }
}

/// Keys that identify a line without `op`; the first one present decides.
pub const KEYS: [(&str, OpName); 15] = [
    ("tool", OpName::Call),
    ("cancel", OpName::Cancel),
    ("grants", OpName::Grants),
    ("revoke", OpName::Revoke),
    ("history", OpName::History),
    ("undo", OpName::Undo),
    ("approve", OpName::Approve),
    ("register", OpName::Register),
    ("unregister", OpName::Unregister),
    ("tools", OpName::Tools),
    ("result", OpName::Result),
    ("error", OpName::Error),
    ("stdin", OpName::Stdin),
    ("stdinBase64", OpName::Stdin),
    ("stdinEnd", OpName::Stdin),
];

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CallFields {
    pub tool: String,
    #[serde(default = "no_fields")]
    pub input: Value,
    #[serde(default, deserialize_with = "by_name")]
    pub wants: WantsFields,
}

/// What a call wants beyond what its session has.
#[derive(Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WantsFields {
    /// Hosts to reach, each as `NAME:PORT`.
    pub hosts: Vec<String>,
    /// Files and directories of the machine to read, by absolute paths without links.
    pub read: Vec<String>,
    /// Directories of the machine to write in.
    pub write: Vec<String>,
    /// Ports of this machine's loopback to connect to, at the same port of the cell.
    pub connect: Vec<u16>,
}

/// Accepts only an object. Serde would also accept an array with the fields in order, and an empty array as no fields.
fn by_name<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<T, D::Error> {
    let fields = Map::deserialize(from)?;
    serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)
}

fn no_fields() -> Value {
    Value::Object(Map::new())
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct StdinFields {
    pub stdin: Option<String>,
    pub stdin_base64: Option<String>,
    #[serde(default)]
    pub stdin_end: bool,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CancelFields {
    pub cancel: Option<bool>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApproveFields {
    pub approve: Answer,
    #[cfg_attr(feature = "schema", schemars(range(max = u64::MAX)))]
    pub part: Option<usize>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GrantsFields {
    pub grants: Option<bool>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RevokeFields {
    #[cfg_attr(feature = "schema", schemars(range(max = u64::MAX)))]
    pub revoke: u64,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HistoryFields {
    pub history: Option<bool>,
    #[cfg_attr(feature = "schema", schemars(range(max = u32::MAX)))]
    pub limit: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UndoFields {
    #[cfg_attr(feature = "schema", schemars(range(max = u64::MAX)))]
    pub undo: u64,
    pub path: String,
    #[serde(default)]
    pub force: bool,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RegisterFields {
    #[serde(deserialize_with = "by_name")]
    pub register: Registration,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct UnregisterFields {
    pub unregister: String,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ToolsFields {
    pub tools: Option<bool>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ResultFields {
    pub result: String,
    pub structured: Option<Map<String, Value>>,
    #[cfg_attr(feature = "schema", schemars(range(max = u64::MAX)))]
    pub part: Option<usize>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ErrorFields {
    #[serde(deserialize_with = "by_name")]
    pub error: ReportedError,
    #[cfg_attr(feature = "schema", schemars(range(max = u64::MAX)))]
    pub part: Option<usize>,
}

#[derive(Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReportedError {
    pub code: Option<String>,
    pub message: String,
}
