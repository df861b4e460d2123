//! Memory and descriptors of other processes.

use crate::errno::{check, new_fd};
use libc::{c_int, c_long, c_ulong, c_void};
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
    unsafe {
        new_fd(libc::syscall(
            libc::SYS_pidfd_getfd,
            process.as_raw_fd(),
            fd,
            0,
        ))
    }
}

/// Whether the filters above this process let it take descriptors of others: those of containers close the call.
pub fn may_take_descriptors() -> bool {
    // SAFETY: numbers, of which none is a descriptor.
    let answer = check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, -1, -1, 0) });
    is_the_kernels(answer, libc::EBADF)
}

/// Whether the filters above this process let it copy memory of others.
pub fn may_copy_memory() -> bool {
    // No kernel knows such a flag.
    const UNKNOWN: c_ulong = 1 << 31;
    let none = std::ptr::null::<libc::iovec>();
    // SAFETY: there are no parts, and the kernel refuses the flag before all else.
    let read = check(unsafe { libc::process_vm_readv(0, none, 0, none, 0, UNKNOWN) } as c_long);
    // SAFETY: likewise.
    let write = check(unsafe { libc::process_vm_writev(0, none, 0, none, 0, UNKNOWN) } as c_long);
    is_the_kernels(read, libc::EINVAL) && is_the_kernels(write, libc::EINVAL)
}

/// Whether the kernel has looked at a call's arguments, with this error, and no filter has refused the call before.
fn is_the_kernels(answer: io::Result<c_long>, errno: c_int) -> bool {
    answer.is_err_and(|error| error.raw_os_error() == Some(errno))
}

/// Copies memory from the process of `thread`, beginning at `address`; fewer bytes if its memory ends.
///
/// # Errors
/// The kernel's (`process_vm_readv`).
pub fn read_memory(thread: i32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, and checks the other process's address.
    let read =
        unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    check(read as c_long).map(|read| read as usize)
}

/// Copies `bytes` to the memory of the process of `thread` at `address`; fewer if its memory ends.
///
/// # Errors
/// The kernel's (`process_vm_writev`).
pub fn write_memory(thread: i32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel reads `bytes` and does not write them, and checks the other process's address.
    let written =
        unsafe { libc::process_vm_writev(thread, &raw const local, 1, &raw const remote, 1, 0) };
    check(written as c_long).map(|written| written as usize)
}
