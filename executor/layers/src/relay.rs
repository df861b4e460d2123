//! How cells reach a network, if their session has one: through a listening socket on their loopback, which the broker passes to
//! the client. Only the client reads from it: it knows the hosts that the policy allows, and only it has a network.
//!
//! In the namespaced tier the socket listens in the session's own network namespace, so nobody else
//! can reach it. In the flat tier it listens on an address of the machine's loopback drawn for the
//! session. Any program of the machine can connect to that, so the cells' supervisors, which make
//! each connection, announce it first by its own address, and the client serves no other.

use broker_protocol::{Nonce, Variable};
use executor_sys::{message, random};
use policies::{EffectivePolicy, EnvironmentRules, network};
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use crate::caches;
use crate::environment::Variables;
use crate::spec::SandboxSpec;

/// The address at which programs find the relay. The port is neither one that a kernel assigns by itself, nor a registered one.
pub const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 61080);

/// The variables that name a proxy: for most clients, npm, pip, Cargo and Yarn. Not as SOCKS, which the relay
/// speaks too: some clients need a library for it that may be missing, and fail if only the variable is set.
const PROXY: [&str; 12] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "PIP_PROXY",
    "CARGO_HTTP_PROXY",
];
/// Variables for hosts that are reached without the proxy.
const NO_PROXY: [&str; 3] = ["NO_PROXY", "no_proxy", "npm_config_noproxy"];
/// Names and addresses of the cell's own loopback.
const OWN: &str = "localhost,127.0.0.1,::1,[::1]";
/// Variables with which the user names other certificates.
const CERTIFICATES: [&str; 11] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "UV_SYSTEM_CERTS",
    "NODE_EXTRA_CA_CERTS",
    "CARGO_HTTP_CAINFO",
    "GIT_SSL_CAINFO",
    "npm_config_cafile",
];

/// The network that a session's programs have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// None.
    Offline,
    /// A relay without a host so far: programs stay offline until one is granted.
    Waiting,
    /// A relay with hosts.
    Online,
}

impl Reach {
    /// The network that a policy gives.
    pub fn of(policy: &EffectivePolicy) -> Self {
        match (network::is_open(&policy.network), policy.has_network()) {
            (true, _) => Self::Online,
            (false, true) => Self::Waiting,
            (false, false) => Self::Offline,
        }
    }
}

/// The network variables for cells: those of a session with a relay; in a session without a host, those that keep programs
/// offline. A file of certificates is named only if a cell can see it: clients refuse every host when it is missing.
pub fn variables(
    rules: &EnvironmentRules,
    reach: Reach,
    ours: &Variables,
    visible: impl Fn(&Path) -> bool,
) -> Vec<(OsString, OsString)> {
    let offline = rules
        .offline
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let offline: Vec<_> = offline.filter(|_| reach != Reach::Online).collect();
    if reach == Reach::Offline {
        return offline;
    }
    let address = format!("http://{ADDRESS}");
    let set = |names: &'static [&str], value: &str| {
        let value = OsString::from(value);
        names
            .iter()
            .map(move |name| (OsString::from(name), value.clone()))
    };
    let certificates = CERTIFICATES.iter().filter_map(|name| {
        let value = ours.get(&OsString::from(name))?;
        let path = Path::new(value);
        (!path.is_absolute() || visible(path)).then(|| (OsString::from(name), value.clone()))
    });
    // Node reads the proxy variables only if this is set (since version 24).
    let node = [(OsString::from("NODE_USE_ENV_PROXY"), OsString::from("1"))];
    set(&PROXY, &address)
        .chain(set(&NO_PROXY, OWN))
        .chain(node)
        .chain(certificates)
        .chain(offline)
        .collect()
}

/// The changes to the environment of a call with a lease if the session's cells have no host
/// otherwise: without the variables that keep programs offline, and with the project's own caches.
#[derive(Debug, Default)]
pub struct Online {
    set: Vec<Variable>,
    unset: Vec<String>,
}

impl Online {
    /// The changes that a session needs.
    pub fn of(spec: &SandboxSpec, ours: &Variables) -> Self {
        if Reach::of(&spec.policy) != Reach::Waiting {
            return Self::default();
        }
        let variable = |(name, value): (OsString, OsString)| {
            Some(Variable {
                name: name.into_string().ok()?,
                value: value.into_string().ok()?,
            })
        };
        let caches = caches::variables(&spec.policy, true, ours, &spec.central);
        let unset = spec
            .policy
            .environment
            .offline
            .keys()
            .map(ToString::to_string)
            .collect();
        Self {
            set: caches.into_iter().filter_map(variable).collect(),
            unset,
        }
    }

    /// The variables to set, with the `key` that its programs present to the relay; and those to unset.
    pub fn variables(&self, key: Option<Nonce>) -> (Vec<Variable>, Vec<String>) {
        let set: Vec<_> = self
            .set
            .iter()
            .cloned()
            .chain(key.iter().flat_map(keyed))
            .collect();
        let own = |name: &&String| set.iter().any(|variable| variable.name == **name);
        let unset = self
            .unset
            .iter()
            .filter(|name| !own(name))
            .cloned()
            .collect();
        (set, unset)
    }
}

/// The variables of a call that has hosts of its own: its key is the proxy password, which
/// identifies the call to the relay. No other cell receives it, and it is worthless after the call.
fn keyed(key: &Nonce) -> impl Iterator<Item = Variable> + use<> {
    let value = format!("http://lease:{key}@{ADDRESS}");
    PROXY.into_iter().map(move |name| Variable {
        name: name.to_owned(),
        value: value.clone(),
    })
}

/// The sockets of a session's relay, when it is created.
#[derive(Debug)]
pub struct RelaySockets {
    listener: OwnedFd,
    address: SocketAddrV4,
    /// In the flat tier: where supervisors announce connections, and where the client reads the announcements.
    announcements: Option<(OwnedFd, OwnedFd)>,
}

/// What supervisors of the flat tier need to connect programs to the relay.
#[derive(Debug)]
pub struct RelayGate {
    /// Kept open, so that nothing else can listen at the address.
    pub listener: OwnedFd,
    /// Its address on the machine's loopback.
    pub address: SocketAddrV4,
    /// Each message is the address of one connection: four bytes, then the port in network order.
    pub announcements: OwnedFd,
}

impl RelaySockets {
    /// Creates them in the network namespace of this process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(own_network: bool) -> io::Result<Self> {
        let (at, announcements) = match own_network {
            true => (ADDRESS, None),
            false => (
                SocketAddrV4::new(drawn_address()?, 0),
                Some(message::pair()?),
            ),
        };
        let listener = TcpListener::bind(at)?;
        let SocketAddr::V4(address) = listener.local_addr()? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        Ok(Self {
            listener: listener.into(),
            address,
            announcements,
        })
    }

    /// The sockets for the client.
    pub fn for_client(&self) -> Vec<BorrowedFd<'_>> {
        let announced = self
            .announcements
            .as_ref()
            .map(|(_, client)| client.as_fd());
        std::iter::once(self.listener.as_fd())
            .chain(announced)
            .collect()
    }

    /// What supervisors need, if they make the connections.
    pub fn into_gate(self) -> Option<RelayGate> {
        let Self {
            listener,
            address,
            announcements,
        } = self;
        announcements.map(|(announcements, _)| RelayGate {
            listener,
            address,
            announcements,
        })
    }
}

/// An address of the machine's loopback that is not in common use.
fn drawn_address() -> io::Result<Ipv4Addr> {
    let [a, b, c] = random::bytes()?;
    // Outside 127.0.0.0/16, which services of the machine use, and not the last address, which is for broadcasts.
    Ok(Ipv4Addr::new(127, 1 + a % 254, b, 1 + c % 254))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn variables_of(reach: Reach, ours: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        let offline = BTreeMap::from([("PIP_NO_INDEX".to_owned(), "1".to_owned())]);
        let rules = EnvironmentRules {
            offline,
            ..EnvironmentRules::default()
        };
        let ours = ours
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        variables(&rules, reach, &ours, |path| path.starts_with("/etc/ssl"))
            .into_iter()
            .collect()
    }

    #[test]
    fn programs_are_told_of_the_relay_or_that_there_is_none() {
        let with = variables_of(Reach::Online, &[]);
        for name in PROXY {
            assert_eq!(
                with[&OsString::from(name)],
                "http://127.0.0.1:61080",
                "{name}"
            );
        }
        assert!(
            with[&OsString::from("NO_PROXY")]
                .to_string_lossy()
                .contains("localhost")
        );
        assert!(!with.contains_key(&OsString::from("PIP_NO_INDEX")));
        let without = variables_of(
            Reach::Offline,
            &[("SSL_CERT_FILE", "/etc/ssl/certs/ca.crt")],
        );
        assert_eq!(
            without,
            BTreeMap::from([("PIP_NO_INDEX".into(), "1".into())])
        );
        let waiting = variables_of(Reach::Waiting, &[]);
        assert!(waiting.contains_key(&OsString::from("HTTPS_PROXY")));
        assert!(waiting.contains_key(&OsString::from("PIP_NO_INDEX")));
    }

    #[test]
    fn certificates_are_named_where_a_cell_sees_them() {
        let ours = [
            ("SSL_CERT_FILE", "/etc/ssl/certs/ca.crt"),
            ("PIP_CERT", "/home/u/ca.crt"),
            ("UV_SYSTEM_CERTS", "1"),
        ];
        let with = variables_of(Reach::Online, &ours);
        assert_eq!(
            with[&OsString::from("SSL_CERT_FILE")],
            "/etc/ssl/certs/ca.crt"
        );
        assert!(!with.contains_key(&OsString::from("PIP_CERT")));
        assert_eq!(with[&OsString::from("UV_SYSTEM_CERTS")], "1");
    }

    #[test]
    fn a_relay_of_the_machine_is_where_nobody_looks() {
        let sockets = RelaySockets::open(false).unwrap();
        assert_eq!(sockets.for_client().len(), 2);
        let gate = sockets.into_gate().unwrap();
        assert!(gate.address.ip().is_loopback() && gate.address.ip().octets()[1] != 0);
    }
}
