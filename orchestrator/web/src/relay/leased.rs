//! What connections may reach at the moment: the session's hosts, and those that are granted to all of its calls or to the call
//! that shows its key.

use crate::guard;
use crate::relay::place::Place;
use broker_protocol::{Lease, Nonce};
use policies::{WebPolicy, network};
use std::future::pending;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a key that is not known yet is waited for: the executor tells of it before its call begins, by another socket.
const KNOWN: Duration = Duration::from_secs(2);

/// The hosts of a session's cells.
pub struct Hosts {
    policy: WebPolicy,
    leases: watch::Receiver<Vec<Lease>>,
}

impl Hosts {
    /// What `policy` allows, and what is leased.
    pub fn new(policy: WebPolicy, leases: watch::Receiver<Vec<Lease>>) -> Self {
        Self { policy, leases }
    }

    /// What a connection that has shown `key` may reach now.
    pub async fn of(&self, key: Option<Nonce>) -> WebPolicy {
        if key.is_some() {
            let mut leases = self.leases.clone();
            // One that never comes is a stranger's, or its call is over: it opens nothing.
            let _ = timeout(KNOWN, leases.wait_for(|all| all.iter().any(|lease| lease.key == key))).await;
        }
        self.now(key)
    }

    fn now(&self, key: Option<Nonce>) -> WebPolicy {
        let leases = self.leases.borrow();
        let ours = leases.iter().filter(|lease| lease.key.is_none() || lease.key == key);
        ours.fold(self.policy.clone(), |policy, lease| {
            // What the executor has granted is one host within the policy's bounds; anything else opens nothing.
            lease.opens.host().and_then(|host| network::leased(policy.clone(), host).ok()).unwrap_or(policy)
        })
    }

    /// Returns when a connection to `place` has to end, because it was leased and is so no more.
    pub async fn withdrawn(&self, place: &Place, key: Option<Nonce>) {
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
