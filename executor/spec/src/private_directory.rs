//! The directory of a socket: owned by the user of this process, and closed to everybody else.

use executor_sys::process::euid;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Creates the directory of the socket `path` if it is missing.
///
/// # Errors
/// It is not private.
pub fn make(path: &Path) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if !directory.exists() {
        DirBuilder::new().mode(0o700).create(directory)?;
    }
    if is_private(&fs::metadata(directory)?) {
        return Ok(());
    }
    let message = format!(
        "{} must belong to you and have mode 0700",
        directory.display()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

/// Whether it belongs to this user and is closed to others.
pub fn is_private(metadata: &fs::Metadata) -> bool {
    metadata.is_dir() && metadata.uid() == euid() && metadata.mode() & 0o077 == 0
}
