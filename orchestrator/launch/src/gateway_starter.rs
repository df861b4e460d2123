//! The process that starts gateways of cells for an executor without a network (`--socket PATH --gateway client`), from this machine's.
//!
//! Over one line, whose other end `lazaret` passes to each executor that it connects to, come sockets, and each gets a gateway that is
//! told over it what it serves. `lazaret` has that end too, for its next session; so a socket of its own is dropped: who takes it over
//! when it hears a model would have a gateway without a policy.

use crate::start::{start_cells_gateway, start_gateway_starter};
use nix::unistd::getppid;
use orchestrator_confine::Files;
use rustix::cmsg_space;
use rustix::net::sockopt::set_socket_passcred;
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
    let (theirs, ours) = line()?;
    start_gateway_starter(files, ours).map(|()| theirs)
}

/// Both ends of a line: the executor's, and that of who starts gateways, which the kernel tells who has sent.
fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (theirs, ours) = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    set_socket_passcred(&ours, true)?;
    Ok((theirs, ours))
}

/// Starts a gateway for each socket that comes over standard input, until nobody has its other end any more.
///
/// # Errors
/// Standard input is no such line.
pub(crate) fn serve(files: &Files) -> io::Result<()> {
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    let parent = getppid().as_raw();
    let mut running: Vec<Child> = Vec::new();
    while let Some(SentSocket { sender, socket }) = receive(line.as_fd())? {
        running.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        // The socket closes: who has sent it sees that there is no gateway.
        let Some(socket) = socket.filter(|_| sender != Some(parent)) else {
            continue;
        };
        if running.len() < GATEWAYS_MAX {
            running.extend(start_cells_gateway(files, &socket));
        }
    }
    Ok(())
}

struct SentSocket {
    /// The process that has sent it, by the kernel's word: 0 in another namespace of processes.
    sender: Option<i32>,
    socket: Option<OwnedFd>,
}

/// Waits for a message; `None` if no other end is left.
fn receive(line: BorrowedFd<'_>) -> io::Result<Option<SentSocket>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(line, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let (mut sender, mut socket) = (None, None);
    for message in control.drain() {
        match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => socket = sockets.next(),
            RecvAncillaryMessage::ScmCredentials(who) => sender = Some(who.pid.as_raw_pid()),
            _ => {}
        }
    }
    Ok(Some(SentSocket { sender, socket }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::IoSlice;
    use std::os::unix::net::UnixStream;

    #[test]
    fn kernel_names_who_has_sent_a_socket() {
        let (theirs, ours) = line().unwrap();
        let (sent, _) = UnixStream::pair().unwrap();
        let rights = [sent.as_fd()];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        sendmsg(
            &theirs,
            &[IoSlice::new(&[0])],
            &mut control,
            SendFlags::empty(),
        )
        .unwrap();
        let received = receive(ours.as_fd()).unwrap().unwrap();
        assert_eq!(received.sender, Some(nix::unistd::getpid().as_raw()));
        assert!(received.socket.is_some());
        drop(theirs);
        assert!(receive(ours.as_fd()).unwrap().is_none());
    }
}
