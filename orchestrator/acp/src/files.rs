//! Files of the project for the agent, by the tools `file_read` and `file_write`.

use crate::calls::AgentCalls;
use crate::rpc_message::failure;
use agent_client_protocol_schema::v1::{
    Error, ErrorCode, ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest,
    WriteTextFileResponse,
};
use serde_json::json;
use std::path::Path;

/// Reads a text, or some of its lines. If it is cut or a secret was removed, that is an error: an agent would write it back as the whole.
pub(crate) async fn read(
    calls: &AgentCalls,
    request: ReadTextFileRequest,
) -> Result<ReadTextFileResponse, Error> {
    let ReadTextFileRequest {
        session_id,
        path,
        line,
        limit,
        ..
    } = request;
    absolute(&path)?;
    let mut input = json!({ "path": path });
    if let Some(line) = line {
        // Clients count from 1, but some send 0 for the first line.
        input["offset"] = line.max(1).into();
    }
    if let Some(limit) = limit {
        input["limit"] = limit.into();
    }
    if limit == Some(0) {
        return Ok(ReadTextFileResponse::new(""));
    }
    let result = calls.make(&session_id.0, "file_read", input).await?;
    let path = path.display();
    let metadata = json!(result.metadata());
    if metadata["truncated"].is_object() {
        let message = format!(
            "{path} is too long to be read at once; ask for lines, with `line` and `limit`"
        );
        return Err(failure(ErrorCode::InvalidParams, message));
    }
    if metadata["redacted"] == true {
        let message = format!(
            "{path} has a secret that is not shown, and would be lost if the text were written back; ask for lines without \
             it, with `line` and `limit`, or change the file with a command"
        );
        return Err(failure(ErrorCode::InvalidParams, message));
    }
    let text = std::str::from_utf8(&result.text);
    let text = text.map_err(|_| {
        failure(
            ErrorCode::InvalidParams,
            format!("{path} is no text in UTF-8"),
        )
    })?;
    Ok(ReadTextFileResponse::new(text))
}

pub(crate) async fn write(
    calls: &AgentCalls,
    request: WriteTextFileRequest,
) -> Result<WriteTextFileResponse, Error> {
    let WriteTextFileRequest {
        session_id,
        path,
        content,
        ..
    } = request;
    absolute(&path)?;
    calls
        .make(
            &session_id.0,
            "file_write",
            json!({ "path": path, "content": content }),
        )
        .await?;
    Ok(WriteTextFileResponse::new())
}

/// ACP has only absolute paths; our own form with a zone is not accepted.
pub(crate) fn absolute(path: &Path) -> Result<(), Error> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(failure(
        ErrorCode::InvalidParams,
        format!("{path:?} is no absolute path"),
    ))
}
