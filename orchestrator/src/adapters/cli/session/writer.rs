//! Standard output of a session: whole lines, one at a time, each call in its turn. Who wants to write waits for the
//! reader, and holds nothing but the one line.

use crate::adapters::cli::streams::Output;
use serde::Serialize;
use std::cell::Cell;
use tokio::sync::{Mutex, Notify};

/// Capacity that is kept from line to line.
const KEPT: usize = 64 * 1024;

/// Nobody reads the output any more.
#[derive(Debug)]
pub struct Closed;

/// Writes lines of JSON.
pub struct Writer {
    output: Output,
    line: Mutex<Vec<u8>>,
    is_closed: Cell<bool>,
    closing: Notify,
}

impl Writer {
    /// Writes to `output`.
    pub fn new(output: Output) -> Self {
        Self { output, line: Mutex::default(), is_closed: Cell::new(false), closing: Notify::new() }
    }

    /// Writes `event` as one line.
    pub async fn line(&self, event: &impl Serialize) -> Result<(), Closed> {
        let mut line = self.line.lock().await;
        if self.is_closed.get() {
            return Err(Closed);
        }
        line.clear();
        let encoded = serde_json::to_writer(&mut *line, event);
        line.push(b'\n');
        let written = self.output.write_all(&line).await;
        line.clear();
        line.shrink_to(KEPT);
        if encoded.is_err() || written.is_err() {
            self.is_closed.set(true);
            self.closing.notify_one();
            return Err(Closed);
        }
        Ok(())
    }

    /// Waits until nobody reads the output any more.
    pub async fn closed(&self) {
        while !self.is_closed.get() {
            self.closing.notified().await;
        }
    }
}
