//! A file that is invisible until it is complete: filled, flushed to disk, and only then given its name.
//!
//! It has no name at all if the file system supports that (`O_TMPFILE`), so that nothing is left
//! behind whenever the process ends. Otherwise, or if an open file cannot be linked, it has a
//! random name beside its target, which is removed again unless it was renamed to the target.

use crate::root::open_beneath;
use executor_sys::errno::errno;
use executor_sys::random;
use executor_sys::stale_temporaries::{DIGITS, PREFIX};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, renameat};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Maximum attempts to find a free random name.
const ATTEMPTS: usize = 16;

/// Whether a file must survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    OnDisk,
    UntilPowerCut,
}

/// A new file in `directory` that contains `content` and does not have its name yet.
pub(crate) struct TemporaryFile<'a> {
    directory: &'a OwnedFd,
    content: &'a [u8],
    /// Its permissions; those of a new file if absent.
    mode: Option<Mode>,
    durability: Durability,
    file: File,
    /// Its random name beside the target, to be removed.
    name: Option<String>,
}

impl<'a> TemporaryFile<'a> {
    /// Writes `content` to a new file and to the disk.
    pub(crate) fn new(
        directory: &'a OwnedFd,
        content: &'a [u8],
        mode: Option<Mode>,
    ) -> Result<Self, Errno> {
        Self::begin(directory, content, mode, Durability::OnDisk)
    }

    /// Writes `content` to a new file that only its owner may read, and that a power cut may lose.
    pub(crate) fn not_durable(directory: &'a OwnedFd, content: &'a [u8]) -> Result<Self, Errno> {
        Self::begin(
            directory,
            content,
            Some(private_file()),
            Durability::UntilPowerCut,
        )
    }

    fn begin(
        directory: &'a OwnedFd,
        content: &'a [u8],
        mode: Option<Mode>,
        durability: Durability,
    ) -> Result<Self, Errno> {
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY;
        match open_beneath(directory, Path::new(""), flags, new_file()) {
            // The errors of kernels and file systems that lack it.
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL | Errno::ENOENT) => {
                Self::with_name(directory, content, mode, durability)
            }
            opened => Self {
                directory,
                content,
                mode,
                durability,
                file: opened?.into(),
                name: None,
            }
            .filled(),
        }
    }

    /// Makes one with a random name from the beginning.
    pub(crate) fn with_name(
        directory: &'a OwnedFd,
        content: &'a [u8],
        mode: Option<Mode>,
        durability: Durability,
    ) -> Result<Self, Errno> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY;
        for _ in 0..ATTEMPTS {
            let name = random_name()?;
            match open_beneath(directory, Path::new(&name), flags, new_file()) {
                Err(Errno::EEXIST) => {}
                opened => {
                    let file = opened?.into();
                    return Self {
                        directory,
                        content,
                        mode,
                        durability,
                        file,
                        name: Some(name),
                    }
                    .filled();
                }
            }
        }
        Err(Errno::EEXIST)
    }

    fn filled(mut self) -> Result<Self, Errno> {
        self.file.write_all(self.content).map_err(errno)?;
        if let Some(mode) = self.mode {
            fchmod(&self.file, mode)?;
        }
        if self.durability == Durability::OnDisk {
            self.file.sync_all().map_err(errno)?;
        }
        Ok(self)
    }

    /// Gives it `name`, which must be free; otherwise `EEXIST`.
    pub(crate) fn create(self, name: &OsStr) -> Result<(), Errno> {
        match self.link(name) {
            Err(errno) if self.name.is_none() && cannot_link(errno) => {
                Self::with_name(self.directory, self.content, self.mode, self.durability)?
                    .create(name)
            }
            // The file system has no links at all. A file that got the name at this very moment is lost.
            Err(Errno::EPERM | Errno::EOPNOTSUPP) => self.rename(name),
            linked => linked,
        }
    }

    /// Gives it `name`, replacing the present file of that name.
    pub(crate) fn replace(self, name: &OsStr) -> Result<(), Errno> {
        self.named()?.rename(name)
    }

    /// Makes sure that it has a random name.
    fn named(mut self) -> Result<Self, Errno> {
        for _ in 0..ATTEMPTS {
            if self.name.is_some() {
                return Ok(self);
            }
            let name = random_name()?;
            match self.link(OsStr::new(&name)) {
                Ok(()) => self.name = Some(name),
                Err(Errno::EEXIST) => {}
                Err(errno) if cannot_link(errno) => {
                    return Self::with_name(
                        self.directory,
                        self.content,
                        self.mode,
                        self.durability,
                    );
                }
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EEXIST)
    }

    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        if let Some(own) = &self.name {
            return linkat(
                self.directory,
                own.as_str(),
                self.directory,
                name,
                AtFlags::empty(),
            );
        }
        match linkat(&self.file, "", self.directory, name, AtFlags::AT_EMPTY_PATH) {
            // Before Linux 6.10 that needs a capability.
            Err(Errno::ENOENT | Errno::EPERM) => {
                let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(
                    AT_FDCWD,
                    open.as_str(),
                    self.directory,
                    name,
                    AtFlags::AT_SYMLINK_FOLLOW,
                )
            }
            linked => linked,
        }
    }

    fn rename(mut self, name: &OsStr) -> Result<(), Errno> {
        let own = self.name.as_deref().ok_or(Errno::ENOENT)?;
        renameat(self.directory, own, self.directory, name)?;
        self.name = None;
        Ok(())
    }
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // A failure is ignored: the directory is gone or has become read-only.
            let _ = unlinkat(self.directory, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Whether this error means that a file without a name cannot get one here: no right to, no `/proc`, or no links on this file system.
fn cannot_link(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOENT | Errno::EPERM | Errno::EACCES | Errno::EOPNOTSUPP | Errno::EXDEV
    )
}

/// Permissions of a new file, before the umask.
fn new_file() -> Mode {
    Mode::from_bits_truncate(0o666)
}

/// Permissions of what only its owner may read.
pub(crate) fn private_file() -> Mode {
    Mode::S_IRUSR | Mode::S_IWUSR
}

/// A name that cannot be guessed; creating it shows whether it is free.
fn random_name() -> Result<String, Errno> {
    let number = u64::from_le_bytes(random::bytes().map_err(errno)?);
    Ok(format!("{PREFIX}{number:0DIGITS$x}"))
}
