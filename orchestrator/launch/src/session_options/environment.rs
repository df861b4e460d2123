//! The options of a program without a command line of its own: from environment variables.

use crate::caller::CallerDirectory;
use crate::groups::{GatewaySide, Options, trust};
use crate::holder;
use crate::origin::{Origins, is_any_named};
use crate::project::{Project, is_worktree_of};
use broker_protocol::{Failed, Scope, Trust};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) const PROJECT: &str = "LAZARET_PROJECT";
pub(super) const PROFILE: &str = "LAZARET_PROFILE";
pub(super) const TRUST: &str = "LAZARET_TRUST";
/// The other options, as JSON: passed from a session to the shell that it gives to its agent.
pub(super) const OPTIONS: &str = "LAZARET_OPTIONS";
/// The beginning of our words before those of a shell.
const OWN_WORD: &str = "--lazaret-";

/// Narrowings of a session and grants to it, besides the variables that people set. It holds the scope itself, since the
/// scope's file may lie in the project.
#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShellOptions {
    pub(super) central: Option<String>,
    pub(super) image: Option<String>,
    pub(super) executor: Option<String>,
    pub(super) socket: Option<String>,
    pub(super) scope: Option<Scope>,
    pub(super) allow_host: Vec<String>,
    pub(super) allow_net: Vec<String>,
    pub(super) connect: Vec<u16>,
    pub(super) gateway: Option<GatewaySide>,
    pub(super) read: Vec<String>,
    pub(super) write: Vec<String>,
    pub(super) no_log: bool,
    pub(super) verbose: bool,
}

/// Values of the environment besides options. A project may have set it, so it only narrows.
#[derive(Clone, Debug, Default)]
pub struct EnvironmentOptions {
    /// The project and the profile that variables name.
    pub(super) narrow_project: Option<PathBuf>,
    pub(super) profile: Option<String>,
    /// The scope of the session that holds our agent.
    pub(super) scope: Option<Scope>,
    /// The project, where it had to be chosen already.
    pub(super) project: Option<Project>,
}

/// The variables. From the `lazaret acp` that holds our agent they say what a person has granted.
struct EnvironmentVariables {
    of_holder: Option<BTreeMap<OsString, OsString>>,
}

impl Options {
    /// The options of a shell, from our own words before its own, `own`, and from the environment. Commands start in `directory`,
    /// which must be in the project; if no project is named, it is that of the agent that started us.
    ///
    /// # Errors
    /// If a variable is invalid or is not believed, or the project cannot be determined.
    pub fn of_shell(
        own: ShellWords,
        directory: Option<PathBuf>,
    ) -> Result<(Self, EnvironmentOptions), Failed> {
        let ShellWords {
            project,
            profile,
            trust,
        } = own;
        let given = Self {
            cwd: directory,
            project,
            profile,
            trust,
            ..Self::default()
        };
        let (options, environment) = given.under_environment()?;
        let found = match (&options.project, &options.cwd) {
            (None, Some(here)) => {
                let theirs = Project::of_agent(&CallerDirectory::find(), None, here)?;
                Some(environment.narrowed(theirs, Some(here))?)
            }
            (None, None) if environment.narrow_project.is_some() => {
                Some(environment.narrowed(Project::choose(None, None)?, None)?)
            }
            (Some(_), _) | (None, None) => return Ok((options, environment)),
        };
        // From now on it is as if it had been named: the directory of commands cannot make it another.
        let project = found.map(Project::into_named);
        let options = Self {
            project: project.as_ref().map(|project| project.root.clone()),
            ..options
        };
        Ok((
            options,
            EnvironmentOptions {
                project,
                ..environment
            },
        ))
    }

    /// Adds the environment's values where no option is given. So a decision on a command for the shell uses what the shell will
    /// use. What a project may have set is kept apart, for `EnvironmentOptions::narrowed` and `SessionOptions::check_profile`.
    ///
    /// # Errors
    /// If a variable is invalid, or is not believed.
    pub fn under_environment(self) -> Result<(Self, EnvironmentOptions), Failed> {
        let chosen = check_variables(self.central.as_deref(), || {
            Project::choose(self.project.as_deref(), self.cwd.as_deref()).ok()
        })?;
        let variables = EnvironmentVariables {
            of_holder: holder::variables(),
        };
        let (project, profile) = (variables.path(PROJECT), variables.text(PROFILE)?);
        let trust = variables.trust()?;
        if variables.of_holder.is_none() {
            check_no_options()?;
            let environment = EnvironmentOptions {
                narrow_project: project,
                profile: profile.filter(|_| self.profile.is_none()),
                project: chosen,
                ..EnvironmentOptions::default()
            };
            // A session without a trust asks for nothing, so any trust narrows.
            let trust = self.trust.or(trust);
            return Ok((Self { trust, ..self }, environment));
        }
        let given = Self {
            project: self.project.or(project),
            profile: self.profile.or(profile),
            trust: self.trust.or(trust),
            ..self
        };
        Ok(given.with_options(variables.options()?))
    }

    /// Adds what a person has granted to the holder of our agent.
    fn with_options(self, given: ShellOptions) -> (Self, EnvironmentOptions) {
        let ShellOptions {
            central,
            image,
            executor,
            socket,
            scope,
            allow_host,
            allow_net,
            connect,
            gateway,
            read,
            write,
            no_log,
            verbose,
        } = given;
        let path = |own: Option<PathBuf>, given: Option<String>| own.or(given.map(PathBuf::from));
        let paths = |mut own: Vec<PathBuf>, given: Vec<String>| {
            own.extend(given.into_iter().map(PathBuf::from));
            own
        };
        let has_endpoint = self.executor.is_some() || self.socket.is_some();
        let environment = EnvironmentOptions {
            scope,
            ..EnvironmentOptions::default()
        };
        let options = Self {
            central: path(self.central, central),
            image: path(self.image, image),
            executor: path(self.executor, executor.filter(|_| !has_endpoint)),
            socket: path(self.socket, socket.filter(|_| !has_endpoint)),
            allow_host: [self.allow_host, allow_host].concat(),
            allow_net: [self.allow_net, allow_net].concat(),
            connect: [self.connect, connect].concat(),
            gateway: self.gateway.or(gateway.filter(|_| !has_endpoint)),
            read: paths(self.read, read),
            write: paths(self.write, write),
            no_log: self.no_log || no_log,
            verbose: self.verbose || verbose,
            ..self
        };
        (options, environment)
    }
}

/// Refuses the options of a holder where none holds us.
fn check_no_options() -> Result<(), Failed> {
    match std::env::var_os(OPTIONS) {
        None => Ok(()),
        Some(_) => Err(Failed::invalid(format!(
            "{OPTIONS} is believed only from the `lazaret acp` that started this agent, and none did: a project may have \
             set it; unset it"
        ))),
    }
}

/// Checks the variables that name programs and directories of ours, which `project` may have set. Returns the project, if it had to
/// be chosen for that.
pub(super) fn check_variables(
    central: Option<&Path>,
    project: impl FnOnce() -> Option<Project>,
) -> Result<Option<Project>, Failed> {
    if !is_any_named() {
        return Ok(None);
    }
    let project = project();
    let root = project.as_ref().map(|project| project.root.as_path());
    Origins::of(root, central)
        .check_environment()
        .map_err(|error| Failed::invalid(error.to_string()))?;
    Ok(project)
}

impl EnvironmentOptions {
    /// The project `found`, or the part of it that the environment names.
    ///
    /// # Errors
    /// If the environment names something else, which a project may have made it do.
    pub(super) fn narrowed(
        &self,
        found: Project,
        directory: Option<&Path>,
    ) -> Result<Project, Failed> {
        let Some(named) = &self.narrow_project else {
            return Ok(found);
        };
        let narrow = Project::choose(Some(named), directory)?;
        if narrow.root.starts_with(&found.root) || is_worktree_of(&narrow.root, &found.root) {
            return Ok(narrow);
        }
        let (named, found) = (named.display(), found.root.display());
        Err(Failed::invalid(format!(
            "{PROJECT} names {named}, which is not in {found}, the project of the calling program: a project may have set it; unset \
             it, or start the program there"
        )))
    }
}

impl EnvironmentVariables {
    fn of(&self, name: &str) -> Option<OsString> {
        let value = match &self.of_holder {
            Some(variables) => variables.get(OsStr::new(name)).cloned(),
            None => std::env::var_os(name),
        };
        value.filter(|value| !value.is_empty())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.of(name).map(PathBuf::from)
    }

    fn text(&self, name: &str) -> Result<Option<String>, Failed> {
        let utf8 = |value: OsString| value.into_string();
        self.of(name)
            .map(utf8)
            .transpose()
            .map_err(|_| Failed::invalid(format!("{name} is not UTF-8")))
    }

    fn trust(&self) -> Result<Option<Trust>, Failed> {
        let named = self.text(TRUST)?.map(|name| trust(&name)).transpose();
        named.map_err(|error| Failed::invalid(format!("{TRUST}: {error}")))
    }

    fn options(&self) -> Result<ShellOptions, Failed> {
        let Some(text) = self.text(OPTIONS)? else {
            return Ok(ShellOptions::default());
        };
        let wrong = |why: String| Failed::invalid(format!("{OPTIONS}: {why}"));
        let options: ShellOptions =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if let Some(scope) = &options.scope {
            scope.check().map_err(|error| wrong(error.to_string()))?;
        }
        Ok(options)
    }
}

/// Words of ours before those of a shell. Only who writes the command line that starts it can give them: `lazaret hook`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShellWords {
    project: Option<PathBuf>,
    profile: Option<String>,
    trust: Option<Trust>,
}

impl ShellWords {
    /// Takes them off the beginning of `words`.
    ///
    /// # Errors
    /// If one of them is unknown, or has a wrong value.
    pub fn take(words: &mut Vec<OsString>) -> Result<Self, Failed> {
        let mut own = Self::default();
        let is_ours = |word: &OsString| word.as_bytes().starts_with(OWN_WORD.as_bytes());
        while words.first().is_some_and(is_ours) {
            let word = words.remove(0);
            let unknown = || Failed::invalid(format!("{word:?} is no option of lazaret-bash"));
            let at = word
                .as_bytes()
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or_else(unknown)?;
            let (name, value) = (
                &word.as_bytes()[..at],
                OsStr::from_bytes(&word.as_bytes()[at + 1..]),
            );
            let text = || value.to_str().map(str::to_owned).ok_or_else(unknown);
            match name {
                b"--lazaret-project" => own.project = Some(value.into()),
                b"--lazaret-profile" => own.profile = Some(text()?),
                b"--lazaret-trust" => {
                    own.trust =
                        Some(trust(&text()?).map_err(|error| Failed::invalid(error.to_string()))?);
                }
                _ => return Err(unknown()),
            }
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_words_stand_only_before_those_of_the_shell() {
        let take = |words: &[&str]| {
            let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let own = ShellWords::take(&mut words);
            (
                own,
                words
                    .into_iter()
                    .map(|word| word.into_string().unwrap_or_default())
                    .collect::<Vec<_>>(),
            )
        };
        let (own, rest) = take(&[
            "--lazaret-project=/p=q",
            "--lazaret-profile=read-only",
            "-c",
            "--lazaret-trust=x",
        ]);
        let own = own.expect("both are known");
        assert_eq!(
            (own.project, own.profile.as_deref()),
            (Some("/p=q".into()), Some("read-only"))
        );
        assert_eq!(rest, ["-c", "--lazaret-trust=x"]);
        for wrong in [
            "--lazaret-project",
            "--lazaret-executor=/x",
            "--lazaret-trust=blind",
        ] {
            assert!(take(&[wrong]).0.is_err(), "{wrong}");
        }
    }
}
