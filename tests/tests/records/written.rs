//! Readers of audit records for tests.

use lazaret_tests::{Finished, LIMIT, World, run};
use serde_json::Value;
use std::path::PathBuf;

/// The directory of the audit.
pub fn audit_of(world: &World) -> PathBuf {
    world.state.join("lazaret/audit")
}

/// Every record of the audit.
pub fn records(world: &World) -> Vec<Value> {
    let text =
        std::fs::read_to_string(audit_of(world).join("audit-000001.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub fn of_kind(records: &[Value], kind: &str) -> Vec<Value> {
    records
        .iter()
        .filter(|record| record["kind"] == kind)
        .cloned()
        .collect()
}

pub fn verify(world: &World) -> Finished {
    run(
        world.program("lazaret").args(["audit", "verify", "--json"]),
        LIMIT,
    )
}

/// Fails unless the audit is whole; says how many records it has.
#[track_caller]
pub fn whole(world: &World) -> u64 {
    let report: Value = serde_json::from_str(&verify(world).success()).unwrap();
    assert_eq!(report["whole"], true, "{report}");
    report["records"].as_u64().unwrap()
}
