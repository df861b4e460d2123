//! Connections that the cells' supervisors have announced, by their local addresses, and what each is for.

use crate::relay::place::Place;
use broker_protocol::CallId;
use policies::web::HOST_MAX;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;

/// Maximum number of announced connections that have not arrived; beyond it, all are dropped.
const ANNOUNCED_MAX: usize = 1024;

/// Maximum bytes of an announcement: an address with its port, a port, a call, a host's name.
const ANNOUNCEMENT_MAX: usize = 16 + HOST_MAX;

/// What a connection of a cell is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A request to the relay.
    Request,
    /// A port of this machine's loopback, without a request.
    Machine(NonZeroU16),
    /// A host, without a request.
    Host(Place),
}

/// The treatment of connections that nobody has announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unannounced {
    /// As requests to the relay.
    Served,
    Refused,
}

impl Unannounced {
    pub(crate) fn refused_if(refused: bool) -> Self {
        if refused { Self::Refused } else { Self::Served }
    }
}

/// The connections announced by supervisors, by their local addresses.
#[derive(Debug)]
pub(super) struct AnnouncedConnections {
    socket: UnixDatagram,
    waiting: HashMap<SocketAddr, (Purpose, CallId)>,
    unannounced: Unannounced,
}

impl AnnouncedConnections {
    pub(super) fn new(socket: UnixDatagram, unannounced: Unannounced) -> Self {
        Self {
            socket,
            waiting: HashMap::new(),
            unannounced,
        }
    }

    /// What a connection from `peer` is for, and of which call it is, if a client waits for that; `None` if it may not be served. Each announcement counts once; it always precedes its
    /// connection.
    pub(super) fn take(&mut self, peer: SocketAddr) -> Option<(Purpose, CallId)> {
        // One byte more shows that it is too long.
        let mut message = [0; ANNOUNCEMENT_MAX + 1];
        while let Ok(length @ 1..) = self.socket.recv(&mut message) {
            let Some((from, purpose)) = read(&message[..length]) else {
                continue;
            };
            if self.waiting.len() >= ANNOUNCED_MAX {
                self.waiting.clear();
            }
            self.waiting.insert(from, purpose);
        }
        let announced = self.waiting.remove(&peer);
        announced.or(match self.unannounced {
            Unannounced::Served => Some((Purpose::Request, 0)),
            Unannounced::Refused => None,
        })
    }
}

/// Which connection is announced, and what for.
fn read(announcement: &[u8]) -> Option<(SocketAddr, (Purpose, CallId))> {
    let (head, rest) = announcement.split_first_chunk::<8>()?;
    let (call, host) = rest.split_first_chunk::<8>()?;
    let [a, b, c, d, high, low, to_high, to_low] = *head;
    let from = SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])));
    let port = NonZeroU16::new(u16::from_be_bytes([to_high, to_low]));
    let purpose = match (port, host) {
        (None, []) => Purpose::Request,
        (Some(port), []) => Purpose::Machine(port),
        (None, _) => return None,
        (Some(port), host) if host.len() <= HOST_MAX => {
            let host = std::str::from_utf8(host).ok()?;
            Purpose::Host(Place::new(host, port.get()).ok()?)
        }
        (Some(_), _) => return None,
    };
    Some((from, (purpose, CallId::from_be_bytes(*call))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(unannounced: Unannounced) -> (UnixDatagram, AnnouncedConnections) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (ours, AnnouncedConnections::new(theirs, unannounced))
    }

    /// The announcement of a request of this call.
    fn request(call: u8) -> [u8; 16] {
        let mut announcement = [127, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        announcement[15] = call;
        announcement
    }

    fn peer() -> SocketAddr {
        "127.1.2.3:1029".parse().unwrap()
    }

    #[test]
    fn a_connection_is_what_its_announcement_says() {
        for (others, unannounced) in [
            (Unannounced::Refused, None),
            (Unannounced::Served, Some((Purpose::Request, 0))),
        ] {
            let (ours, mut announced) = pair(others);
            assert_eq!(announced.take(peer()), unannounced.clone());
            ours.send(&request(7)).unwrap();
            assert_eq!(announced.take(peer()), Some((Purpose::Request, 7)));
            ours.send(b"\x7f\x01\x02\x03\x04\x05\x15\x38\0\0\0\0\0\0\0\x08")
                .unwrap();
            let port = NonZeroU16::new(5432).unwrap();
            assert_eq!(announced.take(peer()), Some((Purpose::Machine(port), 8)));
            ours.send(b"\x7f\x01\x02\x03\x04\x05\x15\x38\0\0\0\0\0\0\0\x09DB.example")
                .unwrap();
            let place = Place::new("db.example", 5432).unwrap();
            assert_eq!(announced.take(peer()), Some((Purpose::Host(place), 9)));
            assert_eq!(announced.take(peer()), unannounced, "it counts once");
        }
    }

    #[test]
    fn the_newest_announcement_of_an_address_counts() {
        let (ours, mut announced) = pair(Unannounced::Refused);
        ours.send(b"\x7f\x01\x02\x03\x04\x05\x15\x38\0\0\0\0\0\0\0\x09old.example")
            .unwrap();
        ours.send(&request(3)).unwrap();
        assert_eq!(announced.take(peer()), Some((Purpose::Request, 3)));
    }

    #[test]
    fn malformed_announcement_opens_nothing() {
        let head = b"\x7f\x01\x02\x03\x04\x05\x00\x50\0\0\0\0\0\0\0\x01".as_slice();
        let long = "a".repeat(63);
        let longest = [&*long, &long, &long, &"a".repeat(61)].join(".");
        assert_eq!(longest.len(), HOST_MAX);
        let (ours, mut announced) = pair(Unannounced::Refused);
        ours.send(&[head, longest.as_bytes()].concat()).unwrap();
        assert!(matches!(
            announced.take(peer()),
            Some((Purpose::Host(_), 1))
        ));
        for wrong in [
            &head[..15],
            &[head, longest.as_bytes(), b"a"].concat(),
            &[head, b"a b"].concat(),
            &[head, b"\xff"].concat(),
            b"\x7f\x01\x02\x03\x04\x05\x00\x00\0\0\0\0\0\0\0\x01a.example",
        ] {
            ours.send(wrong).unwrap();
            assert_eq!(announced.take(peer()), None, "{wrong:?}");
        }
        ours.send(b"\xff").unwrap();
        ours.send(&request(3)).unwrap();
        assert_eq!(announced.take(peer()), Some((Purpose::Request, 3)));
    }
}
