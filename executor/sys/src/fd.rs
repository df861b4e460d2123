//! Descriptors.

use crate::errno::{check, new_fd};
use libc::c_uint;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Closes the descriptors from `first` to `last` inclusive. No value in the caller may own any of them.
///
/// # Errors
/// The kernel's (`close_range`, Linux 5.9).
pub fn close_range(first: c_uint, last: c_uint) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Takes ownership of a copy of a descriptor with which this process was started.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicates by number; the result is new and nobody else's.
    unsafe { new_fd(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).into()) }
}

/// Makes `target`, one of descriptors 0, 1 and 2, a copy of `fd`.
///
/// # Errors
/// The kernel's (`dup2`).
pub fn install(fd: BorrowedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: no value of this program owns `target`.
    check(unsafe { libc::dup2(fd.as_raw_fd(), target) }.into()).map(drop)
}

/// Makes reads and writes on `fd` non-blocking.
///
/// # Errors
/// The kernel's (`fcntl`).
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
