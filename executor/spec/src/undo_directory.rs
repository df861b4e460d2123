//! `.lazaret` in the central root, where the file worker saves what it replaces. Its name is
//! protected: a session pins it, and before that opens it for the worker alone.

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open as open_path, openat2};
use nix::sys::stat::{Mode, mkdirat};
use std::os::fd::OwnedFd;
use std::path::Path;

pub const NAME: &str = ".lazaret";
/// In it, what was taken away.
pub const QUARANTINE: &str = "quarantine";

const DIRECTORY: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);

fn root(central: &Path) -> nix::Result<OwnedFd> {
    open_path(central, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty())
}

/// Creates it in `central`, so that it can be pinned. If that fails, nothing is saved for undo.
pub fn make(central: &Path) {
    let _ = root(central).and_then(|root| mkdirat(root, NAME, Mode::S_IRWXU));
}

/// Opens it in `central`; `None` if it does not exist, or is a link.
pub fn open(central: &Path) -> Option<OwnedFd> {
    let links = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(
        root(central).ok()?,
        NAME,
        OpenHow::new().flags(DIRECTORY).resolve(links),
    )
    .ok()
}
