//! Walks a directory tree: names in order, a directory's content right after it, no link followed.
//!
//! Each directory is opened beneath its root by its whole path, so a directory that becomes a link meanwhile is passed
//! over, and no descriptor is held while the walk goes on. What may not be read is passed over too: the answer is what
//! this process may see.

use super::beneath::{LISTING, LOOKING, OpenError, Place, is, kind};
use super::bounds::Allowance;
use super::failure::{SystemError, WorkError};
use super::ignored::Rules;
use super::{Intent, Worker};
use broker_protocol::{ListedKind, ZonePath};
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::fstat;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::vec;

/// The directory that holds a repository's own files. No walk goes into it unless it is asked for by name.
const REPOSITORY: &str = ".git";

/// What a walk looks at.
pub(super) struct Scope<'a> {
    /// How many levels below its start.
    pub(super) depth: usize,
    /// Which names that begin with a dot.
    pub(super) dotted: &'a dyn Fn(&OsStr) -> bool,
    /// Whether it goes into directories called `.git`.
    pub(super) repositories: bool,
    /// Whether it looks at what ignore files name.
    pub(super) ignored: bool,
}

/// A walk on its way.
pub(super) struct Walk<'a> {
    worker: &'a Worker,
    scope: Scope<'a>,
    allowance: Allowance,
    /// Where it is, from the root of the zone.
    at: Place,
    /// Bytes of the path where it started.
    start: usize,
    /// The directories it is in, the deepest last.
    open: Vec<Level>,
    /// Whether something was left out that should have been looked at.
    cut: bool,
}

/// A directory that is being walked.
struct Level {
    entries: vec::IntoIter<Entry>,
    rules: Rules,
    /// Bytes of its path.
    path: usize,
}

/// An entry of a directory.
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: ListedKind,
}

/// An entry that the walk has come to.
pub(super) struct Step {
    /// Its path below the root of the zone, without links.
    pub(super) place: Place,
    /// Its path below the start of the walk.
    pub(super) below: PathBuf,
    /// What it is.
    pub(super) kind: ListedKind,
}

impl Worker {
    /// The directory that `path` names, links followed: where a walk may start.
    pub(super) fn directory_at(&self, path: &ZonePath) -> Result<Place, WorkError> {
        let found = self.open(path, LOOKING, Intent::Read)?;
        let stat = fstat(&found.file).map_err(|errno| SystemError::new("look at", path, errno))?;
        match is(&stat, libc::S_IFDIR) {
            true => Ok(found.place),
            false => Err(OpenError::NotADirectory { path: path.to_string(), is: kind(&stat) }.into()),
        }
    }

    /// A walk from the directory `start`, to which `path` led.
    pub(super) fn walk<'a>(
        &'a self,
        path: &ZonePath,
        start: Place,
        scope: Scope<'a>,
    ) -> Result<Walk<'a>, WorkError> {
        Ok(Walk::new(self, start, scope).map_err(|errno| SystemError::new("read", path, errno))?)
    }
}

impl<'a> Walk<'a> {
    /// A walk from the directory `start`, a name without links.
    fn new(worker: &'a Worker, start: Place, scope: Scope<'a>) -> Result<Self, Errno> {
        let length = start.path.as_os_str().len();
        let allowance = Allowance::new();
        let mut walk =
            Self { worker, scope, allowance, start: length, at: start, open: Vec::new(), cut: false };
        let entries = walk.entries()?;
        let rules = walk.rules_above(&entries);
        walk.open.push(Level { entries: entries.into_iter(), rules, path: length });
        Ok(walk)
    }

    /// Whether something was left out that should have been looked at.
    pub(super) fn cut(&self) -> bool {
        self.cut
    }

    /// From now on entries are only counted.
    pub(super) fn hasten(&mut self) {
        self.allowance.hasten();
    }

    /// Goes to the next entry.
    pub(super) fn next(&mut self) -> Option<Step> {
        while let Some(level) = self.open.last_mut() {
            let Some(entry) = level.entries.next() else {
                self.open.pop();
                continue;
            };
            if self.allowance.late() {
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

    fn step(&self, kind: ListedKind) -> Step {
        let below = &self.at.path.as_os_str().as_bytes()[self.start..];
        let below = below.strip_prefix(b"/").unwrap_or(below);
        Step { place: self.at.clone(), below: OsStr::from_bytes(below).into(), kind }
    }

    fn passed_over(&self, entry: &Entry) -> bool {
        let dotted = entry.name.as_bytes().starts_with(b".");
        let ignored = || {
            let rules = self.open.last().map(|level| &level.rules);
            rules.is_some_and(|rules| rules.ignore(&self.at.path, entry.kind == ListedKind::Directory))
        };
        (dotted && !(self.scope.dotted)(&entry.name)) || (!self.scope.ignored && ignored())
    }

    /// Goes on inside the directory where the walk is, if that is to be looked at.
    fn enter(&mut self, name: &OsStr) {
        let closed = || self.worker.protected.closed(self.at.zone, &self.at.path, Intent::Read).is_some();
        let repository = name == REPOSITORY && !self.scope.repositories;
        if self.open.len() >= self.scope.depth || repository || closed() {
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
    fn entries(&mut self) -> Result<Vec<Entry>, Errno> {
        let directory = self.worker.root(self.at.zone).open_beneath(&self.at.path, LISTING)?;
        let mut entries = Vec::new();
        for entry in Dir::from_fd(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if self.allowance.late() || !self.allowance.take(name.len()) {
                self.cut = true;
                break;
            }
            let name = OsString::from_vec(name.to_vec());
            let kind = entry.file_type().map_or_else(|| self.kind(&name), listed_kind);
            entries.push(Entry { name, kind });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// What `name` is, on a file system that does not say so in its directories.
    fn kind(&self, name: &OsStr) -> ListedKind {
        let place = Place { zone: self.at.zone, path: self.at.path.join(name) };
        let Ok(Some(stat)) = self.worker.look(&place) else { return ListedKind::Other };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => ListedKind::File,
            libc::S_IFDIR => ListedKind::Directory,
            libc::S_IFLNK => ListedKind::Link,
            _ => ListedKind::Other,
        }
    }

    /// The ignore rules in the directory where the walk is, below `above`.
    fn rules(&self, above: Rules, entries: &[Entry]) -> Rules {
        if self.scope.ignored {
            return above;
        }
        let has = |name: &str| {
            entries.binary_search_by(|entry| entry.name.as_os_str().cmp(OsStr::new(name))).is_ok()
        };
        above.and_in(self.worker, &self.at, &has)
    }

    /// The ignore rules where the walk starts: those of every directory from the root of the zone down.
    fn rules_above(&self, entries: &[Entry]) -> Rules {
        if self.scope.ignored {
            return Rules::default();
        }
        let mut above: Vec<&Path> = self.at.path.ancestors().skip(1).collect();
        above.reverse();
        let above = above.into_iter().fold(Rules::default(), |rules, path| {
            let place = Place { zone: self.at.zone, path: path.into() };
            rules.and_in(self.worker, &place, &|_| true)
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
