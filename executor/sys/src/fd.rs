//! Descriptors.

use crate::errno::{check, new_fd};
use libc::c_uint;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Closes the descriptors `first` to `last`, both included. The caller must not own any of them as a value.
///
/// # Errors
/// The kernel's (`close_range`, Linux 5.9).
pub fn close_range(first: c_uint, last: c_uint) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Takes over a descriptor that this process was started with.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicates by number; the result is new and nobody else's.
    unsafe { new_fd(libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3).into()) }
}

/// Makes descriptor `target`, one of 0, 1 and 2, mean what `fd` means.
///
/// # Errors
/// The kernel's (`dup2`).
pub fn install(fd: BorrowedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: no value of this program owns `target`.
    check(unsafe { libc::dup2(fd.as_raw_fd(), target) }.into()).map(drop)
}

/// Makes reads and writes on `fd` return at once.
///
/// # Errors
/// The kernel's (`fcntl`).
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}
