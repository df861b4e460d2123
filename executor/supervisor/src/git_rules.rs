//! Rules on repositories by their structure: none is created where the settings that git would run are unprotected, and
//! those that no cell has created stay repositories. Git ignores an invalid `.git`, and uses what it finds above.

use crate::entries::each_entry;
use crate::object::is;
use crate::rules::AccessRules;
use nix::Result;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use policies_guard::{
    Member, MemberKind, Protection, Repository, Rule, Verdict, is_in_git_directory,
    leads_to_git_place, may_be_git_directory,
};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl AccessRules {
    /// May a name of this kind (`S_IF*`) be created in the directory `parent`, as far as that makes it a repository?
    ///
    /// `HEAD` comes only below a directory that is called `.git` or `NAME.git`: so no directory is on its way to a repository
    /// that can be given another name later.
    pub(crate) fn may_shape(&self, parent: &OwnedFd, real: &Path, kind: libc::mode_t) -> Verdict {
        self.may_come_about(parent, real)
            .and(|| self.may_structure(parent, real, kind))
    }

    /// The same, as far as only the structure counts.
    pub(crate) fn may_structure(
        &self,
        parent: &OwnedFd,
        real: &Path,
        kind: libc::mode_t,
    ) -> Verdict {
        let (Some((repository, member)), Some(directory)) = (member(real), real.parent()) else {
            return Verdict::Allow;
        };
        if self.areas.in_zones(directory).next().is_none() {
            return Verdict::Allow;
        }
        let head = member.kind == MemberKind::Head;
        let outside = head && !self.is_in_git(directory) && !self.was_git(directory);
        let has = |member: Member| has(parent, member);
        let refused = match self.may_be_git(directory) {
            true => kind != kind_of(member),
            false => outside || repository.is_completed_by(member, has),
        };
        Verdict::refuse_if(refused, Rule::Structure)
    }

    /// May the directory `name` of `parent` be moved to `to`? No `HEAD` in it may come where none may be
    /// created: the other parts of a repository may be added at any time, by another session too.
    pub(crate) fn may_carry(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        from: &Path,
        to: &Path,
    ) -> Result<Verdict> {
        let places = self.may_carry_places(parent, name, from, to)?;
        places.and_try(|| self.may_carry_heads(parent, name, from, to))
    }

    fn may_carry_heads(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        from: &Path,
        to: &Path,
    ) -> Result<Verdict> {
        let called_git = |path: &Path| {
            path.file_name()
                .is_some_and(|name| may_be_git_directory(name.as_bytes()))
        };
        if !self.is_in_git(from) && !self.was_git(from) || called_git(from) && called_git(to) {
            return Ok(Verdict::Allow);
        }
        each_entry(parent, name, |directory, path| {
            let Some((repository, head)) =
                member(path).filter(|(_, member)| member.kind == MemberKind::Head)
            else {
                return Ok(Verdict::Allow);
            };
            let to = to.join(path);
            let may_be = to
                .parent()
                .is_some_and(|directory| self.may_be_git(directory));
            let in_git = || {
                to.parent()
                    .is_some_and(|directory| self.is_in_git(directory))
            };
            let open =
                || in_git() && !repository.is_completed_by(head, |member| has(directory, member));
            Ok(Verdict::refuse_if(!may_be && !open(), Rule::Structure))
        })
    }

    /// The same for a directory above Cargo's repositories, which are such by their place: no move brings what lies in it to such a
    /// place or away from one.
    fn may_carry_places(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        from: &Path,
        to: &Path,
    ) -> Result<Verdict> {
        let leads = |path: &Path| leads_to_git_place(path.as_os_str().as_bytes());
        if !leads(from) && !leads(to) {
            return Ok(Verdict::Allow);
        }
        each_entry(parent, name, |_, path| {
            let stays = self.is_in_git(&from.join(path)) == self.is_in_git(&to.join(path));
            Ok(Verdict::refuse_if(!stays, Rule::Structure))
        })
    }

    /// May a link be created here? The user's git writes through links in its directory: what it appends to `logs` or renames to
    /// `packed-refs` would go to their targets. `git init` creates a link with the text `testing`, to see whether it can.
    pub(crate) fn may_link_here(&self, real: &Path, target: Option<&[u8]>) -> Verdict {
        let harmless = target == Some(b"testing") || !self.is_in_git(real);
        Verdict::refuse_if(!harmless, Rule::LinkInRepository)
    }

    /// May the directory `name` of `parent` be moved to `to`, if it contains links, or is too large to be checked?
    pub(crate) fn may_carry_links(
        &self,
        parent: &OwnedFd,
        name: &OsStr,
        from: &Path,
        to: &Path,
    ) -> Result<Verdict> {
        if self.is_in_git(from) || !self.is_in_git(to) {
            return Ok(Verdict::Allow);
        }
        each_entry(parent, name, |directory, path| {
            let name = path.file_name().unwrap_or_default();
            let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            let ordinary = is(&stat, libc::S_IFREG) || is(&stat, libc::S_IFDIR);
            Ok(Verdict::refuse_if(!ordinary, Rule::LinkInRepository))
        })
    }

    /// Whether the user's git reads a file with this name: on a FIFO it would block for ever.
    pub(crate) fn is_read_by_git(&self, real: &Path) -> bool {
        const FILES: [&str; 4] = [".gitignore", ".gitattributes", ".gitmodules", ".mailmap"];
        let in_zone = self.areas.in_zones(real).next().is_some();
        let named = |name: &OsStr| FILES.iter().any(|file| name.eq_ignore_ascii_case(file));
        in_zone && (self.is_in_git(real) || real.file_name().is_some_and(named))
    }

    /// Whether this name is a necessary part of a repository that no cell has created: it is kept, and only a valid `HEAD` replaces one.
    pub(crate) fn keeps_repository(&self, real: &Path) -> bool {
        let (Some((_, member)), Some(directory)) = (member(real), real.parent()) else {
            return false;
        };
        match member.kind {
            MemberKind::Head | MemberKind::Directory => {
                self.may_be_git(directory) && !self.created.has_at(directory)
            }
            MemberKind::File => false,
        }
    }

    /// Whether this is a repository's `HEAD`.
    pub(crate) fn is_git_head(&self, real: &Path) -> bool {
        member(real).is_some_and(|(_, member)| member.kind == MemberKind::Head)
            && real
                .parent()
                .is_some_and(|directory| self.may_be_git(directory))
    }

    /// Whether this is a repository's `config`, with that name protected and none above it.
    pub(crate) fn is_git_config(&self, real: &Path) -> bool {
        let config = |path: &[u8]| Path::new(OsStr::from_bytes(path)).ends_with(".git/config");
        self.protected_as(real).iter().any(|(_, path)| config(path))
            && self.protection(real) == Some(Protection::Write)
            && real
                .parent()
                .is_some_and(|repository| self.protection(repository).is_none())
    }

    /// Whether this file lists the conflicts that git's `rerere` is to record in a repository, and no name above it is protected.
    pub(crate) fn is_rerere_state(&self, real: &Path) -> bool {
        real.file_name()
            .is_some_and(|name| name.eq_ignore_ascii_case("MERGE_RR"))
            && self
                .protected_as(real)
                .iter()
                .any(|(_, path)| is_in_git_directory(path) && self.ends_a_rule(real, path))
            && real
                .parent()
                .is_some_and(|repository| self.protection(repository).is_none())
    }

    /// Whether a protected name is a part of a repository that must be a file: all but `hooks`.
    pub(crate) fn is_a_file_to_git(&self, real: &Path) -> bool {
        self.protected_as(real).iter().any(|(_, path)| {
            is_in_git_directory(path) && !path.ends_with(b"/hooks") && self.ends_a_rule(real, path)
        })
    }

    /// Records a directory that was just created, if it may become a repository: the session's own.
    pub(crate) fn remember_git(&self, real: &Path, made: impl AsFd) -> Result<()> {
        if self.may_be_git(real) {
            self.created.add(made)
        } else {
            Ok(())
        }
    }

    /// Whether a directory may be a repository: what it makes git run is protected there.
    fn may_be_git(&self, directory: &Path) -> bool {
        self.protected_as(directory)
            .iter()
            .any(|(_, path)| may_be_git_directory(path))
            || self.was_git(directory)
    }

    /// Whether a path lies in a repository, by a name or by an equivalent path: there `HEAD` may be an ordinary name.
    pub(crate) fn is_in_git(&self, path: &Path) -> bool {
        self.protected_as(path)
            .iter()
            .any(|(_, path)| is_in_git_directory(path))
    }

    /// Whether a directory was a repository when the session opened, whatever its name.
    fn was_git(&self, directory: &Path) -> bool {
        self.repositories.contains(directory)
    }
}

/// What a path is to the repository that its directory may be.
fn member(real: &Path) -> Option<(&'static Repository, Member)> {
    Repository::member(real.file_name()?.as_bytes())
}

/// The kind (`S_IF*`) of file that the program creates for a part.
fn kind_of(member: Member) -> libc::mode_t {
    match member.kind {
        MemberKind::Head | MemberKind::File => libc::S_IFREG,
        MemberKind::Directory => libc::S_IFDIR,
    }
}

/// Whether a directory has a part of a repository's structure; a link counts as its target.
fn has(directory: impl AsFd, member: Member) -> bool {
    fstatat(directory, member.name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
}
