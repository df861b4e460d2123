//! The frames between client and broker.

use crate::approval::{Challenge, Grant, SessionGrant, Ungranted};
use crate::denial::{Denial, Denials};
use crate::hello::{Hello, LayerSet, Machine, Open, Opened};
use crate::lease::{Lease, Wants};
use crate::network::ConnectionReport;
use crate::reply::{Failed, Outcome, Spill, Usage};
use crate::request::{CallId, Request};
use crate::trace::Traced;
use serde::{Deserialize, Serialize};

/// A frame to the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToBroker {
    /// First frame of a connection.
    Hello(Hello),
    /// Asks what this machine offers. Allowed once greeted, before a session is open.
    Probe,
    /// Opens the session.
    Open(Open),
    /// Starts a call.
    Call {
        /// The client's number for it.
        call: CallId,
        /// What to do.
        request: Request,
    },
    /// Starts a call that wants more than the session has. It is asked about, whatever the policy says of the call by itself.
    WantingCall {
        /// The client's number for it.
        call: CallId,
        /// What to do.
        request: Request,
        /// What it wants.
        wants: Wants,
    },
    /// Bytes for the standard input of a call, within its window.
    Input {
        /// Which call.
        call: CallId,
        /// At most [`limit::CHUNK`](crate::limit::CHUNK) bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Ends the standard input of a call.
    InputEnd {
        /// Which call.
        call: CallId,
    },
    /// The client's window changed its size.
    Resize {
        /// Which call; it must have a terminal.
        call: CallId,
        /// Rows of characters.
        rows: u16,
        /// Columns of characters.
        columns: u16,
    },
    /// Sends a signal to the main process of a call.
    Signal {
        /// Which call.
        call: CallId,
        /// Which signal.
        signal: Signal,
    },
    /// The client has taken this many bytes of a call's live output and will take as many more.
    Credit {
        /// Which call.
        call: CallId,
        /// How many bytes.
        bytes: u32,
    },
    /// Ends a call: its process tree is killed, and its outcome says so.
    Cancel {
        /// Which call.
        call: CallId,
    },
    /// Says yes to a call that waits for an answer. One that is not taken is answered by
    /// [`FromBroker::Ungranted`].
    Grant(Grant),
    /// Says no to a call that waits for an answer.
    Refuse {
        /// Which call.
        call: CallId,
    },
    /// Asks for the grants that last for the session.
    Grants,
    /// Takes one of them back, or a lease; answered like [`ToBroker::Grants`].
    Revoke {
        /// Which, by its number.
        grant: u64,
    },
    /// A piece of a text that an effect has brought the client, to be kept where `file_read` opens it. The effect's call must
    /// have ended as [`Outcome::Granted`], and has one text. The last piece is answered by
    /// [`FromBroker::Kept`].
    Keep {
        /// The effect's call.
        call: CallId,
        /// At most [`limit::CHUNK`](crate::limit::CHUNK) bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// Whether nothing more comes.
        last: bool,
    },
    /// What became of a connection that a cell wanted, to be recorded. Only in a session whose cells have a network.
    Connected(ConnectionReport),
    /// Asks which of these were closed by the cell, and what would open them. Only in a session that is thrown away; at most
    /// [`limit::TRACED`](crate::limit::TRACED).
    Explain(Vec<Traced>),
}

/// Signals a client may send to what it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Signal {
    /// `SIGINT`.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
    /// `SIGHUP`.
    Hangup,
    /// `SIGQUIT`.
    Quit,
    /// `SIGSTOP`; answered by [`FromBroker::Suspended`]. Clocks go on: how long a command may take is the policy's to say, and not
    /// its client's.
    Suspend,
    /// `SIGCONT`.
    Continue,
}

/// A frame from the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromBroker {
    /// First frame of a connection.
    Hello(Hello),
    /// Answers [`ToBroker::Probe`].
    Probed(Machine),
    /// The session is open.
    Opened(Opened),
    /// Live output of a command.
    Output {
        /// Which call.
        call: CallId,
        /// Whether this is standard error; a terminal has only standard output.
        stderr: bool,
        /// Counts the chunks of a call, both streams together, from 0.
        sequence: u64,
        /// At most [`limit::CHUNK`](crate::limit::CHUNK) bytes, as they came.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The broker has taken this many bytes of a call's standard input and will take as many more.
    InputCredit {
        /// Which call.
        call: CallId,
        /// How many bytes.
        bytes: u32,
    },
    /// A piece of a file tool's answer. The pieces of a call, joined, are an encoded [`FileAnswer`](crate::FileAnswer). The broker
    /// passes them on unread: they come from the file worker, which it does not believe.
    Part {
        /// Which call.
        call: CallId,
        /// The piece.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A call has ended. Its process tree is dead, unless it is in the background now.
    Done {
        /// Which call.
        call: CallId,
        /// How it ended.
        outcome: Outcome,
        /// What it used.
        usage: Usage,
        /// The layers that were in force around it.
        layers: LayerSet,
        /// What it was denied, as far as the executor knows.
        denied: Denials,
    },
    /// The connection ends: the client broke the protocol, or the session cannot go on.
    Fault(Failed),
    /// A call waits for an answer; nothing of it has started. A call is asked about at most once.
    Asked {
        /// Which call.
        call: CallId,
        /// What is asked.
        challenge: Challenge,
    },
    /// An answer was not taken.
    Ungranted(Ungranted),
    /// The grants that last for the session.
    Grants(Vec<SessionGrant>),
    /// All leases that are in force from now on: sent whenever one begins or ends, and before what a call with one does.
    Leases(Vec<Lease>),
    /// What became of a text that the client wanted kept.
    Kept {
        /// The effect's call.
        call: CallId,
        /// Where it stands; absent where nothing was kept.
        spill: Option<Spill>,
    },
    /// A command was stopped: by [`Signal::Suspend`], or because the suspend key of its terminal (Control-Z) was among its input, and
    /// nothing in the cell answers to that. It waits for [`Signal::Continue`].
    Suspended {
        /// Which call.
        call: CallId,
    },
    /// Answers [`ToBroker::Explain`], in its order: absent where the cell was not what closed it.
    Explained(Vec<Option<Denial>>),
}
