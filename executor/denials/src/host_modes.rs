//! Files that the user may not read outside a cell either.

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether the user could not read the file outside a cell either: that a cell does not show it is not why a command failed, and no option
/// would help. Only where the directories above are root's and everybody sees what lies in them, so that nothing is learnt of what lies
/// in somebody's home.
pub(crate) fn is_closed_outside_too(path: &Path) -> bool {
    /// For all others: read and search.
    const PUBLIC: u32 = 0o5;
    let is_public = |directory: &Path| {
        let metadata = directory.symlink_metadata();
        metadata.is_ok_and(|it| it.is_dir() && it.uid() == 0 && it.mode() & PUBLIC == PUBLIC)
    };
    path.is_absolute()
        && path.ancestors().skip(1).all(is_public)
        && path.symlink_metadata().is_ok_and(|it| it.is_file())
        && access(path, AccessFlags::R_OK) == Err(Errno::EACCES)
}
