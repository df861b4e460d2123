//! Standard output of a session: writes whole lines, one at a time, in turn for all calls. A call that writes waits for the reader
//! and holds only its one line.

use orchestrator_launch::stdio::print::escaped_json;
use orchestrator_launch::stdio::streams::OutputStream;
use serde::Serialize;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::io;
use tokio::sync::{Mutex, Notify};

/// Buffer capacity that is kept between lines, in bytes.
const CAPACITY: usize = 64 * 1024;

/// The output is closed: nobody reads it, or there is no space for it.
#[derive(Debug)]
pub struct OutputClosed;

/// Writes lines of JSON.
pub struct Writer {
    output: OutputStream,
    line: Mutex<Vec<u8>>,
    /// Why the output is closed.
    error: OnceCell<io::Error>,
    failed: Notify,
}

impl Writer {
    /// Writes to `output`.
    pub fn new(output: OutputStream) -> Self {
        Self {
            output,
            line: Mutex::default(),
            error: OnceCell::new(),
            failed: Notify::new(),
        }
    }

    /// Writes `value` as one line.
    pub async fn line(&self, value: &impl Serialize) -> Result<(), OutputClosed> {
        let mut line = self.line.lock().await;
        if self.error.get().is_some() {
            return Err(OutputClosed);
        }
        line.clear();
        let encoded = serde_json::to_writer(&mut *line, value);
        escape(&mut line);
        line.push(b'\n');
        let written = self.output.write_all(&line).await;
        line.clear();
        line.shrink_to(CAPACITY);
        if let Err(error) = encoded.map_err(io::Error::from).and(written) {
            let _ = self.error.set(error);
            self.failed.notify_one();
            return Err(OutputClosed);
        }
        Ok(())
    }

    /// Waits until the output is closed; returns the reason.
    pub async fn closed(&self) -> &io::Error {
        loop {
            if let Some(error) = self.error.get() {
                return error;
            }
            self.failed.notified().await;
        }
    }
}

/// Escapes characters that take effect on a terminal: `--raw-output` leaves them in texts.
fn escape(line: &mut Vec<u8>) {
    if let Ok(text) = std::str::from_utf8(line)
        && let Cow::Owned(escaped) = escaped_json(text)
    {
        *line = escaped.into_bytes();
    }
}
