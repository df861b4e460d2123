//! Feeds a command from our own standard input.

use crate::stdio::streams::InputStream;
use broker_protocol::limit;
use orchestrator_engine::{CallHandle, StdinChunk};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// How many chunks to read before the command has taken the first of them.
const AHEAD: usize = 2;

/// Feeds the command of a call until `input` ends. Never returns: the end of the call ends it.
pub async fn feed(call: &CallHandle, input: Option<InputStream>) -> Infallible {
    if let Some(input) = input {
        let ahead = Arc::new(Semaphore::new(AHEAD));
        let mut bytes = vec![0; limit::CHUNK];
        loop {
            // The semaphore is never closed, so this succeeds in the end.
            let permit = ahead.clone().acquire_owned().await.ok();
            // A read error counts as the end of the input.
            let Ok(count @ 1..) = input.read(&mut bytes).await else {
                break;
            };
            call.input(StdinChunk {
                bytes: bytes[..count].to_vec(),
                permit,
            });
        }
        call.end_input();
    }
    pending().await
}
