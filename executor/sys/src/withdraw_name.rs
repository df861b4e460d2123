//! Withdraws a name that was just created.

use crate::random;
use crate::stale_temporaries::{DIGITS, PREFIX};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::os::fd::AsFd;
use std::path::Path;

/// Takes `name` out of `directory`: an empty directory is removed, everything else gets a name at random.
///
/// # Errors
/// The kernel's.
pub fn withdraw_name(directory: impl AsFd, name: &Path) -> Result<()> {
    if unlinkat(&directory, name, UnlinkatFlags::RemoveDir).is_ok() {
        return Ok(());
    }
    let number = random::bytes()
        .map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    let aside = format!("{PREFIX}{:0DIGITS$x}", u64::from_le_bytes(number));
    renameat(&directory, name, &directory, aside.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn nothing_keeps_its_name_and_no_content_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("full/x")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("file"), "x").unwrap();
        let directory = File::open(folder.path()).unwrap();
        for name in ["full", "empty", "file"] {
            withdraw_name(&directory, Path::new(name)).unwrap();
            assert!(!at(name).exists(), "{name}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        assert_eq!(
            withdraw_name(&directory, Path::new("none")),
            Err(Errno::ENOENT)
        );
    }
}
