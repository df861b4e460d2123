//! Results of system calls.

use libc::c_long;
use nix::errno::Errno;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub(crate) fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Converts the result of a call that creates a descriptor.
///
/// # Safety
/// `result` comes from such a call, and nothing else owns the descriptor.
pub(crate) unsafe fn new_fd(result: c_long) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// The kernel's number for an error; `EIO` for one that is not the kernel's.
pub fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}
