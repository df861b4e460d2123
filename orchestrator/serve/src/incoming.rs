//! The messages of clients, held against their limits. The types are those of `orchestrator-wire`, from which the description is generated.

use crate::case::{self, WireCase};
use crate::once;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_agent::message::{Message, MessagePart, ToolAnswer, ToolCall};
use orchestrator_engine::execution::OutsideReply;
use orchestrator_tools::input::{explain_by, schema_of};
use orchestrator_wire::approval::Answer;
use orchestrator_wire::chat_command::{
    Approve, ClientMessage, HistoryCall, HistoryMessage, Role, Send, ToolReply,
};
use orchestrator_wire::error::ErrorCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

/// Maximum bytes of a message or of a request's body.
pub const MESSAGE_MAX: usize = 4 << 20;
/// Maximum bytes of one message of a user.
pub const CONTENT_MAX: usize = 1 << 20;
/// Maximum bytes of an ID that a client chooses.
pub const ID_MAX: usize = 128;
/// Maximum number of messages in a history.
const HISTORY_MAX: usize = 2_000;
/// Maximum bytes of a project's path.
const PATH_MAX: usize = 4096;
/// Maximum bytes of the instructions for one run.
const INSTRUCTIONS_MAX: usize = 64 << 10;

/// Why a message or a request is invalid or cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    #[error("{0}")]
    Invalid(String),
    #[error("{field}: {message}")]
    Field { field: String, message: String },
    #[error("there is no message type {0:?}")]
    UnknownType(String),
    #[error(
        "an id is 1 to {ID_MAX} letters, digits, '.', '_' and '-', not only dots, and has no known secret in it"
    )]
    Id,
    #[error("there is no conversation {0:?}")]
    UnknownConversation(String),
    #[error("there is no run {0:?}")]
    UnknownRun(String),
    #[error("no run is under way in {0:?}")]
    NotRunning(String),
    #[error("a run is under way in this conversation already")]
    Busy,
    #[error("{0} runs are under way, which is the maximum")]
    TooManyRuns(usize),
    #[error("{0}")]
    NotPending(String),
    #[error("{0}")]
    NotShown(String),
    #[error("{0}")]
    OtherDigest(String),
    #[error("several calls wait under this id: name one with {field}")]
    Ambiguous { field: String },
    #[error("no call {0:?} waits for an answer of this client")]
    NotExecuting(String),
    #[error("{0}")]
    Tool(String),
    #[error("there is no provider {0:?}")]
    UnknownProvider(String),
    #[error("{0}")]
    Refused(String),
    #[error("too many requests")]
    TooOften,
    #[error("lazaret failed: {0}")]
    Internal(String),
}

impl RequestError {
    /// An error in this field, by its name in camel case.
    pub fn field(field: &str, message: impl Into<String>) -> Self {
        Self::Field {
            field: field.to_owned(),
            message: message.into(),
        }
    }

    /// The same, with the names of fields in the case that the client writes.
    pub fn in_case(self, case: WireCase) -> Self {
        match self {
            Self::Field { field, message } => Self::Field {
                field: case.name(&field),
                message,
            },
            Self::Ambiguous { field } => Self::Ambiguous {
                field: case.name(&field),
            },
            other => other,
        }
    }

    /// The code on the wire.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) | Self::Field { .. } | Self::Id => ErrorCode::InvalidRequest,
            Self::UnknownType(_) => ErrorCode::UnknownType,
            Self::UnknownConversation(_) => ErrorCode::UnknownConversation,
            Self::UnknownRun(_) => ErrorCode::UnknownRun,
            Self::NotRunning(_) => ErrorCode::NotRunning,
            Self::Busy => ErrorCode::Busy,
            Self::TooManyRuns(_) => ErrorCode::TooManyRuns,
            Self::NotPending(_) => ErrorCode::UnknownToolId,
            Self::NotShown(_) => ErrorCode::NotShown,
            Self::OtherDigest(_) => ErrorCode::OtherDigest,
            Self::Ambiguous { .. } => ErrorCode::AmbiguousToolId,
            Self::NotExecuting(_) => ErrorCode::UnknownExecution,
            Self::Tool(_) => ErrorCode::InvalidTool,
            Self::UnknownProvider(_) => ErrorCode::UnknownProvider,
            Self::Refused(_) => ErrorCode::Refused,
            Self::TooOften => ErrorCode::RateLimited,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }
}

/// A message with its type and ID.
#[derive(Debug)]
pub struct ClientRequest {
    /// The type, which answers repeat; its first 64 characters.
    pub kind: String,
    /// The client's ID for it, which answers repeat.
    pub request_id: Option<String>,
    /// The conversation that it names.
    pub conversation: Option<String>,
    /// The case in which the client writes names.
    pub case: WireCase,
    /// The message, or why it is invalid.
    pub message: Result<ClientMessage, RequestError>,
}

#[derive(Deserialize)]
struct Envelope {
    r#type: String,
    #[serde(default)]
    payload: Value,
    #[serde(default, alias = "request_id", rename = "requestId")]
    request_id: Option<String>,
}

impl ClientRequest {
    /// Parses the text of a message. Where its names do not tell the client's case, it is `case`.
    pub fn parse(text: &str, case: WireCase) -> Self {
        match once::check(text.as_bytes()).and_then(|()| serde_json::from_str::<Envelope>(text)) {
            Ok(Envelope {
                r#type,
                payload,
                request_id,
            }) => {
                let kind = brief(&r#type);
                let case = WireCase::of(&payload).unwrap_or(case);
                let conversation = ["conversationId", "conversation_id"]
                    .iter()
                    .find_map(|name| payload[name].as_str())
                    .filter(|id| is_id(id))
                    .map(str::to_owned);
                let (request_id, id_error) = match request_id.filter(|id| !id.is_empty()) {
                    Some(id) if !is_id(&id) => (None, Some(RequestError::Id)),
                    id => (id, None),
                };
                let message = id_error.map_or_else(|| message(&r#type, payload, case), Err);
                Self {
                    kind,
                    request_id,
                    conversation,
                    case,
                    message,
                }
            }
            Err(error) => {
                let message = format!(
                    "not a message: type, payload, no name twice; {}",
                    explain_position(&error)
                );
                Self {
                    kind: String::new(),
                    request_id: None,
                    conversation: None,
                    case,
                    message: Err(RequestError::Invalid(message)),
                }
            }
        }
    }
}

/// The part of a parser's error that quotes nothing of its input.
fn explain_position(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

type MessageReader = fn(Value, WireCase) -> Result<ClientMessage, RequestError>;

/// The existing types of messages.
const MESSAGES: [(&str, MessageReader); 8] = [
    ("chat:send", |payload, case| {
        Ok(ClientMessage::Send(Box::new(
            read(payload, case).and_then(checked)?,
        )))
    }),
    ("chat:cancel", |payload, case| {
        read(payload, case).map(ClientMessage::Cancel)
    }),
    ("chat:tool-approve", |payload, case| {
        read(payload, case).map(ClientMessage::Approve)
    }),
    ("chat:resume", |payload, case| {
        read(payload, case).map(ClientMessage::Resume)
    }),
    ("chat:trust", |payload, case| {
        read(payload, case).map(ClientMessage::Trust)
    }),
    ("tool:register", |payload, case| {
        read(payload, case).map(ClientMessage::Register)
    }),
    ("tool:unregister", |payload, case| {
        read(payload, case).map(ClientMessage::Unregister)
    }),
    ("tool:answer", |payload, case| {
        read(payload, case).map(ClientMessage::ToolAnswer)
    }),
];

/// The type with this name, if there is one.
pub fn known(kind: &str) -> Option<&'static str> {
    MESSAGES
        .iter()
        .map(|(name, _)| *name)
        .find(|name| *name == kind)
}

fn message(kind: &str, payload: Value, case: WireCase) -> Result<ClientMessage, RequestError> {
    let reader = MESSAGES
        .iter()
        .find(|(name, _)| *name == kind)
        .map(|(_, reader)| reader);
    reader.ok_or_else(|| RequestError::UnknownType(brief(kind)))?(payload, case)
}

/// Parses a payload. An error names the field, in `case`, but not its value, which may be a key.
///
/// # Errors
/// If it is invalid.
pub fn read<T: DeserializeOwned + JsonSchema>(
    payload: Value,
    case: WireCase,
) -> Result<T, RequestError> {
    let twice = |name: String| {
        RequestError::Invalid(format!("duplicate field `{}`", brief(&case.name(&name))))
    };
    let payload = case::read(payload).map_err(twice)?;
    // An explanation quotes the value, and this one must not be quoted.
    if payload
        .get("apiKey")
        .is_some_and(|key| !key.is_string() && !key.is_null())
    {
        return Err(RequestError::Invalid(format!(
            "field `{}`: expected a string",
            case.name("apiKey")
        )));
    }
    // Serde would accept an array as the fields in order.
    let typed = if payload.is_object() {
        serde_json::from_value::<T>(payload.clone()).ok()
    } else {
        None
    };
    typed.ok_or_else(|| {
        let schema = case.schema(schema_of::<T>());
        let explained = explain_by(schema, &case.write(payload)).map(|error| error.to_string());
        RequestError::Invalid(
            explained.unwrap_or_else(|| "the fields do not match this message".to_owned()),
        )
    })
}

/// The beginning of a name that a client sent.
pub fn brief(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Whether a text is a valid ID: short, and without anything that could lead out of a path.
pub fn is_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=ID_MAX).contains(&id.len()) && id.bytes().all(plain) && id.bytes().any(|byte| byte != b'.')
}

/// Whether a text may be what a user says; `field` is its name on the wire.
///
/// # Errors
/// It is empty or too long.
pub fn is_content(field: &str, text: &str) -> Result<(), RequestError> {
    match text.trim().is_empty() || text.len() > CONTENT_MAX {
        true => Err(RequestError::field(
            field,
            format!("1 to {CONTENT_MAX} bytes, not only blanks"),
        )),
        false => Ok(()),
    }
}

/// This message, held against every limit.
///
/// # Errors
/// The first limit that it exceeds.
pub fn checked(send: Send) -> Result<Send, RequestError> {
    let invalid = |field, message: String| Err(RequestError::field(field, message));
    if send
        .options
        .conversation_id
        .as_deref()
        .is_some_and(|id| !is_id(id))
    {
        return Err(RequestError::Id);
    }
    is_content("content", &send.content)?;
    if send
        .history
        .as_ref()
        .is_some_and(|history| history.len() > HISTORY_MAX)
    {
        return invalid("history", format!("at most {HISTORY_MAX} messages"));
    }
    if send
        .options
        .system_prompt
        .as_ref()
        .is_some_and(|text| text.len() > INSTRUCTIONS_MAX)
    {
        return invalid("systemPrompt", format!("at most {INSTRUCTIONS_MAX} bytes"));
    }
    if let Some(project) = &send.options.project
        && (!project.is_absolute() || project.as_os_str().len() > PATH_MAX)
    {
        return invalid(
            "project",
            format!("an absolute path of at most {PATH_MAX} bytes"),
        );
    }
    Ok(send)
}

/// The history of a message, converted for the loop.
pub fn take_history(send: &mut Send) -> Option<Vec<Message>> {
    let history = send.history.take()?;
    Some(messages(history).collect())
}

/// Consecutive results are the answers to one message.
fn messages(history: Vec<HistoryMessage>) -> impl Iterator<Item = Message> {
    let mut messages: Vec<Message> = Vec::new();
    for one in history {
        match (one.role, messages.last_mut()) {
            (Role::Tool, Some(Message::Tools { answers })) => answers.push(tool_answer(one)),
            (Role::Tool, _) => messages.push(Message::Tools {
                answers: vec![tool_answer(one)],
            }),
            (Role::User, _) => messages.push(Message::user(one.content)),
            (Role::Assistant, _) => messages.push(said_by_model(one)),
        }
    }
    messages.into_iter()
}

fn tool_answer(message: HistoryMessage) -> ToolAnswer {
    ToolAnswer {
        full: None,
        found_bytes: 0,
        id: message.tool_call_id.unwrap_or_default(),
        name: message.tool_name.unwrap_or_default(),
        text: message.content,
        is_error: message.is_error,
        image: None,
    }
}

fn said_by_model(message: HistoryMessage) -> Message {
    let text = Some(MessagePart::Text {
        text: message.content,
    })
    .filter(|part| {
        *part
            != MessagePart::Text {
                text: String::new(),
            }
    });
    let call = |call: HistoryCall| {
        MessagePart::ToolCall(ToolCall {
            id: call.id,
            name: call.name,
            input: Value::Object(call.input),
        })
    };
    Message::Assistant {
        parts: text
            .into_iter()
            .chain(message.tool_calls.into_iter().map(call))
            .collect(),
    }
}

/// The answer of a message, from either field.
///
/// # Errors
/// If there is none, or there are two.
pub fn approval_answer(approve: &Approve) -> Result<Answer, RequestError> {
    match (approve.answer, approve.approved) {
        (Some(answer), None) => Ok(answer),
        (None, Some(true)) => Ok(Answer::Once),
        (None, Some(false)) => Ok(Answer::No),
        (None, None) => Err(RequestError::Invalid(
            "one of answer and approved is needed".to_owned(),
        )),
        (Some(_), Some(_)) => Err(RequestError::Invalid(
            "answer and approved: give only one of them".to_owned(),
        )),
    }
}

/// The answer of a tool.
///
/// # Errors
/// If it contains no answer, or two.
pub fn tool_result(reply: ToolReply) -> Result<Result<OutsideReply, Failed>, RequestError> {
    let structured = reply.structured;
    match (reply.content, reply.content_base64, reply.error) {
        (Some(text), None, None) => Ok(Ok(OutsideReply {
            text: text.into_bytes(),
            structured,
            image: None,
        })),
        (None, Some(text), None) => {
            let wrong = |_| RequestError::field("contentBase64", "not base64");
            Ok(Ok(OutsideReply {
                text: STANDARD.decode(text).map_err(wrong)?,
                structured,
                image: None,
            }))
        }
        (None, None, Some(message)) => Ok(Err(Failed {
            kind: ErrorKind::Io,
            message,
        })),
        _ => Err(RequestError::Invalid(
            "one of content, contentBase64 and error is needed".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(kind: &str, payload: Value) -> Result<ClientMessage, RequestError> {
        let text = json!({ "type": kind, "payload": payload }).to_string();
        let request = ClientRequest::parse(&text, WireCase::Camel);
        request.message.map_err(|error| error.in_case(request.case))
    }

    #[test]
    fn messages_are_understood_in_both_cases() {
        for payload in [
            json!({"conversation_id": "c", "content": "x", "api_key": "k", "system_prompt": "s"}),
            json!({"conversationId": "c", "content": "x", "apiKey": "k", "systemPrompt": "s"}),
        ] {
            let Ok(ClientMessage::Send(send)) = parse("chat:send", payload) else {
                panic!()
            };
            assert_eq!(
                (
                    send.options.conversation_id.as_deref(),
                    send.options.api_key.as_deref()
                ),
                (Some("c"), Some("k"))
            );
        }
    }

    #[test]
    fn message_over_a_limit_is_refused_and_one_at_it_is_not() {
        let send = |payload: Value| parse("chat:send", payload);
        let text = |length: usize| "x".repeat(length);
        assert!(send(json!({"content": text(CONTENT_MAX)})).is_ok());
        assert!(send(json!({"content": text(CONTENT_MAX + 1)})).is_err());
        assert!(send(json!({"content": " "})).is_err());
        let one = json!({"role": "user", "content": "x"});
        assert!(send(json!({"content": "x", "history": vec![one.clone(); HISTORY_MAX]})).is_ok());
        assert!(send(json!({"content": "x", "history": vec![one; HISTORY_MAX + 1]})).is_err());
        assert!(send(json!({"content": "x", "systemPrompt": text(INSTRUCTIONS_MAX)})).is_ok());
        assert!(send(json!({"content": "x", "systemPrompt": text(INSTRUCTIONS_MAX + 1)})).is_err());
        assert!(send(json!({"content": "x", "project": "relative"})).is_err());
        assert!(send(json!({"content": "x", "conversationId": text(ID_MAX)})).is_ok());
        for id in [&text(ID_MAX + 1), " ", ".", "..", "../x", "a/b", "a\0", "é"] {
            assert!(
                send(json!({"content": "x", "conversationId": id})).is_err(),
                "{id:?}"
            );
        }
    }

    #[test]
    fn an_empty_optional_string_is_an_absent_one() {
        let empty = json!({"content": "x", "conversation_id": "", "provider": "", "api_key": "", "model": "",
        "system_prompt": "", "project": "", "profile": "", "pack": "", "history": [
            {"role": "assistant", "content": null, "tool_calls": null},
            {"role": "assistant", "tool_calls": [{"id": "a", "name": "bash", "input": null}]},
        ]});
        let Ok(ClientMessage::Send(send)) = parse("chat:send", empty) else {
            panic!()
        };
        let options = send.options;
        assert_eq!(
            [
                options.conversation_id,
                options.provider,
                options.api_key,
                options.model,
                options.system_prompt,
                options.profile,
                options.pack
            ],
            [const { None }; 7]
        );
        assert!(options.project.is_none());
        let answer = json!({"tool_id": "t", "approved": true, "conversation_id": "", "digest": "", "message_id": ""});
        let Ok(ClientMessage::Approve(approve)) = parse("chat:tool-approve", answer) else {
            panic!()
        };
        assert_eq!((approve.conversation_id, approve.digest), (None, None));
    }

    #[test]
    fn an_error_names_fields_in_the_case_of_the_client() {
        let long = "x".repeat(INSTRUCTIONS_MAX + 1);
        for (payload, want, never) in [
            (
                json!({"content": "x", "system_prompt": long}),
                "system_prompt",
                "systemPrompt",
            ),
            (
                json!({"content": "x", "systemPrompt": long}),
                "systemPrompt",
                "system_prompt",
            ),
            (
                json!({"content": 1, "conversation_id": "c", "sytem_prompt": 1}),
                "`system_prompt`",
                "systemPrompt",
            ),
            (
                json!({"content": "x", "conversation_id": 7}),
                "`conversation_id`",
                "conversationId",
            ),
            (json!({"content": "x", "api_key": 7}), "`api_key`", "apiKey"),
        ] {
            let error = parse("chat:send", payload).unwrap_err().to_string();
            assert!(error.contains(want) && !error.contains(never), "{error}");
        }
    }

    #[test]
    fn an_error_names_the_field_and_has_nothing_of_a_key() {
        let error = parse(
            "chat:send",
            json!({"content": "x", "apiKey": {"sk-very-secret": 1}}),
        )
        .unwrap_err();
        assert!(!error.to_string().contains("very-secret"), "{error}");
        let error = parse(
            "chat:send",
            json!({"content": "x", "apikey": "sk-very-secret"}),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("apikey") && !error.to_string().contains("very-secret"),
            "{error}"
        );
        let error = ClientRequest::parse(
            r#"{"type":"chat:send","payload":"sk-very-secret"#,
            WireCase::Camel,
        )
        .message
        .unwrap_err();
        assert!(!error.to_string().contains("very-secret"), "{error}");
        assert!(matches!(
            parse("chat:sned", json!({})),
            Err(RequestError::UnknownType(_))
        ));
    }

    #[test]
    fn a_boolean_answers_a_question_and_two_answers_do_not() {
        let answer = |payload: Value| match parse("chat:tool-approve", payload) {
            Ok(ClientMessage::Approve(approve)) => approval_answer(&approve).ok(),
            _ => None,
        };
        assert_eq!(
            answer(json!({"tool_id": "t", "approved": true})),
            Some(Answer::Once)
        );
        assert_eq!(
            answer(json!({"toolId": "t", "approved": false})),
            Some(Answer::No)
        );
        assert_eq!(
            answer(json!({"toolId": "t", "answer": "session"})),
            Some(Answer::Session)
        );
        assert_eq!(
            answer(json!({"toolId": "t", "answer": "no_and_stop"})),
            Some(Answer::NoAndStop)
        );
        assert_eq!(
            answer(json!({"toolId": "t", "answer": {"minutes": 10}})),
            Some(Answer::Minutes(10.try_into().unwrap()))
        );
        for wrong in [
            json!({"toolId": "t"}),
            json!({"toolId": "t", "answer": {"minutes": 0}}),
            json!({"toolId": "t", "approved": true, "answer": "no"}),
            json!({"toolId": "t", "answer": "yes"}),
            json!({"toolId": "t", "approved": 1}),
            json!({"approved": true}),
        ] {
            assert_eq!(answer(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn a_history_becomes_messages_with_their_answers_together() {
        let history = json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "toolCalls": [{"id": "a", "name": "bash"}, {"id": "b", "name": "bash"}]},
            {"role": "tool", "tool_call_id": "a", "toolName": "bash", "content": "1"},
            {"role": "tool", "toolCallId": "b", "toolName": "bash", "content": "2", "isError": true},
            {"role": "assistant", "content": "done"},
        ]);
        let Ok(ClientMessage::Send(mut send)) =
            parse("chat:send", json!({"content": "x", "history": history}))
        else {
            panic!()
        };
        let messages = take_history(&mut send).unwrap();
        assert_eq!(messages.len(), 4);
        assert!(matches!(&messages[1], Message::Assistant { parts } if parts.len() == 2));
        assert!(
            matches!(&messages[2], Message::Tools { answers } if answers.len() == 2 && answers[1].is_error)
        );
    }
}
