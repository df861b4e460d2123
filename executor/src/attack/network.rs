//! Attacks on the network of the machine: the bystander listens on its loopback and on two Unix sockets.

use super::{Targets, is_secret, scene};
use crate::sys;
use std::io;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::Duration;

/// How long the bystander may take to answer on its loopback.
const ANSWER: Duration = Duration::from_millis(500);

pub fn tcp(targets: &Targets) -> io::Result<()> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, targets.tcp)).map(drop)
}

/// A message may be sent into a network where nobody is: only an answer counts.
pub fn udp(targets: &Targets) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.connect((Ipv4Addr::LOCALHOST, targets.udp))?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.send(b"?")?;
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer)?;
    is_secret(targets, &answer[..length])
}

/// Landlock's TCP rights do not see it.
pub fn mptcp(_: &Targets) -> io::Result<()> {
    Ok(sys::try_socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?)
}

pub fn vsock(_: &Targets) -> io::Result<()> {
    Ok(sys::try_socket(libc::AF_VSOCK, libc::SOCK_STREAM, 0)?)
}

pub fn abstract_socket(targets: &Targets) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(scene::abstract_name(&targets.outside))?;
    UnixStream::connect_addr(&address).map(drop)
}

pub fn socket_file(targets: &Targets) -> io::Result<()> {
    UnixStream::connect(Path::new(&targets.outside).join(scene::SOCKET)).map(drop)
}
