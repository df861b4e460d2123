//! Queries about the file behind a descriptor.

pub use executor_sys::errno::errno;
use nix::Result;
use nix::fcntl::readlink;
use nix::sys::stat::FileStat;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

/// What kind a file is of (`S_IF*`).
pub fn kind(stat: &FileStat) -> libc::mode_t {
    stat.st_mode & libc::S_IFMT
}

/// Whether a file is of a kind (`S_IF*`).
pub fn is(stat: &FileStat, other: libc::mode_t) -> bool {
    kind(stat) == other
}

/// A path through which the kernel finds the file behind a descriptor of this process.
pub fn by_descriptor(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The path of the file behind a descriptor, as the kernel reports it.
pub fn real(fd: &impl AsFd) -> Result<PathBuf> {
    readlink(by_descriptor(fd).as_str()).map(PathBuf::from)
}
