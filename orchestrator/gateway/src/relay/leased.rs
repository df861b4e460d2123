//! The hosts that connections may reach at present: the session's hosts, and those leased to all of its calls or to the call whose
//! key the connection carries.

use crate::relay::place::Place;
use broker_protocol::{Lease, Nonce};
use orchestrator_reach::guard;
use policies::{WebPolicy, network};
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long to wait for an unknown key: the executor sends it before the call begins, but over another socket.
const KNOWN: Duration = Duration::from_secs(2);

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

    /// The hosts that a connection with `key` may reach now.
    pub(crate) async fn of(&self, key: Option<Nonce>) -> WebPolicy {
        if key.is_some() {
            let mut leases = self.leases.clone();
            // A key that never arrives is invalid, or its call has ended: it opens nothing.
            let _ = timeout(
                KNOWN,
                leases.wait_for(|all| all.iter().any(|lease| lease.key == key)),
            )
            .await;
        }
        self.now(key)
    }

    fn now(&self, key: Option<Nonce>) -> WebPolicy {
        let leases = self.leases.borrow();
        let ours = leases
            .iter()
            .filter(|lease| lease.key.is_none() || lease.key == key);
        ours.fold(self.policy.clone(), |policy, lease| {
            // The executor grants one host within the policy's bounds; anything else opens nothing.
            lease
                .opens
                .host()
                .and_then(|host| network::leased(policy.clone(), host).ok())
                .unwrap_or(policy)
        })
    }

    /// Returns when a connection to `place` has to end because its lease has ended.
    pub(crate) async fn withdrawn(&self, place: &Place, key: Option<Nonce>) {
        if guard::foresee(&self.policy, place.target()).is_ok() {
            return pending().await;
        }
        let mut leases = self.leases.clone();
        while guard::foresee(&self.now(key), place.target()).is_ok() {
            if leases.changed().await.is_err() {
                return;
            }
        }
    }
}
