//! Feeds a command from our own standard input.

use broker_protocol::limit;
use orchestrator_lines::streams::Input;
use orchestrator_session::{CallHandle, StdinChunk};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Chunks that are read before the command has taken the first of them.
const AHEAD: usize = 2;

/// Feeds the command of a call until `input` ends. Never returns: it is the call that ends.
pub async fn feed(call: &CallHandle, input: Option<Input>) -> Infallible {
    if let Some(input) = input {
        let ahead = Arc::new(Semaphore::new(AHEAD));
        let mut bytes = vec![0; limit::CHUNK];
        loop {
            // Never closed, so there is always a permit in the end.
            let permit = ahead.clone().acquire_owned().await.ok();
            // An input that cannot be read is at its end.
            let Ok(count @ 1..) = input.read(&mut bytes).await else { break };
            call.input(StdinChunk { bytes: bytes[..count].to_vec(), permit });
        }
        call.end_input();
    }
    pending().await
}
