//! The hosts and ports of this machine that connections may reach at present: the session's, and those leased to all of its calls or to
//! the call whose programs have connected.

use crate::traffic::NO_CALL;
use broker_protocol::{CallId, Lease};
use orchestrator_reach::guard;
use orchestrator_reach::place::Place;
use policies::{WebPolicy, network};
use std::future::pending;
use tokio::sync::watch;

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
        ours(&leases, call).fold(self.policy.clone(), |policy, lease| {
            // The executor grants one host within the policy's bounds; anything else opens nothing.
            lease
                .opens
                .host()
                .and_then(|host| network::leased(policy.clone(), host).ok())
                .unwrap_or(policy)
        })
    }

    /// Whether a port of this machine is leased to programs of `call` now.
    pub(super) fn has_port(&self, port: u16, call: CallId) -> bool {
        let leases = self.leases.borrow();
        ours(&leases, call).any(|lease| lease.opens.port() == Some(port))
    }

    /// Returns when the lease of a port by which a connection of `call` is carried has ended.
    pub(super) async fn port_withdrawn(&self, port: u16, call: CallId) {
        let mut leases = self.leases.clone();
        while self.has_port(port, call) {
            if leases.changed().await.is_err() {
                return;
            }
        }
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

/// The leases that are for programs of `call`.
fn ours(leases: &[Lease], call: CallId) -> impl Iterator<Item = &Lease> {
    let is_for = move |lease: &&Lease| lease.is_for(call) && (call != NO_CALL || !lease.alone);
    leases.iter().filter(is_for)
}
