//! A host with TLS, a session's `TlsTerminator` in front of it, a small `CONNECT` acceptor, and clients that go by way of it.

use broker_protocol::gateway::{
    Attach, Authority, CredentialReport, CredentialSpec, CredentialUse, CredentialVerdict,
    FromGateway, GatewaySpec, RequestRule,
};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use orchestrator_gateway::ProgramConnection;
use orchestrator_gateway::decrypted::{CarryError, CertificateRoots, Times, TlsTerminator};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub(crate) const PLACEHOLDER: &str = "ghp_PLACEHOLDERPLACEHOLDER";
pub(crate) const OTHER: &str = "sk-OTHEROTHEROTHEROTHER";
pub(crate) const VALUE: &str = "gho_the/real+Value.0123456789";
/// The call of all connections.
pub(crate) const CALL: u64 = 7;
pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answering = Pin<Box<dyn Future<Output = Response<Body>>>>;
type Handler = Rc<dyn Fn(Request<Incoming>) -> Answering>;

/// A request as the host got it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The path and query, by either protocol.
    pub uri: String,
    pub headers: HeaderMap,
    pub version: hyper::Version,
    /// The number of the host's connection.
    pub connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }
}

/// Everything that a test can set.
pub(crate) struct Setup {
    pub credentials: Vec<CredentialSpec>,
    pub rules: Vec<Vec<RequestRule>>,
    /// The host's, by its preference.
    pub protocols: Vec<&'static [u8]>,
    /// Answers to questions for values, in their order; the last one again and again. An empty list answers nothing.
    pub values: Vec<Result<String, String>>,
    pub times: Times,
    /// Whether reports of uses are answered, as the broker does.
    pub is_recorded: bool,
    pub handler: Handler,
    pub is_trusted: bool,
    pub authority: Option<Authority>,
    /// A host of the test's own in place of the one with TLS.
    pub host: Option<SocketAddr>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            credentials: vec![github(), other()],
            rules: vec![],
            protocols: vec![HTTP2, HTTP1],
            values: vec![Ok(VALUE.into())],
            times: Times {
                report: Duration::from_millis(20),
                ..Times::default()
            },
            is_recorded: true,
            handler: handler(|_| async { text("ok") }),
            is_trusted: true,
            authority: None,
            host: None,
        }
    }
}

pub(crate) fn usable(methods: &[&str], path: &str) -> CredentialUse {
    CredentialUse {
        host: None,
        methods: methods.iter().map(|&method| method.into()).collect(),
        path: path.into(),
        unasked: false,
        refused: false,
        otherwise: false,
        why: None,
        service: None,
        actions: vec![],
    }
}

fn github() -> CredentialSpec {
    CredentialSpec {
        name: "github".into(),
        placeholder: PLACEHOLDER.into(),
        hosts: vec!["a.example:443".into(), "a.example:8443".into()],
        attach: Attach::Any {
            user: "x-access-token".into(),
        },
        uses: vec![
            usable(&[], "/api/**"),
            CredentialUse {
                unasked: true,
                ..usable(&[], "/o/r.git/**")
            },
            CredentialUse {
                refused: true,
                ..usable(&["POST"], "/user/keys")
            },
        ],
    }
}

fn other() -> CredentialSpec {
    CredentialSpec {
        name: "other".into(),
        placeholder: OTHER.into(),
        hosts: vec!["b.example:443".into()],
        attach: Attach::Header {
            name: "x-api-key".into(),
        },
        uses: vec![usable(&[], "/**")],
    }
}

pub(crate) fn handler<F>(answer: impl Fn(Request<Incoming>) -> F + 'static) -> Handler
where
    F: Future<Output = Response<Body>> + 'static,
{
    Rc::new(move |request| Box::pin(answer(request)))
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

pub(crate) fn text(text: impl Into<Bytes>) -> Response<Body> {
    Response::new(full(text))
}

pub(crate) fn status(status: u16) -> Response<Body> {
    let mut response = text("no");
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// Answers with what it was sent.
pub(crate) fn echo() -> Handler {
    handler(|request| async move { text(request.into_body().collect().await.unwrap().to_bytes()) })
}

/// Waits for what comes about on this thread, which has no event of its own; [`local`] has the limit.
pub(crate) async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a body while it is read.
pub(crate) struct BodySender(mpsc::Sender<Frame<Bytes>>);

impl BodySender {
    pub(crate) async fn data(&self, data: impl Into<Bytes>) {
        let _ = self.0.send(Frame::data(data.into())).await;
    }

    pub(crate) async fn trailers(&self, trailers: HeaderMap) {
        let _ = self.0.send(Frame::trailers(trailers)).await;
    }
}

struct Streamed(mpsc::Receiver<Frame<Bytes>>);

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

/// A body that is sent while it is read.
pub(crate) fn channel() -> (BodySender, Body) {
    let (send, receive) = mpsc::channel(4);
    (BodySender(send), Streamed(receive).boxed_unsync())
}

pub(crate) struct World {
    pub ended: Rc<TlsTerminator>,
    pub told: Rc<RefCell<Vec<FromGateway>>>,
    pub seen: Rc<RefCell<Vec<Seen>>>,
    pub errors: Rc<RefCell<Vec<CarryError>>>,
    pub carried: Rc<Cell<usize>>,
    pub proxy: SocketAddr,
    pub is_crowded: Rc<Cell<bool>>,
    withdrawn: Rc<Notify>,
}

/// Runs a test on one thread.
pub(crate) fn local(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async {
        tokio::time::timeout(Duration::from_secs(300), test)
            .await
            .expect("the test hangs");
    };
    runtime.block_on(LocalSet::new().run_until(test));
}

impl World {
    pub(crate) async fn new(setup: Setup) -> Self {
        let seen = Rc::<RefCell<Vec<Seen>>>::default();
        let (host, root) = serve_host(&setup, seen.clone()).await;
        let host = setup.host.unwrap_or(host);
        let roots = if setup.is_trusted { vec![root] } else { vec![] };
        let told = Rc::<RefCell<Vec<FromGateway>>>::default();
        let ended = Rc::<RefCell<Option<Rc<TlsTerminator>>>>::default();
        let spec = GatewaySpec {
            credentials: setup.credentials,
            rules: setup.rules,
            authority: setup.authority,
            ..GatewaySpec::default()
        };
        let values = RefCell::new(VecDeque::from(setup.values));
        let tell = {
            let (ended, told) = (ended.clone(), told.clone());
            move |frame: FromGateway| {
                told.borrow_mut().push(frame.clone());
                if matches!(frame, FromGateway::Used(_)) && setup.is_recorded {
                    let ended = ended.clone();
                    spawn_local(async move {
                        if let Some(ended) = &*ended.borrow() {
                            ended.recorded();
                        }
                    });
                }
                let FromGateway::Wanted { credential } = frame else {
                    return;
                };
                let mut values = values.borrow_mut();
                let Some(value) = values.front().cloned() else {
                    return;
                };
                if values.len() > 1 {
                    values.pop_front();
                }
                let ended = ended.clone();
                spawn_local(async move {
                    // The question is registered by then.
                    yield_now().await;
                    let ended = ended.borrow().clone().unwrap();
                    ended.value(credential, value.map(String::into_bytes));
                });
            }
        };
        let made =
            TlsTerminator::with_times(&spec, CertificateRoots::new(roots), tell, setup.times)
                .unwrap();
        let made = Rc::new(made);
        *ended.borrow_mut() = Some(made.clone());
        let (errors, carried) = (Rc::default(), Rc::default());
        let withdrawn = Rc::new(Notify::new());
        let is_crowded = Rc::new(Cell::new(false));
        let load = (&withdrawn, &is_crowded);
        let proxy = serve_proxy(&made, host, load, (&errors, &carried)).await;
        Self {
            ended: made,
            told,
            seen,
            errors,
            carried,
            proxy,
            is_crowded,
            withdrawn,
        }
    }

    /// Drops all connections, as the relay does when their lease has ended.
    pub(crate) fn withdraw(&self) {
        self.withdrawn.notify_waiters();
    }

    pub(crate) fn wanted(&self) -> usize {
        let told = self.told.borrow();
        let is_wanted = |frame: &&FromGateway| matches!(frame, FromGateway::Wanted { .. });
        told.iter().filter(is_wanted).count()
    }

    pub(crate) fn reports(&self) -> Vec<CredentialReport> {
        self.ended.flush();
        let told = self.told.borrow();
        let reports = told.iter().filter_map(|frame| match frame {
            FromGateway::Used(report) => Some(report.clone()),
            _ => None,
        });
        reports.collect()
    }

    /// How many uses ended like this.
    pub(crate) fn count(&self, verdict: CredentialVerdict) -> u32 {
        let reports = self.reports();
        let alike = reports.iter().filter(|report| report.verdict == verdict);
        alike.map(|report| report.count).sum()
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.borrow().last().expect("a request").clone()
    }

    /// A connection to the session's relay, after its answer to `CONNECT`.
    pub(crate) async fn tunnel(&self, place: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.proxy).await.unwrap();
        let head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 39];
        stream.read_exact(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        stream
    }

    /// TLS to `place`, with `name` in the hello.
    pub(crate) async fn try_tls(
        &self,
        place: &str,
        name: &str,
        alpn: &[&[u8]],
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let authority = self.ended.authority().unwrap();
        let name = name.to_owned();
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        let stream = self.tunnel(place).await;
        connect(&authority.certificate, name, alpn, stream).await
    }

    pub(crate) async fn tls(&self, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
        let stream = self.try_tls("a.example:443", "a.example", alpn);
        stream.await.unwrap()
    }

    /// Sends `text` by HTTP/1.1 and reads until the end. The request must end the connection.
    pub(crate) async fn http1(&self, text: &str) -> String {
        let mut stream = self.tls(&[HTTP1]).await;
        stream.write_all(text.as_bytes()).await.unwrap();
        // Reading does not write what TLS still holds. Whoever has answered may read no more.
        let _ = stream.flush().await;
        let mut answer = Vec::new();
        // A connection that is cut ends without the words of TLS.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// One request of HTTP/1.1: its line, its headers, each with its line end.
    pub(crate) async fn get(&self, path: &str, headers: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n");
        self.http1(&format!("{head}{headers}Connection: close\r\n\r\n"))
            .await
    }

    pub(crate) async fn http2(&self) -> http2::SendRequest<Body> {
        self.http2_over(self.tls(&[HTTP2]).await).await
    }

    pub(crate) async fn http2_over(
        &self,
        stream: TlsStream<TcpStream>,
    ) -> http2::SendRequest<Body> {
        let (send, connection) = http2::Builder::new(Local)
            .handshake(TokioIo::new(stream))
            .await
            .unwrap();
        spawn_local(async move {
            let _ = connection.await;
        });
        send
    }
}

#[derive(Clone)]
pub(crate) struct Local;

impl<F: Future + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, future: F) {
        spawn_local(async move {
            future.await;
        });
    }
}

pub(crate) fn bearer() -> String {
    format!("Authorization: Bearer {PLACEHOLDER}\r\n")
}

async fn serve_host(setup: &Setup, seen: Rc<RefCell<Vec<Seen>>>) -> (SocketAddr, Vec<u8>) {
    let names = vec!["a.example".to_owned(), "b.example".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let root = made.cert.der().to_vec();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = setup.protocols.iter().map(|name| name.to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handler = setup.handler.clone();
    spawn_local(async move {
        let mut connections = 0;
        while let Ok((stream, _)) = listener.accept().await {
            connections += 1;
            let (acceptor, handler) = (acceptor.clone(), handler.clone());
            let (seen, connection) = (seen.clone(), connections);
            spawn_local(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
                let service = service_fn(move |request: Request<Incoming>| {
                    seen.borrow_mut().push(Seen {
                        uri: request.uri().path_and_query().unwrap().to_string(),
                        headers: request.headers().clone(),
                        version: request.version(),
                        connection,
                    });
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let stream = TokioIo::new(stream);
                if is_http2 {
                    let server = hyper::server::conn::http2::Builder::new(Local);
                    let _ = server.serve_connection(stream, service).await;
                } else {
                    let mut server = hyper::server::conn::http1::Builder::new();
                    server.preserve_header_case(true);
                    let server = server.serve_connection(stream, service);
                    let _ = server.with_upgrades().await;
                }
            });
        }
    });
    (address, root)
}

async fn serve_proxy(
    ended: &Rc<TlsTerminator>,
    host: SocketAddr,
    (withdrawn, is_crowded): (&Rc<Notify>, &Rc<Cell<bool>>),
    (errors, carried): (&Rc<RefCell<Vec<CarryError>>>, &Rc<Cell<usize>>),
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ended, withdrawn) = (ended.clone(), withdrawn.clone());
    let is_crowded = is_crowded.clone();
    let (errors, carried) = (errors.clone(), carried.clone());
    spawn_local(async move {
        while let Ok((mut program, _)) = listener.accept().await {
            let (ended, errors, carried) = (ended.clone(), errors.clone(), carried.clone());
            let (withdrawn, is_crowded) = (withdrawn.clone(), is_crowded.clone());
            spawn_local(async move {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") {
                    program.read_exact(&mut byte).await.unwrap();
                    head.push(byte[0]);
                }
                let head = String::from_utf8(head).unwrap();
                let place = head.split(' ').nth(1).unwrap();
                let (name, port) = place.rsplit_once(':').unwrap();
                let port = port.parse().unwrap();
                assert!(ended.is_for(name, port), "{place}");
                let greeting = b"HTTP/1.1 200 Connection established\r\n\r\n";
                program.write_all(greeting).await.unwrap();
                let connect = async move || TcpStream::connect(host).await;
                let place = (name, port);
                let program = ProgramConnection {
                    stream: program,
                    call: CALL,
                    traffic: Arc::default(),
                };
                let is_crowded = || is_crowded.get();
                let ended = tokio::select! {
                    ended = ended.carry(program, vec![], place, connect, is_crowded) => ended,
                    () = withdrawn.notified() => Ok(()),
                };
                carried.set(carried.get() + 1);
                if let Err(error) = ended {
                    errors.borrow_mut().push(error);
                }
            });
        }
    });
    address
}

/// TLS for `a.example` by a program that believes one authority.
pub(crate) async fn client(
    authority: &str,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    connect(authority, "a.example".into(), vec![], stream).await
}

async fn connect(
    authority: &str,
    name: String,
    alpn: Vec<Vec<u8>>,
    stream: TcpStream,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn;
    TlsConnector::from(Arc::new(config))
        .connect(name.try_into().unwrap(), stream)
        .await
}
