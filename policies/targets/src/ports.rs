//! Which ports of this machine's loopback cells reach: `connect` in a profile's `network`, and what a session asks for.
//!
//! Not hosts: a host of the relay is never an address of the loopback unless a policy opens it as `private`, and these ports are
//! reached without the relay's proxy, at the same address as outside.

use broker_protocol::NetworkRequest;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most ports of this machine that a session may reach.
pub const CONNECT_MAX: usize = broker_protocol::limit::PORTS;

/// Why a session does not get the ports that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PortError {
    #[error(
        "the policy does not allow cells to connect to port {port} of this machine: a `[network]` table in one of its files bounds \
         the network, and its `connect` does not name it"
    )]
    Bounded { port: u16 },
    #[error("more than {CONNECT_MAX} ports of this machine")]
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

/// The ports of this machine's loopback that the cells of a session reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortPolicy {
    pub connect: Vec<u16>,
    /// For each file that bounds the network: the ports that it permits.
    bounds: Vec<Vec<u16>>,
}

impl PortPolicy {
    /// The ports of a profile's `own` that all of `bounds` permit: the lists of the files that bound the network.
    ///
    /// # Errors
    /// There are too many.
    pub fn of<'a>(
        own: &Option<Vec<Port>>,
        bounds: impl Iterator<Item = &'a Option<Vec<Port>>>,
    ) -> Result<Self, PortError> {
        let policy = Self {
            connect: Vec::new(),
            bounds: bounds.map(numbers).collect(),
        };
        let permitted = numbers(own).into_iter();
        let connect = permitted.filter(|port| policy.permits(*port)).collect();
        Self { connect, ..policy }.bounded()
    }

    fn permits(&self, port: u16) -> bool {
        self.bounds.iter().all(|bound| bound.contains(&port))
    }

    /// The same with what a session asks for; none where it wants no network.
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
        self.bounded()
    }

    fn bounded(self) -> Result<Self, PortError> {
        if self.connect.len() > CONNECT_MAX {
            Err(PortError::TooMany)
        } else {
            Ok(self)
        }
    }

    /// Whether cells reach no port.
    pub fn is_empty(&self) -> bool {
        self.connect.is_empty()
    }
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

    fn of(own: &[u16], bounds: &[&[u16]]) -> Result<PortPolicy, PortError> {
        let bounds: Vec<_> = bounds.iter().map(|bound| ports(bound)).collect();
        PortPolicy::of(&ports(own), bounds.iter())
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
        assert!(PortPolicy::of(&None, [].into_iter()).unwrap().is_empty());
        let silent = PortPolicy::of(&ports(&[1]), [None].iter());
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
    fn a_session_has_so_many_ports_and_none_is_zero() {
        let own = |count: u16| of(&(1..=count).collect::<Vec<_>>(), &[]).map(drop);
        assert_eq!(own(CONNECT_MAX as u16), Ok(()));
        assert_eq!(own(CONNECT_MAX as u16 + 1), Err(PortError::TooMany));
        assert_eq!(Port::try_from(0), Err(PortZero));
    }
}
