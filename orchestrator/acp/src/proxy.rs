//! Decides where each message goes.

use crate::calls::AgentCalls;
use crate::files;
use crate::links::{Links, is_ours};
use crate::rpc_message::{MessageKind, RpcMessage, failure, response};
use crate::terminals::AgentTerminals;
use agent_client_protocol_schema::MethodDispatchError;
use agent_client_protocol_schema::v1::{
    AGENT_METHOD_NAMES, AgentRequest, ClientResponse, Error, ErrorCode, FileSystemCapabilities,
    KillTerminalResponse, ReleaseTerminalResponse, WaitForTerminalExitResponse,
};
use broker_protocol::paste::shell_word;
use orchestrator_launch::project::real;
use orchestrator_launch::stdio::line_reader::{NextLine, StdinLines};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// How many requests of the agent may be in progress; beyond that, nothing more is read from it until one is answered.
const ANSWERING: usize = 128;

/// Requests that open a session with a directory. The last is not stable, so that its name is in no list of the crate's.
const OPENING: [&str; 4] = [
    AGENT_METHOD_NAMES.session_new,
    AGENT_METHOD_NAMES.session_load,
    AGENT_METHOD_NAMES.session_resume,
    "session/fork",
];

/// The proxy between an editor and an agent.
pub(crate) struct EditorProxy {
    pub(crate) links: Rc<Links>,
    pub calls: Rc<AgentCalls>,
    pub(crate) terminals: AgentTerminals,
    pub root: PathBuf,
}

impl EditorProxy {
    /// Handles the editor's messages until its input ends.
    pub(crate) async fn hear_editor(&self, mut lines: StdinLines) {
        while let Some(message) = next_message(&mut lines).await {
            let message = message.map_err(|error| response(&Value::Null, Err(error)));
            match message.and_then(|message| self.of_editor(message)) {
                Ok(Some(message)) => self.links.to_agent(message.into_line()).await,
                Ok(None) => {}
                Err(refusal) => self.links.to_editor(refusal).await,
            }
        }
    }

    /// The message to pass on to the agent for one from the editor, or the response that refuses it.
    fn of_editor(&self, mut message: RpcMessage) -> Result<Option<RpcMessage>, Vec<u8>> {
        let MessageKind::Request { id } = message.kind.clone() else {
            return Ok(self.links.take_answer(message));
        };
        if message.method == AGENT_METHOD_NAMES.initialize {
            offer(message.params_mut());
        }
        match self.check_directories(&message.method, message.params()) {
            Err(text) => Err(response(&id, Err(failure(ErrorCode::InvalidParams, text)))),
            Ok(()) => Ok(Some(message)),
        }
    }

    /// Checks that all directories of a session are in the project. Those of methods that the crate does not know, too: an agent may
    /// know them.
    fn check_directories(&self, method: &str, params: &Value) -> Result<(), String> {
        match &params["cwd"] {
            Value::Null if OPENING.contains(&method) => {
                return Err(format!(
                    "cwd is missing: {method} needs a directory in {}",
                    self.root.display()
                ));
            }
            Value::Null => {}
            cwd => self.check_directory("cwd", cwd)?,
        }
        match &params["additionalDirectories"] {
            Value::Null => Ok(()),
            Value::Array(directories) => directories
                .iter()
                .try_for_each(|directory| self.check_directory("additionalDirectories", directory)),
            other => Err(format!(
                "additionalDirectories is a list of paths and not {other}"
            )),
        }
    }

    fn check_directory(&self, field: &str, directory: &Value) -> Result<(), String> {
        let Some(directory) = directory.as_str() else {
            return Err(format!("{field} is a path and not {directory}"));
        };
        let root = self.root.display();
        let real =
            real(Path::new(directory), &format!("as {field}")).map_err(|failed| failed.message)?;
        if Path::new(directory).is_absolute() && real.starts_with(&self.root) {
            return Ok(());
        }
        Err(format!(
            "{directory} is not in the project {root}, to which this agent is held; start another `lazaret acp` there, or \
             with `--project {}`",
            shell_word(directory)
        ))
    }

    /// Handles the agent's messages until its input ends.
    pub(crate) async fn hear_agent(self: Rc<Self>, mut lines: StdinLines) {
        let answering = Arc::new(Semaphore::new(ANSWERING));
        while let Some(message) = next_message(&mut lines).await {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    self.links
                        .to_agent(response(&Value::Null, Err(error)))
                        .await;
                    continue;
                }
            };
            match message.kind.clone() {
                MessageKind::Request { id } if is_of_cells(&message.method) => {
                    // The semaphore is never closed.
                    let Ok(permit) = answering.clone().acquire_owned().await else {
                        return;
                    };
                    let proxy = self.clone();
                    tokio::task::spawn_local(async move {
                        let answer = proxy.answer(&message).await;
                        proxy.links.to_agent(response(&id, answer)).await;
                        drop(permit);
                    });
                }
                // A notification gets no answer, but an editor might still act on it.
                MessageKind::Notification if is_of_cells(&message.method) => {}
                MessageKind::Request { id } if is_ours(&id) => {
                    let error = failure(
                        ErrorCode::InvalidRequest,
                        "ids that begin with `lazaret-` are ours",
                    );
                    self.links.to_agent(response(&id, Err(error))).await;
                }
                MessageKind::Request { .. }
                | MessageKind::Notification
                | MessageKind::Response { .. } => {
                    self.links.to_editor(message.into_line()).await;
                }
            }
        }
    }

    /// Answers a request of the agent that only cells may carry out.
    async fn answer(&self, message: &RpcMessage) -> Result<ClientResponse, Error> {
        use {AgentRequest as Wanted, ClientResponse as Answer};
        let terminals = &self.terminals;
        Ok(
            match AgentRequest::from_method_and_params(&message.method, message.params()) {
                Ok(Wanted::ReadTextFileRequest(wanted)) => {
                    Answer::ReadTextFileResponse(files::read(&self.calls, wanted).await?)
                }
                Ok(Wanted::WriteTextFileRequest(wanted)) => {
                    Answer::WriteTextFileResponse(files::write(&self.calls, wanted).await?)
                }
                Ok(Wanted::CreateTerminalRequest(wanted)) => {
                    Answer::CreateTerminalResponse(terminals.create(wanted)?)
                }
                Ok(Wanted::TerminalOutputRequest(wanted)) => Answer::TerminalOutputResponse(
                    terminals.output(&wanted.session_id, &wanted.terminal_id)?,
                ),
                Ok(Wanted::WaitForTerminalExitRequest(wanted)) => {
                    let status = terminals
                        .wait(&wanted.session_id, &wanted.terminal_id)
                        .await?;
                    Answer::WaitForTerminalExitResponse(WaitForTerminalExitResponse::new(status))
                }
                Ok(Wanted::KillTerminalRequest(wanted)) => {
                    terminals.kill(&wanted.session_id, &wanted.terminal_id)?;
                    Answer::KillTerminalResponse(KillTerminalResponse::new())
                }
                Ok(Wanted::ReleaseTerminalRequest(wanted)) => {
                    terminals.release(&wanted.session_id, &wanted.terminal_id)?;
                    Answer::ReleaseTerminalResponse(ReleaseTerminalResponse::new())
                }
                Err(MethodDispatchError::InvalidPayload { source, .. }) => {
                    return Err(failure(ErrorCode::InvalidParams, source.to_string()));
                }
                // The crate's lists are open: what they have beyond this is refused like what they do not have.
                Ok(_) | Err(_) => {
                    let text = format!(
                        "{} is not offered; the editor would do it outside of cells",
                        message.method
                    );
                    return Err(failure(ErrorCode::MethodNotFound, text));
                }
            },
        )
    }
}

/// Whether a method is one that only cells may carry out.
fn is_of_cells(method: &str) -> bool {
    method.starts_with("fs/") || method.starts_with("terminal/")
}

/// The next message, or the error in it; `None` at the end.
async fn next_message(lines: &mut StdinLines) -> Option<Result<RpcMessage, Error>> {
    loop {
        return match lines.next().await {
            NextLine::Line(line) if line.trim_ascii().is_empty() => continue,
            NextLine::Line(line) => Some(RpcMessage::parse(&line)),
            NextLine::TooLong => Some(Err(failure(
                ErrorCode::ParseError,
                "a message has at most 4 MiB",
            ))),
            NextLine::End => None,
        };
    }
}

/// Declares that files and terminals are supported, whatever the editor supports itself.
fn offer(params: &mut Value) {
    let Some(params) = params.as_object_mut() else {
        return;
    };
    let capabilities = params
        .entry("clientCapabilities")
        .or_insert_with(|| json!({}));
    if !capabilities.is_object() {
        *capabilities = json!({});
    }
    // Not what else an editor may offer there: it would do that outside of cells.
    capabilities["fs"] = json!(
        FileSystemCapabilities::new()
            .read_text_file(true)
            .write_text_file(true)
    );
    capabilities["terminal"] = json!(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_terminals_are_offered_beside_what_the_editor_offers() {
        let mut params =
            json!({ "clientCapabilities": { "fs": { "readTextFile": false }, "x": 1 } });
        offer(&mut params);
        let fs = json!({ "readTextFile": true, "writeTextFile": true });
        assert_eq!(
            params,
            json!({ "clientCapabilities": { "fs": fs, "terminal": true, "x": 1 } })
        );
        for mut odd in [json!({}), json!({ "clientCapabilities": null })] {
            offer(&mut odd);
            assert_eq!(odd["clientCapabilities"]["terminal"], true);
        }
        let mut none = Value::Null;
        offer(&mut none);
        assert_eq!(none, Value::Null);
    }
}
