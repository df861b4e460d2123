//! The calls that wait, of all sessions, each looked at whole before it is shown.

use crate::adapters::executor::{Approvals, ExecutorError, Heard};
use crate::domain::proposal::Proposal;
use crate::ports::Approval;
use broker_protocol::{
    CallId, Challenge, Decision, FileAnswer, FromApprover, Grant, Opened, Request, Standing, ToApprover,
    Ungranted, frame, limit,
};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// How often new sessions are looked for.
const SCAN: Duration = Duration::from_millis(500);

/// A call by its session and number.
pub type Key = (String, CallId);

/// A call that waits and can be shown.
#[derive(Debug)]
pub struct Waiting {
    /// Which.
    pub key: Key,
    /// What is asked.
    pub challenge: Challenge,
    /// When its question runs out of time.
    pub until: Instant,
    /// All of it.
    pub request: Request,
    /// The same, as it is shown.
    pub proposal: Proposal,
}

/// What has happened.
#[derive(Debug)]
pub enum News {
    /// A session takes answers.
    Session(String, Box<Opened>),
    /// A session takes none any more.
    Over(String, ExecutorError),
    /// A call can be shown.
    Asked(Box<Waiting>),
    /// A call waits no longer.
    Ended(Key, Decision),
    /// An answer was not taken.
    NotTaken(String, Ungranted),
    /// The grants of a session that last.
    Grants(String, Vec<Standing>),
}

/// The calls that wait.
pub struct Desk {
    approvals: Approvals,
    scan: tokio::time::Interval,
    /// Questions whose calls were not looked at yet, by session; the first one is being looked at.
    unseen: BTreeMap<String, VecDeque<Unseen>>,
}

struct Unseen {
    call: CallId,
    challenge: Challenge,
    until: Instant,
    request: Option<Request>,
    before: Vec<u8>,
}

impl Desk {
    /// Looks for sessions. Needs the runtime.
    pub fn open() -> Self {
        let mut scan = interval(SCAN);
        scan.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { approvals: Approvals::new(), scan, unseen: BTreeMap::new() }
    }

    /// What happens next. Safe to be dropped while it waits.
    pub async fn next(&mut self) -> News {
        loop {
            let (session, heard) = tokio::select! {
                _ = self.scan.tick() => {
                    self.approvals.scan();
                    continue;
                }
                heard = self.approvals.next() => heard,
            };
            let news = match heard {
                Heard::Said(message) => self.hear(session, *message),
                Heard::Over(error) => {
                    self.unseen.remove(&session);
                    Some(News::Over(session, error))
                }
            };
            if let Some(news) = news {
                return news;
            }
        }
    }

    fn hear(&mut self, session: String, message: ToApprover) -> Option<News> {
        match message {
            ToApprover::Hello(_) | ToApprover::Fault(_) => None,
            ToApprover::Session { opened, .. } => Some(News::Session(session, Box::new(opened))),
            ToApprover::Asked { call, challenge, .. } => {
                let until = Instant::now() + Duration::from_secs(challenge.expires_s.into());
                let unseen = Unseen { call, challenge, until, request: None, before: Vec::new() };
                let queue = self.unseen.entry(session.clone()).or_default();
                queue.push_back(unseen);
                if queue.len() == 1 {
                    self.approvals.send(&session, &FromApprover::Look { call });
                }
                None
            }
            ToApprover::Request { call, request } => {
                self.looked_at(&session, call)?.request = Some(request);
                None
            }
            ToApprover::Before { call, bytes } => {
                let unseen = self.looked_at(&session, call)?;
                if unseen.before.len() + bytes.len() <= limit::ANSWER {
                    unseen.before.extend_from_slice(&bytes);
                }
                None
            }
            ToApprover::Seen { call } => self.seen(&session, call),
            ToApprover::Ended { call, decision } => {
                // The one that is looked at leaves when its look ends.
                let queue = self.unseen.entry(session.clone()).or_default();
                let looked_at = queue.front().map(|unseen| unseen.call);
                queue.retain(|unseen| unseen.call != call || Some(call) == looked_at);
                Some(News::Ended((session, call), decision))
            }
            ToApprover::Ungranted(not) => Some(News::NotTaken(session, not)),
            ToApprover::Grants(standing) => Some(News::Grants(session, standing)),
        }
    }

    fn looked_at(&mut self, session: &str, call: CallId) -> Option<&mut Unseen> {
        self.unseen.get_mut(session)?.front_mut().filter(|unseen| unseen.call == call)
    }

    /// A call was looked at; the next one is.
    fn seen(&mut self, session: &str, call: CallId) -> Option<News> {
        self.looked_at(session, call)?;
        let queue = self.unseen.get_mut(session)?;
        let unseen = queue.pop_front()?;
        if let Some(next) = queue.front() {
            self.approvals.send(session, &FromApprover::Look { call: next.call });
        }
        // Without a request it has ended meanwhile.
        let request = unseen.request?;
        let before: Option<FileAnswer> = match unseen.before.is_empty() {
            true => None,
            false => frame::decode_whole(&unseen.before).ok(),
        };
        let proposal = Proposal::new(&request, before.as_ref());
        let (key, challenge, until) = ((session.to_owned(), call), unseen.challenge, unseen.until);
        Some(News::Asked(Box::new(Waiting { key, challenge, until, request, proposal })))
    }

    /// Answers a question.
    pub fn answer(&self, waiting: &Waiting, approval: Approval) {
        let Challenge { digest, nonce, .. } = waiting.challenge;
        let (session, call) = (&waiting.key.0, waiting.key.1);
        let message = match approval {
            Approval::Yes(extent) => FromApprover::Grant(Grant { call, digest, nonce, extent }),
            Approval::No => FromApprover::Refuse { call, nonce },
        };
        self.approvals.send(session, &message);
    }

    /// Asks for the grants of a session that last, after taking back one of them.
    pub fn grants(&self, session: &str, revoke: Option<u64>) {
        let message = revoke.map_or(FromApprover::Grants, |grant| FromApprover::Revoke { grant });
        self.approvals.send(session, &message);
    }
}
