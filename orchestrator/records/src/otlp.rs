//! Records of the audit as log records of OTLP, in its JSON form, as collectors of OpenTelemetry take them.
//!
//! The body is the line that a file export has, byte for byte, so whoever has the bodies verifies the chain. Attributes have the names
//! of the Open Cybersecurity Schema Framework, where it has one.

use broker_protocol::Digest;
use serde_json::{Map, Value, json};

/// The scope of all log records, and the beginning of the names that neither OCSF nor OpenTelemetry has.
const SCOPE: &str = "lazaret.audit";
/// OpenTelemetry's name for what tells a log record from all others: one that comes twice is dropped as a duplicate.
const UID: &str = "log.record.uid";
/// In the event only: the body has it already.
const RAW: &str = "raw_data";

/// The place of a record in the chain.
#[derive(Clone, Copy, Debug)]
pub enum ChainPlace {
    /// It follows the record with this hash.
    After(Digest),
    /// It signs all records before it.
    Head,
}

/// A log record for a line of an export; `event` is its event of OCSF, `observed` when it is exported, in nanoseconds.
pub fn log_record(body: &str, event: &Value, place: ChainPlace, observed: u64) -> Value {
    let mut attributes = Vec::new();
    flatten("", event, &mut attributes);
    let hash = event["metadata"]["uid"].as_str().unwrap_or_default();
    let uid = match place {
        ChainPlace::After(previous) => {
            let previous = Value::from(previous.to_string());
            attributes.push(attribute(&format!("{SCOPE}.previous"), &previous));
            hash.to_owned()
        }
        ChainPlace::Head => format!("head:{hash}"),
    };
    attributes.push(attribute(UID, &uid.into()));
    let milliseconds = event["time"].as_u64().unwrap_or_default();
    let (number, text) = severity(event["severity_id"].as_u64().unwrap_or_default());
    let kind = event["activity_name"].as_str().unwrap_or_default();
    json!({
        "timeUnixNano": milliseconds.saturating_mul(1_000_000).to_string(),
        "observedTimeUnixNano": observed.to_string(),
        "severityNumber": number,
        "severityText": text,
        "eventName": format!("{SCOPE}.{kind}"),
        "body": { "stringValue": body },
        "attributes": attributes,
    })
}

/// The text before and after the log records of a request, which are divided by commas. `resource` has who they are from.
pub fn envelope(resource: &[(&str, String)], version: &str) -> (String, String) {
    let text = |(name, value): &(&str, String)| attribute(name, &Value::from(value.as_str()));
    let resource: Vec<Value> = resource.iter().map(text).collect();
    let resource = json!({ "attributes": resource });
    let scope = json!({ "name": SCOPE, "version": version });
    let before = format!(
        "{{\"resourceLogs\":[{{\"resource\":{resource},\"scopeLogs\":[{{\"scope\":{scope},\"logRecords\":["
    );
    (before, "]}]}]}".to_owned())
}

/// The severity of OpenTelemetry for one of OCSF: number and text.
fn severity(ocsf: u64) -> (u32, &'static str) {
    match ocsf {
        1 => (9, "Informational"),
        2 => (13, "Low"),
        3 => (17, "Medium"),
        4 => (18, "High"),
        5 => (21, "Critical"),
        _ => (0, "Unknown"),
    }
}

/// The values of an object as attributes, those of objects in it under both names.
fn flatten(prefix: &str, object: &Value, attributes: &mut Vec<Value>) {
    let none = Map::new();
    for (name, value) in object.as_object().unwrap_or(&none) {
        let name = format!("{prefix}{name}");
        match value {
            Value::Null => {}
            Value::Object(_) => flatten(&format!("{name}."), value, attributes),
            _ if name == RAW => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                attributes.push(attribute(&name, value));
            }
        }
    }
}

fn attribute(name: &str, value: &Value) -> Value {
    json!({ "key": name, "value": any_value(value) })
}

/// A value in the JSON form of protobuf, in which whole numbers are strings.
fn any_value(value: &Value) -> Value {
    match value {
        Value::Bool(value) => json!({ "boolValue": value }),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => json!({ "intValue": whole.to_string() }),
            None => json!({ "doubleValue": number }),
        },
        Value::String(text) => json!({ "stringValue": text }),
        Value::Array(values) => {
            let values: Vec<Value> = values.iter().map(any_value).collect();
            json!({ "arrayValue": { "values": values } })
        }
        Value::Null | Value::Object(_) => json!({ "stringValue": value.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ocsf;

    fn of(record: &Value, place: ChainPlace) -> Value {
        let line = record.to_string();
        log_record(&line, &ocsf::event(&line, record, "0.1.0"), place, 7)
    }

    fn value<'l>(log: &'l Value, name: &str) -> &'l Value {
        let mut all = log["attributes"].as_array().unwrap().iter();
        all.find(|attribute| attribute["key"] == name)
            .map_or(&Value::Null, |attribute| &attribute["value"])
    }

    #[test]
    fn a_record_has_its_line_its_place_and_the_names_of_ocsf() {
        let record = json!({
            "seq": 7, "ts": 1_795_168_954.5, "kind": "call", "session": "4ad6", "tool": "bash", "verdict": "deny", "end": "refused",
            "error": "denied_policy", "hash": "aa",
        });
        let previous = Digest([1; 32]);
        let log = of(&record, ChainPlace::After(previous));
        assert_eq!(log["body"]["stringValue"], record.to_string());
        assert_eq!(log["timeUnixNano"], "1795168954500000000");
        assert_eq!(
            (&log["severityNumber"], &log["severityText"]),
            (&13.into(), &"Low".into())
        );
        assert_eq!(log["eventName"], "lazaret.audit.call");
        for (name, expected) in [
            ("metadata.sequence", json!({ "intValue": "7" })),
            ("metadata.uid", json!({ "stringValue": "aa" })),
            ("log.record.uid", json!({ "stringValue": "aa" })),
            (
                "lazaret.audit.previous",
                json!({ "stringValue": previous.to_string() }),
            ),
            ("class_uid", json!({ "intValue": "6003" })),
            ("disposition_id", json!({ "intValue": "2" })),
            ("status_code", json!({ "stringValue": "denied_policy" })),
            ("actor.session.uid", json!({ "stringValue": "4ad6" })),
            ("api.operation", json!({ "stringValue": "bash" })),
            (
                "metadata.profiles",
                json!({ "arrayValue": { "values": [{ "stringValue": "security_control" }] } }),
            ),
            ("raw_data", Value::Null),
        ] {
            assert_eq!(value(&log, name), &expected, "{name}");
        }
    }

    #[test]
    fn a_head_is_no_duplicate_of_the_record_that_it_signs() {
        let log = of(
            &json!({ "kind": "head", "seq": 7, "hash": "aa" }),
            ChainPlace::Head,
        );
        assert_eq!(
            value(&log, "log.record.uid"),
            &json!({ "stringValue": "head:aa" })
        );
        assert!(value(&log, "lazaret.audit.previous").is_null());
    }

    #[test]
    fn a_request_is_one_object_around_its_records() {
        let (before, after) = envelope(&[("host.name", "a\"b".to_owned())], "0.1.0");
        let request = format!("{before}{{}},{{}}{after}");
        let request: Value = serde_json::from_str(&request).unwrap();
        let logs = &request["resourceLogs"][0];
        assert_eq!(
            logs["resource"]["attributes"][0]["value"]["stringValue"],
            "a\"b"
        );
        assert_eq!(logs["scopeLogs"][0]["scope"]["name"], SCOPE);
        assert_eq!(
            logs["scopeLogs"][0]["logRecords"].as_array().unwrap().len(),
            2
        );
    }
}
