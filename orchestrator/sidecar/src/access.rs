//! What is reported of requests and messages: who came how, for which route, and what became of it. Of what a client has sent only
//! what is known here: a route's pattern and not its path, a method and a type of message that there are.

use crate::guard::Arrival;
use crate::incoming;
use hyper::{Method, StatusCode};
use std::cell::Cell;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tracing::Span;
use tracing::field::{Empty, display};

/// What stands for all that is not known here.
const OTHER: &str = "*";
/// Requests of which there are too many are reported so often.
const FLOOD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Its number in this run of the server.
    pub number: u64,
    pub arrival: Arrival,
    /// The other end, where that has an address.
    pub peer: Option<IpAddr>,
}

/// The name of an error, in the extensions of the answer that has it.
#[derive(Clone, Copy, Debug)]
pub struct ErrorCode(pub &'static str);

/// Requests that came too often and were not reported one by one.
#[derive(Debug, Default)]
pub struct Flood {
    last: Cell<Option<Instant>>,
    unreported: Cell<u64>,
}

/// A request, from its head to the head of its answer.
pub fn request(connection: Connection, method: &Method, route: Option<&str>) -> Span {
    let span = tracing::info_span!(
        "http.request",
        otel.kind = "server",
        otel.status_code = Empty,
        connection = connection.number,
        peer = Empty,
        method = known(method),
        path = route.unwrap_or(OTHER),
        conversation = Empty,
    );
    if let Some(peer) = connection.peer {
        span.record("peer", display(peer));
    }
    span
}

fn known(method: &Method) -> &str {
    const KNOWN: [Method; 7] = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::HEAD,
        Method::OPTIONS,
        Method::PATCH,
    ];
    if KNOWN.contains(method) { method.as_str() } else { OTHER }
}

/// The head of an answer is there. Called in the span of its request.
pub fn answered(status: StatusCode, code: Option<ErrorCode>, begun: Instant, flood: &Flood) {
    let Some(unreported) = flood.take(status) else { return };
    let (duration_ms, code) = (begun.elapsed().as_millis() as u64, code.map(|code| code.0));
    let status_code = status.as_u16();
    if status.is_server_error() {
        Span::current().record("otel.status_code", "ERROR");
        tracing::error!(status = status_code, code, duration_ms, "request");
    } else if status.is_client_error() {
        tracing::warn!(status = status_code, code, unreported, duration_ms, "request");
    } else {
        tracing::info!(status = status_code, duration_ms, "request");
    }
}

/// A message of a WebSocket.
pub fn message() -> Span {
    tracing::info_span!("websocket.message", otel.kind = "server", kind = Empty, conversation = Empty)
}

/// It was carried out, or why not. Called in its span; `kind` is what the client calls it.
pub fn taken(kind: &str, error: Option<&'static str>, begun: Instant) {
    Span::current().record("kind", incoming::known(kind).unwrap_or(OTHER));
    let duration_ms = begun.elapsed().as_millis() as u64;
    match error {
        Some(code) => tracing::warn!(code, duration_ms, "message"),
        None => tracing::info!(duration_ms, "message"),
    }
}

impl Flood {
    /// How many were not reported since the last one that was, where this one is to be. Whoever floods us would have a log of
    /// nothing else.
    fn take(&self, status: StatusCode) -> Option<u64> {
        if status != StatusCode::TOO_MANY_REQUESTS {
            return Some(0);
        }
        if self.last.get().is_some_and(|last| last.elapsed() < FLOOD) {
            self.unreported.set(self.unreported.get() + 1);
            return None;
        }
        self.last.set(Some(Instant::now()));
        Some(self.unreported.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_a_second_and_hides_nothing_else() {
        let flood = Flood::default();
        let take = |status: u16| flood.take(StatusCode::from_u16(status).unwrap());
        assert_eq!([take(429), take(429), take(429)], [Some(0), None, None]);
        assert_eq!([take(200), take(401), take(503)], [Some(0); 3]);
        flood.last.set(Instant::now().checked_sub(FLOOD));
        assert_eq!([take(429), take(429)], [Some(2), None]);
    }

    #[test]
    fn a_method_that_there_is_not_has_no_name() {
        assert_eq!(known(&Method::GET), "GET");
        assert_eq!(known(&Method::from_bytes(b"SECRET").unwrap()), OTHER);
    }
}
