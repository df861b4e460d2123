//! A file with a key, which nobody else can read.

use crate::error::KeyFileError;
use nix::unistd::Uid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

const MAX: u64 = 8 << 10;

/// The content of the file, if only this user can access it.
pub(crate) fn read(path: &Path) -> Result<String, KeyFileError> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(KeyFileError::NotRegular);
    }
    if metadata.uid() != Uid::effective().as_raw() {
        return Err(KeyFileError::ForeignOwner);
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyFileError::Mode(metadata.mode() & 0o777));
    }
    let mut text = String::new();
    file.take(MAX).read_to_string(&mut text)?;
    Ok(text)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of the user's settings, in neither root"
)]
fn open(path: &Path) -> io::Result<File> {
    // Opening a FIFO would otherwise wait for its writer.
    OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY)
        .open(path)
}
