//! Asks a company's proxy for one tunnel, to a host that the policy names, and hangs up: whether it answers at all, and with what.
//!
//! Nothing goes through the tunnel, and no login is sent: what a source gives is for the gateway alone.

use policies::gateway::{DirectPlace, ProxyAddress};
use policies::{EffectivePolicy, ProxySettings};
use serde_json::{Value, json};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long the proxy may take to be connected to, and to answer. How long a name takes is the resolver's matter.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum bytes of an answer that are read: its first line is enough.
const ANSWER_MAX: usize = 4096;
/// Maximum number of addresses of the proxy that are tried.
const ADDRESSES_MAX: usize = 4;

/// What the proxy is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProxyTarget {
    /// The first host with a port that the profile names and that is not connected to directly.
    host: Option<(String, u16)>,
    /// Whether the proxy is told the name.
    names: bool,
    has_login: bool,
}

/// The answer of a proxy, or why there is none.
#[derive(Debug)]
pub(crate) struct ProxyReport {
    /// The host that the tunnel was asked for.
    target: Option<String>,
    outcome: Result<ProxyAnswer, ProxyCheckFault>,
}

/// An answer with which commands can reach hosts.
#[derive(Debug, PartialEq, Eq)]
enum ProxyAnswer {
    /// It opens the tunnel that it was asked for.
    Opens,
    /// It wants the login, which the gateway has.
    WantsLogin,
    /// It takes connections; there is no host to ask for.
    Connected,
}

/// Why commands reach no host through the proxy.
#[derive(Debug, Error)]
pub(crate) enum ProxyCheckFault {
    #[error("its name has no address here: {0}")]
    Unresolved(io::Error),
    #[error("it cannot be connected to: {0}")]
    Unreachable(io::Error),
    #[error(
        "{0} has no address here, and the proxy is told addresses; `proxy_names = true` in `[gateway]` tells it names"
    )]
    NoTarget(String),
    #[error("it does not answer within {limit} s", limit = LIMIT.as_secs())]
    Slow,
    #[error("it ends the connection without an answer")]
    Gone,
    #[error("it does not answer with HTTP")]
    Malformed,
    #[error("it asks for a login (407); `proxy_from` in `[gateway]` names where one comes from")]
    LoginMissing,
    #[error("it answers {0} to this host")]
    Refused(u16),
}

impl ProxyTarget {
    /// The host that a proxy of this policy can be asked for.
    pub(crate) fn of(
        policy: &EffectivePolicy,
        proxy: &ProxySettings,
        direct: &[DirectPlace],
    ) -> Self {
        let allowed = policy.network.own.allow.iter().flatten();
        let mut hosts = allowed.filter_map(|pattern| {
            let (host, port) = pattern.one()?;
            Some((host.to_owned(), port.unwrap_or(443)))
        });
        let is_direct =
            |(host, port): &(String, u16)| direct.iter().any(|place| place.names(host, *port));
        Self {
            host: hosts.find(|host| !is_direct(host)),
            names: proxy.names,
            has_login: proxy.login.is_some(),
        }
    }

    /// The place in the request, as the gateway would write it.
    fn place(&self) -> Result<Option<String>, ProxyCheckFault> {
        let Some((host, port)) = &self.host else {
            return Ok(None);
        };
        if self.names {
            return Ok(Some(format!("{host}:{port}")));
        }
        let mut addresses = (host.as_str(), *port).to_socket_addrs();
        let address = addresses.as_mut().ok().and_then(Iterator::next);
        let address = address.ok_or_else(|| ProxyCheckFault::NoTarget(host.clone()))?;
        Ok(Some(address.to_string()))
    }
}

/// Asks the proxy at this address.
pub(crate) fn ask(address: &ProxyAddress, target: &ProxyTarget) -> ProxyReport {
    ProxyReport {
        target: target
            .host
            .as_ref()
            .map(|(host, port)| format!("{host}:{port}")),
        outcome: try_it(address, target),
    }
}

fn try_it(address: &ProxyAddress, target: &ProxyTarget) -> Result<ProxyAnswer, ProxyCheckFault> {
    let host = address.host.trim_start_matches('[').trim_end_matches(']');
    let found = (host, address.port).to_socket_addrs();
    let found: Vec<SocketAddr> = found.map_err(ProxyCheckFault::Unresolved)?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for one in found.iter().take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(one, LIMIT) {
            Ok(stream) => {
                return match target.place()? {
                    Some(place) => asked(stream, &place, target),
                    None => Ok(ProxyAnswer::Connected),
                };
            }
            Err(error) => last = error,
        }
    }
    Err(ProxyCheckFault::Unreachable(last))
}

fn asked(
    mut stream: TcpStream,
    place: &str,
    target: &ProxyTarget,
) -> Result<ProxyAnswer, ProxyCheckFault> {
    let until = Instant::now() + LIMIT;
    let request = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n");
    let sent = stream
        .set_write_timeout(Some(LIMIT))
        .and_then(|()| stream.write_all(request.as_bytes()));
    sent.map_err(fault_of)?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') && answer.len() < ANSWER_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ProxyCheckFault::Slow);
        }
        stream.set_read_timeout(Some(left)).map_err(fault_of)?;
        let mut bytes = [0; 256];
        match stream.read(&mut bytes).map_err(fault_of)? {
            0 => return Err(ProxyCheckFault::Gone),
            read => answer.extend_from_slice(&bytes[..read]),
        }
    }
    match status(&answer).ok_or(ProxyCheckFault::Malformed)? {
        200..=299 => Ok(ProxyAnswer::Opens),
        407 if target.has_login => Ok(ProxyAnswer::WantsLogin),
        407 => Err(ProxyCheckFault::LoginMissing),
        other => Err(ProxyCheckFault::Refused(other)),
    }
}

fn fault_of(error: io::Error) -> ProxyCheckFault {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ProxyCheckFault::Slow,
        _ => ProxyCheckFault::Gone,
    }
}

/// The status in the first line of an answer.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\n').next()?;
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5)?;
    let is_ended = rest.get(5).is_none_or(|byte| b" \r".contains(byte));
    let number: u16 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (is_ended && (100..=599).contains(&number)).then_some(number)
}

impl ProxyReport {
    pub(crate) fn fault(&self) -> Option<&ProxyCheckFault> {
        self.outcome.as_ref().err()
    }

    pub(crate) fn describe(&self) -> String {
        let asked = self.target.as_ref();
        let asked = asked.map_or(String::new(), |target| format!(" (asked for {target})"));
        match &self.outcome {
            Ok(ProxyAnswer::Opens) => format!("yes, it opens a tunnel{asked}"),
            Ok(ProxyAnswer::WantsLogin) => {
                format!("yes, it asks for the login, which is not tried here{asked}")
            }
            Ok(ProxyAnswer::Connected) => {
                "it takes connections; the profile names no host to ask it for".to_owned()
            }
            Err(fault) => format!("no: {fault}{asked}"),
        }
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "target": self.target,
            "ok": self.outcome.is_ok(),
            "text": self.describe(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn target(names: bool, has_login: bool) -> ProxyTarget {
        ProxyTarget {
            host: Some(("a.example.invalid".to_owned(), 443)),
            names,
            has_login,
        }
    }

    /// The report on a proxy that answers so, and the request that it got.
    fn report_of(answer: &'static [u8], target: &ProxyTarget) -> (String, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = vec![0; 1024];
            let read = client.read(&mut request).unwrap();
            request.truncate(read);
            // Who has read enough hangs up.
            let _ = client.write_all(answer);
            request
        });
        let address = ProxyAddress::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        let asked = ask(&address, target);
        let request = String::from_utf8(proxy.join().unwrap()).unwrap();
        (asked.describe(), request)
    }

    #[test]
    fn proxy_is_asked_for_a_host_of_the_policy_and_its_answer_is_reported() {
        for (answer, login, want) in [
            (
                &b"HTTP/1.1 200 OK\r\n\r\n"[..],
                false,
                "yes, it opens a tunnel (asked for a.example.invalid:443)",
            ),
            (
                b"HTTP/1.0 407 Login\r\n\r\n",
                true,
                "yes, it asks for the login",
            ),
            (
                b"HTTP/1.1 407 Login\r\n\r\n",
                false,
                "no: it asks for a login (407); `proxy_from`",
            ),
            (
                b"HTTP/1.1 403 Forbidden\r\n\r\n",
                false,
                "no: it answers 403 to this host",
            ),
            (b"SSH-2.0-x\r\n", false, "no: it does not answer with HTTP"),
            (
                b"HTTP/1.1 2000 OK\r\n",
                false,
                "no: it does not answer with HTTP",
            ),
            (b"", false, "no: it ends the connection without an answer"),
        ] {
            let (text, request) = report_of(answer, &target(true, login));
            assert!(text.starts_with(want), "{text}");
            assert!(
                request.starts_with("CONNECT a.example.invalid:443 HTTP/1.1\r\n"),
                "{request}"
            );
            assert!(!request.contains("Authorization"), "{request}");
        }
    }

    #[test]
    fn an_endless_answer_is_read_up_to_its_limit() {
        static ENDLESS: [u8; 1 << 20] = [b'x'; 1 << 20];
        let (text, _) = report_of(&ENDLESS, &target(true, false));
        assert!(text.contains("does not answer with HTTP"), "{text}");
    }

    #[test]
    fn unreachable_proxy_is_reported() {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let address = ProxyAddress::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        let text = ask(&address, &target(true, false)).describe();
        assert!(text.starts_with("no: it cannot be connected to"), "{text}");
    }
}
