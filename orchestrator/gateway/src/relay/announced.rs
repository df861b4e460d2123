//! Connections that the cells' supervisors have announced, by their local addresses, and what each is for.
//!
//! A port is free again once its connection is over, and the connection may still wait to be accepted then. So an address does not say
//! of which call a connection is while calls before and after have announced it: such a connection is refused. Otherwise a program could
//! leave a request behind that is taken for one of the next program with its port, and be served with that call's leases.

use broker_protocol::CallId;
use orchestrator_reach::place::Place;
use policies::web::HOST_MAX;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;

/// Maximum number of addresses, each by its call, whose connections have not arrived; beyond it, all are dropped.
const ANNOUNCED_MAX: usize = 1024;

/// Length of the queue of connections to be accepted. The kernel adds one.
pub(super) const QUEUE: i32 = 128;

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
    /// The number of announcements of each, and the purpose in the last one.
    waiting: BTreeMap<(SocketAddr, CallId), (u64, Purpose)>,
    /// So many connections that come next may be of those whose announcements were dropped.
    doubtful: i32,
    unannounced: Unannounced,
}

impl AnnouncedConnections {
    pub(super) fn new(socket: UnixDatagram, unannounced: Unannounced) -> Self {
        Self {
            socket,
            waiting: BTreeMap::new(),
            doubtful: 0,
            unannounced,
        }
    }

    /// The purpose of a connection from `peer`, and its call; `None` if it may not be served. Each announcement counts once; it
    /// always precedes its connection.
    pub(super) fn take(&mut self, peer: SocketAddr) -> Option<(Purpose, CallId)> {
        self.hear();
        let mut calls = self
            .waiting
            .range_mut((peer, CallId::MIN)..=(peer, CallId::MAX));
        let found = match (calls.next(), calls.next()) {
            (Some((key, (count, purpose))), None) => {
                *count -= 1;
                let (key, is_last, purpose) = (*key, *count == 0, purpose.clone());
                is_last.then(|| self.waiting.remove(&key));
                Some((purpose, key.1))
            }
            // All stay: whichever counted now, another would be missed.
            (Some(_), Some(_)) => return None,
            (None, _) => match self.unannounced {
                Unannounced::Served => Some((Purpose::Request, 0)),
                Unannounced::Refused => None,
            },
        };
        let is_doubtful = self.doubtful > 0;
        self.doubtful -= i32::from(is_doubtful);
        found.filter(|_| !is_doubtful)
    }

    /// Takes the announcements that have come.
    fn hear(&mut self) {
        // One byte more shows that it is too long.
        let mut message = [0; ANNOUNCEMENT_MAX + 1];
        while let Ok(length @ 1..) = self.socket.recv(&mut message) {
            let Some((from, (purpose, call))) = read(&message[..length]) else {
                continue;
            };
            if self.waiting.len() >= ANNOUNCED_MAX {
                self.waiting.clear();
                self.doubtful = QUEUE + 1;
            }
            let known = self.waiting.get(&(from, call));
            let count = known.map_or(1, |(count, _)| count + 1);
            self.waiting.insert((from, call), (count, purpose));
        }
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
    fn the_newest_announcement_of_a_call_counts() {
        let (ours, mut announced) = pair(Unannounced::Refused);
        ours.send(b"\x7f\x01\x02\x03\x04\x05\x15\x38\0\0\0\0\0\0\0\x03old.example")
            .unwrap();
        ours.send(&request(3)).unwrap();
        assert_eq!(announced.take(peer()), Some((Purpose::Request, 3)));
    }

    #[test]
    fn a_connection_left_behind_is_not_taken_for_another_calls() {
        let (ours, mut announced) = pair(Unannounced::Refused);
        // Two connections of one call wait to be accepted, and its program has given their port up.
        ours.send(&request(2)).unwrap();
        ours.send(&request(2)).unwrap();
        assert_eq!(announced.take(peer()), Some((Purpose::Request, 2)));
        ours.send(&request(3)).unwrap();
        for _ in 0..3 {
            assert_eq!(announced.take(peer()), None);
        }
        // A port that nobody else has had is not in doubt.
        let mut other = request(3);
        other[5] = 6;
        ours.send(&other).unwrap();
        let at = "127.1.2.3:1030".parse().unwrap();
        assert_eq!(announced.take(at), Some((Purpose::Request, 3)));
    }

    #[test]
    fn after_a_flood_no_connection_from_before_is_served() {
        let (ours, mut announced) = pair(Unannounced::Refused);
        for port in 0..=ANNOUNCED_MAX as u16 {
            let mut flood = request(2);
            flood[4..6].copy_from_slice(&(2000 + port).to_be_bytes());
            ours.send(&flood).unwrap();
            announced.hear();
        }
        ours.send(&request(3)).unwrap();
        let refused = (0..1000).take_while(|_| {
            let taken = announced.take(peer());
            ours.send(&request(3)).unwrap();
            taken.is_none()
        });
        assert_eq!(refused.count() as i32, QUEUE + 1);
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
