//! The network that a session's programs have, and the variables that tell them.

use broker_protocol::Variable;
use policies::EnvironmentRules;
use std::ffi::OsString;
use std::path::Path;

use crate::caches;
pub use crate::network_reach::NetworkReach;
use executor_spec::relay::ADDRESS;
use executor_spec::sandbox::Rooted;
use executor_spec::variables::Variables;

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
/// Names and addresses of a cell's loopback.
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

/// The network variables for cells: those of a session with a relay; in a session without a host, those that keep programs
/// offline. A file of certificates is named only if a cell can see it: clients refuse every host when it is missing.
pub fn variables(
    rules: &EnvironmentRules,
    reach: NetworkReach,
    ours: &Variables,
    visible: impl Fn(&Path) -> bool,
) -> Vec<(OsString, OsString)> {
    let offline = rules
        .offline
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let offline: Vec<_> = offline.filter(|_| reach != NetworkReach::Online).collect();
    if reach == NetworkReach::Offline {
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
    pub fn of(spec: &Rooted, ours: &Variables) -> Self {
        if NetworkReach::of(&spec.policy) != NetworkReach::Waiting {
            return Self::default();
        }
        let variable = |(name, value): (OsString, OsString)| {
            Some(Variable {
                name: name.into_string().ok()?,
                value: value.into_string().ok()?,
            })
        };
        let caches = caches::variables(&spec.policy, NetworkReach::Online, ours, &spec.central);
        let set: Vec<_> = caches.into_iter().filter_map(variable).collect();
        let is_set = |name: &&String| set.iter().any(|variable| variable.name == **name);
        let offline = spec.policy.environment.offline.keys();
        let unset = offline.filter(|name| !is_set(name)).cloned().collect();
        Self { set, unset }
    }

    /// The variables to set, and those to unset.
    pub fn variables(&self) -> (Vec<Variable>, Vec<String>) {
        (self.set.clone(), self.unset.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn variables_of(reach: NetworkReach, ours: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
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
        let with = variables_of(NetworkReach::Online, &[]);
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
            NetworkReach::Offline,
            &[("SSL_CERT_FILE", "/etc/ssl/certs/ca.crt")],
        );
        assert_eq!(
            without,
            BTreeMap::from([("PIP_NO_INDEX".into(), "1".into())])
        );
        let waiting = variables_of(NetworkReach::Waiting, &[]);
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
        let with = variables_of(NetworkReach::Online, &ours);
        assert_eq!(
            with[&OsString::from("SSL_CERT_FILE")],
            "/etc/ssl/certs/ca.crt"
        );
        assert!(!with.contains_key(&OsString::from("PIP_CERT")));
        assert_eq!(with[&OsString::from("UV_SYSTEM_CERTS")], "1");
    }
}
