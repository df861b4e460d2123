//! How much of something is shown, and the note about what is left out.

use crate::escape::file_name;
use std::borrow::Cow;

/// Longest text in a record, in characters.
pub(crate) const BRIEF: usize = 2000;

/// If there are more than `max` bytes, lines or entries, only `keep` of them are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The maximum that is shown completely.
    pub max: usize,
    /// How many are shown if there are more.
    pub keep: usize,
}

impl Bound {
    /// A bound that keeps as many as it shows completely.
    pub const fn same(max: usize) -> Self {
        Self { max, keep: max }
    }

    /// How many of `count` items to show; `None` for all.
    pub fn cut(self, count: usize) -> Option<usize> {
        (count > self.max).then_some(self.keep)
    }
}

/// The note about what is left out, for people and programs. `total` is `None` if the end was not read.
pub fn note(total: Option<u64>, shown: u64, strategy: &str, full: Option<&str>) -> String {
    let why = if total.is_none() {
        " why=not-read-to-the-end"
    } else {
        ""
    };
    let total = total.map_or(Cow::Borrowed("unknown"), |total| total.to_string().into());
    let full = full.map_or(String::new(), |path| format!(" full={}", file_name(path)));
    format!("[truncated: total={total} shown={shown} strategy={strategy}{full}{why}]")
}

/// The first [`BRIEF`] characters of `text`.
pub fn brief(text: &str) -> Cow<'_, str> {
    // Fewer bytes have no more characters.
    let over = (text.len() > BRIEF)
        .then(|| text.char_indices().nth(BRIEF))
        .flatten();
    match over {
        Some((end, _)) => format!("{}… [{} bytes in all]", &text[..end], text.len()).into(),
        None => text.into(),
    }
}

/// `1 byte`, `2 bytes`.
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_line_of_known_words() {
        let want = "[truncated: total=9 shown=3 strategy=tail full=/c/outputs/1.log]";
        assert_eq!(note(Some(9), 3, "tail", Some("/c/outputs/1.log")), want);
        let uncounted = "[truncated: total=unknown shown=3 strategy=head why=not-read-to-the-end]";
        assert_eq!(note(None, 3, "head", None), uncounted);
        assert!(note(Some(4), 3, "head", Some("a\nb")).ends_with(r#" full="a\nb"]"#));
    }

    #[test]
    fn a_text_is_brief_one_over_the_bound() {
        let exact = "é".repeat(BRIEF);
        assert_eq!(brief(&exact), exact);
        assert_eq!(
            brief(&format!("{exact}é")),
            format!("{exact}… [4002 bytes in all]")
        );
        assert_eq!(
            (Bound::same(3).cut(3), Bound { max: 3, keep: 1 }.cut(4)),
            (None, Some(1))
        );
    }
}
