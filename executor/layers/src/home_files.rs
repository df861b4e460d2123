//! What lies in the cells' home when it is new: files with which git works there.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes `files`, each with its path below the cells' home, which is presently at `home`.
///
/// # Errors
/// The kernel's.
pub fn write(home: &Path, files: &[(PathBuf, Vec<u8>)]) -> io::Result<()> {
    for (path, content) in files {
        let file = home.join(path);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(file.parent().unwrap_or(home))?;
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(file)?
            .write_all(content)?;
    }
    Ok(())
}
