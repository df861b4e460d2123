//! Why a company's proxy opens no tunnel, and the limits of its answers.

use crate::decrypted::CredentialValueError;
use thiserror::Error;

/// Maximum bytes of all heads that a proxy sends before a tunnel stands.
pub(super) const HEAD_MAX: usize = 16 * 1024;
/// Maximum number of headers in one of them.
pub(super) const HEADERS_MAX: usize = 100;
/// Maximum number of interim answers.
pub(super) const INTERIM_MAX: usize = 8;

/// Why a proxy opens no tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ProxyFault {
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// Its words are escaped and cut.
    #[error("answered {status} `{words}`")]
    Refused { status: u16, words: String },
    #[error(
        "answered {status} `{words}` to an address; `proxy_names = true` in `[gateway]` sends it names"
    )]
    RefusedAddress { status: u16, words: String },
    #[error("asks for a login (407); `proxy_from` in `[gateway]` names where one comes from")]
    LoginMissing,
    #[error("does not accept the login that `proxy_from` in `[gateway]` names (407)")]
    LoginRefused,
    #[error("needs a login, and its source gives none: {0}")]
    NoLogin(CredentialValueError),
    #[error("does not answer with HTTP")]
    Malformed,
    #[error(
        "answered with more than {HEAD_MAX} bytes of head, {HEADERS_MAX} headers or {INTERIM_MAX} interim answers"
    )]
    TooLong,
    #[error("did not answer within {0} s")]
    Slow(u64),
    #[error("closed the connection without an answer")]
    Gone,
}

impl ProxyFault {
    /// Whether another address of the same host may have another answer.
    pub(crate) fn is_of_address(&self) -> bool {
        match self {
            Self::Refused { status, .. } | Self::RefusedAddress { status, .. } => *status >= 500,
            Self::Unreachable(_)
            | Self::LoginMissing
            | Self::LoginRefused
            | Self::NoLogin(_)
            | Self::Malformed
            | Self::TooLong
            | Self::Slow(_)
            | Self::Gone => false,
        }
    }
}
