//! Where records are stored: outside both roots, and in the same place for the executor and the orchestrator.

use broker_protocol::Digest;
use nix::unistd::{Uid, User};
use policies::directories;
use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory of Lazaret's state.
pub fn directory() -> PathBuf {
    directories::state(&home(), &variable)
}

/// The directory of data. No central root is created outside it unless it is named.
pub fn data() -> PathBuf {
    directories::data(&home(), &variable)
}

/// The directory for records about files below `HOME`: separate if that is not the account's home.
pub fn of_home() -> PathBuf {
    let home = home();
    match directories::homes(&home, &variable)
        .into_iter()
        .find(|other| *other != home)
    {
        Some(other) => directory()
            .join("homes")
            .join(Digest::of(other.as_os_str().as_bytes()).to_string()),
        None => directory(),
    }
}

/// Checks that `path` is a directory of ours and no link, and removes access for others: its content is for the user alone, and a
/// link would lead where somebody else chose.
///
/// # Errors
/// Errors of the file system; also if it belongs to another user.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
pub fn make_private(path: &Path) -> io::Result<()> {
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_DIRECTORY;
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let metadata = directory.metadata()?;
    if metadata.uid() != Uid::effective().as_raw() {
        let message = format!("{} belongs to another user", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if metadata.mode() & 0o077 != 0 {
        directory.set_permissions(Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The home directory, as the executor finds it.
pub fn home() -> PathBuf {
    // The account database is read once: later the confinement may prevent it.
    static ACCOUNT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let read = || {
        User::from_uid(Uid::effective())
            .ok()
            .flatten()
            .map(|account| account.dir)
    };
    directories::home(
        ACCOUNT.get_or_init(read).clone(),
        &|path| path.is_dir(),
        &variable,
    )
}

/// A variable of our environment.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
