//! Whether files of policy can be used together.

use broker_protocol::{Failed, Request};
use orchestrator_tools::catalogue::{UNASKED, canonical, policy_name};
use policies::{Host, Policies, PolicySource, Rule};

/// Checks that every profile resolves to a policy with `sources` and the shipped files.
pub(crate) fn check_sources(
    sources: Vec<PolicySource>,
    host: &Host,
) -> Result<Vec<String>, Failed> {
    let policies = Policies::load(sources).map_err(Failed::from)?;
    let mut notes = Vec::new();
    for profile in policies.profiles() {
        let policy = policies.resolve(profile, host).map_err(Failed::from)?;
        notes = policy.rules.iter().filter_map(note).collect();
    }
    Ok(notes)
}

/// Notes a rule without effect: for a tool that does not exist, or for one that never needs approval.
fn note(rule: &Rule) -> Option<String> {
    if rule.tool == "*" || Request::TOOLS.contains(&rule.tool.as_str()) {
        return None;
    }
    let Some(name) = canonical(&rule.tool).map(policy_name) else {
        return Some(format!("{}: there is no tool `{}`", rule.origin, rule.tool));
    };
    if UNASKED.contains(&name) {
        let note = "nobody is asked about it, so no rule decides; a scope does";
        return Some(format!("{}: `{name}`: {note}", rule.origin));
    }
    (name != rule.tool).then(|| {
        format!(
            "{}: `{}` is another name of `{name}`, which rules must use",
            rule.origin, rule.tool
        )
    })
}
