//! Attacks through sockets. A connection counts when the peer has answered through it.

use crate::outcome::{Outcome, denied, number};
use crate::sys;
use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

pub fn attack(words: &[&str]) -> Option<Outcome> {
    Some(match *words {
        ["connect", "tcp", address] => tcp(address),
        ["connect", "mptcp", address] => mptcp(address),
        ["connect", "fast", address] => fast(address, sys::send_to),
        ["connect", "fast-message", address] => fast(address, sys::send_message),
        ["connect", "fast-later", address] => fast(address, |socket, address, bytes| {
            sys::connect_with_data(socket)?;
            sys::connect_v4(socket, address)?;
            sys::send(socket, bytes)
        }),
        ["connect", "again", address] => connect_twice(address),
        ["connect", "racing", address] => racing(address),
        ["connect", "udp", address] => udp(address),
        ["connect", "unix", path] => unix(UnixAddr::from_pathname(path)),
        ["connect", "abstract", name] => unix(UnixAddr::from_abstract_name(name)),
        ["connect", "abstract-datagram", name] => datagram(name),
        ["socket", family, kind, protocol] => socket(family, kind, protocol),
        _ => return None,
    })
}

fn tcp(address: &str) -> Outcome {
    exchange(TcpStream::connect_timeout(&parsed(address)?, PATIENCE)?)
}

fn mptcp(address: &str) -> Outcome {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_MPTCP)?;
    sys::connect_v4(&socket, v4(address)?)?;
    exchange(TcpStream::from(socket))
}

/// The first bytes go out with the request for a connection, which may be in no call named `connect`.
fn fast(address: &str, send: fn(&OwnedFd, SocketAddrV4, &[u8]) -> std::io::Result<()>) -> Outcome {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
    send(&socket, v4(address)?, b"attack\n")?;
    hear(TcpStream::from(socket))
}

/// A socket that was connected to a server of the attacker's own, and is then connected elsewhere.
fn connect_twice(address: &str) -> Outcome {
    let own = TcpListener::bind("127.0.0.1:0")?;
    let socket = OwnedFd::from(TcpStream::connect(own.local_addr()?)?);
    sys::disconnect(&socket)?;
    sys::connect_v4(&socket, v4(address)?)?;
    exchange(TcpStream::from(socket))
}

/// Connects to a server of the attacker's own, by an address that a thread changes all the time.
fn racing(address: &str) -> Outcome {
    let own = TcpListener::bind("127.0.0.1:0")?;
    own.set_nonblocking(true)?;
    let (ours, theirs) = (v4(&own.local_addr()?.to_string())?, v4(address)?);
    sys::while_changing(ours, theirs, &mut |raced| {
        let mut last = denied("it never went there");
        for _ in 0..2000 {
            let socket = sys::socket(libc::AF_INET, libc::SOCK_STREAM, 0)?;
            match raced
                .connect(&socket)
                .and_then(|()| TcpStream::from(socket).peer_addr())
            {
                Ok(peer) if peer == theirs.into() => return tcp(address),
                Ok(_) => drop(own.accept()),
                Err(error) => last = error,
            }
        }
        Err(last)
    })
}

fn exchange(mut stream: TcpStream) -> Outcome {
    stream.write_all(b"attack\n")?;
    hear(stream)
}

fn hear(mut stream: TcpStream) -> Outcome {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buffer = [0; 64];
    heard(stream.read(&mut buffer)?, &buffer)
}

fn v4(address: &str) -> std::io::Result<SocketAddrV4> {
    match parsed(address)? {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(denied("an IPv4 address, please")),
    }
}

fn udp(address: &str) -> Outcome {
    let address = parsed(address)?;
    let socket = UdpSocket::bind(if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    })?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    socket.send_to(b"attack\n", address)?;
    let mut buffer = [0; 64];
    heard(socket.recv(&mut buffer)?, &buffer)
}

fn unix(address: std::io::Result<UnixAddr>) -> Outcome {
    let mut stream = UnixStream::connect_addr(&address?)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"attack\n")?;
    let mut buffer = [0; 64];
    heard(stream.read(&mut buffer)?, &buffer)
}

/// A datagram has no answer without an address of our own; that the kernel took it is all there is to see here.
fn datagram(name: &str) -> Outcome {
    let socket = UnixDatagram::unbound()?;
    socket.send_to_addr(b"attack\n", &UnixAddr::from_abstract_name(name)?)?;
    Ok("sent".into())
}

fn socket(family: &str, kind: &str, protocol: &str) -> Outcome {
    sys::socket(
        number(family)? as i32,
        number(kind)? as i32,
        number(protocol)? as i32,
    )?;
    Ok("a socket".into())
}

fn heard(length: usize, buffer: &[u8]) -> Outcome {
    if length == 0 {
        Err(denied("no answer"))
    } else {
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

fn parsed(address: &str) -> std::io::Result<SocketAddr> {
    address.parse().map_err(std::io::Error::other)
}
