//! The end of a session. Its processes end first, all of them; only then is looked at what they have left.

use super::Session;
use crate::call::Call;
use crate::gc;
use crate::repository_question::answerer_of;
use crate::running_command::RunningCommand;
use broker_protocol::{Ended, Finding, FindingKind};
use executor_cell::end_all;
use executor_peers::Gateway;
use executor_project::leave_unreported;
use executor_spec::scratch::Scratch;
use std::time::{Duration, Instant};

/// How long all cells together may take to kill their processes when the session ends, and to report. Only a cell that hangs takes
/// long on a machine with time for it; where a flood of processes takes that time, what they have misplaced is still to be judged.
const LAST_SWEEP: Duration = Duration::from_secs(10);
/// How long what has been killed may take to end: a process in the kernel's hands, on a file system that does not answer.
const LAST_KILL: Duration = Duration::from_secs(10);
/// How long the gateway may take to report what it has only counted until then.
const LAST_REPORT: Duration = Duration::from_secs(2);
/// How long a running file call may take to finish when the client has left.
const LAST_WRITE: Duration = Duration::from_millis(300);

impl Session {
    /// Ends the session. The returned directory must be removed afterwards.
    pub(crate) fn close(mut self) -> Scratch {
        self.files.finish_current(LAST_WRITE);
        // With no command running, changes are the user's own, not a command's.
        let is_busy =
            self.checks.give_up() || !self.calls.is_empty() || self.background.alive_count() > 0;
        let unreported = self.end_commands();
        // Recorded as far as that is possible.
        let _ = self
            .settle_connections()
            .and_then(|()| self.finish_gateway(Instant::now() + LAST_REPORT));
        // Other brokers do not wait for what follows.
        let _ = self.audit.unlock();
        let unfinished = self.end_processes();
        if is_busy {
            // What was still running has changed files that anybody may have changed since: none of them is recorded as created.
            let user = &self.profiles.user;
            let start = |of: &_| answerer_of(of, (&self.spec, user));
            let found = self.checks.check_at_the_end(&self.spec, &start);
            self.found.extend(found);
        } else if let Some(created) = &mut self.created {
            created.finish(&self.spec);
        }
        // One of a kind is reported of a project: that more may still change says it all.
        self.found.extend(unfinished.or(unreported));
        // Nobody is left to report it to.
        leave_unreported(&self.spec, std::mem::take(&mut self.found));
        let ends: Vec<_> = self
            .calls
            .into_values()
            .filter_map(Call::into_cancelled)
            .collect();
        let mut unfinished = self.kept.end().into_iter();
        // A failure is ignored: no client is left to report it to.
        let _ = unfinished.try_for_each(|kept| self.audit.append(&kept.record()));
        let mut ends = ends.into_iter();
        let recorded = ends.try_for_each(|end| {
            let pending_head = self.audit.ended(end.call, &end.outcome, &end.usage)?;
            self.audit.write_head(pending_head)
        });
        // So is this one: what is too old now is so at the end of the next session too.
        let kept = self.profiles.policies.audit_keep_days();
        let _ = kept.map(|days| self.audit.prune(gc::DAY * days.get()));
        let _ = recorded.and_then(|()| self.audit.close());
        drop(self.root_lock);
        self.spec.into_scratch()
    }

    /// Ends all commands, and takes what their cells report about them. Reports those that do not report in time.
    fn end_commands(&mut self) -> Option<Finding> {
        let calls = self.calls.values_mut().filter_map(Call::command_mut);
        let all = calls.chain(self.background.commands_mut());
        // A cell reports when it has killed all its processes.
        let mut running: Vec<&mut RunningCommand> = all
            .filter(|command| command.report_fd().is_some())
            .collect();
        running
            .iter_mut()
            .for_each(|command| command.end_at_once(Ended::Cancelled));
        let until = Instant::now() + LAST_SWEEP;
        let (mut refusals, mut unreported) = (Vec::new(), 0);
        for command in running {
            unreported += usize::from(!command.exits_until(until));
            refusals.extend_from_slice(command.refusals());
        }
        // What they have misplaced is taken away as after any call.
        self.take_refusals(&refusals);
        let seconds = LAST_SWEEP.as_secs();
        let why = format!(
            "The cells of {unreported} commands did not report within {seconds} s what was refused to them. Files that they have put where none may be were not looked for."
        );
        (unreported > 0).then(|| self.unchecked(why, "look for files that you did not expect"))
    }

    fn unchecked(&self, why: String, advice: &str) -> Finding {
        let project = self.spec.project.to_string_lossy();
        Finding::new(FindingKind::Unchecked, project, why)
            .with_advice(format!("{advice} before you use git there"))
    }

    /// Kills every process of the session, also those that no cell has reported, and waits until none is left that could change what
    /// is looked at next. Reports it if that takes too long.
    fn end_processes(&mut self) -> Option<Finding> {
        self.files.kill();
        self.gateway.iter_mut().for_each(Gateway::kill);
        self.pool.kill();
        let have_ended = end_all(Instant::now() + LAST_KILL);
        let seconds = LAST_KILL.as_secs();
        let why = format!(
            "Processes of the session could not be ended within {seconds} s. What they have changed since was not looked at."
        );
        let advice = "end them, and look for files that you did not expect";
        (!have_ended).then(|| self.unchecked(why, advice))
    }
}
