//! The destination that a program in a cell requests: a host and a port in canonical form.

use crate::target::Target;
use thiserror::Error;

/// Maximum length of a host, in bytes: a name has up to 253, and may end with a dot.
const HOST_MAX: usize = 256;

/// A host and a port in a form that can be checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Target);

/// Why a program's text is no valid place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// The host is neither a name nor an address.
    #[error("the host is no name and no address")]
    Host,
    /// The port is missing, or not a number from 1 to 65535.
    #[error("the port is no number from 1 to 65535")]
    Port,
}

impl Place {
    /// A place from a host (IPv6 in brackets) and a port. Refuses everything that a URL parser could read as something other than a
    /// host: users, paths, escapes, non-ASCII characters, characters that a URL drops.
    ///
    /// # Errors
    /// If it is no valid place.
    pub fn new(host: &str, port: u16) -> Result<Self, PlaceError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_v6 = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let allowed = match inner {
            Some(inner) => inner.bytes().all(is_v6),
            None => host.bytes().all(is_name),
        };
        if !allowed || host.is_empty() || host.len() > HOST_MAX {
            return Err(PlaceError::Host);
        }
        if port == 0 {
            return Err(PlaceError::Port);
        }
        Target::parse(&format!("https://{host}:{port}/"))
            .map(Self)
            .map_err(|_| PlaceError::Host)
    }

    /// Parses `HOST:PORT`; without a port, uses `default`.
    ///
    /// # Errors
    /// If it is no valid place.
    pub fn parse(text: &str, default: Option<u16>) -> Result<Self, PlaceError> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let port = match port {
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => port.parse().ok(),
            Some(_) => None,
            None => default,
        };
        Self::new(host, port.ok_or(PlaceError::Port)?)
    }

    /// The target for the guard.
    pub fn target(&self) -> &Target {
        &self.0
    }

    /// The host in the notation of policies.
    pub fn host(&self) -> &str {
        self.0.host()
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(String, u16), PlaceError> {
        Place::parse(text, None).map(|place| (place.host().to_owned(), place.port()))
    }

    #[test]
    fn every_spelling_of_a_host_is_the_host() {
        for (text, host, port) in [
            ("registry.npmjs.org:443", "registry.npmjs.org", 443),
            ("REGISTRY.npmjs.ORG.:443", "registry.npmjs.org", 443),
            ("xn--bcher-kva.example:80", "xn--bcher-kva.example", 80),
            ("127.0.0.1:1", "127.0.0.1", 1),
            ("2130706433:80", "127.0.0.1", 80),
            ("0x7f.1:80", "127.0.0.1", 80),
            ("0177.0.0.01:80", "127.0.0.1", 80),
            ("[::1]:65535", "[::1]", 65535),
            ("[0:0:0:0:0:ffff:127.0.0.1]:80", "[::ffff:7f00:1]", 80),
            ("a_b.example:443", "a_b.example", 443),
        ] {
            assert_eq!(read(text), Ok((host.to_owned(), port)), "{text}");
        }
    }

    #[test]
    fn malformed_host_and_port_are_refused() {
        for text in [
            ":443",
            "a b:443",
            "a\0b.example:443",
            "a\tb.example:443",
            "u@a.example:443",
            "u:p@a.example:443",
            "a.example/x:443",
            "a.example#:443",
            "a.example?x:443",
            "a%2eexample:443",
            "bücher.example:443",
            "a..example..:443",
            "..:443",
            "xn--a:443",
            "256.1.1.1:443",
            "::1:443",
            "[::1%25lo]:443",
            "[::1:443",
            "https://a.example:443",
        ] {
            assert_eq!(read(text), Err(PlaceError::Host), "{text:?}");
        }
        for text in [
            "a.example",
            "a.example:",
            "a.example:0",
            "a.example:65536",
            "a.example:+1",
            "a.example: 1",
        ] {
            assert_eq!(read(text), Err(PlaceError::Port), "{text:?}");
        }
        let long = "a".repeat(HOST_MAX + 1);
        assert_eq!(Place::new(&long, 1), Err(PlaceError::Host));
        assert!(Place::parse("a.example", Some(80)).is_ok_and(|place| place.port() == 80));
    }
}
