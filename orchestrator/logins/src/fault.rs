//! The limits of logins, and why one is refused.

use thiserror::Error;

/// Maximum bytes of a request to a token endpoint, and of its answer.
pub const LOGIN_BODY: usize = 64 * 1024;
/// Maximum bytes of one token: its sealed form has to fit into a header.
pub(crate) const TOKEN_MAX: usize = 16 * 1024;

/// Minimum bytes of one token: a shorter one would be found in answers that do not contain it.
pub(crate) const TOKEN_MIN: usize = 8;

/// Why a request to a token endpoint is not sent, or its answer not passed on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginFault {
    #[error("its body has more than {} KiB", LOGIN_BODY >> 10)]
    Long,
    #[error("its body is encoded")]
    Encoded,
    #[error("its body is neither a form nor an object of JSON")]
    Type,
    #[error(
        "its body is not one that all servers read alike: a name stands twice, or it is malformed"
    )]
    Unread,
    #[error("a token or a credential's value stands in a member of it that programs see")]
    Seen,
    #[error("`{0}` is no text, or none that a request can hold")]
    Token(&'static str),
    #[error("`{0}` has fewer than {TOKEN_MIN} bytes")]
    Short(&'static str),
    #[error("it asks for a grant of the type `{0}`, which would give it another credential")]
    Grant(String),
    #[error("its token is of another session, or of a login whose key is gone: log in again")]
    Sealed,
    #[error(
        "there is no key to keep its tokens by: the directory of Lazaret's state has to be writable"
    )]
    NoKey,
    #[error("the gateway has no random bytes")]
    Random,
}
