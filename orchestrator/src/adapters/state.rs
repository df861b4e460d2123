//! Where records are kept: outside both roots, and the same place for the executor and for us.

use nix::unistd::{Uid, User};
use std::path::PathBuf;

/// The directory of Lazaret's state: `lazaret` in `$XDG_STATE_HOME`, or in `.local/state` of the account's home. As the
/// executor does, this asks the account and not `HOME`, which programs point elsewhere for those that they start.
pub fn directory() -> PathBuf {
    let named = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    named.unwrap_or_else(|| home().join(".local/state")).join("lazaret")
}

fn home() -> PathBuf {
    User::from_uid(Uid::effective()).ok().flatten().map_or_else(|| "/".into(), |account| account.dir)
}
