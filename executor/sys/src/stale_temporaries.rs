//! Temporary files left behind when a process is killed between naming its temporary file and renaming it.
//!
//! They are complete, and are removed when the next session opens on the same root.

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The prefix of a temporary file's name; hexadecimal digits follow.
pub const PREFIX: &str = ".lazaret-";
/// Hexadecimal digits of a temporary file's name.
pub const DIGITS: usize = 16;
/// A write renames its file as soon as it has a name. A file older than this was left behind.
const STALE: Duration = Duration::from_secs(1);

/// Whether a temporary file could have this name.
pub fn has_such_a_name(name: &OsStr) -> bool {
    let digits = name.as_bytes().strip_prefix(PREFIX.as_bytes());
    digits.is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit))
}

/// Removes the stale files among `paths`, below `root`. What cannot be removed stays: it is harmless.
pub fn remove(root: &Path, paths: &[PathBuf]) {
    for path in paths {
        let _ = remove_stale(root, path);
    }
}

/// Follows no link on the way: cells can write to the zone.
fn remove_stale(root: &Path, path: &Path) -> nix::Result<()> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(root, flags, Mode::empty())?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let parent = openat2(&root, parent, OpenHow::new().flags(flags).resolve(resolve))?;
    let Some(name) = path.file_name() else {
        return Ok(());
    };
    let stat = fstatat(&parent, name, nix::fcntl::AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let regular = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let written = UNIX_EPOCH + Duration::from_secs(stat.st_mtime.max(0) as u64);
    if regular
        && SystemTime::now()
            .duration_since(written)
            .is_ok_and(|age| age > STALE)
    {
        unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_stale_files_with_such_a_name_go() {
        let zone = tempfile::tempdir().unwrap();
        let old = PathBuf::from(".lazaret-0123456789abcdef");
        let new = PathBuf::from(".lazaret-fedcba9876543210");
        for path in [&old, &new] {
            assert!(has_such_a_name(path.as_os_str()));
            fs::write(zone.path().join(path), "x").unwrap();
        }
        let long_ago = SystemTime::now() - Duration::from_secs(10);
        fs::File::options()
            .write(true)
            .open(zone.path().join(&old))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        remove(
            zone.path(),
            &[old.clone(), new.clone(), "../outside".into()],
        );
        assert!(!zone.path().join(old).exists() && zone.path().join(new).exists());
        for name in [
            ".lazaret-",
            ".lazaret-0123456789abcdeg",
            ".lazaret-0123456789abcdef0",
            "lazaret",
        ] {
            assert!(!has_such_a_name(OsStr::new(name)), "{name}");
        }
    }
}
