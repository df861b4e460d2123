//! Where a session works and what narrows it: options that several commands share.

use crate::endpoint::Endpoint;
use crate::origin::executor;
use crate::policy_files::PolicyFiles;
use crate::project::{Project, other_names};
use broker_protocol::{Digest, Failed, NetworkRequest, Open, Scope, Trust, ZonePath};
use clap::Args;
use orchestrator_records::runlog::RunLog;
use orchestrator_records::state_directory;
use orchestrator_terminal::print::{self, problem};
use orchestrator_tools::scope_file;
use policies::secret::looks_secret;
use policies::value::{TrustName, ValueError};
use policies::{Choice, EffectivePolicy, PolicyError, source};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

pub mod environment;

/// Maximum bytes to read of a policy or scope: one more than either may have.
const TEXT_MAX: usize = policies::FILE_MAX + 1;

/// Options of the commands that work in a session or ask about one.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Where")]
pub struct SessionOptions {
    /// The project root: what commands and tools may work on [default: the repository of yours around the working directory;
    /// in none, that directory]
    #[arg(long, global = true, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The working directory: where commands start that name none [default: the current directory where it is in the
    /// project, else the project root]
    #[arg(long, global = true, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The central root, for spilled output and notes
    /// [default: lazaret/projects/NAME-HASH below $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, global = true, value_name = "DIR")]
    central: Option<PathBuf>,
    /// The policy profile; `auto` chooses it by project files such as Cargo.toml [default: what your policy says, else `default`]
    #[arg(long, global = true, value_name = "NAME")]
    profile: Option<String>,
    /// An unpacked image that replaces this machine's root for commands, read-only [default: the profile's, if it has one]
    #[arg(long, global = true, value_name = "DIR")]
    image: Option<PathBuf>,
    /// The executor to start [default: the one installed with lazaret] [env: LAZARET_EXECUTOR]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "socket")]
    executor: Option<PathBuf>,
    /// The socket of an executor that listens already
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A file of tool permissions (YAML or TOML) that narrows the session; `none` for no scope
    #[arg(long, global = true, value_name = "FILE", help_heading = "Narrowing")]
    scope: Option<PathBuf>,
    /// Which calls need approval: supervised (or ask): all; guided (or auto): those that change files or run programs;
    /// autonomous (or yolo): none [default: autonomous; guided for `chat`, `serve` and `policy`]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Narrowing", value_parser = trust)]
    trust: Option<Trust>,
    /// A host that commands may reach besides those of the profile: NAME, *.NAME or ADDRESS, with or without :PORT; may be
    /// given more than once
    #[arg(
        long,
        global = true,
        value_name = "HOST[:PORT]",
        help_heading = "Network"
    )]
    allow_host: Vec<String>,
    /// The hosts of a package registry: crates, debian, github, go, npm or pypi; may be given more than once
    #[arg(long, global = true, value_name = "PRESET", help_heading = "Network")]
    allow_net: Vec<String>,
    /// A file or directory of this machine that commands may read too, while this session lasts; give the real path, not a
    /// link; may be given more than once
    #[arg(long, global = true, value_name = "PATH", help_heading = "Files")]
    read: Vec<PathBuf>,
    /// A directory of this machine that commands may write in too, likewise
    #[arg(long, global = true, value_name = "DIR", help_heading = "Files")]
    write: Vec<PathBuf>,
    /// A file of secrets of the project, such as `.env`, that commands may read as it is while this session lasts; of others they see
    /// placeholders for the values; may be given more than once
    #[arg(long, global = true, value_name = "PATH", help_heading = "Files")]
    reveal: Vec<PathBuf>,
    /// Write no log of this run; the executor writes its audit all the same
    #[arg(long, global = true)]
    no_log: bool,
    /// Print the chosen project and working directory, and denials, to standard error
    #[arg(short, long, global = true)]
    verbose: bool,
    /// The project and the profile that variables name, which a project may have set: they can only narrow.
    #[arg(skip)]
    narrow_project: Option<PathBuf>,
    #[arg(skip)]
    narrow_profile: Option<String>,
    /// The policy files, once they have been read.
    #[arg(skip)]
    files: Rc<OnceCell<PolicyFiles>>,
    /// The scope file's content, once it has been read.
    #[arg(skip)]
    read_scope: Rc<OnceCell<Scope>>,
}

/// A session to request.
pub struct Opening {
    /// The request to the executor.
    pub open: Open,
    /// The working directory in the project of commands that name none; `None` for its root.
    pub directory: Option<ZonePath>,
    /// Its profile, and how it was chosen.
    pub choice: Choice,
}

/// Whether a command, by its words, uses an option.
pub fn is_used(option: &str, command: &[&str]) -> bool {
    let by_name = |used: &[(&str, &[&str])], name: &str, what: &str| {
        used.iter()
            .find(|(one, _)| *one == name)
            .is_none_or(|(_, all)| all.contains(&what))
    };
    match command {
        ["mcp", servers, ..] => by_name(&USED_FOR_SERVERS, servers, option),
        [name, ..] => by_name(&USED_BY, option, name),
        [] => true,
    }
}

/// The commands of `mcp` about other people's servers, and the options that each uses.
const USED_FOR_SERVERS: [(&str, &[&str]); 8] = [
    (
        "add",
        &[
            "project",
            "cwd",
            "profile",
            "executor",
            "socket",
            "allow_host",
            "allow_net",
            "verbose",
        ],
    ),
    ("list", &["project", "cwd", "verbose"]),
    ("remove", &[]),
    (
        "status",
        &["project", "cwd", "executor", "socket", "verbose"],
    ),
    ("log", &["project", "cwd", "verbose"]),
    (
        "accept",
        &["project", "cwd", "executor", "socket", "verbose"],
    ),
    ("login", &["project", "cwd", "verbose"]),
    ("logout", &["project", "cwd", "verbose"]),
];

/// The options by name, and the commands that use each.
pub const USED_BY: [(&str, &[&str]); 16] = [
    (
        "project",
        &[
            "run", "why", "call", "tools", "history", "undo", "session", "doctor", "policy",
            "hook", "acp", "mcp", "chat", "serve", "accept", "status",
        ],
    ),
    (
        "cwd",
        &[
            "run", "why", "call", "tools", "history", "undo", "session", "doctor", "policy", "mcp",
            "chat", "accept",
        ],
    ),
    (
        "central",
        &[
            "run", "why", "call", "tools", "history", "undo", "session", "doctor", "policy", "acp",
            "mcp", "chat", "serve",
        ],
    ),
    (
        "profile",
        &[
            "run", "why", "call", "history", "undo", "session", "doctor", "policy", "tools",
            "hook", "acp", "mcp", "chat", "serve",
        ],
    ),
    (
        "image",
        &[
            "run", "why", "call", "history", "undo", "session", "doctor", "acp", "mcp", "chat",
            "serve",
        ],
    ),
    (
        "executor",
        &[
            "run", "why", "call", "tools", "history", "undo", "session", "doctor", "acp", "mcp",
            "chat", "serve", "gc",
        ],
    ),
    (
        "socket",
        &[
            "run", "why", "call", "tools", "history", "undo", "session", "doctor", "acp", "mcp",
            "chat", "serve",
        ],
    ),
    (
        "scope",
        &[
            "run", "why", "call", "history", "undo", "session", "doctor", "policy", "tools", "acp",
            "mcp", "chat", "serve",
        ],
    ),
    (
        "trust",
        &[
            "run", "why", "call", "history", "undo", "session", "doctor", "policy", "hook", "acp",
            "mcp", "chat", "serve",
        ],
    ),
    (
        "allow_host",
        &[
            "run", "why", "call", "session", "acp", "mcp", "chat", "serve",
        ],
    ),
    (
        "allow_net",
        &[
            "run", "why", "call", "session", "acp", "mcp", "chat", "serve",
        ],
    ),
    (
        "read",
        &[
            "run", "why", "call", "session", "acp", "mcp", "chat", "serve",
        ],
    ),
    (
        "write",
        &[
            "run", "why", "call", "session", "acp", "mcp", "chat", "serve",
        ],
    ),
    (
        "reveal",
        &["run", "why", "call", "session", "mcp", "chat", "serve"],
    ),
    (
        "no_log",
        &[
            "run", "why", "call", "history", "undo", "session", "acp", "mcp", "chat", "serve",
        ],
    ),
    (
        "verbose",
        &[
            "run", "why", "call", "history", "undo", "session", "doctor", "policy", "acp", "mcp",
            "chat",
        ],
    ),
];

fn trust(text: &str) -> Result<Trust, ValueError> {
    TrustName::try_from(text.to_owned()).map(|trust| trust.0)
}

impl SessionOptions {
    /// How to reach the executor.
    pub fn endpoint(&self) -> Endpoint {
        match &self.socket {
            Some(socket) => Endpoint::Socket(socket.clone()),
            None => Endpoint::Program(self.executor.clone().or_else(executor), self.credentials()),
        }
    }

    /// The secret variables that the profile passes to its programs.
    fn credentials(&self) -> BTreeSet<String> {
        match self.profile.as_ref().or(self.narrow_profile.as_ref()) {
            None if self.files().is_unchanged() => BTreeSet::new(),
            None | Some(_) => self
                .policy()
                .map_or_else(|_| BTreeSet::new(), |policy| policy.environment.credentials),
        }
    }

    /// The policy files. The first call reads them, so it has to come before we confine ourselves.
    pub fn files(&self) -> &PolicyFiles {
        self.files.get_or_init(PolicyFiles::read)
    }

    /// The policy of the session's profile. Reads the policy files, so it has to come before we confine ourselves.
    pub fn policy(&self) -> Result<EffectivePolicy, PolicyError> {
        // A project that cannot be used chooses nothing; opening a session reports why.
        let project = Project::choose(self.project.as_deref(), self.cwd.as_deref()).ok();
        self.files().resolve(
            &self
                .choose(project.as_ref().map(|project| project.root.as_path()))
                .profile,
        )
    }

    /// The profile of a session in the project at `root`.
    pub fn choose(&self, root: Option<&Path>) -> Choice {
        let named = self.profile.as_deref().or(self.narrow_profile.as_deref());
        self.files().choose(named.unwrap_or_default(), root)
    }

    /// The root of the project that these options select.
    ///
    /// # Errors
    /// If there is no such directory, or it may not be a project.
    pub fn project_root(&self) -> Result<PathBuf, Failed> {
        Ok(Project::choose(self.project.as_deref(), self.cwd.as_deref())?.root)
    }

    /// The same options, with `profile` if they name none.
    pub fn or_profile(mut self, profile: &str) -> Self {
        self.profile.get_or_insert_with(|| profile.to_owned());
        self
    }

    /// The log of this run of `command`.
    pub fn log(&self, command: &'static str) -> RunLog {
        RunLog::begin(command, self.no_log, print::problem)
    }

    /// The session to request, with `spare` cells kept ready between calls.
    pub fn open(&self, spare: u8) -> Result<Opening, Failed> {
        let project = Project::choose(self.project.as_deref(), self.cwd.as_deref())?;
        if self.cwd.is_some() && self.project.is_none() {
            project.check_chosen_by_directory()?;
        }
        let choice = self.choose(Some(&project.root));
        if self.verbose {
            problem(&project.describe());
            choice.describe().iter().for_each(|chosen| problem(chosen));
        }
        let central = match &self.central {
            Some(central) => {
                std::path::absolute(central).map_err(|error| Failed::internal(error.to_string()))?
            }
            None => {
                let state_of = self.state_of(&choice.profile);
                central_root(&project.root, state_of, &self.projects()?)
            }
        };
        let names = other_names(&project.root, self.project.as_deref());
        let open = self.open_in(project.root, central, choice.profile.clone(), spare)?;
        let open = Open { names, ..open };
        Ok(Opening {
            open,
            directory: project.directory,
            choice,
        })
    }

    /// The directory of default central roots: the one that the policy names, or the user's.
    ///
    /// # Errors
    /// What the policy names cannot be used on this machine.
    pub fn projects(&self) -> Result<PathBuf, Failed> {
        let named = self.files().central_root()?;
        Ok(named.unwrap_or_else(|| state_directory::data().join("projects")))
    }

    /// The profile, if its programs keep state in the central root: then no other profile may use that root.
    fn state_of<'p>(&self, profile: &'p str) -> Option<&'p str> {
        let policy = self.files().changed(profile);
        policy
            .is_some_and(|policy| !policy.environment.state.is_empty())
            .then_some(profile)
    }

    /// Checks what was named for every session, for a server that opens its sessions later, on request of clients.
    pub fn check(&self, policy: &EffectivePolicy) -> Result<(), Failed> {
        if let Some(project) = &self.project {
            Project::choose(Some(project), self.cwd.as_deref())?.check()?;
        }
        for path in self.read.iter().chain(&self.write) {
            GrantError::check(path)?;
        }
        let network = policy
            .clone()
            .with_network(self.network(Some(policy), false).as_ref());
        network
            .map(drop)
            .map_err(|error| Failed::invalid(error.to_string()))
    }

    /// The same for other roots, with `profile`.
    pub fn open_in(
        &self,
        project: PathBuf,
        central: PathBuf,
        profile: String,
        spare: u8,
    ) -> Result<Open, Failed> {
        let [project, central] = [text(project)?, text(central)?];
        // What a person types needs no further approval.
        let trust = self.trust.unwrap_or(Trust::Autonomous);
        let (scope, capture, network) = (self.scope()?, None, None);
        let absolute = |image: &PathBuf| {
            let path = std::path::absolute(image);
            text(path.map_err(|error| {
                Failed::invalid(format!("--image {}: {error}", image.display()))
            })?)
        };
        let image = self.image.as_ref().map(absolute).transpose()?;
        let (read, write) = (named(&self.read)?, named(&self.write)?);
        let revealed = |path: &PathBuf| {
            let path = std::path::absolute(path);
            text(path.map_err(|error| Failed::invalid(format!("--reveal: {error}")))?)
        };
        let reveal = self.reveal.iter().map(revealed).collect::<Result<_, _>>()?;
        Ok(Open {
            project,
            central,
            profile,
            spare,
            scope,
            trust,
            capture,
            network,
            image,
            read,
            write,
            throw_away: false,
            reveal,
            answer_s: None,
            names: Vec::new(),
        })
    }

    /// The network to request, if commands are to have one: by these options, or because `policy` allows hosts. The executor
    /// decides which hosts. This runs before the session, because a process that carries no connections gives up all sockets. With
    /// `leases`, the user can be asked for more hosts.
    pub fn network(
        &self,
        policy: Option<&EffectivePolicy>,
        leases: bool,
    ) -> Option<NetworkRequest> {
        let asked = !self.allow_host.is_empty() || !self.allow_net.is_empty();
        let (hosts, presets) = (self.allow_host.clone(), self.allow_net.clone());
        (asked || leases || policy.is_some_and(EffectivePolicy::has_network)).then_some(
            NetworkRequest {
                hosts,
                presets,
                leases,
            },
        )
    }

    /// The names of variables of this environment that commands with `profile` do not get, sorted.
    pub fn left_out(&self, profile: &str) -> Vec<String> {
        // The executor reports a wrong policy.
        let Ok(policy) = self.files().resolve(profile) else {
            return Vec::new();
        };
        let rules = &policy.environment;
        let given = |name: &str| {
            let is_passed = rules.passes(name) && !looks_secret(name.as_ref());
            let is_set = [
                "PATH", "HOME", "TMPDIR", "SHELL", "SHLVL", "PWD", "OLDPWD", "_",
            ]
            .contains(&name)
                || rules.set.contains_key(name);
            is_passed || is_set || rules.credentials.contains(name)
        };
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let mut left: Vec<String> = names.filter(|name| !given(name)).collect();
        left.sort();
        left
    }

    /// The scope of the session, if it has one. The first call reads its file, so it has to come before we confine ourselves.
    pub fn scope(&self) -> Result<Option<Scope>, Failed> {
        if let Some(scope) = self.read_scope.get() {
            return Ok(Some(scope.clone()));
        }
        let Some(path) = self
            .scope
            .as_ref()
            .filter(|path| path.as_os_str() != "none")
        else {
            return Ok(None);
        };
        let scope = scope_file::parse(&path.to_string_lossy(), &read_text(path)?);
        let scope = scope.map_err(|error| Failed::invalid(error.to_string()))?;
        Ok(Some(self.read_scope.get_or_init(|| scope).clone()))
    }

    /// Whether the user wants more output.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// The requested trust, if any.
    pub fn trust(&self) -> Option<Trust> {
        self.trust
    }

    /// The project root that an option names, if any.
    pub fn named_project(&self) -> Option<&Path> {
        self.project.as_deref()
    }

    /// The same options for another project root.
    pub fn with_project(&self, project: PathBuf) -> Self {
        Self {
            project: Some(project),
            ..self.clone()
        }
    }

    /// The profile named by an option, or `auto`.
    pub fn profile_name(&self) -> Option<&str> {
        self.profile.as_deref().or(self.narrow_profile.as_deref())
    }

    /// The same options with those that a client names; its own project has its own central root. Commands start in the project's
    /// root. The scope file is dropped: a server for clients has read it before it confined itself.
    pub fn for_client(
        &self,
        project: Option<PathBuf>,
        profile: Option<String>,
        trust: Trust,
    ) -> Self {
        let central = if project.is_some() {
            None
        } else {
            self.central.clone()
        };
        let project = project.or_else(|| self.project.clone());
        Self {
            cwd: project.clone(),
            project,
            central,
            profile: profile.or_else(|| self.profile.clone()),
            trust: Some(trust),
            scope: None,
            read_scope: Rc::default(),
            ..self.clone()
        }
    }

    /// The same options, with `trust` if none was requested.
    pub fn trusting(&self, trust: Trust) -> Self {
        Self {
            trust: self.trust.or(Some(trust)),
            ..self.clone()
        }
    }
}

/// Why a path that the user names cannot be granted.
#[derive(Debug, Error)]
enum GrantError {
    #[error("{path} cannot be granted: {source}", path = .path.display())]
    Unresolved { path: PathBuf, source: io::Error },
    /// Cells would have what it leads to, but not the name that the user goes on using.
    #[error("{path} cannot be granted: it is a link, or lies behind one; name {target} instead", path = .path.display(), target = .target.display())]
    Link { path: PathBuf, target: PathBuf },
}

impl GrantError {
    /// The path as the kernel spells it, if no link leads there.
    fn check(path: &Path) -> Result<PathBuf, Self> {
        let unresolved = |source| Self::Unresolved {
            path: path.to_owned(),
            source,
        };
        let real = path.canonicalize().map_err(unresolved)?;
        // Without a slash at the end, behind which a link is what it leads to.
        let named: PathBuf = std::path::absolute(path)
            .map_err(unresolved)?
            .components()
            .collect();
        match named.ancestors().any(Path::is_symlink) {
            true => Err(Self::Link {
                path: path.to_owned(),
                target: real,
            }),
            false => Ok(real),
        }
    }
}

impl From<GrantError> for Failed {
    fn from(error: GrantError) -> Self {
        Failed::invalid(error.to_string())
    }
}

/// Resolves paths as the user means them, from here, as they will be opened.
fn named(paths: &[PathBuf]) -> Result<Vec<String>, Failed> {
    let named = |path: &PathBuf| {
        let real = match GrantError::check(path) {
            // A server for clients can no longer resolve paths; the executor reports errors.
            Err(GrantError::Unresolved { .. }) => {
                std::path::absolute(path).map_err(|source| GrantError::Unresolved {
                    path: path.clone(),
                    source,
                })
            }
            checked => checked,
        };
        text(real?)
    };
    paths.iter().map(named).collect()
}

/// The text of a file that the user named. A file that is too long is not read to its end.
pub fn read_text(path: &Path) -> Result<String, Failed> {
    read_text_up_to(path, TEXT_MAX)
}

/// The same for a file of at most `max` bytes.
pub fn read_text_up_to(path: &Path, max: usize) -> Result<String, Failed> {
    source::read_named(path, max)
        .map_err(|error| Failed::invalid(format!("cannot read {}: {error}", path.display())))
}

fn text(path: PathBuf) -> Result<String, Failed> {
    let refused = |path: OsString| {
        Failed::invalid(format!("{path:?} is not UTF-8; use a root whose path is"))
    };
    path.into_os_string().into_string().map_err(refused)
}

/// The default central root of a project, below the directory for `projects`. If a profile's programs keep state in it, it belongs to
/// that profile alone. A directory with a name of the first releases is left alone: nothing in it tells which project it belongs to,
/// which is why the name was changed.
fn central_root(project: &Path, state_of: Option<&str>, projects: &Path) -> PathBuf {
    if let Some(profile) = state_of {
        return projects.join(format!("{}-{profile}", folder_name(project)));
    }
    let (central, former) = (
        projects.join(folder_name(project)),
        projects.join(former_name(project)),
    );
    if former.exists() && !central.exists() {
        let (former, central) = (former.display(), central.display());
        problem(&format!(
            "{former} has no record of its project, so it is no longer used; if its files belong to this project, move it to {central}"
        ));
    }
    central
}

/// A name that people recognise, followed by the SHA-256 of the path, so that no other project can get the same name.
fn folder_name(project: &Path) -> String {
    format!(
        "{}-{}",
        plain_name(project),
        Digest::of(project.as_os_str().as_encoded_bytes())
    )
}

/// The name used by the first releases, with 32 bits of FNV-1a, for which collisions can be made.
fn former_name(project: &Path) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = project
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, step);
    format!(
        "{}-{:08x}",
        plain_name(project),
        (hash >> 32) as u32 ^ hash as u32
    )
}

fn plain_name(project: &Path) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name = project
        .file_name()
        .unwrap_or("root".as_ref())
        .to_string_lossy();
    name.chars().map(plain).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_the_same_central_root_for_ever() {
        let name = folder_name(Path::new("/home/u/my app"));
        let digest = "01895cf7df474f6fee1b76e491e5ac14ad672db8ab56ec61c2afe525f46347bb";
        assert_eq!(name, format!("my_app-{digest}"));
        assert_eq!(former_name(Path::new("/home/u/my app")), "my_app-2e1880b0");
        assert_ne!(
            folder_name(Path::new("/a/x")),
            folder_name(Path::new("/b/x"))
        );
        assert!(folder_name(Path::new("/")).starts_with("root-"));
    }
}
