//! Handles characters that are cut at the end of a piece.

use std::borrow::Cow;

/// Bytes at the end of `bytes` that are an incomplete character.
pub fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    let begins = |byte: &u8| *byte >= 0xc0;
    let Some(back) = tail.iter().rev().position(begins) else {
        return 0;
    };
    let start = &tail[tail.len() - 1 - back..];
    match std::str::from_utf8(start) {
        Err(error) if error.error_len().is_none() => start.len(),
        _ => 0,
    }
}

/// Bytes at the start of `bytes` that only continue a character.
pub fn continued(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take(3)
        .take_while(|byte| (0x80..0xc0).contains(*byte))
        .count()
}

/// The first `max` bytes of a text, or fewer to avoid cutting a character.
pub fn beginning(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len()))
        .rev()
        .find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// The last `max` bytes of a text, or fewer to avoid cutting a character.
pub fn ending(text: &str, max: usize) -> &str {
    let start = (text.len().saturating_sub(max)..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[start.unwrap_or(text.len())..]
}

/// Joins the characters of a stream in arbitrary pieces: no output ends within a character.
#[derive(Debug, Default)]
pub(crate) struct Utf8Joiner {
    /// The beginning of an incomplete character: at most three bytes.
    held: Vec<u8>,
}

impl Utf8Joiner {
    /// Adds `bytes`; returns what is complete now.
    pub(crate) fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let mut joined = Cow::Borrowed(bytes);
        if !self.held.is_empty() {
            self.held.extend_from_slice(bytes);
            joined = Cow::Owned(std::mem::take(&mut self.held));
        }
        let split = joined.len() - unfinished(&joined);
        self.held.extend_from_slice(&joined[split..]);
        match joined {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..split]),
            Cow::Owned(mut bytes) => {
                bytes.truncate(split);
                Cow::Owned(bytes)
            }
        }
    }

    /// The bytes left at the end: the beginning of a character that was never completed.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_cuts_no_character() {
        let beginnings = [0, 1, 2, 3, 9].map(|max| beginning("a\u{e9}b", max));
        assert_eq!(beginnings, ["", "a", "a", "a\u{e9}", "a\u{e9}b"]);
    }

    #[test]
    fn only_the_start_of_a_character_is_unfinished() {
        for (bytes, want) in [
            (&b""[..], 0),
            (b"ab", 0),
            (b"a\xc3", 1),
            (b"a\xe2\x82", 2),
            (b"a\xf0\x9f\x98", 3),
            (b"\xc3\xa9", 0),
            (b"\xff", 0),
            (b"\xc0", 0),
            (b"\x82\x82", 0),
            (b"\xe2\x41", 0),
        ] {
            assert_eq!(unfinished(bytes), want, "{bytes:x?}");
        }
    }

    #[test]
    fn characters_are_joined_however_they_are_cut() {
        let text = "aé€😀z".as_bytes();
        for first in 0..text.len() {
            for second in first..text.len() {
                let mut joiner = Utf8Joiner::default();
                let mut joined = Vec::new();
                for piece in [&text[..first], &text[first..second], &text[second..]] {
                    let piece = joiner.push(piece);
                    assert!(
                        std::str::from_utf8(&piece).is_ok(),
                        "cut at {first} and {second}"
                    );
                    joined.extend_from_slice(&piece);
                }
                assert!(joiner.finish().is_empty());
                assert_eq!(joined, text);
            }
        }
        let mut joiner = Utf8Joiner::default();
        assert_eq!(*joiner.push(b"a\xe2"), *b"a");
        assert_eq!(*joiner.push(b"\xff"), *b"\xe2\xff");
        assert_eq!(*joiner.push(b"b\xf0\x9f"), *b"b");
        assert_eq!(joiner.finish(), b"\xf0\x9f");
    }
}
