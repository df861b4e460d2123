//! One connection: its hello, the connection to the host by a protocol that both speak, the handshake with the program, and its
//! requests until either side ends.

use super::authority::AuthorityError;
use super::exchange::Exchange;
use super::head::Scheme;
use super::host::{CalledHost, DecryptedHost};
use super::limits::{CONNECTION_WINDOW, ERRORS, RESETS, SEND_BUFFER, STREAM_WINDOW, STREAMS};
use super::session::{CredentialSession, plain};
use super::streams::{Activity, Rewound, WatchedStream};
use super::tasks::TaskOwner;
use super::upstream::{Connect, Dialer, HostIo, Protocol, Upstream};
use crate::traffic::{ProgramConnection, of_call};
use broker_protocol::CallId;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use orchestrator_framing::{Framed, HEAD};
use orchestrator_reach::hello::is_same_host;
use rustls::crypto::ring;
use rustls::server::{Acceptor, ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, ServerConfig};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use thiserror::Error;
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

/// The first bytes of every connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS handshake.
const TLS: u8 = 0x16;

type ProgramStream = Rewound<WatchedStream<TcpStream>>;

/// Why a connection ended otherwise than by its program's or its host's will.
#[derive(Debug, Error)]
pub enum CarryError {
    /// The program sent nothing, or has gone.
    #[error("the program sent nothing")]
    Gone,
    /// No TLS that can be read.
    #[error("its first bytes are no TLS that can be read: {0}")]
    Hello(io::Error),
    /// The name in the hello is not the host that the connection was requested for.
    #[error("it was requested for {place}, and its hello names `{asked}`")]
    Name { place: String, asked: String },
    /// The program does not believe the session's authority.
    #[error("the program does not believe this session's certificate authority")]
    NotTrusted,
    /// The same without a word of TLS about it: Java's `HttpClient` closes the connection.
    #[error(
        "the program ended the connection when it had the certificate, as programs do that do not believe this session's certificate authority"
    )]
    LeftAtCertificate,
    /// The handshake with the program failed otherwise.
    #[error("the TLS handshake with the program failed: {0}")]
    Handshake(io::Error),
    /// The host could not be reached, or is not who it should be. The program was told.
    #[error("no TLS connection to {place}: {why}")]
    Host { place: String, why: String },
    /// There was no byte for too long, and others needed its place.
    #[error("there was no byte for too long, and others needed its place")]
    Idle,
    /// No certificate could be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
}

/// A connection of a program to a host.
pub(super) struct HostConnection {
    session: Rc<CredentialSession>,
    host: Rc<CalledHost>,
    connect: Connect,
    call: CallId,
    activity: Arc<Activity>,
    tasks: TaskOwner,
}

impl HostConnection {
    pub(super) fn new(
        session: Rc<CredentialSession>,
        host: Rc<DecryptedHost>,
        connect: Connect,
        call: CallId,
    ) -> Self {
        Self {
            session,
            host: Rc::new(CalledHost {
                of_session: host,
                call: of_call(call),
            }),
            connect,
            call,
            activity: Activity::new(),
            tasks: TaskOwner::default(),
        }
    }

    /// Carries it until it ends.
    pub(super) async fn carry(
        self,
        program: ProgramConnection,
        first: Vec<u8>,
        is_crowded: impl Fn() -> bool,
    ) -> Result<(), CarryError> {
        let times = self.session.times;
        program.traffic.add_sent(first.len());
        let watched = WatchedStream::new(program.stream, self.activity.clone());
        let program = Rewound::new(first, watched.counted(program.traffic));
        tokio::select! {
            ended = self.begin(program) => ended,
            () = self.activity.ended(times, is_crowded) => Err(CarryError::Idle),
        }
    }

    async fn begin(&self, mut program: ProgramStream) -> Result<(), CarryError> {
        let begin = self.session.times.begin;
        let first = timeout(begin, program.peek(|bytes| !bytes.is_empty())).await;
        match first {
            Ok(Ok([TLS, ..])) => self.ended(program).await,
            Ok(Ok([_, ..])) => self.plain(program).await,
            Ok(Ok([]) | Err(_)) | Err(_) => Err(CarryError::Gone),
        }
    }

    /// Without TLS no credential is used, and nothing looked at but what rules decide on.
    async fn plain(&self, mut program: ProgramStream) -> Result<(), CarryError> {
        // An answer with tokens would pass unread.
        if self.session.has_logins(&self.host) {
            return Err(
                self.no_host("programs log in there, so it is spoken to by TLS alone".into())
            );
        }
        if !self.host.rules.is_empty() {
            let upstream = self.upstream(Scheme::Http, &[Protocol::Http1]).await;
            return self.serve(program, (Scheme::Http, false), upstream).await;
        }
        let host = (self.connect)().await.map_err(|why| self.no_host(why))?;
        let mut host = WatchedStream::new(host, self.activity.clone());
        // How it ends is the business of program and host.
        let _ = copy_bidirectional(&mut program, &mut host).await;
        Ok(())
    }

    async fn ended(&self, program: ProgramStream) -> Result<(), CarryError> {
        let begin = self.session.times.begin;
        let acceptor = LazyConfigAcceptor::new(Acceptor::default(), program);
        let start = timeout(begin, acceptor)
            .await
            .map_err(|_| CarryError::Hello(io::ErrorKind::TimedOut.into()))?
            .map_err(CarryError::Hello)?;
        let hello = start.client_hello();
        self.check_name(&hello)?;
        let offered = offered(&hello);
        // The host first, so that the program gets the protocol that the host speaks. One that names none shows it by its first bytes.
        let mut upstream = None;
        if let Some(offered) = &offered {
            upstream = Some(self.upstream(Scheme::Https, offered).await);
        }
        let chosen = match (&offered, &upstream) {
            (Some(offered), Some(upstream)) => Some(choice(offered, upstream)),
            _ => None,
        };
        let config = self.config(chosen)?;
        let handshake = async {
            let stream = start.into_stream(config).await.map_err(handshake_error)?;
            let mut stream = Rewound::new(Vec::new(), stream);
            let is_http2 = match chosen {
                Some(Protocol::Http2) => true,
                // Some begin HTTP/2 although they did not choose it.
                Some(Protocol::Http1) | None => {
                    let first = stream.peek(decides).await;
                    first.map_err(CarryError::Handshake)?.starts_with(PREFACE)
                }
            };
            Result::<_, CarryError>::Ok((stream, is_http2))
        };
        let (stream, is_http2) = timeout(begin, handshake)
            .await
            .map_err(|_| CarryError::Handshake(io::ErrorKind::TimedOut.into()))??;
        let upstream = match upstream {
            Some(upstream) => upstream,
            None if is_http2 => self.upstream(Scheme::Https, &[Protocol::Http2]).await,
            None => self.upstream(Scheme::Https, &[Protocol::Http1]).await,
        };
        self.serve(stream, (Scheme::Https, is_http2), upstream)
            .await
    }

    /// The hello's name, if there is one, is the host's: it never decides where the connection leads.
    fn check_name(&self, hello: &ClientHello<'_>) -> Result<(), CarryError> {
        match hello.server_name() {
            Some(name) if !is_same_host(name, &self.host.host) => Err(CarryError::Name {
                place: self.host.place(),
                asked: name.chars().take(256).collect(),
            }),
            Some(_) | None => Ok(()),
        }
    }

    /// Opens the connection to the host for a program that speaks these protocols.
    async fn upstream(&self, scheme: Scheme, spoken: &[Protocol]) -> Upstream {
        // Where values are sent, HTTP/2 keeps requests apart on one connection. Elsewhere most have no need of it, and HTTP/1.1 is faster.
        let wanted: &[Protocol] =
            match spoken.contains(&Protocol::Http2) || !self.host.credentials.is_empty() {
                true => &[Protocol::Http2, Protocol::Http1],
                false => &[Protocol::Http1],
            };
        Upstream::open(self.dialer(scheme), wanted, spoken).await
    }

    fn dialer(&self, scheme: Scheme) -> Dialer {
        Dialer {
            connect: self.connect.clone(),
            tls: match scheme {
                Scheme::Https => Some(self.session.tls.clone()),
                Scheme::Http => None,
            },
            host: plain(&self.host.host).to_owned(),
            times: self.session.times,
            activity: self.activity.clone(),
            tasks: self.tasks.0.clone(),
        }
    }

    fn no_host(&self, why: String) -> CarryError {
        CarryError::Host {
            place: self.host.place(),
            why,
        }
    }

    fn config(&self, chosen: Option<Protocol>) -> Result<Arc<ServerConfig>, CarryError> {
        let certifier = self.session.certifier.as_ref();
        let certificate = certifier
            .ok_or_else(|| self.no_host("this session has no certificate authority".into()))?
            .certificate(plain(&self.host.host))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| CarryError::Authority(error.into()))?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Only(certificate)));
        config.alpn_protocols = chosen.iter().map(|chosen| chosen.name().to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    async fn serve(
        &self,
        stream: impl HostIo,
        (scheme, is_http2): (Scheme, bool),
        upstream: Upstream,
    ) -> Result<(), CarryError> {
        let unreachable = upstream.unreachable().map(|why| self.no_host(why.into()));
        let exchange = Rc::new(Exchange {
            session: self.session.clone(),
            host: self.host.clone(),
            upstream: Rc::new(upstream),
            scheme,
            call: self.call,
            activity: self.activity.clone(),
            tasks: self.tasks.0.clone(),
            is_upgrading: false.into(),
            upgraded: Arc::default(),
            websocket: None.into(),
        });
        if is_http2 {
            self.serve_http2(stream, &exchange).await;
        } else {
            self.serve_http1(stream, &exchange).await;
        }
        unreachable.map_or(Ok(()), Err)
    }

    async fn serve_http1(&self, stream: impl HostIo, exchange: &Rc<Exchange>) {
        let begin = self.session.times.begin;
        let stream = Framed::new(stream, begin, exchange.upgraded.clone());
        let answer = exchange.clone();
        let connection = http1::Builder::new()
            .preserve_header_case(true)
            .max_header_size(HEAD)
            .header_read_timeout(None)
            .auto_date_header(false)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| answer.clone().answer(request)),
            )
            .with_upgrades();
        let mut connection = pin!(connection);
        // How a connection ends is the business of its program: a malformed request has got its answer.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = exchange.upstream.ended() => {
                if !exchange.is_upgrading.get() {
                    connection.as_mut().graceful_shutdown();
                }
                let _ = connection.await;
            }
        }
        let websocket = exchange.websocket.take();
        if let Some(websocket) = websocket {
            let _ = websocket.await;
        }
    }

    async fn serve_http2(&self, stream: impl HostIo, exchange: &Rc<Exchange>) {
        let answer = exchange.clone();
        let connection = http2::Builder::new(self.tasks.0.clone())
            .max_header_list_size(u32::try_from(HEAD).unwrap_or(u32::MAX))
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(RESETS)
            .max_local_error_reset_streams(ERRORS)
            .max_send_buf_size(SEND_BUFFER)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .auto_date_header(false)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| answer.clone().answer(request)),
            );
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => {}
            () = exchange.upstream.ended() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}

/// The one certificate, whatever the hello asks for: the name was compared already.
#[derive(Debug)]
struct Only(Arc<CertifiedKey>);

impl ResolvesServerCert for Only {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

/// The protocols that the program offers; `None` if it does not say.
fn offered(hello: &ClientHello<'_>) -> Option<Vec<Protocol>> {
    let names: Vec<&[u8]> = hello.alpn()?.collect();
    let known = [Protocol::Http2, Protocol::Http1].into_iter();
    let offered: Vec<_> = known
        .filter(|protocol| names.contains(&protocol.name()))
        .collect();
    (!offered.is_empty()).then_some(offered)
}

/// The protocol for the program: the host's if it offers that.
fn choice(offered: &[Protocol], upstream: &Upstream) -> Protocol {
    let host = upstream.protocol();
    if offered.contains(&host) {
        host
    } else {
        offered[0]
    }
}

/// Whether these first bytes show whether they are of HTTP/2.
fn decides(bytes: &[u8]) -> bool {
    !PREFACE.starts_with(bytes) || bytes.len() >= PREFACE.len()
}

fn handshake_error(error: io::Error) -> CarryError {
    let alert = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    match alert {
        Some(rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown,
        )) => CarryError::NotTrusted,
        // In between, only the certificate and what belongs to it is sent.
        None if matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        ) =>
        {
            CarryError::LeftAtCertificate
        }
        Some(_) | None => CarryError::Handshake(error),
    }
}
