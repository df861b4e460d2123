//! Approval: which calls wait for an answer, which answers are accepted, and which grants last for the session.
//!
//! A verdict of ask begins an approval; its result goes to the session, which starts what was granted and ends what was
//! not. The client is not trusted: an answer counts only with the digest of the waiting call, which is the one that
//! will run, and with the nonce of its one question; and with the channel `separate`, only from an approver
//! ([`Approvers`]). What runs is the request stored with its call, never one that came with the answer.

mod approver_frames;
mod outgoing_questions;
mod request_view;

pub(crate) use request_view::changed_file;

use crate::fault::failed;
use broker_protocol::approval::{ASKED_BYTES, STANDING};
use broker_protocol::{
    CallId, Challenge, Channel, Coverage, Decision, Digest, ErrorKind, Extent, Failed, FromBroker,
    Grant, GrantFault, Lease, Leased, Nonce, Outcome, Request, SessionGrant, ToApprover, Ungranted,
    Wants, ZonePath, frame, limit,
};
use executor_leases::{LeasedPath, Leases, Missing, RULE};
use executor_peers::approvers::Approvers;
use executor_peers::outgoing::{self, Answered, AskedByCalls, KeptGrants, OutgoingRequest};
use executor_spec::sandbox::SandboxSpec;
use executor_sys::random;
use policies::Question;
use request_view::{cost, coverage, working_directory};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Maximum number of paths held open for the questions of one session.
const ASKED_PATHS: usize = 4 * limit::WANTED_PATHS;

/// The approvals of a session.
#[derive(Debug)]
pub(crate) struct Approvals {
    channel: Channel,
    timeout: Duration,
    /// The nonce of this session, part of every digest.
    session: Nonce,
    /// The questions that wait, by call.
    questions: BTreeMap<CallId, OpenQuestion>,
    /// What calls have asked about requests of their programs.
    program_requests: AskedByCalls,
    /// Grants of requests for which their programs have not waited.
    kept_grants: KeptGrants,
    session_grants: Vec<SessionGrant>,
    /// Grants of hosts and paths that end.
    pub leases: Leases,
    /// The number of the last grant or lease.
    last: u64,
    violations: u32,
    /// Where answers come from if not from the client.
    approvers: Option<Approvers>,
}

/// A question waiting for an answer. Nothing of its call has started, unless it is about a request of the call's program.
#[derive(Debug)]
struct OpenQuestion {
    challenge: Challenge,
    tool: String,
    deadline: Instant,
    /// Bytes that the call may hold while it waits.
    cost: usize,
    /// The opened objects at the paths in the question.
    paths: Vec<LeasedPath>,
    /// The request of the call's program that it is about, if it is not about the call.
    outgoing: Option<OutgoingRequest>,
}

/// A yes that was accepted: for one call, or as far as its extent says.
#[derive(Debug)]
pub(crate) struct GivenApproval {
    /// The rule that asked.
    pub rule: String,
    pub extent: Extent,
    /// The call for which it was given.
    pub digest: Digest,
    /// The hosts and paths that it grants besides.
    pub missing: Missing,
}

impl GivenApproval {
    /// The user's, by opening the session with these leases: until it ends, and for no call more than for another.
    pub(crate) fn at_opening(missing: Missing) -> Self {
        Self {
            rule: RULE.to_owned(),
            extent: Extent::Session,
            digest: Digest([0; 32]),
            missing,
        }
    }
}

/// A result of questions and answers, for the session.
#[derive(Debug)]
pub(crate) enum ApprovalEvent {
    /// The call may run.
    Granted(CallId, GivenApproval),
    /// The call will not run.
    Ended(CallId, Outcome),
    /// An approver has requested the whole request of a call.
    Preview {
        approver: u64,
        call: CallId,
    },
    Reply(FromBroker),
    /// A request of a call's program goes to its host, or does not.
    Answered(Answered),
}

impl Approvals {
    /// The approvals of a session that begins.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn new(
        policy: &policies::Approval,
        answer_s: Option<u32>,
        approvers: Option<Approvers>,
    ) -> io::Result<Self> {
        let requested = answer_s.unwrap_or(limit::ANSWER_S).min(limit::ANSWER_MAX_S);
        Ok(Self {
            channel: policy.channel,
            timeout: Duration::from_secs(policy.timeout_s.unwrap_or(requested).into()),
            session: nonce()?,
            questions: BTreeMap::new(),
            program_requests: AskedByCalls::default(),
            kept_grants: KeptGrants::default(),
            session_grants: Vec::new(),
            leases: Leases::default(),
            last: 0,
            violations: 0,
            approvers,
        })
    }

    /// Whether a grant for the session covers `request`, about which `question` would be asked. Counts this use of the grant.
    pub(crate) fn covers(
        &mut self,
        question: &Question,
        request: &Request,
        real: &[ZonePath],
        spec: &SandboxSpec,
    ) -> bool {
        let (covers, programs) = coverage(question, request, &Wants::default());
        let only = match (covers, frame::encode_request(&(request, real))) {
            (Coverage::Rule, _) => None,
            (Coverage::Call, Ok(encoded)) => {
                Some(self.digest(request, &encoded, &Missing::default(), spec))
            }
            // The call needs an approval; a request that cannot be encoded fails there, with this reason.
            (Coverage::Call, Err(_))
            | (Coverage::Once | Coverage::Wants | Coverage::Request | Coverage::RequestOnce, _) => {
                return false;
            }
        };
        self.has_session_grant(&question.rule, request.asked_as(), &programs, only)
    }

    /// Whether there is a grant for the calls of `tool` under `rule` that name only these programs, or for `only` this one.
    fn has_session_grant(
        &mut self,
        rule: &str,
        tool: &str,
        programs: &[String],
        only: Option<Digest>,
    ) -> bool {
        let named = |one: &SessionGrant| {
            programs
                .iter()
                .all(|program| one.programs.contains(program))
        };
        let same = |one: &&mut SessionGrant| {
            one.rule == rule && one.tool == tool && one.only == only && named(one)
        };
        let found = self.session_grants.iter_mut().find(same);
        found.map(|standing| standing.calls += 1).is_some()
    }

    /// Creates the question for a call.
    ///
    /// # Errors
    /// Too many questions are pending, or our own machinery failed.
    pub(crate) fn ask(
        &mut self,
        call: CallId,
        request: &Request,
        real: &[ZonePath],
        (question, missing): (Question, Missing),
        spec: &SandboxSpec,
    ) -> Result<Challenge, Failed> {
        let encoded = frame::encode_request(&(request, real))
            .map_err(|error| Failed::internal(error.to_string()))?;
        let named: usize = missing
            .wants
            .each()
            .map(|opens| opens.parts().1.len())
            .sum();
        let cost = cost(request, encoded.len()) + named;
        let paths = self
            .questions
            .values()
            .map(|open| open.paths.len())
            .sum::<usize>()
            + missing.paths.len();
        let bytes = self.questions.values().map(|open| open.cost).sum::<usize>() + cost;
        if bytes > ASKED_BYTES || paths > ASKED_PATHS {
            let message =
                "too many calls wait for an answer; wait for one to be answered".to_owned();
            return Err(Failed {
                kind: ErrorKind::ResourceLimit,
                message,
            });
        }
        let (covers, programs) = coverage(&question, request, &missing.wants);
        let challenge = Challenge {
            digest: self.digest(request, &encoded, &missing, spec),
            covers,
            programs,
            nonce: nonce()
                .map_err(|error| Failed::internal(format!("no random bytes: {error}")))?,
            rule: question.rule,
            why: question.why,
            risk: question.risk,
            expires_s: u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX),
            channel: self.channel,
            wants: missing.wants,
        };
        let (deadline, tool) = (Instant::now() + self.timeout, request.asked_as().to_owned());
        let open = OpenQuestion {
            challenge: challenge.clone(),
            tool,
            deadline,
            cost,
            paths: missing.paths,
            outgoing: None,
        };
        self.send_all(&open.message(call));
        self.questions.insert(call, open);
        Ok(challenge)
    }

    /// The digest of a call's canonical form; `encoded` includes its link targets. Each part has its length before it, so no two match.
    fn digest(
        &self,
        request: &Request,
        encoded: &[u8],
        missing: &Missing,
        spec: &SandboxSpec,
    ) -> Digest {
        let directory = working_directory(request).map(|directory| spec.directory(directory));
        let wants: Vec<_> = missing.wants.each().collect();
        let count = (wants.len() as u64).to_le_bytes();
        let parts: [&[u8]; 9] = [
            b"lazaret call 4",
            request.tool().as_bytes(),
            encoded,
            spec.project.as_os_str().as_encoded_bytes(),
            spec.central.as_os_str().as_encoded_bytes(),
            directory
                .as_ref()
                .map_or(b"", |directory| directory.as_os_str().as_encoded_bytes()),
            &spec.policy.digest.0,
            &self.session.0,
            &count,
        ];
        let mut hash = Sha256::new();
        let ids: Vec<_> = missing.paths.iter().map(LeasedPath::id).collect();
        let wanted: Vec<_> = wants.iter().map(Leased::parts).collect();
        let wanted = wanted
            .iter()
            .flat_map(|(kind, what)| [kind.as_bytes(), what.as_bytes()]);
        for part in parts
            .into_iter()
            .chain(wanted)
            .chain(ids.iter().map(<[u8; 16]>::as_slice))
        {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Digest(hash.finalize().into())
    }

    /// Handles a yes from the client.
    pub(crate) fn grant(&mut self, grant: &Grant) -> ApprovalEvent {
        self.take_grant(grant, Channel::Relay)
            .unwrap_or_else(|not| ApprovalEvent::Reply(FromBroker::Ungranted(not)))
    }

    /// Handles a no from the client, which names its own call by number alone.
    pub(crate) fn refuse(&mut self, call: CallId) -> ApprovalEvent {
        let nonce = self
            .questions
            .get(&call)
            .map_or(self.session, |open| open.challenge.nonce);
        let refused = self.take_refusal(call, nonce, Channel::Relay);
        refused.unwrap_or_else(|not| ApprovalEvent::Reply(FromBroker::Ungranted(not)))
    }

    /// Revokes a grant for the session, and lists the others. Calls that run under it continue; an unknown number is ignored.
    pub(crate) fn grants(&mut self, revoked: Option<u64>) -> ApprovalEvent {
        ApprovalEvent::Reply(FromBroker::Grants(self.list(revoked)))
    }

    /// The grants and then the leases of the session, without `revoked`.
    fn list(&mut self, revoked: Option<u64>) -> Vec<SessionGrant> {
        self.session_grants
            .retain(|standing| Some(standing.grant) != revoked);
        revoked
            .into_iter()
            .for_each(|number| self.leases.revoke(number));
        self.session_grants
            .iter()
            .cloned()
            .chain(self.leases.listed())
            .collect()
    }

    /// Prepares the leases that `approval` of `call` grants. They begin later, once they are recorded.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn new_leases(&mut self, call: CallId, approval: &GivenApproval) -> Vec<Lease> {
        let leases = Leases::of(
            &approval.missing.wants,
            approval.extent,
            call,
            self.last + 1,
        );
        self.last += leases.len() as u64;
        leases
    }

    /// Handles a yes that came over `from`. If it is not accepted, the question stays open.
    fn take_grant(&mut self, grant: &Grant, from: Channel) -> Result<ApprovalEvent, Ungranted> {
        self.may_grant(grant, from)
            .map_err(|fault| self.ungranted(grant.call, fault))?;
        let open = self.questions.remove(&grant.call);
        let open = open.ok_or_else(|| self.ungranted(grant.call, GrantFault::NotWaiting))?;
        let OpenQuestion {
            challenge,
            tool,
            paths,
            outgoing,
            ..
        } = open;
        if let Some(outgoing) = outgoing {
            return Ok(self.grant_outgoing(grant, outgoing));
        }
        let Challenge {
            rule,
            digest,
            covers,
            programs,
            wants,
            ..
        } = challenge;
        let (extent, only) = match (grant.extent, covers) {
            (extent, Coverage::Wants) => (extent, None),
            (Extent::Once | Extent::Minutes(_), _)
            | (Extent::Session, Coverage::Once | Coverage::Request | Coverage::RequestOnce) => {
                (Extent::Once, None)
            }
            (Extent::Session, Coverage::Rule) => (Extent::Session, None),
            (Extent::Session, Coverage::Call) => (Extent::Session, Some(digest)),
        };
        if extent == Extent::Session && covers != Coverage::Wants {
            self.last += 1;
            let (grant, rule) = (self.last, rule.clone());
            let standing = SessionGrant {
                grant,
                rule,
                tool,
                calls: 1,
                programs,
                only,
                opens: None,
                ends_s: None,
            };
            self.session_grants.push(standing);
        }
        self.send_all(&ToApprover::Ended {
            call: grant.call,
            decision: Decision::Granted(extent),
        });
        Ok(ApprovalEvent::Granted(
            grant.call,
            GivenApproval {
                rule,
                extent,
                digest,
                missing: Missing { wants, paths },
            },
        ))
    }

    /// Grants a request of a call's program: once, or for the session those that change the same objects, if any can be compared.
    fn grant_outgoing(&mut self, grant: &Grant, granted: OutgoingRequest) -> ApprovalEvent {
        let extent = match (grant.extent, granted.covers.is_lasting()) {
            (Extent::Once | Extent::Minutes(_), _) | (Extent::Session, false) => Extent::Once,
            (Extent::Session, true) => Extent::Session,
        };
        if extent == Extent::Session {
            self.last += 1;
            self.session_grants.push(SessionGrant {
                grant: self.last,
                rule: granted.name,
                tool: outgoing::TOOL.to_owned(),
                calls: 1,
                programs: Vec::new(),
                only: Some(granted.scope),
                opens: None,
                ends_s: None,
            });
        }
        let decision = Decision::Granted(extent);
        self.send_all(&ToApprover::Ended {
            call: grant.call,
            decision,
        });
        ApprovalEvent::Answered(Answered {
            call: grant.call,
            question: granted.question,
            decision,
            kept: granted.kept,
        })
    }

    fn take_refusal(
        &mut self,
        call: CallId,
        nonce: Nonce,
        from: Channel,
    ) -> Result<ApprovalEvent, Ungranted> {
        let checked = self.check(call, nonce, from).map(drop);
        checked.map_err(|fault| self.ungranted(call, fault))?;
        Ok(self.end(call, Decision::Refused))
    }

    fn may_grant(&self, grant: &Grant, from: Channel) -> Result<(), GrantFault> {
        let open = self.check(grant.call, grant.nonce, from)?;
        if open.challenge.digest != grant.digest {
            return Err(GrantFault::OtherCall);
        }
        match grant.extent {
            Extent::Session if self.session_grants.len() >= STANDING => match open.challenge.covers
            {
                Coverage::Rule | Coverage::Call | Coverage::Request => Err(GrantFault::TooMany),
                Coverage::Once | Coverage::RequestOnce | Coverage::Wants => Ok(()),
            },
            Extent::Session | Extent::Minutes(_) | Extent::Once => Ok(()),
        }
    }

    fn check(
        &self,
        call: CallId,
        nonce: Nonce,
        from: Channel,
    ) -> Result<&OpenQuestion, GrantFault> {
        if from != self.channel {
            return Err(GrantFault::OtherChannel);
        }
        // The deadline is checked here too: an answer may arrive after it and before the poll returns.
        let open = self
            .questions
            .get(&call)
            .filter(|open| Instant::now() < open.deadline);
        let open = open.ok_or(GrantFault::NotWaiting)?;
        if open.challenge.nonce == nonce {
            Ok(open)
        } else {
            Err(GrantFault::OtherQuestion)
        }
    }

    fn ungranted(&mut self, call: CallId, fault: GrantFault) -> Ungranted {
        self.violations = self.violations.saturating_add(fault.is_violation().into());
        Ungranted {
            call,
            fault,
            violations: self.violations,
        }
    }

    /// Closes the question of a call that its client has cancelled.
    pub(crate) fn cancel(&mut self, call: CallId) -> ApprovalEvent {
        self.end(call, Decision::Cancelled)
    }

    /// Closes the question of a call that will not run.
    fn end(&mut self, call: CallId, decision: Decision) -> ApprovalEvent {
        let open = self.questions.remove(&call);
        self.send_all(&ToApprover::Ended { call, decision });
        if let Some(outgoing) = open.and_then(|open| open.outgoing) {
            match decision {
                Decision::Refused | Decision::Expired => {
                    self.program_requests.refuse(call, outgoing.rule)
                }
                Decision::Granted(_) | Decision::Cancelled => {}
            }
            return ApprovalEvent::Answered(Answered {
                call,
                question: outgoing.question,
                decision,
                kept: outgoing.kept,
            });
        }
        let (kind, message) = match decision {
            Decision::Expired => {
                let timeout_s = self.timeout.as_secs();
                let message =
                    format!("nobody has allowed the call within {timeout_s} s; it was not started");
                (ErrorKind::ApprovalTimeout, message)
            }
            Decision::Refused => (
                ErrorKind::DeniedUser,
                "the user has not allowed the call".to_owned(),
            ),
            Decision::Cancelled | Decision::Granted(_) => (
                ErrorKind::Cancelled,
                "the client ended the call before it was allowed".to_owned(),
            ),
        };
        ApprovalEvent::Ended(call, failed(kind, message))
    }

    /// When the next question expires.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.questions.values().map(|open| open.deadline).min()
    }

    /// Ends the questions that have expired.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<ApprovalEvent> {
        let late = self
            .questions
            .iter()
            .filter(|(_, open)| open.deadline <= now);
        let late: Vec<CallId> = late.map(|(call, _)| *call).collect();
        late.into_iter()
            .map(|call| self.end(call, Decision::Expired))
            .collect()
    }

    fn send_all(&mut self, message: &ToApprover) {
        if let Some(approvers) = &mut self.approvers {
            approvers.send_all(message);
        }
    }
}

impl OpenQuestion {
    fn message(&self, call: CallId) -> ToApprover {
        ToApprover::Asked {
            call,
            challenge: self.challenge.clone(),
            tool: self.tool.clone(),
        }
    }
}

fn nonce() -> io::Result<Nonce> {
    random::bytes().map(Nonce)
}

#[cfg(test)]
mod tests;
