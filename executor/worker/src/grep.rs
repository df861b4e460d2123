//! Finds lines with a regular expression, file by file in the order of their paths.
//!
//! Names that begin with a dot are searched, `.git` is not. A file with a NUL byte is binary: it is counted and
//! skipped, whatever was found before. `$` matches before `\r\n` as before `\n`. The answer names the files that could
//! not be searched completely (`bounds`, `deadline_matcher`). When it is full, further matches are counted for a while.

use crate::bounds::{AnswerRoom, LINE, PATTERN, SEARCHED, SHOWN, SORTED, TIME};
use crate::deadline_matcher::DeadlineMatcher;
use crate::error::{OpenError, SearchPatternError, SystemError, WorkError};
use crate::glob::{compile, matches_name_or_path, named};
use crate::root::{LOOKING, Location, READING, is, kind};
use crate::walk::{Walk, WalkOptions};
use crate::worker::FileCall;
use crate::zone_names::Intent;
use broker_protocol::{
    Grep, GrepSort, Grepped, InPart, ListedKind, Match, MatchLine, Truncated, Unsearched, limit,
};
use globset::GlobMatcher;
use grep_matcher::Matcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish,
    SinkMatch,
};
use nix::sys::stat::fstat;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of a file's entry in an answer besides its path, and of a line's besides its text.
const FILE: usize = 8 + 8;
const TEXT: usize = 8 + 1 + 8;

impl FileCall<'_> {
    /// Answers `grep`.
    pub(crate) fn grep(&self, request: &Grep) -> Result<Grepped, WorkError> {
        let mut search = GrepRun::new(request)?;
        let found = self.open(&request.path, LOOKING, Intent::Read)?;
        let stat = fstat(&found.file)
            .map_err(|errno| SystemError::new("look at", &request.path, errno))?;
        if is(&stat, libc::S_IFDIR) {
            self.grep_below(found.location, request, &mut search)?;
        } else if is(&stat, libc::S_IFREG) {
            let name = request.path.relative();
            if !search.excludes(Path::new(name)) {
                search.file(self, &found.location, name.to_owned());
            }
        } else {
            return Err(OpenError::NotAFile {
                path: request.path.to_string(),
                is: kind(&stat),
            }
            .into());
        }
        Ok(search.answer())
    }

    fn grep_below(
        &self,
        start: Location,
        request: &Grep,
        search: &mut GrepRun,
    ) -> Result<(), WorkError> {
        let options = WalkOptions {
            depth: usize::MAX,
            dotted: &|_| true,
            repositories: false,
            ignored: request.ignored,
        };
        let mut walk: Walk = self.walk(&request.path, start.clone(), options)?;
        let mut sorted = ByAge::default();
        while let Some(step) = walk.next() {
            match request.sort {
                _ if step.kind != ListedKind::File || search.excludes(&step.below) => {}
                GrepSort::Path => {
                    search.file(self, &step.location, named(&request.path, &step.below))
                }
                GrepSort::Modified => sorted.add(self.modified(&step), step.below),
            }
            if search.stopped {
                return Ok(());
            }
        }
        let cut = walk.cut() || sorted.dropped;
        for below in sorted.newest_first() {
            let location = Location {
                zone: start.zone,
                path: start.path.join(&below),
            };
            search.file(self, &location, named(&request.path, &below));
        }
        search.stopped |= cut;
        Ok(())
    }
}

/// Seconds and nanoseconds of the last change, and the path.
type Aged = ((i64, i64), Reverse<PathBuf>);

/// Files by age, in a bounded number of bytes.
#[derive(Default)]
pub(crate) struct ByAge {
    /// The oldest on top; of the same age, the last by path.
    files: BinaryHeap<Reverse<Aged>>,
    bytes: usize,
    /// Whether any files were skipped.
    pub dropped: bool,
}

impl ByAge {
    pub(crate) fn add(&mut self, modified: Option<(i64, i64)>, path: PathBuf) {
        let Some(modified) = modified else { return };
        self.bytes += path.as_os_str().len();
        self.files.push(Reverse((modified, Reverse(path))));
        while self.bytes > SORTED {
            let Some(Reverse((_, Reverse(oldest)))) = self.files.pop() else {
                return;
            };
            self.bytes -= oldest.as_os_str().len();
            self.dropped = true;
        }
    }

    pub(crate) fn newest_first(self) -> impl Iterator<Item = PathBuf> {
        self.files
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, Reverse(path)))| path)
    }
}

/// The state of a search through several files.
struct GrepRun {
    matcher: DeadlineMatcher,
    searcher: Searcher,
    include: Option<GlobMatcher>,
    context: u64,
    /// Bytes that may still be read.
    bytes: u64,
    /// Matching lines that still fit into the answer.
    lines: usize,
    room: AnswerRoom,
    matches: Vec<Match>,
    /// Matching lines that did not fit.
    beyond: u64,
    binary: u64,
    in_part: Vec<InPart>,
    in_part_count: u64,
    /// Whether something did not fit into the answer.
    full: bool,
    /// Whether the search stopped before the end.
    stopped: bool,
}

impl GrepRun {
    fn new(request: &Grep) -> Result<Self, SearchPatternError> {
        let matcher = DeadlineMatcher::new(pattern(request)?, Instant::now() + TIME);
        Ok(Self {
            searcher: searcher(&matcher, request.context.into()),
            matcher,
            include: request.include.as_deref().map(compile).transpose()?,
            context: request.context.into(),
            bytes: SEARCHED,
            lines: request.limit as usize,
            room: AnswerRoom::new(),
            matches: Vec::new(),
            beyond: 0,
            binary: 0,
            in_part: Vec::new(),
            in_part_count: 0,
            full: false,
            stopped: false,
        })
    }

    /// Whether the glob excludes a file at `below`.
    fn excludes(&self, below: &Path) -> bool {
        self.include
            .as_ref()
            .is_some_and(|glob| !matches_name_or_path(glob, below))
    }

    /// Searches the file at `location`, named `name` in the answer.
    fn file(&mut self, worker: &FileCall, location: &Location, name: String) {
        if self.stopped || worker.is_closed(location, Intent::Read) {
            return;
        }
        let Ok(file) = worker
            .root(location.zone)
            .open_beneath(&location.path, READING)
        else {
            return;
        };
        if !fstat(&file).is_ok_and(|stat| is(&stat, libc::S_IFREG)) {
            return;
        }
        let (lines, unsearched) = self.lines_of(file.into());
        if let Some(why) = unsearched {
            self.in_part_count += 1;
            if self.in_part.len() < limit::IN_PART && self.room.take(name.len() + FILE) {
                self.in_part.push(InPart {
                    path: name.clone(),
                    why,
                });
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

    /// The lines of `file` for the answer, and why it was not searched completely, if so.
    fn lines_of(&mut self, file: File) -> (Vec<MatchLine>, Option<Unsearched>) {
        let clock = &self.matcher;
        let mut source = GrepReader {
            file,
            bytes: &mut self.bytes,
            clock,
            stopped: false,
        };
        let (room, full) = (&mut self.room, self.full);
        let mut lines = MatchedLines {
            taken: Vec::new(),
            left: self.lines,
            room,
            full,
            beyond: 0,
            clock,
            binary: false,
        };
        let searched = self
            .searcher
            .search_reader(&self.matcher, &mut source, &mut lines);
        self.stopped = source.stopped || (searched.is_err() && self.matcher.is_late());
        let cut = self.matcher.cut();
        if lines.binary {
            self.binary += 1;
            return (Vec::new(), None);
        }
        let unsearched = match searched {
            _ if self.stopped => None,
            Err(error) if error.raw_os_error().is_some() => Some(Unsearched::Unreadable),
            // Too long to be held in memory, or to be searched completely.
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

fn pattern(request: &Grep) -> Result<RegexMatcher, SearchPatternError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .case_insensitive(request.ignore_case)
        .fixed_strings(request.literal)
        .multi_line(true)
        .size_limit(PATTERN)
        .dfa_size_limit(PATTERN)
        .crlf(true);
    // A pattern that contains `\r` itself must be able to match it.
    let built = builder.build(&request.pattern);
    let built = built.or_else(|_| {
        builder
            .crlf(false)
            .line_terminator(Some(b'\n'))
            .build(&request.pattern)
    });
    built.map_err(|error| SearchPatternError::Regex {
        why: error.to_string(),
    })
}

fn searcher(matcher: &DeadlineMatcher, context: usize) -> Searcher {
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

/// A reader that ends early when the search has read or found too much.
struct GrepReader<'a> {
    file: File,
    bytes: &'a mut u64,
    clock: &'a DeadlineMatcher,
    stopped: bool,
}

impl Read for GrepReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stopped = *self.bytes == 0 || self.clock.is_late();
        if self.stopped {
            return Ok(0);
        }
        let read = (&self.file).take(*self.bytes).read(buffer)?;
        *self.bytes -= read as u64;
        Ok(read)
    }
}

/// The lines taken from one file.
struct MatchedLines<'a> {
    taken: Vec<MatchLine>,
    /// Matching lines that may still be added.
    left: usize,
    room: &'a mut AnswerRoom,
    /// Whether a line did not fit: from then on lines are only counted.
    full: bool,
    /// Number of matching lines that were counted.
    beyond: u64,
    clock: &'a DeadlineMatcher,
    binary: bool,
}

/// Why a line is in the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineRole {
    Match,
    /// It stands near a match.
    Context,
}

impl MatchedLines<'_> {
    /// Adds a line, if there is room for it.
    fn push(&mut self, number: Option<u64>, role: LineRole, line: &[u8]) {
        let matched = role == LineRole::Match;
        if !self.full && (!matched || self.left > 0) {
            let text = displayed_line(line);
            if self.room.take(text.len() + TEXT) {
                self.left -= usize::from(matched);
                self.taken.push(MatchLine {
                    number: number.unwrap_or(0),
                    matched,
                    text,
                });
                return;
            }
        }
        if !self.full {
            self.full = true;
            self.clock.only_count();
        }
        self.beyond += u64::from(matched);
    }

    /// The lines, without context of a match that was not added.
    fn finished(mut self, context: u64) -> Vec<MatchLine> {
        let last = self
            .taken
            .iter()
            .rfind(|line| line.matched)
            .map_or(0, |line| line.number);
        self.taken
            .retain(|line| last > 0 && line.number <= last + context);
        self.taken
    }
}

impl Sink for &mut MatchedLines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.push(found.line_number(), LineRole::Match, found.bytes());
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, beside: &SinkContext<'_>) -> io::Result<bool> {
        self.push(beside.line_number(), LineRole::Context, beside.bytes());
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line as the answer has it: without its end, as text, cut after [`SHOWN`] characters, with `…` for the rest.
fn displayed_line(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A character has at most four bytes, and a replacement stands for at least one: this contains all that is displayed, and one more.
    let text = String::from_utf8_lossy(&line[..line.len().min(4 * (SHOWN + 1))]);
    match text.char_indices().nth(SHOWN) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
