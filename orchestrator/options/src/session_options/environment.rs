//! The options of a program without a command line of its own: from environment variables.

use super::{SessionOptions, named, text, trust};
use crate::caller::Caller;
use crate::holder;
use crate::origin::{Origins, is_any_named};
use crate::project::{Project, is_worktree_of};
use broker_protocol::{Failed, Scope, Trust};
use policies::value::AUTO;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const PROJECT: &str = "LAZARET_PROJECT";
const PROFILE: &str = "LAZARET_PROFILE";
const TRUST: &str = "LAZARET_TRUST";
/// The other options, as JSON: passed from a session to the shell that it gives to its agent.
const OPTIONS: &str = "LAZARET_OPTIONS";
/// The beginning of our words before those of a shell.
const OWN_WORD: &str = "--lazaret-";

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

/// What the environment says. From the `lazaret acp` that holds our agent it is what a person has granted. Otherwise a project may
/// have set it, and it only narrows.
struct Given {
    variables: Option<BTreeMap<OsString, OsString>>,
}

impl SessionOptions {
    /// The options of a shell, from our own words before its own, `own`, and from the environment. Commands start in `directory`,
    /// which must be in the project; if no project is named, it is that of the agent that started us.
    ///
    /// # Errors
    /// If a variable is invalid or is not believed, or the project cannot be determined.
    pub fn of_environment(own: ShellWords, directory: Option<PathBuf>) -> Result<Self, Failed> {
        let ShellWords {
            project,
            profile,
            trust,
        } = own;
        let options = Self {
            cwd: directory,
            project,
            profile,
            trust,
            ..Self::default()
        }
        .under_environment()?;
        let project = match (&options.project, &options.cwd) {
            (None, Some(here)) => {
                let theirs = Project::of_agent(&Caller::find(), None, here)?;
                Some(options.narrowed(theirs, Some(here))?.root)
            }
            (None, None) if options.narrow_project.is_some() => {
                Some(options.narrowed(Project::choose(None, None)?, None)?.root)
            }
            (Some(_), _) | (None, None) => options.project.clone(),
        };
        let options = Self { project, ..options };
        options.check_profile(options.project.as_deref())?;
        Ok(options)
    }

    /// Adds the environment's values where no option is given. So a decision on a command for the shell uses what the shell will
    /// use. What a project may have set is kept apart, for [`Self::narrowed`] and [`Self::check_profile`].
    ///
    /// # Errors
    /// If a variable is invalid, or is not believed.
    pub fn under_environment(self) -> Result<Self, Failed> {
        self.check_environment()?;
        let given = Given {
            variables: holder::variables(),
        };
        let (project, profile, trust) = (given.path(PROJECT), given.text(PROFILE)?, given.trust()?);
        if given.variables.is_none() {
            if std::env::var_os(OPTIONS).is_some() {
                return Err(Failed::invalid(format!(
                    "{OPTIONS} is believed only from the `lazaret acp` that started this agent, and none did: a project may have \
                     set it; unset it"
                )));
            }
            let narrow_profile = profile.filter(|_| self.profile.is_none());
            // A session without a trust asks for nothing, so any trust narrows.
            return Ok(Self {
                narrow_project: project,
                narrow_profile,
                trust: self.trust.or(trust),
                ..self
            });
        }
        let options = given.options()?;
        if let (None, Some(scope)) = (&self.scope, options.scope) {
            self.read_scope.get_or_init(|| scope);
        }
        let path = |own: Option<PathBuf>, given: Option<String>| own.or(given.map(PathBuf::from));
        let paths = |own: Vec<PathBuf>, given: Vec<String>| {
            own.into_iter()
                .chain(given.into_iter().map(PathBuf::from))
                .collect()
        };
        let has_endpoint = self.executor.is_some() || self.socket.is_some();
        Ok(Self {
            project: self.project.or(project),
            profile: self.profile.or(profile),
            trust: self.trust.or(trust),
            central: path(self.central, options.central),
            image: path(self.image, options.image),
            executor: path(self.executor, options.executor.filter(|_| !has_endpoint)),
            socket: path(self.socket, options.socket.filter(|_| !has_endpoint)),
            allow_host: [self.allow_host, options.allow_host].concat(),
            allow_net: [self.allow_net, options.allow_net].concat(),
            read: paths(self.read, options.read),
            write: paths(self.write, options.write),
            no_log: self.no_log || options.no_log,
            verbose: self.verbose || options.verbose,
            ..self
        })
    }

    /// Checks the variables that name programs and directories of ours, which a project may have set.
    ///
    /// # Errors
    /// If one of them names a place that a project can fill.
    pub fn check_environment(&self) -> Result<(), Failed> {
        if !is_any_named() {
            return Ok(());
        }
        let project = Project::choose(self.project.as_deref(), self.cwd.as_deref()).ok();
        let origins = Origins::of(
            project.as_ref().map(|project| project.root.as_path()),
            self.central.as_deref(),
        );
        origins
            .check_environment()
            .map_err(|error| Failed::invalid(error.to_string()))
    }

    /// The project `found`, or the part of it that the environment names.
    ///
    /// # Errors
    /// If the environment names something else, which a project may have made it do.
    pub fn narrowed(&self, found: Project, directory: Option<&Path>) -> Result<Project, Failed> {
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

    /// Checks that the profile that the environment names opens no more than that of the policy for the project at `root`.
    ///
    /// # Errors
    /// If it opens more, or does not exist.
    pub fn check_profile(&self, root: Option<&Path>) -> Result<(), Failed> {
        let Some(named) = &self.narrow_profile else {
            return Ok(());
        };
        let usual = self.files().choose("", root).profile;
        if *named == AUTO || *named == usual {
            return Ok(());
        }
        let resolve = |profile: &str| self.files().resolve(profile).map_err(Failed::from);
        if resolve(named)?.is_within(&resolve(&usual)?) {
            return Ok(());
        }
        Err(Failed::invalid(format!(
            "{PROFILE} names the profile `{named}`, which opens more than `{usual}`: a project may have set it; name it as \
             `default_profile` in your policy, or unset it"
        )))
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
            narrow_project: _,
            narrow_profile: _,
            files: _,
            read_scope: _,
        } = self;
        let absolute = |path: &Option<PathBuf>| {
            let absolute = path.as_ref().map(std::path::absolute).transpose();
            absolute
                .map_err(|error| Failed::invalid(error.to_string()))?
                .map(text)
                .transpose()
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
        let options =
            serde_json::to_string(&options).map_err(|error| Failed::internal(error.to_string()))?;
        let mut variables = vec![(PROJECT, root.into()), (OPTIONS, options.into())];
        variables.extend(profile.as_ref().map(|profile| (PROFILE, profile.into())));
        variables.extend(trust.map(|trust| (TRUST, trust.name().into())));
        Ok(variables)
    }
}

impl Given {
    fn of(&self, name: &str) -> Option<OsString> {
        let value = match &self.variables {
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
