//! The policy of a session that does not open.

use broker_protocol::Failed;
use orchestrator_options::session_options::SessionOptions;
use policies::EffectivePolicy;

/// The policy of a session with these options. Where no trust is asked for, that of a session for which none was chosen.
pub fn policy(options: &SessionOptions) -> Result<EffectivePolicy, Failed> {
    let policy = options.policy().map_err(Failed::from)?;
    let trust = options.trust().unwrap_or(policy.trust);
    policy.narrow(options.scope()?.as_ref(), trust).map_err(Failed::from)
}
