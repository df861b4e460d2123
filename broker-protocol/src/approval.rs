//! Approval: the broker's question about a call, and the possible answers, on the client's
//! connection or on an approver's own.
//!
//! An answer names the digest of the call as the broker has it, and the nonce of the one question.
//! So a grant cannot be saved for another call, nor used twice.

use crate::digest::{Digest, Nonce};
use crate::hello::{Hello, Opened};
use crate::lease::{Leased, Wants};
#[cfg(doc)]
use crate::limit;
use crate::reply::Failed;
use crate::request::{CallId, Request};
use crate::scope::Risk;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Maximum number of session-wide grants in one session at once.
pub const STANDING: usize = 64;
/// Maximum bytes of requests and input waiting for approval in one session; a call beyond it fails without a question.
pub const ASKED_BYTES: usize = 16 << 20;
/// Maximum number of approvers connected to one session at once.
pub const APPROVERS: usize = 4;
/// Maximum number of programs that a session-wide grant names.
pub const PROGRAMS: usize = 16;
/// Maximum bytes of a frame from an approver.
pub const APPROVER_FRAME: usize = 4096;

/// The question about a call that waits for approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// SHA-256 of the call in its canonical form: tool, whole request, both roots, working directory, policy,
    /// session, the targets of links on its path, if any; and the leases it requests.
    pub digest: Digest,
    /// Belongs to this one question only.
    pub nonce: Nonce,
    /// The name, in the policy, of the rule that asks.
    pub rule: String,
    /// Its reason, for the user.
    pub why: String,
    /// How much harm the call can do.
    pub risk: Risk,
    /// Seconds until the call ends without having started.
    pub expires_s: u32,
    /// Where the answer must come from.
    pub channel: Channel,
    /// Calls that a grant for the session would allow.
    pub covers: Coverage,
    /// For a command and [`Coverage::Rule`]: the programs that commands under a grant for the session may name, at most
    /// [`PROGRAMS`], in order. Empty for all other tools.
    pub programs: Vec<String>,
    /// Hosts and paths that a yes also grants, because the session does not have them.
    pub wants: Wants,
}

/// Calls that a grant for the session allows from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coverage {
    /// Each call of the tool that is certainly and entirely covered by the rule; of commands, those that name only the
    /// [programs](Challenge::programs) that this one names.
    Rule,
    /// This call again, unchanged: it is not certain that the rule covers all of it.
    Call,
    /// The requested leases, for every call. The rule's own question is answered for this call alone.
    Wants,
    /// None: the question is about a request that a program of the running call sends. Requests under the same rule, for the same host, by
    /// the same method and path, that change the same objects. Nobody has allowed it by starting the call.
    Request,
    /// None, and no other request either: the question is about what a program of the running call wants, which nobody can compare with
    /// what it wants next. Nobody has allowed it by starting the call. The grant counts as [`Extent::Once`].
    RequestOnce,
    /// No other call: this one receives input while it runs, which no digest covers. The grant counts as [`Extent::Once`].
    Once,
}

impl Coverage {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Coverage::Rule => "rule",
            Coverage::Call => "call",
            Coverage::Wants => "wants",
            Coverage::Request => "request",
            Coverage::RequestOnce => "request_once",
            Coverage::Once => "once",
        }
    }

    /// Whether a grant for the session allows more than a grant for once.
    pub fn is_lasting(self) -> bool {
        match self {
            Coverage::Rule | Coverage::Call | Coverage::Wants | Coverage::Request => true,
            Coverage::RequestOnce | Coverage::Once => false,
        }
    }

    /// Whether the question is about what a program of the running call wants, and not about the call.
    pub fn is_of_program(self) -> bool {
        match self {
            Coverage::Request | Coverage::RequestOnce => true,
            Coverage::Rule | Coverage::Call | Coverage::Wants | Coverage::Once => false,
        }
    }
}

/// Where answers come from. Ordered: a later one is narrower. Policies have these names in lower case.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// From the client, which relays the user's answer.
    #[default]
    Relay,
    /// From approvers on a socket of their own, and never from the client.
    Separate,
}

impl Channel {
    /// The name in policies and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Relay => "relay",
            Channel::Separate => "separate",
        }
    }
}

/// How far a grant reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Extent {
    Once,
    /// This call, and for the rest of the session what its challenge covers ([`Challenge::covers`]).
    Session,
    /// This call; and its requested leases for so many minutes, at most [`limit::LEASE_MINUTES`],
    /// for every call. For a call that requests none it is [`Extent::Once`].
    Minutes(u16),
}

impl Extent {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Extent::Once => "once",
            Extent::Session => "session",
            Extent::Minutes(_) => "minutes",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    pub call: CallId,
    /// The digest of its challenge.
    pub digest: Digest,
    /// The nonce of its challenge.
    pub nonce: Nonce,
    /// How far it reaches.
    pub extent: Extent,
}

/// Why an answer was not accepted. The connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
pub enum GrantFault {
    /// No call of this number is waiting for an answer: there was no question, it was answered, or it has expired.
    #[error("no call of this number waits for an answer")]
    NotWaiting,
    /// The digest is not that of the waiting call.
    #[error("the grant is for another call than the one that waits")]
    OtherCall,
    /// The nonce is not that of the question.
    #[error("the grant answers another question, or has been used")]
    OtherQuestion,
    /// Answers are not accepted on this connection.
    #[error("answers are taken from `lazaret approve` only, not from the client")]
    OtherChannel,
    /// There are [`STANDING`] grants for the rest of the session already.
    #[error("the session has as many lasting grants as it may have")]
    TooMany,
}

impl GrantFault {
    pub const ALL: [GrantFault; 5] = [
        GrantFault::NotWaiting,
        GrantFault::OtherCall,
        GrantFault::OtherQuestion,
        GrantFault::OtherChannel,
        GrantFault::TooMany,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            GrantFault::NotWaiting => "not_waiting",
            GrantFault::OtherCall => "other_call",
            GrantFault::OtherQuestion => "other_question",
            GrantFault::OtherChannel => "other_channel",
            GrantFault::TooMany => "too_many",
        }
    }

    /// Whether it looks like an attempt to bypass approval. An answer that came too late does not.
    pub fn is_violation(self) -> bool {
        match self {
            GrantFault::OtherCall | GrantFault::OtherQuestion | GrantFault::OtherChannel => true,
            GrantFault::NotWaiting | GrantFault::TooMany => false,
        }
    }
}

/// An answer that was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ungranted {
    /// The call it named.
    pub call: CallId,
    pub fault: GrantFault,
    /// Number of answers in this session so far that were violations.
    pub violations: u32,
}

/// A grant for the rest of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGrant {
    /// Its number, with which it is revoked.
    pub grant: u64,
    /// The rule it answers.
    pub rule: String,
    /// The tool it answers for.
    pub tool: String,
    /// Number of calls that ran under it, including the first.
    pub calls: u64,
    /// The programs that commands under it may name.
    pub programs: Vec<String>,
    /// The digest of the one call that it covers, if it does not cover all of the rule's.
    pub only: Option<Digest>,
    /// The host or path that it grants, if it is a lease.
    pub opens: Option<Leased>,
    /// Seconds until it ends, if that is before the session does.
    pub ends_s: Option<u32>,
}

/// How the wait of a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    Granted(Extent),
    Refused,
    /// No answer came in time.
    Expired,
    /// The client ended it.
    Cancelled,
}

/// A frame from an approver, at most [`APPROVER_FRAME`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromApprover {
    /// First frame of a connection.
    Hello(Hello),
    /// Requests the whole request of a waiting call, and the present content of the file it would change. One at a time.
    Look {
        call: CallId,
    },
    Grant(Grant),
    Refuse {
        call: CallId,
        /// The nonce of its challenge.
        nonce: Nonce,
    },
    /// Asks for the grants that last.
    Grants,
    /// Revokes a grant; answered like [`FromApprover::Grants`].
    Revoke {
        grant: u64,
    },
}

/// A frame to an approver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToApprover {
    Hello(Hello),
    /// Identifies the session. Every waiting call follows.
    Session {
        /// As it was sent to the client.
        opened: Opened,
        client: i32,
    },
    /// A call waits for an answer.
    Asked {
        call: CallId,
        challenge: Challenge,
        tool: String,
    },
    /// A piece of the content of the request that follows, as in [`ToBroker::Content`](crate::ToBroker::Content).
    Content {
        /// The call whose request follows.
        call: CallId,
        /// From 1 to [`limit::PIECE`] bytes of it.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Answers [`FromApprover::Look`]: the request, as large as the client's frame was.
    Request {
        call: CallId,
        /// The request to be approved.
        request: Request,
    },
    /// A piece of the file's present content; the pieces, joined, are an encoded
    /// [`FileAnswer`](crate::FileAnswer) of a `file_read`. Passed on unparsed.
    Before {
        call: CallId,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// The preview of the call is complete; without a piece before it there is no file to see.
    Seen {
        call: CallId,
    },
    /// A call is no longer waiting for an answer.
    Ended {
        call: CallId,
        decision: Decision,
    },
    /// An answer was not taken.
    Ungranted(Ungranted),
    /// The grants that are in force.
    Grants(Vec<SessionGrant>),
    /// The connection ends: this peer may not approve, or broke the protocol.
    Fault(Failed),
}
