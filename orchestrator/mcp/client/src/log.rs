//! The last lines of a server's log: what it printed beside its messages, and what happened to it.

use orchestrator_text::clean;
use orchestrator_text::line_cutter::{CutLine, LineCutter, Terminator};
use orchestrator_text::redact::Redactor;
use orchestrator_text::utf8::beginning;
use std::collections::VecDeque;

/// Maximum number of lines to keep.
pub(crate) const LINES_MAX: usize = 1000;
/// Maximum bytes of a line.
pub const LINE_MAX: usize = 2000;

#[derive(Debug)]
pub(crate) struct Ring {
    lines: VecDeque<String>,
    cutter: LineCutter,
    changed: bool,
}

impl Ring {
    /// A log from lines that were saved before.
    pub(crate) fn of(text: &str) -> Self {
        let mut ring = Self {
            lines: VecDeque::new(),
            cutter: LineCutter::new(Terminator::Lf, 2 * LINE_MAX),
            changed: false,
        };
        text.lines().for_each(|line| ring.push(line));
        ring.changed = false;
        ring
    }

    /// Adds a line; cuts it if it is too long.
    pub(crate) fn push(&mut self, line: &str) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(beginning(line, LINE_MAX).to_owned());
        self.changed = true;
    }

    /// Adds a piece of standard error, cut anywhere. Known secrets and unsafe characters are removed.
    pub(crate) fn push_bytes(&mut self, bytes: &[u8], redactor: &Redactor) {
        self.cutter.push(bytes);
        while let Some(CutLine::Whole(line) | CutLine::TooLong(line)) = self.cutter.next_line() {
            self.push_said(&line, redactor);
        }
    }

    /// Ends an incomplete line.
    pub(crate) fn finish(&mut self, redactor: &Redactor) {
        let bytes = self.cutter.rest();
        self.push_said(&bytes, redactor);
    }

    /// Adds a server's message as one line with a prefix, so that it cannot look like a line of ours.
    pub(crate) fn push_said(&mut self, bytes: &[u8], redactor: &Redactor) {
        let line = one_line(bytes, redactor);
        if !line.is_empty() {
            self.push(&format!("> {line}"));
        }
    }

    /// The lines, oldest first.
    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// Whether lines were added since the last call.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }
}

/// Untrusted bytes as one line.
pub fn one_line(bytes: &[u8], redactor: &Redactor) -> String {
    let (clean, _) = clean::lines(bytes);
    let text = String::from_utf8_lossy(&clean);
    redactor
        .text(text.trim_end().replace(['\n', '\r'], " ").as_str())
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor() -> Redactor {
        Redactor::new(vec![]).unwrap()
    }

    #[test]
    fn the_last_lines_are_kept_and_none_is_long() {
        let mut ring = Ring::of("");
        (0..LINES_MAX).for_each(|number| ring.push(&number.to_string()));
        assert_eq!(
            (ring.text().lines().count(), ring.text().lines().next()),
            (LINES_MAX, Some("0"))
        );
        ring.push(&"é".repeat(LINE_MAX));
        assert_eq!(
            (ring.text().lines().count(), ring.text().lines().next()),
            (LINES_MAX, Some("1"))
        );
        assert_eq!(ring.text().lines().last().map(str::len), Some(LINE_MAX));
        assert!(ring.take_changed() && !ring.take_changed());
    }

    #[test]
    fn pieces_become_lines_and_a_line_without_an_end_is_bounded() {
        let mut ring = Ring::of("");
        ring.push_bytes(b"one\ntw", &redactor());
        ring.push_bytes(b"o\n\x1b[2Jthree", &redactor());
        assert_eq!(ring.text(), "> one\n> two\n");
        for _ in 0..100 {
            ring.push_bytes(&[b'x'; 1000], &redactor());
        }
        ring.finish(&redactor());
        assert_eq!(ring.text().lines().count(), 3);
        assert!(!ring.text().contains('\u{1b}'));
    }
}
