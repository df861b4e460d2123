//! A server with an address, over streamable HTTP: requests go to its host alone, and answers are bounded before the library sees
//! them. The library manages sessions, and resumes and ends streams.

use crate::messages::{Excess, ID_MAX, MESSAGE_MAX, MessageError, read};
use crate::state::ServerState;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use http::{Method, StatusCode};
use orchestrator_http::{HostRequest, Response};
use orchestrator_text::server_events::{ServerEvent, ServerEventError, ServerEvents};
use orchestrator_web::error::HttpError;
use orchestrator_web::named::{NamedHost, body};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, SseError, StreamableHttpClient,
    StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
use url::Url;

/// Maximum bytes of an error answer.
const ERROR_MAX: usize = 64 << 10;

/// The number of messages that opening a stream counts as.
const STREAM_MESSAGES: usize = 10;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Why a server with an address did not answer.
#[derive(Debug, Error)]
pub(crate) enum RemoteError {
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("{0}")]
    Message(#[from] MessageError),
    #[error("it answered with HTTP status {0}")]
    Status(u16),
    #[error("its answer is not a message")]
    Other,
    #[error("the connection was closed: it {0}")]
    GivenUp(String),
    #[error("it {0}")]
    Excess(#[from] Excess),
}

type Failure = StreamableHttpError<RemoteError>;

/// A server with an address. All clones are the same server.
#[derive(Clone)]
pub(crate) struct RemoteServer(Arc<Inner>);

struct Inner {
    host: NamedHost,
    headers: HeaderMap,
    state: Arc<ServerState>,
    trouble: Mutex<Option<String>>,
    challenge: Mutex<Option<String>>,
}

impl RemoteServer {
    /// The server for `host`'s target, with these headers in every request.
    pub(crate) fn new(host: NamedHost, headers: HeaderMap, state: Arc<ServerState>) -> Self {
        let (trouble, challenge) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner {
            host,
            headers,
            state,
            trouble,
            challenge,
        }))
    }

    /// The host that requests go to.
    pub(crate) fn host(&self) -> &NamedHost {
        &self.0.host
    }

    /// The last problem, as text.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The server's challenge when it refused us for a missing or insufficient login; empty if it sent none.
    pub(crate) fn challenge(&self) -> Option<String> {
        self.0
            .challenge
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sends a request to its host, unless the server was given up. A response with `401` or `403` is an error.
    pub(crate) async fn send(
        &self,
        request: HostRequest,
        token: Option<String>,
    ) -> Result<Response, Failure> {
        self.open().map_err(Failure::Client)?;
        let request = request.headers(self.0.headers.clone());
        let request = match token {
            Some(token) => request
                .bearer(&token)
                .map_err(|failure| self.failed(HttpError::from(failure).into()))?,
            None => request,
        };
        // Compressed answers would have to be counted twice, and events do not compress well.
        let request = request.header(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let sent = self.0.host.send(request).await;
        let response = sent.map_err(|error| self.failed(error.into()))?;
        match refusal(&response) {
            Some((challenge, refusal)) => {
                *self
                    .0
                    .challenge
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(challenge);
                Err(refusal)
            }
            None => Ok(response),
        }
    }

    fn open(&self) -> Result<(), RemoteError> {
        match self.0.state.why_gone() {
            Some(why) => Err(RemoteError::GivenUp(why.to_owned())),
            None => Ok(()),
        }
    }

    fn failed(&self, error: RemoteError) -> Failure {
        *self
            .0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        Failure::Client(error)
    }

    /// The error for an unexpected response.
    fn status(&self, response: &Response) -> Failure {
        let status = response.status();
        let _ = self.failed(RemoteError::Status(status.as_u16()));
        let retry = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        HttpStatusError::new(status.as_u16(), retry.map(str::to_owned)).into()
    }

    /// The events of an answer. Exceeding a bound ends the server, not only the stream: the library would request that again.
    pub(crate) fn events(&self, response: Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let reader = EventReader {
            server: self.clone(),
            response,
            events: ServerEvents::new(MESSAGE_MAX),
        };
        let next = |reader: Option<EventReader>| async move {
            let mut reader = reader?;
            match reader.next().await {
                Ok(event) => event.map(|event| (Ok(event), Some(reader))),
                Err(error) => Some((Err(error), None)),
            }
        };
        stream::unfold(Some(reader), next).boxed()
    }

    fn check(&self, event: &Sse) -> Result<(), Excess> {
        self.0.state.count(1, 0)?;
        if event.id.as_ref().is_some_and(|id| id.len() > ID_MAX) {
            return Err(Excess::Name);
        }
        match event.data.as_deref().map(|data| read(data.as_bytes())) {
            Some(Err(MessageError::TooMany)) => Err(Excess::Values),
            // The library skips invalid messages.
            Some(Err(MessageError::Other) | Ok(_)) | None => Ok(()),
        }
    }

    fn count(&self, messages: usize, bytes: usize) -> Result<(), RemoteError> {
        Ok(self.0.state.count(messages, bytes)?)
    }

    fn give_up(&self, excess: Excess) -> RemoteError {
        self.0.state.end(excess.to_string());
        excess.into()
    }

    /// The answer to a message that was posted in a session, if there was one yet.
    async fn answer(
        &self,
        response: Response,
        message: &ClientJsonRpcMessage,
        session_id: Option<&str>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let status = response.status();
        if status == StatusCode::ACCEPTED || status == StatusCode::NO_CONTENT {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(Failure::SessionExpired);
        }
        if !status.is_success() {
            return self.error(response).await;
        }
        if !matches!(message, ClientJsonRpcMessage::Request(_)) {
            // Some servers answer a notification with 200 and arbitrary content.
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        self.count(1, 0).map_err(|error| self.failed(error))?;
        let session = session(&response).map_err(|error| self.failed(error))?;
        if is_media(&response, EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(
                self.events(response),
                session,
            ));
        }
        if !is_media(&response, JSON) {
            return Err(self.failed(RemoteError::Other));
        }
        let bytes = body(response, MESSAGE_MAX)
            .await
            .map_err(|error| self.failed(error.into()))?;
        self.count(0, bytes.len())
            .map_err(|error| self.failed(error))?;
        let message = read(&bytes).map_err(|error| self.failed(error.into()))?;
        Ok(StreamableHttpPostResponse::Json(message, session))
    }

    /// An error response, returned as a message if it contains one.
    async fn error(&self, response: Response) -> Result<StreamableHttpPostResponse, Failure> {
        let (failure, is_json) = (self.status(&response), is_media(&response, JSON));
        if !is_json {
            return Err(failure);
        }
        match body(response, ERROR_MAX).await.map(|bytes| read(&bytes)) {
            Ok(Ok(message @ JsonRpcMessage::Error(_))) => {
                Ok(StreamableHttpPostResponse::Json(message, None))
            }
            Ok(_) | Err(_) => Err(failure),
        }
    }
}

/// The events of one answer of `server`.
struct EventReader {
    server: RemoteServer,
    response: Response,
    events: ServerEvents,
}

impl EventReader {
    async fn next(&mut self) -> Result<Option<Sse>, SseError> {
        loop {
            if let Some(ServerEvent {
                event,
                data,
                id,
                retry,
            }) = self.cut()?
            {
                let event = Sse {
                    event,
                    data,
                    id,
                    retry,
                };
                self.server
                    .check(&event)
                    .map_err(|excess| self.exceeded(excess))?;
                return Ok(Some(event));
            }
            let piece = self.response.chunk().await.map_err(|failure| {
                let broken = HttpError::Broken(failure.to_string());
                SseError::Body(RemoteError::Http(broken).into())
            })?;
            let Some(piece) = piece else {
                return Ok(None);
            };
            let counted = self.server.0.state.count(0, piece.len());
            counted.map_err(|excess| self.exceeded(excess))?;
            self.events.push(&piece);
        }
    }

    fn cut(&mut self) -> Result<Option<ServerEvent>, SseError> {
        self.events.next_event().map_err(|error| match error {
            ServerEventError::TooLong => self.exceeded(Excess::Event),
            ServerEventError::NotUtf8(error) => SseError::Utf8Parse(error),
        })
    }

    fn exceeded(&self, excess: Excess) -> SseError {
        SseError::Body(self.server.give_up(excess).into())
    }
}

/// If a response refuses us for a missing or insufficient login: its challenge, and the error.
fn refusal(response: &Response) -> Option<(String, Failure)> {
    let said = response
        .headers()
        .get(WWW_AUTHENTICATE)
        .and_then(|value| value.to_str().ok());
    match (response.status(), said) {
        (StatusCode::UNAUTHORIZED, said) => {
            let said = said.unwrap_or_default().to_owned();
            Some((
                said.clone(),
                Failure::AuthRequired(AuthRequiredError::new(said)),
            ))
        }
        (StatusCode::FORBIDDEN, Some(said)) => {
            let error = InsufficientScopeError::new(said.to_owned(), None);
            Some((said.to_owned(), Failure::InsufficientScope(error)))
        }
        _ => None,
    }
}

fn is_media(response: &Response, wanted: &str) -> bool {
    let media = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = media.and_then(|text| text.split(';').next()).map(str::trim);
    media.is_some_and(|media| media.eq_ignore_ascii_case(wanted))
}

/// The session ID that it assigned.
fn session(response: &Response) -> Result<Option<String>, RemoteError> {
    let Some(value) = response.headers().get(SESSION) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(name) if name.len() <= ID_MAX => Ok(Some(name.to_owned())),
        Ok(_) | Err(_) => Err(Excess::Name.into()),
    }
}

/// The address of a message, as the library has it.
fn url(text: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|_| Failure::Client(RemoteError::Other))
}

/// An ID that it assigned, as a header.
fn header(name: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(name).map_err(|_| Failure::Client(RemoteError::Other))
}

impl StreamableHttpClient for RemoteServer {
    type Error = RemoteError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let mut request = self
            .0
            .host
            .client()
            .to(Method::POST, &url(&uri)?)
            .headers(headers.into_iter().collect());
        request = request
            .header(
                ACCEPT,
                HeaderValue::from_static("application/json, text/event-stream"),
            )
            .header(CONTENT_TYPE, HeaderValue::from_static(JSON));
        if let Some(id) = &session_id {
            request = request.header(SESSION, header(id)?);
        }
        let body = serde_json::to_vec(&message)?;
        let response = self.send(request.body(body), token).await?;
        self.answer(response, &message, session_id.as_deref()).await
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let request = self
            .0
            .host
            .client()
            .to(Method::DELETE, &url(&uri)?)
            .headers(headers.into_iter().collect());
        let response = self
            .send(request.header(SESSION, header(&session_id)?), token)
            .await?;
        match response.status() {
            // A server may keep sessions for as long as it likes.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.status(&response)),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        token: Option<String>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        // The server may end the stream at once, to be asked again.
        let counted = self.0.state.count(STREAM_MESSAGES, 0);
        counted.map_err(|excess| self.failed(self.give_up(excess)))?;
        let mut request = self
            .0
            .host
            .client()
            .to(Method::GET, &url(&uri)?)
            .headers(headers.into_iter().collect());
        request = request.header(ACCEPT, HeaderValue::from_static(EVENTS));
        if let Some(id) = &session_id {
            request = request.header(SESSION, header(id)?);
        }
        if let Some(id) = &last_event_id {
            request = request.header(LAST_EVENT, header(id)?);
        }
        let response = self.send(request, token).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(Failure::ServerDoesNotSupportSse),
            status if status.is_success() && is_media(&response, EVENTS) => {
                Ok(self.events(response))
            }
            status if status.is_success() => Err(self.failed(RemoteError::Other)),
            _ => Err(self.status(&response)),
        }
    }
}
