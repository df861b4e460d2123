//! Queries about the file behind a descriptor.

pub(crate) use executor_sys::errno::errno;
use nix::Result;
use nix::fcntl::readlink;
use nix::sys::stat::{FileStat, fstat};
use policies_guard::ObjectKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;

/// The kind of a file, as one of `S_IF*`.
pub(crate) fn kind(stat: &FileStat) -> libc::mode_t {
    stat.st_mode & libc::S_IFMT
}

/// Whether a file is of a kind (`S_IF*`).
pub(crate) fn is(stat: &FileStat, other: libc::mode_t) -> bool {
    kind(stat) == other
}

/// A path through which the kernel finds the file behind a descriptor of this process.
pub(crate) fn by_descriptor(fd: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

/// The path of the file behind a descriptor, as the kernel reports it.
pub(crate) fn real(fd: &impl AsFd) -> Result<PathBuf> {
    readlink(by_descriptor(fd).as_str()).map(PathBuf::from)
}

/// An open object, with its state where a question may need that.
#[derive(Clone, Copy)]
pub struct Handle<'h> {
    pub fd: BorrowedFd<'h>,
    stat: Option<&'h FileStat>,
}

impl<'h> Handle<'h> {
    pub fn new(fd: &'h impl AsFd) -> Self {
        let fd = fd.as_fd();
        Self { fd, stat: None }
    }

    pub fn with(fd: &'h impl AsFd, stat: &'h FileStat) -> Self {
        let stat = Some(stat);
        Self {
            stat,
            ..Self::new(fd)
        }
    }

    pub fn state(self) -> Option<FileStat> {
        self.stat.copied().or_else(|| fstat(self.fd).ok())
    }
}

/// The kind of an object with this state, for the judge.
pub(crate) fn kind_of(stat: &FileStat) -> ObjectKind {
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => ObjectKind::File,
        libc::S_IFDIR => ObjectKind::Directory,
        libc::S_IFLNK => ObjectKind::Link,
        _ => ObjectKind::Other,
    }
}
