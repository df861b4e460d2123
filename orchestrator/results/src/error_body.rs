//! The one body that errors have in JSON, whatever front end writes it.

use broker_protocol::{ErrorKind, Failed};
use orchestrator_text::known::redactor;
use orchestrator_text::sanitize::Sanitizer;
#[cfg(feature = "schema")]
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
#[cfg(feature = "schema")]
use std::borrow::Cow;

/// An error, as every front end writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ErrorBody {
    /// What went wrong: decide by this.
    pub code: ErrorCode,
    /// The stage at which a call failed: `validation`, `policy`, `execution` or `result`. Only errors of calls have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<&'static str>,
    /// What went wrong, for people and models. Its words may change.
    pub message: String,
    /// What to do about errors of this code, if anything helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'static str>,
    /// How long the other side asks to wait, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
}

impl ErrorBody {
    /// For a message that is safe to display.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            layer: None,
            message: message.into(),
            advice: code.advice(),
            retry_after_s: None,
        }
    }

    /// For an error of a call or a session from an event, which is sanitized.
    pub fn sanitized(failed: &Failed) -> Self {
        Self {
            layer: Some(failed.kind.layer().name()),
            ..Self::new(failed.kind.into(), failed.message.as_str())
        }
    }
}

/// For an error that no event had.
impl From<&Failed> for ErrorBody {
    fn from(failed: &Failed) -> Self {
        let message = Sanitizer::new(redactor()).text(&failed.message);
        Self {
            message,
            ..Self::sanitized(failed)
        }
    }
}

/// Makes the codes from one table: each with its name in JSON, and what to do.
macro_rules! codes {
    ($($code:ident $name:literal $advice:expr;)*) => {
        /// What went wrong, by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ErrorCode { $($code),* }

        impl ErrorCode {
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The name in JSON.
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => $name),* }
            }

            /// What to do about it; `None` if the message says all.
            pub fn advice(self) -> Option<&'static str> {
                match self { $(Self::$code => $advice),* }
            }
        }
    };
}

codes! {
    // Of calls and sessions.
    InvalidInput "invalid_input" Some("correct the input that the message names");
    UnknownTool "unknown_tool" Some("`lazaret tools` lists the tools");
    DeniedPolicy "denied_policy" Some("`lazaret policy explain` names the rule that decides; only the owner of the policy can change it");
    DeniedUser "denied_user" Some("ask the user before you try it again");
    ApprovalTimeout "approval_timeout" Some("repeat the call when somebody can answer its question");
    Violation "violation" Some("stay within what the session allows; further violations may end it");
    NotFound "not_found" Some("check the name that the message has");
    Io "io" None;
    ExitNonzero "exit_nonzero" None;
    Timeout "timeout" Some("allow more time, or do less at once");
    IdleTimeout "idle_timeout" Some("let it print its progress, or allow more time without output");
    Cancelled "cancelled" None;
    ResourceLimit "resource_limit" Some("use less of it, or raise the limit in the policy");
    ExecutorLost "executor_lost" Some("try again: a new session opens, in which nothing was read yet");
    Protocol "protocol" Some("report it as a bug of lazaret");
    Internal "internal" Some("report it as a bug of lazaret, with the message");
    // Of the lines of programs.
    NotWaiting "not_waiting" Some("answer a call of an `approval` that has not ended");
    NotOffered "not_offered" Some("give an answer that the message names");
    // Of model providers and runs.
    AuthError "auth_error" Some("set another key for the provider; `lazaret chat --help` says where it comes from");
    RateLimit "rate_limit" Some("try again later");
    Overloaded "overloaded" Some("try again later");
    InvalidRequest "invalid_request" Some("correct the request as the message says");
    ModelNotFound "model_not_found" Some("choose another model; `lazaret models` lists them");
    NoTools "no_tools" Some("choose a model that calls tools; `lazaret models` lists them");
    ConnectionError "connection_error" Some("check the network and the address of the provider");
    ProviderError "provider_error" Some("try again, or choose another provider");
    SessionRefused "session_refused" Some("correct what the message names: the project, the profile or an option");
    HookBlocked "hook_blocked" Some("a hook of the user decides this; `lazaret chat-hooks list` shows them");
    // Of `lazaret serve`.
    UnknownType "unknown_type" Some("`GET /asyncapi.json` describes the messages");
    UnknownConversation "unknown_conversation" Some("`GET /conversations` lists those that are kept");
    UnknownRun "unknown_run" Some("name one of the last 1,000 runs");
    NotRunning "not_running" Some("begin a run with `chat:send`");
    Busy "busy" Some("wait for `chat:stream-end`, or cancel the run");
    TooManyRuns "too_many_runs" Some("wait until a run has ended");
    UnknownToolId "unknown_tool_id" Some("answer a `chat:tool-confirm` that nobody has answered");
    AmbiguousToolId "ambiguous_tool_id" Some("say which call is meant");
    NotShown "not_shown" Some("answer with a no: what nobody has seen cannot be approved");
    OtherDigest "other_digest" Some("answer with the digest of the question");
    UnknownExecution "unknown_execution" Some("answer each `tool:execute` once, before its `tool:abort`");
    InvalidTool "invalid_tool" Some("correct the tool as the message says");
    UnknownProvider "unknown_provider" Some("name a provider that the server was started with");
    Refused "refused" None;
    RateLimited "rate_limited" Some("send fewer requests; `--rate` of the server sets the limit");
    WrongHost "wrong_host" Some("send requests to the address that the server printed");
    WrongOrigin "wrong_origin" Some("start the server with `--allow-origin` for this page");
    Unauthorized "unauthorized" Some("send the token that the server printed: Authorization: Bearer TOKEN");
    TooLarge "too_large" Some("send less at once");
    MethodNotAllowed "method_not_allowed" Some("the header Allow names the methods");
    NoSession "no_session" Some("begin with `initialize`, and send the Mcp-Session-Id of its answer");
    Stateless "stateless" Some("use a version of the protocol with sessions");
    TooManySessions "too_many_sessions" Some("end a session with DELETE");
    TooManyAnswers "too_many_answers" Some("wait until an answer of this session has ended");
    IdInUse "id_in_use" Some("give each request an ID of its own");
}

impl From<ErrorKind> for ErrorCode {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::InvalidInput => Self::InvalidInput,
            ErrorKind::UnknownTool => Self::UnknownTool,
            ErrorKind::DeniedPolicy => Self::DeniedPolicy,
            ErrorKind::DeniedUser => Self::DeniedUser,
            ErrorKind::ApprovalTimeout => Self::ApprovalTimeout,
            ErrorKind::Violation => Self::Violation,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Io => Self::Io,
            ErrorKind::ExitNonzero => Self::ExitNonzero,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::IdleTimeout => Self::IdleTimeout,
            ErrorKind::Cancelled => Self::Cancelled,
            ErrorKind::ResourceLimit => Self::ResourceLimit,
            ErrorKind::ExecutorLost => Self::ExecutorLost,
            ErrorKind::Protocol => Self::Protocol,
            ErrorKind::Internal => Self::Internal,
        }
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// By hand: the table above has the names.
#[cfg(feature = "schema")]
impl JsonSchema for ErrorCode {
    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<_> = Self::ALL.iter().map(|code| code.name()).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn codes_of_calls_have_the_names_of_their_kinds() {
        use ErrorKind::*;
        for kind in [
            InvalidInput,
            UnknownTool,
            DeniedPolicy,
            DeniedUser,
            ApprovalTimeout,
            Violation,
            NotFound,
            Io,
            ExitNonzero,
            Timeout,
            IdleTimeout,
            Cancelled,
            ResourceLimit,
            ExecutorLost,
            Protocol,
            Internal,
        ] {
            assert_eq!(ErrorCode::from(kind).name(), kind.name());
        }
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len(), "a name twice");
    }

    #[test]
    fn an_error_outside_events_is_sanitized() {
        orchestrator_text::known::learn(&[]).unwrap();
        let failed = Failed {
            kind: ErrorKind::Io,
            message: "no\u{202e}\u{1b}[2J file".into(),
        };
        assert_eq!(
            json!(ErrorBody::from(&failed)),
            json!({"code": "io", "layer": "result", "message": "no file"})
        );
    }
}
