//! Where records are kept: outside both roots, and the same place for the executor and for us.

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

/// The directory of data, outside of which no central root is made unless it is named.
pub fn data() -> PathBuf {
    directories::data(&home(), &variable)
}

/// The directory of what is about files below `HOME`: a home that is not the account's has one of its own.
pub fn of_home() -> PathBuf {
    let home = home();
    match directories::homes(&home, &variable).into_iter().find(|other| *other != home) {
        Some(other) => directory().join("homes").join(Digest::of(other.as_os_str().as_bytes()).to_string()),
        None => directory(),
    }
}

/// The home that the executor means too.
pub fn home() -> PathBuf {
    // The database of accounts is read once: later this process may have closed itself to it.
    static ACCOUNT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let read = || User::from_uid(Uid::effective()).ok().flatten().map(|account| account.dir);
    directories::home(ACCOUNT.get_or_init(read).clone(), &|path| path.is_dir(), &variable)
}

/// A variable of our environment.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
