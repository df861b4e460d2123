//! Answers to programs: an HTTP status, reason and text, or a SOCKS reply. The status line also contains the reason, because pip,
//! git and Node print that line.

use crate::relay::connect::ConnectError;
use broker_protocol::ConnectionVerdict;
use orchestrator_framing::wanted::{HEAD_MAX, SocksError, WantedError};
use orchestrator_reach::ReachError;
use orchestrator_reach::place::Place;
use policies::network::{explained, preset_of};
use policies::web::PrivatePlace;
use std::fmt;

/// Why a program does not get a connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionRefusal {
    /// It sent no valid request.
    Wanted(WantedError),
    /// Its request did not arrive within this many seconds.
    Slow(u64),
    /// The policy or the network prevents it.
    Place(Place, ConnectError),
}

impl ConnectionRefusal {
    /// The verdict for the records.
    pub(super) fn verdict(&self) -> ConnectionVerdict {
        match self {
            ConnectionRefusal::Wanted(_) | ConnectionRefusal::Slow(_) => {
                ConnectionVerdict::Malformed
            }
            ConnectionRefusal::Place(_, ConnectError::Reach(ReachError::Host { .. })) => {
                ConnectionVerdict::NotListed
            }
            ConnectionRefusal::Place(_, ConnectError::Reach(ReachError::Address { .. })) => {
                ConnectionVerdict::NotPublic
            }
            ConnectionRefusal::Place(_, ConnectError::Proxy { .. }) => {
                ConnectionVerdict::ProxyRefused
            }
            ConnectionRefusal::Place(..) => ConnectionVerdict::Unreachable,
        }
    }

    /// Why, for the records; without [`ConnectionRefusal::private`].
    pub(super) fn why(&self) -> String {
        match self {
            ConnectionRefusal::Place(
                _,
                error @ ConnectError::Reach(ReachError::Address { .. }),
            ) => error.to_string(),
            ConnectionRefusal::Place(..)
            | ConnectionRefusal::Wanted(_)
            | ConnectionRefusal::Slow(_) => self.to_string(),
        }
    }

    /// The entry of `private` that would open an address that is not public.
    pub(super) fn private(&self) -> Option<String> {
        match self {
            ConnectionRefusal::Place(
                place,
                ConnectError::Reach(ReachError::Address { address, .. }),
            ) => Some(PrivatePlace::text_to_open(
                place.host(),
                place.port(),
                *address,
            )),
            ConnectionRefusal::Place(..)
            | ConnectionRefusal::Wanted(_)
            | ConnectionRefusal::Slow(_) => None,
        }
    }

    /// An HTTP response, after which the connection ends.
    pub(super) fn http(&self) -> Vec<u8> {
        let (code, name) = match self {
            ConnectionRefusal::Wanted(WantedError::TooLong) => {
                (431, "Request Header Fields Too Large")
            }
            ConnectionRefusal::Wanted(_) => (400, "Bad Request"),
            ConnectionRefusal::Slow(_) => (408, "Request Timeout"),
            ConnectionRefusal::Place(
                _,
                ConnectError::Reach(ReachError::Host { .. } | ReachError::Address { .. }),
            ) => (403, "Forbidden"),
            ConnectionRefusal::Place(_, ConnectError::TimedOut(_)) => (504, "Gateway Timeout"),
            ConnectionRefusal::Place(..) => (502, "Bad Gateway"),
        };
        let body = format!("lazaret: {self}\n");
        let head = format!(
            "HTTP/1.1 {code} {name}: lazaret: {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            line(&self.to_string()),
            body.len()
        );
        [head, body].concat().into_bytes()
    }

    /// A SOCKS 5 reply, after which the connection ends.
    pub(super) fn socks(&self) -> Vec<u8> {
        let number = match self {
            ConnectionRefusal::Wanted(_) | ConnectionRefusal::Slow(_) => {
                SocksError::Malformed as u8
            }
            ConnectionRefusal::Place(
                _,
                ConnectError::Reach(ReachError::Host { .. } | ReachError::Address { .. }),
            ) => 2,
            ConnectionRefusal::Place(_, ConnectError::NoAnswer(_) | ConnectError::Proxy { .. }) => {
                5
            }
            ConnectionRefusal::Place(..) => 4,
        };
        socks_reply(number)
    }
}

/// A SOCKS 5 reply. It does not reveal our own address to the cell.
pub(super) fn socks_reply(number: u8) -> Vec<u8> {
    vec![5, number, 0, 1, 0, 0, 0, 0, 0, 0]
}

/// One line of printable ASCII.
fn line(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_ascii_graphic() || c == ' ' {
                c
            } else {
                '?'
            }
        })
        .take(HEAD_MAX / 32)
        .collect()
}

impl fmt::Display for ConnectionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectionRefusal::Wanted(error) => error.fmt(f),
            ConnectionRefusal::Slow(seconds) => {
                write!(f, "the request did not come within {seconds} s")
            }
            ConnectionRefusal::Place(place, ConnectError::Reach(ReachError::Host { .. })) => {
                let (host, port) = (place.host(), place.port());
                write!(f, "{host}:{port} is not among the hosts of this session; ")?;
                match preset_of(host, port) {
                    Some(preset) => write!(f, "--allow-net {preset} allows it"),
                    None => write!(f, "--allow-host {host}:{port} allows it"),
                }
            }
            ConnectionRefusal::Place(_, error) => {
                f.write_str(&explained(&error.to_string(), self.private().as_deref()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> ConnectionRefusal {
        let place = Place::parse(text, None).unwrap();
        let error = ConnectError::from(ReachError::Host {
            host: place.host().to_owned(),
            port: place.port(),
        });
        ConnectionRefusal::Place(place, error)
    }

    #[test]
    fn refusal_names_its_remedy() {
        let text = String::from_utf8(refused("registry.npmjs.org:443").http()).unwrap();
        assert!(
            text.starts_with("HTTP/1.1 403 Forbidden: lazaret: registry.npmjs.org:443 is not"),
            "{text}"
        );
        assert!(text.contains("--allow-net npm"), "{text}");
        assert!(
            refused("a.example:8080")
                .to_string()
                .ends_with("--allow-host a.example:8080 allows it")
        );
        assert_eq!(refused("a.example:1").socks()[1], 2);
    }

    #[test]
    fn refused_address_comes_with_its_remedy() {
        for (place, address, entry) in [
            ("a.example:443", "203.0.113.80", "203.0.113.80:443"),
            ("a.example:81", "10.0.0.1", "a.example:81"),
            ("[::1]:443", "::1", "[::1]:443"),
        ] {
            let address: std::net::IpAddr = address.parse().unwrap();
            let (place, class) = (
                Place::parse(place, None).unwrap(),
                policies::address::class(address),
            );
            let policy = format!("private = ['{entry}']");
            let policy: policies::web::WebTable = toml::from_str(&policy).unwrap();
            let policy = policies::WebPolicy {
                own: policy,
                bounds: vec![],
            };
            assert!(policy.opens(place.host(), place.port(), address), "{entry}");
            let host = place.host().to_owned();
            let refusal = ConnectionRefusal::Place(
                place,
                ConnectError::from(ReachError::Address {
                    host,
                    address,
                    class,
                }),
            );
            let told = format!(
                "{}; `private = [\"{entry}\"]` in `[profile.NAME.network]`",
                refusal.why()
            );
            assert!(refusal.to_string().starts_with(&told), "{refusal}");
            let answer = String::from_utf8(refusal.http()).unwrap();
            assert!(answer.lines().next().unwrap().contains(&told), "{answer}");
        }
    }

    #[test]
    fn a_status_line_is_one_line() {
        assert_eq!(line("a\r\nb\u{1b}ä"), "a??b??");
        assert!(line(&"x".repeat(100_000)).len() < HEAD_MAX);
    }
}
