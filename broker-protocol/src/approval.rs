//! Approval: what the broker says of a call that it asks about, and what may be answered, on the client's connection or on
//! a connection of an approver's own.
//!
//! An answer names what it answers: the digest of the call as the broker has it, and the nonce of the one question. So a
//! grant cannot be kept for another call, nor given twice.

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

/// Most grants for the rest of a session that one session has at once.
pub const STANDING: usize = 64;
/// Bytes of requests and input that wait for an answer in one session; a call beyond them is not asked about but fails.
pub const ASKED_BYTES: usize = 8 << 20;
/// Approvers connected to one session at once.
pub const APPROVERS: usize = 4;
/// Longest frame that an approver may send, in bytes.
pub const APPROVER_FRAME: usize = 4096;

/// What a call that waits for an answer is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Challenge {
    /// SHA-256 of the call in its canonical form: tool, whole request, both roots, working directory, policy, session, and where
    /// links on its path lead, if they do; and what it wants.
    pub digest: Digest,
    /// Of this one question.
    pub nonce: Nonce,
    /// The rule that asks, by its name in the policy.
    pub rule: String,
    /// Its reason, for the user.
    pub why: String,
    /// How much harm the call can do.
    pub risk: Risk,
    /// Seconds until the call ends without having started.
    pub expires_s: u32,
    /// Where the answer is taken from.
    pub channel: Channel,
    /// What a grant for the session would allow.
    pub covers: Coverage,
    /// What a yes opens besides: hosts that the session does not have.
    pub wants: Wants,
}

/// What a grant for the session allows from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Coverage {
    /// Each call of the tool that the rule is surely and wholly about.
    Rule,
    /// The same call again: the rule is not surely about all of it.
    Call,
    /// What the call wants, for every call. The rule's own question is answered for this call alone.
    Wants,
    /// No other call: this one is sent input while it runs, which no digest knows. The grant counts as [`Extent::Once`].
    Once,
}

impl Coverage {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Coverage::Rule => "rule",
            Coverage::Call => "call",
            Coverage::Wants => "wants",
            Coverage::Once => "once",
        }
    }
}

/// Where answers are taken from. Ordered: a later one is narrower. Policies have these names in lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// From the client, which relays what the user says.
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
    /// This call.
    Once,
    /// This call, and for the rest of the session what its challenge says ([`Challenge::covers`]).
    Session,
    /// This call; and what it wants for so many minutes, at most [`limit::LEASE_MINUTES`], for every call. Of a call that wants
    /// nothing it is [`Extent::Once`].
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

/// A yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// To which call.
    pub call: CallId,
    /// The digest of its challenge.
    pub digest: Digest,
    /// The nonce of its challenge.
    pub nonce: Nonce,
    /// How far it reaches.
    pub extent: Extent,
}

/// Why an answer was not taken. The connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error, Serialize, Deserialize)]
pub enum GrantFault {
    /// No call of this number waits for an answer: it was never asked about, has been answered, or has run out of time.
    #[error("no call of this number waits for an answer")]
    NotWaiting,
    /// What is granted is not the call that waits.
    #[error("the grant is for another call than the one that waits")]
    OtherCall,
    /// The nonce is not that of the question.
    #[error("the grant answers another question, or has been used")]
    OtherQuestion,
    /// Answers are not taken from here.
    #[error("answers are taken from `lazaret approve` only, not from the client")]
    OtherChannel,
    /// There are [`STANDING`] grants for the rest of the session already.
    #[error("the session has as many lasting grants as it may have")]
    TooMany,
}

impl GrantFault {
    /// Every fault.
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

    /// Whether it looks like an attempt to get something through. An answer that came too late is none.
    pub fn is_violation(self) -> bool {
        match self {
            GrantFault::OtherCall | GrantFault::OtherQuestion | GrantFault::OtherChannel => true,
            GrantFault::NotWaiting | GrantFault::TooMany => false,
        }
    }
}

/// An answer that was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ungranted {
    /// The call it named.
    pub call: CallId,
    /// Why.
    pub fault: GrantFault,
    /// Answers of this session so far that were violations.
    pub violations: u32,
}

/// A grant for the rest of the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionGrant {
    /// Its number, by which it is revoked.
    pub grant: u64,
    /// The rule it answers.
    pub rule: String,
    /// The tool it answers for.
    pub tool: String,
    /// Calls that ran by it, the first one included.
    pub calls: u64,
    /// The one call that it answers for, where it does not answer for all of the rule's.
    pub only: Option<Digest>,
    /// What it opens, where it is a lease.
    pub opens: Option<Leased>,
    /// Seconds until it ends, where that is before the session does.
    pub ends_s: Option<u32>,
}

/// How the wait of a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decision {
    /// It was approved.
    Granted(Extent),
    /// It was refused.
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
    /// Asks for the whole request of a call that waits, and for the file it would change as it is now. One at a time.
    Look {
        /// Which call.
        call: CallId,
    },
    /// Says yes.
    Grant(Grant),
    /// Says no.
    Refuse {
        /// To which call.
        call: CallId,
        /// The nonce of its challenge.
        nonce: Nonce,
    },
    /// Asks for the grants that last.
    Grants,
    /// Takes one back; answered like [`FromApprover::Grants`].
    Revoke {
        /// Which.
        grant: u64,
    },
}

/// A frame to an approver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToApprover {
    /// Answers the greeting.
    Hello(Hello),
    /// Which session this is. Then comes every call that waits.
    Session {
        /// As its client was told.
        opened: Opened,
        /// The client's process.
        client: i32,
    },
    /// A call waits for an answer.
    Asked {
        /// Which call.
        call: CallId,
        /// What is asked.
        challenge: Challenge,
        /// Its tool.
        tool: String,
    },
    /// Answers [`FromApprover::Look`]: the request, as large as the client's frame was.
    Request {
        /// Which call.
        call: CallId,
        /// What it would do.
        request: Request,
    },
    /// A piece of the file as it is now; the pieces, joined, are an encoded [`FileAnswer`](crate::FileAnswer) of a
    /// `file_read`. Passed on unread.
    Before {
        /// Which call.
        call: CallId,
        /// The piece.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// That was all there is to see of the call; without a piece before it there is no file to see.
    Seen {
        /// Which call.
        call: CallId,
    },
    /// A call waits no longer.
    Ended {
        /// Which call.
        call: CallId,
        /// Why.
        decision: Decision,
    },
    /// An answer was not taken.
    Ungranted(Ungranted),
    /// The grants that last.
    Grants(Vec<SessionGrant>),
    /// The connection ends: this peer may not approve, or broke the protocol.
    Fault(Failed),
}
