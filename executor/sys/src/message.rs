//! Messages with descriptors, on sockets that preserve message boundaries.

use crate::errno::check;
use libc::{c_int, c_long, c_uint};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Maximum number of descriptors in one message: a file worker gets those of seven namespaces, and two more.
pub(crate) const FDS_MAX: usize = 9;

/// Two connected sockets.
///
/// # Errors
/// The kernel's (`socketpair`).
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?)
}

/// Sends a message if the peer accepts it now.
///
/// # Errors
/// `WouldBlock` if it does not; otherwise the kernel's (`sendmsg`).
pub fn send(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<()> {
    send_with(socket, bytes, fds, MsgFlags::MSG_DONTWAIT)
}

/// Sends a message, blocking until the peer accepts it. Not for the broker, which never blocks.
///
/// # Errors
/// The kernel's (`sendmsg`).
pub fn send_waiting(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<()> {
    send_with(socket, bytes, fds, MsgFlags::empty())
}

fn send_with(
    socket: BorrowedFd,
    bytes: &[u8],
    fds: &[BorrowedFd],
    flags: MsgFlags,
) -> io::Result<()> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let parts = [io::IoSlice::new(bytes)];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &parts,
        control,
        MsgFlags::MSG_NOSIGNAL | flags,
        None,
    )?;
    Ok(())
}

/// Receives a message into `buffer`, if there is one: its length and descriptors. Length zero means that the peer is gone.
///
/// # Errors
/// `WouldBlock` if there is none; `EMSGSIZE` if it had more bytes or descriptors than fit; those received are closed.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(socket, buffer, libc::MSG_DONTWAIT)
}

/// Waits for a message, and receives it.
///
/// # Errors
/// As for [`receive`].
pub fn receive_waiting(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(socket, buffer, 0)
}

fn receive_with(
    socket: BorrowedFd,
    buffer: &mut [u8],
    flags: c_int,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    const CONTROL: usize = 64;
    let mut control = [0u64; CONTROL / 8];
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: a msghdr of zeros is valid; every pointer in it lives for the call. The control buffer is aligned for
    // cmsghdr and has room for FDS_MAX descriptors.
    unsafe {
        let mut header = std::mem::zeroed::<libc::msghdr>();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE((FDS_MAX * size_of::<RawFd>()) as c_uint) as _;
        let bytes = check(libc::recvmsg(
            socket.as_raw_fd(),
            &mut header,
            flags | libc::MSG_CMSG_CLOEXEC,
        ) as c_long)?;
        let fds = take_fds(&header);
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        Ok((bytes as usize, fds))
    }
}

/// Takes ownership of every descriptor that came with a message.
///
/// # Safety
/// `header` was filled by `recvmsg`, and this is called once for it.
unsafe fn take_fds(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the CMSG macros walk the control buffer that the kernel filled; each descriptor in it is new.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS
            {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let count = ((*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize)
                    / size_of::<RawFd>();
                fds.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    fds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_message_has_as_many_descriptors_as_fit_and_no_more() {
        let (near, far) = pair().unwrap();
        let fds = |count| vec![near.as_fd(); count];
        send(near.as_fd(), b"x", &fds(FDS_MAX)).unwrap();
        let (length, got) = receive(far.as_fd(), &mut [0; 4]).unwrap();
        assert_eq!((length, got.len()), (1, FDS_MAX));
        send(near.as_fd(), b"x", &fds(FDS_MAX + 3)).unwrap();
        let error = receive(far.as_fd(), &mut [0; 4]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        send(near.as_fd(), b"12345", &[]).unwrap();
        assert!(receive(far.as_fd(), &mut [0; 4]).is_err());
    }

    #[test]
    fn a_peer_that_takes_nothing_does_not_make_the_sender_wait() {
        let (near, far) = pair().unwrap();
        let refused = (0..100_000).find_map(|_| send(near.as_fd(), &[0; 1024], &[]).err());
        assert_eq!(
            refused.map(|error| error.kind()),
            Some(io::ErrorKind::WouldBlock)
        );
        assert!(
            receive(near.as_fd(), &mut [0])
                .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        );
        drop(far);
        assert!(send(near.as_fd(), b"x", &[]).is_err());
    }
}
