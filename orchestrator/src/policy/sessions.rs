//! Resolves the policy of a session without opening it.

use broker_protocol::Failed;
use orchestrator_launch::session_options::SessionOptions;
use policies::EffectivePolicy;

/// The policy of a session with these options. If no trust is requested, it is the policy of a session opened without choosing one.
pub fn policy(options: &SessionOptions) -> Result<EffectivePolicy, Failed> {
    let policy = options.policy().map_err(Failed::from)?;
    let trust = options.trust().unwrap_or(policy.trust);
    policy
        .narrow(options.scope()?.as_ref(), trust)
        .map_err(Failed::from)
}
