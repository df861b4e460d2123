//! Which requests are looked at at all. The protocols have no token: who reaches the port has the sandbox. So only what no client of
//! theirs ever sends is refused here, which is what a web page in a browser sends, on this machine or by a name that it has rebound.

use crate::fault::{FaultKind, SandboxFault};
use hyper::header::{HOST, ORIGIN};
use hyper::http::request::Parts;
use std::net::IpAddr;

/// Maximum bytes of a request's head.
pub(crate) const HEAD_MAX: usize = 32 << 10;

/// Checks the head of a request at a port that is, or is not, of the loopback alone.
///
/// # Errors
/// A browser sends it, or it is too large.
pub(crate) fn check(head: &Parts, loopback: bool) -> Result<(), SandboxFault> {
    let denied = |message: &str| Err(SandboxFault::new(FaultKind::PermissionDenied, message));
    let headers = head.headers.iter();
    let bytes: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    if bytes + head.uri.to_string().len() > HEAD_MAX {
        let message = format!("a request's head has at most {HEAD_MAX} bytes");
        return Err(SandboxFault::invalid(message));
    }
    if head.headers.contains_key(ORIGIN) || head.headers.contains_key("sec-fetch-site") {
        return denied("web pages may not use this sandbox");
    }
    let named = head.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = head.uri.authority().map(|host| host.as_str()).or(named);
    if loopback && !host.is_some_and(is_loopback) {
        return denied("this port is for this machine, by its address or as `localhost`");
    }
    Ok(())
}

/// Whether this host, with or without a port, is the loopback by its own name. Others may be somebody else's by now.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn checked(headers: &[(&str, &str)], loopback: bool) -> bool {
        let mut request = Request::builder().uri("/v1/health");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check(&request.body(()).unwrap().into_parts().0, loopback).is_ok()
    }

    #[test]
    fn requests_of_a_page_are_refused() {
        let local = ("host", "127.0.0.1:8080");
        assert!(checked(&[local], true) && checked(&[("host", "[::1]:1")], true));
        assert!(checked(&[("host", "localhost")], true));
        assert!(!checked(&[local, ("origin", "http://evil.example")], true));
        assert!(!checked(&[local, ("origin", "null")], false));
        assert!(!checked(&[local, ("sec-fetch-site", "cross-site")], true));
        // A name of a page that was rebound to this machine.
        assert!(!checked(&[("host", "evil.example:8080")], true));
        assert!(!checked(&[("host", "127.0.0.1.evil.example")], true) && !checked(&[], true));
        assert!(checked(&[("host", "sandbox.default.svc:8080")], false));
    }

    #[test]
    fn a_head_ends_at_its_limit() {
        let fits = HEAD_MAX - "/v1/health".len() - "x".len() - 4;
        assert!(checked(&[("x", &"y".repeat(fits))], false));
        assert!(!checked(&[("x", &"y".repeat(fits + 1))], false));
    }
}
