//! A text without characters that leave the text around them as it was: carriage returns, control and invisible characters, and
//! marks that combine with a letter. A secret with some of them inside is still readable, so secrets are searched in this form.

use crate::characters::is_unsafe;
use icu_properties::CodePointMapData;
use icu_properties::props::{GeneralCategory, GeneralCategoryGroup};
use std::borrow::Cow;

/// Maximum number of such characters in a row; a longer run separates. It bounds what a stream has to hold.
const RUN_MAX: usize = 16;

/// A text in this form, and where its bytes were.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Folded<'a> {
    /// The bytes that are left.
    pub bytes: Cow<'a, [u8]>,
    /// For each place where bytes were removed: the position after it in `bytes`, and how many were removed up to there.
    gaps: Vec<(usize, usize)>,
    length: usize,
}

impl Folded<'_> {
    /// Where the byte at `at` was, or the end of the whole text.
    pub(crate) fn start(&self, at: usize) -> usize {
        if at >= self.bytes.len() {
            return self.length;
        }
        let before = self.gaps.partition_point(|(position, _)| *position <= at);
        at + before.checked_sub(1).map_or(0, |gap| self.gaps[gap].1)
    }

    /// The end, in the whole text, of what ends before `at`.
    pub(crate) fn end(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |last| self.start(last) + 1)
    }
}

/// Folds a text that is complete.
pub(crate) fn fold(bytes: &[u8]) -> Folded<'_> {
    folded(bytes, TextEnd::Complete)
}

/// Folds a text that may go on: an incomplete character at its end may become one that is removed.
pub(crate) fn fold_open(bytes: &[u8]) -> Folded<'_> {
    folded(bytes, TextEnd::Open)
}

/// Whether more of a text may follow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextEnd {
    Complete,
    Open,
}

fn folded(bytes: &[u8], end: TextEnd) -> Folded<'_> {
    let plain = |byte: &u8| matches!(byte, b'\n' | b'\t' | b' '..=b'~');
    if bytes.iter().all(plain) {
        return Folded {
            bytes: Cow::Borrowed(bytes),
            gaps: Vec::new(),
            length: bytes.len(),
        };
    }
    let mut folding = Folding {
        out: Vec::with_capacity(bytes.len()),
        ..Folding::default()
    };
    let mut at = 0;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            let length = c.len_utf8();
            if is_folded(c) {
                folding.remove(&bytes[at..at + length]);
            } else {
                folding.copy(&bytes[at..at + length]);
            }
            at += length;
        }
        let invalid = chunk.invalid();
        let is_last = at + invalid.len() == bytes.len();
        if end == TextEnd::Open && is_last && may_go_on(invalid) {
            folding.remove(invalid);
        } else {
            folding.copy(invalid);
        }
        at += invalid.len();
    }
    folding.end_run();
    Folded {
        bytes: Cow::Owned(folding.out),
        gaps: folding.gaps,
        length: bytes.len(),
    }
}

#[derive(Default)]
struct Folding {
    out: Vec<u8>,
    gaps: Vec<(usize, usize)>,
    removed: usize,
    /// The current run of characters to remove, and how many they are.
    run: Vec<u8>,
    count: usize,
}

impl Folding {
    /// Takes a character that is not in the folded text, unless its run is too long.
    fn remove(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.run.extend_from_slice(bytes);
            self.count += 1;
        }
    }

    fn copy(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.end_run();
            self.out.extend_from_slice(bytes);
        }
    }

    fn end_run(&mut self) {
        if self.count > RUN_MAX {
            self.out.append(&mut self.run);
        } else if self.count > 0 {
            self.removed += self.run.len();
            self.gaps.push((self.out.len(), self.removed));
            self.run.clear();
        }
        self.count = 0;
    }
}

fn is_folded(c: char) -> bool {
    match c {
        '\n' | '\t' | ' '..='~' => false,
        c if is_unsafe(c) => true,
        c if c < '\u{300}' => false,
        c => GeneralCategoryGroup::Mark.contains(CodePointMapData::<GeneralCategory>::new().get(c)),
    }
}

/// Whether these bytes may be the beginning of a character.
fn may_go_on(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_bytes_keep_their_original_positions() {
        let text = "a\rb\u{301}\u{200b}c\u{1}";
        let folded = fold(text.as_bytes());
        assert_eq!(&*folded.bytes, b"abc");
        let starts: Vec<usize> = (0..=3).map(|at| folded.start(at)).collect();
        assert_eq!(starts, [0, 2, 8, 10]);
        let ends: Vec<usize> = (0..=3).map(|at| folded.end(at)).collect();
        assert_eq!(ends, [0, 1, 3, 9]);
        assert!(matches!(fold(b"plain\n").bytes, Cow::Borrowed(_)));
        assert_eq!(&*fold("é日本\n".as_bytes()).bytes, "é日本\n".as_bytes());
    }

    #[test]
    fn a_long_run_separates_and_an_open_end_is_folded() {
        let run = |count: usize| {
            fold(format!("a{}b", "\r".repeat(count)).as_bytes())
                .bytes
                .len()
        };
        assert_eq!((run(RUN_MAX), run(RUN_MAX + 1)), (2, RUN_MAX + 3));
        assert_eq!(&*fold_open(b"a\xcc").bytes, b"a");
        assert_eq!(&*fold(b"a\xcc").bytes, b"a\xcc");
        assert_eq!(&*fold_open(b"a\xff").bytes, b"a\xff");
    }
}
