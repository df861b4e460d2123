//! The connections to the editor and the agent, and our own requests to the editor.

use crate::rpc_message::{self, MessageKind, RpcMessage};
use serde::Serialize;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// Prefix of the IDs of our own requests.
const OURS: &str = "lazaret-";

/// Sends to the editor and the agent. If one of them does not read, we do not read from it either.
pub(crate) struct Links {
    editor: mpsc::Sender<Vec<u8>>,
    agent: mpsc::Sender<Vec<u8>>,
    asked: RefCell<HashMap<String, oneshot::Sender<Option<Value>>>>,
    last: Cell<u64>,
}

impl Links {
    pub(crate) fn new(editor: mpsc::Sender<Vec<u8>>, agent: mpsc::Sender<Vec<u8>>) -> Self {
        Self {
            editor,
            agent,
            asked: RefCell::default(),
            last: Cell::new(0),
        }
    }

    /// Sends a line to the editor. If the editor is gone, the task that reads from it notices.
    pub(crate) async fn to_editor(&self, line: Vec<u8>) {
        let _ = self.editor.send(line).await;
    }

    /// Sends a line to the agent, in the same way.
    pub(crate) async fn to_agent(&self, line: Vec<u8>) {
        let _ = self.agent.send(line).await;
    }

    /// Sends a request to the editor; returns its result, if it has one. Dropping the future stops waiting.
    pub(crate) async fn ask_editor(&self, method: &str, params: impl Serialize) -> Option<Value> {
        self.last.set(self.last.get() + 1);
        let id = format!("{OURS}{}", self.last.get());
        let (reply, answer) = oneshot::channel();
        self.asked
            .borrow_mut()
            .retain(|_, waiting| !waiting.is_closed());
        self.asked.borrow_mut().insert(id.clone(), reply);
        self.to_editor(rpc_message::request(&id, method, params))
            .await;
        answer.await.ok().flatten()
    }

    /// Takes an answer of the editor to our own request; returns it if it is for the agent.
    pub(crate) fn take_answer(&self, message: RpcMessage) -> Option<RpcMessage> {
        let MessageKind::Response { id } = &message.kind else {
            return Some(message);
        };
        if !is_ours(id) {
            return Some(message);
        }
        let waiting = id
            .as_str()
            .and_then(|id| self.asked.borrow_mut().remove(id));
        if let Some(waiting) = waiting {
            // The requester may no longer wait.
            let _ = waiting.send(message.into_result());
        }
        None
    }
}

/// Whether an ID could be ours: then the editor could not tell an agent's request from ours.
pub(crate) fn is_ours(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.starts_with(OURS))
}
