//! Ports of this machine's loopback that cells reach, and those that lead to theirs: `connect` and `publish` in a profile's `network`, and
//! what a session asks for.
//!
//! Not hosts: a host of the relay is never an address of the loopback unless a policy opens it as `private`, and these ports are
//! reached without the relay's proxy, at the same address as outside.

use broker_protocol::{NetworkRequest, PublishedPort, limit};
use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// Maximum number of ports of this machine that a session may reach.
pub(crate) const CONNECT_MAX: usize = limit::PORTS;
/// Maximum number of ports of this machine that a session may publish.
pub(crate) const PUBLISH_MAX: usize = limit::PUBLISHED;

/// Why a session does not get the ports that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PortError {
    #[error(
        "the policy does not allow cells to connect to port {port} of this machine: a `[network]` table in one of its files bounds \
         the network, and its `connect` does not name it"
    )]
    Bounded { port: u16 },
    #[error(
        "the policy does not allow port {port} of this machine to be published: a `[network]` table in one of its files bounds the \
         network, and its `publish` does not name it"
    )]
    NotPublished { port: u16 },
    #[error("port {port} of this machine is to be published twice")]
    Twice { port: u16 },
    #[error(
        "port {} of cells is that of their proxy, and leads to no other place",
        limit::RELAY_PORT
    )]
    Relay,
    #[error("more than {CONNECT_MAX} ports of this machine, or {PUBLISH_MAX} to publish")]
    TooMany,
}

/// A port as a policy or an option names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u16")]
pub struct Port(u16);

/// A number that is no port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a port is a number from 1 to 65535")]
pub struct PortZero;

impl TryFrom<u16> for Port {
    type Error = PortZero;

    fn try_from(port: u16) -> Result<Self, PortZero> {
        (port != 0).then_some(Self(port)).ok_or(PortZero)
    }
}

/// A port of this machine and the port of cells to which it leads: `3000` for both, or `"8080:3000"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publish(pub PublishedPort);

/// A text that names no such ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoPublish {
    #[error("a port to publish is PORT, or MACHINE:CELL, each from 1 to 65535")]
    Ports,
    #[error(
        "port {} of cells is that of their proxy, and is not published",
        limit::RELAY_PORT
    )]
    Relay,
}

impl TryFrom<&str> for Publish {
    type Error = NoPublish;

    fn try_from(text: &str) -> Result<Self, NoPublish> {
        let port = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let port = text.parse().ok().filter(|port| *port != 0);
            port.filter(|_| digits).ok_or(NoPublish::Ports)
        };
        let (machine, cell) = text.split_once(':').unwrap_or((text, text));
        let (machine, cell) = (port(machine)?, port(cell)?);
        match cell == limit::RELAY_PORT {
            true => Err(NoPublish::Relay),
            false => Ok(Self(PublishedPort { machine, cell })),
        }
    }
}

impl<'de> Deserialize<'de> for Publish {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Publish;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, or \"MACHINE:CELL\"")
            }

            fn visit_i64<E: Error>(self, port: i64) -> Result<Publish, E> {
                Publish::try_from(port.to_string().as_str()).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Publish, E> {
                Publish::try_from(text).map_err(E::custom)
            }
        }
        input.deserialize_any(Either)
    }
}

/// The ports of this machine's loopback that the cells of a session reach, and those that lead to theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortPolicy {
    pub connect: Vec<u16>,
    /// Each port of the machine once.
    pub publish: Vec<PublishedPort>,
    bounds: Vec<PortBound>,
}

/// The ports of this machine that a file which bounds the network permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct PortBound {
    connect: Vec<u16>,
    publish: Vec<u16>,
}

/// The lists of a table of a policy.
#[derive(Clone, Copy, Debug)]
pub struct NamedPorts<'a> {
    pub connect: &'a Option<Vec<Port>>,
    pub(crate) publish: &'a Option<Vec<Publish>>,
}

impl PortPolicy {
    /// The ports of a profile's `own` that all of `bounds` permit: the lists of the files that bound the network.
    ///
    /// # Errors
    /// There are too many.
    pub fn of<'a>(
        own: &NamedPorts,
        bounds: impl Iterator<Item = NamedPorts<'a>>,
    ) -> Result<Self, PortError> {
        let bounds = bounds.map(|bound| PortBound {
            connect: numbers(bound.connect),
            publish: published(bound.publish).map(|port| port.machine).collect(),
        });
        let policy = Self {
            bounds: bounds.collect(),
            ..Self::default()
        };
        let connect = numbers(own.connect).into_iter();
        let connect = connect.filter(|port| policy.permits(*port)).collect();
        let mut publish: Vec<PublishedPort> = published(own.publish).collect();
        publish.retain(|port| policy.may_publish(*port));
        publish.sort_unstable();
        publish.dedup();
        Self {
            connect,
            publish,
            ..policy
        }
        .bounded()
    }

    /// Checks that a call may be granted this port for a while.
    ///
    /// # Errors
    /// A file that bounds the network does not permit it, or the proxy of cells has this port there.
    pub fn may_lease(&self, port: u16) -> Result<(), PortError> {
        if port == limit::RELAY_PORT {
            return Err(PortError::Relay);
        }
        let may = self.permits(port);
        may.then_some(()).ok_or(PortError::Bounded { port })
    }

    fn permits(&self, port: u16) -> bool {
        self.bounds
            .iter()
            .all(|bound| bound.connect.contains(&port))
    }

    fn may_publish(&self, port: PublishedPort) -> bool {
        let permits = |bound: &PortBound| bound.publish.contains(&port.machine);
        self.bounds.iter().all(permits)
    }

    /// These ports with those that a session asks for; none where it wants no network.
    ///
    /// # Errors
    /// The policy's files do not permit a port, or there are too many.
    pub fn requested(mut self, wanted: Option<&NetworkRequest>) -> Result<Self, PortError> {
        let Some(wanted) = wanted else {
            return Ok(Self::default());
        };
        for port in wanted.connect.iter().copied() {
            if !self.permits(port) {
                return Err(PortError::Bounded { port });
            }
            if !self.connect.contains(&port) {
                self.connect.push(port);
            }
        }
        for port in wanted.publish.iter().copied() {
            if !self.may_publish(port) {
                return Err(PortError::NotPublished { port: port.machine });
            }
            if !self.publish.contains(&port) {
                self.publish.push(port);
            }
        }
        self.bounded()
    }

    fn bounded(self) -> Result<Self, PortError> {
        if self.connect.len() > CONNECT_MAX || self.publish.len() > PUBLISH_MAX {
            return Err(PortError::TooMany);
        }
        let mut machine: Vec<u16> = self.publish.iter().map(|port| port.machine).collect();
        machine.sort_unstable();
        match machine.windows(2).find(|two| two[0] == two[1]) {
            Some(two) => Err(PortError::Twice { port: two[0] }),
            None => Ok(self),
        }
    }

    /// Whether cells reach no port, and none leads to theirs.
    pub fn is_empty(&self) -> bool {
        self.connect.is_empty() && self.publish.is_empty()
    }
}

fn published(ports: &Option<Vec<Publish>>) -> impl Iterator<Item = PublishedPort> {
    ports.iter().flatten().map(|port| port.0)
}

fn numbers(ports: &Option<Vec<Port>>) -> Vec<u16> {
    let mut numbers: Vec<u16> = ports.iter().flatten().map(|port| port.0).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(numbers: &[u16]) -> Option<Vec<Port>> {
        Some(numbers.iter().map(|port| Port(*port)).collect())
    }

    /// A policy of `connect` and `publish`, each with its bounds: those of one file have the same place in both.
    fn of_both(
        (connect, publish): (&[u16], &[&str]),
        bounds: &[(&[u16], &[&str])],
    ) -> Result<PortPolicy, PortError> {
        let publish_of = |texts: &[&str]| {
            let read = texts.iter().map(|text| Publish::try_from(*text).unwrap());
            Some(read.collect::<Vec<_>>())
        };
        let (own, led) = (ports(connect), publish_of(publish));
        let bounds: Vec<_> = bounds
            .iter()
            .map(|(connect, publish)| (ports(connect), publish_of(publish)))
            .collect();
        let named = bounds
            .iter()
            .map(|(connect, publish)| NamedPorts { connect, publish });
        let own = NamedPorts {
            connect: &own,
            publish: &led,
        };
        PortPolicy::of(&own, named)
    }

    fn of(own: &[u16], bounds: &[&[u16]]) -> Result<PortPolicy, PortError> {
        let bounds: Vec<_> = bounds.iter().map(|bound| (*bound, &[][..])).collect();
        of_both((own, &[]), &bounds)
    }

    #[test]
    fn a_lease_opens_no_port_that_a_file_keeps_closed() {
        let may = |bounds: &[&[u16]], port| of(&[], bounds).unwrap().may_lease(port);
        assert_eq!(may(&[], 5432), Ok(()));
        assert_eq!(may(&[&[5432]], 5432), Ok(()));
        for bounds in [&[&[1u16] as &[u16]] as &[&[u16]], &[&[5432], &[]]] {
            assert_eq!(may(bounds, 5432), Err(PortError::Bounded { port: 5432 }));
        }
        assert_eq!(may(&[], limit::RELAY_PORT), Err(PortError::Relay));
    }

    fn led(own: &[&str], bounds: &[&[&str]]) -> Result<PortPolicy, PortError> {
        let bounds: Vec<_> = bounds.iter().map(|bound| (&[][..], *bound)).collect();
        of_both((&[], own), &bounds)
    }

    fn asks(ports: &[u16]) -> NetworkRequest {
        NetworkRequest {
            connect: ports.to_vec(),
            ..NetworkRequest::default()
        }
    }

    #[test]
    fn bounds_only_narrow() {
        for (own, bounds, want) in [
            (&[2, 1, 2][..], &[][..], &[1, 2][..]),
            (&[1, 2], &[&[2, 3][..]], &[2]),
            (&[1], &[&[], &[1]], &[]),
        ] {
            let policy = of(own, bounds).unwrap();
            assert_eq!(policy.connect, want, "{own:?} {bounds:?}");
            assert_eq!(policy.is_empty(), want.is_empty());
        }
        let (none, one) = (None, ports(&[1]));
        let named = |connect| NamedPorts {
            connect,
            publish: &None,
        };
        assert!(
            PortPolicy::of(&named(&none), [].into_iter())
                .unwrap()
                .is_empty()
        );
        let silent = PortPolicy::of(&named(&one), [named(&none)].into_iter());
        assert!(silent.unwrap().is_empty(), "it names no port");
    }

    #[test]
    fn a_session_gets_ports_within_the_bounds() {
        let added = of(&[1], &[]).unwrap().requested(Some(&asks(&[1, 2])));
        assert_eq!(added.unwrap().connect, [1, 2]);
        let bounded = of(&[], &[&[3]]).unwrap();
        assert!(bounded.clone().requested(Some(&asks(&[3]))).is_ok());
        assert_eq!(
            bounded.requested(Some(&asks(&[4]))),
            Err(PortError::Bounded { port: 4 })
        );
        assert!(of(&[1], &[]).unwrap().requested(None).unwrap().is_empty());
    }

    #[test]
    fn ports_are_published_once_each_and_within_the_bounds() {
        let port = |machine, cell| PublishedPort { machine, cell };
        let own = &["3000", "8080:80"][..];
        for (own, bounds, want) in [
            (own, &[][..], Ok(vec![port(3000, 3000), port(8080, 80)])),
            (own, &[&["8080"][..]], Ok(vec![port(8080, 80)])),
            (own, &[&["8080"], &[]], Ok(vec![])),
            (&["1", "1"], &[], Ok(vec![port(1, 1)])),
            (&["1", "1:2"], &[], Err(PortError::Twice { port: 1 })),
        ] {
            let got = led(own, bounds).map(|policy| policy.publish);
            assert_eq!(got, want, "{own:?} {bounds:?}");
        }
        let asks = |publish: &[PublishedPort]| NetworkRequest {
            publish: publish.to_vec(),
            ..NetworkRequest::default()
        };
        let bounded = led(&[], &[&["3000"]]).unwrap();
        let asked = bounded.clone().requested(Some(&asks(&[port(3000, 5)])));
        assert_eq!(asked.unwrap().publish, [port(3000, 5)]);
        let refused = bounded.requested(Some(&asks(&[port(3001, 3000)])));
        assert_eq!(refused, Err(PortError::NotPublished { port: 3001 }));
        let many = |count: u16| {
            let all: Vec<_> = (1..=count).map(|one| port(one, 1)).collect();
            led(&[], &[])
                .unwrap()
                .requested(Some(&asks(&all)))
                .map(drop)
        };
        assert_eq!(many(PUBLISH_MAX as u16), Ok(()));
        assert_eq!(many(PUBLISH_MAX as u16 + 1), Err(PortError::TooMany));
        for wrong in [
            "",
            "0",
            "1:",
            ":1",
            "1:2:3",
            "+1",
            "65536",
            "a",
            "127.0.0.1:1",
        ] {
            assert_eq!(Publish::try_from(wrong), Err(NoPublish::Ports), "{wrong}");
        }
    }

    #[test]
    fn port_limit_holds_and_port_zero_is_refused() {
        let own = |count: u16| of(&(1..=count).collect::<Vec<_>>(), &[]).map(drop);
        assert_eq!(own(CONNECT_MAX as u16), Ok(()));
        assert_eq!(own(CONNECT_MAX as u16 + 1), Err(PortError::TooMany));
        assert_eq!(Port::try_from(0), Err(PortZero));
    }
}
