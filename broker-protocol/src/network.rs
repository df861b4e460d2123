//! The network of cells: the hosts that a session requests, those that it gets, and the result of each connection.
//!
//! The broker has no network. It decides which hosts a session may reach, passes a listening socket on the cells' loopback to the
//! gateway, which carries the connections, and records what that reports.

use crate::limit::{self, TooLarge, at_most};
use crate::request::CallId;
use serde::{Deserialize, Serialize};

/// The hosts that a session requests, beyond those of its profile. The policy's files limit them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkRequest {
    /// At most [`limit::HOSTS`], each of at most [`limit::HOST`] bytes: patterns as in a policy's `allow`.
    pub hosts: Vec<String>,
    /// The names of shipped presets, limited in the same way.
    pub presets: Vec<String>,
    /// Whether calls may request more hosts than the session has, because somebody can answer the
    /// question. Then cells have the relay, even if there is no host yet.
    pub leases: bool,
    /// Ports of this machine's loopback that cells reach at the same address: at most [`limit::PORTS`], none of them 0.
    pub connect: Vec<u16>,
    /// Ports of this machine that lead to ports of the cells' loopback: at most [`limit::PUBLISHED`], with no 0 in them.
    pub publish: Vec<PublishedPort>,
    /// Who starts the session's gateways.
    pub gateway: GatewaySupply,
}

/// The program that starts the gateways of a session's cells, which connect from its network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GatewaySupply {
    #[default]
    Executor,
    /// The client, by the line that it has sent ([`ToBroker::GatewayLine`](crate::ToBroker::GatewayLine)): where the executor has no
    /// network, and its policy permits that.
    Client,
}

/// A port of this machine's loopback that leads to a port of the cells' loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PublishedPort {
    pub machine: u16,
    pub cell: u16,
}

impl NetworkRequest {
    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        for (field, list) in [("hosts", &self.hosts), ("presets", &self.presets)] {
            at_most(field, list.len(), limit::HOSTS, "entries")?;
            list.iter()
                .try_for_each(|text| at_most(field, text.len(), limit::HOST, "bytes"))?;
        }
        limit::ports("connect", &self.connect)?;
        at_most("publish", self.publish.len(), limit::PUBLISHED, "ports")?;
        let both = self
            .publish
            .iter()
            .flat_map(|port| [port.machine, port.cell]);
        limit::ports("publish", &both.collect::<Vec<_>>())
    }
}

/// Hosts that cells may reach through the session's gateway. A host must be on each of the lists; see `policies::network`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The profile's and the session's own first; then those that bound it.
    pub lists: Vec<HostList>,
}

/// One list of hosts, as it is written in a policy. A missing part restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostList {
    /// Hosts that may be reached if their addresses are public.
    pub allow: Option<Vec<String>>,
    /// Hosts and addresses that may be reached although they are not public.
    pub private: Option<Vec<String>>,
}

/// The result of a connection that a cell requested: for the audit, and for those who run the cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// The host in its canonical form: a name, or an address, IPv6 in brackets. Empty if it could not be parsed, and where several
    /// hosts are counted together.
    pub host: String,
    /// The port; 0 if it could not be parsed.
    pub port: u16,
    /// The result of the connection.
    pub verdict: ConnectionVerdict,
    /// How many connections with this result the report is about: at least one.
    pub count: u32,
    /// The call of the cell whose supervisor has announced them: none where they are counted over several, or where no client waits
    /// for a call, as in the background.
    pub call: Option<CallId>,
    /// Why it was refused or failed: at most [`limit::DENIAL_TEXT`] bytes.
    pub why: Option<String>,
    /// Where its address is not public, the entry of `private` in a profile that would open it: at most [`limit::DENIAL_TEXT`] bytes.
    pub private: Option<String>,
}

impl ConnectionReport {
    /// Returns it with its texts cut at their limit.
    pub fn cut(mut self) -> Self {
        let texts = [&mut self.why, &mut self.private];
        texts.into_iter().flatten().for_each(limit::cut);
        self
    }

    /// Checks every limit that the type itself does not enforce.
    ///
    /// # Errors
    /// The host is too long, or contains characters that no host has; a text is too long; it is about no connection.
    pub fn check(&self) -> Result<(), TooLarge> {
        if self.count == 0 {
            return Err(TooLarge {
                field: "count",
                rule: "at least 1".into(),
            });
        }
        at_most("host", self.host.len(), limit::HOST, "bytes")?;
        for (field, text) in [("why", &self.why), ("private", &self.private)] {
            let length = text.as_ref().map_or(0, String::len);
            at_most(field, length, limit::DENIAL_TEXT, "bytes")?;
        }
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if self.host.bytes().all(is_host) {
            return Ok(());
        }
        Err(TooLarge {
            field: "host",
            rule: "letters, digits and `-._:[]`".into(),
        })
    }
}

/// The result of a connection attempt of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConnectionVerdict {
    /// The host was connected to.
    Allowed,
    /// The host is on no list.
    NotListed,
    /// An address of the host is not public, and no line of the lists allows it.
    NotPublic,
    /// The connection was allowed, but the name has no address or nothing answers there.
    Unreachable,
    /// The relay could not understand the request, or it was for no host, or for something other than TCP.
    Malformed,
    /// A program of this machine connected to a published port, and was led into the session.
    Published,
    /// A program of another user connected to a published port, and was refused.
    Stranger,
    /// On a connection that the gateway decrypts, a request was refused, or its answer.
    RequestRefused,
    /// Refused because the source of a credential gave no value.
    NoValue,
    /// The program does not believe the authority of the session, with which the gateway decrypts.
    NotTrusted,
    /// A company's proxy opened no tunnel.
    ProxyRefused,
    /// The host ended a handshake of the gateway's: it wants its client's certificate, or no program between.
    TlsRefused,
}

impl ConnectionVerdict {
    pub const ALL: [Self; 12] = [
        Self::Allowed,
        Self::NotListed,
        Self::NotPublic,
        Self::Unreachable,
        Self::Malformed,
        Self::Published,
        Self::Stranger,
        Self::RequestRefused,
        Self::NoValue,
        Self::NotTrusted,
        Self::ProxyRefused,
        Self::TlsRefused,
    ];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::NotListed => "not_listed",
            Self::NotPublic => "not_public",
            Self::Unreachable => "unreachable",
            Self::Malformed => "malformed",
            Self::Published => "published",
            Self::Stranger => "stranger",
            Self::RequestRefused => "request_refused",
            Self::NoValue => "no_value",
            Self::NotTrusted => "not_trusted",
            Self::ProxyRefused => "proxy_refused",
            Self::TlsRefused => "tls_refused",
        }
    }

    /// Whether it is a refusal of the gateway's, or of what stands behind it, whose reason the host does not show.
    pub fn is_explained(self) -> bool {
        match self {
            Self::RequestRefused
            | Self::NoValue
            | Self::NotTrusted
            | Self::ProxyRefused
            | Self::TlsRefused => true,
            Self::Allowed
            | Self::NotListed
            | Self::NotPublic
            | Self::Unreachable
            | Self::Malformed
            | Self::Published
            | Self::Stranger => false,
        }
    }

    /// Whether the policy refused it to a cell.
    pub fn is_refusal(self) -> bool {
        match self {
            Self::NotListed | Self::NotPublic | Self::RequestRefused => true,
            Self::Allowed
            | Self::Unreachable
            | Self::Malformed
            | Self::Published
            | Self::Stranger
            | Self::NoValue
            | Self::NotTrusted
            | Self::ProxyRefused
            | Self::TlsRefused => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_bounded() {
        for (count, bytes, want) in [
            (limit::HOSTS, limit::HOST, true),
            (limit::HOSTS + 1, 1, false),
            (1, limit::HOST + 1, false),
        ] {
            let list = vec!["x".repeat(bytes); count];
            let hosts = NetworkRequest {
                hosts: list.clone(),
                ..NetworkRequest::default()
            };
            let presets = NetworkRequest {
                presets: list,
                ..NetworkRequest::default()
            };
            assert_eq!(
                [hosts, presets].map(|request| request.check().is_ok()),
                [want; 2]
            );
        }
    }

    #[test]
    fn ports_are_bounded_and_nonzero() {
        for (connect, want) in [
            (vec![1; limit::PORTS], true),
            (vec![1; limit::PORTS + 1], false),
            (vec![u16::MAX], true),
            (vec![1, 0], false),
        ] {
            let request = NetworkRequest {
                connect,
                ..NetworkRequest::default()
            };
            assert_eq!(request.check().is_ok(), want, "{request:?}");
        }
        let port = |machine, cell| PublishedPort { machine, cell };
        for (publish, want) in [
            (vec![port(1, 1); limit::PUBLISHED], true),
            (vec![port(1, 1); limit::PUBLISHED + 1], false),
            (vec![port(0, 1)], false),
            (vec![port(1, 0)], false),
        ] {
            let request = NetworkRequest {
                publish,
                ..NetworkRequest::default()
            };
            assert_eq!(request.check().is_ok(), want, "{request:?}");
        }
    }

    #[test]
    fn a_report_names_a_host_and_nothing_else() {
        let report = |host: &str| ConnectionReport {
            host: host.into(),
            port: 443,
            verdict: ConnectionVerdict::Allowed,
            count: 1,
            why: None,
            private: None,
            call: None,
        };
        for host in [
            "",
            "registry.npmjs.org",
            "xn--bcher-kva.example",
            "127.0.0.1",
            "[::1]",
            "a_b",
        ] {
            assert_eq!(report(host).check(), Ok(()), "{host}");
        }
        for host in ["a b", "a\n", "\u{1b}[0m", "a\"b", "ä", "a/b"] {
            assert!(report(host).check().is_err(), "{host:?}");
        }
        assert!(report(&"x".repeat(limit::HOST)).check().is_ok());
        assert!(report(&"x".repeat(limit::HOST + 1)).check().is_err());
        let none = ConnectionReport {
            count: 0,
            ..report("a.example")
        };
        assert!(none.check().is_err());
        let text = |length: usize| Some("x".repeat(length));
        for (length, want) in [(limit::DENIAL_TEXT, true), (limit::DENIAL_TEXT + 1, false)] {
            let why = ConnectionReport {
                why: text(length),
                ..report("a.example")
            };
            let private = ConnectionReport {
                private: text(length),
                ..report("a.example")
            };
            assert_eq!([why, private].map(|one| one.check().is_ok()), [want; 2]);
        }
    }
}
