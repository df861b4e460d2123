#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fields;
mod log_file;
mod log_layer;
mod error;
mod target;
mod collector_headers;
#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
#[path = "no_export.rs"]
mod export;
mod telemetry;
mod log_collector;

pub use log_collector::{CollectorFault, LogCollector, NotAcknowledged};
pub use telemetry::{ExportOptions, Telemetry, TelemetryOptions};
