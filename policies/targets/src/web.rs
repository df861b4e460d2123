//! Hosts that the web tools may reach. The executor has no network; it is the orchestrator that asks here.
//!
//! A profile's table says what may be reached, a file's own `[web]` bounds every profile: what is asked for has to be
//! on the list of each. Addresses that are not public are closed unless a line of `private` opens them.

use crate::address::{Class, Net, class};
use crate::text::read_from_text;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use thiserror::Error;

/// Longest name of a host, in bytes (RFC 1035).
pub const HOST_MAX: usize = 253;

/// Why a value is no host or place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WebValueError {
    #[error(
        "a host is `*`, `*.NAME`, a NAME in lower case (other alphabets as `xn--…`) or an address, with `:PORT` or without"
    )]
    Host,
    #[error(
        "a private place is NAME:PORT, ADDRESS:PORT, [ADDRESS]:PORT, or a network such as `10.0.0.0/8`"
    )]
    Private,
}

/// Hosts: all, one name, or all names below one; at one port, or at any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct HostPattern {
    text: String,
    #[serde(skip)]
    host: FetchHosts,
    #[serde(skip)]
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FetchHosts {
    All,
    Below(String),
    One(String),
    At(IpAddr),
}

impl HostPattern {
    /// The pattern as the policy has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it means all hosts.
    fn is_all(&self) -> bool {
        self.host == FetchHosts::All
    }

    /// The host, where the pattern means one, and the port if it names one.
    pub fn one(&self) -> Option<(&str, Option<u16>)> {
        match &self.host {
            FetchHosts::One(host) => Some((host, self.port)),
            FetchHosts::All | FetchHosts::Below(_) | FetchHosts::At(_) => None,
        }
    }

    /// The address, where the pattern means one, and the port if it names one.
    pub fn address(&self) -> Option<(IpAddr, Option<u16>)> {
        match self.host {
            FetchHosts::At(address) => Some((address, self.port)),
            FetchHosts::All | FetchHosts::Below(_) | FetchHosts::One(_) => None,
        }
    }

    /// Whether it means `host`, in the form of a URL, at `port`.
    pub fn matches(&self, host: &str, port: u16) -> bool {
        self.meets(host, Some(port))
    }

    /// Whether this meets `host` at `port`, or at any if it is absent.
    pub(crate) fn meets(&self, host: &str, port: Option<u16>) -> bool {
        let named = match &self.host {
            FetchHosts::All => true,
            FetchHosts::Below(name) => host
                .strip_suffix(name.as_str())
                .is_some_and(|rest| rest.ends_with('.') && rest.len() > 1),
            FetchHosts::One(name) => host == name,
            FetchHosts::At(address) => {
                literal(host).is_some_and(|host| host.to_canonical() == address.to_canonical())
            }
        };
        let own = self.port.zip(port);
        named && own.is_none_or(|(own, port)| own == port)
    }
}

read_from_text!(HostPattern, PrivatePlace);

impl TryFrom<String> for HostPattern {
    type Error = WebValueError;

    fn try_from(text: String) -> Result<Self, WebValueError> {
        let (host, port) = split_port(&text).ok_or(WebValueError::Host)?;
        let host = match host.strip_prefix("*.") {
            Some(name) if is_name(name) => FetchHosts::Below(name.to_owned()),
            Some(_) => return Err(WebValueError::Host),
            None if host == "*" => FetchHosts::All,
            None if is_name(host) => FetchHosts::One(host.to_owned()),
            None => FetchHosts::At(literal(host).ok_or(WebValueError::Host)?),
        };
        Ok(Self { host, port, text })
    }
}

/// A place that may be reached though its address is not public.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PrivatePlace {
    text: String,
    #[serde(skip)]
    place: PrivateHost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PrivateHost {
    /// A host by its name: see [`Class::opens_by_name`] for the addresses it may have.
    Name(String, u16),
    /// Addresses, at one port or at any.
    Net(Net, Option<u16>),
}

impl PrivatePlace {
    /// The place as the policy has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is `host` by its name, at this port if one is named.
    pub(crate) fn is_host(&self, host: &str, port: Option<u16>) -> bool {
        match &self.place {
            PrivateHost::Name(name, own) => name == host && port.is_none_or(|port| port == *own),
            PrivateHost::Net(..) => false,
        }
    }

    /// The text of the place that opens `address`, at which `host` was found, at `port`, and as little else as can be.
    pub fn text_to_open(host: &str, port: u16, address: IpAddr) -> String {
        if is_name(host) && class(address).opens_by_name() {
            return format!("{host}:{port}");
        }
        SocketAddr::new(address, port).to_string()
    }

    fn matches(&self, host: &str, port: u16, address: IpAddr) -> bool {
        match &self.place {
            PrivateHost::Name(name, own) => {
                name == host && *own == port && class(address).opens_by_name()
            }
            PrivateHost::Net(net, own) => net.holds(address) && own.is_none_or(|own| own == port),
        }
    }
}

impl TryFrom<String> for PrivatePlace {
    type Error = WebValueError;

    fn try_from(text: String) -> Result<Self, WebValueError> {
        let place = parse_private(&text).ok_or(WebValueError::Private)?;
        Ok(Self { place, text })
    }
}

fn parse_private(text: &str) -> Option<PrivateHost> {
    if text.contains('/') {
        return text.parse().ok().map(|net| PrivateHost::Net(net, None));
    }
    let (host, port) = split_port(text)?;
    if is_name(host) {
        return Some(PrivateHost::Name(host.to_owned(), port?));
    }
    Some(PrivateHost::Net(literal(host)?.into(), Some(port?)))
}

/// The text before a last `:`, and the port behind it. The colons of an address stand in brackets.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let number: u16 = port.parse().ok().filter(|port| digits && *port != 0)?;
            Some((host, Some(number)))
        }
        _ => Some((text, None)),
    }
}

/// A name as a URL has it after parsing: not a number, which would be an address in disguise.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    text.len() <= HOST_MAX && text.split('.').all(label) && !number
}

/// An address as a URL has it: IPv6 in brackets.
fn literal(text: &str) -> Option<IpAddr> {
    match text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
    {
        Some(inner) => inner.parse::<Ipv6Addr>().ok().map(IpAddr::from),
        None => text.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    }
}

/// The host and the port of a URL in canonical form; `None` of what is none.
fn place_of(url: &str) -> Option<(&str, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let (_, usual) = [("https", 443), ("http", 80)]
        .into_iter()
        .find(|(known, _)| *known == scheme)?;
    let place = rest.split(['/', '?', '#']).next()?;
    if place.contains(['@', '\\']) {
        return None;
    }
    match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => Some((host, port.parse().ok()?)),
        Some(_) | None => Some((place, usual)),
    }
}

/// A `web` table as it is written: an absent key changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebTable {
    /// Whether `web_search` may be used.
    pub search: Option<bool>,
    /// Hosts that may be reached.
    pub allow: Option<Vec<HostPattern>>,
    /// Hosts that may be spoken to without TLS.
    pub http: Option<Vec<HostPattern>>,
    /// Places that may be reached though their addresses are not public, and without TLS.
    pub private: Option<Vec<PrivatePlace>>,
}

impl WebTable {
    /// Takes over what `later` says.
    pub fn set(&mut self, later: &WebTable) {
        let WebTable {
            search,
            allow,
            http,
            private,
        } = later.clone();
        self.search = search.or(self.search);
        self.allow = allow.or(self.allow.take());
        self.http = http.or(self.http.take());
        self.private = private.or(self.private.take());
    }
}

/// Permissions of the web tools of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebPolicy {
    /// The table of the profile. A key that it does not have allows nothing.
    pub own: WebTable,
    /// Bounds by each file, and by a session. A key that is absent bounds nothing.
    pub bounds: Vec<WebTable>,
}

impl WebPolicy {
    /// Whether `web_search` may be used.
    pub fn searches(&self) -> bool {
        self.own.search == Some(true) && self.bounds.iter().all(|bound| bound.search != Some(false))
    }

    /// Whether `host` at `port` is on every list of hosts.
    pub fn allows(&self, host: &str, port: u16) -> bool {
        self.on_all(
            |table| table.allow.as_deref(),
            |pattern| pattern.matches(host, port),
        )
    }

    /// Whether the profile meets `host` by more than a `*`: somebody has thought of this host. Not by a bound, which only narrows.
    pub fn names(&self, host: &str, port: u16) -> bool {
        let mut patterns = self.own.allow.iter().flatten();
        self.allows(host, port)
            && patterns.any(|pattern| !pattern.is_all() && pattern.matches(host, port))
    }

    /// Whether the page at `url`, in canonical form, may be asked for, whatever the addresses of its host are.
    pub fn may_fetch(&self, url: &str) -> bool {
        place_of(url).is_some_and(|(host, port)| {
            let opened = literal(host).is_some_and(|address| self.opens(host, port, address));
            opened || self.allows(host, port) || self.names_private(host, port)
        })
    }

    /// The hosts that the profile allows by their names, without a pattern, and that every bound allows at some port.
    pub fn named_hosts(&self) -> BTreeSet<&str> {
        let is_within = |(host, port): &(&str, Option<u16>)| {
            let lists = self.bounds.iter().filter_map(|bound| bound.allow.as_ref());
            lists
                .into_iter()
                .all(|list| list.iter().any(|pattern| pattern.meets(host, *port)))
        };
        let own = self.own.allow.iter().flatten().filter_map(HostPattern::one);
        own.filter(is_within).map(|(host, _)| host).collect()
    }

    /// Whether `host` at `port` may be spoken to without TLS.
    pub fn allows_plain(&self, host: &str, port: u16) -> bool {
        self.on_all(
            |table| table.http.as_deref(),
            |pattern| pattern.matches(host, port),
        )
    }

    /// Whether `address`, at which `host` was found, may be reached at `port` though it is not public.
    pub fn opens(&self, host: &str, port: u16, address: IpAddr) -> bool {
        self.on_all(
            |table| table.private.as_deref(),
            |place| place.matches(host, port, address),
        )
    }

    /// Whether a private place has this name and port, whatever its address is.
    pub fn names_private(&self, host: &str, port: u16) -> bool {
        let places = self.own.private.iter().flatten();
        places
            .into_iter()
            .any(|entry| entry.place == PrivateHost::Name(host.to_owned(), port))
    }

    /// Whether `host` at `port` may have an address that [`WebPolicy::opens`].
    pub fn may_open(&self, host: &str, port: u16) -> bool {
        let may = |place: &PrivatePlace| match &place.place {
            PrivateHost::Name(name, own) => name == host && *own == port,
            PrivateHost::Net(_, own) => own.is_none_or(|own| own == port),
        };
        self.on_all(|table| table.private.as_deref(), may)
    }

    /// Whether one of the profile's list matches, and one of each bound's.
    fn on_all<T: 'static>(
        &self,
        list: fn(&WebTable) -> Option<&[T]>,
        matches: impl Fn(&T) -> bool,
    ) -> bool {
        list(&self.own).is_some_and(|own| own.iter().any(&matches))
            && self
                .bounds
                .iter()
                .filter_map(list)
                .all(|bound| bound.iter().any(&matches))
    }
}

/// The class of `address`, where that is a reason to refuse it.
pub fn not_public(address: IpAddr) -> Option<Class> {
    Some(class(address)).filter(|class| *class != Class::Public)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> WebTable {
        toml::from_str(text).unwrap()
    }

    fn policy(own: &str, bounds: &[&str]) -> WebPolicy {
        WebPolicy {
            own: table(own),
            bounds: bounds.iter().map(|text| table(text)).collect(),
        }
    }

    #[test]
    fn named_hosts_are_single_names_that_every_bound_allows() {
        let own = "allow = ['b.example:5432', 'a.example', 'b.example:22', '*.example', '*', '1.1.1.1', '[::1]:80']";
        let named = |bounds: &[&str]| {
            let policy = policy(own, bounds);
            policy
                .named_hosts()
                .into_iter()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(named(&[]), "a.example b.example");
        assert_eq!(
            named(&["private = []", "allow = ['*']"]),
            "a.example b.example"
        );
        assert_eq!(named(&["allow = ['b.example:22']"]), "b.example");
        assert_eq!(named(&["allow = ['b.example:80']"]), "");
        assert_eq!(named(&["allow = ['*.example:443']"]), "a.example");
        assert_eq!(named(&["allow = ['*']", "allow = []"]), "");
    }

    #[test]
    fn hosts_and_places_are_written_exactly() {
        let host = |text: &str| HostPattern::try_from(text.to_owned());
        let long = format!("{}.example", "a".repeat(63));
        for text in [
            "*",
            "*:443",
            "docs.rs",
            "*.docs.rs",
            "docs.rs:8443",
            "xn--bcher-kva.example",
            "1.1.1.1",
            "[::1]",
            "[::1]:80",
            "localhost",
            &long,
        ] {
            assert!(host(text).is_ok(), "{text}");
        }
        let too_long = format!("{}.example", "a".repeat(64));
        for text in [
            "",
            "Docs.rs",
            "docs.rs.",
            ".docs.rs",
            "docs..rs",
            "**",
            "*docs.rs",
            "a.*.rs",
            "docs.rs:",
            "docs.rs:0",
            "docs.rs:65536",
            "docs.rs:+1",
            "https://docs.rs",
            "docs.rs/x",
            "u@docs.rs",
            "bücher.example",
            "::1",
            "127.1",
            "0x7f.0.0.1",
            "2130706433",
            "127.0.0.0x1",
            &too_long,
        ] {
            assert_eq!(host(text), Err(WebValueError::Host), "{text}");
        }
        let place = |text: &str| PrivatePlace::try_from(text.to_owned());
        for text in [
            "localhost:8080",
            "127.0.0.1:80",
            "[::1]:80",
            "10.0.0.0/8",
            "fd00::/8",
            "10.0.0.1/32",
        ] {
            assert!(place(text).is_ok(), "{text}");
        }
        for text in [
            "localhost",
            "127.0.0.1",
            "[::1]",
            "10.0.0.1/8",
            "10.0.0.0/8:80",
            "*:80",
            "*",
            "0x7f.1:80",
            "",
        ] {
            assert_eq!(place(text), Err(WebValueError::Private), "{text}");
        }
    }

    #[test]
    fn pattern_matches_nothing_else() {
        let matches = |pattern: &str, host: &str, port| {
            HostPattern::try_from(pattern.to_owned())
                .unwrap()
                .matches(host, port)
        };
        assert!(matches("*", "a.example", 1) && matches("*", "[::1]", 1));
        assert!(
            matches("*.a.example", "x.a.example", 1) && matches("*.a.example", "x.y.a.example", 1)
        );
        for host in [
            "a.example",
            "xa.example",
            ".a.example",
            "a.example.evil",
            "x.a.example.",
        ] {
            assert!(!matches("*.a.example", host, 1), "{host}");
        }
        assert!(
            matches("a.example:8443", "a.example", 8443)
                && !matches("a.example:8443", "a.example", 443)
        );
        assert!(matches("1.1.1.1", "1.1.1.1", 443) && matches("[0:0::1]", "[::1]", 443));
        assert!(
            matches("[::ffff:1.1.1.1]", "[::ffff:101:101]", 443)
                && matches("[::ffff:1.1.1.1]", "1.1.1.1", 443)
        );
    }

    #[test]
    fn without_a_line_nothing_is_allowed_and_a_bound_only_narrows() {
        let nothing = WebPolicy::default();
        assert!(
            !nothing.searches()
                && !nothing.allows("a.example", 443)
                && !nothing.allows_plain("a.example", 80)
        );
        let all = policy(
            "search = true\nallow = ['*']\nhttp = ['*']\nprivate = ['0.0.0.0/0']",
            &[],
        );
        assert!(
            all.searches() && all.allows("a.example", 443) && all.allows_plain("a.example", 80)
        );
        let bounded = policy(
            "search = true\nallow = ['*']\nhttp = ['*']\nprivate = ['0.0.0.0/0']",
            &[
                "allow = ['*.a.example']\nhttp = []",
                "search = false\nprivate = ['10.0.0.0/8']",
                "allow = ['x.a.example', 'b.example']",
            ],
        );
        assert!(!bounded.searches() && !bounded.allows_plain("x.a.example", 80));
        for (host, want) in [
            ("x.a.example", true),
            ("y.a.example", false),
            ("b.example", false),
        ] {
            assert_eq!(bounded.allows(host, 443), want, "{host}");
        }
        assert!(
            bounded.opens("h", 1, "10.0.0.1".parse().unwrap())
                && !bounded.opens("h", 1, "127.0.0.1".parse().unwrap())
        );
        // What a bound has, and the profile has not, is not opened by the bound.
        assert!(!policy("allow = []", &["allow = ['*']"]).allows("a.example", 443));
    }

    #[test]
    fn a_name_opens_machines_and_not_metadata() {
        let policy = policy("private = ['box:80', '169.254.169.254:80']", &[]);
        let opens =
            |host: &str, port, address: &str| policy.opens(host, port, address.parse().unwrap());
        assert!(
            opens("box", 80, "127.0.0.1")
                && opens("box", 80, "192.168.1.1")
                && opens("box", 80, "::1")
        );
        assert!(opens("box", 80, "fd00::1") && opens("box", 80, "100.64.0.1"));
        for address in [
            "0.0.0.0",
            "224.0.0.1",
            "fe80::1",
            "fd00:ec2::254",
            "255.255.255.255",
            "2002:7f00:1::",
        ] {
            assert!(!opens("box", 80, address), "{address}");
        }
        assert!(!opens("box", 81, "127.0.0.1") && !opens("fox", 80, "127.0.0.1"));
        // The line with the address itself opens it, under any name.
        assert!(opens("box", 80, "169.254.169.254") && !opens("box", 443, "169.254.169.254"));
        assert!(policy.names_private("box", 80) && !policy.names_private("box", 81));
    }

    #[test]
    fn a_star_names_nobody() {
        let star = policy("allow = ['*', 'a.example']", &[]);
        assert!(star.names("a.example", 443) && !star.names("b.example", 443));
        let bound = policy("allow = ['*']", &["allow = ['b.example']"]);
        assert!(bound.allows("b.example", 443) && !bound.names("b.example", 443));
    }

    #[test]
    fn pages_are_asked_for_within_the_profile_and_each_bound() {
        let own = "allow = ['*.a.example', 'b.example:8443']\nprivate = ['wiki:80', '10.0.0.0/8']";
        let policy = policy(
            own,
            &["allow = ['*']", "allow = ['x.a.example', 'b.example:8443']"],
        );
        for url in [
            "https://x.a.example/",
            "https://x.a.example/?a@b",
            "http://x.a.example/",
            "https://b.example:8443/a",
            "http://wiki/",
        ] {
            assert!(policy.may_fetch(url), "{url}");
        }
        for url in [
            "https://y.a.example/",
            "https://b.example/",
            "https://x.a.example@evil.example/",
            "https://evil.example\\\\@x.a.example/",
            "https://evil.example/x.a.example",
            "ftp://x.a.example/",
            "https://wiki/",
            "https://x.a.example:port/",
            "x.a.example",
            "",
        ] {
            assert!(!policy.may_fetch(url), "{url}");
        }
        // Addresses that the profile alone opens are closed by a bound that opens none.
        let opened = self::policy("private = ['10.0.0.0/8', '::1/128']", &[]);
        for url in ["http://10.1.2.3/", "https://[::1]:8443/", "https://[::1]/"] {
            assert!(opened.may_fetch(url), "{url}");
        }
        assert!(!opened.may_fetch("http://11.1.2.3/"));
    }
}
