//! Records of the audit in the Open Cybersecurity Schema Framework, as log collectors take them.
//!
//! Numbers of classes, activities, actions and dispositions are those of schema 1.6.0. The whole record is in `raw_data`, so
//! that the chain can still be verified.

use serde_json::{Map, Value, json};

const SCHEMA: &str = "1.6.0";

/// A class with one of its activities.
#[derive(Clone, Copy)]
struct OcsfClass {
    category: u32,
    uid: u32,
    activity: u32,
}

const SESSION_START: OcsfClass = OcsfClass::of(6, 6002, 3);
const SESSION_STOP: OcsfClass = OcsfClass::of(6, 6002, 4);
const ERROR: OcsfClass = OcsfClass::of(6, 6008, 1);
/// API Activity, none of create, read, update, delete: what a call does is its tool's matter.
const CALL: OcsfClass = OcsfClass::of(6, 6003, 99);
const CONNECTION: OcsfClass = OcsfClass::of(4, 4001, 1);
const CONNECTION_END: OcsfClass = OcsfClass::of(4, 4001, 2);
const NO_CONNECTION: OcsfClass = OcsfClass::of(4, 4001, 5);

impl OcsfClass {
    const fn of(category: u32, uid: u32, activity: u32) -> Self {
        Self {
            category,
            uid,
            activity,
        }
    }
}

#[derive(Clone, Copy)]
enum Severity {
    Informational = 1,
    Low = 2,
    Medium = 3,
    High = 4,
    Critical = 5,
}

/// The result of a policy's decision: `action_id` and `disposition_id`.
#[derive(Clone, Copy)]
enum OcsfDecision {
    Allowed,
    Approved,
    Blocked,
    None,
}

impl OcsfDecision {
    fn numbers(self) -> Option<(u32, u32)> {
        match self {
            Self::Allowed => Some((1, 1)),
            Self::Approved => Some((1, 8)),
            Self::Blocked => Some((2, 2)),
            Self::None => None,
        }
    }
}

/// The event for a record, given as its line and parsed; `version` is this program's.
pub fn event(line: &str, record: &Value, version: &str) -> Value {
    let kind = text(record, "kind");
    let class = class(record);
    let mut event = json!({
        "category_uid": class.category,
        "class_uid": class.uid,
        "activity_id": class.activity,
        "activity_name": kind,
        "type_uid": class.uid * 100 + class.activity,
        "severity_id": severity(record) as u32,
        "time": (record["ts"].as_f64().unwrap_or_default() * 1000.0) as u64,
        "message": message(record),
        "metadata": {
            "version": SCHEMA,
            "uid": record["hash"],
            "sequence": record["seq"],
            "event_code": kind,
            "log_name": "audit",
            "profiles": ["security_control"],
            "product": { "name": "Lazaret", "vendor_name": "Lazaret", "version": version },
        },
        "raw_data": line,
    });
    let fields = event.as_object_mut().expect("it was made as an object");
    decide(fields, decision(record));
    conclude(fields, record);
    describe(fields, record, class);
    event
}

fn class(record: &Value) -> OcsfClass {
    match (text(record, "kind"), text(record, "verdict")) {
        ("opened", _) => SESSION_START,
        ("closed", _) => SESSION_STOP,
        ("fault" | "break", _) => ERROR,
        ("connection", "allowed" | "published") => CONNECTION,
        ("connection", _) => NO_CONNECTION,
        ("disconnected", _) => CONNECTION_END,
        // Those of later versions too.
        _ => CALL,
    }
}

fn decision(record: &Value) -> OcsfDecision {
    match text(record, "verdict") {
        "allow" | "allowed" | "published" | "used" | "attached" | "passed" => OcsfDecision::Allowed,
        "ask" if record["grant"].is_string() => OcsfDecision::Approved,
        "deny" | "refused" | "not_listed" | "not_public" | "stranger" => OcsfDecision::Blocked,
        _ => OcsfDecision::None,
    }
}

fn severity(record: &Value) -> Severity {
    match (text(record, "kind"), decision(record)) {
        ("break", _) => Severity::Critical,
        _ if record["violation"] == true => Severity::High,
        ("fault", _) => Severity::Medium,
        (_, OcsfDecision::Blocked) => Severity::Low,
        (_, OcsfDecision::Allowed | OcsfDecision::Approved | OcsfDecision::None) => {
            Severity::Informational
        }
    }
}

fn decide(event: &mut Map<String, Value>, decision: OcsfDecision) {
    if let Some((action, disposition)) = decision.numbers() {
        event.insert("action_id".into(), action.into());
        event.insert("disposition_id".into(), disposition.into());
    }
}

/// Adds whether it succeeded, where the record says so.
fn conclude(event: &mut Map<String, Value>, record: &Value) {
    let has_ended = record["end"].is_string();
    if let Some(code) = record["error"].as_str() {
        event.insert("status_id".into(), 2.into());
        event.insert("status_code".into(), code.into());
    } else if has_ended {
        event.insert("status_id".into(), 1.into());
    }
}

/// Adds the objects that the class requires.
fn describe(event: &mut Map<String, Value>, record: &Value, class: OcsfClass) {
    let session = text(record, "session");
    let mut add = |name: &str, object: Value| event.insert(name.into(), object);
    match class.uid {
        6002 => drop(add(
            "app",
            json!({ "name": "Lazaret session", "uid": session }),
        )),
        4001 => {
            // At a published port it is a program of this machine that connects.
            let source = match text(record, "verdict") {
                "published" | "stranger" => json!({ "name": "machine" }),
                _ => json!({ "name": "cell", "uid": session }),
            };
            add("src_endpoint", source);
            let destination = json!({ "hostname": record["host"], "port": record["port"] });
            add("dst_endpoint", destination);
            add("count", record["count"].clone());
            if let (Some(sent), Some(received)) =
                (record["sent"].as_u64(), record["received"].as_u64())
            {
                add(
                    "traffic",
                    json!({ "bytes_out": sent, "bytes_in": received, "bytes": sent.saturating_add(received) }),
                );
            }
        }
        6003 => {
            let actor = json!({ "app_name": "lazaret", "session": { "uid": session } });
            add("actor", actor);
            let operation = record["tool"].as_str().unwrap_or(text(record, "kind"));
            let call = record["call"].as_u64().map(|call| call.to_string());
            add(
                "api",
                json!({ "operation": operation, "request": { "uid": call.unwrap_or_default() } }),
            );
            add("src_endpoint", json!({ "name": "lazaret", "uid": session }));
        }
        _ => {}
    }
}

fn message(record: &Value) -> String {
    let names = [
        "tool", "name", "path", "host", "verdict", "end", "error", "found",
    ];
    let words = names.into_iter().filter_map(|name| {
        record[name]
            .as_str()
            .map(|value| format!(" {name}={value}"))
    });
    std::iter::once(text(record, "kind").to_owned())
        .chain(words)
        .collect()
}

fn text<'r>(record: &'r Value, name: &str) -> &'r str {
    record[name].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(record: Value) -> Value {
        event(&record.to_string(), &record, "0.1.0")
    }

    #[test]
    fn each_kind_has_its_class_and_the_objects_that_it_requires() {
        for (record, class, type_uid, objects) in [
            (json!({ "kind": "opened" }), 6002, 600_203, &["app"][..]),
            (json!({ "kind": "closed" }), 6002, 600_204, &["app"]),
            (json!({ "kind": "fault" }), 6008, 600_801, &[]),
            (json!({ "kind": "break" }), 6008, 600_801, &[]),
            (
                json!({ "kind": "call", "tool": "bash" }),
                6003,
                600_399,
                &["actor", "api", "src_endpoint"],
            ),
            (
                json!({ "kind": "of a later version" }),
                6003,
                600_399,
                &["actor", "api", "src_endpoint"],
            ),
            (
                json!({ "kind": "connection", "verdict": "allowed" }),
                4001,
                400_101,
                &["src_endpoint", "dst_endpoint"],
            ),
            (
                json!({ "kind": "connection", "verdict": "published" }),
                4001,
                400_101,
                &["src_endpoint", "dst_endpoint"],
            ),
            (
                json!({ "kind": "disconnected", "verdict": "allowed", "sent": 1, "received": 2 }),
                4001,
                400_102,
                &["src_endpoint", "dst_endpoint", "traffic"],
            ),
            (
                json!({ "kind": "connection", "verdict": "stranger" }),
                4001,
                400_105,
                &["src_endpoint", "dst_endpoint"],
            ),
            (
                json!({ "kind": "connection", "verdict": "not_listed" }),
                4001,
                400_105,
                &["src_endpoint", "dst_endpoint"],
            ),
        ] {
            let event = of(record.clone());
            assert_eq!(
                (&event["class_uid"], &event["type_uid"]),
                (&class.into(), &type_uid.into()),
                "{record}"
            );
            for object in objects {
                assert!(event[*object].is_object(), "{object} of {record}: {event}");
            }
            assert_eq!(event["raw_data"], record.to_string());
        }
    }

    #[test]
    fn decisions_and_ends_are_exported_as_ocsf() {
        for (record, action, disposition, severity, status) in [
            (
                json!({ "verdict": "allow", "end": "exited" }),
                1,
                1,
                1,
                json!(1),
            ),
            (
                json!({ "verdict": "allow", "end": "exited", "error": "exit_nonzero" }),
                1,
                1,
                1,
                json!(2),
            ),
            (
                json!({ "verdict": "ask", "grant": "once" }),
                1,
                8,
                1,
                Value::Null,
            ),
            (
                json!({ "verdict": "deny", "end": "refused", "error": "denied_policy" }),
                2,
                2,
                2,
                json!(2),
            ),
            (
                json!({ "verdict": "deny", "violation": true }),
                2,
                2,
                4,
                Value::Null,
            ),
        ] {
            let event = of(record.clone());
            assert_eq!(event["action_id"], action, "{record}");
            assert_eq!(event["disposition_id"], disposition, "{record}");
            assert_eq!(event["severity_id"], severity, "{record}");
            assert_eq!(event["status_id"], status, "{record}");
        }
        let undecided = of(json!({ "kind": "opened", "ts": 1.5 }));
        assert!(undecided["action_id"].is_null());
        assert_eq!(undecided["time"], 1500);
    }
}
