//! Goes through what lies below a directory.

use crate::object::Handle;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use policies_guard::Verdict;
use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of entries below a directory that is renamed. With more it looks like a file system of its own, and programs copy it.
const ENTRIES_MAX: usize = 100_000;
const DIRECTORY: OFlag = OFlag::O_DIRECTORY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Visits everything below the directory `name` of `parent`: each entry's directory, and its path relative to `name`. Returns the first
/// refusal.
///
/// # Errors
/// The kernel's; `EXDEV` if there are too many entries to judge them.
pub(crate) fn each_entry(
    parent: BorrowedFd,
    name: &OsStr,
    visit: impl Fn(Handle, &Path) -> io::Result<Verdict>,
) -> io::Result<Verdict> {
    let mut left = vec![(
        Dir::openat(parent, name, DIRECTORY, Mode::empty())?,
        PathBuf::new(),
    )];
    let mut seen = 0;
    while let Some((mut directory, below)) = left.pop() {
        let entries: Vec<_> = directory.iter().collect::<nix::Result<_>>()?;
        for entry in entries
            .iter()
            .filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
        {
            seen += 1;
            if seen > ENTRIES_MAX {
                return Err(Errno::EXDEV.into());
            }
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let path = below.join(name);
            let verdict = visit(Handle::new(&directory), &path)?;
            if !verdict.is_allowed() {
                return Ok(verdict);
            }
            match Dir::openat(&directory, name, DIRECTORY, Mode::empty()) {
                Ok(directory) => left.push((directory, path)),
                Err(Errno::ENOTDIR | Errno::ELOOP) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
    Ok(Verdict::Allow)
}
