//! Calls that the policy asks about: they wait here, and are started or ended by their answer.

use super::super::approval::Asked;
use super::super::files::Errand;
use super::super::record;
use super::super::send;
use super::{Call, Session, Work, failed};
use crate::broker::connection::Connection;
use broker_protocol::{
    CallId, Channel, Decision, ErrorKind, Extent, Failed, FileRead, FromApprover, FromBroker, Grant, Outcome,
    Request, ToApprover, Ungranted, Usage,
};
use policies::Question;
use std::time::Instant;

impl Session {
    /// Asks about a call, unless a grant that lasts answers the question.
    pub(super) fn ask_about(
        &mut self,
        call: CallId,
        request: Request,
        mut filed: record::Asked,
        question: Question,
        started: Instant,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        filed.ask(question.rule.clone());
        if self.approvals.covers(&question, &request, &self.walls) {
            filed.grant(Extent::Session);
            return self.begin(call, request, filed, started, connection);
        }
        let tool = request.asked_as().to_owned();
        let challenge = match self.approvals.ask(call, request, question, &self.walls) {
            Ok(challenge) => challenge,
            Err(why) => {
                return self.send_done(call, &filed, Outcome::Failed(why), Usage::default(), connection);
            }
        };
        self.calls.insert(call, Call { started, work: Work::Asked, siege: None, filed });
        let asked = ToApprover::Asked { call, challenge: challenge.clone(), tool };
        self.tell_approvers(&asked);
        send(connection, &FromBroker::Asked { call, challenge })
    }

    /// Takes a yes from the client.
    pub fn grant(&mut self, grant: &Grant, connection: &mut Connection) -> Result<(), Failed> {
        let taken = self.take_grant(grant, Channel::Relay, connection)?;
        taken.map_or_else(|not| send(connection, &FromBroker::Ungranted(not)), Ok)
    }

    /// Takes a no from the client.
    pub fn refuse_asked(&mut self, call: CallId, connection: &mut Connection) -> Result<(), Failed> {
        match self.approvals.refuse(call, None, Channel::Relay) {
            Ok(()) => self.end_asked(call, Decision::Refused, connection),
            Err(not) => send(connection, &FromBroker::Ungranted(not)),
        }
    }

    /// Lists the grants that last, after taking back one of them.
    pub fn grants(&mut self, revoke: Option<u64>, connection: &mut Connection) -> Result<(), Failed> {
        revoke.into_iter().for_each(|grant| self.approvals.revoke(grant));
        send(connection, &FromBroker::Grants(self.approvals.standing().to_vec()))
    }

    fn take_grant(
        &mut self,
        grant: &Grant,
        from: Channel,
        connection: &mut Connection,
    ) -> Result<Result<(), Ungranted>, Failed> {
        let asked = match self.approvals.grant(grant, from) {
            Ok(asked) => asked,
            Err(not) => return Ok(Err(not)),
        };
        let decision = Decision::Granted(grant.extent);
        self.tell_approvers(&ToApprover::Ended { call: grant.call, decision });
        self.resume(grant, asked, connection).map(Ok)
    }

    /// Starts a call that was granted: the request that was asked about, as it was kept.
    fn resume(&mut self, grant: &Grant, asked: Asked, connection: &mut Connection) -> Result<(), Failed> {
        let call = grant.call;
        let Some(mut entry) = self.calls.remove(&call) else { return Ok(()) };
        entry.filed.grant(grant.extent);
        self.begin(call, asked.request, entry.filed, entry.started, connection)?;
        if !asked.input.is_empty() {
            self.give(call, &asked.input);
        }
        if asked.input_ended { self.input_end(call, connection) } else { self.feed(call, connection) }
    }

    /// Ends calls that nobody has answered in time.
    pub(super) fn expire(&mut self, now: Instant, connection: &mut Connection) -> Result<(), Failed> {
        while let Some(call) = self.approvals.expired(now) {
            self.end_asked(call, Decision::Expired, connection)?;
        }
        Ok(())
    }

    /// Ends a call that has waited, and will not run.
    pub(super) fn end_asked(
        &mut self,
        call: CallId,
        decision: Decision,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        self.tell_approvers(&ToApprover::Ended { call, decision });
        let outcome = match decision {
            Decision::Expired => {
                let message = format!(
                    "nobody has allowed the call within {} s; it was not started",
                    self.approvals.timeout_s()
                );
                failed(ErrorKind::ApprovalTimeout, message)
            }
            Decision::Refused => failed(ErrorKind::DeniedUser, "the user has not allowed the call".into()),
            Decision::Cancelled | Decision::Granted(_) => {
                failed(ErrorKind::Cancelled, "the client ended the call before it was allowed".into())
            }
        };
        self.done(call, outcome, Usage::default(), connection)
    }

    fn tell_approvers(&mut self, message: &ToApprover) {
        if let Some(approvers) = &mut self.approvers {
            approvers.send_all(message);
        }
    }

    fn tell_approver(&mut self, number: u64, message: &ToApprover) {
        if let Some(approvers) = &mut self.approvers {
            approvers.send(number, message);
        }
    }

    /// Hears an approver.
    pub(super) fn hear_approver(&mut self, number: u64, connection: &mut Connection) -> Result<(), Failed> {
        let frames = self.approvers.as_mut().map(|approvers| approvers.hear(number)).unwrap_or_default();
        frames.into_iter().try_for_each(|frame| self.take_from_approver(number, frame, connection))
    }

    /// Every frame of an approver, and who answers it.
    fn take_from_approver(
        &mut self,
        number: u64,
        frame: FromApprover,
        connection: &mut Connection,
    ) -> Result<(), Failed> {
        match frame {
            FromApprover::Hello(_) => self.show_waiting(number),
            FromApprover::Look { call } => return self.look(number, call),
            FromApprover::Grant(grant) => {
                if let Err(not) = self.take_grant(&grant, Channel::Separate, connection)? {
                    self.tell_approver(number, &ToApprover::Ungranted(not));
                }
            }
            FromApprover::Refuse { call, nonce } => {
                match self.approvals.refuse(call, Some(nonce), Channel::Separate) {
                    Ok(()) => return self.end_asked(call, Decision::Refused, connection),
                    Err(not) => self.tell_approver(number, &ToApprover::Ungranted(not)),
                }
            }
            FromApprover::Grants => self.show_standing(number),
            FromApprover::Revoke { grant } => {
                self.approvals.revoke(grant);
                self.show_standing(number);
            }
        }
        Ok(())
    }

    fn show_waiting(&mut self, number: u64) {
        let asked = |(call, challenge, tool): (_, &broker_protocol::Challenge, &str)| ToApprover::Asked {
            call,
            challenge: challenge.clone(),
            tool: tool.to_owned(),
        };
        let waiting: Vec<ToApprover> = self.approvals.waiting().map(asked).collect();
        waiting.iter().for_each(|message| self.tell_approver(number, message));
    }

    fn show_standing(&mut self, number: u64) {
        let standing = self.approvals.standing().to_vec();
        self.tell_approver(number, &ToApprover::Grants(standing));
    }

    /// Shows an approver a whole call, and the file it would change as it is now. The file worker reads that, as it would
    /// for a `file_read`; what it answers is passed on unread.
    fn look(&mut self, number: u64, call: CallId) -> Result<(), Failed> {
        if !self.approvers.as_mut().is_some_and(|approvers| approvers.begin_look(number, call)) {
            return Ok(());
        }
        let Some(request) = self.approvals.get(call).map(|asked| asked.request.clone()) else {
            self.seen(number, call);
            return Ok(());
        };
        let path = match &request {
            Request::FileWrite(write) => Some(write.path.clone()),
            Request::FileEdit(edit) => Some(edit.path.clone()),
            _ => None,
        };
        self.tell_approver(number, &ToApprover::Request { call, request });
        let Some(path) = path else {
            self.seen(number, call);
            return Ok(());
        };
        let read = Request::FileRead(FileRead { path, offset: None, limit: None });
        self.send_to_worker(Errand::Look { approver: number, call }, &read)
    }

    /// Passes a piece of a file on to the approver that looks at it.
    pub(super) fn show_before(&mut self, approver: u64, call: CallId, bytes: Vec<u8>) {
        self.tell_approver(approver, &ToApprover::Before { call, bytes });
    }

    /// An approver has all there is to see of a call.
    pub(super) fn seen(&mut self, approver: u64, call: CallId) {
        if let Some(approvers) = &mut self.approvers {
            approvers.end_look(approver, call);
        }
    }
}
