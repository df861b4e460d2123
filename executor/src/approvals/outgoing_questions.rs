//! Questions about requests that the programs of running calls make.

use super::{ApprovalEvent, Approvals, OpenQuestion, nonce};
use broker_protocol::gateway::RequestAnswer;
use broker_protocol::{CallId, Challenge, Decision, Digest, Request, Risk, Wants};
use executor_peers::outgoing::{self, Answered, KeptGrants, OutgoingRequest, ProgramQuestion};
use std::time::Instant;

impl Approvals {
    /// Asks what a program of a running call wants.
    ///
    /// # Errors
    /// The answer, if there is one already.
    pub(crate) fn ask_outgoing(
        &mut self,
        question: &ProgramQuestion,
        policy: Digest,
    ) -> Result<Challenge, RequestAnswer> {
        let asked = OutgoingRequest::new(question);
        if self.has_session_grant(&question.name, outgoing::TOOL, &[], Some(asked.scope)) {
            return Err(RequestAnswer::Granted);
        }
        if let Some(kept) = asked.kept
            && self.kept_grants.has(kept, Instant::now())
        {
            return Err(RequestAnswer::Kept);
        }
        // A client knows questions by their calls.
        if self.questions.contains_key(&question.call) {
            return Err(RequestAnswer::TooMany);
        }
        if !self.program_requests.may_ask(question.call, question.rule) {
            return Err(RequestAnswer::TooMany);
        }
        let challenge = Challenge {
            digest: question.digest((&self.session.0, policy)),
            covers: asked.covers,
            programs: Vec::new(),
            nonce: nonce().map_err(|_| RequestAnswer::TooMany)?,
            rule: question.name.clone(),
            why: question.about.clone(),
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
        self.send_all(&open.message(question.call));
        self.questions.insert(question.call, open);
        Ok(challenge)
    }

    /// Keeps the grant of an answer, if it is kept, until a request uses it.
    pub(crate) fn keep_grant(&mut self, answered: &Answered) {
        if let Some(kept) = answered.grant_to_keep() {
            let question = (answered.call, answered.question);
            self.kept_grants.add(kept, question, Instant::now());
        }
    }

    /// Uses up the grant that is kept for a request; returns the question by which it was given.
    pub(crate) fn claim(&mut self, request: &ProgramQuestion) -> Option<(CallId, u32)> {
        self.kept_grants.take(request.kept()?, Instant::now())
    }

    /// The view for approvers of a request of this call's program, if a question about one is open.
    pub(crate) fn outgoing(&self, call: CallId) -> Option<&Request> {
        let outgoing = self.questions.get(&call)?.outgoing.as_ref()?;
        Some(&outgoing.shown)
    }

    /// Ends what a call has asked about its programs' requests: it is over.
    pub(crate) fn end_outgoing(&mut self, call: CallId) -> Option<ApprovalEvent> {
        let is_open = self.outgoing(call).is_some();
        let ended = is_open.then(|| self.end(call, Decision::Cancelled));
        self.program_requests.end(call);
        ended
    }

    /// Ends all questions about requests, and grants that none has used: the gateway that held them is gone.
    pub(crate) fn forget_outgoing(&mut self) -> Vec<ApprovalEvent> {
        self.kept_grants = KeptGrants::default();
        let open = self
            .questions
            .iter()
            .filter(|(_, open)| open.outgoing.is_some());
        let calls: Vec<CallId> = open.map(|(call, _)| *call).collect();
        let ended = calls
            .into_iter()
            .map(|call| self.end(call, Decision::Cancelled));
        ended.collect()
    }
}
