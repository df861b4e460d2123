//! Why a model gave no answer. Decisions depend on the variant, never on the vendor's text; [`ProviderError::refuses_tools`] is the
//! one exception.

use broker_protocol::{ErrorKind, Failed};
use orchestrator_wire::error::{ErrorBody, ErrorCode};
use std::time::Duration;
use thiserror::Error;

/// Maximum characters of a vendor's error text.
const REASON_MAX: usize = 500;

/// Why a model gave no answer, or an incomplete one. No message contains a key: a vendor receives it only in a header.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProviderError {
    #[error(
        "no key for {provider}: set {variable}, name a file of mode 0600 with --key-file, or store it in the desktop keyring \
         (secret-tool store --label=Lazaret service lazaret provider {issuer})"
    )]
    NoKey {
        provider: String,
        variable: &'static str,
        issuer: &'static str,
    },
    #[error("the key would go to {host} in clear text; use https://, or a server of this machine")]
    PlainKey { host: String },
    #[error("{0:?} is no base URL: http:// or https://, a host, no user, query or fragment")]
    BaseUrl(String),
    #[error("the provider rejects the key: {reason}")]
    Auth { reason: String },
    #[error("too many requests{}: {reason}", wait(.retry_after))]
    RateLimit {
        retry_after: Option<Duration>,
        reason: String,
    },
    #[error("the provider is overloaded{}: {reason}", wait(.retry_after))]
    Overloaded {
        retry_after: Option<Duration>,
        reason: String,
    },
    #[error("the provider rejects the request: {reason}")]
    Invalid { reason: String },
    /// The server may accept a request with less in it.
    #[error("the provider rejects the request: {reason}")]
    BadRequest { reason: String },
    #[error("there is no model {model:?}: {reason}")]
    ModelNotFound { model: String, reason: String },
    #[error("the model {model:?} cannot call tools{}", those(.capable))]
    NoTools { model: String, capable: Vec<String> },
    #[error("no answer within {seconds} s")]
    Timeout { seconds: u64 },
    #[error("cannot reach {host}: {reason}{}", advice(.hint))]
    Connection {
        host: String,
        reason: String,
        hint: Option<&'static str>,
    },
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
    #[error("the answer ended in its middle")]
    Cut,
    #[error("the answer is too large: more than {max} {what}")]
    TooLarge { what: &'static str, max: usize },
    #[error("the provider failed (status {status}): {reason}")]
    Server {
        status: u16,
        retry_after: Option<Duration>,
        reason: String,
    },
    #[error("the script has no turn {turn}; it has {turns}")]
    ScriptEnd { turn: usize, turns: usize },
    /// No executor opens a session, so no tool could be called.
    #[error("no session: {0}")]
    Session(String),
    /// A session may not be opened as requested: the project is not allowed, or the profile does not exist.
    #[error("no session: {0}")]
    SessionRefused(String),
    /// The run's pack names a tool of a server that the session does not have.
    #[error(
        "the pack {pack:?} names the tool {tool:?}, which this session does not have: no such server, or none of its tools, or a \
         scope, a rule or --disable closes it; `lazaret tools` lists them"
    )]
    PackTool { pack: String, tool: String },
    /// A hook of the user's prevented the run.
    #[error("{0}")]
    Hook(String),
    #[error("it was cancelled")]
    Cancelled,
}

fn wait(after: &Option<Duration>) -> String {
    after.map_or(String::new(), |after| {
        format!(" (try again in {} s)", after.as_secs())
    })
}

fn those(models: &[String]) -> String {
    if models.is_empty() {
        return "; choose another with --model".to_owned();
    }
    format!("; these can: {}", models.join(", "))
}

fn advice(hint: &Option<&'static str>) -> String {
    hint.map_or(String::new(), |hint| format!("; {hint}"))
}

impl ProviderError {
    /// The code of the error in events.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoKey { .. } | Self::PlainKey { .. } | Self::Auth { .. } => ErrorCode::AuthError,
            Self::RateLimit { .. } => ErrorCode::RateLimit,
            Self::Overloaded { .. } => ErrorCode::Overloaded,
            Self::BaseUrl(_)
            | Self::Invalid { .. }
            | Self::BadRequest { .. }
            | Self::ScriptEnd { .. } => ErrorCode::InvalidRequest,
            Self::ModelNotFound { .. } => ErrorCode::ModelNotFound,
            Self::NoTools { .. } => ErrorCode::NoTools,
            Self::Timeout { .. } => ErrorCode::Timeout,
            Self::Connection { .. } | Self::Cut => ErrorCode::ConnectionError,
            Self::Malformed(_) | Self::TooLarge { .. } | Self::Server { .. } => {
                ErrorCode::ProviderError
            }
            Self::Session(_) => ErrorCode::ExecutorLost,
            Self::SessionRefused(_) => ErrorCode::SessionRefused,
            Self::PackTool { .. } => ErrorCode::UnknownTool,
            Self::Hook(_) => ErrorCode::HookBlocked,
            Self::Cancelled => ErrorCode::Cancelled,
        }
    }

    /// The error as front ends write it. Its message may have secrets and unsafe characters.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            retry_after_s: self.retry_after().map(|after| after.as_secs()),
            ..ErrorBody::new(self.code(), self.to_string())
        }
    }

    /// Whether the same request may succeed later: only if it was refused before any work on it, or never arrived.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::RateLimit { .. } | Self::Overloaded { .. } | Self::Connection { .. } => true,
            // The other statuses are about the request itself.
            Self::Server { status, .. } => matches!(status, 500 | 502 | 503 | 504),
            Self::NoKey { .. }
            | Self::PlainKey { .. }
            | Self::BaseUrl(_)
            | Self::Auth { .. }
            | Self::Invalid { .. }
            | Self::BadRequest { .. }
            | Self::ModelNotFound { .. }
            | Self::NoTools { .. }
            | Self::Timeout { .. }
            | Self::Malformed(_)
            | Self::Cut
            | Self::TooLarge { .. }
            | Self::ScriptEnd { .. }
            | Self::Session(_)
            | Self::SessionRefused(_)
            | Self::PackTool { .. }
            | Self::Hook(_)
            | Self::Cancelled => false,
        }
    }

    /// Whether a server refuses a request because it has tools. Ollama, and servers that speak like it, say so in no other way than in
    /// their text. If another one words it like this, the run ends with an error in either case.
    pub(crate) fn refuses_tools(&self) -> bool {
        matches!(self, Self::BadRequest { reason } if reason.contains("does not support tools"))
    }

    /// How long the provider asks us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimit { retry_after, .. }
            | Self::Overloaded { retry_after, .. }
            | Self::Server { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The error that prevents a session from opening.
    pub fn no_session(failed: Failed) -> Self {
        match failed.kind {
            ErrorKind::ExecutorLost | ErrorKind::Protocol | ErrorKind::Internal => {
                Self::Session(failed.message)
            }
            ErrorKind::InvalidInput
            | ErrorKind::UnknownTool
            | ErrorKind::Violation
            | ErrorKind::DeniedPolicy
            | ErrorKind::DeniedUser
            | ErrorKind::ApprovalTimeout
            | ErrorKind::Timeout
            | ErrorKind::IdleTimeout
            | ErrorKind::NotFound
            | ErrorKind::Io
            | ErrorKind::ExitNonzero
            | ErrorKind::ResourceLimit
            | ErrorKind::Cancelled => Self::SessionRefused(failed.message),
        }
    }

    /// An answer that violates its format.
    pub(crate) fn malformed(why: impl std::fmt::Display) -> Self {
        Self::Malformed(brief(&why.to_string()))
    }
}

/// The beginning of a vendor's text.
pub fn brief(text: &str) -> String {
    let text = text.trim();
    let mut brief: String = text.chars().take(REASON_MAX).collect();
    if brief.len() < text.len() {
        brief.push('…');
    }
    if brief.is_empty() {
        "no reason given".to_owned()
    } else {
        brief
    }
}
