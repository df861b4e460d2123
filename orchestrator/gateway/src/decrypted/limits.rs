//! The limits of connections that are decrypted.

use std::time::Duration;

/// Maximum number of requests at a time on one connection of HTTP/2.
pub(crate) const STREAMS: u32 = 100;
/// Maximum number of streams that a program may reset before anything was done for them.
pub(crate) const RESETS: usize = 20;
/// Maximum number of streams that are reset because of a program's errors.
pub(crate) const ERRORS: usize = 256;
/// Bytes that may wait to be written, for each stream.
pub(crate) const SEND_BUFFER: usize = 64 * 1024;
/// Bytes that a peer may send before they are read: of one stream, of a connection.
pub(crate) const STREAM_WINDOW: u32 = 256 * 1024;
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 20;
/// Maximum number of connections of HTTP/1.1 to the host for one of HTTP/2 from a program.
pub(crate) const PARALLEL: usize = 16;
/// Maximum number of requests that wait for one value.
pub(crate) const WAITING: usize = 64;
/// Minimum length of a value, in bytes: a shorter one would be found in answers that do not contain it.
pub(crate) const VALUE_MIN: usize = 8;
/// The end of a value that is searched for, in bytes: long ones begin alike and end differently.
pub(crate) const SEARCHED: usize = 256;
/// How long the last word of what a host has sent is held, while it sends no more.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Values of one credential that are searched for: the present one and earlier ones.
pub(crate) const REMEMBERED: usize = 64;
/// The minimum interval between two questions grows by itself with so many values: a cell that has a host refuse each could otherwise
/// have those forgotten that are still good.
pub(crate) const VALUES_PER_INTERVAL: usize = 4;
/// Tokens of one credential's logins that are searched for: those that were used last.
pub(crate) const TOKENS: usize = 8;
/// Maximum length of a host's answer `401` that is read so that the request can be sent again.
pub(crate) const REFUSAL_BODY: usize = 64 * 1024;
/// Maximum bytes of a refused request's body that are read after its answer, and for how long.
pub(crate) const PASSED_OVER: usize = 16 << 20;
pub(crate) const PASSING_OVER: Duration = Duration::from_secs(5);

/// Maximum number of requests that wait until somebody has allowed them.
pub(crate) const HELD_REQUESTS: usize = 64;
/// Bytes of all their bodies that are read before that.
pub(crate) const HELD_BYTES: usize = 32 << 20;
/// A key that ends within so many seconds is asked for again.
pub(crate) const EXPIRES_SOON: u64 = 60;

/// Limits in time. Tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// For a program's first bytes, for each handshake, and for a request's head.
    pub begin: Duration,
    /// A connection ends after this long without a byte in either direction, if others may need its place: a quiet one may be a stream
    /// or a WebSocket that waits for an event.
    pub idle: Duration,
    /// How often a quiet connection looks whether they do.
    pub look: Duration,
    /// How long a request waits for a value.
    pub value: Duration,
    /// The minimum interval between two questions for one value.
    pub refresh: Duration,
    /// How long a request is held for an answer: pip gives up after 15 s, cargo after 30 s.
    pub held: Duration,
    /// How long uses are counted before they are reported.
    pub report: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            begin: Duration::from_secs(15),
            idle: Duration::from_secs(600),
            look: Duration::from_secs(10),
            value: Duration::from_secs(15),
            refresh: Duration::from_secs(30),
            held: Duration::from_secs(10),
            report: Duration::from_secs(1),
        }
    }
}
