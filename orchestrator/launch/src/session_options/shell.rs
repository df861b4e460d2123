//! Session options from the environment, and the variables that give them to a shell.

use super::environment::{OPTIONS, PROFILE, PROJECT, ShellOptions, TRUST, check_variables};
use super::{SessionOptions, named, text};
use crate::groups::Options;
use crate::project::Project;
use broker_protocol::Failed;
use policies::value::AUTO;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

impl SessionOptions {
    /// Checks the variables that name programs and directories of ours, which a project may have set.
    ///
    /// # Errors
    /// If one of them names a place that a project can fill.
    pub(crate) fn check_environment(&self) -> Result<(), Failed> {
        check_variables(self.given.central.as_deref(), || {
            self.project().ok().cloned()
        })
        .map(drop)
    }

    /// The project `found`, or the part of it that the environment names.
    ///
    /// # Errors
    /// If the environment names something else, which a project may have made it do.
    pub fn narrowed(&self, found: Project, directory: Option<&Path>) -> Result<Project, Failed> {
        self.environment.narrowed(found, directory)
    }

    /// Checks that the profile that the environment names opens no more than that of the policy for the project at `root`.
    ///
    /// # Errors
    /// If it opens more, or does not exist.
    pub fn check_profile(&self, root: Option<&Path>) -> Result<(), Failed> {
        let Some(named) = &self.environment.profile else {
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
        let Options {
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
            connect,
            // One session has the port.
            publish: _,
            gateway,
            read,
            write,
            // Variables may come from a project's settings for an agent, and must not show its secrets.
            reveal: _,
            no_log,
            verbose,
        } = &self.given;
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
            connect: connect.clone(),
            gateway: *gateway,
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
