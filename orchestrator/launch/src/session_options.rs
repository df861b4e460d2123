//! Where a session works and what narrows it, chosen and read once.

use crate::central_root::central_root;
use crate::endpoint::Endpoint;
use crate::gateway_starter;
use crate::groups::{GatewaySide, Options};
use crate::origin::executor;
use crate::policy_files::PolicyFiles;
use crate::project::{Project, other_names};
use crate::row::CommandRow;
use crate::runlog::RunLog;
use crate::state_directory;
use crate::stdio::print::{self, problem};
use crate::tickets::TicketPair;
use broker_protocol::{Failed, GatewaySupply, NetworkRequest, Open, Scope, Trust, ZonePath};
use orchestrator_confine::Files;
use orchestrator_text::secret_environment;
use policies::network::Leasing;
use policies::secret::looks_secret;
use policies::{Choice, EffectivePolicy, PolicyError, source};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use thiserror::Error;

pub mod environment;
mod shell;

pub(crate) use environment::EnvironmentOptions;

/// Maximum bytes to read of a policy or scope: one more than either may have.
const TEXT_MAX: usize = policies::FILE_MAX + 1;

/// How the text of a scope file is read; the first argument is its name. Only the programs with `--scope` link it.
pub(crate) type ScopeParser = fn(&str, &str) -> Result<Scope, Failed>;

/// The values that select a session: the options, what the environment adds, the policy files and the scope, read once. The project
/// is chosen at the first use.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    given: Options,
    environment: EnvironmentOptions,
    files: Rc<PolicyFiles>,
    scope: Rc<Result<Option<Scope>, Failed>>,
    project: Rc<OnceCell<Result<Project, Failed>>>,
    /// Cells that the executor keeps ready between calls.
    spare: u8,
    tickets: Rc<TicketPair>,
    /// The executor's end of the line to what starts gateways here, once it is needed.
    gateways: Rc<OnceCell<Rc<OwnedFd>>>,
}

pub struct SessionOpening {
    /// The request to the executor.
    pub open: Open,
    /// The working directory in the project of commands that name none; `None` for its root.
    pub directory: Option<ZonePath>,
    /// Its profile, and how it was chosen.
    pub choice: Choice,
}

impl SessionOptions {
    /// Reads policy files and scope.
    pub(crate) fn read(
        files: &Files,
        row: &CommandRow,
        given: Options,
        mut environment: EnvironmentOptions,
        parse_scope: ScopeParser,
    ) -> Self {
        let path = given.scope.as_deref();
        let scope = match (path, environment.scope.take()) {
            (None, scope) => Ok(scope),
            (Some(path), _) if path.as_os_str() == "none" => Ok(None),
            (Some(path), _) => read_text(files, path)
                .and_then(|text| parse_scope(&path.to_string_lossy(), &text).map(Some)),
        };
        let project = environment.project.take().map(Ok);
        let tickets = match row.may_have_network() && given.socket.is_none() {
            true => TicketPair::unmade(),
            false => TicketPair::unsupported(),
        };
        Self {
            given,
            environment,
            files: Rc::new(PolicyFiles::read(files)),
            scope: Rc::new(scope),
            project: Rc::new(project.map_or_else(OnceCell::new, OnceCell::from)),
            spare: row.spare(),
            tickets: Rc::new(tickets),
            gateways: Rc::default(),
        }
    }

    /// The line for tickets of this process.
    pub(crate) fn tickets(&self) -> &TicketPair {
        &self.tickets
    }

    /// Starts what starts the gateways of sessions, if these options name this program for that.
    pub(crate) fn start_gateways(&self, files: &Files) -> io::Result<()> {
        match self.given.gateway {
            Some(GatewaySide::Client) if self.gateways.get().is_none() => {
                let line = gateway_starter::begin(files)?;
                let _ = self.gateways.set(Rc::new(line));
                Ok(())
            }
            Some(GatewaySide::Client | GatewaySide::Executor) | None => Ok(()),
        }
    }

    /// How to reach the executor.
    pub fn endpoint(&self) -> Endpoint {
        match &self.given.socket {
            Some(socket) => Endpoint::Socket(socket.clone(), self.gateways.get().cloned()),
            None => Endpoint::Program(self.executor(), self.credentials(), self.tickets.clone()),
        }
    }

    /// The executor's program, if one is named.
    pub fn executor(&self) -> Option<PathBuf> {
        self.given.executor.clone().or_else(executor)
    }

    /// The project of these options.
    ///
    /// # Errors
    /// If there is no such directory, or it may not be a project.
    pub fn project(&self) -> Result<&Project, Failed> {
        let choose = || Project::choose(self.given.project.as_deref(), self.given.cwd.as_deref());
        self.project
            .get_or_init(choose)
            .as_ref()
            .map_err(Failed::clone)
    }

    /// The secret variables that the executor needs for the profile.
    pub(crate) fn credentials(&self) -> BTreeSet<String> {
        match self.profile_name() {
            None if self.files().is_unchanged() => BTreeSet::new(),
            None | Some(_) => self
                .policy()
                .map_or_else(|_| BTreeSet::new(), |policy| policy.secret_variables()),
        }
    }

    pub fn files(&self) -> &PolicyFiles {
        &self.files
    }

    /// The policy of the session's profile.
    pub fn policy(&self) -> Result<EffectivePolicy, PolicyError> {
        // A project that cannot be used chooses nothing; opening a session reports why.
        let project = self.project().ok();
        self.files().resolve(
            &self
                .choose(project.map(|project| project.root.as_path()))
                .profile,
        )
    }

    /// The profile of a session in the project at `root`.
    pub fn choose(&self, root: Option<&Path>) -> Choice {
        self.files()
            .choose(self.profile_name().unwrap_or_default(), root)
    }

    /// These options, with `profile` if they name none.
    pub fn or_profile(mut self, profile: &str) -> Self {
        self.given.profile.get_or_insert_with(|| profile.to_owned());
        self
    }

    /// The log of this run of the command in `row`.
    pub(crate) fn log(&self, row: &CommandRow) -> RunLog {
        if row.log && !self.given.no_log {
            RunLog::begin(row.name, print::problem)
        } else {
            RunLog::off(row.name, print::problem)
        }
    }

    /// The session to request.
    ///
    /// # Errors
    /// The project cannot be used, or another option.
    pub fn open(&self) -> Result<SessionOpening, Failed> {
        let project = self.project()?;
        if self.given.cwd.is_some() && self.given.project.is_none() {
            project.check_chosen_by_directory()?;
        }
        let choice = self.choose(Some(&project.root));
        if self.given.verbose {
            problem(&project.describe());
            choice.describe().iter().for_each(|chosen| problem(chosen));
        }
        let central = match &self.given.central {
            Some(central) => {
                std::path::absolute(central).map_err(|error| Failed::internal(error.to_string()))?
            }
            None => {
                let state_of = self.state_of(&choice.profile);
                central_root(&project.root, state_of, &self.projects()?)
            }
        };
        let names = other_names(&project.root, self.named_project());
        let open = self.open_in(project.root.clone(), central, choice.profile.clone())?;
        let open = Open { names, ..open };
        Ok(SessionOpening {
            open,
            directory: project.directory.clone(),
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
        if self.named_project().is_some() {
            self.project()?.check()?;
        }
        for path in self.given.read.iter().chain(&self.given.write) {
            GrantError::check(path)?;
        }
        let network = policy
            .clone()
            .with_network(self.network(Some(policy)).as_ref());
        network
            .map(drop)
            .map_err(|error| Failed::invalid(error.to_string()))
    }

    /// Opens a session in other roots, with `profile`.
    pub fn open_in(
        &self,
        project: PathBuf,
        central: PathBuf,
        profile: String,
    ) -> Result<Open, Failed> {
        let [project, central] = [text(project)?, text(central)?];
        // What a person types needs no further approval.
        let given = &self.given;
        let trust = given.trust.unwrap_or(Trust::Autonomous);
        let (scope, capture, network) = (self.scope()?, None, None);
        let absolute = |image: &PathBuf| {
            let path = std::path::absolute(image);
            text(path.map_err(|error| {
                Failed::invalid(format!("--image {}: {error}", image.display()))
            })?)
        };
        let image = given.image.as_ref().map(absolute).transpose()?;
        let (read, write) = (named(&given.read)?, named(&given.write)?);
        let revealed = |path: &PathBuf| {
            let path = std::path::absolute(path);
            text(path.map_err(|error| Failed::invalid(format!("--reveal: {error}")))?)
        };
        let reveal = given
            .reveal
            .iter()
            .map(revealed)
            .collect::<Result<_, _>>()?;
        Ok(Open {
            project,
            central,
            profile,
            spare: self.spare,
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
            file_leases: false,
        })
    }

    /// The network to request, if commands are to have one: by these options, or because `policy` allows hosts. The executor
    /// decides which hosts. This runs before the session, because a process that carries no connections gives up all sockets.
    pub fn network(&self, policy: Option<&EffectivePolicy>) -> Option<NetworkRequest> {
        self.network_with(policy, Leasing::NotOffered)
    }

    /// Requests a network also where the user may be asked for more hosts.
    pub fn network_with(
        &self,
        policy: Option<&EffectivePolicy>,
        leasing: Leasing,
    ) -> Option<NetworkRequest> {
        let leases = leasing == Leasing::Offered;
        let (hosts, presets) = (self.given.allow_host.clone(), self.given.allow_net.clone());
        let (connect, publish) = (self.given.connect.clone(), self.given.publish.clone());
        let ports = !connect.is_empty() || !publish.is_empty();
        let asked = !hosts.is_empty() || !presets.is_empty() || ports;
        (asked || leases || policy.is_some_and(EffectivePolicy::has_gateway)).then_some(
            NetworkRequest {
                hosts,
                presets,
                leases,
                connect,
                publish,
                // The connection says so that has gateways started here.
                gateway: GatewaySupply::Executor,
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
            // The session has values of its own for these.
            let is_of_ssh =
                !policy.ssh.is_empty() && ["SSH_AUTH_SOCK", "GIT_SSH_COMMAND"].contains(&name);
            is_passed || is_set || is_of_ssh || rules.credentials.contains(name)
        };
        let names = secret_environment::names()
            .into_iter()
            .filter_map(|name| name.into_string().ok());
        let mut left: Vec<String> = names.filter(|name| !given(name)).collect();
        left.sort();
        left
    }

    /// The scope of the session, if it has one.
    ///
    /// # Errors
    /// Its file cannot be read, or is none.
    pub fn scope(&self) -> Result<Option<Scope>, Failed> {
        Result::clone(&self.scope)
    }

    /// Whether the user wants more output.
    pub fn is_verbose(&self) -> bool {
        self.given.verbose
    }

    /// Whether they name a scope, or hosts or ports for commands.
    pub fn name_scope_or_hosts(&self) -> bool {
        let given = &self.given;
        let lists = [
            given.allow_host.is_empty(),
            given.allow_net.is_empty(),
            given.connect.is_empty(),
            given.publish.is_empty(),
        ];
        given.scope.is_some() || lists.contains(&false)
    }

    /// These options, narrowed by `scope` in place of theirs.
    pub fn scoped(self, scope: Scope) -> Self {
        Self {
            scope: Rc::new(Ok(Some(scope))),
            ..self
        }
    }

    /// The requested trust, if any.
    pub fn trust(&self) -> Option<Trust> {
        self.given.trust
    }

    /// The project root that an option names, if any.
    pub fn named_project(&self) -> Option<&Path> {
        self.given.project.as_deref()
    }

    /// These options for another project root.
    pub fn with_project(&self, project: PathBuf) -> Self {
        self.with(Options {
            project: Some(project),
            ..self.given.clone()
        })
    }

    /// These values with other options; their project is chosen anew.
    fn with(&self, given: Options) -> Self {
        Self {
            given,
            project: Rc::default(),
            ..self.clone()
        }
    }

    /// The profile named by an option, or `auto`.
    pub fn profile_name(&self) -> Option<&str> {
        let narrow = self.environment.profile.as_deref();
        self.given.profile.as_deref().or(narrow)
    }

    /// These options with those that a client names; its own project has its own central root. Commands start in the project's
    /// root. The scope is dropped: a server for clients has its own.
    pub fn for_client(
        &self,
        project: Option<PathBuf>,
        profile: Option<String>,
        trust: Trust,
    ) -> Self {
        let given = self.given.clone();
        let central = given.central.filter(|_| project.is_none());
        let project = project.or(given.project);
        Self {
            scope: Rc::new(Ok(None)),
            ..self.with(Options {
                cwd: project.clone(),
                project,
                central,
                profile: profile.or(given.profile),
                trust: Some(trust),
                scope: None,
                ..given
            })
        }
    }

    /// These options, with `trust` if none was requested.
    pub fn trusting(mut self, trust: Trust) -> Self {
        self.given.trust.get_or_insert(trust);
        self
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
            Err(GrantError::Unresolved { .. }) => std::path::absolute(path)
                .map(without_parent)
                .map_err(|source| GrantError::Unresolved {
                    path: path.clone(),
                    source,
                }),
            checked => checked,
        };
        text(real?)
    };
    paths.iter().map(named).collect()
}

/// An absolute path to nothing without `..`: its error is that there is nothing, and not how it was typed.
fn without_parent(path: PathBuf) -> PathBuf {
    if !path.components().any(|part| part == Component::ParentDir) {
        return path;
    }
    let parent = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        (Some(_) | None, Some(_) | None) => path,
    }
}

/// The text of a file that the user named. A file that is too long is not read to its end.
pub fn read_text(files: &Files, path: &Path) -> Result<String, Failed> {
    read_text_up_to(files, path, TEXT_MAX)
}

/// Reads a text of at most `max` bytes.
pub fn read_text_up_to(_: &Files, path: &Path, max: usize) -> Result<String, Failed> {
    source::read_named(path, max)
        .map_err(|error| Failed::invalid(format!("cannot read {}: {error}", path.display())))
}

fn text(path: PathBuf) -> Result<String, Failed> {
    let refused = |path: OsString| {
        Failed::invalid(format!("{path:?} is not UTF-8; use a root whose path is"))
    };
    path.into_os_string().into_string().map_err(refused)
}
