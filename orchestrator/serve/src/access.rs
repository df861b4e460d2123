//! The log of requests and messages: who sent them and how, the route and the outcome. Of a client's data only what the
//! server knows itself is logged: a route's pattern instead of its path, an existing method, an existing type of message.

use crate::guard::Arrival;
use crate::incoming;
use hyper::{Method, StatusCode};
use orchestrator_wire::error::ErrorCode;
use std::cell::Cell;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tracing::Span;
use tracing::field::{Empty, display};

/// Replaces everything that the server does not know.
const OTHER: &str = "*";
/// How often to report requests that exceed the rate.
const FLOOD: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientConnection {
    /// The connection's number in this run of the server.
    pub number: u64,
    pub(crate) arrival: Arrival,
    /// The peer's address, if it has one.
    pub peer: Option<IpAddr>,
}

/// Counts requests that exceeded the rate and were not reported individually.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    last: Cell<Option<Instant>>,
    unreported: Cell<u64>,
}

/// The span of a request, from its head to the head of its response.
pub(crate) fn request(connection: ClientConnection, method: &Method, route: Option<&str>) -> Span {
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
    if KNOWN.contains(method) {
        method.as_str()
    } else {
        OTHER
    }
}

/// Records the head of a response. Called within the span of its request.
pub(crate) fn answered(status: StatusCode, code: Option<ErrorCode>, begun: Instant, flood: &Flood) {
    let Some(unreported) = flood.take(status) else {
        return;
    };
    let (duration_ms, code) = (
        begun.elapsed().as_millis() as u64,
        code.map(ErrorCode::name),
    );
    let status_code = status.as_u16();
    if status.is_server_error() {
        Span::current().record("otel.status_code", "ERROR");
        tracing::error!(status = status_code, code, duration_ms, "request");
    } else if status.is_client_error() {
        tracing::warn!(
            status = status_code,
            code,
            unreported,
            duration_ms,
            "request"
        );
    } else {
        tracing::info!(status = status_code, duration_ms, "request");
    }
}

/// The span of a message on a WebSocket.
pub(crate) fn message() -> Span {
    tracing::info_span!(
        "websocket.message",
        otel.kind = "server",
        kind = Empty,
        conversation = Empty
    )
}

/// Records the outcome of a message. Called within its span; `kind` is the client's type for it.
pub(crate) fn taken(kind: &str, error: Option<&'static str>, begun: Instant) {
    Span::current().record("kind", incoming::known(kind).unwrap_or(OTHER));
    let duration_ms = begun.elapsed().as_millis() as u64;
    match error {
        Some(code) => tracing::warn!(code, duration_ms, "message"),
        None => tracing::info!(duration_ms, "message"),
    }
}

impl Flood {
    /// The number of unreported requests since the last report, if it is time for one. Otherwise a flood of requests would fill the
    /// log.
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
