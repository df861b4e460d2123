//! What the ignore files from a zone's root down to a directory decide about a name.
//!
//! The same files as `git` and `rg` read, by the same rules: `.ignore` before `.gitignore` before
//! `.git/info/exclude`, the deeper before the higher, the last line before the first; and a
//! repository's `.gitignore` applies until another repository begins. Not read: anything above the
//! zone's root, the user's own ignore file, links, and what is too large (`bounds`).
//!
//! The `ignore` crate does the matching. Its own walk is not used: it opens ignore files by name
//! and blocks if one is a FIFO, reads them whole, and follows a `.git` file out of the zone.

use crate::bounds::IGNORED;
use crate::content::read_up_to;
use crate::root::{Location, READING, is};
use crate::worker::FileCall;
use crate::zone_names::Intent;
use broker_protocol::ListedKind;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use nix::sys::stat::fstat;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// The rules in force in one directory. A copy is cheap.
#[derive(Clone, Default)]
pub(crate) struct IgnoreRules(Option<Rc<IgnoreDirectory>>);

/// A directory with rules of its own.
struct IgnoreDirectory {
    /// Length of its path in bytes.
    path: usize,
    /// Whether it is the root of a repository.
    repository: bool,
    /// Its files, in order of precedence.
    files: [Option<Gitignore>; FILES.len()],
    /// Bytes of all files from here up to the root.
    bytes: usize,
    above: IgnoreRules,
}

/// The ignore files of a directory, in order of precedence.
const FILES: [&str; 3] = [".ignore", ".gitignore", ".git/info/exclude"];
/// The name that makes a directory the root of a repository: a directory, or a file that names one.
const REPOSITORY: &str = ".git";

impl IgnoreRules {
    /// Adds the rules of the directory `location`. `has` returns which names are, or may be, in it.
    pub(crate) fn and_in(
        self,
        worker: &FileCall,
        location: &Location,
        has: &dyn Fn(&str) -> bool,
    ) -> Self {
        if ![FILES[0], FILES[1], REPOSITORY].into_iter().any(has) {
            return self;
        }
        let mut bytes = self.0.as_ref().map_or(0, |directory| directory.bytes);
        let files = FILES.map(|name| {
            let location = Location {
                zone: location.zone,
                path: location.path.join(name),
            };
            let text = text(worker, &location, IGNORED - bytes)?;
            bytes += text.len();
            compile(&text)
        });
        let repository = has(REPOSITORY) && is_repository(worker, location);
        if !repository && files.iter().all(Option::is_none) {
            return self;
        }
        let path = location.path.as_os_str().len();
        Self(Some(Rc::new(IgnoreDirectory {
            path,
            repository,
            files,
            bytes,
            above: self,
        })))
    }

    /// Whether the rules ignore `path`, which is relative to the zone's root.
    pub(crate) fn ignore(&self, path: &Path, kind: ListedKind) -> bool {
        (0..FILES.len())
            .find_map(|file| self.verdict(file, path, kind))
            .unwrap_or(false)
    }

    /// The decision of the deepest file of one kind that has a rule for `path`.
    fn verdict(&self, file: usize, path: &Path, kind: ListedKind) -> Option<bool> {
        let mut rules = self;
        while let Some(own) = &rules.0 {
            match own.matched(file, path, kind) {
                Match::Ignore(_) => return Some(true),
                Match::Whitelist(_) => return Some(false),
                Match::None if own.repository && file > 0 => return None,
                Match::None => rules = &own.above,
            }
        }
        None
    }
}

impl IgnoreDirectory {
    fn matched(&self, file: usize, path: &Path, kind: ListedKind) -> Match<()> {
        let Some(rules) = &self.files[file] else {
            return Match::None;
        };
        let below = path
            .as_os_str()
            .as_bytes()
            .get(self.path..)
            .unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        rules
            .matched(
                Path::new(OsStr::from_bytes(below)),
                kind == ListedKind::Directory,
            )
            .map(|_| ())
    }
}

fn is_repository(worker: &FileCall, location: &Location) -> bool {
    let repository = Location {
        zone: location.zone,
        path: location.path.join(REPOSITORY),
    };
    worker.stat(&repository).is_ok_and(|found| found.is_some())
}

/// The content of an ignore file of at most `max` bytes.
fn text(worker: &FileCall, location: &Location, max: usize) -> Option<Vec<u8>> {
    if worker.is_closed(location, Intent::Read) {
        return None;
    }
    let file = worker
        .root(location.zone)
        .open_beneath(&location.path, READING)
        .ok()?;
    let stat = fstat(&file).ok().filter(|stat| is(stat, libc::S_IFREG))?;
    let content = read_up_to(File::from(file), stat.st_size as u64, max).ok()?;
    (content.len() <= max).then_some(content)
}

/// The rules of an ignore file. An invalid pattern is skipped, as `git` does.
fn compile(text: &[u8]) -> Option<Gitignore> {
    let text = String::from_utf8_lossy(text);
    // Matched paths are relative to the file's directory already: the matcher must strip nothing from them.
    let mut builder = GitignoreBuilder::new(".");
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().ok().filter(|rules| !rules.is_empty())
}
