//! Queries of the judge to the disk, and to the session's knowledge of it.

use crate::names::{Access, Matcher, Protection};
use crate::verdict::Verdict;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The disk as those see it for whom a verdict is wanted. Paths are absolute and without links.
///
/// Methods with a body are answered so by those who keep no record of it: nothing is a call's own, and all else is closed.
///
/// An answer that cannot be had is an error of the disk, and no verdict comes of it. Where an answer is a `bool`, what cannot be looked at
/// is not there: it is asked for things that close a name only while they can be used.
pub trait Tree {
    /// An object that is open, or the directory of a name.
    type Handle<'h>: Copy;

    /// The names that are protected at a path.
    fn names(&self, at: &Path) -> &Matcher;

    /// The path relative to each zone that contains it, with the zone's root.
    fn in_zones<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])>;

    /// Paths, relative to a zone's root, as which this one counts since the session opened.
    fn other_paths<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = PathBuf>;

    /// Whether names may be changed at this path, as far as its place decides.
    fn is_writable(&self, at: &Path) -> bool;

    /// Whether nothing outside the zones can be named, so that no place needs to be checked.
    fn is_enclosed(&self) -> bool {
        false
    }

    /// Whether the place of an object lets it be opened, or opened for a change.
    ///
    /// # Errors
    /// The object does not exist for the caller.
    fn may_reach(&self, object: Self::Handle<'_>, at: &Path, access: Access) -> io::Result<bool>;

    /// Whether others' packages are unpacked or installed there, and may be changed.
    fn is_package(&self, _at: &Path) -> bool {
        false
    }

    /// Whether both paths lie in one area: what is moved from one to another may be protected in one of them only.
    fn is_one_area(&self, _from: &Path, _to: &Path) -> bool {
        false
    }

    /// Whether the root of a zone is this directory or lies below it.
    fn holds_zone(&self, _directory: &Path) -> bool {
        true
    }

    /// How a path was protected by its place when the session opened.
    fn protection_of_place(&self, at: &Path) -> Option<Protection>;

    /// Whether an object that was protected by its place then lies below, or is reached through this path.
    fn has_place_below(&self, at: &Path) -> bool;

    /// How an object was protected then, whatever its name.
    fn protection_of_object(&self, object: Self::Handle<'_>) -> Option<Protection>;

    /// Whether this directory was a repository then.
    fn was_repository(&self, directory: &Path) -> bool;

    /// Whether a directory was at this path then.
    fn was_directory(&self, _at: &Path) -> bool {
        true
    }

    /// Whether what is there has come about since.
    fn is_younger(&self, _at: &Path) -> bool {
        false
    }

    /// Whether a lease opens this object at this path for a change.
    fn is_leased(&self, _object: Self::Handle<'_>, _at: &Path) -> bool {
        false
    }

    /// Whether a call of the session has made this object.
    fn has_made(&self, _object: Self::Handle<'_>) -> bool {
        false
    }

    /// Whether a call has made the object at this path.
    fn has_made_at(&self, _at: &Path) -> bool {
        false
    }

    /// Whether nothing is at this path, and what a call makes there can be recorded.
    fn has_room(&self, _at: &Path) -> bool {
        false
    }

    /// Whether a call has made this directory, where none was before.
    fn is_new_directory(&self, _directory: Self::Handle<'_>, _at: &Path) -> bool {
        false
    }

    /// Where repositories that calls have made will be when `from` is called `to`.
    ///
    /// # Errors
    /// They are not known.
    fn repositories_moved(&self, _from: &Path, _to: &Path) -> io::Result<Vec<PathBuf>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether a link that was written for a program leads through this path.
    fn leads_through(&self, _at: &Path) -> bool {
        true
    }

    /// Whether those who ask may write the branch of a repository.
    fn may_write_heads(&self) -> bool {
        false
    }

    /// Whether an object is at this path.
    fn exists(&self, at: &Path) -> bool;

    /// Whether a directory has an entry of this name.
    fn has(&self, directory: Self::Handle<'_>, name: &str) -> bool;

    /// Asks about a directory; `None` if it cannot be opened.
    fn in_directory<R>(&self, _at: &Path, _ask: impl FnOnce(Self::Handle<'_>) -> R) -> Option<R> {
        None
    }

    /// The kind of an entry.
    ///
    /// # Errors
    /// The disk's.
    fn kind(&self, _directory: Self::Handle<'_>, _name: &OsStr) -> io::Result<ObjectKind> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Asks about the path that an object has, while no name can be changed; it was found `at` this one.
    ///
    /// # Errors
    /// The disk's.
    fn settled<R>(
        &self,
        _object: Self::Handle<'_>,
        at: &Path,
        ask: impl FnOnce(&Path) -> R,
    ) -> io::Result<R> {
        Ok(ask(at))
    }

    /// Visits everything below the directory `name` of `parent`: each entry's directory, and its path relative to `name`. Returns the
    /// first refusal.
    ///
    /// # Errors
    /// The disk's, and those of `visit`; there are too many entries to judge them.
    fn each_below(
        &self,
        _parent: Self::Handle<'_>,
        _name: &OsStr,
        _visit: impl Fn(Self::Handle<'_>, &Path) -> io::Result<Verdict>,
    ) -> io::Result<Verdict> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    File,
    Directory,
    Link,
    /// A FIFO, a socket or a device.
    Other,
}
