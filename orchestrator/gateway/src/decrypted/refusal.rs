//! Answers of ours to a request: why, and what would change it. No answer of a host is ever called ours, and each of ours begins with
//! `lazaret:`.

use super::questions::AwaitedAnswer;
use super::values::CredentialValueError;
use broker_protocol::ConnectionVerdict;
use broker_protocol::gateway::RequestAnswer;
use hyper::StatusCode;
use orchestrator_aws::SignFault;
use orchestrator_effects::UnreadBody;
use orchestrator_logins::LoginFault;
use thiserror::Error;

/// Why a request does not reach its host, or its answer does not reach the program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(super) enum RequestRefusal {
    /// It names another host than the connection was made to.
    #[error(
        "this connection is to {place}, and the request names `{asked}`; make a connection to that host"
    )]
    Misdirected { place: String, asked: String },
    /// Servers may read it in two ways.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// It asks for something that a decrypted connection does not carry.
    #[error("{0}")]
    Unsupported(&'static str),
    /// A placeholder in the header of another host's credential.
    #[error(
        "the placeholder of credential `{credential}` stands in `{header}`, and {place} is none of that credential's hosts; \
         `hosts` of `[credential.{credential}]` in the user's policy would have to name {place}"
    )]
    Foreign {
        credential: String,
        header: String,
        place: String,
    },
    /// A rule of the policy denies it.
    #[error(
        "the rule at {at} denies {method} {path} at {place}{}; only a change of that rule can allow it",
        because(.why.as_deref())
    )]
    Denied {
        place: String,
        method: String,
        path: String,
        at: String,
        why: Option<String>,
    },
    /// The policy has rules for the host, and none for this.
    #[error(
        "no rule allows {method} {path} at {place}; those for this host begin at {at}, and only one that names this method and path can \
         allow it"
    )]
    NoRule {
        place: String,
        method: String,
        path: String,
        at: String,
    },
    /// A rule asks about it, and nobody has allowed it.
    #[error(
        "the rule at {at} asks about {method} {path} at {place}{}; {}",
        because(.why.as_deref()),
        not_allowed(*.answer)
    )]
    NotAllowed {
        place: String,
        method: String,
        path: String,
        at: String,
        why: Option<String>,
        answer: AwaitedAnswer,
    },
    /// A rule asks about it, and a question could not say what it changes.
    #[error(
        "the rule at {at} asks about {method} {path} at {place}, and what that changes cannot be shown: {unread}; only a change of that \
         rule, or a request that can be shown, helps"
    )]
    Unread {
        place: String,
        method: String,
        path: String,
        at: String,
        unread: UnreadBody,
    },
    /// A use refuses it, since it would make new credentials, for example.
    #[error(
        "{method} {path} at {place} is refused by the policy of credential `{credential}`{}; \
         only `uses` of the user's own in `[credential.{credential}]` that name this method and path can allow it",
        because(.why.as_deref())
    )]
    UseRefused {
        credential: String,
        place: String,
        method: String,
        path: String,
        why: Option<String>,
    },
    /// It is signed with a placeholder, and is not signed again.
    #[error(
        "this request to {place} is signed with the placeholder of credential `{credential}`, and is not signed again: {why}"
    )]
    NotSigned {
        credential: String,
        place: String,
        why: SignFault,
    },
    /// A protocol that is not looked at, outside of a credential's uses.
    #[error(
        "a WebSocket at {place} is allowed only at a path that a credential's uses name, and {path} is none; \
         `uses` in the user's policy would have to name it"
    )]
    Upgrade { place: String, path: String },
    /// The value could not be had.
    #[error("credential `{credential}` has no value: {why}; check its source in the user's policy")]
    NoValue {
        credential: String,
        why: CredentialValueError,
    },
    /// The host could not be spoken to.
    #[error("no TLS connection to {place}: {why}")]
    Host { place: String, why: String },
    /// The host has ended a handshake.
    #[error("{place} ended the TLS handshake with the gateway: {why}")]
    HostTls { place: String, why: String },
    /// The connection to the host ended before its answer.
    #[error("{place} did not answer the request: {why}")]
    Unanswered { place: String, why: String },
    /// The program sent less of its body than it had announced.
    #[error("the request's body broke off before its end, so {place} got a part of it only")]
    BrokenBody { place: String },
    /// The host's answer cannot be searched for the value.
    #[error(
        "{place} sent an encoded answer although none was asked for; it could hide the credential, so it is not passed on"
    )]
    Encoded { place: String },
    /// A token of a login that does not open.
    #[error(
        "the token in `authorization` is of another session, or of a login of credential `{credential}` whose key is gone: log in again"
    )]
    Sealed { credential: String },
    /// A request to a token endpoint that is not sent.
    #[error("this login at {place} for credential `{credential}` is not sent: {why}")]
    Login {
        credential: String,
        place: String,
        why: LoginFault,
    },
    /// The answer of a token endpoint, which may have tokens in it.
    #[error(
        "the answer of {place} to a login (status {status}) is not passed on, as it may show a token: {why}"
    )]
    LoginAnswer {
        place: String,
        status: u16,
        why: LoginFault,
    },
}

/// Why a request was not allowed, and what helps.
fn not_allowed(answer: AwaitedAnswer) -> &'static str {
    let answer = match answer {
        AwaitedAnswer::Answered(answer) => answer,
        AwaitedAnswer::Open => {
            return "it waits for approval: run it again once it is approved";
        }
        AwaitedAnswer::Behind => {
            return "another request of its command waits for approval: run it again after that";
        }
    };
    match answer {
        RequestAnswer::Granted | RequestAnswer::Kept => "it was allowed",
        RequestAnswer::Refused => "the user has not allowed it: ask before you try it another way",
        RequestAnswer::Expired => {
            "nobody has allowed it in time: ask for an answer, then run it again"
        }
        RequestAnswer::NoCall => {
            "it is of no command whose end somebody waits for, so nobody can be asked: run it in the foreground"
        }
        RequestAnswer::TooMany => {
            "this call has asked about too much, or such a request was not allowed before: ask the user, then run it again in a new call"
        }
    }
}

fn because(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| {
        format!(", because: {}", why.trim_end_matches('.'))
    })
}

impl RequestRefusal {
    /// The verdict for those who run the command; `None` if the request or the host is at fault, and no policy.
    pub(super) fn verdict(&self) -> Option<ConnectionVerdict> {
        match self {
            Self::Denied { .. }
            | Self::NoRule { .. }
            | Self::NotAllowed { .. }
            | Self::Unread { .. }
            | Self::Foreign { .. }
            | Self::UseRefused { .. }
            | Self::NotSigned { .. }
            | Self::Upgrade { .. }
            | Self::Encoded { .. }
            | Self::Login { .. }
            | Self::LoginAnswer { .. } => Some(ConnectionVerdict::RequestRefused),
            Self::NoValue { .. } => Some(ConnectionVerdict::NoValue),
            Self::HostTls { .. } => Some(ConnectionVerdict::TlsRefused),
            Self::Misdirected { .. }
            | Self::Malformed(_)
            | Self::Unsupported(_)
            | Self::Host { .. }
            | Self::Unanswered { .. }
            | Self::BrokenBody { .. }
            | Self::Sealed { .. } => None,
        }
    }

    /// The error of OAuth (RFC 6749, section 5.2) by which a client knows what to do.
    pub(super) fn oauth_error(&self) -> Option<&'static str> {
        match self {
            Self::Login { why, .. } => Some(match why {
                LoginFault::Sealed => "invalid_grant",
                LoginFault::Grant(_) => "unsupported_grant_type",
                LoginFault::Long
                | LoginFault::Encoded
                | LoginFault::Type
                | LoginFault::Unread
                | LoginFault::Seen
                | LoginFault::Token(_)
                | LoginFault::Short(_)
                | LoginFault::NoKey
                | LoginFault::Random => "invalid_request",
            }),
            Self::LoginAnswer { .. } => Some("server_error"),
            Self::Misdirected { .. }
            | Self::Malformed(_)
            | Self::Unsupported(_)
            | Self::Foreign { .. }
            | Self::Denied { .. }
            | Self::NoRule { .. }
            | Self::NotAllowed { .. }
            | Self::Unread { .. }
            | Self::UseRefused { .. }
            | Self::NotSigned { .. }
            | Self::Upgrade { .. }
            | Self::NoValue { .. }
            | Self::Host { .. }
            | Self::HostTls { .. }
            | Self::Unanswered { .. }
            | Self::BrokenBody { .. }
            | Self::Encoded { .. }
            | Self::Sealed { .. } => None,
        }
    }

    /// The status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Misdirected { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Malformed(_) | Self::BrokenBody { .. } | Self::Login { .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::Sealed { .. } => StatusCode::UNAUTHORIZED,
            // An error stays the error that it is: a client may try again after 429, say.
            Self::LoginAnswer { status, .. } => StatusCode::from_u16(*status)
                .ok()
                .filter(|status| status.is_client_error() || status.is_server_error())
                .unwrap_or(StatusCode::BAD_GATEWAY),
            Self::Unsupported(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Denied { .. }
            | Self::NoRule { .. }
            | Self::NotAllowed { .. }
            | Self::Unread { .. }
            | Self::Foreign { .. }
            | Self::UseRefused { .. }
            | Self::NotSigned { .. }
            | Self::Upgrade { .. } => StatusCode::FORBIDDEN,
            Self::NoValue { .. }
            | Self::Host { .. }
            | Self::HostTls { .. }
            | Self::Unanswered { .. }
            | Self::Encoded { .. } => StatusCode::BAD_GATEWAY,
        }
    }
    pub(super) fn text(&self) -> String {
        let text: String = format!("lazaret: {self}")
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .take(2048)
            .collect();
        text + "\n"
    }
}
