//! Every line that `lazaret session` writes.

use crate::approval::ApprovalRequest;
use crate::error::ErrorBody;
use crate::json::{GrantJson, ResultLine};
use crate::ready::Ready;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{SessionGrant, StdStream};
use orchestrator_engine::hooks::HookRan;
use orchestrator_engine::{Body, Event};
use orchestrator_results::violation::SecurityEvent;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// A line. `id` is the client's ID of the call or request.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(
    tag = "event",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum EventLine<'a> {
    Ready(Ready<'a>),
    /// No session could be opened.
    Fault {
        error: ErrorBody,
    },
    /// A piece of live output: `chunk`, or `chunkBase64` where it is not UTF-8.
    Output {
        id: &'a Value,
        stream: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        chunk: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        chunk_base64: Option<String>,
    },
    /// The call waits for approval.
    Approval {
        id: &'a Value,
        /// The place of the call in its batch; tool and input are then those of that call.
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<usize>,
        approval: ApprovalRequest,
        tool: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        input: Option<&'a Value>,
    },
    /// The call attempted something outside its permissions; its result comes later.
    SecurityEvent {
        id: &'a Value,
        security_event: &'a SecurityEvent,
    },
    /// A hook of the user ran for the call, or for one of its batch.
    Hook {
        id: &'a Value,
        hook: &'a HookRan,
    },
    /// The client has to carry out a call of its own tool. The input is complete and unredacted, since it is the client's own.
    Execute {
        id: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        part: Option<usize>,
        tool: &'a str,
        input: &'a Value,
    },
    Grants {
        id: &'a Value,
        grants: Vec<GrantJson<'a>>,
    },
    Registered {
        id: &'a Value,
        tool: &'a str,
    },
    Unregistered {
        id: &'a Value,
        tool: &'a str,
    },
    Tools {
        id: &'a Value,
        tools: Vec<Value>,
    },
    /// Something is wrong, but no call has ended.
    Notice {
        id: &'a Value,
        error: ErrorBody,
    },
    #[serde(untagged)]
    Result(Box<ResultLine<'a>>),
}

impl<'a> EventLine<'a> {
    /// The line for an event of the call with the client's ID `id`; `None` if the event has no line. For calls of a batch only
    /// questions and violations have lines: the rest is in the batch's result.
    pub fn new(id: &'a Value, event: &'a Event) -> Option<Self> {
        let part = event.part.map(|part| part.index);
        Some(match &*event.body {
            Body::Output { stderr, bytes } => {
                Self::output(id, StdStream::stderr_if(*stderr), bytes)
            }
            Body::ApprovalWanted(question) => {
                let (tool, input) = (question.tool.as_str(), question.input.as_ref());
                let approval = ApprovalRequest::new(&question.challenge, tool, question.rejected);
                Self::Approval {
                    id,
                    part,
                    approval,
                    tool,
                    input,
                }
            }
            Body::Violation(security_event) => Self::SecurityEvent { id, security_event },
            Body::Hook(hook) => Self::Hook { id, hook },
            Body::Result(result) if part.is_none() => {
                Self::Result(Box::new(ResultLine::for_model(Some(id), result)))
            }
            Body::Result(_)
            | Body::SessionOpened(_)
            | Body::Requested { .. }
            | Body::RequestSent { .. }
            | Body::Suspended
            | Body::ApprovalGiven { .. }
            | Body::ToolRegistered { .. }
            | Body::ToolUnregistered { .. }
            | Body::Connection(_) => return None,
        })
    }

    fn output(id: &'a Value, stream: StdStream, bytes: &'a [u8]) -> Self {
        let chunk = std::str::from_utf8(bytes).ok();
        let chunk_base64 = chunk.is_none().then(|| STANDARD.encode(bytes));
        Self::Output {
            id,
            stream: match stream {
                StdStream::Stdout => "stdout",
                StdStream::Stderr => "stderr",
            },
            chunk,
            chunk_base64,
        }
    }

    /// The grants that last for the session.
    pub fn grants(id: &'a Value, standing: &'a [SessionGrant]) -> Self {
        Self::Grants {
            id,
            grants: standing.iter().map(GrantJson::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bytes_that_are_not_text_come_as_base64() {
        let id = json!(1);
        let line = |bytes: &[u8]| json!(EventLine::output(&id, StdStream::Stderr, bytes));
        let want = json!({"id": 1, "event": "output", "stream": "stderr", "chunkBase64": "4v8="});
        assert_eq!(line(b"\xe2\xff"), want);
        assert_eq!(line("é".as_bytes())["chunk"], "é");
    }

    #[test]
    fn a_text_in_json_ends_no_line() {
        let id = json!(1);
        for text in [
            "a\nb",
            "a\r\nb",
            "a\",\"id\":2,\"b\":\"\n{}",
            "\u{1b}[2J\u{0}",
        ] {
            let line =
                serde_json::to_string(&EventLine::output(&id, StdStream::Stdout, text.as_bytes()))
                    .unwrap();
            assert!(!line.chars().any(|c| c.is_ascii_control()), "{line}");
            let read: Value = serde_json::from_str(&line).unwrap();
            assert_eq!((&read["chunk"], &read["id"]), (&json!(text), &id));
        }
    }
}
