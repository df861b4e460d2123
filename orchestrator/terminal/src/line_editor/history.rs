//! The history of typed texts, in memory.

use crate::line_editor::keys::cleaned;
use std::collections::VecDeque;

pub(crate) const ENTRIES_MAX: usize = 1000;
/// Maximum bytes of a text that is kept.
pub(crate) const ENTRY_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub(crate) struct LineHistory(VecDeque<String>);

impl LineHistory {
    /// A history from a file. Another program may have written it, so entries are cleaned like a paste.
    pub(crate) fn of(entries: impl IntoIterator<Item = String>) -> Self {
        let mut history = Self::default();
        entries.into_iter().for_each(|entry| {
            history.add(&cleaned(&entry));
        });
        history
    }

    /// Adds a text and returns whether it did: not if it begins with a space (as in shells), repeats the last one, or is too long.
    pub(crate) fn add(&mut self, text: &str) -> bool {
        let is_kept = !text.is_empty()
            && !text.starts_with(char::is_whitespace)
            && text.len() <= ENTRY_MAX
            && self.0.back().is_none_or(|last| last != text);
        if is_kept {
            self.0.push_back(text.to_owned());
            while self.0.len() > ENTRIES_MAX {
                self.0.pop_front();
            }
        }
        is_kept
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&str> {
        self.0.get(place).map(String::as_str)
    }

    /// The newest entry before `end` that contains `needle`.
    pub(crate) fn find(&self, needle: &str, end: usize) -> Option<usize> {
        (0..end.min(self.len()))
            .rev()
            .find(|place| self.0[*place].contains(needle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_and_its_entries_are_limited() {
        let mut history = LineHistory::default();
        assert!(
            history.add("one") && !history.add("one") && history.add("two") && history.add("one")
        );
        assert!(!history.add(" hidden") && !history.add("\thidden") && !history.add(""));
        assert!(history.add(&"x".repeat(ENTRY_MAX)) && !history.add(&"x".repeat(ENTRY_MAX + 1)));
        for number in 0..ENTRIES_MAX + 5 {
            assert!(history.add(&number.to_string()));
        }
        assert_eq!((history.len(), history.get(0)), (ENTRIES_MAX, Some("5")));
    }

    #[test]
    fn a_file_of_history_is_a_strangers_text() {
        let history = LineHistory::of(["a\u{1b}]0;title\u{7}b".to_owned()]);
        assert_eq!(history.get(0), Some("ab"));
    }
}
