//! A call as pages of lines that fit a screen. A line that is too long goes on below; none is cut.

use super::desk::Waiting;
use crate::domain::proposal::Proposal;
use crate::domain::visible;
use std::time::Instant;

/// In front of what goes on from the line above.
const MARK: &str = "> ";

/// One line that says which call it is.
pub fn title(waiting: &Waiting) -> String {
    let (session, call) = &waiting.key;
    let left = waiting.until.saturating_duration_since(Instant::now()).as_secs();
    format!(
        "{} ({} risk), call {call} of {}, {left} s left: {}",
        waiting.request.asked_as(),
        waiting.challenge.risk.name(),
        visible::line(session),
        visible::line(&waiting.challenge.why)
    )
}

/// All of a call as lines of at most `columns` characters: what it is first.
pub fn lines(waiting: &Waiting, columns: usize) -> Vec<String> {
    let Proposal { about, body, bytes } = &waiting.proposal;
    let rule = visible::line(&waiting.challenge.rule);
    let lasting = if waiting.challenge.only { "session allows this very call only; " } else { "" };
    let size = format!("rule `{rule}`; {lasting}{bytes} bytes, {} lines:", body.len());
    let head = [title(waiting), size];
    head.iter().chain(about).chain(body).flat_map(|line| wrap(line, columns)).collect()
}

/// `line` in pieces of at most `columns` characters; what goes on is marked.
fn wrap(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(10);
    // A character may be two columns wide; half of them always fit.
    let room = if line.is_ascii() { columns } else { columns / 2 };
    let chars: Vec<char> = line.chars().collect();
    let (first, rest) = chars.split_at(chars.len().min(room));
    let on = rest.chunks(room - MARK.len()).map(|piece| MARK.chars().chain(piece.iter().copied()).collect());
    std::iter::once(first.iter().collect()).chain(on).collect()
}

/// Which part of the lines is on the screen, and whether the end has been.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct View {
    first: usize,
    seen_end: bool,
}

impl View {
    /// The lines to show now, of `rows`.
    pub fn shown<'l>(&mut self, lines: &'l [String], rows: usize) -> &'l [String] {
        let rows = rows.max(1);
        self.first = self.first.min(lines.len().saturating_sub(1) / rows * rows);
        let end = (self.first + rows).min(lines.len());
        self.seen_end |= end == lines.len();
        &lines[self.first..end]
    }

    /// Goes on by a page.
    pub fn forward(&mut self, rows: usize) {
        self.first = self.first.saturating_add(rows.max(1));
    }

    /// Goes back by a page.
    pub fn back(&mut self, rows: usize) {
        self.first = self.first.saturating_sub(rows.max(1));
    }

    /// Goes to the last page.
    pub fn end(&mut self) {
        self.first = usize::MAX;
    }

    /// Whether the end has been on the screen.
    pub fn has_seen_end(&self) -> bool {
        self.seen_end
    }

    /// `page 2 of 5`.
    pub fn place(&self, lines: &[String], rows: usize) -> String {
        let rows = rows.max(1);
        format!("page {} of {}", self.first / rows + 1, lines.len().div_ceil(rows).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_lost_in_wrapping() {
        for (text, columns) in
            [("abcdefghijklmnopqrstuvwxyz", 10), ("日本語日本語日本語日本語", 12), ("", 10)]
        {
            let pieces = wrap(text, columns);
            let joined: String =
                pieces.iter().map(|piece| piece.strip_prefix("> ").unwrap_or(piece)).collect();
            assert_eq!(joined, text);
            assert!(pieces.iter().all(|piece| piece.chars().count() <= columns));
        }
    }

    #[test]
    fn the_end_counts_as_seen_only_when_it_was_on_the_screen() {
        let lines: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        let mut view = View::default();
        assert_eq!((view.shown(&lines, 10).len(), view.has_seen_end()), (10, false));
        view.forward(10);
        assert_eq!((view.shown(&lines, 10)[0].as_str(), view.has_seen_end()), ("10", false));
        assert_eq!(view.place(&lines, 10), "page 2 of 3");
        view.end();
        assert_eq!((view.shown(&lines, 10)[0].as_str(), view.has_seen_end()), ("20", true));
        view.back(10);
        view.back(10);
        view.back(10);
        assert_eq!(view.shown(&lines, 10)[0], "0");
        let mut short = View::default();
        short.shown(&lines[..3], 10);
        assert!(short.has_seen_end());
    }
}
