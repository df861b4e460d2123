//! A regular expression with a time limit.
//!
//! Matching takes time in proportion to the text and to the pattern, and a short pattern can be
//! large when compiled: one of twenty characters can need a minute for a mebibyte, in one call that
//! nothing interrupts. So the text is passed on in pieces of whole lines, and the clock is checked
//! between two pieces. Of a line that is longer than a piece, only the beginning is searched.

use crate::bounds::{COUNTING, PIECE};
use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::RegexMatcher;
use memchr::{memchr, memrchr};
use std::cell::Cell;
use std::time::Instant;
use thiserror::Error;

/// The time for a search is over.
#[derive(Debug, Error)]
#[error("the time for the search is over")]
pub(crate) struct DeadlineExceeded;

impl From<NoError> for DeadlineExceeded {
    /// The pattern itself never fails.
    fn from(_: NoError) -> Self {
        Self
    }
}

/// A pattern that stops matching when its time is over.
pub(crate) struct DeadlineMatcher {
    pattern: RegexMatcher,
    until: Cell<Instant>,
    /// Whether only part of a line was searched, without a match.
    cut: Cell<bool>,
}

impl DeadlineMatcher {
    /// Limits matching of `pattern` to the time before `until`.
    pub(crate) fn new(pattern: RegexMatcher, until: Instant) -> Self {
        Self {
            pattern,
            until: Cell::new(until),
            cut: Cell::new(false),
        }
    }

    /// Whether only part of a line was searched, without a match, since the last call of this.
    pub(crate) fn cut(&self) -> bool {
        self.cut.take()
    }

    /// Whether the time is over.
    pub(crate) fn is_late(&self) -> bool {
        Instant::now() >= self.until.get()
    }

    /// From now on matches are only counted.
    pub(crate) fn only_count(&self) {
        self.until
            .set(self.until.get().min(Instant::now() + COUNTING));
    }

    fn in_time(&self) -> Result<(), DeadlineExceeded> {
        if self.is_late() {
            Err(DeadlineExceeded)
        } else {
            Ok(())
        }
    }

    /// The part of `lines` to search next, and where the part after it begins.
    fn piece<'l>(&self, lines: &'l [u8]) -> (&'l [u8], usize) {
        if lines.len() <= PIECE {
            return (self.without_end(lines), lines.len());
        }
        match memrchr(b'\n', &lines[..PIECE]) {
            Some(end) => (self.without_end(&lines[..=end]), end + 1),
            None => (
                &lines[..PIECE],
                memchr(b'\n', lines).map_or(lines.len(), |end| end + 1),
            ),
        }
    }

    /// `lines` without the last line end, after which a pattern would match an empty line that does not exist.
    fn without_end<'l>(&self, lines: &'l [u8]) -> &'l [u8] {
        let Some(bare) = lines.strip_suffix(b"\n") else {
            return lines;
        };
        let crlf = self.line_terminator().is_some_and(|end| end.is_crlf());
        if crlf {
            bare.strip_suffix(b"\r").unwrap_or(bare)
        } else {
            bare
        }
    }
}

impl Matcher for DeadlineMatcher {
    type Captures = NoCaptures;
    type Error = DeadlineExceeded;

    fn find_at(&self, line: &[u8], at: usize) -> Result<Option<Match>, DeadlineExceeded> {
        self.in_time()?;
        let found = self
            .pattern
            .find_at(&line[..line.len().min(PIECE.max(at))], at)
            .unwrap_or(None);
        Ok(found)
    }

    fn new_captures(&self) -> Result<NoCaptures, DeadlineExceeded> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, line: &[u8], at: usize) -> Result<Option<usize>, DeadlineExceeded> {
        self.in_time()?;
        let found = self
            .pattern
            .shortest_match_at(&line[..line.len().min(PIECE.max(at))], at)
            .unwrap_or(None);
        self.cut
            .set(self.cut.get() || (line.len() > PIECE && found.is_none()));
        Ok(found)
    }

    fn find_candidate_line(&self, lines: &[u8]) -> Result<Option<LineMatchKind>, DeadlineExceeded> {
        let mut at = 0;
        while at < lines.len() {
            self.in_time()?;
            let (piece, next) = self.piece(&lines[at..]);
            let found = self.pattern.find_candidate_line(piece).unwrap_or(None);
            match found {
                Some(LineMatchKind::Confirmed(offset)) => {
                    return Ok(Some(LineMatchKind::Confirmed(at + offset)));
                }
                Some(LineMatchKind::Candidate(offset)) => {
                    return Ok(Some(LineMatchKind::Candidate(at + offset)));
                }
                None => self.cut.set(self.cut.get() || next > PIECE),
            }
            at += next;
        }
        Ok(None)
    }

    fn non_matching_bytes(&self) -> Option<&ByteSet> {
        self.pattern.non_matching_bytes()
    }

    fn line_terminator(&self) -> Option<LineTerminator> {
        self.pattern.line_terminator()
    }
}
