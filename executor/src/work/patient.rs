//! A regular expression that does not run for ever.
//!
//! Matching takes time in proportion to the text and to the pattern, and a short pattern can be large: one of twenty
//! characters can need a minute for a mebibyte, in one call that nothing interrupts. So the text is handed over in
//! pieces of whole lines, and between two pieces the clock is asked. Of a line that is longer than a piece, only the
//! beginning is searched.

use super::bounds::{COUNTING, PIECE};
use grep_matcher::{ByteSet, LineMatchKind, LineTerminator, Match, Matcher, NoCaptures, NoError};
use grep_regex::RegexMatcher;
use memchr::{memchr, memrchr};
use std::cell::Cell;
use std::time::Instant;
use thiserror::Error;

/// The time for a search is over.
#[derive(Debug, Error)]
#[error("the time for the search is over")]
pub(super) struct Late;

impl From<NoError> for Late {
    /// The pattern itself never fails.
    fn from(_: NoError) -> Self {
        Self
    }
}

/// A pattern that is given up when its time is over.
pub(super) struct Patient {
    pattern: RegexMatcher,
    until: Cell<Instant>,
    /// Whether a line was searched in part, and without a match.
    cut: Cell<bool>,
}

impl Patient {
    /// `pattern`, to be run no longer than `until`.
    pub(super) fn new(pattern: RegexMatcher, until: Instant) -> Self {
        Self { pattern, until: Cell::new(until), cut: Cell::new(false) }
    }

    /// Whether a line was searched in part, and without a match, since this was asked last.
    pub(super) fn cut(&self) -> bool {
        self.cut.take()
    }

    /// Whether the time is over.
    pub(super) fn late(&self) -> bool {
        Instant::now() >= self.until.get()
    }

    /// From now on matches are only counted.
    pub(super) fn hasten(&self) {
        self.until.set(self.until.get().min(Instant::now() + COUNTING));
    }

    fn in_time(&self) -> Result<(), Late> {
        if self.late() { Err(Late) } else { Ok(()) }
    }

    /// The part of `lines` that is searched next, and where the part after it begins.
    fn piece<'l>(&self, lines: &'l [u8]) -> (&'l [u8], usize) {
        if lines.len() <= PIECE {
            return (self.without_end(lines), lines.len());
        }
        match memrchr(b'\n', &lines[..PIECE]) {
            Some(end) => (self.without_end(&lines[..=end]), end + 1),
            None => (&lines[..PIECE], memchr(b'\n', lines).map_or(lines.len(), |end| end + 1)),
        }
    }

    /// `lines` without the last line end, behind which a pattern would find a line that is not there.
    fn without_end<'l>(&self, lines: &'l [u8]) -> &'l [u8] {
        let Some(bare) = lines.strip_suffix(b"\n") else { return lines };
        let crlf = self.line_terminator().is_some_and(|end| end.is_crlf());
        if crlf { bare.strip_suffix(b"\r").unwrap_or(bare) } else { bare }
    }
}

impl Matcher for Patient {
    type Captures = NoCaptures;
    type Error = Late;

    fn find_at(&self, line: &[u8], at: usize) -> Result<Option<Match>, Late> {
        self.in_time()?;
        let found = self.pattern.find_at(&line[..line.len().min(PIECE.max(at))], at).unwrap_or(None);
        Ok(found)
    }

    fn new_captures(&self) -> Result<NoCaptures, Late> {
        Ok(NoCaptures::new())
    }

    fn shortest_match_at(&self, line: &[u8], at: usize) -> Result<Option<usize>, Late> {
        self.in_time()?;
        let found =
            self.pattern.shortest_match_at(&line[..line.len().min(PIECE.max(at))], at).unwrap_or(None);
        self.cut.set(self.cut.get() || (line.len() > PIECE && found.is_none()));
        Ok(found)
    }

    fn find_candidate_line(&self, lines: &[u8]) -> Result<Option<LineMatchKind>, Late> {
        let mut at = 0;
        while at < lines.len() {
            self.in_time()?;
            let (piece, next) = self.piece(&lines[at..]);
            let found = self.pattern.find_candidate_line(piece).unwrap_or(None);
            match found {
                Some(LineMatchKind::Confirmed(place)) => {
                    return Ok(Some(LineMatchKind::Confirmed(at + place)));
                }
                Some(LineMatchKind::Candidate(place)) => {
                    return Ok(Some(LineMatchKind::Candidate(at + place)));
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
