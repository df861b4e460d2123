//! Finds lines by a regular expression, file by file in the order of their paths.
//!
//! Names that begin with a dot are looked at, `.git` is not. A file with a NUL byte is binary: it is counted and passed
//! over, whatever was found in it before. `$` matches before `\r\n` as before `\n`. The answer names the files that could
//! not be searched whole (`bounds`, `patient`). Where it is full, further matches are counted for a while.

use super::Worker;
use super::beneath::{LOOKING, OpenError, Place, READING, is, kind};
use super::bounds::{LINE, PATTERN, Room, SEARCHED, SHOWN, TIME};
use super::failure::{SystemError, WorkError};
use super::glob::{PatternError, compile, matches_name_or_path, named};
use super::patient::Patient;
use super::walk::Scope;
use super::{Intent, walk::Walk};
use broker_protocol::{Grep, Grepped, InPart, ListedKind, Match, MatchLine, Truncated, Unsearched, limit};
use globset::GlobMatcher;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch,
};
use nix::libc;
use nix::sys::stat::fstat;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Instant;

/// What a file takes in an answer beside its path, and a line beside its text.
const FILE: usize = 8 + 8;
const TEXT: usize = 8 + 1 + 8;

impl Worker {
    /// Answers `grep`.
    pub(super) fn grep(&self, request: &Grep) -> Result<Grepped, WorkError> {
        let mut search = Search::new(request)?;
        let found = self.open(&request.path, LOOKING, Intent::Read)?;
        let stat = fstat(&found.file).map_err(|errno| SystemError::new("look at", &request.path, errno))?;
        if is(&stat, libc::S_IFDIR) {
            self.grep_below(found.place, request, &mut search)?;
        } else if is(&stat, libc::S_IFREG) {
            let name = Path::new(request.path.relative());
            search.file(self, &found.place, name, request.path.relative().to_owned());
        } else {
            return Err(OpenError::NotAFile { path: request.path.to_string(), is: kind(&stat) }.into());
        }
        Ok(search.answer())
    }

    fn grep_below(&self, start: Place, request: &Grep, search: &mut Search) -> Result<(), WorkError> {
        let scope =
            Scope { depth: usize::MAX, dotted: &|_| true, repositories: false, ignored: request.ignored };
        let mut walk: Walk = self.walk(&request.path, start, scope)?;
        while let Some(step) = walk.next() {
            if step.kind == ListedKind::File {
                search.file(self, &step.place, &step.below, named(&request.path, &step.below));
            }
            if search.stopped {
                return Ok(());
            }
        }
        search.stopped |= walk.cut();
        Ok(())
    }
}

/// A search on its way through the files.
struct Search {
    matcher: Patient,
    searcher: Searcher,
    include: Option<GlobMatcher>,
    context: u64,
    /// Bytes that may still be read.
    bytes: u64,
    /// Matching lines that may still be answered.
    lines: usize,
    room: Room,
    matches: Vec<Match>,
    /// Matching lines for which there is no place.
    beyond: u64,
    binary: u64,
    in_part: Vec<InPart>,
    in_part_count: u64,
    /// Whether something has no place in the answer.
    full: bool,
    /// Whether the search ended before it was through.
    stopped: bool,
}

impl Search {
    fn new(request: &Grep) -> Result<Self, PatternError> {
        let matcher = Patient::new(pattern(request)?, Instant::now() + TIME);
        Ok(Self {
            searcher: searcher(&matcher, request.context.into()),
            matcher,
            include: request.include.as_deref().map(compile).transpose()?,
            context: request.context.into(),
            bytes: SEARCHED,
            lines: request.limit as usize,
            room: Room::new(),
            matches: Vec::new(),
            beyond: 0,
            binary: 0,
            in_part: Vec::new(),
            in_part_count: 0,
            full: false,
            stopped: false,
        })
    }

    /// Searches the file at `place`. `below` is what the glob is matched with, `name` what it is called in the answer.
    fn file(&mut self, worker: &Worker, place: &Place, below: &Path, name: String) {
        let excluded = self.include.as_ref().is_some_and(|glob| !matches_name_or_path(glob, below));
        if excluded || worker.protected.closed(place.zone, &place.path, Intent::Read).is_some() {
            return;
        }
        let Ok(file) = worker.root(place.zone).open_beneath(&place.path, READING) else { return };
        if !fstat(&file).is_ok_and(|stat| is(&stat, libc::S_IFREG)) {
            return;
        }
        let (lines, unsearched) = self.lines_of(file.into());
        if let Some(why) = unsearched {
            self.in_part_count += 1;
            if self.in_part.len() < limit::IN_PART && self.room.take(name.len() + FILE) {
                self.in_part.push(InPart { path: name.clone(), why });
            }
        }
        if lines.is_empty() {
            return;
        }
        if self.room.take(name.len() + FILE) {
            self.matches.push(Match { path: name, lines });
        } else {
            self.beyond += matching(&lines);
            self.full = true;
        }
    }

    /// The lines of `file` that are a part of the answer, and why not all of it was searched, if so.
    fn lines_of(&mut self, file: File) -> (Vec<MatchLine>, Option<Unsearched>) {
        let clock = &self.matcher;
        let mut source = Source { file, bytes: &mut self.bytes, clock, stopped: false };
        let (room, full) = (&mut self.room, self.full);
        let mut lines =
            Lines { taken: Vec::new(), left: self.lines, room, full, beyond: 0, clock, binary: false };
        let searched = self.searcher.search_reader(&self.matcher, &mut source, &mut lines);
        self.stopped = source.stopped || (searched.is_err() && self.matcher.late());
        let cut = self.matcher.cut();
        if lines.binary {
            self.binary += 1;
            return (Vec::new(), None);
        }
        let unsearched = match searched {
            _ if self.stopped => None,
            Err(error) if error.raw_os_error().is_some() => Some(Unsearched::Unreadable),
            // Too long to hold, or to be searched whole.
            Err(_) => Some(Unsearched::LongLine),
            Ok(()) => cut.then_some(Unsearched::LongLine),
        };
        (self.lines, self.full) = (lines.left, lines.full);
        self.beyond += lines.beyond;
        (lines.finished(self.context), unsearched)
    }

    fn answer(self) -> Grepped {
        let shown = self.matches.iter().map(|file| matching(&file.lines)).sum();
        let total = (!self.stopped && self.in_part_count == 0).then_some(shown + self.beyond);
        Grepped {
            truncated: (self.stopped || self.full).then_some(Truncated { total, shown }),
            matches: self.matches,
            binary: self.binary,
            in_part: self.in_part,
            in_part_count: self.in_part_count,
        }
    }
}

fn matching(lines: &[MatchLine]) -> u64 {
    lines.iter().filter(|line| line.matched).count() as u64
}

fn pattern(request: &Grep) -> Result<RegexMatcher, PatternError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(request.ignore_case)
        .fixed_strings(request.literal)
        .multi_line(true)
        .size_limit(PATTERN)
        .dfa_size_limit(PATTERN)
        .crlf(true);
    // A pattern that names `\r` itself wants to see it.
    let built = builder.build(&request.pattern);
    let built = built.or_else(|_| builder.crlf(false).line_terminator(Some(b'\n')).build(&request.pattern));
    built.map_err(|error| PatternError::Regex { why: error.to_string() })
}

fn searcher(matcher: &Patient, context: usize) -> Searcher {
    SearcherBuilder::new()
        .line_terminator(matcher.line_terminator().unwrap_or_default())
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(LINE))
        .line_number(true)
        .before_context(context)
        .after_context(context)
        .build()
}

/// A file that ends early when the search has read or taken too much.
struct Source<'a> {
    file: File,
    bytes: &'a mut u64,
    clock: &'a Patient,
    stopped: bool,
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stopped = *self.bytes == 0 || self.clock.late();
        if self.stopped {
            return Ok(0);
        }
        let read = (&self.file).take(*self.bytes).read(buffer)?;
        *self.bytes -= read as u64;
        Ok(read)
    }
}

/// The lines taken from one file.
struct Lines<'a> {
    taken: Vec<MatchLine>,
    /// Matching lines that may still be taken.
    left: usize,
    room: &'a mut Room,
    /// Whether there was a line that could not be taken: from then on they are counted.
    full: bool,
    /// How many matching lines were counted.
    beyond: u64,
    clock: &'a Patient,
    binary: bool,
}

impl Lines<'_> {
    /// Takes a line, if there is a place for it.
    fn push(&mut self, number: Option<u64>, matched: bool, line: &[u8]) {
        if !self.full && (!matched || self.left > 0) {
            let text = shown(line);
            if self.room.take(text.len() + TEXT) {
                self.left -= usize::from(matched);
                self.taken.push(MatchLine { number: number.unwrap_or(0), matched, text });
                return;
            }
        }
        if !self.full {
            self.full = true;
            self.clock.hasten();
        }
        self.beyond += u64::from(matched);
    }

    /// The lines, without those that stand before a match that was not taken.
    fn finished(mut self, context: u64) -> Vec<MatchLine> {
        let last = self.taken.iter().rfind(|line| line.matched).map_or(0, |line| line.number);
        self.taken.retain(|line| last > 0 && line.number <= last + context);
        self.taken
    }
}

impl Sink for &mut Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.push(found.line_number(), true, found.bytes());
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, beside: &SinkContext<'_>) -> io::Result<bool> {
        self.push(beside.line_number(), false, beside.bytes());
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line as it is answered: without its end, as text, cut after [`SHOWN`] characters, with `…` for the rest.
fn shown(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // No character has more bytes than four, and what stands for wrong bytes is one: all that is shown is in here, and one more.
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * (SHOWN + 1))]);
    match text.char_indices().nth(SHOWN) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
