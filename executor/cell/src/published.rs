//! Ports of this machine that lead into the session: the gateway accepts there, and asks the warden for the connection inside. The
//! warden makes it for published ports alone, so a gateway that was taken over reaches no other server of the session.
//!
//! In the network namespace of a session the warden makes a socket and connects it. In the flat tier it passes the gateway's own socket
//! on, to the supervisor whose cell has announced the port (`loopback_line.rs` of `executor-supervisor`).

use executor_supervisor::loopback_line::{LoopbackRequest, reply};
use executor_sys::{message, socket};
use libc::{AF_INET, AF_INET6, SOCK_NONBLOCK, SOCK_STREAM};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The gateway's line, and the ports that it may ask for.
pub(crate) struct PublishedPorts {
    line: OwnedFd,
    ports: Vec<u16>,
}

impl PublishedPorts {
    pub(crate) fn new(line: OwnedFd, ports: Vec<u16>) -> Self {
        Self { line, ports }
    }

    /// Readable when the gateway asks.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }

    /// The next message of the gateway. Any other than a request for a published port is dropped: the end of its descriptors answers it.
    pub(crate) fn next(&self) -> Heard {
        let mut bytes = [0; LoopbackRequest::LENGTH];
        let (length, fds) = match message::receive(self.line.as_fd(), &mut bytes) {
            Ok((0, _)) => return Heard::Gone,
            Ok(received) => received,
            Err(_) => return Heard::Nothing,
        };
        let request = LoopbackRequest::decode(bytes).filter(|_| length == LoopbackRequest::LENGTH);
        let request = request.filter(|request| self.ports.contains(&request.port()));
        match (request, <[OwnedFd; 2]>::try_from(fds)) {
            (Some(request), Ok(fds)) => Heard::Connection(request, fds),
            (Some(_) | None, Ok(_) | Err(_)) => Heard::Nothing,
        }
    }
}

/// A message of the gateway.
pub(crate) enum Heard {
    /// A connection to a published port, with where the answer goes and the gateway's own socket.
    Connection(LoopbackRequest, [OwnedFd; 2]),
    Nothing,
    /// No gateway can ask any more.
    Gone,
}

/// Connects to a port of this network's loopback and answers with the socket, whose handshake may go on.
pub(crate) fn connect(request: LoopbackRequest, answer: &OwnedFd) {
    // The gateway may be gone.
    let _ = match connected(request) {
        Ok(socket) => reply(answer.as_fd(), 0, Some(socket.as_fd())),
        Err(error) => reply(
            answer.as_fd(),
            error.raw_os_error().unwrap_or(libc::EIO),
            None,
        ),
    };
}

fn connected(request: LoopbackRequest) -> io::Result<OwnedFd> {
    let (family, address) = if request.is_v6() {
        (AF_INET6, v6(request.port()))
    } else {
        (AF_INET, v4(request.port()))
    };
    let made = socket::make(family, SOCK_STREAM | SOCK_NONBLOCK, 0)?;
    match socket::connect(made.as_fd(), &address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        Ok(()) | Err(_) => Ok(made),
    }
}

fn v4(port: u16) -> Vec<u8> {
    let family = (AF_INET as u16).to_ne_bytes();
    let ip = Ipv4Addr::LOCALHOST.octets();
    [&family[..], &port.to_be_bytes(), &ip, &[0; 8]].concat()
}

fn v6(port: u16) -> Vec<u8> {
    let family = (AF_INET6 as u16).to_ne_bytes();
    let ip = Ipv6Addr::LOCALHOST.octets();
    [&family[..], &port.to_be_bytes(), &[0; 4], &ip, &[0; 4]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::gateway::published_request;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_gateway_gets_connections_to_published_ports_alone() {
        for (at, is_v6) in [("127.0.0.1", false), ("::1", true)] {
            let listener = TcpListener::bind((at, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let (ours, theirs) = message::pair().unwrap();
            let published = PublishedPorts::new(ours, vec![port]);
            let ask = |bytes: &[u8], count: usize| {
                let (back, answer) = message::pair().unwrap();
                let fds = vec![back.as_fd(); count];
                message::send(theirs.as_fd(), bytes, &fds).unwrap();
                answer
            };
            let _answers = [
                ask(&published_request(port ^ 1, is_v6), 2),
                ask(&published_request(port, is_v6), 1),
                ask(&[b'l', 0, 0, 0], 2),
                ask(b"c", 2),
            ];
            for _ in 0..4 {
                assert!(matches!(published.next(), Heard::Nothing));
            }
            let answer = ask(&published_request(port, is_v6), 2);
            let Heard::Connection(request, fds) = published.next() else {
                panic!("it is published");
            };
            connect(request, &fds[0]);
            let mut errno = [1; 4];
            let (_, made) = message::receive(answer.as_fd(), &mut errno).unwrap();
            assert_eq!((errno, made.len()), ([0; 4], 1));
            drop(listener.accept().unwrap());
            let mut inside = TcpStream::from(made.into_iter().next().unwrap());
            inside.set_nonblocking(false).unwrap();
            assert_eq!(inside.read(&mut [0]).unwrap(), 0);
            assert!(matches!(published.next(), Heard::Nothing), "nothing waits");
            drop(theirs);
            // A child that another test has forked may hold a copy for a moment.
            let mut line = [PollFd::new(published.descriptor(), PollFlags::POLLIN)];
            poll(&mut line, PollTimeout::NONE).unwrap();
            assert!(matches!(published.next(), Heard::Gone));
        }
    }
}
