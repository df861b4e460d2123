//! Decides whether to handle a request: by its Host, its Origin, the browser's own headers about it, and its token, in this order.
//!
//! *Guarantees*: a page that the user visits reaches nothing. It cannot read the token; its requests carry an Origin, which is
//! refused unless it was named at the start; and a foreign name that resolves to this machine (DNS rebinding) is in the Host. *Does
//! not*: stop another program of the same user, which can read what the user can, if it finds the token. *Tested by*:
//! `a_page_of_another_site_reaches_nothing`, `a_name_that_leads_here_is_refused`.

use crate::token::AccessToken;
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode, header};
use orchestrator_wire::error::ErrorCode;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use thiserror::Error;

pub const PROTOCOL: &str = "lazaret.v1";
/// Prefix of the token in a list of subprotocols, the only header that a browser's script can set for a WebSocket.
const TOKEN_PROTOCOL: &str = "lazaret.token.";
/// Maximum length of an Origin that is compared.
const ORIGIN_MAX: usize = 1024;

/// Where a request arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Over TCP, at this address of ours.
    Tcp(SocketAddr),
    /// Over a socket that only this user can connect to.
    Unix,
}

/// What requests are checked against.
#[derive(Debug)]
pub struct Guard {
    /// The token that every request has to carry.
    pub token: AccessToken,
    /// Origins of pages that may use the server; may be empty.
    pub origins: Vec<String>,
    /// Whether we serve a page of our own, which calls us from its own origin.
    pub page: bool,
}

/// A text that is no Origin of a page: it would be compared with each, and never be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "no origin as browsers send it: scheme://host or scheme://host:port, in lower case, without a path, a `*` or the scheme's own port"
)]
pub struct OriginError;

/// Whether a browser may send this text as an Origin of a page that can be named. `null` names none: any page may have it.
///
/// # Errors
/// It may not.
pub fn check_origin(text: &str) -> Result<(), OriginError> {
    let (scheme, rest) = text.split_once("://").ok_or(OriginError)?;
    let of_scheme =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    let is_scheme = scheme
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase())
        && scheme.bytes().all(of_scheme);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    };
    let of_name =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address
            .parse::<Ipv6Addr>()
            .is_ok_and(|parsed| parsed.to_string() == address),
        None => !host.is_empty() && host.bytes().all(of_name),
    };
    let own = match scheme {
        "http" | "ws" => Some(80),
        "https" | "wss" => Some(443),
        "ftp" => Some(21),
        _ => None,
    };
    let is_port = |port: &str| {
        port.parse::<u16>()
            .is_ok_and(|number| number.to_string() == port && Some(number) != own)
    };
    let is_origin = is_scheme && is_host && port.is_none_or(is_port) && text.len() <= ORIGIN_MAX;
    if is_origin { Ok(()) } else { Err(OriginError) }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccessRefusal {
    /// It was sent to another host: by a name that resolves to this machine, or through a proxy.
    #[error("the Host header names another host than this one")]
    Host,
    /// A page made it, and the page is none of ours.
    #[error("requests from this origin are refused; allow it with --allow-origin")]
    Origin,
    /// It has no token or a wrong one.
    #[error("the token is missing or wrong: Authorization: Bearer TOKEN")]
    Token,
}

impl AccessRefusal {
    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Token => StatusCode::UNAUTHORIZED,
        }
    }

    /// The code in the response.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::Host => ErrorCode::WrongHost,
            Self::Origin => ErrorCode::WrongOrigin,
            Self::Token => ErrorCode::Unauthorized,
        }
    }
}

impl Guard {
    /// Checks the head of a request.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(&self, head: &Parts, arrival: Arrival) -> Result<(), AccessRefusal> {
        self.check_page(head, arrival)?;
        let given = bearer(&head.headers).or_else(|| offered_token(&head.headers));
        if given.is_some_and(|given| self.token.matches(given)) {
            Ok(())
        } else {
            Err(AccessRefusal::Token)
        }
    }

    /// The same for resources that are equal for everybody: needs no token, but checks the source.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check_page(&self, head: &Parts, arrival: Arrival) -> Result<(), AccessRefusal> {
        // In the form for a proxy, the request's own authority would count, not the Host.
        if head.uri.authority().is_some() || !is_for_us(&head.headers, arrival) {
            return Err(AccessRefusal::Host);
        }
        if self.is_own_page(&head.headers) {
            Ok(())
        } else {
            Err(AccessRefusal::Origin)
        }
    }

    /// Whether it comes from no page, from an allowed one, or from ours. Several origins match none.
    fn is_own_page(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        match (origins.next(), origins.next()) {
            // A page of another site that sends no Origin, as for an image or a form of an old browser.
            (None, _) => headers
                .get("sec-fetch-site")
                .is_none_or(|site| matches!(site.as_bytes(), b"none" | b"same-origin")),
            (Some(origin), None) => origin.to_str().is_ok_and(|origin| {
                origin.len() <= ORIGIN_MAX
                    && (self.origins.iter().any(|own| own == origin)
                        || self.page && is_of(origin, headers))
            }),
            (Some(_), Some(_)) => false,
        }
    }
}

/// Whether an origin equals the request's Host, which has already been checked to be ours.
fn is_of(origin: &str, headers: &HeaderMap) -> bool {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    host.is_some_and(|host| origin.strip_prefix("http://") == Some(host))
}

/// Whether the single Host is an IP address or `localhost`, with our port. An address cannot be made to lead elsewhere.
fn is_for_us(headers: &HeaderMap, arrival: Arrival) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Arrival::Tcp(ours) = arrival else {
        // No browser connects here.
        return true;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, Some(80)),
    };
    if port != Some(ours.port()) {
        return false;
    }
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    match bare.parse::<IpAddr>() {
        Ok(address) => !ours.ip().is_loopback() || address.is_loopback(),
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers
        .get(header::AUTHORIZATION)?
        .to_str()
        .ok()?
        .split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The subprotocols that a client offers for a WebSocket.
pub fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(str::trim)
}

fn offered_token(headers: &HeaderMap) -> Option<&str> {
    offered(headers).find_map(|protocol| protocol.strip_prefix(TOKEN_PROTOCOL))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn guard() -> Guard {
        Guard {
            token: AccessToken::fresh().unwrap(),
            origins: vec!["app://studio".to_owned()],
            page: false,
        }
    }

    fn loopback() -> Arrival {
        Arrival::Tcp("127.0.0.1:3008".parse().unwrap())
    }

    fn check(
        guard: &Guard,
        arrival: Arrival,
        headers: &[(&str, &str)],
    ) -> Result<(), AccessRefusal> {
        let mut request = Request::get("/health");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        guard.check(&request.body(()).unwrap().into_parts().0, arrival)
    }

    #[test]
    fn only_our_own_addresses_are_hosts() {
        let guard = guard();
        let bearer = format!("Bearer {}", guard.token.expose());
        let check = |host: &str, arrival| {
            check(
                &guard,
                arrival,
                &[("host", host), ("authorization", &bearer)],
            )
        };
        for host in [
            "127.0.0.1:3008",
            "localhost:3008",
            "LOCALHOST:3008",
            "[::1]:3008",
        ] {
            assert_eq!(check(host, loopback()), Ok(()), "{host}");
        }
        for host in [
            "",
            "127.0.0.1",
            "127.0.0.1:80",
            "localhost:30080",
            "evil.example:3008",
            "localhost.evil.example:3008",
            "127.0.0.1.evil.example:3008",
            "192.168.0.1:3008",
            "[::1]",
            "[::1]:",
            "0.0.0.0:3008",
            ":3008",
        ] {
            assert_eq!(check(host, loopback()), Err(AccessRefusal::Host), "{host}");
        }
        let exposed = Arrival::Tcp("0.0.0.0:3008".parse().unwrap());
        assert_eq!(check("192.168.0.1:3008", exposed), Ok(()));
        assert_eq!(
            check("evil.example:3008", exposed),
            Err(AccessRefusal::Host)
        );
        assert_eq!(check("anything", Arrival::Unix), Ok(()));
    }

    #[test]
    fn two_hosts_and_a_proxys_request_are_for_somebody_else() {
        let guard = guard();
        let bearer = format!("Bearer {}", guard.token.expose());
        let twice = [
            ("host", "127.0.0.1:3008"),
            ("host", "evil.example"),
            ("authorization", &*bearer),
        ];
        assert_eq!(check(&guard, loopback(), &twice), Err(AccessRefusal::Host));
        let request = Request::get("http://127.0.0.1:3008/health").header("host", "127.0.0.1:3008");
        let request = request.header("authorization", &bearer).body(()).unwrap();
        assert_eq!(
            guard.check(&request.into_parts().0, loopback()),
            Err(AccessRefusal::Host)
        );
    }

    #[test]
    fn a_page_is_refused_unless_it_was_named() {
        let guard = guard();
        let bearer = format!("Bearer {}", guard.token.expose());
        let check = |more: &[(&str, &str)]| {
            let own = [("host", "127.0.0.1:3008"), ("authorization", &*bearer)];
            check(&guard, loopback(), &[&own, more].concat())
        };
        assert_eq!(check(&[("origin", "app://studio")]), Ok(()));
        assert_eq!(check(&[("sec-fetch-site", "none")]), Ok(()));
        for page in [
            &[("origin", "https://evil.example")][..],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "http://127.0.0.1:3008")],
            &[
                ("origin", "app://studio"),
                ("origin", "https://evil.example"),
            ],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site")],
        ] {
            assert_eq!(check(page), Err(AccessRefusal::Origin), "{page:?}");
        }
    }

    #[test]
    fn only_what_a_browser_sends_is_an_origin() {
        for origin in [
            "app://studio",
            "http://localhost",
            "http://localhost:5173",
            "https://a.example:8443",
            "http://127.0.0.1:1",
            "http://[::1]:8080",
            "http://[::1]",
            "chrome-extension://abcdefghijklmnop",
            "vscode-webview://0a1b2c",
            "https://xn--bcher-kva.example",
        ] {
            assert_eq!(check_origin(origin), Ok(()), "{origin}");
        }
        let long = format!("http://{}", "a".repeat(ORIGIN_MAX));
        for text in [
            "*",
            "",
            "x",
            "null",
            "://a",
            "http://",
            "http://a/",
            "http://a/b",
            "http://*",
            "http://*.example",
            "http://A",
            "HTTP://a",
            "http://a:80",
            "https://a:443",
            "http://a:0080",
            "http://a:",
            "http://a:65536",
            "http://a?",
            "http://u@a",
            "http://b\u{fc}cher.example",
            "http://[::01]",
            "http://a b",
            long.as_str(),
        ] {
            assert_eq!(check_origin(text), Err(OriginError), "{text}");
        }
    }

    #[test]
    fn our_own_page_speaks_to_where_it_came_from_and_nowhere_else() {
        let guard = Guard {
            page: true,
            ..guard()
        };
        let bearer = format!("Bearer {}", guard.token.expose());
        let check = |host: &str, origin: &str| {
            let head = [
                ("host", host),
                ("origin", origin),
                ("authorization", &bearer),
            ];
            check(&guard, loopback(), &head)
        };
        assert_eq!(check("127.0.0.1:3008", "http://127.0.0.1:3008"), Ok(()));
        assert_eq!(check("localhost:3008", "http://localhost:3008"), Ok(()));
        assert_eq!(
            check("localhost:3008", "app://studio"),
            Ok(()),
            "those that were named still are"
        );
        for origin in [
            "http://localhost:3008",
            "https://127.0.0.1:3008",
            "http://127.0.0.1:3009",
            "http://127.0.0.1",
            "http://127.0.0.1:3008.evil.example",
            "http://evil.example:3008",
            "127.0.0.1:3008",
            "null",
            "",
        ] {
            assert_eq!(
                check("127.0.0.1:3008", origin),
                Err(AccessRefusal::Origin),
                "{origin}"
            );
        }
        assert_eq!(
            check("evil.example:3008", "http://evil.example:3008"),
            Err(AccessRefusal::Host)
        );
    }

    #[test]
    fn the_page_needs_no_token_and_still_comes_to_nobody_elses_name() {
        let guard = Guard {
            page: true,
            ..guard()
        };
        let check = |headers: &[(&str, &str)]| {
            let mut request = Request::get("/");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            guard.check_page(&request.body(()).unwrap().into_parts().0, loopback())
        };
        let ours = ("host", "127.0.0.1:3008");
        assert_eq!(check(&[ours]), Ok(()));
        assert_eq!(check(&[ours, ("sec-fetch-site", "none")]), Ok(()));
        assert_eq!(
            check(&[ours, ("sec-fetch-site", "cross-site")]),
            Err(AccessRefusal::Origin)
        );
        assert_eq!(
            check(&[ours, ("origin", "https://evil.example")]),
            Err(AccessRefusal::Origin)
        );
        assert_eq!(
            check(&[("host", "evil.example:3008")]),
            Err(AccessRefusal::Host)
        );
    }

    #[test]
    fn the_token_is_in_a_header_or_among_the_protocols() {
        let guard = guard();
        let check = |name: &str, value: &str| {
            check(
                &guard,
                loopback(),
                &[("host", "127.0.0.1:3008"), (name, value)],
            )
        };
        let token = guard.token.expose();
        assert_eq!(check("authorization", &format!("Bearer {token}")), Ok(()));
        assert_eq!(
            check(
                "sec-websocket-protocol",
                &format!("lazaret.v1, lazaret.token.{token}")
            ),
            Ok(())
        );
        for (name, value) in [
            ("authorization", String::new()),
            ("authorization", token.to_owned()),
            ("authorization", format!("Basic {token}")),
            ("authorization", format!("Bearer {}", &token[1..])),
            ("sec-websocket-protocol", "lazaret.v1".to_owned()),
            ("cookie", format!("token={token}")),
        ] {
            assert_eq!(
                check(name, &value),
                Err(AccessRefusal::Token),
                "{name}: {value}"
            );
        }
    }
}
