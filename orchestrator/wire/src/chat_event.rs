//! The events of a run for front ends, with the names used on the wire: one enum for a terminal, a pipe and a socket.

use crate::approval::ApprovalRequest;
use crate::error::{ErrorBody, ErrorCode};
use crate::usage::{Context, Stop, TokenUsage};
use broker_protocol::Findings;
use orchestrator_engine::hooks::HookRan;
use orchestrator_results::violation::SecurityEvent;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// An event of a run.
#[derive(Clone, Debug)]
pub struct ChatEvent {
    /// The conversation.
    pub conversation: Arc<str>,
    /// The answer that the run gives.
    pub message: Arc<str>,
    /// The call of the subagent in which it happened.
    pub parent: Option<Arc<str>>,
    /// Milliseconds since 1970.
    pub timestamp: u64,
    /// What happened.
    pub body: ChatEventBody,
}

/// What happened. Texts of others in it have no known secret and no unsafe character any more.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(tag = "type", content = "payload", rename_all_fields = "camelCase")]
#[cfg_attr(feature = "schema", schemars(rename = "Body"))]
pub enum ChatEventBody {
    /// The run begins.
    #[serde(rename = "chat:stream-start")]
    StreamStart { provider: String, model: String },
    /// A session is open: the first one of a run, or one in place of one that was lost.
    #[serde(rename = "chat:session")]
    Session {
        session: String,
        project: String,
        tier: &'static str,
        replaced: bool,
    },
    /// Text for the user.
    #[serde(rename = "chat:text-delta")]
    TextDelta { content: String, index: u32 },
    /// Thoughts of the model.
    #[serde(rename = "chat:thinking-delta")]
    ThinkingDelta { content: String, index: u32 },
    /// A piece of a call's input, if the client requested these.
    #[serde(rename = "chat:tool-input-delta")]
    ToolInputDelta {
        index: u32,
        tool_name: String,
        chunk: String,
    },
    /// A call begins: its input is complete.
    #[serde(rename = "chat:tool-start")]
    ToolStart {
        tool_id: String,
        tool_name: String,
        input: Value,
    },
    /// A call waits for approval; it has not started.
    #[serde(rename = "chat:tool-confirm")]
    ToolConfirm(Box<Confirm>),
    /// A command printed something.
    #[serde(rename = "chat:tool-delta")]
    ToolDelta {
        tool_id: String,
        stream: &'static str,
        #[serde(flatten)]
        output: Output,
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<usize>,
    },
    /// A call has ended, with its result.
    #[serde(rename = "chat:tool-result")]
    ToolResult(Box<ChatToolResult>),
    /// A call tried to access something that it may not.
    #[serde(rename = "chat:security-event")]
    Security {
        tool_id: String,
        #[serde(flatten)]
        event: SecurityEvent,
    },
    /// Results of connections of a call's command: the first of each host and verdict as it is made, the number of all others when the
    /// call ends. Beyond 64, only their number by verdict, without a host.
    #[serde(rename = "chat:connection")]
    Connection {
        tool_id: String,
        host: String,
        port: u16,
        verdict: &'static str,
        count: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<usize>,
    },
    /// A hook of the user ran for a call or a session.
    #[serde(rename = "chat:hook")]
    Hook(Box<HookRan>),
    /// The model is asked again.
    #[serde(rename = "chat:retry")]
    Retry {
        code: ErrorCode,
        message: String,
        attempt: u32,
        delay_ms: u64,
    },
    /// The loop intervened, or something is missing.
    #[serde(rename = "chat:notice")]
    Notice { kind: Notice, message: String },
    /// One answer of the model is complete.
    #[serde(rename = "chat:turn-end")]
    TurnEnd {
        turn: u32,
        stop: Option<Stop>,
        usage: TokenUsage,
        context: Context,
    },
    /// An error that ends the run.
    #[serde(rename = "chat:error")]
    Error(ErrorBody),
    /// The run has ended: the last event of every run.
    #[serde(rename = "chat:stream-end")]
    StreamEnd {
        partial: bool,
        reason: EndReason,
        turns: u32,
        usage: TokenUsage,
        context: Context,
        /// What the task ended with, where it had a form.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
    },
}

/// The question whether a call may run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Confirm {
    pub tool_id: String,
    pub tool_name: String,
    /// Absent if it has more than 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What a write or an edit would change in the file as it is, or as far as the input tells if the file could not be read: lines
    /// with `-` and `+`, what hides made visible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The file that it would change, if there is a `diff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The place in a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<usize>,
    #[serde(flatten)]
    pub asked: ApprovalRequest,
}

/// What a command printed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Output {
    Text { chunk: String },
    Bytes { chunk_base64: String },
}

/// The result of a call.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", schemars(rename = "ToolResult"))]
pub struct ChatToolResult {
    pub tool_id: String,
    pub tool_name: String,
    /// `success` or `error`.
    pub status: &'static str,
    /// What the model reads.
    pub result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// The media type of the image in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub metadata: Value,
    /// What was found in the project; also in the metadata.
    #[serde(skip)]
    pub found: Findings,
}

/// Why the loop intervened, or what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The context is nearly full: the model answers without tools.
    ContextBudget,
    /// The turn limit is reached: the model answers without tools.
    TurnLimit,
    /// The model repeated the same call.
    LoopDetected,
    /// The model was asked once more for what its pack wants.
    CorrectiveReprompt,
    /// What the model ended with does not fulfil its pack.
    QualityGateFailed,
    /// The answers were too poor: another model goes on, and hears all that was said. Or it cannot.
    CloudFallback,
    /// The provider does not have the named model: the smallest of its models that calls tools answers.
    ModelReplaced,
    /// The executor was lost; the next call opens a new session.
    ExecutorLost,
    /// No project was named: there are no tools for files and commands.
    NoProject,
    /// A server of the user's settings has failed or is not used: its tools are missing.
    ServerMissing,
    /// A server's tools are others than those that were accepted, or a person has accepted new ones.
    ServerChanged,
}

/// Why a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The model has finished its answer.
    Done,
    /// The model has ended its task with `finish_task`.
    Finished,
    /// The model ran into the most tokens of an answer.
    Length,
    /// The model or its vendor refused.
    Refused,
    /// No turn was left, and the model has answered without tools.
    TurnLimit,
    /// The context was nearly full, and the model has answered without tools.
    ContextBudget,
    /// What the model ended with does not fulfil its pack.
    QualityGate,
    /// There were too many violations.
    Violations,
    /// Somebody ended it.
    Cancelled,
    /// The time of the run was over.
    Timeout,
    /// The provider failed.
    Error,
}

impl EndReason {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Finished => "finished",
            Self::Length => "length",
            Self::Refused => "refused",
            Self::TurnLimit => "turn_limit",
            Self::ContextBudget => "context_budget",
            Self::QualityGate => "quality_gate",
            Self::Violations => "violations",
            Self::Cancelled => "cancelled",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

impl ChatEvent {
    /// The event in its wire form.
    pub fn to_json(&self) -> Value {
        let mut json = json!(self.body);
        json["payload"]["conversationId"] = (*self.conversation).into();
        json["payload"]["messageId"] = (*self.message).into();
        if let Some(parent) = &self.parent {
            json["payload"]["parentToolId"] = (**parent).into();
        }
        json["timestamp"] = self.timestamp.into();
        json
    }
}

/// Milliseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    since.as_millis() as u64
}
