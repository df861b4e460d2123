//! The checks when calls have ended, before the client hears of it: who may use the roots, what calls have misplaced, the project's
//! repositories. What git tracks is asked of a worker. Nothing waits for its answer but the calls that had ended before.

use crate::asking::{PendingQuestions, StartWorker};
use crate::commands::Commands;
use crate::passed_over::PassedOverNames;
use crate::quarantine::Misplaced;
use crate::root_modes::RootModes;
use crate::watch::{Look, RepositoryParts, RepositoryWatch};
use broker_protocol::{CallId, Finding};
use executor_spec::created::CreatedFiles;
use executor_spec::refusals::Refusal;
use executor_spec::sandbox::SandboxSpec;
use nix::poll::PollFlags;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long the lock on names is tried for, which cells hold while they change some, and how often.
const LOCK_TIME: Duration = Duration::from_millis(50);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The checks of a session.
#[derive(Debug)]
pub struct ProjectChecks {
    /// The modes and access lists of the roots, which no call changes.
    pub modes: RootModes,
    pub watch: Option<RepositoryWatch>,
    misplaced: Misplaced,
    passed_over: PassedOverNames,
    /// Whether anything may have changed the zones since the last check: a command, or a call that writes.
    has_worked: bool,
    /// Whether commands have ended for which no call waits.
    is_due: bool,
    lock: Option<LockTries>,
    pending: Option<PendingCheck>,
}

/// When the lock on names is tried for again, and until when.
#[derive(Clone, Copy, Debug)]
struct LockTries {
    next: Instant,
    until: Instant,
}

/// A check that has begun.
#[derive(Debug)]
struct PendingCheck {
    /// The calls that had ended by then.
    calls: BTreeSet<CallId>,
    /// Whether one was running then.
    commands: Commands,
    findings: Vec<Finding>,
    /// The look that waits for answers, if anything is known of repositories.
    repositories: Option<Look>,
}

impl PendingCheck {
    /// Whether all questions have their answers by now.
    fn is_answered(&mut self, start: &StartWorker) -> bool {
        let repositories = self.repositories.as_mut();
        repositories.is_none_or(|repositories| repositories.asking.advance(start))
    }
}

impl ProjectChecks {
    pub fn new(modes: RootModes, watch: Option<RepositoryWatch>) -> Self {
        Self {
            modes,
            watch,
            misplaced: Misplaced::default(),
            passed_over: PassedOverNames::default(),
            has_worked: false,
            is_due: false,
            lock: None,
            pending: None,
        }
    }

    /// A command is about to begin.
    pub fn command_begins(&mut self) {
        if !self.has_worked {
            self.modes.take();
        }
        self.has_worked = true;
    }

    /// A call is about to write in the zones.
    pub fn write_begins(&mut self) {
        self.has_worked = true;
    }

    /// Takes in what a command has misplaced, and what its git has passed over.
    pub fn add_refusals(&mut self, refusals: &[Refusal], spec: &SandboxSpec) {
        self.misplaced.add(refusals);
        self.passed_over.add(refusals, &spec.project);
    }

    /// A command has ended for which no call waits.
    pub fn background_ended(&mut self) {
        self.is_due = true;
    }

    /// Checks what the `ended` calls and others have left, as far as that is possible without waiting. Returns the calls after which everything was checked, and what was found, if a check is complete.
    pub fn check(
        &mut self,
        ended: &[CallId],
        commands: Commands,
        (spec, start): (&SandboxSpec, &StartWorker),
    ) -> (BTreeSet<CallId>, Option<Vec<Finding>>) {
        let (mut checked, mut findings) = (BTreeSet::new(), None);
        loop {
            if let Some(mut pending) = self.pending.take() {
                if !pending.is_answered(start) {
                    self.pending = Some(pending);
                    break;
                }
                checked.append(&mut pending.calls);
                let found = self.finish(pending, spec);
                findings.get_or_insert_with(Vec::new).extend(found);
            }
            let due = ended.iter().filter(|call| !checked.contains(call));
            let due: BTreeSet<CallId> = due.copied().collect();
            if due.is_empty() && !self.is_due {
                break;
            }
            match self.begin(due, commands, spec) {
                Some(begun) => self.pending = Some(begun),
                None => break,
            }
        }
        (checked, findings)
    }

    /// Ends a check that is due or under way, and its worker; whether there was one. The next one begins again, with all that has come
    /// since.
    pub fn give_up(&mut self) -> bool {
        let was_left = self.is_due || self.lock.is_some() || self.pending.is_some();
        (self.is_due, self.lock, self.pending) = (false, None, None);
        self.has_worked |= was_left;
        was_left
    }

    /// Checks for the last time, and waits for the answers: nobody else is left who would have to wait.
    pub fn check_at_the_end(&mut self, spec: &SandboxSpec, start: &StartWorker) -> Vec<Finding> {
        // Those that could hold the lock have ended.
        let (next, until) = (Instant::now(), Instant::now());
        self.lock = Some(LockTries { next, until });
        let Some(mut last) = self.begin(BTreeSet::new(), Commands::AreOver, spec) else {
            return Vec::new();
        };
        while !last.is_answered(start) {
            last.repositories.iter().for_each(|look| look.asking.wait());
        }
        self.finish(last, spec)
    }

    pub fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        self.questions()?.waits_for()
    }

    /// When a check goes on in any case.
    pub fn deadline(&self) -> Option<Instant> {
        let answer = || self.questions()?.deadline();
        self.lock.map(|tries| tries.next).or_else(answer)
    }

    fn questions(&self) -> Option<&PendingQuestions> {
        let repositories = self.pending.as_ref()?.repositories.as_ref()?;
        Some(&repositories.asking)
    }

    /// Checks all but what a worker is asked; `None` while the lock on names is tried for.
    fn begin(
        &mut self,
        calls: BTreeSet<CallId>,
        commands: Commands,
        spec: &SandboxSpec,
    ) -> Option<PendingCheck> {
        if !self.has_worked {
            self.is_due = false;
            return Some(PendingCheck {
                calls,
                commands,
                findings: Vec::new(),
                repositories: None,
            });
        }
        let has_kept = self.watch.as_mut().is_some_and(RepositoryWatch::needs_lock);
        let memory = spec.found().created.as_ref();
        let names = memory.and_then(|memory| memory.try_clone().ok());
        let names = names
            .map(CreatedFiles::of)
            .filter(|_| has_kept || !self.misplaced.is_empty());
        let lock = names
            .as_ref()
            .and_then(|names| names.try_lock_renames().ok());
        if names.is_some() && lock.is_none() && self.is_lock_awaited() {
            return None;
        }
        (self.lock, self.is_due) = (None, false);
        self.has_worked = !commands.are_over();
        // Before anything else: nothing is found in a root that cannot be entered.
        let mut findings = self.modes.give_back();
        findings.extend(self.misplaced.take(spec, lock.as_ref()));
        let watch = self.watch.as_ref();
        let has_committed = || watch.is_some_and(RepositoryWatch::have_references_changed);
        findings.extend(self.passed_over.check(&spec.project, has_committed));
        let repositories = self.watch.as_mut().map(|watch| {
            lock.iter().for_each(|lock| watch.restore(lock));
            let parts = if lock.is_some() || !has_kept {
                RepositoryParts::Restored
            } else {
                RepositoryParts::AsLeft
            };
            // Cells wait for it.
            drop(lock);
            watch.begin(spec, commands, parts)
        });
        Some(PendingCheck {
            calls,
            commands,
            findings,
            repositories,
        })
    }

    fn finish(&mut self, pending: PendingCheck, spec: &SandboxSpec) -> Vec<Finding> {
        let mut findings = pending.findings;
        // A command that has begun meanwhile may have changed anything.
        let commands = match self.has_worked {
            true => Commands::Run,
            false => pending.commands,
        };
        if let (Some(watch), Some(look)) = (&mut self.watch, pending.repositories) {
            findings.extend(watch.end(look, spec, commands));
        }
        findings
    }

    /// Whether the lock on names is tried for again in a moment.
    fn is_lock_awaited(&mut self) -> bool {
        let now = Instant::now();
        let until = self.lock.map_or(now + LOCK_TIME, |tries| tries.until);
        let next = now + LOCK_PAUSE;
        self.lock = Some(LockTries { next, until });
        now < until
    }
}
