//! One line of a session's input.

use crate::adapters::cli::event;
use crate::adapters::cli::session::reader::LINE_MAX;
use crate::ports::{Approval, Reply};
use broker_protocol::{ErrorKind, Extent, Failed, Risk};
use serde::Deserialize;
use serde_json::{Map, Value};
use thiserror::Error;

/// Longest id in bytes of JSON.
const ID_MAX: usize = 256;
/// Longest message of an error that the application tells, in bytes.
const MESSAGE_MAX: usize = 4096;
/// Longest `structured` that it tells, in bytes of JSON.
const STRUCTURED_MAX: usize = 64 * 1024;
/// Kinds of errors that it may tell; the first, where it names none. The others are ours to say.
const KINDS: [ErrorKind; 7] = [
    ErrorKind::Io,
    ErrorKind::InvalidInput,
    ErrorKind::NotFound,
    ErrorKind::ExitNonzero,
    ErrorKind::Timeout,
    ErrorKind::Cancelled,
    ErrorKind::ResourceLimit,
];

/// A line that is understood.
#[derive(Debug, PartialEq)]
pub struct Line {
    /// The call it is about, as the client named it.
    pub id: Value,
    /// What to do.
    pub order: Order,
}

/// What a line asks for.
#[derive(Debug, PartialEq)]
pub enum Order {
    /// Start a call.
    Call {
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
    },
    /// End a call.
    Cancel,
    /// Answer a call's question, in a batch that of the call at this place.
    Approve(Option<u64>, Approval),
    /// List the grants that last for the session, after taking back one of them.
    Grants(Option<u64>),
    /// Add a tool of the application's.
    Register(Box<Registration>),
    /// Take one out.
    Unregister(String),
    /// List the tools.
    Tools,
    /// What the application's tool came to, in a batch for the call at this place.
    Tell(Option<u64>, Result<Reply, Failed>),
    /// Feed a call's standard input.
    Feed {
        /// With this.
        bytes: Vec<u8>,
        /// Whether that was the last.
        end: bool,
    },
}

/// A tool of the application's.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Registration {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// Its input, as JSON Schema.
    #[serde(alias = "input_schema")]
    pub input_schema: Value,
    /// How much harm it can do.
    #[serde(default)]
    pub risk: RiskName,
    /// How long a call may take, in seconds.
    pub timeout: Option<u32>,
}

/// A [`Risk`] by its name. Who says nothing is asked about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // Those of `Risk`.
pub enum RiskName {
    Low,
    Medium,
    #[default]
    High,
}

impl From<RiskName> for Risk {
    fn from(name: RiskName) -> Self {
        match name {
            RiskName::Low => Risk::Low,
            RiskName::Medium => Risk::Medium,
            RiskName::High => Risk::High,
        }
    }
}

/// Why a line is not understood.
#[derive(Debug, Error)]
pub enum LineError {
    /// It is too long.
    #[error("the line is longer than {LINE_MAX} bytes")]
    TooLong,
    /// It is not JSON.
    #[error("the line is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// It is another value.
    #[error("the line must be a JSON object")]
    NotAnObject,
    /// It names no call.
    #[error("the line needs an `id`: a text or a number of at most {ID_MAX} bytes")]
    Id,
    /// It asks for nothing.
    #[error(
        "the line needs `tool`, `cancel`, `approve`, `grants`, `revoke`, `register`, `unregister`, `tools`, `result`, `error`, \
         `stdin`, `stdinBase64` or `stdinEnd`"
    )]
    Order,
    /// A field has no place in it.
    #[error("field `{0}` has no place in this line")]
    Surplus(String),
    /// A field is of the wrong type.
    #[error("field `{name}`: {rule}")]
    Field {
        /// Its name.
        name: &'static str,
        /// What it must be.
        rule: &'static str,
    },
    /// A tool is not described as one.
    #[error("field `register`: {0}")]
    Register(String),
    /// The application may not say this of a call.
    #[error("field `error`: {{\"kind\":…,\"message\":…}}, `kind` absent or one of {kinds}, `message` of at most {MESSAGE_MAX} bytes",
        kinds = KINDS.map(ErrorKind::name).join(", "))]
    Error,
    /// Nothing of the call waits for the application.
    #[error(
        "the call does not wait for its tool's result: it has ended, has one, was cancelled or took too long, or is a batch \
         that waits for several: say which with `part`"
    )]
    NotExecuting,
    /// Another call has this id.
    #[error("the id is that of a call under way")]
    IdInUse,
    /// The call has no question that can be answered here.
    #[error(
        "the call does not wait for an answer, takes it from `lazaret approve` only, or is a batch that waits for several: say \
         which with `part`"
    )]
    NotAsked,
    /// The call has no standard input to feed.
    #[error("the call was not started with \"stdin\": true in its input, or its input has ended")]
    NoInput,
}

/// A line that is not understood, and the call it is about, if that is known.
#[derive(Debug)]
pub struct Wrong {
    /// The id, or null.
    pub id: Value,
    /// Why.
    pub error: LineError,
}

impl From<LineError> for Wrong {
    fn from(error: LineError) -> Self {
        Self { id: Value::Null, error }
    }
}

/// Parses a line.
pub fn parse(line: &[u8]) -> Result<Line, Wrong> {
    let Value::Object(mut fields) = serde_json::from_slice(line).map_err(LineError::from)? else {
        return Err(LineError::NotAnObject.into());
    };
    let id = fields.remove("id").filter(is_id).ok_or(LineError::Id)?;
    match order(fields) {
        Ok(order) => Ok(Line { id, order }),
        Err(error) => Err(Wrong { id, error }),
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::String(text) => text.len() <= ID_MAX,
        id => id.is_number(),
    }
}

fn order(mut fields: Map<String, Value>) -> Result<Order, LineError> {
    let order = if let Some(tool) = fields.remove("tool") {
        let Value::String(tool) = tool else { return Err(LineError::Field { name: "tool", rule: "a text" }) };
        Order::Call { tool, input: fields.remove("input").unwrap_or_else(|| Value::Object(Map::new())) }
    } else if is_true(&mut fields, "cancel")? {
        Order::Cancel
    } else if is_true(&mut fields, "grants")? {
        Order::Grants(None)
    } else if let Some(grant) = fields.remove("revoke") {
        let grant =
            grant.as_u64().ok_or(LineError::Field { name: "revoke", rule: "the number of a grant" })?;
        Order::Grants(Some(grant))
    } else if let Some(answer) = fields.remove("approve") {
        Order::Approve(part(&mut fields)?, approval(&answer)?)
    } else if let Some(asked) = fields.remove("register") {
        Order::Register(
            serde_json::from_value(asked).map_err(|error| LineError::Register(error.to_string()))?,
        )
    } else if let Some(tool) = fields.remove("unregister") {
        let Value::String(tool) = tool else {
            return Err(LineError::Field { name: "unregister", rule: "the name of a tool" });
        };
        Order::Unregister(tool)
    } else if is_true(&mut fields, "tools")? {
        Order::Tools
    } else if let Some(text) = fields.remove("result") {
        Order::Tell(part(&mut fields)?, Ok(reply(text, fields.remove("structured"))?))
    } else if let Some(error) = fields.remove("error") {
        Order::Tell(part(&mut fields)?, Err(told(error)?))
    } else {
        feed(&mut fields)?
    };
    match fields.keys().next() {
        Some(name) => Err(LineError::Surplus(name.clone())),
        None => Ok(order),
    }
}

const PART: LineError = LineError::Field { name: "part", rule: "the place of a call in its batch, from 0" };

fn part(fields: &mut Map<String, Value>) -> Result<Option<u64>, LineError> {
    fields.remove("part").map(|part| part.as_u64().ok_or(PART)).transpose()
}

fn reply(text: Value, structured: Option<Value>) -> Result<Reply, LineError> {
    let Value::String(text) = text else { return Err(LineError::Field { name: "result", rule: "a text" }) };
    let fits = |value: &Value| value.is_object() && value.to_string().len() <= STRUCTURED_MAX;
    if structured.as_ref().is_some_and(|value| !fits(value)) {
        return Err(LineError::Field { name: "structured", rule: "an object of at most 64 KiB" });
    }
    Ok(Reply { text: text.into_bytes(), structured })
}

/// An error in the application's words.
fn told(error: Value) -> Result<Failed, LineError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Told {
        kind: Option<String>,
        message: String,
    }
    let Told { kind, message } = serde_json::from_value(error).map_err(|_| LineError::Error)?;
    let named = |kind: &str| KINDS.into_iter().find(|known| known.name() == kind);
    let kind = kind.map_or(Some(KINDS[0]), |kind| named(&kind));
    match kind.filter(|_| message.len() <= MESSAGE_MAX) {
        Some(kind) => Ok(Failed { kind, message }),
        None => Err(LineError::Error),
    }
}

fn approval(answer: &Value) -> Result<Approval, LineError> {
    match answer {
        Value::Bool(true) => Ok(Approval::Yes(Extent::Once)),
        Value::Bool(false) => Ok(Approval::No),
        answer => match answer.as_str() {
            Some("once") => Ok(Approval::Yes(Extent::Once)),
            Some("session") => Ok(Approval::Yes(Extent::Session)),
            Some("no") => Ok(Approval::No),
            _ => Err(LineError::Field { name: "approve", rule: "\"once\", \"session\" or \"no\"" }),
        },
    }
}

fn feed(fields: &mut Map<String, Value>) -> Result<Order, LineError> {
    let text = fields.remove("stdin");
    let coded = fields.remove("stdinBase64");
    let end = is_true(fields, "stdinEnd")?;
    let bytes = match (text, coded) {
        (Some(Value::String(text)), None) => text.into_bytes(),
        (Some(_), None) => return Err(LineError::Field { name: "stdin", rule: "a text" }),
        (None, Some(coded)) => decoded(&coded)?,
        (Some(_), Some(_)) => return Err(LineError::Surplus("stdinBase64".into())),
        (None, None) if end => Vec::new(),
        (None, None) => {
            return Err(fields.keys().next().cloned().map_or(LineError::Order, LineError::Surplus));
        }
    };
    Ok(Order::Feed { bytes, end })
}

fn decoded(coded: &Value) -> Result<Vec<u8>, LineError> {
    let bytes = coded.as_str().and_then(|text| event::decode(text).ok());
    bytes.ok_or(LineError::Field { name: "stdinBase64", rule: "a text in base64, with its padding" })
}

/// Takes a field that may only be true.
fn is_true(fields: &mut Map<String, Value>, name: &'static str) -> Result<bool, LineError> {
    match fields.remove(name) {
        None => Ok(false),
        Some(Value::Bool(true)) => Ok(true),
        Some(_) => Err(LineError::Field { name, rule: "true, or absent" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_order_is_understood() {
        let yes = Approval::Yes(Extent::Once);
        let feed = |bytes: &[u8], end| Order::Feed { bytes: bytes.to_vec(), end };
        let said = |text: &str| Reply { text: text.into(), structured: None };
        let failed = |kind| Order::Tell(None, Err(Failed { kind, message: "m".into() }));
        let cases = [
            (r#"{"id":1,"tool":"ls"}"#, json!(1), Order::Call { tool: "ls".into(), input: json!({}) }),
            (r#"{"id":"a","cancel":true}"#, json!("a"), Order::Cancel),
            (r#"{"id":"a","approve":"once"}"#, json!("a"), Order::Approve(None, yes)),
            (r#"{"id":"a","approve":true}"#, json!("a"), Order::Approve(None, yes)),
            (
                r#"{"id":"a","approve":"session"}"#,
                json!("a"),
                Order::Approve(None, Approval::Yes(Extent::Session)),
            ),
            (r#"{"id":"a","part":2,"approve":true}"#, json!("a"), Order::Approve(Some(2), yes)),
            (r#"{"id":"a","grants":true}"#, json!("a"), Order::Grants(None)),
            (r#"{"id":"a","revoke":2}"#, json!("a"), Order::Grants(Some(2))),
            (r#"{"id":"a","approve":"no"}"#, json!("a"), Order::Approve(None, Approval::No)),
            (r#"{"id":"a","approve":false}"#, json!("a"), Order::Approve(None, Approval::No)),
            (r#"{"id":"a","unregister":"t"}"#, json!("a"), Order::Unregister("t".into())),
            (r#"{"id":"a","tools":true}"#, json!("a"), Order::Tools),
            (r#"{"id":"a","result":"é"}"#, json!("a"), Order::Tell(None, Ok(said("é")))),
            (
                r#"{"id":"a","part":1,"result":"","structured":{"n":1}}"#,
                json!("a"),
                Order::Tell(Some(1), Ok(Reply { structured: Some(json!({"n": 1})), ..said("") })),
            ),
            (r#"{"id":"a","error":{"message":"m"}}"#, json!("a"), failed(ErrorKind::Io)),
            (
                r#"{"id":"a","error":{"kind":"not_found","message":"m"}}"#,
                json!("a"),
                failed(ErrorKind::NotFound),
            ),
            (r#"{"id":"a","stdin":"é"}"#, json!("a"), feed("é".as_bytes(), false)),
            (r#"{"id":"a","stdinBase64":"AP8="}"#, json!("a"), feed(b"\x00\xff", false)),
            (r#"{"id":1.5,"stdinEnd":true}"#, json!(1.5), feed(b"", true)),
            (r#"{"id":"a","stdin":"x","stdinEnd":true}"#, json!("a"), feed(b"x", true)),
        ];
        for (text, id, order) in cases {
            assert_eq!(parse(text.as_bytes()).unwrap(), Line { id, order }, "{text}");
        }
    }

    fn register(more: &str) -> String {
        format!(
            r#"{{"id":"a","register":{{"name":"n","description":"d","inputSchema":{{"type":"object"}},{more}}}}}"#
        )
    }

    #[test]
    fn a_tool_is_described_in_one_line_and_dangerous_unless_it_says_otherwise() {
        let asked = |more: &str| match parse(register(more).as_bytes()).unwrap().order {
            Order::Register(asked) => (asked.risk, asked.timeout, asked.input_schema),
            other => panic!("{other:?}"),
        };
        let schema = json!({"type": "object"});
        assert_eq!(asked(r#""timeout":5"#), (RiskName::High, Some(5), schema.clone()));
        assert_eq!(asked(r#""risk":"low""#), (RiskName::Low, None, schema));
    }

    #[test]
    fn what_the_application_tells_is_bounded() {
        let error = |bytes: usize| {
            parse(format!(r#"{{"id":1,"error":{{"message":"{}"}}}}"#, "x".repeat(bytes)).as_bytes())
        };
        assert!(error(MESSAGE_MAX).is_ok());
        assert!(matches!(error(MESSAGE_MAX + 1).unwrap_err().error, LineError::Error));
        // {"a":"…"} are 8 bytes more.
        let structured = |bytes: usize| {
            let text = "x".repeat(bytes - 8);
            parse(format!(r#"{{"id":1,"result":"","structured":{{"a":"{text}"}}}}"#).as_bytes())
        };
        assert!(structured(STRUCTURED_MAX).is_ok() && structured(STRUCTURED_MAX + 1).is_err());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_id_where_there_is_one() {
        let long = format!(r#"{{"id":"{}","cancel":true}}"#, "x".repeat(ID_MAX + 1));
        let cases = [
            ("nonsense", json!(null), "not JSON"),
            ("[]", json!(null), "JSON object"),
            ("\u{fffd}", json!(null), "not JSON"),
            ("{}", json!(null), "needs an `id`"),
            (r#"{"id":null,"cancel":true}"#, json!(null), "needs an `id`"),
            (r#"{"id":[1],"cancel":true}"#, json!(null), "needs an `id`"),
            (long.as_str(), json!(null), "needs an `id`"),
            (r#"{"id":"a"}"#, json!("a"), "needs `tool`"),
            (r#"{"id":"a","tool":1}"#, json!("a"), "field `tool`: a text"),
            (r#"{"id":"a","cancel":false}"#, json!("a"), "field `cancel`: true"),
            (r#"{"id":"a","tool":"ls","cancel":true}"#, json!("a"), "`cancel` has no place"),
            (r#"{"id":"a","toool":"ls"}"#, json!("a"), "`toool` has no place"),
            (r#"{"id":"a","stdin":"x","stdinBase64":""}"#, json!("a"), "`stdinBase64` has no place"),
            (r#"{"id":"a","stdinBase64":"?"}"#, json!("a"), "base64"),
            (r#"{"id":"a","stdin":1}"#, json!("a"), "field `stdin`: a text"),
            (r#"{"id":"a","approve":"always"}"#, json!("a"), "field `approve`: \"once\""),
            (r#"{"id":"a","approve":"no","part":-1}"#, json!("a"), "field `part`: the place"),
            (r#"{"id":"a","revoke":-1}"#, json!("a"), "field `revoke`: the number"),
            (r#"{"id":"a","approve":null}"#, json!("a"), "field `approve`: \"once\""),
            (r#"{"id":"a","register":1}"#, json!("a"), "field `register`: invalid type"),
            (r#"{"id":"a","register":{"name":"n"}}"#, json!("a"), "missing field `description`"),
            (register(r#""risk":"none""#).leak(), json!("a"), "unknown variant `none`"),
            (register(r#""timeout":-1"#).leak(), json!("a"), "invalid value: integer `-1`"),
            (register(r#""x":1"#).leak(), json!("a"), "unknown field `x`"),
            (r#"{"id":"a","unregister":1}"#, json!("a"), "field `unregister`: the name"),
            (r#"{"id":"a","tools":1}"#, json!("a"), "field `tools`: true"),
            (r#"{"id":"a","result":1}"#, json!("a"), "field `result`: a text"),
            (r#"{"id":"a","result":"x","structured":1}"#, json!("a"), "field `structured`: an object"),
            (r#"{"id":"a","result":"x","error":{}}"#, json!("a"), "`error` has no place"),
            (r#"{"id":"a","result":"x","part":"y"}"#, json!("a"), "field `part`: the place"),
            (r#"{"id":"a","error":"x"}"#, json!("a"), "field `error`: {"),
            (r#"{"id":"a","error":{"kind":"violation","message":"x"}}"#, json!("a"), "field `error`: {"),
        ];
        for (text, id, message) in cases {
            let wrong = parse(text.as_bytes()).unwrap_err();
            assert_eq!(wrong.id, id, "{text}");
            assert!(wrong.error.to_string().contains(message), "{text}: {}", wrong.error);
        }
        assert!(parse(b"{\"id\":\"\xff\"}").is_err());
    }
}
