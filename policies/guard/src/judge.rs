//! The judge: may this change be made? Everybody who makes changes for a session asks here, and nobody else has rules.

use crate::change::{AtRest, Change, Described, DirectoryName, Moment, New};
use crate::names::{Access, Protection, WhenNew};
use crate::search::is_git_data;
use crate::tree::{ObjectKind, Tree};
use crate::verdict::{Rule, Verdict};
use std::io;
use std::path::Path;

/// The verdict on a change in a tree.
///
/// # Errors
/// The tree's errors. They are no verdicts: what could not be asked was not decided.
pub fn judge<'c, T: Tree>(tree: &'c T, change: Change<'c, T::Handle<'c>>) -> io::Result<Verdict> {
    let judge = Judge::of(tree);
    match change {
        Change::Create { name, new, moment } => match moment {
            Moment::Before => Ok(judge.may_appear(name, new)),
            Moment::Made => Ok(judge.may_make_repository(name, new.kind())),
            Moment::Ended => judge.may_stay(name, new),
        },
        Change::Open {
            object,
            at,
            kind,
            access,
        } => judge.may_access(object, at, kind, access, WhenNew::Open),
        Change::Rename {
            object,
            from,
            to,
            replaced,
        } => judge.may_rename(object, from, to, replaced),
        Change::Link { object, at, kind } => Ok(judge.may_link(object, at, kind)),
        Change::Remove { at } => Ok(judge.may_remove(at)),
        Change::Mark { object, at, kind } => judge.may_change_metadata(object, at, kind),
        Change::Find { found, access } => Ok(may_be_used(found, access)),
        Change::TakeAway { object, at } => Ok(judge.may_take_away(object, at)),
    }
}

/// May calls read or change what a session finds when it opens? Of places and objects nothing is known yet, and nothing is a call's own.
fn may_be_used(found: AtRest<'_>, access: Access) -> Verdict {
    match found {
        AtRest::Entry { directory, name } => {
            let protection = directory.protection(name);
            Verdict::refuse_if(protection.is_some_and(|it| it.closes(access)), Rule::Name)
        }
        AtRest::Program { in_repository } => Verdict::refuse_if(
            access == Access::Write && !is_git_data(in_repository),
            Rule::Object,
        ),
    }
}

/// Answers single questions about names in a tree, for those who make what the judge has allowed.
pub struct Judge<'t, T> {
    pub(crate) tree: &'t T,
}

impl<'t, T: Tree> Judge<'t, T> {
    pub fn of(tree: &'t T) -> Self {
        Self { tree }
    }

    /// `own`: up to which rule a protected name does not close a file that the session has created.
    fn may_access(
        &self,
        object: T::Handle<'_>,
        at: &Path,
        kind: ObjectKind,
        access: Access,
        own: WhenNew,
    ) -> io::Result<Verdict> {
        let reach = Verdict::refuse_if(!self.tree.may_reach(object, at, access)?, Rule::Outside);
        reach.and_try(|| self.may_access_here(object, at, kind, access, own))
    }

    /// Decides on access where files may be seen and changed.
    fn may_access_here(
        &self,
        object: T::Handle<'_>,
        at: &Path,
        kind: ObjectKind,
        access: Access,
        own: WhenNew,
    ) -> io::Result<Verdict> {
        let closes =
            |protection: Option<Protection>| protection.is_some_and(|it| it.closes(access));
        let write = access == Access::Write;
        let keeps = || kind != ObjectKind::Directory && self.keeps_repository(at);
        let is_leased = write && self.is_leased(object, at);
        let protected = || closes(self.tree.protection_of_object(object)) && !is_leased;
        let rule = if protected() || closes(self.tree.protection_of_place(at)) {
            Rule::Object
        } else if write && self.redirects(at, kind) {
            self.rule_of_redirect(at)
        } else if write && keeps() {
            Rule::KeptPart
        } else if closes(self.protection(at)) && !is_leased && !self.is_own(object, at, own)? {
            Rule::Name
        } else if closes(self.transit(at)) {
            return Ok(self.may_touch_in_transit(at, object));
        } else {
            return Ok(Verdict::Allow);
        };
        Ok(Verdict::Refuse(rule))
    }

    /// Whether a lease lets the content of a file be changed that names close: only as long as all of these may be opened.
    fn is_leased(&self, object: T::Handle<'_>, at: &Path) -> bool {
        let names = self.tree.names(at);
        let opens = |path: &[u8]| names.protection(path).is_none() || names.opens(path);
        self.tree.is_leased(object, at) && self.protected_as(at).iter().all(|(_, path)| opens(path))
    }

    /// May a file be changed that a lease opens, whatever protects its name?
    pub fn may_be_leased(&self, at: &Path) -> Verdict {
        Verdict::refuse_if(self.keeps_repository(at), Rule::KeptPart)
    }

    /// Whether this is a file in a place where names below are protected: a file `.git` names the directory that is the repository.
    fn redirects(&self, at: &Path, kind: ObjectKind) -> bool {
        kind == ObjectKind::File && self.leads_to_protected(at)
    }

    /// May this name be created, replaced, moved or removed, as far as the name and its place decide?
    pub fn may_change(&self, at: &Path) -> Verdict {
        if self.tree.is_writable(at) || self.tree.is_enclosed() {
            self.may_use(at)
        } else {
            Verdict::Refuse(Rule::Outside)
        }
    }

    /// Is this name unprotected, or has a call of the session created it and may use it, or may one create it?
    fn may_use(&self, at: &Path) -> Verdict {
        let is_closed = || {
            self.protection(at).is_some()
                && !self.all_created(at, WhenNew::Open, |name| self.is_made_or_free(name))
        };
        self.check_place(at)
            .and(|| Verdict::refuse_if(is_closed(), Rule::Name))
    }

    fn is_made_or_free(&self, at: &Path) -> bool {
        self.tree.has_made_at(at) || self.tree.has_room(at)
    }

    /// Git fails on a directory where it expects a file.
    fn may_make(&self, at: &Path) -> Verdict {
        let name = || {
            let may = self.tree.is_writable(at)
                && self.all_created(at, WhenNew::Closed, |name| self.is_made_or_free(name));
            if may {
                Verdict::Allow
            } else {
                self.may_change(at)
            }
        };
        self.check_place(at)
            .and(|| Verdict::refuse_if(self.is_a_file_to_git(at), Rule::Name))
            .and(name)
    }

    /// Objects that a call has created may be removed, even if git created them and they are closed.
    fn may_remove(&self, at: &Path) -> Verdict {
        self.check_place(at)
            .and(|| Verdict::refuse_if(self.keeps_repository(at), Rule::KeptPart))
            .and(|| self.may_remove_name(at))
    }

    fn may_remove_name(&self, at: &Path) -> Verdict {
        let writable = self.tree.is_writable(at);
        // For most names this is all there is to ask.
        if (writable || self.tree.is_enclosed()) && self.protection(at).is_none() {
            return Verdict::Allow;
        }
        let created = || self.all_created(at, WhenNew::Closed, |name| self.tree.has_made_at(name));
        if writable && (created() || self.is_loose_in_packages(at)) {
            return Verdict::Allow;
        }
        self.may_change(at)
    }

    /// Whether only names protect it that commands may remove where packages are installed.
    fn is_loose_in_packages(&self, at: &Path) -> bool {
        self.tree.is_package(at)
            && self.protection(at) == Some(Protection::Write)
            && !self.is_closed_when_new(at)
    }

    /// Objects protected by their place when the session opened were not created by a call.
    fn check_place(&self, at: &Path) -> Verdict {
        let is_protected = self.tree.protection_of_place(at).is_some();
        Verdict::refuse_if(is_protected, Rule::Object)
    }

    /// May an object of this kind, other than an empty directory made here, have this name?
    ///
    /// Under protected names only files and directories are created. Neither a directory nor a link may come
    /// where names below are protected by their place: so no rename changes what is protected below a
    /// directory, and what was checked about a name in an open directory stays true.
    pub fn may_have(&self, at: &Path, kind: ObjectKind) -> Verdict {
        let leads = || self.reaches_below(at) || self.tree.leads_through(at);
        let protects = || match kind {
            ObjectKind::Directory => leads(),
            ObjectKind::Link => leads() || self.protection(at).is_some(),
            ObjectKind::File => self.leads_to_protected(at),
            ObjectKind::Other => {
                self.leads_to_protected(at)
                    || self.protection(at).is_some()
                    || self.is_read_by_git(at)
            }
        };
        self.may_change(at)
            .and(|| Verdict::refuse_if(protects(), Rule::Name))
    }

    /// May this come about? That a repository would come about explains more than the rule on its name.
    fn may_appear(&self, name: DirectoryName<'_, T::Handle<'_>>, new: New<'_>) -> Verdict {
        let (at, kind) = (name.path, new.kind());
        let first = match new {
            New::Directory => {
                return self
                    .may_make(at)
                    .and(|| self.may_make_repository(name, kind));
            }
            New::Link { target } => self.may_link_here(at, Some(target)),
            New::Second { kind, has_others } => {
                let protects = self.may_protect(at, kind, has_others);
                protects.and(|| self.may_be_link_here(at, kind))
            }
            New::Tree { .. } | New::Object(_) => Verdict::Allow,
        };
        first
            .and(|| self.may_come_about(name))
            .and(|| self.may_have(at, kind))
            .and(|| self.may_begin_transit(at))
            .and(|| self.may_structure(name, kind))
    }

    /// May what a call has made stay where it is now, with the call ended?
    fn may_stay(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        new: New<'_>,
    ) -> io::Result<Verdict> {
        let (at, kind) = (name.path, new.kind());
        let verdict = match new {
            New::Directory => self.may_make(at),
            New::Tree { from } => self
                .may_have(at, kind)
                .and_try(|| self.may_move_contents(name, from, at))?,
            New::Link { target } => self
                .may_have(at, kind)
                .and(|| self.may_link_here(at, Some(target))),
            New::Object(_) | New::Second { .. } => self.may_have(at, kind),
        };
        Ok(verdict.and(|| self.may_make_repository(name, kind)))
    }

    fn may_rename(
        &self,
        Described {
            object,
            kind,
            has_others,
        }: Described<T::Handle<'_>>,
        old: DirectoryName<'_, T::Handle<'_>>,
        new: DirectoryName<'_, T::Handle<'_>>,
        replaced: Option<T::Handle<'_>>,
    ) -> io::Result<Verdict> {
        let (from, to) = (old.path, new.path);
        let kept = |at| Verdict::refuse_if(self.keeps_repository(at), Rule::KeptPart);
        let verdict = self
            .may_change(from)
            .and(|| self.may_touch_in_transit(from, object))
            .and(|| kept(from))
            .and(|| self.may_protect(to, kind, has_others))
            .and(|| self.may_appear(new, New::Object(kind)));
        let verdict = match kind {
            ObjectKind::Directory => verdict
                .and_try(|| self.may_move(old))?
                .and_try(|| self.may_move_contents(old, from, to))?,
            ObjectKind::Link | ObjectKind::File | ObjectKind::Other => {
                verdict.and(|| self.may_be_link_here(to, kind))
            }
        };
        let over = |replaced| self.may_touch_in_transit(to, replaced).and(|| kept(to));
        verdict
            .and(|| replaced.map_or(Verdict::Allow, over))
            .and_try(|| self.may_bring_repositories(from, to))
    }

    /// May an object get another name there? To programs, areas look like separate file systems, so they copy.
    pub fn may_cross(&self, from: &Path, to: &Path) -> Verdict {
        Verdict::refuse_if(!self.tree.is_one_area(from, to), Rule::OtherArea)
    }

    /// May this directory be moved away? It may contain no name that is protected there, nor be the parent of what is protected by its
    /// path.
    fn may_move(&self, name: DirectoryName<'_, T::Handle<'_>>) -> io::Result<Verdict> {
        let from = name.path;
        if self.tree.holds_zone(from) || self.tree.has_place_below(from) {
            return Ok(Verdict::Refuse(Rule::Object));
        }
        // Also where mounts pin names: what the host has created or replaced since the session opened is no mount.
        self.tree.each_below(name.parent, name.name, |_, path| {
            Ok(self.may_remove(&from.join(path)))
        })
    }

    /// May this file get another name by a link?
    fn may_link(&self, object: T::Handle<'_>, at: &Path, kind: ObjectKind) -> Verdict {
        let file = || {
            if self.tree.protection_of_object(object).is_some() {
                Verdict::Refuse(Rule::Object)
            } else if self.redirects(at, kind) {
                Verdict::Refuse(self.rule_of_redirect(at))
            } else if self.keeps_repository(at) {
                Verdict::Refuse(Rule::KeptPart)
            } else {
                // In the next session, its other name would be closed too.
                Verdict::refuse_if(self.protection(at).is_some(), Rule::SecondName)
            }
        };
        self.may_use(at)
            .and(|| self.may_touch_in_transit(at, object))
            .and(file)
    }

    /// May an object get a protected name that has, or may have, another name as well? That would become closed too, and may be the
    /// user's source. To programs, protected names look like a separate file system, so they copy.
    fn may_protect(&self, at: &Path, kind: ObjectKind, has_others: bool) -> Verdict {
        let shared = kind == ObjectKind::File && has_others;
        Verdict::refuse_if(shared && self.protection(at).is_some(), Rule::SecondName)
    }

    /// The metadata of what the session has created may be changed, even under a name that is closed when new: `git init` tries a mode
    /// on the `config` that it has made, and takes a refusal for a file system without modes.
    fn may_change_metadata(
        &self,
        object: T::Handle<'_>,
        at: &Path,
        kind: ObjectKind,
    ) -> io::Result<Verdict> {
        let access = self.may_access(object, at, kind, Access::Write, WhenNew::Closed)?;
        Ok(access.and(|| Verdict::refuse_if(!self.tree.is_writable(at), Rule::Outside)))
    }

    /// May this be taken away from where a call has put it? What was protected when the session opened is the user's, and stays with all
    /// that lies around it; so does what lies where no call may change names. Names do not matter: no call could have made it otherwise.
    fn may_take_away(&self, object: Option<T::Handle<'_>>, at: &Path) -> Verdict {
        let is_protected = |object| self.tree.protection_of_object(object).is_some();
        let holds = || self.tree.has_place_below(at) || object.is_some_and(is_protected);
        Verdict::refuse_if(!self.tree.is_writable(at), Rule::Outside)
            .and(|| Verdict::refuse_if(holds(), Rule::Object))
    }
}
