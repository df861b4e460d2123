//! Rules on repositories by their structure: none comes about where the settings that git would run are unprotected, or over a directory
//! that no call has made, and those that no call has created stay repositories. Git ignores an invalid `.git`, and uses what it finds above.
//!
//! A directory in which a repository may come about is judged as an object (a call has made it) and by its path (none was there before):
//! neither does a command get a repository into a directory that it did not make, nor a directory that it made over one that was there.
//! Over a directory of the user's it would be the one that the user's git takes there, with the index, the remotes and the state that a
//! command has written. An object that is moved below a repository that a command has made leaves its old path, so that is allowed.

use crate::change::DirectoryName;
use crate::judge::Judge;
use crate::names::Protection;
use crate::repository::{
    Member, MemberKind, Repository, is_in_git_directory, leads_to_git_place, may_be_git_directory,
};
use crate::search::is_rerere_list;
use crate::tree::{ObjectKind, Tree};
use crate::verdict::{Rule, Verdict};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl<T: Tree> Judge<'_, T> {
    /// May a name of this kind come about, as far as that makes its directory a repository?
    ///
    /// `HEAD` comes only below a directory that is called `.git` or `NAME.git`: so no directory is on its way to a repository
    /// that can be given another name later.
    pub(crate) fn may_make_repository(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        kind: ObjectKind,
    ) -> Verdict {
        self.may_come_about(name)
            .and(|| self.may_structure(name, kind))
    }

    /// Decides as far as only the structure counts.
    pub(crate) fn may_structure(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        kind: ObjectKind,
    ) -> Verdict {
        let (Some((repository, member)), Some(directory)) = (member(name.path), name.path.parent())
        else {
            return Verdict::Allow;
        };
        if !self.is_in_zone(directory) {
            return Verdict::Allow;
        }
        let is_head = member.kind == MemberKind::Head;
        let outside = is_head && !self.is_in_git(directory) && !self.tree.was_repository(directory);
        let has = |member: Member| self.tree.has(name.parent, member.name);
        let refused = is_head && !self.tree.may_write_heads()
            || match self.may_be_git(directory) {
                true => kind != kind_of(member),
                false => outside || repository.is_completed_by(member, has),
            };
        Verdict::refuse_if(refused, Rule::Structure)
    }

    /// May a repository come about with a new name? By that name it is one over the directory; as a part of the structure it makes the
    /// directory itself one.
    pub fn may_come_about(&self, name: DirectoryName<'_, T::Handle<'_>>) -> Verdict {
        let (parent, Some(last), Some(directory)) =
            (name.parent, name.path.file_name(), name.path.parent())
        else {
            return Verdict::Allow;
        };
        if !self.is_in_zone(directory) {
            return Verdict::Allow;
        }
        let last = last.as_bytes();
        let may = if Repository::by_name(last).is_some() {
            self.tree.is_new_directory(parent, directory)
        } else if let Some((repository, member)) = Repository::member(last) {
            self.tree.was_repository(directory)
                || !repository.is_completed_by(member, |other| self.tree.has(parent, other.name))
                || self.tree.has_made(parent) && !self.is_over_another(directory)
        } else {
            true
        };
        Verdict::refuse_if(!may, Rule::Repository)
    }

    /// The rule by which a file that would name a repository is refused. Only for the text: it is refused in any case.
    pub(crate) fn rule_of_redirect(&self, at: &Path) -> Rule {
        let verdict = at.parent().zip(at.file_name()).and_then(|(above, name)| {
            self.tree.in_directory(above, |parent| {
                let path = at;
                self.may_come_about(DirectoryName { parent, name, path })
            })
        });
        match verdict {
            Some(Verdict::Refuse(rule)) => rule,
            Some(Verdict::Allow) | None => Rule::Name,
        }
    }

    /// May what is `from` be called `to`? No repository that a call has made may come over a directory that was there before.
    pub(crate) fn may_bring_repositories(&self, from: &Path, to: &Path) -> io::Result<Verdict> {
        let moved = self.tree.repositories_moved(from, to)?;
        let over = moved.iter().any(|path| self.is_over_another(path));
        Ok(Verdict::refuse_if(over, Rule::Repository))
    }

    /// Whether a repository at this path is one over a directory that was there when the session opened.
    fn is_over_another(&self, repository: &Path) -> bool {
        let directory = if is_named(repository) {
            repository.parent()
        } else {
            Some(repository)
        };
        directory.is_some_and(|directory| self.tree.was_directory(directory))
    }

    /// Whether a new name may become a repository, of which the session keeps a record.
    pub fn may_become_repository(&self, at: &Path) -> bool {
        (is_named(at) || may_be_git_directory(at.as_os_str().as_bytes())) && self.is_in_zone(at)
    }

    /// Whether a path lies in a zone.
    pub fn is_in_zone(&self, at: &Path) -> bool {
        self.tree.in_zones(at).next().is_some()
    }

    /// May a directory be moved to `to`, with what is in it?
    pub(crate) fn may_move_contents(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        from: &Path,
        to: &Path,
    ) -> io::Result<Verdict> {
        self.may_move_places(name, from, to)?
            .and_try(|| self.may_move_heads(name, from, to))?
            .and_try(|| self.may_move_links(name, from, to))
    }

    /// No `HEAD` in it may come where none may be created: the other parts of a repository may be added at any time, by another session
    /// too.
    fn may_move_heads(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        from: &Path,
        to: &Path,
    ) -> io::Result<Verdict> {
        let called_git = |path: &Path| {
            path.file_name()
                .is_some_and(|name| may_be_git_directory(name.as_bytes()))
        };
        let was_in_git = self.is_in_git(from) || self.tree.was_repository(from);
        if !was_in_git || called_git(from) && called_git(to) {
            return Ok(Verdict::Allow);
        }
        self.tree
            .each_below(name.parent, name.name, |directory, path| {
                let Some((repository, head)) =
                    member(path).filter(|(_, member)| member.kind == MemberKind::Head)
                else {
                    return Ok(Verdict::Allow);
                };
                let to = to.join(path);
                let Some(above) = to.parent() else {
                    return Ok(Verdict::Refuse(Rule::Structure));
                };
                let has = |member: Member| self.tree.has(directory, member.name);
                let open = || self.is_in_git(above) && !repository.is_completed_by(head, has);
                let refused = !self.may_be_git(above) && !open();
                Ok(Verdict::refuse_if(refused, Rule::Structure))
            })
    }

    /// Decides for a directory above Cargo's repositories, which are such by their place: no move brings what lies in it to such a
    /// place or away from one.
    fn may_move_places(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        from: &Path,
        to: &Path,
    ) -> io::Result<Verdict> {
        let leads = |path: &Path| leads_to_git_place(path.as_os_str().as_bytes());
        if !leads(from) && !leads(to) {
            return Ok(Verdict::Allow);
        }
        self.tree.each_below(name.parent, name.name, |_, path| {
            let stays = self.is_in_git(&from.join(path)) == self.is_in_git(&to.join(path));
            Ok(Verdict::refuse_if(!stays, Rule::Structure))
        })
    }

    /// No links come into a repository, nor what is too large to be checked.
    fn may_move_links(
        &self,
        name: DirectoryName<'_, T::Handle<'_>>,
        from: &Path,
        to: &Path,
    ) -> io::Result<Verdict> {
        if self.is_in_git(from) || !self.is_in_git(to) {
            return Ok(Verdict::Allow);
        }
        self.tree
            .each_below(name.parent, name.name, |directory, path| {
                let kind = self
                    .tree
                    .kind(directory, path.file_name().unwrap_or_default())?;
                let ordinary = matches!(kind, ObjectKind::File | ObjectKind::Directory);
                Ok(Verdict::refuse_if(!ordinary, Rule::LinkInRepository))
            })
    }

    /// May a link be created here? The user's git writes through links in its directory: what it appends to `logs` or renames to
    /// `packed-refs` would go to their targets. `git init` creates a link with the text `testing`, to see whether it can.
    pub(crate) fn may_link_here(&self, at: &Path, target: Option<&[u8]>) -> Verdict {
        let harmless = target == Some(b"testing") || !self.is_in_git(at);
        Verdict::refuse_if(!harmless, Rule::LinkInRepository)
    }

    /// Decides for an object that exists and may be a link.
    pub(crate) fn may_be_link_here(&self, at: &Path, kind: ObjectKind) -> Verdict {
        if kind == ObjectKind::Link {
            self.may_link_here(at, None)
        } else {
            Verdict::Allow
        }
    }

    /// Whether the user's git reads a file with this name: on a FIFO it would block for ever.
    pub(crate) fn is_read_by_git(&self, at: &Path) -> bool {
        const FILES: [&str; 4] = [".gitignore", ".gitattributes", ".gitmodules", ".mailmap"];
        let named = |name: &OsStr| FILES.iter().any(|file| name.eq_ignore_ascii_case(file));
        self.is_in_zone(at) && (self.is_in_git(at) || at.file_name().is_some_and(named))
    }

    /// Whether this name is a necessary part of a repository that no call has created: it is kept, and only a valid `HEAD` replaces one.
    /// For those who write no `HEAD`, every such name is one.
    pub(crate) fn keeps_repository(&self, at: &Path) -> bool {
        let (Some((_, member)), Some(directory)) = (member(at), at.parent()) else {
            return false;
        };
        let kept = || self.may_be_git(directory) && !self.tree.has_made_at(directory);
        match member.kind {
            MemberKind::Head => !self.tree.may_write_heads() || kept(),
            MemberKind::Directory => kept(),
            MemberKind::File => false,
        }
    }

    /// Whether this is a repository's `HEAD`.
    pub fn is_git_head(&self, at: &Path) -> bool {
        member(at).is_some_and(|(_, member)| member.kind == MemberKind::Head)
            && at
                .parent()
                .is_some_and(|directory| self.may_be_git(directory))
    }

    /// Whether this is a repository's `config`, with that name protected and none above it.
    pub fn is_git_config(&self, at: &Path) -> bool {
        let config = |path: &[u8]| Path::new(OsStr::from_bytes(path)).ends_with(".git/config");
        self.protected_as(at).iter().any(|(_, path)| config(path))
            && self.protection(at) == Some(Protection::Write)
            && self.is_below_nothing(at)
    }

    /// Whether this file lists the conflicts that git's `rerere` is to record in a repository, and no name above it is protected.
    pub fn is_rerere_state(&self, at: &Path) -> bool {
        at.file_name().is_some_and(is_rerere_list)
            && self.ends_a_rule_of_git(at, |_| true)
            && self.is_below_nothing(at)
    }

    /// Whether a protected name is a part of a repository that must be a file: all but `hooks`.
    pub(crate) fn is_a_file_to_git(&self, at: &Path) -> bool {
        self.ends_a_rule_of_git(at, |path| !path.ends_with(b"/hooks"))
    }

    fn ends_a_rule_of_git(&self, at: &Path, is_meant: impl Fn(&[u8]) -> bool) -> bool {
        self.protected_as(at).iter().any(|(_, path)| {
            is_in_git_directory(path) && is_meant(path) && self.ends_a_rule(at, path)
        })
    }

    fn is_below_nothing(&self, at: &Path) -> bool {
        at.parent()
            .is_some_and(|above| self.protection(above).is_none())
    }

    /// Whether a directory may be a repository: what it makes git run is protected there.
    pub fn may_be_git(&self, directory: &Path) -> bool {
        self.protected_as(directory)
            .iter()
            .any(|(_, path)| may_be_git_directory(path))
            || self.tree.was_repository(directory)
    }

    /// Whether a path lies in a repository, by a name or by an equivalent path: there `HEAD` may be an ordinary name.
    pub fn is_in_git(&self, at: &Path) -> bool {
        self.protected_as(at)
            .iter()
            .any(|(_, path)| is_in_git_directory(path))
    }
}

/// The member that a path is of the repository that its directory may be.
fn member(at: &Path) -> Option<(&'static Repository, Member)> {
    Repository::member(at.file_name()?.as_bytes())
}

/// Whether a directory of this name is a repository over the one above it.
fn is_named(at: &Path) -> bool {
    at.file_name()
        .is_some_and(|name| Repository::by_name(name.as_bytes()).is_some())
}

/// The kind of object that the program creates for a part.
fn kind_of(member: Member) -> ObjectKind {
    match member.kind {
        MemberKind::Head | MemberKind::File => ObjectKind::File,
        MemberKind::Directory => ObjectKind::Directory,
    }
}
