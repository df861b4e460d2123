//! Metadata, watches, pipes and terminals.

use crate::errno::{check, new_fd};
use libc::{c_int, c_long};
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::unistd::pipe2;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr;

/// `fchmodat2` (Linux 6.6): the same number everywhere, which `libc` does not have for every architecture.
pub const SYS_FCHMODAT2: c_long = 452;

/// The read end of a pipe that holds the first `length` bytes of `file` and nothing else: the kernel moves them, and they are in no
/// memory of this process.
///
/// # Errors
/// The kernel's (`pipe2`, `splice`); `WouldBlock` if they do not fit, `UnexpectedEof` if there are fewer.
pub fn pipe_with(file: BorrowedFd, length: usize) -> io::Result<OwnedFd> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let (mut offset, mut left): (libc::loff_t, usize) = (0, length);
    while left > 0 {
        let (from, to) = (file.as_raw_fd(), writer.as_raw_fd());
        // SAFETY: `offset` outlives the call; a pipe has none.
        let moved = unsafe {
            libc::splice(
                from,
                &raw mut offset,
                to,
                ptr::null_mut(),
                left,
                libc::SPLICE_F_NONBLOCK,
            )
        };
        match check(moved as c_long)? as usize {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            moved => left -= moved,
        }
    }
    Ok(reader)
}

/// `setxattr`, following links.
///
/// # Errors
/// The kernel's.
pub fn set_attribute(path: &CStr, name: &CStr, value: &[u8], flags: c_int) -> io::Result<()> {
    let (path, name) = (path.as_ptr(), name.as_ptr());
    // SAFETY: C strings, and a value with its length.
    check(unsafe { libc::setxattr(path, name, value.as_ptr().cast(), value.len(), flags) }.into())
        .map(drop)
}

/// Names of the attributes of the file at `path`, following links, each with a NUL at its end.
///
/// # Errors
/// `ERANGE` if they have more than `max` bytes; else the kernel's (`listxattr`).
pub fn attribute_names(path: &CStr, max: usize) -> io::Result<Vec<u8>> {
    let mut names = vec![0; max];
    // SAFETY: a C string, and room of the given length.
    let length = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), max) };
    names.truncate(check(length as c_long)? as usize);
    Ok(names)
}

/// `getxattr`, following links; `None` if there is no such attribute, or the file system has none.
///
/// # Errors
/// The kernel's; `ERANGE` if the value has more than 64 KiB.
pub fn attribute(path: &CStr, name: &CStr) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0_u8; 1 << 16];
    let (room, length) = (value.as_mut_ptr().cast(), value.len());
    // SAFETY: C strings, and room for what the kernel writes.
    let read = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), room, length) };
    match check(read as c_long) {
        Ok(length) => {
            value.truncate(length as usize);
            Ok(Some(value))
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// `removexattr`, following links.
///
/// # Errors
/// The kernel's.
pub fn remove_attribute(path: &CStr, name: &CStr) -> io::Result<()> {
    // SAFETY: C strings.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }.into()).map(drop)
}

/// `utimensat` for the file behind a descriptor, which may be an `O_PATH` descriptor.
///
/// # Errors
/// The kernel's.
pub fn set_times(fd: BorrowedFd, times: &[libc::timespec; 2]) -> io::Result<()> {
    let (fd, times, flags) = (fd.as_raw_fd(), times.as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: a C string, and two times that live for the call.
    check(unsafe { libc::utimensat(fd, c"".as_ptr(), times, flags) }.into()).map(drop)
}

/// Makes an inotify descriptor, which is close-on-exec here whatever `flags` says.
///
/// # Errors
/// The kernel's (`inotify_init1`).
pub fn watcher(flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes a number only; the descriptor is new and nobody else's.
    unsafe { new_fd(libc::inotify_init1(flags | libc::IN_CLOEXEC).into()) }
}

/// Adds a watch for the file at `path` to an inotify descriptor.
///
/// # Errors
/// The kernel's (`inotify_add_watch`).
pub fn watch(inotify: BorrowedFd, path: &CStr, mask: u32) -> io::Result<i32> {
    // SAFETY: a C string.
    check(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), mask) }.into())
        .map(|watch| watch as i32)
}

/// Copies one byte from a pipe to another without consuming it; 0 means end of file.
///
/// # Errors
/// `EAGAIN` if the first has none; else the kernel's (`tee`).
pub fn tee(from: BorrowedFd, to: BorrowedFd) -> io::Result<usize> {
    // SAFETY: takes numbers only.
    let copied = unsafe { libc::tee(from.as_raw_fd(), to.as_raw_fd(), 1, libc::SPLICE_F_NONBLOCK) };
    check(copied as c_long).map(|copied| copied as usize)
}

/// An `O_PATH` descriptor of a terminal's slave: nothing can be read through it, and it keeps no end open.
///
/// # Errors
/// The kernel's (`TIOCGPTPEER`).
pub fn slave_path(master: BorrowedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: takes numbers only; the descriptor is new.
    unsafe { new_fd(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags).into()) }
}

/// Sets the size of a terminal.
///
/// # Errors
/// The kernel's (`TIOCSWINSZ`).
pub fn set_window_size(terminal: BorrowedFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the structure lives for the call.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) }.into()).map(drop)
}

/// The result of `stat` for the file behind a descriptor, in the form that the kernel writes for programs.
///
/// # Errors
/// The kernel's (`newfstatat`).
pub fn state(fd: BorrowedFd) -> io::Result<[u8; size_of::<libc::stat>()]> {
    let mut bytes = [0; size_of::<libc::stat>()];
    let (name, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: a C string, and room for what the kernel writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_newfstatat,
            fd.as_raw_fd(),
            name,
            bytes.as_mut_ptr(),
            flags,
        )
    };
    check(result).map(|_| bytes)
}

/// The result of `statx` for the file behind a descriptor, in the form that the kernel writes for programs.
///
/// # Errors
/// The kernel's.
pub fn extended_state(
    fd: BorrowedFd,
    flags: c_int,
    mask: u32,
) -> io::Result<[u8; size_of::<libc::statx>()]> {
    let mut bytes = [0; size_of::<libc::statx>()];
    let (name, flags) = (c"".as_ptr(), flags | libc::AT_EMPTY_PATH);
    // SAFETY: a C string, and room for what the kernel writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            fd.as_raw_fd(),
            name,
            flags,
            mask,
            bytes.as_mut_ptr(),
        )
    };
    check(result).map(|_| bytes)
}

/// Opens `path`, following no link at all.
///
/// # Errors
/// The kernel's: `ELOOP` if there is a link on the way.
pub fn open_without_links(path: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat2(
        AT_FDCWD,
        path,
        OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS),
    )
}
