//! One line of a session's input: it is parsed, held against its limits, and becomes an operation.

use broker_protocol::{ErrorKind, Failed, PathError, Wants};
use orchestrator_engine::execution::OutsideReply;
use orchestrator_launch::stdio::line_reader::LINE_MAX;
use orchestrator_tools::input::explain;
use orchestrator_tools::input_error::FieldError;
use orchestrator_wire::approval::Answer;
use orchestrator_wire::client_tool::Registration;
use orchestrator_wire::json;
use orchestrator_wire::session_command::{
    ApproveFields, CallFields, CancelFields, ErrorFields, GrantsFields, HistoryFields, KEYS,
    OpName, RegisterFields, ReportedError, ResultFields, RevokeFields, StdinFields, ToolsFields,
    UndoFields, UnregisterFields, WantsFields,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

/// Maximum length of an ID, in bytes of JSON.
const ID_MAX: usize = 256;
/// Maximum length of an error message from the client, in bytes.
const MESSAGE_MAX: usize = 4096;
/// Maximum length of `structured` in a result from the client, in bytes of JSON.
const STRUCTURED_MAX: usize = 64 * 1024;
/// Number of changes to list if the client gives none.
const HISTORY: u32 = 50;
/// Kinds of errors that a client may report; the first is the default. Only Lazaret reports the others.
const KINDS: [ErrorKind; 7] = [
    ErrorKind::Io,
    ErrorKind::InvalidInput,
    ErrorKind::NotFound,
    ErrorKind::ExitNonzero,
    ErrorKind::Timeout,
    ErrorKind::Cancelled,
    ErrorKind::ResourceLimit,
];

/// A parsed line.
#[derive(Debug, PartialEq)]
pub(crate) struct ParsedLine {
    /// The client's ID of the call that the line is about.
    pub id: Value,
    /// The requested operation.
    pub(crate) op: Op,
}

/// The operation that a line requests.
#[derive(Debug, PartialEq)]
pub(crate) enum Op {
    Call {
        tool: String,
        input: Value,
        /// Access that it wants beyond what the session has.
        wants: Wants,
    },
    Stdin {
        bytes: Vec<u8>,
        end: bool,
    },
    Cancel,
    Approve {
        part: Option<usize>,
        answer: Answer,
    },
    /// List the grants that last for the session, after revoking one of them if given.
    Grants {
        revoke: Option<u64>,
    },
    /// List the changes that file tools have made.
    History {
        limit: u32,
    },
    /// Restore what a change of `path` has replaced.
    Undo {
        change: u64,
        path: String,
        force: bool,
    },
    Register(Registration),
    Unregister(String),
    /// List the tools.
    Tools,
    /// The answer to an `execute`.
    Executed {
        part: Option<usize>,
        result: Result<OutsideReply, Failed>,
    },
}

/// Why a line is invalid or cannot be carried out.
#[derive(Debug, Error)]
pub enum LineError {
    #[error("the line is longer than {LINE_MAX} bytes")]
    TooLong,
    #[error("the line is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the fields are not those of this line: {0}")]
    Fields(serde_json::Error),
    #[error("the line must be a JSON object")]
    NotAnObject,
    #[error(
        "the line needs an `id`: a string of at most {ID_MAX} bytes, or a whole number of 64 bits"
    )]
    Id,
    #[error("the line needs an `op`, or one of {}", KEYS.map(|(key, _)| format!("`{key}`")).join(", "))]
    Op,
    #[error("field `op`: {0}")]
    UnknownOp(serde_json::Error),
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error("field `{name}`: {rule}")]
    Rule {
        name: &'static str,
        rule: &'static str,
    },
    #[error("field `error.code`: expected one of {}", KINDS.map(|kind| format!("`{}`", kind.name())).join(", "))]
    Kind,
    #[error("field `error.message`: at most {MESSAGE_MAX} bytes")]
    Message,
    /// No execution of the call waits for the client.
    #[error(
        "the call does not wait for its tool's result: it has ended, has one, was cancelled or took too long, or is a batch \
         that waits for several: say which with `part`"
    )]
    NotExecuting,
    #[error("the id is that of a call under way")]
    IdInUse,
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("no session is open")]
    NotOpen,
    /// The call has no question that can be answered here.
    #[error(
        "the call does not wait for an answer, takes it from `lazaret approve` only, or is a batch that waits for several: say \
         which with `part`"
    )]
    NotAsked,
    #[error("the call was not started with \"stdin\": true in its input")]
    NoInput,
    #[error("the input of the call has ended")]
    InputEnded,
}

/// A rejected line.
#[derive(Debug)]
pub struct RejectedLine {
    /// The line's ID, or null.
    pub id: Value,
    pub error: Box<LineError>,
}

impl From<LineError> for RejectedLine {
    fn from(error: LineError) -> Self {
        Self {
            id: Value::Null,
            error: error.into(),
        }
    }
}

/// Parses a line.
pub(crate) fn parse(line: &[u8]) -> Result<ParsedLine, RejectedLine> {
    let mut fields = object(line)?;
    let id = fields.remove("id").filter(is_id).ok_or(LineError::Id)?;
    match op_name(&mut fields).and_then(|name| op(name, fields, line)) {
        Ok(op) => Ok(ParsedLine { id, op }),
        Err(error) => Err(RejectedLine {
            id,
            error: error.into(),
        }),
    }
}

fn object(line: &[u8]) -> Result<Map<String, Value>, LineError> {
    match serde_json::from_slice(line)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(LineError::NotAnObject),
    }
}

fn is_id(id: &Value) -> bool {
    match id {
        Value::String(text) => text.len() <= ID_MAX,
        // Other numbers might not come back exactly as given.
        id => id.is_i64() || id.is_u64(),
    }
}

fn op_name(fields: &mut Map<String, Value>) -> Result<OpName, LineError> {
    match fields.remove("op") {
        Some(op) => serde_json::from_value(op).map_err(LineError::UnknownOp),
        None => {
            let known = KEYS.iter().find(|(key, _)| fields.contains_key(*key));
            known.map(|(_, name)| *name).ok_or(LineError::Op)
        }
    }
}

fn op(name: OpName, fields: Map<String, Value>, line: &[u8]) -> Result<Op, LineError> {
    let fields = Value::Object(fields);
    Ok(match name {
        OpName::Call => {
            let CallFields { tool, input, wants } = typed(fields, line)?;
            let WantsFields {
                hosts,
                read,
                write,
                connect,
            } = wants;
            let wants = Wants {
                hosts,
                read,
                write,
                connect,
            };
            wants.check().map_err(|_| LineError::Rule {
                name: "wants",
                rule: "at most 16 hosts, each `NAME:PORT` of at most 260 bytes, 16 paths of at most 4095 bytes, and 16 ports from 1 to 65535",
            })?;
            Op::Call { tool, input, wants }
        }
        OpName::Stdin => stdin(typed(fields, line)?)?,
        OpName::Cancel => {
            let CancelFields { cancel } = typed(fields, line)?;
            marked("cancel", cancel, Op::Cancel)?
        }
        OpName::Approve => {
            let ApproveFields { approve, part } = typed(fields, line)?;
            Op::Approve {
                part,
                answer: approve,
            }
        }
        OpName::Grants => {
            let GrantsFields { grants } = typed(fields, line)?;
            marked("grants", grants, Op::Grants { revoke: None })?
        }
        OpName::Revoke => {
            let RevokeFields { revoke } = typed(fields, line)?;
            Op::Grants {
                revoke: Some(revoke),
            }
        }
        OpName::History => {
            let HistoryFields { history, limit } = typed(fields, line)?;
            marked(
                "history",
                history,
                Op::History {
                    limit: limit.unwrap_or(HISTORY),
                },
            )?
        }
        OpName::Undo => {
            let UndoFields { undo, path, force } = typed(fields, line)?;
            Op::Undo {
                change: undo,
                path,
                force,
            }
        }
        OpName::Register => Op::Register(typed::<RegisterFields>(fields, line)?.register),
        OpName::Unregister => Op::Unregister(typed::<UnregisterFields>(fields, line)?.unregister),
        OpName::Tools => {
            let ToolsFields { tools } = typed(fields, line)?;
            marked("tools", tools, Op::Tools)?
        }
        OpName::Result => {
            let ResultFields {
                result,
                structured,
                part,
            } = typed(fields, line)?;
            Op::Executed {
                part,
                result: Ok(reply(result, structured)?),
            }
        }
        OpName::Error => {
            let ErrorFields { error, part } = typed(fields, line)?;
            Op::Executed {
                part,
                result: Err(reported(error)?),
            }
        }
    })
}

/// The fields of an operation. If parsing fails, the fields are parsed a second time to find which one is wrong.
fn typed<T: DeserializeOwned + JsonSchema>(fields: Value, line: &[u8]) -> Result<T, LineError> {
    serde_json::from_value(fields).map_err(|error| {
        let mut fields = object(line).unwrap_or_default();
        ["id", "op"]
            .iter()
            .for_each(|name| drop(fields.remove(*name)));
        explain::<T>(&Value::Object(fields)).map_or(LineError::Fields(error), LineError::Field)
    })
}

/// `op`, if its key has the value true in the line.
fn marked(name: &'static str, mark: Option<bool>, op: Op) -> Result<Op, LineError> {
    match mark {
        None | Some(true) => Ok(op),
        Some(false) => Err(LineError::Rule {
            name,
            rule: "true, or absent",
        }),
    }
}

fn stdin(fields: StdinFields) -> Result<Op, LineError> {
    let StdinFields {
        stdin,
        stdin_base64,
        stdin_end: end,
    } = fields;
    let bytes = match (stdin, stdin_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(encoded)) => {
            let rule = "a string in base64, with its padding";
            json::decode(&encoded).map_err(|_| LineError::Rule {
                name: "stdinBase64",
                rule,
            })?
        }
        (Some(_), Some(_)) => {
            return Err(LineError::Rule {
                name: "stdinBase64",
                rule: "not together with `stdin`",
            });
        }
        (None, None) if end => Vec::new(),
        (None, None) => {
            return Err(LineError::Rule {
                name: "stdin",
                rule: "it, `stdinBase64` or `stdinEnd` must be there",
            });
        }
    };
    Ok(Op::Stdin { bytes, end })
}

fn reply(text: String, structured: Option<Map<String, Value>>) -> Result<OutsideReply, LineError> {
    let structured = structured.map(Value::Object);
    if structured
        .as_ref()
        .is_some_and(|value| value.to_string().len() > STRUCTURED_MAX)
    {
        return Err(LineError::Rule {
            name: "structured",
            rule: "an object of at most 64 KiB",
        });
    }
    Ok(OutsideReply {
        text: text.into_bytes(),
        structured,
        image: None,
    })
}

fn reported(ReportedError { code, message }: ReportedError) -> Result<Failed, LineError> {
    let named = |code: String| KINDS.into_iter().find(|known| known.name() == code);
    let kind = code.map_or(Some(KINDS[0]), named).ok_or(LineError::Kind)?;
    if message.len() > MESSAGE_MAX {
        return Err(LineError::Message);
    }
    Ok(Failed { kind, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Risk;
    use serde_json::json;

    #[test]
    fn each_op_is_understood_with_its_name_and_by_its_key() {
        let stdin = |bytes: &[u8], end| Op::Stdin {
            bytes: bytes.to_vec(),
            end,
        };
        let approve = |part, answer| Op::Approve { part, answer };
        let done = |text: &str| OutsideReply {
            text: text.into(),
            ..OutsideReply::default()
        };
        let failed = |kind| Op::Executed {
            part: None,
            result: Err(Failed {
                kind,
                message: "m".into(),
            }),
        };
        let cases = [
            (
                "call",
                r#""tool":"ls""#,
                Op::Call {
                    tool: "ls".into(),
                    input: json!({}),
                    wants: Wants::default(),
                },
            ),
            ("cancel", r#""cancel":true"#, Op::Cancel),
            (
                "approve",
                r#""approve":"once""#,
                approve(None, Answer::Once),
            ),
            (
                "approve",
                r#""approve":"session""#,
                approve(None, Answer::Session),
            ),
            (
                "approve",
                r#""part":2,"approve":"once""#,
                approve(Some(2), Answer::Once),
            ),
            ("approve", r#""approve":"no""#, approve(None, Answer::No)),
            (
                "approve",
                r#""approve":"no_and_stop""#,
                approve(None, Answer::NoAndStop),
            ),
            (
                "approve",
                r#""approve":{"minutes":10}"#,
                approve(None, Answer::Minutes(10.try_into().unwrap())),
            ),
            ("grants", r#""grants":true"#, Op::Grants { revoke: None }),
            ("revoke", r#""revoke":2"#, Op::Grants { revoke: Some(2) }),
            (
                "history",
                r#""history":true"#,
                Op::History { limit: HISTORY },
            ),
            (
                "history",
                r#""history":true,"limit":3"#,
                Op::History { limit: 3 },
            ),
            (
                "undo",
                r#""undo":7,"path":"a""#,
                Op::Undo {
                    change: 7,
                    path: "a".into(),
                    force: false,
                },
            ),
            (
                "undo",
                r#""undo":7,"path":"a","force":true"#,
                Op::Undo {
                    change: 7,
                    path: "a".into(),
                    force: true,
                },
            ),
            (
                "unregister",
                r#""unregister":"t""#,
                Op::Unregister("t".into()),
            ),
            ("tools", r#""tools":true"#, Op::Tools),
            (
                "result",
                r#""result":"é""#,
                Op::Executed {
                    part: None,
                    result: Ok(done("é")),
                },
            ),
            (
                "result",
                r#""part":1,"result":"","structured":{"n":1}"#,
                Op::Executed {
                    part: Some(1),
                    result: Ok(OutsideReply {
                        structured: Some(json!({"n": 1})),
                        ..done("")
                    }),
                },
            ),
            ("error", r#""error":{"message":"m"}"#, failed(ErrorKind::Io)),
            (
                "error",
                r#""error":{"code":"not_found","message":"m"}"#,
                failed(ErrorKind::NotFound),
            ),
            ("stdin", r#""stdin":"é""#, stdin("é".as_bytes(), false)),
            (
                "stdin",
                r#""stdinBase64":"AP8=""#,
                stdin(b"\x00\xff", false),
            ),
            ("stdin", r#""stdinEnd":true"#, stdin(b"", true)),
            ("stdin", r#""stdin":"x","stdinEnd":true"#, stdin(b"x", true)),
        ];
        for (name, fields, op) in cases {
            let by_key = parse(format!(r#"{{"id":15,{fields}}}"#).as_bytes()).unwrap();
            let by_name =
                parse(format!(r#"{{"id":15,"op":"{name}",{fields}}}"#).as_bytes()).unwrap();
            assert_eq!(by_key, by_name, "{fields}");
            assert_eq!(by_name, ParsedLine { id: json!(15), op }, "{fields}");
        }
        for (name, op) in [
            ("cancel", Op::Cancel),
            ("tools", Op::Tools),
            ("grants", Op::Grants { revoke: None }),
        ] {
            assert_eq!(
                parse(format!(r#"{{"id":"a","op":"{name}"}}"#).as_bytes())
                    .unwrap()
                    .op,
                op
            );
        }
    }

    fn register(more: &str) -> String {
        format!(
            r#"{{"id":"a","register":{{"name":"n","description":"d","inputSchema":{{"type":"object"}},{more}}}}}"#
        )
    }

    #[test]
    fn a_tool_is_described_in_one_line_and_dangerous_by_default() {
        let registered = |more: &str| match parse(register(more).as_bytes()).unwrap().op {
            Op::Register(tool) => (tool.risk, tool.timeout, tool.input_schema),
            other => panic!("{other:?}"),
        };
        let schema = json!({"type": "object"});
        assert_eq!(
            registered(r#""timeout":5"#),
            (Risk::High, Some(5), schema.clone())
        );
        assert_eq!(registered(r#""risk":"low""#), (Risk::Low, None, schema));
    }

    #[test]
    fn reports_of_a_client_are_limited() {
        let error = |bytes: usize| {
            parse(
                format!(
                    r#"{{"id":1,"error":{{"message":"{}"}}}}"#,
                    "x".repeat(bytes)
                )
                .as_bytes(),
            )
        };
        assert!(error(MESSAGE_MAX).is_ok());
        assert!(matches!(
            *error(MESSAGE_MAX + 1).unwrap_err().error,
            LineError::Message
        ));
        // {"a":"…"} are 8 bytes more.
        let structured = |bytes: usize| {
            let text = "x".repeat(bytes - 8);
            parse(format!(r#"{{"id":1,"result":"","structured":{{"a":"{text}"}}}}"#).as_bytes())
        };
        assert!(structured(STRUCTURED_MAX).is_ok() && structured(STRUCTURED_MAX + 1).is_err());
    }

    #[test]
    fn an_error_names_the_field_and_what_is_expected_with_the_id_where_there_is_one() {
        let long = format!(r#"{{"id":"{}","cancel":true}}"#, "x".repeat(ID_MAX + 1));
        let cases = [
            ("nonsense", json!(null), "not JSON"),
            ("[]", json!(null), "JSON object"),
            ("\u{fffd}", json!(null), "not JSON"),
            ("{}", json!(null), "needs an `id`"),
            (r#"{"id":null,"cancel":true}"#, json!(null), "needs an `id`"),
            (r#"{"id":[1],"cancel":true}"#, json!(null), "needs an `id`"),
            // They would not come back exactly as given.
            (r#"{"id":1.5,"cancel":true}"#, json!(null), "needs an `id`"),
            (r#"{"id":-0,"cancel":true}"#, json!(null), "needs an `id`"),
            (
                r#"{"id":123456789012345678901234567890,"cancel":true}"#,
                json!(null),
                "needs an `id`",
            ),
            (r#"{"id":"a","tool":"ls","wants":[]}"#, json!("a"), "field"),
            (r#"{"id":"a","error":["io","why"]}"#, json!("a"), "field"),
            (
                r#"{"id":"a","history":true,"limit":99999999999}"#,
                json!("a"),
                "field `limit`",
            ),
            (
                r#"{"id":"a","revoke":99999999999999999999}"#,
                json!("a"),
                "field `revoke`",
            ),
            (
                r#"{"id":"a","undo":1e30,"path":"x"}"#,
                json!("a"),
                "field `undo`",
            ),
            (
                r#"{"id":"a","result":"x","part":99999999999999999999}"#,
                json!("a"),
                "field `part`",
            ),
            (
                r#"{"id":"a","approve":{"minutes":1441}}"#,
                json!("a"),
                "field `approve`: expected one of once, session, no, no_and_stop or {minutes: an integer from 1 to 1440}, this is ",
            ),
            (
                r#"{"id":"a","approve":"once","minutes":10}"#,
                json!("a"),
                "unknown field `minutes`",
            ),
            (
                r#"{"id":"a","approve":true}"#,
                json!("a"),
                "field `approve`: expected ",
            ),
            (
                r#"{"id":"a","register":{"name":"x","description":"d","inputSchema":{},"timeout":5000000000}}"#,
                json!("a"),
                "field `register.timeout`",
            ),
            (long.as_str(), json!(null), "needs an `id`"),
            (
                r#"{"id":"a"}"#,
                json!("a"),
                "needs an `op`, or one of `tool`, `cancel`, ",
            ),
            (
                r#"{"id":"a","op":"cal"}"#,
                json!("a"),
                "field `op`: unknown variant `cal`, expected one of `call`, ",
            ),
            (r#"{"id":"a","op":1}"#, json!("a"), "field `op`: "),
            (
                r#"{"id":"a","op":"call"}"#,
                json!("a"),
                "missing field `tool`",
            ),
            (
                r#"{"id":"a","tool":1}"#,
                json!("a"),
                "field `tool`: expected a string, this is 1",
            ),
            (
                r#"{"id":"a","cancel":false}"#,
                json!("a"),
                "field `cancel`: true",
            ),
            (
                r#"{"id":"a","tool":"ls","inputs":{}}"#,
                json!("a"),
                "unknown field `inputs`, expected one of `tool`, `input`, `wants`; did you mean `input`?",
            ),
            (
                r#"{"id":"a","tool":"ls","cancel":true}"#,
                json!("a"),
                "unknown field `cancel`",
            ),
            (r#"{"id":"a","toool":"ls"}"#, json!("a"), "needs an `op`"),
            (
                r#"{"id":"a","stdin":"x","stdinBase64":""}"#,
                json!("a"),
                "not together with `stdin`",
            ),
            (r#"{"id":"a","stdinBase64":"?"}"#, json!("a"), "base64"),
            (r#"{"id":"a","op":"stdin"}"#, json!("a"), "must be there"),
            (
                r#"{"id":"a","stdin":1}"#,
                json!("a"),
                "field `stdin`: expected a string, this is 1",
            ),
            (
                r#"{"id":"a","approve":"always"}"#,
                json!("a"),
                "field `approve`: expected ",
            ),
            (
                r#"{"id":"a","approve":"no","part":-1}"#,
                json!("a"),
                "field `part`: expected ",
            ),
            (
                r#"{"id":"a","revoke":-1}"#,
                json!("a"),
                "field `revoke`: expected ",
            ),
            (
                r#"{"id":"a","approve":null}"#,
                json!("a"),
                "field `approve`: expected ",
            ),
            (
                r#"{"id":"a","register":1}"#,
                json!("a"),
                "field `register`: expected an object",
            ),
            (
                r#"{"id":"a","register":{"name":"n"}}"#,
                json!("a"),
                "missing field `register.description`",
            ),
            (
                register(r#""risk":"none""#).leak(),
                json!("a"),
                "field `register.risk`: expected ",
            ),
            (
                register(r#""timeout":-1"#).leak(),
                json!("a"),
                "field `register.timeout`: expected ",
            ),
            (
                register(r#""x":1"#).leak(),
                json!("a"),
                "unknown field `register.x`",
            ),
            (
                r#"{"id":"a","unregister":1}"#,
                json!("a"),
                "field `unregister`: expected a string",
            ),
            (
                r#"{"id":"a","tools":1}"#,
                json!("a"),
                "field `tools`: expected ",
            ),
            (
                r#"{"id":"a","result":1}"#,
                json!("a"),
                "field `result`: expected a string",
            ),
            (
                r#"{"id":"a","result":"x","structured":1}"#,
                json!("a"),
                "field `structured`: expected an object",
            ),
            (
                r#"{"id":"a","result":"x","error":{}}"#,
                json!("a"),
                "unknown field `error`",
            ),
            (
                r#"{"id":"a","result":"x","part":"y"}"#,
                json!("a"),
                "field `part`: expected ",
            ),
            (
                r#"{"id":"a","error":"x"}"#,
                json!("a"),
                "field `error`: expected an object",
            ),
            (
                r#"{"id":"a","error":{"code":"violation","message":"x"}}"#,
                json!("a"),
                "field `error.code`: ",
            ),
        ];
        for (text, id, message) in cases {
            let rejected = parse(text.as_bytes()).unwrap_err();
            assert_eq!(rejected.id, id, "{text}");
            assert!(
                rejected.error.to_string().contains(message),
                "{text}: {}",
                rejected.error
            );
        }
        assert!(parse(b"{\"id\":\"\xff\"}").is_err());
    }
}
