//! At which addresses a host may be reached: by who named it.

use super::company::{CompanyNetwork, CompanyWork};
use super::keys::AttachedKeys;
use super::tickets::Tickets;
use crate::decrypted::{CertificateRoots, HostTls, TlsTerminator};
use crate::relay::UpstreamProxy;
use crate::serve::GatewayError;
use orchestrator_http::ask::{Begin, By, HostOrigin, LoginHosts, NetworkFault};
use orchestrator_reach::ReachError;
use orchestrator_reach::guard::{self, Resolve};
use orchestrator_reach::target::Target;
use policies::WebPolicy;
use policies::address::{Class, class};
use policies::web::not_public;
use std::cell::OnceCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// What this gateway serves, which no connection changes.
#[derive(Debug)]
pub(super) enum AllowedHosts {
    /// What `lazaret` named before it confined itself.
    Begun(Begin),
    /// All that may be named. For tests, in whose process nothing is confined.
    #[cfg(feature = "test-support")]
    All,
}

/// What all connections of a `lazaret` share.
pub(super) struct ClientNetwork<R> {
    pub(super) allowed: AllowedHosts,
    /// Absent with an executor that somebody else has started, and in tests.
    pub(super) tickets: Option<Tickets>,
    pub(super) keys: AttachedKeys,
    pub(super) resolver: R,
    tls: OnceCell<HostTls>,
    /// The company's, besides the machine's.
    authorities: CertificateRoots,
    pub(super) proxy: Option<UpstreamProxy>,
    pub(super) login: Option<Rc<TlsTerminator>>,
}

impl<R> ClientNetwork<R> {
    pub(super) fn new(allowed: AllowedHosts, resolver: R) -> Self {
        Self {
            allowed,
            tickets: None,
            keys: AttachedKeys::default(),
            resolver,
            tls: OnceCell::new(),
            authorities: CertificateRoots::default(),
            proxy: None,
            login: None,
        }
    }

    /// Puts these keys into requests.
    pub(super) fn with_keys(self, keys: AttachedKeys) -> Self {
        Self { keys, ..self }
    }

    /// Goes by way of a company's network; returns the work for that beside it too. Needs a runtime.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn with_company(
        self,
        company: Option<CompanyNetwork>,
    ) -> Result<(Self, Option<CompanyWork>), GatewayError> {
        let Some(mut company) = company else {
            return Ok((self, None));
        };
        let work = company.begin()?;
        let net = Self {
            authorities: company.authorities,
            proxy: company.proxy,
            login: work.as_ref().map(CompanyWork::login),
            ..self
        };
        Ok((net, work))
    }

    /// Makes requests of web tools only with tickets that come on `line`. Needs a runtime.
    ///
    /// # Errors
    /// It is no socket.
    pub(super) fn with_tickets(self, line: Option<OwnedFd>) -> io::Result<Self> {
        let tickets = line.map(Tickets::new).transpose()?;
        Ok(Self { tickets, ..self })
    }

    /// Takes tickets as they come. It does not end while there may be further ones.
    pub(super) async fn take_tickets(&self) {
        if let Some(tickets) = &self.tickets {
            tickets.take().await;
        }
    }

    /// TLS with the machine's certificates, which are read when they are first needed, and the company's.
    pub(super) fn tls(&self) -> &HostTls {
        let roots = || CertificateRoots::of_machine_and(&self.authorities);
        self.tls.get_or_init(|| HostTls::new(roots()))
    }
}

impl AllowedHosts {
    fn check_policy(&self, policy: &WebPolicy) -> Result<(), NetworkFault> {
        match self {
            #[cfg(feature = "test-support")]
            Self::All => Ok(()),
            // Bounds only narrow.
            Self::Begun(begin) if begin.webs.contains(&policy.own) => Ok(()),
            Self::Begun(_) => Err(NetworkFault::NotPolicy),
        }
    }

    /// Checks that `target` is in a list of what was told at the start.
    fn check_listed(
        &self,
        list: fn(&Begin) -> &[HostOrigin],
        target: &Target,
    ) -> Result<(), NetworkFault> {
        let place = HostOrigin::of(target.url());
        match self {
            #[cfg(feature = "test-support")]
            Self::All => Ok(()),
            Self::Begun(begin) if list(begin).contains(&place) => Ok(()),
            Self::Begun(_) => Err(NetworkFault::NotNamed(place)),
        }
    }

    fn check_named(&self, target: &Target) -> Result<(), NetworkFault> {
        self.check_listed(|begin| &begin.named, target)
    }

    fn check_settings(&self, target: &Target) -> Result<(), NetworkFault> {
        let place = HostOrigin::of(target.url());
        match self {
            #[cfg(feature = "test-support")]
            Self::All => Ok(()),
            Self::Begun(begin) if begin.requests.iter().any(|one| one.origin == place) => Ok(()),
            Self::Begun(_) => Err(NetworkFault::NotNamed(place)),
        }
    }

    fn check_stranger(&self, target: &Target) -> Result<(), NetworkFault> {
        self.check_listed(|begin| &begin.strangers, target)
    }

    fn check_engine(&self, target: &Target) -> Result<(), NetworkFault> {
        let place = HostOrigin::of(target.url());
        let begin = match self {
            #[cfg(feature = "test-support")]
            Self::All => return Ok(()),
            Self::Begun(begin) => begin,
        };
        let is_engine = begin.engines.iter().any(|engine| {
            Target::parse(&engine.url).is_ok_and(|engine| HostOrigin::of(engine.url()) == place)
        });
        is_engine.then_some(()).ok_or(NetworkFault::NotNamed(place))
    }

    /// Checks that `target` takes part in a login at `server`, which settings have to name: the server itself does.
    fn check_login(&self, server: &HostOrigin, target: &Target) -> Result<(), NetworkFault> {
        let begin = match self {
            #[cfg(feature = "test-support")]
            Self::All => return Ok(()),
            Self::Begun(begin) => begin,
        };
        if !begin.named.contains(server) && !begin.strangers.contains(server) {
            return Err(NetworkFault::NotNamed(server.clone()));
        }
        let place = HostOrigin::of(target.url());
        let is_part = match &begin.logins {
            LoginHosts::Any => true,
            LoginHosts::Recorded(hosts) => {
                place == *server || hosts.contains(&(server.clone(), place.clone()))
            }
        };
        is_part.then_some(()).ok_or(NetworkFault::NotOfLogin(place))
    }
}

impl<R: Resolve> ClientNetwork<R> {
    /// Refuses what `by` does not allow, whatever its addresses are.
    pub(super) fn foresee(&self, by: &By, target: &Target) -> Result<(), NetworkFault> {
        match by {
            By::Model(policy) | By::ModelOfImage(policy) => {
                self.allowed.check_policy(policy)?;
                Ok(guard::foresee(policy, target)?)
            }
            By::ProviderSettings => self.allowed.check_settings(target),
            By::ServerSettings => self.allowed.check_named(target),
            By::Engine => self.allowed.check_engine(target),
            By::RepositorySettings => self.allowed.check_stranger(target),
            By::ServerOf(server) => self.allowed.check_login(server, target),
        }
    }

    /// Whether a proxy may be told the name of `target` where it has no address here. What only addresses decide is refused then: what a
    /// stranger names, and what goes without TLS.
    pub(super) fn allows_unseen(&self, by: &By, target: &Target) -> bool {
        let (host, port) = (target.host(), target.port());
        match by {
            By::Model(policy) => {
                policy.allows(host, port) && (!target.is_plain() || policy.allows_plain(host, port))
            }
            By::ModelOfImage(policy) => policy.allows(host, port) && !target.is_plain(),
            By::ProviderSettings | By::Engine => true,
            By::ServerSettings => !target.is_plain(),
            By::RepositorySettings => false,
            By::ServerOf(server) => {
                *server == HostOrigin::of(target.url())
                    && self.allowed.check_named(target).is_ok()
                    && !target.is_plain()
            }
        }
    }

    /// The addresses of `target`, all of which are checked.
    pub(super) async fn admit(
        &self,
        by: &By,
        target: &Target,
    ) -> Result<Vec<SocketAddr>, NetworkFault> {
        self.foresee(by, target)?;
        match by {
            By::Model(policy) => Ok(guard::admit(policy, &self.resolver, target).await?),
            By::ModelOfImage(policy) => {
                let addresses = guard::admit(policy, &self.resolver, target).await?;
                let is_here = |address: &SocketAddr| address.ip().to_canonical().is_loopback();
                match target.is_plain() && !addresses.iter().all(is_here) {
                    true => Err(NetworkFault::PlainImage),
                    false => Ok(addresses),
                }
            }
            By::ProviderSettings | By::Engine => self.locate(target).await,
            By::ServerSettings => self.judged(NamedBy::User, target).await,
            By::RepositorySettings => self.judged(NamedBy::Stranger, target).await,
            By::ServerOf(server) => {
                let by = self.class_of(server).await;
                self.judged(by.map_or(NamedBy::Stranger, NamedBy::ServerAt), target)
                    .await
            }
        }
    }

    async fn locate(&self, target: &Target) -> Result<Vec<SocketAddr>, NetworkFault> {
        let located = guard::locate(&self.resolver, target).await;
        located.map_err(|error| NetworkFault::Reach(error.into()))
    }

    /// The class of a server, if settings name it.
    async fn class_of(&self, server: &HostOrigin) -> Option<Class> {
        let target = Target::parse(server.as_str()).ok()?;
        self.allowed.check_named(&target).ok()?;
        let addresses = self.locate(&target).await.ok()?;
        addresses.first().map(|address| class(address.ip()))
    }

    async fn judged(&self, by: NamedBy, target: &Target) -> Result<Vec<SocketAddr>, NetworkFault> {
        let addresses = self.locate(target).await?;
        judge(target, addresses.iter().map(SocketAddr::ip), by)?;
        Ok(addresses)
    }
}

/// Who named a host that no model did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedBy {
    User,
    Stranger,
    /// A server at an address of this class.
    ServerAt(Class),
}

/// Checks the addresses of a host that no model named.
fn judge(
    target: &Target,
    addresses: impl Iterator<Item = IpAddr>,
    by: NamedBy,
) -> Result<(), ReachError> {
    let host = || target.host().to_owned();
    let mut plain = true;
    for address in addresses {
        match (not_public(address), by) {
            (None, _) => plain = false,
            (Some(class), NamedBy::User) if target.address().is_some() || class.opens_by_name() => {
            }
            (Some(class), NamedBy::ServerAt(own)) if class == own && class.opens_by_name() => {}
            (Some(class), NamedBy::User | NamedBy::Stranger | NamedBy::ServerAt(_)) => {
                return Err(ReachError::Address {
                    host: host(),
                    address,
                    class,
                });
            }
        }
    }
    if target.is_plain() && !plain {
        return Err(ReachError::Plain { host: host() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(url: &str, addresses: &[&str], by: NamedBy) -> Result<(), ReachError> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        judge(&Target::parse(url).unwrap(), addresses, by)
    }

    #[test]
    fn a_user_may_name_every_place_and_without_tls_those_that_are_not_public() {
        for (url, address) in [
            ("https://a.example/", "8.8.8.8"),
            ("https://a.example/", "10.0.0.1"),
            ("http://localhost:8000/", "127.0.0.1"),
            ("http://box/", "192.168.1.2"),
        ] {
            assert_eq!(
                judged(url, &[address], NamedBy::User),
                Ok(()),
                "{url} {address}"
            );
        }
        let metadata = judged("http://a.example/", &["169.254.169.254"], NamedBy::User);
        assert!(matches!(metadata, Err(ReachError::Address { .. })));
        assert_eq!(
            judged(
                "http://169.254.169.254/",
                &["169.254.169.254"],
                NamedBy::User
            ),
            Ok(())
        );
        let plain = judged("http://a.example/", &["8.8.8.8"], NamedBy::User);
        assert!(matches!(plain, Err(ReachError::Plain { .. })));
        let both = judged(
            "http://a.example/",
            &["127.0.0.1", "8.8.8.8"],
            NamedBy::User,
        );
        assert!(matches!(both, Err(ReachError::Plain { .. })));
    }

    #[test]
    fn a_stranger_names_public_places_and_a_server_such_as_its_own() {
        let refused = |url: &str, address: &str, by| {
            assert!(
                matches!(judged(url, &[address], by), Err(ReachError::Address { .. })),
                "{url} {address}"
            );
        };
        let local = NamedBy::ServerAt(Class::Loopback);
        for by in [
            NamedBy::Stranger,
            local,
            NamedBy::ServerAt(Class::LinkLocal),
        ] {
            assert_eq!(judged("https://a.example/", &["8.8.8.8"], by), Ok(()));
            refused("https://a.example/", "169.254.169.254", by);
            refused("https://a.example/", "10.0.0.1", by);
            let plain = judged("http://a.example/", &["8.8.8.8"], by);
            assert!(matches!(plain, Err(ReachError::Plain { .. })));
        }
        refused("http://localhost/", "127.0.0.1", NamedBy::Stranger);
        assert_eq!(judged("http://localhost/", &["127.0.0.1"], local), Ok(()));
    }

    #[test]
    fn host_that_only_its_address_decides_is_hidden_from_a_proxy() {
        let policy = |own: &str| {
            Box::new(WebPolicy {
                own: toml::from_str(own).unwrap(),
                bounds: vec![],
            })
        };
        let named = |url: &str| HostOrigin::of(Target::parse(url).unwrap().url());
        let net = ClientNetwork::new(
            AllowedHosts::Begun(Begin {
                named: vec![named("https://mcp.example/"), named("http://mcp.example/")],
                ..Begin::default()
            }),
            crate::System,
        );
        let open = || policy("allow = ['*']");
        let private = || policy("allow = []\nprivate = ['a.example:443']");
        let server = || By::ServerOf(named("https://mcp.example/"));
        for (by, url, allowed) in [
            (By::ProviderSettings, "https://a.example/", true),
            (By::ProviderSettings, "http://a.example/", true),
            (By::ServerSettings, "https://a.example/", true),
            (By::ServerSettings, "http://a.example/", false),
            (By::Model(open()), "https://a.example/", true),
            (By::Model(open()), "http://a.example/", false),
            (By::Model(private()), "https://a.example/", false),
            (By::ModelOfImage(open()), "https://a.example/", true),
            (By::ModelOfImage(open()), "http://a.example/", false),
            (By::RepositorySettings, "https://a.example/", false),
            (server(), "https://a.example/", false),
            (server(), "https://mcp.example/", true),
            (
                By::ServerOf(named("http://mcp.example/")),
                "http://mcp.example/",
                false,
            ),
            (
                By::ServerOf(named("https://other.example/")),
                "https://other.example/",
                false,
            ),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(net.allows_unseen(&by, &target), allowed, "{by:?} {url}");
        }
    }
}
