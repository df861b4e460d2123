//! The server: accepts connections at three ports, checks the head of each request, and lets it be answered.

use crate::admission::{Admission, placed};
use crate::body::ReplyBody;
use crate::fault::SandboxFault;
use crate::grpc;
use crate::guard::{self, HEAD_MAX};
use crate::legacy::{self, LegacyRoutes};
use crate::process_service::{ProcessRoutes, SERVICE};
use crate::rest::{self, RestRoutes};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections at once of one port; further ones wait in the kernel.
const CONNECTIONS_MAX: usize = 256;
const HEADERS_MAX: usize = 64;
/// Requests at once on one connection of HTTP/2.
const STREAMS_MAX: u32 = 64;
/// Bytes of a request that are read ahead of who reads its body, and of all requests of a connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// How long a connection may be without a request, and its head may take. Clients hold connections and notice late that one is gone.
const IDLE: Duration = Duration::from_secs(300);
/// How often a connection of HTTP/2 is asked whether it is alive, and how long its answer may take.
const ASK: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(20);
/// How long to wait after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A protocol, with what its requests need.
#[derive(Clone)]
pub(crate) enum SandboxProtocol {
    Legacy(Rc<LegacyRoutes>),
    Rest(Rc<RestRoutes>),
    Process(Rc<ProcessRoutes>),
}

/// The connections of all ports.
#[derive(Clone, Default)]
pub(crate) struct SandboxServer {
    closing: CancellationToken,
    tasks: TaskTracker,
    admission: Rc<Admission>,
}

/// A port, as its connections see it.
#[derive(Clone)]
struct ServedPort {
    protocol: SandboxProtocol,
    /// Whether it is of this machine alone.
    loopback: bool,
    admission: Rc<Admission>,
}

/// Runs what a connection of HTTP/2 starts.
#[derive(Clone, Copy)]
struct OurThread;

impl<F: Future + 'static> Executor<F> for OurThread {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

impl SandboxServer {
    /// Serves a protocol at a port that was bound before.
    ///
    /// # Errors
    /// The port cannot be watched.
    pub(crate) fn serve(
        &self,
        listener: std::net::TcpListener,
        protocol: SandboxProtocol,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let port = ServedPort {
            protocol,
            loopback: is_loopback(listener.local_addr()?.ip()),
            admission: self.admission.clone(),
        };
        let listener = TcpListener::from_std(listener)?;
        let (server, places) = (self.clone(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        tokio::task::spawn_local(async move {
            loop {
                let place = places.clone().acquire_owned().await;
                let (Ok((stream, _)), Ok(place)) = (listener.accept().await, place) else {
                    sleep(PAUSE).await;
                    continue;
                };
                let port = port.clone();
                let closing = server.closing.clone();
                server.tasks.spawn_local(async move {
                    let _place = place;
                    connection(stream, port, closing).await;
                });
            }
        });
        Ok(())
    }

    /// Lets each connection end its requests under way, and waits for that.
    pub(crate) async fn close(&self, at_most: Duration) {
        self.closing.cancel();
        self.tasks.close();
        // What takes longer ends with this process.
        let _ = timeout(at_most, self.tasks.wait()).await;
    }
}

fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback(),
    }
}

async fn connection(stream: TcpStream, port: ServedPort, closing: CancellationToken) {
    // Otherwise a body would wait for the answer to its head; a failure costs only that delay.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(stream);
    let is_http2 = matches!(port.protocol, SandboxProtocol::Process(_));
    let answer = service_fn(move |request| {
        let port = port.clone();
        async move { Ok::<_, Infallible>(checked(request, port).await) }
    });
    // A broken connection has ended, whatever the reason.
    if is_http2 {
        let mut http = http2::Builder::new(OurThread);
        http.timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_MAX as u32)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(STREAM_WINDOW as usize)
            .keep_alive_interval(ASK)
            .keep_alive_timeout(ANSWER);
        let mut served = std::pin::pin!(http.serve_connection(stream, answer));
        tokio::select! {
            _ = &mut served => return,
            () = closing.cancelled() => served.as_mut().graceful_shutdown(),
        }
        let _ = served.await;
    } else {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(HEAD_MAX)
            .max_headers(HEADERS_MAX);
        let mut served = std::pin::pin!(http.serve_connection(stream, answer));
        tokio::select! {
            _ = &mut served => return,
            () = closing.cancelled() => served.as_mut().graceful_shutdown(),
        }
        let _ = served.await;
    }
}

/// Answers a request whose head is in order, when there is room for its answer.
async fn checked(request: Request<Incoming>, port: ServedPort) -> Response<ReplyBody> {
    let (head, body) = request.into_parts();
    if let Err(fault) = guard::check(&head, port.loopback) {
        return refusal(&port.protocol, fault);
    }
    if !is_large(head.uri.path()) {
        return answer(Request::from_parts(head, body), &port.protocol).await;
    }
    match port.admission.admit().await {
        Ok(place) => placed(
            answer(Request::from_parts(head, body), &port.protocol).await,
            place,
        ),
        Err(fault) => refusal(&port.protocol, fault),
    }
}

/// Whether the answer may be of any size. Those of probes are not, nor those to what steers a process; and a process has a place of its
/// own for as long as it lives.
fn is_large(path: &str) -> bool {
    let probes = ["/", "/v1/health", "/v1/metadata"];
    let is_of_process = path.starts_with(SERVICE) && !path.ends_with("/Execute");
    !probes.contains(&path) && !is_of_process
}

async fn answer(request: Request<Incoming>, protocol: &SandboxProtocol) -> Response<ReplyBody> {
    match protocol {
        SandboxProtocol::Legacy(routes) => routes.answer(request).await,
        SandboxProtocol::Rest(routes) => routes.answer(request).await,
        SandboxProtocol::Process(routes) => routes.answer(request).await,
    }
}

fn refusal(protocol: &SandboxProtocol, fault: SandboxFault) -> Response<ReplyBody> {
    match protocol {
        SandboxProtocol::Legacy(_) => legacy::refusal(&fault),
        SandboxProtocol::Rest(_) => rest::refusal(&fault),
        SandboxProtocol::Process(_) => grpc::unary(Err(fault)),
    }
}
