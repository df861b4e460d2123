//! Finds files by name, newest first.
//!
//! A name that begins with a dot matches only if the request says so, or if a part of the pattern that begins with a
//! dot matches it, as in a shell. Directories named without wildcards at the beginning of a pattern become a part of
//! the path: `src/**/*.rs` walks `src` alone, and `target/*.d` is found although `target` is ignored, as it was named.
//! A link to a regular file in a zone counts as that file; links to directories are not followed.

use crate::bounds::AnswerRoom;
use crate::error::{OpenError, SearchPatternError, WorkError};
use crate::root::{Location, is};
use crate::walk::{WalkOptions, WalkStep};
use crate::worker::FileCall;
use broker_protocol::{Glob, ListedKind, Truncated, Walked, ZonePath};
use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::path::Path;

/// Bytes of a path's entry in an answer besides the path.
const ENTRY: usize = 8;

impl FileCall<'_> {
    /// Answers `glob`.
    pub(crate) fn glob(&self, request: &Glob) -> Result<Walked, WorkError> {
        let (plain, pattern) = split(&request.pattern)?;
        let (matcher, dotted) = (compile(&pattern)?, dotted_parts(&pattern));
        let start = self.directory_at(&request.path)?;
        let Some((path, start)) = self.below(&request.path, start, &plain)? else {
            return Ok(Walked {
                paths: Vec::new(),
                truncated: None,
            });
        };
        let options = WalkOptions {
            depth: depth(&pattern),
            dotted: &|name| request.hidden || dotted.is_match(name),
            repositories: dotted.is_match(".git"),
            ignored: request.ignored,
        };
        let mut walk = self.walk(&path, start, options)?;
        let mut newest = NewestFiles::new(request.limit as usize);
        while let Some(step) = walk.next() {
            if matcher.is_match(&step.below)
                && let Some(modified) = self.modified(&step)
            {
                newest.add(modified, named(&path, &step.below));
            }
        }
        Ok(newest.answer(walk.cut()))
    }

    /// The directory `plain` below `start`, to which `path` led; `None` if there is none.
    fn below(
        &self,
        path: &ZonePath,
        start: Location,
        plain: &str,
    ) -> Result<Option<(ZonePath, Location)>, WorkError> {
        if plain.is_empty() {
            return Ok(Some((path.clone(), start)));
        }
        let Ok(path) = ZonePath::new(path.zone(), &named(path, Path::new(plain))) else {
            return Ok(None);
        };
        match self.directory_at(&path) {
            Err(WorkError::Open(OpenError::NotFound { .. } | OpenError::NotADirectory { .. })) => {
                Ok(None)
            }
            start => Ok(Some((path, start?))),
        }
    }

    /// When the file at `step` was last changed, if it is a file or a link to one.
    pub(crate) fn modified(&self, step: &WalkStep) -> Option<(i64, i64)> {
        let location = match step.kind {
            ListedKind::File => &step.location,
            ListedKind::Link => &self.follow(&step.location).ok()?,
            ListedKind::Directory | ListedKind::Other => return None,
        };
        let stat = self
            .stat(location)
            .ok()?
            .filter(|stat| is(stat, libc::S_IFREG))?;
        Some((stat.st_mtime, stat.st_mtime_nsec))
    }
}

/// The newest files found so far, in a bounded number of bytes.
struct NewestFiles {
    most: usize,
    found: u64,
    /// The oldest on top; of the same age, the last by path.
    files: BinaryHeap<Reverse<Dated>>,
}

/// When a file was last changed, and its path.
type Dated = ((i64, i64), Reverse<String>);

impl NewestFiles {
    fn new(most: usize) -> Self {
        Self {
            most,
            found: 0,
            files: BinaryHeap::new(),
        }
    }

    fn add(&mut self, modified: (i64, i64), path: String) {
        self.found += 1;
        self.files.push(Reverse((modified, Reverse(path))));
        if self.files.len() > self.most {
            self.files.pop();
        }
    }

    fn answer(self, cut: bool) -> Walked {
        let mut room = AnswerRoom::new();
        let files = self
            .files
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, Reverse(path)))| path);
        let paths: Vec<String> = files
            .take_while(|path| room.take(path.len() + ENTRY))
            .collect();
        let shown = paths.len() as u64;
        let total = (!cut).then_some(self.found);
        Walked {
            paths,
            truncated: (cut || shown < self.found).then_some(Truncated { total, shown }),
        }
    }
}

/// `below`, as a path from the root of the zone of `path`.
pub(crate) fn named(path: &ZonePath, below: &Path) -> String {
    match path.relative() {
        "" => below.to_string_lossy().into_owned(),
        path => format!("{path}/{}", below.to_string_lossy()),
    }
}

/// Compiles a glob in which `*` stays within a name.
pub(crate) fn compile(pattern: &str) -> Result<GlobMatcher, SearchPatternError> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| wrong(pattern, error.kind()))
}

fn wrong(pattern: &str, why: impl ToString) -> SearchPatternError {
    SearchPatternError::Glob {
        pattern: pattern.to_owned(),
        why: why.to_string(),
    }
}

/// Splits a pattern into the directories it names without wildcards at the beginning, and the rest.
fn split(pattern: &str) -> Result<(String, String), SearchPatternError> {
    if pattern.starts_with('/') {
        return Err(wrong(
            pattern,
            "it is relative to `path` and does not begin with a slash",
        ));
    }
    let parts: Vec<&str> = pattern
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err(wrong(
            pattern,
            "it cannot climb out of `path`; give another `path`",
        ));
    }
    let last = parts.len().saturating_sub(1);
    let plain = parts[..last]
        .iter()
        .take_while(|part| !part.contains(SPECIAL))
        .count();
    Ok((parts[..plain].join("/"), parts[plain..].join("/")))
}

/// Characters with a special meaning in a glob.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// The maximum depth of a file that `pattern` matches.
fn depth(pattern: &str) -> usize {
    if pattern.contains("**") {
        usize::MAX
    } else {
        pattern.split('/').count()
    }
}

/// The parts of `pattern` that begin with a dot.
fn dotted_parts(pattern: &str) -> GlobSet {
    let mut parts = GlobSetBuilder::new();
    let globs = pattern
        .split('/')
        .filter(|part| part.starts_with('.'))
        .filter_map(|part| {
            // Alternatives that contain a slash are split in the middle here, and then say nothing about dots.
            GlobBuilder::new(part).literal_separator(true).build().ok()
        });
    globs.for_each(|glob| {
        parts.add(glob);
    });
    parts.build().unwrap_or_else(|_| GlobSet::empty())
}

/// Whether `glob` matches the last name of `path` or all of it.
pub(crate) fn matches_name_or_path(glob: &GlobMatcher, path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name: &OsStr| glob.is_match(name))
        || glob.is_match(path)
}
