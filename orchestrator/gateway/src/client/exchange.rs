//! The requests of one connection of `lazaret`, on one connection to the host, which is opened with the first of them.

use super::admit::{AllowedHosts, ClientNetwork};
use super::permit::{Permitted, permit};
use crate::decrypted::{Protocol, whole};
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use orchestrator_framing::HEAD;
use orchestrator_http::ask::{By, FAULT, HostOrigin, LOCATE, LoginHosts, NetworkFault};
use orchestrator_logins::{LoginFault, TokenRequest, asks_for_tokens, passed_headers};
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::target::Target;
use rustls::pki_types::ServerName;
use std::cell::RefCell;
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Position;

/// How long a request for tokens may take to arrive, and its answer.
const TOKENS: Duration = Duration::from_secs(30);

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Headers that concern one connection and not what it carries.
const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// A body that is passed on as it comes, or one of ours.
type PassedOrOwn = Either<Incoming, Full<Bytes>>;

pub(super) struct ClientExchange<R> {
    net: Rc<ClientNetwork<R>>,
    by: By,
    target: Target,
    kept: RefCell<Option<SendRequest<PassedOrOwn>>>,
}

impl<R: Resolve + 'static> ClientExchange<R> {
    pub(super) fn new(net: Rc<ClientNetwork<R>>, by: By, target: Target) -> Self {
        Self {
            net,
            by,
            target,
            kept: RefCell::default(),
        }
    }

    /// Answers the requests on `stream` until `lazaret` closes it, or an answer breaks off.
    pub(super) async fn serve(self: Rc<Self>, stream: UnixStream) -> io::Result<()> {
        let service = service_fn(|request| {
            let exchange = self.clone();
            async move { Ok::<_, Infallible>(exchange.answer(request).await) }
        });
        server::Builder::new()
            .max_buf_size(HEAD)
            .serve_connection(TokioIo::new(stream), service)
            .await
            .map_err(io::Error::other)
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<PassedOrOwn> {
        let answered = match request.method().as_str() {
            LOCATE => self.locate().await,
            _ => self.forward(request).await,
        };
        answered.unwrap_or_else(|fault| of_fault(&fault))
    }

    async fn locate(&self) -> Result<Response<PassedOrOwn>, NetworkFault> {
        match &self.by {
            // Its name would be resolved, and so reach somebody.
            By::Model(_) | By::ModelOfImage(_) | By::Engine => return Err(NetworkFault::NoTicket),
            By::ProviderSettings
            | By::ServerSettings
            | By::RepositorySettings
            | By::ServerOf(_) => {}
        }
        self.net.check(&self.by, &self.target).await?;
        Ok(Response::new(Either::Right(Full::default())))
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<PassedOrOwn>, NetworkFault> {
        let host = &self.target.url()[Position::BeforeHost..Position::AfterPort];
        let host = HeaderValue::from_str(host)
            .map_err(|error| NetworkFault::Connect(error.to_string()))?;
        let (tickets, allowed) = (self.net.tickets.as_ref(), &self.net.allowed);
        only_path(&mut request)?;
        strip(request.headers_mut());
        // Who asks for what the policy refuses is told so: there is no ticket for it either.
        self.net.foresee(&self.by, &self.target)?;
        let permitted = permit(tickets, allowed, &self.by, &self.target, &mut request)?;
        let keys = &self.net.keys;
        request.headers_mut().insert(header::HOST, host);
        if let Some(server) = asks_for_tokens(&self.by, request.headers()) {
            return self.log_in(server, request).await;
        }
        keys.attach(&self.by, &self.target, &mut request);
        keys.logins
            .attach(&self.by, &self.target, request.headers_mut());
        let answer = self.send(request.map(Either::Left)).await?;
        if let (Permitted::Page(used), By::Model(policy), Some(tickets)) =
            (&permitted, &self.by, tickets)
        {
            tickets.follow(used, policy, &answer);
        }
        let (head, body) = answer.into_parts();
        let mut response = Response::new(Either::Left(body));
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        strip(response.headers_mut());
        Ok(response)
    }

    /// Sends a request for tokens of a login at `server`, and returns the answer with these encrypted.
    async fn log_in(
        &self,
        server: &HostOrigin,
        request: Request<Incoming>,
    ) -> Result<Response<PassedOrOwn>, NetworkFault> {
        let refused = |why: LoginFault| NetworkFault::Login(why.to_string());
        let keys = &self.net.keys;
        let (mut head, body) = request.into_parts();
        let origin = HostOrigin::of(self.target.url());
        let asked = TokenRequest {
            server,
            url: format!("{origin}{}", head.uri),
            is_first: match &self.net.allowed {
                AllowedHosts::Begun(begin) => begin.logins == LoginHosts::Any,
                #[cfg(feature = "test-support")]
                AllowedHosts::All => true,
            },
        };
        let body = whole(body, TOKENS).await.map_err(refused)?;
        let secret = |text: &str| keys.client_secret(server, text);
        let sent = asked.open((&keys.logins, &secret), &mut head.headers, &body);
        let sent = match sent {
            // As the endpoint says of a token that is none: then clients ask for a new login.
            Err(LoginFault::Sealed) => return Ok(no_grant()),
            sent => sent.map_err(refused)?,
        };
        head.headers.remove(header::CONTENT_LENGTH);
        let body = Full::new(Bytes::copy_from_slice(&sent.body));
        let request = Request::from_parts(head, Either::Right(body));
        let (head, body) = self.send(request).await?.into_parts();
        let body = whole(body, TOKENS).await.map_err(refused)?;
        if head.status.is_redirection() {
            return Err(refused(LoginFault::Type));
        }
        let body = asked.seal(&keys.logins, &sent, &body).map_err(refused)?;
        let mut response = Response::new(Either::Right(Full::from(body)));
        *response.status_mut() = head.status;
        *response.headers_mut() = passed_headers(&head.headers);
        Ok(response)
    }

    async fn send(
        &self,
        mut request: Request<PassedOrOwn>,
    ) -> Result<Response<Incoming>, NetworkFault> {
        let kept = self.kept.take();
        if let Some(mut send) = kept {
            match send.try_send_request(request).await {
                Ok(response) => {
                    self.kept.replace(Some(send));
                    return Ok(response);
                }
                // The host has closed it meanwhile, and has seen nothing of this request.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(NetworkFault::Connect(root(error.error()))),
                },
            }
        }
        let mut send = self.dial().await?;
        let sent = send.send_request(request).await;
        let response = sent.map_err(|error| NetworkFault::Connect(root(&error)))?;
        self.kept.replace(Some(send));
        Ok(response)
    }

    async fn dial(&self) -> Result<SendRequest<PassedOrOwn>, NetworkFault> {
        let failed = |why: String| NetworkFault::Connect(why);
        let tcp = self.net.connect(&self.by, &self.target).await?;
        if self.target.is_plain() {
            return over(tcp).await;
        }
        let host = self.target.host().trim_matches(['[', ']']).to_owned();
        let name =
            ServerName::try_from(host).map_err(|error| NetworkFault::Tls(error.to_string()))?;
        let config = self.net.tls().offering(&[Protocol::Http1]);
        let connector = TlsConnector::from(config.map_err(NetworkFault::Tls)?);
        let shaken = timeout(HANDSHAKE, connector.connect(name, tcp)).await;
        let late = |_| failed(format!("no handshake within {} s", HANDSHAKE.as_secs()));
        let tls = shaken.map_err(late)?;
        over(tls.map_err(|error| failed(root(&error)))?).await
    }
}

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
) -> Result<SendRequest<PassedOrOwn>, NetworkFault> {
    let (send, connection) = http1::Builder::new()
        .max_buf_size(HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| NetworkFault::Connect(root(&error)))?;
    // Its error is that of the request on it.
    spawn_local(async move { drop(connection.await) });
    Ok(send)
}

fn no_grant() -> Response<PassedOrOwn> {
    let body = Full::from("{\"error\":\"invalid_grant\"}");
    let mut response = Response::new(Either::Right(body));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Leaves of a request's target its path and query. A host would prefer another host in it to the one that was checked.
fn only_path(request: &mut Request<Incoming>) -> Result<(), NetworkFault> {
    if request.method() == Method::CONNECT {
        return Err(NetworkFault::Connect("a host is no proxy".to_owned()));
    }
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    *request.version_mut() = Version::HTTP_11;
    Ok(())
}

/// Takes out what concerns the connection alone, and what only the gateway says.
fn strip(headers: &mut HeaderMap) {
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
    headers.remove(FAULT);
}

fn of_fault(fault: &NetworkFault) -> Response<PassedOrOwn> {
    let text = serde_json::to_vec(fault).unwrap_or_default();
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(text))));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let headers = response.headers_mut();
    headers.insert(FAULT, HeaderValue::from_static("1"));
    response
}

/// The innermost cause, the one that a person can act on.
fn root(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string().chars().take(200).collect()
}
