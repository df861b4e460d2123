//! Paths that are closed although no name shows it, with the reason of each.

use crate::linked_repository::NotLinked;
use std::path::PathBuf;

/// A path that is closed although its name does not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlsoClosed {
    /// Absolute.
    pub path: PathBuf,
    pub why: WhyClosed,
}

/// Why a path is closed although its name does not show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyClosed {
    /// Another name of this protected file.
    OtherNameOf(PathBuf),
    /// This link with a protected name leads there.
    TargetOf(PathBuf),
    /// This setting of the user's git names it.
    Setting {
        /// The file of settings.
        file: PathBuf,
        key: String,
    },
    /// One of Lazaret's own programs or settings, or a link from these leads there.
    Own,
    /// This link in the user's home directory leads there.
    HomeLink(PathBuf),
    /// In this grant of the profile, which excepts it.
    NotGranted(PathBuf),
    /// A program in a repository's directory, and settings may name it by a path that only a shell knows.
    Program,
    /// Its contents cannot be listed.
    Unlisted,
    /// The project's `.git` file leads there, but it is not opened.
    NotLinked(NotLinked),
    /// A directory with this and other protected names, too many to pin one by one.
    OverBound(PathBuf),
    /// A root had too many names of its own. They, or the newest protected ones, lie in this directory now.
    SetAside(PathBuf),
    /// Its owner could not use it, and can again.
    ModeGivenBack,
    /// A directory with so many entries that not all of its root can be examined.
    TooLarge,
    /// A repository over the bound on those that are looked at after each call.
    NotWatched,
    /// Its content is committed, but a command made git track it, according to this record.
    Tracked(PathBuf),
}
