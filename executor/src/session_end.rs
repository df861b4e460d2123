//! The end of a session.

use crate::call::Call;
use crate::running_command::RunningCommand;
use crate::session::Session;
use broker_protocol::{Ended, Layer};
use executor_project::leave_unreported;
use executor_spec::scratch::Scratch;
use std::time::{Duration, Instant};

/// How long all cells together may take to kill their processes when the session ends, and then one whose first process was killed.
const LAST_SWEEP: Duration = Duration::from_secs(1);
/// How long a running file call may take to finish when the client has left.
const LAST_WRITE: Duration = Duration::from_millis(300);

impl Session {
    /// Ends the session. Without a PID namespace, cells and the warden see their sockets close and
    /// kill what is left. The returned directory must be removed after they are gone.
    pub fn close(mut self) -> Scratch {
        self.files.finish_current(LAST_WRITE);
        // With no command running, changes are the user's own, not a command's.
        let is_busy = !self.calls.is_empty() || self.background.count() > 0;
        self.end_commands();
        self.created
            .iter_mut()
            .for_each(|created| created.update(&self.spec, true));
        if is_busy {
            let found = self.look_at_project(true);
            self.found.extend(found);
        }
        // Nobody is left to report it to.
        leave_unreported(&self.spec, std::mem::take(&mut self.found));
        if self.spec.has(Layer::PidNamespace) {
            self.pool.kill();
        }
        let ends: Vec<_> = self
            .calls
            .into_values()
            .filter_map(Call::into_cancelled)
            .collect();
        // In the flat tier this kills the remaining processes, before the audit blocks on the disk.
        drop((self.pool, self.files, self.background));
        let mut unfinished = self.kept.end().into_iter();
        // A failure is ignored: no client is left to report it to.
        let _ = unfinished.try_for_each(|kept| self.audit.append(&kept.record()));
        let mut ends = ends.into_iter();
        let recorded = ends.try_for_each(|end| {
            let owed = self.audit.ended(end.call, &end.outcome, &end.usage)?;
            self.audit.complete(owed)
        });
        let _ = recorded.and_then(|()| self.audit.close());
        drop(self.root_lock);
        self.spec.scratch
    }

    /// Ends all commands, and waits until no process is left that could change what is checked next.
    fn end_commands(&mut self) {
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
        let mut refusals = Vec::new();
        for command in running {
            if !command.exits_until(until) {
                command.kill();
                command.exits_until(Instant::now() + LAST_SWEEP);
            }
            refusals.extend_from_slice(command.refusals());
        }
        // What they have misplaced is taken away as after any call.
        self.take_refusals(&refusals);
    }
}
