//! Approval: which calls wait for an answer, which answers are accepted, and which grants last for the session.
//!
//! A verdict of ask begins an approval; its result goes to the session, which starts what was granted and ends what was
//! not. The client is not trusted: an answer counts only with the digest of the waiting call, which is the one that
//! will run, and with the nonce of its one question; and with the channel `separate`, only from an approver
//! ([`Approvers`]). What runs is the request stored with its call, never one that came with the answer.

use crate::approvers::Approvers;
use crate::fault::failed;
use crate::poll::{Token, Waited};
use broker_protocol::approval::{ASKED_BYTES, STANDING};
use broker_protocol::gateway::{HeldRequest, RequestAnswer, RequestRule};
use broker_protocol::{
    CallId, Challenge, Channel, Coverage, Decision, Digest, ErrorKind, Extent, Failed,
    FromApprover, FromBroker, Grant, GrantFault, Lease, Nonce, Outcome, Request, Risk,
    SessionGrant, Stdin, ToApprover, Ungranted, Wants, ZonePath, content, frame, limit,
};
use executor_leases::{LeasedPath, Leases, Missing};
use executor_peers::outgoing::{self, Answered, AskedByCalls, OutgoingRequest};
use executor_spec::sandbox::SandboxSpec;
use executor_sys::random;
use policies::Question;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// Maximum number of paths held open for the questions of one session.
const ASKED_PATHS: usize = 4 * limit::WANTED_PATHS;

/// The approvals of a session.
#[derive(Debug)]
pub struct Approvals {
    channel: Channel,
    timeout: Duration,
    /// The nonce of this session, part of every digest.
    session: Nonce,
    /// The questions that wait, by call.
    open: BTreeMap<CallId, OpenQuestion>,
    /// The questions about requests of their programs that calls have asked.
    asked: AskedByCalls,
    standing: Vec<SessionGrant>,
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

#[derive(Debug)]
pub struct Approval {
    /// The rule that asked.
    pub rule: String,
    pub extent: Extent,
    /// The call for which it was given.
    pub digest: Digest,
    /// The hosts and paths that it grants besides.
    pub missing: Missing,
}

/// A result of questions and answers, for the session.
#[derive(Debug)]
pub enum ApprovalEvent {
    /// The call may run.
    Granted(CallId, Approval),
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
    pub fn new(
        policy: &policies::Approval,
        answer_s: Option<u32>,
        approvers: Option<Approvers>,
    ) -> io::Result<Self> {
        let requested = answer_s.unwrap_or(limit::ANSWER_S).min(limit::ANSWER_MAX_S);
        Ok(Self {
            channel: policy.channel,
            timeout: Duration::from_secs(policy.timeout_s.unwrap_or(requested).into()),
            session: nonce()?,
            open: BTreeMap::new(),
            asked: AskedByCalls::default(),
            standing: Vec::new(),
            leases: Leases::default(),
            last: 0,
            violations: 0,
            approvers,
        })
    }

    /// Whether a grant for the session covers `request`, about which `question` would be asked. Counts this use of the grant.
    pub fn covers(
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
            | (Coverage::Once | Coverage::Wants | Coverage::Request, _) => return false,
        };
        self.has_standing(&question.rule, request.asked_as(), &programs, only)
    }

    /// Whether there is a grant for the calls of `tool` under `rule` that name only these programs, or for `only` this one.
    fn has_standing(
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
        let found = self.standing.iter_mut().find(same);
        found.map(|standing| standing.calls += 1).is_some()
    }

    /// Creates the question for a call.
    ///
    /// # Errors
    /// Too many questions are pending, or our own machinery failed.
    pub fn ask(
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
            .open
            .values()
            .map(|open| open.paths.len())
            .sum::<usize>()
            + missing.paths.len();
        let bytes = self.open.values().map(|open| open.cost).sum::<usize>() + cost;
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
        self.open.insert(call, open);
        Ok(challenge)
    }

    /// Creates the question about a request of a running call's program.
    ///
    /// # Errors
    /// The answer, if there is one already.
    pub fn ask_outgoing(
        &mut self,
        request: &HeldRequest,
        rule: &RequestRule,
        policy: Digest,
    ) -> Result<Challenge, RequestAnswer> {
        let asked = OutgoingRequest::new(request, rule);
        if self.has_standing(&rule.name, outgoing::TOOL, &[], Some(asked.scope)) {
            return Err(RequestAnswer::Granted);
        }
        // A client knows questions by their calls.
        if self.open.contains_key(&request.call) {
            return Err(RequestAnswer::TooMany);
        }
        if !self.asked.may_ask(request.call, request.rule) {
            return Err(RequestAnswer::TooMany);
        }
        let challenge = Challenge {
            digest: outgoing::digest(request, rule, (&self.session.0, policy)),
            covers: Coverage::Request,
            programs: Vec::new(),
            nonce: nonce().map_err(|_| RequestAnswer::TooMany)?,
            rule: rule.name.clone(),
            why: outgoing::described(request, rule),
            risk: Risk::High,
            expires_s: u32::try_from(self.timeout.as_secs()).unwrap_or(u32::MAX),
            channel: self.channel,
            wants: Wants::default(),
        };
        let open = OpenQuestion {
            challenge: challenge.clone(),
            tool: outgoing::TOOL.to_owned(),
            deadline: Instant::now() + self.timeout,
            cost: 0,
            paths: Vec::new(),
            outgoing: Some(asked),
        };
        self.send_all(&open.message(request.call));
        self.open.insert(request.call, open);
        Ok(challenge)
    }

    /// The view for approvers of a request of this call's program, if a question about one is open.
    pub fn outgoing(&self, call: CallId) -> Option<&Request> {
        let outgoing = self.open.get(&call)?.outgoing.as_ref()?;
        Some(&outgoing.shown)
    }

    /// Ends what a call has asked about its programs' requests: it is over.
    pub fn end_outgoing(&mut self, call: CallId) -> Option<ApprovalEvent> {
        let is_open = self.outgoing(call).is_some();
        let ended = is_open.then(|| self.end(call, Decision::Cancelled));
        self.asked.end(call);
        ended
    }

    /// Ends all questions about requests: the gateway that held them is gone.
    pub fn forget_outgoing(&mut self) -> Vec<ApprovalEvent> {
        let open = self.open.iter().filter(|(_, open)| open.outgoing.is_some());
        let calls: Vec<CallId> = open.map(|(call, _)| *call).collect();
        let ended = calls
            .into_iter()
            .map(|call| self.end(call, Decision::Cancelled));
        ended.collect()
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
        let wanted = wants
            .iter()
            .flat_map(|opens| <[&str; 2]>::from(opens.parts()))
            .map(str::as_bytes);
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
    pub fn grant(&mut self, grant: &Grant) -> ApprovalEvent {
        self.take_grant(grant, Channel::Relay)
            .unwrap_or_else(|not| ApprovalEvent::Reply(FromBroker::Ungranted(not)))
    }

    /// Handles a no from the client, which names its own call by number alone.
    pub fn refuse(&mut self, call: CallId) -> ApprovalEvent {
        let nonce = self
            .open
            .get(&call)
            .map_or(self.session, |open| open.challenge.nonce);
        let refused = self.take_refusal(call, nonce, Channel::Relay);
        refused.unwrap_or_else(|not| ApprovalEvent::Reply(FromBroker::Ungranted(not)))
    }

    /// Revokes a grant for the session, and lists the others. Calls that run under it continue; an unknown number is ignored.
    pub fn grants(&mut self, revoked: Option<u64>) -> ApprovalEvent {
        ApprovalEvent::Reply(FromBroker::Grants(self.list(revoked)))
    }

    /// The grants and then the leases of the session, without `revoked`.
    fn list(&mut self, revoked: Option<u64>) -> Vec<SessionGrant> {
        self.standing
            .retain(|standing| Some(standing.grant) != revoked);
        revoked
            .into_iter()
            .for_each(|number| self.leases.revoke(number));
        self.standing
            .iter()
            .cloned()
            .chain(self.leases.listed())
            .collect()
    }

    /// Prepares the leases that `approval` of `call` grants. They begin later, once they are recorded.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn new_leases(&mut self, call: CallId, approval: &Approval) -> io::Result<Vec<Lease>> {
        let leases = Leases::of(
            &approval.missing.wants,
            approval.extent,
            call,
            self.last + 1,
            nonce()?,
        );
        self.last += leases.len() as u64;
        Ok(leases)
    }

    /// Handles a yes that came over `from`. If it is not accepted, the question stays open.
    fn take_grant(&mut self, grant: &Grant, from: Channel) -> Result<ApprovalEvent, Ungranted> {
        self.may_grant(grant, from)
            .map_err(|fault| self.ungranted(grant.call, fault))?;
        let open = self.open.remove(&grant.call);
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
            | (Extent::Session, Coverage::Once | Coverage::Request) => (Extent::Once, None),
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
            self.standing.push(standing);
        }
        self.send_all(&ToApprover::Ended {
            call: grant.call,
            decision: Decision::Granted(extent),
        });
        Ok(ApprovalEvent::Granted(
            grant.call,
            Approval {
                rule,
                extent,
                digest,
                missing: Missing { wants, paths },
            },
        ))
    }

    /// Grants a request of a call's program: once, or for the session those that change the same objects.
    fn grant_outgoing(&mut self, grant: &Grant, granted: OutgoingRequest) -> ApprovalEvent {
        let extent = match grant.extent {
            Extent::Once | Extent::Minutes(_) => Extent::Once,
            Extent::Session => Extent::Session,
        };
        if extent == Extent::Session {
            self.last += 1;
            self.standing.push(SessionGrant {
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
            Extent::Session if self.standing.len() >= STANDING => match open.challenge.covers {
                Coverage::Rule | Coverage::Call | Coverage::Request => Err(GrantFault::TooMany),
                Coverage::Once | Coverage::Wants => Ok(()),
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
            .open
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
    pub fn cancel(&mut self, call: CallId) -> ApprovalEvent {
        self.end(call, Decision::Cancelled)
    }

    /// Closes the question of a call that will not run.
    fn end(&mut self, call: CallId, decision: Decision) -> ApprovalEvent {
        let open = self.open.remove(&call);
        self.send_all(&ToApprover::Ended { call, decision });
        if let Some(outgoing) = open.and_then(|open| open.outgoing) {
            match decision {
                Decision::Refused | Decision::Expired => self.asked.refuse(call, outgoing.rule),
                Decision::Granted(_) | Decision::Cancelled => {}
            }
            return ApprovalEvent::Answered(Answered {
                call,
                question: outgoing.question,
                decision,
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
    pub fn deadline(&self) -> Option<Instant> {
        self.open.values().map(|open| open.deadline).min()
    }

    /// Ends the questions that have expired.
    pub fn expire(&mut self, now: Instant) -> Vec<ApprovalEvent> {
        let late = self.open.iter().filter(|(_, open)| open.deadline <= now);
        let late: Vec<CallId> = late.map(|(call, _)| *call).collect();
        late.into_iter()
            .map(|call| self.end(call, Decision::Expired))
            .collect()
    }

    /// Adds every descriptor that the approvers wait for.
    pub fn wait_for<'s>(&'s self, waited: &mut Waited<'s>) {
        if let Some(approvers) = &self.approvers {
            waited.add_input(Token::Approvers, approvers.fd());
            approvers
                .fds()
                .for_each(|(number, fd, flags)| waited.add(Token::Approver(number), fd, flags));
        }
    }

    /// Accepts new connections of approvers.
    pub fn admit(&mut self) {
        self.approvers.iter_mut().for_each(Approvers::admit);
    }

    /// Writes as much as the approvers' sockets accept now.
    pub fn flush(&mut self) {
        self.approvers.iter_mut().for_each(Approvers::flush);
    }

    /// Handles the frames that an approver has sent.
    pub fn receive(&mut self, number: u64) -> Vec<ApprovalEvent> {
        let frames = self
            .approvers
            .as_mut()
            .map(|approvers| approvers.receive(number))
            .unwrap_or_default();
        frames
            .into_iter()
            .filter_map(|frame| self.take(number, frame))
            .collect()
    }

    /// Lists every frame of an approver, and what handles it.
    fn take(&mut self, number: u64, frame: FromApprover) -> Option<ApprovalEvent> {
        let taken = match frame {
            FromApprover::Look { call } => {
                let begun = self
                    .approvers
                    .as_mut()
                    .is_some_and(|all| all.begin_preview(number, call));
                return begun.then_some(ApprovalEvent::Preview {
                    approver: number,
                    call,
                });
            }
            FromApprover::Grant(grant) => self.take_grant(&grant, Channel::Separate),
            FromApprover::Refuse { call, nonce } => {
                self.take_refusal(call, nonce, Channel::Separate)
            }
            FromApprover::Hello(_) => {
                let open: Vec<_> = self
                    .open
                    .iter()
                    .map(|(call, open)| open.message(*call))
                    .collect();
                open.iter().for_each(|message| self.send(number, message));
                return None;
            }
            FromApprover::Grants => return self.send_standing(number, None),
            FromApprover::Revoke { grant } => return self.send_standing(number, Some(grant)),
        };
        taken
            .map_err(|not| self.send(number, &ToApprover::Ungranted(not)))
            .ok()
    }

    fn send_standing(&mut self, number: u64, revoked: Option<u64>) -> Option<ApprovalEvent> {
        let standing = self.list(revoked);
        self.send(number, &ToApprover::Grants(standing));
        None
    }

    /// Sends an approver a whole request; content that does not fit in a frame goes before it.
    pub fn send_request(&mut self, number: u64, call: CallId, request: &Request) {
        let mut request = request.clone();
        // A request that waits has been checked.
        let pieces = content::split(&mut request).unwrap_or_default();
        for bytes in pieces {
            self.send(number, &ToApprover::Content { call, bytes });
        }
        self.send(number, &ToApprover::Request { call, request });
    }

    /// Forwards a piece of the file that a call would change. It is not parsed.
    pub fn preview_part(&mut self, number: u64, call: CallId, bytes: Vec<u8>) {
        self.send(number, &ToApprover::Before { call, bytes });
    }

    /// The preview of a call is complete.
    pub fn end_preview(&mut self, number: u64, call: CallId) {
        if let Some(approvers) = &mut self.approvers {
            approvers.end_preview(number, call);
        }
    }

    fn send(&mut self, number: u64, message: &ToApprover) {
        if let Some(approvers) = &mut self.approvers {
            approvers.send(number, message);
        }
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

/// The file whose content before and after shows the effect of a call.
pub fn changed_file(request: &Request) -> Option<&ZonePath> {
    match request {
        Request::FileWrite(write) => Some(&write.path),
        Request::FileEdit(edit) => Some(&edit.path),
        Request::Bash(_)
        | Request::Service(_)
        | Request::FileRead(_)
        | Request::FileList(_)
        | Request::Glob(_)
        | Request::Grep(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::BackgroundKill(_)
        | Request::History(_)
        | Request::Undo(_)
        | Request::FileBytes(_)
        | Request::State(_)
        | Request::Effect(_) => None,
    }
}

/// What a grant for the session would allow if it answers `question` about `request`, and for which programs.
fn coverage(question: &Question, request: &Request, wants: &Wants) -> (Coverage, Vec<String>) {
    if !wants.is_empty() {
        return (Coverage::Wants, Vec::new());
    }
    match (takes_input(request), question.whole) {
        (true, _) => (Coverage::Once, Vec::new()),
        (false, true) => match named_programs(request) {
            Some(programs) => (Coverage::Rule, programs),
            None => (Coverage::Call, Vec::new()),
        },
        (false, false) => (Coverage::Call, Vec::new()),
    }
}

/// The programs that a command names, if that is certain; none for other calls, and for a test suite, which is known by its command.
fn named_programs(request: &Request) -> Option<Vec<String>> {
    match request.command() {
        Some(bash) if request.asked_as() == "bash" => policies::command::programs(&bash.command),
        Some(_) | None => Some(Vec::new()),
    }
}

/// The working directory in a request that runs a program.
fn working_directory(request: &Request) -> Option<Option<&ZonePath>> {
    match request {
        Request::Service(service) => Some(service.directory.as_ref()),
        request => request.command().map(|bash| bash.directory.as_ref()),
    }
}

/// Whether the client sends input while the request runs.
fn takes_input(request: &Request) -> bool {
    let feeds = |stdin: &Stdin| match stdin {
        Stdin::Null => false,
        Stdin::Stream | Stdin::Terminal(_) => true,
    };
    matches!(request, Request::Service(_))
        || request.command().is_some_and(|bash| feeds(&bash.stdin))
}

/// Bytes that a call may hold: its request, and the input that its client may send at once.
fn cost(request: &Request, encoded: usize) -> usize {
    encoded
        + if takes_input(request) {
            limit::INPUT_WINDOW as usize
        } else {
            0
        }
}

fn nonce() -> io::Result<Nonce> {
    random::bytes().map(Nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approvals(channel: Channel) -> Approvals {
        let policy = policies::Approval {
            timeout_s: Some(1),
            channel,
            ..policies::Approval::default()
        };
        Approvals::new(&policy, None, None).unwrap()
    }

    /// Asks a question outside any session.
    fn ask(approvals: &mut Approvals, call: CallId, rule: &str) -> Challenge {
        let challenge = Challenge {
            digest: Digest([call as u8; 32]),
            nonce: nonce().unwrap(),
            rule: rule.into(),
            why: String::new(),
            risk: Risk::Low,
            expires_s: 1,
            channel: approvals.channel,
            covers: Coverage::Rule,
            programs: Vec::new(),
            wants: Wants::default(),
        };
        let (deadline, tool) = (Instant::now() + approvals.timeout, "file_read".into());
        let open = OpenQuestion {
            challenge: challenge.clone(),
            tool,
            deadline,
            cost: 1,
            paths: vec![],
            outgoing: None,
        };
        approvals.open.insert(call, open);
        challenge
    }

    fn yes(call: CallId, challenge: &Challenge) -> Grant {
        Grant {
            call,
            digest: challenge.digest,
            nonce: challenge.nonce,
            extent: Extent::Once,
        }
    }

    #[test]
    fn an_answer_counts_by_its_channel_nonce_and_digest_and_once() {
        for channel in [Channel::Relay, Channel::Separate] {
            let other = if channel == Channel::Relay {
                Channel::Separate
            } else {
                Channel::Relay
            };
            let mut approvals = approvals(channel);
            let challenge = ask(&mut approvals, 1, "r");
            let honest = yes(1, &challenge);
            let fault = |approvals: &mut Approvals, grant: Grant, from| {
                approvals
                    .take_grant(&grant, from)
                    .map(drop)
                    .map_err(|not| not.fault)
            };
            assert_eq!(
                fault(&mut approvals, honest, other),
                Err(GrantFault::OtherChannel)
            );
            let forged = Grant {
                nonce: Nonce([0; 16]),
                ..honest
            };
            assert_eq!(
                fault(&mut approvals, forged, channel),
                Err(GrantFault::OtherQuestion)
            );
            let swapped = Grant {
                digest: Digest([9; 32]),
                ..honest
            };
            assert_eq!(
                fault(&mut approvals, swapped, channel),
                Err(GrantFault::OtherCall)
            );
            assert_eq!(approvals.violations, 3);
            assert_eq!(fault(&mut approvals, honest, channel), Ok(()));
            assert_eq!(
                fault(&mut approvals, honest, channel),
                Err(GrantFault::NotWaiting)
            );
        }
    }

    #[test]
    fn time_runs_out_before_the_poll_returns_too() {
        let mut approvals = approvals(Channel::Relay);
        let challenge = ask(&mut approvals, 1, "r");
        approvals.open.get_mut(&1).unwrap().deadline = Instant::now();
        let late = approvals
            .take_grant(&yes(1, &challenge), Channel::Relay)
            .map(drop);
        assert_eq!(late.map_err(|not| not.fault), Err(GrantFault::NotWaiting));
        let expired = approvals.expire(Instant::now());
        assert!(matches!(expired[..], [ApprovalEvent::Ended(1, _)]));
        assert!(approvals.expire(Instant::now()).is_empty() && approvals.deadline().is_none());
    }

    #[test]
    fn a_lasting_grant_answers_its_rule_for_its_tool() {
        let mut approvals = approvals(Channel::Relay);
        let challenge = ask(&mut approvals, 1, "r");
        let grant = Grant {
            extent: Extent::Session,
            ..yes(1, &challenge)
        };
        approvals
            .take_grant(&grant, Channel::Relay)
            .map(drop)
            .unwrap();
        assert!(approvals.has_standing("r", "file_read", &[], None));
        assert!(
            !approvals.has_standing("q", "file_read", &[], None)
                && !approvals.has_standing("r", "bash", &[], None)
        );
        assert!(!approvals.has_standing("r", "file_read", &[], Some(challenge.digest)));
        assert_eq!(approvals.standing[0].calls, 2);
        approvals.grants(Some(1));
        assert!(!approvals.has_standing("r", "file_read", &[], None));
    }

    #[test]
    fn a_lasting_grant_in_doubt_answers_its_very_call() {
        let mut approvals = approvals(Channel::Relay);
        let challenge = ask(&mut approvals, 1, "r");
        approvals.open.get_mut(&1).unwrap().challenge.covers = Coverage::Call;
        let grant = Grant {
            extent: Extent::Session,
            ..yes(1, &challenge)
        };
        approvals
            .take_grant(&grant, Channel::Relay)
            .map(drop)
            .unwrap();
        assert!(approvals.has_standing("r", "file_read", &[], Some(challenge.digest)));
        assert!(!approvals.has_standing("r", "file_read", &[], None));
        assert!(!approvals.has_standing("r", "file_read", &[], Some(Digest([9; 32]))));
    }
}
