//! Where secrets are in a text, and what may be said of the patterns that find them without saying them.

use crate::fold::{fold, fold_open};
use serde::{Deserialize, Serialize};

/// The beginning of the mark that replaces a secret.
pub(crate) const MARK: &str = "[redacted:";

/// Patterns that a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patterns {
    /// Whole values, and no part of one.
    Whole,
    /// Also the lines of values with several: for texts that may begin or end within one.
    Lines,
}

/// A secret in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundSecret {
    pub start: usize,
    pub end: usize,
    /// In a form that is safe within text.
    pub name: String,
}

impl FoundSecret {
    /// The mark that replaces it.
    pub(crate) fn mark(&self) -> String {
        format!("{MARK}{}]", self.name)
    }
}

/// Facts about all patterns that say little of any: how much of a text's end may be the beginning of a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PatternFacts {
    /// Length of the longest; 0 without patterns.
    longest: usize,
    /// Length of the longest that has white space in it.
    spaced: usize,
    /// Whether one has a byte that is not ASCII.
    has_others: bool,
}

impl PatternFacts {
    pub(crate) fn of(patterns: &[Vec<u8>]) -> Self {
        let longest = |all: &mut dyn Iterator<Item = &Vec<u8>>| all.map(Vec::len).max();
        let mut spaced = patterns
            .iter()
            .filter(|pattern| pattern.iter().any(is_space));
        Self {
            longest: longest(&mut patterns.iter()).unwrap_or(0),
            spaced: longest(&mut spaced).unwrap_or(0),
            has_others: patterns.iter().any(|pattern| !pattern.is_ascii()),
        }
    }

    /// Whether there is no pattern.
    pub(crate) fn are_none(self) -> bool {
        self.longest == 0
    }

    fn is_between(self, byte: &u8) -> bool {
        is_space(byte) || !(self.has_others || byte.is_ascii())
    }

    /// Where the end of `bytes` begins that may be the beginning of a secret: the last word, as far as a secret is long.
    pub(crate) fn unfinished(self, bytes: &[u8]) -> usize {
        let folded = fold_open(bytes);
        let text = &folded.bytes;
        let word = text.iter().rposition(|byte| self.is_between(byte));
        let word = word.map_or(0, |at| at + 1);
        let part = |length: usize| text.len().saturating_sub(length.saturating_sub(1));
        folded.start(word.max(part(self.longest)).min(part(self.spaced)))
    }

    /// Where the beginning of `bytes` ends that may be the end of a secret.
    pub(crate) fn continued(self, bytes: &[u8]) -> usize {
        let folded = fold(bytes);
        let text = &folded.bytes;
        let word = text.iter().position(|byte| self.is_between(byte));
        let word = word.unwrap_or(text.len());
        let part = |length: usize| length.saturating_sub(1).min(text.len());
        folded.end(word.min(part(self.longest)).max(part(self.spaced)))
    }
}

fn is_space(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(patterns: &[&str]) -> PatternFacts {
        let patterns: Vec<Vec<u8>> = patterns.iter().map(|text| (*text).into()).collect();
        PatternFacts::of(&patterns)
    }

    fn edges(facts: PatternFacts, text: &str) -> (&str, &str) {
        let bytes = text.as_bytes();
        (
            &text[facts.unfinished(bytes)..],
            &text[..facts.continued(bytes)],
        )
    }

    #[test]
    fn the_word_at_an_edge_is_held_as_far_as_a_secret_is_long() {
        let short = facts(&["12345678"]);
        assert_eq!(edges(short, "one two three"), ("three", "one"));
        assert_eq!(edges(short, "one two\n"), ("", "one"));
        assert_eq!(edges(short, "abcdefghijkl"), ("fghijkl", "abcdefg"));
        assert_eq!(edges(short, "ab\rc"), ("ab\rc", "ab\rc"));
        assert_eq!(edges(facts(&[]), "one"), ("", ""));
    }

    #[test]
    fn a_secret_of_several_words_is_held_by_its_length() {
        let spaced = facts(&["my secret", "a-long-value-of-one-word"]);
        assert_eq!(edges(spaced, "x y z 12 34 56"), ("12 34 56", "x y z 12"));
        assert_eq!(edges(spaced, "x 1234567890"), ("1234567890", "x 123456"));
    }

    #[test]
    fn other_letters_end_a_word_unless_a_secret_has_some() {
        let plain = facts(&["12345678"]);
        assert_eq!(edges(plain, "日本ab日本"), ("", ""));
        assert_eq!(edges(plain, "日本ab"), ("ab", ""));
        let others = facts(&["pässword"]);
        assert_eq!(edges(others, "日本 ab日本"), ("ab日本", "日本"));
    }
}
