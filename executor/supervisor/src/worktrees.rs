//! Where git keeps the worktrees that a program has added.
//!
//! A place is kept as a descriptor: a path that was checked may lead elsewhere when it is opened again.

use crate::areas::Area;
use crate::object::{errno, real};
use crate::rules::AccessRules;
use nix::Result;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of worktrees waiting for their link.
const WORKTREES_MAX: usize = 16;

/// The last [`WORKTREES_MAX`] of a call.
#[derive(Default)]
pub(crate) struct Worktrees(RefCell<VecDeque<OwnedFd>>);

impl Worktrees {
    /// Adds `directory`, where `gitdir` is about to be created.
    pub(crate) fn add(&self, directory: &OwnedFd) -> Result<()> {
        let mut all = self.0.borrow_mut();
        if is_worktree(Some(&real(directory)?)) {
            all.push_back(directory.try_clone().map_err(errno)?);
        }
        if all.len() > WORKTREES_MAX {
            all.pop_front();
        }
        Ok(())
    }

    /// The current path of the worktree's entry whose `gitdir` names this file. In scratch space names are
    /// not protected: no link in a zone may lead there. Git reads the path up to the end of a line.
    pub(crate) fn repository_of(&self, link: &Path, rules: &AccessRules) -> Option<PathBuf> {
        let found = |directory: &OwnedFd| {
            let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let gitdir = openat(directory, "gitdir", flags, Mode::empty()).ok()?;
            let mut text = Vec::new();
            File::from(gitdir)
                .take(libc::PATH_MAX as u64)
                .read_to_end(&mut text)
                .ok()?;
            let path = real(directory).ok()?;
            let in_zone = matches!(
                rules.areas.of(&path),
                Some((Area::Project | Area::Central, _))
            );
            let plain = !path.as_os_str().as_bytes().iter().any(u8::is_ascii_control);
            let names_it = text.strip_suffix(b"\n")? == link.as_os_str().as_bytes();
            (names_it && in_zone && plain && is_worktree(Some(&path))).then_some(path)
        };
        self.0.borrow().iter().rev().find_map(found)
    }
}

/// Whether this is `.git/worktrees/NAME`.
pub(crate) fn is_worktree(directory: Option<&Path>) -> bool {
    directory
        .and_then(Path::parent)
        .is_some_and(|worktrees| worktrees.ends_with(".git/worktrees"))
}
