//! The target of a request, as a checked URL.

use std::fmt;
use std::net::IpAddr;
use thiserror::Error;
use url::{Host, Url};

/// Maximum length of a URL, in bytes.
pub(crate) const URL_MAX: usize = 8192;

/// A target: `http` or `https`, a host, no user and no fragment. The host is parsed by the URL standard, so each spelling of an
/// address (`0x7f.1`, `2130706433`, full-width digits, a dot at the end) has become that address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Url);

/// Why a text is no [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    #[error("a URL with https:// and a host")]
    NotUrl,
    #[error("a URL of at most {URL_MAX} bytes")]
    TooLong,
    #[error("a URL that begins with https:// (or http://)")]
    Scheme,
    #[error("a URL without a user name or password")]
    Credentials,
}

impl Target {
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if text.len() > URL_MAX {
            return Err(TargetError::TooLong);
        }
        Url::parse(text)
            .map_err(|_| TargetError::NotUrl)
            .and_then(Self::of)
    }

    /// Resolves the location of a redirect relative to this URL.
    pub fn join(&self, location: &str) -> Result<Self, TargetError> {
        if location.len() > URL_MAX {
            return Err(TargetError::TooLong);
        }
        self.0
            .join(location)
            .map_err(|_| TargetError::NotUrl)
            .and_then(Self::of)
    }

    fn of(mut url: Url) -> Result<Self, TargetError> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err(TargetError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials);
        }
        // A final dot means the same host, and would evade every comparison of names.
        let name = url
            .domain()
            .and_then(|name| name.strip_suffix('.'))
            .map(str::to_owned);
        if let Some(name) = name {
            url.set_host(Some(&name)).map_err(|_| TargetError::NotUrl)?;
        }
        url.set_fragment(None);
        let whole = url
            .domain()
            .is_none_or(|name| !name.is_empty() && !name.ends_with('.'));
        if url.host().is_none() || !whole || url.as_str().len() > URL_MAX {
            return Err(TargetError::NotUrl);
        }
        Ok(Self(url))
    }

    pub fn url(&self) -> &Url {
        &self.0
    }

    /// The host as text; IPv6 in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The IP address, if the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The port; by default the scheme's.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// Whether it is without TLS.
    pub fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether `text` is meant as a web address, not as a path.
pub fn is_web_address(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| {
        ["http", "https"]
            .iter()
            .any(|own| scheme.eq_ignore_ascii_case(own))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Result<String, TargetError> {
        Target::parse(text).map(|target| target.to_string())
    }

    #[test]
    fn every_spelling_of_an_address_is_the_address() {
        for (text, want) in [
            ("http://127.0.0.1/", "127.0.0.1"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://017700000001/", "127.0.0.1"),
            ("http://0177.0.0.01/", "127.0.0.1"),
            ("http://127.1/", "127.0.0.1"),
            ("http://127.0.0.1./", "127.0.0.1"),
            ("http://1２7。0．0.1/", "127.0.0.1"),
            ("http://%31%32%37.0.0.1/", "127.0.0.1"),
            ("http:\\\\127.0.0.1/", "127.0.0.1"),
            ("http:127.0.0.1", "127.0.0.1"),
            ("http://[::ffff:127.0.0.1]/", "[::ffff:7f00:1]"),
            ("http://[0:0:0:0:0:0:0:1]/", "[::1]"),
            ("http://0/", "0.0.0.0"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.host(), want, "{text}");
            assert!(target.address().is_some(), "{text}");
        }
        for (text, want) in [
            ("https://LOCALHOST./x", "localhost"),
            ("https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "localhost"),
            ("https://bücher.example/", "xn--bcher-kva.example"),
            ("https://a\tb.example/", "ab.example"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.host(), target.address()), (want, None), "{text}");
        }
    }

    #[test]
    fn malformed_or_unsupported_url_is_refused() {
        for (text, want) in [
            ("", TargetError::NotUrl),
            ("example.org", TargetError::NotUrl),
            ("//example.org", TargetError::NotUrl),
            ("https://", TargetError::NotUrl),
            ("https://../", TargetError::NotUrl),
            ("https://a../", TargetError::NotUrl),
            ("http://256.1.1.1/", TargetError::NotUrl),
            ("http://0x7f.1.1.1.1/", TargetError::NotUrl),
            ("http://[::1%25eth0]/", TargetError::NotUrl),
            ("file:///etc/passwd", TargetError::Scheme),
            ("ftp://example.org/", TargetError::Scheme),
            ("data:text/html,x", TargetError::Scheme),
            ("gopher://127.0.0.1/", TargetError::Scheme),
            ("https://u@example.org/", TargetError::Credentials),
            (
                "https://example.org:443@127.0.0.1/",
                TargetError::Credentials,
            ),
            ("https://:p@example.org/", TargetError::Credentials),
        ] {
            assert_eq!(target(text), Err(want), "{text}");
        }
        let most = format!("https://a.example/{}", "x".repeat(URL_MAX - 18));
        assert_eq!((most.len(), target(&most).is_ok()), (URL_MAX, true));
        assert_eq!(target(&format!("{most}x")), Err(TargetError::TooLong));
        // Percent-encoded, it would exceed the limit.
        assert_eq!(
            target(&format!("https://a.example/{}", "é".repeat(4000))),
            Err(TargetError::NotUrl)
        );
    }
}
