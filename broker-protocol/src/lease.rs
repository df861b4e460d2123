//! Leases: what a call wants beyond what its session has, and what was granted of it for a while.
//!
//! A want is part of what is asked about: it is in the digest of its call. What is granted ends by itself, with the call, after
//! some minutes or with the session, and can be taken back before, by its number ([`ToBroker::Revoke`](crate::ToBroker::Revoke)).

use crate::digest::Nonce;
use crate::limit::{self, TooLarge, at_most};
use crate::request::CallId;
use serde::{Deserialize, Serialize};

/// What a call wants beyond what its session has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// Hosts to reach, each as `NAME:PORT`: at most [`limit::WANTS`], each of at most [`limit::HOST`] bytes.
    pub hosts: Vec<String>,
}

impl Wants {
    /// Whether it wants nothing.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Checks every limit that the type does not hold by itself.
    ///
    /// # Errors
    /// It wants too much at once.
    pub fn check(&self) -> Result<(), TooLarge> {
        at_most("wants.hosts", self.hosts.len(), limit::WANTS, "hosts")?;
        self.hosts.iter().try_for_each(|host| at_most("wants.hosts", host.len(), limit::HOST, "bytes"))
    }
}

/// A host that was granted beyond what the session has, as the client that carries the connections is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its number, by which it is taken back. Grants for the session are counted with it.
    pub lease: u64,
    /// `NAME:PORT`, as it was wanted.
    pub host: String,
    /// The call it was granted with.
    pub call: CallId,
    /// Where it is for that call alone: what its programs show the relay, and no other call's can. Absent, it is for every call.
    pub key: Option<Nonce>,
}

impl Lease {
    /// Whether it holds for `call`.
    pub fn is_for(&self, call: CallId) -> bool {
        self.key.is_none() || self.call == call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_at_once_is_bounded() {
        for (count, bytes, want) in
            [(limit::WANTS, limit::HOST, true), (limit::WANTS + 1, 1, false), (1, limit::HOST + 1, false)]
        {
            assert_eq!(Wants { hosts: vec!["x".repeat(bytes); count] }.check().is_ok(), want);
        }
    }

    #[test]
    fn a_lease_with_a_key_is_for_its_call_alone() {
        let lease = Lease { lease: 1, host: "a.example:443".into(), call: 7, key: Some(Nonce([1; 16])) };
        assert!(lease.is_for(7) && !lease.is_for(8));
        assert!(Lease { key: None, ..lease }.is_for(8));
    }
}
