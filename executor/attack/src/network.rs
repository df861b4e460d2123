//! Attacks on the network of the machine: the bystander listens on its loopback and on two Unix sockets.

use crate::fixture;
use crate::sys;
use crate::targets::Targets;
use std::io;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

/// How long the bystander has to answer on its loopback.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn tcp(targets: &Targets) -> io::Result<()> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, targets.tcp)).map(drop)
}

/// A message may be sent into a network where nobody listens: only an answer counts.
pub(crate) fn udp(targets: &Targets) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, targets.udp))?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    socket.send(b"?")?;
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer)?;
    targets.expect_secret(&answer[..length])
}

/// Landlock's TCP rights do not cover MPTCP.
pub(crate) fn mptcp(_: &Targets) -> io::Result<()> {
    sys::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)
}

pub(crate) fn vsock(_: &Targets) -> io::Result<()> {
    sys::socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)
}

pub(crate) fn abstract_socket(targets: &Targets) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(fixture::abstract_name(&targets.outside))?;
    UnixStream::connect_addr(&address).map(drop)
}

/// By its whole path, unless that is too long for an address.
pub(crate) fn socket_file(targets: &Targets) -> io::Result<()> {
    let address = match SocketAddr::from_pathname(targets.outside.join(fixture::SOCKET)) {
        Ok(address) => address,
        Err(_) => {
            std::env::set_current_dir(&targets.outside)?;
            SocketAddr::from_pathname(fixture::SOCKET)?
        }
    };
    UnixStream::connect_addr(&address).map(drop)
}
