//! Calls that query a path. Nothing is decided about them: metadata outside is visible in the flat
//! tier. But a path in the machine's `/tmp` means the session's own directory, and what is closed beside the roots is
//! reported as missing, as `open` reports it.
//!
//! What affects the process itself (`chdir`, `execve`) cannot be done on its behalf: below `/tmp` it is refused, and the refusal
//! names the path that works. `/tmp` itself may be entered: what is opened from there is in the session's own directory.
//!
//! A call on a path elsewhere continues unchanged: whatever its memory contains by then, the caller could have passed at once.

use crate::answer::{SyscallAnswer, errno_of};
use crate::find::{LastLink, last_link};
use crate::object::{by_descriptor, errno, is, real};
use crate::supervised_call::SupervisedCall;
use broker_protocol::AttemptKind;
use executor_spec::refusals::Cause;
use executor_sys::file;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::readlinkat;
use nix::sys::stat::fstat;
use nix::unistd::{AccessFlags, access};
use policies_guard::Rule;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

impl SupervisedCall<'_> {
    /// `stat` and its older and newer forms.
    pub(crate) fn state(&self, path: u64, out: u64, flags: i32) -> Result<SyscallAnswer> {
        let Some(object) = self.seen(path, last_link(flags))? else {
            return Ok(SyscallAnswer::GoOn);
        };
        self.caller
            .write(out, &file::state(object.as_fd()).map_err(errno)?)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `statx`; the kernel checks its mask and other flags.
    pub(crate) fn extended_state(
        &self,
        path: u64,
        flags: i32,
        mask: u32,
        out: u64,
    ) -> Result<SyscallAnswer> {
        let Some(object) = self.seen(path, last_link(flags))? else {
            return Ok(SyscallAnswer::GoOn);
        };
        self.caller.write(
            out,
            &file::extended_state(object.as_fd(), flags, mask).map_err(errno)?,
        )?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `access` and its relatives; real and effective user are the same here.
    pub(crate) fn access(&self, path: u64, mode: i32) -> Result<SyscallAnswer> {
        let Some(object) = self.seen(path, LastLink::Follow)? else {
            return Ok(SyscallAnswer::GoOn);
        };
        let mode = AccessFlags::from_bits(mode).ok_or(Errno::EINVAL)?;
        access(by_descriptor(&object).as_str(), mode)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `readlink`; a text that is too long is truncated, as by the kernel.
    pub(crate) fn read_link(&self, path: u64, out: u64, room: u64) -> Result<SyscallAnswer> {
        let Some(object) = self.seen(path, LastLink::Keep)? else {
            return Ok(SyscallAnswer::GoOn);
        };
        let room = usize::try_from(room as i32)
            .ok()
            .filter(|room| *room > 0)
            .ok_or(Errno::EINVAL)?;
        if !is(&fstat(&object)?, libc::S_IFLNK) {
            return Err(Errno::EINVAL);
        }
        let mut text = readlinkat(&object, "")?.into_vec();
        text.truncate(room);
        self.caller.write(out, &text)?;
        Ok(SyscallAnswer::Value(text.len() as i64))
    }

    /// `chdir` and `execve`.
    pub(crate) fn go(&self, path: u64) -> Result<SyscallAnswer> {
        // For an address that cannot be read, the kernel returns the error.
        let Ok(path) = self.caller.string(path) else {
            return Ok(SyscallAnswer::GoOn);
        };
        let Some(object) = self.own(path.as_bytes(), LastLink::Follow)? else {
            return Ok(SyscallAnswer::GoOn);
        };
        if self.rules.areas.is_private_tmp(&real(&object)?) {
            return Ok(SyscallAnswer::GoOn);
        }
        self.note(AttemptKind::Read, Cause::Outside, path.as_bytes());
        Err(errno_of(Rule::Outside, AttemptKind::Read))
    }

    /// The file at a path, if that is in the machine's `/tmp` and so means the session's own directory; an error if the path is
    /// reported as missing.
    fn seen(&self, path: u64, link: LastLink) -> Result<Option<OwnedFd>> {
        // For an address that cannot be read, the kernel returns the error.
        let Ok(path) = self.caller.string(path) else {
            return Ok(None);
        };
        match self.own(path.as_bytes(), link)? {
            // The roots may lie in the machine's `/tmp`.
            Some(own) if self.rules.areas.is_missing(&real(&own)?) => Err(Errno::ENOENT),
            None if self
                .rules
                .areas
                .is_missing(Path::new(OsStr::from_bytes(path.as_bytes()))) =>
            {
                Err(Errno::ENOENT)
            }
            own => Ok(own),
        }
    }

    /// The session's own object for a path in the machine's `/tmp`, whether that is reported as missing or not.
    fn own(&self, path: &[u8], link: LastLink) -> Result<Option<OwnedFd>> {
        if !self
            .rules
            .areas
            .is_hidden_tmp(Path::new(OsStr::from_bytes(path)))
        {
            return Ok(None);
        }
        self.check()?;
        let found = self.search().find(libc::AT_FDCWD, path, link)?;
        let object = found.object.ok_or(Errno::ENOENT)?;
        if found.slash && !is(&fstat(&object)?, libc::S_IFDIR) {
            return Err(Errno::ENOTDIR);
        }
        Ok(Some(object))
    }
}
