//! Decides where each message goes.

use crate::calls::Calls;
use crate::files;
use crate::links::{Links, is_ours};
use crate::message::{Code, Fault, Kind, Message, response};
use crate::terminals::Terminals;
use orchestrator_lines::line_reader::{Lines, Next};
use orchestrator_options::project::real;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// How many requests of the agent may be in progress; beyond that, nothing more is read from it until one is answered.
const ANSWERING: usize = 128;

/// Requests that open a session with a directory.
const OPENING: [&str; 4] = ["session/new", "session/load", "session/resume", "session/fork"];

/// The proxy between an editor and an agent.
pub struct Proxy {
    pub links: Rc<Links>,
    pub calls: Rc<Calls>,
    pub terminals: Terminals,
    pub root: PathBuf,
}

/// Requests of the agent that we answer ourselves.
#[derive(Clone, Copy, Debug)]
enum CellRequest {
    Read,
    Write,
    Create,
    Output,
    Wait,
    Kill,
    Release,
}

impl CellRequest {
    fn of(method: &str) -> Option<Self> {
        Some(match method {
            "fs/read_text_file" => CellRequest::Read,
            "fs/write_text_file" => CellRequest::Write,
            "terminal/create" => CellRequest::Create,
            "terminal/output" => CellRequest::Output,
            "terminal/wait_for_exit" => CellRequest::Wait,
            "terminal/kill" => CellRequest::Kill,
            "terminal/release" => CellRequest::Release,
            _ => return None,
        })
    }
}

impl Proxy {
    /// Handles the editor's messages until its input ends.
    pub async fn hear_editor(&self, mut lines: Lines) {
        while let Some(message) = next_message(&mut lines).await {
            match message.map(|message| self.of_editor(message)) {
                Ok(Ok(Some(message))) => self.links.to_agent(message.into_line()).await,
                Ok(Ok(None)) => {}
                Ok(Err((id, fault))) => self.links.to_editor(response(&id, Err(fault))).await,
                Err(fault) => self.links.to_editor(response(&Value::Null, Err(fault))).await,
            }
        }
    }

    /// What is passed on to the agent of a message from the editor.
    fn of_editor(&self, mut message: Message) -> Result<Option<Message>, (Value, Fault)> {
        let Kind::Request { id } = message.kind.clone() else { return Ok(self.links.take_answer(message)) };
        if message.method == "initialize" {
            offer(message.params_mut());
        }
        match self.check_directories(&message.method, message.params()) {
            Err(text) => Err((id, Fault::new(Code::InvalidParams, text))),
            Ok(()) => Ok(Some(message)),
        }
    }

    /// Checks that all directories of a session are in the project.
    fn check_directories(&self, method: &str, params: &Value) -> Result<(), String> {
        match &params["cwd"] {
            Value::Null if OPENING.contains(&method) => {
                return Err(format!("cwd is missing: {method} needs a directory in {}", self.root.display()));
            }
            Value::Null => {}
            cwd => self.check_directory("cwd", cwd)?,
        }
        match &params["additionalDirectories"] {
            Value::Null => Ok(()),
            Value::Array(directories) => directories
                .iter()
                .try_for_each(|directory| self.check_directory("additionalDirectories", directory)),
            other => Err(format!("additionalDirectories is a list of paths and not {other}")),
        }
    }

    fn check_directory(&self, field: &str, directory: &Value) -> Result<(), String> {
        let Some(directory) = directory.as_str() else {
            return Err(format!("{field} is a path and not {directory}"));
        };
        let root = self.root.display();
        let real = real(Path::new(directory), &format!("as {field}")).map_err(|failed| failed.message)?;
        if Path::new(directory).is_absolute() && real.starts_with(&self.root) {
            return Ok(());
        }
        Err(format!(
            "{directory} is not in the project {root}, to which this agent is held; start another `lazaret acp` there, or \
             with `--project {directory}`"
        ))
    }

    /// Handles the agent's messages until its input ends.
    pub async fn hear_agent(self: Rc<Self>, mut lines: Lines) {
        let answering = Arc::new(Semaphore::new(ANSWERING));
        while let Some(message) = next_message(&mut lines).await {
            let message = match message {
                Ok(message) => message,
                Err(fault) => {
                    self.links.to_agent(response(&Value::Null, Err(fault))).await;
                    continue;
                }
            };
            let (Kind::Request { id }, own) = (message.kind.clone(), CellRequest::of(&message.method)) else {
                // A notification gets no answer, but an editor might still act on it.
                if !is_of_cells(&message.method) {
                    self.links.to_editor(message.into_line()).await;
                }
                continue;
            };
            match own {
                Some(own) => {
                    // The semaphore is never closed.
                    let Ok(permit) = answering.clone().acquire_owned().await else { return };
                    let proxy = self.clone();
                    tokio::task::spawn_local(async move {
                        let answer = proxy.answer(own, message.params()).await;
                        proxy.links.to_agent(response(&id, answer)).await;
                        drop(permit);
                    });
                }
                None if is_of_cells(&message.method) => {
                    let text =
                        format!("{} is not offered; the editor would do it outside of cells", message.method);
                    let fault = Fault::new(Code::MethodNotFound, text);
                    self.links.to_agent(response(&id, Err(fault))).await;
                }
                None if is_ours(&id) => {
                    let fault = Fault::new(Code::InvalidRequest, "ids that begin with `lazaret-` are ours");
                    self.links.to_agent(response(&id, Err(fault))).await;
                }
                None => self.links.to_editor(message.into_line()).await,
            }
        }
    }

    async fn answer(&self, own: CellRequest, params: &Value) -> Result<Value, Fault> {
        match own {
            CellRequest::Read => files::read(&self.calls, params).await,
            CellRequest::Write => files::write(&self.calls, params).await,
            CellRequest::Create => self.terminals.create(params),
            CellRequest::Output => self.terminals.output(params),
            CellRequest::Wait => self.terminals.wait(params).await,
            CellRequest::Kill => self.terminals.kill(params),
            CellRequest::Release => self.terminals.release(params),
        }
    }
}

/// Whether a method is one that only cells may carry out.
fn is_of_cells(method: &str) -> bool {
    method.starts_with("fs/") || method.starts_with("terminal/")
}

/// The next message, or the error in it; `None` at the end.
async fn next_message(lines: &mut Lines) -> Option<Result<Message, Fault>> {
    loop {
        return match lines.next().await {
            Next::Line(line) if line.trim_ascii().is_empty() => continue,
            Next::Line(line) => Some(Message::parse(&line)),
            Next::TooLong => Some(Err(Fault::new(Code::Parse, "a message has at most 4 MiB"))),
            Next::End => None,
        };
    }
}

/// Declares that files and terminals are supported, whatever the editor supports itself.
fn offer(params: &mut Value) {
    let Some(params) = params.as_object_mut() else { return };
    let capabilities = params.entry("clientCapabilities").or_insert_with(|| json!({}));
    if !capabilities.is_object() {
        *capabilities = json!({});
    }
    capabilities["fs"] = json!({ "readTextFile": true, "writeTextFile": true });
    capabilities["terminal"] = json!(true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_terminals_are_offered_beside_what_the_editor_offers() {
        let mut params = json!({ "clientCapabilities": { "fs": { "readTextFile": false }, "x": 1 } });
        offer(&mut params);
        let fs = json!({ "readTextFile": true, "writeTextFile": true });
        assert_eq!(params, json!({ "clientCapabilities": { "fs": fs, "terminal": true, "x": 1 } }));
        for mut odd in [json!({}), json!({ "clientCapabilities": null })] {
            offer(&mut odd);
            assert_eq!(odd["clientCapabilities"]["terminal"], true);
        }
        let mut none = Value::Null;
        offer(&mut none);
        assert_eq!(none, Value::Null);
    }
}
