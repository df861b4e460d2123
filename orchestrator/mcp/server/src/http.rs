//! Clients over streamable HTTP: their sessions, each with a server of its own, and how long they last.
//!
//! `rmcp` implements the protocol's requests and streams. This file decides what it leaves open: how many sessions there may be,
//! when one ends, and what happens to a client that does not read. Requests that arrive here are already authorised.

use crate::projects::SessionRequest;
use crate::server::{McpSettings, Offer, VERSIONS};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::{HeaderMap, Request, Response, StatusCode};
use orchestrator_results::error_body::ErrorCode;
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// The header that names a session.
const SESSION: &str = "mcp-session-id";
/// The key with which a request names its own version of the protocol.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Maximum bytes of a body: a write of the largest content, of which every second byte is escaped, and some more.
pub const BODY_MAX: usize = 32 << 20;
/// Maximum number of sessions: each may have an executor.
const SESSIONS_MAX: usize = 64;
/// Maximum number of answers in progress to one client.
const STREAMS_MAX: usize = 32;
/// How long a session without requests and listeners is kept.
const IDLE: Duration = Duration::from_secs(10 * 60);
/// How often a stream sends a sign of life.
const ALIVE: Duration = Duration::from_secs(15);
/// How long a client may read nothing from a stream, not even these.
const STALLED: Duration = Duration::from_secs(60);
/// How often to look for sessions and streams that have to end.
const SWEEP: Duration = Duration::from_secs(30);

type Given = BoxBody<Bytes, Infallible>;
type Answering = Pin<Box<dyn Future<Output = Response<Given>>>>;

/// Why a request is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotPassedOn {
    /// It names no session and does not begin one.
    #[error("Mcp-Session-Id is missing: `initialize` begins a session")]
    NoSession,
    /// It would be served without a session, as in later versions of the protocol.
    #[error("requests that name their own version of the protocol are not served")]
    Stateless,
    /// There are too many sessions.
    #[error("{SESSIONS_MAX} sessions are open: one has to end (DELETE), or be idle for {} min", IDLE.as_secs() / 60)]
    Sessions,
    /// Too many answers of one session are in progress.
    #[error("{STREAMS_MAX} answers of this session are under way")]
    Streams,
    /// The answer to the earlier request would be lost.
    #[error("a request with this id is under way in this session")]
    Twice,
}

impl NotPassedOn {
    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoSession | Self::Stateless => StatusCode::BAD_REQUEST,
            Self::Sessions | Self::Streams => StatusCode::TOO_MANY_REQUESTS,
            Self::Twice => StatusCode::CONFLICT,
        }
    }

    /// The code in the response.
    pub fn code(self) -> ErrorCode {
        match self {
            Self::NoSession => ErrorCode::NoSession,
            Self::Stateless => ErrorCode::Stateless,
            Self::Sessions => ErrorCode::TooManySessions,
            Self::Streams => ErrorCode::TooManyAnswers,
            Self::Twice => ErrorCode::IdInUse,
        }
    }
}

/// Clients as they connect: for each, its requests for sessions.
pub type Clients = UnboundedReceiver<UnboundedReceiver<SessionRequest>>;

/// All clients over HTTP.
pub struct HttpClients {
    answering: Box<dyn Fn(Request<Full<Bytes>>) -> Answering>,
    manager: Arc<LocalSessionManager>,
    clients: RefCell<HashMap<String, ClientSession>>,
    /// Bounds the clients; a permit is released when its client's server ends.
    places: Arc<Semaphore>,
}

/// The state of a session.
struct ClientSession {
    asked: Instant,
    streams: Vec<Weak<ClientStream>>,
}

impl ClientSession {
    fn new() -> Self {
        Self {
            asked: Instant::now(),
            streams: Vec::new(),
        }
    }

    fn listening(&mut self) -> usize {
        self.streams.retain(|stream| {
            stream
                .upgrade()
                .is_some_and(|stream| stream.given.borrow().is_some())
        });
        self.streams.len()
    }

    /// Reserves a place for an answer before it exists: otherwise simultaneous requests would all find room.
    fn admit(&mut self, stream: &Rc<ClientStream>) -> Result<(), NotPassedOn> {
        self.asked = Instant::now();
        if self.listening() >= STREAMS_MAX {
            return Err(NotPassedOn::Streams);
        }
        let is_twice =
            |open: Rc<ClientStream>| open.request.is_some() && open.request == stream.request;
        if self.streams.iter().filter_map(Weak::upgrade).any(is_twice) {
            return Err(NotPassedOn::Twice);
        }
        self.streams.push(Rc::downgrade(stream));
        Ok(())
    }
}

impl HttpClients {
    /// Serves the tools of sessions, which are requested through the returned receiver.
    pub fn new(settings: McpSettings) -> (Self, Clients) {
        let (arrivals, clients) = unbounded_channel();
        let offer = Offer::new(settings);
        let http = Self::serving(move |place| {
            let (sessions, requests) = unbounded_channel();
            arrivals
                .send(requests)
                .map_err(|_| io::Error::other("lazaret is ending"))?;
            Ok(offer.clone().server(sessions, Some(place)))
        });
        (http, clients)
    }

    /// Serves each client by a handler of its own, which has to hold the client's permit.
    pub fn serving<S: ServerHandler>(
        handler: impl Fn(OwnedSemaphorePermit) -> io::Result<S> + Send + Sync + 'static,
    ) -> Self {
        let mut manager = LocalSessionManager::default();
        // A call may be silent for longer than any timeout without messages, so `sweep` finds what is idle.
        manager.session_config.keep_alive = None;
        let manager = Arc::new(manager);
        // The guard has checked the Host against the address that received the request.
        let config = StreamableHttpServerConfig::default()
            .with_max_request_body_bytes(BODY_MAX)
            .disable_allowed_hosts()
            .with_sse_keep_alive(Some(ALIVE));
        let places = Arc::new(Semaphore::new(SESSIONS_MAX));
        let free = places.clone();
        let handler = move || handler(free.clone().try_acquire_owned().map_err(io::Error::other)?);
        let service = StreamableHttpService::new(handler, manager.clone(), config);
        let answering = move |request| -> Answering {
            let service = service.clone();
            Box::pin(async move { service.handle(request).await })
        };
        Self {
            answering: Box::new(answering),
            manager,
            clients: RefCell::default(),
            places,
        }
    }

    /// Answers a request whose body was already read within its limits.
    ///
    /// # Errors
    /// If it has no session and may not begin one, or there is no room for its answer.
    pub async fn answer(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<AnswerBody>, NotPassedOn> {
        let named = session(request.headers());
        let stream = self.admit(named.as_deref(), request.body())?;
        let response = (self.answering)(request.map(Full::new)).await;
        let begun = session(response.headers());
        let (head, given) = response.into_parts();
        stream.given.replace(Some(given));
        stream.polled.set(Instant::now());
        if let Some(name) = begun.filter(|_| named.is_none()) {
            let client = ClientSession {
                streams: vec![Rc::downgrade(&stream)],
                ..ClientSession::new()
            };
            self.clients.borrow_mut().insert(name, client);
        }
        Ok(Response::from_parts(head, AnswerBody(stream)))
    }

    /// Registers a client's request, if it is permitted; returns the stream of the answer.
    fn admit(&self, session: Option<&str>, body: &[u8]) -> Result<Rc<ClientStream>, NotPassedOn> {
        // A body that cannot be parsed gets the library's error.
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        // With a version that we support, it would be served outside all sessions and their bounds.
        let version = message["params"]["_meta"][VERSION].as_str();
        if version.is_some_and(|version| VERSIONS.iter().any(|spoken| spoken.as_str() == version)) {
            return Err(NotPassedOn::Stateless);
        }
        let stream = Rc::new(ClientStream::of(&message));
        let Some(session) = session else {
            return match message["method"].as_str() {
                Some("initialize") if self.places.available_permits() == 0 => {
                    Err(NotPassedOn::Sessions)
                }
                // Clients of later versions send the second one first.
                Some("initialize" | "server/discover") => Ok(stream),
                Some(_) | None => Err(NotPassedOn::NoSession),
            };
        };
        let mut clients = self.clients.borrow_mut();
        // An unknown session is left to the library, which reports it.
        if let Some(client) = clients.get_mut(session) {
            client.admit(&stream)?;
        }
        Ok(stream)
    }

    /// Ends streams that nobody reads and sessions that nobody uses. Never returns.
    pub async fn sweep(&self) -> Infallible {
        loop {
            sleep(SWEEP).await;
            let open: Vec<_> = self.manager.sessions.read().await.keys().cloned().collect();
            for session in self.idle(&open) {
                // A session that has already ended has nothing to close.
                let _ = self.manager.close_session(&session).await;
            }
        }
    }

    /// Those of the open sessions that are idle.
    fn idle(&self, open: &[Arc<str>]) -> Vec<Arc<str>> {
        let mut clients = self.clients.borrow_mut();
        clients.retain(|name, _| open.iter().any(|session| **session == **name));
        let is_idle = |session: &&Arc<str>| {
            // A client may have disconnected before it learnt the ID of its session.
            let client = clients
                .entry(session.to_string())
                .or_insert_with(ClientSession::new);
            client
                .streams
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|stream| stream.end_if_stalled());
            client.listening() == 0 && client.asked.elapsed() >= IDLE
        };
        open.iter().filter(is_idle).cloned().collect()
    }
}

/// The session named in the header.
fn session(headers: &HeaderMap) -> Option<String> {
    headers
        .get(SESSION)
        .and_then(|name| name.to_str().ok())
        .map(str::to_owned)
}

struct ClientStream {
    /// `None` once it has ended.
    given: RefCell<Option<Given>>,
    polled: Cell<Instant>,
    /// The ID of the request that it answers, if any.
    request: Option<Value>,
}

impl ClientStream {
    /// A stream for the answer to `message`, which does not exist yet.
    fn of(message: &Value) -> Self {
        let request = message["method"]
            .is_string()
            .then(|| message["id"].clone())
            .filter(|id| !id.is_null());
        let given = RefCell::new(Some(Full::default().boxed()));
        Self {
            given,
            polled: Cell::new(Instant::now()),
            request,
        }
    }

    /// Ends the stream if its client does not read: the session would wait for it.
    fn end_if_stalled(&self) {
        if self.polled.get().elapsed() >= STALLED {
            self.given.take();
        }
    }
}

/// The body of an answer.
pub struct AnswerBody(Rc<ClientStream>);

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.polled.set(Instant::now());
        let mut given = self.0.given.borrow_mut();
        let Some(body) = given.as_mut() else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(None) = polled {
            *given = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .given
            .borrow()
            .as_ref()
            .is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0
            .given
            .borrow()
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Method;
    use serde_json::json;

    struct Nothing {
        _place: OwnedSemaphorePermit,
    }

    impl ServerHandler for Nothing {}

    fn http() -> HttpClients {
        HttpClients::serving(|place| Ok(Nothing { _place: place }))
    }

    async fn send(
        http: &HttpClients,
        method: Method,
        session: Option<&str>,
        body: Value,
    ) -> Result<Response<AnswerBody>, NotPassedOn> {
        let mut request = Request::builder()
            .method(method)
            .uri("/mcp")
            .header("host", "localhost");
        request = request.header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        http.answer(request.body(body.to_string().into()).unwrap())
            .await
    }

    async fn open(http: &HttpClients) -> String {
        let client = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let answer = send(http, Method::POST, None, begin).await.unwrap();
        let name = session(answer.headers()).unwrap();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(status(http, &name, ready).await, StatusCode::ACCEPTED);
        name
    }

    async fn status(http: &HttpClients, session: &str, message: Value) -> StatusCode {
        send(http, Method::POST, Some(session), message)
            .await
            .unwrap()
            .status()
    }

    fn ping() -> Value {
        json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" })
    }

    /// Lets time pass while `sweep` runs.
    async fn pass(http: &HttpClients, time: Duration) {
        tokio::select! {
            never = http.sweep() => match never {},
            () = sleep(time) => {}
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_when_it_is_idle_and_not_before() {
        let http = http();
        let [idle, asked, heard] = [open(&http).await, open(&http).await, open(&http).await];
        let mut listening = send(&http, Method::GET, Some(&heard), json!(null))
            .await
            .unwrap()
            .into_body();
        // Signs of life use the machine's clock, which stands still here, so they would never end.
        let hearing = async {
            while listening.frame().await.is_some() {
                sleep(ALIVE).await;
            }
        };
        let passing = async {
            pass(&http, IDLE - SWEEP).await;
            assert_eq!(status(&http, &asked, ping()).await, StatusCode::OK);
            pass(&http, 3 * SWEEP).await;
        };
        tokio::select! {
            () = hearing => panic!("the stream has ended"),
            () = passing => {}
        }
        assert_eq!(status(&http, &idle, ping()).await, StatusCode::NOT_FOUND);
        assert_eq!(status(&http, &asked, ping()).await, StatusCode::OK);
        assert_eq!(status(&http, &heard, ping()).await, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_takes_is_dropped() {
        let http = http();
        let session = open(&http).await;
        let mut stream = send(&http, Method::GET, Some(&session), json!(null))
            .await
            .unwrap()
            .into_body();
        assert!(stream.frame().await.is_some());
        pass(&http, STALLED - SWEEP).await;
        assert!(!stream.is_end_stream());
        pass(&http, STALLED + SWEEP).await;
        assert!(stream.is_end_stream() && stream.frame().await.is_none());
        assert_eq!(
            status(&http, &session, ping()).await,
            StatusCode::OK,
            "its session goes on"
        );
    }

    /// Never answers a call, and counts the calls.
    struct Waiting {
        asked: Arc<Semaphore>,
        _place: OwnedSemaphorePermit,
    }

    impl ServerHandler for Waiting {
        async fn list_tools(
            &self,
            _: Option<rmcp::model::PaginatedRequestParams>,
            _: rmcp::service::RequestContext<rmcp::RoleServer>,
        ) -> Result<rmcp::model::ListToolsResult, rmcp::model::ErrorData> {
            self.asked.add_permits(1);
            std::future::pending().await
        }
    }

    #[tokio::test]
    async fn requests_that_come_at_once_find_no_more_room_than_there_is() {
        let asked = Arc::new(Semaphore::new(0));
        let count = asked.clone();
        let http = HttpClients::serving(move |place| {
            Ok(Waiting {
                asked: count.clone(),
                _place: place,
            })
        });
        let session = open(&http).await;
        let list = |id: usize| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        let requests =
            (0..2 * STREAMS_MAX).map(|id| send(&http, Method::POST, Some(&session), list(id + 10)));
        let answers = futures_util::future::join_all(requests).await;
        let open = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(open, STREAMS_MAX);
        assert!(
            answers
                .iter()
                .flat_map(|answer| answer.as_ref().err())
                .all(|no| *no == NotPassedOn::Streams)
        );
    }

    #[tokio::test]
    async fn an_id_is_not_used_twice_at_once() {
        let asked = Arc::new(Semaphore::new(0));
        let http = HttpClients::serving(move |place| {
            Ok(Waiting {
                asked: asked.clone(),
                _place: place,
            })
        });
        let session = open(&http).await;
        let list = |id: Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        let ask = |id: Value| send(&http, Method::POST, Some(&session), list(id));
        let first = ask(json!(7)).await.unwrap();
        assert_eq!(ask(json!(7)).await.err(), Some(NotPassedOn::Twice));
        let others = [ask(json!("7")).await.unwrap(), ask(json!(8)).await.unwrap()];
        let told = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 8 } });
        assert_eq!(
            status(&http, &session, told).await,
            StatusCode::ACCEPTED,
            "what has no id is no request"
        );
        drop((first, others));
        assert!(ask(json!(7)).await.is_ok(), "it is free again");
    }

    #[tokio::test]
    async fn a_name_that_is_made_up_is_not_remembered() {
        let http = http();
        for method in [Method::POST, Method::GET, Method::DELETE] {
            let _ = send(&http, method, Some("made-up"), ping()).await.unwrap();
        }
        assert!(http.clients.borrow().is_empty());
        open(&http).await;
        assert_eq!(http.clients.borrow().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_that_has_ended_gives_its_place_back() {
        let http = http();
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS_MAX {
            sessions.push(open(&http).await);
        }
        let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize" });
        let refused = send(&http, Method::POST, None, begin).await;
        assert!(matches!(refused, Err(NotPassedOn::Sessions)));
        pass(&http, IDLE + 2 * SWEEP).await;
        open(&http).await;
    }
}
