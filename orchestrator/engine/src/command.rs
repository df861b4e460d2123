//! Commands of front ends to the task that owns a session.

use crate::context::{CallContext, Invocation};
use crate::event::Event;
use crate::pending::ApprovalAnswer;
use crate::registration::{NewTool, Registered};
use broker_protocol::{Denial, Failed, Findings, Opened, SessionGrant, Signal, Traced, Trust};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tracing::Span;

/// A command to the session.
pub(crate) enum SessionCommand {
    Open(oneshot::Sender<Result<Opened, Failed>>),
    Call(Box<CallOrder>),
    Grants {
        revoke: Option<u64>,
        reply: oneshot::Sender<Result<Vec<SessionGrant>, Failed>>,
    },
    Explain {
        traced: Vec<Traced>,
        reply: oneshot::Sender<Result<Vec<Option<Denial>>, Failed>>,
    },
    Register {
        client_id: Value,
        tool: Box<NewTool>,
        reply: oneshot::Sender<Result<Registered, Failed>>,
    },
    Unregister {
        client_id: Value,
        tool: String,
        reply: oneshot::Sender<Result<(), Failed>>,
    },
    Tools(oneshot::Sender<Vec<Value>>),
    CancelAll,
    /// End the session, and answer when its executor has.
    Close(oneshot::Sender<()>),
    /// A result that reported this did not reach its reader.
    PutBack(Findings),
    /// From the next call on, ask for approvals as `Trust` requires, if that is stricter than now.
    LowerTrust(Trust),
}

pub(crate) struct CallOrder {
    pub number: u64,
    pub context: CallContext,
    pub invocation: Invocation,
    pub events: mpsc::Sender<Event>,
    pub steering: mpsc::UnboundedReceiver<Steer>,
    /// The parent span of the call: another task receives the order.
    pub parent: Span,
}

/// A steering command to a call in progress.
pub(crate) enum Steer {
    Input(StdinChunk),
    EndInput,
    /// Its command gets no more time to end by itself.
    CancelAgain,
    Signal(Signal),
    Resize {
        rows: u16,
        columns: u16,
    },
    Approve {
        part: Option<usize>,
        approval: ApprovalAnswer,
        accepted: oneshot::Sender<bool>,
    },
}

/// A piece of a command's standard input.
#[derive(Debug)]
pub struct StdinChunk {
    pub bytes: Vec<u8>,
    /// Released when the command has read them: bounds how many bytes wait.
    pub permit: Option<OwnedSemaphorePermit>,
}
