//! Mounts by descriptor.

use crate::errno::{check, new_fd};
use libc::{c_int, c_uint};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `open_tree` with `OPEN_TREE_CLONE`: a detached copy of the mounts at and below `path`.
///
/// # Errors
/// The kernel's.
pub fn open_tree(path: &CStr) -> io::Result<OwnedFd> {
    copy_tree(path, 0)
}

/// The same, where `path` may be a link: then the copy is of the link itself.
///
/// # Errors
/// The kernel's.
pub fn open_tree_of_link(path: &CStr) -> io::Result<OwnedFd> {
    copy_tree(path, libc::AT_SYMLINK_NOFOLLOW as c_uint)
}

/// Attaches a detached mount over the file or directory `target`, wherever its path leads by now.
///
/// # Errors
/// The kernel's (`move_mount`).
pub fn move_mount_to(mount: BorrowedFd, target: BorrowedFd) -> io::Result<()> {
    const BOTH_EMPTY_PATHS: c_uint = 0x44;
    let (from, to, empty) = (mount.as_raw_fd(), target.as_raw_fd(), c"".as_ptr());
    // SAFETY: `empty` is a C string.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            from,
            empty,
            to,
            empty,
            BOTH_EMPTY_PATHS,
        )
    })
    .map(drop)
}

/// A detached copy of the mounts at and below the file or directory `fd`.
///
/// # Errors
/// The kernel's.
pub fn open_whole_tree_at(fd: BorrowedFd) -> io::Result<OwnedFd> {
    copy_tree_at(fd, libc::AT_RECURSIVE as c_uint)
}

fn copy_tree(path: &CStr, more: c_uint) -> io::Result<OwnedFd> {
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as c_uint | more;
    // SAFETY: `path` is a C string; the descriptor is new.
    unsafe {
        new_fd(libc::syscall(
            libc::SYS_open_tree,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
        ))
    }
}

/// A detached copy of the mount of the file or directory `fd`, from there on and without mounts below it.
///
/// # Errors
/// The kernel's: `EINVAL` if a mount below hides something that this process may not uncover.
pub fn open_tree_at(fd: BorrowedFd) -> io::Result<OwnedFd> {
    copy_tree_at(fd, 0)
}

fn copy_tree_at(fd: BorrowedFd, more: c_uint) -> io::Result<OwnedFd> {
    let flags =
        libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_EMPTY_PATH as c_uint | more;
    let (fd, empty) = (fd.as_raw_fd(), c"".as_ptr());
    // SAFETY: `empty` is a C string; the descriptor is new.
    unsafe { new_fd(libc::syscall(libc::SYS_open_tree, fd, empty, flags)) }
}

/// Attaches a detached mount at `target`; if that is a link, over the link itself.
///
/// # Errors
/// The kernel's (`move_mount`).
pub fn move_mount(mount: BorrowedFd, target: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_uint = 4;
    let (from, empty) = (mount.as_raw_fd(), c"".as_ptr());
    // SAFETY: both paths are C strings.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            from,
            empty,
            libc::AT_FDCWD,
            target.as_ptr(),
            FROM_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// Adds mount attributes (`MOUNT_ATTR_*`) to the mount at `fd`.
///
/// # Errors
/// The kernel's (`mount_setattr`, Linux 5.12).
pub fn set_attributes(fd: BorrowedFd, attributes: u64) -> io::Result<()> {
    set(fd, attributes, libc::AT_EMPTY_PATH)
}

/// Adds mount attributes to the mount at `fd` and to all below it.
///
/// # Errors
/// As for [`set_attributes`].
pub fn set_attributes_of_tree(fd: BorrowedFd, attributes: u64) -> io::Result<()> {
    set(fd, attributes, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE)
}

fn set(fd: BorrowedFd, attributes: u64, flags: c_int) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let (fd, empty, size) = (fd.as_raw_fd(), c"".as_ptr(), size_of_val(&attributes));
    let (flags, attributes) = (flags as c_uint, &raw const attributes);
    // SAFETY: the structure lives for the call and `size` is its size.
    check(unsafe { libc::syscall(libc::SYS_mount_setattr, fd, empty, flags, attributes, size) })
        .map(drop)
}
