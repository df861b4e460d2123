//! Small files of ours in the state directory, for nobody else: replaced as a whole.

use nix::unistd::Uid;
use policies::source;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Largest file that is read back, in bytes.
const FILE_MAX: usize = 8 << 20;

/// Makes a directory, so that files can be written there later, when nothing else can.
///
/// # Errors
/// Those of the file system; what is not ours alone is refused.
pub fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    close(directory)
}

/// Checks that `path` is a directory of ours and no link, and closes it to others.
///
/// # Errors
/// Those of the file system; one of another user is refused.
#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
pub fn close(path: &Path) -> io::Result<()> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_DIRECTORY;
    let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = directory.metadata()?;
    if metadata.uid() != Uid::effective().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory belongs to another user"));
    }
    if metadata.mode() & 0o077 != 0 {
        directory.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Opens a file that is this user's alone, or makes one, to read it and append to it, and closes it to all others: a link leads where
/// somebody else wants, a second name may be anywhere, and a FIFO would make us wait for its writer.
///
/// # Errors
/// [`OwnError`].
#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
pub fn open_own(path: &Path) -> Result<File, OwnError> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let is_ours = metadata.uid() == Uid::effective().as_raw() && metadata.nlink() == 1;
    if !metadata.is_file() || !is_ours {
        return Err(OwnError::NotOurs);
    }
    if metadata.mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Why a file of ours cannot be opened.
#[derive(Debug, Error)]
pub enum OwnError {
    /// It is there, and not a file of this user alone.
    #[error("it is no regular file that is this user's and has one name")]
    NotOurs,
    /// Those of the file system.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The text of a file, if it is there and can be read.
pub fn read(path: &Path) -> Option<String> {
    source::read_named(path, FILE_MAX).ok()
}

/// Puts `text` in the place of what a file has: readers see the one or the other. With no more calls than are left to us once we have
/// confined ourselves.
///
/// # Errors
/// Those of the file system.
#[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // What a process of this number has left is nobody's any more.
    let _ = std::fs::remove_file(&temporary);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
