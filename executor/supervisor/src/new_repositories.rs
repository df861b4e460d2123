//! Where a repository may come about: only in a directory that a call of the session has made. Over a directory of the user's it would be
//! the one that the user's git takes there, with the index, the remotes and the state that a command has written.
//!
//! A directory is judged as an object (a cell has made it) and by its path (none was there before): neither does a command get a
//! repository into a directory that it did not make, nor a directory that it made over one that was there. What is moved below a
//! repository that a command has made leaves its old path, so that is allowed.

use crate::caller::PATH_ONLY;
use crate::rules::AccessRules;
use nix::Result;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstatat};
use policies_guard::{Repository, Rule, Verdict, may_be_git_directory};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

impl AccessRules {
    /// May a repository come about with the new name `real` in the directory `parent`? By that name it is one over `parent`; as
    /// a part of the structure it makes `parent` itself one.
    pub(crate) fn may_come_about(&self, parent: &OwnedFd, real: &Path) -> Verdict {
        let (Some(name), Some(directory)) = (real.file_name(), real.parent()) else {
            return Verdict::Allow;
        };
        if self.areas.in_zones(directory).next().is_none() {
            return Verdict::Allow;
        }
        let name = name.as_bytes();
        let may = if Repository::by_name(name).is_some() {
            self.directories.is_new(parent, directory)
        } else if let Some((repository, member)) = Repository::member(name) {
            let has = |name: &str| fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok();
            self.repositories.contains(directory)
                || !repository.is_completed_by(member, |other| has(other.name))
                || self.created.has(parent) && !self.is_over_another(directory)
        } else {
            true
        };
        Verdict::refuse_if(!may, Rule::Repository)
    }

    /// The rule by which a file that would name a repository is refused. Only for the text: it is refused in any case.
    pub(crate) fn rule_of_redirect(&self, real: &Path) -> Rule {
        let open = |path| open(path, PATH_ONLY | OFlag::O_NOFOLLOW, Mode::empty()).ok();
        let parent = real.parent().and_then(open);
        match parent.map(|parent| self.may_come_about(&parent, real)) {
            Some(Verdict::Refuse(rule)) => rule,
            Some(Verdict::Allow) | None => Rule::Name,
        }
    }

    /// May what is `from` be called `to`? No repository that a call has made may come over a directory that was there before.
    pub(crate) fn may_bring_repositories(&self, from: &Path, to: &Path) -> Result<Verdict> {
        let over = self
            .made_repositories
            .moved(from, to)?
            .iter()
            .any(|path| self.is_over_another(path));
        Ok(Verdict::refuse_if(over, Rule::Repository))
    }

    /// Whether a repository at this path is one over a directory that was there when the session opened.
    fn is_over_another(&self, repository: &Path) -> bool {
        let named = repository
            .file_name()
            .is_some_and(|name| Repository::by_name(name.as_bytes()).is_some());
        let directory = if named {
            repository.parent()
        } else {
            Some(repository)
        };
        directory.is_some_and(|directory| self.directories.was_there(directory))
    }

    /// Records a directory that was just made in a zone.
    pub(crate) fn remember_directory(&self, real: &Path, made: impl AsFd) {
        if self.areas.in_zones(real).next().is_some() {
            self.directories.add(made);
        }
    }

    /// Records a name that is about to be made, if it may become a repository.
    pub(crate) fn remember_repository(&self, real: &Path) -> Result<()> {
        let by_name = real
            .file_name()
            .is_some_and(|name| Repository::by_name(name.as_bytes()).is_some());
        let is_one = by_name || may_be_git_directory(real.as_os_str().as_bytes());
        if is_one && self.areas.in_zones(real).next().is_some() {
            return self.made_repositories.add(real);
        }
        Ok(())
    }
}
