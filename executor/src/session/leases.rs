//! What a session's calls may reach beyond it: leases, and what is reported of connections and denials.

use super::Session;
use crate::approvals::{GivenApproval, changed_file};
use crate::authorise::{Granted, open_wanted};
use crate::call::{Call, CallState};
use crate::fault::protocol;
use crate::files::LeasedTarget;
use crate::missing_program::search_path;
use crate::pending_leases::PendingLeases;
use crate::plan::CommandPlan;
use crate::repository_question::answerer;
use crate::user::User;
use broker_protocol::{
    CallId, Failed, FromBroker, Outcome, Refused, Request, Traced, Usage, Variable, Wants,
};
use executor_audit::record::Record;
use executor_denials::explain;
use executor_layers::zone_leases;
use executor_leases::{HeldPath, Missing, PendingPaths, SettingsSource};
use executor_spec::sandbox::SandboxSpec;
use policies::Access;
use std::any::Any;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

/// In place of a call's number, where leases begin with their session.
const OPENING: CallId = 0;

impl Session {
    /// Begins to prepare what an approved call gets. It starts when what is protected in its paths is known.
    pub(super) fn begin_approved(
        &mut self,
        mut call: Call,
        granted: Granted,
        mut approval: GivenApproval,
    ) -> Result<(), Failed> {
        match self.prepare(call.id, &mut approval) {
            Ok(paths) => {
                call.state = CallState::Approved(Box::new(PendingLeases {
                    granted,
                    approval,
                    paths,
                }));
            }
            Err(refused) => call.end(Outcome::Refused(refused), Usage::default()),
        }
        let id = call.id;
        self.calls.insert(id, call);
        self.go_on_approved(id)
    }

    /// Starts an approved call once all its paths are held.
    pub(super) fn go_on_approved(&mut self, id: CallId) -> Result<(), Failed> {
        let Some(call) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        let CallState::Approved(leases) = &mut call.state else {
            return Ok(());
        };
        let advanced = advance(&mut leases.paths, (&self.spec, &self.profiles.user));
        // Leases are in the audit before they are in force.
        if matches!(advanced, Ok(false)) || !self.audit.try_lock()? {
            return Ok(());
        }
        let Some(mut call) = self.calls.remove(&id) else {
            return Ok(());
        };
        if let CallState::Approved(leases) = std::mem::replace(&mut call.state, CallState::Waiting)
        {
            let leased = match advanced {
                Ok(_) => self.lease(id, leases.approval, leases.paths.held())?,
                Err(refused) => Err(refused),
            };
            match leased {
                Ok(()) => self.start(&mut call, leases.granted)?,
                Err(refused) => call.end(Outcome::Refused(refused), Usage::default()),
            }
        }
        self.calls.insert(id, call);
        Ok(())
    }

    /// Ends the leases whose time is over, and the waiting for a worker that does not answer in time.
    pub(super) fn tick_leases(&mut self, now: Instant) -> Result<(), Failed> {
        self.approvals.leases.expire(now);
        let is_due = |call: &&Call| {
            let leases = call.leasing();
            leases.is_some_and(|leases| leases.paths.deadline().is_none_or(|due| due <= now))
        };
        let due: Vec<_> = self.calls.values().filter(is_due).collect();
        let due: Vec<CallId> = due.into_iter().map(|call| call.id).collect();
        due.into_iter().try_for_each(|id| self.go_on_approved(id))
    }

    /// Begins the leases with which a session opens. No call exists yet that would have to wait.
    pub(super) fn begin_with(
        &mut self,
        mut approval: GivenApproval,
    ) -> Result<Result<(), Refused>, Failed> {
        let mut paths = match self.prepare(OPENING, &mut approval) {
            Ok(paths) => paths,
            Err(refused) => return Ok(Err(refused)),
        };
        loop {
            match advance(&mut paths, (&self.spec, &self.profiles.user)) {
                Ok(true) => break,
                Ok(false) => paths.wait(),
                Err(refused) => return Ok(Err(refused)),
            }
        }
        self.lease(OPENING, approval, paths.held())
    }

    fn prepare(
        &mut self,
        call: CallId,
        approval: &mut GivenApproval,
    ) -> Result<PendingPaths, Refused> {
        let missing = &mut approval.missing;
        let missing = Missing {
            wants: missing.wants.clone(),
            paths: std::mem::take(&mut missing.paths),
        };
        let policy = &self.spec.policy;
        self.approvals.leases.prepare(call, missing, policy)
    }

    /// Begins the leases of an approval, after their records are written; those of paths use `paths`, in order. Returns why, if they
    /// cannot be in force beside others.
    fn lease(
        &mut self,
        call: CallId,
        approval: GivenApproval,
        paths: &[Rc<HeldPath>],
    ) -> Result<Result<(), Refused>, Failed> {
        if approval.missing.wants.is_empty() {
            return Ok(Ok(()));
        }
        let places = approval.missing.wants.places();
        if let Err(refused) = self.approvals.leases.check_held(call, places, paths) {
            return Ok(Err(refused));
        }
        let leases = self.approvals.new_leases(call, &approval);
        let (extent, digest) = (approval.extent, approval.digest);
        for held in paths
            .iter()
            .filter(|held| held.leased().access() == Access::Write && !held.leased().is_in_zone())
        {
            let root = held.leased().path();
            let held_by: Rc<dyn Any> = held.clone();
            self.checks.modes.cover(root, Rc::downgrade(&held_by));
            if let Some(watch) = &mut self.checks.watch {
                watch
                    .others
                    .cover_granted(root, &held.objects().repositories);
            }
        }
        for lease in &leases {
            let what = self.audit.redacted(&lease.opens.parts().1);
            self.audit.append(&Record::leased(lease, &what, extent))?;
        }
        let paths = paths.to_vec();
        self.approvals.leases.begin(leases, paths, extent, digest);
        let changed = self.leases_changed();
        self.outbox.push(changed);
        Ok(Ok(()))
    }

    /// Gives a command its leases: hosts, ports, and paths if the same objects still lie there.
    pub(super) fn use_leases(
        &mut self,
        call: &mut Call,
        plan: &mut CommandPlan,
    ) -> Result<(), Refused> {
        if self.approvals.leases.open_host(plan.cell.call) {
            (plan.cell.environment, plan.cell.unset) = self.online.variables();
        }
        plan.cell.connect = self.approvals.leases.ports_for(plan.cell.call);
        if !plan.is_waited_for() {
            return Ok(());
        }
        self.approvals.leases.end_changed();
        let paths = self.approvals.leases.paths_for(call.id);
        executor_leases::check_own(&call.wants, &paths, |path| self.spec.shows(path))?;
        plan.leases = self
            .approvals
            .leases
            .handover(&paths, self.user_namespace.as_ref())?;
        if !paths.is_empty() {
            let granted = |path: &Path| paths.iter().any(|(_, held)| held.shows(path));
            let path = search_path(&self.spec, &self.profiles.user, granted);
            plan.cell.environment.extend(path.map(|value| Variable {
                name: "PATH".to_owned(),
                value,
            }));
        }
        (call.leases, plan.granted) = paths.into_iter().unzip();
        Ok(())
    }

    /// Gives a file tool the file that it may change by a lease alone, if the same object still lies there.
    pub(super) fn use_file_lease(
        &mut self,
        call: &mut Call,
        request: &Request,
    ) -> Result<(), Refused> {
        let path = changed_file(request);
        let opens = path.and_then(|path| zone_leases::to_edit(path, &self.spec).zip(Some(path)));
        let Some((opens, path)) = opens else {
            return Ok(());
        };
        let leases = &mut self.approvals.leases;
        let (lease, file) = leases.open_file(call.id, Path::new(&*opens.parts().1))?;
        let path = path.clone();
        (call.leases, call.leased_file) = (vec![lease], Some(LeasedTarget { path, file }));
        Ok(())
    }

    /// Records the leases that have ended, and returns the frame that tells the client.
    pub(super) fn ended_leases(&mut self) -> Result<Option<FromBroker>, Failed> {
        let ended = self.approvals.leases.take_ended();
        for (lease, how) in &ended {
            self.audit.append(&Record::lease_ended(lease.lease, *how))?;
            // A running command keeps its granted paths until it ends, so it gets no time for that.
            let has = |call: &&Call| call.leases.contains(&lease.lease);
            let calls: Vec<_> = self
                .calls
                .values()
                .filter(has)
                .map(|call| call.id)
                .collect();
            calls
                .into_iter()
                .try_for_each(|call| self.cancel_at_once(call))?;
        }
        Ok((!ended.is_empty()).then(|| self.leases_changed()))
    }

    /// Reports which of these failures the cell caused, in a throw-away session.
    pub(crate) fn explain(&mut self, traced: &[Traced]) -> Result<(), Failed> {
        if self.spec.tracer.is_none() {
            return Err(protocol("only a throw-away session explains traced calls"));
        }
        Traced::check(traced).map_err(|error| protocol(error.to_string()))?;
        let (spec, user) = (&self.spec, &self.profiles.user);
        let leasable = |access, path: &Path| {
            let paths = path.to_str().map(str::to_owned).into_iter().collect();
            let wants = match access {
                Access::Read => Wants {
                    read: paths,
                    ..Wants::default()
                },
                Access::Write => Wants {
                    write: paths,
                    ..Wants::default()
                },
            };
            open_wanted(&wants, spec, user)
                .map(drop)
                .map_err(|refused| refused.why)
        };
        let explained = traced
            .iter()
            .map(|one| explain(one, spec, &leasable))
            .collect();
        self.outbox.push(FromBroker::Explained(explained));
        Ok(())
    }
}

/// Goes on with paths as far as that is possible without waiting; whether all are held.
fn advance(paths: &mut PendingPaths, (spec, user): (&SandboxSpec, &User)) -> Result<bool, Refused> {
    paths.advance(&SettingsSource {
        user: &|| user.git(),
        start: &|| answerer(spec, user),
    })
}
