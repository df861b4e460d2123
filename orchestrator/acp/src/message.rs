//! One JSON-RPC 2.0 message on a line of its own, as in ACP.

use serde_json::{Map, Value, json};

/// The error in the response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: Code,
    pub message: String,
    /// Additional data for programs.
    pub data: Option<Value>,
}

/// Codes of JSON-RPC 2.0, section 5.1, and of ACP's schema (`ErrorCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Parse = -32700,
    InvalidRequest = -32600,
    MethodNotFound = -32601,
    InvalidParams = -32602,
    Internal = -32603,
    ResourceNotFound = -32002,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Request { id: Value },
    Notification,
    Response { id: Value },
}

#[derive(Clone, Debug)]
pub struct Message {
    pub kind: Kind,
    pub method: String,
    body: Map<String, Value>,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }
}

impl Message {
    pub fn parse(line: &[u8]) -> Result<Self, Fault> {
        let value = serde_json::from_slice(line)
            .map_err(|error| Fault::new(Code::Parse, format!("this is no JSON: {error}")))?;
        let Value::Object(body) = value else {
            return Err(Fault::new(Code::InvalidRequest, "a message is an object"));
        };
        let id = body.get("id").cloned();
        let (kind, method) = match (body.get("method"), id) {
            (Some(Value::String(method)), Some(id)) => (Kind::Request { id }, method.clone()),
            (Some(Value::String(method)), None) => (Kind::Notification, method.clone()),
            (Some(_), _) => return Err(Fault::new(Code::InvalidRequest, "`method` is a string")),
            (None, Some(id)) => (Kind::Response { id }, String::new()),
            (None, None) => {
                return Err(Fault::new(Code::InvalidRequest, "a message has a `method` or an `id`"));
            }
        };
        Ok(Self { kind, method, body })
    }

    /// The parameters; `null` if there are none.
    pub fn params(&self) -> &Value {
        self.body.get("params").unwrap_or(&Value::Null)
    }

    /// The parameters, mutable; `null` if there were none.
    pub fn params_mut(&mut self) -> &mut Value {
        self.body.entry("params").or_insert(Value::Null)
    }

    /// The result of a response; `None` if it is an error.
    pub fn into_result(mut self) -> Option<Value> {
        self.body.remove("result")
    }

    /// The message as a line. It is serialized from what we parsed: of a duplicate name, only the last value.
    pub fn into_line(self) -> Vec<u8> {
        line(&Value::Object(self.body))
    }
}

/// A request as a line.
pub fn request(id: &str, method: &str, params: Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// The response to a request as a line.
pub fn response(id: &Value, answer: Result<Value, Fault>) -> Vec<u8> {
    line(&match answer {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(Fault { code, message, data }) => {
            let mut error = json!({ "code": code as i32, "message": message });
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
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
    fn what_is_no_message_is_an_error_and_what_is_one_passes_whole() {
        for (text, code) in [
            ("{", Code::Parse),
            ("[]", Code::InvalidRequest),
            ("{}", Code::InvalidRequest),
            (r#"{"method":1,"id":2}"#, Code::InvalidRequest),
        ] {
            assert_eq!(Message::parse(text.as_bytes()).unwrap_err().code, code, "{text}");
        }
        let text =
            r#"{"id":null,"jsonrpc":"2.0","method":"x","params":{"_meta":[18446744073709551615,"\u202e"]}}"#;
        let message = Message::parse(text.as_bytes()).unwrap();
        assert_eq!(message.kind, Kind::Request { id: Value::Null });
        let passed: Value = serde_json::from_slice(&message.into_line()).unwrap();
        assert_eq!(passed, serde_json::from_str::<Value>(text).unwrap());
        let twice = Message::parse(br#"{"method":"a","method":"b"}"#).unwrap();
        assert_eq!((twice.method.clone(), twice.into_line()), ("b".into(), b"{\"method\":\"b\"}\n".to_vec()));
    }
}
