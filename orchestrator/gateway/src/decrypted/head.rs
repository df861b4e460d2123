//! The head of a request: it is for the host that the connection was made to, on every request of a kept connection.

use super::refusal::RequestRefusal;
use hyper::Method;
use hyper::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use orchestrator_effects::names_other_request;

/// How requests come to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    /// Without TLS, which only rules look into.
    Http,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
        }
    }

    /// The port that an address may leave out.
    fn port(self) -> u16 {
        match self {
            Self::Https => 443,
            Self::Http => 80,
        }
    }
}

/// Headers that concern one connection and not the request.
const OF_CONNECTION: [&str; 3] = ["keep-alive", "proxy-connection", "proxy-authorization"];

/// Headers that decide for whom a request is, from whom, or how it is read. Servers may count trailers as headers, after all checks.
const NOT_IN_TRAILERS: [&str; 17] = [
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "host",
    "max-forwards",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-host",
];

/// Headers that ask for an answer in another form than plain text, in which no value would be found: compressed as a whole, in gRPC's or
/// Connect's messages, as a difference (RFC 3229), in a charset such as UTF-16.
const FOR_ENCODED: [&str; 5] = [
    "accept-encoding",
    "grpc-accept-encoding",
    "connect-accept-encoding",
    "a-im",
    "accept-charset",
];
/// Headers that say how the messages of a body of such a type are compressed. Servers answer in the same way, so no other request has
/// them. One that has such a body keeps them, or it could not be read: then [`orchestrator_http::written::is_encoded`] decides about the answer.
const ENCODED_BODIES: [(&str, &str); 2] = [
    ("grpc-encoding", "application/grpc"),
    ("connect-content-encoding", "application/connect"),
];
/// Takes out of trailers what no trailer may say.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    for names in [&OF_CONNECTION[..], &NOT_IN_TRAILERS, &FOR_ENCODED] {
        remove_alike(trailers, names);
    }
    remove(trailers, names_other_request);
}

/// Whether a name is one of those that decide how a request is read, with `_` for `-`.
fn is_misspelled(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.contains('_') && NOT_IN_TRAILERS.contains(&&*name.replace('_', "-"))
}

/// Removes headers with these names, with `_` for `-` too, as some servers read them.
fn remove_alike(headers: &mut HeaderMap, names: &[&str]) {
    remove(headers, |name| {
        names.contains(&&*name.as_str().replace('_', "-"))
    });
}

fn remove(headers: &mut HeaderMap, is_one: impl Fn(&HeaderName) -> bool) {
    let found: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_one(name))
        .cloned()
        .collect();
    for name in found {
        headers.remove(name);
    }
}

/// Has the head ask for an answer in plain text, that can be searched.
pub(super) fn ask_for_plain(headers: &mut HeaderMap) {
    remove_alike(headers, &FOR_ENCODED);
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, kind) in ENCODED_BODIES {
        let is_of_kind = headers.get(CONTENT_TYPE).is_some_and(|value| {
            let value = value.as_bytes();
            let start = value.get(..kind.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(kind.as_bytes()))
        });
        if !is_of_kind {
            remove_alike(headers, &[name]);
        }
    }
}

/// Checks that a request is for `host` and `port` and means one thing.
///
/// # Errors
/// Why it is refused.
pub(super) fn check(
    head: &Parts,
    (host, port): (&str, u16),
    scheme: Scheme,
) -> Result<(), RequestRefusal> {
    if head.method == Method::CONNECT {
        return Err(RequestRefusal::Unsupported(
            "a CONNECT inside of a connection to a host",
        ));
    }
    if head.method != Method::OPTIONS && !head.uri.path().starts_with('/') {
        return Err(RequestRefusal::Malformed(
            "a path that does not begin with `/`",
        ));
    }
    if head.headers.keys().any(is_misspelled) {
        return Err(RequestRefusal::Malformed(
            "a header that some servers take for one about its host or its body",
        ));
    }
    if head.headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(RequestRefusal::Malformed("more than one Content-Length"));
    }
    let mut hosts = head.headers.get_all(HOST).iter();
    let (named, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return Err(RequestRefusal::Malformed("more than one Host"));
    }
    let uri = head.uri.authority().map(Authority::as_str);
    let named = named
        .map(|value| {
            value
                .to_str()
                .map_err(|_| RequestRefusal::Malformed("a Host that is no text"))
        })
        .transpose()?;
    if uri.is_none() && named.is_none() {
        return Err(RequestRefusal::Malformed("no Host"));
    }
    if head
        .uri
        .scheme_str()
        .is_some_and(|asked| asked != scheme.name())
    {
        return Err(misdirected(host, port, &head.uri.to_string()));
    }
    for asked in [uri, named].into_iter().flatten() {
        if !is_place(asked, (host, port), scheme) {
            return Err(misdirected(host, port, asked));
        }
    }
    Ok(())
}

fn misdirected(host: &str, port: u16, asked: &str) -> RequestRefusal {
    RequestRefusal::Misdirected {
        place: format!("{host}:{port}"),
        asked: asked.chars().take(256).collect(),
    }
}

/// Whether `asked`, as a `Host` or `:authority`, is this place. The port of the scheme may be left out.
fn is_place(asked: &str, (host, port): (&str, u16), scheme: Scheme) -> bool {
    let (name, asked_port) = match asked.rsplit_once(':') {
        Some((name, digits)) if !digits.ends_with(']') => {
            match digits.bytes().all(|byte| byte.is_ascii_digit()) {
                true => (name, digits.parse().ok()),
                false => return false,
            }
        }
        Some(_) | None => (asked, Some(scheme.port())),
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    name.eq_ignore_ascii_case(host) && asked_port == Some(port)
}

/// `Host` of a request to this place.
pub(super) fn authority((host, port): (&str, u16), scheme: Scheme) -> String {
    if port == scheme.port() {
        host.to_owned()
    } else {
        format!("{host}:{port}")
    }
}

/// Takes out of a head what concerns one connection only: framing is written anew on the other side.
pub(super) fn strip(headers: &mut HeaderMap) {
    // Not those that `Connection` names: a program may not have headers removed that say what a request means.
    for name in OF_CONNECTION {
        headers.remove(name);
    }
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE, EXPECT] {
        headers.remove(name);
    }
    let trailers = headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|value| {
            value
                .split(',')
                .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
        })
    });
    headers.remove(TE);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether a head asks to become a WebSocket, or says that it has.
pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    let lists = |name: HeaderName, token: &str| {
        headers.get_all(name).iter().any(|value| {
            value.to_str().is_ok_and(|value| {
                value
                    .split(',')
                    .any(|one| one.trim().eq_ignore_ascii_case(token))
            })
        })
    };
    lists(CONNECTION, "upgrade") && lists(UPGRADE, "websocket")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_compared_with_its_port() {
        for (asked, port, want) in [
            ("a.example", 443, true),
            ("A.Example.:443", 443, true),
            ("a.example:8443", 443, false),
            ("a.example", 8443, false),
            ("a.example:8443", 8443, true),
            ("a.example:", 443, false),
            ("x@a.example", 443, false),
            ("a.example:443:443", 443, false),
            ("a.example:+443", 443, false),
            ("b.example", 443, false),
            ("", 443, false),
        ] {
            let is = is_place(asked, ("a.example", port), Scheme::Https);
            assert_eq!(is, want, "{asked} {port}");
        }
        assert!(is_place("[::1]:8443", ("[::1]", 8443), Scheme::Https));
        assert!(is_place("[::1]", ("[::1]", 443), Scheme::Https));
        for (asked, port, want) in [("a.example", 80, true), ("a.example", 443, false)] {
            let is = is_place(asked, ("a.example", port), Scheme::Http);
            assert_eq!(is, want, "{asked} {port}");
        }
    }
}
