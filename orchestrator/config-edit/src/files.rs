//! Settings files of the user: read and replaced as a whole.

use nix::unistd::Uid;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Seek, Write};
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

/// A note for people on how [`replace`] will change a file; `None` if it is an ordinary one.
pub fn note(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let (mode, names) = (metadata.mode() & 0o7777, metadata.nlink());
    let protected = format!("it is write-protected (mode {mode:04o})");
    match (mode & 0o200 == 0, names > 1) {
        (true, true) => Some(format!(
            "{protected} and has {names} names (hard links): it cannot be changed"
        )),
        (true, false) => Some(format!("{protected}: a file of the same mode replaces it")),
        (false, true) => Some(format!(
            "it has {names} names (hard links): it is changed in place, under all of them"
        )),
        (false, false) => None,
    }
}

/// Replaces a file with the content `before` by `text`, atomically unless it has several names, which all stay names of it. If it is
/// a link, the file that it leads to is replaced, since people keep settings elsewhere and link them.
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
    let metadata = fs::metadata(&path).ok();
    if metadata
        .as_ref()
        .is_some_and(|metadata| metadata.nlink() > 1)
    {
        return write_in_place(&path, before.unwrap_or_default(), text);
    }
    let mode = metadata.map_or(0o600, |metadata| metadata.mode() & 0o7777);
    let temporary = temporary(&path);
    let written = write_new(&temporary, text, mode).and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // A leftover temporary file does no harm.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Changes a file under all its names. If that fails, it gets its content `before` back.
#[expect(
    clippy::disallowed_methods,
    reason = "the user's own settings, which this command is to change"
)]
fn write_in_place(path: &Path, before: &str, text: &str) -> io::Result<()> {
    if fs::metadata(path)?.mode() & 0o200 == 0 {
        return Err(io::Error::other(
            "it is write-protected and has several names (hard links): make it writable first",
        ));
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    let mut put = |text: &str| {
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)?;
        file.sync_all()
    };
    put(text).inspect_err(|_| {
        // The first error is the one to report.
        let _ = put(before);
    })
}

/// Keeps `text` in a new file `path`; if that name is taken, in one with a number behind it. Returns the file's path.
///
/// # Errors
/// If it cannot be written. No file is overwritten, whoever else keeps one at the same time.
pub(crate) fn save_new(path: &Path, text: &str) -> io::Result<PathBuf> {
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
#[expect(
    clippy::disallowed_methods,
    reason = "the test makes and looks at files of its own"
)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_several_names_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other] = ["settings.json", "dotfiles.json"].map(|name| folder.path().join(name));
        fs::write(&path, "a longer text before").unwrap();
        assert_eq!(note(&path), None);
        fs::hard_link(&path, &other).unwrap();
        assert!(note(&path).unwrap().contains("2 names"));
        replace(&path, Some("a longer text before"), Some("after")).unwrap();
        for name in [&path, &other] {
            assert_eq!(read(name).unwrap().as_deref(), Some("after"));
        }
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(note(&path).unwrap().contains("cannot be changed"));
        assert!(replace(&path, Some("after"), Some("again")).is_err());
        assert_eq!(read(&other).unwrap().as_deref(), Some("after"));
    }

    #[test]
    fn a_write_protected_file_is_replaced_with_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert_eq!(
            note(&path).unwrap(),
            "it is write-protected (mode 0400): a file of the same mode replaces it"
        );
        replace(&path, Some("before"), Some("after")).unwrap();
        assert_eq!(read(&path).unwrap().as_deref(), Some("after"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o400);
    }

    #[test]
    fn backup_is_never_overwritten() {
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
