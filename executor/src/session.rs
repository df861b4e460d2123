//! An open session and its calls. A call enters by [`Session::call`], is decided, planned and
//! passed on; [`Session::collect`] alone gathers the frames for the client.

use crate::approvals::{Approval, ApprovalEvent, Approvals, preview_read};
use crate::authorise::{Authorised, Load, Submission, authorise, opened_with};
use crate::background::BackgroundProcesses;
use crate::call::{Call, CallEnd, CallState};
use crate::fault::{failed, protocol};
use crate::files::{Files, WorkerEvent, WorkerJob};
use crate::kept_texts::KeptTexts;
use crate::missing_program::Profiles;
use crate::plan::{CommandPlan, Work, plan};
use crate::poll::{Token, Waited};
use crate::pool::Pool;
use crate::relay::Command;
use crate::repository_question::{answerer, git_settings_in};
use broker_protocol::{
    CallId, ConnectionReport, Denial, Ended, ErrorKind, Failed, FileReply, FromBroker, Layer, LayerSet,
    Nonce, Outcome, Refused, Request, Traced, Usage, Wants, ZonePath, frame, limit,
};
use executor_audit::audit::Audit;
use executor_audit::record::Record;
use executor_cell::leases::{self, Settings};
use executor_cell::project::{CreatedRecord, RepositoryWatch};
use executor_layers::relay::Online;
use executor_layers::scratch::Scratch;
use executor_layers::spec::SandboxSpec;
use executor_supervisor::explain;
use policies::Access;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum number of targets to which the links of one call are followed. A glob follows two; links that change add more.
const PLACES_MAX: usize = 4;
/// How long all cells together may take to kill their processes when the session ends, and then one whose first process was killed.
const LAST_SWEEP: Duration = Duration::from_secs(1);
/// How long a running file call may take to finish when the client has left.
const LAST_WRITE: Duration = Duration::from_millis(300);

pub struct Session {
    pub spec: SandboxSpec,
    pub layers: LayerSet,
    pub profiles: Profiles,
    pub audit: Audit,
    pub approvals: Approvals,
    pub online: Online,
    /// The session's user namespace, if cells have mounts.
    pub user_namespace: Option<OwnedFd>,
    pub pool: Pool,
    pub files: Files,
    pub background: BackgroundProcesses,
    /// What cells have created under protected names, if these are protected.
    pub created: Option<CreatedRecord>,
    /// The secrets that git tracks, if the project has a repository.
    pub watch: Option<RepositoryWatch>,
    /// What was found in repositories, until the end of a call reports it.
    pub unreported: Vec<Denial>,
    pub kept: KeptTexts,
    pub calls: BTreeMap<CallId, Call>,
    /// Frames that belong to no call.
    pub outbox: Vec<FromBroker>,
    /// Maximum bytes of a command's output in its outcome.
    pub capture: u64,
    pub buffer: Vec<u8>,
}

impl Session {
    pub fn call(&mut self, id: CallId, request: Request, wants: Wants) -> Result<(), Failed> {
        if self.calls.contains_key(&id) {
            return Err(protocol(format!("the call {id} is under way already")));
        }
        let is_traced = || matches!(&request, Request::Bash(bash) if !bash.background) && wants.is_empty();
        if self.spec.tracer.is_some() && !is_traced() {
            return Err(protocol("a throw-away session runs only foreground commands"));
        }
        self.begin(Call::new(id, wants), request, None)
    }

    /// Decides a call's request and passes it to what carries it out.
    fn begin(&mut self, mut call: Call, request: Request, approval: Option<Approval>) -> Result<(), Failed> {
        let background = self.background.count() + self.pool.waiting_in_background();
        let load = Load { calls: self.calls.len(), background };
        let (approvals, audit) = (&mut self.approvals, &mut self.audit);
        let answered = approval.as_ref().map(|approval| (approval.rule.clone(), approval.extent));
        let submission =
            Submission { call: call.id, real: &call.real, wants: &call.wants, approval: answered };
        let session = (&self.spec, &self.profiles.user);
        match authorise(submission, request, load, session, approvals, audit)? {
            Authorised::Granted(granted) => {
                if approval.is_some() {
                    // Opening what it leases can take long.
                    self.audit.complete()?;
                }
                let leased = approval.map_or(Ok(Ok(None)), |approval| self.lease(call.id, approval))?;
                let mut work = plan(granted, &self.spec, self.capture);
                let leased = leased.and_then(|key| match &mut work {
                    Work::Command(plan) => self.use_leases(&mut call, plan, key),
                    _ => Ok(()),
                });
                match leased {
                    Ok(()) => self.carry_out(&mut call, work)?,
                    Err(refused) => call.end(Outcome::Refused(refused), Usage::default()),
                }
            }
            Authorised::Asked(request, challenge) => {
                call.outbox.push(FromBroker::Asked { call: call.id, challenge });
                call.state = CallState::Asked(request);
            }
            Authorised::Ended(outcome, denied) => call.end_denied(outcome, Usage::default(), denied),
        }
        self.calls.insert(call.id, call);
        // After the order to the cell, which need not wait for it.
        Ok(self.audit.complete()?)
    }

    /// Passes granted work to what carries it out.
    fn carry_out(&mut self, call: &mut Call, work: Work) -> Result<(), Failed> {
        match work {
            Work::Command(plan) => self.pool.submit(call.id, call.started, plan)?,
            Work::File(request) => {
                let job = WorkerJob::Call(call.id);
                self.files.submit(job, &request, &call.real).map_err(unencoded)?;
                call.state = CallState::Worker(request);
            }
            Work::BackgroundList => call.answer(&self.background.list())?,
            Work::BackgroundLog(log) => call.answer(&self.background.log(&log))?,
            Work::BackgroundKill(process) => {
                self.background.kill(process);
                call.state = CallState::Killing(process);
            }
            Work::Effect(tool) => {
                let unfinished = self.kept.permit(call.id, &self.audit.redacted(&tool));
                unfinished.map_or(Ok(()), |kept| self.audit.append(&kept.record()))?;
                call.end(Outcome::Granted, Usage::default());
            }
        }
        Ok(())
    }

    /// Begins the leases of an approval, after their records are written. Returns the key of the
    /// call's own programs, if they have one; or why a path cannot be leased.
    pub fn lease(
        &mut self,
        call: CallId,
        approval: Approval,
    ) -> Result<Result<Option<Nonce>, Refused>, Failed> {
        if approval.missing.wants.is_empty() {
            return Ok(Ok(None));
        }
        let leases = self.approvals.new_leases(call, &approval);
        let leases = leases.map_err(|error| Failed::internal(error.to_string()))?;
        let Approval { extent, digest, missing, .. } = approval;
        let session = (&self.spec, &self.profiles.user);
        let settings: &Settings = &|root, objects| git_settings_in(root, objects, session);
        let paths = match self.approvals.leases.hold(call, missing, &self.spec.policy, settings) {
            Ok(paths) => paths,
            Err(refused) => return Ok(Err(refused)),
        };
        // A call has no key if all its hosts are leased to the session.
        let key = leases.iter().find(|lease| lease.opens.host().is_some()).and_then(|lease| lease.key);
        for lease in &leases {
            let what = self.audit.redacted(lease.opens.parts().1);
            self.audit.append(&Record::leased(lease, &what, extent))?;
        }
        self.approvals.leases.begin(leases, paths, extent, digest);
        self.outbox.push(self.approvals.leases.message());
        Ok(Ok(key))
    }

    /// Gives a command its leases: hosts, with `key` if they are leased to this call alone; paths, if the same objects still lie there.
    fn use_leases(
        &mut self,
        call: &mut Call,
        plan: &mut CommandPlan,
        key: Option<Nonce>,
    ) -> Result<(), Refused> {
        if key.is_some() || self.approvals.leases.are_for_all() {
            (plan.cell.environment, plan.cell.unset) = self.online.variables(key);
        }
        if !plan.is_waited_for() {
            return Ok(());
        }
        self.approvals.leases.end_changed();
        let paths = self.approvals.leases.paths_for(call.id);
        leases::check_own(&call.wants, &paths, |path| self.spec.shows(path))?;
        plan.leases = self.approvals.leases.handover(&paths, self.user_namespace.as_ref())?;
        (call.leases, plan.granted) = paths.into_iter().unzip();
        Ok(())
    }

    /// Records the leases that have ended, and returns the frame that tells the client.
    fn ended_leases(&mut self) -> Result<Option<FromBroker>, Failed> {
        let ended = self.approvals.leases.take_ended();
        for (lease, how) in &ended {
            self.audit.append(&Record::lease_ended(lease.lease, *how))?;
            // A running command keeps its granted paths until it ends.
            let has = |call: &&Call| call.leases.contains(&lease.lease);
            let calls: Vec<_> = self.calls.values().filter(has).map(|call| call.id).collect();
            calls.into_iter().try_for_each(|call| self.cancel(call))?;
        }
        Ok((!ended.is_empty()).then(|| self.approvals.leases.message()))
    }

    /// Records the end of a connection that a cell requested.
    pub fn connected(&mut self, report: &ConnectionReport) -> Result<(), Failed> {
        if !self.spec.policy.has_network() {
            return Err(protocol("the cells of this session have no network"));
        }
        report.check().map_err(|error| protocol(error.to_string()))?;
        // A program chooses this name, and may put a secret into it.
        let host = self.audit.redacted(&report.host);
        Ok(self.audit.append(&Record::connection(&host, report))?)
    }

    /// Reports which of these failures the cell caused, in a throw-away session.
    pub fn explain(&mut self, traced: &[Traced]) -> Result<(), Failed> {
        if self.spec.tracer.is_none() {
            return Err(protocol("only a throw-away session explains traced calls"));
        }
        Traced::check(traced).map_err(|error| protocol(error.to_string()))?;
        let (spec, user) = (&self.spec, &self.profiles.user);
        let leasable = |access, path: &Path| {
            let paths = path.to_str().map(str::to_owned).into_iter().collect();
            let wants = match access {
                Access::Read => Wants { read: paths, ..Wants::default() },
                Access::Write => Wants { write: paths, ..Wants::default() },
            };
            opened_with(&wants, spec, user).map(drop).map_err(|refused| refused.why)
        };
        let explained = traced.iter().map(|one| explain(one, spec, &leasable)).collect();
        self.outbox.push(FromBroker::Explained(explained));
        Ok(())
    }

    /// Handles the result of an approval question.
    pub fn take_approval(&mut self, event: ApprovalEvent) -> Result<(), Failed> {
        match event {
            ApprovalEvent::Granted(id, approval) => {
                let Some(mut call) = self.calls.remove(&id) else { return Ok(()) };
                // The stored request is what runs, not one that comes with the answer.
                match call.take_asked() {
                    Some(request) => self.begin(call, request, Some(approval)),
                    None => Err(Failed::internal(format!("the call {id} was not asked about"))),
                }
            }
            ApprovalEvent::Ended(id, outcome) => {
                self.calls.entry(id).and_modify(|call| call.end(outcome, Usage::default()));
                Ok(())
            }
            ApprovalEvent::Preview { approver, call } => {
                let asked = self.calls.get(&call);
                let request = asked.and_then(Call::asked);
                let Some(read) = self.approvals.preview(approver, call, request) else { return Ok(()) };
                let real = asked.map(|call| call.real.as_slice()).unwrap_or_default();
                let job = WorkerJob::Preview { approver, call, followed: false };
                self.files.submit(job, &read, real).map_err(unencoded)
            }
            ApprovalEvent::Reply(frame) => {
                self.outbox.push(frame);
                Ok(())
            }
        }
    }

    /// Ends a call. One that has ended in the meantime is already answered.
    pub fn cancel(&mut self, id: CallId) -> Result<(), Failed> {
        let Some(call) = self.calls.get_mut(&id) else { return Ok(()) };
        match &mut call.state {
            CallState::Running(command) => {
                command.end(Ended::Cancelled);
                self.relay(id, usize::MAX);
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
            CallState::Killing(_) => call.cancel(),
            CallState::Ended(_) => {}
        }
        Ok(())
    }

    /// Handles one ready descriptor. Reads at most `room` bytes of live output for the client.
    pub fn ready(&mut self, token: Token, room: usize) -> Result<(), Failed> {
        match token {
            Token::Client => Ok(()),
            Token::Warden => self.pool.receive(),
            Token::Worker => {
                self.files.receive(&mut self.buffer);
                Ok(())
            }
            Token::Input(id) => {
                self.calls.entry(id).and_modify(Call::feed);
                Ok(())
            }
            Token::Report(id) | Token::Output(id) => {
                self.relay(id, room);
                Ok(())
            }
            Token::Background(id) => {
                self.buffer.resize(limit::CHUNK, 0);
                self.background.relay(id, &mut self.buffer);
                Ok(())
            }
            Token::Approvers => {
                self.approvals.admit();
                Ok(())
            }
            Token::Approver(number) => {
                let events = self.approvals.receive(number);
                events.into_iter().try_for_each(|event| self.take_approval(event))
            }
        }
    }

    /// Takes what a command has printed, and its end.
    fn relay(&mut self, id: CallId, room: usize) {
        self.buffer.resize(limit::CHUNK, 0);
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Some(mut finished) = call.relay(room, &mut self.buffer) else { return };
        match finished.plan.is_waited_for() {
            true => self.pool.command_ended(finished.cell.take().filter(|_| call.leases.is_empty())),
            // The cell of a service is not reused.
            false => drop(finished.cell.take()),
        }
        self.created.iter_mut().for_each(|created| created.update(&self.spec));
        let profile = self.profiles.with_missing_program(&finished, &self.spec.policy);
        let denied = finished.denied(&self.spec);
        let (outcome, usage) = finished.outcome(profile);
        call.end_denied(outcome, usage, denied);
    }

    /// Returns the frames that are ready for the client. The end of a call is in the audit before its frame is made; once the frames
    /// are sent, the audit must be completed.
    pub fn collect(&mut self) -> Result<Vec<FromBroker>, Failed> {
        for (id, started) in self.pool.take_started() {
            let Some(call) = self.calls.get_mut(&id) else { continue };
            match started {
                Ok(started) if started.command.plan().background => {
                    let started = self.background.add(started.command);
                    call.answer(&Ok(FileReply::Started(started)))?;
                }
                Ok(started) => call.start(started),
                Err(broken) => call.end(Outcome::Broken(broken), Usage::default()),
            }
        }
        self.collect_from_worker()?;
        let mut frames = std::mem::take(&mut self.outbox);
        let mut ended = Vec::new();
        for (id, call) in &mut self.calls {
            call.answer_kill(&self.background)?;
            frames.append(&mut call.outbox);
            if let CallState::Ended(_) = call.state {
                ended.push(*id);
            }
        }
        ended.iter().for_each(|call| self.approvals.leases.end_call(*call));
        frames.extend(self.ended_leases()?);
        let alone = ended.len() == self.calls.len() && self.background.count() == 0;
        if self.background.take_ended() || !ended.is_empty() {
            let found = self.look_at_repositories(alone);
            self.unreported.extend(found);
        }
        for CallEnd { call, outcome, usage, mut denied } in
            ended.iter().filter_map(|id| self.calls.remove(id)?.into_end())
        {
            // They are reported by the first call that ends, whichever changed the repository.
            self.unreported.drain(..).for_each(|denial| denied.push(denial));
            self.audit.ended(call, &outcome, &usage)?;
            frames.push(FromBroker::Done { call, outcome, usage, layers: self.layers, denied });
        }
        Ok(frames)
    }

    /// Checks for changes to the project's repositories since the last check; `alone`: no command that works there is running.
    fn look_at_repositories(&mut self, alone: bool) -> Vec<Denial> {
        let (spec, user) = (&self.spec, &self.profiles.user);
        let Some(watch) = &mut self.watch else { return Vec::new() };
        watch.update(spec, alone, |of, files| answerer(spec, user).ok()?.repository(of, files))
    }

    fn collect_from_worker(&mut self) -> Result<(), Failed> {
        for event in self.files.take_events() {
            match event {
                WorkerEvent::Part(WorkerJob::Call(id), bytes) => {
                    let part = FromBroker::Part { call: id, bytes };
                    self.calls.entry(id).and_modify(|call| call.outbox.push(part));
                }
                WorkerEvent::Ended(WorkerJob::Call(id), outcome, usage) => {
                    self.calls.entry(id).and_modify(|call| call.end(outcome, usage));
                }
                WorkerEvent::Elsewhere(WorkerJob::Call(id), real) => self.follow(id, real)?,
                WorkerEvent::Elsewhere(WorkerJob::Preview { approver, call, followed }, real) => {
                    self.follow_preview(approver, call, (!followed).then_some(real))?;
                }
                WorkerEvent::Part(WorkerJob::Preview { approver, call, .. }, bytes) => {
                    self.approvals.preview_part(approver, call, bytes);
                }
                WorkerEvent::Ended(WorkerJob::Preview { approver, call, .. }, ..) => {
                    self.approvals.end_preview(approver, call);
                }
            }
        }
        Ok(())
    }

    /// Decides again on a call whose path leads to `real`: it starts again with that target, waits for an approval, or is refused.
    fn follow(&mut self, id: CallId, real: ZonePath) -> Result<(), Failed> {
        let Some(mut call) = self.calls.remove(&id) else { return Ok(()) };
        let Some(request) = call.take_from_worker() else {
            return Err(Failed::internal(format!("the call {id} is not the file worker's")));
        };
        if call.real.len() == PLACES_MAX {
            let message = "the links on the path change while they are followed; try again";
            call.end(failed(ErrorKind::Io, message), Usage::default());
            self.calls.insert(id, call);
            return Ok(());
        }
        call.real.push(real);
        self.begin(call, request, None)
    }

    /// Reads, at the target of a link, the file that a call would change, for an approver who may
    /// see it. Links that change meanwhile are not followed again.
    fn follow_preview(&mut self, approver: u64, id: CallId, real: Option<ZonePath>) -> Result<(), Failed> {
        let read = self.calls.get(&id).and_then(Call::asked).and_then(preview_read);
        match read.zip(real) {
            Some((read, real)) => {
                let job = WorkerJob::Preview { approver, call: id, followed: true };
                self.files.submit(job, &read, &[real]).map_err(unencoded)
            }
            None => {
                self.approvals.end_preview(approver, id);
                Ok(())
            }
        }
    }

    /// Adds every descriptor that this session waits for. Output is not read, and so cells block, while the client's queue is full.
    pub fn wait_for<'s>(&'s self, waited: &mut Waited<'s>, client_full: bool) {
        waited.add_input(Token::Warden, self.pool.fd());
        self.files.wait_for(waited, client_full);
        self.background.wait_for(waited);
        self.approvals.wait_for(waited);
        self.calls.values().for_each(|call| call.wait_for(waited, client_full));
    }

    /// Whether so much is queued for the file worker that no more should be taken from the client.
    pub fn is_full(&self) -> bool {
        self.files.is_full()
    }

    /// When the next timeout of the session is due.
    pub fn deadline(&self) -> Option<Instant> {
        let commands = self.calls.values().filter_map(|call| call.command()?.deadline());
        let others = [
            self.pool.deadline(),
            self.files.deadline(),
            self.background.deadline(),
            self.approvals.deadline(),
            self.approvals.leases.deadline(),
            self.audit.deadline(),
        ];
        commands.chain(others.into_iter().flatten()).min()
    }

    /// Handles the timeouts that are due.
    pub fn tick(&mut self, now: Instant) -> Result<(), Failed> {
        self.calls.values_mut().filter_map(Call::command_mut).for_each(|command| command.tick(now));
        self.background.tick(now);
        self.files.tick(now);
        self.approvals.leases.expire(now);
        let events = self.approvals.expire(now);
        events.into_iter().try_for_each(|event| self.take_approval(event))?;
        self.approvals.flush();
        self.audit.tick(now)?;
        self.pool.tick(now)
    }

    /// Ends the session. Without a PID namespace, cells and the warden see their sockets close and
    /// kill what is left. The returned directory must be removed after they are gone.
    pub fn close(mut self) -> Scratch {
        self.files.finish_current(LAST_WRITE);
        // With no command running, changes are the user's own, not a command's.
        let is_busy = !self.calls.is_empty() || self.background.count() > 0;
        self.end_commands();
        self.created.iter_mut().for_each(|created| created.update(&self.spec));
        if is_busy {
            // Nobody is left to report it to.
            drop(self.look_at_repositories(true));
        }
        if self.spec.has(Layer::PidNamespace) {
            self.pool.kill();
        }
        let ends: Vec<_> = self.calls.into_values().filter_map(Call::into_cancelled).collect();
        // In the flat tier this kills the remaining processes, before the audit blocks on the disk.
        drop((self.pool, self.files, self.background));
        let mut unfinished = self.kept.end().into_iter();
        // A failure is ignored: no client is left to report it to.
        let _ = unfinished.try_for_each(|kept| self.audit.append(&kept.record()));
        let mut ends = ends.into_iter();
        let recorded = ends.try_for_each(|end| self.audit.ended(end.call, &end.outcome, &end.usage));
        let _ = recorded.and_then(|()| self.audit.close());
        self.spec.scratch
    }
}

impl Session {
    /// Ends all commands, and waits until no process is left that could change what is checked next.
    fn end_commands(&mut self) {
        let calls = self.calls.values_mut().filter_map(Call::command_mut);
        let all = calls.chain(self.background.commands_mut());
        // A cell reports when it has killed all its processes.
        let mut running: Vec<&mut Command> = all.filter(|command| command.report_fd().is_some()).collect();
        running.iter_mut().for_each(|command| command.end(Ended::Cancelled));
        let until = Instant::now() + LAST_SWEEP;
        for command in running {
            if !command.exits_until(until) {
                command.kill();
                command.exits_until(Instant::now() + LAST_SWEEP);
            }
        }
    }
}

fn unencoded(error: frame::FrameError) -> Failed {
    Failed::internal(error.to_string())
}
