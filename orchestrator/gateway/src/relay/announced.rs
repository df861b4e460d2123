//! Connections that the cells' supervisors have announced, by their local addresses, and what each is for.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::os::unix::net::UnixDatagram;

/// Maximum number of announced connections that have not arrived; beyond it, all are dropped.
const ANNOUNCED_MAX: usize = 1024;

/// What a connection of a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A request to the relay.
    Relay,
    /// A port of this machine's loopback, without a request.
    Machine(NonZeroU16),
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
        let mut message = [0; 16];
        while let Ok(length) = self.socket.recv(&mut message) {
            let [a, b, c, d, high, low, to_high, to_low] = message[..length] else {
                break;
            };
            if self.waiting.len() >= ANNOUNCED_MAX {
                self.waiting.clear();
            }
            let port = NonZeroU16::new(u16::from_be_bytes([to_high, to_low]));
            self.waiting.insert(
                SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low]))),
                port.map_or(Purpose::Relay, Purpose::Machine),
            );
        }
        let announced = self.waiting.remove(&peer);
        announced.or((!self.only).then_some(Purpose::Relay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_what_its_announcement_says() {
        let peer: SocketAddr = "127.1.2.3:1029".parse().unwrap();
        for only in [true, false] {
            let (ours, theirs) = UnixDatagram::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let mut announced = Announced::new(theirs, only);
            let unannounced = (!only).then_some(Purpose::Relay);
            assert_eq!(announced.take(peer), unannounced);
            ours.send(&[127, 1, 2, 3, 4, 5, 0, 0]).unwrap();
            assert_eq!(announced.take(peer), Some(Purpose::Relay));
            ours.send(&[127, 1, 2, 3, 4, 5, 0x15, 0x38]).unwrap();
            let port = NonZeroU16::new(5432).unwrap();
            assert_eq!(announced.take(peer), Some(Purpose::Machine(port)));
            assert_eq!(announced.take(peer), unannounced, "it counts once");
        }
    }
}
