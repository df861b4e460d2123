//! What is written down: the executor's audit, the run log, and that secrets are in neither.
#![allow(clippy::unwrap_used)]

mod audit;
mod tamper;
mod runlog;
mod canary;

use lazaret_tests::{Finished, World, run};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

/// The directory of the audit.
fn audit_of(world: &World) -> PathBuf {
    world.state.join("lazaret/audit")
}

/// Every record of the audit.
fn records(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(audit_of(world).join("audit-000001.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Those of a kind.
fn of_kind(records: &[Value], kind: &str) -> Vec<Value> {
    records.iter().filter(|record| record["kind"] == kind).cloned().collect()
}

/// `lazaret audit verify --json`.
fn verify(world: &World) -> Finished {
    run(world.program("lazaret").args(["audit", "verify", "--json"]), LIMIT)
}

/// Fails unless the audit is whole; says how many records it has.
#[track_caller]
fn whole(world: &World) -> u64 {
    let report: Value = serde_json::from_str(&verify(world).success()).unwrap();
    assert_eq!(report["whole"], true, "{report}");
    report["records"].as_u64().unwrap()
}
