//! One schema of everything that programs read and write here, generated from the types: `lazaret schema` prints it, and
//! `schema.json` of this crate is that text.

use crate::approver::{ApproverCommand, ApproverEvent};
use crate::chat_event::ChatEventBody;
use crate::error::ErrorBody;
use crate::event_line::EventLine;
use crate::json::ResultLine;
use crate::session_command::{
    ApproveFields, CallFields, CancelFields, ErrorFields, GrantsFields, HistoryFields, KEYS,
    OpName, RegisterFields, ResultFields, RevokeFields, StdinFields, ToolsFields, UndoFields,
    UnregisterFields,
};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The schema: one definition for each dialect, in each direction.
pub fn schema() -> Value {
    let mut schemas = SchemaSettings::draft2020_12().into_generator();
    let events = schemas.subschema_for::<ChatEventBody>().to_value();
    let dialects = [
        ("SessionCommand", session_command(&mut schemas)),
        ("SessionEvent", whole::<EventLine>(&mut schemas)),
        (
            "CallResult",
            schemas.subschema_for::<ResultLine>().to_value(),
        ),
        ("ApproverCommand", whole::<ApproverCommand>(&mut schemas)),
        ("ApproverEvent", whole::<ApproverEvent>(&mut schemas)),
        ("ChatEvent", chat_event(&events)),
        ("ErrorLine", error_line(&mut schemas)),
    ];
    let mut definitions = schemas.take_definitions(true);
    for (name, dialect) in dialects {
        definitions.insert(name.to_owned(), dialect);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The lines of Lazaret",
        "description": "SessionCommand and SessionEvent are those of `lazaret session`, ApproverCommand and ApproverEvent those of \
            `lazaret approve --json`, ChatEvent those of `lazaret chat --json` and of the runs of `lazaret serve`. CallResult is what \
            `run --json` and `call --json` print, ErrorLine what any command with `--json` prints in place of a result.",
        "$defs": definitions,
    })
}

/// A type with its own words, not as a reference.
fn whole<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    T::json_schema(schemas).to_value()
}

/// Each operation with its `op` and the client's `id`.
fn session_command(schemas: &mut SchemaGenerator) -> Value {
    let commands = OpName::ALL.map(|op| {
        let mut command = fields(op, schemas);
        command["properties"]["op"] = json!({ "const": op.name() });
        command["properties"]["id"] = json!({ "type": ["string", "integer"] });
        let mut required = vec![json!("id")];
        required.extend(command["required"].as_array().cloned().unwrap_or_default());
        // A line without `op` is told by a key, and one without either is none.
        if required.len() == 1 {
            let keys = KEYS.iter().filter(|(_, named)| *named == op);
            let told = keys.map(|(key, _)| *key).chain(["op"]);
            command["anyOf"] = told.map(|key| json!({ "required": [key] })).collect();
        }
        command["required"] = required.into();
        command
    });
    json!({ "description": "A line to `lazaret session`.", "oneOf": commands })
}

fn fields(op: OpName, schemas: &mut SchemaGenerator) -> Value {
    match op {
        OpName::Call => whole::<CallFields>(schemas),
        OpName::Stdin => whole::<StdinFields>(schemas),
        OpName::Cancel => whole::<CancelFields>(schemas),
        OpName::Approve => whole::<ApproveFields>(schemas),
        OpName::Grants => whole::<GrantsFields>(schemas),
        OpName::Revoke => whole::<RevokeFields>(schemas),
        OpName::History => whole::<HistoryFields>(schemas),
        OpName::Undo => whole::<UndoFields>(schemas),
        OpName::Register => whole::<RegisterFields>(schemas),
        OpName::Unregister => whole::<UnregisterFields>(schemas),
        OpName::Tools => whole::<ToolsFields>(schemas),
        OpName::Result => whole::<ResultFields>(schemas),
        OpName::Error => whole::<ErrorFields>(schemas),
    }
}

/// The fields that every event of a run has besides its own.
fn chat_event(events: &Value) -> Value {
    let text = json!({ "type": "string" });
    let payload = json!({
        "type": "object",
        "properties": { "conversationId": text, "messageId": text, "parentToolId": text },
        "required": ["conversationId", "messageId"],
    });
    let timestamp = json!({ "type": "integer", "description": "Milliseconds since 1970." });
    json!({
        "description": "An event of a run.",
        "allOf": [events],
        "properties": { "timestamp": timestamp, "payload": payload },
        "required": ["timestamp"],
    })
}

fn error_line(schemas: &mut SchemaGenerator) -> Value {
    let error = schemas.subschema_for::<ErrorBody>();
    let fields: Map<String, Value> = Map::from_iter([("error".to_owned(), error.to_value())]);
    json!({ "type": "object", "properties": fields, "required": ["error"] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_and_each_key_is_described() {
        let schema = schema();
        let commands = schema["$defs"]["SessionCommand"]["oneOf"]
            .as_array()
            .unwrap();
        for (key, op) in KEYS {
            let described = commands
                .iter()
                .find(|command| command["properties"]["op"]["const"] == op.name());
            assert!(described.unwrap()["properties"][key].is_object(), "{key}");
        }
    }

    #[test]
    fn names_of_operations_are_those_that_are_read() {
        for op in OpName::ALL {
            let read: OpName = serde_json::from_value(op.name().into()).unwrap();
            assert_eq!(read, op);
        }
    }
}
