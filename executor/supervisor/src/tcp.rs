//! TCP sockets of callers, and their addresses in the kernel's form. Nothing is cached here: the
//! kernel answers each query.

use crate::object::errno;
use executor_sys::socket::{self, SocketEnd};
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};

/// A TCP socket of the caller.
pub struct TcpSocket {
    /// Our copy of the socket.
    pub socket: OwnedFd,
    /// `AF_INET` or `AF_INET6`.
    pub family: i32,
    /// The caller's copy: a process, and the descriptor number there.
    pub holder: (i32, i32),
    /// Whether copies are kept, as none can be taken.
    pub keeps: bool,
}

/// An address as programs write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketName {
    /// As it was written: possibly an IPv4 address in IPv6 form.
    pub ip: IpAddr,
    /// In the byte order of this machine.
    pub port: u16,
}

impl TcpSocket {
    /// One that the supervisor of another cell has taken from its caller.
    ///
    /// # Errors
    /// `EINVAL` if it is no TCP socket; otherwise the kernel's.
    pub fn of_another_cell(socket: OwnedFd) -> Result<Self> {
        let option = |option| number(&socket, libc::SOL_SOCKET, option);
        let family = option(libc::SO_DOMAIN)?;
        let is_tcp = matches!(family, libc::AF_INET | libc::AF_INET6)
            && option(libc::SO_TYPE)? == libc::SOCK_STREAM
            && option(libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
        let (holder, keeps) = ((0, -1), false);
        let tcp = Self {
            socket,
            family,
            holder,
            keeps,
        };
        Some(tcp).filter(|_| is_tcp).ok_or(Errno::EINVAL)
    }

    /// Whether it is an IPv6 socket that does not accept IPv4.
    pub fn is_v6_only(&self) -> Result<bool> {
        match self.family {
            libc::AF_INET6 => Ok(number(&self.socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY)? != 0),
            _ => Ok(false),
        }
    }

    /// Sets whether it is for IPv6 alone. Has no effect if that is set already, or on an IPv4 socket.
    pub fn set_v6_only(&self, only: bool) -> Result<()> {
        if self.family != libc::AF_INET6 || self.is_v6_only()? == only {
            return Ok(());
        }
        let (level, option) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY);
        socket::set_option(self.socket.as_fd(), level, option, &[i32::from(only)]).map_err(errno)
    }
}

impl SocketName {
    /// Decodes the kernel's form. Bytes beyond it are ignored, as by the kernel.
    pub fn read(of: i32, bytes: &[u8]) -> Result<Self> {
        let short = || Errno::EINVAL;
        if family(bytes).ok_or(Errno::EINVAL)? != of {
            return Err(Errno::EAFNOSUPPORT);
        }
        let port = u16::from_be_bytes(
            *bytes
                .get(2..)
                .and_then(<[u8]>::first_chunk)
                .ok_or_else(short)?,
        );
        let ip = match of {
            libc::AF_INET => {
                // The whole of `sockaddr_in`, including its unused part.
                let all: &[u8; 16] = bytes.first_chunk().ok_or_else(short)?;
                let [_, _, _, _, a, b, c, d, ..] = *all;
                Ipv4Addr::new(a, b, c, d).into()
            }
            _ => {
                let ip: &[u8; 16] = bytes
                    .get(8..)
                    .and_then(<[u8]>::first_chunk)
                    .ok_or_else(short)?;
                Ipv6Addr::from(*ip).into()
            }
        };
        Ok(Self { ip, port })
    }

    /// The name of a socket, or of its peer.
    pub fn of(tcp: &TcpSocket, end: SocketEnd) -> Result<Self> {
        Self::read(
            tcp.family,
            &socket::name(tcp.socket.as_fd(), end).map_err(errno)?,
        )
    }

    /// Encodes it in the kernel's form for a socket of this family.
    pub fn write(self, family: i32) -> Vec<u8> {
        let mut bytes = (family as u16).to_ne_bytes().to_vec();
        bytes.extend(self.port.to_be_bytes());
        match (family, self.ip) {
            (libc::AF_INET, IpAddr::V4(ip)) => {
                bytes.extend(ip.octets());
                bytes.extend([0; 8]);
            }
            (_, ip) => {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                // Flow and scope are zero: the loopback has none.
                bytes.extend([0; 4]);
                bytes.extend(ip.octets());
                bytes.extend([0; 4]);
            }
        }
        bytes
    }

    /// An address of IPv4, in either form.
    pub fn v4(&self) -> Option<Ipv4Addr> {
        match self.ip {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(ip) => ip.to_ipv4_mapped(),
        }
    }
}

/// The family of an address in the kernel's form.
pub(crate) fn family(address: &[u8]) -> Option<i32> {
    address
        .first_chunk()
        .map(|family| u16::from_ne_bytes(*family).into())
}

/// Whether a TCP socket has no handshake in progress.
pub(crate) fn is_over(socket: &OwnedFd) -> bool {
    /// `TCP_SYN_SENT` and `TCP_SYN_RECV` (`net/tcp_states.h`).
    const UNDER_WAY: [u8; 2] = [2, 3];
    state(socket).is_ok_and(|state| !UNDER_WAY.contains(&state))
}

/// Whether it is a TCP socket without a connection: a handshake that has begun was refused.
pub(crate) fn is_closed(socket: &OwnedFd) -> bool {
    /// `TCP_CLOSE`.
    const CLOSED: u8 = 7;
    state(socket) == Ok(CLOSED)
}

fn state(socket: &OwnedFd) -> Result<u8> {
    // The first byte of `struct tcp_info` is the state.
    number(socket, libc::IPPROTO_TCP, libc::TCP_INFO).map(|info| info.to_ne_bytes()[0])
}

/// An option of a socket that is a number.
pub(crate) fn number(socket: &OwnedFd, level: i32, option: i32) -> Result<i32> {
    socket::option(socket.as_fd(), level, option).map_err(errno)
}

/// The inode, which identifies a socket in any process.
pub(crate) fn inode(socket: &OwnedFd) -> Result<u64> {
    Ok(fstat(socket)?.st_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_kernel_reads_them_and_written_back() {
        for (family, ip) in [
            (libc::AF_INET, "127.0.0.1"),
            (libc::AF_INET6, "::1"),
            (libc::AF_INET6, "::ffff:127.0.0.1"),
        ] {
            let name = SocketName {
                ip: ip.parse().unwrap(),
                port: 80,
            };
            let mut bytes = name.write(family);
            assert_eq!(SocketName::read(family, &bytes), Ok(name));
            bytes.extend([7; 100]);
            assert_eq!(SocketName::read(family, &bytes), Ok(name), "a longer one");
            let shortest = if family == libc::AF_INET { 16 } else { 24 };
            assert_eq!(SocketName::read(family, &bytes[..shortest]), Ok(name));
            for length in 0..shortest {
                assert_eq!(
                    SocketName::read(family, &bytes[..length]),
                    Err(Errno::EINVAL),
                    "{length} bytes"
                );
            }
            assert_eq!(
                SocketName::read(libc::AF_UNSPEC, &bytes),
                Err(Errno::EAFNOSUPPORT)
            );
        }
    }
}
