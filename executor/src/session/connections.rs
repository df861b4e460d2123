//! What a session does with its gateway: connections of cells are recorded and reported, repeated refusals as a number.

use super::Session;
use crate::call::Call;
use broker_protocol::gateway::{
    ConnectionEnds, CredentialReport, HeldSignature, RequestAnswer, SignaturePurpose, SshSpec,
};
use broker_protocol::{CallId, ConnectionReport, Failed, FromBroker};
use executor_audit::record::Record;
use executor_credentials::Delivery;
use executor_peers::outgoing::{Answered, ProgramQuestion};
use executor_peers::{Gateway, GatewayEvent};
use policies::ssh::{LoginRule, SignRule};
use std::io;
use std::time::{Duration, Instant};

/// How long a first gateway may take to begin to serve.
const AUTHORITY: Duration = Duration::from_secs(10);

impl Session {
    /// Waits until the first gateway has said whose certificates it makes: cells start after it.
    pub(super) fn await_authority(&mut self) -> io::Result<()> {
        if !self.credentials.decrypts {
            return Ok(());
        }
        let until = Instant::now() + AUTHORITY;
        while !self.credentials.is_complete() {
            let Some(gateway) = &mut self.gateway else {
                return Ok(());
            };
            gateway.wait(until)?;
            let heard = self.hear_gateway();
            // Other brokers do not wait for the gateway.
            let heard = heard.and_then(|()| Ok(self.audit.unlock()?));
            heard.map_err(|failed| io::Error::other(failed.message))?;
        }
        Ok(())
    }

    /// Takes what the gateway has reported so far. While another broker holds the audit, connections wait in the gateway.
    pub(super) fn hear_gateway(&mut self) -> Result<(), Failed> {
        let Some(gateway) = &mut self.gateway else {
            return Ok(());
        };
        if !self.audit.try_lock()? {
            return Ok(());
        }
        let events = gateway.receive();
        self.report_lost()?;
        let now = Instant::now();
        for event in events {
            match event {
                GatewayEvent::Connected(report) => self.refused_or_connected(report)?,
                GatewayEvent::Disconnected(ends) => self.disconnected(&ends)?,
                GatewayEvent::Used(report) => {
                    self.used(&report)?;
                    let gateway = self.gateway.iter_mut();
                    gateway.for_each(Gateway::recorded);
                }
                GatewayEvent::Asked(question) => self.ask_about(&question)?,
                GatewayEvent::Claimed(request) => self.claim(&request)?,
                GatewayEvent::AgentWanted => {
                    let agent = self.credentials.ssh.connect();
                    if let Some(gateway) = &mut self.gateway {
                        gateway.deliver_agent(agent.map_err(|why| why.to_string()));
                    }
                }
                GatewayEvent::SignatureWanted(signature, keys) => {
                    self.decide_signature(&signature, &keys)?;
                }
                GatewayEvent::Authority(authority) => self
                    .credentials
                    .complete(&authority)
                    .map_err(|error| Failed::internal(error.to_string()))?,
                GatewayEvent::Wanted { credential } => {
                    let value = self.credentials.held.want(credential, now);
                    value.into_iter().for_each(|value| self.deliver(value));
                }
            }
        }
        Ok(())
    }

    /// Reports gateways that have ended; whether any has. Their successors have no values yet.
    fn report_lost(&mut self) -> Result<bool, Failed> {
        let found = self.gateway.as_mut().map(Gateway::take_found);
        let found = found.unwrap_or_default();
        let is_lost = !found.is_empty();
        self.found.extend(found);
        if is_lost {
            self.credentials.held.forget_starts();
            // The connections that waited for these answers are cut.
            let ended = self.approvals.forget_outgoing();
            ended
                .into_iter()
                .try_for_each(|event| self.take_approval(event))?;
        }
        Ok(is_lost)
    }

    /// Decides on a signature of the user's ssh agent by the policy, and records it before it is made.
    fn decide_signature(
        &mut self,
        signature: &HeldSignature,
        keys: &SshSpec,
    ) -> Result<(), Failed> {
        let of_policy = self.spec.policy.ssh.get(usize::from(signature.ssh));
        let Some(of_policy) = of_policy else {
            self.answer_gateway(signature.question, RequestAnswer::Refused);
            return Ok(());
        };
        let line = of_policy.origin.to_string();
        match (&signature.purpose, of_policy.login, of_policy.sign) {
            (SignaturePurpose::Login { .. }, LoginRule::Ask, _)
            | (SignaturePurpose::Git, _, Some(SignRule::Ask)) => {
                self.ask_about(&ProgramQuestion::of_signature(signature, keys, line))
            }
            (SignaturePurpose::Login { host, port }, LoginRule::Allow, _) => {
                let (host, call) = (self.audit.redacted(host), signature.call);
                let record = Record::ssh_login(call, &keys.name, (&host, *port));
                self.audit.append(&record)?;
                self.answer_gateway(signature.question, RequestAnswer::Granted);
                Ok(())
            }
            (SignaturePurpose::Git, _, None) => {
                self.answer_gateway(signature.question, RequestAnswer::Refused);
                Ok(())
            }
        }
    }

    /// Asks about what a running command's program wants. The program waits; nobody else does.
    fn ask_about(&mut self, request: &ProgramQuestion) -> Result<(), Failed> {
        if !self.is_waited_for(request.call) {
            self.answer_gateway(request.question, RequestAnswer::NoCall);
            return Ok(());
        }
        let policy = self.spec.policy.digest;
        let challenge = match self.approvals.ask_outgoing(request, policy) {
            Ok(challenge) => challenge,
            Err(answer) => {
                self.answer_gateway(request.question, answer);
                return Ok(());
            }
        };
        let about = self.audit.redacted(&challenge.why);
        let record = Record::request_asked((request.call, request.question), &request.name, &about);
        self.outbox.push(FromBroker::Asked {
            call: request.call,
            challenge,
        });
        Ok(self.audit.append(&record)?)
    }

    /// Whether a client waits for the end of this call's command. Whoever waits for a service has not asked for what it does now.
    fn is_waited_for(&self, call: CallId) -> bool {
        let command = self.calls.get(&call).and_then(Call::command);
        command.is_some_and(|command| !command.plan().service)
    }

    /// Lets a request use the grant that is kept for it, and records that before the request goes.
    fn claim(&mut self, request: &ProgramQuestion) -> Result<(), Failed> {
        let used = match self.is_waited_for(request.call) {
            true => self.approvals.claim(request).ok_or(RequestAnswer::Expired),
            false => Err(RequestAnswer::NoCall),
        };
        let answer = match used {
            Ok(by) => {
                let of = (request.call, request.question);
                self.audit.append(&Record::request_granted(of, by))?;
                RequestAnswer::Granted
            }
            Err(answer) => answer,
        };
        self.answer_gateway(request.question, answer);
        Ok(())
    }

    /// Ends what these calls have been granted and have asked about: they are over. A call whose command has exited by itself ends when
    /// its question is answered: nobody could answer it otherwise, and its program comes back by another call.
    pub(super) fn end_leases_and_questions(&mut self, ended: &[CallId]) -> Result<(), Failed> {
        let leases = &mut self.approvals.leases;
        ended.iter().for_each(|call| leases.end_call(*call));
        let awaits_answer = |call: &CallId| {
            let call = self.calls.get(call);
            call.is_some_and(Call::has_exited)
        };
        let over = ended.iter().copied().filter(|call| !awaits_answer(call));
        let over: Vec<CallId> = over.collect();
        self.end_questions(&over)
    }

    /// Ends what these calls have asked about.
    pub(super) fn end_questions(&mut self, calls: &[CallId]) -> Result<(), Failed> {
        calls.iter().try_for_each(|call| {
            let event = self.approvals.end_outgoing(*call);
            event.map_or(Ok(()), |event| self.take_approval(event))
        })
    }

    /// Records the answer to the question about a request, and then passes it on.
    pub(super) fn answer_request(&mut self, answered: &Answered) -> Result<(), Failed> {
        let (of, decision) = ((answered.call, answered.question), answered.decision);
        self.audit.append(&Record::request_answered(of, decision))?;
        // A successor counts its own questions.
        if !self.report_lost()? {
            self.approvals.keep_grant(answered);
            self.answer_gateway(answered.question, answered.answer());
        }
        Ok(())
    }

    fn answer_gateway(&mut self, question: u32, answer: RequestAnswer) {
        if let Some(gateway) = &mut self.gateway {
            gateway.answer(question, answer);
        }
    }

    /// Sends the gateway the value of a credential, or why there is none.
    pub(super) fn deliver(&mut self, Delivery { credential, value }: Delivery) {
        if let Some(gateway) = &mut self.gateway {
            gateway.deliver(credential, value);
        }
    }

    /// Records uses of a credential.
    fn used(&mut self, report: &CredentialReport) -> Result<(), Failed> {
        let name = self.credentials.held.name(report.credential);
        let name = name.unwrap_or_default().to_owned();
        let host = self.audit.redacted(&report.host);
        self.audit
            .append(&Record::credential(&name, &host, report))?;
        Ok(())
    }

    fn disconnected(&mut self, ends: &ConnectionEnds) -> Result<(), Failed> {
        let host = self.audit.redacted(&ends.host);
        Ok(self.audit.append(&Record::disconnected(&host, ends))?)
    }

    /// Takes what the gateway has reported, and the refusals that were only counted: what belongs to a call that ends comes before its
    /// end, and none of it to a call that begins.
    pub(super) fn settle_connections(&mut self) -> Result<(), Failed> {
        self.hear_gateway()?;
        self.record_counted()
    }

    fn record_counted(&mut self) -> Result<(), Failed> {
        let counted = self.repeats.take();
        counted
            .into_iter()
            .try_for_each(|report| self.connected(report))
    }

    /// Ends the gateway, and records what it has only counted until then. Nobody is left to whom it could be answered.
    pub(super) fn finish_gateway(&mut self, until: Instant) -> Result<(), Failed> {
        let events = self.gateway.as_mut().map(|gateway| gateway.finish(until));
        for event in events.unwrap_or_default() {
            match event {
                GatewayEvent::Connected(report) => self.refused_or_connected(report)?,
                GatewayEvent::Disconnected(ends) => self.disconnected(&ends)?,
                GatewayEvent::Used(report) => self.used(&report)?,
                GatewayEvent::Asked(_)
                | GatewayEvent::Claimed(_)
                | GatewayEvent::AgentWanted
                | GatewayEvent::SignatureWanted(..)
                | GatewayEvent::Authority(_)
                | GatewayEvent::Wanted { .. } => {}
            }
        }
        self.record_counted()
    }

    /// Records a connection, unless it is a refusal like one before, which is counted.
    fn refused_or_connected(&mut self, report: ConnectionReport) -> Result<(), Failed> {
        match self.repeats.is_new(&report, Instant::now()) {
            true => self.connected(report),
            false => Ok(()),
        }
    }

    /// Tells the gateway of the leases in force, and returns the frame that tells the client.
    pub(super) fn leases_changed(&mut self) -> FromBroker {
        if let Some(gateway) = &mut self.gateway {
            gateway.set_leases(self.approvals.leases.in_force());
        }
        self.approvals.leases.message()
    }

    /// Handles the timeouts that are due.
    pub(super) fn tick_gateway(&mut self, now: Instant) -> Result<(), Failed> {
        if let Some(gateway) = &mut self.gateway {
            gateway.tick(now);
            self.report_lost()?;
        }
        let late = self.credentials.held.tick(now);
        late.into_iter().for_each(|value| self.deliver(value));
        let is_due = self.repeats.deadline().is_some_and(|due| due <= now);
        let counted = match is_due && self.audit.try_lock()? {
            true => self.repeats.tick(now),
            false => Vec::new(),
        };
        counted
            .into_iter()
            .try_for_each(|report| self.connected(report))
    }

    /// Records what became of a connection, and tells the client.
    fn connected(&mut self, report: ConnectionReport) -> Result<(), Failed> {
        // A program chooses this name, and may put a secret into it.
        let host = self.audit.redacted(&report.host);
        let why = report.why.as_deref();
        let why = why.filter(|_| report.verdict.is_explained());
        let why = why.map(|why| self.audit.redacted(why));
        let record = Record::connection(&host, why.as_deref(), &report);
        self.audit.append(&record)?;
        self.outbox.push(FromBroker::Connected(report));
        Ok(())
    }
}
