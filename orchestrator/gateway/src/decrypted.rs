//! Connections to the hosts of credentials and rules: TLS is ended here, each request is read and judged, and where a credential's use says
//! so, its placeholder becomes its value. What a host answers is searched for the value. See the README, "Connections that are decrypted".
//!
//! Comes from the relay after its `CONNECT` was answered; goes to the host by connections that the relay opens. Believes neither the
//! program nor the host.

use crate::traffic::ProgramConnection;
use authority::Certifier;
use broker_protocol::gateway::{Attach, Authority, FromGateway, GatewaySpec, RequestAnswer};
use carry::HostConnection;
use host::DecryptedHost;
use questions::Questions;
use rules::Rules;
use search::Needles;
use session::CredentialSession;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::rc::Rc;
use tokio::net::TcpStream;
use upstream::Connect;
use values::{CredentialValues, Value};

mod carry;
mod session;
mod exchange;
mod head;
mod attach;
mod signed;
mod login;
mod refusal;
mod rules;
mod values;
mod answer;
mod search;
mod websocket;
mod upstream;
mod authority;
mod streams;
mod tasks;
mod host;
mod reports;
mod held;
mod held_body;
mod questions;
pub(crate) mod limits;

pub(crate) use authority::AuthorityError;
pub use carry::CarryError;
pub use limits::Times;
pub(crate) use login::whole;
pub(crate) use reports::UseReports;
pub use upstream::CertificateRoots;
pub(crate) use upstream::{HostTls, Protocol};
pub use values::CredentialValueError;

pub struct UpstreamLogin(Rc<Value>);

impl UpstreamLogin {
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Whether `text` has it, or its password, in a form that answers are searched for; in another case and with white space in it too.
    pub(crate) fn is_in(&self, text: &str) -> bool {
        let password = self.0.bytes.splitn(2, |byte| *byte == b':').nth(1);
        let parts = [Some(&self.0.bytes[..]), password].into_iter().flatten();
        let parts = parts.filter(|part| !part.is_empty());
        let both = parts.flat_map(|part| [part.to_vec(), part.to_ascii_lowercase()]);
        let needles = Needles::new(both.map(|part| (Value::of(part), String::new())).collect());
        let mut dense = text.to_ascii_lowercase();
        dense.retain(|c| !c.is_whitespace());
        needles.are_in(text.as_bytes()) || needles.are_in(dense.as_bytes())
    }
}

/// Ends TLS for the hosts of a session's credentials. Needs a local runtime.
pub struct TlsTerminator {
    session: Rc<CredentialSession>,
}

impl TlsTerminator {
    /// For this session, with `roots` to verify hosts by; `tell` takes questions for values and reports.
    ///
    /// # Errors
    /// The authority cannot be made, or is none of ours.
    pub fn new(
        spec: &GatewaySpec,
        roots: CertificateRoots,
        tell: impl Fn(FromGateway) + 'static,
    ) -> Result<Self, AuthorityError> {
        Self::with_times(spec, roots, tell, Times::default())
    }

    /// A terminator with other limits in time, as tests want them.
    ///
    /// # Errors
    /// As above.
    pub fn with_times(
        spec: &GatewaySpec,
        roots: CertificateRoots,
        tell: impl Fn(FromGateway) + 'static,
        times: Times,
    ) -> Result<Self, AuthorityError> {
        let tell: Rc<dyn Fn(FromGateway)> = Rc::new(tell);
        let reports = UseReports::new(times, tell.clone());
        let hosts = hosts_of(spec, &reports);
        let ruled = spec.rules.iter().flatten().map(|rule| &*rule.host);
        let names: BTreeSet<&str> = ruled.chain(hosts.keys().map(|(host, _)| &**host)).collect();
        let certifier = match &spec.authority {
            Some(authority) => Some(Certifier::of(authority.clone())?),
            None if names.is_empty() => None,
            None => Some(Certifier::new(names.into_iter())?),
        };
        let session = CredentialSession {
            values: CredentialValues::new(spec.credentials.len(), times, tell.clone()),
            credentials: spec.credentials.clone(),
            questions: Questions::new(times.held, tell),
            reports,
            times,
            tls: Rc::new(HostTls::new(roots)),
            certifier,
            hosts,
            rules: spec.rules.clone(),
        };
        Ok(Self {
            session: Rc::new(session),
        })
    }

    /// Whether tunnels to this place are for [`TlsTerminator::carry`]: a credential or a rule names it. The host is in canonical form.
    pub fn is_for(&self, host: &str, port: u16) -> bool {
        self.session.hosts.contains_key(&(host.to_owned(), port)) || self.has_rules(host)
    }

    /// Whether rules decide on the requests to a host: then those are for [`TlsTerminator::carry`] that come without a tunnel, too.
    pub(crate) fn has_rules(&self, host: &str) -> bool {
        self.session.has_rules(host)
    }

    /// The authority that cells have to believe, and that a successor needs.
    pub fn authority(&self) -> Option<Authority> {
        let certifier = self.session.certifier.as_ref()?;
        Some(certifier.public().clone())
    }

    /// Takes the value of a credential from the broker, or why there is none.
    pub fn value(&self, credential: u16, value: Result<Vec<u8>, String>) {
        let values = &self.session.values;
        let spec = self.session.credentials.get(usize::from(credential));
        match spec.map(|spec| &spec.attach) {
            Some(Attach::Aws) => values.deliver_key(credential, value),
            Some(Attach::Login(_)) => values.deliver_secret(credential, value),
            Some(
                Attach::Bearer | Attach::Basic { .. } | Attach::Any { .. } | Attach::Header { .. },
            )
            | None => values.deliver(credential, value),
        }
        self.session.learn(credential);
    }

    /// One more report of uses, in their order, is in the audit.
    pub fn recorded(&self) {
        self.session.reports.recorded();
    }

    /// Takes the answer to a question about a request.
    pub fn answer(&self, question: u32, answer: RequestAnswer) {
        self.session.questions.answer(question, answer);
    }

    /// The proxy's login, which the broker is asked for when it is first needed.
    ///
    /// # Errors
    /// [`CredentialValueError`].
    pub async fn login(&self, credential: u16) -> Result<UpstreamLogin, CredentialValueError> {
        self.session.values.get(credential).await.map(UpstreamLogin)
    }

    /// The login that follows one that the proxy has refused, if its source has another.
    pub(crate) async fn login_after(
        &self,
        credential: u16,
        refused: &UpstreamLogin,
    ) -> Option<UpstreamLogin> {
        let next = self.session.values.after(credential, &refused.0).await;
        next.map(UpstreamLogin)
    }

    /// Reports the uses that were counted and not yet reported: for the end of a session.
    pub fn flush(&self) {
        self.session.reports.flush();
    }

    /// Carries a connection of a program to a place that [`TlsTerminator::is_for`] names, until it ends. `first` was read from it already;
    /// `connect` opens a connection to the place, as the relay's rules allow. Without TLS a credential is never used; what comes passes as it
    /// is, unless rules name the host. A quiet connection ends if `is_crowded` says that others may need its place. Dropped, it ends all that belongs to the connection.
    ///
    /// # Errors
    /// Why it ended before its time.
    pub async fn carry<C, E>(
        &self,
        program: ProgramConnection,
        first: Vec<u8>,
        (host, port): (&str, u16),
        connect: C,
        is_crowded: impl Fn() -> bool,
    ) -> Result<(), CarryError>
    where
        C: AsyncFn() -> Result<TcpStream, E> + 'static,
        E: Display + 'static,
    {
        let connect = Rc::new(connect);
        let connect: Connect = Rc::new(move || {
            let connect = connect.clone();
            Box::pin(async move { connect().await.map_err(|error| error.to_string()) })
        });
        let Some(host) = self.session.host(host, port) else {
            return Err(CarryError::Host {
                place: format!("{host}:{port}"),
                why: "it is the host of no credential and no rule".into(),
            });
        };
        let connection = HostConnection::new(self.session.clone(), host, connect, program.call);
        connection.carry(program, first, is_crowded).await
    }
}

/// The hosts that credentials name. An entry that is no place is never connected to.
fn hosts_of(
    spec: &GatewaySpec,
    reports: &Rc<UseReports>,
) -> HashMap<(String, u16), Rc<DecryptedHost>> {
    let mut hosts: HashMap<(String, u16), DecryptedHost> = HashMap::new();
    for (credential, one) in (0u16..).zip(&spec.credentials) {
        for place in &one.hosts {
            let Some((host, port)) = place.rsplit_once(':') else {
                continue;
            };
            let (host, Ok(port)) = (host.to_ascii_lowercase(), port.parse()) else {
                continue;
            };
            let ended = hosts.entry((host.clone(), port)).or_insert_with(|| {
                let rules = Rules::of(&spec.rules, &host);
                DecryptedHost::new(host, port, rules, reports.clone())
            });
            if !ended.credentials.contains(&credential) {
                ended.credentials.push(credential);
            }
        }
    }
    hosts
        .into_iter()
        .map(|(place, host)| (place, Rc::new(host)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_known_in_the_words_of_its_proxy() {
        let login = UpstreamLogin(Value::of(b"me:PassW0rd/9-of-nobody".to_vec()));
        for words in [
            "no me:PassW0rd/9-of-nobody",
            "PassW0rd/9-of-nobody",
            "PASSW0RD/9-OF-NOBODY",
            "Pass\tW0rd/9 -of-nobody",
            "PassW0rd%2F9-of-nobody",
            "bWU6UGFzc1cwcmQvOS1vZi1ub2JvZHk=",
            "5061737357307264 2f392d6f662d6e6f626f6479",
        ] {
            assert!(login.is_in(words), "{words}");
        }
        assert!(!login.is_in("Access denied by policy of nobody"));
    }
}
