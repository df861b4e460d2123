//! The network that a session's programs have: by it, variables and caches are chosen.

use policies::{EffectivePolicy, network};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkReach {
    Offline,
    /// A relay without a host so far: programs stay offline until one is granted.
    Waiting,
    /// A relay with hosts.
    Online,
}

impl NetworkReach {
    /// The network that a policy gives.
    pub fn of(policy: &EffectivePolicy) -> Self {
        match (network::is_open(&policy.network), policy.has_network()) {
            (true, _) => Self::Online,
            (false, true) => Self::Waiting,
            (false, false) => Self::Offline,
        }
    }
}
