//! Secrets that commands have made git track, and what they have hidden from `git status`.
//!
//! The user's `git stash` and `git commit -a` take in what the index or `HEAD` has. A command that puts the name of a secret there
//! has the user's own git copy the real one into the repository, where later commands read it; and a secret that `HEAD` has as it is
//! would be none any more. So what is tracked is looked at when a session opens, and again after calls that have changed it. A closed
//! file that a call has made tracked stays closed, in later sessions too: `.lazaret/tracked` of the central root names it, a line a
//! file, until git tracks it no longer or the user removes the line. What the host does between sessions is the user's.
//!
//! Said of it, besides: objects that stand for others (`git replace`), and an index of which not all can be read any more. One that git
//! must not use is set aside: git writes whatever names it has, `../.bashrc` too.
//!
//! *Does not*: keep git from what it is asked to do, or see repositories within the project and files that come later than the entry.

use super::created_record::{inspect, open, state};
use super::left_files::{of_repository, set_aside};
use broker_protocol::{AttemptKind, Barrier, Denial, Layer, Remedy};
use executor_layers::spec::SandboxSpec;
use executor_layers::undo_directory;
use executor_layers::worker::{InHead, IndexFault, RepositoryAnswer};
use executor_supervisor::CreatedFiles;
use nix::fcntl::{OFlag, renameat};
use policies::{Access, Protection, WhenNew};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

const NAME: &str = "tracked";
/// What is written before it gets that name.
const NEW: &str = "tracked.new";
/// Bytes of it that are read.
const RECORD_MAX: u64 = 1 << 20;
/// Bytes of a file `HEAD`.
const HEAD_MAX: u64 = 4096;
const HEADER: &str = "# Secrets that commands of this project have made git track. They stay closed while their line is here.\n";

/// The repository of a project.
#[derive(Clone, Debug)]
pub struct ProjectRepository {
    /// The project root.
    pub project: PathBuf,
    /// Its repository's common directory.
    pub common: PathBuf,
    /// The directory with the project's `HEAD`, in that.
    pub own: PathBuf,
}

impl ProjectRepository {
    /// That of a session's project, if there is one that its cells write.
    pub fn of(spec: &SandboxSpec) -> Option<Self> {
        let inside = spec.project.join(".git");
        let (common, own) = match &spec.linked {
            Some(linked) => (linked.common.clone(), linked.own.clone()),
            None => {
                fs::symlink_metadata(&inside).ok().filter(fs::Metadata::is_dir)?;
                (inside.clone(), inside)
            }
        };
        Some(Self { project: spec.project.clone(), common, own })
    }

    /// What changes when another name is tracked.
    fn state(&self) -> Vec<Option<[i64; 7]>> {
        let head = self.own.join("HEAD");
        // Not waited for, whatever it is.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let branch = File::options().read(true).custom_flags(flags).open(&head).ok().and_then(|file| {
            let mut text = String::new();
            file.take(HEAD_MAX).read_to_string(&mut text).ok()?;
            Some(self.common.join(text.strip_prefix("ref:")?.trim()))
        });
        let common = ["packed-refs", "refs/replace"].map(|name| self.common.join(name));
        let files = [self.own.join("index"), head].into_iter().chain(common);
        files.chain(branch).map(|path| state_of(&path)).collect()
    }
}

/// The secrets of a session that git tracks.
#[derive(Debug)]
pub struct TrackedSecrets {
    repository: ProjectRepository,
    /// What cells have made.
    created: CreatedFiles,
    /// The files with names of secrets that are closed.
    closed: Vec<PathBuf>,
    seen: Vec<Option<[i64; 7]>>,
    tracked: Tracked,
    /// Where the record lies, if anything can be kept.
    directory: Option<OwnedFd>,
    record: BTreeSet<String>,
}

/// What git tracks, by paths below the project.
#[derive(Debug, Default)]
struct Tracked {
    /// Protected names in the index, each with whether it is hidden; `None` where nobody knows.
    index: Option<BTreeMap<Vec<u8>, bool>>,
    /// Closed files that `HEAD` has something for.
    head: BTreeSet<Vec<u8>>,
    /// Why git must not use the index.
    fault: Option<IndexFault>,
    /// Whether one object stands for another.
    replaces: bool,
}

impl Tracked {
    fn of(answer: Option<RepositoryAnswer>, files: &[PathBuf], project: &Path) -> Self {
        let Some(RepositoryAnswer { files: in_head, index, fault, replaces }) = answer else {
            return Self::default();
        };
        let found = files.iter().zip(in_head).filter(|(_, in_head)| *in_head != InHead::Nothing);
        let mut names = BTreeMap::new();
        for name in index.iter().flatten().filter(|name| is_below(&name.path)) {
            *names.entry(name.path.clone()).or_insert(false) |= name.hidden;
        }
        let head = found.filter_map(|(path, _)| below(path, project)).collect();
        Self { index: index.map(|_| names), head, fault, replaces }
    }

    /// Whether git tracks it, or may.
    fn may_have(&self, path: &[u8]) -> bool {
        self.index.is_none() || self.has(path)
    }

    /// Whether it is known that git tracks it.
    fn has(&self, path: &[u8]) -> bool {
        let in_index = self.index.as_ref().is_some_and(|index| index.contains_key(path));
        self.head.contains(path) || in_index
    }
}

impl TrackedSecrets {
    /// What is tracked when a session opens, as `ask` says of `files`, those with names of secrets. Returns those of them that
    /// commands may use, as they are committed as they are and no command has brought that about, and those that stay closed
    /// because one has.
    pub fn open(
        spec: &SandboxSpec,
        repository: ProjectRepository,
        created: CreatedFiles,
        files: Vec<PathBuf>,
        ask: impl FnOnce(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
    ) -> (Self, Vec<PathBuf>, Vec<PathBuf>) {
        let directory = undo_directory::open(&spec.central).filter(|_| spec.policy.central == Access::Write);
        let before: BTreeSet<String> = directory.as_ref().map(read).unwrap_or_default();
        let seen = repository.state();
        let answer = ask(&repository, &files);
        let same = answer.iter().flat_map(|answer| files.iter().zip(&answer.files));
        let same: Vec<PathBuf> =
            same.filter(|(_, in_head)| **in_head == InHead::Same).map(|(path, _)| path.clone()).collect();
        let tracked = Tracked::of(answer, &files, &spec.project);
        let of = |path: &PathBuf| below(path, &spec.project);
        let still = |path: &&PathBuf| {
            of(path).is_some_and(|path| before.contains(&line(&path)) && tracked.may_have(&path))
        };
        let tainted: Vec<PathBuf> = files.iter().filter(still).cloned().collect();
        let record = tainted.iter().filter_map(of).map(|path| line(&path)).collect();
        let (open, closed): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|path| same.contains(path) && !tainted.contains(path));
        // What an earlier session has left is seen to after the first call.
        let seen = if matches!(tracked.fault, Some(IndexFault::Outside(_))) { Vec::new() } else { seen };
        let mut tracked_secrets = Self { repository, created, closed, seen, tracked, directory, record };
        if tracked_secrets.record != before {
            tracked_secrets.write(&before);
        }
        (tracked_secrets, open, tainted)
    }

    /// Looks again, if anything has changed that says what is tracked: what commands have brought about since.
    pub fn update(
        &mut self,
        spec: &SandboxSpec,
        ask: impl FnOnce(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
    ) -> Vec<Denial> {
        let seen = self.repository.state();
        if seen == self.seen {
            return Vec::new();
        }
        self.seen = seen;
        let mut now = Tracked::of(ask(&self.repository, &self.closed), &self.closed, &spec.project);
        let tainted = self.made_tracked(spec, &now);
        let mut denials: Vec<Denial> = tainted.iter().map(|path| self.denial(spec, path, &now)).collect();
        denials.extend(self.hidden(spec, &now).iter().map(|path| hidden(spec, path)));
        if now.replaces && !self.tracked.replaces {
            denials.push(self.replaced());
        }
        denials.extend(self.faulty(&mut now));
        let before = self.record.clone();
        self.record.extend(tainted.iter().map(|path| line(path)));
        if self.record != before {
            self.write(&before);
        }
        self.tracked = now;
        denials
    }

    /// Sets an index aside that git must not use, and names one of which not all can be read any more. What nobody could read before
    /// the call is the user's own.
    fn faulty(&self, now: &mut Tracked) -> Option<Denial> {
        let index = self.repository.own.join("index");
        let what = match &now.fault {
            Some(IndexFault::Outside(path)) => {
                format!("has the name `{}`, and your `git restore` would write there", path.escape_ascii())
            }
            Some(IndexFault::Unreadable) if self.tracked.fault.is_none() => {
                "cannot be read, so nobody knows which files your `git restore` would write".to_owned()
            }
            Some(IndexFault::Unreadable) => return None,
            None if now.index.is_some() || self.tracked.index.is_none() => return None,
            None => {
                let why = "A command has left an index of which not all can be read (`--split-index`, a sparse index, too many names), so \
                           names in it that `git status` does not show are not named.";
                let advice = Remedy::Advice(
                    "`git update-index --no-split-index` and a look at `git ls-files -v`".into(),
                );
                return Some(of_repository(&index, why, advice));
            }
        };
        let done = set_aside(&index);
        *now = Tracked { index: Some(BTreeMap::new()), fault: None, ..std::mem::take(now) };
        let why = format!("A command has left an index that {what}; {done}.");
        Some(of_repository(
            &index,
            &why,
            Remedy::Advice("`git reset`, which makes it anew from `HEAD`".into()),
        ))
    }

    fn replaced(&self) -> Denial {
        let why = "A command has made one object stand for another in what your git shows, and a push sends the one that is there in truth.";
        let advice = "`git --no-replace-objects log` shows what is there, `git replace -d` ends it";
        of_repository(&self.repository.common.join("refs/replace"), why, Remedy::Advice(advice.into()))
    }

    /// Closed files that `now` may have, that are not known to have been tracked before, and that no record names yet.
    fn made_tracked(&self, spec: &SandboxSpec, now: &Tracked) -> BTreeSet<Vec<u8>> {
        let known = self.closed.iter().filter_map(|path| below(path, &spec.project));
        let later = now.index.iter().flat_map(BTreeMap::keys).cloned();
        let is_closed = |path: &Vec<u8>| {
            let secret = spec.policy.matcher.protection(path);
            let file = spec.project.join(OsStr::from_bytes(path));
            secret.is_some_and(|rule| rule.protection == Protection::All)
                && fs::symlink_metadata(&file).is_ok()
                && !self.created.has_at(&file)
        };
        let is_new = |path: &Vec<u8>| {
            now.may_have(path) && !self.tracked.has(path) && !self.record.contains(&line(path))
        };
        known.chain(later).filter(is_new).filter(is_closed).collect()
    }

    /// Names that commands may not make, and that `now` has where `git status` does not look, unlike before.
    fn hidden(&self, spec: &SandboxSpec, now: &Tracked) -> Vec<Vec<u8>> {
        // Who did not know before cannot say what is new.
        let Some((before, now)) = self.tracked.index.as_ref().zip(now.index.as_ref()) else {
            return Vec::new();
        };
        let is_closed =
            |path: &[u8]| spec.policy.matcher.closings(path).iter().any(|(_, new)| *new == WhenNew::Closed);
        let hidden = now.iter().filter(|(path, hidden)| **hidden && before.get(*path) != Some(&true));
        hidden.map(|(path, _)| path.clone()).filter(|path| is_closed(path)).collect()
    }

    fn denial(&self, spec: &SandboxSpec, path: &[u8], now: &Tracked) -> Denial {
        let why = match &now.index {
            Some(_) => {
                "A command has made git track this secret: your next `git stash` or `git commit -a` would copy the real one into the \
                 repository, where commands read it. It stays closed."
            }
            None => {
                "A command has left an index that cannot be read as a whole, so git may track this secret, and your next `git stash` \
                 or `git commit -a` copy the real one into the repository. It stays closed."
            }
        };
        let name = String::from_utf8_lossy(path);
        let record = record_path(&spec.central);
        let advice = format!(
            "`git rm --cached -- {name}` outside the sandbox; if you want it tracked, the removal of its line from {}",
            record.display()
        );
        Denial::new(AttemptKind::Write, name, by(spec, path), why, Remedy::Advice(advice))
    }

    /// Writes the record, with what a session beside this one has added to it since it had `before`. One that cannot be
    /// written is none.
    fn write(&mut self, before: &BTreeSet<String>) {
        let Some(directory) = &self.directory else { return };
        self.record.extend(read(directory).difference(before).cloned());
        let lines: String = self.record.iter().map(|line| format!("{line}\n")).collect();
        let write = || -> io::Result<()> {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NONBLOCK;
            open(directory, NEW, flags)?.write_all(format!("{HEADER}{lines}").as_bytes())?;
            Ok(renameat(directory, NEW, directory, NAME)?)
        };
        let _ = write();
    }
}

/// Where the record of a central root lies.
pub fn record_path(central: &Path) -> PathBuf {
    central.join(undo_directory::NAME).join(NAME)
}

fn hidden(spec: &SandboxSpec, path: &[u8]) -> Denial {
    let why = "A command has put this name into git's index so that `git status` does not show it (`skip-worktree`, `assume-unchanged`). \
               Git makes the file when it checks it out, and programs of yours act on it.";
    let name = String::from_utf8_lossy(path);
    let advice = format!("a look at `git show :{name}` outside the sandbox, and `git rm --cached -- {name}`");
    Denial::new(AttemptKind::Write, name, by(spec, path), why, Remedy::Advice(advice))
}

fn state_of(path: &Path) -> Option<[i64; 7]> {
    inspect(path).ok().map(|(_, metadata)| state(&metadata))
}

fn by(spec: &SandboxSpec, path: &[u8]) -> Barrier {
    let rule = spec.policy.matcher.protection(path).map(policies::ProtectedName::rule);
    Barrier::Layer(Layer::ProtectedNames, rule)
}

fn below(path: &Path, project: &Path) -> Option<Vec<u8>> {
    Some(path.strip_prefix(project).ok()?.as_os_str().as_bytes().to_vec())
}

/// Whether a path of an index names something below the project: anybody may have written it.
fn is_below(path: &[u8]) -> bool {
    let mut names = Path::new(OsStr::from_bytes(path)).components();
    !path.is_empty() && names.all(|name| matches!(name, Component::Normal(_)))
}

/// A path in the record: one line, in ASCII.
fn line(path: &[u8]) -> String {
    path.escape_ascii().to_string()
}

/// The lines of the record.
fn read(directory: &OwnedFd) -> BTreeSet<String> {
    let read = || {
        let file = open(directory, NAME, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).ok()?;
        let mut bytes = Vec::new();
        file.take(RECORD_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}
