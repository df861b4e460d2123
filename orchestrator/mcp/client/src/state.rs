//! The state shared by the tasks that serve a server: whether it is gone, and how much it has sent unsolicited.

use crate::messages::{Excess, UNASKED_BYTES, UNASKED_MESSAGES};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tokio::sync::Notify;

/// The state of a running server.
#[derive(Debug, Default)]
pub(crate) struct ServerState {
    end: OnceLock<String>,
    /// Wakes tasks that wait for its end.
    pub gone: Notify,
    messages: AtomicU32,
    bytes: AtomicU64,
}

impl ServerState {
    /// Records why it is gone; the first reason counts.
    pub(crate) fn end(&self, why: String) {
        let _ = self.end.set(why);
        self.gone.notify_waiters();
    }

    /// Why it is gone, if it is.
    pub(crate) fn why_gone(&self) -> Option<&str> {
        self.end.get().map(String::as_str)
    }

    /// Resets the counters, since a call was made or answered.
    pub(crate) fn asked(&self) {
        self.messages.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
    }

    /// Counts what it has sent.
    ///
    /// # Errors
    /// If that is more than it may send unsolicited.
    pub(crate) fn count(&self, messages: usize, bytes: usize) -> Result<(), Excess> {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        let messages = self
            .messages
            .fetch_add(messages, Ordering::Relaxed)
            .saturating_add(messages);
        let bytes = self
            .bytes
            .fetch_add(bytes as u64, Ordering::Relaxed)
            .saturating_add(bytes as u64);
        if messages > UNASKED_MESSAGES {
            return Err(Excess::UnaskedMessages);
        }
        if bytes > UNASKED_BYTES {
            return Err(Excess::UnaskedBytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsolicited_messages_are_limited() {
        let state = ServerState::default();
        assert!(
            state
                .count(UNASKED_MESSAGES as usize, UNASKED_BYTES as usize)
                .is_ok()
        );
        assert!(state.count(1, 0).is_err());
        state.asked();
        assert!(state.count(0, UNASKED_BYTES as usize).is_ok() && state.count(0, 1).is_err());
    }

    #[test]
    fn the_first_reason_counts() {
        let state = ServerState::default();
        state.end("one".into());
        state.end("two".into());
        assert_eq!(state.why_gone(), Some("one"));
    }
}
