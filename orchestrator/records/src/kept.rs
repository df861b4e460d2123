//! Small files of ours in the state directory, for the user alone: always replaced as a whole.

use nix::unistd::Uid;
use orchestrator_launch::state_directory;
use policies::source;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum size of a file to read, in bytes.
const FILE_MAX: usize = 8 << 20;

/// Creates a directory, so that files in it can still be written after the confinement.
///
/// # Errors
/// Errors of the file system; also if others have access to it.
pub fn prepare(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    state_directory::make_private(directory)
}

/// Opens or creates a file for reading and appending, which must belong to this user alone, and removes access for others. Refuses links,
/// which lead where somebody else chose, files with a second name, which may be anywhere, and FIFOs, which would make us wait for a writer.
///
/// # Errors
/// [`OwnError`].
pub fn open_own(path: &Path) -> Result<File, OwnError> {
    open_with(nix::libc::O_APPEND, path)
}

/// Opens or creates such a file, whose content is replaced in place.
///
/// # Errors
/// [`OwnError`].
pub(crate) fn open_own_in_place(path: &Path) -> Result<File, OwnError> {
    open_with(0, path)
}

#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn open_with(how: i32, path: &Path) -> Result<File, OwnError> {
    let flags = how | nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags)
        .open(path)?;
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

/// Why our file cannot be opened.
#[derive(Debug, Error)]
pub enum OwnError {
    /// It exists, but it is not a file of this user alone.
    #[error("not a regular file owned by you without other hard links")]
    NotOurs,
    /// An error of the file system.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The text of a file; `None` if it cannot be read.
pub fn read(path: &Path) -> Option<String> {
    source::read_named(path, FILE_MAX).ok()
}

/// Atomically replaces the content of a file with `text`, using only system calls that are still allowed after the confinement.
///
/// # Errors
/// Those of the file system.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut temporary = path.to_owned().into_os_string();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // A leftover of an earlier process with our number has no owner any more.
    let _ = std::fs::remove_file(&temporary);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
