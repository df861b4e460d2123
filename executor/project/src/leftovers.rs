//! In the broker: files in the user's repositories that make programs outside act, fail, or show something
//! else, if a call has left or changed them. What must not stay is removed; all of it is reported.
//!
//! *Does not*: check repositories created after the session opened; those for which there is no room are closed for writing
//! (`crate::discovery`). Until the call has ended, programs act on a file that a command writes.

use crate::commands::Commands;
use crate::created_record::{inspect, is_recent, state};
use crate::finding::of_repository;
use crate::head::head_references;
use crate::locks::Locks;
use crate::record_file::read_short;
use crate::replacements::Replacements;
use crate::repository_changes::with_existing_parent;
use broker_protocol::paste::shell_word;
use broker_protocol::{Finding, FindingKind};
use executor_sys::file::open_without_links;
use executor_sys::opened_way::unlock;
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, ftruncate, unlinkat};
use policies_guard::left::{
    GIT, GIT_DIRECTORIES, Left, MERCURIAL, MERCURIAL_DIRECTORIES, PACKED_MAX, REFERENCE_MAX,
    TEXT_MAX,
};
use policies_guard::{GIT_HEAD_MAX, names_no_plain_branch};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One repository, and which of these files existed at the last check.
#[derive(Debug)]
pub(crate) struct Leftovers {
    at: PathBuf,
    /// The directory that has its references.
    common: PathBuf,
    of: VersionControl,
    seen: BTreeMap<PathBuf, [i64; 7]>,
    locks: Locks,
    replacements: Replacements,
    /// Whether calls have made the repository: it has shallow histories and locks that are no concern of the user's.
    is_made: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionControl {
    Git,
    Mercurial,
}

impl Leftovers {
    /// Covers a repository of git's. Files that exist now are the user's, except counters that are no numbers.
    pub(crate) fn of_git(at: &Path) -> Self {
        Self::new(
            at.to_owned(),
            common_directory(at.to_owned()),
            VersionControl::Git,
        )
    }

    /// Covers the project's repository of Mercurial's, whether it exists or not.
    pub(crate) fn of_mercurial(project: &Path) -> Self {
        let at = project.join(".hg");
        Self::new(at.clone(), at, VersionControl::Mercurial)
    }

    /// Covers a repository that calls have made, with all that is in it.
    pub(crate) fn of_made(at: &Path) -> Self {
        let common = common_directory(at.to_owned());
        Self {
            is_made: true,
            ..Self::unseen(at.to_owned(), common, VersionControl::Git)
        }
    }

    fn unseen(at: PathBuf, common: PathBuf, of: VersionControl) -> Self {
        Self {
            at,
            common,
            of,
            seen: BTreeMap::new(),
            locks: Locks::default(),
            replacements: Replacements::default(),
            is_made: false,
        }
    }

    fn new(at: PathBuf, common: PathBuf, of: VersionControl) -> Self {
        let mut new = Self::unseen(at, common, of);
        if new.is_absent() {
            return new;
        }
        new.seen = new
            .present()
            .filter(|(.., left)| !matches!(left, Left::Counter))
            .map(|(path, state, _)| (path, state))
            .collect();
        new.locks.update(&new.at);
        if new.has_references() {
            new.replacements = Replacements::of(&new.common);
        }
        new
    }

    /// Whether it has the references itself: a worktree's are in a repository that is covered too.
    fn has_references(&self) -> bool {
        self.of == VersionControl::Git && self.at == self.common
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.at
    }

    /// Whether there is nothing to look at: no repository of Mercurial's. One lookup shows that.
    pub(crate) fn is_absent(&self) -> bool {
        self.of == VersionControl::Mercurial && !self.at.is_dir()
    }

    /// Paths to watch, so that every change of these files is noticed.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        let (directories, files): (&[&str], _) = match self.of {
            VersionControl::Git => (&GIT_DIRECTORIES, &GIT[..]),
            VersionControl::Mercurial => (&MERCURIAL_DIRECTORIES, &MERCURIAL[..]),
        };
        let files = files.iter().map(|(name, _)| *name);
        let own = directories
            .iter()
            .copied()
            .chain(files)
            .map(|name| self.at.join(name));
        let mut references = head_references(&self.at, &self.common);
        if self.has_references() {
            references.extend(Replacements::files(&self.common));
        }
        own.chain(
            references
                .iter()
                .flat_map(|path| with_existing_parent(path)),
        )
        .collect()
    }

    /// Findings on files that calls have left or changed since the last check. Locks are added to `locks`.
    pub(crate) fn update(&mut self, commands: Commands, locks: &mut NewLocks) -> Vec<Finding> {
        if self.is_absent() {
            return Vec::new();
        }
        let present: Vec<_> = self.present().collect();
        let mut seen = BTreeMap::new();
        let mut findings = Vec::new();
        for (path, state, left) in present {
            let waits = !commands.are_over() && left.waits();
            let before = self.seen.get(&path);
            match before {
                Some(before) if waits => drop(seen.insert(path, *before)),
                None if waits => {}
                Some(before) if *before == state => drop(seen.insert(path, state)),
                Some(_) | None => {
                    findings.extend(left_in(&path, left));
                    // It is judged again next time if its content may have changed by then without a trace.
                    if !left.is_judged_by_content() || commands.are_over() && !is_recent(&state) {
                        seen.insert(path, state);
                    }
                }
            }
        }
        self.seen = seen;
        if self.has_references() && !self.is_made {
            findings.extend(self.replacements.update(&self.common));
        }
        if commands.are_over() && !self.is_made {
            locks.add(&self.at, self.locks.update(&self.at));
        }
        findings
    }

    fn present(&self) -> impl Iterator<Item = (PathBuf, [i64; 7], Left)> + '_ {
        let files: &[_] = match self.of {
            VersionControl::Git => &GIT,
            VersionControl::Mercurial => &MERCURIAL,
        };
        let files = files.iter().map(|(name, left)| (self.at.join(name), *left));
        // Where `HEAD` leads; that itself is restored.
        let references = match self.of {
            VersionControl::Git => head_references(&self.at, &self.common).split_off(1),
            VersionControl::Mercurial => Vec::new(),
        };
        let branch = branch_with_commands(&references).map(|path| (path.clone(), Left::Branch));
        let all = files.chain(branch).chain(self.too_large(references));
        all.filter(|(_, left)| !self.is_made || left.acts())
            .filter_map(|(path, left)| {
                let state = inspect(&path).ok().map(|(_, metadata)| state(&metadata))?;
                Some((path, state, left))
            })
    }

    /// Those among these references and the packed file that are too large.
    fn too_large(&self, references: Vec<PathBuf>) -> impl Iterator<Item = (PathBuf, Left)> {
        let packed = (self.common.join("packed-refs"), PACKED_MAX);
        let all = references.into_iter().map(|path| (path, REFERENCE_MAX));
        all.chain(Some(packed).filter(|_| self.has_references()))
            .filter(|(path, max)| inspect(path).is_ok_and(|(_, file)| file.len() > *max))
            .map(|(path, max)| (path, Left::Bounded(max)))
    }
}

/// The locks that calls have left in all repositories: one finding, however many there are.
#[derive(Debug, Default)]
pub(crate) struct NewLocks {
    named: Vec<PathBuf>,
    count: usize,
}

impl NewLocks {
    fn add(&mut self, repository: &Path, (named, count): (Vec<OsString>, usize)) {
        self.named
            .extend(named.iter().map(|name| repository.join(name)));
        self.count += count;
    }

    /// The findings about these files.
    pub(crate) fn finding(self) -> Option<Finding> {
        let (first, others) = self.named.split_first()?;
        let why = "A command left this lock, which makes your next `git add` or `git commit` fail; or a git process of yours holds it.";
        let advice = "remove it if no git process of yours is running";
        let mut found = of_repository(FindingKind::Lock, first, why).with_advice(advice);
        others
            .iter()
            .for_each(|path| found.add_object(path.to_string_lossy()));
        Some(found.with_unnamed(self.count.saturating_sub(self.named.len()) as u64))
    }
}

/// The one of these references in which the name of another one stands that is not only text to a shell. Git follows references, and
/// prints the last name.
fn branch_with_commands(references: &[PathBuf]) -> Option<&PathBuf> {
    references.iter().find(|path| {
        let head = read_short(path, GIT_HEAD_MAX as u64);
        head.is_some_and(|head| names_no_plain_branch(&head))
    })
}

/// The directory that has a repository's references: another one for a worktree, and no command changes which.
fn common_directory(repository: PathBuf) -> PathBuf {
    let named = text(&repository.join("commondir"), GIT_HEAD_MAX as u64);
    let named = named.and_then(|named| {
        repository
            .join(OsStr::from_bytes(&named))
            .canonicalize()
            .ok()
    });
    named.unwrap_or(repository)
}

/// Removes a file, and reports it.
fn removed(kind: FindingKind, path: &Path, why: &str) -> Finding {
    let done = remove(path)
        .map(|()| "removed")
        .unwrap_or("could NOT be removed");
    of_repository(kind, path, why).with_state(done)
}

/// Reports the stash of a merge, and removes it if no merge is under way.
fn autostash(path: &Path) -> Finding {
    if path.with_file_name("MERGE_HEAD").exists() {
        let why = "Your next `git commit` here also applies the stash that it names, including files that commands may not create.";
        let found = of_repository(FindingKind::Autostash, path, why);
        return found.with_advice("look at the stash that it names with `git show --stat -m`");
    }
    let stash = text(path, TEXT_MAX)
        .filter(|text| text.iter().all(u8::is_ascii_hexdigit))
        .unwrap_or_default();
    let why = format!(
        "A command left it while no merge is under way, and your next `git commit` would apply the stash that it names ({}).",
        String::from_utf8_lossy(&stash)
    );
    removed(FindingKind::Autostash, path, &why)
}

/// Treats a file as needed, and reports it.
fn left_in(path: &Path, left: Left) -> Option<Finding> {
    let prompt_text = |why| removed(FindingKind::PromptText, path, why);
    let content = || text(path, left.content_max());
    match left {
        left if left.is_judged_by_content() && left.may_stay(content().as_deref()) => None,
        Left::Counter => Some(prompt_text(
            "A command wrote something other than a number here, which git's shell prompt would execute.",
        )),
        Left::BranchName => Some(prompt_text(
            "A command wrote the name of a branch here that a shell would execute, where a prompt prints it.",
        )),
        Left::Branch => Some(prompt_text(
            "A command made this branch, which `HEAD` names, lead to another one with a name that a shell would execute, where a prompt prints it.",
        )),
        Left::Autostash => Some(autostash(path)),
        Left::History => {
            let why = "A command wrote it, as `git gc` and `git fetch` do; your git can show another history by it than the real one.";
            let found = of_repository(FindingKind::History, path, why);
            Some(found.with_advice(history_advice(path)))
        }
        Left::Exclude => {
            let why = "A command changed it: your `git status` does not show files that it names, also new ones.";
            let advice = "look at its lines, and at `git status --ignored`";
            Some(of_repository(FindingKind::Exclude, path, why).with_advice(advice))
        }
        Left::Bounded(max) => {
            let done = cut(path, max).map_or("could NOT be cut".to_owned(), |()| {
                format!("cut to {max} bytes")
            });
            let why = format!(
                "A command made it larger than {max} bytes, and your git, also in a prompt, would read all of it."
            );
            let found = of_repository(FindingKind::TooLarge, path, &why).with_state(done);
            Some(found.with_advice(
                "look at it with `git log`; `git reflog` has the commits that a branch had",
            ))
        }
        Left::Journal => {
            let why =
                "A command left it, and your `hg recover` would write the files that it names.";
            let found = of_repository(FindingKind::Journal, path, why).with_state(set_aside(path));
            Some(found.with_advice("run `hg verify`"))
        }
    }
}

/// Renames a file within its directory, replacing an earlier one set aside. Returns what was done.
pub(crate) fn set_aside(path: &Path) -> String {
    let aside = || -> Result<PathBuf> {
        let (directory, mut name) = parent(path)?;
        let from = name.clone();
        name.push(".refused");
        renameat(&directory, from.as_os_str(), &directory, name.as_os_str())?;
        Ok(path.with_file_name(name))
    };
    match aside() {
        Ok(aside) => format!("kept as {}", aside.display()),
        Err(_) if remove(path).is_ok() => "removed".to_owned(),
        Err(_) => "could NOT be taken away".to_owned(),
    }
}

/// How to be rid of a file that changes what history git shows. A graph of commits is only a cache; without the others objects can be
/// missing.
fn history_advice(path: &Path) -> String {
    let is_graph = |path: &&Path| {
        let name = path.file_name();
        name.is_some_and(|name| name == "commit-graph" || name == "commit-graphs")
    };
    match path.ancestors().take(2).find(is_graph) {
        Some(graph) => format!(
            "`rm -r {}` removes it, and git needs none",
            shell_word(&graph.to_string_lossy())
        ),
        None => "remove it if nothing needs it".to_owned(),
    }
}

fn remove(path: &Path) -> Result<()> {
    let (directory, name) = parent(path)?;
    unlinkat(&directory, name.as_os_str(), UnlinkatFlags::NoRemoveDir)
}

/// Cuts a file to its first bytes.
fn cut(path: &Path, bytes: u64) -> Result<()> {
    let (directory, name) = parent(path)?;
    let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = openat(&directory, name.as_os_str(), flags, Mode::empty())?;
    ftruncate(&file, i64::try_from(bytes).map_err(|_| Errno::EFBIG)?)
}

/// The directory of a file, opened without following links, as commands can write to it, and open to its owner: they can have closed it.
fn parent(path: &Path) -> Result<(OwnedFd, OsString)> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::EINVAL)?;
    let directory = open_without_links(parent)?;
    unlock(&directory)?;
    Ok((directory, name.to_owned()))
}

/// The content of a file of at most `max` bytes, without the line end.
fn text(path: &Path, max: u64) -> Option<Vec<u8>> {
    let text = read_short(path, max)?;
    Some(text.strip_suffix(b"\n").unwrap_or(&text).to_vec())
}
