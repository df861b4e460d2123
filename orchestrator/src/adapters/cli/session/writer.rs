//! Standard output of a session: whole lines, one at a time, each call in its turn. Who wants to write waits for the
//! reader, and holds nothing but the one line.

use crate::adapters::cli::streams::Output;
use serde::Serialize;
use std::cell::OnceCell;
use std::io;
use tokio::sync::{Mutex, Notify};

/// Capacity that is kept from line to line.
const KEPT: usize = 64 * 1024;

/// Nothing can be written any more: nobody reads it, or there is no place for it.
#[derive(Debug)]
pub struct Closed;

/// Writes lines of JSON.
pub struct Writer {
    output: Output,
    line: Mutex<Vec<u8>>,
    /// Why nothing can be written any more.
    closed: OnceCell<io::Error>,
    closing: Notify,
}

impl Writer {
    /// Writes to `output`.
    pub fn new(output: Output) -> Self {
        Self { output, line: Mutex::default(), closed: OnceCell::new(), closing: Notify::new() }
    }

    /// Writes `event` as one line.
    pub async fn line(&self, event: &impl Serialize) -> Result<(), Closed> {
        let mut line = self.line.lock().await;
        if self.closed.get().is_some() {
            return Err(Closed);
        }
        line.clear();
        let encoded = serde_json::to_writer(&mut *line, event);
        line.push(b'\n');
        let written = self.output.write_all(&line).await;
        line.clear();
        line.shrink_to(KEPT);
        if let Err(error) = encoded.map_err(io::Error::from).and(written) {
            let _ = self.closed.set(error);
            self.closing.notify_one();
            return Err(Closed);
        }
        Ok(())
    }

    /// Waits until nothing can be written any more, and says why.
    pub async fn closed(&self) -> &io::Error {
        loop {
            if let Some(error) = self.closed.get() {
                return error;
            }
            self.closing.notified().await;
        }
    }
}
