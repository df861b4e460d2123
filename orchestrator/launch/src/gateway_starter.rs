//! The process that starts gateways of cells for an executor without a network (`--socket PATH --gateway client`), from this machine's.
//!
//! Over one line, whose other end `lazaret` passes to each executor that it connects to, come sockets, and each gets a gateway that is
//! told over it what it serves. `lazaret` has that end too, for its next session; so a socket that it has made is dropped: who takes it
//! over when it hears a model would have a gateway without a policy. The maker of a socket is the kernel's word; a sender may state
//! another process if it is root's.

use crate::start::{start_cells_gateway, start_gateway_starter};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use orchestrator_confine::Files;
use rustix::cmsg_space;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
    recvmsg, socketpair,
};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;

/// Maximum number of gateways at a time: those of some sessions, and their successors.
const GATEWAYS_MAX: usize = 64;

/// Starts the process. Returns the end of its line for executors.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn begin(files: &Files) -> io::Result<OwnedFd> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (theirs, ours) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    start_gateway_starter(files, ours).map(|()| theirs)
}

/// Starts a gateway for each socket that comes over standard input, until nobody has its other end any more, or `lazaret` has ended.
///
/// # Errors
/// Standard input is no such line.
pub(crate) fn serve(files: &Files) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let parent = getppid().as_raw();
    let mut running: Vec<Child> = Vec::new();
    while let Some(socket) = receive(line.as_fd())? {
        running.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        // It closes: who has sent it sees that there is no gateway.
        let Some(socket) = socket.filter(|socket| is_of_another(socket, parent)) else {
            continue;
        };
        if running.len() < GATEWAYS_MAX {
            running.extend(start_cells_gateway(files, &socket));
        }
    }
    Ok(())
}

/// Whether another process than `maker` has made it, which may be one in another namespace of processes.
fn is_of_another(socket: &OwnedFd, maker: i32) -> bool {
    socket_peercred(socket).is_ok_and(|peer| peer.pid.as_raw_pid() != maker)
}

/// Waits for a message, which should carry a socket; `None` if no other end is left.
fn receive(line: BorrowedFd<'_>) -> io::Result<Option<Option<OwnedFd>>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(line, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    Ok(Some(rights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::process;

    #[test]
    fn kernel_names_who_has_made_a_socket() {
        let (ours, _) = UnixStream::pair().unwrap();
        let own = i32::try_from(process::id()).unwrap();
        assert!(!is_of_another(&ours.into(), own));
        let (others, _) = UnixStream::pair().unwrap();
        assert!(is_of_another(&others.into(), own + 1), "the control");
        let (pipe, _) = io::pipe().unwrap();
        assert!(!is_of_another(&pipe.into(), own + 1));
    }
}
