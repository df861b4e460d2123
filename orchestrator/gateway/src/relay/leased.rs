//! The hosts that connections may reach at present: the session's hosts, and those leased to all of its calls or to the call whose
//! programs have connected.

use crate::relay::place::Place;
use broker_protocol::{CallId, Lease};
use orchestrator_reach::guard;
use policies::{WebPolicy, network};
use std::future::pending;
use tokio::sync::watch;

/// The call of connections that belong to none.
pub(super) const NO_CALL: CallId = 0;

/// The hosts of a session's cells.
pub(crate) struct CellHosts {
    policy: WebPolicy,
    leases: watch::Receiver<Vec<Lease>>,
}

impl CellHosts {
    /// The hosts that `policy` allows, and those that are leased.
    pub(crate) fn new(policy: WebPolicy, leases: watch::Receiver<Vec<Lease>>) -> Self {
        Self { policy, leases }
    }

    /// The hosts that programs of `call` may reach now.
    pub(crate) fn now(&self, call: CallId) -> WebPolicy {
        let leases = self.leases.borrow();
        let is_for = |lease: &&Lease| lease.is_for(call) && (call != NO_CALL || !lease.alone);
        let ours = leases.iter().filter(is_for);
        ours.fold(self.policy.clone(), |policy, lease| {
            // The executor grants one host within the policy's bounds; anything else opens nothing.
            lease
                .opens
                .host()
                .and_then(|host| network::leased(policy.clone(), host).ok())
                .unwrap_or(policy)
        })
    }

    /// Returns when a connection of `call` to `place` has to end because its lease has ended.
    pub(crate) async fn withdrawn(&self, place: &Place, call: CallId) {
        if guard::foresee(&self.policy, place.target()).is_ok() {
            return pending().await;
        }
        let mut leases = self.leases.clone();
        while guard::foresee(&self.now(call), place.target()).is_ok() {
            if leases.changed().await.is_err() {
                return;
            }
        }
    }
}
