//! A key of the user's for a service, and its names where keys are kept.

use http::header::HeaderValue;
use std::fmt;

/// The beginning of the text in place of a key that the gateway has.
const HELD: &str = "lazaret-key-";

/// Maximum bytes of a header's value.
const HEADER_MAX: usize = 32 << 10;

/// A key. Only the service gets to see it, in a header.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// A key without surrounding white space; `None` if it is empty, or no header can contain it.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty() && text.len() <= 4096 && HeaderValue::from_str(text).is_ok())
            .then(|| Self(text.to_owned()))
    }

    /// The value of a header, whole; `None` if no header can contain it.
    pub fn of_header(text: &str) -> Option<Self> {
        (text.len() <= HEADER_MAX && HeaderValue::from_str(text).is_ok())
            .then(|| Self(text.to_owned()))
    }

    /// A key that this process has not: its gateway has it by this number.
    pub fn held(number: u32) -> Self {
        Self(format!("{HELD}{number}"))
    }

    /// The number of a key that the gateway has.
    pub fn number(&self) -> Option<u32> {
        self.0.strip_prefix(HELD)?.parse().ok()
    }

    /// The key; of one that the gateway has, the text in its place, by which it is replaced there.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// The names of a vendor's key in the places where keys are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyNames {
    pub variable: &'static str,
    /// The issuer: the attribute `provider` of an item in the desktop keyring.
    pub issuer: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_key_has_a_number() {
        assert_eq!(Key::held(7).number(), Some(7));
        assert_eq!(Key::new("sk-7").unwrap().number(), None);
    }

    #[test]
    fn the_value_of_a_header_is_whole_and_has_a_bound() {
        let value = Key::of_header("Bearer a b").unwrap();
        assert_eq!(value.expose(), "Bearer a b");
        assert!(Key::of_header("a\nb").is_none());
        let long = |length: usize| Key::of_header(&"x".repeat(length)).is_some();
        assert!(long(HEADER_MAX) && !long(HEADER_MAX + 1));
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::new(" sk-123 \n").unwrap();
        assert_eq!(
            (key.expose(), format!("{key:?}")),
            ("sk-123", "Key(…)".to_owned())
        );
        assert_eq!((Key::new(" "), Key::new("a\nb")), (None, None));
    }
}
