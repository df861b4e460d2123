//! The messages of `lazaret serve` over its WebSocket besides the events of runs.

use crate::error::ErrorBody;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Messages of the server other than events of runs.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
pub enum ServerMessage {
    /// The first message of a connection.
    #[serde(rename = "server:hello")]
    Hello {
        version: &'static str,
        /// The calls that need approval if a client sets no trust.
        trust: &'static str,
        provider: String,
        /// The project of conversations that name none.
        project: Option<String>,
    },
    /// A message with a `requestId` was carried out.
    #[serde(rename = "request:ok")]
    Done {
        request_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        conversation_id: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
    },
    /// A message was not carried out.
    #[serde(rename = "request:error")]
    Error {
        request_type: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<String>,
        #[serde(flatten)]
        error: ErrorBody,
    },
    /// The client now receives a conversation's events.
    #[serde(rename = "chat:resumed")]
    Resumed {
        conversation_id: String,
        /// Whether a run is in progress.
        running: bool,
        /// The run under way, or the last one.
        #[serde(skip_serializing_if = "Option::is_none")]
        message_id: Option<String>,
        /// Whether events between the last one that the client has and the next one are not remembered any more.
        missed: bool,
    },
    /// The client must carry out a call of its own tool.
    #[serde(rename = "tool:execute")]
    Execute {
        execution_id: String,
        conversation_id: String,
        tool_id: Option<String>,
        tool_name: String,
        input: Value,
    },
    /// The answer to an execution is no longer needed.
    #[serde(rename = "tool:abort")]
    Abort { execution_id: String },
}
