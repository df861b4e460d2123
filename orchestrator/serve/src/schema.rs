//! Generates the description of the wire from the types used on it: OpenAPI 3.1 for HTTP, AsyncAPI 3.0 for the WebSocket.

use crate::bodies::{
    CancelRequest, ConversationDetail, ConversationStatus, CurrentSettings, Health, KeyRequest,
    KeyState, RunRequest, Settings,
};
use crate::response::ErrorReply;
use crate::route_table::{API_ENDPOINTS, ApiEndpoint};
use crate::runs::{RunResult, RunStatus};
use orchestrator_agent::event::ChatEventBody;
use orchestrator_agent::provider::Model;
use orchestrator_wire::chat_command::{
    Approve, Cancel, Resume, Send, SetTrust, ToolReply, Unregister,
};
use orchestrator_wire::client_tool::Registration;
use orchestrator_wire::server_message::ServerMessage;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Error responses that every request may get.
const REFUSALS: [(&str, &str); 6] = [
    ("400", "The request is not understood"),
    ("401", "The token is missing or wrong"),
    ("403", "A page that was not named has made the request"),
    ("421", "The Host is another one"),
    ("429", "Too many requests; Retry-After has the time to wait"),
    ("500", "Lazaret failed"),
];
/// Further error responses for requests with a body.
const BODY_REFUSALS: [(&str, &str); 5] = [
    ("408", "The body takes too long"),
    ("409", "A run is under way, or none is"),
    ("413", "The body is too large"),
    ("415", "The body is not application/json"),
    ("422", "It cannot be done"),
];

fn generator() -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.into_generator()
}

/// The description of the HTTP interface.
pub fn open_api() -> Value {
    let mut schemas = generator();
    let paths = paths(&mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Lazaret", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "security": [{ "token": [] }],
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas.take_definitions(true),
        },
    })
}

fn paths(schemas: &mut SchemaGenerator) -> Map<String, Value> {
    let mut paths = Map::new();
    for (method, path, endpoint) in API_ENDPOINTS {
        if let Some(operation) = operation(schemas, endpoint) {
            let methods = paths.entry(path).or_insert_with(|| json!({}));
            methods[method.to_ascii_lowercase()] = operation;
        }
    }
    paths
}

/// The description of an endpoint; `None` for those that speak another protocol than JSON over HTTP.
fn operation(schemas: &mut SchemaGenerator, endpoint: ApiEndpoint) -> Option<Value> {
    let id =
        json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string" } });
    let provider = json!({ "name": "provider", "in": "query", "required": false, "schema": { "type": "string" } });
    let started = json!({ "type": "object", "properties": { "runId": { "type": "string" } } });
    let described = json!({ "type": "object" });
    Some(match endpoint {
        ApiEndpoint::Health => get_of::<Health>(schemas, "Whether the server is running", &[]),
        ApiEndpoint::Models => {
            let mut models = list_of::<Model>(schemas, "models");
            models["properties"]["provider"] = json!({ "type": "string" });
            failing(get(
                schemas,
                "The models of a provider",
                &models,
                &[&provider],
            ))
        }
        ApiEndpoint::Tools => {
            let tools = json!({ "type": "object", "properties": { "tools": { "type": "array", "items": { "type": "object" } } } });
            get(
                schemas,
                "The tools of a session that no client narrows",
                &tools,
                &[],
            )
        }
        ApiEndpoint::Conversations => {
            let conversations = list_of::<ConversationStatus>(schemas, "conversations");
            get(
                schemas,
                "The conversations that the server keeps",
                &conversations,
                &[],
            )
        }
        ApiEndpoint::Conversation => missing(get_of::<ConversationDetail>(
            schemas,
            "One conversation, with its user's prompts",
            &[&id],
        )),
        ApiEndpoint::Settings => get_of::<CurrentSettings>(schemas, "The default settings", &[]),
        ApiEndpoint::ChangeSettings => {
            let settings = of::<CurrentSettings>(schemas);
            with_body::<Settings>(schemas, "Change it", &settings, &[], "200")
        }
        ApiEndpoint::ValidateKey => {
            let key = of::<KeyState>(schemas);
            with_body::<KeyRequest>(schemas, "Try a key", &key, &[], "200")
        }
        ApiEndpoint::Run => {
            let result = of::<RunResult>(schemas);
            with_body::<RunRequest>(
                schemas,
                "Begin a run and wait for its end",
                &result,
                &[],
                "200",
            )
        }
        ApiEndpoint::RunStream => stream::<RunRequest>(schemas),
        ApiEndpoint::RunStatus => {
            missing(get_of::<RunStatus>(schemas, "The state of a run", &[&id]))
        }
        ApiEndpoint::CancelRun => {
            let summary = "End a run, or its calls";
            missing(with_body::<CancelRequest>(
                schemas,
                summary,
                &started,
                &[&id],
                "202",
            ))
        }
        ApiEndpoint::ApproveRun => {
            let summary = "Answer the question of a call";
            missing(with_body::<Approve>(
                schemas,
                summary,
                &started,
                &[&id],
                "200",
            ))
        }
        ApiEndpoint::OpenApi => get(schemas, "This description", &described, &[]),
        ApiEndpoint::AsyncApi => get(schemas, "The description of the WebSocket", &described, &[]),
        ApiEndpoint::WebSocket | ApiEndpoint::Mcp => return None,
    })
}

/// The schema of a type, as a reference if it has a name.
fn of<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    schemas.subschema_for::<T>().to_value()
}

/// An object with a list of these under `name`.
fn list_of<T: JsonSchema>(schemas: &mut SchemaGenerator, name: &str) -> Value {
    let items = of::<T>(schemas);
    json!({ "type": "object", "properties": { name: { "type": "array", "items": items } } })
}

fn answers(
    schemas: &mut SchemaGenerator,
    status: &str,
    schema: &Value,
    refusals: &[&[(&str, &str)]],
) -> Map<String, Value> {
    let error = of::<ErrorReply>(schemas);
    let content = |schema: &Value| json!({ "application/json": { "schema": schema } });
    let mut answers = Map::new();
    answers.insert(
        status.to_owned(),
        json!({ "description": "Done", "content": content(schema) }),
    );
    for (status, description) in refusals.iter().copied().flatten() {
        let refusal = json!({ "description": description, "content": content(&error) });
        answers.insert((*status).to_owned(), refusal);
    }
    answers
}

fn get(
    schemas: &mut SchemaGenerator,
    summary: &str,
    schema: &Value,
    parameters: &[&Value],
) -> Value {
    let responses = answers(schemas, "200", schema, &[&REFUSALS]);
    json!({ "summary": summary, "parameters": parameters, "responses": responses })
}

fn get_of<T: JsonSchema>(
    schemas: &mut SchemaGenerator,
    summary: &str,
    parameters: &[&Value],
) -> Value {
    let schema = of::<T>(schemas);
    get(schemas, summary, &schema, parameters)
}

fn with_body<T: JsonSchema>(
    schemas: &mut SchemaGenerator,
    summary: &str,
    schema: &Value,
    parameters: &[&Value],
    status: &str,
) -> Value {
    let responses = answers(schemas, status, schema, &[&REFUSALS, &BODY_REFUSALS]);
    json!({
        "summary": summary,
        "parameters": parameters,
        "requestBody": { "required": true, "content": { "application/json": { "schema": of::<T>(schemas) } } },
        "responses": responses,
    })
}

/// Adds the response for a run or a call that does not exist.
fn missing(mut operation: Value) -> Value {
    operation["responses"]["404"] =
        json!({ "description": "There is no such conversation, run or call" });
    operation
}

/// Adds the responses for an error of a provider.
fn failing(mut operation: Value) -> Value {
    operation["responses"]["424"] = json!({ "description": "The provider has failed" });
    operation
}

fn stream<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    let mut operation = with_body::<T>(
        schemas,
        "Begin a run and receive its events",
        &json!({}),
        &[],
        "200",
    );
    // Without a type: some tools read the schema of a stream as that of its whole text, others as that of one event.
    let event =
        json!({ "description": "data: {kind, step, data}; at last _run_done_ or _run_error_" });
    operation["responses"]["200"]["content"] = json!({ "text/event-stream": { "schema": event } });
    operation
}

/// The description of the WebSocket.
pub fn async_api() -> Value {
    let mut schemas = generator();
    let mut messages = Map::new();
    for (name, payload) in client_messages(&mut schemas) {
        messages.insert(name.to_owned(), message(name, payload));
    }
    let mut sent = Vec::new();
    for schema in [
        of::<ChatEventBody>(&mut schemas),
        of::<ServerMessage>(&mut schemas),
    ] {
        for (name, payload) in variants(&schema, schemas.definitions()) {
            messages.insert(name.clone(), message(&name, payload));
            sent.push(name);
        }
    }
    let received: Vec<&str> = client_messages(&mut schemas).map(|(name, _)| name).to_vec();
    let references = |names: &[&str]| {
        names
            .iter()
            .map(|name| json!({ "$ref": format!("#/channels/ws/messages/{}", escaped(name)) }))
            .collect::<Vec<_>>()
    };
    let sent: Vec<&str> = sent.iter().map(String::as_str).collect();
    let (sent, received) = (references(&sent), references(&received));
    let of_channel: Map<String, Value> = messages
        .keys()
        .map(|name| {
            (
                name.clone(),
                json!({ "$ref": format!("#/components/messages/{}", escaped(name)) }),
            )
        })
        .collect();
    json!({
        "asyncapi": "3.0.0",
        "info": { "title": "Lazaret", "version": env!("CARGO_PKG_VERSION") },
        "defaultContentType": "application/json",
        "channels": { "ws": { "address": "/ws", "messages": of_channel } },
        "operations": {
            "receive": { "action": "receive", "channel": { "$ref": "#/channels/ws" }, "messages": received },
            "send": { "action": "send", "channel": { "$ref": "#/channels/ws" }, "messages": sent },
        },
        "components": { "messages": messages, "schemas": schemas.take_definitions(true) },
    })
}

/// The messages that a client may send.
fn client_messages(schemas: &mut SchemaGenerator) -> [(&'static str, Value); 8] {
    [
        ("chat:send", of::<Send>(schemas)),
        ("chat:cancel", of::<Cancel>(schemas)),
        ("chat:tool-approve", of::<Approve>(schemas)),
        ("chat:resume", of::<Resume>(schemas)),
        ("chat:trust", of::<SetTrust>(schemas)),
        ("tool:register", of::<Registration>(schemas)),
        ("tool:unregister", of::<Unregister>(schemas)),
        ("tool:answer", of::<ToolReply>(schemas)),
    ]
}

fn message(name: &str, payload: Value) -> Value {
    json!({
        "name": name,
        "payload": {
            "type": "object",
            "required": ["type", "payload"],
            "properties": { "type": { "const": name }, "payload": payload }
        }
    })
}

/// The variants of an enum that is sent as a type beside a payload.
fn variants(schema: &Value, definitions: &Map<String, Value>) -> Vec<(String, Value)> {
    let name = schema["$ref"]
        .as_str()
        .and_then(|reference| reference.rsplit('/').next());
    let defined = name
        .and_then(|name| definitions.get(name))
        .unwrap_or(schema);
    let variant = |variant: &Value| {
        let name = variant["properties"]["type"]["const"].as_str()?;
        Some((name.to_owned(), variant["properties"]["payload"].clone()))
    };
    defined["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(variant)
        .collect()
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::incoming::known;

    #[test]
    fn described_messages_are_the_known_messages() {
        let mut schemas = SchemaSettings::draft2020_12().into_generator();
        let described = client_messages(&mut schemas).map(|(name, _)| name);
        assert!(
            described.iter().all(|name| known(name) == Some(name)),
            "{described:?}"
        );
        assert_eq!(known("chat:other"), None, "control");
    }

    /// References in a description that lead nowhere: there may be none.
    fn dangling(description: &Value) -> Vec<String> {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(values) => values.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let mut found = Vec::new();
        references(description, &mut found);
        assert!(!found.is_empty());
        let leads = |reference: &str| {
            let path = reference.strip_prefix('#').unwrap();
            description.pointer(path).is_some()
        };
        found
            .into_iter()
            .filter(|reference| !leads(reference))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_descriptions_have_every_message_and_no_reference_to_nothing() {
        let (open, asynchronous) = (open_api(), async_api());
        assert_eq!(dangling(&open), [""; 0]);
        assert_eq!(dangling(&asynchronous), [""; 0]);
        let messages = asynchronous["components"]["messages"].as_object().unwrap();
        for name in [
            "chat:send",
            "chat:tool-approve",
            "chat:tool-confirm",
            "chat:tool-delta",
            "chat:stream-end",
            "server:hello",
            "request:error",
            "tool:execute",
            "chat:security-event",
            "chat:connection",
        ] {
            assert!(
                messages.contains_key(name),
                "{name} is not in {:?}",
                messages.keys()
            );
        }
        let confirm = messages["chat:tool-confirm"].to_string();
        assert!(
            confirm.contains("$ref") || confirm.contains("expiresS"),
            "{confirm}"
        );
    }
}
