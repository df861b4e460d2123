//! A session as front ends hold it: handles that can be cloned and sent, in front of one task that owns the state.

use crate::command::{CallOrder, Command, StdinChunk, Steer};
use crate::context::{CallContext, Invocation};
use crate::engine::{Config, Engine};
use crate::event::Event;
use crate::pending::Approval;
use crate::publish::EVENTS;
use crate::task;
use broker_protocol::{Denial, ErrorKind, Failed, Opened, SessionGrant, Signal, Traced, Trust};
use orchestrator_tools::registry::{NewTool, Registered, RegistryError};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Span;

/// A session with the executor and its tools.
#[derive(Clone)]
pub struct Session {
    commands: mpsc::UnboundedSender<Command>,
    numbers: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

/// A call under way: its events, and a handle to steer it. Dropped before its result, it is cancelled.
pub struct Call {
    /// Steers the call.
    pub handle: CallHandle,
    events: mpsc::Receiver<Event>,
}

/// Steers a call, from anywhere. After its end it does nothing.
#[derive(Clone)]
pub struct CallHandle {
    number: u64,
    cancel: CancellationToken,
    steering: mpsc::UnboundedSender<Steer>,
}

impl Session {
    /// Starts the task that owns the session; it ends when all handles are dropped and all calls are over. Needs a local
    /// runtime; the handle may leave its thread.
    pub fn start(config: Config) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (numbers, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let engine = Engine::new(config, numbers.clone(), over.clone());
        tokio::task::spawn_local(task::run(engine, received));
        Self { commands, numbers, over }
    }

    /// Waits until the executor has opened the session.
    ///
    /// # Errors
    /// Why it opens none.
    pub async fn open(&self) -> Result<Opened, Failed> {
        self.ask(Command::Open).await.unwrap_or_else(|| Err(ended()))
    }

    /// Makes a call. How many are waiting is for the caller to bound; 64 are under way at once.
    pub fn call(&self, context: CallContext, invocation: Invocation) -> Call {
        tracing::trace!("order a call");
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (events, received) = mpsc::channel(EVENTS);
        let (steering, steer) = mpsc::unbounded_channel();
        let handle = CallHandle { number, cancel: context.cancel.clone(), steering };
        let parent = Span::current();
        let order = CallOrder { number, context, invocation, events, steering: steer, parent };
        // Where the task is gone, the stream of events ends at once.
        let _ = self.commands.send(Command::Call(Box::new(order)));
        Call { handle, events: received }
    }

    /// The grants that last for the session, after taking back one of them.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is no such grant, and where the executor is gone.
    pub async fn grants(&self, revoke: Option<u64>) -> Result<Vec<SessionGrant>, Failed> {
        self.ask(|reply| Command::Grants { revoke, reply }).await.unwrap_or_else(|| Err(ended()))
    }

    /// Which of these failed calls of a traced command the cell has closed, in their order: in a session that is thrown away.
    ///
    /// # Errors
    /// The session is no such one, or the executor is gone.
    pub async fn explain(&self, traced: Vec<Traced>) -> Result<Vec<Option<Denial>>, Failed> {
        self.ask(|reply| Command::Explain { traced, reply }).await.unwrap_or_else(|| Err(ended()))
    }

    /// Registers a tool of a client or a server. `client_id` is the name of the registration there, for the records.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn register(&self, client_id: Value, tool: NewTool) -> Result<Registered, RegistryError> {
        let command = |reply| Command::Register { client_id, tool: Box::new(tool), reply };
        self.ask(command).await.unwrap_or(Err(RegistryError::Full))
    }

    /// Unregisters a tool, and takes back the grants for it. Calls of it that are under way go on.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn unregister(&self, client_id: Value, tool: String) -> Result<(), RegistryError> {
        let unknown = RegistryError::UnknownTool { name: tool.clone(), meant: None, known: String::new() };
        self.ask(|reply| Command::Unregister { client_id, tool, reply }).await.unwrap_or(Err(unknown))
    }

    /// The tools that a model is shown, as in a list of tools.
    pub async fn tools(&self) -> Vec<Value> {
        self.ask(Command::Tools).await.unwrap_or_default()
    }

    /// Has the session ask as `trust` says from the next call on, where that asks more than it does now. The next call opens a new
    /// session with the executor, in which no file was read yet; what runs in the background ends with the last call of the one
    /// before.
    pub fn lower_trust(&self, trust: Trust) {
        // Where the task is gone, no call is made any more.
        let _ = self.commands.send(Command::LowerTrust(trust));
    }

    /// Cancels all calls under way, whoever has made them.
    pub fn cancel_all(&self) {
        // Where the task is gone, no call is under way.
        let _ = self.commands.send(Command::CancelAll);
    }

    /// Whether the session has seen as many violations as end it: no call is made any more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The answer to a command; `None` where the task is gone.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).ok()?;
        answer.await.ok()
    }
}

fn ended() -> Failed {
    Failed { kind: ErrorKind::ExecutorLost, message: "the session has ended".into() }
}

impl Call {
    /// The next event; `None` after the result. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl CallHandle {
    /// The number of the call in its session.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Asks for the end of the call; that comes as its result.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Feeds the standard input of its command, in order.
    pub fn input(&self, chunk: StdinChunk) {
        self.steer(Steer::Input(chunk));
    }

    /// Ends the standard input of its command.
    pub fn end_input(&self) {
        self.steer(Steer::EndInput);
    }

    /// Sends a signal to the main process of its command.
    pub fn signal(&self, signal: Signal) {
        self.steer(Steer::Signal(signal));
    }

    /// Reports the new size of the terminal of its command.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.steer(Steer::Resize { rows, columns });
    }

    /// Answers its question, in a batch that of the call at `part`; false where nobody waits for that answer.
    pub async fn approve(&self, part: Option<usize>, approval: Approval) -> bool {
        let (accepted, answer) = oneshot::channel();
        self.steer(Steer::Approve { part, approval, accepted });
        answer.await.unwrap_or(false)
    }

    /// A call that is over is steered by nobody any more.
    fn steer(&self, word: Steer) {
        let _ = self.steering.send(word);
    }
}
