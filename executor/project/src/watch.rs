//! The checks after each call in the repositories of a project, in the broker: that they still are repositories, what git tracks, and
//! what calls have left there. Only those in which something has happened are looked at.

use crate::asking::{PendingQuestions, RepositoryReply};
use crate::commands::Commands;
use crate::kept_repositories::KeptRepository;
use crate::leftovers::{Leftovers, NewLocks};
use crate::other_repositories::{IndexQuestion, OtherRepositories, TIME as OTHERS_TIME};
use crate::repository_changes::RepositoryChanges;
use crate::tracked_secrets::{TrackedQuestion, TrackedSecrets};
use broker_protocol::{Finding, FindingKind};
use executor_spec::created::RenameLock;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::sandbox::{Rooted, SandboxSpec};
use policies::PatternFile;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// The parts that make directories repositories, when commands' changes are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RepositoryParts {
    Restored,
    /// As commands have left them.
    AsLeft,
}

/// How long repositories are looked at while commands run, when other calls wait; the rest is looked at later.
const TIME: Duration = Duration::from_millis(100);

/// The repositories of a session.
#[derive(Debug)]
pub struct RepositoryWatch {
    /// The secrets that git tracks, if the project has a repository.
    tracked: Option<TrackedSecrets>,
    /// Repositories besides the project's own: their indexes, and those that calls have made.
    pub others: OtherRepositories,
    /// Those that are looked at, the user's first, and Mercurial's at the end.
    all: Vec<WatchedRepository>,
    /// Changes in these, by their places, and behind them in what decides what git tracks.
    changes: RepositoryChanges,
    /// Whether there was a look before: a session of one call needs no watches.
    is_used: bool,
    /// Whether it was reported which settings of the user's git commits are made without.
    is_told: bool,
}

/// Findings after calls so far, and the questions that are still open.
#[derive(Debug)]
pub struct Look {
    pub(crate) asking: PendingQuestions,
    findings: Vec<Finding>,
    /// Findings in the other repositories.
    of_others: Vec<Finding>,
    /// The places of those that will report further changes.
    watched: BTreeSet<usize>,
    /// Whether anything has happened in what decides what git tracks.
    is_due: bool,
    tracked: Option<TrackedQuestion>,
    indexes: Vec<IndexQuestion>,
}

#[derive(Debug)]
struct WatchedRepository {
    kept: Option<KeptRepository>,
    left: Leftovers,
}

impl RepositoryWatch {
    /// Covers the watched ones of `objects`, and Mercurial's in the project.
    pub(super) fn new(
        objects: &ProtectedObjects,
        spec: &Rooted,
        tracked: Option<TrackedSecrets>,
        others: OtherRepositories,
    ) -> Self {
        let git = objects.watched.iter().map(|path| {
            let (kept, left) = (KeptRepository::of(path), Leftovers::of_git(path));
            WatchedRepository { kept, left }
        });
        let mercurial = WatchedRepository {
            kept: None,
            left: Leftovers::of_mercurial(&spec.project),
        };
        let all: Vec<WatchedRepository> = git.chain([mercurial]).collect();
        let changes = RepositoryChanges::new(all.len() + 1);
        Self {
            tracked,
            others,
            all,
            changes,
            is_used: false,
            is_told: false,
        }
    }

    /// Whether parts of a repository may have to be restored, which needs the lock on names.
    pub(crate) fn needs_lock(&mut self) -> bool {
        self.changes.receive();
        let own = self.all.len() - 1;
        (0..own).any(|place| self.changes.has(place)) || self.others.are_kept()
    }

    /// Restores the parts that make directories repositories, before anything is watched in them.
    pub fn restore(&mut self, _lock: &RenameLock) {
        for (place, repository) in self.all.iter_mut().enumerate() {
            if self.changes.has(place) {
                // If it fails, the user's git will report it.
                let _ = repository
                    .kept
                    .iter_mut()
                    .try_for_each(KeptRepository::restore);
            }
        }
        self.others.restore();
    }

    /// Whether a reference of the project's repository has changed since the last check, as with each commit.
    pub(crate) fn have_references_changed(&self) -> bool {
        let tracked = self.tracked.as_ref();
        tracked.is_some_and(TrackedSecrets::have_references_changed)
    }

    /// Looks at what commands have left since the last look. What git tracks is asked of a worker, and [`end`](Self::end) takes its
    /// answers.
    pub fn begin(
        &mut self,
        spec: &SandboxSpec,
        commands: Commands,
        parts: RepositoryParts,
    ) -> Look {
        let mut watched = if commands.are_over() && self.is_used {
            self.watch()
        } else {
            BTreeSet::new()
        };
        self.is_used = true;
        if parts == RepositoryParts::AsLeft {
            watched.clear();
        }
        let (mut findings, mut locks) = (Vec::new(), NewLocks::default());
        let until = Instant::now() + TIME;
        for (place, repository) in self.all.iter_mut().enumerate() {
            if self.changes.has(place) && (commands.are_over() || Instant::now() < until) {
                findings.extend(repository.left.update(commands, &mut locks));
            }
        }
        findings.extend(locks.finding());
        findings.extend(self.commit_settings(spec));
        let last = self.all.len();
        let is_due = self.changes.has(last);
        let tracked = self.tracked.as_ref().filter(|_| is_due);
        let tracked = tracked.and_then(|tracked| tracked.question(commands));
        let changed: BTreeSet<&Path> = (0..last)
            .filter(|place| self.changes.has(*place))
            .map(|place| self.all[place].left.directory())
            .collect();
        let known: BTreeSet<&Path> = self
            .all
            .iter()
            .map(|watched| watched.left.directory())
            .collect();
        let has_changed =
            |directory: &Path| changed.contains(directory) || !known.contains(directory);
        let of_others = self.others.update(commands, &has_changed);
        let indexes = self.others.questions(commands);
        let questions = tracked.iter().map(|question| &question.asked);
        let questions = questions.chain(indexes.iter().map(|question| &question.asked));
        let asking = PendingQuestions::new(questions.cloned(), OTHERS_TIME);
        Look {
            asking,
            findings,
            of_others,
            watched,
            is_due,
            tracked,
            indexes,
        }
    }

    /// Findings that commands have caused, with the answers of the worker; `commands` says whether one has run since the look began.
    pub fn end(&mut self, look: Look, spec: &SandboxSpec, commands: Commands) -> Vec<Finding> {
        let Look {
            asking,
            mut findings,
            of_others,
            mut watched,
            is_due,
            tracked: question,
            indexes,
        } = look;
        let mut answers = asking.into_answers();
        if let Some(tracked) = self.tracked.as_mut().filter(|_| is_due) {
            let before = tracked.watched();
            if let Some(question) = question {
                let answer = match answers.next() {
                    Some(RepositoryReply::Answered(answer)) => Some(*answer),
                    Some(RepositoryReply::Failed | RepositoryReply::NotAsked) | None => None,
                };
                findings.extend(tracked.update(spec, (question.seen, answer), commands));
            }
            findings.extend(tracked.in_submodules(spec));
            if tracked.watched() != before {
                watched.remove(&self.all.len());
            }
        }
        let indexes = indexes.into_iter().zip(answers);
        let of_indexes = self
            .others
            .judge_indexes(indexes, commands, &spec.policy.matcher);
        findings.extend(self.others.unchecked());
        findings.extend(of_others);
        findings.extend(of_indexes);
        if commands.are_over() {
            self.changes.forget(|place| watched.contains(&place));
        }
        findings
    }

    /// Reports the settings that commits of commands are made without, once, when the first may have been made.
    fn commit_settings(&mut self, spec: &SandboxSpec) -> Option<Finding> {
        let mut keys = spec.without_effect.iter();
        let first = keys.next()?;
        let patterns = [PatternFile::Ignore, PatternFile::Attributes].map(PatternFile::key);
        let has_changed = self.changes.has(self.all.len());
        let tracked = self.tracked.as_ref().filter(|_| has_changed);
        if self.is_told || !tracked.is_some_and(TrackedSecrets::have_references_changed) {
            return None;
        }
        self.is_told = true;
        let has_patterns = patterns.iter().any(|key| spec.without_effect.contains(key));
        let (why, advice) = match has_patterns {
            false => (
                "Your git's settings say this, and git in the sandbox does not know it: what commands commit or tag is not signed \
                 for you, and hooks of yours do not run.",
                "before you push, sign such commits or run your hooks on them outside the sandbox",
            ),
            true => (
                "Your git's settings say this, and git in the sandbox does not know it: what commands commit or tag is not signed \
                 for you, hooks of yours do not run, and files that such a list of yours names are treated as if it did not.",
                "look at such commits before you push; a list counts in the sandbox if it is a file of at most 64 KiB, without links on \
                 the way but in your home directory itself",
            ),
        };
        let mut found = Finding::new(FindingKind::CommitSetting, *first, why).with_advice(advice);
        keys.for_each(|key| found.add_object(*key));
        Some(found)
    }

    /// Watches those in which something has happened, before they are looked at; returns the places of those that are watched.
    fn watch(&mut self) -> BTreeSet<usize> {
        let mut watched = BTreeSet::new();
        let last = self.all.len();
        for place in 0..last {
            let left = &self.all[place].left;
            if self.changes.has(place)
                && !left.is_absent()
                && self.changes.watch(place, &left.watched())
            {
                watched.insert(place);
            }
        }
        if self.changes.has(last) {
            let paths = self
                .tracked
                .as_ref()
                .map(TrackedSecrets::watched)
                .unwrap_or_default();
            if self.changes.watch(last, &paths) {
                watched.insert(last);
            }
        }
        watched
    }
}
