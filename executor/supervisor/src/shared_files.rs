//! Files with names elsewhere. Package stores, `git clone` of a path and backups link files, so a change through the name in a zone would
//! change what lies outside. Such a file is copied before it is changed, and the copy takes its name.
//!
//! A file is a zone's own if it has as many links as names that are found there now: the one by which it was reached, and those that the
//! session's commands have made (`link_names.rs`). Its links are counted first. Under the lock on names no cell adds one, and a name that
//! goes takes its link along, so a name elsewhere is never taken for one that went.
//!
//! *Does not*: look at files that are only read; see names that the host adds while a command has the file open for writing; work on
//! file systems that do not count links.

use crate::answer::unnoted;
use crate::object::{by_descriptor, errno, is, real};
use crate::rules::AccessRules;
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind;
use executor_spec::refusals::Cause;
use executor_sys::file::open_without_links;
use executor_sys::stale_temporaries::{DIGITS, PREFIX};
use executor_sys::{file, random};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{Gid, UnlinkatFlags, fchown, linkat, unlinkat};
use policies::Access;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How often another file may get the name while a copy is made.
const TRIES: usize = 8;
/// Maximum bytes of the names of a file's attributes, and of the value of one (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const ATTRIBUTE_MAX: usize = 65536;
/// Maximum number of attributes that are copied.
const ATTRIBUTES_MAX: usize = 64;
const ACL: &CStr = c"system.posix_acl_access";

/// A file in a directory, by its name there.
struct NamedFile {
    directory: OwnedFd,
    name: OsString,
}

impl NamedFile {
    fn of(path: &Path) -> Result<Self> {
        let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::EPERM)?;
        Ok(Self {
            directory: open_without_links(parent)?,
            name: name.to_owned(),
        })
    }

    /// What has the name now.
    fn object(&self) -> Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat(&self.directory, self.name.as_os_str(), flags, Mode::empty())
    }
}

impl AccessRules {
    /// Whether a file with this state may have names where no command may change it.
    pub(crate) fn is_shared(&self, object: &OwnedFd, stat: &FileStat) -> Result<bool> {
        // Of one link, the name by which it was reached is the one if it is still there after the link was counted.
        if stat.st_nlink == 0 || stat.st_nlink == 1 && !is_removed(&real(object)?) {
            return Ok(false);
        }
        let _lock = self.lock_renames()?;
        let links = || fstat(object).map(|stat| stat.st_nlink);
        let before = links()?;
        let names = self.names_of(object, stat)?;
        // Cells of another session do not wait for the lock.
        Ok(names < before || links()? > before)
    }

    /// Number of names that lead to a file where commands may change it. Called under the lock.
    fn names_of(&self, object: &OwnedFd, stat: &FileStat) -> Result<libc::nlink_t> {
        let mut paths = self.link_names.of(stat);
        paths.insert(real(object)?);
        let leading = paths
            .iter()
            .filter_map(|path| open_without_links(path).ok());
        let leading: Vec<_> = leading.filter(|other| is_file(other, stat)).collect();
        let mut names = BTreeSet::new();
        for other in &leading {
            // If the directory ignores case, two paths lead to one name. The kernel reports one path for them while both are open.
            let path = real(other)?;
            let is_there = || {
                !is_removed(&path) || open_without_links(&path).is_ok_and(|now| is_file(&now, stat))
            };
            if self.is_changeable(&path) && is_there() {
                let place = NamedFile::of(&path)?;
                let directory = fstat(&place.directory)?;
                names.insert((directory.st_dev, directory.st_ino, place.name));
            }
        }
        Ok(names.len() as libc::nlink_t)
    }

    fn is_changeable(&self, path: &Path) -> bool {
        match self.areas.of(path) {
            Some((_, access)) => access == Access::Write,
            // Private storage that has no path on the machine.
            None => self.areas.own_root,
        }
    }

    /// Records the names of a file that was just linked from one to the other.
    pub(crate) fn remember_link(&self, stat: &FileStat, from: &Path, to: &Path) {
        if is(stat, libc::S_IFREG) {
            if stat.st_nlink > 0 {
                self.link_names.add(stat, from);
            }
            self.link_names.add(stat, to);
        }
    }

    /// Records the names of a file, or of files below a directory, that was just moved.
    pub(crate) fn remember_moved_links(&self, stat: &FileStat, from: &Path, to: &Path) {
        if is(stat, libc::S_IFDIR) {
            self.link_names.follow(from, to);
        } else if is(stat, libc::S_IFREG) && stat.st_nlink > 1 {
            self.link_names.add(stat, to);
        }
    }
}

impl SupervisedCall<'_> {
    /// The file to change in place of one with names elsewhere, and its path: a copy of its first `length` bytes, which has got its name.
    /// `may` asks the rules whether a file may be changed.
    pub(crate) fn separate(
        &self,
        mut object: OwnedFd,
        kind: AttemptKind,
        length: u64,
        may: impl Fn(&OwnedFd, &Path, &FileStat) -> Result<()>,
    ) -> Result<(OwnedFd, PathBuf)> {
        for _ in 0..TRIES {
            let (stat, path) = (fstat(&object)?, real(&object)?);
            may(&object, &path, &stat)?;
            if is(&stat, libc::S_IFDIR) || !self.rules.is_shared(&object, &stat)? {
                return Ok((object, path));
            }
            if !is(&stat, libc::S_IFREG) {
                return Err(self.refuse_shared(kind, &path));
            }
            object = self.replace_by_copy(&object, &path, &stat, length)?;
        }
        Err(Errno::EBUSY)
    }

    /// Refuses to change a file with names elsewhere that cannot be copied for it.
    pub(crate) fn refuse_shared(&self, kind: AttemptKind, path: &Path) -> Errno {
        self.note(kind, Cause::Shared, path.as_os_str().as_bytes());
        Errno::EPERM
    }

    /// Gives the name of `object` to a copy, and returns what has the name then: if it got another file meanwhile, that one.
    fn replace_by_copy(
        &self,
        object: &OwnedFd,
        path: &Path,
        stat: &FileStat,
        length: u64,
    ) -> Result<OwnedFd> {
        let length = length.min(stat.st_size.max(0) as u64);
        if !self.rules.fits(length as i64) || !self.copied.take(length, self.rules.written) {
            self.note_uncopied(path, Cause::SharedTooLarge);
            return Err(Errno::EFBIG);
        }
        let copied = self.try_replace_by_copy(object, path, stat, length);
        copied.inspect_err(|_| self.note_uncopied(path, Cause::Shared))
    }

    /// Notes that a file was not copied. Outside what commands may change, that is why.
    fn note_uncopied(&self, path: &Path, cause: Cause) {
        let outside = self.rules.is_outside(AttemptKind::Write, path);
        let cause = if outside { Cause::Outside } else { cause };
        self.note(AttemptKind::Write, cause, path.as_os_str().as_bytes());
    }

    fn try_replace_by_copy(
        &self,
        object: &OwnedFd,
        path: &Path,
        stat: &FileStat,
        length: u64,
    ) -> Result<OwnedFd> {
        let place = NamedFile::of(path)?;
        // Before the lock: other cells do not wait for the copy.
        let copy = copy_of(&place, object, stat, length)?;
        let _lock = self.rules.lock_renames()?;
        let present = match place.object() {
            // Removed meanwhile, or before: what was opened has no name here that a copy could get.
            Err(Errno::ENOENT) => return Err(Errno::EPERM),
            present => present?,
        };
        if !is_file(&present, stat) {
            return Ok(present);
        }
        let storage = self.rules.areas.check_private(&place.directory, path)?;
        // The caller notes it.
        unnoted(
            storage.and(|| self.rules.judge().may_change(path)),
            AttemptKind::Write,
        )?;
        if self.rules.created.has(object) {
            self.rules.remember(path, &copy)?;
        }
        take_name(&place, &copy)?;
        place.object()
    }
}

/// Whether a path is one that the kernel reports for a removed name.
fn is_removed(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b" (deleted)")
}

/// Whether this is the file with this state.
fn is_file(object: &OwnedFd, stat: &FileStat) -> bool {
    fstat(object).is_ok_and(|other| (other.st_dev, other.st_ino) == (stat.st_dev, stat.st_ino))
}

/// A file without a name in the directory of `place`: the first `length` bytes of `object`, with its mode, attributes and times.
fn copy_of(place: &NamedFile, object: &OwnedFd, stat: &FileStat, length: u64) -> Result<OwnedFd> {
    let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
    let copy = openat(&place.directory, ".", flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    if length > 0 {
        let flags = OFlag::O_RDONLY | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let whole = File::from(open(by_descriptor(object).as_str(), flags, Mode::empty())?);
        let mut content = File::from(copy.try_clone().map_err(errno)?);
        io::copy(&mut whole.take(length), &mut content).map_err(errno)?;
    }
    copy_metadata(object, stat, &copy)?;
    Ok(copy)
}

/// Without the bits that change who runs a program. If the group cannot be kept, it loses what others may not do either.
fn copy_metadata(object: &OwnedFd, stat: &FileStat, copy: &OwnedFd) -> Result<()> {
    let [from, to] = [object, copy].map(|fd| CString::new(by_descriptor(fd)));
    let (from, to) = (
        from.map_err(|_| Errno::EINVAL)?,
        to.map_err(|_| Errno::EINVAL)?,
    );
    // What the directory gives new files.
    let _ = file::remove_attribute(&to, ACL);
    let group = Gid::from_raw(stat.st_gid);
    let keeps_group = fstat(copy)?.st_gid == stat.st_gid || fchown(copy, None, Some(group)).is_ok();
    let mode = stat.st_mode & 0o777;
    fchmod(
        copy,
        Mode::from_bits_truncate(if keeps_group { mode } else { narrowed(mode) }),
    )?;
    let names = match file::attribute_names(&from, ATTRIBUTE_MAX).map_err(errno) {
        Err(Errno::EOPNOTSUPP) => Vec::new(),
        names => names?,
    };
    let names = names
        .split_inclusive(|byte| *byte == 0)
        .filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    let kept = |name: &&CStr| name.to_bytes().starts_with(b"user.") || *name == ACL && keeps_group;
    for (count, name) in names.filter(kept).enumerate() {
        if count >= ATTRIBUTES_MAX {
            return Err(Errno::E2BIG);
        }
        // It may have gone meanwhile.
        if let Some(value) = file::attribute(&from, name).map_err(errno)? {
            file::set_attribute(&to, name, &value, 0).map_err(errno)?;
        }
    }
    let times = [
        (stat.st_atime, stat.st_atime_nsec),
        (stat.st_mtime, stat.st_mtime_nsec),
    ];
    let times = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    file::set_times(copy.as_fd(), &times).map_err(errno)
}

/// A mode whose group may do only what others may do too.
fn narrowed(mode: libc::mode_t) -> libc::mode_t {
    mode & !0o070 | mode & (mode & 0o007) << 3
}

/// Puts a file without a name in the place of the one that is there.
fn take_name(place: &NamedFile, copy: &OwnedFd) -> Result<()> {
    let number = u64::from_le_bytes(random::bytes().map_err(errno)?);
    let temporary = format!("{PREFIX}{number:0DIGITS$x}");
    let copy = by_descriptor(copy);
    linkat(
        AT_FDCWD,
        copy.as_str(),
        &place.directory,
        temporary.as_str(),
        AtFlags::AT_SYMLINK_FOLLOW,
    )?;
    let renamed = renameat(
        &place.directory,
        temporary.as_str(),
        &place.directory,
        place.name.as_os_str(),
    );
    renamed.inspect_err(|_| {
        let _ = unlinkat(
            &place.directory,
            temporary.as_str(),
            UnlinkatFlags::NoRemoveDir,
        );
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_without_its_group_widens_nothing() {
        for (mode, left) in [
            (0o664, 0o644),
            (0o660, 0o600),
            (0o775, 0o755),
            (0o606, 0o606),
            (0o647, 0o647),
        ] {
            assert_eq!(narrowed(mode), left, "{mode:o}");
        }
    }

    #[test]
    fn a_copy_takes_the_name_with_content_and_metadata() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let folder = tempfile::tempdir().unwrap();
        let [name, other] = ["name", "other"].map(|name| folder.path().join(name));
        std::fs::write(&name, "whole").unwrap();
        std::fs::set_permissions(&name, std::fs::Permissions::from_mode(0o4751)).unwrap();
        File::options()
            .write(true)
            .open(&name)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        std::fs::hard_link(&name, &other).unwrap();
        let place = NamedFile::of(&name).unwrap();
        let object = place.object().unwrap();
        let copy = copy_of(&place, &object, &fstat(&object).unwrap(), 3).unwrap();
        take_name(&place, &copy).unwrap();
        let state = std::fs::metadata(&name).unwrap();
        assert_eq!(
            (state.mode() & 0o7777, state.mtime(), state.nlink()),
            (0o751, 0, 1)
        );
        assert_eq!(std::fs::read(&name).unwrap(), b"who");
        assert_eq!(std::fs::read(&other).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
