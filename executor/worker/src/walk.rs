//! Walks a directory tree: names in order, a directory's content right after it, no link followed.
//!
//! Each directory is opened beneath its root by its whole path, so a directory that is replaced by
//! a link meanwhile is skipped, and no descriptor is held between steps. What may not be read is
//! skipped too: the answer is what this process can see.

use crate::bounds::WalkBudget;
use crate::error::{OpenError, SystemError, WorkError};
use crate::ignored::IgnoreRules;
use crate::root::{LISTING, LOOKING, Location, is, kind};
use crate::worker::FileCall;
use crate::zone_names::Intent;
use broker_protocol::{ListedKind, ZonePath};
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::vec;

/// The directory that contains a repository's own files. No walk enters it unless the request names it.
const REPOSITORY: &str = ".git";

/// The entries that a walk includes.
pub(crate) struct WalkOptions<'a> {
    /// Maximum number of levels below its start.
    pub depth: usize,
    /// Whether it includes a name that begins with a dot.
    pub dotted: &'a dyn Fn(&OsStr) -> bool,
    /// Whether it enters directories called `.git`.
    pub repositories: bool,
    /// Whether it includes what ignore files name.
    pub ignored: bool,
}

/// The state of a walk.
pub(crate) struct Walk<'a> {
    worker: &'a FileCall<'a>,
    options: WalkOptions<'a>,
    budget: WalkBudget,
    /// Its present location, from the root of the zone.
    at: Location,
    /// Length in bytes of the path where it started.
    start: usize,
    /// The directories it has entered, the deepest last.
    open: Vec<WalkLevel>,
    /// Whether something was omitted that should have been included.
    cut: bool,
}

/// A directory that is being walked.
struct WalkLevel {
    entries: vec::IntoIter<WalkEntry>,
    rules: IgnoreRules,
    /// Length of its path in bytes.
    path: usize,
}

/// An entry of a directory.
pub(crate) struct WalkEntry {
    pub name: OsString,
    pub kind: ListedKind,
}

/// An entry that the walk has reached.
pub(crate) struct WalkStep {
    /// Its path below the root of the zone, without links.
    pub location: Location,
    /// Its path below the start of the walk.
    pub below: PathBuf,
    /// The kind of the entry.
    pub kind: ListedKind,
}

impl FileCall<'_> {
    /// The directory that `path` names, following links: where a walk may start.
    pub(crate) fn directory_at(&self, path: &ZonePath) -> Result<Location, WorkError> {
        let found = self.open(path, LOOKING, Intent::Read)?;
        let stat = fstat(&found.file).map_err(|errno| SystemError::new("look at", path, errno))?;
        match is(&stat, libc::S_IFDIR) {
            true => Ok(found.location),
            false => Err(OpenError::NotADirectory {
                path: path.to_string(),
                is: kind(&stat),
            }
            .into()),
        }
    }

    /// Starts a walk at the directory `start`, to which `path` led.
    pub(crate) fn walk<'a>(
        &'a self,
        path: &ZonePath,
        start: Location,
        options: WalkOptions<'a>,
    ) -> Result<Walk<'a>, WorkError> {
        Ok(Walk::new(self, start, options)
            .map_err(|errno| SystemError::new("read", path, errno))?)
    }
}

impl<'a> Walk<'a> {
    /// Starts a walk at the directory `start`, a name without links.
    fn new(
        worker: &'a FileCall<'a>,
        start: Location,
        options: WalkOptions<'a>,
    ) -> Result<Self, Errno> {
        let length = start.path.as_os_str().len();
        let budget = WalkBudget::new();
        let mut walk = Self {
            worker,
            options,
            budget,
            start: length,
            at: start,
            open: Vec::new(),
            cut: false,
        };
        let entries = walk.entries()?;
        let rules = walk.rules_above(&entries);
        walk.open.push(WalkLevel {
            entries: entries.into_iter(),
            rules,
            path: length,
        });
        Ok(walk)
    }

    /// Whether something was omitted that should have been included.
    pub(crate) fn cut(&self) -> bool {
        self.cut
    }

    /// From now on entries are only counted.
    pub(crate) fn only_count(&mut self) {
        self.budget.only_count();
    }

    /// Goes to the next entry.
    pub(crate) fn next(&mut self) -> Option<WalkStep> {
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
        WalkStep {
            location: self.at.clone(),
            below: OsStr::from_bytes(below).into(),
            kind,
        }
    }

    fn passed_over(&self, entry: &WalkEntry) -> bool {
        let dotted = entry.name.as_bytes().starts_with(b".");
        let ignored = || {
            let rules = self.open.last().map(|level| &level.rules);
            rules.is_some_and(|rules| rules.ignore(&self.at.path, entry.kind))
        };
        (dotted && !(self.options.dotted)(&entry.name)) || (!self.options.ignored && ignored())
    }

    /// Enters the directory at the present location, if it is to be included.
    fn enter(&mut self, name: &OsStr) {
        let closed = || self.worker.is_closed(&self.at, Intent::Read);
        let repository = name == REPOSITORY && !self.options.repositories;
        if self.open.len() >= self.options.depth || repository || closed() {
            return;
        }
        match self.entries() {
            Ok(entries) => {
                let above = self
                    .open
                    .last()
                    .map(|level| level.rules.clone())
                    .unwrap_or_default();
                let rules = self.rules(above, &entries);
                let path = self.at.path.as_os_str().len();
                self.open.push(WalkLevel {
                    entries: entries.into_iter(),
                    rules,
                    path,
                });
            }
            // It no longer exists, was replaced, or is not readable for us.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES | Errno::EPERM) => {}
            Err(_) => self.cut = true,
        }
    }

    /// The entries of the directory at the present location, in order.
    fn entries(&mut self) -> Result<Vec<WalkEntry>, Errno> {
        let directory = self
            .worker
            .root(self.at.zone)
            .open_beneath(&self.at.path, LISTING)?;
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
            let kind = entry
                .file_type()
                .map_or_else(|| self.kind(&name), listed_kind);
            entries.push(WalkEntry { name, kind });
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// The kind of `name`, on a file system that does not report it in directories.
    fn kind(&self, name: &OsStr) -> ListedKind {
        let location = Location {
            zone: self.at.zone,
            path: self.at.path.join(name),
        };
        let Ok(Some(stat)) = self.worker.stat(&location) else {
            return ListedKind::Other;
        };
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG => ListedKind::File,
            libc::S_IFDIR => ListedKind::Directory,
            libc::S_IFLNK => ListedKind::Link,
            _ => ListedKind::Other,
        }
    }

    /// The ignore rules for the directory at the present location, below `above`.
    fn rules(&self, above: IgnoreRules, entries: &[WalkEntry]) -> IgnoreRules {
        if self.options.ignored {
            return above;
        }
        let has = |name: &str| {
            entries
                .binary_search_by(|entry| entry.name.as_os_str().cmp(OsStr::new(name)))
                .is_ok()
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
        let above = above
            .into_iter()
            .fold(IgnoreRules::default(), |rules, path| {
                let location = Location {
                    zone: self.at.zone,
                    path: path.into(),
                };
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
