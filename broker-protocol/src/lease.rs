//! Leases: what a call requests beyond what its session has, and what was granted of it for a time.
//!
//! Requested leases are part of the question: the digest of the call covers them. A lease ends by itself, with the call, after
//! some minutes or with the session, and can be revoked earlier by its number ([`ToBroker::Revoke`](crate::ToBroker::Revoke)).

use crate::limit::{self, TooLarge, at_most};
use crate::request::CallId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The hosts and paths that a call requests beyond what its session has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// Hosts to reach, each as `NAME:PORT`: at most [`limit::WANTS`], each of at most [`limit::HOST`] bytes.
    pub hosts: Vec<String>,
    /// Files and directories of the machine to read, with everything below them. With `write` at most
    /// [`limit::WANTED_PATHS`] absolute paths without links, each of at most [`limit::WANTED_PATH`] bytes.
    pub read: Vec<String>,
    /// Directories of the machine to write in.
    pub write: Vec<String>,
}

impl Wants {
    /// Whether it wants nothing.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty() && !self.has_paths()
    }

    /// Whether it requests any paths.
    pub fn has_paths(&self) -> bool {
        !self.read.is_empty() || !self.write.is_empty()
    }

    /// Everything that is requested, in the order of its numbers.
    pub fn each(&self) -> impl Iterator<Item = Leased> {
        let hosts = self.hosts.iter().cloned().map(Leased::Host);
        let read = self.read.iter().cloned().map(Leased::Read);
        hosts
            .chain(read)
            .chain(self.write.iter().cloned().map(Leased::Write))
    }

    /// Adds one more requested lease.
    pub fn push(&mut self, leased: Leased) {
        match leased {
            Leased::Host(host) => self.hosts.push(host),
            Leased::Read(path) => self.read.push(path),
            Leased::Write(path) => self.write.push(path),
        }
    }

    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The call requests too much at once.
    pub fn check(&self) -> Result<(), TooLarge> {
        at_most("wants.hosts", self.hosts.len(), limit::WANTS, "hosts")?;
        self.hosts
            .iter()
            .try_for_each(|host| at_most("wants.hosts", host.len(), limit::HOST, "bytes"))?;
        check_paths(&self.read, &self.write)
    }
}

/// Checks how many paths are requested at once, and how long they are.
pub(crate) fn check_paths(read: &[String], write: &[String]) -> Result<(), TooLarge> {
    at_most(
        "read and write",
        read.len() + write.len(),
        limit::WANTED_PATHS,
        "paths",
    )?;
    let mut each = [("read", read), ("write", write)].into_iter();
    each.try_for_each(|(field, paths)| {
        paths
            .iter()
            .try_for_each(|path| at_most(field, path.len(), limit::WANTED_PATH, "bytes"))
    })
}

/// One thing that a lease grants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Leased {
    /// A host to reach, as `NAME:PORT`.
    Host(String),
    /// A path to read, with everything below it.
    Read(String),
    /// A directory to write in.
    Write(String),
}

impl Leased {
    /// The name of its kind, and the host or path.
    pub fn parts(&self) -> (&'static str, &str) {
        match self {
            Leased::Host(host) => ("host", host),
            Leased::Read(path) => ("read", path),
            Leased::Write(path) => ("write", path),
        }
    }

    /// The host, where it is one.
    pub fn host(&self) -> Option<&str> {
        match self {
            Leased::Host(host) => Some(host),
            Leased::Read(_) | Leased::Write(_) => None,
        }
    }
}

impl fmt::Display for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leased::Host(host) => f.write_str(host),
            Leased::Read(path) => write!(f, "read {path}"),
            Leased::Write(path) => write!(f, "write {path}"),
        }
    }
}

/// A host or path granted beyond those of the session. The gateway carries out a host's lease, the broker a path's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its number, with which it is revoked. Grants for the session share the numbering.
    pub lease: u64,
    /// The host or path, as it was requested.
    pub opens: Leased,
    /// The call with which it was granted; 0 if that was the opening of the session.
    pub call: CallId,
    /// Only that call may use it; otherwise every call may.
    pub alone: bool,
}

impl Lease {
    /// Whether it holds for `call`.
    pub fn is_for(&self, call: CallId) -> bool {
        !self.alone || self.call == call
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_of_a_call_are_limited() {
        for (count, bytes, want) in [
            (limit::WANTS, limit::HOST, true),
            (limit::WANTS + 1, 1, false),
            (1, limit::HOST + 1, false),
        ] {
            let hosts = vec!["x".repeat(bytes); count];
            assert_eq!(
                Wants {
                    hosts,
                    ..Wants::default()
                }
                .check()
                .is_ok(),
                want
            );
        }
        let paths = |read: usize, write: usize, bytes| Wants {
            read: vec!["/".repeat(bytes); read],
            write: vec!["/".repeat(bytes); write],
            ..Wants::default()
        };
        let (count, bytes) = (limit::WANTED_PATHS, limit::WANTED_PATH);
        assert!(paths(count - 1, 1, bytes).check().is_ok());
        for over in [
            paths(count, 1, 1),
            paths(count + 1, 0, 1),
            paths(0, 1, bytes + 1),
            paths(1, 0, bytes + 1),
        ] {
            assert!(over.check().is_err());
        }
    }

    #[test]
    fn lease_for_a_call_alone_covers_no_other() {
        let opens = Leased::Host("a.example:443".into());
        let lease = Lease {
            lease: 1,
            opens,
            call: 7,
            alone: true,
        };
        assert!(lease.is_for(7) && !lease.is_for(8));
        assert!(
            Lease {
                alone: false,
                ..lease
            }
            .is_for(8)
        );
    }
}
