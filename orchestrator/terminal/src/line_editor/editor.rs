//! The effect of each key: on the text, its history, search and completion.

use crate::line_editor::buffer::{Buffer, To};
use crate::line_editor::history::LineHistory;
use crate::line_editor::keys::KeyPress;
use crate::line_editor::layout::Drawing;

/// Maximum characters of a search text.
const NEEDLE_MAX: usize = 200;

/// Possible completions of a text.
pub(crate) type Complete = fn(&str) -> Vec<String>;

/// What has to be done after a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EditStep {
    /// Draw what there is now.
    Draw,
    /// The finished text; the next one begins empty.
    Done(String),
    End,
    ClearScreen,
    Suspend,
}

/// Edits one text after the other, key by key.
pub(crate) struct LineEditor {
    buffer: Buffer,
    history: LineHistory,
    /// The history entry shown; after the last one comes the new text.
    place: usize,
    /// The text typed before entries were shown.
    draft: String,
    search: Option<HistorySearch>,
    /// Whether the last key was Control-C.
    interrupted: bool,
    remark: Option<String>,
    complete: Complete,
}

/// A search in the history.
struct HistorySearch {
    needle: String,
    found: Option<usize>,
    /// The text to return to.
    before: String,
}

impl LineEditor {
    pub(crate) fn new(history: LineHistory, complete: Complete) -> Self {
        Self {
            buffer: Buffer::default(),
            place: history.len(),
            history,
            draft: String::new(),
            search: None,
            interrupted: false,
            remark: None,
            complete,
        }
    }

    /// Adds a text to the history; returns whether it was added.
    pub(crate) fn remember(&mut self, text: &str) -> bool {
        let is_kept = self.history.add(text);
        self.place = self.history.len();
        is_kept
    }

    pub(crate) fn draw(&self, size: (usize, usize)) -> Drawing {
        let searching = self.search.as_ref().map(|search| {
            let none = if search.found.is_none() && !search.needle.is_empty() {
                "nothing with"
            } else {
                "search"
            };
            format!("{none}: {}", search.needle)
        });
        let remark = searching.as_deref().or(self.remark.as_deref());
        Drawing::new(self.buffer.text(), self.buffer.cursor(), remark, size)
    }

    /// What stays on the screen of a submitted text.
    pub(crate) fn drawn_text(text: &str, size: (usize, usize)) -> Drawing {
        Drawing::new(text, text.len(), None, size)
    }

    pub(crate) fn press(&mut self, key: KeyPress) -> EditStep {
        self.remark = None;
        let was_interrupted = std::mem::take(&mut self.interrupted);
        let key = match self.search.take() {
            Some(search) => self.search_key(search, key),
            None => Some(key),
        };
        match key {
            // The second in a row.
            Some(KeyPress::Interrupt) if was_interrupted && self.buffer.text().is_empty() => {
                EditStep::End
            }
            Some(key) => self.edit(key),
            None => EditStep::Draw,
        }
    }

    fn edit(&mut self, key: KeyPress) -> EditStep {
        match key {
            KeyPress::Char(c) => {
                let fits = self.buffer.type_char(c);
                self.inserted(fits);
            }
            KeyPress::Paste(text) => {
                let fits = self.buffer.insert(&text);
                self.inserted(fits);
            }
            KeyPress::PasteTooLong => self.inserted(false),
            KeyPress::NewLine => {
                let fits = self.buffer.insert("\n");
                self.inserted(fits);
            }
            KeyPress::Yank => {
                let fits = self.buffer.yank();
                self.inserted(fits);
            }
            KeyPress::Enter => return self.enter(),
            KeyPress::Tab => self.tab(),
            KeyPress::Search => {
                let before = self.buffer.text().to_owned();
                self.search = Some(HistorySearch {
                    needle: String::new(),
                    found: None,
                    before,
                });
            }
            KeyPress::Interrupt => return self.interrupt(),
            KeyPress::EndOfInput if self.buffer.text().is_empty() => return EditStep::End,
            KeyPress::ClearScreen => return EditStep::ClearScreen,
            KeyPress::Suspend => return EditStep::Suspend,
            key => self.move_or_delete(key),
        }
        EditStep::Draw
    }

    fn move_or_delete(&mut self, key: KeyPress) {
        let buffer = &mut self.buffer;
        let _ = match key {
            KeyPress::Left => buffer.go(To::Left),
            KeyPress::Right => buffer.go(To::Right),
            KeyPress::WordLeft => buffer.go(To::WordLeft),
            KeyPress::WordRight => buffer.go(To::WordRight),
            KeyPress::Home => buffer.go(To::LineStart),
            KeyPress::End => buffer.go(To::LineEnd),
            KeyPress::Up => buffer.go(To::LineUp) || self.show_entry(self.place.wrapping_sub(1)),
            KeyPress::Down => buffer.go(To::LineDown) || self.show_entry(self.place + 1),
            KeyPress::Backspace => buffer.delete(To::Left),
            KeyPress::Delete | KeyPress::EndOfInput => buffer.delete(To::Right),
            KeyPress::KillToEnd => buffer.kill(To::LineEnd),
            KeyPress::KillToStart => buffer.kill(To::LineStart),
            KeyPress::KillArgument => buffer.kill(To::ArgumentLeft),
            KeyPress::KillWord => buffer.kill(To::WordLeft),
            KeyPress::KillNextWord => buffer.kill(To::WordRight),
            // There is no search to leave; other cases were handled before.
            KeyPress::Escape
            | KeyPress::Char(_)
            | KeyPress::Paste(_)
            | KeyPress::PasteTooLong
            | KeyPress::Enter
            | KeyPress::NewLine
            | KeyPress::Tab
            | KeyPress::Yank
            | KeyPress::Search
            | KeyPress::ClearScreen
            | KeyPress::Interrupt
            | KeyPress::Suspend => false,
        };
    }

    fn inserted(&mut self, fits: bool) {
        if !fits {
            self.remark = Some("that is too long: put it into a file of the project".to_owned());
        }
    }

    fn enter(&mut self) -> EditStep {
        if self.buffer.is_at_end() && self.buffer.text().ends_with('\\') {
            self.buffer.delete(To::Left);
            let fits = self.buffer.insert("\n");
            self.inserted(fits);
            return EditStep::Draw;
        }
        if self.buffer.text().trim().is_empty() {
            self.buffer.take();
            return EditStep::Draw;
        }
        self.draft.clear();
        self.place = self.history.len();
        EditStep::Done(self.buffer.take())
    }

    fn interrupt(&mut self) -> EditStep {
        self.buffer.take();
        self.draft.clear();
        self.place = self.history.len();
        self.interrupted = true;
        self.remark = Some("Ctrl-C again, or Ctrl-D, ends the chat".to_owned());
        EditStep::Draw
    }

    /// Shows a history entry, or the text typed before; false if there is none.
    fn show_entry(&mut self, place: usize) -> bool {
        if place > self.history.len() {
            return false;
        }
        if self.place == self.history.len() {
            self.draft = self.buffer.text().to_owned();
        }
        self.place = place;
        let entry = self.history.get(place).map(str::to_owned);
        self.buffer
            .set(entry.unwrap_or_else(|| std::mem::take(&mut self.draft)));
        true
    }

    fn tab(&mut self) {
        if !self.buffer.is_at_end() {
            return;
        }
        let found = (self.complete)(self.buffer.text());
        match &found[..] {
            [] => {}
            [only] => self.buffer.set(format!("{only} ")),
            [first, ..] => {
                let common = found
                    .iter()
                    .fold(first.as_str(), |common, other| common_start(common, other));
                if common.len() > self.buffer.text().len() {
                    self.buffer.set(common.to_owned());
                }
                self.remark = Some(found.join("  "));
            }
        }
    }

    /// Handles a key within a search; returns the key if it ends the search and has an effect of its own.
    fn search_key(&mut self, mut search: HistorySearch, key: KeyPress) -> Option<KeyPress> {
        let newest = self.history.len();
        match key {
            KeyPress::Char(c) if search.needle.chars().count() < NEEDLE_MAX => {
                search.needle.push(c);
                search.found = self
                    .history
                    .find(&search.needle, search.found.map_or(newest, |at| at + 1));
            }
            KeyPress::Backspace => {
                search.needle.pop();
                search.found = self.find(&search.needle, newest);
            }
            KeyPress::Search => {
                let older = self.find(&search.needle, search.found.unwrap_or(newest));
                search.found = older.or(search.found);
            }
            KeyPress::Char(_) => {}
            KeyPress::Escape | KeyPress::Interrupt => {
                self.buffer.set(search.before);
                return None;
            }
            // A found text is shown before it is submitted.
            KeyPress::Enter => return None,
            key => return Some(key),
        }
        if let Some(entry) = search.found.and_then(|place| self.history.get(place)) {
            self.buffer.set(entry.to_owned());
        }
        self.search = Some(search);
        None
    }

    fn find(&self, needle: &str, end: usize) -> Option<usize> {
        (!needle.is_empty())
            .then(|| self.history.find(needle, end))
            .flatten()
    }
}

/// The common prefix of two texts.
fn common_start<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one
        .char_indices()
        .zip(other.chars())
        .find(|((_, here), there)| here != there);
    let end = same.map_or(one.len().min(other.len()), |((at, _), _)| at);
    &one[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line_editor::keys::KeyDecoder;
    use std::time::Instant;

    fn complete(text: &str) -> Vec<String> {
        let all = ["/trust", "/tree", "/help"];
        all.iter()
            .filter(|name| name.starts_with(text))
            .map(|name| (*name).to_owned())
            .collect()
    }

    fn editor(entries: &[&str]) -> LineEditor {
        LineEditor::new(
            LineHistory::of(entries.iter().map(|entry| (*entry).to_owned())),
            complete,
        )
    }

    /// The effect of the last of the keys.
    fn press(editor: &mut LineEditor, bytes: &str) -> EditStep {
        let mut decoder = KeyDecoder::default();
        let mut keys = decoder.push(bytes.as_bytes(), Instant::now());
        keys.extend(decoder.end_key());
        keys.into_iter()
            .map(|key| editor.press(key))
            .last()
            .unwrap()
    }

    #[track_caller]
    fn shows(editor: &mut LineEditor, bytes: &str, want: &str) {
        assert_eq!(press(editor, bytes), EditStep::Draw);
        assert_eq!(editor.buffer.text(), want);
    }

    #[test]
    fn keys_edit_as_in_a_shell() {
        let done = |bytes: &str| match press(&mut editor(&[]), bytes) {
            EditStep::Done(text) => text,
            step => panic!("{step:?}"),
        };
        assert_eq!(done("world\x01hello \x05!\r"), "hello world!");
        assert_eq!(done("one two three\x1bb\x1bb\x0b\r"), "one ");
        assert_eq!(done("one two\x17\x15three\x19\r"), "threeone ");
        assert_eq!(done("ab\x1b[D\x1b[3~c\x7f日本\x7f\r"), "a日");
        assert_eq!(
            done("one\x1b\rtwo\\\rthree\x1b[A\x1b[A\x01> \r"),
            "> one\ntwo\nthree"
        );
        assert_eq!(done(" \r\r x\r"), " x", "what is empty is not sent");
        assert_eq!(done("ab\x01\x04\r"), "b", "Ctrl-D deletes within a text");
    }

    #[test]
    fn earlier_texts_come_back_and_so_does_what_was_begun() {
        let mut editor = editor(&["one", "two\nlines"]);
        shows(&mut editor, "dra\x1b[A", "two\nlines");
        shows(&mut editor, "\x10\x10\x10\x10", "one");
        shows(&mut editor, "\x0e", "two\nlines");
        shows(&mut editor, "\x1b[B\x1b[Bft", "draft");
        assert_eq!(press(&mut editor, "\r"), EditStep::Done("draft".into()));
        assert!(editor.remember("draft") && !editor.remember(" hidden"));
        shows(&mut editor, "\x1b[A", "draft");
    }

    #[test]
    fn a_search_finds_older_ones_and_sends_nothing() {
        let mut editor = editor(&["fix the test", "run it", "fix the build"]);
        shows(&mut editor, "mine\x12fix", "fix the build");
        shows(&mut editor, "\x12", "fix the test");
        shows(&mut editor, "\x12", "fix the test");
        shows(&mut editor, "\x07", "mine");
        shows(&mut editor, "\x12it\r", "run it");
        shows(&mut editor, "\x15\x12nowhere", "run it");
        assert!(
            editor
                .draw((24, 80))
                .rows
                .last()
                .unwrap()
                .text
                .starts_with("nothing with: nowhere")
        );
        shows(&mut editor, "\x1b", "");
        assert_eq!(
            press(&mut editor, "\x12run\r\r"),
            EditStep::Done("run it".into())
        );
    }

    #[test]
    fn control_c_clears_and_twice_ends() {
        let mut editor = editor(&[]);
        shows(&mut editor, "half\x03", "");
        assert!(
            editor.draw((24, 80)).rows[1]
                .text
                .starts_with("Ctrl-C again")
        );
        shows(&mut editor, "x\x7f\x03", "");
        assert_eq!(press(&mut editor, "\x03"), EditStep::End);
        assert_eq!(press(&mut editor, "\x04"), EditStep::End);
    }

    #[test]
    fn commands_are_completed() {
        let mut editor = editor(&[]);
        shows(&mut editor, "/h\t", "/help ");
        shows(&mut editor, "\x15/t\t", "/tr");
        assert_eq!(editor.draw((24, 80)).rows[1].text, "/trust  /tree");
        shows(&mut editor, "\x15none\t", "none");
    }
}
