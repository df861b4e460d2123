//! What keeps a run from reporting.

use broker_protocol::{ErrorKind, Failed};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// What keeps a run from reporting.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log cannot be opened.
    #[error("--server-log: cannot write {}: {error}", path.display())]
    Open {
        /// The file that was named.
        path: PathBuf,
        /// The reason of the system.
        error: io::Error,
    },
    /// The log is there, and not a file of this user alone.
    #[error("--server-log: {} is no regular file that is this user's and has one name", .0.display())]
    NotOurs(PathBuf),
    /// Another process writes the log.
    #[error("--server-log: another process writes {}", .0.display())]
    InUse(PathBuf),
    /// Spans were asked for, and this program cannot export any.
    #[error("{0}: this lazaret is built without the feature `otel` (cargo build --release --features otel)")]
    NotBuilt(&'static str),
    /// The collector has no usable address.
    #[error(
        "{0}: a collector is http://HOST:PORT or https://HOST, without a name, password, query or fragment"
    )]
    Address(&'static str),
    /// Headers for the collector may hold a key.
    #[error("{0}: the headers of OTEL_EXPORTER_OTLP_HEADERS would cross a network in clear text; use https")]
    PlainHeaders(&'static str),
    /// The exporter cannot be made.
    #[error("cannot export spans: {0}")]
    Export(String),
    /// Something else in this process hears already.
    #[error("this process has a subscriber already")]
    Subscriber,
}

impl From<TelemetryError> for Failed {
    fn from(error: TelemetryError) -> Self {
        let kind = match error {
            TelemetryError::Open { .. }
            | TelemetryError::NotOurs(_)
            | TelemetryError::InUse(_)
            | TelemetryError::NotBuilt(_)
            | TelemetryError::Address(_)
            | TelemetryError::PlainHeaders(_) => ErrorKind::InvalidInput,
            TelemetryError::Export(_) | TelemetryError::Subscriber => ErrorKind::Internal,
        };
        Failed { kind, message: error.to_string() }
    }
}
