//! An open session and its calls. A call enters by [`Session::call`], is decided, planned and
//! passed on; [`Session::collect`] alone gathers the frames for the client.

mod events;
mod leases;
mod file_calls;
mod connections;
mod ending;
pub(crate) mod opening;

use crate::approvals::{Approvals, GivenApproval};
use crate::authorise::{Authorised, Granted, Load, Submission, authorise};
use crate::background::BackgroundProcesses;
use crate::call::{Call, CallEnd, CallState};
use crate::fault::{protocol, unencoded};
use crate::files::{FileWorker, WorkerJob};
use crate::kept_texts::KeptTexts;
use crate::missing_program::Profiles;
use crate::plan::{Work, plan};
use crate::pool::Pool;
use crate::repository_question::answerer_of;
use crate::running_command::RunningCommand;
use broker_protocol::content::{ContentError, Pieces};
use broker_protocol::ticket::WebTicket;
use broker_protocol::{
    CallId, Effect, Ended, Failed, FileReply, Finding, FindingKind, Findings, FromBroker, LayerSet,
    Outcome, Request, Usage, Wants, limit,
};
use executor_audit::audit::{AuditWriter, PendingHead, ShortOfRoom};
use executor_credentials::SessionCredentials;
use executor_denials::describe_refusals;
use executor_peers::{Gateway, Repeats, TicketLine};
use executor_project::central_owner::RootLock;
use executor_project::network::Online;
use executor_project::{Commands, CreatedRecord, ProjectChecks};
use executor_spec::refusals::Refusal;
use executor_spec::sandbox::SandboxSpec;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

pub(crate) struct Session {
    spec: SandboxSpec,
    layers: LayerSet,
    profiles: Profiles,
    audit: AuditWriter,
    approvals: Approvals,
    online: Online,
    /// The session's user namespace, if cells have mounts.
    user_namespace: Option<OwnedFd>,
    pool: Pool,
    files: FileWorker,
    /// Carries connections of cells, if they have a network.
    gateway: Option<Gateway>,
    /// A ticket for the client's own gateway.
    tickets: TicketLine,
    /// Connections that were refused again, to be recorded as a number.
    repeats: Repeats,
    background: BackgroundProcesses,
    /// What cells have created under protected names, if these are protected.
    created: Option<CreatedRecord>,
    /// The checks when calls have ended.
    checks: ProjectChecks,
    /// Tells others that a session has the central root.
    root_lock: Option<RootLock>,
    /// Findings in the project that were not sent yet.
    found: Findings,
    /// The credentials that its gateway puts into requests of cells.
    credentials: SessionCredentials,
    kept: KeptTexts,
    calls: BTreeMap<CallId, Call>,
    /// The content received of a write whose call has not come yet.
    content: Pieces,
    /// Frames that belong to no call.
    outbox: Vec<FromBroker>,
    /// Maximum bytes of a command's output in its outcome.
    capture: u64,
    buffer: Vec<u8>,
}

impl Session {
    pub(crate) fn call(
        &mut self,
        id: CallId,
        request: Request,
        wants: Wants,
    ) -> Result<(), Failed> {
        if self.calls.contains_key(&id) {
            return Err(protocol(format!("the call {id} is under way already")));
        }
        self.settle_connections()?;
        let request = self.content.join(id, request).map_err(out_of_turn)?;
        let is_traced =
            || matches!(&request, Request::Bash(bash) if !bash.background) && wants.is_empty();
        if self.spec.tracer.is_some() && !is_traced() {
            return Err(protocol(
                "a throw-away session runs only foreground commands",
            ));
        }
        self.begin(Call::new(id, wants), request, None)
    }

    /// Whether the policy's web table has room for a request.
    fn may_reach(&self, effect: &Effect) -> bool {
        let web = &self.spec.policy.web;
        match effect {
            Effect::WebFetch { url } => web.may_fetch(url),
            Effect::WebSearch { .. } => web.searches(),
            Effect::Added { .. } => false,
        }
    }

    /// Passes to a call what its client sends for it. One that has just ended drops it: the client could not know of the end.
    pub(crate) fn with_call(&mut self, id: CallId, pass: impl FnOnce(&mut Call)) {
        if let Some(call) = self.calls.get_mut(&id) {
            pass(call);
        }
    }

    /// Passes input to a call, as [`Session::with_call`] does.
    pub(crate) fn take_input(&mut self, id: CallId, bytes: &[u8]) -> Result<(), Failed> {
        let call = self.calls.get_mut(&id);
        call.map_or(Ok(()), |call| call.take_input(bytes))
    }

    /// Keeps a piece of a text for the client.
    pub(crate) fn retain(&mut self, piece: (CallId, &[u8], bool)) -> Result<(), Failed> {
        let answer = self.kept.receive(piece, &self.spec, &mut self.audit)?;
        self.outbox.extend(answer);
        Ok(())
    }

    /// Prepares cells for the next calls.
    pub(crate) fn prepare_cells(&mut self) -> Result<(), Failed> {
        self.pool.prepare()
    }

    pub(crate) fn audit(&mut self) -> &mut AuditWriter {
        &mut self.audit
    }

    /// The central root, if it stays when the session ends: a throw-away session has a tree of its own.
    pub(crate) fn central(&self) -> Option<&Path> {
        Some(&*self.spec.central).filter(|_| self.spec.tracer.is_none())
    }

    /// Takes a piece of the content of a call that will follow.
    pub(crate) fn take_content(&mut self, id: CallId, bytes: &[u8]) -> Result<(), Failed> {
        self.content.add(id, bytes).map_err(out_of_turn)
    }

    /// Decides a call's request and passes it to what carries it out.
    fn begin(
        &mut self,
        mut call: Call,
        request: Request,
        approval: Option<GivenApproval>,
    ) -> Result<(), Failed> {
        let background = self.background.alive_count() + self.pool.waiting_in_background();
        let load = Load {
            calls: self.calls.len(),
            background,
        };
        let (approvals, audit) = (&mut self.approvals, &mut self.audit);
        let answered = approval
            .as_ref()
            .map(|approval| (approval.rule.clone(), approval.extent));
        let submission = Submission {
            call: call.id,
            real: &call.real,
            wants: &call.wants,
            approval: answered,
        };
        let session = (&self.spec, &self.profiles.user);
        let mut pending = None;
        match authorise(submission, request, load, session, approvals, audit)? {
            Authorised::Granted(granted, pending_head) => match approval {
                Some(approval) => {
                    self.audit.write_head(pending_head)?;
                    // To search what is leased can take long.
                    self.audit.unlock()?;
                    return self.begin_approved(call, granted, approval);
                }
                None => {
                    self.start(&mut call, granted)?;
                    pending = Some(pending_head);
                }
            },
            Authorised::Asked(request, challenge) => {
                call.outbox.push(FromBroker::Asked {
                    call: call.id,
                    challenge,
                });
                call.state = CallState::Asked(request);
            }
            Authorised::NotRun(outcome, denied) => {
                call.end_denied(outcome, Usage::default(), denied)
            }
        }
        self.calls.insert(call.id, call);
        // After the order to the cell, which need not wait for it.
        Ok(pending.map_or(Ok(()), |pending_head| self.audit.write_head(pending_head))?)
    }

    /// Plans granted work, gives it its leases and passes it on.
    fn start(&mut self, call: &mut Call, granted: Granted) -> Result<(), Failed> {
        let mut work = plan(granted, &self.spec, self.capture);
        if matches!(work, Work::Command(_)) && !self.approvals.leases.is_empty() {
            // To hand what is leased to a cell can take long.
            self.audit.unlock()?;
        }
        let leased = match &mut work {
            Work::Command(plan) => self.use_leases(call, plan.work_mut()),
            Work::File(granted) => self.use_file_lease(call, granted.work()),
            Work::BackgroundList(_)
            | Work::BackgroundLog(_)
            | Work::BackgroundKill(_)
            | Work::Effect(_) => Ok(()),
        };
        match leased {
            Ok(()) => self.carry_out(call, work),
            Err(refused) => {
                call.end(Outcome::Refused(refused), Usage::default());
                Ok(())
            }
        }
    }

    /// Passes granted work to what carries it out.
    fn carry_out(&mut self, call: &mut Call, work: Work) -> Result<(), Failed> {
        match work {
            Work::Command(plan) => {
                self.checks.command_begins();
                call.awaits_check = true;
                self.pool.submit(plan, call.started)?;
            }
            Work::File(granted) => {
                if writes(granted.work()) {
                    self.checks.write_begins();
                    call.awaits_check = true;
                }
                let leased = call.leased_file.take();
                let submitted = self.files.submit(&granted, &call.real, leased);
                submitted.map_err(unencoded)?;
                call.state = CallState::Worker(granted.into_work());
            }
            Work::BackgroundList(list) => {
                list.into_work();
                call.awaits_check = true;
                call.answer(&self.background.list())?;
            }
            Work::BackgroundLog(log) => {
                call.awaits_check = true;
                call.answer(&self.background.log(&log.into_work()))?;
            }
            Work::BackgroundKill(process) => {
                let process = process.into_work();
                self.background.kill(process);
                call.awaits_check = true;
                call.state = CallState::Killing(process);
            }
            Work::Effect(effect) => {
                let effect = effect.into_work();
                // The client asks for nothing else, if it has not been taken over.
                call.ticket = WebTicket::of(&effect).filter(|_| self.may_reach(&effect));
                let tool = self.audit.redacted(effect.tool());
                let unfinished = self.kept.permit(call.id, &tool);
                unfinished.map_or(Ok(()), |kept| self.audit.append(&kept.record()))?;
                call.end(Outcome::Granted, Usage::default());
            }
        }
        Ok(())
    }

    /// Ends a call. One that has ended in the meantime is already answered.
    pub(crate) fn cancel(&mut self, id: CallId) -> Result<(), Failed> {
        self.cancel_with(id, RunningCommand::end)
    }

    /// Cancels it without time for its command to end by itself.
    fn cancel_at_once(&mut self, id: CallId) -> Result<(), Failed> {
        self.cancel_with(id, RunningCommand::end_at_once)
    }

    fn cancel_with(
        &mut self,
        id: CallId,
        end: fn(&mut RunningCommand, Ended),
    ) -> Result<(), Failed> {
        self.content.discard(id);
        let Some(call) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        match &mut call.state {
            CallState::Running(command) => {
                end(command, Ended::Cancelled);
                self.read_output(id, usize::MAX);
            }
            CallState::Waiting => {
                self.pool.cancel(id);
                call.cancel();
            }
            CallState::Asked(_) => {
                let event = self.approvals.cancel(id);
                return self.take_approval(event);
            }
            CallState::Worker(_) => {
                self.files.cancel(WorkerJob::Call(id));
                call.cancel();
            }
            // The process is still killed; the client only stops waiting for its end.
            CallState::Approved(_) | CallState::Killing(_) => call.cancel(),
            // It may wait for the answer to a question.
            CallState::Ended(_) => return self.end_questions(&[id]),
        }
        Ok(())
    }

    /// Records what cells have created under protected names, before a client hears that one has ended.
    fn record_created(&mut self) {
        self.created
            .iter_mut()
            .for_each(|created| created.update(&self.spec));
    }

    /// Takes what a command has printed, and its end.
    fn read_output(&mut self, id: CallId, room: usize) {
        self.buffer.resize(limit::CHUNK, 0);
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let Some(mut finished) = call.read_output(room, &mut self.buffer) else {
            return;
        };
        match finished.plan.is_waited_for() {
            true => self
                .pool
                .command_ended(finished.cell.take().filter(|_| call.leases.is_empty())),
            // The cell of a service is not reused.
            false => drop(finished.cell.take()),
        }
        self.created
            .iter_mut()
            .for_each(|created| created.update(&self.spec));
        let profile = self
            .profiles
            .with_missing_program(&finished, &self.spec.policy);
        let (mut denied, found) = finished.described(&self.spec);
        if profile.is_none() {
            let programs = self.profiles.in_search_path(&finished, &self.spec);
            programs
                .into_iter()
                .for_each(|denial| denied.push_new(denial));
            finished
                .kept_offline(&self.spec.policy)
                .into_iter()
                .for_each(|denial| denied.push_new(denial));
        }
        self.found.extend(found);
        self.checks.add_refusals(&finished.refusals, &self.spec);
        let (outcome, usage) = finished.outcome(profile);
        call.end_denied(outcome, usage, denied);
    }

    /// Returns the frames that are ready for the client, and the last record that is completed once they are sent: the end of a call is in
    /// the audit before its frame is made.
    pub(crate) fn collect(&mut self) -> Result<(Vec<FromBroker>, Option<PendingHead>), Failed> {
        self.begin_started()?;
        self.collect_from_worker()?;
        // What calls have left is looked at now, which can take long.
        self.audit.unlock()?;
        let ended = self.ended_calls()?;
        self.end_leases_and_questions(&ended)?;
        let commands = match ended.len() == self.calls.len() && self.background.alive_count() == 0 {
            true => Commands::AreOver,
            false => Commands::Run,
        };
        if let Some(refusals) = self.background.take_ended() {
            self.take_refusals(&refusals);
            self.checks.background_ended();
            self.record_created();
        }
        let (mut ended, has_checked) = self.check(ended, commands);
        ended.retain(|call| self.approvals.outgoing(*call).is_none());
        let is_recorded = !ended.is_empty() || self.approvals.leases.have_ended();
        let can_record = is_recorded && self.audit.try_lock()?;
        if !can_record {
            ended.clear();
        }
        if !ended.is_empty() {
            self.settle_connections()?;
        }
        let is_over = has_checked || !ended.is_empty();
        if is_over {
            let short = self.audit.newly_short_of_room();
            self.found.extend(short.map(|short| little_room(&short)));
        }
        let mut frames = std::mem::take(&mut self.outbox);
        for call in self.calls.values_mut() {
            frames.append(&mut call.outbox);
        }
        if can_record {
            frames.extend(self.ended_leases()?);
        }
        // Before the calls that have ended: the client reports it with the first of them, or with a later one. What earlier sessions
        // have left waits for the first.
        if is_over && !self.found.is_empty() {
            frames.push(FromBroker::Found(std::mem::take(&mut self.found)));
        }
        let pending_head = self.report_ended(&ended, &mut frames)?;
        Ok((frames, pending_head))
    }

    /// Gives calls the cells that have begun since.
    fn begin_started(&mut self) -> Result<(), Failed> {
        for (id, started) in self.pool.take_started() {
            let Some(call) = self.calls.get_mut(&id) else {
                continue;
            };
            match started {
                Ok(started) if started.command.plan().background => {
                    let started = self.background.add(started.command);
                    call.answer(&Ok(FileReply::Started(started)))?;
                }
                Ok(started) => call.start(started),
                Err(broken) => call.end(Outcome::Broken(broken), Usage::default()),
            }
        }
        Ok(())
    }

    /// The calls that are over, those too that waited for the end of a background process.
    fn ended_calls(&mut self) -> Result<Vec<CallId>, Failed> {
        let mut ended = Vec::new();
        for (id, call) in &mut self.calls {
            call.answer_kill(&self.background)?;
            if let CallState::Ended(_) = call.state {
                ended.push(*id);
            }
        }
        Ok(ended)
    }

    /// Records the ends of calls, each before its frame is made. The last record is completed once the frames are sent.
    fn report_ended(
        &mut self,
        ended: &[CallId],
        frames: &mut Vec<FromBroker>,
    ) -> Result<Option<PendingHead>, Failed> {
        let mut pending_head = None;
        for CallEnd {
            call,
            mut outcome,
            usage,
            denied,
            ticket,
        } in ended
            .iter()
            .filter_map(|id| self.calls.remove(id)?.into_end())
        {
            pending_head = Some(self.audit.ended(call, &outcome, &usage)?);
            // After the record, so that nothing leaves that is not recorded; before the client hears of it, so that its gateway has the
            // ticket when the request comes.
            if let Some(Err(error)) = ticket.map(|ticket| self.tickets.permit(&ticket)) {
                outcome = Outcome::Failed(Failed::internal(error.to_string()));
            }
            frames.push(FromBroker::Done {
                call,
                outcome,
                usage,
                layers: self.layers,
                denied,
            });
        }
        Ok(pending_head)
    }

    /// Checks what calls have left; returns those of the `ended` ones that are reported now, and whether a check is complete. What has
    /// changed nothing itself waits for no worker.
    fn check(&mut self, ended: Vec<CallId>, commands: Commands) -> (Vec<CallId>, bool) {
        let user = &self.profiles.user;
        let start = |of: &_| answerer_of(of, (&self.spec, user));
        // Those that were checked and have no record yet are not checked again.
        let left = |call: &&CallId| self.calls.get(call).is_some_and(|call| !call.is_checked);
        let due: Vec<CallId> = ended.iter().filter(left).copied().collect();
        let (checked, found) = self.checks.check(&due, commands, (&self.spec, &start));
        let has_checked = found.is_some();
        self.found.extend(found.unwrap_or_default());
        for call in &checked {
            self.calls
                .entry(*call)
                .and_modify(|call| call.is_checked = true);
        }
        let is_reported = |call: &CallId| {
            let call = self.calls.get(call);
            call.is_some_and(|call| call.is_checked || !call.awaits_check)
        };
        (ended.into_iter().filter(is_reported).collect(), has_checked)
    }

    /// Takes in what was found by a command for which no call waits, and what it has misplaced.
    fn take_refusals(&mut self, refusals: &[Refusal]) {
        self.found.extend(describe_refusals(refusals, &self.spec).1);
        self.checks.add_refusals(refusals, &self.spec);
    }
}

fn little_room(short: &ShortOfRoom) -> Finding {
    let directory = short.directory.to_string_lossy();
    let advice = "make room there; `lazaret gc --audit-days N` removes old records";
    Finding::new(FindingKind::Disk, directory, short.to_string()).with_advice(advice)
}

fn out_of_turn(error: ContentError) -> Failed {
    protocol(error.to_string())
}

/// Whether a file call changes something in the zones.
fn writes(request: &Request) -> bool {
    match request {
        Request::FileRead(_)
        | Request::FileList(_)
        | Request::Glob(_)
        | Request::Grep(_)
        | Request::BackgroundList
        | Request::BackgroundLog(_)
        | Request::History(_)
        | Request::FileBytes(_) => false,
        Request::Bash(_)
        | Request::FileWrite(_)
        | Request::FileEdit(_)
        | Request::BackgroundKill(_)
        | Request::Undo(_)
        | Request::State(_)
        | Request::Effect(_)
        | Request::Service(_) => true,
    }
}
