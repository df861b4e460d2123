//! The token that every request has to bring: 256 random bits, new with each start, known to whoever has started the server.

use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt;
use std::io;
use subtle::ConstantTimeEq;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Random bytes of an id that nobody is to guess.
const ID_BYTES: usize = 16;

/// The token, as hexadecimal digits.
pub struct Token(String);

impl Token {
    /// A fresh one.
    ///
    /// # Errors
    /// The kernel has no random bytes to give.
    pub fn fresh() -> io::Result<Self> {
        random_hex::<TOKEN_BYTES>().map(Self)
    }

    /// The token itself, for whoever has started us.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `given` is the token. How long this takes says nothing of where they differ.
    pub fn matches(&self, given: &str) -> bool {
        self.0.as_bytes().ct_eq(given.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// An id that no other thing has, beginning with `kind`.
///
/// # Errors
/// The kernel has no random bytes to give.
pub fn new_id(kind: &str) -> io::Result<String> {
    Ok(format!("{kind}-{}", random_hex::<ID_BYTES>()?))
}

fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_and_new_each_time_and_shown_to_nobody() {
        let (one, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
        assert_eq!(one.expose().len(), 2 * TOKEN_BYTES);
        assert_ne!(one.expose(), other.expose());
        assert!(one.matches(one.expose()));
        let mut near = one.expose().to_owned();
        near.pop();
        assert!(!one.matches(&near) && !one.matches("") && !one.matches(other.expose()));
        assert!(!format!("{one:?}").contains(one.expose()));
    }
}
