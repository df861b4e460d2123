//! Directories and files that Lazaret makes in the central root, where commands may have put links.

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};
use std::io;
use std::os::fd::OwnedFd;

/// Opens a directory in `root`, and creates it if it is missing. No link is followed.
///
/// # Errors
/// The kernel's.
pub(crate) fn central_directory(root: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(root, name, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    beneath(
        root,
        name,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Opens something directly in `root`, not a link.
///
/// # Errors
/// The kernel's.
pub(crate) fn beneath(root: &OwnedFd, name: &str, flags: OFlag, mode: Mode) -> io::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    Ok(openat2(
        root,
        name,
        OpenHow::new().flags(flags).mode(mode).resolve(resolve),
    )?)
}
