//! Why logging or an export cannot be set up.

use broker_protocol::{ErrorKind, Failed};
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why logging or an export cannot be set up.
#[derive(Debug, Error)]
pub enum TelemetryError {
    /// The log cannot be opened.
    #[error("--server-log: cannot write {}: {error}", path.display())]
    Open {
        /// The file that was named.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The log exists, but is not a file of this user alone.
    #[error("--server-log: {} is not a regular file owned by you without other hard links", .0.display())]
    NotOurs(PathBuf),
    /// Another process is writing the log.
    #[error("--server-log: another process writes {}", .0.display())]
    InUse(PathBuf),
    /// Spans are to be exported, but this program was built without that.
    #[error(
        "{0}: this lazaret is built without the feature `otel` (cargo build --release --features otel)"
    )]
    NotBuilt(&'static str),
    /// The collector's address is unusable.
    #[error(
        "{0}: a collector is http://HOST:PORT or https://HOST, without a name, password, query or fragment"
    )]
    Address(&'static str),
    /// Headers for the collector may contain a key.
    #[error(
        "{0}: the headers of OTEL_EXPORTER_OTLP_HEADERS would cross a network in clear text; use https"
    )]
    PlainHeaders(&'static str),
    /// Headers for the collector are none.
    #[error(
        "{0}: headers are name=value, divided by commas, values percent-encoded, and none of the connection itself"
    )]
    Headers(&'static str),
    /// The exporter cannot be created.
    #[error("cannot export spans: {0}")]
    Export(String),
    /// Another subscriber is already installed in this process.
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
            | TelemetryError::PlainHeaders(_)
            | TelemetryError::Headers(_) => ErrorKind::InvalidInput,
            TelemetryError::Export(_) | TelemetryError::Subscriber => ErrorKind::Internal,
        };
        Failed {
            kind,
            message: error.to_string(),
        }
    }
}
