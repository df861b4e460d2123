//! A repository outside both zones that is opened with its project, and which parts of it are open.
//!
//! Less is opened than of a `.git` in the project: of the common directory, a worktree gets the objects, the
//! refs and their logs, and its own part; settings and hooks are closed by their names, as in `.git`, and
//! everything else by [`LinkedRepository::is_open`], which lists what is open.

use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Subdirectories of a common directory to which all its worktrees write.
const SHARED_DIRECTORIES: [&str; 4] = ["objects", "refs", LOGS, "rr-cache"];
const LOGS: &str = "logs";
/// Files in it that git replaces, with their temporary names: `git pack-refs`, `git fetch --depth`, `git gc`.
const SHARED_FILES: [&str; 9] = [
    "packed-refs",
    "packed-refs.lock",
    "packed-refs.new",
    "shallow",
    "shallow.lock",
    "gc.pid",
    "gc.pid.lock",
    "gc.log",
    "gc.log.lock",
];

/// A verified repository that lies outside both zones. Paths are absolute and without links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedRepository {
    /// The directory that git calls common: objects, refs, settings.
    pub common: PathBuf,
    /// The project's own part: `worktrees/NAME` in it, or all of it.
    pub own: PathBuf,
}

/// Why the directory that a project's `.git` names stays closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotLinked {
    #[error(
        "nothing in it leads back to the project: `core.worktree` in its settings, or `git_directories` in your policy, opens it"
    )]
    NoWayBack,
    #[error("it is no repository")]
    NoRepository,
    #[error("it is another user's")]
    OtherUser,
    #[error("a root of the session lies in it")]
    HoldsRoot,
    /// Closed by a rule, with the reason.
    #[error("{0}")]
    Closed(String),
}

impl LinkedRepository {
    /// Whether this list lets cells write and create `real`; `None` if it is not in the repository.
    pub fn is_open(&self, real: &Path) -> Option<bool> {
        let relative = real.strip_prefix(&self.common).ok()?;
        let mut names = relative.components().map(|name| name.as_os_str());
        let (first, below) = (names.next(), names.next().is_some());
        let in_own = real != self.own && real.starts_with(&self.own);
        let open = if self.own == self.common {
            in_own && first.is_some_and(|first| !first.eq_ignore_ascii_case("worktrees"))
        } else {
            let of = |list: &[&str]| list.iter().any(|name| first == Some(OsStr::new(name)));
            in_own && real != self.own.join("gitdir")
                || below && of(&SHARED_DIRECTORIES)
                || !below && of(&SHARED_FILES)
        };
        Some(open)
    }

    /// Makes the directory of the logs of its refs, as git would with the first commit: cells may write in it, and not beside it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn make_logs(&self) -> io::Result<()> {
        match fs::create_dir(self.common.join(LOGS)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// The directories to which all worktrees write, as far as they exist.
    pub fn shared_directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        SHARED_DIRECTORIES
            .iter()
            .map(|name| self.common.join(name))
            .filter(|path| directory(path).is_some())
    }

    /// Existing paths that cells may not write; with `true`, parents of open paths, which may only not be moved.
    pub fn kept(&self) -> impl Iterator<Item = (PathBuf, bool)> + '_ {
        let worktrees = self.common.join("worktrees");
        let listed = [self.common.clone(), worktrees, self.own.clone()];
        let entries = listed
            .into_iter()
            .flat_map(|directory| fs::read_dir(directory).into_iter().flatten().flatten());
        let kept = entries
            .map(|entry| entry.path())
            .filter(|path| self.is_open(path) == Some(false));
        kept.map(|path| {
            let way = self.own.starts_with(&path)
                || SHARED_DIRECTORIES
                    .iter()
                    .any(|name| path == self.common.join(name));
            (path, way)
        })
    }
}

/// Metadata of a directory that is not a link.
fn directory(path: &Path) -> Option<Metadata> {
    fs::symlink_metadata(path).ok().filter(Metadata::is_dir)
}
