//! Where records are stored: outside both roots, and in the same place for the executor and the orchestrator.

use broker_protocol::Digest;
use nix::unistd::{Uid, User};
use policies::directories;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
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
