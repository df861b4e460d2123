//! The records: the executor's audit, the run log, and that secrets are in neither.

mod audit;
mod tamper;
mod runlog;
mod signed;
mod otlp;
mod canary;
mod written;
