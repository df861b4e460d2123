//! Memory and descriptors of other processes.

use crate::errno::{check, new_fd};
use libc::{c_long, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// A copy of descriptor `fd` of the process `pid`.
///
/// # Errors
/// The kernel's (`pidfd_open`, `pidfd_getfd`).
pub fn descriptor(pid: i32, fd: RawFd) -> io::Result<OwnedFd> {
    descriptor_of(process(pid)?.as_fd(), fd)
}

/// A pidfd of the process `pid`: it never refers to a later process with that number.
///
/// # Errors
/// The kernel's (`pidfd_open`): `EINVAL`, or `ENOENT` on later kernels, if `pid` is a thread other than a process's first.
pub fn process(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: numbers; the result is a new descriptor.
    unsafe { new_fd(libc::syscall(libc::SYS_pidfd_open, pid, 0)) }
}

/// A copy of descriptor `fd` of a process.
///
/// # Errors
/// The kernel's (`pidfd_getfd`): `ESRCH` if the process has ended.
pub fn descriptor_of(process: BorrowedFd, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: numbers; the result is a new descriptor.
    unsafe { new_fd(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0)) }
}

/// Copies memory from the process of `thread`, beginning at `address`; fewer bytes if its memory ends.
///
/// # Errors
/// The kernel's (`process_vm_readv`).
pub fn read_memory(thread: i32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, and checks the other process's address.
    let read = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    check(read as c_long).map(|read| read as usize)
}

/// Copies `bytes` to the memory of the process of `thread` at `address`; fewer if its memory ends.
///
/// # Errors
/// The kernel's (`process_vm_writev`).
pub fn write_memory(thread: i32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel reads `bytes` and does not write them, and checks the other process's address.
    let written = unsafe { libc::process_vm_writev(thread, &raw const local, 1, &raw const remote, 1, 0) };
    check(written as c_long).map(|written| written as usize)
}
