//! Whose process is at the other end of a connection on this machine's loopback, by the kernel's lists of TCP sockets.
//!
//! They are opened before this program is confined, which opens no file of that place later, and read anew for each connection.

use rustix::process::getuid;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum bytes of a list that are read: a line has 150.
const LIST_MAX: u64 = 16 << 20;

/// The lists of this machine's TCP sockets, and the user whose connections are served.
#[derive(Debug)]
pub struct Owners {
    lists: Vec<File>,
    user: u32,
}

impl Owners {
    /// Opens the lists. Without IPv6 there is one.
    ///
    /// # Errors
    /// There is none: then nobody could be served.
    #[expect(
        clippy::disallowed_methods,
        reason = "before this process is confined, and no file of anybody's"
    )]
    pub fn open() -> io::Result<Self> {
        let mut lists = vec![File::open("/proc/self/net/tcp")?];
        lists.extend(File::open("/proc/self/net/tcp6").ok());
        let user = getuid().as_raw();
        Ok(Self { lists, user })
    }

    /// Whether the connection from `peer` to our `local` is by a process of our user, which has its end open. What cannot be found is
    /// not: a socket that is closed already belongs to nobody.
    pub fn is_own(&self, peer: SocketAddr, local: SocketAddr) -> bool {
        let ends = [(peer, local), (mapped(peer), mapped(local))];
        let lines = ends.map(|(one, other)| format!("{} {} ", written(one), written(other)));
        // While sockets come and go a list may leave one out: it is looked for twice.
        let owner = self.owner(&lines).or_else(|| self.owner(&lines));
        owner == Some(self.user)
    }

    fn owner(&self, ends: &[String; 2]) -> Option<u32> {
        self.lists.iter().find_map(|list| {
            let text = read(list).ok()?;
            let is_one = |line: &&str| ends.iter().any(|ends| line.contains(ends));
            text.lines().find(is_one).and_then(owner)
        })
    }
}

/// The user of a line, if a process has the socket open.
fn owner(line: &str) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(7);
    let user = fields.next()?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    (inode != 0).then_some(user)
}

fn read(mut list: &File) -> io::Result<String> {
    let mut text = String::new();
    list.rewind()?;
    list.take(LIST_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The IPv6 form of an address of IPv4, as a socket of IPv6 has it.
fn mapped(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    (ip, address.port()).into()
}

/// An address as the lists have it: words in the machine's byte order.
fn written(address: SocketAddr) -> String {
    let words = |octets: &[u8]| -> String {
        let word = |bytes: &[u8; 4]| format!("{:08X}", u32::from_ne_bytes(*bytes));
        octets.as_chunks().0.iter().map(word).collect()
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => words(&Ipv4Addr::octets(&ip)),
        IpAddr::V6(ip) => words(&Ipv6Addr::octets(&ip)),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_of_its_user_while_it_is_open() {
        for (at, to) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("127.0.0.1", "::ffff:127.0.0.1"),
        ] {
            let listener = TcpListener::bind((at, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect((to, port)).unwrap();
            let (served, peer) = listener.accept().unwrap();
            let local = served.local_addr().unwrap();
            let owners = Owners::open().unwrap();
            assert!(owners.is_own(peer, local), "{to}");
            assert!(!owners.is_own(local, local), "{to}: no such connection");
            let others = Owners {
                user: owners.user + 1,
                ..Owners::open().unwrap()
            };
            assert!(!others.is_own(peer, local), "{to}: another user");
            drop(client);
            assert!(!owners.is_own(peer, local), "{to}: nobody has it");
        }
    }
}
