//! The runtime that waits for events.

use broker_protocol::Failed;
use orchestrator_confine::ConfinementProof;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

/// One thread is enough: other processes do the work.
pub(crate) fn runtime(_: ConfinementProof) -> Result<LocalRuntime, Failed> {
    Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .map_err(|error| Failed::internal(format!("cannot prepare to wait for events: {error}")))
}
