//! `[gateway]`: the authorities of a company that hosts are verified by, and the proxy by which connections of cells leave its network.
//!
//! In the administrator's and the user's files, never a project's, and not by a session. Authorities of all files count; one file
//! sets the proxy. Pure: callers read the files and the environment.

use crate::credential_table::SourceEntry;
use crate::credentials::CredentialSource;
use crate::host::HostPath;
use crate::value;
use broker_protocol::limit;
use policies_targets::address::Net;
use policies_targets::web::HostPattern;
use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};
use std::net::IpAddr;
use std::path::PathBuf;
use thiserror::Error;

/// Maximum number of authority files in one policy file.
pub(crate) const AUTHORITY_FILES_MAX: usize = 8;
/// Text of `proxy` for the proxy that the user's environment names.
const ENVIRONMENT: &str = "environment";

/// Why a value of `[gateway]` is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GatewayFault {
    #[error("a proxy is \"http://HOST:PORT\" or \"environment\"")]
    Proxy,
    #[error(
        "a proxy's address has no user and no password: write USER:PASSWORD to a file that only you can read, and `proxy_from = {{ file = \"PATH\" }}`"
    )]
    Login,
    #[error(
        "only proxies that are spoken to by HTTP are supported, as \"http://HOST:PORT\"; connections to hosts have their own TLS inside"
    )]
    Scheme,
    #[error(
        "an entry of `no_proxy` is a host (`*`, `*.NAME`, NAME or an address, with `:PORT` or without) or a network such as `10.0.0.0/8`"
    )]
    Direct,
    #[error("`no_proxy`, `proxy_names` and `proxy_from` stand beside `proxy`")]
    NoProxy,
    #[error("`ca` names at most {AUTHORITY_FILES_MAX} files")]
    Authorities,
    #[error("`no_proxy` has at most {max} entries", max = limit::HOSTS)]
    Directs,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProxyAddress {
    /// A name, or an address (IPv6 in brackets).
    pub host: String,
    pub port: u16,
}

impl ProxyAddress {
    /// Reads `http://HOST:PORT`; without a port, 80.
    ///
    /// # Errors
    /// The text is no such address.
    pub fn parse(text: &str) -> Result<Self, GatewayFault> {
        let place = match text.split_once("://") {
            Some((scheme, place)) if scheme.eq_ignore_ascii_case("http") => place,
            Some(_) => return Err(GatewayFault::Scheme),
            None => return Err(GatewayFault::Proxy),
        };
        if place.contains('@') {
            return Err(GatewayFault::Login);
        }
        let place = place.strip_suffix('/').unwrap_or(place);
        let pattern = HostPattern::try_from(place.to_ascii_lowercase());
        let pattern = pattern.map_err(|_| GatewayFault::Proxy)?;
        let (host, port) = match (pattern.one(), pattern.address()) {
            (Some((host, port)), _) => (host.to_owned(), port),
            (None, Some((IpAddr::V4(address), port))) => (address.to_string(), port),
            (None, Some((IpAddr::V6(address), port))) => (format!("[{address}]"), port),
            (None, None) => return Err(GatewayFault::Proxy),
        };
        Ok(Self {
            host,
            port: port.unwrap_or(80),
        })
    }

    /// Reads the value of `HTTPS_PROXY`, which may lack `http://`. Its user and password are left out if the policy has a `login` of its own.
    ///
    /// # Errors
    /// The text is no such address.
    pub fn of_variable(
        value: &str,
        login: Option<&CredentialSource>,
    ) -> Result<Self, GatewayFault> {
        let mut text = match value.contains("://") {
            true => value.to_owned(),
            false => format!("http://{value}"),
        };
        if login.is_some()
            && let Some((scheme, rest)) = text.split_once("://")
            && let Some((_, place)) = rest.rsplit_once('@')
        {
            text = format!("{scheme}://{place}");
        }
        Self::parse(&text)
    }
}

/// An entry of `no_proxy`: what is connected to without the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectPlace {
    text: String,
    place: Direct,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Direct {
    Host(HostPattern),
    Net(Net),
}

impl DirectPlace {
    /// The entry as it is written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it names this host.
    pub fn names(&self, host: &str, port: u16) -> bool {
        match &self.place {
            Direct::Host(pattern) => pattern.matches(host, port),
            Direct::Net(_) => false,
        }
    }

    /// Whether this address is in its network.
    pub fn holds(&self, address: IpAddr) -> bool {
        match &self.place {
            Direct::Host(_) => false,
            Direct::Net(net) => net.holds(address),
        }
    }

    /// Reads the value of `NO_PROXY`: the entries, and those that are none. A name there means all names below it too.
    pub fn of_variable(value: &str) -> (Vec<Self>, Vec<String>) {
        let separated = value.split(|c: char| c == ',' || c.is_ascii_whitespace());
        let mut read = (Vec::new(), Vec::new());
        for text in separated.filter(|text| !text.is_empty()) {
            let plain = text.to_ascii_lowercase();
            let plain = plain.trim_start_matches("*.").trim_start_matches('.');
            match Self::try_from(plain.to_owned()) {
                Ok(own) => {
                    read.0.push(own);
                    read.0.extend(Self::try_from(format!("*.{plain}")));
                }
                // Addresses of IPv6 stand there without brackets.
                Err(_) => match Self::try_from(format!("[{plain}]")) {
                    Ok(own) => read.0.push(own),
                    Err(_) => read.1.push(text.to_owned()),
                },
            }
        }
        read
    }
}

impl TryFrom<String> for DirectPlace {
    type Error = GatewayFault;

    fn try_from(text: String) -> Result<Self, GatewayFault> {
        let place = match text.contains('/') {
            true => text.parse().map(Direct::Net).ok(),
            false => HostPattern::try_from(text.clone()).map(Direct::Host).ok(),
        };
        let place = place.ok_or(GatewayFault::Direct)?;
        Ok(Self { text, place })
    }
}

impl<'de> Deserialize<'de> for DirectPlace {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        policies_targets::text::read(input)
    }
}

impl Serialize for DirectPlace {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(&self.text)
    }
}

/// The proxy that is chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum ProxyChoice {
    /// The one that `HTTPS_PROXY` of the user's environment names, without those of `NO_PROXY`; none if it names none.
    Environment,
    Address(ProxyAddress),
}

impl<'de> Deserialize<'de> for ProxyChoice {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        if text == ENVIRONMENT {
            return Ok(Self::Environment);
        }
        let address = ProxyAddress::parse(&text);
        address.map(Self::Address).map_err(de::Error::custom)
    }
}

/// `[gateway]` as a file writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GatewayTable {
    /// Files of certificates in PEM form.
    #[serde(deserialize_with = "value::one_or_many")]
    pub ca: Option<Vec<HostPath>>,
    pub(crate) proxy: Option<ProxyChoice>,
    /// Hosts and networks that are connected to without the proxy.
    pub(crate) no_proxy: Option<Vec<DirectPlace>>,
    /// Whether the proxy is told names in place of addresses.
    pub(crate) proxy_names: Option<bool>,
    /// Where its USER:PASSWORD comes from.
    pub(crate) proxy_from: Option<SourceEntry>,
    /// Whether a client may supply the gateways of its session.
    pub(crate) from_client: Option<bool>,
}

impl GatewayTable {
    /// Checks what the types of its keys do not.
    ///
    /// # Errors
    /// Keys that do not fit together, or too many entries.
    pub(crate) fn check(&self) -> Result<(), GatewayFault> {
        let depends =
            self.no_proxy.is_some() || self.proxy_names.is_some() || self.proxy_from.is_some();
        if depends && self.proxy.is_none() {
            return Err(GatewayFault::NoProxy);
        }
        if self.ca.iter().flatten().count() > AUTHORITY_FILES_MAX {
            return Err(GatewayFault::Authorities);
        }
        match self.no_proxy.iter().flatten().count() > limit::HOSTS {
            true => Err(GatewayFault::Directs),
            false => Ok(()),
        }
    }
}

/// How connections of cells, and of `lazaret` itself, leave this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GatewaySettings {
    /// Files of authorities that hosts are verified by, besides the machine's.
    #[serde(serialize_with = "paths")]
    pub authorities: Vec<PathBuf>,
    pub proxy: Option<ProxySettings>,
    /// Whether a client may supply the gateways of its session, where the executor has no network: a file says so, and none says no.
    pub from_client: bool,
}

impl GatewaySettings {
    /// Whether they say how connections leave this machine.
    pub fn has_company(&self) -> bool {
        !self.authorities.is_empty() || self.proxy.is_some()
    }
}

/// The proxy of all these connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProxySettings {
    pub choice: ProxyChoice,
    /// Hosts and networks that are connected to without it.
    pub direct: Vec<DirectPlace>,
    /// Whether it is told names in place of addresses.
    pub names: bool,
    /// Where its USER:PASSWORD comes from.
    pub login: Option<CredentialSource>,
    /// The file that sets it.
    #[serde(skip)]
    pub file: String,
}

fn paths<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(paths.iter().map(|path| path.as_os_str().as_encoded_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str, port: u16) -> ProxyAddress {
        let host = host.to_owned();
        ProxyAddress { host, port }
    }

    #[test]
    fn a_proxy_is_a_place_spoken_to_by_http() {
        for (text, want) in [
            ("http://proxy.corp:3128", place("proxy.corp", 3128)),
            ("HTTP://Proxy.Corp:3128/", place("proxy.corp", 3128)),
            ("http://proxy.corp", place("proxy.corp", 80)),
            ("http://proxy.corp:80", place("proxy.corp", 80)),
            ("http://10.0.0.1:8080", place("10.0.0.1", 8080)),
            ("http://[fd00::1]:8080", place("[fd00::1]", 8080)),
        ] {
            assert_eq!(ProxyAddress::parse(text), Ok(want), "{text}");
        }
        for (text, want) in [
            ("proxy.corp:3128", GatewayFault::Proxy),
            ("http://", GatewayFault::Proxy),
            ("http://*.corp:3128", GatewayFault::Proxy),
            ("http://proxy.corp:0", GatewayFault::Proxy),
            ("http://proxy.corp:3128/path", GatewayFault::Proxy),
            ("http://proxy.corp:3128?q", GatewayFault::Proxy),
            ("http://proxy corp:3128", GatewayFault::Proxy),
            ("http://proxy.corp\r\n:3128", GatewayFault::Proxy),
            ("https://proxy.corp:3128", GatewayFault::Scheme),
            ("socks5://proxy.corp:1080", GatewayFault::Scheme),
            ("http://u:p@proxy.corp:3128", GatewayFault::Login),
        ] {
            assert_eq!(ProxyAddress::parse(text), Err(want), "{text}");
        }
    }

    #[test]
    fn proxy_variable_may_lack_the_scheme_and_must_lack_a_login() {
        let of = ProxyAddress::of_variable;
        let login = CredentialSource::Systemd("login".into());
        assert_eq!(of("proxy.corp:3128", None), Ok(place("proxy.corp", 3128)));
        assert_eq!(
            of("http://u:p@proxy.corp:3128", None),
            Err(GatewayFault::Login)
        );
        assert_eq!(
            of("u:p@proxy.corp:3128", Some(&login)),
            Ok(place("proxy.corp", 3128))
        );
        assert_eq!(
            of("https://proxy.corp", Some(&login)),
            Err(GatewayFault::Scheme)
        );
    }

    #[test]
    fn entries_of_no_proxy_are_hosts_and_networks() {
        let read = |text: &str| DirectPlace::try_from(text.to_owned());
        let below = read("*.corp").unwrap();
        assert!(below.names("a.b.corp", 443) && !below.names("corp", 443));
        assert!(!below.names("acorp", 443));
        let net = read("10.0.0.0/8").unwrap();
        assert!(net.holds("10.1.2.3".parse().unwrap()) && !net.names("10.1.2.3", 443));
        assert!(!net.holds("11.1.2.3".parse().unwrap()));
        assert!(read("10.0.0.1:8080").unwrap().names("10.0.0.1", 8080));
        for text in ["", "10.0.0.1/8", "a b", "http://a", "10.*"] {
            assert_eq!(read(text), Err(GatewayFault::Direct), "{text}");
        }
    }

    #[test]
    fn no_proxy_entries_mean_what_programs_take_them_for() {
        let (read, unknown) = DirectPlace::of_variable(
            "localhost, .corp,*.lan 10.0.0.0/8,::1,10.*,Host.Example:8443",
        );
        assert_eq!(unknown, ["10.*"]);
        let names = |host: &str, port| read.iter().any(|one| one.names(host, port));
        for host in ["localhost", "corp", "a.b.corp", "x.lan", "[::1]"] {
            assert!(names(host, 443), "{host}");
        }
        assert!(names("host.example", 8443) && !names("host.example", 443));
        assert!(!names("acorp", 443));
        assert!(read.iter().any(|one| one.holds([10, 0, 0, 1].into())));
        let (all, _) = DirectPlace::of_variable("*");
        assert!(all.iter().any(|one| one.names("a.example", 1)));
    }
}
