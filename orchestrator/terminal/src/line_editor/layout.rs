//! Lays out the edited text in rows of the screen. No row fills the window, so that no terminal wraps one: the rows counted here
//! are the rows on the screen.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width of the prefix of each row.
const PREFIX: usize = 2;
/// Minimum number of columns: in a narrower window the rows are wrapped.
const COLUMNS_MIN: usize = 5;
/// Width of a tab, at any position.
const TAB: usize = 4;

/// The prefix of a row, with [`PREFIX`] columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// The first row of the text.
    First,
    /// The first row of a later line.
    Line,
    /// A continued row, or a row that is not part of the text.
    None,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) prefix: Prefix,
    pub text: String,
    /// Its width, including the prefix.
    pub columns: usize,
}

/// The drawing: rows, and the cursor's row and byte in the text of that row. Not its column: terminals disagree about the width
/// of an emoji of several characters, so printing the row up to the cursor positions it correctly in each.
#[derive(Clone, Debug)]
pub(crate) struct Drawing {
    pub rows: Vec<Row>,
    pub cursor: (usize, usize),
}

/// Maximum columns of a user-perceived character on any terminal.
fn columns(grapheme: &str) -> usize {
    let apart: usize = grapheme.chars().filter_map(UnicodeWidthChar::width).sum();
    apart.max(grapheme.width())
}

impl Row {
    fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            text: String::new(),
            columns: PREFIX,
        }
    }
}

impl Drawing {
    /// Lays out `text` with the cursor at byte `cursor`, and a remark below, for a window of this size. If it has too few rows,
    /// those around the cursor are drawn.
    pub(crate) fn new(
        text: &str,
        cursor: usize,
        remark: Option<&str>,
        (height, width): (usize, usize),
    ) -> Self {
        let room = width.max(COLUMNS_MIN) - 1;
        let mut rows = vec![Row::new(Prefix::First)];
        let mut place = (0, 0);
        for (at, grapheme) in text.grapheme_indices(true) {
            let last = rows.len() - 1;
            let columns = match grapheme {
                "\n" => 0,
                "\t" => TAB.min(room - PREFIX),
                grapheme => columns(grapheme).min(room - PREFIX),
            };
            if grapheme != "\n" && rows[last].columns + columns > room {
                rows.push(Row::new(Prefix::None));
            }
            let last = rows.len() - 1;
            if at == cursor {
                place = (last, rows[last].text.len());
            }
            match grapheme {
                "\n" => rows.push(Row::new(Prefix::Line)),
                "\t" => rows[last].text.push_str(&" ".repeat(columns)),
                grapheme => rows[last].text.push_str(grapheme),
            }
            rows[last].columns += columns;
        }
        if cursor >= text.len() {
            place = (rows.len() - 1, rows.last().map_or(0, |row| row.text.len()));
        }
        let remark = remark.map(|remark| fitted(remark, room));
        Self {
            rows,
            cursor: place,
        }
        .within(height.saturating_sub(usize::from(remark.is_some())), remark)
    }

    fn within(mut self, height: usize, remark: Option<Row>) -> Self {
        let height = height.max(1);
        let surplus = self.rows.len().saturating_sub(height);
        let start = self.cursor.0.saturating_sub(height - 1).min(surplus);
        self.rows.truncate(start + height);
        self.rows.drain(..start);
        self.rows.extend(remark);
        self.cursor.0 -= start;
        self
    }

    /// The text before the cursor in its row.
    pub(crate) fn before_cursor(&self) -> (Prefix, &str) {
        let row = &self.rows[self.cursor.0];
        (row.prefix, &row.text[..self.cursor.1])
    }

    /// The cursor's row, counted from the first, after a terminal resized to `width` columns has rewrapped the rows.
    pub(crate) fn cursor_row(&self, width: usize) -> usize {
        let width = width.max(1);
        let above = self.rows[..self.cursor.0]
            .iter()
            .map(|row| row.columns.max(1).div_ceil(width));
        let before: usize = self.before_cursor().1.graphemes(true).map(columns).sum();
        above.sum::<usize>() + (PREFIX + before) / width
    }
}

fn fitted(remark: &str, room: usize) -> Row {
    let mut row = Row::new(Prefix::None);
    for grapheme in remark.graphemes(true) {
        let columns = columns(grapheme);
        if row.columns + columns > room {
            break;
        }
        row.text.push_str(grapheme);
        row.columns += columns;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(drawing: &Drawing) -> Vec<&str> {
        drawing.rows.iter().map(|row| row.text.as_str()).collect()
    }

    #[test]
    fn wide_characters_and_line_ends_break_rows_where_they_should() {
        let drawing = Drawing::new("ab日本c\nd\te", 0, None, (24, 8));
        assert_eq!(texts(&drawing), ["ab日", "本c", "d    ", "e"]);
        let prefixes: Vec<_> = drawing.rows.iter().map(|row| row.prefix).collect();
        assert_eq!(
            prefixes,
            [Prefix::First, Prefix::None, Prefix::Line, Prefix::None]
        );
    }

    #[test]
    fn the_cursor_is_where_the_next_character_comes() {
        let at = |text: &str, cursor: usize| {
            let drawing = Drawing::new(text, cursor, None, (24, 8));
            (drawing.cursor.0, drawing.before_cursor().1.to_owned())
        };
        assert_eq!(at("", 0), (0, "".into()));
        assert_eq!(at("日x", 3), (0, "日".into()));
        assert_eq!(
            at("abcde", 5),
            (0, "abcde".into()),
            "the last column is free for it"
        );
        assert_eq!(at("abcdef", 5), (1, "".into()));
        assert_eq!(at("a\n", 2), (1, "".into()));
        assert_eq!(at("a\nb", 1), (0, "a".into()));
    }

    #[test]
    fn no_row_is_as_wide_as_the_window() {
        let text = "日本語 e\u{301} 👨\u{200d}👩\u{200d}👧 word\tx\n".repeat(5);
        for width in 0..100 {
            for (cursor, _) in text.grapheme_indices(true) {
                let drawing =
                    Drawing::new(&text, cursor, Some("a remark of some length"), (6, width));
                assert!(drawing.rows.len() <= 6 && drawing.cursor.0 < 6);
                let wide = drawing
                    .rows
                    .iter()
                    .find(|row| row.columns >= width.max(COLUMNS_MIN));
                assert!(
                    wide.is_none() && drawing.cursor_row(width.max(COLUMNS_MIN)) < 6,
                    "{width}: {drawing:?}"
                );
            }
        }
    }

    #[test]
    fn a_text_longer_than_the_window_shows_the_cursor() {
        let text = (0..100)
            .map(|number| format!("{number}\n"))
            .collect::<String>();
        let drawing = Drawing::new(&text, 0, Some("remark"), (5, 80));
        assert_eq!(
            (texts(&drawing), drawing.cursor),
            (vec!["0", "1", "2", "3", "remark"], (0, 0))
        );
        let drawing = Drawing::new(&text, text.len(), None, (5, 80));
        assert_eq!(
            (texts(&drawing), drawing.cursor),
            (vec!["96", "97", "98", "99", ""], (4, 0))
        );
    }

    #[test]
    fn a_narrower_window_has_more_rows_above_the_cursor() {
        let drawing = Drawing::new(&"x".repeat(100), 100, None, (24, 80));
        assert_eq!(
            (
                drawing.cursor_row(80),
                drawing.cursor_row(40),
                drawing.cursor_row(20)
            ),
            (1, 2, 5)
        );
    }
}
