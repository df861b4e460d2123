//! In the broker: a finding about a path.

use broker_protocol::{Finding, FindingKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Reports what a command has left in a repository.
pub(crate) fn of_repository(kind: FindingKind, path: &Path, why: &str) -> Finding {
    Finding::new(
        kind,
        String::from_utf8_lossy(path.as_os_str().as_bytes()),
        why,
    )
}
