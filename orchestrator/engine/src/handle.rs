//! A session as front ends use it: handles that can be cloned and sent, in front of one task that owns the state.

use crate::command::{CallOrder, SessionCommand, StdinChunk, Steer};
use crate::context::{CallContext, Invocation};
use crate::engine::{Config, Engine};
use crate::event::{Body, CallResult, Event};
use crate::pending::ApprovalAnswer;
use crate::publish::EVENTS;
use crate::registration::{NewTool, Registered};
use crate::task;
use crate::tools::Tools;
use broker_protocol::{Denial, ErrorKind, Failed, Opened, SessionGrant, Signal, Traced, Trust};
use orchestrator_confine::ConfinementProof;
use serde_json::Value;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::Span;

/// A session with the executor and its tools.
#[derive(Clone)]
pub struct Session {
    commands: mpsc::UnboundedSender<SessionCommand>,
    numbers: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

/// A call in progress: its events and a handle to steer it. Dropping it before its result cancels it.
pub struct Call {
    pub handle: CallHandle,
    events: mpsc::Receiver<Event>,
    commands: mpsc::UnboundedSender<SessionCommand>,
}

/// Steers a call from any thread. Has no effect after its end.
#[derive(Clone)]
pub struct CallHandle {
    number: u64,
    cancel: CancellationToken,
    steering: mpsc::UnboundedSender<Steer>,
}

impl Session {
    /// Starts the task that owns the session. It ends when all handles are dropped and all calls have ended. Needs a local runtime;
    /// the handle may leave its thread. What calls a session hears a model or a stranger, so its process has confined itself.
    pub fn start<T: Tools + 'static>(config: Config<T>, _: ConfinementProof) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let (numbers, over) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (engine, tools) = Engine::new(config, numbers.clone(), over.clone());
        tokio::task::spawn_local(task::run(engine, Rc::new(tools), received));
        Self {
            commands,
            numbers,
            over,
        }
    }

    /// Waits until the executor has opened the session.
    ///
    /// # Errors
    /// Why the executor does not open it.
    pub async fn open(&self) -> Result<Opened, Failed> {
        self.ask(SessionCommand::Open)
            .await
            .unwrap_or_else(|| Err(ended()))
    }

    /// Makes a call. At most 64 run at once; the caller bounds how many wait.
    pub fn call(&self, context: CallContext, invocation: Invocation) -> Call {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (events, received) = mpsc::channel(EVENTS);
        let (steering, steer) = mpsc::unbounded_channel();
        let handle = CallHandle {
            number,
            cancel: context.cancel.clone(),
            steering,
        };
        let parent = Span::current();
        let order = CallOrder {
            number,
            context,
            invocation,
            events,
            steering: steer,
            parent,
        };
        // If the task is gone, the stream of events ends at once.
        let _ = self.commands.send(SessionCommand::Call(Box::new(order)));
        Call {
            handle,
            events: received,
            commands: self.commands.clone(),
        }
    }

    /// The grants that last for the session, after revoking one of them if given.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such grant; also if the executor is gone.
    pub async fn grants(&self, revoke: Option<u64>) -> Result<Vec<SessionGrant>, Failed> {
        self.ask(|reply| SessionCommand::Grants { revoke, reply })
            .await
            .unwrap_or_else(|| Err(ended()))
    }

    /// The denials of these failed calls of a traced command, in their order, as far as the cell denied them. Works only in a throw-away session.
    ///
    /// # Errors
    /// If the session is not a throw-away one, or the executor is gone.
    pub async fn explain(&self, traced: Vec<Traced>) -> Result<Vec<Option<Denial>>, Failed> {
        self.ask(|reply| SessionCommand::Explain { traced, reply })
            .await
            .unwrap_or_else(|| Err(ended()))
    }

    /// Registers a tool of a client or a server. `client_id` is the registration's ID there, for the records.
    ///
    /// # Errors
    /// Why the tools refuse it.
    pub async fn register(&self, client_id: Value, tool: NewTool) -> Result<Registered, Failed> {
        let command = |reply| SessionCommand::Register {
            client_id,
            tool: Box::new(tool),
            reply,
        };
        self.ask(command).await.unwrap_or_else(|| Err(ended()))
    }

    /// Unregisters a tool and revokes its grants. Calls in progress continue.
    ///
    /// # Errors
    /// If there is none with this name, or it is built in.
    pub async fn unregister(&self, client_id: Value, tool: String) -> Result<(), Failed> {
        self.ask(|reply| SessionCommand::Unregister {
            client_id,
            tool,
            reply,
        })
        .await
        .unwrap_or_else(|| Err(ended()))
    }

    /// The tools as they are listed to a model.
    pub async fn tools(&self) -> Vec<Value> {
        self.ask(SessionCommand::Tools).await.unwrap_or_default()
    }

    /// Lowers the session's trust from the next call on, if `trust` is lower than now. The next call opens a new session with the
    /// executor, in which no file has been read yet. Background processes end with the last call of the old session.
    pub fn lower_trust(&self, trust: Trust) {
        // If the task is gone, no more calls are made.
        let _ = self.commands.send(SessionCommand::LowerTrust(trust));
    }

    /// Lets a later result report what `result` did, because that has not reached its reader.
    pub fn put_back(&self, result: &CallResult) {
        put_back(&self.commands, result);
    }

    /// Cancels all calls in progress, of all front ends: the session ends, and their commands get no time for that.
    pub fn cancel_all(&self) {
        // If the task is gone, no call is in progress.
        let _ = self.commands.send(SessionCommand::CancelAll);
    }

    /// Ends the session, and waits until the executor has recorded that. A process whose end is that of all others beside it, as the first
    /// of a container is, would else take the executor along before.
    pub async fn close(&self) {
        // If the task is gone, so is the session.
        let _ = self.ask(SessionCommand::Close).await;
    }

    /// Whether the violations have ended the session: it makes no more calls.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The answer to a command; `None` if the task is gone.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> SessionCommand,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).ok()?;
        answer.await.ok()
    }
}

fn ended() -> Failed {
    Failed {
        kind: ErrorKind::ExecutorLost,
        message: "the session has ended".into(),
    }
}

impl Call {
    /// The next event; `None` after the result. Cancel-safe.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Call {
    /// Findings stay for a later result if nobody has taken this one.
    fn drop(&mut self) {
        self.events.close();
        while let Ok(event) = self.events.try_recv() {
            if let Body::Result(result) = &*event.body {
                put_back(&self.commands, result);
            }
        }
    }
}

fn put_back(commands: &mpsc::UnboundedSender<SessionCommand>, result: &CallResult) {
    if !result.findings().is_empty() {
        // If the task is gone, there is no later result.
        let _ = commands.send(SessionCommand::PutBack(result.findings().clone()));
    }
}

impl CallHandle {
    /// The number of the call in its session.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Requests the end of the call, which arrives as its result. Requested again, its command gets no more time to end by itself.
    pub fn cancel(&self) {
        if self.cancel.is_cancelled() {
            self.steer(Steer::CancelAgain);
        }
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

    /// Answers the question of the call, or of a batch's call at `part`; false if nothing waits for that answer.
    pub async fn approve(&self, part: Option<usize>, approval: ApprovalAnswer) -> bool {
        let (accepted, answer) = oneshot::channel();
        self.steer(Steer::Approve {
            part,
            approval,
            accepted,
        });
        answer.await.unwrap_or(false)
    }

    /// After the end of the call, steering has no effect.
    fn steer(&self, word: Steer) {
        let _ = self.steering.send(word);
    }
}
