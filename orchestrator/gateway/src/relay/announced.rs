//! Connections that the cells' supervisors have announced, by their local addresses, and what each is for.

use crate::relay::place::Place;
use policies::web::HOST_MAX;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;

/// Maximum number of announced connections that have not arrived; beyond it, all are dropped.
const ANNOUNCED_MAX: usize = 1024;

/// Maximum bytes of an announcement: an address with its port, a port, a host's name.
const ANNOUNCEMENT_MAX: usize = 8 + HOST_MAX;

/// What a connection of a cell is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request to the relay.
    Request,
    /// A port of this machine's loopback, without a request.
    Machine(NonZeroU16),
    /// A host, without a request.
    Host(Place),
}

/// The connections announced by supervisors, by their local addresses.
#[derive(Debug)]
pub struct Announced {
    socket: UnixDatagram,
    waiting: HashMap<SocketAddr, Purpose>,
    /// Whether no others are served.
    only: bool,
}

impl Announced {
    pub fn new(socket: UnixDatagram, only: bool) -> Self {
        Self {
            socket,
            waiting: HashMap::new(),
            only,
        }
    }

    /// What a connection from `peer` is for; `None` if it may not be served. Each announcement counts once; it always precedes its
    /// connection.
    pub fn take(&mut self, peer: SocketAddr) -> Option<Purpose> {
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
        announced.or((!self.only).then_some(Purpose::Request))
    }
}

/// Which connection is announced, and what for.
fn read(announcement: &[u8]) -> Option<(SocketAddr, Purpose)> {
    let (head, host) = announcement.split_first_chunk::<8>()?;
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
    Some((from, purpose))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(only: bool) -> (UnixDatagram, Announced) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        (ours, Announced::new(theirs, only))
    }

    fn peer() -> SocketAddr {
        "127.1.2.3:1029".parse().unwrap()
    }

    #[test]
    fn a_connection_is_what_its_announcement_says() {
        for only in [true, false] {
            let (ours, mut announced) = pair(only);
            let unannounced = (!only).then_some(Purpose::Request);
            assert_eq!(announced.take(peer()), unannounced);
            ours.send(&[127, 1, 2, 3, 4, 5, 0, 0]).unwrap();
            assert_eq!(announced.take(peer()), Some(Purpose::Request));
            ours.send(&[127, 1, 2, 3, 4, 5, 0x15, 0x38]).unwrap();
            let port = NonZeroU16::new(5432).unwrap();
            assert_eq!(announced.take(peer()), Some(Purpose::Machine(port)));
            ours.send(b"\x7f\x01\x02\x03\x04\x05\x15\x38DB.example")
                .unwrap();
            let place = Place::new("db.example", 5432).unwrap();
            assert_eq!(announced.take(peer()), Some(Purpose::Host(place)));
            assert_eq!(announced.take(peer()), unannounced, "it counts once");
        }
    }

    #[test]
    fn the_newest_announcement_of_an_address_counts() {
        let (ours, mut announced) = pair(true);
        ours.send(b"\x7f\x01\x02\x03\x04\x05\x15\x38old.example")
            .unwrap();
        ours.send(&[127, 1, 2, 3, 4, 5, 0, 0]).unwrap();
        assert_eq!(announced.take(peer()), Some(Purpose::Request));
    }

    #[test]
    fn malformed_announcement_opens_nothing() {
        let head = b"\x7f\x01\x02\x03\x04\x05\x00\x50".as_slice();
        let long = "a".repeat(63);
        let longest = [&*long, &long, &long, &"a".repeat(61)].join(".");
        assert_eq!(longest.len(), HOST_MAX);
        let (ours, mut announced) = pair(true);
        ours.send(&[head, longest.as_bytes()].concat()).unwrap();
        assert!(matches!(announced.take(peer()), Some(Purpose::Host(_))));
        for wrong in [
            &head[..7],
            &[head, longest.as_bytes(), b"a"].concat(),
            &[head, b"a b"].concat(),
            &[head, b"\xff"].concat(),
            b"\x7f\x01\x02\x03\x04\x05\x00\x00a.example",
        ] {
            ours.send(wrong).unwrap();
            assert_eq!(announced.take(peer()), None, "{wrong:?}");
        }
        ours.send(b"\xff").unwrap();
        ours.send(&[127, 1, 2, 3, 4, 5, 0, 0]).unwrap();
        assert_eq!(announced.take(peer()), Some(Purpose::Request));
    }
}
