//! Sockets with addresses in the kernel's form.

use crate::errno::{check, new_fd};
use libc::{c_char, c_int};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Makes a socket, which is close-on-exec here whatever `kind` says.
///
/// # Errors
/// The kernel's (`socket`).
pub fn make(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes numbers only; the descriptor is new and nobody else's.
    unsafe { new_fd(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol).into()) }
}

/// Binds a socket.
///
/// # Errors
/// The kernel's (`bind`).
pub fn bind(socket: BorrowedFd, address: &[u8]) -> io::Result<()> {
    let length = address.len() as libc::socklen_t;
    // SAFETY: the address is given with its length and lives for the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) }.into())
        .map(drop)
}

/// Connects a socket.
///
/// # Errors
/// The kernel's (`connect`).
pub fn connect(socket: BorrowedFd, address: &[u8]) -> io::Result<()> {
    let length = address.len() as libc::socklen_t;
    // SAFETY: the address is given with its length and lives for the call.
    check(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) }.into())
        .map(drop)
}

/// Makes a socket listen.
///
/// # Errors
/// The kernel's (`listen`).
pub fn listen(socket: BorrowedFd, backlog: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }.into()).map(drop)
}

/// An end of a connection, as one of its sockets sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketEnd {
    Own,
    Peer,
}

/// The address of a socket, or of its peer.
///
/// # Errors
/// The kernel's (`getsockname`, `getpeername`).
pub fn name(socket: BorrowedFd, end: SocketEnd) -> io::Result<Vec<u8>> {
    let mut name = vec![0u8; size_of::<libc::sockaddr_storage>()];
    let mut length = name.len() as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), name.as_mut_ptr().cast());
    // SAFETY: the buffer is given with its length, and both live for the call.
    let result = unsafe {
        match end {
            SocketEnd::Peer => libc::getpeername(fd, to, &mut length),
            SocketEnd::Own => libc::getsockname(fd, to, &mut length),
        }
    };
    check(result.into())?;
    name.truncate(length as usize);
    Ok(name)
}

/// An option that is one number.
///
/// # Errors
/// The kernel's (`getsockopt`).
pub fn option(socket: BorrowedFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: the number is given with its size and lives for the call.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &mut length) }.into())?;
    Ok(value)
}

/// Sets an option to some numbers.
///
/// # Errors
/// The kernel's (`setsockopt`).
pub fn set_option(
    socket: BorrowedFd,
    level: c_int,
    name: c_int,
    value: &[c_int],
) -> io::Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the numbers are given with their size and live for the call.
    check(
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                value.as_ptr().cast(),
                length,
            )
        }
        .into(),
    )
    .map(drop)
}

/// Brings up the loopback interface of this process's network namespace.
///
/// # Errors
/// The kernel's (`SIOCSIFFLAGS`).
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: a socket is created and owned; ifreq of zeros is valid, and its name ends with a NUL.
    unsafe {
        let socket =
            new_fd(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let mut request = std::mem::zeroed::<libc::ifreq>();
        request.ifr_name[0] = b'l' as c_char;
        request.ifr_name[1] = b'o' as c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request).into()).map(drop)
    }
}

/// Gives the loopback interface of this process's network namespace one more address, and no other of its network: the kernel would
/// count all of them as this machine's.
///
/// # Errors
/// The kernel's (`RTM_NEWADDR`).
pub fn add_to_loopback(address: Ipv4Addr) -> io::Result<()> {
    /// The index of the loopback in every network namespace.
    const INDEX: u32 = 1;
    let attribute = |kind: u16| {
        let head = [8_u16.to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&head[..], &address.octets()].concat()
    };
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    // `struct nlmsghdr`, `struct ifaddrmsg`, two attributes.
    let request = [
        &40_u32.to_ne_bytes()[..],
        &libc::RTM_NEWADDR.to_ne_bytes(),
        &(flags as u16).to_ne_bytes(),
        &[0; 8],
        &[libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_HOST],
        &INDEX.to_ne_bytes(),
        &attribute(libc::IFA_LOCAL),
        &attribute(libc::IFA_ADDRESS),
    ]
    .concat();
    let kernel = make(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let mut answer = [0_u8; 64];
    // SAFETY: both buffers are given with their lengths and live for the calls.
    let length = unsafe {
        let (fd, length) = (kernel.as_raw_fd(), request.len());
        check(libc::send(fd, request.as_ptr().cast(), length, 0) as libc::c_long)?;
        check(libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0) as libc::c_long)?
    };
    // `struct nlmsgerr` begins with the error, negative, or 0.
    let error = answer
        .get(..length as usize)
        .and_then(|answer| answer.get(16..20));
    match error.and_then(|error| error.first_chunk()) {
        Some([0, 0, 0, 0]) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-i32::from_ne_bytes(*error))),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
