//! Files of the project for the agent, by the tools `file_read` and `file_write`.

use crate::calls::Calls;
use crate::message::{Code, Fault};
use serde::Deserialize;
use serde_json::{Value, json};

/// As `ReadTextFileRequest` in ACP's schema.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Read {
    session_id: String,
    path: String,
    /// The first line to read, counted from 1.
    line: Option<u64>,
    limit: Option<u64>,
}

/// As `WriteTextFileRequest` in ACP's schema.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Write {
    session_id: String,
    path: String,
    content: String,
}

/// Reads a text, or some of its lines. If it is cut or a secret was removed, that is an error: an agent would write it back as the whole.
pub async fn read(calls: &Calls, params: &Value) -> Result<Value, Fault> {
    let Read { session_id, path, line, limit } = parse(params)?;
    absolute(&path)?;
    let mut input = json!({ "path": path });
    let lines = [("offset", line), ("limit", limit)];
    lines.iter().for_each(|(name, value)| {
        if let Some(value) = value {
            // Clients count from 1, but some send 0 for the first line.
            input[*name] = json!((*value).max(u64::from(*name == "offset")));
        }
    });
    if limit == Some(0) {
        return Ok(json!({ "content": "" }));
    }
    let result = calls.make(&session_id, "file_read", input).await?;
    let metadata = json!(result.metadata());
    if metadata["truncated"].is_object() {
        let message =
            format!("{path} is too long to be read at once; ask for lines, with `line` and `limit`");
        return Err(Fault::new(Code::InvalidParams, message));
    }
    if metadata["redacted"] == true {
        let message = format!(
            "{path} has a secret that is not shown, and would be lost if the text were written back; ask for lines without \
             it, with `line` and `limit`, or change the file with a command"
        );
        return Err(Fault::new(Code::InvalidParams, message));
    }
    let text = std::str::from_utf8(&result.text);
    let text = text.map_err(|_| Fault::new(Code::InvalidParams, format!("{path} is no text in UTF-8")))?;
    Ok(json!({ "content": text }))
}

pub async fn write(calls: &Calls, params: &Value) -> Result<Value, Fault> {
    let Write { session_id, path, content } = parse(params)?;
    absolute(&path)?;
    calls.make(&session_id, "file_write", json!({ "path": path, "content": content })).await?;
    Ok(json!({}))
}

/// Parses the parameters of a method.
pub fn parse<'p, T: Deserialize<'p>>(params: &'p Value) -> Result<T, Fault> {
    T::deserialize(params).map_err(|error| Fault::new(Code::InvalidParams, error.to_string()))
}

/// ACP has only absolute paths; our own form with a zone is not accepted.
pub fn absolute(path: &str) -> Result<(), Fault> {
    if path.starts_with('/') {
        return Ok(());
    }
    Err(Fault::new(Code::InvalidParams, format!("{path:?} is no absolute path")))
}
