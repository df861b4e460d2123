//! The policy files of this machine and user, for what the orchestrator itself does: the web tools, and which
//! tools are shown. What the executor
//! does, the executor decides by its own reading of the same files.

use super::state;
use policies::{EffectivePolicy, Host, Policies, PolicyError, source};
use std::ffi::OsString;

/// The policy of a session with `profile`, without what a scope makes of it.
pub fn load(profile: &str) -> Result<EffectivePolicy, PolicyError> {
    let home = state::home();
    let sources = source::read(&home, &state::variable)?;
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let host = Host { home, variables: std::env::vars_os().filter_map(text).collect() };
    Policies::load(sources)?.resolve(profile, &host)
}
