//! What the judge asks, for file tools: see [`policies_guard::Tree`]. They keep no record of what they have made, so no protected name is
//! open to them because it is new, and they write no branch of a repository.

use crate::root::{LOOKING_AT_LINKS, Location, OpenRoot};
use crate::worker::Worker;
use crate::zone_names::Intent;
use broker_protocol::Zone;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use policies_guard::Access;
use policies_guard::{
    Change, DirectoryName, Judge, Matcher, Moment, New, ObjectKind, Protection, Rule, Tree,
    Verdict, judge,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why no file tool creates a repository, or changes the branch of one.
const GIT_DECIDES: &str = "Git takes a directory for a repository by this name, and runs what its settings say. `git` itself can make one.";

/// Why a file tool may not touch a path that is protected although its name does not show it.
const CLOSED_PLACE: &str = "A link with a protected name leads to it, it is the same file as a protected one, or it could not be listed \
     when the session opened, which reported it.";

/// Why a file is closed that is on its way to a protected name.
const IN_TRANSIT: &str = "By its name, it is what a program renames to a protected file, or a copy that an editor keeps of one.";

/// Why a path is refused that is not granted, or is granted but contains a root.
const NOT_GRANTED: &str = "It is not granted to file tools by this path.";

/// One root, as the judge asks about it.
struct ZoneTree<'w> {
    worker: &'w Worker,
    zone: Zone,
}

impl<'w> ZoneTree<'w> {
    fn root(&self) -> &'w OpenRoot {
        self.worker.root(self.zone)
    }
}

impl Tree for ZoneTree<'_> {
    /// The directory of a new name. The verdict on what exists is wanted before it is opened, so it is on the name.
    type Handle<'h> = Option<BorrowedFd<'h>>;

    fn names(&self, _: &Path) -> &Matcher {
        &self.worker.names().protected
    }

    fn in_zones<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        let root = self.root().path.as_path();
        let path = at.strip_prefix(root).ok();
        path.map(|path| (root, path.as_os_str().as_bytes()))
            .into_iter()
    }

    fn other_paths<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = PathBuf> {
        self.worker.names().objects.other_paths(at)
    }

    fn is_writable(&self, _: &Path) -> bool {
        self.root().writable
    }

    fn may_reach(&self, _: Self::Handle<'_>, at: &Path, _: Access) -> io::Result<bool> {
        Ok(self.zone != Zone::Granted || self.worker.names().is_granted_outside(at))
    }

    fn protection_of_place(&self, at: &Path) -> Option<Protection> {
        self.worker.names().objects.protection_of_place(at)
    }

    fn has_place_below(&self, at: &Path) -> bool {
        self.worker.names().objects.has_place_below(at)
    }

    fn protection_of_object(&self, _: Self::Handle<'_>) -> Option<Protection> {
        None
    }

    fn was_repository(&self, _: &Path) -> bool {
        false
    }

    fn exists(&self, at: &Path) -> bool {
        let path = at.strip_prefix(&self.root().path);
        path.is_ok_and(|path| self.root().open_beneath(path, LOOKING_AT_LINKS).is_ok())
    }

    fn has(&self, directory: Self::Handle<'_>, name: &str) -> bool {
        directory.is_some_and(|fd| fstatat(fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok())
    }
}

impl Worker {
    /// Whether a name is closed for `intent`, or nobody can tell. A name closed for reading is closed for writing too, and what lies below
    /// a closed name is closed with it.
    pub(crate) fn is_closed(&self, location: &Location, intent: Intent) -> bool {
        !matches!(self.verdict_on(location, intent), Ok(Verdict::Allow))
    }

    /// The verdict on a name that is going to be opened for `intent`.
    pub(crate) fn verdict_on(&self, location: &Location, intent: Intent) -> io::Result<Verdict> {
        let (tree, at) = self.tree(location);
        judge(
            &tree,
            Change::Open {
                object: None,
                at: &at,
                kind: ObjectKind::File,
                access: match intent {
                    Intent::Read => Access::Read,
                    Intent::Write => Access::Write,
                },
            },
        )
    }

    /// The verdict on a name in `directory` that comes about, or has.
    pub(crate) fn verdict_on_new(
        &self,
        location: &Location,
        directory: &OwnedFd,
        new: New,
        moment: Moment,
    ) -> io::Result<Verdict> {
        let (tree, path) = self.tree(location);
        let name = DirectoryName {
            parent: Some(directory.as_fd()),
            name: path.file_name().unwrap_or_default(),
            path: &path,
        };
        judge(&tree, Change::Create { name, new, moment })
    }

    /// Why a rule closes a name for `intent`: a protected name says that itself.
    pub(crate) fn why(&self, rule: Rule, location: &Location, intent: Intent) -> &str {
        let (tree, at) = self.tree(location);
        let names = &self.names().protected;
        let closes = |protection| intent == Intent::Write || protection == Protection::All;
        let paths = Judge::of(&tree).protected_as(&at);
        let closing = paths.iter().filter_map(|(_, path)| names.protection(path));
        if let Some(name) = closing.into_iter().find(|name| closes(name.protection)) {
            return &name.why;
        }
        match rule {
            Rule::Object => CLOSED_PLACE,
            Rule::Outside => NOT_GRANTED,
            Rule::Transit => IN_TRANSIT,
            Rule::Name
            | Rule::KeptPart
            | Rule::Structure
            | Rule::Repository
            | Rule::LinkInRepository
            | Rule::Content
            | Rule::SecondName
            | Rule::OtherArea
            | Rule::EmptyDirectories
            | Rule::OtherStorage => GIT_DECIDES,
        }
    }

    /// The verdict on a change of a file that a lease opens.
    pub(crate) fn verdict_on_leased(&self, location: &Location) -> Verdict {
        let (tree, at) = self.tree(location);
        Judge::of(&tree).may_be_leased(&at)
    }

    /// The tree for the judge, and the absolute path in it.
    fn tree(&self, location: &Location) -> (ZoneTree<'_>, PathBuf) {
        let tree = ZoneTree {
            worker: self,
            zone: location.zone,
        };
        let at = tree.root().path.join(&location.path);
        (tree, at)
    }
}
