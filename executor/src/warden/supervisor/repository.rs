//! Lets git make a repository or a worktree: settings that are harmless become its `config`, by a file of our own.
//!
//! git writes `config.lock` and renames it. Its content is read once; what is harmless is written to a new file, which
//! nobody but this process has ever had open, and that file gets the name. So `git init` and `git clone` work, and what they
//! make cannot make the user's git run anything.
//!
//! `git worktree add` makes two files that say where a repository is. Below `.git/worktrees/NAME` the one, `commondir`, may
//! only say `../..`; the worktree's own `.git` may only name such a directory, one that names the worktree in its turn. No
//! settings and hooks can be made in it, so nothing depends on whether the links stay.

use super::call::Call;
use super::find::{Found, by_descriptor, is};
use super::rules::{Area, Rules};
use super::{Answer, Result};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use policies::{GIT_CONFIG_MAX, Protection, is_harmless_git_config};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const CONFIG: &str = ".git/config";
const LOCK: &str = ".git/config.lock";
/// Most worktrees that wait for their link.
const WORKTREES_MAX: usize = 16;

impl Call<'_> {
    /// The rename of new settings to a repository's `config`; `None` where it is another rename, or the settings are
    /// not harmless, or those are not that they would replace.
    pub fn settle(&self, old: &Found, new: &Found, from: &Path, to: &Path) -> Result<Option<Answer>> {
        let theirs = from.ends_with(LOCK) && to.ends_with(CONFIG) && from.parent() == to.parent();
        if !theirs || old.slash || new.slash || self.rules.protection(to) != Some(Protection::Write) {
            return Ok(None);
        }
        if to.parent().is_none_or(|repository| self.rules.protection(repository).is_some()) {
            return Ok(None);
        }
        let Some(settings) = old.object.as_ref().map(harmless).transpose()?.flatten() else {
            return Ok(None);
        };
        if let Some(present) = &new.object
            && harmless(present)?.is_none()
        {
            return Ok(None);
        }
        if new.object.is_some() {
            unlinkat(&new.parent, &new.last(), UnlinkatFlags::NoRemoveDir)?;
        }
        self.place(new, to, &settings.text, settings.mode)?;
        unlinkat(&old.parent, &old.last(), UnlinkatFlags::NoRemoveDir)?;
        Ok(Some(Answer::Value(0)))
    }
}

impl Call<'_> {
    /// The opening of a file that links a worktree to its repository, to be written; `None` for every other file.
    ///
    /// What such a file may hold is known before git writes it: so it is written here, and git's own bytes go nowhere.
    pub fn link_worktree(&self, found: &Found, real: &Path, flags: OFlag) -> Result<Option<Answer>> {
        if flags & OFlag::O_ACCMODE != OFlag::O_WRONLY || self.rules.area(real).is_none() {
            return Ok(None);
        }
        let text = match found.name.as_slice() {
            b"gitdir" => {
                self.worktrees.add(real, self.rules);
                return Ok(None);
            }
            b"commondir" if is_worktree(real.parent()) => b"../..\n".to_vec(),
            b".git" => match self.worktrees.repository_of(real) {
                Some(repository) => [b"gitdir: ", repository.as_os_str().as_bytes(), b"\n"].concat(),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.rules.may_change(real.parent().ok_or(Errno::EACCES)?)?;
        self.place(found, real, &text, Mode::from_bits_truncate(0o644))?;
        let nowhere = open("/dev/null", OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Some(Answer::Descriptor(nowhere, flags.contains(OFlag::O_CLOEXEC))))
    }

    /// Makes a file of ours that no cell has ever had open.
    fn place(&self, found: &Found, real: &Path, text: &[u8], mode: Mode) -> Result<()> {
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(&found.parent, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        fchmod(&file, mode)?;
        let path = by_descriptor(&file);
        let file = File::from(file);
        (&file).write_all(text).map_err(super::caller::errno)?;
        linkat(AT_FDCWD, path.as_str(), &found.parent, &found.last(), AtFlags::AT_SYMLINK_FOLLOW)?;
        self.rules.remember(real, &file)
    }
}

/// Where git keeps the worktrees that a program has linked: the last [`WORKTREES_MAX`].
#[derive(Default)]
pub struct Worktrees(RefCell<VecDeque<PathBuf>>);

impl Worktrees {
    /// `gitdir` is about to be made. In scratch space names are not protected: nothing in a zone may lead there.
    fn add(&self, gitdir: &Path, rules: &Rules) {
        let worktree = gitdir.parent().filter(|worktree| is_worktree(Some(worktree)));
        let in_zone =
            |worktree: &&Path| matches!(rules.area(worktree), Some((Area::Project | Area::Central, _)));
        let mut all = self.0.borrow_mut();
        all.extend(worktree.filter(in_zone).map(Path::to_owned));
        if all.len() > WORKTREES_MAX {
            all.pop_front();
        }
    }

    /// The one whose `gitdir` names this file.
    fn repository_of(&self, link: &Path) -> Option<PathBuf> {
        let names = |worktree: &&PathBuf| {
            let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let gitdir = open(&worktree.join("gitdir"), flags, Mode::empty()).ok()?;
            let mut text = Vec::new();
            File::from(gitdir).take(libc::PATH_MAX as u64).read_to_end(&mut text).ok()?;
            (text.strip_suffix(b"\n")? == link.as_os_str().as_bytes()).then_some(())
        };
        self.0.borrow().iter().rev().find(|worktree| names(worktree).is_some()).cloned()
    }
}

/// Whether this is `.git/worktrees/NAME`.
fn is_worktree(directory: Option<&Path>) -> bool {
    directory.and_then(Path::parent).is_some_and(|worktrees| worktrees.ends_with(".git/worktrees"))
}

struct Settings {
    text: Vec<u8>,
    mode: Mode,
}

/// What a file holds, if that is harmless settings.
fn harmless(object: &OwnedFd) -> Result<Option<Settings>> {
    let stat = fstat(object)?;
    if !is(&stat, libc::S_IFREG) {
        return Ok(None);
    }
    let file = open(by_descriptor(object).as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    File::from(file).take(GIT_CONFIG_MAX as u64 + 1).read_to_end(&mut text).map_err(super::caller::errno)?;
    let mode = Mode::from_bits_truncate(stat.st_mode & 0o777);
    Ok(is_harmless_git_config(&text).then_some(Settings { text, mode }))
}
