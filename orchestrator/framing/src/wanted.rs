//! Parses a program's request to the relay: the head of an HTTP proxy request, or the two messages of SOCKS 5 (RFC 1928). Pure:
//! bytes in, a place out.

use httparse::{EMPTY_HEADER, Header, Status};
use orchestrator_reach::place::{Place, PlaceError};
use std::net::{Ipv4Addr, Ipv6Addr};
use thiserror::Error;

/// Maximum bytes of a request's head.
pub const HEAD_MAX: usize = 16 * 1024;
/// Maximum number of a request's headers.
const HEADERS_MAX: usize = 100;

/// Headers for the next hop only, and those that programs send to proxies.
const FOR_THE_RELAY: [&str; 8] = [
    "connection",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "keep-alive",
    "te",
    "upgrade",
    "host",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedConnection {
    pub place: Place,
    /// The first bytes for the host: for a plain request its head, as the host expects it.
    pub first: Vec<u8>,
    /// Whether the program waits for a confirmation that the connection exists.
    pub tunnel: bool,
}

/// Why a request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WantedError {
    #[error("the request is not one of HTTP/1.1")]
    NotHttp,
    #[error("the head of the request has more than {HEAD_MAX} bytes or {HEADERS_MAX} headers")]
    TooLong,
    #[error("send CONNECT, or a full URL that begins with http://")]
    NotForProxy,
    #[error("{0}")]
    Place(#[from] PlaceError),
}

/// Parses a request to an HTTP proxy; returns it with its length, or `None` if it is incomplete.
///
/// # Errors
/// If it cannot become a valid request.
pub fn http(bytes: &[u8]) -> Result<Option<(RequestedConnection, usize)>, WantedError> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) if length <= HEAD_MAX => length,
        Ok(Status::Partial) if bytes.len() < HEAD_MAX => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(WantedError::TooLong),
        Err(_) => return Err(WantedError::NotHttp),
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
    else {
        return Err(WantedError::NotHttp);
    };
    if method == "CONNECT" {
        let place = Place::parse(target, None)?;
        return Ok(Some((
            RequestedConnection {
                place,
                first: Vec::new(),
                tunnel: true,
            },
            length,
        )));
    }
    let (place, path) = absolute(target)?;
    let line = format!(
        "{method} {path} HTTP/1.{minor}\r\nHost: {}\r\n",
        authority(&place)
    );
    let first = head(line, request.headers);
    Ok(Some((
        RequestedConnection {
            place,
            first,
            tunnel: false,
        },
        length,
    )))
}

/// Whether the empty line that ends a head ends after the first `seen` bytes.
pub fn has_end(bytes: &[u8], seen: usize) -> bool {
    let new = &bytes[seen.saturating_sub(2)..];
    new.windows(2).any(|pair| pair == b"\n\n") || new.windows(3).any(|three| three == b"\n\r\n")
}

/// The place and the path of an absolute URL. The path is passed on unchanged, for the host to interpret.
fn absolute(target: &str) -> Result<(Place, String), WantedError> {
    let scheme = target
        .get(..7)
        .filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let rest = scheme
        .map(|_| &target[7..])
        .ok_or(WantedError::NotForProxy)?;
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (place, path) = (Place::parse(&rest[..end], Some(80))?, &rest[end..]);
    match path.as_bytes().first() {
        None => Ok((place, "/".to_owned())),
        Some(b'/') => Ok((place, path.to_owned())),
        Some(b'?') => Ok((place, format!("/{path}"))),
        Some(_) => Err(WantedError::NotForProxy),
    }
}

fn authority(place: &Place) -> String {
    match place.port() {
        80 => place.host().to_owned(),
        port => format!("{}:{port}", place.host()),
    }
}

/// The head for the host. One request per connection: a further one would reach the same host without being parsed.
fn head(line: String, headers: &[Header]) -> Vec<u8> {
    let is = |header: &Header, name: &str| header.name.eq_ignore_ascii_case(name);
    let connection = headers.iter().filter(|header| is(header, "connection"));
    let named: Vec<&[u8]> = connection
        .flat_map(|header| header.value.split(|byte| *byte == b','))
        .collect();
    let is_named = |header: &Header| {
        named.iter().any(|name| {
            name.trim_ascii()
                .eq_ignore_ascii_case(header.name.as_bytes())
        })
    };
    let mut head = line.into_bytes();
    for header in headers {
        // Headers that frame the body are for the host, even if the program declares them hop-by-hop.
        let frames = is(header, "content-length") || is(header, "transfer-encoding");
        if FOR_THE_RELAY.iter().any(|name| is(header, name)) || (is_named(header) && !frames) {
            continue;
        }
        head.extend([header.name.as_bytes(), b": ", header.value, b"\r\n"].concat());
    }
    head.extend_from_slice(b"Connection: close\r\n\r\n");
    head
}

/// Why a SOCKS 5 message is refused, with the number of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SocksError {
    /// General failure: the message is malformed.
    Malformed = 1,
    /// Not `CONNECT`: the program wants UDP, or wants to accept connections.
    Command = 7,
    /// An address of unknown type.
    Address = 8,
}

/// Parses a greeting: whether the client offers to go without a password, and the greeting's length.
pub fn socks_greeting(bytes: &[u8]) -> Option<(bool, usize)> {
    let [_, count, methods @ ..] = bytes else {
        return None;
    };
    let count = usize::from(*count);
    let methods = methods.get(..count)?;
    Some((methods.contains(&0), 2 + count))
}

/// Parses a request; returns it with its length, or `None` if it is incomplete.
///
/// # Errors
/// The reply to the invalid request.
pub fn socks_request(bytes: &[u8]) -> Result<Option<(Place, usize)>, SocksError> {
    let [5, command, 0, kind, rest @ ..] = bytes else {
        return if bytes.len() < 4 {
            Ok(None)
        } else {
            Err(SocksError::Malformed)
        };
    };
    if *command != 1 {
        return Err(SocksError::Command);
    }
    let (host, length) = match *kind {
        1 => (
            rest.first_chunk()
                .map(|ip: &[u8; 4]| Ipv4Addr::from(*ip).to_string()),
            4,
        ),
        4 => (
            rest.first_chunk()
                .map(|ip: &[u8; 16]| format!("[{}]", Ipv6Addr::from(*ip))),
            16,
        ),
        3 => {
            let Some(length) = rest.first().map(|length| usize::from(*length)) else {
                return Ok(None);
            };
            let Some(name) = rest.get(1..=length) else {
                return Ok(None);
            };
            let name = str::from_utf8(name).map_err(|_| SocksError::Malformed)?;
            (Some(name.to_owned()), 1 + length)
        }
        _ => return Err(SocksError::Address),
    };
    let port = rest
        .get(length..length + 2)
        .and_then(|port| port.first_chunk());
    let (Some(host), Some(port)) = (host, port) else {
        return Ok(None);
    };
    let place = Place::new(&host, u16::from_be_bytes(*port)).map_err(|_| SocksError::Malformed)?;
    Ok(Some((place, 4 + length + 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(RequestedConnection, usize)>, WantedError> {
        http(text.as_bytes())
    }

    #[test]
    fn a_tunnel_is_asked_for_by_host_and_port() {
        let text = "CONNECT A.example:443 HTTP/1.1\r\nHost: b.example\r\nProxy-Authorization: Basic x\r\n\r\nrest";
        let (wanted, length) = read(text).unwrap().unwrap();
        assert_eq!(
            (wanted.place.host(), wanted.place.port(), wanted.tunnel),
            ("a.example", 443, true)
        );
        assert!(wanted.first.is_empty());
        assert_eq!(&text[length..], "rest");
        for part in 0..length {
            assert_eq!(read(&text[..part]), Ok(None), "{part}");
        }
    }

    #[test]
    fn no_host_hears_what_is_for_the_proxy() {
        let head = "GET http://a.example/ HTTP/1.1\r\nPROXY-authorization: Basic eDp5\r\n\r\n";
        let (wanted, _) = read(head).unwrap().unwrap();
        assert!(!String::from_utf8(wanted.first).unwrap().contains("eDp5"));
    }

    #[test]
    fn a_plain_request_is_made_one_for_the_host() {
        let text = "GET http://u.example:8080?q HTTP/1.1\r\nHost: other.example\r\nhost: third\r\nX-A: 1\r\n\
                    Connection: X-B, close, Content-Length\r\nX-B: 2\r\nContent-Length: 3\r\nProxy-Connection: x\r\n\r\nabc";
        let (wanted, length) = read(text).unwrap().unwrap();
        let want = "GET /?q HTTP/1.1\r\nHost: u.example:8080\r\nX-A: 1\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
        assert_eq!(String::from_utf8(wanted.first).unwrap(), want);
        assert_eq!((&text[length..], wanted.tunnel), ("abc", false));
        let (wanted, _) = read("GET HTTP://a.example HTTP/1.0\r\n\r\n")
            .unwrap()
            .unwrap();
        assert!(
            wanted
                .first
                .starts_with(b"GET / HTTP/1.0\r\nHost: a.example\r\n")
        );
        assert_eq!(wanted.place.port(), 80);
    }

    #[test]
    fn request_not_meant_for_a_proxy_is_refused() {
        for (text, want) in [
            ("GET / HTTP/1.1\r\n\r\n", WantedError::NotForProxy),
            (
                "GET https://a.example/ HTTP/1.1\r\n\r\n",
                WantedError::NotForProxy,
            ),
            (
                "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
                WantedError::NotForProxy,
            ),
            (
                "GET http://a.example#x HTTP/1.1\r\n\r\n",
                WantedError::NotForProxy,
            ),
            (
                "GET http://a.example\\@b.example/ HTTP/1.1\r\n\r\n",
                WantedError::NotForProxy,
            ),
            (
                "GET http://u@a.example/ HTTP/1.1\r\n\r\n",
                WantedError::Place(PlaceError::Host),
            ),
            (
                "CONNECT a.example HTTP/1.1\r\n\r\n",
                WantedError::Place(PlaceError::Port),
            ),
            (
                "CONNECT http://a.example:80 HTTP/1.1\r\n\r\n",
                WantedError::Place(PlaceError::Host),
            ),
            ("\u{16}\u{3}\u{1}\u{0}", WantedError::NotHttp),
            (
                "GET http://a.example/\0 HTTP/1.1\r\n\r\n",
                WantedError::NotHttp,
            ),
            (
                "CONNECT a.example:443 SMTP/1.1\r\n\r\n",
                WantedError::NotHttp,
            ),
        ] {
            assert_eq!(read(text), Err(want), "{text:?}");
        }
    }

    #[test]
    fn a_head_has_its_bounds() {
        let of = |value: usize| {
            format!(
                "CONNECT a.example:1 HTTP/1.1\r\nA: {}\r\n\r\n",
                "x".repeat(value)
            )
        };
        let fixed = of(0).len();
        assert!(read(&of(HEAD_MAX - fixed)).unwrap().is_some());
        assert_eq!(read(&of(HEAD_MAX - fixed + 1)), Err(WantedError::TooLong));
        assert_eq!(
            read(&format!(
                "CONNECT a.example:1 HTTP/1.1\r\nA: {}",
                "x".repeat(HEAD_MAX)
            )),
            Err(WantedError::TooLong)
        );
        let many = |count: usize| {
            format!(
                "CONNECT a.example:1 HTTP/1.1\r\n{}\r\n",
                "A: b\r\n".repeat(count)
            )
        };
        assert!(read(&many(HEADERS_MAX)).unwrap().is_some());
        assert_eq!(read(&many(HEADERS_MAX + 1)), Err(WantedError::TooLong));
    }

    #[test]
    fn socks_names_a_place_in_three_ways() {
        for (bytes, host) in [
            (&b"\x05\x01\x00\x01\x01\x02\x03\x04\x01\xbb"[..], "1.2.3.4"),
            (b"\x05\x01\x00\x03\x09a.example\x01\xbb", "a.example"),
            (
                b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb",
                "[::1]",
            ),
        ] {
            let (place, length) = socks_request(bytes).unwrap().unwrap();
            assert_eq!(
                (place.host(), place.port(), length),
                (host, 443, bytes.len())
            );
            for part in 0..length {
                assert_eq!(socks_request(&bytes[..part]), Ok(None), "{host} {part}");
            }
        }
        for (bytes, want) in [
            (
                &b"\x05\x03\x00\x01\x01\x02\x03\x04\x01\xbb"[..],
                SocksError::Command,
            ),
            (
                b"\x05\x02\x00\x01\x01\x02\x03\x04\x01\xbb",
                SocksError::Command,
            ),
            (
                b"\x05\x01\x00\x02\x01\x02\x03\x04\x01\xbb",
                SocksError::Address,
            ),
            (
                b"\x04\x01\x00\x01\x01\x02\x03\x04\x01\xbb",
                SocksError::Malformed,
            ),
            (b"\x05\x01\x00\x03\x03a\0b\x01\xbb", SocksError::Malformed),
            (b"\x05\x01\x00\x03\x03a@b\x01\xbb", SocksError::Malformed),
            (b"\x05\x01\x00\x03\x00\x01\xbb", SocksError::Malformed),
            (
                b"\x05\x01\x00\x01\x01\x02\x03\x04\0\0",
                SocksError::Malformed,
            ),
        ] {
            assert_eq!(socks_request(bytes), Err(want), "{bytes:?}");
        }
        assert_eq!(socks_greeting(b"\x05\x02\x02\x00"), Some((true, 4)));
        assert_eq!(socks_greeting(b"\x05\x01\x02"), Some((false, 3)));
        assert_eq!(socks_greeting(b"\x05\x02\x02"), None);
    }
}
