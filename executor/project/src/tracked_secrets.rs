//! Secrets that commands have made git track, and names that they have hidden from `git status`.
//!
//! The user's `git stash` and `git commit -a` take in what the index or `HEAD` has. If a command adds a secret's name there, the user's own
//! git copies the real secret into the repository, where later commands read it; and a secret that `HEAD` has unchanged would no longer
//! count as one. So what is tracked is checked when a session opens, and again after calls that have changed it. A closed file that a call
//! has made tracked stays closed, in later sessions too: `.lazaret/tracked` of the central root names it, one file per line, until git no
//! longer tracks it or the user removes the line. What the host does between sessions is the user's.
//!
//! Also reported: names that commands may not create and have put into the index only,
//! repositories that come about in a submodule's place, and an index that can no longer be read completely. An index that git must not
//! use is set aside: git writes to whatever names it has, even `../.bashrc`.
//!
//! *Does not*: prevent git from doing what it is told, or see repositories inside the project or files created after the entry.

use crate::asking::{FilesAsked, RepositoryQuestion};
use crate::commands::Commands;
use crate::created_record::is_recent;
use crate::finding::of_repository;
use crate::hidden_changes::HiddenChanges;
use crate::leftovers::set_aside;
use crate::other_repositories::why_unusable;
use crate::project_repository::{ProjectRepository, TrackedState};
use crate::record_file;
use crate::repository_changes::with_existing_parent;
use broker_protocol::paste::shell_word;
use broker_protocol::{Finding, FindingKind};
use executor_spec::created::CreatedFiles;
use executor_spec::sandbox::Rooted;
use executor_spec::undo_directory;
use executor_spec::worker::{InHead, IndexFault, RepositoryAnswer};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

const NAME: &str = "tracked";
/// Maximum bytes of it. A record with more says [`ALL`].
const RECORD_MAX: usize = 1 << 20;
/// The line that stands for everything that git tracks: there was no room for all lines. No path is written like this.
const ALL: &str = "\\*";
const HEADER: &str = "# Secrets that commands of this project have made git track. They stay closed while their line is here.\n";

/// A question about the project's repository.
#[derive(Debug)]
pub(crate) struct TrackedQuestion {
    /// The state before it is asked.
    pub(crate) seen: TrackedState,
    pub(crate) asked: RepositoryQuestion,
}

/// The secrets of a session that git tracks.
#[derive(Debug)]
pub(crate) struct TrackedSecrets {
    repository: ProjectRepository,
    /// The files that cells have created.
    created: CreatedFiles,
    /// The closed files with names of secrets.
    closed: Vec<PathBuf>,
    seen: TrackedState,
    /// Whether what is tracked may have changed since without a trace in `seen`.
    is_unsure: bool,
    tracked: Tracked,
    /// The record's directory, if anything can be recorded.
    directory: Option<OwnedFd>,
    record: BTreeSet<String>,
    /// Whether it was reported that the index cannot be compared.
    is_unread_told: bool,
    /// Submodules' places with a repository that was there when the session opened, or that a result has named.
    known: BTreeSet<Vec<u8>>,
}

/// Files that git tracks, as paths relative to the project.
#[derive(Debug, Default)]
struct Tracked {
    /// Protected names in the index, each with whether it is hidden; `None` if unknown.
    index: Option<BTreeMap<Vec<u8>, bool>>,
    /// Closed files of whose paths `HEAD` has any version.
    head: BTreeSet<Vec<u8>>,
    /// Closed files of whose paths `HEAD` may have one: it cannot be read as a whole.
    unknown: BTreeSet<Vec<u8>>,
    /// Why git must not use the index.
    fault: Option<IndexFault>,
    submodules: BTreeSet<Vec<u8>>,
    /// The files on which the index is based.
    shared: Vec<String>,
    /// Names whose changes git does not show.
    hidden: HiddenChanges,
}

impl Tracked {
    fn of(answer: Option<RepositoryAnswer>, files: &[PathBuf], project: &Path) -> Self {
        let Some(RepositoryAnswer {
            files: in_head,
            index,
            hidden,
            left_out,
            submodules,
            fault,
            shared,
        }) = answer
        else {
            return Self {
                fault: Some(IndexFault::Unreadable),
                ..Self::default()
            };
        };
        let (mut head, mut unknown) = (BTreeSet::new(), BTreeSet::new());
        for (path, in_head) in files.iter().zip(in_head) {
            match in_head {
                InHead::Nothing => {}
                InHead::Unknown => unknown.extend(below(path, project)),
                InHead::Other | InHead::Same => head.extend(below(path, project)),
            }
        }
        let mut names = BTreeMap::new();
        for name in index.iter().flatten().filter(|name| is_below(&name.path)) {
            *names.entry(name.path.clone()).or_insert(false) |= name.hidden;
        }
        let submodules = submodules
            .into_iter()
            .filter(|path| is_below(path))
            .collect();
        let hidden = HiddenChanges::new(hidden, left_out);
        Self {
            index: index.map(|_| names),
            head,
            unknown,
            fault,
            submodules,
            shared,
            hidden,
        }
    }

    /// Whether git tracks it, or may track it.
    fn may_have(&self, path: &[u8]) -> bool {
        self.index.is_none() || self.unknown.contains(path) || self.has(path)
    }

    /// Whether the index names what lies outside the repository's tree, or is that of another one.
    fn is_of_elsewhere(&self) -> bool {
        matches!(
            self.fault,
            Some(IndexFault::Outside(_) | IndexFault::OtherTree(_))
        )
    }

    /// Whether git is known to track it.
    fn has(&self, path: &[u8]) -> bool {
        let in_index = self
            .index
            .as_ref()
            .is_some_and(|index| index.contains_key(path));
        self.head.contains(path) || in_index
    }
}

/// Those of `files` that have their committed content.
fn committed(answer: Option<&RepositoryAnswer>, files: &[PathBuf]) -> Vec<PathBuf> {
    let answered = answer
        .into_iter()
        .flat_map(|answer| files.iter().zip(&answer.files));
    answered
        .filter(|(_, in_head)| **in_head == InHead::Same)
        .map(|(path, _)| path.clone())
        .collect()
}

impl TrackedSecrets {
    /// Determines what is tracked when a session opens; `ask` answers for `files`, those with names
    /// of secrets. Returns those that commands may use, because they have their committed content
    /// and no command has caused that, and those that stay closed because one has.
    pub(crate) fn open(
        spec: &Rooted,
        repository: ProjectRepository,
        created: CreatedFiles,
        files: Vec<PathBuf>,
        ask: impl FnOnce(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
    ) -> (Self, Vec<PathBuf>, Vec<PathBuf>) {
        let directory = record_file::directory(spec);
        let before: BTreeSet<String> = directory.as_ref().map(read).unwrap_or_default();
        let answer = ask(&repository, &files);
        let committed = committed(answer.as_ref(), &files);
        let tracked = Tracked::of(answer, &files, &spec.project);
        let seen = repository.state(&tracked.shared);
        let of = |path: &PathBuf| below(path, &spec.project);
        let still = |path: &&PathBuf| {
            let is_recorded = |path: &[u8]| before.contains(ALL) || before.contains(&line(path));
            of(path).is_some_and(|path| is_recorded(&path) && tracked.may_have(&path))
        };
        let tainted: Vec<PathBuf> = files.iter().filter(still).cloned().collect();
        let all = before.get(ALL).cloned();
        let record = tainted
            .iter()
            .filter_map(of)
            .map(|path| line(&path))
            .chain(all)
            .collect();
        let (open, closed): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|path| committed.contains(path) && !tainted.contains(path));
        // What an earlier session has left is handled after the first call.
        let seen = if tracked.is_of_elsewhere() {
            Vec::new()
        } else {
            seen
        };
        // What has changed between the answer and the state did so a moment ago.
        let is_unsure = seen.iter().flatten().any(is_recent);
        let mut tracked_secrets = Self {
            repository,
            created,
            closed,
            seen,
            is_unsure,
            tracked,
            directory,
            record,
            is_unread_told: false,
            known: BTreeSet::new(),
        };
        tracked_secrets
            .known
            .extend(tracked_secrets.new_in_submodules(spec));
        if tracked_secrets.record != before {
            tracked_secrets.write(&before);
        }
        (tracked_secrets, open, tainted)
    }

    /// The question to ask, if anything that determines what is tracked has changed. A command that has a file mapped changes it without a trace
    /// in its state.
    pub(crate) fn question(&self, commands: Commands) -> Option<TrackedQuestion> {
        let seen = self.repository.state(&self.tracked.shared);
        let is_due = seen != self.seen || commands.are_over() && self.is_unsure;
        is_due.then(|| TrackedQuestion {
            seen,
            asked: RepositoryQuestion {
                repository: self.repository.clone(),
                files: FilesAsked::Files(self.closed.clone()),
            },
        })
    }

    /// Compares the answer with what was tracked before: returns what commands have caused since. `seen` is the state before it was
    /// asked, and `commands` says whether one has run since then.
    pub(crate) fn update(
        &mut self,
        spec: &Rooted,
        (seen, answer): (TrackedState, Option<RepositoryAnswer>),
        commands: Commands,
    ) -> Vec<Finding> {
        let mut now = Tracked::of(answer, &self.closed, &spec.project);
        // From before the answer: what has changed meanwhile is seen next time. That of other shared files is known only now.
        self.seen = match now.shared == self.tracked.shared {
            true => seen,
            false => self.repository.state(&now.shared),
        };
        self.is_unsure = !commands.are_over() || self.seen.iter().flatten().any(is_recent);
        let tainted = self.made_tracked(spec, &now);
        let mut findings: Vec<Finding> = tainted
            .iter()
            .map(|path| self.made_tracked_finding(spec, path, &now))
            .collect();
        findings.extend(self.hidden(spec, &now).iter().map(|path| hidden(path)));
        findings.extend(added(&self.added(spec, &now)));
        if self.tracked.fault.is_none() {
            // Those that commands may not create are named above.
            findings.extend(
                now.hidden
                    .since(&self.tracked.hidden, |path| !is_closed(spec, path)),
            );
        }
        findings.extend(self.unread(&now));
        findings.extend(self.faulty(&mut now));
        let before = self.record.clone();
        self.record.extend(tainted.iter().map(|path| line(path)));
        if self.record != before {
            self.write(&before);
        }
        self.tracked = now;
        findings
    }

    /// Whether a reference that decides what is tracked has changed since the last check, as with each commit.
    pub(crate) fn have_references_changed(&self) -> bool {
        let now = self.repository.state(&self.tracked.shared);
        // The index comes first.
        now.get(1..) != self.seen.get(1..)
    }

    /// Paths to watch, so that every change of what is tracked is noticed.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let git = |path: &Vec<u8>| {
            self.repository
                .project
                .join(OsStr::from_bytes(path))
                .join(".git")
        };
        let places = self.tracked.submodules.difference(&self.known).map(git);
        let files = self
            .repository
            .files(&self.tracked.shared)
            .into_iter()
            .chain(places);
        files
            .flat_map(|path| with_existing_parent(&path))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Repositories that have come about where git has a submodule: a pull of the user's goes on into those.
    pub(crate) fn in_submodules(&mut self, spec: &Rooted) -> Vec<Finding> {
        let new = self.new_in_submodules(spec);
        let findings = new
            .iter()
            .map(|path| in_submodule(&spec.project.join(OsStr::from_bytes(path))))
            .collect();
        self.known.extend(new);
        findings
    }

    fn new_in_submodules(&self, spec: &Rooted) -> Vec<Vec<u8>> {
        let git = |path: &[u8]| spec.project.join(OsStr::from_bytes(path)).join(".git");
        let places = self.tracked.submodules.difference(&self.known);
        places
            .filter(|path| fs::symlink_metadata(git(path)).is_ok())
            .cloned()
            .collect()
    }

    /// Reports once that an index has changed which could not be read completely before either: nothing that a command has put into it
    /// can be named.
    fn unread(&mut self, now: &Tracked) -> Option<Finding> {
        let is_unread = self.tracked.index.is_none() && now.index.is_none();
        if !is_unread || std::mem::replace(&mut self.is_unread_told, true) {
            return None;
        }
        let why = "A command has changed your index, of which Lazaret cannot read all (`--split-index`, a sparse index, too many names). It \
                   cannot tell you whether git tracks a secret of yours now, or hides a change.";
        let advice =
            "look at `git diff --cached --name-only` and `git ls-files -v` before you commit";
        let index = self.repository.own.join("index");
        Some(of_repository(FindingKind::UnreadableIndex, &index, why).with_advice(advice))
    }

    /// Sets aside an index that git must not use, and reports one that can no longer be read
    /// completely. If it was unreadable before the call, that is the user's own doing.
    fn faulty(&self, now: &mut Tracked) -> Option<Finding> {
        let index = self.repository.own.join("index");
        let what = match &now.fault {
            Some(fault @ (IndexFault::Outside(_) | IndexFault::OtherTree(_))) => {
                why_unusable(fault)
            }
            Some(fault @ IndexFault::Unreadable) if self.tracked.fault.is_none() => {
                why_unusable(fault)
            }
            Some(IndexFault::Unreadable) => return None,
            None if now.index.is_some() || self.tracked.index.is_none() => return None,
            None => {
                let why = "A command has left an index of which not all can be read (`--split-index`, a sparse index, too many names). \
                           Lazaret cannot tell you which names it hides from `git status`.";
                let advice =
                    "run `git update-index --no-split-index` and look at `git ls-files -v`";
                let found = of_repository(FindingKind::UnreadableIndex, &index, why);
                return Some(found.with_advice(advice));
            }
        };
        let done = set_aside(&index);
        *now = Tracked {
            index: Some(BTreeMap::new()),
            fault: None,
            ..std::mem::take(now)
        };
        let why = format!("A command has left an index that {what}.");
        let found = of_repository(FindingKind::IndexSetAside, &index, &why).with_state(done);
        Some(found.with_advice("run `git reset`, which writes a new index from `HEAD`"))
    }

    /// Closed files that `now` may track, that were not known to be tracked before, and that no record names yet.
    fn made_tracked(&self, spec: &Rooted, now: &Tracked) -> BTreeSet<Vec<u8>> {
        let known = self
            .closed
            .iter()
            .filter_map(|path| below(path, &spec.project));
        let later = now.index.iter().flat_map(BTreeMap::keys).cloned();
        let is_closed = |path: &Vec<u8>| {
            let file = spec.project.join(OsStr::from_bytes(path));
            spec.policy.matcher.is_secret(path)
                && fs::symlink_metadata(&file).is_ok()
                && !self.created.has_at(&file)
        };
        let is_new = |path: &Vec<u8>| {
            // What could not be read before the call is the user's own doing.
            let was_known = !self.tracked.unknown.contains(path) || now.has(path);
            now.may_have(path)
                && was_known
                && !self.tracked.has(path)
                && !self.record.contains(&line(path))
        };
        known
            .chain(later)
            .filter(is_new)
            .filter(is_closed)
            .collect()
    }

    /// Names that commands may not create and that `now`, unlike before, has where `git status` does not show them.
    fn hidden(&self, spec: &Rooted, now: &Tracked) -> Vec<Vec<u8>> {
        // Without a known earlier state, nothing can be called new.
        let Some((before, now)) = self.tracked.index.as_ref().zip(now.index.as_ref()) else {
            return Vec::new();
        };
        let hidden = now
            .iter()
            .filter(|(path, hidden)| **hidden && before.get(*path) != Some(&true));
        hidden
            .map(|(path, _)| path.clone())
            .filter(|path| is_closed(spec, path))
            .collect()
    }

    /// Names that commands may not create and that `now`, unlike before, has where the work tree has none. Some programs then read
    /// the index: git-lfs its settings, with the address to which it sends files and credentials.
    fn added(&self, spec: &Rooted, now: &Tracked) -> Vec<Vec<u8>> {
        let Some((before, now)) = self.tracked.index.as_ref().zip(now.index.as_ref()) else {
            return Vec::new();
        };
        let is_missing =
            |path: &[u8]| fs::symlink_metadata(spec.project.join(OsStr::from_bytes(path))).is_err();
        let new = now
            .iter()
            .filter(|(path, hidden)| !**hidden && !before.contains_key(*path));
        let new = new
            .map(|(path, _)| path)
            .filter(|path| is_closed(spec, path) && is_missing(path));
        new.cloned().collect()
    }

    fn made_tracked_finding(&self, spec: &Rooted, path: &[u8], now: &Tracked) -> Finding {
        let why = match &now.index {
            Some(_) if !now.has(path) => {
                "A command has left a commit that cannot be read as a whole, so git may track this secret: your next `git stash` or \
                 `git commit -a` would then copy the real one into the repository. It stays closed."
            }
            Some(_) => {
                "A command has made git track this secret: your next `git stash` or `git commit -a` would copy the real one into the \
                 repository, where commands read it. It stays closed."
            }
            None => {
                "A command has left an index that cannot be read as a whole, so git may track this secret: your next `git stash` or \
                 `git commit -a` would then copy the real one into the repository. It stays closed."
            }
        };
        let name = String::from_utf8_lossy(path);
        let record = record_path(&spec.central);
        let advice = format!(
            "run `git rm --cached -- {}` outside the sandbox; or, if you want git to track it, remove its line from {}",
            shell_word(&name),
            record.display()
        );
        Finding::new(FindingKind::TrackedSecret, name, why).with_advice(advice)
    }

    /// Writes the record, with what a concurrent session has added to it since `before` was read. A
    /// failure to write is ignored.
    fn write(&mut self, before: &BTreeSet<String>) {
        let Some(directory) = &self.directory else {
            return;
        };
        self.record
            .extend(read(directory).difference(before).cloned());
        let mut lines: String = self.record.iter().map(|line| format!("{line}\n")).collect();
        if HEADER.len() + lines.len() > RECORD_MAX {
            lines = format!("{ALL}\n");
        }
        let _ = record_file::write(directory, NAME, format!("{HEADER}{lines}").as_bytes());
    }
}

/// The path of a central root's record.
pub(crate) fn record_path(central: &Path) -> PathBuf {
    central.join(undo_directory::NAME).join(NAME)
}

fn hidden(path: &[u8]) -> Finding {
    let why = "A command has put this name into git's index so that `git status` does not show it (`skip-worktree`, `assume-unchanged`). \
               Git would create the file at a checkout, and programs of yours act on files with this name.";
    let name = String::from_utf8_lossy(path);
    let (object, word) = (format!(":{name}"), shell_word(&name));
    let advice = format!(
        "look at `git show {}` outside the sandbox, and run `git rm --cached -- {word}`",
        shell_word(&object)
    );
    Finding::new(FindingKind::IndexedName, name, why).with_advice(advice)
}

fn in_submodule(path: &Path) -> Finding {
    let why = "A repository has come about here, where the project has a submodule. If a command made it: your `git pull` or `git fetch` may \
               go on into it, and would then fetch, with your rights, from the address in its settings, into files that commands read.";
    let advice =
        "look at `remote` in its `.git/config` before you pull or fetch, or remove its `.git`";
    of_repository(FindingKind::Repository, path, why).with_advice(advice)
}

/// One for all: a checkout of a branch may add many.
fn added(paths: &[Vec<u8>]) -> Option<Finding> {
    let (path, others) = paths.split_first()?;
    let why = "A command has put a name that commands may not create into git's index, and the work tree does not have it. Your next \
               `git commit` or `git checkout .` takes it from there, and some programs read it there (git-lfs `.lfsconfig`).";
    let name = String::from_utf8_lossy(path);
    let (object, word) = (format!(":{name}"), shell_word(&name));
    let advice = format!(
        "look at `git diff --cached` and `git show {}` outside the sandbox, and run `git rm --cached -- {word}` if it is not yours",
        shell_word(&object)
    );
    let found = Finding::new(FindingKind::IndexedName, name, why).with_advice(advice);
    Some(found.with_unnamed(others.len() as u64))
}

fn is_closed(spec: &Rooted, path: &[u8]) -> bool {
    spec.policy.matcher.is_closed_when_new(path)
}

fn below(path: &Path, project: &Path) -> Option<Vec<u8>> {
    Some(
        path.strip_prefix(project)
            .ok()?
            .as_os_str()
            .as_bytes()
            .to_vec(),
    )
}

/// Whether a path of an index is below the project: anybody may have written the index.
fn is_below(path: &[u8]) -> bool {
    let mut names = Path::new(OsStr::from_bytes(path)).components();
    !path.is_empty() && names.all(|name| matches!(name, Component::Normal(_)))
}

/// A path as it is written in the record: one line of ASCII.
fn line(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

/// Reads the lines of the record.
fn read(directory: &OwnedFd) -> BTreeSet<String> {
    let bytes = record_file::read(directory, NAME, RECORD_MAX).unwrap_or_default();
    let text = match bytes.len() > RECORD_MAX {
        true => ALL.into(),
        false => String::from_utf8_lossy(&bytes),
    };
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_of_which_no_worker_speaks_is_unreadable() {
        let file = PathBuf::from("/p/.env");
        let unknown = Tracked::of(None, std::slice::from_ref(&file), Path::new("/p"));
        assert_eq!(unknown.fault, Some(IndexFault::Unreadable));
        assert!(unknown.may_have(b".env") && !unknown.has(b".env"));
        let answer = RepositoryAnswer {
            files: vec![InHead::Nothing],
            index: Some(Vec::new()),
            ..RepositoryAnswer::default()
        };
        let empty = Tracked::of(Some(answer), &[file], Path::new("/p"));
        assert!(empty.fault.is_none() && !empty.may_have(b".env"));
    }
}
