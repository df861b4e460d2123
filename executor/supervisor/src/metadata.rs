//! Changes modes, owners, times and attributes for the caller, inside the zones and the scratch space only.

use crate::answer::SyscallAnswer;
use crate::find::{LastLink, last_link};
use crate::object::{Handle, by_descriptor, errno, is, kind_of, real};
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind;
use executor_sys::file;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmodat, fstat};
use nix::unistd::{Gid, Uid, fchownat, getegid, geteuid};
use policies_guard::Change;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Maximum bytes of an attribute's value (`XATTR_SIZE_MAX`).
const VALUE_MAX: u64 = 65536;

/// The file whose metadata is changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MetadataTarget {
    /// That of an open file.
    Fd(i32),
    /// A path, with flags of the `*at` calls.
    Path(i32, u64, i32),
}

impl SupervisedCall<'_> {
    /// `fchmodat2` and its relatives.
    pub(crate) fn change_mode(&self, target: MetadataTarget, mode: u64) -> Result<SyscallAnswer> {
        let mode = Mode::from_bits_truncate(mode as libc::mode_t);
        if !self.settings_locks.is_empty()
            && let MetadataTarget::Path(fd, path, flags) = target
            && flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) == 0
            && let Some(kept) = self.keep_mode(&self.object(fd, path, LastLink::Follow)?, mode)?
        {
            return Ok(kept);
        }
        let object = self.marked(target)?;
        let stat = fstat(&object)?;
        if is(&stat, libc::S_IFLNK) {
            return Err(Errno::EOPNOTSUPP);
        }
        // Such a file would wait for somebody to run it.
        if mode.contains(Mode::S_ISGID) && !is(&stat, libc::S_IFDIR) {
            return Err(Errno::EPERM);
        }
        fchmodat(
            AT_FDCWD,
            by_descriptor(&object).as_str(),
            mode,
            FchmodatFlags::FollowSymlink,
        )?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `fchownat` and its relatives.
    pub(crate) fn change_owner(
        &self,
        target: MetadataTarget,
        owner: u64,
        group: u64,
    ) -> Result<SyscallAnswer> {
        let given = |number: u64| Some(number as u32).filter(|number| *number != u32::MAX);
        if self.rules.areas.own_root {
            // The session's own user is the only one there is. The kernel decides about any other change of it.
            let own = given(owner).is_none_or(|owner| owner == geteuid().as_raw())
                && given(group).is_none_or(|group| group == getegid().as_raw());
            return if own {
                Ok(SyscallAnswer::GoOn)
            } else {
                Err(Errno::EPERM)
            };
        }
        let object = self.marked(target)?;
        let (owner, group) = (
            given(owner).map(Uid::from_raw),
            given(group).map(Gid::from_raw),
        );
        fchownat(&object, "", owner, group, AtFlags::AT_EMPTY_PATH)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `utimensat` and its relatives; `None` means now.
    pub(crate) fn change_times(
        &self,
        target: MetadataTarget,
        times: Option<[(i64, i64); 2]>,
    ) -> Result<SyscallAnswer> {
        let object = self.marked(target)?;
        let times = times.unwrap_or([(0, libc::UTIME_NOW); 2]);
        let times = times.map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
        file::set_times(object.as_fd(), &times).map_err(errno)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `setxattr` and its relatives.
    pub(crate) fn set_attribute(
        &self,
        target: MetadataTarget,
        name: u64,
        value: u64,
        size: u64,
        flags: i32,
    ) -> Result<SyscallAnswer> {
        if size > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        let name = self.string(name)?;
        let value = if size == 0 {
            Vec::new()
        } else {
            self.caller.bytes(value, size as usize)?
        };
        if value.len() as u64 != size {
            return Err(Errno::EFAULT);
        }
        let path = self.attributes_of(target)?;
        file::set_attribute(&path.1, &name, &value, flags).map_err(errno)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `removexattr` and its relatives.
    pub(crate) fn remove_attribute(
        &self,
        target: MetadataTarget,
        name: u64,
    ) -> Result<SyscallAnswer> {
        let name = self.string(name)?;
        let path = self.attributes_of(target)?;
        file::remove_attribute(&path.1, &name).map_err(errno)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// Reads 64-bit times: seconds and a fraction in units of `unit` nanoseconds.
    pub(crate) fn times(&self, address: u64, unit: i64) -> Result<Option<[(i64, i64); 2]>> {
        if address == 0 {
            return Ok(None);
        }
        let [a, b, c, d] = self.caller.numbers(address)?;
        Ok(Some([
            (a, b.saturating_mul(unit)),
            (c, d.saturating_mul(unit)),
        ]))
    }

    /// `utime`, in whole seconds.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn seconds(&self, address: u64) -> Result<Option<[(i64, i64); 2]>> {
        if address == 0 {
            return Ok(None);
        }
        let [a, b] = self.caller.numbers(address)?;
        Ok(Some([(a, 0), (b, 0)]))
    }

    /// The file, if its metadata may be changed; in place of one with names elsewhere its copy, if it was named by its path.
    fn marked(&self, target: MetadataTarget) -> Result<OwnedFd> {
        let (object, by_path) = match target {
            MetadataTarget::Fd(fd) if fd < 0 => return Err(Errno::EBADF),
            MetadataTarget::Fd(fd) => (self.caller.path_of(fd)?, false),
            MetadataTarget::Path(fd, path, flags) => {
                let empty = flags & libc::AT_EMPTY_PATH != 0 && self.string(path)?.is_empty();
                if empty {
                    (self.caller.path_of(fd)?, false)
                } else {
                    (self.object(fd, path, last_link(flags))?, true)
                }
            }
        };
        self.check()?;
        let may = |object: &OwnedFd, path: &Path, stat: &FileStat| {
            let verdict = self.rules.verdict(Change::Mark {
                object: Handle::with(object, stat),
                at: path,
                kind: kind_of(stat),
            })?;
            self.admit(AttemptKind::Metadata, path, verdict)
        };
        if by_path {
            return Ok(self
                .separate(object, AttemptKind::Metadata, u64::MAX, may)?
                .0);
        }
        let (stat, path) = (fstat(&object)?, real(&object)?);
        may(&object, &path, &stat)?;
        // The caller would still have the old one open.
        if !is(&stat, libc::S_IFDIR) && self.rules.is_shared(&object, &stat)? {
            return Err(self.refuse_shared(AttemptKind::Metadata, &path));
        }
        Ok(object)
    }

    fn attributes_of(&self, target: MetadataTarget) -> Result<(OwnedFd, CString)> {
        let object = self.marked(target)?;
        let path = CString::new(by_descriptor(&object)).map_err(|_| Errno::EINVAL)?;
        Ok((object, path))
    }
}
