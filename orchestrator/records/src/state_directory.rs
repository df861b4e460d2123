//! Where records are kept: outside both roots, and the same place for the executor and for us.

use nix::unistd::{Uid, User};
use policies::directories;
use std::ffi::OsString;
use std::path::PathBuf;

/// The directory of Lazaret's state.
pub fn directory() -> PathBuf {
    directories::state(&home(), &variable)
}

/// The directory of data, outside of which no central root is made unless it is named.
pub fn data() -> PathBuf {
    directories::data(&home(), &variable)
}

/// The home that the executor means too.
pub fn home() -> PathBuf {
    let account = User::from_uid(Uid::effective()).ok().flatten().map(|account| account.dir);
    directories::home(account, &|path| path.is_dir(), &variable)
}

/// A variable of our environment.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
