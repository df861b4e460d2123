//! The policy files of this machine and user, for what the orchestrator itself does: the web tools, which tools are shown, and
//! the answers of `lazaret policy`. What the executor does, it decides by its own reading of the same files.

use orchestrator_records::state_directory;
use policies::choice::has_file;
use policies::resolve::DEFAULT;
use policies::value::AUTO;
use policies::{Choice, EffectivePolicy, Host, Policies, PolicyError, Source, source};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::Path;

/// What this machine is to a policy.
pub fn host() -> Host {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Host { home: state_directory::home(), variables: std::env::vars_os().filter_map(text).collect() }
}

/// The administrator's and the user's files that there are.
pub fn sources(host: &Host) -> Result<Vec<Source>, PolicyError> {
    Ok(source::read(&host.home, &state_directory::variable)?)
}

/// The policy files of this machine and user, as they are when they are first asked for.
#[derive(Debug)]
pub struct PolicyFiles {
    host: Host,
    sources: Result<Vec<Source>, PolicyError>,
    policies: OnceCell<Policies>,
    /// The first that was asked for: mostly the only one.
    resolved: OnceCell<EffectivePolicy>,
}

impl PolicyFiles {
    /// Reads them. What is wrong with them is said when something is to be decided by them.
    pub fn read() -> Self {
        let host = host();
        Self { sources: sources(&host), host, policies: OnceCell::new(), resolved: OnceCell::new() }
    }

    /// The profile of a session of the project at `root` that asks for `named`, which is empty where it asks for none. An error is
    /// the executor's to report: it chooses too where nothing was chosen.
    pub fn choose(&self, named: &str, root: Option<&Path>) -> Choice {
        let is_chosen = !named.is_empty() && named != AUTO;
        if is_chosen || (named.is_empty() && self.is_unchanged()) {
            return Choice::named(if is_chosen { named } else { DEFAULT });
        }
        let has = |name: &str| root.is_some_and(|root| has_file(root)(name));
        self.policies().map_or_else(|_| Choice::named(named), |policies| policies.choose(named, has))
    }

    /// The policy of a session with `profile`, without what a scope makes of it.
    pub fn resolve(&self, profile: &str) -> Result<EffectivePolicy, PolicyError> {
        if let Some(first) = self.resolved.get().filter(|first| first.profile == profile) {
            return Ok(first.clone());
        }
        let policy = self.policies()?.resolve(profile, &self.host)?;
        self.resolved.get_or_init(|| policy.clone());
        Ok(policy)
    }

    /// The same where it may be more than `default` as it is shipped, which allows no hosts and has no state.
    pub fn changed(&self, profile: &str) -> Option<EffectivePolicy> {
        if self.is_unchanged() && profile == DEFAULT { None } else { self.resolve(profile).ok() }
    }

    /// Whether there is no file but the shipped ones.
    pub fn is_unchanged(&self) -> bool {
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
