//! The network of cells: accepts connections on the socket that listens on their loopback, reads the requested host, checks it as
//! for the web tools, and forwards bytes. All input is untrusted and bounded in size and time.
//!
//! Only TCP goes out, and only to hosts by name. The name is checked and resolved here, each of its addresses is checked, and only
//! these are connected to. A cell resolves nothing. The data in a connection is not inspected, so for a host that serves others
//! under its own name (a CDN, a proxy) a policy can distinguish no further.

use crate::decrypted::{CarryError, TlsTerminator};
use crate::reports::ReportSender;
use crate::resolver::System;
use crate::traffic::{EndReports, OpenConnection, ProgramConnection, of_call};
pub(crate) use announced::Unannounced;
use announced::{AnnouncedConnections, Purpose, QUEUE};
use answer::{ConnectionRefusal, socks_reply};
use broker_protocol::gateway::FromGateway;
use broker_protocol::{CallId, ConnectionReport, ConnectionVerdict, Lease};
pub(crate) use connect::{ConnectError, first_of};
use leased::CellHosts;
use orchestrator_framing::wanted::{self, HEAD_MAX, RequestedConnection, SocksError, WantedError};
use orchestrator_reach::guard::{self, Resolve};
use orchestrator_reach::place::Place;
use orchestrator_ssh_agent::{AgentFilter, AgentSocket};
use pace::Pace;
use policies::WebPolicy;
use proxy::PolicyJudge;
pub(crate) use proxy::{ProxyError, TargetJudge, UpstreamProxy};
use published::PublishedSockets;
use std::cell::Cell;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tunnel::{Idle, TunnelStart};

mod announced;
mod answer;
mod clients;
mod connect;
mod leased;
mod machine;
mod pace;
mod proxy;
mod proxy_fault;
mod published;
mod tunnel;

/// Maximum number of connections; further ones wait in the kernel's queue.
const AT_ONCE: usize = 128;
/// Seconds in which a request has to arrive.
const HEAD_S: u64 = 15;
/// Seconds in which to resolve its host and connect to it.
const CONNECT_S: u32 = 30;
/// A connection ends after this long without a byte, while fewer than [`SPARE`] places are free.
const IDLE: Duration = Duration::from_secs(600);
const SPARE: usize = AT_ONCE / 2;
/// How often a quiet connection looks whether they are.
const LOOK: Duration = Duration::from_secs(10);
/// How long a program may take to read a refusal; its further input is read and dropped meanwhile.
const GOODBYE: Duration = Duration::from_secs(1);
const GOODBYE_MAX: u64 = 1 << 20;

/// The sockets of a session's relay, as received from the broker.
#[derive(Debug)]
pub(crate) struct RelaySockets {
    listener: TcpListener,
    announced: AnnouncedConnections,
    agents: AgentSocket,
    published: Option<PublishedSockets>,
}

impl RelaySockets {
    /// Takes over the sockets, before this process is confined; `None` unless there are four, and one for each of `published`, the
    /// ports to which these lead.
    ///
    /// # Errors
    /// If they are no sockets.
    pub(crate) fn new(
        mut descriptors: Vec<OwnedFd>,
        unannounced: Unannounced,
        published: &[u16],
    ) -> io::Result<Option<Self>> {
        if descriptors.len() != 4 + published.len() {
            return Ok(None);
        }
        let listeners = descriptors.split_off(4);
        let Ok([listener, announcements, line, agents]) = <[OwnedFd; 4]>::try_from(descriptors)
        else {
            return Ok(None);
        };
        let has_published = !published.is_empty();
        let published = has_published.then(|| PublishedSockets::new(listeners, published, line));
        let listener = TcpListener::from(listener);
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, QUEUE)?;
        let announcements = UnixDatagram::from(announcements);
        announcements.set_nonblocking(true)?;
        Ok(Some(Self {
            listener,
            announced: AnnouncedConnections::new(announcements, unannounced),
            agents: AgentSocket::new(agents)?,
            published: published.transpose()?,
        }))
    }
}

/// Forwards the connections of a session's cells.
pub(crate) struct Relay<R = System> {
    hosts: CellHosts,
    resolver: R,
    reports: ReportSender,
    ends: Rc<EndReports>,
    pace: Pace,
    /// Of published ports: this user's programs, and others'.
    clients: Pace,
    strangers: Pace,
    places: Arc<Semaphore>,
    /// The hosts of credentials, if the session has any.
    terminator: Option<Rc<TlsTerminator>>,
    /// The proxy by which hosts are reached, if the policy names one.
    proxy: Option<UpstreamProxy>,
    /// The ports of this machine that cells reach.
    ports: Vec<u16>,
    /// The ssh agent of cells, if the policy lets it sign.
    agent: Option<Rc<AgentFilter>>,
}

impl Relay {
    /// Reaches what `policy` allows and what is leased, through this machine's resolver. Connections to the hosts of `terminator` are its.
    pub(crate) fn new(
        policy: WebPolicy,
        leases: watch::Receiver<Vec<Lease>>,
        reports: ReportSender,
        terminator: Option<Rc<TlsTerminator>>,
        proxy: Option<UpstreamProxy>,
    ) -> Self {
        Self {
            terminator,
            proxy,
            ..Self::with_resolver(CellHosts::new(policy, leases), System, reports)
        }
    }
}

impl<R: Resolve + 'static> Relay<R> {
    pub(crate) fn with_resolver(hosts: CellHosts, resolver: R, reports: ReportSender) -> Self {
        let told = reports.clone();
        Self {
            hosts,
            resolver,
            reports,
            ends: EndReports::new(move |frame| told.send(frame)),
            pace: Pace::default(),
            clients: Pace::default(),
            strangers: Pace::default(),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            terminator: None,
            proxy: None,
            ports: Vec::new(),
            agent: None,
        }
    }

    /// The same for cells that reach these ports of this machine.
    pub(crate) fn with_ports(self, ports: Vec<u16>) -> Self {
        Self { ports, ..self }
    }

    /// Adds the ssh agent of cells, which watches connections to its hosts.
    pub(crate) fn with_agent(self, agent: Option<Rc<AgentFilter>>) -> Self {
        Self { agent, ..self }
    }

    /// The ends of its connections, which are reported a second later, or by whoever ends this process.
    pub(crate) fn ends(&self) -> Rc<EndReports> {
        self.ends.clone()
    }

    /// Serves until the future is dropped, which ends all connections. Needs a local runtime.
    ///
    /// # Errors
    /// If the socket cannot be watched.
    pub(crate) async fn serve(self, sockets: RelaySockets) -> io::Result<()> {
        let RelaySockets {
            listener,
            mut announced,
            agents,
            published,
        } = sockets;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (relay, mut connections) = (Rc::new(self), JoinSet::new());
        if let Some(published) = published {
            relay.publish(published, &mut connections)?;
        }
        let agent = relay.agent.clone();
        connections.spawn_local(async move {
            // Without its socket no program has an agent.
            let _ = agents.serve(agent).await;
        });
        loop {
            while connections.try_join_next().is_some() {}
            // The semaphore is never closed, so this succeeds in the end.
            let place = relay.places.clone().acquire_owned().await.ok();
            match listener.accept().await {
                Ok((program, peer)) => {
                    let Some((purpose, call)) = announced.take(peer) else {
                        continue;
                    };
                    let relay = relay.clone();
                    connections.spawn_local(async move {
                        match purpose {
                            Purpose::Request => relay.carry(program, call).await,
                            Purpose::Host(place) => {
                                relay.carry_to_host((program, call), place).await
                            }
                            Purpose::Machine(port) => {
                                relay.carry_to_machine((program, call), port).await
                            }
                        }
                        drop(place);
                    });
                }
                // The program is gone, or this process has too many open files until others close some.
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// Serves one connection until it ends.
    async fn carry(self: Rc<Self>, mut program: TcpStream, call: CallId) {
        // A failure only makes small messages slower.
        let _ = program.set_nodelay(true);
        let request = timeout(
            Duration::from_secs(HEAD_S),
            ProgramRequest::read(&mut program),
        )
        .await;
        if !matches!(request, Ok(Err(RequestReadError::Gone))) {
            // Before any decision, so that malformed requests are slowed down too.
            self.pace.turn().await;
        }
        let request = match request {
            Ok(Ok(request)) => request,
            // It disconnected without a request.
            Ok(Err(RequestReadError::Gone)) => return,
            Ok(Err(RequestReadError::Http(error))) => {
                return self
                    .refuse_http((program, call), &ConnectionRefusal::Wanted(error))
                    .await;
            }
            Ok(Err(RequestReadError::Socks(error))) => {
                let why = "a message of SOCKS that is no CONNECT".to_owned();
                self.tell(
                    (None, call),
                    ConnectionVerdict::Malformed,
                    (Some(why), None),
                )
                .await;
                return goodbye(program, &socks_reply(error as u8)).await;
            }
            Err(_) => {
                return self
                    .refuse_http((program, call), &ConnectionRefusal::Slow(HEAD_S))
                    .await;
            }
        };
        match self.connect(&request.wanted.place, call).await {
            Ok(host) => {
                let place = Some(&request.wanted.place);
                let open = self
                    .connected((place, call), ConnectionVerdict::Allowed)
                    .await;
                let greeting = request.greeting();
                if program.write_all(&greeting).await.is_ok() {
                    let program = open.of(program, call);
                    self.pass(program, host, request.wanted, request.rest).await;
                }
            }
            Err(error) => {
                let refusal = ConnectionRefusal::Place(request.wanted.place, error);
                match request.socks {
                    true => self.refuse_socks((program, call), &refusal).await,
                    false => self.refuse_http((program, call), &refusal).await,
                }
            }
        }
    }

    /// Carries a connection to a host that its program has connected to by an address of the session's, as what `CONNECT` would open for it.
    /// A program whose connection fails sees it reset: for it the connection was made already.
    async fn carry_to_host(self: Rc<Self>, (program, call): (TcpStream, CallId), place: Place) {
        // A failure only makes small messages slower.
        let _ = program.set_nodelay(true);
        self.pace.turn().await;
        let wanted = RequestedConnection {
            place,
            first: Vec::new(),
            tunnel: true,
        };
        match self.connect(&wanted.place, call).await {
            Ok(host) => {
                let place = Some(&wanted.place);
                let open = self
                    .connected((place, call), ConnectionVerdict::Allowed)
                    .await;
                let program = open.of(program, call);
                self.pass(program, host, wanted, Vec::new()).await;
            }
            Err(error) => {
                let _ = program.set_zero_linger();
                let refusal = ConnectionRefusal::Place(wanted.place, error);
                self.tell_refused(&refusal, call).await;
            }
        }
    }

    /// Carries the bytes of a connection that was allowed, as long as it is.
    async fn pass(
        self: Rc<Self>,
        program: ProgramConnection,
        host: TcpStream,
        wanted: RequestedConnection,
        rest: Vec<u8>,
    ) {
        let call = program.call;
        let is_tunnel = wanted.tunnel;
        let first = [&wanted.first[..], &rest].concat();
        let place = &wanted.place;
        let terminator = self.terminator.clone();
        let terminator = terminator.filter(|terminator| {
            let is_decrypted = is_tunnel && terminator.is_for(place.host(), place.port());
            is_decrypted || terminator.has_rules(place.host())
        });
        let passes = async {
            match terminator {
                Some(terminator) => {
                    self.decrypt(&terminator, program, host, (first, &wanted))
                        .await
                }
                None => {
                    // An address has no name that a program could ask for by TLS.
                    let is_named = is_tunnel && place.target().address().is_none();
                    let allowed = is_named.then(|| place.host());
                    self.forward(&program, &host, (first, allowed), place).await;
                }
            }
        };
        tokio::select! {
            () = passes => {}
            () = self.hosts.withdrawn(place, call) => {}
        }
    }

    /// Forwards what is not decrypted.
    async fn forward(
        &self,
        program: &ProgramConnection,
        host: &TcpStream,
        (first, allowed): (Vec<u8>, Option<&str>),
        place: &Place,
    ) {
        let call = program.call;
        let agent = self.agent.as_ref();
        let beginning = TunnelStart {
            first,
            host: allowed,
            watched: agent.and_then(|agent| agent.watch(place.host(), place.port(), call)),
            traffic: program.traffic.clone(),
        };
        let Some(name) = tunnel::pass(&program.stream, host, beginning, self.idle()).await else {
            return;
        };
        self.tell_name((place, call), &name).await;
    }

    fn idle(&self) -> Idle<impl Fn() -> bool> {
        Idle {
            limit: IDLE,
            look: LOOK,
            is_crowded: || self.is_crowded(),
        }
    }

    /// Whether others may need the place of a quiet connection.
    fn is_crowded(&self) -> bool {
        self.places.available_permits() < SPARE
    }

    /// Reports a connection whose TLS asks for another host than the one that it was requested for.
    async fn tell_name(&self, (place, call): (&Place, CallId), name: &str) {
        let why = format!(
            "the connection was requested for {}, and its TLS asks for another host",
            place.host()
        );
        let why = (Some(why), None);
        match Place::new(name, place.port()) {
            Ok(asked) => {
                self.tell((Some(&asked), call), ConnectionVerdict::NotListed, why)
                    .await
            }
            Err(_) => {
                self.tell((Some(place), call), ConnectionVerdict::Malformed, why)
                    .await
            }
        }
    }

    /// Has a connection to a credential's host carried. `host` is its first connection there; further ones are decided on anew.
    async fn decrypt(
        self: &Rc<Self>,
        terminator: &TlsTerminator,
        program: ProgramConnection,
        host: TcpStream,
        (first, wanted): (Vec<u8>, &RequestedConnection),
    ) {
        let call = program.call;
        let (relay, again) = (self.clone(), wanted.place.clone());
        let opened = Cell::new(Some(host));
        let connect = async move || match opened.take() {
            Some(host) => Ok(host),
            None => relay.connect(&again, call).await,
        };
        let place = &wanted.place;
        let carried = terminator
            .carry(
                program,
                first,
                (place.host(), place.port()),
                connect,
                || self.is_crowded(),
            )
            .await;
        match carried {
            Ok(()) | Err(CarryError::Gone | CarryError::Idle) => {}
            Err(CarryError::Name { asked, .. }) => self.tell_name((place, call), &asked).await,
            Err(error @ (CarryError::NotTrusted | CarryError::LeftAtCertificate)) => {
                let why = (
                    Some(format!("{}:{}: {error}", place.host(), place.port())),
                    None,
                );
                self.tell((Some(place), call), ConnectionVerdict::NotTrusted, why)
                    .await;
            }
            Err(
                error @ (CarryError::Hello(_)
                | CarryError::Handshake(_)
                | CarryError::Host { .. }
                | CarryError::Authority(_)),
            ) => {
                let why = (Some(error.to_string()), None);
                self.tell((Some(place), call), ConnectionVerdict::Unreachable, why)
                    .await;
            }
        }
    }

    /// Connects to a place if programs of this call may reach it.
    async fn connect(&self, place: &Place, call: CallId) -> Result<TcpStream, ConnectError> {
        let work = async {
            self.reports.all_heard().await;
            let policy = self.hosts.now(call);
            let target = place.target();
            let Some(proxy) = &self.proxy else {
                let addresses = guard::admit(&policy, &self.resolver, target).await?;
                return connect::first_of(&addresses).await;
            };
            let terminator = self.terminator.as_deref();
            let judge = PolicyJudge(&policy, &self.resolver);
            proxy
                .connect((&judge, &self.resolver), target, terminator)
                .await
        };
        timeout(Duration::from_secs(CONNECT_S.into()), work)
            .await
            .unwrap_or(Err(ConnectError::TimedOut(CONNECT_S)))
    }

    /// Reports a connection as made. It has ended when what this returns is dropped.
    async fn connected(
        &self,
        (place, call): (Option<&Place>, CallId),
        verdict: ConnectionVerdict,
    ) -> OpenConnection {
        let named = place.map_or(("", 0), |place| (place.host(), place.port()));
        let open = self.ends.begin(named, of_call(call), verdict);
        self.tell((place, call), verdict, (None, None)).await;
        open
    }

    async fn tell_refused(&self, refusal: &ConnectionRefusal, call: CallId) {
        let place = match refusal {
            ConnectionRefusal::Place(place, _) => Some(place),
            ConnectionRefusal::Wanted(_) | ConnectionRefusal::Slow(_) => None,
        };
        self.tell(
            (place, call),
            refusal.verdict(),
            (Some(refusal.why()), refusal.private()),
        )
        .await;
    }

    async fn refuse_http(&self, (program, call): (TcpStream, CallId), refusal: &ConnectionRefusal) {
        self.tell_refused(refusal, call).await;
        goodbye(program, &refusal.http()).await;
    }

    async fn refuse_socks(
        &self,
        (program, call): (TcpStream, CallId),
        refusal: &ConnectionRefusal,
    ) {
        self.tell_refused(refusal, call).await;
        goodbye(program, &refusal.socks()).await;
    }

    /// Reports a decision, and waits until it is sent: before the program hears of it, so that its call cannot end earlier.
    async fn tell(
        &self,
        (place, call): (Option<&Place>, CallId),
        verdict: ConnectionVerdict,
        (why, private): (Option<String>, Option<String>),
    ) {
        let (host, port) = place.map_or(("", 0), |place| (place.host(), place.port()));
        let report = ConnectionReport {
            host: host.to_owned(),
            port,
            verdict,
            count: 1,
            call: of_call(call),
            why,
            private,
        };
        self.reports.send(&FromGateway::Connected(report.cut()));
        self.reports.sent().await;
    }
}

/// Sends the refusal and waits until the program has read it: otherwise its further input would reset the connection first.
async fn goodbye(mut program: TcpStream, answer: &[u8]) {
    let work = async {
        program.write_all(answer).await?;
        program.shutdown().await?;
        tokio::io::copy(&mut program.take(GOODBYE_MAX), &mut tokio::io::sink()).await
    };
    // A program that does not read it gets no more time.
    let _ = timeout(GOODBYE, work).await;
}

struct ProgramRequest {
    wanted: RequestedConnection,
    socks: bool,
    /// The bytes after the request.
    rest: Vec<u8>,
}

enum RequestReadError {
    /// The program has disconnected.
    Gone,
    Http(WantedError),
    Socks(SocksError),
}

impl ProgramRequest {
    /// What the program waits for before it sends anything else.
    fn greeting(&self) -> Vec<u8> {
        match (self.socks, self.wanted.tunnel) {
            (true, _) => socks_reply(0),
            (false, true) => b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec(),
            (false, false) => Vec::new(),
        }
    }

    async fn read(program: &mut TcpStream) -> Result<Self, RequestReadError> {
        let mut bytes = Vec::with_capacity(1024);
        more(program, &mut bytes).await?;
        if bytes[0] == 5 {
            Self::socks(program, bytes).await
        } else {
            Self::http(program, bytes).await
        }
    }

    async fn http(program: &mut TcpStream, mut bytes: Vec<u8>) -> Result<Self, RequestReadError> {
        let mut seen = 0;
        loop {
            // Parsed once at the beginning, where most invalid requests show, and once at the end, so that single bytes stay cheap.
            let may_be_whole = wanted::has_end(&bytes, seen) || bytes.len() >= HEAD_MAX;
            if (seen == 0 || may_be_whole)
                && let Some((wanted, length)) =
                    wanted::http(&bytes).map_err(RequestReadError::Http)?
            {
                return Ok(Self {
                    wanted,
                    socks: false,
                    rest: bytes.split_off(length),
                });
            }
            seen = bytes.len();
            more(program, &mut bytes).await?;
        }
    }

    async fn socks(program: &mut TcpStream, mut bytes: Vec<u8>) -> Result<Self, RequestReadError> {
        let (open, length) = loop {
            match wanted::socks_greeting(&bytes) {
                Some(greeting) => break greeting,
                None => more(program, &mut bytes).await?,
            }
        };
        let answer = if open { [5, 0] } else { [5, 0xff] };
        program
            .write_all(&answer)
            .await
            .map_err(|_| RequestReadError::Gone)?;
        if !open {
            return Err(RequestReadError::Gone);
        }
        bytes.drain(..length);
        loop {
            if let Some((place, length)) =
                wanted::socks_request(&bytes).map_err(RequestReadError::Socks)?
            {
                let wanted = RequestedConnection {
                    place,
                    first: Vec::new(),
                    tunnel: true,
                };
                return Ok(Self {
                    wanted,
                    socks: true,
                    rest: bytes.split_off(length),
                });
            }
            more(program, &mut bytes).await?;
        }
    }
}

/// Reads more bytes. A request's head may have [`HEAD_MAX`] bytes plus one read.
async fn more(program: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<(), RequestReadError> {
    let mut read = [0; HEAD_MAX];
    match program.read(&mut read).await {
        Ok(0) | Err(_) => Err(RequestReadError::Gone),
        Ok(length) => {
            bytes.extend_from_slice(&read[..length]);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
