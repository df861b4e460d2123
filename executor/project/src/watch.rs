//! The checks after each call in the repositories of a project, in the broker: that they still are repositories, what git tracks, and
//! what calls have left there. Only those in which something has happened are looked at.

use crate::kept_repositories::KeptRepository;
use crate::left_files::{LeftFiles, NewLocks};
use crate::other_repositories::{AskIndexes, OtherRepositories};
use crate::quarantine::lock_of;
use crate::repository_changes::RepositoryChanges;
use crate::tracked_secrets::{ProjectRepository, TrackedSecrets};
use broker_protocol::{Finding, FindingKind};
use executor_spec::created::CreatedFiles;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::sandbox::{Rooted, SandboxSpec};
use executor_spec::worker::RepositoryAnswer;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    all: Vec<Watched>,
    /// What happens in these, by their places, and behind them in what decides what git tracks.
    changes: RepositoryChanges,
    /// Whether there was a look before: a session of one call needs no watches.
    is_used: bool,
    /// Whether it was reported which settings of the user's git commits are made without.
    is_told: bool,
}

#[derive(Debug)]
struct Watched {
    kept: Option<KeptRepository>,
    left: LeftFiles,
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
            let (kept, left) = (KeptRepository::of(path), LeftFiles::of_git(path));
            Watched { kept, left }
        });
        let mercurial = Watched {
            kept: None,
            left: LeftFiles::of_mercurial(&spec.project),
        };
        let all: Vec<Watched> = git.chain([mercurial]).collect();
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

    /// What commands have caused since the last check; `alone`: no command is running any more.
    pub fn update(
        &mut self,
        spec: &SandboxSpec,
        alone: bool,
        ask: impl Fn(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
        ask_indexes: &AskIndexes,
    ) -> Vec<Finding> {
        self.changes.receive();
        let is_restored = self.restore(spec);
        let mut watched = if alone && self.is_used {
            self.watch()
        } else {
            BTreeSet::new()
        };
        self.is_used = true;
        let (mut findings, mut locks) = (Vec::new(), NewLocks::default());
        let until = Instant::now() + TIME;
        for (place, repository) in self.all.iter_mut().enumerate() {
            if self.changes.has(place) && (alone || Instant::now() < until) {
                findings.extend(repository.left.update(alone, &mut locks));
            }
        }
        findings.extend(locks.finding());
        let last = self.all.len();
        findings.extend(self.commit_settings(spec));
        if let Some(tracked) = self.tracked.as_mut().filter(|_| self.changes.has(last)) {
            let before = tracked.watched();
            findings.extend(tracked.update(spec, alone, ask));
            if tracked.watched() != before {
                watched.remove(&last);
            }
        }
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
        findings.extend(self.others.update(
            alone,
            (ask_indexes, &spec.policy.matcher),
            &has_changed,
        ));
        if alone {
            self.changes
                .forget(|place| watched.contains(&place) && is_restored);
        }
        findings
    }

    /// What commits of commands are made without, once, when the first may have been made.
    fn commit_settings(&mut self, spec: &SandboxSpec) -> Option<Finding> {
        let mut keys = spec.without_effect.iter();
        let first = keys.next()?;
        let has_changed = self.changes.has(self.all.len());
        let tracked = self.tracked.as_ref().filter(|_| has_changed);
        if self.is_told || !tracked.is_some_and(TrackedSecrets::have_references_changed) {
            return None;
        }
        self.is_told = true;
        let why = "Your git's settings say this, and git in the sandbox does not know it: what commands commit or tag is not signed \
                   for you, and hooks of yours do not run.";
        let advice =
            "before you push, sign such commits or run your hooks on them outside the sandbox";
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

    /// Restores the parts that make directories repositories, before anything is watched in them; whether all were looked at.
    fn restore(&mut self, spec: &SandboxSpec) -> bool {
        let changes = &self.changes;
        let is_due = |place: &usize| changes.has(*place);
        if !(0..self.all.len() - 1).any(|place| is_due(&place)) && !self.others.are_kept() {
            return true;
        }
        let memory = spec
            .found()
            .created
            .as_ref()
            .and_then(|memory| memory.try_clone().ok());
        let Some(names) = memory.map(CreatedFiles::of) else {
            return false;
        };
        let Some(_lock) = lock_of(&names) else {
            return false;
        };
        for (_, repository) in self
            .all
            .iter_mut()
            .enumerate()
            .filter(|(place, _)| is_due(place))
        {
            // If it fails, the user's git will report it.
            let _ = repository
                .kept
                .iter_mut()
                .try_for_each(KeptRepository::restore);
        }
        self.others.restore();
        true
    }
}
