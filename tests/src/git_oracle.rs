//! What the user's git executes, and which settings it reads, in a project, according to git itself: recorded before and after an attack.
//!
//! For each directory that git may take for a repository: which repository that is, `git config --list` with origins, `git status`
//! without a file system monitor, a traced `git status`, and the hooks that exist. What may differ afterwards is listed by kind
//! (`Kind`): objects, refs, the index, the work tree, and what `git init` and `git worktree add` create.
//!
//! *Does not*: read an object, or try other commands than `git status`.

use crate::process::{LIMIT, run};
use crate::world::{World, unique};
use broker_protocol::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Maximum number of directories to examine: a race creates hundreds that are all alike.
const DIRECTORIES_MAX: usize = 24;
/// How long a git may take: one that reads a FIFO never ends.
const PATIENCE: Duration = Duration::from_secs(60);

/// What git does in each directory that it may take for a repository.
#[derive(Debug)]
pub struct GitView(BTreeMap<PathBuf, View>);

#[derive(Debug, Default)]
struct View {
    /// The repository's own directory, its common one, and the top of the work tree; empty if git finds none.
    repository: Vec<PathBuf>,
    /// Scope, origin, key and value of each setting.
    settings: BTreeSet<String>,
    /// The files that the settings come from.
    origins: BTreeSet<PathBuf>,
    /// The exit code of a `git status` that starts no monitor.
    status: i32,
    /// Paths and arguments.
    programs: BTreeSet<String>,
    files: BTreeMap<PathBuf, Kind>,
    hooks: BTreeMap<PathBuf, Digest>,
}

/// What a file that git has opened is to git.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// An object, a ref, the index and the like: commits create them.
    Content,
    /// A repository's own settings, which are listed separately.
    Listed,
    /// A file of the work tree, which git may read.
    WorkTree,
    /// The link between a worktree and its repository, with its content.
    Worktree,
    /// Everything else: settings, attributes, alternates, files that other programs read. With its digest if a cell could write it.
    Other(Option<Digest>),
}

impl GitView {
    /// What the user's git does now in the zones of a world.
    pub fn of(world: &World) -> Self {
        Self::within(PATIENCE, world)
    }

    /// The same, where a git that takes longer is one that never ends.
    pub fn within(patience: Duration, world: &World) -> Self {
        // The project may lie in a repository; the central root lies in none, and is looked at where it looks like one.
        let mut directories = vec![world.project.clone()];
        let mut below = vec![world.project.clone(), world.central.clone()];
        while let Some(directory) = below.pop() {
            let Ok(entries) = fs::read_dir(&directory) else {
                continue;
            };
            let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            let member = |name: &std::ffi::OsString| {
                [".git", "HEAD", "commondir"]
                    .iter()
                    .any(|member| name.eq_ignore_ascii_case(member))
            };
            if names.iter().any(member) && !directories.contains(&directory) {
                directories.push(directory.clone());
            }
            let in_directory = names
                .iter()
                .filter(|name| *name != "objects" && *name != "logs")
                .map(|name| directory.join(name));
            below.extend(
                in_directory.filter(|path| path.symlink_metadata().is_ok_and(|file| file.is_dir())),
            );
        }
        directories.truncate(DIRECTORIES_MAX);
        Self(
            directories
                .into_iter()
                .map(|directory| (directory.clone(), View::of(world, &directory, patience)))
                .collect(),
        )
    }

    /// What git executed or read in `after` but not before, one line each.
    pub fn changes(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (directory, now) in &after.0 {
            let mut say =
                |what: String| changes.push(format!("in {}: {what}", directory.display()));
            match self.0.get(directory) {
                Some(before) => before.compare(now, &mut say),
                None => self.judge_new(now, &mut say),
            }
            let known =
                |program: &String| self.0.values().any(|view| view.programs.contains(program));
            now.programs
                .iter()
                .filter(|program| !known(program))
                .for_each(|one| say(format!("it runs {one}")));
            for (path, kind) in &now.files {
                let known = self
                    .0
                    .values()
                    .any(|view| view.files.get(path) == Some(kind));
                if !known && matches!(kind, Kind::Other(_)) {
                    say(format!("it reads {}", path.display()));
                }
            }
            for (path, digest) in &now.hooks {
                if !self
                    .0
                    .values()
                    .any(|view| view.hooks.get(path) == Some(digest))
                {
                    say(format!("a hook lies ready: {}", path.display()));
                }
            }
        }
        changes
    }

    /// A new repository may have the settings that git itself writes.
    fn judge_new(&self, now: &View, say: &mut impl FnMut(String)) {
        let known = |setting: &String| self.0.values().any(|view| view.settings.contains(setting));
        let new = now
            .settings
            .iter()
            .filter(|setting| !known(setting) && !is_harmless(setting));
        new.for_each(|setting| say(format!("a new setting: {setting}")));
    }

    /// # Panics
    /// If git now executes or reads something that it did not before.
    #[track_caller]
    pub fn assert_unchanged(&self, world: &World, attack: &str) {
        let changes = self.changes(&Self::of(world));
        assert!(
            changes.is_empty(),
            "the user's git after {attack}\n{}",
            changes.join("\n")
        );
    }
}

impl View {
    fn of(world: &World, directory: &Path, patience: Duration) -> Self {
        let patience = patience.as_secs().to_string();
        let git = |words: &[&str]| {
            let mut command = world.host("timeout");
            command
                .arg(&patience)
                .arg("git")
                .args(words)
                .current_dir(directory);
            run(command.envs(QUIET), LIMIT)
        };
        let settings = git(&["config", "--list", "--show-origin", "--show-scope"]).text();
        let origin = |line: &str| {
            Some(
                directory.join(
                    line.split('\t')
                        .find_map(|word| word.strip_prefix("file:"))?,
                ),
            )
        };
        let origins = settings
            .lines()
            .filter_map(origin)
            .filter_map(|path| path.canonicalize().ok());
        let mut view = Self {
            origins: origins.collect(),
            settings: settings.lines().map(str::to_owned).collect(),
            ..Self::default()
        };
        let found = git(&[
            "rev-parse",
            "--absolute-git-dir",
            "--git-common-dir",
            "--git-path",
            "hooks",
        ]);
        if found.code() == 0 {
            let mut paths: Vec<PathBuf> = found
                .text()
                .lines()
                .map(|line| directory.join(line))
                .collect();
            let at = paths.pop().expect("a line for each question");
            view.hooks = hooks(&at, world);
            view.repository = paths
                .iter()
                .filter_map(|path| path.canonicalize().ok())
                .collect();
        }
        let traced = view.trace(world, directory, &patience);
        let monitored = settings.contains("core.fsmonitor");
        view.status = if monitored {
            git(&["-c", "core.fsmonitor=", "status"]).code()
        } else {
            traced
        };
        view
    }

    /// Traces a `git status` as the user would run it, and returns how that ends.
    fn trace(&mut self, world: &World, directory: &Path, patience: &str) -> i32 {
        let file = world.base().join(format!("trace-{}", unique()));
        let mut command: Command = world.host("timeout");
        command.args([
            patience,
            "strace",
            "-f",
            "--seccomp-bpf",
            "-y",
            "-qq",
            "-s",
            "4096",
            "-e",
            "status=successful",
        ]);
        command
            .args([
                "-e",
                "trace=execve,execveat,open,openat,openat2,creat",
                "-o",
            ])
            .arg(&file);
        let code = run(
            command
                .args(["git", "status"])
                .current_dir(directory)
                .envs(QUIET),
            LIMIT,
        )
        .code();
        let trace = fs::read(&file).expect("strace is installed, and writes what it has seen");
        fs::remove_file(&file).expect("a file that was just made");
        for line in String::from_utf8_lossy(&trace).lines() {
            let Some((_, call)) = line.trim_start().split_once(' ') else {
                continue;
            };
            let call = call.trim_start();
            if call.starts_with("exec") {
                // Git passes a time to the monitor.
                let is_time = |word: &&str| {
                    word.len() < 10 || !word.bytes().all(|byte| byte.is_ascii_digit())
                };
                let words = call.split(", 0x").next().unwrap_or(call).split('"');
                self.programs
                    .insert(words.filter(is_time).collect::<Vec<_>>().join("'"));
            } else if let Some(path) = call
                .rsplit_once("= ")
                .and_then(|(_, fd)| fd.split_once('<'))
            {
                let path = PathBuf::from(path.1.trim_end().trim_end_matches('>'));
                if path.symlink_metadata().is_ok_and(|file| file.is_file()) {
                    self.files.insert(path.clone(), self.kind(world, &path));
                }
            }
        }
        code
    }

    fn kind(&self, world: &World, path: &Path) -> Kind {
        let digest = || {
            path.starts_with(world.base())
                .then(|| Digest::of(&fs::read(path).unwrap_or_default()))
        };
        let below = self
            .repository
            .iter()
            .filter_map(|directory| path.strip_prefix(directory).ok());
        if let Some(below) = below.min_by_key(|below| below.components().count()) {
            return match is_content(below) {
                true => Kind::Content,
                false if below == Path::new("config") => Kind::Listed,
                false if is_worktree(path) => Kind::Worktree,
                false => Kind::Other(digest()),
            };
        }
        let is_content = (path.starts_with(&world.project) || path.starts_with(&world.central))
            && !self.origins.iter().any(|origin| origin == path);
        match path
            .file_name()
            .is_some_and(|name| name.eq_ignore_ascii_case(".git"))
        {
            true if leads_to_worktree(path) => Kind::Worktree,
            false if is_content => Kind::WorkTree,
            true | false => Kind::Other(digest()),
        }
    }

    fn compare(&self, now: &Self, say: &mut impl FnMut(String)) {
        if self.repository != now.repository {
            say(format!(
                "the repository is {:?} instead of {:?}",
                now.repository, self.repository
            ));
        }
        if self.status != now.status {
            say(format!(
                "`git status` ends with {} instead of {}",
                now.status, self.status
            ));
        }
        let gone = self
            .settings
            .difference(&now.settings)
            .map(|setting| format!("gone: {setting}"));
        let new = now
            .settings
            .difference(&self.settings)
            .map(|setting| format!("a new setting: {setting}"));
        gone.chain(new).for_each(say);
    }
}

/// Prevents that the observation changes anything or reads message catalogues.
const QUIET: [(&str, &str); 2] = [("GIT_OPTIONAL_LOCKS", "0"), ("LC_ALL", "C")];

fn hooks(directory: &Path, world: &World) -> BTreeMap<PathBuf, Digest> {
    if !directory.starts_with(world.base()) {
        return BTreeMap::new();
    }
    let entries = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let ready = entries.filter(|path| path.extension().is_none_or(|end| end != "sample"));
    ready
        .filter_map(|path| Some((path.clone(), Digest::of(&fs::read(path).ok()?))))
        .collect()
}

/// Whether commits, branches and merges create this path in a repository.
fn is_content(below: &Path) -> bool {
    let names: Vec<_> = below
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match names[..] {
        // These lead to objects of other repositories.
        ["objects", "info", "alternates" | "http-alternates"] => false,
        ["objects" | "refs" | "logs", ..] | ["info", "exclude" | "refs"] => true,
        [name] => {
            ["index", "packed-refs", "COMMIT_EDITMSG"].contains(&name)
                || name.starts_with("sharedindex.")
                || name.ends_with("HEAD")
        }
        _ => false,
    }
}

/// Whether this is a file by which a linked worktree and its repository refer to each other, and to nothing else.
fn is_worktree(path: &Path) -> bool {
    let in_worktrees = path
        .parent()
        .and_then(Path::parent)
        .is_some_and(|directory| directory.ends_with("worktrees"));
    let name = path.file_name().and_then(|name| name.to_str());
    in_worktrees
        && match name {
            // Without this file, git does not accept the directory.
            Some("commondir") => fs::read(path).map_or(true, |text| text == b"../..\n"),
            Some("gitdir" | "HEAD" | "index" | "ORIG_HEAD" | "locked") => true,
            Some(_) | None => false,
        }
}

/// Whether a file `.git` leads to a worktree's part of a repository, which leads back.
fn leads_to_worktree(link: &Path) -> bool {
    let text = fs::read_to_string(link).unwrap_or_default();
    let Some(own) = text
        .strip_prefix("gitdir: ")
        .map(|own| Path::new(own.trim_end()))
    else {
        return false;
    };
    let back = fs::read_to_string(own.join("gitdir")).unwrap_or_default();
    is_worktree(&own.join("commondir")) && Path::new(back.trim_end()) == link
}

/// Whether `git init` and `git clone` write such a setting, and it names no program and no file.
fn is_harmless(setting: &str) -> bool {
    const KEYS: [&str; 13] = [
        "core.repositoryformatversion",
        "core.filemode",
        "core.bare",
        "core.logallrefupdates",
        "core.symlinks",
        "core.ignorecase",
        "core.precomposeunicode",
        "user.name",
        "user.email",
        "extensions.objectformat",
        "extensions.refstorage",
        "init.defaultbranch",
        "remote.pushdefault",
    ];
    let Some((key, value)) = setting
        .rsplit('\t')
        .next()
        .and_then(|words| words.split_once('='))
    else {
        return false;
    };
    let of_remote =
        key.starts_with("remote.") && [".url", ".fetch"].iter().any(|end| key.ends_with(end));
    let of_branch =
        key.starts_with("branch.") && [".remote", ".merge"].iter().any(|end| key.ends_with(end));
    KEYS.contains(&key)
        || (of_remote || of_branch) && !value.contains("::") && !value.starts_with('-')
}
