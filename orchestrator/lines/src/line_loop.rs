//! Handles the lines of the client, one after the other.

use crate::calls::ClientCalls;
use crate::line::{self, LineError, Op, ParsedLine, RejectedLine};
use broker_protocol::{History, Request, Undo, Wants};
use orchestrator_engine::Invocation;
use orchestrator_launch::stdio::line_reader::{LINE_MAX, NextLine, StdinLines};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of lines that may wait for a command or for their turn.
const WAITING: usize = LINE_MAX + (8 << 20);
/// Cost of a waiting line besides its bytes.
const LINE_COST: usize = 1024;

/// Reads and carries out lines.
pub struct LineLoop {
    calls: Rc<ClientCalls>,
    waiting: Arc<Semaphore>,
}

impl LineLoop {
    /// Creates a loop that passes lines to `calls`.
    pub fn new(calls: Rc<ClientCalls>) -> Self {
        Self {
            calls,
            waiting: Arc::new(Semaphore::new(WAITING)),
        }
    }

    /// Handles every line until the input ends, then waits for the calls in progress.
    pub async fn run(&self, lines: &mut StdinLines) {
        loop {
            let taken = match lines.next().await {
                NextLine::Line(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Ok(()),
                NextLine::Line(bytes) => self.take(bytes).await,
                NextLine::TooLong => Err(LineError::TooLong.into()),
                NextLine::End => break,
            };
            if let Err(rejected) = taken {
                self.calls.reject_line(rejected).await;
            }
        }
        self.calls.finish().await;
    }

    async fn take(&self, bytes: Vec<u8>) -> Result<(), RejectedLine> {
        let cost = (bytes.len() + LINE_COST).min(WAITING) as u32;
        let ParsedLine { id, op } = line::parse(&bytes)?;
        drop(bytes);
        let calls = &self.calls;
        match op {
            Op::Call { tool, input, wants } => {
                let Some(permit) = self.permit(cost).await else {
                    return Ok(());
                };
                calls.start(id, (Invocation::Tool { name: tool, input }, wants), permit)?;
                // The call goes out before more is read.
                tokio::task::yield_now().await;
            }
            Op::History { limit } => {
                let Some(permit) = self.permit(cost).await else {
                    return Ok(());
                };
                let history = Invocation::Request(Request::History(History { limit }));
                calls.start(id, (history, Wants::default()), permit)?;
            }
            Op::Undo {
                change,
                path,
                force,
            } => {
                let Some(permit) = self.permit(cost).await else {
                    return Ok(());
                };
                let path = match calls.path(&path) {
                    Ok(path) => path,
                    Err(error) => {
                        let error = error.into();
                        return Err(RejectedLine { id, error });
                    }
                };
                let undo = Request::Undo(Undo {
                    change,
                    path,
                    force,
                });
                calls.start(id, (Invocation::Request(undo), Wants::default()), permit)?;
            }
            Op::Stdin { bytes, end } => {
                let Some(permit) = self.permit(cost).await else {
                    return Ok(());
                };
                calls.stdin(id, bytes, end, permit)?;
            }
            Op::Cancel => calls.cancel(&id),
            Op::Approve { part, answer } => calls.approve(&id, part, answer).await,
            Op::Grants { revoke } => calls.grants(&id, revoke).await,
            Op::Register(tool) => calls.register(&id, tool).await,
            Op::Unregister(tool) => calls.unregister(&id, tool).await,
            Op::Tools => calls.tools(&id).await,
            Op::Executed { part, result } => calls.executed(&id, part, result).await,
        }
        Ok(())
    }

    /// Waits until there is room for `cost` more bytes. The semaphore is never closed, so this succeeds in the end.
    async fn permit(&self, cost: u32) -> Option<OwnedSemaphorePermit> {
        self.waiting.clone().acquire_many_owned(cost).await.ok()
    }
}
