//! Results of system calls.

use libc::c_long;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

pub fn check(result: c_long) -> io::Result<c_long> {
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
pub unsafe fn new_fd(result: c_long) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    check(result).map(|fd| unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
