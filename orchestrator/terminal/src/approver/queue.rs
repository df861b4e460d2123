//! The pending calls of all sessions; each is read completely before it is shown.

use broker_protocol::content::Pieces;
use broker_protocol::{
    CallId, Challenge, Decision, FileAnswer, FromApprover, Grant, Opened, Request, SessionGrant,
    ToApprover, Ungranted, frame, limit,
};
use orchestrator_engine::ApprovalAnswer;
use orchestrator_engine::executor::{ApproverConnections, ExecutorError, FromSession};
use orchestrator_results::proposal::Proposal;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often to search for new sessions.
const SCAN: Duration = Duration::from_millis(500);

/// A call by its session and number.
pub(crate) type CallKey = (String, CallId);

/// A pending call that can be shown.
#[derive(Debug)]
pub struct PendingCall {
    pub key: CallKey,
    pub challenge: Challenge,
    /// When the question expires.
    pub until: Instant,
    /// The request, as the broker received it.
    pub request: Request,
    /// The request in the form in which it is shown.
    pub(crate) proposal: Proposal,
}

#[derive(Debug)]
pub enum QueueEvent {
    /// A session accepts answers.
    SessionOpened(String, Box<Opened>),
    /// A session no longer accepts answers.
    SessionEnded(String, ExecutorError),
    /// A call can be shown.
    Pending(Box<PendingCall>),
    /// A call is no longer pending.
    Decided(CallKey, Decision),
    /// An answer was rejected.
    Rejected(String, Ungranted),
    /// The lasting grants of a session.
    Grants(String, Vec<SessionGrant>),
}

/// The calls that wait.
pub struct ApprovalQueue {
    connections: ApproverConnections,
    scan: Interval,
    /// Questions whose calls are not read yet, by session; the first one is being read.
    unread: BTreeMap<String, VecDeque<UnreadCall>>,
}

struct UnreadCall {
    call: CallId,
    challenge: Challenge,
    until: Instant,
    content: Pieces,
    request: Option<Request>,
    /// The current content of the file that it would change.
    before: Vec<u8>,
}

impl ApprovalQueue {
    /// Searches for sessions in `directories`. Needs the runtime.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        let mut scan = interval(SCAN);
        scan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            connections: ApproverConnections::new(directories),
            scan,
            unread: BTreeMap::new(),
        }
    }

    /// The next event. Cancel-safe.
    pub async fn next(&mut self) -> QueueEvent {
        loop {
            let (session, received) = tokio::select! {
                _ = self.scan.tick() => {
                    self.connections.scan();
                    continue;
                }
                received = self.connections.next() => received,
            };
            let event = match received {
                FromSession::Message(message) => self.handle(session, *message),
                FromSession::Ended(error) => {
                    self.unread.remove(&session);
                    Some(QueueEvent::SessionEnded(session, error))
                }
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    fn handle(&mut self, session: String, message: ToApprover) -> Option<QueueEvent> {
        match message {
            ToApprover::Hello(_) | ToApprover::Fault(_) => None,
            ToApprover::Session { opened, .. } => {
                Some(QueueEvent::SessionOpened(session, Box::new(opened)))
            }
            ToApprover::Asked {
                call, challenge, ..
            } => {
                let until = Instant::now() + Duration::from_secs(challenge.expires_s.into());
                let unread = UnreadCall {
                    call,
                    challenge,
                    until,
                    content: Pieces::default(),
                    request: None,
                    before: Vec::new(),
                };
                let queue = self.unread.entry(session.clone()).or_default();
                queue.push_back(unread);
                if queue.len() == 1 {
                    self.connections
                        .send(&session, &FromApprover::Look { call });
                }
                None
            }
            ToApprover::Content { call, bytes } => {
                // Pieces that do not fit leave the request incomplete, and so without an answer.
                let _ = self.being_read(&session, call)?.content.add(call, &bytes);
                None
            }
            ToApprover::Request { call, request } => {
                let unread = self.being_read(&session, call)?;
                unread.request = unread.content.join(call, request).ok();
                None
            }
            ToApprover::Before { call, bytes } => {
                let unread = self.being_read(&session, call)?;
                if unread.before.len() + bytes.len() <= limit::ANSWER {
                    unread.before.extend_from_slice(&bytes);
                }
                None
            }
            ToApprover::Seen { call } => self.finish_reading(&session, call),
            ToApprover::Ended { call, decision } => {
                // The one being read is removed once it has been read.
                let queue = self.unread.entry(session.clone()).or_default();
                let being_read = queue.front().map(|unread| unread.call);
                queue.retain(|unread| unread.call != call || Some(call) == being_read);
                Some(QueueEvent::Decided((session, call), decision))
            }
            ToApprover::Ungranted(rejected) => Some(QueueEvent::Rejected(session, rejected)),
            ToApprover::Grants(standing) => Some(QueueEvent::Grants(session, standing)),
        }
    }

    fn being_read(&mut self, session: &str, call: CallId) -> Option<&mut UnreadCall> {
        self.unread
            .get_mut(session)?
            .front_mut()
            .filter(|unread| unread.call == call)
    }

    /// Completes a call that has been read, and begins to read the next one.
    fn finish_reading(&mut self, session: &str, call: CallId) -> Option<QueueEvent> {
        self.being_read(session, call)?;
        let queue = self.unread.get_mut(session)?;
        let UnreadCall {
            challenge,
            until,
            request,
            before,
            ..
        } = queue.pop_front()?;
        if let Some(next) = queue.front() {
            self.connections
                .send(session, &FromApprover::Look { call: next.call });
        }
        // Without a request, the call has ended meanwhile.
        let request = request?;
        let before: Option<FileAnswer> = match before.is_empty() {
            true => None,
            false => frame::decode_whole(&before).ok(),
        };
        let proposal = Proposal::new(&request, before.as_ref());
        let key = (session.to_owned(), call);
        Some(QueueEvent::Pending(Box::new(PendingCall {
            key,
            challenge,
            until,
            request,
            proposal,
        })))
    }

    pub fn answer(&self, pending: &PendingCall, approval: ApprovalAnswer) {
        let Challenge { digest, nonce, .. } = pending.challenge;
        let (session, call) = (&pending.key.0, pending.key.1);
        let message = match approval {
            ApprovalAnswer::Yes(extent) => FromApprover::Grant(Grant {
                call,
                digest,
                nonce,
                extent,
            }),
            ApprovalAnswer::No => FromApprover::Refuse { call, nonce },
        };
        self.connections.send(session, &message);
    }

    /// Requests the lasting grants of a session, after revoking one of them if given.
    pub(crate) fn grants(&self, session: &str, revoke: Option<u64>) {
        let message = revoke.map_or(FromApprover::Grants, |grant| FromApprover::Revoke { grant });
        self.connections.send(session, &message);
    }
}

/// Why a session no longer accepts answers.
pub fn end_message(session: &str, error: &ExecutorError) -> String {
    match error {
        ExecutorError::Lost => format!("{session}: the session has ended"),
        error => format!("{session}: {error}"),
    }
}
