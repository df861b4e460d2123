//! This user's audit: where it is, and how it is read although it may grow meanwhile.

use broker_protocol::Failed;
use orchestrator_launch::state_directory;
use orchestrator_records::audit_chain;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How often `--follow` reads the file again.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn unreadable(error: io::Error) -> Failed {
    Failed::internal(format!("the audit cannot be read: {error}"))
}

pub(super) fn directory() -> PathBuf {
    state_directory::directory().join("audit")
}

/// This user's audit, if there is one.
pub(super) fn open() -> Result<Option<audit_chain::AuditChain>, Failed> {
    audit_chain::AuditChain::open(directory()).map_err(unreadable)
}

/// Why there is nothing to read.
pub(super) fn absence() -> String {
    format!("there is no audit in {}", directory().display())
}
