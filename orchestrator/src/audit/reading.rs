//! How an audit is read that may grow meanwhile.

use broker_protocol::Failed;
use std::io;
use std::time::Duration;

/// How often `--follow` reads the file again.
pub(crate) const INTERVAL: Duration = Duration::from_millis(200);

pub(crate) fn unreadable(error: io::Error) -> Failed {
    Failed::internal(format!("the audit cannot be read: {error}"))
}
