//! What a session waits for, and what it does when that happens.

use super::Session;
use crate::approvals::ApprovalEvent;
use crate::call::Call;
use crate::poll::{ClientQueue, Token, Waited};
use broker_protocol::{CallId, Failed, Grant, Usage, limit};
use executor_peers::Gateway;
use std::time::Instant;

impl Session {
    /// Handles one ready descriptor. Reads at most `room` bytes of live output for the client.
    pub(crate) fn ready(&mut self, token: Token, room: usize) -> Result<(), Failed> {
        match token {
            // A check goes on when frames are collected, as after each event.
            Token::End | Token::Client | Token::Question => Ok(()),
            Token::Warden => self.pool.receive(),
            Token::Worker => {
                self.files.receive(&mut self.buffer);
                Ok(())
            }
            Token::Gateway => self.hear_gateway(),
            Token::Lease(id) => self.go_on_approved(id),
            Token::Credential(credential) => {
                let value = self.credentials.held.ready(credential);
                value.into_iter().for_each(|value| self.deliver(value));
                Ok(())
            }
            Token::Input(id) => {
                self.calls.entry(id).and_modify(Call::feed);
                Ok(())
            }
            Token::Report(id) | Token::Output(id) => {
                self.read_output(id, room);
                Ok(())
            }
            Token::Background(id) => {
                self.buffer.resize(limit::CHUNK, 0);
                self.background.read_output(id, &mut self.buffer);
                Ok(())
            }
            Token::Approvers => {
                self.approvals.admit();
                Ok(())
            }
            Token::Approver(number) => {
                if !self.audit.try_lock()? {
                    return Ok(());
                }
                let events = self.approvals.receive(number);
                events
                    .into_iter()
                    .try_for_each(|event| self.take_approval(event))
            }
        }
    }

    /// Handles the result of an approval question.
    /// Takes an answer to a question from the client.
    pub(crate) fn grant(&mut self, grant: &Grant) -> Result<(), Failed> {
        let event = self.approvals.grant(grant);
        self.take_approval(event)
    }

    /// Takes a refusal from the client.
    pub(crate) fn refuse(&mut self, call: CallId) -> Result<(), Failed> {
        let event = self.approvals.refuse(call);
        self.take_approval(event)
    }

    /// Lists the standing grants, without the one that is to end, if one is named.
    pub(crate) fn grants(&mut self, ended: Option<u64>) -> Result<(), Failed> {
        let event = self.approvals.grants(ended);
        self.take_approval(event)
    }

    pub(super) fn take_approval(&mut self, event: ApprovalEvent) -> Result<(), Failed> {
        match event {
            ApprovalEvent::Granted(id, approval) => {
                let Some(mut call) = self.calls.remove(&id) else {
                    return Ok(());
                };
                // The stored request is what runs, not one that comes with the answer.
                match call.take_asked() {
                    Some(request) => self.begin(call, request, Some(approval)),
                    None => Err(Failed::internal(format!(
                        "the call {id} was not asked about"
                    ))),
                }
            }
            ApprovalEvent::Ended(id, outcome) => {
                self.calls
                    .entry(id)
                    .and_modify(|call| call.end(outcome, Usage::default()));
                Ok(())
            }
            ApprovalEvent::Preview { approver, call } => {
                let asked = self.calls.get(&call).and_then(Call::asked);
                let asked = asked.or_else(|| self.approvals.outgoing(call)).cloned();
                if let Some(request) = &asked {
                    self.approvals.send_request(approver, call, request);
                }
                self.preview(Some(approver), call, None)
            }
            ApprovalEvent::Answered(answered) => self.answer_request(&answered),
            ApprovalEvent::Reply(frame) => {
                self.outbox.push(frame);
                Ok(())
            }
        }
    }

    /// Adds every descriptor that this session waits for. Output is not read, and so cells block, while the client's queue is full. While
    /// another broker holds the audit, nothing is read of which there would be a record.
    pub(crate) fn wait_for<'s>(&'s self, waited: &mut Waited<'s>, client: ClientQueue) {
        let records = !self.audit.awaits_lock();
        waited.add_input(Token::Warden, self.pool.fd());
        self.files
            .wait_for(waited, if records { client } else { ClientQueue::Full });
        self.background.wait_for(waited);
        if let Some((socket, flags)) = self
            .gateway
            .as_ref()
            .and_then(|gateway| match client {
                ClientQueue::HasRoom => gateway.waits_for(),
                ClientQueue::Full => gateway.waits_to_send(),
            })
            .filter(|_| records)
        {
            waited.add(Token::Gateway, socket, flags);
        }
        for (credential, fd) in self.credentials.held.running() {
            waited.add_input(Token::Credential(credential), fd);
        }
        if let Some((socket, flags)) = self.checks.waits_for() {
            waited.add(Token::Question, socket, flags);
        }
        if records {
            self.approvals.wait_for(waited);
        }
        self.calls
            .values()
            .for_each(|call| call.wait_for(waited, client));
    }

    /// Whether so much is queued for the file worker that no more should be taken from the client.
    pub(crate) fn is_full(&self) -> bool {
        self.files.is_full()
    }

    /// When the next timeout of the session is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let calls = self.calls.values().filter_map(Call::deadline);
        let others = [
            self.pool.deadline(),
            self.files.deadline(),
            self.background.deadline(),
            self.approvals.deadline(),
            self.approvals.leases.deadline(),
            self.audit.deadline(),
            self.gateway.as_ref().and_then(Gateway::deadline),
            self.credentials.held.deadline(),
            self.repeats.deadline(),
            self.checks.deadline(),
        ];
        calls.chain(others.into_iter().flatten()).min()
    }

    /// Handles the timeouts that are due.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<(), Failed> {
        if self.audit.awaits_lock() {
            self.audit.try_lock()?;
        }
        self.calls
            .values_mut()
            .filter_map(Call::command_mut)
            .for_each(|command| command.tick(now));
        self.background.tick(now);
        self.files.tick(now);
        self.tick_gateway(now)?;
        self.tick_leases(now)?;
        let events = self.approvals.expire(now);
        events
            .into_iter()
            .try_for_each(|event| self.take_approval(event))?;
        self.approvals.flush();
        self.audit.tick(now)?;
        self.pool.tick(now)
    }
}
