//! In the broker: files in `.lazaret` of a central root, which keep something for later sessions. No cell writes there, but programs
//! outside may have put anything in their place: no link is followed.

use executor_spec::sandbox::Rooted;
use executor_spec::undo_directory;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::Mode;
use policies::Access;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The content of a regular file of at most `max` bytes, to whose path no link belongs.
pub(crate) fn read_short(path: &Path, max: u64) -> Option<Vec<u8>> {
    let how = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let file = File::from(openat2(nix::fcntl::AT_FDCWD, path, how).ok()?);
    let metadata = file.metadata().ok()?;
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).ok()?;
    (metadata.is_file() && bytes.len() as u64 <= max).then_some(bytes)
}

/// The directory of these files; `None` if the session may not write in its central root.
pub(crate) fn directory(spec: &Rooted) -> Option<OwnedFd> {
    undo_directory::open(&spec.central).filter(|_| spec.policy.central == Access::Write)
}

/// Reads the file `name`, and of one with more than `max` bytes one more than these; `None` if it cannot be read.
pub(crate) fn read(directory: &OwnedFd, name: &str, max: usize) -> Option<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut bytes = Vec::new();
    open(directory, name, flags)
        .ok()?
        .take(max as u64 + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

/// Puts a file with these bytes in the place of `name`.
///
/// # Errors
/// The kernel's. What was there stays.
pub(crate) fn write(directory: &OwnedFd, name: &str, bytes: &[u8]) -> io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NONBLOCK;
    open(directory, &new, flags)?.write_all(bytes)?;
    Ok(renameat(directory, new.as_str(), directory, name)?)
}

fn open(directory: &OwnedFd, name: &str, flags: OFlag) -> io::Result<File> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let mode = if flags.contains(OFlag::O_CREAT) {
        Mode::S_IRUSR | Mode::S_IWUSR
    } else {
        Mode::empty()
    };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(mode)
        .resolve(resolve);
    Ok(File::from(openat2(directory, name, how)?))
}
