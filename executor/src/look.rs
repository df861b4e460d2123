//! What is looked at when calls have ended, before the client hears of it: who may use the roots, what calls have misplaced, the project's
//! repositories. What git tracks is asked of a worker. Nothing waits for its answer but the calls that have ended by then.

use crate::repository_question::answerer_of;
use crate::session::Session;
use broker_protocol::{CallId, Finding};
use executor_project::{Answerer, Look, ProjectRepository, RepositoryWatch, StartWorker};
use executor_spec::created::CreatedFiles;
use nix::poll::PollFlags;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long the lock on names is tried for, which cells hold while they change some, and how often.
const LOCK_TIME: Duration = Duration::from_millis(50);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The look that is due or under way.
#[derive(Debug, Default)]
pub struct Looks {
    /// Whether commands have ended for which no call waits.
    pub is_due: bool,
    lock: Option<LockTries>,
    pending: Option<PendingLook>,
}

/// When the lock on names is tried for again, and until when.
#[derive(Clone, Copy, Debug)]
struct LockTries {
    next: Instant,
    until: Instant,
}

/// A look that has begun.
#[derive(Debug)]
struct PendingLook {
    /// The calls that had ended by then.
    calls: BTreeSet<CallId>,
    /// Whether no command was running then.
    alone: bool,
    findings: Vec<Finding>,
    /// What waits for answers.
    repositories: Option<Look>,
}

impl Looks {
    pub fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let repositories = self.pending.as_ref()?.repositories.as_ref()?;
        repositories.asking.waits_for()
    }

    /// When it goes on in any case.
    pub fn deadline(&self) -> Option<Instant> {
        let answer = || {
            self.pending
                .as_ref()?
                .repositories
                .as_ref()?
                .asking
                .deadline()
        };
        self.lock.map(|tries| tries.next).or_else(answer)
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

impl PendingLook {
    /// Whether all questions have their answers by now.
    fn is_answered(&mut self, start: &StartWorker) -> bool {
        let repositories = self.repositories.as_mut();
        repositories.is_none_or(|repositories| repositories.asking.advance(start))
    }
}

impl Session {
    /// Looks at what the `ended` calls and others have left, as far as that is possible without waiting. Returns the calls that are
    /// reported now, and whether a look has ended. `alone`: no command is running any more.
    ///
    /// What ends while others wait for answers waits with them only if it may have changed something itself.
    pub fn look_after(&mut self, ended: &[CallId], alone: bool) -> (Vec<CallId>, bool) {
        let (mut looked_at, mut has_ended) = (BTreeSet::new(), false);
        loop {
            if let Some(mut pending) = self.looks.pending.take() {
                if !pending.is_answered(&|of| self.worker_for(of)) {
                    self.looks.pending = Some(pending);
                    break;
                }
                looked_at.append(&mut pending.calls);
                has_ended = true;
                self.end_look(pending);
            }
            let due = ended.iter().filter(|call| !looked_at.contains(call));
            let due: BTreeSet<CallId> = due.copied().collect();
            if due.is_empty() && !self.looks.is_due {
                break;
            }
            match self.begin_look(due, alone) {
                Some(begun) => self.looks.pending = Some(begun),
                None => break,
            }
        }
        let awaits = |call| self.calls.get(call).is_some_and(|call| call.awaits_look);
        let reported = ended
            .iter()
            .filter(|call| looked_at.contains(call) || !awaits(call));
        (reported.copied().collect(), has_ended)
    }

    /// Ends a look that is due or under way, and its worker; whether there was one. The next one begins again, with all that has come
    /// since.
    pub fn give_up_look(&mut self) -> bool {
        let Looks {
            is_due,
            lock,
            pending,
        } = std::mem::take(&mut self.looks);
        let was_left = is_due || lock.is_some() || pending.is_some();
        self.has_worked |= was_left;
        was_left
    }

    /// Looks for the last time, and waits for the answers: nobody else is left who would have to wait.
    pub fn look_at_the_end(&mut self) {
        // Those that could hold the lock have ended.
        let (next, until) = (Instant::now(), Instant::now());
        self.looks.lock = Some(LockTries { next, until });
        let Some(mut last) = self.begin_look(BTreeSet::new(), true) else {
            return;
        };
        while !last.is_answered(&|of| self.worker_for(of)) {
            last.repositories.iter().for_each(|look| look.asking.wait());
        }
        self.end_look(last);
    }

    fn worker_for(&self, of: &ProjectRepository) -> io::Result<Answerer> {
        answerer_of(&of.project, Some(of), (&self.spec, &self.profiles.user))
    }

    /// Looks at all but what a worker is asked; `None` while the lock on names is tried for.
    fn begin_look(&mut self, calls: BTreeSet<CallId>, alone: bool) -> Option<PendingLook> {
        if !self.has_worked {
            self.looks.is_due = false;
            return Some(PendingLook {
                calls,
                alone,
                findings: Vec::new(),
                repositories: None,
            });
        }
        let has_kept = self.watch.as_mut().is_some_and(RepositoryWatch::needs_lock);
        let memory = self.spec.found().created.as_ref();
        let names = memory.and_then(|memory| memory.try_clone().ok());
        let names = names
            .map(CreatedFiles::of)
            .filter(|_| has_kept || !self.misplaced.is_empty());
        let lock = names
            .as_ref()
            .and_then(|names| names.try_lock_renames().ok());
        if names.is_some() && lock.is_none() && self.looks.is_lock_awaited() {
            return None;
        }
        self.looks.lock = None;
        self.looks.is_due = false;
        self.has_worked = !alone;
        // Before anything else: nothing is found in a root that cannot be entered.
        let mut findings = self.modes.give_back();
        findings.extend(self.misplaced.take(&self.spec, lock.as_ref()));
        let repositories = self.watch.as_mut().map(|watch| {
            lock.iter().for_each(|lock| watch.restore(lock));
            let is_restored = lock.is_some() || !has_kept;
            // Cells wait for it.
            drop(lock);
            watch.begin(&self.spec, alone, is_restored)
        });
        Some(PendingLook {
            calls,
            alone,
            findings,
            repositories,
        })
    }

    fn end_look(&mut self, pending: PendingLook) {
        self.found.extend(pending.findings);
        // A command that has begun meanwhile may have changed anything.
        let alone = pending.alone && !self.has_worked;
        if let (Some(watch), Some(look)) = (&mut self.watch, pending.repositories) {
            self.found.extend(watch.end(look, &self.spec, alone));
        }
    }
}
