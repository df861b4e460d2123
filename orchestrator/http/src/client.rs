//! Requests to one host by way of the gateway. Follows no redirect, keeps no cookie, decompresses nothing.

use crate::ask::{By, ConnectionAsk, FAULT, FAULT_MAX, LOCATE, NetworkFault};
use crate::gateway::{ClientGateway, ClientGatewayError};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HeaderName, HeaderValue, USER_AGENT};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use orchestrator_reach::target::Target;
use std::sync::{Arc, Mutex, PoisonError};
use thiserror::Error;
use url::{Position, Url};

/// Maximum number of connections to one host that are kept for later requests.
const IDLE_MAX: usize = 4;
/// Maximum bytes of an answer's head. The gateway's limit for a host is the same.
pub(crate) const HEAD_MAX: usize = 64 << 10;

const AGENT: HeaderValue = HeaderValue::from_static(concat!("lazaret/", env!("CARGO_PKG_VERSION")));

/// The sender that all requests name.
pub fn user_agent() -> HeaderValue {
    AGENT
}

/// Why there is no answer, or no more of it.
#[derive(Debug, Error)]
pub enum HttpFailure {
    /// Why the gateway has no answer of the host for us.
    #[error("{0}")]
    Fault(NetworkFault),
    #[error("{0}")]
    Gateway(#[from] ClientGatewayError),
    /// A header or the address cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Malformed(#[from] http::Error),
    #[error("the answer broke off: {0}")]
    Broken(String),
    #[error("the address is another host's")]
    Elsewhere,
}

/// One host, and the connections to it.
#[derive(Clone, Debug)]
pub struct HostClient(Arc<HostInner>);

#[derive(Debug)]
struct HostInner {
    gateway: ClientGateway,
    ask: ConnectionAsk,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl HostClient {
    /// Requests to the host of `url`, which was named by `by`.
    pub fn new(gateway: ClientGateway, by: By, url: &Url) -> Self {
        let url = url[..Position::BeforePath].to_owned();
        Self(Arc::new(HostInner {
            gateway,
            ask: ConnectionAsk { by, url },
            idle: Mutex::default(),
        }))
    }

    /// Whether the host has addresses, and may be reached at them.
    ///
    /// # Errors
    /// Why it may not, or has none.
    pub async fn locate(&self) -> Result<(), HttpFailure> {
        let method = Method::from_bytes(LOCATE.as_bytes()).map_err(http::Error::from)?;
        self.request(method, "/").send().await.map(drop)
    }

    /// A request for `url`. One for another host is not sent.
    pub fn to(&self, method: Method, url: &Url) -> HostRequest {
        let path = &url[Position::BeforePath..Position::AfterQuery];
        HostRequest {
            is_elsewhere: url[..Position::BeforePath] != self.0.ask.url,
            ..self.request(method, path)
        }
    }

    pub fn get(&self, target: &Target) -> HostRequest {
        self.to(Method::GET, target.url())
    }

    pub fn post(&self, target: &Target) -> HostRequest {
        self.to(Method::POST, target.url())
    }

    fn request(&self, method: Method, path: &str) -> HostRequest {
        HostRequest {
            client: self.clone(),
            method,
            path: path.to_owned(),
            is_elsewhere: false,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, HttpFailure> {
        let stream = self.0.gateway.connect(&self.0.ask).await?;
        let (send, connection) = http1::Builder::new()
            .max_buf_size(HEAD_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| HttpFailure::Broken(root(&error)))?;
        // Its error is that of the request on it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(send)
    }

    fn kept(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.0.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
    }

    /// Keeps a connection for the next request, once the answer was read.
    fn retain(&self, mut send: SendRequest<Full<Bytes>>) {
        let inner = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            if send.ready().await.is_ok()
                && let Some(inner) = inner.upgrade()
            {
                let mut idle = inner.idle.lock().unwrap_or_else(PoisonError::into_inner);
                if idle.len() < IDLE_MAX {
                    idle.push(send);
                }
            }
        });
    }

    async fn send(
        &self,
        request: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, HttpFailure> {
        let mut request = request;
        while let Some(mut send) = self.kept() {
            match send.try_send_request(request).await {
                Ok(response) => {
                    self.retain(send);
                    return Ok(response);
                }
                // The gateway has closed it meanwhile, and has seen nothing of this request.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(HttpFailure::Broken(root(error.error()))),
                },
            }
        }
        let mut send = self.open().await?;
        let sent = send.send_request(request).await;
        let response = sent.map_err(|error| HttpFailure::Broken(root(&error)))?;
        self.retain(send);
        Ok(response)
    }
}

/// A request that is being built.
#[derive(Debug)]
pub struct HostRequest {
    client: HostClient,
    method: Method,
    path: String,
    is_elsewhere: bool,
    headers: HeaderMap,
    body: Bytes,
}

impl HostRequest {
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Adds headers, in place of those of the same names.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Adds a token of a login.
    ///
    /// # Errors
    /// If no header can contain it.
    pub fn bearer(self, token: &str) -> Result<Self, HttpFailure> {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(http::Error::from)?;
        value.set_sensitive(true);
        Ok(self.header(AUTHORIZATION, value))
    }

    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..self
        }
    }

    /// Sends it; returns the head of the answer.
    ///
    /// # Errors
    /// If there is none of the host.
    pub async fn send(self) -> Result<Response, HttpFailure> {
        if self.is_elsewhere {
            return Err(HttpFailure::Elsewhere);
        }
        let mut request = http::Request::builder()
            .method(self.method)
            .uri(self.path)
            .body(Full::new(self.body))?;
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, AGENT);
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.extend(self.headers);
        let (head, body) = self.client.send(request).await?.into_parts();
        let response = Response { head, body };
        if response.head.headers.contains_key(FAULT) {
            return Err(response.fault().await);
        }
        Ok(response)
    }
}

/// An answer, of which the head was read.
#[derive(Debug)]
pub struct Response {
    head: http::response::Parts,
    body: Incoming,
}

impl Response {
    pub fn status(&self) -> StatusCode {
        self.head.status
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The length of the body, where the host says it.
    pub fn content_length(&self) -> Option<u64> {
        let value = self.head.headers.get(CONTENT_LENGTH)?.to_str().ok()?;
        value.parse().ok()
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// If the answer broke off before its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpFailure> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| HttpFailure::Broken(root(&error)))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    async fn fault(mut self) -> HttpFailure {
        let mut text = Vec::new();
        loop {
            match self.chunk().await {
                Ok(Some(piece)) if text.len() + piece.len() <= FAULT_MAX => text.extend(piece),
                Ok(None) => break,
                Ok(Some(_)) => {
                    return HttpFailure::Broken("the gateway's fault is too long".into());
                }
                Err(failure) => return failure,
            }
        }
        match serde_json::from_slice(&text) {
            Ok(fault) => HttpFailure::Fault(fault),
            Err(error) => HttpFailure::Broken(error.to_string()),
        }
    }
}

/// The innermost cause, the one that a person can act on.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().chars().take(200).collect()
}
