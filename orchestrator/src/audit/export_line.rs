//! The lines of an export, printed or sent: their forms, and what signs those before it.

use broker_protocol::chain::Head;
use clap::ValueEnum;
use orchestrator_launch::exit;
use orchestrator_launch::stdio::print;
use orchestrator_records::audit_chain::Flaw;
use orchestrator_records::{ocsf, signed_head};
use orchestrator_signature::AuditKey;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ExportFormat {
    /// The records as they are
    Jsonl,
    /// Open Cybersecurity Schema Framework 1.6.0, with the record in `raw_data`
    Ocsf,
}

/// A line that signs all records up to `head`.
pub(super) fn signed_now(head: &Head, key: &AuditKey) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    signed_head::signed_line(head, now.map_or(0, |now| now.as_secs()), key)
}

/// The event of OCSF for a line.
pub(super) fn event(line: &str, record: &Value) -> Value {
    ocsf::event(line, record, env!("CARGO_PKG_VERSION"))
}

pub(super) fn refuse(flaw: &Flaw) -> u8 {
    print::problem(&format!(
        "the audit is not as it was written: {flaw}; what was exported is whole"
    ));
    exit::FAILED
}
