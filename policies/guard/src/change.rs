//! Changes on which the judge gives a verdict. `H` is a handle of the tree's.

use crate::names::Access;
use crate::search::SearchedDirectory;
use crate::tree::ObjectKind;
use std::ffi::OsStr;
use std::path::Path;

/// A change of a name or an object.
#[derive(Clone, Copy, Debug)]
pub enum Change<'c, H> {
    /// A name comes about in a directory.
    Create {
        name: DirectoryName<'c, H>,
        new: New<'c>,
        moment: Moment,
    },
    /// An object is opened for reading or for a change.
    Open {
        object: H,
        at: &'c Path,
        kind: ObjectKind,
        access: Access,
    },
    /// An object gets another name, in the place of what was `replaced`. An exchange is two of these.
    Rename {
        object: Described<H>,
        from: DirectoryName<'c, H>,
        to: DirectoryName<'c, H>,
        replaced: Option<H>,
    },
    /// An object gets one more name. The new name is a [`Change::Create`] of its own.
    Link {
        object: H,
        at: &'c Path,
        kind: ObjectKind,
    },
    /// A name is removed from its directory.
    Remove { at: &'c Path },
    /// An object's metadata is changed.
    Mark {
        object: H,
        at: &'c Path,
        kind: ObjectKind,
    },
    /// A session that opens finds this, and asks whether calls may read it, or change it.
    Find { found: AtRest<'c>, access: Access },
    /// An object that a call has misplaced is taken away, by the session itself; without an object, as far as the path decides.
    TakeAway { object: Option<H>, at: &'c Path },
}

/// Something at rest: no call has made it.
#[derive(Clone, Copy, Debug)]
pub enum AtRest<'c> {
    /// An entry of a directory that is searched, whatever it is.
    Entry {
        directory: SearchedDirectory<'c>,
        name: &'c OsStr,
    },
    /// A program, at this path in a repository's own directory.
    Program { in_repository: &'c Path },
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryName<'c, H> {
    pub parent: H,
    pub name: &'c OsStr,
    /// The path of both.
    pub path: &'c Path,
}

/// An object, with what of its state counts.
#[derive(Clone, Copy, Debug)]
pub struct Described<H> {
    pub object: H,
    pub kind: ObjectKind,
    /// Whether it has other names.
    pub has_others: bool,
}

/// Objects that can get a new name.
#[derive(Clone, Copy, Debug)]
pub enum New<'c> {
    /// An empty directory. No program acts on one, so a program that unpacks a tree loses only files.
    Directory,
    /// A directory with what is in it, which had this path.
    Tree { from: &'c Path },
    /// A link with this text.
    Link { target: &'c [u8] },
    /// Anything else, without what is in it.
    Object(ObjectKind),
    /// An object of this kind that may have other names.
    Second { kind: ObjectKind, has_others: bool },
}

impl New<'_> {
    pub(crate) fn kind(&self) -> ObjectKind {
        match self {
            New::Directory | New::Tree { .. } => ObjectKind::Directory,
            New::Link { .. } => ObjectKind::Link,
            New::Object(kind) | New::Second { kind, .. } => *kind,
        }
    }
}

/// When a new name is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    Before,
    /// The name was just made. Somebody else may have made the rest of a repository since it was judged: who looks last sees all of it.
    Made,
    /// The call that made it has ended: may it stay?
    Ended,
}
