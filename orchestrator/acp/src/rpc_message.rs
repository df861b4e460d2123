//! One JSON-RPC 2.0 message on a line of its own, as in ACP.

use agent_client_protocol_schema::v1::{ClientResponse, Error, ErrorCode};
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum MessageKind {
    Request { id: Value },
    Notification,
    Response { id: Value },
}

#[derive(Clone, Debug)]
pub(crate) struct RpcMessage {
    pub kind: MessageKind,
    pub(crate) method: String,
    body: Map<String, Value>,
}

impl RpcMessage {
    pub(crate) fn parse(line: &[u8]) -> Result<Self, Error> {
        let value = serde_json::from_slice(line)
            .map_err(|error| failure(ErrorCode::ParseError, format!("this is no JSON: {error}")))?;
        let Value::Object(body) = value else {
            return Err(failure(ErrorCode::InvalidRequest, "a message is an object"));
        };
        let id = body.get("id").cloned();
        let (kind, method) = match (body.get("method"), id) {
            (Some(Value::String(method)), Some(id)) => {
                (MessageKind::Request { id }, method.clone())
            }
            (Some(Value::String(method)), None) => (MessageKind::Notification, method.clone()),
            (Some(_), _) => return Err(failure(ErrorCode::InvalidRequest, "`method` is a string")),
            (None, Some(id)) => (MessageKind::Response { id }, String::new()),
            (None, None) => {
                return Err(failure(
                    ErrorCode::InvalidRequest,
                    "a message has a `method` or an `id`",
                ));
            }
        };
        Ok(Self { kind, method, body })
    }

    /// The parameters; `null` if there are none.
    pub(crate) fn params(&self) -> &Value {
        self.body.get("params").unwrap_or(&Value::Null)
    }

    /// The parameters, mutable; `null` if there were none.
    pub(crate) fn params_mut(&mut self) -> &mut Value {
        self.body.entry("params").or_insert(Value::Null)
    }

    /// The result of a response; `None` if it is an error.
    pub(crate) fn into_result(mut self) -> Option<Value> {
        self.body.remove("result")
    }

    /// The message as a line. It is serialized from what we parsed: of a duplicate name, only the last value.
    pub(crate) fn into_line(self) -> Vec<u8> {
        line(&Value::Object(self.body))
    }
}

/// The error in the response to a request.
pub(crate) fn failure(code: ErrorCode, message: impl Into<String>) -> Error {
    Error::new(code.into(), message)
}

/// A request as a line.
pub(crate) fn request(id: &str, method: &str, params: impl Serialize) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// The response to a request as a line. An agent gets back the very ID that it chose, of whatever type.
pub(crate) fn response(id: &Value, answer: Result<ClientResponse, Error>) -> Vec<u8> {
    line(&match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(error) => json!({ "jsonrpc": "2.0", "id": id, "error": error }),
    })
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_message_is_an_error_and_a_valid_one_passes_unchanged() {
        for (text, code) in [
            ("{", ErrorCode::ParseError),
            ("[]", ErrorCode::InvalidRequest),
            ("{}", ErrorCode::InvalidRequest),
            (r#"{"method":1,"id":2}"#, ErrorCode::InvalidRequest),
        ] {
            assert_eq!(
                RpcMessage::parse(text.as_bytes()).unwrap_err().code,
                code,
                "{text}"
            );
        }
        let text = r#"{"id":null,"jsonrpc":"2.0","method":"x","params":{"_meta":[18446744073709551615,"\u202e"]}}"#;
        let message = RpcMessage::parse(text.as_bytes()).unwrap();
        assert_eq!(message.kind, MessageKind::Request { id: Value::Null });
        let passed: Value = serde_json::from_slice(&message.into_line()).unwrap();
        assert_eq!(passed, serde_json::from_str::<Value>(text).unwrap());
        let twice = RpcMessage::parse(br#"{"method":"a","method":"b"}"#).unwrap();
        assert_eq!(
            (twice.method.clone(), twice.into_line()),
            ("b".into(), b"{\"method\":\"b\"}\n".to_vec())
        );
    }
}
