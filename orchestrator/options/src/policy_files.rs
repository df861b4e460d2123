//! The policy files of this machine and user, for the orchestrator's own decisions: the web tools, which tools to list, and the
//! answers of `lazaret policy`. The executor reads the same files itself and decides by its own reading.

use orchestrator_records::state_directory;
use policies::choice::has_file;
use policies::resolve::DEFAULT;
use policies::value::AUTO;
use policies::{Choice, EffectivePolicy, Host, Policies, PolicyError, Source, source};
use std::cell::OnceCell;
use std::ffi::OsString;
use std::path::Path;

/// The facts about this machine that a policy uses.
pub fn host() -> Host {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Host { home: state_directory::home(), variables: std::env::vars_os().filter_map(text).collect() }
}

/// The existing files of the administrator and the user.
pub fn sources(host: &Host) -> Result<Vec<Source>, PolicyError> {
    Ok(source::read(&host.home, &state_directory::variable)?)
}

/// The policy files of this machine and user, parsed at the first use.
#[derive(Debug)]
pub struct PolicyFiles {
    host: Host,
    sources: Result<Vec<Source>, PolicyError>,
    policies: OnceCell<Policies>,
    /// The first policy that was resolved: usually the only one.
    resolved: OnceCell<EffectivePolicy>,
}

impl PolicyFiles {
    /// Reads the files. Errors in them are reported when a policy is resolved.
    pub fn read() -> Self {
        let host = host();
        Self { sources: sources(&host), host, policies: OnceCell::new(), resolved: OnceCell::new() }
    }

    /// The profile of a session in the project at `root` that requests `named`, or none if that is empty. The executor reports any
    /// error: it also makes the choice if none was made here.
    pub fn choose(&self, named: &str, root: Option<&Path>) -> Choice {
        let is_chosen = !named.is_empty() && named != AUTO;
        if is_chosen || (named.is_empty() && self.is_unchanged()) {
            return Choice::named(if is_chosen { named } else { DEFAULT });
        }
        let has = |name: &str| root.is_some_and(|root| has_file(root)(name));
        self.policies().map_or_else(|_| Choice::named(named), |policies| policies.choose(named, has))
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

    /// The same, or `None` if it must be `default` as shipped, which allows no hosts and keeps no state.
    pub fn changed(&self, profile: &str) -> Option<EffectivePolicy> {
        if self.is_unchanged() && profile == DEFAULT { None } else { self.resolve(profile).ok() }
    }

    /// Whether only the shipped files exist.
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
