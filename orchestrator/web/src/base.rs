//! Base addresses of servers that a user configures: a model server, a search engine, a collector of spans.

use url::{Host, Url};

/// Maximum length of a base URL, in bytes.
pub const BASE_MAX: usize = 2048;

/// Parses a base URL: `http` or `https`, a host, perhaps a port and a path, but no part that would be lost or is secret.
pub fn parse(text: &str) -> Option<Url> {
    let url = (text.len() <= BASE_MAX)
        .then(|| Url::parse(text).ok())
        .flatten()?;
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    let usable = matches!(url.scheme(), "http" | "https") && url.host().is_some();
    (plain && usable).then_some(url)
}

/// Whether a secret sent there can be read on its way: without TLS, and not to this machine.
pub fn is_exposed(url: &Url) -> bool {
    let is_local = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() != "https" && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_has_nothing_secret_and_a_bound() {
        let long = |length: usize| format!("http://h/{}", "x".repeat(length - "http://h/".len()));
        for right in [
            "http://127.0.0.1:4318",
            "https://h.example/a/",
            "http://[::1]",
            &long(BASE_MAX),
        ] {
            assert!(parse(right).is_some(), "{right}");
        }
        let above = long(BASE_MAX + 1);
        let wrong = [
            "",
            "4318",
            "h:4318",
            "file:///x",
            "http://u@h",
            "http://u:p@h",
            "http://h?k=1",
            "http://h#x",
        ];
        for wrong in wrong.into_iter().chain([above.as_str()]) {
            assert!(parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_crosses_no_network_in_clear_text() {
        let exposed = |text: &str| is_exposed(&Url::parse(text).unwrap());
        for safe in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://[::ffff:127.0.0.1]",
            "http://localhost",
            "https://h",
        ] {
            assert!(!exposed(safe), "{safe}");
        }
        for open in [
            "http://h",
            "http://192.168.1.3:1",
            "http://localhost.example",
            "http://[::ffff:192.168.1.3]",
        ] {
            assert!(exposed(open), "{open}");
        }
    }
}
