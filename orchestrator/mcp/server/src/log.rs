//! Messages to the client's log, of at least the level that it has set.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no log; clients of today's have"
)]

use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::{Peer, RoleServer};
use serde_json::Value;
use std::sync::atomic::{AtomicU8, Ordering};

/// The name of our logger.
const LOGGER: &str = "lazaret";

/// The minimum level of messages to send.
#[derive(Debug)]
pub(crate) struct LogLevel(AtomicU8);

impl Default for LogLevel {
    fn default() -> Self {
        Self(AtomicU8::new(rank(LoggingLevel::Info)))
    }
}

impl LogLevel {
    /// Sets the minimum level.
    pub(crate) fn set(&self, level: LoggingLevel) {
        self.0.store(rank(level), Ordering::Relaxed);
    }

    /// Sends a message. If the client is gone, it misses nothing.
    pub(crate) async fn send(&self, peer: &Peer<RoleServer>, level: LoggingLevel, data: Value) {
        if rank(level) >= self.0.load(Ordering::Relaxed) {
            let message = LoggingMessageNotificationParam::new(level, data).with_logger(LOGGER);
            let _ = peer.notify_logging_message(message).await;
        }
    }
}

fn rank(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
