//! The tools that one client offers: registered in the sessions of its runs and carried out by the client.

use crate::case::WireCase;
use crate::incoming::{RequestError, brief};
use crate::outbox::Outbox;
use crate::packet::Packet;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::Session;
use orchestrator_engine::execution::{Execution, Executions, OutsideReply};
use orchestrator_engine::{NewTool, ToolOrigin};
use orchestrator_tools::registry::{self, Registry};
use orchestrator_wire::client_tool::Registration;
use orchestrator_wire::server_message::ServerMessage;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;

/// Maximum number of tools of one client.
const TOOLS_MAX: usize = 128;
/// Maximum number of pending calls for one client.
const EXECUTIONS_MAX: usize = 256;

/// The tools of a client, and its calls that are not answered yet.
pub(crate) struct ClientTools {
    outbox: Outbox,
    case: WireCase,
    offered: RefCell<BTreeMap<String, Registration>>,
    /// Checks a tool in the same way as a session would.
    checked: RefCell<Registry>,
    changes: Cell<u64>,
    number: Cell<u64>,
    waiting: RefCell<HashMap<String, oneshot::Sender<Result<OutsideReply, Failed>>>>,
}

/// Which tools of which client are registered in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachedTools {
    client: u64,
    changes: u64,
    names: Vec<String>,
}

impl ClientTools {
    /// Starts without tools. Calls are sent to `outbox`.
    pub(crate) fn new(outbox: Outbox, case: WireCase) -> Rc<Self> {
        Rc::new(Self {
            outbox,
            case,
            offered: RefCell::default(),
            checked: RefCell::default(),
            changes: Cell::new(0),
            number: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    /// Offers a tool. Sessions have it from the next run on.
    ///
    /// # Errors
    /// If a session would reject it, or there are too many.
    pub(crate) fn register(&self, tool: Registration) -> Result<(), RequestError> {
        if self.offered.borrow().len() >= TOOLS_MAX {
            return Err(RequestError::Tool(format!(
                "at most {TOOLS_MAX} tools of one client"
            )));
        }
        // Nothing calls this registry's tools, so nothing has to receive.
        let checked = self
            .checked
            .borrow_mut()
            .register(new_tool(&tool, mpsc::unbounded_channel().0));
        checked.map_err(|error| RequestError::Tool(error.to_string()))?;
        self.offered.borrow_mut().insert(tool.name.clone(), tool);
        self.changes.set(self.changes.get() + 1);
        Ok(())
    }

    /// Withdraws a tool. Sessions lose it with the next run.
    ///
    /// # Errors
    /// If this client offers no such tool.
    pub(crate) fn unregister(&self, name: &str) -> Result<(), RequestError> {
        if self.offered.borrow_mut().remove(name).is_none() {
            return Err(RequestError::Tool(format!(
                "this client offers no tool {:?}",
                brief(name)
            )));
        }
        let gone = self.checked.borrow_mut().unregister(name);
        self.changes.set(self.changes.get() + 1);
        gone.map_err(|error| RequestError::Tool(error.to_string()))
    }

    /// Delivers the answer to an execution.
    ///
    /// # Errors
    /// If nothing waits for it.
    pub(crate) fn answer(
        &self,
        id: &str,
        result: Result<OutsideReply, Failed>,
    ) -> Result<(), RequestError> {
        let unknown = || RequestError::NotExecuting(brief(id));
        let waiting = self.waiting.borrow_mut().remove(id).ok_or_else(unknown)?;
        waiting.send(result).map_err(|_| unknown())
    }

    /// Fails everything that waits for the client, which is gone.
    pub(crate) fn close(&self) {
        for (_, waiting) in self.waiting.borrow_mut().drain() {
            // The call may have ended by itself.
            let _ = waiting.send(Err(gone()));
        }
    }

    fn is_attached(&self, attached: Option<&AttachedTools>) -> bool {
        attached.is_some_and(|attached| {
            (attached.client, attached.changes) == (self.outbox.number, self.changes.get())
        })
    }

    /// Sends the calls of one conversation to the client.
    async fn hand_out(
        self: Rc<Self>,
        conversation: Arc<str>,
        mut calls: UnboundedReceiver<Execution>,
    ) {
        while let Some(call) = calls.recv().await {
            tokio::task::spawn_local(self.clone().execute(conversation.clone(), call));
        }
    }

    async fn execute(self: Rc<Self>, conversation: Arc<str>, call: Execution) {
        let Execution {
            client_id,
            tool,
            input,
            mut reply,
            ..
        } = call;
        if self.waiting.borrow().len() >= EXECUTIONS_MAX {
            let message = "the client has too many calls to answer".to_owned();
            let _ = reply.send(Err(Failed {
                kind: ErrorKind::ResourceLimit,
                message,
            }));
            return;
        }
        self.number.set(self.number.get() + 1);
        let id = format!("execution-{}", self.number.get());
        let (answer, answered) = oneshot::channel();
        self.waiting.borrow_mut().insert(id.clone(), answer);
        let order = ServerMessage::Execute {
            execution_id: id.clone(),
            conversation_id: conversation.to_string(),
            tool_id: client_id.and_then(|id| id.as_str().map(str::to_owned)),
            tool_name: tool,
            input,
        };
        let sent = self.outbox.send(Packet::answer(&order, self.case)).await;
        let result = tokio::select! {
            result = answered => result.unwrap_or_else(|_| Err(gone())),
            () = self.outbox.closed() => Err(gone()),
            () = reply.closed() => {
                self.waiting.borrow_mut().remove(&id);
                // If the client is gone, it needs no message.
                let _ = self.outbox.send(Packet::answer(&ServerMessage::Abort { execution_id: id }, self.case)).await;
                return;
            }
        };
        self.waiting.borrow_mut().remove(&id);
        // The call may have been cancelled meanwhile.
        let _ = reply.send(sent.map_or_else(|_| Err(gone()), |()| result));
    }
}

/// Registers the tools of `client`, and of no other client, in `session`.
pub(crate) async fn attach(
    session: &Session,
    conversation: &Arc<str>,
    before: Option<AttachedTools>,
    client: Option<&Rc<ClientTools>>,
) -> Option<AttachedTools> {
    if client.is_some_and(|client| client.is_attached(before.as_ref())) {
        return before;
    }
    for name in before.into_iter().flat_map(|before| before.names) {
        // If the tool is already gone, that is what we want.
        let _ = session.unregister(Value::Null, name).await;
    }
    let client = client?;
    let (executions, calls) = mpsc::unbounded_channel();
    let offered: Vec<Registration> = client.offered.borrow().values().cloned().collect();
    let mut names = Vec::new();
    for tool in &offered {
        let registered = session
            .register(
                tool.name.as_str().into(),
                new_tool(tool, executions.clone()),
            )
            .await;
        names.extend(registered.ok().map(|registered| registered.name));
    }
    if !names.is_empty() {
        tokio::task::spawn_local(client.clone().hand_out(conversation.clone(), calls));
    }
    Some(AttachedTools {
        client: client.outbox.number,
        changes: client.changes.get(),
        names,
    })
}

fn new_tool(tool: &Registration, executions: Executions) -> NewTool {
    NewTool {
        origin: ToolOrigin::Client {
            tool: tool.name.clone(),
        },
        description: tool.description.clone(),
        schema: tool.input_schema.clone(),
        risk: tool.risk,
        timeout_s: tool.timeout.unwrap_or(registry::TIMEOUT_S),
        executions,
    }
}

fn gone() -> Failed {
    Failed {
        kind: ErrorKind::Cancelled,
        message: "the client that offers this tool is gone".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::outbox;
    use serde_json::json;

    fn tool(name: &str) -> Registration {
        serde_json::from_value(
            json!({"name": name, "description": "d", "inputSchema": {"type": "object"}}),
        )
        .unwrap()
    }

    #[test]
    fn tool_that_no_session_would_take_is_refused_at_once() {
        let tools = ClientTools::new(outbox().0, WireCase::Camel);
        for number in 0..TOOLS_MAX {
            tools.register(tool(&format!("tool_{number}"))).unwrap();
        }
        assert!(tools.register(tool("one_more")).is_err());
        tools.unregister("tool_0").unwrap();
        for wrong in ["tool_1", "bash", "mcp__x__y", "a b", ""] {
            assert!(
                matches!(tools.register(tool(wrong)), Err(RequestError::Tool(_))),
                "{wrong}"
            );
        }
        tools.register(tool("tool_0")).unwrap();
        assert!(matches!(
            tools.unregister("bash"),
            Err(RequestError::Tool(_))
        ));
        assert!(matches!(
            tools.answer("execution-1", Ok(OutsideReply::default())),
            Err(RequestError::NotExecuting(_))
        ));
    }
}
