//! The policy files of this machine and user, for the orchestrator's own decisions: the web tools, which tools to list, and the
//! answers of `lazaret policy`. The executor reads the same files itself and decides by its own reading.

use crate::state_directory;
use broker_protocol::Failed;
use orchestrator_confine::Files;
use policies::choice::has_file;
use policies::directories::VariableLookup;
use policies::resolve::DEFAULT;
use policies::value::AUTO;
use policies::web::WebTable;
use policies::{
    Choice, EffectivePolicy, Host, Policies, PolicyError, PolicySource, SourceKind, directories,
    source,
};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The facts about this machine that a policy uses.
pub fn host() -> Host {
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    Host {
        home: state_directory::home(),
        variables: std::env::vars_os().filter_map(text).collect(),
    }
}

/// The existing files of the administrator and the user.
pub fn sources(_: &Files, host: &Host) -> Result<Vec<PolicySource>, PolicyError> {
    Ok(source::read(&host.home, &state_directory::variable)?)
}

/// The administrator's policy, which may be read from elsewhere than its usual place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SystemPolicy {
    Read,
    NotRead,
}

/// Notes on the places where policy files are looked for: that none is there, and that one elsewhere is not read.
///
/// A policy that is not read looks as if it were: everything it does not narrow works.
fn notes(
    home: &Path,
    variable: VariableLookup,
    system: SystemPolicy,
    exists: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let places = source::paths(home, variable).map(|(path, _)| path);
    let [of_system, user] = places.each_ref().map(|path| path.display());
    let none = system == SystemPolicy::NotRead && !places.iter().any(|path| exists(path));
    let none =
        none.then(|| format!("there is no policy file: neither {of_system} nor {user} exists"));
    let elsewhere = |home: &PathBuf| home.join(".config/lazaret/policy.toml");
    let others = directories::homes(home, variable)
        .iter()
        .map(elsewhere)
        .collect::<Vec<_>>();
    let unread = others.iter().skip(1).filter(|path| !places.contains(path) && exists(path)).map(|path| {
        format!(
            "{} is not read: the account's home counts, {}, not HOME; move the file to {user}, or set XDG_CONFIG_HOME",
            path.display(),
            home.display()
        )
    });
    none.into_iter().chain(unread).collect()
}

/// The policy files of this machine and user, parsed at the first use.
#[derive(Debug)]
pub struct PolicyFiles {
    host: Host,
    sources: Result<Vec<PolicySource>, PolicyError>,
    policies: OnceCell<Policies>,
    /// The first policy that was resolved: usually the only one.
    resolved: OnceCell<EffectivePolicy>,
}

impl PolicyFiles {
    /// Reads the files. Errors in them are reported when a policy is resolved.
    pub fn read(files: &Files) -> Self {
        let host = host();
        Self {
            sources: sources(files, &host),
            host,
            policies: OnceCell::new(),
            resolved: OnceCell::new(),
        }
    }

    /// The profile of a session in the project at `root` that requests `named`, or none if that is empty. The executor reports any
    /// error: it also makes the choice if none was made here.
    pub fn choose(&self, named: &str, root: Option<&Path>) -> Choice {
        let is_chosen = !named.is_empty() && named != AUTO;
        if is_chosen || (named.is_empty() && self.is_unchanged()) {
            return Choice::named(if is_chosen { named } else { DEFAULT });
        }
        let has = |name: &str| root.is_some_and(|root| has_file(root)(name));
        self.policies().map_or_else(
            |_| Choice::named(named),
            |policies| policies.choose(named, has),
        )
    }

    /// The policy of a session with `profile`, before a scope narrows it.
    pub fn resolve(&self, profile: &str) -> Result<EffectivePolicy, PolicyError> {
        if let Some(first) = self.resolved.get().filter(|first| first.profile == profile) {
            return Ok(first.clone());
        }
        let policy = self.policies()?.resolve(profile, &self.host)?;
        self.resolved.get_or_init(|| policy.clone());
        Ok(policy)
    }

    /// The `web` tables of all profiles, each once.
    pub(crate) fn webs(&self) -> Vec<WebTable> {
        let Ok(policies) = self.policies() else {
            return Vec::new();
        };
        let mut webs = Vec::new();
        for profile in policies.profiles() {
            if let Ok(policy) = self.resolve(profile)
                && !webs.contains(&policy.web.own)
            {
                webs.push(policy.web.own);
            }
        }
        webs
    }

    /// Whether a file says by which way connections leave this machine, or what else certificates are believed by.
    ///
    /// # Errors
    /// The files cannot be used.
    pub(crate) fn has_company(&self) -> Result<bool, PolicyError> {
        if self.is_unchanged() {
            return Ok(false);
        }
        Ok(self.policies()?.gateway(&self.host)?.has_company())
    }

    /// The profile, or `None` if it must be `default` as shipped, which allows no hosts and keeps no state.
    pub fn changed(&self, profile: &str) -> Option<EffectivePolicy> {
        if self.is_unchanged() && profile == DEFAULT {
            None
        } else {
            self.resolve(profile).ok()
        }
    }

    /// The directory in which each project has its central root, if a file names one. The executor reports other errors in the files.
    ///
    /// # Errors
    /// It cannot be used on this machine.
    pub(crate) fn central_root(&self) -> Result<Option<PathBuf>, Failed> {
        let policies = (!self.is_unchanged())
            .then(|| self.policies().ok())
            .flatten();
        let named = policies.map(|policies| policies.central_root(&self.host));
        named
            .transpose()
            .map(Option::flatten)
            .map_err(|error| Failed::invalid(format!("`central_root` of the policy: {error}")))
    }

    /// Notes on the places where policy files are looked for.
    pub fn notes(&self) -> Vec<String> {
        let is_system = |source: &PolicySource| source.kind == SourceKind::System;
        let system = if self.sources.iter().flatten().any(is_system) {
            SystemPolicy::Read
        } else {
            SystemPolicy::NotRead
        };
        notes(
            &self.host.home,
            &state_directory::variable,
            system,
            |path| path.exists(),
        )
    }

    /// Whether only the shipped files exist.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.sources.as_ref().is_ok_and(Vec::is_empty)
    }

    fn policies(&self) -> Result<&Policies, PolicyError> {
        if let Some(policies) = self.policies.get() {
            return Ok(policies);
        }
        let policies = Policies::load(self.sources.clone()?)?;
        Ok(self.policies.get_or_init(|| policies))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The notes where these files exist and `HOME` is `/other`.
    fn notes_with(files: &[&str], config: Option<&str>) -> Vec<String> {
        let variable = |name: &str| match name {
            "HOME" => Some(OsString::from("/other")),
            "XDG_CONFIG_HOME" => config.map(OsString::from),
            _ => None,
        };
        notes(
            Path::new("/home/u"),
            &variable,
            SystemPolicy::NotRead,
            |path| files.iter().any(|file| path == Path::new(file)),
        )
    }

    #[test]
    fn a_policy_that_is_missing_or_not_read_is_reported() {
        let (own, other) = (
            "/home/u/.config/lazaret/policy.toml",
            "/other/.config/lazaret/policy.toml",
        );
        assert_eq!(notes_with(&[own], None), [""; 0]);
        let none =
            format!("there is no policy file: neither /etc/lazaret/policy.toml nor {own} exists");
        assert_eq!(notes_with(&[], None), [none.as_str()]);
        let notes = notes_with(&[other], None);
        assert_eq!(notes[0], none);
        assert!(
            notes[1].starts_with(&format!("{other} is not read: ")) && notes[1].contains(own),
            "{notes:?}"
        );
        assert_eq!(notes_with(&[own, other], None).len(), 1);
        assert_eq!(
            notes_with(&[other], Some("/other/.config")),
            [""; 0],
            "a variable names it"
        );
    }
}
