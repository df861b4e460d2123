//! Leases: what a call requests beyond what its session has, and what was granted of it for a time.
//!
//! Requested leases are part of the question: the digest of the call covers them. A lease ends by itself, with the call, after
//! some minutes or with the session, and can be revoked earlier by its number ([`ToBroker::Revoke`](crate::ToBroker::Revoke)).

use crate::limit::{self, TooLarge, at_most};
use crate::request::CallId;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The hosts, ports and paths that a call requests beyond what its session has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wants {
    /// Hosts to reach, each as `NAME:PORT`: at most [`limit::WANTS`], each of at most [`limit::HOST`] bytes.
    pub hosts: Vec<String>,
    /// Files and directories of the machine to read, with everything below them. With `write` at most
    /// [`limit::WANTED_PATHS`] absolute paths without links, each of at most [`limit::WANTED_PATH`] bytes.
    pub read: Vec<String>,
    /// Directories of the machine to write in.
    pub write: Vec<String>,
    /// Ports of this machine's loopback to connect to: at most [`limit::WANTS`], none of them 0.
    pub connect: Vec<u16>,
}

impl Wants {
    /// Whether it wants nothing.
    pub fn is_empty(&self) -> bool {
        !self.has_places() && !self.has_paths()
    }

    /// Whether it requests any paths.
    pub fn has_paths(&self) -> bool {
        !self.read.is_empty() || !self.write.is_empty()
    }

    /// Whether it requests hosts or ports, to which the gateway connects.
    pub fn has_places(&self) -> bool {
        !self.hosts.is_empty() || !self.connect.is_empty()
    }

    /// How many hosts and ports it requests.
    pub fn places(&self) -> usize {
        self.hosts.len() + self.connect.len()
    }

    /// Everything that is requested, in the order of its numbers.
    pub fn each(&self) -> impl Iterator<Item = Leased> {
        let hosts = self.hosts.iter().cloned().map(Leased::Host);
        let read = self.read.iter().cloned().map(Leased::Read);
        hosts
            .chain(read)
            .chain(self.write.iter().cloned().map(Leased::Write))
            .chain(self.connect.iter().copied().map(Leased::Port))
    }

    /// Adds one more requested lease.
    pub fn push(&mut self, leased: Leased) {
        match leased {
            Leased::Host(host) => self.hosts.push(host),
            Leased::Read(path) => self.read.push(path),
            Leased::Write(path) => self.write.push(path),
            Leased::Port(port) => self.connect.push(port),
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
        at_most("wants.connect", self.connect.len(), limit::WANTS, "ports")?;
        limit::ports("wants.connect", &self.connect)?;
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
    /// A port of this machine's loopback to connect to.
    Port(u16),
}

impl Leased {
    /// The name of its kind, and the host, path or port.
    pub fn parts(&self) -> (&'static str, Cow<'_, str>) {
        match self {
            Leased::Host(host) => ("host", host.into()),
            Leased::Read(path) => ("read", path.into()),
            Leased::Write(path) => ("write", path.into()),
            Leased::Port(port) => ("connect", port.to_string().into()),
        }
    }

    /// The host, where it is one.
    pub fn host(&self) -> Option<&str> {
        match self {
            Leased::Host(host) => Some(host),
            Leased::Read(_) | Leased::Write(_) | Leased::Port(_) => None,
        }
    }

    /// The port of this machine's loopback, where it is one.
    pub fn port(&self) -> Option<u16> {
        match self {
            Leased::Port(port) => Some(*port),
            Leased::Host(_) | Leased::Read(_) | Leased::Write(_) => None,
        }
    }

    /// Whether the gateway connects to it: a host or a port.
    pub fn is_place(&self) -> bool {
        self.host().is_some() || self.port().is_some()
    }
}

impl fmt::Display for Leased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Leased::Host(host) => f.write_str(host),
            Leased::Read(path) => write!(f, "read {path}"),
            Leased::Write(path) => write!(f, "write {path}"),
            Leased::Port(port) => write!(f, "connect {port}"),
        }
    }
}

/// A host, port or path granted beyond those of the session. The gateway carries out a host's lease and a port's, the broker a path's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its number, with which it is revoked. Grants for the session share the numbering.
    pub lease: u64,
    /// The host, port or path, as it was requested.
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
        let ports = |connect| Wants {
            connect,
            ..Wants::default()
        };
        assert!(ports(vec![5432; limit::WANTS]).check().is_ok());
        for over in [vec![5432; limit::WANTS + 1], vec![5432, 0]] {
            assert!(ports(over).check().is_err());
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
