//! Walks a directory tree: names in order, a directory's content right after it, no link followed.
//!
//! Each directory is opened beneath its root by its whole path, so a directory that becomes a link meanwhile is passed
//! over, and no descriptor is held while the walk goes on. What may not be read is passed over too: the answer is what
//! this process may see.

use crate::bounds::WalkBudget;
use crate::error::{OpenError, SystemError, WorkError};
use crate::ignored::IgnoreRules;
use crate::names::Intent;
use crate::root::{LISTING, LOOKING, Location, is, kind};
use crate::worker::Worker;
use broker_protocol::{ListedKind, ZonePath};
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::vec;

/// The directory that holds a repository's own files. No walk goes into it unless it is asked for by name.
const REPOSITORY: &str = ".git";

/// What a walk looks at.
pub struct WalkOptions<'a> {
    /// How many levels below its start.
    pub depth: usize,
    /// Which names that begin with a dot.
    pub dotted: &'a dyn Fn(&OsStr) -> bool,
    /// Whether it goes into directories called `.git`.
    pub repositories: bool,
    /// Whether it looks at what ignore files name.
    pub ignored: bool,
}

/// A walk on its way.
pub struct Walk<'a> {
    worker: &'a Worker,
    options: WalkOptions<'a>,
    budget: WalkBudget,
    /// Where it is, from the root of the zone.
    at: Location,
    /// Bytes of the path where it started.
    start: usize,
    /// The directories it is in, the deepest last.
    open: Vec<Level>,
    /// Whether something was left out that should have been looked at.
    cut: bool,
}

/// A directory that is being walked.
struct Level {
    entries: vec::IntoIter<WalkEntry>,
    rules: IgnoreRules,
    /// Bytes of its path.
    path: usize,
}

/// An entry of a directory.
pub struct WalkEntry {
    pub name: OsString,
    pub kind: ListedKind,
}

/// An entry that the walk has come to.
pub struct WalkStep {
    /// Its path below the root of the zone, without links.
    pub location: Location,
    /// Its path below the start of the walk.
    pub below: PathBuf,
    /// What it is.
    pub kind: ListedKind,
}

impl Worker {
    /// The directory that `path` names, links followed: where a walk may start.
    pub fn directory_at(&self, path: &ZonePath) -> Result<Location, WorkError> {
        let found = self.open(path, LOOKING, Intent::Read)?;
        let stat = fstat(&found.file).map_err(|errno| SystemError::new("look at", path, errno))?;
        match is(&stat, libc::S_IFDIR) {
            true => Ok(found.location),
            false => Err(OpenError::NotADirectory { path: path.to_string(), is: kind(&stat) }.into()),
        }
    }

    /// A walk from the directory `start`, to which `path` led.
    pub fn walk<'a>(
        &'a self,
        path: &ZonePath,
        start: Location,
        options: WalkOptions<'a>,
    ) -> Result<Walk<'a>, WorkError> {
        Ok(Walk::new(self, start, options).map_err(|errno| SystemError::new("read", path, errno))?)
    }
}

impl<'a> Walk<'a> {
    /// A walk from the directory `start`, a name without links.
    fn new(worker: &'a Worker, start: Location, options: WalkOptions<'a>) -> Result<Self, Errno> {
        let length = start.path.as_os_str().len();
        let budget = WalkBudget::new();
        let mut walk =
            Self { worker, options, budget, start: length, at: start, open: Vec::new(), cut: false };
        let entries = walk.entries()?;
        let rules = walk.rules_above(&entries);
        walk.open.push(Level { entries: entries.into_iter(), rules, path: length });
        Ok(walk)
    }

    /// Whether something was left out that should have been looked at.
    pub fn cut(&self) -> bool {
        self.cut
    }

    /// From now on entries are only counted.
    pub fn only_count(&mut self) {
        self.budget.only_count();
    }

    /// Goes to the next entry.
    pub fn next(&mut self) -> Option<WalkStep> {
        while let Some(level) = self.open.last_mut() {
            let Some(entry) = level.entries.next() else {
                self.open.pop();
                continue;
            };
            if self.budget.is_late() {
                self.cut = true;
                return None;
            }
            self.at.path = child(&self.at.path, level.path, &entry.name);
            if self.passed_over(&entry) {
                continue;
            }
            if entry.kind == ListedKind::Directory {
                self.enter(&entry.name);
            }
            return Some(self.step(entry.kind));
        }
        None
    }

    fn step(&self, kind: ListedKind) -> WalkStep {
        let below = &self.at.path.as_os_str().as_bytes()[self.start..];
        let below = below.strip_prefix(b"/").unwrap_or(below);
        WalkStep { location: self.at.clone(), below: OsStr::from_bytes(below).into(), kind }
    }

    fn passed_over(&self, entry: &WalkEntry) -> bool {
        let dotted = entry.name.as_bytes().starts_with(b".");
        let ignored = || {
            let rules = self.open.last().map(|level| &level.rules);
            rules.is_some_and(|rules| rules.ignore(&self.at.path, entry.kind == ListedKind::Directory))
        };
        (dotted && !(self.options.dotted)(&entry.name)) || (!self.options.ignored && ignored())
    }

    /// Goes on inside the directory where the walk is, if that is to be looked at.
    fn enter(&mut self, name: &OsStr) {
        let closed = || self.worker.names.closed(&self.at, Intent::Read).is_some();
        let repository = name == REPOSITORY && !self.options.repositories;
        if self.open.len() >= self.options.depth || repository || closed() {
            return;
        }
        match self.entries() {
            Ok(entries) => {
                let above = self.open.last().map(|level| level.rules.clone()).unwrap_or_default();
                let rules = self.rules(above, &entries);
                let path = self.at.path.as_os_str().len();
                self.open.push(Level { entries: entries.into_iter(), rules, path });
            }
            // Gone, replaced, or not ours to read.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES | Errno::EPERM) => {}
            Err(_) => self.cut = true,
        }
    }

    /// What is in the directory where the walk is, in order.
    fn entries(&mut self) -> Result<Vec<WalkEntry>, Errno> {
        let directory = self.worker.root(self.at.zone).open_beneath(&self.at.path, LISTING)?;
        let mut entries = Vec::new();
        for entry in Dir::from_fd(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.budget.is_late() || !self.budget.take(name.len()) {
                self.cut = true;
                break;
            }
            let name = OsString::from_vec(name.to_vec());
            let kind = entry.file_type().map_or_else(|| self.kind(&name), listed_kind);
            entries.push(WalkEntry { name, kind });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// What `name` is, on a file system that does not say so in its directories.
    fn kind(&self, name: &OsStr) -> ListedKind {
        let location = Location { zone: self.at.zone, path: self.at.path.join(name) };
        let Ok(Some(stat)) = self.worker.stat(&location) else { return ListedKind::Other };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => ListedKind::File,
            libc::S_IFDIR => ListedKind::Directory,
            libc::S_IFLNK => ListedKind::Link,
            _ => ListedKind::Other,
        }
    }

    /// The ignore rules in the directory where the walk is, below `above`.
    fn rules(&self, above: IgnoreRules, entries: &[WalkEntry]) -> IgnoreRules {
        if self.options.ignored {
            return above;
        }
        let has = |name: &str| {
            entries.binary_search_by(|entry| entry.name.as_os_str().cmp(OsStr::new(name))).is_ok()
        };
        above.and_in(self.worker, &self.at, &has)
    }

    /// The ignore rules where the walk starts: those of every directory from the root of the zone down.
    fn rules_above(&self, entries: &[WalkEntry]) -> IgnoreRules {
        if self.options.ignored {
            return IgnoreRules::default();
        }
        let mut above: Vec<&Path> = self.at.path.ancestors().skip(1).collect();
        above.reverse();
        let above = above.into_iter().fold(IgnoreRules::default(), |rules, path| {
            let location = Location { zone: self.at.zone, path: path.into() };
            rules.and_in(self.worker, &location, &|_| true)
        });
        self.rules(above, entries)
    }
}

/// The path of `name` in the directory whose path is the first `length` bytes of `path`.
fn child(path: &Path, length: usize, name: &OsStr) -> PathBuf {
    let directory = &path.as_os_str().as_bytes()[..length];
    Path::new(OsStr::from_bytes(directory)).join(name)
}

fn listed_kind(kind: Type) -> ListedKind {
    match kind {
        Type::File => ListedKind::File,
        Type::Directory => ListedKind::Directory,
        Type::Symlink => ListedKind::Link,
        Type::Fifo | Type::CharacterDevice | Type::BlockDevice | Type::Socket => ListedKind::Other,
    }
}
