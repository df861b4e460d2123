//! The frames between client and broker.

use crate::approval::{Challenge, Grant, SessionGrant, Ungranted};
use crate::denial::{Denial, Denials};
use crate::finding::Findings;
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
    /// Asks what this machine supports. Allowed after the hello, before a session is open.
    Probe,
    /// Carries a descriptor: a socket that preserves message boundaries, over which the broker sends one end of a stream for each gateway
    /// that the client is to start. After the hello, before the session is open, at most once.
    GatewayLine,
    Open(Open),
    /// A piece of the content of a write that does not fit in one frame. The call's other pieces follow, and then the call;
    /// [`ToBroker::Cancel`] drops them.
    Content {
        /// The call whose request follows.
        call: CallId,
        /// From 1 to [`limit::PIECE`](crate::limit::PIECE) bytes of it.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    Call {
        /// The client's number for it.
        call: CallId,
        request: Request,
    },
    /// Starts a call that requests leases. It needs an approval, whatever the policy decides about the call itself.
    WantingCall {
        /// The client's number for it.
        call: CallId,
        request: Request,
        /// The leases it requests.
        wants: Wants,
    },
    /// Bytes for the standard input of a call, within its window.
    Input {
        call: CallId,
        /// At most [`limit::CHUNK`](crate::limit::CHUNK) bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Ends the standard input of a call.
    InputEnd {
        call: CallId,
    },
    /// The client's window changed its size.
    Resize {
        /// Number of the call; it must have a terminal.
        call: CallId,
        /// Rows of characters.
        rows: u16,
        /// Columns of characters.
        columns: u16,
    },
    /// Sends a signal to the main process of a call.
    Signal {
        call: CallId,
        signal: Signal,
    },
    /// The client has received this many bytes of a call's live output and will accept as many more.
    Credit {
        call: CallId,
        /// How many bytes.
        bytes: u32,
    },
    /// Cancels a call, and its outcome reports that. The processes of a command get SIGTERM, and after two seconds what is left is
    /// killed; cancelled again, at once.
    Cancel {
        call: CallId,
    },
    /// Says yes to a call that waits for an answer. One that is not accepted is answered by
    /// [`FromBroker::Ungranted`].
    Grant(Grant),
    /// Says no to a call that waits for an answer.
    Refuse {
        call: CallId,
    },
    /// Requests the present content of the file that a waiting call would change, as far as the policy lets the session read it without
    /// a question. Answered by [`FromBroker::Before`] and [`FromBroker::Seen`]; a call has one preview.
    Look {
        /// The call that waits for approval.
        call: CallId,
    },
    /// Asks for the grants that last for the session.
    Grants,
    /// Revokes one of them, or a lease; answered like [`ToBroker::Grants`].
    Revoke {
        /// Which, by its number.
        grant: u64,
    },
    /// A piece of a text that an effect has returned to the client, to be saved where `file_read`
    /// can open it. The effect's call must have ended as [`Outcome::Granted`], and has one text.
    /// The last piece is answered by [`FromBroker::Kept`].
    Keep {
        call: CallId,
        /// At most [`limit::CHUNK`](crate::limit::CHUNK) bytes.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
        /// Whether nothing more comes.
        last: bool,
    },
    /// Asks which of these failures the cell caused, and what would prevent them. Only in a
    /// throw-away session; at most [`limit::TRACED`](crate::limit::TRACED).
    Explain(Vec<Traced>),
}

/// Signals that a client may send to what it has started.
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
    /// `SIGSTOP`; answered by [`FromBroker::Suspended`]. Time limits keep running: the policy
    /// decides how long a command may take, and not its client.
    Suspend,
    /// `SIGCONT`.
    Continue,
}

/// A command's stream of output, where [`FromBroker::Output`] has a `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdStream {
    Stdout,
    Stderr,
}

impl StdStream {
    pub fn stderr_if(is_stderr: bool) -> Self {
        match is_stderr {
            true => Self::Stderr,
            false => Self::Stdout,
        }
    }
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
        call: CallId,
        /// Whether this is standard error; a terminal has only standard output.
        stderr: bool,
        /// Counts the chunks of a call, both streams together, from 0.
        sequence: u64,
        /// At most [`limit::CHUNK`](crate::limit::CHUNK) bytes, as they came.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The broker has received this many bytes of a call's standard input and will accept as many more.
    InputCredit {
        call: CallId,
        /// How many bytes.
        bytes: u32,
    },
    /// A piece of a file tool's answer. The pieces of a call, joined, are an encoded [`FileAnswer`](crate::FileAnswer).
    /// The broker passes them on unparsed: they come from the file worker, which it does not trust.
    Part {
        call: CallId,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// A call has ended. Its process tree is dead, unless it is in the background now.
    Done {
        call: CallId,
        outcome: Outcome,
        /// The resources it used.
        usage: Usage,
        /// The layers that were in force around it.
        layers: LayerSet,
        /// Denials that the executor knows of.
        denied: Denials,
    },
    /// The connection ends: the client broke the protocol, or the session cannot continue.
    Fault(Failed),
    /// A call waits for an answer; nothing of it has started, or ([`Coverage::is_of_program`](crate::Coverage::is_of_program)) its program waits.
    /// At most one question of a call is open.
    Asked { call: CallId, challenge: Challenge },
    /// A piece of the file that a waiting call would change; the pieces, joined, are an encoded [`FileAnswer`](crate::FileAnswer) of a
    /// `file_read`. Passed on unparsed. The session has not read the file by this.
    Before {
        /// The call that waits for approval.
        call: CallId,
        /// The next bytes of the encoded answer.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Answers [`ToBroker::Look`]; without a piece before it there is no file to see.
    Seen {
        /// The call that waits for approval.
        call: CallId,
    },
    /// An answer was not accepted.
    Ungranted(Ungranted),
    /// The grants that last for the session.
    Grants(Vec<SessionGrant>),
    /// All leases in force from now on: sent whenever one begins or ends, and before the output of a call with one.
    Leases(Vec<Lease>),
    /// The end of a connection that a cell requested; one that was refused again is counted. Reports about a call come before its end.
    Connected(ConnectionReport),
    /// The result for a text that the client wanted saved.
    Kept {
        call: CallId,
        /// Where it was saved; absent if nothing was.
        spill: Option<Spill>,
    },
    /// A command was stopped: by [`Signal::Suspend`], or because its input contained the suspend key of its
    /// terminal (Control-Z), and nothing in the cell handles that. It waits for [`Signal::Continue`].
    Suspended { call: CallId },
    /// Answers [`ToBroker::Explain`], in its order: absent if the cell did not cause the failure.
    Explained(Vec<Option<Denial>>),
    /// Findings in the project since the last one of these frames, whichever call caused them. They come before the
    /// [`FromBroker::Done`] of the calls after which they were found, or alone.
    Found(Findings),
}
