//! Tools of the application that drives the session: a call of one, once it may be made, goes to it as a line, and its answer
//! comes as a line.
//!
//! A call waits here for one answer, its time limit, its cancel, or the end of the input, after which no answer can come. How many
//! wait at once is bounded before (`calls`).

use super::calls::{ById, Told};
use super::writer::Writer;
use crate::adapters::cli::event::ExecuteEvent;
use crate::ports::{Named, Remote};
use broker_protocol::{ErrorKind, Failed};
use serde_json::Value;
use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use tokio::sync::Notify;

/// The application, as its tools reach it.
pub struct Application {
    calls: Rc<ById>,
    writer: Rc<Writer>,
    is_gone: Cell<bool>,
    leaving: Notify,
}

/// A tool that it carries out.
struct Own {
    name: String,
    application: Rc<Application>,
}

impl Application {
    /// The application that reads `writer` and answers for `calls`.
    pub fn new(calls: Rc<ById>, writer: Rc<Writer>) -> Self {
        Self { calls, writer, is_gone: Cell::new(false), leaving: Notify::new() }
    }

    /// A tool of its own.
    pub fn tool(self: &Rc<Self>, name: &str) -> Box<dyn Remote> {
        Box::new(Own { name: name.to_owned(), application: self.clone() })
    }

    /// It says nothing any more: who waits for a result gets an error, and who waits for a yes a no.
    pub fn leave(&self) {
        self.is_gone.set(true);
        self.leaving.notify_waiters();
    }

    /// Waits until it says nothing any more.
    pub async fn gone(&self) {
        while !self.is_gone.get() {
            self.leaving.notified().await;
        }
    }

    async fn execute(&self, named: Named<'_>, tool: &str, input: &Value) -> Told {
        let calls = |id: &Value| self.calls.borrow().get(&id.to_string()).cloned();
        let Some((id, entry)) = named.id.and_then(|id| Some((id, calls(id)?))) else {
            let message = "a tool of the application was called by somebody else".into();
            return Err(Failed { kind: ErrorKind::Internal, message });
        };
        let open = entry.told.open(named.part);
        let told = async {
            // A writer that is closed ends the session.
            let _ = self.writer.line(&ExecuteEvent::new(id, named.part, tool, input)).await;
            open.wait().await
        };
        tokio::select! {
            biased;
            () = self.gone() => {
                let message = "the input ended before the application had answered".into();
                Err(Failed { kind: ErrorKind::Cancelled, message })
            }
            told = told => told,
        }
    }
}

impl Remote for Own {
    fn call<'a>(&'a self, named: Named<'a>, input: Value) -> Pin<Box<dyn Future<Output = Told> + 'a>> {
        Box::pin(async move { self.application.execute(named, &self.name, &input).await })
    }
}
