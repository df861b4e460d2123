//! The server: accepts connections, checks each request with the guard and the rate limit, and lets it be answered.

use crate::access::{self, ClientConnection, Flood};
use crate::guard::{AccessRefusal, Arrival, Guard};
use crate::mcp_sessions;
use crate::page::{self, Asset};
use crate::rate::{Rates, Requester};
use crate::response::{ResponseBody, error_reply, too_often};
use crate::route_table;
use crate::routes;
use crate::service::ServeState;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use orchestrator_mcp_server::Clients;
use orchestrator_wire::error::ErrorCode;
use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tracing::Instrument;

/// Maximum number of connections; further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 512;
/// How long the head of a request may take, and how long a connection may be idle between two requests.
const HEAD: Duration = Duration::from_secs(15);
/// Maximum bytes of a request's head.
const HEAD_BYTES: usize = 32 << 10;
/// Maximum number of a request's headers.
const HEADERS_MAX: usize = 64;
/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Default limit of requests per second of one address.
pub const RATE: u32 = 100;

/// A bound socket: bound before the program has confined itself.
pub enum ListeningSocket {
    /// An address of this machine.
    Tcp(std::net::TcpListener),
    /// A socket that only this user can connect to.
    Unix(std::os::unix::net::UnixListener),
}

/// What the tasks of all connections share.
struct ServerShared {
    service: Rc<ServeState>,
    guard: Guard,
    rates: Rates,
    connections: Arc<Semaphore>,
    arrived: Cell<u64>,
    flood: Flood,
}

/// Serves until the future is dropped, with a session for each of `clients`.
///
/// # Errors
/// If a socket cannot be watched.
pub async fn serve(
    service: Rc<ServeState>,
    guard: Guard,
    rate: u32,
    listening: Vec<ListeningSocket>,
    clients: Clients,
) -> io::Result<Infallible> {
    let shared = Rc::new(ServerShared {
        service: service.clone(),
        guard,
        rates: Rates::new(rate),
        connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        arrived: Cell::new(0),
        flood: Flood::default(),
    });
    for one in listening {
        match one {
            ListeningSocket::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                tracing::info!(address = %listener.local_addr()?, "listen");
                let listener = TcpListener::from_std(listener)?;
                tokio::task::spawn_local(accept_tcp(listener, shared.clone()));
            }
            ListeningSocket::Unix(listener) => {
                listener.set_nonblocking(true)?;
                tracing::info!(address = ?listener.local_addr()?, "listen");
                let listener = UnixListener::from_std(listener)?;
                tokio::task::spawn_local(accept_unix(listener, shared.clone()));
            }
        }
    }
    tokio::task::spawn_local(mcp_sessions::open_for(service.clone(), clients));
    let listing = service.clone();
    tokio::task::spawn_local(async move { listing.list_tools().await });
    tokio::select! {
        never = service.sweep() => Ok(never),
        never = service.mcp.sweep() => Ok(never),
    }
}

async fn accept_tcp(listener: TcpListener, shared: Rc<ServerShared>) {
    loop {
        let permit = shared.connections.clone().acquire_owned().await;
        match (listener.accept().await, permit) {
            (Ok((stream, peer)), Ok(permit)) => {
                // Otherwise an event would wait for the previous one; a failure costs only that delay.
                let _ = stream.set_nodelay(true);
                let Ok(ours) = stream.local_addr() else {
                    continue;
                };
                let shared = shared.clone();
                tokio::task::spawn_local(async move {
                    let _permit = permit;
                    connection(stream, Arrival::Tcp(ours), Some(peer.ip()), shared).await;
                });
            }
            (Err(_), _) | (_, Err(_)) => sleep(PAUSE).await,
        }
    }
}

async fn accept_unix(listener: UnixListener, shared: Rc<ServerShared>) {
    loop {
        let permit = shared.connections.clone().acquire_owned().await;
        match (listener.accept().await, permit) {
            (Ok((stream, _)), Ok(permit)) => {
                let shared = shared.clone();
                tokio::task::spawn_local(async move {
                    let _permit = permit;
                    connection(stream, Arrival::Unix, None, shared).await;
                });
            }
            (Err(_), _) | (_, Err(_)) => sleep(PAUSE).await,
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    arrival: Arrival,
    peer: Option<IpAddr>,
    shared: Rc<ServerShared>,
) {
    let number = shared.arrived.get() + 1;
    shared.arrived.set(number);
    let from = ClientConnection {
        number,
        arrival,
        peer,
    };
    let answer = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(reported(request, from, &shared).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS_MAX);
    // A broken connection has ended, whatever the reason.
    let _ = http
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades()
        .await;
}

/// Answers a request and logs it.
async fn reported(
    request: Request<Incoming>,
    from: ClientConnection,
    shared: &ServerShared,
) -> Response<ResponseBody> {
    let begun = Instant::now();
    let path = request.uri().path();
    let asset = page::asset(path).filter(|_| shared.guard.page);
    let route = asset
        .map(|_| path.to_owned())
        .or_else(|| route_table::pattern(path));
    let span = access::request(from, request.method(), route.as_deref());
    let answered = async {
        let response = checked(request, asset, from, shared).await;
        let response = response.map(|reply| reply.redacted(shared.service.redactor));
        let code = response.extensions().get::<ErrorCode>().copied();
        access::answered(response.status(), code, begun, &shared.flood);
        response
    };
    answered.instrument(span).await
}

/// Answers a request that passes the guard and the rate limit.
async fn checked(
    request: Request<Incoming>,
    asset: Option<&'static Asset>,
    from: ClientConnection,
    shared: &ServerShared,
) -> Response<ResponseBody> {
    let (head, body) = request.into_parts();
    if head_bytes(&head) > HEAD_BYTES {
        return closing(error_reply(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            ErrorCode::TooLarge,
            &format!("a head has at most {HEAD_BYTES} bytes"),
        ));
    }
    let checked = match asset {
        Some(_) => shared.guard.check_page(&head, from.arrival),
        None => shared.guard.check(&head, from.arrival),
    };
    let requester = if checked.is_ok() && asset.is_none() {
        Requester::Known
    } else {
        Requester::Stranger
    };
    let taken = shared.rates.take(from.peer, requester);
    closing(match (checked, taken) {
        (Ok(()), Ok(())) if let Some(asset) = asset => page::reply(&head.method, asset),
        (Ok(()), Ok(())) => {
            return routes::answer(shared.service.clone(), Request::from_parts(head, body)).await;
        }
        (_, Err(after)) => too_often(after),
        (Err(refusal), Ok(())) => refusal_reply(refusal),
    })
}

/// Closes the connection after the response: the body of the request is not read.
fn closing(mut response: Response<ResponseBody>) -> Response<ResponseBody> {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Approximate size of a head. Hyper bounds its buffer, which may have received more at once.
fn head_bytes(head: &Parts) -> usize {
    let headers: usize = head
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    head.uri.to_string().len() + headers
}

fn refusal_reply(refusal: AccessRefusal) -> Response<ResponseBody> {
    let mut response = error_reply(refusal.status(), refusal.code(), &refusal.to_string());
    if refusal.status() == StatusCode::UNAUTHORIZED {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
