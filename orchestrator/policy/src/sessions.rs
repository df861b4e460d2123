//! Resolves the policy of a session without opening it.

use broker_protocol::{Failed, Scope, Trust};
use orchestrator_launch::session_options::SessionOptions;
use policies::EffectivePolicy;

/// The policy of a session with these options. If no trust is requested, it is the policy of a session opened without choosing one.
pub(super) fn policy(options: &SessionOptions) -> Result<EffectivePolicy, Failed> {
    let policy = options.policy().map_err(Failed::from)?;
    narrowed(policy, options.scope()?.as_ref(), options.trust())
}

/// The policy of a session that asks for this scope and trust.
pub(super) fn narrowed(
    policy: EffectivePolicy,
    scope: Option<&Scope>,
    trust: Option<Trust>,
) -> Result<EffectivePolicy, Failed> {
    let trust = trust.unwrap_or(policy.trust);
    policy.narrow(scope, trust).map_err(Failed::from)
}
