//! Hosts that cells may reach, by way of the orchestrator: `network` in a profile, its presets, and requests of a session.
//!
//! The vocabulary is that of [`web`](crate::web), and so is the order: a profile's table says what may be reached, a file's own
//! `[network]` bounds every profile. A session may add hosts to its profile's; the bounds hold for these as well.

use crate::http::{HttpRows, HttpRulesError};
use crate::ports::{NamedPorts, Port, PortError, PortPolicy, Publish};
use crate::text::read_from_text;
use crate::web::{HostPattern, PrivatePlace, WebPolicy, WebTable, not_public};
use broker_protocol::{HostList, Network, NetworkRequest, Remedy, Request};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;
use thiserror::Error;

/// Maximum number of hosts and private places of a session, all lists together: they go to the client in one frame.
pub const ENTRIES_MAX: usize = 2048;

/// Why a session does not get the hosts that it asks for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkError {
    #[error("`{text}`: {why}")]
    Host { text: String, why: String },
    #[error("there is no preset `{name}`; there are: {}", names().collect::<Vec<_>>().join(", "))]
    Preset { name: String },
    #[error(
        "the policy does not allow cells to reach {host}: a `[network]` table in one of its files excludes it"
    )]
    Bounded { host: String },
    #[error(
        "{host} is not public, so the option cannot open it: {}",
        advice_on_private(.host)
    )]
    NotPublic { host: String },
    #[error(
        "{host} is this machine itself: `--connect {port}` lets commands reach its port {port}, at the same address"
    )]
    Loopback { host: String, port: u16 },
    #[error("more than {ENTRIES_MAX} hosts")]
    TooMany,
    #[error(transparent)]
    Port(#[from] PortError),
    #[error(transparent)]
    Rules(#[from] HttpRulesError),
}

/// A shipped list of hosts.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    pub why: String,
    pub(crate) allow: Vec<HostPattern>,
    /// The variables that keep clients of the registry from asking it, each with the names of those clients.
    #[serde(default)]
    pub offline: BTreeMap<String, Vec<String>>,
}

/// Read when the first is needed: most sessions need none.
static PRESETS: LazyLock<BTreeMap<String, Preset>> =
    LazyLock::new(|| toml::from_str(include_str!("../presets.toml")).unwrap_or_default());

/// The shipped presets, by name.
pub fn presets() -> impl Iterator<Item = (&'static str, &'static Preset)> {
    PRESETS.iter().map(|(name, preset)| (name.as_str(), preset))
}

fn names() -> impl Iterator<Item = &'static str> {
    presets().map(|(name, _)| name)
}

/// The preset that has `host` at `port`, if one has.
pub fn preset_of(host: &str, port: u16) -> Option<&'static str> {
    let has =
        |(_, preset): &(&str, &Preset)| preset.allow.iter().any(|own| own.matches(host, port));
    presets().find(has).map(|(name, _)| name)
}

/// The preset that `client` would need if `variable` did not keep it offline, with a host of it.
pub fn preset_kept_from(
    variable: &str,
    client: &str,
) -> Option<(&'static str, &'static HostPattern)> {
    // Python's have its version in their names: `pip3.13`.
    let plain = client.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let has = |clients: &Vec<String>| clients.iter().any(|own| own == plain);
    let (name, preset) =
        presets().find(|(_, preset)| preset.offline.get(variable).is_some_and(has))?;
    Some((name, preset.allow.first()?))
}

/// The name of a preset that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresetName(&'static str);

read_from_text!(PresetName);

impl TryFrom<String> for PresetName {
    type Error = NetworkError;

    fn try_from(name: String) -> Result<Self, NetworkError> {
        let known = names().find(|known| *known == name).map(Self);
        known.ok_or(NetworkError::Preset { name })
    }
}

/// A `network` table as it is written: an absent key changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkTable {
    /// Shipped lists of hosts.
    pub(crate) presets: Option<Vec<PresetName>>,
    /// Hosts that may be reached.
    pub allow: Option<Vec<HostPattern>>,
    /// Places that may be reached though their addresses are not public.
    pub private: Option<Vec<PrivatePlace>>,
    /// Ports of this machine's loopback that cells reach: see [`PortPolicy`].
    pub connect: Option<Vec<Port>>,
    /// Ports of this machine's loopback that lead to ports of cells.
    pub(crate) publish: Option<Vec<Publish>>,
    /// Rules for the requests to hosts: see [`HttpRules`](crate::http::HttpRules).
    pub http: Option<HttpRows>,
    /// Whether a profile's lists replace those of what it extends. Otherwise they add to them; an empty one always replaces.
    #[serde(default)]
    pub replace: bool,
}

impl NetworkTable {
    /// Adds what `later` says, or puts it in the place of what is here.
    pub fn set(&mut self, later: &NetworkTable) {
        fn add<T: Clone + PartialEq>(
            own: &mut Option<Vec<T>>,
            later: &Option<Vec<T>>,
            replace: bool,
        ) {
            match later {
                None => {}
                Some(list) if replace || list.is_empty() => *own = Some(list.clone()),
                Some(list) => {
                    let own = own.get_or_insert_default();
                    let new: Vec<T> = list
                        .iter()
                        .filter(|entry| !own.contains(entry))
                        .cloned()
                        .collect();
                    own.extend(new);
                }
            }
        }
        let NetworkTable {
            presets,
            allow,
            private,
            connect,
            publish,
            // Whose order counts: the caller has it, with the lines.
            http: _,
            replace,
        } = later;
        add(&mut self.presets, presets, *replace);
        add(&mut self.allow, allow, *replace);
        add(&mut self.private, private, *replace);
        add(&mut self.connect, connect, *replace);
        add(&mut self.publish, publish, *replace);
    }

    /// Whether it says something of hosts or ports, and not only of requests.
    fn is_bound(&self) -> bool {
        let places = Self {
            http: None,
            ..self.clone()
        };
        places != Self::default()
    }

    /// This table with its presets written out. TLS is the program's own matter.
    pub fn expanded(&self) -> WebTable {
        let of = |name: &PresetName| PRESETS.get(name.0).map(|preset| preset.allow.clone());
        let preset = self.presets.iter().flatten().filter_map(of).flatten();
        let allow: Vec<_> = self.allow.iter().flatten().cloned().chain(preset).collect();
        let says = self.allow.is_some() || self.presets.is_some();
        WebTable {
            allow: says.then_some(allow),
            private: self.private.clone(),
            ..WebTable::default()
        }
    }
}

/// Hosts that cells of a session may reach: `own`, bounded by the tables of the files.
///
/// # Errors
/// There are too many hosts.
pub fn policy<'a>(
    own: &NetworkTable,
    bounds: impl Iterator<Item = &'a NetworkTable>,
) -> Result<WebPolicy, NetworkError> {
    let bounds = bounds
        .filter(|bound| bound.is_bound())
        .map(NetworkTable::expanded);
    bounded(WebPolicy {
        own: own.expanded(),
        bounds: bounds.collect(),
    })
}

/// The ports of this machine that cells of a session reach, and those that lead to theirs. A file that bounds hosts and names no ports
/// permits none: who wrote it did not expect that cells reach anything else.
///
/// # Errors
/// There are too many.
pub fn ports<'a>(
    own: &NetworkTable,
    bounds: impl Iterator<Item = &'a NetworkTable>,
) -> Result<PortPolicy, NetworkError> {
    fn named(table: &NetworkTable) -> NamedPorts<'_> {
        let NetworkTable {
            connect, publish, ..
        } = table;
        NamedPorts { connect, publish }
    }
    let bounds = bounds.filter(|bound| bound.is_bound()).map(named);
    Ok(PortPolicy::of(&named(own), bounds)?)
}

/// A policy with what a session asks for; nothing where it wants no network.
///
/// # Errors
/// A host is malformed, a preset does not exist, or the policy's files do not allow a host by name.
pub fn requested(
    mut policy: WebPolicy,
    wanted: Option<&NetworkRequest>,
) -> Result<WebPolicy, NetworkError> {
    let Some(wanted) = wanted else {
        return Ok(WebPolicy::default());
    };
    let host = |text: &String| {
        let pattern = HostPattern::try_from(text.clone());
        pattern.map_err(|why| NetworkError::Host {
            text: text.clone(),
            why: why.to_string(),
        })
    };
    let hosts = wanted
        .hosts
        .iter()
        .map(host)
        .collect::<Result<Vec<_>, _>>()?;
    let presets = wanted
        .presets
        .iter()
        .cloned()
        .map(PresetName::try_from)
        .collect::<Result<Vec<_>, _>>()?;
    let asked = NetworkTable {
        presets: Some(presets),
        allow: Some(hosts),
        ..NetworkTable::default()
    }
    .expanded();
    let asked = asked.allow.unwrap_or_default();
    policy
        .own
        .allow
        .get_or_insert_default()
        .extend(asked.iter().cloned());
    // A program that is told so at its first connection has made half of its work by then.
    let refused = asked.iter().find(|pattern| {
        let named = pattern.one();
        named.is_some_and(|(host, port)| !policy.allows(host, port.unwrap_or(443)))
    });
    // An address is known already; a name's only when it is looked up.
    let closed = asked.iter().find_map(|pattern| {
        let (address, port) = pattern.address()?;
        let (host, port) = (address.to_string(), port.unwrap_or(443));
        let is_closed = not_public(address).is_some() && !policy.opens(&host, port, address);
        is_closed.then(|| closed_address(&host, port, address))
    });
    if let Some(error) = closed {
        return Err(error);
    }
    match refused {
        Some(pattern) => Err(NetworkError::Bounded {
            host: pattern.text().to_owned(),
        }),
        None => bounded(policy),
    }
}

/// Why no option for hosts opens an address that is not public.
fn closed_address(host: &str, port: u16, address: IpAddr) -> NetworkError {
    let place = PrivatePlace::text_to_open(host, port, address);
    if matches!(
        address,
        IpAddr::V4(Ipv4Addr::LOCALHOST) | IpAddr::V6(Ipv6Addr::LOCALHOST)
    ) {
        return NetworkError::Loopback { host: place, port };
    }
    NetworkError::NotPublic { host: place }
}

/// `policy` with one more host that a call wants, as `NAME:PORT`: no pattern, and no address.
///
/// # Errors
/// The text is no such host, or the policy's files do not allow it.
pub fn leased(policy: WebPolicy, host: &str) -> Result<WebPolicy, NetworkError> {
    let pattern = HostPattern::try_from(host.to_owned()).ok();
    if pattern.and_then(|pattern| pattern.one()?.1).is_none() {
        let why = "a lease names one host and one port, as NAME:PORT".to_owned();
        return Err(NetworkError::Host {
            text: host.to_owned(),
            why,
        });
    }
    requested(
        policy,
        Some(&NetworkRequest {
            hosts: vec![host.to_owned()],
            ..NetworkRequest::default()
        }),
    )
}

/// Whether calls of a session may ask for leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leasing {
    Offered,
    NotOffered,
}

impl Leasing {
    pub fn offered_if(are_offered: bool) -> Self {
        match are_offered {
            true => Self::Offered,
            false => Self::NotOffered,
        }
    }
}

/// The remedy that opens `host` at `port` to commands of a session with this policy.
pub fn remedy(policy: &WebPolicy, leases: Leasing, host: &str, port: u16) -> Remedy {
    let place = format!("{host}:{port}");
    let option = match preset_of(host, port) {
        Some(preset) => format!("--allow-net {preset}"),
        None => format!("--allow-host {place}"),
    };
    match leased(policy.clone(), &place) {
        Ok(_) => opened_by(&option, &place, leases),
        Err(NetworkError::Bounded { .. }) => {
            Remedy::Advice("no option allows it; only a change of the policy file whose `[network]` table bounds the hosts does".into())
        }
        Err(NetworkError::NotPublic { host }) => Remedy::Advice(advice_on_private(&host)),
        Err(NetworkError::Loopback { port, .. }) => to_connect(port),
        // A host by its address has no name to be granted by.
        Err(
            NetworkError::Host { .. }
            | NetworkError::Preset { .. }
            | NetworkError::TooMany
            | NetworkError::Port(_)
            | NetworkError::Rules(_),
        ) => {
            Remedy::Option(option)
        }
    }
}

/// The remedy that lets commands reach a port of this machine's loopback.
pub fn to_connect(port: u16) -> Remedy {
    Remedy::Option(format!(
        "--connect {port}, for good with `connect = [{port}]` in `[profile.NAME.network]` of a profile of your own"
    ))
}

/// The remedy that lets commands of a session with these ports reach one more of this machine's loopback.
pub fn remedy_of_port(ports: &PortPolicy, leases: Leasing, port: u16) -> Remedy {
    match (ports.may_lease(port), to_connect(port), leases) {
        (Ok(()), Remedy::Option(option), Leasing::Offered) => {
            Remedy::Option(format!("{option}, or {LEASE}"))
        }
        (Ok(()), remedy, _) => remedy,
        (Err(PortError::Bounded { .. }), ..) => Remedy::Advice(
            "no option allows it; only a change of the policy file whose `[network]` table bounds the ports does".into(),
        ),
        (Err(PortError::Relay), ..) => Remedy::Advice(
            "no option opens this port, which is that of the cells' proxy: have the service listen at another".into(),
        ),
        (Err(PortError::NotPublished { .. } | PortError::Twice { .. } | PortError::TooMany), ..) => {
            Remedy::Nothing
        }
    }
}

/// The port, if an address that a program has connected to is on the loopback of its cell.
pub fn own_port(address: SocketAddr) -> Option<u16> {
    let is_own = address.ip().to_canonical().is_loopback() || address.ip().is_unspecified();
    (is_own && address.port() != 0).then(|| address.port())
}

/// The line that opens a host whose address is not public: `private` is the text of its place, see [`PrivatePlace::text_to_open`].
pub fn advice_on_private(private: &str) -> String {
    format!(
        "`private = [\"{private}\"]` in `[profile.NAME.network]` of a profile of your own opens it"
    )
}

/// Why a connection was refused or failed, with what would open its address: `private` as for [`advice_on_private`].
pub fn explained(why: &str, private: Option<&str>) -> String {
    match private {
        Some(private) => format!("{why}; {}", advice_on_private(private)),
        None => why.to_owned(),
    }
}

/// As [`remedy`], where a host's name is not known.
pub fn remedy_of_any(policy: &WebPolicy, leases: Leasing) -> Remedy {
    match (is_open(policy), leases) {
        (true, Leasing::NotOffered) => Remedy::Advice(
            "use the proxy in HTTP_PROXY, which reaches the hosts of this session".into(),
        ),
        (true, Leasing::Offered) => Remedy::Advice(format!(
            "use the proxy in HTTP_PROXY, which reaches the hosts of this session and those of {LEASE}"
        )),
        (false, _) => opened_by(
            "--allow-host NAME:PORT or --allow-net REGISTRY",
            "NAME:PORT",
            leases,
        ),
    }
}

fn opened_by(option: &str, place: &str, leases: Leasing) -> Remedy {
    let lease = match leases {
        Leasing::Offered => format!(", or {LEASE}"),
        Leasing::NotOffered => String::new(),
    };
    Remedy::Option(format!(
        "{option}, for good with `lazaret policy allow {place}`{lease}"
    ))
}

/// The rule that asks about a call that wants more than its session has, and refuses what cannot be granted.
pub const LEASE_RULE: &str = "lease";

/// How a session's client asks for more hosts and ports.
pub const LEASE: &str = "a lease (`wants` of a session's call)";

/// The remedy that gives a call the hosts that it wants, and was refused.
pub fn remedy_to_lease(request: &Request, leases: Leasing) -> Remedy {
    let Request::Bash(bash) = request else {
        return Remedy::Advice("use a foreground `bash` call for `wants`".into());
    };
    match (leases, bash.background) {
        (Leasing::NotOffered, _) => Remedy::Option(
            "--leases of `lazaret session` and a scope that leaves the network open, --allow-host NAME:PORT, or --read PATH"
                .into(),
        ),
        (Leasing::Offered, true) => Remedy::Advice(
            "use a foreground `bash` call for `wants`; `lazaret policy allow NAME:PORT` opens a host for good"
                .into(),
        ),
        (Leasing::Offered, false) => Remedy::Advice(
            "a lease may name a host as NAME:PORT, if every `[network]` table allows it, a port of this machine, if every `connect` there does, or a path, if every `[leases]` table does; a session has a maximum number of all"
                .into(),
        ),
    }
}

fn bounded(policy: WebPolicy) -> Result<WebPolicy, NetworkError> {
    let entries = |table: &WebTable| {
        table.allow.as_ref().map_or(0, Vec::len) + table.private.as_ref().map_or(0, Vec::len)
    };
    let all: usize = std::iter::once(&policy.own)
        .chain(&policy.bounds)
        .map(entries)
        .sum();
    if all > ENTRIES_MAX {
        Err(NetworkError::TooMany)
    } else {
        Ok(policy)
    }
}

/// Whether there is a host that `policy` may let be reached.
pub fn is_open(policy: &WebPolicy) -> bool {
    let has = |list: Option<usize>| list.is_some_and(|count| count > 0);
    let by_name = std::iter::once(&policy.own).all(|own| has(own.allow.as_ref().map(Vec::len)))
        && policy
            .bounds
            .iter()
            .all(|bound| bound.allow.as_ref().is_none_or(|list| !list.is_empty()));
    let private = has(policy.own.private.as_ref().map(Vec::len))
        && policy
            .bounds
            .iter()
            .all(|bound| bound.private.as_ref().is_none_or(|list| !list.is_empty()));
    by_name || private
}

/// The lists of a policy, for the client that carries the connections.
pub fn lists(policy: &WebPolicy) -> Network {
    let list = |table: &WebTable| HostList {
        allow: table
            .allow
            .as_ref()
            .map(|hosts| hosts.iter().map(|host| host.text().to_owned()).collect()),
        private: table
            .private
            .as_ref()
            .map(|all| all.iter().map(|place| place.text().to_owned()).collect()),
    };
    Network {
        lists: std::iter::once(&policy.own)
            .chain(&policy.bounds)
            .map(list)
            .collect(),
    }
}

/// A policy from its lists.
///
/// # Errors
/// A list is malformed, or there is none.
pub fn from_lists(network: &Network) -> Result<WebPolicy, NetworkError> {
    let fault = |text: &str| NetworkError::Host {
        text: text.to_owned(),
        why: "no host or place".to_owned(),
    };
    let host = |text: &String| HostPattern::try_from(text.clone()).map_err(|_| fault(text));
    let place = |text: &String| PrivatePlace::try_from(text.clone()).map_err(|_| fault(text));
    let table = |list: &HostList| {
        let allow = list
            .allow
            .as_ref()
            .map(|hosts| hosts.iter().map(host).collect::<Result<Vec<_>, _>>());
        let private = list
            .private
            .as_ref()
            .map(|all| all.iter().map(place).collect::<Result<Vec<_>, _>>());
        Ok(WebTable {
            allow: allow.transpose()?,
            private: private.transpose()?,
            ..WebTable::default()
        })
    };
    let mut tables = network
        .lists
        .iter()
        .map(table)
        .collect::<Result<Vec<_>, NetworkError>>()?;
    if tables.is_empty() {
        return Err(fault(""));
    }
    let own = tables.remove(0);
    Ok(WebPolicy {
        own,
        bounds: tables,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> NetworkTable {
        toml::from_str(text).unwrap()
    }

    fn of(own: &str, bounds: &[&str]) -> WebPolicy {
        let bounds: Vec<_> = bounds.iter().map(|text| table(text)).collect();
        policy(&table(own), bounds.iter()).unwrap()
    }

    fn asks(hosts: &[&str], presets: &[&str]) -> NetworkRequest {
        let list = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
        NetworkRequest {
            hosts: list(hosts),
            presets: list(presets),
            ..NetworkRequest::default()
        }
    }

    #[test]
    fn the_shipped_presets_are_read_and_name_hosts_at_ports() {
        let read: BTreeMap<String, Preset> =
            toml::from_str(include_str!("../presets.toml")).unwrap();
        assert_eq!(
            names().collect::<Vec<_>>(),
            ["crates", "debian", "github", "go", "npm", "pypi"]
        );
        for (name, preset) in &read {
            assert!(!preset.why.is_empty() && !preset.allow.is_empty(), "{name}");
            for host in &preset.allow {
                assert!(
                    host.one().is_some_and(|(_, port)| port.is_some()),
                    "{name}: {}",
                    host.text()
                );
            }
        }
        let (preset, host) = preset_kept_from("PIP_NO_INDEX", "pip3.13").unwrap();
        assert_eq!((preset, host.text()), ("pypi", "pypi.org:443"));
        assert!(preset_kept_from("UV_OFFLINE", "pip").is_none());
        assert_eq!(preset_of("registry.npmjs.org", 443), Some("npm"));
        assert_eq!(preset_of("registry.npmjs.org", 80), None);
        for publishing in ["upload.pypi.org", "crates.io", "api.github.com"] {
            assert_eq!(preset_of(publishing, 443), None);
        }
    }

    #[test]
    fn profile_adds_to_its_base_unless_it_replaces() {
        let base = "presets = ['npm']\nallow = ['a.example:443']\nprivate = ['10.0.0.1:80']";
        let set = |later: &str| {
            let mut table = table(base);
            table.set(&self::table(later));
            policy(&table, std::iter::empty()).unwrap()
        };
        let added = set("allow = ['b.example:443', 'a.example:443']");
        assert!(
            ["a.example", "b.example", "registry.npmjs.org"]
                .iter()
                .all(|host| added.allows(host, 443))
        );
        let replaced = set("replace = true\nallow = ['b.example:443']");
        assert!(replaced.allows("b.example", 443) && !replaced.allows("a.example", 443));
        assert!(replaced.allows("registry.npmjs.org", 443), "key by key");
        let closed = set("allow = []\npresets = []");
        assert!(!closed.allows("a.example", 443) && !closed.allows("registry.npmjs.org", 443));
    }

    #[test]
    fn refused_address_names_what_opens_it() {
        let closed = of("", &[]);
        for host in ["127.0.0.1:8080", "[::1]:8080"] {
            let error = requested(closed.clone(), Some(&asks(&[host], &[]))).unwrap_err();
            assert!(error.to_string().contains("`--connect 8080`"), "{error}");
        }
        for (host, place) in [
            ("127.0.0.2:8080", "127.0.0.2:8080"),
            ("10.1.2.3", "10.1.2.3:443"),
            ("169.254.169.254:80", "169.254.169.254:80"),
        ] {
            match requested(closed.clone(), Some(&asks(&[host], &[]))) {
                Err(error @ NetworkError::NotPublic { .. }) => {
                    assert!(
                        error
                            .to_string()
                            .contains(&format!("private = [\"{place}\"]")),
                        "{error}"
                    );
                }
                other => panic!("{host}: {other:?}"),
            }
        }
        let open = of("private = ['127.0.0.1:8080']", &[]);
        assert!(requested(open, Some(&asks(&["127.0.0.1:8080"], &[]))).is_ok());
        assert!(requested(closed, Some(&asks(&["1.1.1.1:443", "localhost:80"], &[]))).is_ok());
    }

    #[test]
    fn presets_and_hosts_add_up_and_bounds_only_narrow() {
        let both = of("presets = ['npm']\nallow = ['a.example:443']", &[]);
        assert!(both.allows("registry.npmjs.org", 443) && both.allows("a.example", 443));
        assert!(!both.allows("registry.npmjs.org", 80) && !both.allows("b.example", 443));
        let bounded = of(
            "presets = ['npm', 'pypi']",
            &["presets = ['pypi']", "allow = ['*.org']"],
        );
        assert!(bounded.allows("pypi.org", 443) && !bounded.allows("registry.npmjs.org", 443));
        assert!(!of("", &["allow = ['*']"]).allows("a.example", 443));
        assert!(
            toml::from_str::<NetworkTable>("presets = ['nmp']")
                .unwrap_err()
                .to_string()
                .contains("npm")
        );
    }

    #[test]
    fn session_gets_requested_hosts_within_bounds() {
        let free = of("", &[]);
        assert!(!is_open(&free));
        let asked = requested(free.clone(), Some(&asks(&["a.example:443"], &["npm"]))).unwrap();
        assert!(asked.allows("a.example", 443) && asked.allows("registry.npmjs.org", 443));
        assert!(is_open(&asked) && !asked.allows("a.example", 80));
        let closed = of("", &["allow = []"]);
        assert!(!is_open(
            &requested(closed.clone(), Some(&asks(&[], &[]))).unwrap()
        ));
        assert_eq!(
            requested(closed, Some(&asks(&["a.example"], &[]))),
            Err(NetworkError::Bounded {
                host: "a.example".into()
            })
        );
        // A pattern may be wider than the bound; what is reached is not.
        let some = of("", &["allow = ['*.a.example:443']"]);
        let wide = requested(some, Some(&asks(&["*"], &[]))).unwrap();
        assert!(wide.allows("x.a.example", 443) && !wide.allows("b.example", 443));
        for (request, want) in [
            (asks(&["A.example"], &[]), "a host is"),
            (asks(&["127.1"], &[]), "a host is"),
            (asks(&[], &["nmp"]), "there is no preset `nmp`"),
        ] {
            let error = requested(free.clone(), Some(&request))
                .unwrap_err()
                .to_string();
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn a_file_that_bounds_the_network_bounds_ports_too() {
        for (own, bounds, want) in [
            ("connect = [2, 1]", &[][..], &[1, 2][..]),
            ("connect = [1, 2]", &["connect = [2, 3]"], &[2]),
            ("connect = [1]", &["allow = ['*']"], &[]),
            ("connect = [1]", &["private = []"], &[]),
            ("connect = [1]", &["", "connect = [1]"], &[1]),
            ("connect = [1]", &["connect = []"], &[]),
        ] {
            let bounds: Vec<_> = bounds.iter().map(|text| table(text)).collect();
            let policy = ports(&table(own), bounds.iter()).unwrap();
            assert_eq!(policy.connect, want, "{own} {bounds:?}");
        }
        let own = table("publish = [3000, '8080:80']");
        for (bound, want) in [("", 2), ("publish = [8080]", 1), ("connect = [3000]", 0)] {
            let policy = ports(&own, [table(bound)].iter()).unwrap();
            assert_eq!(policy.publish.len(), want, "{bound}");
        }
        for wrong in [
            "connect = [0]",
            "connect = [65536]",
            "connect = ['1']",
            "publish = [0]",
            "publish = [65536]",
            "publish = ['1:2:3']",
            "publish = [true]",
        ] {
            assert!(toml::from_str::<NetworkTable>(wrong).is_err(), "{wrong}");
        }
        for proxy in ["publish = [61080]", "publish = ['8081:61080']"] {
            let fault = toml::from_str::<NetworkTable>(proxy).unwrap_err();
            assert!(fault.message().contains("their proxy"), "{fault}");
        }
        assert!(toml::from_str::<NetworkTable>("publish = ['61080:80']").is_ok());
    }

    #[test]
    fn lease_of_a_pattern_or_unbounded_host_is_refused() {
        let free = of("", &[]);
        let one = leased(free.clone(), "a.example:443").unwrap();
        assert!(
            one.allows("a.example", 443)
                && !one.allows("a.example", 80)
                && !one.allows("b.example", 443)
        );
        for text in [
            "a.example",
            "*:443",
            "*.example:443",
            "1.2.3.4:443",
            "[::1]:443",
            "A.example:443",
            "",
        ] {
            assert!(
                matches!(leased(free.clone(), text), Err(NetworkError::Host { .. })),
                "{text}"
            );
        }
        let bounded = leased(of("", &["allow = ['b.example']"]), "a.example:443");
        assert_eq!(
            bounded,
            Err(NetworkError::Bounded {
                host: "a.example:443".into()
            })
        );
    }

    #[test]
    fn remedy_for_a_host_matches_how_it_may_be_granted() {
        let text = |policy: &WebPolicy, leases, host| remedy(policy, leases, host, 443).to_string();
        let free = of("", &[]);
        assert_eq!(
            text(&free, Leasing::NotOffered, "registry.npmjs.org"),
            "with --allow-net npm, for good with `lazaret policy allow registry.npmjs.org:443`"
        );
        let leased = text(&free, Leasing::Offered, "a.example");
        assert!(
            leased.starts_with("with --allow-host a.example:443, for good")
                && leased.contains("`wants`")
        );
        assert_eq!(
            text(&free, Leasing::Offered, "203.0.113.7"),
            "with --allow-host 203.0.113.7:443"
        );
        let closed = text(
            &of("", &["allow = ['b.example']"]),
            Leasing::Offered,
            "a.example",
        );
        assert!(
            closed.contains("only a change of the policy file"),
            "{closed}"
        );
        assert!(
            remedy_of_any(&free, Leasing::Offered)
                .to_string()
                .contains("`wants`")
        );
        assert!(
            !remedy_of_any(&free, Leasing::NotOffered)
                .to_string()
                .contains("`wants`")
        );
        let open = of("allow = ['a.example']", &[]);
        assert!(
            remedy_of_any(&open, Leasing::Offered)
                .to_string()
                .contains("`wants`")
        );
    }

    #[test]
    fn a_session_that_carries_no_connections_has_no_network() {
        assert_eq!(
            requested(of("allow = ['*']", &[]), None),
            Ok(WebPolicy::default())
        );
        assert!(!is_open(&WebPolicy::default()));
    }

    #[test]
    fn a_policy_is_the_same_after_the_wire() {
        let sent = of(
            "presets = ['go']\nprivate = ['localhost:80', '10.0.0.0/8']",
            &["allow = ['*.org']", "private = []"],
        );
        assert_eq!(from_lists(&lists(&sent)).unwrap(), sent);
        assert!(from_lists(&Network { lists: vec![] }).is_err());
        let bad = HostList {
            allow: Some(vec!["A".into()]),
            private: None,
        };
        assert!(from_lists(&Network { lists: vec![bad] }).is_err());
    }

    #[test]
    fn the_hosts_of_a_session_fit_into_a_frame() {
        let hosts = |count: usize| {
            let all: Vec<_> = (0..count)
                .map(|number| format!("'h{number}.example'"))
                .collect();
            let own = table(&format!("allow = [{}]", all.join(",")));
            policy(&own, std::iter::empty()).map(drop)
        };
        assert_eq!(hosts(ENTRIES_MAX), Ok(()));
        assert_eq!(hosts(ENTRIES_MAX + 1), Err(NetworkError::TooMany));
    }
}
