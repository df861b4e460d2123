//! A call as pages of lines that fit the screen. Long lines are wrapped; none is cut.
//!
//! The lines of a call are always the same for a width: if they moved while a person reads, the next page would begin elsewhere, and
//! a line could be on none. So what changes with time, the seconds left, is no part of them.

use crate::approver::queue::PendingCall;
use orchestrator_results::proposal::Proposal;
use orchestrator_text::coverage::for_session;
use orchestrator_text::escape;
use std::time::Instant;

/// How many seconds are left to answer.
pub fn seconds_left(pending: &PendingCall) -> u64 {
    pending
        .until
        .saturating_duration_since(Instant::now())
        .as_secs()
}

/// One line that identifies the call.
pub fn title(pending: &PendingCall) -> String {
    let (session, call) = &pending.key;
    format!(
        "{} ({} risk), call {call} of {}: {}",
        pending.request.asked_as(),
        pending.challenge.risk.name(),
        escape::line(session),
        escape::line(&pending.challenge.why)
    )
}

/// The whole call as lines of at most `columns` columns, with the summary first.
pub fn lines(pending: &PendingCall, columns: usize) -> Vec<String> {
    let Proposal { about, body, bytes } = &pending.proposal;
    let rule = escape::line(&pending.challenge.rule);
    let lasting = match for_session(&pending.challenge, pending.request.asked_as()) {
        Some(covered) => format!("session allows {covered}; "),
        None if pending.challenge.covers.is_of_program() => {
            "session allows no more than once, as each is asked about; ".to_owned()
        }
        None => "session allows no more than once, as input may follow; ".to_owned(),
    };
    let size = format!(
        "rule `{rule}`; {lasting}{bytes} bytes, {} lines:",
        body.len()
    );
    let head = [title(pending), size];
    head.iter()
        .chain(about)
        .chain(body)
        .flat_map(|line| escape::wrapped(line, columns))
        .collect()
}

/// Which part of the lines is visible, and whether the end has been visible.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PageView {
    first: usize,
    seen_end: bool,
}

impl PageView {
    /// The lines to show now, of `rows`.
    pub(crate) fn page<'l>(&mut self, lines: &'l [String], rows: usize) -> &'l [String] {
        let rows = rows.max(1);
        self.first = self.first.min(lines.len().saturating_sub(1) / rows * rows);
        let end = (self.first + rows).min(lines.len());
        self.seen_end |= end == lines.len();
        &lines[self.first..end]
    }

    /// Moves forward by a page.
    pub(crate) fn forward(&mut self, rows: usize) {
        self.first = self.first.saturating_add(rows.max(1));
    }

    /// Moves back by a page.
    pub(crate) fn back(&mut self, rows: usize) {
        self.first = self.first.saturating_sub(rows.max(1));
    }

    /// Moves to the last page.
    pub(crate) fn end(&mut self) {
        self.first = usize::MAX;
    }

    /// Whether the end has been visible.
    pub(crate) fn has_seen_end(&self) -> bool {
        self.seen_end
    }

    /// `page 2 of 5`.
    pub(crate) fn position(&self, lines: &[String], rows: usize) -> String {
        let rows = rows.max(1);
        format!(
            "page {} of {}",
            self.first / rows + 1,
            lines.len().div_ceil(rows).max(1)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orchestrator_text::characters::columns_max;

    #[test]
    fn no_character_is_lost_in_wrapping() {
        for (text, columns) in [
            ("abcdefghijklmnopqrstuvwxyz", 10),
            ("日本語日本語日本語日本語", 12),
            ("", 10),
        ] {
            let pieces = escape::wrapped(text, columns);
            let joined: String = pieces
                .iter()
                .map(|piece| piece.strip_prefix("> ").unwrap_or(piece))
                .collect();
            assert_eq!(joined, text);
            let width = |piece: &String| piece.chars().map(columns_max).sum::<usize>();
            assert!(pieces.iter().all(|piece| width(piece) <= columns));
        }
    }

    #[test]
    fn the_end_counts_as_seen_only_when_it_was_on_the_screen() {
        let lines: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        let mut view = PageView::default();
        assert_eq!(
            (view.page(&lines, 10).len(), view.has_seen_end()),
            (10, false)
        );
        view.forward(10);
        assert_eq!(
            (view.page(&lines, 10)[0].as_str(), view.has_seen_end()),
            ("10", false)
        );
        assert_eq!(view.position(&lines, 10), "page 2 of 3");
        view.end();
        assert_eq!(
            (view.page(&lines, 10)[0].as_str(), view.has_seen_end()),
            ("20", true)
        );
        view.back(10);
        view.back(10);
        view.back(10);
        assert_eq!(view.page(&lines, 10)[0], "0");
        let mut short = PageView::default();
        short.page(&lines[..3], 10);
        assert!(short.has_seen_end());
    }
}
