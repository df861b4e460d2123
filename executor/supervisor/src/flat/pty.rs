//! Pseudo-terminals for the programs of a session without mounts of its own: their terminals are among the machine's.
//!
//! No cell has access to `/dev/pts`, not even its first process. That process requests here a new terminal,
//! or the slave's end of one it received. A terminal is identified by an `O_PATH` descriptor of its slave,
//! which leads to that terminal and never to another with its number, and keeps no end of it open.

use executor_sys::{file, message};
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::posix_openpt;
use nix::sys::stat::{Mode, fstat};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Maximum number of terminals that the programs of a session have open at one time.
const TERMINALS_MAX: usize = 256;
/// Milliseconds within which the warden must answer.
const TIMEOUT_MS: u16 = 2000;

const FLAGS: OFlag = OFlag::O_RDWR.union(OFlag::O_NOCTTY).union(OFlag::O_CLOEXEC);
/// Requests a new terminal; any other number requests the slave's end of that terminal.
const NEW: u32 = 0;

pub struct PtyMaker {
    /// Readable when a cell has sent a request.
    pub socket: OwnedFd,
    made: Vec<(u32, OwnedFd)>,
    last: u32,
}

impl PtyMaker {
    /// Creates both sides.
    ///
    /// # Errors
    /// The kernel's (`socketpair`).
    pub fn new() -> io::Result<(Self, PtyClient)> {
        let (socket, cells) = message::pair()?;
        Ok((
            Self {
                socket,
                made: Vec::new(),
                last: NEW,
            },
            PtyClient(cells),
        ))
    }

    /// Answers one request, on the socket that came with it. A failure is answered without descriptors.
    pub fn answer(&mut self) {
        let mut number = [0; 4];
        let Ok((_, fds)) = message::receive(self.socket.as_fd(), &mut number) else {
            return;
        };
        let [back] = fds.as_slice() else { return };
        let (id, ends) = match u32::from_le_bytes(number) {
            NEW => self.make().unwrap_or_default(),
            id => (id, self.slave(id).into_iter().collect()),
        };
        let ends: Vec<BorrowedFd> = ends.iter().map(AsFd::as_fd).collect();
        // The process that asked may be gone.
        let _ = message::send(back.as_fd(), &id.to_le_bytes(), &ends);
    }

    /// Makes a terminal: its number, master and slave.
    fn make(&mut self) -> io::Result<(u32, Vec<OwnedFd>)> {
        self.made
            .retain(|(_, slave)| fstat(slave).is_ok_and(|stat| stat.st_nlink > 0));
        if self.made.len() >= TERMINALS_MAX || !machine_has_enough()? {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let master = OwnedFd::from(posix_openpt(FLAGS)?);
        let slave = file::slave_path(master.as_fd())?;
        self.last += 1;
        self.made.push((self.last, slave.try_clone()?));
        Ok((self.last, vec![master, slave]))
    }

    fn slave(&self, id: u32) -> Option<OwnedFd> {
        let (_, path) = self.made.iter().find(|(made, _)| *made == id)?;
        open(
            format!("/proc/self/fd/{}", path.as_raw_fd()).as_str(),
            FLAGS,
            Mode::empty(),
        )
        .ok()
    }
}

/// Whether half of the terminals that the machine allows are free: cells must not keep its users from a terminal.
fn machine_has_enough() -> io::Result<bool> {
    let figure = |name: &str| -> io::Result<u32> {
        let text = fs::read_to_string(format!("/proc/sys/kernel/pty/{name}"))?;
        text.trim().parse().map_err(io::Error::other)
    };
    Ok(figure("nr")? < figure("max")? / 2)
}

pub struct PtyClient(OwnedFd);

impl PtyClient {
    /// The descriptor that the cell must keep open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Requests a new terminal: its number, master, and a path descriptor of its slave.
    ///
    /// # Errors
    /// `ENOSPC` if there are too many; otherwise the kernel's.
    pub fn make(&self) -> io::Result<(u32, OwnedFd, OwnedFd)> {
        let (id, ends) = self.ask(NEW)?;
        let [master, slave] = <[OwnedFd; 2]>::try_from(ends).map_err(|_| no_space())?;
        Ok((id, master, slave))
    }

    /// Requests the slave's end of a terminal.
    ///
    /// # Errors
    /// `EIO` if it is gone; otherwise the kernel's.
    pub fn slave(&self, id: u32) -> io::Result<OwnedFd> {
        let (_, ends) = self.ask(id)?;
        ends.into_iter()
            .next()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EIO))
    }

    fn ask(&self, id: u32) -> io::Result<(u32, Vec<OwnedFd>)> {
        let (ours, theirs) = message::pair()?;
        message::send_waiting(self.0.as_fd(), &id.to_le_bytes(), &[theirs.as_fd()])?;
        drop(theirs);
        poll(
            &mut [PollFd::new(ours.as_fd(), PollFlags::POLLIN)],
            PollTimeout::from(TIMEOUT_MS),
        )?;
        let mut number = [0; 4];
        let (_, ends) = message::receive(ours.as_fd(), &mut number)?;
        Ok((u32::from_le_bytes(number), ends))
    }
}

fn no_space() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOSPC)
}
