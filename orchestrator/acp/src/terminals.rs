//! Commands of the agent that keep running between its messages, each in a cell.

use crate::calls::{self, AgentCalls};
use crate::files::absolute;
use crate::rpc_message::failure;
use agent_client_protocol_schema::v1::{
    CreateTerminalRequest, CreateTerminalResponse, EnvVariable, Error, ErrorCode, SessionId,
    TerminalExitStatus, TerminalId, TerminalOutputResponse,
};
use broker_protocol::{Ended, ErrorKind};
use nix::sys::signal::Signal;
use orchestrator_engine::{Call, CallHandle, CallResult, LiveOutput};
use orchestrator_results::findings;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::watch;

/// Maximum number of terminals that are not released; the same as the calls in progress in a session.
const TERMINALS: usize = 64;
/// Maximum bytes of a terminal's output to keep.
const OUTPUT: usize = 1 << 20;

struct EditorTerminal {
    session: SessionId,
    handle: CallHandle,
    output: RefCell<Tail>,
    ended: watch::Sender<Option<TerminalExitStatus>>,
}

/// The terminals of the agent.
pub(crate) struct AgentTerminals {
    calls: Rc<AgentCalls>,
    /// The time limit of a command, in seconds: the policy's maximum, since the agent has its own.
    timeout_s: u32,
    by_id: RefCell<HashMap<TerminalId, Rc<EditorTerminal>>>,
    last: Cell<u64>,
}

impl AgentTerminals {
    pub(crate) fn new(calls: Rc<AgentCalls>, timeout_s: u32) -> Self {
        Self {
            calls,
            timeout_s,
            by_id: RefCell::default(),
            last: Cell::new(0),
        }
    }

    pub(crate) fn create(
        &self,
        create: CreateTerminalRequest,
    ) -> Result<CreateTerminalResponse, Error> {
        if self.by_id.borrow().len() == TERMINALS {
            let message =
                format!("there are {TERMINALS} terminals; release those that are not needed");
            return Err(failure(ErrorCode::InternalError, message));
        }
        let call = self.calls.start(
            "bash",
            input(&create, self.timeout_s)?,
            LiveOutput::Sanitized,
        );
        let most = create
            .output_byte_limit
            .map_or(OUTPUT, |most| usize::try_from(most).unwrap_or(OUTPUT));
        let terminal = Rc::new(EditorTerminal {
            session: create.session_id,
            handle: call.handle.clone(),
            output: RefCell::new(Tail::new(most.min(OUTPUT))),
            ended: watch::Sender::new(None),
        });
        self.last.set(self.last.get() + 1);
        let id = TerminalId::new(format!("cell-{}", self.last.get()));
        self.by_id.borrow_mut().insert(id.clone(), terminal.clone());
        tokio::task::spawn_local(follow(self.calls.clone(), terminal, call));
        Ok(CreateTerminalResponse::new(id))
    }

    pub(crate) fn output(
        &self,
        session: &SessionId,
        id: &TerminalId,
    ) -> Result<TerminalOutputResponse, Error> {
        let terminal = self.find(session, id)?;
        let (output, truncated) = terminal.output.borrow().text();
        let status = terminal.ended.borrow().clone();
        Ok(TerminalOutputResponse::new(output, truncated).exit_status(status))
    }

    pub(crate) async fn wait(
        &self,
        session: &SessionId,
        id: &TerminalId,
    ) -> Result<TerminalExitStatus, Error> {
        let mut ended = self.find(session, id)?.ended.subscribe();
        let status = ended
            .wait_for(Option::is_some)
            .await
            .map_err(|_| calls::ended())?
            .clone();
        Ok(status.unwrap_or_default())
    }

    /// `terminal/kill`: its output can still be read.
    pub(crate) fn kill(&self, session: &SessionId, id: &TerminalId) -> Result<(), Error> {
        self.find(session, id)?.handle.cancel();
        Ok(())
    }

    /// `terminal/release`: kills and removes it.
    pub(crate) fn release(&self, session: &SessionId, id: &TerminalId) -> Result<(), Error> {
        self.kill(session, id)?;
        self.by_id.borrow_mut().remove(id);
        Ok(())
    }

    fn find(&self, session: &SessionId, id: &TerminalId) -> Result<Rc<EditorTerminal>, Error> {
        let found = self.by_id.borrow().get(id).cloned();
        found
            .filter(|terminal| terminal.session == *session)
            .ok_or_else(|| {
                let message = format!("there is no terminal {:?} in this session", id.0);
                failure(ErrorCode::ResourceNotFound, message)
            })
    }
}

/// The input of `bash`. With arguments, the command runs without a shell; alone, it is a shell command line, as in other clients.
fn input(create: &CreateTerminalRequest, timeout_s: u32) -> Result<Value, Error> {
    let is_name =
        |name: &str| !name.is_empty() && !name.starts_with('-') && !name.contains(['=', '\0']);
    if let Some(variable) = create.env.iter().find(|variable| !is_name(&variable.name)) {
        return Err(failure(
            ErrorCode::InvalidParams,
            format!("{:?} is no name of a variable", variable.name),
        ));
    }
    let mut words: Vec<String> = Vec::new();
    if !create.env.is_empty() {
        let pair = |EnvVariable { name, value, .. }: &EnvVariable| format!("{name}={value}");
        words.push("env".into());
        words.extend(create.env.iter().map(pair));
    }
    let is_line = create.args.is_empty();
    if !is_line {
        words.push(create.command.clone());
        words.extend(create.args.iter().cloned());
    } else if !words.is_empty() {
        words.extend(["bash".into(), "-c".into(), create.command.clone()]);
    }
    let command = if words.is_empty() {
        json!(create.command)
    } else {
        json!(words)
    };
    let mut input = json!({ "command": command, "timeout": timeout_s });
    if let Some(cwd) = &create.cwd {
        absolute(cwd)?;
        input["cwd"] = json!(cwd);
    }
    Ok(input)
}

/// Stores what a command prints until it has ended.
async fn follow(calls: Rc<AgentCalls>, terminal: Rc<EditorTerminal>, call: Call) {
    let output = |bytes: &[u8]| terminal.output.borrow_mut().push(bytes);
    let result = calls.follow(&terminal.session.0, call, output).await;
    let status = match &result {
        Some(result) => {
            if let Some(found) = findings::lines(result.findings()) {
                terminal
                    .output
                    .borrow_mut()
                    .push(format!("\n{found}\n").as_bytes());
            }
            if let Some(why) = why(result) {
                terminal
                    .output
                    .borrow_mut()
                    .push(format!("\nlazaret: {why}\n").as_bytes());
            }
            exit_status(result)
        }
        None => TerminalExitStatus::new(),
    };
    terminal.ended.send_replace(Some(status));
}

/// Why a command ended or could not start, if its exit code does not tell.
fn why(result: &CallResult) -> Option<&str> {
    let failed = result.error.as_ref()?;
    let denied = result.denials().next().is_some();
    (failed.kind != ErrorKind::ExitNonzero || denied).then_some(failed.message.as_str())
}

/// Neither a code nor a signal if the command did not end by itself.
fn exit_status(result: &CallResult) -> TerminalExitStatus {
    let exited = |code: Option<u32>| TerminalExitStatus::new().exit_code(code);
    let killed = |number: i32| {
        let name = Signal::try_from(number)
            .map_or_else(|_| number.to_string(), |signal| signal.to_string());
        TerminalExitStatus::new().signal(name)
    };
    match result.ended {
        Some(Ended::Exited(code)) => exited(u32::try_from(code).ok()),
        Some(Ended::Signalled(number)) => killed(number),
        Some(Ended::TimedOut | Ended::Idle | Ended::Cancelled | Ended::Limited(_)) => {
            killed(Signal::SIGKILL as i32)
        }
        // The same exit codes as in a shell.
        Some(Ended::NotStarted(_)) => exited(Some(127)),
        Some(Ended::NoDirectory(_)) | None => exited(Some(126)),
    }
}

/// The last bytes of an output, as ACP requires: starting at the beginning of a character.
struct Tail {
    bytes: Vec<u8>,
    most: usize,
    is_cut: bool,
}

impl Tail {
    fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            most,
            is_cut: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Not for each piece: the part to move is then long compared with the piece.
        if self.bytes.len() > 2 * self.most.max(4096) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let surplus = self.bytes.len().saturating_sub(self.most);
        self.is_cut |= surplus > 0;
        self.bytes.drain(..surplus);
    }

    /// The text, and whether its beginning was cut off.
    fn text(&self) -> (String, bool) {
        let surplus = self.bytes.len().saturating_sub(self.most);
        let last = &self.bytes[surplus..];
        let is_cut = self.is_cut || surplus > 0;
        let is_middle = |byte: &&u8| **byte & 0xc0 == 0x80;
        let begun = if is_cut {
            last.iter().take(3).take_while(is_middle).count()
        } else {
            0
        };
        (String::from_utf8_lossy(&last[begun..]).into_owned(), is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[test]
    fn the_end_of_an_output_is_kept_whole_characters() {
        let mut tail = Tail::new(5);
        tail.push("ab".as_bytes());
        assert_eq!(tail.text(), ("ab".into(), false));
        tail.push("äöü".as_bytes());
        assert_eq!(tail.text(), ("öü".into(), true));
        tail.push(&vec![b'x'; 100_000]);
        assert_eq!(tail.text(), ("xxxxx".into(), true));
        assert!(tail.bytes.capacity() <= 300_000 && tail.bytes.len() <= 10_000);
        assert_eq!(Tail::new(0).text(), (String::new(), false));
    }

    #[test]
    fn a_command_alone_is_a_line_and_with_arguments_a_program() {
        let parsed = |rest: Value| {
            let mut create = json!({ "sessionId": "s", "command": "make all" });
            create
                .as_object_mut()
                .unwrap()
                .extend(rest.as_object().unwrap().clone());
            CreateTerminalRequest::deserialize(create)
        };
        let create =
            |rest: Value| input(&parsed(rest).unwrap(), 9).map(|input| input["command"].clone());
        assert_eq!(create(json!({})), Ok(json!("make all")));
        assert_eq!(
            create(json!({ "args": ["x y"] })),
            Ok(json!(["make all", "x y"]))
        );
        let variable = json!([{ "name": "A", "value": "b c" }]);
        assert_eq!(
            create(json!({ "env": variable })),
            Ok(json!(["env", "A=b c", "bash", "-c", "make all"]))
        );
        // A word or variable that the crate skipped would make another command of it.
        for odd in [
            json!({ "args": ["x", 1] }),
            json!({ "env": [{ "name": "A" }] }),
        ] {
            assert!(parsed(odd).is_err());
        }
        for name in ["", "A=B", "-i", "\0"] {
            let variable = json!([{ "name": name, "value": "" }]);
            assert_eq!(
                create(json!({ "env": variable })).unwrap_err().code,
                ErrorCode::InvalidParams
            );
        }
        assert_eq!(
            create(json!({ "cwd": "sub" })).unwrap_err().code,
            ErrorCode::InvalidParams
        );
    }
}
