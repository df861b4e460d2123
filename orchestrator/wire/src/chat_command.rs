//! The messages of a client of `lazaret serve` over its WebSocket: each message is a type.

use crate::approval::Answer;
use crate::client_tool::Registration;
use broker_protocol::Trust;
use policies::value::TrustName;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
#[cfg(feature = "schema")]
use std::borrow::Cow;
use std::path::PathBuf;

/// A message of a WebSocket, by its type.
#[derive(Debug)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[cfg_attr(feature = "schema", schemars(untagged))]
pub enum ClientMessage {
    /// `chat:send`: say something, and begin a run.
    Send(Box<Send>),
    /// `chat:cancel`: end a run, or only the calls under way in it.
    Cancel(Cancel),
    /// `chat:tool-approve`: answer the question whether a call may run.
    Approve(Approve),
    /// `chat:resume`: hear a conversation again, with what was missed.
    Resume(Resume),
    /// `chat:trust`: change how much is asked.
    Trust(SetTrust),
    /// `tool:register`: offer a tool of the client's own to the runs that it begins, from the next one on.
    Register(Registration),
    /// `tool:unregister`: take back a tool of the client's own.
    Unregister(Unregister),
    /// `tool:answer`: the answer to a `tool:execute`.
    ToolAnswer(ToolReply),
}

/// Sends a prompt to a model, which begins a run.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Send {
    /// The user's text, at most 1 MiB.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub content: String,
    #[serde(flatten)]
    pub options: RunOptions,
    /// Earlier messages; they replace those that the server keeps.
    #[serde(default)]
    pub history: Option<Vec<HistoryMessage>>,
    /// Whether to send pieces of inputs as the model writes them.
    #[serde(default)]
    pub input_deltas: bool,
}

/// The fields by which `chat:send` and a run over HTTP say where and how a run works. Whoever flattens them in refuses unknown ones.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunOptions {
    /// The conversation to continue; absent, a new one. Letters, digits, `.`, `_` and `-`.
    #[serde(default, deserialize_with = "non_empty")]
    pub conversation_id: Option<String>,
    /// The project root: an absolute path. Absent, that of the start; where there is none, no tool works on files.
    #[serde(default, deserialize_with = "non_empty")]
    pub project: Option<PathBuf>,
    /// The narrower permissions of the session: `tool_permissions` as in a scope file.
    #[serde(default)]
    pub scope: Option<Map<String, Value>>,
    /// The calls that need approval; if absent, as in the conversation or else the settings.
    #[serde(default)]
    pub trust: Option<TrustLevel>,
    /// The policy profile; absent, that of the start.
    #[serde(default, deserialize_with = "non_empty")]
    pub profile: Option<String>,
    /// The provider; absent, that of the start.
    #[serde(default, deserialize_with = "non_empty")]
    pub provider: Option<String>,
    /// The model; absent, the configured one, else the smallest that can chat.
    #[serde(default, deserialize_with = "non_empty")]
    pub model: Option<String>,
    /// The key for the provider. It is held in memory only.
    #[serde(default, deserialize_with = "non_empty")]
    pub api_key: Option<String>,
    /// Instructions for this run, besides the configured ones.
    #[serde(default, deserialize_with = "non_empty")]
    pub system_prompt: Option<String>,
    /// The run's purpose: `engineering`, `research`, or a pack of the configuration.
    #[serde(default, deserialize_with = "non_empty")]
    pub pack: Option<String>,
}

/// A message of a history.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HistoryMessage {
    /// Its author: user, assistant or tool.
    pub role: Role,
    /// The text; of a tool, its result.
    #[serde(default, deserialize_with = "or_default")]
    pub content: String,
    /// The calls that a model has asked for.
    #[serde(default, alias = "tool_calls", deserialize_with = "or_default")]
    pub tool_calls: Vec<HistoryCall>,
    /// Of a tool's result: the call.
    #[serde(default, alias = "tool_call_id")]
    pub tool_call_id: Option<String>,
    /// Of a tool's result: the tool.
    #[serde(default, alias = "tool_name")]
    pub tool_name: Option<String>,
    /// Of a tool's result: whether it is an error.
    #[serde(default, alias = "is_error")]
    pub is_error: bool,
}

/// The author of a message in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
    Tool,
}

/// One call of a message in a history.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct HistoryCall {
    /// The name of the call in the conversation.
    pub id: String,
    /// The tool, as the model named it.
    pub name: String,
    /// Its input, as it was called.
    #[serde(default, deserialize_with = "or_default")]
    pub input: Map<String, Value>,
}

/// Ends the run of a conversation, or its calls.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cancel {
    /// The conversation whose run is to end.
    pub conversation_id: String,
    /// Whether only the calls in progress end, and the run continues.
    #[serde(default)]
    pub tools_only: bool,
}

/// Answers an approval question: `answer`, or `approved`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Approve {
    /// The call, as `chat:tool-confirm` names it.
    pub tool_id: String,
    /// The conversation; absent, that whose call waits under this id, if it is only one.
    #[serde(default, deserialize_with = "non_empty")]
    pub conversation_id: Option<String>,
    /// The answer that the question gets.
    #[serde(default)]
    pub answer: Option<Answer>,
    /// `true` is `once`, `false` is `no`.
    #[serde(default)]
    pub approved: Option<bool>,
    /// The place in a batch, as in the question.
    #[serde(default)]
    pub part: Option<usize>,
    /// What the question was about, as in it: an answer to anything else is rejected.
    #[serde(default, deserialize_with = "non_empty")]
    pub digest: Option<String>,
    /// Accepted for compatibility and ignored.
    #[serde(default, deserialize_with = "non_empty")]
    pub message_id: Option<String>,
}

/// Requests the events of a conversation.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resume {
    /// The conversation whose events are requested.
    pub conversation_id: String,
    /// The `sequence` of the last event that the client has; absent, it has none.
    #[serde(default)]
    pub after: u64,
}

/// Changes the trust of a conversation.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetTrust {
    /// The conversation that it is for.
    pub conversation_id: String,
    /// How much is asked from now on. While a run is under way it only counts at once where it asks more.
    pub trust: TrustLevel,
}

/// Withdraws a tool of the client.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Unregister {
    /// The tool's name, as it was registered.
    pub name: String,
}

/// The answer to a `tool:execute`: `content`, or `error`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolReply {
    /// The call, as `tool:execute` names it.
    pub execution_id: String,
    /// The model's part, as text.
    #[serde(default)]
    pub content: Option<String>,
    /// In base64, if it is not text.
    #[serde(default)]
    pub content_base64: Option<String>,
    /// The facts that are recorded beside it.
    #[serde(default)]
    pub structured: Option<Value>,
    /// Why the call failed, as the model gets it.
    #[serde(default)]
    pub error: Option<String>,
}

/// How much is asked before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TrustLevel(pub Trust);

impl TryFrom<String> for TrustLevel {
    type Error = policies::value::ValueError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        TrustName::try_from(name).map(|name| Self(name.0))
    }
}

#[cfg(feature = "schema")]
impl JsonSchema for TrustLevel {
    fn schema_name() -> Cow<'static, str> {
        "Trust".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "enum": Trust::ALL.map(Trust::name) })
    }
}

/// An optional string, for which the empty one means none: clients with typed settings send every field.
///
/// # Errors
/// If it is no string.
pub fn non_empty<'de, D: Deserializer<'de>, T: From<String>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

/// A value for which `null` means the default, as the lists of typed clients without members.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}
