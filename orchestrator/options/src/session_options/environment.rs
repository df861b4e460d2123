//! The options of a program without a command line of its own: from environment variables.

use super::{SessionOptions, named, text, trust};
use crate::caller::Caller;
use crate::project::Project;
use broker_protocol::{Failed, Scope, Trust};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const PROJECT: &str = "LAZARET_PROJECT";
const PROFILE: &str = "LAZARET_PROFILE";
const TRUST: &str = "LAZARET_TRUST";
/// The other options, as JSON: passed from a session to the shell that it gives to its agent.
const OPTIONS: &str = "LAZARET_OPTIONS";

/// What narrows a session and what is granted to it, besides the variables that people set. It holds the scope itself, since the
/// scope's file may lie in the project.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ShellOptions {
    central: Option<String>,
    image: Option<String>,
    executor: Option<String>,
    socket: Option<String>,
    scope: Option<Scope>,
    allow_host: Vec<String>,
    allow_net: Vec<String>,
    read: Vec<String>,
    write: Vec<String>,
    no_log: bool,
    verbose: bool,
}

impl SessionOptions {
    /// The options of a shell, which has none of ours. Commands start in `directory`, which must be in the project; if no project
    /// is named, it is that of the agent that started us.
    ///
    /// # Errors
    /// If a variable is invalid, or the project cannot be determined.
    pub fn of_environment(directory: Option<PathBuf>) -> Result<Self, Failed> {
        let options = Self { cwd: directory, ..Self::default() }.under_environment()?;
        let project = match (&options.project, &options.cwd) {
            (None, Some(here)) => Some(Project::of_agent(&Caller::find(), None, here)?.root),
            (Some(_), _) | (None, None) => options.project.clone(),
        };
        Ok(Self { project, ..options })
    }

    /// Adds the environment's values where no option is given. So a decision on a command for the shell uses what the shell will
    /// use.
    ///
    /// # Errors
    /// If a variable is invalid.
    pub fn under_environment(self) -> Result<Self, Failed> {
        let (profile, trust) = (given_text(PROFILE)?, given_trust()?);
        let given_options = given_options()?;
        if let (None, Some(scope)) = (&self.scope, given_options.scope) {
            self.read_scope.get_or_init(|| scope);
        }
        let path = |own: Option<PathBuf>, given: Option<String>| own.or(given.map(PathBuf::from));
        let paths = |own: Vec<PathBuf>, given: Vec<String>| {
            own.into_iter().chain(given.into_iter().map(PathBuf::from)).collect()
        };
        let has_endpoint = self.executor.is_some() || self.socket.is_some();
        Ok(Self {
            project: self.project.or_else(|| given(PROJECT).map(PathBuf::from)),
            profile: self.profile.or(profile),
            trust: self.trust.or(trust),
            central: path(self.central, given_options.central),
            image: path(self.image, given_options.image),
            executor: path(self.executor, given_options.executor.filter(|_| !has_endpoint)),
            socket: path(self.socket, given_options.socket.filter(|_| !has_endpoint)),
            allow_host: [self.allow_host, given_options.allow_host].concat(),
            allow_net: [self.allow_net, given_options.allow_net].concat(),
            read: paths(self.read, given_options.read),
            write: paths(self.write, given_options.write),
            no_log: self.no_log || given_options.no_log,
            verbose: self.verbose || given_options.verbose,
            ..self
        })
    }

    /// The variables that give a shell all options of a session in the project at `root`.
    ///
    /// # Errors
    /// If the scope cannot be read, or a path is not UTF-8.
    pub fn for_shell(&self, root: &Path) -> Result<Vec<(&'static str, OsString)>, Failed> {
        // Exhaustive, so that a new option has to be added here.
        let Self {
            project: _,
            cwd: _,
            central,
            profile,
            image,
            executor,
            socket,
            scope: _,
            trust,
            allow_host,
            allow_net,
            read,
            write,
            // Variables may come from a project's settings for an agent, and must not show its secrets.
            reveal: _,
            no_log,
            verbose,
            files: _,
            read_scope: _,
        } = self;
        let absolute = |path: &Option<PathBuf>| {
            let absolute = path.as_ref().map(std::path::absolute).transpose();
            absolute.map_err(|error| Failed::invalid(error.to_string()))?.map(text).transpose()
        };
        let options = ShellOptions {
            central: absolute(central)?,
            image: absolute(image)?,
            executor: absolute(executor)?,
            socket: absolute(socket)?,
            scope: self.scope()?,
            allow_host: allow_host.clone(),
            allow_net: allow_net.clone(),
            read: named(read)?,
            write: named(write)?,
            no_log: *no_log,
            verbose: *verbose,
        };
        let options = serde_json::to_string(&options).map_err(|error| Failed::internal(error.to_string()))?;
        let mut variables = vec![(PROJECT, root.into()), (OPTIONS, options.into())];
        variables.extend(profile.as_ref().map(|profile| (PROFILE, profile.into())));
        variables.extend(trust.map(|trust| (TRUST, trust.name().into())));
        Ok(variables)
    }
}

fn given_options() -> Result<ShellOptions, Failed> {
    let Some(text) = given_text(OPTIONS)? else { return Ok(ShellOptions::default()) };
    let wrong = |why: String| Failed::invalid(format!("{OPTIONS}: {why}"));
    let options: ShellOptions = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if let Some(scope) = &options.scope {
        scope.check().map_err(|error| wrong(error.to_string()))?;
    }
    Ok(options)
}

fn given_trust() -> Result<Option<Trust>, Failed> {
    let named = given_text(TRUST)?.map(|name| trust(&name)).transpose();
    named.map_err(|error| Failed::invalid(format!("{TRUST}: {error}")))
}

fn given_text(name: &str) -> Result<Option<String>, Failed> {
    let utf8 = |value: OsString| value.into_string();
    given(name).map(utf8).transpose().map_err(|_| Failed::invalid(format!("{name} is not UTF-8")))
}

fn given(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
