//! The two who are talked to, and what we have asked the editor ourselves.

use crate::message::{self, Kind, Message};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tokio::sync::{mpsc, oneshot};

/// In front of the ids of our own requests.
const OURS: &str = "lazaret-";

/// The way to the editor and to the agent. Who does not read is not read from either.
pub struct Links {
    editor: mpsc::Sender<Vec<u8>>,
    agent: mpsc::Sender<Vec<u8>>,
    asked: RefCell<HashMap<String, oneshot::Sender<Option<Value>>>>,
    last: Cell<u64>,
}

impl Links {
    pub fn new(editor: mpsc::Sender<Vec<u8>>, agent: mpsc::Sender<Vec<u8>>) -> Self {
        Self { editor, agent, asked: RefCell::default(), last: Cell::new(0) }
    }

    /// Sends a line to the editor. One that is gone is noticed by who reads from it.
    pub async fn to_editor(&self, line: Vec<u8>) {
        let _ = self.editor.send(line).await;
    }

    /// Sends a line to the agent, in the same way.
    pub async fn to_agent(&self, line: Vec<u8>) {
        let _ = self.agent.send(line).await;
    }

    /// Asks the editor; its result, if it has one. Dropped, it waits for none.
    pub async fn ask_editor(&self, method: &str, params: Value) -> Option<Value> {
        self.last.set(self.last.get() + 1);
        let id = format!("{OURS}{}", self.last.get());
        let (reply, answer) = oneshot::channel();
        self.asked.borrow_mut().retain(|_, waiting| !waiting.is_closed());
        self.asked.borrow_mut().insert(id.clone(), reply);
        self.to_editor(message::request(&id, method, params)).await;
        answer.await.ok().flatten()
    }

    /// Takes an answer of the editor that is to us; one to the agent comes back.
    pub fn take_answer(&self, message: Message) -> Option<Message> {
        let Kind::Response { id } = &message.kind else { return Some(message) };
        if !is_ours(id) {
            return Some(message);
        }
        let waiting = id.as_str().and_then(|id| self.asked.borrow_mut().remove(id));
        if let Some(waiting) = waiting {
            // Whoever asked may have gone on without it.
            let _ = waiting.send(message.into_result());
        }
        None
    }
}

/// Whether an id is one that only we give: the editor would take an agent's request of that id for ours.
pub fn is_ours(id: &Value) -> bool {
    id.as_str().is_some_and(|id| id.starts_with(OURS))
}
