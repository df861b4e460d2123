//! Settings files of the user: read and replaced as a whole.

use nix::unistd::Uid;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Maximum size of a file to read, in bytes.
const FILE_MAX: u64 = 16 << 20;
/// Maximum number of files that are kept under one name with numbers.
const KEPT_MAX: u32 = 1000;

/// The text of a file; `None` if it does not exist.
///
/// # Errors
/// If it is not a regular file of the user's, not UTF-8, or too large.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's own settings, which this command is to change"
)]
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match OpenOptions::new()
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Writing would replace the link itself.
            return match fs::read_link(path) {
                Ok(target) => Err(io::Error::other(format!(
                    "it is a link to {}, which is not there",
                    target.display()
                ))),
                Err(_) => Ok(None),
            };
        }
        file => file?,
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.uid() != Uid::effective().as_raw() {
        return Err(io::Error::other("it is not a regular file of yours"));
    }
    if metadata.len() > FILE_MAX {
        return Err(io::Error::other(format!(
            "it has more than {FILE_MAX} bytes"
        )));
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

/// Atomically replaces a file with the content `before` by `text`. If it is a link, the file that it leads to is replaced, since
/// people keep settings elsewhere and link them.
///
/// # Errors
/// If the file has changed in the meantime, or cannot be written.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's own settings, which this command is to change"
)]
pub fn replace(path: &Path, before: Option<&str>, text: Option<&str>) -> io::Result<()> {
    if read(path)?.as_deref() != before {
        return Err(io::Error::other("it was changed meanwhile"));
    }
    let Some(text) = text else {
        return if before.is_some() {
            fs::remove_file(path)
        } else {
            Ok(())
        };
    };
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let mode = fs::metadata(&path).map_or(0o600, |metadata| metadata.mode() & 0o7777);
    let temporary = temporary(&path);
    let written = write_new(&temporary, text, mode).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // A leftover temporary file does no harm.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Keeps `text` in a new file `path`; if that name is taken, in one with a number behind it. Returns the file's path.
///
/// # Errors
/// If it cannot be written. No file is overwritten, whoever else keeps one at the same time.
pub fn save_new(path: &Path, text: &str) -> io::Result<PathBuf> {
    let mut kept = path.to_owned();
    for number in 1..=KEPT_MAX {
        match write_new(&kept, text, 0o600) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mut name = path.as_os_str().to_owned();
                name.push(format!(".{number}"));
                kept = name.into();
            }
            written => return written.map(|()| kept),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn temporary(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.lazaret-{}", std::process::id()))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user's own settings, which this command is to change"
)]
fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("policy.toml.20260101-000000");
        let kept: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|text| save_new(&path, text).unwrap())
            .collect();
        let names: Vec<_> = kept
            .iter()
            .map(|path| path.extension().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["20260101-000000", "1", "2"]);
        let texts: Vec<_> = kept
            .iter()
            .map(|path| read(path).unwrap().unwrap())
            .collect();
        assert_eq!(texts, ["a", "b", "c"]);
        assert!(save_new(&folder.path().join("none/x"), "").is_err());
    }
}
