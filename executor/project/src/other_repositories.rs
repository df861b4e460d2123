//! In the broker: repositories besides the project's own, after each call. Those that calls have made, which are the user's from the
//! moment when the user's shell enters them; those within the project; and those in trees that are granted for writing.
//!
//! What a command has left there is judged like what it leaves in the project's own, and so is an index: git writes to whatever
//! names it has. The user's come first, and what there was no time for is said and looked at first after the next call.

use crate::asking::{FilesAsked, RepositoryQuestion, RepositoryReply};
use crate::commands::Commands;
use crate::created_record::{inspect, is_recent, state};
use crate::finding::of_repository;
use crate::kept_repositories::KeptRepository;
use crate::leftovers::{Leftovers, NewLocks, set_aside};
use crate::project_repository::ProjectRepository;
use crate::protected::REPOSITORIES_MAX;
use broker_protocol::{Finding, FindingKind};
use executor_spec::known_directories::DirectoryMemory;
use executor_spec::made_repositories::MadeRepositories;
use executor_spec::sandbox::Rooted;
use executor_spec::worker::{FILES_MAX, InHead, IndexFault, RepositoryAnswer};
use policies_guard::Matcher;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long all of them may take after a call, and their indexes: some thousand on a busy machine.
pub(crate) const TIME: Duration = Duration::from_secs(1);

/// The state of an index and of the files on which it is based; `None` for a missing one.
type IndexState = Vec<Option<[i64; 7]>>;

/// A question about an index.
#[derive(Debug)]
pub struct IndexQuestion {
    /// The state before it is asked.
    before: IndexState,
    pub asked: RepositoryQuestion,
}

/// The other repositories of a session.
#[derive(Debug, Default)]
pub struct OtherRepositories {
    made: Option<MadeRepositories>,
    /// The user's, in the order in which they were found; then those that calls have made.
    all: Vec<Other>,
    /// Directories above them that a worker may read.
    roots: Vec<PathBuf>,
}

/// Who has made a repository. The user's come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum MadeBy {
    User,
    Calls,
}

#[derive(Debug)]
struct Other {
    directory: PathBuf,
    /// Files that calls left there, and what makes it a repository, where nothing else looks for these.
    left: Option<Leftovers>,
    kept: Option<KeptRepository>,
    /// The state of its index at the last look, and of the files on which that is based.
    index: IndexState,
    shared: Vec<String>,
    /// Names of its index that a result has named.
    named: BTreeSet<Vec<u8>>,
    /// Whether it was reported that not all of the index is compared.
    is_not_compared_told: bool,
    /// Whether the index may have changed since without a trace in its state.
    is_unsure: bool,
    by: MadeBy,
    /// Whether it is looked at after this call.
    is_due: bool,
    /// Whether there was no time for it.
    is_left: bool,
}

impl OtherRepositories {
    /// Those of `repositories`, which were there when the session opened, and all that its calls will make.
    pub fn new<'r>(repositories: impl IntoIterator<Item = &'r PathBuf>, own: &[PathBuf]) -> Self {
        let mut new = Self::default();
        new.cover(
            repositories.into_iter().filter(|path| !own.contains(path)),
            |_| None,
        );
        new
    }

    /// Learns, with the session planned, which repositories its calls make, and where all lie.
    pub fn follow(&mut self, spec: &Rooted, made: &DirectoryMemory) {
        self.made = MadeRepositories::of(made).ok();
        let linked = spec.linked.iter().map(|linked| linked.common.clone());
        self.roots.extend(
            [spec.project.clone(), spec.central.clone()]
                .into_iter()
                .chain(linked),
        );
    }

    /// Covers repositories of the user's as they are now, of which some may be covered already.
    fn cover<'r>(
        &mut self,
        repositories: impl IntoIterator<Item = &'r PathBuf>,
        left: impl Fn(&Path) -> Option<Leftovers>,
    ) {
        for directory in repositories {
            let users = self
                .all
                .iter()
                .filter(|other| other.by == MadeBy::User)
                .count();
            if users < REPOSITORIES_MAX
                && !self.all.iter().any(|other| other.directory == *directory)
            {
                let other = Other::new(directory, left(directory), MadeBy::User);
                self.all.insert(users, other);
            }
        }
    }

    /// Covers those in a tree that is granted for writing; what makes them repositories is kept as it is now.
    pub fn cover_granted<'r>(
        &mut self,
        root: &Path,
        repositories: impl IntoIterator<Item = &'r PathBuf> + Clone,
    ) {
        if !self.roots.iter().any(|known| known == root) {
            self.roots.push(root.to_owned());
        }
        self.cover(repositories.clone(), |directory| {
            Some(Leftovers::of_git(directory))
        });
        let granted: BTreeSet<&PathBuf> = repositories.into_iter().collect();
        for other in &mut self.all {
            if granted.contains(&other.directory)
                && let Some(kept) = KeptRepository::of(&other.directory)
            {
                other.kept = Some(kept);
            }
        }
    }

    /// Whether any is kept a repository.
    pub(super) fn are_kept(&self) -> bool {
        self.all.iter().any(|other| other.kept.is_some())
    }

    /// Restores the parts that make those in granted trees repositories.
    pub(super) fn restore(&mut self) {
        for kept in self.all.iter_mut().filter_map(|other| other.kept.as_mut()) {
            // If it fails, the user's git will report it.
            let _ = kept.restore();
        }
    }

    /// Findings on files that calls have left since the last check, except in their indexes. Those in which nothing `has_changed` need no look.
    pub fn update(
        &mut self,
        commands: Commands,
        has_changed: &dyn Fn(&Path) -> bool,
    ) -> Vec<Finding> {
        self.find_made();
        let until = Instant::now() + TIME;
        self.all.sort_by_key(|other| (other.by, !other.is_left));
        let (mut findings, mut locks) = (Vec::new(), NewLocks::default());
        for other in &mut self.all {
            other.is_due = other.is_left || other.is_unsure || has_changed(&other.directory);
            other.is_left = other.is_due && Instant::now() > until;
            if other.is_due && !other.is_left {
                findings.extend(
                    other
                        .left
                        .iter_mut()
                        .flat_map(|left| left.update(commands, &mut locks)),
                );
            }
        }
        findings.extend(locks.finding());
        findings
    }

    /// Asks about each index that has changed, those below one root after each other.
    pub fn questions(&self, commands: Commands) -> Vec<IndexQuestion> {
        let mut due: BTreeMap<&Path, Vec<IndexQuestion>> = BTreeMap::new();
        for other in self
            .all
            .iter()
            .filter(|other| other.is_due && !other.is_left)
        {
            let before = other.index_state();
            let is_due = before != other.index || commands.are_over() && other.is_unsure;
            let root = self
                .roots
                .iter()
                .find(|root| other.directory.starts_with(root));
            if let Some(root) = root.filter(|_| is_due) {
                let repository = ProjectRepository {
                    project: root.clone(),
                    common: root.clone(),
                    own: other.directory.clone(),
                };
                let asked = RepositoryQuestion {
                    repository,
                    files: FilesAsked::OfIndex,
                };
                due.entry(root)
                    .or_default()
                    .push(IndexQuestion { before, asked });
            }
        }
        due.into_values().flatten().collect()
    }

    /// Sets aside each index that has changed and that git must not use; `commands` says whether one has run since that was asked.
    pub fn judge_indexes(
        &mut self,
        answers: impl IntoIterator<Item = (IndexQuestion, RepositoryReply)>,
        commands: Commands,
        matcher: &Matcher,
    ) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (IndexQuestion { before, asked }, answer) in answers {
            let directory = &asked.repository.own;
            let Some(other) = self
                .all
                .iter_mut()
                .find(|other| other.directory == *directory)
            else {
                continue;
            };
            let answer = match answer {
                RepositoryReply::Answered(answer) => *answer,
                RepositoryReply::Failed => RepositoryAnswer {
                    fault: Some(IndexFault::Unreadable),
                    ..RepositoryAnswer::default()
                },
                RepositoryReply::NotAsked => {
                    other.is_left = true;
                    continue;
                }
            };
            findings.extend(other.judge(before, answer, commands, matcher));
        }
        findings
    }

    /// One finding for all that there was no time for.
    pub fn unchecked(&self) -> Option<Finding> {
        let left = self.all.iter().filter(|other| other.is_left);
        unchecked(&left.collect::<Vec<_>>())
    }

    fn find_made(&mut self) {
        let Some(made) = &self.made else { return };
        let Ok(paths) = made.paths() else { return };
        let present: BTreeSet<&PathBuf> = paths.iter().collect();
        self.all
            .retain(|other| other.by == MadeBy::User || present.contains(&other.directory));
        let known: BTreeSet<PathBuf> = self
            .all
            .iter()
            .map(|other| other.directory.clone())
            .collect();
        // A file `.git` names a directory that was made too.
        let new = paths
            .iter()
            .filter(|path| !known.contains(*path) && path.is_dir());
        let new = new.map(|path| Other::new(path, Some(Leftovers::of_made(path)), MadeBy::Calls));
        self.all.extend(new.collect::<Vec<_>>());
    }
}

impl Other {
    fn new(directory: &Path, left: Option<Leftovers>, by: MadeBy) -> Self {
        let directory = directory.to_owned();
        let (index, shared, kept) = (Vec::new(), Vec::new(), None);
        let (is_unsure, is_due, is_left) = (false, false, false);
        let named = BTreeSet::new();
        let is_not_compared_told = false;
        let mut new = Self {
            directory,
            left,
            kept,
            index,
            shared,
            named,
            is_not_compared_told,
            is_unsure,
            by,
            is_due,
            is_left,
        };
        // Whatever exists before any call is the user's.
        new.index = match by {
            MadeBy::Calls => vec![None],
            MadeBy::User => new.index_state(),
        };
        new
    }

    fn index_state(&self) -> IndexState {
        let names = std::iter::once("index").chain(self.shared.iter().map(String::as_str));
        let state_of = |name| {
            inspect(&self.directory.join(name))
                .ok()
                .map(|(_, metadata)| state(&metadata))
        };
        names
            .filter(|name| !name.contains('/'))
            .map(state_of)
            .collect()
    }

    /// Takes in what its index is, whose state was `before` when that was asked.
    fn judge(
        &mut self,
        before: IndexState,
        answer: RepositoryAnswer,
        commands: Commands,
        matcher: &Matcher,
    ) -> Vec<Finding> {
        let mut findings = self.not_committed(&answer, matcher);
        findings.extend(self.not_compared(&answer));
        let is_same = answer.shared == self.shared;
        self.shared = answer.shared;
        self.index = if is_same { before } else { self.index_state() };
        self.is_unsure = !commands.are_over() || self.index.iter().flatten().any(is_recent);
        if let Some(fault) = answer.fault {
            findings.push(refuse_index(&self.directory, &fault));
            self.index = self.index_state();
        }
        findings
    }

    /// Says once that an index has more protected names than are compared with the last commit, or cannot be read as a whole.
    fn not_compared(&mut self, answer: &RepositoryAnswer) -> Option<Finding> {
        let names = answer.index.as_ref().map(Vec::len);
        let is_compared = names.is_some_and(|names| names <= FILES_MAX);
        if self.by == MadeBy::Calls || answer.fault.is_some() || is_compared {
            return None;
        }
        if std::mem::replace(&mut self.is_not_compared_told, true) {
            return None;
        }
        let what = match names {
            Some(names) => format!(
                "it has {names} protected names, of which the first {FILES_MAX} were compared with the last commit"
            ),
            None => "not all of it can be read (`--split-index`, a sparse index, too many protected names)".to_owned(),
        };
        let why = format!(
            "A command has changed this index, and {what}. Lazaret cannot tell you which others are new."
        );
        let advice = "look at `git diff --cached --name-only` there before you commit";
        let index = self.directory.join("index");
        Some(of_repository(FindingKind::UnreadableIndex, &index, &why).with_advice(advice))
    }

    /// Protected names in the index that the last commit does not have, once each. What the index had before the call is not known.
    fn not_committed(&mut self, answer: &RepositoryAnswer, matcher: &Matcher) -> Vec<Finding> {
        // One that calls have made has what they have committed.
        if self.by == MadeBy::Calls {
            return Vec::new();
        }
        let names = answer.index.iter().flatten().zip(&answer.files);
        // Of those after them the last commit was not asked.
        let names = names.take(FILES_MAX);
        let new = names.filter(|(_, in_head)| match in_head {
            InHead::Nothing | InHead::Unknown => true,
            InHead::Other | InHead::Same => false,
        });
        let new = new.map(|(name, _)| &name.path);
        let new: Vec<_> = new
            .filter(|path| self.named.insert((*path).clone()))
            .collect();
        let is_secret = |path: &&&Vec<u8>| matcher.is_secret(path);
        let (secrets, others): (Vec<_>, Vec<_>) = new.iter().partition(is_secret);
        let of = |kind, names: &[&&Vec<u8>], why: &str| {
            let (first, more) = names.split_first()?;
            let index = self.directory.join("index");
            let why = format!(
                "A command has changed this index, and it has `{}`{}, which the last commit has not. {why}",
                first.escape_ascii(),
                match more.len() {
                    0 => String::new(),
                    count => format!(" and {count} more protected names"),
                },
            );
            let advice =
                "if you have not added it, run `git rm --cached` for it there, outside the sandbox";
            Some(of_repository(kind, &index, &why).with_advice(advice))
        };
        let secret = of(
            FindingKind::TrackedSecret,
            &secrets,
            "Your next `git stash` or `git commit -a` there would copy the real file into the repository, where commands read it.",
        );
        let other = of(
            FindingKind::IndexedName,
            &others,
            "Your next `git commit` or `git checkout .` there takes it from the index, and programs of yours act on it.",
        );
        secret.into_iter().chain(other).collect()
    }
}

fn refuse_index(directory: &Path, fault: &IndexFault) -> Finding {
    let index = directory.join("index");
    let what = why_unusable(fault);
    let why = format!("A command has left an index that {what}.");
    let found =
        of_repository(FindingKind::IndexSetAside, &index, &why).with_state(set_aside(&index));
    found.with_advice("run `git reset`, which writes a new index from `HEAD`")
}

/// Why git must not use an index, to go on after "an index that".
pub(crate) fn why_unusable(fault: &IndexFault) -> String {
    match fault {
        IndexFault::Outside(path) => format!(
            "contains the name `{}`, to which your `git restore` would write",
            path.escape_ascii()
        ),
        IndexFault::OtherTree(directory) => format!(
            "has another tree cached for `{}/` than its names show: your next `git commit` would take that unseen",
            directory.escape_ascii()
        ),
        IndexFault::Unreadable => {
            "cannot be read, so Lazaret cannot tell which files your `git restore` would write"
                .to_owned()
        }
    }
}

fn unchecked(left: &[&Other]) -> Option<Finding> {
    let (first, more) = left.split_first()?;
    let why = "There was no time to look at what the call has left in this repository; that follows after the next one.";
    let advice = "do not enter it before that, or remove it if you do not need it";
    let mut found =
        of_repository(FindingKind::Unchecked, &first.directory, why).with_advice(advice);
    more.iter()
        .for_each(|other| found.add_object(other.directory.to_string_lossy()));
    Some(found)
}
