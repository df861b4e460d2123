//! Approval: which calls wait for an answer, which answers are taken, and which grants last for the session.
//!
//! Comes from a verdict that asks; goes to the session, which starts what was granted and ends what was not. It does not
//! believe the client: an answer counts only with the digest of the call that waits, which is the one that will run, and
//! with the nonce of its one question; and with the channel `separate`, only from an approver ([`approvers`]). What runs
//! is the request that was kept here, never one that came with the answer.

pub mod approvers;
mod peer;

use super::order;
use crate::cell::plan::Walls;
use broker_protocol::approval::{ASKED_BYTES, STANDING};
use broker_protocol::{
    CallId, Challenge, Channel, Digest, ErrorKind, Extent, Failed, Grant, GrantFault, Nonce, Request,
    Standing, Stdin, Ungranted, frame, limit,
};
use policies::Question;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// A call that waits for an answer. Nothing of it has started.
#[derive(Debug)]
pub struct Asked {
    /// What it would do.
    pub request: Request,
    /// Input that came meanwhile.
    pub input: Vec<u8>,
    /// Whether that is all of it.
    pub input_ended: bool,
    challenge: Challenge,
    deadline: Instant,
    /// Bytes that it may hold here.
    cost: usize,
}

/// The approvals of a session.
#[derive(Debug)]
pub struct Approvals {
    channel: Channel,
    timeout: Duration,
    /// Of this session; in every digest.
    session: Nonce,
    asked: BTreeMap<CallId, Asked>,
    standing: Vec<Standing>,
    last: u64,
    violations: u32,
}

impl Approvals {
    /// Those of a session that begins.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn new(policy: &policies::Approval) -> io::Result<Self> {
        Ok(Self {
            channel: policy.channel,
            timeout: Duration::from_secs(policy.timeout_s.into()),
            session: nonce()?,
            asked: BTreeMap::new(),
            standing: Vec::new(),
            last: 0,
            violations: 0,
        })
    }

    /// Whether a lasting grant answers `question` about `request`. Counts as a call that ran by it.
    pub fn covers(&mut self, question: &Question, request: &Request, walls: &Walls) -> bool {
        let only = match (question.whole, frame::encode_whole(request)) {
            (true, _) => None,
            (false, Ok(encoded)) => Some(self.digest(request, &encoded, walls)),
            // It is asked about, and that says why.
            (false, Err(_)) => return false,
        };
        self.answered(&question.rule, request.asked_as(), only)
    }

    /// Whether there is a grant for the calls of `tool` that `rule` is about, or for `only` this one.
    fn answered(&mut self, rule: &str, tool: &str, only: Option<Digest>) -> bool {
        let same = |one: &&mut Standing| one.rule == rule && one.tool == tool && one.only == only;
        let found = self.standing.iter_mut().find(same);
        found.map(|standing| standing.calls += 1).is_some()
    }

    /// Keeps a call until it is answered.
    ///
    /// # Errors
    /// Too much waits already, or our own machinery failed.
    pub fn ask(
        &mut self,
        call: CallId,
        request: Request,
        question: Question,
        walls: &Walls,
    ) -> Result<Challenge, Failed> {
        let internal = |message: String| Failed { kind: ErrorKind::Internal, message };
        let encoded = frame::encode_whole(&request).map_err(|error| internal(error.to_string()))?;
        let cost = cost(&request, encoded.len());
        if self.asked.values().map(|asked| asked.cost).sum::<usize>() + cost > ASKED_BYTES {
            let message = "too much waits for an answer already; wait for one".to_owned();
            return Err(Failed { kind: ErrorKind::ResourceLimit, message });
        }
        let challenge = Challenge {
            digest: self.digest(&request, &encoded, walls),
            nonce: nonce().map_err(|error| internal(format!("no random bytes: {error}")))?,
            rule: question.rule,
            why: question.why,
            risk: question.risk,
            expires_s: u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX),
            channel: self.channel,
            only: !question.whole,
        };
        let deadline = Instant::now() + self.timeout;
        let asked = Asked {
            request,
            input: Vec::new(),
            input_ended: false,
            challenge: challenge.clone(),
            deadline,
            cost,
        };
        self.asked.insert(call, asked);
        Ok(challenge)
    }

    /// The digest of a call in its canonical form. Each part has its length before it, so that no two calls read alike.
    fn digest(&self, request: &Request, encoded: &[u8], walls: &Walls) -> Digest {
        let directory = match request {
            Request::Bash(bash) => Some(order::directory(walls, bash)),
            _ => None,
        };
        let parts: [&[u8]; 8] = [
            b"lazaret call 1",
            request.tool().as_bytes(),
            encoded,
            walls.project.as_os_str().as_encoded_bytes(),
            walls.central.as_os_str().as_encoded_bytes(),
            directory.as_ref().map_or(b"", |directory| directory.as_os_str().as_encoded_bytes()),
            &walls.policy.digest.0,
            &self.session.0,
        ];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }

    /// Takes a yes that came by `from`, and gives the call that may run now.
    ///
    /// # Errors
    /// It is not taken; what waits goes on waiting.
    pub fn grant(&mut self, grant: &Grant, from: Channel) -> Result<Asked, Ungranted> {
        self.may_grant(grant, from).map_err(|fault| self.ungranted(grant.call, fault))?;
        let asked = self.asked.remove(&grant.call);
        let asked = asked.ok_or_else(|| self.ungranted(grant.call, GrantFault::NotWaiting))?;
        if grant.extent == Extent::Session {
            self.last += 1;
            let (rule, tool) = (asked.challenge.rule.clone(), asked.request.asked_as().to_owned());
            let only = asked.challenge.only.then_some(asked.challenge.digest);
            self.standing.push(Standing { grant: self.last, rule, tool, calls: 1, only });
        }
        Ok(asked)
    }

    /// Takes a no that came by `from`. An approver's names its question; the client's own call needs no more than its number.
    ///
    /// # Errors
    /// It is not taken; what waits goes on waiting.
    pub fn refuse(&mut self, call: CallId, nonce: Option<Nonce>, from: Channel) -> Result<(), Ungranted> {
        let meant = nonce.or_else(|| self.asked.get(&call).map(|asked| asked.challenge.nonce));
        let meant = meant.unwrap_or(self.session);
        let checked = self.check(call, meant, from).map(drop);
        checked.map_err(|fault| self.ungranted(call, fault))?;
        self.asked.remove(&call);
        Ok(())
    }

    fn may_grant(&self, grant: &Grant, from: Channel) -> Result<(), GrantFault> {
        let asked = self.check(grant.call, grant.nonce, from)?;
        if asked.challenge.digest != grant.digest {
            return Err(GrantFault::OtherCall);
        }
        match grant.extent {
            Extent::Session if self.standing.len() >= STANDING => Err(GrantFault::TooMany),
            Extent::Session | Extent::Once => Ok(()),
        }
    }

    fn check(&self, call: CallId, nonce: Nonce, from: Channel) -> Result<&Asked, GrantFault> {
        if from != self.channel {
            return Err(GrantFault::OtherChannel);
        }
        // A clock that has run out is looked at only when the poll returns: an answer must not be quicker.
        let waits = self.asked.get(&call).filter(|asked| Instant::now() < asked.deadline);
        let asked = waits.ok_or(GrantFault::NotWaiting)?;
        if asked.challenge.nonce == nonce { Ok(asked) } else { Err(GrantFault::OtherQuestion) }
    }

    fn ungranted(&mut self, call: CallId, fault: GrantFault) -> Ungranted {
        self.violations = self.violations.saturating_add(fault.is_violation().into());
        Ungranted { call, fault, violations: self.violations }
    }

    /// A call that waits.
    pub fn get(&mut self, call: CallId) -> Option<&mut Asked> {
        self.asked.get_mut(&call)
    }

    /// Every call that waits, and what is asked.
    pub fn waiting(&self) -> impl Iterator<Item = (CallId, &Challenge, &str)> {
        self.asked.iter().map(|(call, asked)| (*call, &asked.challenge, asked.request.asked_as()))
    }

    /// Forgets a call.
    pub fn forget(&mut self, call: CallId) {
        self.asked.remove(&call);
    }

    /// When the next question runs out of time.
    pub fn deadline(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.deadline).min()
    }

    /// Takes out a call whose question has run out of time.
    pub fn expired(&mut self, now: Instant) -> Option<CallId> {
        let late = self.asked.iter().find(|(_, asked)| asked.deadline <= now).map(|(call, _)| *call)?;
        self.asked.remove(&late);
        Some(late)
    }

    /// The grants that last.
    pub fn standing(&self) -> &[Standing] {
        &self.standing
    }

    /// Takes back a grant that lasts. Calls that run by it go on; there may be no such grant.
    pub fn revoke(&mut self, grant: u64) {
        self.standing.retain(|standing| standing.grant != grant);
    }

    /// How long a question waits, for the message.
    pub fn timeout_s(&self) -> u64 {
        self.timeout.as_secs()
    }
}

impl Asked {
    /// Takes input that came before the answer, within its window.
    pub fn take_input(&mut self, bytes: &[u8]) -> bool {
        self.input.extend_from_slice(bytes);
        self.input.len() <= limit::INPUT_WINDOW as usize
    }

    /// The client's window has changed its size, which is no part of what was asked about.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        if let Request::Bash(bash) = &mut self.request
            && let Stdin::Terminal(terminal) = &mut bash.stdin
        {
            (terminal.rows, terminal.columns) = (rows, columns);
        }
    }
}

/// What a call may come to hold: its request, and the input that its client may send at once.
fn cost(request: &Request, encoded: usize) -> usize {
    let fed = matches!(request, Request::Bash(bash) if bash.stdin != Stdin::Null);
    encoded + if fed { limit::INPUT_WINDOW as usize } else { 0 }
}

/// Bytes that nobody guesses.
fn nonce() -> io::Result<Nonce> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(Nonce(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Risk;

    fn approvals(channel: Channel) -> Approvals {
        let policy = policies::Approval { timeout_s: 1, channel, ..policies::Approval::default() };
        Approvals::new(&policy).unwrap()
    }

    /// Puts a question there without the walls of a session.
    fn ask(approvals: &mut Approvals, call: CallId, rule: &str) -> Challenge {
        let challenge = Challenge {
            digest: Digest([call as u8; 32]),
            nonce: nonce().unwrap(),
            rule: rule.into(),
            why: String::new(),
            risk: Risk::Low,
            expires_s: 1,
            channel: approvals.channel,
            only: false,
        };
        let path = broker_protocol::ZonePath::root(broker_protocol::Zone::Project);
        let request = Request::FileRead(broker_protocol::FileRead { path, offset: None, limit: None });
        let deadline = Instant::now() + approvals.timeout;
        let (input, challenge_kept) = (Vec::new(), challenge.clone());
        let asked =
            Asked { request, input, input_ended: false, challenge: challenge_kept, deadline, cost: 1 };
        approvals.asked.insert(call, asked);
        challenge
    }

    fn yes(call: CallId, challenge: &Challenge) -> Grant {
        Grant { call, digest: challenge.digest, nonce: challenge.nonce, extent: Extent::Once }
    }

    #[test]
    fn an_answer_counts_by_its_channel_nonce_and_digest_and_once() {
        for channel in [Channel::Relay, Channel::Separate] {
            let other = if channel == Channel::Relay { Channel::Separate } else { Channel::Relay };
            let mut approvals = approvals(channel);
            let challenge = ask(&mut approvals, 1, "r");
            let honest = yes(1, &challenge);
            let fault = |approvals: &mut Approvals, grant: Grant, from| {
                approvals.grant(&grant, from).map(drop).map_err(|not| not.fault)
            };
            assert_eq!(fault(&mut approvals, honest, other), Err(GrantFault::OtherChannel));
            let forged = Grant { nonce: Nonce([0; 16]), ..honest };
            assert_eq!(fault(&mut approvals, forged, channel), Err(GrantFault::OtherQuestion));
            let swapped = Grant { digest: Digest([9; 32]), ..honest };
            assert_eq!(fault(&mut approvals, swapped, channel), Err(GrantFault::OtherCall));
            assert_eq!(approvals.violations, 3);
            assert_eq!(fault(&mut approvals, honest, channel), Ok(()));
            assert_eq!(fault(&mut approvals, honest, channel), Err(GrantFault::NotWaiting));
        }
    }

    #[test]
    fn time_runs_out_whether_or_not_anybody_looks() {
        let mut approvals = approvals(Channel::Relay);
        let challenge = ask(&mut approvals, 1, "r");
        approvals.asked.get_mut(&1).unwrap().deadline = Instant::now();
        let late = approvals.grant(&yes(1, &challenge), Channel::Relay).map(drop);
        assert_eq!(late.map_err(|not| not.fault), Err(GrantFault::NotWaiting));
        assert_eq!(approvals.expired(Instant::now()), Some(1));
        assert_eq!((approvals.expired(Instant::now()), approvals.deadline()), (None, None));
    }

    #[test]
    fn a_lasting_grant_answers_its_rule_for_its_tool() {
        let mut approvals = approvals(Channel::Relay);
        let challenge = ask(&mut approvals, 1, "r");
        let grant = Grant { extent: Extent::Session, ..yes(1, &challenge) };
        approvals.grant(&grant, Channel::Relay).map(drop).unwrap();
        assert!(approvals.answered("r", "file_read", None));
        assert!(!approvals.answered("q", "file_read", None) && !approvals.answered("r", "bash", None));
        assert!(!approvals.answered("r", "file_read", Some(challenge.digest)));
        assert_eq!(approvals.standing()[0].calls, 2);
        approvals.revoke(1);
        assert!(!approvals.answered("r", "file_read", None));
    }

    #[test]
    fn a_lasting_grant_in_doubt_answers_its_very_call() {
        let mut approvals = approvals(Channel::Relay);
        let challenge = ask(&mut approvals, 1, "r");
        approvals.asked.get_mut(&1).unwrap().challenge.only = true;
        let grant = Grant { extent: Extent::Session, ..yes(1, &challenge) };
        approvals.grant(&grant, Channel::Relay).map(drop).unwrap();
        assert!(approvals.answered("r", "file_read", Some(challenge.digest)));
        assert!(!approvals.answered("r", "file_read", None));
        assert!(!approvals.answered("r", "file_read", Some(Digest([9; 32]))));
    }
}
