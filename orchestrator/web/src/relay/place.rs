//! Where a program in a cell wants to go: a host and a port, in one canonical form.

use crate::target::Target;
use thiserror::Error;

/// Longest host that is read, in bytes: a name has 253, and may end with a dot.
const HOST_MAX: usize = 256;

/// A host and a port that can be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(Target);

/// Why what a program has sent names no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// The host is no name and no address.
    #[error("the host is no name and no address")]
    Host,
    /// The port is missing, or no number from 1 to 65535.
    #[error("the port is no number from 1 to 65535")]
    Port,
}

impl Place {
    /// A host, an address of IPv6 in brackets, at a port. Whatever a URL would read as something other than a host is refused
    /// before it can be: users, paths, escapes, other alphabets than ASCII, characters that a URL drops.
    ///
    /// # Errors
    /// It is no place.
    pub fn new(host: &str, port: u16) -> Result<Self, PlaceError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let is_v6 = |byte: u8| byte.is_ascii_hexdigit() || b":.".contains(&byte);
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
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
        Target::parse(&format!("https://{host}:{port}/")).map(Self).map_err(|_| PlaceError::Host)
    }

    /// Reads `HOST:PORT`; without a port, `default`.
    ///
    /// # Errors
    /// It is no place.
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

    /// For the guard.
    pub fn target(&self) -> &Target {
        &self.0
    }

    /// The host as a policy writes it.
    pub fn host(&self) -> &str {
        self.0.host()
    }

    /// The port.
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
    fn what_is_no_place_is_refused() {
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
        for text in
            ["a.example", "a.example:", "a.example:0", "a.example:65536", "a.example:+1", "a.example: 1"]
        {
            assert_eq!(read(text), Err(PlaceError::Port), "{text:?}");
        }
        let long = "a".repeat(HOST_MAX + 1);
        assert_eq!(Place::new(&long, 1), Err(PlaceError::Host));
        assert!(Place::parse("a.example", Some(80)).is_ok_and(|place| place.port() == 80));
    }
}
