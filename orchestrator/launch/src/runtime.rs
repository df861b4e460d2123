//! The runtime that waits for events.

use broker_protocol::Failed;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// One thread is enough: other processes do the work.
pub(crate) fn runtime() -> Result<LocalRuntime, Failed> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| Failed::internal(format!("cannot prepare to wait for events: {error}")))
}
