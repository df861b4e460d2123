//! The addresses of connected sockets of which there is no copy, from the kernel's table of all sockets (`/proc/net/tcp`).

use crate::tcp::SocketName;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum bytes of a table that are read.
const TABLE_MAX: u64 = 8 << 20;

/// The family of the TCP socket with this inode, and its name or its peer's.
pub fn name(inode: u64, peer: bool) -> Option<(i32, SocketName)> {
    let tables = [("/proc/net/tcp", libc::AF_INET), ("/proc/net/tcp6", libc::AF_INET6)];
    tables.into_iter().find_map(|(path, family)| {
        let table = BufReader::new(File::open(path).ok()?.take(TABLE_MAX));
        let found = table.lines().map_while(Result::ok).find_map(|row| find(&row, inode, peer))?;
        Some((family, found))
    })
}

/// The name in a row (`man 5 proc_pid_net`), if that is this socket's.
fn find(row: &str, inode: u64, peer: bool) -> Option<SocketName> {
    let mut fields = row.split_whitespace();
    let address = fields.nth(if peer { 2 } else { 1 })?;
    let found = fields.nth(if peer { 6 } else { 7 })?;
    if found.parse() != Ok(inode) {
        return None;
    }
    let (ip, port) = address.split_once(':')?;
    Some(SocketName { ip: ip_of(ip)?, port: u16::from_str_radix(port, 16).ok()? })
}

/// An address as the table has it: in words of this machine's byte order.
fn ip_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(text.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::inode;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    #[test]
    fn a_connected_socket_is_found_with_both_its_names() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let names = [socket.local_addr().unwrap(), socket.peer_addr().unwrap()];
            let inode = inode(&OwnedFd::from(socket.try_clone().unwrap())).unwrap();
            for (peer, want) in [false, true].into_iter().zip(names) {
                let (family, found) = name(inode, peer).unwrap();
                assert_eq!(SocketAddr::new(found.ip, found.port), want);
                assert_eq!(family == libc::AF_INET6, want.is_ipv6());
            }
        }
        assert_eq!(name(u64::MAX, false), None);
    }

    #[test]
    fn a_row_of_another_form_is_no_name() {
        for row in ["", "sl local_address", "0: zz:1 0:1 0A 0 0 0 0 0 7", "0: 0100007F 0:1 0A 0 0 0 0 0 7"] {
            assert_eq!(find(row, 7, false), None, "{row}");
        }
    }
}
