//! The connections to the host for one connection of a program: opened when it is, used for no other, and gone with it.

use super::authority::address;
use super::head;
use super::held_body::HeldBody;
use super::limits::{CONNECTION_WINDOW, PARALLEL, RESETS, SEND_BUFFER, STREAM_WINDOW, Times};
use super::streams::{Activity, WatchedStream};
use super::tasks::Tasks;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use orchestrator_framing::HEAD;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, ClientConfig, RootCertStore};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The certificates by which hosts are verified.
#[derive(Clone, Debug, Default)]
pub struct CertificateRoots {
    /// Those that cannot be used are left out.
    machine: Vec<CertificateDer<'static>>,
    /// Those of the policy: each must be usable.
    company: Vec<CertificateDer<'static>>,
}

impl CertificateRoots {
    /// Those of this machine, and of `SSL_CERT_FILE` and `SSL_CERT_DIR` in the environment instead. Reads files.
    pub(crate) fn of_machine() -> Self {
        Self {
            machine: rustls_native_certs::load_native_certs().certs,
            company: Vec::new(),
        }
    }
    pub fn new(certificates: Vec<Vec<u8>>) -> Self {
        Self {
            machine: certificates.into_iter().map(Into::into).collect(),
            company: Vec::new(),
        }
    }

    /// Those of this machine, and those of a policy that `company` has. Reads files.
    pub(crate) fn of_machine_and(company: &Self) -> Self {
        Self {
            company: company.company.clone(),
            ..Self::of_machine()
        }
    }

    /// The same and those of the policy, in PEM form.
    ///
    /// # Errors
    /// They are not in that form.
    pub(crate) fn with_company(mut self, pem: &str) -> Result<Self, pem::Error> {
        let read = CertificateDer::pem_slice_iter(pem.as_bytes());
        self.company = read.collect::<Result<_, _>>()?;
        Ok(self)
    }
}

/// Settings of TLS to hosts, made when they are first needed.
pub(crate) struct HostTls {
    roots: CertificateRoots,
    config: OnceCell<ClientConfig>,
}

impl HostTls {
    pub(crate) fn new(roots: CertificateRoots) -> Self {
        Self {
            roots,
            config: OnceCell::new(),
        }
    }

    pub(crate) fn offering(&self, protocols: &[Protocol]) -> Result<Arc<ClientConfig>, String> {
        let mut config = match self.config.get() {
            Some(config) => config.clone(),
            None => {
                let made = self.make()?;
                self.config.get_or_init(|| made).clone()
            }
        };
        config.alpn_protocols = protocols.iter().map(|p| p.name().to_vec()).collect();
        Ok(Arc::new(config))
    }

    fn make(&self) -> Result<ClientConfig, String> {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(self.roots.machine.iter().cloned());
        for (number, certificate) in (1..).zip(&self.roots.company) {
            store.add(certificate.clone()).map_err(|error| {
                format!("certificate {number} of `ca` in `[gateway]` of the policy cannot be used: {error}")
            })?;
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(store)
            .with_no_client_auth();
        // Nothing is shared between connections of cells.
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Opens TCP connections to the host, as the relay's rules allow.
pub(super) type Connect = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<TcpStream, String>>>>>;

/// Why there is no connection to the host. Texts are for people.
#[derive(Clone, Debug)]
pub(super) enum DialFault {
    Refused(String),
    Other(String),
}

impl From<String> for DialFault {
    fn from(why: String) -> Self {
        Self::Other(why)
    }
}

impl From<io::Error> for DialFault {
    fn from(error: io::Error) -> Self {
        match ends_handshake(&error) {
            true => Self::Refused(described(&error)),
            false => Self::Other(described(&error)),
        }
    }
}

/// Why a request has no answer. Texts are for people.
#[derive(Debug)]
pub(super) enum SendError {
    /// There is no connection to the host.
    Unreachable(DialFault),
    /// The body ended before its end.
    Body,
    /// The host has ended the connection, or broke its protocol.
    Unanswered(String),
}

impl From<hyper::Error> for SendError {
    fn from(error: hyper::Error) -> Self {
        // By TLS 1.3 a host says that it wants a certificate after the handshake.
        match alert_in(&error) {
            true => Self::Unreachable(DialFault::Refused(chain(&error))),
            false => Self::Unanswered(chain(&error)),
        }
    }
}

/// Opens connections to one host.
#[derive(Clone)]
pub(super) struct Dialer {
    pub connect: Connect,
    /// Absent for a host without TLS.
    pub(crate) tls: Option<Rc<HostTls>>,
    pub host: String,
    pub times: Times,
    pub(crate) activity: Arc<Activity>,
    pub(crate) tasks: Tasks,
}

/// A connection, with TLS or without.
pub(super) trait HostIo: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> HostIo for S {}

type HostStream = Box<dyn HostIo>;

impl Dialer {
    /// Opens a connection by one of `protocols`. Where the host speaks none of them, by the other one.
    async fn open(&self, protocols: &[Protocol]) -> Result<(HostStream, Protocol), DialFault> {
        let Some(tls) = &self.tls else {
            let tcp = (self.connect)().await?;
            let stream = WatchedStream::new(tcp, self.activity.clone());
            return Ok((Box::new(stream), Protocol::Http1));
        };
        match self.handshake(tls, protocols).await? {
            Ok(opened) => Ok(opened),
            Err(error) if is_protocol(&error) && protocols == [Protocol::Http1] => self
                .handshake(tls, &[Protocol::Http2])
                .await?
                .map_err(DialFault::from),
            Err(error) => Err(error.into()),
        }
    }

    async fn handshake(
        &self,
        tls: &HostTls,
        protocols: &[Protocol],
    ) -> Result<io::Result<(HostStream, Protocol)>, String> {
        let name = match address(&self.host) {
            Some(address) => ServerName::IpAddress(address.into()),
            None => ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())?,
        };
        let config = tls.offering(protocols)?;
        let tcp = (self.connect)().await?;
        let stream = WatchedStream::new(tcp, self.activity.clone());
        let handshake = TlsConnector::from(config).connect(name, stream);
        let seconds = self.times.begin.as_secs();
        let stream = match timeout(self.times.begin, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Ok(Err(error)),
            Err(_) => return Err(format!("its handshake took longer than {seconds} s")),
        };
        let chosen = match stream.get_ref().1.alpn_protocol() {
            Some(name) if name == Protocol::Http2.name() => Protocol::Http2,
            Some(_) | None => Protocol::Http1,
        };
        Ok(Ok((Box::new(stream), chosen)))
    }
}

/// Whether the host has ended the connection in a handshake, with a word of TLS or without.
fn ends_handshake(error: &io::Error) -> bool {
    let is_reset = matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe
    );
    is_reset || is_alert(error)
}

fn is_alert(error: &io::Error) -> bool {
    let inner = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::AlertReceived(alert)) if *alert != AlertDescription::NoApplicationProtocol)
}

fn alert_in(error: &hyper::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(is_alert) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn is_protocol(error: &io::Error) -> bool {
    let alert = rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol);
    error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>())
        == Some(&alert)
}

/// The body of a request to the host.
pub(super) enum RequestBody {
    Program(Incoming),
    /// One whose beginning was read before.
    Held(HeldBody),
    Empty,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = match self.get_mut() {
            Self::Program(body) => Pin::new(body).poll_frame(cx),
            Self::Held(body) => body.poll(cx),
            Self::Empty => Poll::Ready(None),
        };
        let stripped = |mut frame: Frame<Bytes>| {
            if let Some(trailers) = frame.trailers_mut() {
                head::strip_trailers(trailers);
            }
            frame
        };
        polled.map(|frame| frame.map(|frame| frame.map(stripped)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Program(body) => body.is_end_stream(),
            Self::Held(body) => body.is_end(),
            Self::Empty => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Program(body) => body.size_hint(),
            Self::Held(body) => body.size(),
            Self::Empty => SizeHint::with_exact(0),
        }
    }
}

/// A body on its way to the host.
struct SentBody {
    body: RequestBody,
    /// Set when it breaks off, which the error of a request by HTTP/2 does not say.
    broke: Rc<Cell<bool>>,
}

impl Body for SentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let sent = self.get_mut();
        let polled = Pin::new(&mut sent.body).poll_frame(cx);
        if let Poll::Ready(Some(Err(_))) = polled {
            sent.broke.set(true);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The host's side of one connection of a program.
pub(super) struct Upstream {
    dialer: Dialer,
    kind: UpstreamKind,
    /// Told when the paired connection has ended.
    ended: Rc<Notify>,
    /// Whether the first connection ends with the program's: not one that had one request.
    is_paired: Cell<bool>,
}

/// Whether a request may be on a connection of HTTP/1.1 with others: a host that sends more than its answer, or that does not read a body,
/// has a request or an answer taken for the next one's. HTTP/2 keeps them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    WithOthers,
    Alone,
    /// The connection may become a WebSocket, which is of HTTP/1.1 alone.
    Switching,
}

struct IdleConnection {
    send: http1::SendRequest<SentBody>,
    is_new: bool,
}

enum UpstreamKind {
    Http1 {
        idle: RefCell<Vec<IdleConnection>>,
        places: Arc<Semaphore>,
    },
    Http2(http2::SendRequest<SentBody>),
    Unreachable(DialFault),
}

impl Upstream {
    /// Opens the first connection, by one of the protocols `wanted` if the host speaks one. `spoken` are the program's, of which one is for
    /// one request at a time.
    pub(super) async fn open(dialer: Dialer, wanted: &[Protocol], spoken: &[Protocol]) -> Self {
        let ended = Rc::new(Notify::new());
        let kind = match Self::first(&dialer, (wanted, spoken), &ended).await {
            Ok(kind) => kind,
            Err(why) => UpstreamKind::Unreachable(why),
        };
        Self {
            dialer,
            kind,
            ended,
            is_paired: Cell::new(true),
        }
    }

    async fn first(
        dialer: &Dialer,
        (wanted, spoken): (&[Protocol], &[Protocol]),
        ended: &Rc<Notify>,
    ) -> Result<UpstreamKind, DialFault> {
        match dialer.open(wanted).await? {
            (stream, Protocol::Http2) => {
                let send = http2_over(dialer, stream, ended.clone()).await?;
                Ok(UpstreamKind::Http2(send))
            }
            (stream, Protocol::Http1) => {
                // Two programs' requests at a time need two connections; those may end while the program's goes on.
                let (places, ended) = if spoken.contains(&Protocol::Http2) {
                    (PARALLEL, None)
                } else {
                    (1, Some(ended.clone()))
                };
                let send = http1_over(dialer, stream, ended).await?;
                Ok(UpstreamKind::Http1 {
                    idle: vec![IdleConnection { send, is_new: true }].into(),
                    places: Arc::new(Semaphore::new(places)),
                })
            }
        }
    }
    pub(super) fn protocol(&self) -> Protocol {
        match &self.kind {
            UpstreamKind::Http1 { .. } | UpstreamKind::Unreachable(_) => Protocol::Http1,
            UpstreamKind::Http2(_) => Protocol::Http2,
        }
    }

    /// Why the host could not be reached.
    pub(super) fn unreachable(&self) -> Option<&str> {
        match &self.kind {
            UpstreamKind::Unreachable(DialFault::Refused(why) | DialFault::Other(why)) => Some(why),
            UpstreamKind::Http1 { .. } | UpstreamKind::Http2(_) => None,
        }
    }

    /// Returns when the host has ended the connection that belongs to the program's.
    pub(super) async fn ended(&self) {
        self.ended.notified().await;
        if !self.is_paired.get() {
            pending().await
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn send(
        self: &Rc<Self>,
        request: Request<RequestBody>,
        sharing: Sharing,
    ) -> Result<Response<Incoming>, SendError> {
        let broke = Rc::<Cell<bool>>::default();
        let of_program = broke.clone();
        let request = request.map(|body| SentBody { body, broke });
        match self.send_watched(request, sharing).await {
            Err(SendError::Unanswered(_)) if of_program.get() => Err(SendError::Body),
            sent => sent,
        }
    }

    async fn send_watched(
        self: &Rc<Self>,
        request: Request<SentBody>,
        sharing: Sharing,
    ) -> Result<Response<Incoming>, SendError> {
        match &self.kind {
            UpstreamKind::Unreachable(why) => Err(SendError::Unreachable(why.clone())),
            UpstreamKind::Http2(_) if sharing == Sharing::Switching => {
                self.send_one(request, None, (None, sharing)).await
            }
            UpstreamKind::Http2(send) => {
                let mut send = send.clone();
                send.ready().await?;
                Ok(send.send_request(request).await?)
            }
            UpstreamKind::Http1 { idle, places } => {
                // The semaphore is never closed.
                let place = places.clone().acquire_owned().await.ok();
                let kept = self.kept(&mut idle.borrow_mut(), sharing);
                self.send_one(request, kept, (place, sharing)).await
            }
        }
    }

    /// An idle connection for such a request.
    fn kept(
        &self,
        idle: &mut Vec<IdleConnection>,
        sharing: Sharing,
    ) -> Option<http1::SendRequest<SentBody>> {
        let found = match sharing {
            Sharing::WithOthers => idle.pop(),
            Sharing::Alone | Sharing::Switching => {
                let new = idle.iter().position(|one| one.is_new)?;
                self.is_paired.set(false);
                Some(idle.swap_remove(new))
            }
        };
        found.map(|one| one.send)
    }

    async fn send_one(
        self: &Rc<Self>,
        request: Request<SentBody>,
        kept: Option<http1::SendRequest<SentBody>>,
        (place, sharing): (Option<OwnedSemaphorePermit>, Sharing),
    ) -> Result<Response<Incoming>, SendError> {
        let mut request = request;
        if let Some(mut send) = kept {
            match send.try_send_request(request).await {
                Ok(response) => {
                    self.give_back(send, (place, sharing));
                    return Ok(response);
                }
                // The host has closed it meanwhile, and has seen nothing of this request.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let opened = self.dialer.open(&[Protocol::Http1]).await;
        let (stream, protocol) = opened.map_err(SendError::Unreachable)?;
        if protocol != Protocol::Http1 {
            let why = "it does not speak HTTP/1.1, by which alone this request can be sent";
            return Err(SendError::Unreachable(DialFault::Other(why.into())));
        }
        let opened = http1_over(&self.dialer, stream, None).await;
        let mut send = opened.map_err(|why| SendError::Unreachable(why.into()))?;
        let response = send.send_request(request).await?;
        self.give_back(send, (place, sharing));
        Ok(response)
    }

    /// Keeps a connection for the next request, once the answer to this one was read, if it may have others.
    fn give_back(
        self: &Rc<Self>,
        mut send: http1::SendRequest<SentBody>,
        (place, sharing): (Option<OwnedSemaphorePermit>, Sharing),
    ) {
        let upstream = self.clone();
        self.dialer.tasks.spawn(async move {
            if send.ready().await.is_ok()
                && sharing == Sharing::WithOthers
                && let UpstreamKind::Http1 { idle, .. } = &upstream.kind
            {
                let is_new = false;
                idle.borrow_mut().push(IdleConnection { send, is_new });
            }
            drop(place);
        });
    }
}

async fn http1_over(
    dialer: &Dialer,
    stream: HostStream,
    ended: Option<Rc<Notify>>,
) -> Result<http1::SendRequest<SentBody>, String> {
    let (send, connection) = http1::Builder::new()
        .preserve_header_case(true)
        .max_header_size(HEAD)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| chain(&error))?;
    dialer.tasks.spawn(async move {
        // Its error is the error of the request that is on it.
        let _ = connection.with_upgrades().await;
        if let Some(ended) = ended {
            ended.notify_one();
        }
    });
    Ok(send)
}

async fn http2_over(
    dialer: &Dialer,
    stream: HostStream,
    ended: Rc<Notify>,
) -> Result<http2::SendRequest<SentBody>, String> {
    let (send, connection) = http2::Builder::new(dialer.tasks.clone())
        .max_header_list_size(u32::try_from(HEAD).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_pending_accept_reset_streams(RESETS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| chain(&error))?;
    dialer.tasks.spawn(async move {
        let _ = connection.await;
        ended.notify_one();
    });
    Ok(send)
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = described(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {}", described(error));
        cause = error.source();
    }
    text
}

/// The words of an error, and none that the host has chosen: it knows values, and these words are searched for none of them.
fn described(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        // Its own words have the bytes that came with a GOAWAY.
        return match error.reason() {
            Some(reason) => format!("HTTP/2: {}", reason.description()),
            None => "HTTP/2: the connection has ended".to_owned(),
        };
    }
    let inner = error
        .downcast_ref::<io::Error>()
        .and_then(|error| error.get_ref()?.downcast_ref());
    match inner {
        // A certificate has names of the host's choice.
        Some(rustls::Error::InvalidCertificate(
            rustls::CertificateError::NotValidForNameContext { expected, .. },
        )) => format!("its certificate is not for {}", expected.to_str()),
        Some(_) | None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::task::LocalSet;

    /// Frames of the host's (RFC 9113): empty settings, and the end of the connection with these bytes.
    fn end_with(debug: &[u8]) -> Vec<u8> {
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let length = u8::try_from(8 + debug.len()).unwrap();
        let head = [0, 0, length, 7, 0, 0, 0, 0, 0];
        let (last, reason) = ([0; 4], 2_u32.to_be_bytes());
        [&settings[..], &head, &last, &reason, debug].concat()
    }

    #[test]
    fn the_bytes_of_a_goaway_are_in_no_words_of_ours() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let error = LocalSet::new().block_on(&runtime, async {
            let (ours, mut theirs) = duplex(1 << 16);
            let (mut send, connection) = hyper::client::conn::http2::handshake(
                hyper_util::rt::TokioExecutor::new(),
                TokioIo::new(ours),
            )
            .await
            .unwrap();
            tokio::task::spawn_local(connection);
            tokio::task::spawn_local(async move {
                let mut bytes = [0; 1024];
                let _ = theirs.read(&mut bytes).await;
                theirs.write_all(&end_with(b"of-the-host")).await.unwrap();
                let _ = theirs.read_to_end(&mut Vec::new()).await;
            });
            let request = hyper::Request::new(http_body_util::Empty::<Bytes>::new());
            send.send_request(request).await.unwrap_err()
        });
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("of-the-host"), "control: {cause}");
        let SendError::Unanswered(text) = SendError::from(error) else {
            panic!("{cause}");
        };
        assert!(
            !text.contains("of-the-host") && text.contains("HTTP/2"),
            "{text}"
        );
    }
}
