//! Lets git make a repository: settings that are harmless become its `config`, by a file of our own.
//!
//! git writes `config.lock` and renames it. Its content is read once; what is harmless is written to a new file, which
//! nobody but this process has ever had open, and that file gets the name. So `git init` and `git clone` work, and what they
//! make cannot make the user's git run anything.

use super::call::Call;
use super::find::{Found, by_descriptor, is};
use super::{Answer, Result};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod, fstat};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use policies::{GIT_CONFIG_MAX, Protection, is_harmless_git_config};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

const CONFIG: &str = ".git/config";
const LOCK: &str = ".git/config.lock";

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
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let file = openat(&new.parent, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
        fchmod(&file, settings.mode)?;
        let path = by_descriptor(&file);
        File::from(file.try_clone().map_err(|_| Errno::EMFILE)?)
            .write_all(&settings.text)
            .map_err(super::caller::errno)?;
        if new.object.is_some() {
            unlinkat(&new.parent, &new.last(), UnlinkatFlags::NoRemoveDir)?;
        }
        linkat(AT_FDCWD, path.as_str(), &new.parent, &new.last(), AtFlags::AT_SYMLINK_FOLLOW)?;
        unlinkat(&old.parent, &old.last(), UnlinkatFlags::NoRemoveDir)?;
        Ok(Some(Answer::Value(0)))
    }
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
