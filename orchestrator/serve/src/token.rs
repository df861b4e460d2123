//! The token that every request has to carry: 256 random bits, new at each start, known to the process that started the server.

use orchestrator_text::random;
use std::fmt;
use std::io;
use subtle::ConstantTimeEq;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Random bytes of an ID that must not be guessable.
const ID_BYTES: usize = 16;

/// The token, as hexadecimal digits.
pub struct AccessToken(String);

impl AccessToken {
    /// A new random token.
    ///
    /// # Errors
    /// If the kernel provides no random bytes.
    pub fn fresh() -> io::Result<Self> {
        random::hex::<TOKEN_BYTES>().map(Self)
    }

    /// The token itself, for the process that started us.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `given` is the token, compared in constant time.
    pub fn matches(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// A unique ID that begins with `kind`.
///
/// # Errors
/// If the kernel provides no random bytes.
pub fn new_id(kind: &str) -> io::Result<String> {
    Ok(format!("{kind}-{}", random::hex::<ID_BYTES>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_new_each_time_and_shown_to_nobody() {
        let (one, other) = (AccessToken::fresh().unwrap(), AccessToken::fresh().unwrap());
        assert_eq!(one.expose().len(), 2 * TOKEN_BYTES);
        assert_ne!(one.expose(), other.expose());
        assert!(one.matches(one.expose()));
        let mut near = one.expose().to_owned();
        near.pop();
        assert!(!one.matches(&near) && !one.matches("") && !one.matches(other.expose()));
        assert!(!format!("{one:?}").contains(one.expose()));
    }
}
