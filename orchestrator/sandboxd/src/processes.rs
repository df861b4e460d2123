//! The processes that clients have started and steer, by the numbers that these know.

use crate::body::{Incomplete, Produced, ReplyBody};
use crate::calls::{CallEvent, SandboxCall};
use crate::commands::{HowEnded, how, notes};
use crate::fault::{FaultKind, SandboxFault};
use crate::grpc::{encoded, trailers};
use crate::messages::{ExitEvent, InitEvent, ProcessEvent, StartResponse};
use broker_protocol::{Signal, limit};
use hyper::body::{Bytes, Frame};
use orchestrator_engine::{CallHandle, CallResult, StdinChunk};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Processes at once: half of the calls that a session may have, so that other calls always have a place.
pub(crate) const PROCESSES_MAX: usize = limit::CALLS / 2;
/// Pieces of a process's input that it has not read yet, each of [`limit::CHUNK`] bytes; a request with more waits.
const INPUT_MAX: usize = 16;

type Frames = mpsc::Sender<Result<Frame<Bytes>, Incomplete>>;

/// A process of a client.
pub(crate) struct SandboxProcess {
    handle: CallHandle,
    has_terminal: bool,
    room: Arc<Semaphore>,
    /// Held by the request that feeds it. It has whether the input has ended.
    input_ended: Mutex<bool>,
    /// Whether its client has killed it.
    killed: Cell<bool>,
    gone: CancellationToken,
}

/// The processes that are alive.
#[derive(Default)]
pub(crate) struct SandboxProcesses {
    by_number: RefCell<HashMap<i32, Rc<SandboxProcess>>>,
    last: Cell<i32>,
}

impl SandboxProcesses {
    /// Whether another one may be started.
    ///
    /// # Errors
    /// There are [`PROCESSES_MAX`].
    pub(crate) fn check_room(&self) -> Result<(), SandboxFault> {
        if self.by_number.borrow().len() < PROCESSES_MAX {
            return Ok(());
        }
        let message = format!("{PROCESSES_MAX} processes are alive; end one first");
        Err(SandboxFault::new(FaultKind::Exhausted, message))
    }

    /// The process with this number.
    ///
    /// # Errors
    /// There is none any more, or there never was.
    pub(crate) fn find(&self, number: i32) -> Result<Rc<SandboxProcess>, SandboxFault> {
        let found = self.by_number.borrow().get(&number).cloned();
        found.ok_or_else(|| {
            let message = format!("there is no process {number}");
            SandboxFault::new(FaultKind::NotFound, message)
        })
    }

    /// Follows the process of `call`; the body has its events. It ends if the client takes no more of them.
    pub(crate) fn follow(self: &Rc<Self>, call: SandboxCall, has_terminal: bool) -> ReplyBody {
        let number = self.free_number();
        let process = Rc::new(SandboxProcess {
            handle: call.handle().clone(),
            has_terminal,
            room: Arc::new(Semaphore::new(INPUT_MAX)),
            input_ended: Mutex::new(false),
            killed: Cell::new(false),
            gone: CancellationToken::new(),
        });
        // Before the client learns its number.
        let entry = process.clone();
        self.by_number.borrow_mut().insert(number, entry);
        let (send, body) = Produced::channel(None);
        let processes = self.clone();
        tokio::task::spawn_local(async move {
            // Without a client nobody is told, and the process ends.
            let _ = report(number, call, &process, &send).await;
            processes.by_number.borrow_mut().remove(&number);
            process.gone.cancel();
        });
        body
    }

    fn free_number(&self) -> i32 {
        loop {
            let next = self.last.get().checked_add(1).unwrap_or(1);
            self.last.set(next);
            if !self.by_number.borrow().contains_key(&next) {
                return next;
            }
        }
    }
}

/// Sends a process's events until it has ended.
async fn report(
    number: i32,
    mut call: SandboxCall,
    process: &SandboxProcess,
    send: &Frames,
) -> Result<(), Incomplete> {
    let ended = loop {
        let event = tokio::select! {
            event = call.next() => event,
            () = send.closed() => return Err(Incomplete),
        };
        match event {
            Ok(CallEvent::RequestSent) => {
                // Not before: a signal of a client that knows the number would be lost.
                let init = InitEvent { process_id: number };
                tell(send, ProcessEvent::Init(init)).await?;
            }
            Ok(CallEvent::Output { stderr, bytes }) => {
                let event = match stderr {
                    false => ProcessEvent::Stdout(bytes),
                    true => ProcessEvent::Stderr(bytes),
                };
                tell(send, event).await?;
            }
            Ok(CallEvent::Ended(result)) => break end(&result, process, send).await?,
            Err(fault) => break Err(fault),
        }
    };
    let last = Frame::trailers(trailers(&ended));
    send.send(Ok(last)).await.map_err(|_| Incomplete)
}

async fn tell(send: &Frames, event: ProcessEvent) -> Result<(), Incomplete> {
    let message = StartResponse { event: Some(event) };
    let frame = Frame::data(encoded(&message));
    send.send(Ok(frame)).await.map_err(|_| Incomplete)
}

/// Reports the end of a process; the status of its stream.
async fn end(
    result: &Arc<CallResult>,
    process: &SandboxProcess,
    send: &Frames,
) -> Result<Result<(), SandboxFault>, Incomplete> {
    let how = match how(result) {
        Err(_) if process.killed.get() => Ok(HowEnded::Signalled(nix::libc::SIGKILL)),
        how => how,
    };
    let exit_code = match how {
        Ok(HowEnded::Exited(code)) => code,
        Ok(HowEnded::Signalled(_) | HowEnded::Limited) => -1,
        Ok(HowEnded::TimedOut) => {
            let message = "the process ran into the time limit of the policy or the request";
            return Ok(Err(SandboxFault::new(FaultKind::DeadlineExceeded, message)));
        }
        Err(fault) => return Ok(Err(fault)),
    };
    if !process.killed.get() {
        for note in notes(result) {
            let line = format!("lazaret: {note}\n").into_bytes();
            tell(send, ProcessEvent::Stderr(line)).await?;
        }
    }
    tell(send, ProcessEvent::Exit(ExitEvent { exit_code })).await?;
    Ok(Ok(()))
}

impl SandboxProcess {
    /// Feeds its standard input, when it has read enough of what was fed before.
    ///
    /// # Errors
    /// Another request is doing that and waits; or the input has ended, or the process.
    pub(crate) async fn feed(&self, bytes: &[u8]) -> Result<(), SandboxFault> {
        let ended = self.input()?;
        if *ended {
            let message = "the standard input has ended";
            return Err(SandboxFault::new(FaultKind::FailedPrecondition, message));
        }
        for piece in bytes.chunks(limit::CHUNK) {
            let permit = tokio::select! {
                permit = self.room.clone().acquire_owned() => permit.ok(),
                () = self.gone.cancelled() => {
                    let message = "the process ended before it had read its input";
                    return Err(SandboxFault::new(FaultKind::NotFound, message));
                }
            };
            let bytes = piece.to_vec();
            self.handle.input(StdinChunk { bytes, permit });
        }
        Ok(())
    }

    /// Ends its standard input.
    ///
    /// # Errors
    /// A request that feeds it still waits.
    pub(crate) fn end_input(&self) -> Result<(), SandboxFault> {
        *self.input()? = true;
        self.handle.end_input();
        Ok(())
    }

    /// Only one request at a time: what others have would wait in memory.
    fn input(&self) -> Result<tokio::sync::MutexGuard<'_, bool>, SandboxFault> {
        self.input_ended.try_lock().map_err(|_| {
            let message = "the process has not read its previous input yet; wait for that answer";
            SandboxFault::new(FaultKind::Exhausted, message)
        })
    }

    /// Sends a signal to its process group.
    pub(crate) fn signal(&self, signal: Signal) {
        self.handle.signal(signal);
    }

    /// Kills it and all that it has started.
    pub(crate) fn kill(&self) {
        self.killed.set(true);
        // The second time, nothing of it gets any time to end by itself.
        self.handle.cancel();
        self.handle.cancel();
    }

    /// Changes the size of its terminal.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn resize(&self, rows: u16, columns: u16) -> Result<(), SandboxFault> {
        if !self.has_terminal {
            let message = "the process has no terminal";
            return Err(SandboxFault::new(FaultKind::FailedPrecondition, message));
        }
        self.handle.resize(rows, columns);
        Ok(())
    }
}
