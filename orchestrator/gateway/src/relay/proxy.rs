//! Connections through a company's proxy: each is a tunnel that the proxy is asked for by `CONNECT`.
//!
//! Comes from the relay when a target was allowed; goes to the proxy that the policy names, which may have a private address. The target is
//! judged as without a proxy, as far as its addresses are known here. Nothing that the proxy answers is believed but that a tunnel
//! stands, and it is bounded: 16 KiB of heads, 8 of them interim ones, 15 s. Believes the host in a tunnel no more than without a proxy.

use crate::decrypted::{CredentialValueError, TlsTerminator, UpstreamLogin};
use crate::relay::connect::{self, ConnectError};
use crate::relay::proxy_fault::{HEAD_MAX, HEADERS_MAX, INTERIM_MAX, ProxyFault};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::gateway::ProxySpec;
use orchestrator_reach::ReachError;
use orchestrator_reach::guard::{self, Resolve};
use orchestrator_reach::place::{Place, PlaceError};
use orchestrator_reach::target::Target;
use policies::WebPolicy;
use policies::gateway::{DirectPlace, GatewayFault};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// How long a proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the proxy's own addresses count, and how long it may take to find others.
const KNOWN: Duration = Duration::from_secs(60);
const LOCATED: Duration = Duration::from_secs(5);
/// How long a name that the proxy resolves may take to resolve here too.
const RESOLVED: Duration = Duration::from_secs(2);
/// Maximum number of a target's addresses that the proxy is asked for.
const TRIED: usize = 4;
/// Maximum characters of a proxy's words in a message.
const WORDS_MAX: usize = 100;

/// Why the spec of a proxy cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyError {
    #[error("its place: {0}")]
    Place(#[from] PlaceError),
    #[error("{0}")]
    Direct(#[from] GatewayFault),
}

/// Who judges the target of a connection.
pub(crate) trait TargetJudge {
    type Error: From<ConnectError>;

    /// Refuses what is refused at whatever address it is.
    fn foresee(&self, target: &Target) -> Result<(), Self::Error>;

    /// Whether the proxy may be told its name where this machine finds no address for it.
    fn allows_unseen(&self, target: &Target) -> bool;

    /// Its addresses, all of which are checked.
    #[allow(async_fn_in_trait, reason = "whoever calls it is on the same thread")]
    async fn admit(&self, target: &Target) -> Result<Vec<SocketAddr>, Self::Error>;

    fn is_unresolved(error: &Self::Error) -> bool;
}

/// A session's policy, and how names are resolved.
pub(super) struct PolicyJudge<'a, R>(pub &'a WebPolicy, pub &'a R);

impl<R: Resolve> TargetJudge for PolicyJudge<'_, R> {
    type Error = ConnectError;

    fn foresee(&self, target: &Target) -> Result<(), ConnectError> {
        Ok(guard::foresee(self.0, target)?)
    }

    /// A name that only `private` has is allowed at private addresses alone, which have to be seen.
    fn allows_unseen(&self, target: &Target) -> bool {
        self.0.allows(target.host(), target.port())
    }

    async fn admit(&self, target: &Target) -> Result<Vec<SocketAddr>, ConnectError> {
        Ok(guard::admit(self.0, self.1, target).await?)
    }

    fn is_unresolved(error: &ConnectError) -> bool {
        match error {
            ConnectError::Reach(error) => matches!(error, ReachError::Unresolved(_)),
            ConnectError::NoAnswer(_) | ConnectError::Proxy { .. } | ConnectError::TimedOut(_) => {
                false
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Route {
    Direct(Vec<SocketAddr>),
    /// By the proxy, to the first of these that it reaches: addresses, or one name, with their port.
    Tunnel(Vec<String>),
}

#[derive(Debug)]
pub(crate) struct UpstreamProxy {
    place: Place,
    names: bool,
    direct: Vec<DirectPlace>,
    login: Option<u16>,
    patience: Duration,
    /// Its addresses, and when they were found.
    known: RefCell<Option<(Instant, Vec<SocketAddr>)>>,
}

impl TryFrom<&ProxySpec> for UpstreamProxy {
    type Error = ProxyError;

    fn try_from(spec: &ProxySpec) -> Result<Self, ProxyError> {
        let direct = spec.direct.iter().cloned().map(DirectPlace::try_from);
        Ok(Self {
            place: Place::new(&spec.host, spec.port)?,
            names: spec.names,
            direct: direct.collect::<Result<_, _>>()?,
            login: spec.login,
            patience: PATIENCE,
            known: RefCell::default(),
        })
    }
}

impl UpstreamProxy {
    /// Connects to a target that `judge` allows, by the proxy or without it. `terminator` has the proxy's login.
    pub(crate) async fn connect<J: TargetJudge>(
        &self,
        (judge, resolver): (&J, &impl Resolve),
        target: &Target,
        terminator: Option<&TlsTerminator>,
    ) -> Result<TcpStream, J::Error> {
        match self.route(judge, resolver, target).await? {
            Route::Direct(addresses) => Ok(connect::first_of(&addresses).await?),
            Route::Tunnel(targets) => {
                let tunnel = self.first_tunnel(resolver, &targets, terminator).await;
                let tunnel = tunnel.map_err(|fault| ConnectError::Proxy {
                    proxy: format!("{}:{}", self.place.host(), self.place.port()),
                    fault,
                });
                Ok(tunnel?)
            }
        }
    }

    /// Whether a target is allowed, without a connection to it.
    pub(crate) async fn check<J: TargetJudge>(
        &self,
        (judge, resolver): (&J, &impl Resolve),
        target: &Target,
    ) -> Result<(), J::Error> {
        self.route(judge, resolver, target).await.map(drop)
    }

    /// Judges the target, and decides which way leads to it. A name that the proxy is told is resolved here too: what this machine knows
    /// to be private stays closed. One that it cannot resolve, as behind many proxies, is the proxy's matter.
    async fn route<J: TargetJudge>(
        &self,
        judge: &J,
        resolver: &impl Resolve,
        target: &Target,
    ) -> Result<Route, J::Error> {
        if self.names {
            // Before the target: lookups of names that nobody answers here occupy the few threads for them.
            let _ = self.addresses(resolver).await;
        }
        judge.foresee(target)?;
        let (host, port) = (target.host(), target.port());
        let is_direct = self.direct.iter().any(|direct| direct.names(host, port));
        let by_name =
            self.names && !is_direct && target.address().is_none() && judge.allows_unseen(target);
        let admitted = judge.admit(target);
        let addresses = if by_name {
            match timeout(RESOLVED, admitted).await {
                Err(_) => Vec::new(),
                Ok(Err(error)) if J::is_unresolved(&error) => Vec::new(),
                Ok(admitted) => admitted?,
            }
        } else {
            admitted.await?
        };
        if is_direct {
            return Ok(Route::Direct(addresses));
        }
        // In clear text nothing leaves this machine for a server of its own: a request may have a key in it.
        let is_plain = target.url().scheme() == "http";
        let holds = |address: &&SocketAddr| {
            let ip = address.ip().to_canonical();
            is_plain && ip.is_loopback() || self.direct.iter().any(|one| one.holds(ip))
        };
        let direct: Vec<_> = addresses.iter().filter(holds).copied().collect();
        if !direct.is_empty() {
            return Ok(Route::Direct(direct));
        }
        if by_name {
            return Ok(Route::Tunnel(vec![format!("{host}:{port}")]));
        }
        let addresses = addresses.iter().take(TRIED).map(SocketAddr::to_string);
        Ok(Route::Tunnel(addresses.collect()))
    }

    async fn first_tunnel(
        &self,
        resolver: &impl Resolve,
        targets: &[String],
        terminator: Option<&TlsTerminator>,
    ) -> Result<TcpStream, ProxyFault> {
        let mut last = ProxyFault::Unreachable("the target has no address".into());
        for target in targets {
            match self.tunnel(resolver, target, terminator).await {
                Ok(tunnel) => return Ok(tunnel),
                Err(fault) if fault.is_of_address() => last = fault,
                Err(fault) => return Err(fault),
            }
        }
        Err(last)
    }

    /// Asks for a tunnel; once more with another login, if the first one is refused and its source has a new one.
    async fn tunnel(
        &self,
        resolver: &impl Resolve,
        target: &str,
        terminator: Option<&TlsTerminator>,
    ) -> Result<TcpStream, ProxyFault> {
        let Some(credential) = self.login else {
            return self.ask(resolver, target, None).await;
        };
        let terminator = terminator.ok_or(ProxyFault::NoLogin(CredentialValueError::Unknown))?;
        let login = terminator.login(credential).await;
        let login = login.map_err(ProxyFault::NoLogin)?;
        match self.ask(resolver, target, Some(&login)).await {
            Err(ProxyFault::LoginRefused) => match terminator.login_after(credential, &login).await
            {
                Some(next) => self.ask(resolver, target, Some(&next)).await,
                None => Err(ProxyFault::LoginRefused),
            },
            answered => answered,
        }
    }

    /// Its own addresses: those found lately, or others, or in the end older ones.
    async fn addresses(&self, resolver: &impl Resolve) -> Result<Vec<SocketAddr>, String> {
        let known = self.known.borrow().clone();
        if let Some((found, addresses)) = &known
            && found.elapsed() < KNOWN
        {
            return Ok(addresses.clone());
        }
        let located = guard::locate(resolver, self.place.target());
        match (timeout(LOCATED, located).await, known) {
            (Ok(Ok(addresses)), _) => {
                *self.known.borrow_mut() = Some((Instant::now(), addresses.clone()));
                Ok(addresses)
            }
            (Ok(Err(_)) | Err(_), Some((_, addresses))) => Ok(addresses),
            (Ok(Err(error)), None) => Err(error.to_string()),
            (Err(_), None) => Err(format!(
                "its name is not resolved within {} s",
                LOCATED.as_secs()
            )),
        }
    }

    async fn ask(
        &self,
        resolver: &impl Resolve,
        target: &str,
        login: Option<&UpstreamLogin>,
    ) -> Result<TcpStream, ProxyFault> {
        let unreachable = |why: String| ProxyFault::Unreachable(why);
        let addresses = self.addresses(resolver).await.map_err(unreachable)?;
        let connected = connect::first_of(&addresses).await;
        let mut proxy = connected.map_err(|error| unreachable(error.to_string()))?;
        let answered = async {
            let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
            if let Some(login) = login {
                let encoded = STANDARD.encode(login.bytes());
                request += &format!("Proxy-Authorization: Basic {encoded}\r\n");
            }
            request += "\r\n";
            let sent = proxy.write_all(request.as_bytes()).await;
            sent.map_err(|_| ProxyFault::Gone)?;
            final_answer(&mut proxy).await
        };
        let answer = timeout(self.patience, answered).await;
        let answer = answer.map_err(|_| ProxyFault::Slow(self.patience.as_secs()))??;
        match (answer.status, login) {
            (200..=299, _) => Ok(proxy),
            (407, None) => Err(ProxyFault::LoginMissing),
            (407, Some(_)) => Err(ProxyFault::LoginRefused),
            (status, login) => {
                let words = words(&answer.reason, login);
                let to_address = !self.names && (400..500).contains(&status);
                Err(match to_address {
                    true => ProxyFault::RefusedAddress { status, words },
                    false => ProxyFault::Refused { status, words },
                })
            }
        }
    }
}

#[derive(Debug)]
struct ConnectAnswer {
    status: u16,
    reason: String,
}

/// Reads heads until one is final. What follows it is the host's, and is left in the socket.
async fn final_answer(proxy: &mut TcpStream) -> Result<ConnectAnswer, ProxyFault> {
    let mut left = HEAD_MAX;
    for _ in 0..=INTERIM_MAX {
        let answer = parse(&head(proxy, &mut left).await?)?;
        match answer.status {
            // It would speak another protocol than was asked for.
            101 => return Err(ProxyFault::Malformed),
            100..=199 => {}
            _ => return Ok(answer),
        }
    }
    Err(ProxyFault::TooLong)
}

/// Takes one head off the socket, and nothing behind it.
async fn head(proxy: &mut TcpStream, left: &mut usize) -> Result<Vec<u8>, ProxyFault> {
    const BEGINNING: &[u8] = b"HTTP/1.";
    const END: &[u8] = b"\r\n\r\n";
    let (mut head, mut seen) = (Vec::new(), [0; 2048]);
    loop {
        let length = proxy.peek(&mut seen).await.map_err(|_| ProxyFault::Gone)?;
        if length == 0 {
            return Err(ProxyFault::Gone);
        }
        let before = head.len();
        head.extend_from_slice(&seen[..length]);
        let compared = head.len().min(BEGINNING.len());
        if head[..compared] != BEGINNING[..compared] {
            return Err(ProxyFault::Malformed);
        }
        let from = before.saturating_sub(END.len() - 1);
        let end = memchr::memmem::find(&head[from..], END).map(|at| from + at + END.len());
        head.truncate(end.unwrap_or(before + length));
        let taken = head.len() - before;
        *left = left.checked_sub(taken).ok_or(ProxyFault::TooLong)?;
        let read = proxy.read_exact(&mut seen[..taken]).await;
        read.map_err(|_| ProxyFault::Gone)?;
        if end.is_some() {
            return Ok(head);
        }
    }
}

fn parse(head: &[u8]) -> Result<ConnectAnswer, ProxyFault> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Err(ProxyFault::TooLong),
        Ok(httparse::Status::Partial) | Err(_) => return Err(ProxyFault::Malformed),
    }
    Ok(ConnectAnswer {
        status: response.code.ok_or(ProxyFault::Malformed)?,
        reason: response.reason.unwrap_or_default().to_owned(),
    })
}

/// A proxy's own words, for messages and records: escaped, cut, and without the login, which it knows.
fn words(reason: &str, login: Option<&UpstreamLogin>) -> String {
    if login.is_some_and(|login| login.is_in(reason)) {
        return "words that contain the login".to_owned();
    }
    let plain = |c: char| match c.is_ascii_graphic() || c == ' ' {
        true => c,
        false => '?',
    };
    reason.chars().take(WORDS_MAX).map(plain).collect()
}

#[cfg(test)]
mod tests;
