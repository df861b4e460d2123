//! The edited text and the cursor. Positions are always between two user-perceived characters.

use orchestrator_text::clean::Cleaner;
use unicode_segmentation::UnicodeSegmentation;

/// Maximum bytes of one text.
pub const TEXT_MAX: usize = 1 << 20;

/// A text with a cursor.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    text: String,
    at: usize,
    killed: String,
}

/// Destinations of the cursor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Left,
    Right,
    /// The beginning of the previous word.
    WordLeft,
    /// The end of the next word.
    WordRight,
    ArgumentLeft,
    LineStart,
    LineEnd,
    LineUp,
    LineDown,
}

impl Buffer {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn cursor(&self) -> usize {
        self.at
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Replaces the text, with the cursor at its end.
    pub(crate) fn set(&mut self, text: String) {
        self.at = text.len();
        self.text = text;
    }

    pub(crate) fn take(&mut self) -> String {
        self.at = 0;
        std::mem::take(&mut self.text)
    }

    /// Inserts `text` at the cursor; false if the result would be too long.
    #[must_use]
    pub(crate) fn insert(&mut self, text: &str) -> bool {
        if self.text.len() + text.len() > TEXT_MAX {
            return false;
        }
        self.text.insert_str(self.at, text);
        self.at += text.len();
        true
    }

    /// Inserts a typed character at the cursor; one that would be invisible there is ignored.
    #[must_use]
    pub(crate) fn type_char(&mut self, c: char) -> bool {
        let before = self.text[..self.at].chars().next_back();
        let both: String = before.into_iter().chain([c]).collect();
        let stays = Cleaner::default()
            .clean(both.as_bytes())
            .ends_with(c.to_string().as_bytes());
        !stays || self.insert(c.encode_utf8(&mut [0; 4]))
    }

    /// Moves the cursor; false if it cannot move there.
    pub(crate) fn go(&mut self, to: To) -> bool {
        let at = self.place(to);
        std::mem::replace(&mut self.at, at) != at
    }

    /// Deletes one character before or after the cursor; false if there is none.
    pub(crate) fn delete(&mut self, to: To) -> bool {
        let place = self.place(to);
        !self.remove(place).is_empty()
    }

    /// Deletes the text between the cursor and `to`, and keeps it for [`Self::yank`]; false if that is empty.
    pub(crate) fn kill(&mut self, to: To) -> bool {
        let place = match (to, self.place(to)) {
            // At the end of a line, deletes the line break.
            (To::LineEnd, place) if place == self.at => self.place(To::Right),
            (_, place) => place,
        };
        let removed = self.remove(place);
        let is_some = !removed.is_empty();
        if is_some {
            self.killed = removed;
        }
        is_some
    }

    #[must_use]
    pub(crate) fn yank(&mut self) -> bool {
        let killed = self.killed.clone();
        self.insert(&killed)
    }

    fn remove(&mut self, place: usize) -> String {
        let (from, to) = (self.at.min(place), self.at.max(place));
        self.at = from;
        self.text.drain(from..to).collect()
    }

    fn place(&self, to: To) -> usize {
        let (before, behind) = self.text.split_at(self.at);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = self.at + behind.find('\n').unwrap_or(behind.len());
        match to {
            To::Left => self.at - before.graphemes(true).next_back().map_or(0, str::len),
            To::Right => self.at + behind.graphemes(true).next().map_or(0, str::len),
            To::WordLeft => {
                let word = before.trim_end_matches(|c: char| !c.is_alphanumeric());
                word.trim_end_matches(char::is_alphanumeric).len()
            }
            To::WordRight => {
                let word = behind.trim_start_matches(|c: char| !c.is_alphanumeric());
                self.text.len() - word.trim_start_matches(char::is_alphanumeric).len()
            }
            To::ArgumentLeft => before
                .trim_end()
                .trim_end_matches(|c: char| !c.is_whitespace())
                .len(),
            To::LineStart => line_start,
            To::LineEnd => line_end,
            To::LineUp if line_start == 0 => self.at,
            To::LineUp => {
                let above = self.text[..line_start - 1]
                    .rfind('\n')
                    .map_or(0, |at| at + 1);
                self.along(above, line_start - 1, line_start)
            }
            To::LineDown if line_end == self.text.len() => self.at,
            To::LineDown => {
                let below = line_end + 1;
                let end = self.text[below..]
                    .find('\n')
                    .map_or(self.text.len(), |at| below + at);
                self.along(below, end, line_start)
            }
        }
    }

    /// The position in the line `start..end` with as many characters before it as the cursor has in its own line, which begins at `own`.
    fn along(&self, start: usize, end: usize, own: usize) -> usize {
        let count = self.text[own..self.at].graphemes(true).count();
        start
            + self.text[start..end]
                .graphemes(true)
                .take(count)
                .map(str::len)
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer from a text in which `|` marks the cursor.
    fn buffer(marked: &str) -> Buffer {
        let at = marked.find('|').unwrap();
        Buffer {
            text: marked.replacen('|', "", 1),
            at,
            killed: String::new(),
        }
    }

    fn marked(buffer: &Buffer) -> String {
        let mut text = buffer.text.clone();
        text.insert(buffer.at, '|');
        text
    }

    #[test]
    fn the_cursor_goes_where_it_should() {
        for (from, to, want) in [
            ("ae\u{301}|b", To::Left, "a|e\u{301}b"),
            (
                "|👨\u{200d}👩\u{200d}👧x",
                To::Right,
                "👨\u{200d}👩\u{200d}👧|x",
            ),
            ("|", To::Left, "|"),
            ("one, two-three|", To::WordLeft, "one, two-|three"),
            ("|  one, two", To::WordRight, "  one|, two"),
            ("cp a/b-c  |", To::ArgumentLeft, "cp |a/b-c  "),
            ("one\ntw|o\nthree", To::LineStart, "one\n|two\nthree"),
            ("one\ntw|o\nthree", To::LineEnd, "one\ntwo|\nthree"),
            ("öne\ntwo, t|oo", To::LineUp, "öne|\ntwo, too"),
            ("o|ne\n\nx", To::LineDown, "one\n|\nx"),
            ("日本|語\nabc", To::LineDown, "日本語\nab|c"),
            ("o|ne", To::LineUp, "o|ne"),
            ("one\nt|wo", To::LineDown, "one\nt|wo"),
        ] {
            let mut buffer = buffer(from);
            assert_eq!(buffer.go(to), from != want);
            assert_eq!(marked(&buffer), want, "{from:?} {to:?}");
        }
    }

    #[test]
    fn killed_text_can_be_yanked() {
        let mut buffer = buffer("one two| three\nfour");
        buffer.kill(To::ArgumentLeft);
        buffer.kill(To::WordLeft);
        assert_eq!(marked(&buffer), "| three\nfour");
        buffer.kill(To::LineStart);
        assert!(buffer.yank());
        assert_eq!(
            marked(&buffer),
            "one | three\nfour",
            "what is empty is not kept"
        );
        buffer.kill(To::LineEnd);
        buffer.kill(To::LineEnd);
        assert_eq!(marked(&buffer), "one |four");
    }

    #[test]
    fn no_text_is_longer_than_the_bound() {
        let mut buffer = Buffer::default();
        assert!(buffer.insert(&"x".repeat(TEXT_MAX - 1)) && buffer.type_char('y'));
        assert!(!buffer.type_char('z') && !buffer.insert("z"));
        assert_eq!(buffer.text().len(), TEXT_MAX);
    }

    #[test]
    fn invisible_characters_are_not_typed() {
        let mut buffer = Buffer::default();
        for c in "a\u{200b}\u{202e}\u{200d}👨\u{200d}👩\u{e0041}".chars() {
            assert!(buffer.type_char(c));
        }
        assert_eq!(buffer.text(), "a👨\u{200d}👩");
    }
}
