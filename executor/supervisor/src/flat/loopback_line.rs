//! The loopback of a flat session between its cells: the line of each first process to the warden, which passes requests on.
//!
//! No cell may take a descriptor from a process of another. So who supervises the listener makes the connection too, with the
//! caller's socket, which is handed to it: there the listener is held until the handshake is over, as for callers of its own cell.
//! The warden knows which cell has announced a port, and nothing else; a session has one warden, so no request leaves its session.

use crate::answer::{Elsewhere, SyscallAnswer};
use crate::flat::loopback::{Families, Loopback};
use crate::object::errno;
use crate::tcp::{SocketName, TcpSocket};
use executor_sys::message;
use nix::Result;
use nix::errno::Errno;
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A message: its kind, the families of a connection, and a port.
type LoopbackBytes = [u8; 4];

/// A port has a listener in the sender's cell.
const LISTENS: u8 = b'l';
/// The sender's call has ended, and with it all its listeners.
const ENDS: u8 = b'e';
/// The socket that comes with it is to be connected; the result goes to the other descriptor.
const CONNECT: u8 = b'c';

/// Maximum number of requests that are answered before the cell's own calls are looked at again.
const REQUESTS_MAX: usize = 16;

fn encode(kind: u8, families: Families, port: u16) -> LoopbackBytes {
    let families = match families {
        Families::V4 => 4,
        Families::V6 => 6,
        Families::Both => 0,
    };
    let [low, high] = port.to_le_bytes();
    [kind, families, low, high]
}

fn decode([kind, families, low, high]: LoopbackBytes) -> Option<(u8, Families, u16)> {
    let families = match families {
        4 => Families::V4,
        6 => Families::V6,
        0 => Families::Both,
        _ => return None,
    };
    Some((kind, families, u16::from_le_bytes([low, high])))
}

/// A request for a connection to a port of the session's loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackRequest {
    families: Families,
    port: u16,
}

impl LoopbackRequest {
    pub const LENGTH: usize = size_of::<LoopbackBytes>();

    /// Decodes a message; `None` if it is no such request.
    pub fn decode(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let (kind, families, port) = decode(bytes)?;
        let is_one = kind == CONNECT && families != Families::Both;
        is_one.then_some(Self { families, port })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is for the loopback of IPv6.
    pub fn is_v6(&self) -> bool {
        self.families == Families::V6
    }
}

/// Answers a request: with an error number, and with the socket if it is not the asker's own.
///
/// # Errors
/// The kernel's: the asker is gone.
pub fn reply(to: BorrowedFd, errno: i32, socket: Option<BorrowedFd>) -> io::Result<()> {
    let fds: Vec<BorrowedFd> = socket.into_iter().collect();
    message::send(to, &errno.to_le_bytes(), &fds)
}

/// The warden's ends of all lines.
#[derive(Default)]
pub struct LoopbackSwitch {
    /// By the process number of the cell's first process.
    lines: Vec<(i32, OwnedFd)>,
    /// The cell that has announced each port last.
    ports: HashMap<u16, i32>,
}

impl LoopbackSwitch {
    /// Readable when a cell has sent a message, or is gone.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lines.iter().map(|(_, line)| line.as_fd())
    }

    /// Adds the line of a new cell.
    pub fn add(&mut self, cell: i32, line: OwnedFd) {
        self.lines.push((cell, line));
    }

    /// Forgets a cell that has ended.
    pub fn remove(&mut self, cell: i32) {
        self.lines.retain(|(of, _)| *of != cell);
        self.ports.retain(|_, of| *of != cell);
    }

    /// Handles one message of each cell that has sent one.
    pub fn serve(&mut self) {
        let cells: Vec<i32> = self.lines.iter().map(|(cell, _)| *cell).collect();
        for cell in cells {
            let mut bytes = LoopbackBytes::default();
            let Some(line) = self.line(cell) else {
                continue;
            };
            match message::receive(line, &mut bytes) {
                Ok((4, fds)) => self.take(cell, bytes, &fds),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Gone, or nothing that we send.
                Ok(_) | Err(_) => self.remove(cell),
            }
        }
    }

    /// Passes a request from outside the cells on to the one that has announced the port. One that is not passed on is answered by the
    /// end of its descriptor for the result.
    pub fn forward(&self, LoopbackRequest { families, port }: LoopbackRequest, fds: &[OwnedFd; 2]) {
        let to = self.ports.get(&port);
        if let Some(line) = to.and_then(|to| self.line(*to)) {
            let fds = fds.each_ref().map(AsFd::as_fd);
            let _ = message::send(line, &encode(CONNECT, families, port), &fds);
        }
    }

    fn take(&mut self, cell: i32, bytes: LoopbackBytes, fds: &[OwnedFd]) {
        match decode(bytes) {
            Some((LISTENS, _, port)) => drop(self.ports.insert(port, cell)),
            Some((ENDS, ..)) => self.ports.retain(|_, of| *of != cell),
            Some((CONNECT, _, port)) => {
                let to = self.ports.get(&port).filter(|to| **to != cell);
                let fds: Vec<BorrowedFd> = fds.iter().map(AsFd::as_fd).collect();
                // A request that is not passed on is answered by the end of its descriptor for the result.
                if let Some(line) = to.and_then(|to| self.line(*to)) {
                    let _ = message::send(line, &bytes, &fds);
                }
            }
            _ => self.remove(cell),
        }
    }

    fn line(&self, cell: i32) -> Option<BorrowedFd<'_>> {
        let mut lines = self.lines.iter();
        lines.find_map(|(of, line)| (*of == cell).then(|| line.as_fd()))
    }
}

/// A first process's end of its line.
pub struct LoopbackLine {
    socket: OwnedFd,
    /// Whether the warden knows of a listener of the present call.
    announced: Cell<bool>,
    closed: Cell<bool>,
}

impl LoopbackLine {
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            announced: Cell::new(false),
            closed: Cell::new(false),
        }
    }

    /// The descriptor that the cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether requests may still come.
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.get()
    }

    /// Announces a listener to the session's other cells. If that fails, they do not reach it.
    pub(crate) fn announce(&self, port: u16) {
        let bytes = encode(LISTENS, Families::Both, port);
        let sent = message::send(self.socket.as_fd(), &bytes, &[]);
        self.announced.set(self.announced.get() || sent.is_ok());
    }

    /// Connects a socket of the caller to a listener of another cell.
    ///
    /// # Errors
    /// `ECONNREFUSED` if the warden takes no request; otherwise the kernel's.
    pub fn connect(
        &self,
        tcp: TcpSocket,
        families: Families,
        name: SocketName,
    ) -> Result<SyscallAnswer> {
        let (ours, theirs) = message::pair().map_err(errno)?;
        let bytes = encode(CONNECT, families, name.port);
        let fds = [theirs.as_fd(), tcp.socket.as_fd()];
        message::send(self.socket.as_fd(), &bytes, &fds).map_err(|_| Errno::ECONNREFUSED)?;
        drop(theirs);
        Elsewhere::begin(tcp.socket, ours, name)
    }

    /// Answers the requests of other cells that have arrived.
    pub fn serve(&self, loopback: &mut Loopback) {
        for _ in 0..REQUESTS_MAX {
            let mut bytes = LoopbackBytes::default();
            match message::receive(self.socket.as_fd(), &mut bytes) {
                Ok((4, fds)) => answer(loopback, bytes, fds),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => return self.closed.set(true),
            }
        }
    }

    /// The call has ended: its listeners are gone, and so are those who ask for them.
    pub fn end(&self) {
        if self.announced.replace(false) {
            let bytes = encode(ENDS, Families::Both, 0);
            let _ = message::send(self.socket.as_fd(), &bytes, &[]);
            // None of them is reached any more.
            self.serve(&mut Loopback::default());
        }
    }
}

/// Connects a socket of another cell to a listener of this one.
fn answer(loopback: &mut Loopback, bytes: LoopbackBytes, fds: Vec<OwnedFd>) {
    let (Some((CONNECT, families, port)), Ok([back, socket])) =
        (decode(bytes), <[OwnedFd; 2]>::try_from(fds))
    else {
        return;
    };
    let tcp = TcpSocket::of_another_cell(socket);
    let begun = tcp.and_then(|tcp| loopback.connect_for_another(tcp, families, port));
    let errno = begun.map_or_else(|errno| errno as i32, |()| 0);
    // The other cell may be gone.
    let _ = reply(back.as_fd(), errno, None);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(socket: &OwnedFd) -> Option<(LoopbackBytes, usize)> {
        let mut bytes = LoopbackBytes::default();
        let (length, fds) = message::receive(socket.as_fd(), &mut bytes).ok()?;
        (length == 4).then_some((bytes, fds.len()))
    }

    #[test]
    fn a_request_goes_to_the_cell_that_announced_the_port_and_to_no_other() {
        let mut switch = LoopbackSwitch::default();
        let cells: Vec<OwnedFd> = (0..3)
            .map(|cell| {
                let (ours, theirs) = message::pair().unwrap();
                switch.add(cell, ours);
                theirs
            })
            .collect();
        let line = LoopbackLine::new(cells[0].try_clone().unwrap());
        line.announce(80);
        switch.serve();
        let request = encode(CONNECT, Families::V6, 80);
        let send = |cell: usize, bytes: &[u8]| {
            let fds = [cells[1].as_fd(), cells[2].as_fd()];
            message::send(cells[cell].as_fd(), bytes, &fds).unwrap();
        };
        send(1, &request);
        send(2, &encode(CONNECT, Families::V4, 81));
        switch.serve();
        assert_eq!(receive(&cells[0]), Some((request, 2)));
        assert_eq!((receive(&cells[1]), receive(&cells[2])), (None, None));
        // Its own request does not come back, and after its end nothing comes.
        send(0, &request);
        switch.serve();
        assert_eq!(receive(&cells[0]), None);
        line.end();
        switch.serve();
        send(1, &request);
        switch.serve();
        assert_eq!(receive(&cells[0]), None);
        // Whoever sends something else is not served any more.
        send(1, b"what");
        switch.serve();
        assert_eq!(switch.descriptors().count(), 2);
        switch.remove(0);
        assert_eq!(switch.descriptors().count(), 1);
    }

    #[test]
    fn a_request_from_outside_is_for_a_connection_alone() {
        use broker_protocol::gateway::published_request;
        for v6 in [false, true] {
            let request = LoopbackRequest::decode(published_request(0x1234, v6)).unwrap();
            assert_eq!((request.port(), request.is_v6()), (0x1234, v6));
        }
        for kind in [LISTENS, ENDS] {
            assert_eq!(
                LoopbackRequest::decode(encode(kind, Families::V4, 80)),
                None
            );
        }
        let (ours, theirs) = message::pair().unwrap();
        let mut switch = LoopbackSwitch::default();
        switch.add(7, ours);
        let fds = [message::pair().unwrap().0, message::pair().unwrap().0];
        let request = LoopbackRequest::decode(published_request(80, false)).unwrap();
        switch.forward(request, &fds);
        assert_eq!(receive(&theirs), None, "nobody listens");
        LoopbackLine::new(theirs.try_clone().unwrap()).announce(80);
        switch.serve();
        switch.forward(request, &fds);
        assert_eq!(receive(&theirs), Some((published_request(80, false), 2)));
    }

    #[test]
    fn messages_are_read_back() {
        for families in [Families::V4, Families::V6, Families::Both] {
            let bytes = encode(CONNECT, families, 0x1234);
            assert_eq!(decode(bytes), Some((CONNECT, families, 0x1234)));
        }
        assert_eq!(decode([CONNECT, 5, 0, 0]), None);
    }
}
