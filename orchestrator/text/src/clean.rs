//! Removes what a person or a model would not see in a text: escape sequences, control characters except line break and tab, marks
//! that change the direction of writing, characters without a glyph.
//!
//! Text comes from commands, files and third parties in arbitrary pieces, so [`Cleaner`] keeps its state within a sequence between
//! pieces. A sequence ends at its own end or with its line, so that untrusted text can hide no more than that. Bytes that are not
//! UTF-8 stay unchanged; they are never displayed as text.

use crate::characters::is_unsafe;
use std::borrow::Cow;

const ESCAPE: char = '\u{1b}';
const JOINERS: [char; 2] = ['\u{200c}', '\u{200d}'];
/// The variation selectors for text and picture style, which occur in ordinary text.
const STYLES: [char; 2] = ['\u{fe0e}', '\u{fe0f}'];

/// Cleans one stream piece by piece. A piece may not end within a character.
#[derive(Debug, Default)]
pub struct Cleaner {
    state: SequenceState,
    /// The last character that was kept.
    previous: Option<char>,
    /// Whether a carriage return waits for its next character.
    returned: bool,
    returns: Returns,
    /// Characters and sequences removed so far.
    stripped: u64,
}

/// How to treat carriage returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Returns {
    /// `\r\n` becomes `\n`, and so does a lone one.
    #[default]
    Break,
    /// `\r\n` stays; a lone one becomes `\n`.
    OfFile,
    /// They stay, for a later pass.
    Stay,
}

/// The parser's state within a sequence, according to ECMA-48.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SequenceState {
    #[default]
    Text,
    /// After an escape character, and any intermediate ones.
    Escape,
    /// In a control sequence, before its last character.
    Control,
    /// In a string for the terminal: a title, a clipboard, a picture.
    String,
    /// In such a string, after an escape character.
    StringEscape,
}

impl Cleaner {
    /// For the content of a file, which will be compared with the file again: keeps its line breaks unchanged.
    pub fn of_file() -> Self {
        Self {
            returns: Returns::OfFile,
            ..Self::default()
        }
    }

    /// For a text in which secrets are searched next: a return within one must not become a line break before.
    pub(crate) fn before_search() -> Self {
        Self {
            returns: Returns::Stay,
            ..Self::default()
        }
    }

    /// `bytes` without unsafe characters and sequences.
    pub fn clean<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let plain = |byte: &u8| matches!(byte, b'\n' | b'\t' | b' '..=b'~');
        if self.state == SequenceState::Text && !self.returned && bytes.iter().all(plain) {
            self.previous = bytes.last().map(|byte| char::from(*byte)).or(self.previous);
            return Cow::Borrowed(bytes);
        }
        let mut out = Vec::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            chunk.valid().chars().for_each(|c| self.push(c, &mut out));
            if self.state == SequenceState::Text {
                out.extend_from_slice(chunk.invalid());
            }
        }
        Cow::Owned(out)
    }

    /// Characters and sequences removed so far.
    pub(crate) fn stripped(&self) -> u64 {
        self.stripped
    }

    fn push(&mut self, c: char, out: &mut Vec<u8>) {
        self.state = match (self.state, c) {
            (_, '\n' | '\t' | '\r') => {
                self.text(c, out);
                SequenceState::Text
            }
            // Cancel and substitute end any sequence.
            (_, '\u{18}' | '\u{1a}') => self.drop_one(SequenceState::Text),
            (SequenceState::String | SequenceState::StringEscape, ESCAPE) => {
                SequenceState::StringEscape
            }
            (SequenceState::StringEscape, '\\') | (SequenceState::String, '\u{7}' | '\u{9c}') => {
                SequenceState::Text
            }
            (SequenceState::String, _) => SequenceState::String,
            (_, ESCAPE) => self.drop_one(SequenceState::Escape),
            (_, '\u{9b}') => self.drop_one(SequenceState::Control),
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => self.drop_one(SequenceState::String),
            (SequenceState::Escape | SequenceState::StringEscape, '[') => SequenceState::Control,
            (SequenceState::Escape | SequenceState::StringEscape, 'P' | 'X' | ']' | '^' | '_') => {
                SequenceState::String
            }
            (SequenceState::Escape | SequenceState::StringEscape, ' '..='/') => {
                SequenceState::Escape
            }
            (SequenceState::Escape | SequenceState::StringEscape, '0'..='~') => SequenceState::Text,
            (SequenceState::Control, ' '..='?') => SequenceState::Control,
            (SequenceState::Control, '@'..='~') => SequenceState::Text,
            // A character that cannot be part of a sequence ends it and counts as text.
            (
                SequenceState::Text
                | SequenceState::Escape
                | SequenceState::StringEscape
                | SequenceState::Control,
                _,
            ) => {
                self.text(c, out);
                SequenceState::Text
            }
        };
    }

    fn drop_one(&mut self, next: SequenceState) -> SequenceState {
        self.stripped += 1;
        next
    }

    fn text(&mut self, c: char, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.returned) {
            match c {
                '\n' if self.returns == Returns::OfFile => out.push(b'\r'),
                '\n' | '\r' => {}
                // It would return and overwrite the line; a line break keeps the text before it visible.
                _ => self.append('\n', out),
            }
        }
        match c {
            '\r' if self.returns == Returns::Stay => out.push(b'\r'),
            '\r' => self.returned = true,
            '\n' | '\t' => self.append(c, out),
            c if self.is_visible(c) => self.append(c, out),
            _ => self.stripped += 1,
        }
    }

    fn append(&mut self, c: char, out: &mut Vec<u8>) {
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        self.previous = Some(c);
    }

    /// Joiners and styles are ordinary text if they come singly and after a character that they can apply to.
    fn is_visible(&self, c: char) -> bool {
        let special = |c: char| JOINERS.contains(&c) || STYLES.contains(&c);
        let previous = self.previous.unwrap_or(' ');
        match c {
            c if JOINERS.contains(&c) => !previous.is_ascii() && !JOINERS.contains(&previous),
            c if STYLES.contains(&c) => {
                !special(previous)
                    && (!previous.is_ascii()
                        || previous.is_ascii_digit()
                        || "#*".contains(previous))
            }
            c => !is_unsafe(c),
        }
    }
}

/// Removes unsafe characters from the lines of a file before they get a prefix; returns how many. A carriage return within a line
/// becomes `␍`: otherwise it would begin a line without a prefix.
pub fn lines(bytes: &[u8]) -> (Vec<u8>, u64) {
    let mut marked = Vec::with_capacity(bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\r' if bytes.get(at + 1) != Some(&b'\n') => marked.extend("␍".bytes()),
            byte => marked.push(*byte),
        }
    }
    let mut cleaner = Cleaner::of_file();
    let clean = cleaner.clean(&marked).into_owned();
    (clean, cleaner.stripped())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        String::from_utf8(Cleaner::default().clean(text.as_bytes()).into_owned()).unwrap()
    }

    const CASES: &[(&str, &str)] = &[
        ("plain é 日本 😀\n\tx", "plain é 日本 😀\n\tx"),
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("\u{1b}[38;2;1;2;3mx\u{1b}[?25l", "x"),
        ("\u{1b}[2Jx\u{1b}[1;1H", "x"),
        ("a\u{1b}]0;title\u{7}b", "ab"),
        ("a\u{1b}]52;c;aGk=\u{1b}\\b", "ab"),
        (
            "a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\b",
            "alinkb",
        ),
        ("a\u{1b}Pq#0;2\u{1b}\\b", "ab"),
        (
            "a\u{1b}_apc\u{1b}\\b\u{1b}^pm\u{1b}\\c\u{1b}Xsos\u{1b}\\d",
            "abcd",
        ),
        ("a\u{1b}(Bb\u{1b}=c\u{1b}7d\u{1b}cE", "abcdE"),
        ("a\u{9b}31mb\u{9d}0;t\u{9c}c\u{90}q\u{9c}d", "abcd"),
        ("a\u{84}b\u{85}c\u{9f}x\u{7}d", "abcd"),
        // An unterminated sequence removes only its line.
        ("a\u{1b}]0;never\nnext", "a\nnext"),
        ("a\u{1b}[31\nnext", "a\nnext"),
        ("a\u{1b}\nb", "a\nb"),
        ("a\u{1b}]0;x\u{1b}[31mb", "ab"),
        ("a\u{1b}]x\u{18}b\u{1b}[1\u{1a}c", "abc"),
        ("a\u{1b}[é", "aé"),
        ("a\u{0}\u{1}\u{8}\u{b}\u{c}\u{e}\u{7f}b", "ab"),
        ("a\u{202e}b\u{2066}c\u{200f}d\u{61c}e", "abcde"),
        ("a\u{200b}b\u{2060}c\u{feff}d\u{ad}e\u{2028}f", "abcdef"),
        ("a\u{e0041}\u{e0042}b\u{e0101}c\u{fe01}d\u{3164}e", "abcde"),
        ("one\r\ntwo\rthree\r", "one\ntwo\nthree"),
        ("a\r\r\nb", "a\nb"),
        (
            "👨\u{200d}👩\u{200d}👧 ❤\u{fe0f} 1\u{fe0f}\u{20e3}",
            "👨\u{200d}👩\u{200d}👧 ❤\u{fe0f} 1\u{fe0f}\u{20e3}",
        ),
        ("می\u{200c}خواهم", "می\u{200c}خواهم"),
        ("a\u{200d}b\u{200c}c\u{fe0f}d", "abcd"),
        ("é\u{200d}\u{200d}\u{200c}b", "é\u{200d}b"),
    ];

    #[test]
    fn only_visible_characters_stay() {
        for (input, want) in CASES {
            assert_eq!(clean(input), *want, "{input:?}");
        }
    }

    #[test]
    fn cleaned_text_is_the_same_however_the_stream_is_cut() {
        for (input, want) in CASES {
            let ends: Vec<_> = input.char_indices().map(|(at, _)| at).collect();
            for &first in &ends {
                for &second in ends.iter().filter(|second| **second >= first) {
                    let mut cleaner = Cleaner::default();
                    let pieces = [&input[..first], &input[first..second], &input[second..]];
                    let out = pieces
                        .map(|piece| cleaner.clean(piece.as_bytes()).into_owned())
                        .concat();
                    assert_eq!(
                        out,
                        want.as_bytes(),
                        "{input:?} cut at {first} and {second}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_file_keeps_its_line_ends_and_other_bytes_are_left() {
        assert_eq!(
            &*Cleaner::of_file().clean(b"a\r\nb\rc\x1b[1md"),
            b"a\r\nb\ncd"
        );
        assert_eq!(
            &*Cleaner::default().clean(b"x\xff\x1b]0;\xff\x07y"),
            b"x\xffy"
        );
        let mut cleaner = Cleaner::default();
        cleaner.clean("a\u{1b}[31mb\u{202e}\u{0}".as_bytes());
        assert_eq!(cleaner.stripped(), 3);
    }

    #[test]
    fn lines_stay_the_lines_they_were() {
        let (clean, stripped) = lines(b"a\r\nb\rc\r\r\n\x1b]0;\xff\nd\r");
        assert_eq!(
            (String::from_utf8(clean).unwrap().as_str(), stripped),
            ("a\r\nb␍c␍\r\n\nd␍", 1)
        );
    }

    #[test]
    fn any_bytes_leave_nothing_that_steers() {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        let parts = [
            "\u{1b}", "[", "]", "\\", ";", "m", "\u{7}", "\u{9b}", "\u{9c}", "\r", "\n", "é",
            "\u{202e}", "x",
        ];
        for _ in 0..20_000 {
            let text: String = (0..next() % 12)
                .map(|_| parts[next() % parts.len()])
                .collect();
            let shown = clean(&text);
            assert!(
                shown.chars().all(|c| c == '\n' || !is_unsafe(c)),
                "{text:?}: {shown:?}"
            );
        }
    }
}
