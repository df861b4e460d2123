//! Rules for single requests: `[[network.http]]` of a profile or a file, and the shipped presets.
//!
//! The order is that of [`network`](crate::network): a profile's rules say which requests its hosts get, a file's own bound every
//! profile. Of each list the first rule that fits a request decides, and a host that a list names gets nothing else. No list names a
//! host: its connections are not looked into. A row with `tls = "pass"` says so of a host, and no rule or credential may name it then.

use crate::text::read_from_text;
use crate::web::{HostPattern, WebTable};
use broker_protocol::gateway::{RequestRule, RuleAction};
use broker_protocol::limit;
use policies_guard::Origin;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use thiserror::Error;
use toml::Spanned;

/// Maximum bytes of all rules of a session: they go to the gateway in one frame.
pub(crate) const RULE_BYTES_MAX: usize = 128 * 1024;

/// Why rules for requests are not valid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HttpFault {
    #[error(
        "a rule's host is one NAME, or one NAME:PORT, in lower case, without `*`, and no address"
    )]
    Host,
    #[error("a method is 1 to {max} capital letters, and neither TRACE nor CONNECT", max = limit::METHOD)]
    Method,
    #[error(
        "a path begins with `/` and has at most {max} visible characters without `?`, `#` and `%`; `*` stands for one whole part, a final `/**` for any rest",
        max = limit::RULE_PATH
    )]
    Path,
    #[error("a rule's action is \"allow\", \"ask\" or \"deny\"")]
    Action,
    #[error("`why` has 1 to {max} characters, on one line", max = limit::RULE_WHY)]
    Why,
    #[error("there is no preset `{name}` of rules; there are: {}", names().collect::<Vec<_>>().join(", "))]
    Preset { name: String },
    #[error("a rule has `host` and `action`, or `preset`, or `host` and `tls`")]
    Incomplete,
    #[error("`tls` is \"pass\"")]
    Tls,
    #[error(
        "beside `tls` a row has `host` only: what passes unopened has no requests to decide on"
    )]
    BesideTls,
    #[error("beside `preset` a rule has `host` only")]
    BesidePreset,
    #[error("a rule has 1 to {max} paths, or no `paths` for all", max = limit::RULE_PATHS)]
    Paths,
    #[error("a rule has 1 to {max} methods, or no `methods` for all", max = limit::RULE_METHODS)]
    Methods,
}

/// Whether a text is a pattern of request paths, as rules and the uses of credentials have them.
pub fn is_path_pattern(text: &str, max: usize) -> bool {
    let visible = |byte: u8| byte.is_ascii_graphic() && !b"?#%\\".contains(&byte);
    let parts = text.strip_suffix("/**").unwrap_or(text);
    let is_part = |part: &str| ![".", ".."].contains(&part) && (part == "*" || !part.contains('*'));
    text.starts_with('/')
        && text.len() <= max
        && text.bytes().all(visible)
        && parts.split('/').all(is_part)
}

/// The host of a rule: its port is absent for all ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleHost {
    name: String,
    port: Option<u16>,
}

impl TryFrom<String> for RuleHost {
    type Error = HttpFault;

    fn try_from(text: String) -> Result<Self, HttpFault> {
        let pattern = HostPattern::try_from(text).map_err(|_| HttpFault::Host)?;
        let (name, port) = pattern.one().ok_or(HttpFault::Host)?;
        Ok(Self {
            name: name.to_owned(),
            port,
        })
    }
}

/// The method of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleMethod(String);

impl TryFrom<String> for RuleMethod {
    type Error = HttpFault;

    fn try_from(text: String) -> Result<Self, HttpFault> {
        let fits = (1..=limit::METHOD).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_uppercase())
            && !["TRACE", "CONNECT"].contains(&text.as_str());
        fits.then_some(Self(text)).ok_or(HttpFault::Method)
    }
}

/// The path of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RulePath(String);

impl TryFrom<String> for RulePath {
    type Error = HttpFault;

    fn try_from(text: String) -> Result<Self, HttpFault> {
        let fits = is_path_pattern(&text, limit::RULE_PATH);
        fits.then_some(Self(text)).ok_or(HttpFault::Path)
    }
}

/// The end of a request that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpAction(RuleAction);

impl TryFrom<String> for HttpAction {
    type Error = HttpFault;

    fn try_from(text: String) -> Result<Self, HttpFault> {
        match text.as_str() {
            "allow" => Ok(Self(RuleAction::Allow)),
            "deny" => Ok(Self(RuleAction::Deny)),
            "ask" => Ok(Self(RuleAction::Ask)),
            _ => Err(HttpFault::Action),
        }
    }
}

/// Passes connections to a host as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlsPass;

impl TryFrom<String> for TlsPass {
    type Error = HttpFault;

    fn try_from(text: String) -> Result<Self, HttpFault> {
        (text == "pass").then_some(Self).ok_or(HttpFault::Tls)
    }
}

/// Why a rule is there, for people and for the program that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpWhy(String);

impl TryFrom<String> for HttpWhy {
    type Error = HttpFault;

    fn try_from(text: String) -> Result<Self, HttpFault> {
        let fits = (1..=limit::RULE_WHY).contains(&text.len()) && !text.contains(char::is_control);
        fits.then_some(Self(text)).ok_or(HttpFault::Why)
    }
}

/// The name of a preset that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpPresetName(&'static str);

impl TryFrom<String> for HttpPresetName {
    type Error = HttpFault;

    fn try_from(name: String) -> Result<Self, HttpFault> {
        let known = names().find(|known| *known == name).map(Self);
        known.ok_or(HttpFault::Preset { name })
    }
}

read_from_text!(
    RuleHost,
    RuleMethod,
    RulePath,
    HttpAction,
    TlsPass,
    HttpWhy,
    HttpPresetName
);

/// One `[[network.http]]` as it is written: a rule, a preset of rules, or a host whose connections pass.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRow {
    host: Option<RuleHost>,
    methods: Option<Vec<RuleMethod>>,
    paths: Option<Vec<RulePath>>,
    action: Option<HttpAction>,
    why: Option<HttpWhy>,
    preset: Option<HttpPresetName>,
    tls: Option<TlsPass>,
}

/// The rows of a table, with their places in its file.
pub type HttpRows = Vec<Spanned<HttpRow>>;

/// The first row whose parts do not fit together, with its place in the text.
pub fn fault(rows: &HttpRows) -> Option<(usize, HttpFault)> {
    rows.iter().find_map(|row| {
        let fault = row.get_ref().check().err()?;
        Some((row.span().start, fault))
    })
}

impl HttpRow {
    fn check(&self) -> Result<(), HttpFault> {
        let bounded =
            |count: Option<usize>, max| count.is_none_or(|count| (1..=max).contains(&count));
        if !bounded(self.paths.as_ref().map(Vec::len), limit::RULE_PATHS) {
            return Err(HttpFault::Paths);
        }
        if !bounded(self.methods.as_ref().map(Vec::len), limit::RULE_METHODS) {
            return Err(HttpFault::Methods);
        }
        let is_plain = self.methods.is_none() && self.paths.is_none() && self.why.is_none();
        if self.tls.is_some() {
            let is_alone = self.preset.is_none() && self.host.is_some() && self.action.is_none();
            return (is_alone && is_plain)
                .then_some(())
                .ok_or(HttpFault::BesideTls);
        }
        match (&self.preset, &self.host, self.action) {
            (Some(_), _, None) if is_plain => Ok(()),
            (Some(_), _, _) => Err(HttpFault::BesidePreset),
            (None, Some(_), Some(_)) => Ok(()),
            (None, _, _) => Err(HttpFault::Incomplete),
        }
    }

    /// The host whose connections pass, if it says so.
    fn passed(&self) -> Option<&RuleHost> {
        self.tls.and(self.host.as_ref())
    }

    /// Its rules. `origin` is its line.
    fn rules(&self, origin: &Origin) -> Vec<HttpRule> {
        let Some(HttpPresetName(name)) = &self.preset else {
            let action = self.action.map(|action| action.0);
            let rule = self.host.as_ref().zip(action).map(|(host, action)| {
                let paths = self.paths.iter().flatten().map(|path| path.0.clone());
                let methods = self.methods.iter().flatten().map(|name| name.0.clone());
                HttpRule {
                    request: RequestRule {
                        host: host.name.clone(),
                        port: host.port,
                        methods: methods.collect(),
                        paths: paths.collect(),
                        action,
                        why: self.why.as_ref().map(|why| why.0.clone()),
                        name: String::new(),
                    },
                    preset: None,
                    origin: origin.clone(),
                }
            });
            return rule.into_iter().collect();
        };
        let rows = PRESETS
            .get(name)
            .into_iter()
            .flat_map(|preset| &preset.rule);
        let rules = rows.flat_map(|row| row.rules(origin));
        let rules = rules.map(|mut rule| {
            if let Some(host) = &self.host {
                (rule.request.host, rule.request.port) = (host.name.clone(), host.port);
            }
            rule.preset = Some((*name).to_owned());
            rule
        });
        rules.collect()
    }
}

/// Shipped rules by which clients read a host and change nothing, or change what somebody has allowed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpPreset {
    pub why: String,
    rule: Vec<HttpRow>,
}

/// The files of `policies/http`, by name.
const FILES: [(&str, &str); 5] = [
    (
        "github-write-asks",
        include_str!("../../http/github-write-asks.toml"),
    ),
    ("github-read", include_str!("../../http/github-read.toml")),
    (
        "npm-publish-asks",
        include_str!("../../http/npm-publish-asks.toml"),
    ),
    ("npm-read", include_str!("../../http/npm-read.toml")),
    ("pypi-read", include_str!("../../http/pypi-read.toml")),
];

/// Read when the first is needed: most sessions need none. A test reads all.
static PRESETS: LazyLock<BTreeMap<&str, HttpPreset>> = LazyLock::new(|| {
    let read = |(name, text): (&'static str, &str)| Some((name, toml::from_str(text).ok()?));
    FILES.into_iter().filter_map(read).collect()
});

/// The shipped presets, by name.
pub fn presets() -> impl Iterator<Item = (&'static str, &'static HttpPreset)> {
    PRESETS.iter().map(|(name, preset)| (*name, preset))
}

fn names() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().map(|(name, _)| name)
}

/// A rule of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HttpRule {
    /// Without a name: where a rule is written does not count for a policy's digest.
    pub request: RequestRule,
    /// The preset that has it.
    pub preset: Option<String>,
    /// The line that says so.
    #[serde(skip)]
    pub origin: Origin,
}

impl HttpRule {
    /// Where it is written, for people.
    pub fn name(&self) -> String {
        match &self.preset {
            Some(preset) => format!("{} (preset `{preset}`)", self.origin),
            None => self.origin.to_string(),
        }
    }

    /// As the gateway gets it.
    pub fn request(&self) -> RequestRule {
        let rule = RequestRule {
            name: self.name(),
            ..self.request.clone()
        };
        rule.cut()
    }

    fn bytes(&self) -> usize {
        let RequestRule {
            host,
            methods,
            paths,
            why,
            ..
        } = &self.request;
        let texts = methods.iter().chain(paths).chain(why);
        let fixed = [host, &self.origin.file];
        let length = |text: &String| text.len() + 8;
        texts.chain(fixed).map(length).sum::<usize>() + 64
    }
}

/// The rules of a session's requests: its profile's, and those of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HttpRules(pub Vec<Vec<HttpRule>>);

/// Why a session's rules cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HttpRulesError {
    #[error(
        "{at}: the rule is for {host}, which is none of the hosts of this profile: `allow`, `presets` or `private` of its `network` has to have it"
    )]
    Host { at: Origin, host: String },
    #[error(
        "more than {max} rules for requests, or more than {RULE_BYTES_MAX} bytes of them",
        max = limit::REQUEST_RULES
    )]
    TooMany,
    #[error(
        "{at}: the rule is for {host}, whose connections pass unopened by {by} (`tls = \"pass\"`); remove one of the two"
    )]
    RulePassed {
        at: Origin,
        host: String,
        by: Origin,
    },
    #[error(
        "{at}: connections to {host} pass unopened (`tls = \"pass\"`), and credential `{credential}` is for that host; remove one of the two, or \
         have the profile not name the credential"
    )]
    CredentialPassed {
        at: Origin,
        host: String,
        credential: String,
    },
}

/// The hosts whose connections pass as they are, by all lists of a session.
#[derive(Clone, Debug, Default)]
pub struct PassedHosts(Vec<(RuleHost, Origin)>);

impl PassedHosts {
    pub fn of(own: &[(HttpRow, Origin)], bounds: &[Vec<(HttpRow, Origin)>]) -> Self {
        let rows = own.iter().chain(bounds.iter().flatten());
        let passed =
            |(row, origin): &(HttpRow, Origin)| Some((row.passed()?.clone(), origin.clone()));
        Self(rows.filter_map(passed).collect())
    }

    /// The line by which connections to a host pass, at some port of these.
    fn line(&self, host: &str, port: Option<u16>) -> Option<&Origin> {
        let meets = |passed: &RuleHost| {
            passed.name == host && (passed.port.is_none() || port.is_none() || passed.port == port)
        };
        let mut hosts = self.0.iter();
        Some(&hosts.find(|(passed, _)| meets(passed))?.1)
    }

    /// Checks that no credential is for one of them: to use it, the connection would be opened. `hosts` are NAME:PORT.
    ///
    /// # Errors
    /// It is.
    pub fn check_credential(
        &self,
        credential: &str,
        hosts: &[String],
    ) -> Result<(), HttpRulesError> {
        for host in hosts {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, ""));
            if let Some(at) = self.line(name, port.parse().ok()) {
                return Err(HttpRulesError::CredentialPassed {
                    at: at.clone(),
                    host: host.clone(),
                    credential: credential.to_owned(),
                });
            }
        }
        Ok(())
    }

    fn check_rule(&self, rule: &HttpRule) -> Result<(), HttpRulesError> {
        let RequestRule { host, port, .. } = &rule.request;
        match self.line(host, *port) {
            None => Ok(()),
            Some(by) => Err(HttpRulesError::RulePassed {
                at: rule.origin.clone(),
                host: host.clone(),
                by: by.clone(),
            }),
        }
    }
}

impl HttpRules {
    /// The rules of a profile, whose hosts `allow` opens, bounded by those of the files.
    ///
    /// # Errors
    /// A host of the profile's is not allowed, or passes unopened; or there are too many.
    pub fn new(
        own: &[(HttpRow, Origin)],
        allow: &WebTable,
        bounds: Vec<Vec<(HttpRow, Origin)>>,
    ) -> Result<Self, HttpRulesError> {
        let is_allowed = |host: &str, port: Option<u16>| {
            let mut allowed = allow.allow.iter().flatten();
            let mut private = allow.private.iter().flatten();
            allowed.any(|pattern| pattern.meets(host, port))
                || private.any(|place| place.is_host(host, port))
        };
        for (row, origin) in own {
            let rules = row.rules(origin);
            let of_rules = rules
                .iter()
                .map(|rule| (&*rule.request.host, rule.request.port));
            let passed = row.passed().map(|host| (&*host.name, host.port));
            let hosts: Vec<_> = of_rules.chain(passed).collect();
            // A preset's hosts belong together: who wants to read a registry need not reach all of them.
            if let Some((first, _)) = hosts.first()
                && !hosts.iter().any(|(host, port)| is_allowed(host, *port))
            {
                return Err(HttpRulesError::Host {
                    at: origin.clone(),
                    host: (*first).to_owned(),
                });
            }
        }
        let passed = PassedHosts::of(own, &bounds);
        let lists = std::iter::once(own).chain(bounds.iter().map(Vec::as_slice));
        let written = |rows: &[(HttpRow, Origin)]| {
            let rules = rows.iter().flat_map(|(row, origin)| row.rules(origin));
            rules.collect::<Vec<_>>()
        };
        let lists: Vec<_> = lists
            .map(written)
            .filter(|rules| !rules.is_empty())
            .collect();
        let all = || lists.iter().flatten();
        all().try_for_each(|rule| passed.check_rule(rule))?;
        let bytes: usize = all().map(HttpRule::bytes).sum();
        if all().count() > limit::REQUEST_RULES || bytes > RULE_BYTES_MAX {
            return Err(HttpRulesError::TooMany);
        }
        Ok(Self(lists))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As the gateway gets them.
    pub fn requests(&self) -> Vec<Vec<RequestRule>> {
        let list = |rules: &Vec<HttpRule>| rules.iter().map(HttpRule::request).collect();
        self.0.iter().map(list).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Table {
        http: HttpRows,
    }

    fn rows(text: &str) -> Result<HttpRows, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        match fault(&table.http) {
            Some((_, fault)) => Err(fault.to_string()),
            None => Ok(table.http),
        }
    }

    fn placed(text: &str) -> Vec<(HttpRow, Origin)> {
        let rows = rows(text).unwrap();
        let one = |row: Spanned<HttpRow>| (row.into_inner(), Origin::default());
        rows.into_iter().map(one).collect()
    }

    fn allow(hosts: &str) -> WebTable {
        toml::from_str(&format!("allow = {hosts}")).unwrap()
    }

    fn row(text: &str) -> String {
        format!("[[http]]\n{text}\n")
    }

    #[test]
    fn every_shipped_preset_is_valid_and_allows_no_writing_unasked() {
        assert_eq!(presets().count(), FILES.len());
        for (name, preset) in presets() {
            assert!(!preset.why.is_empty(), "{name}");
            for row in &preset.rule {
                assert_eq!(row.check(), Ok(()), "{name}");
                for rule in row.rules(&Origin::default()) {
                    let allows = rule.request.action == RuleAction::Allow;
                    let writes = |method: &String| ["PUT", "DELETE", "PATCH"].contains(&&**method);
                    assert!(!allows || !rule.request.methods.is_empty(), "{name}");
                    assert!(
                        !allows || !rule.request.methods.iter().any(writes),
                        "{name}"
                    );
                    let posts = rule.request.methods.contains(&"POST".to_owned());
                    assert!(
                        !posts || !rule.request.paths.contains(&"/**".to_owned()),
                        "{name}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_row_is_a_rule_or_a_preset() {
        for good in [
            "host = 'a.example'\naction = 'allow'",
            "host = 'a.example:443'\naction = 'deny'\nmethods = ['OPTIONS']\npaths = ['/', '/*/b/**']\nwhy = 'w'",
            "host = 'a.example'\naction = 'ask'",
            "preset = 'npm-read'",
            "preset = 'npm-read'\nhost = 'npm.corp'",
            "host = 'a.example'\ntls = 'pass'",
        ] {
            assert!(rows(&row(good)).is_ok(), "{good}");
        }
        for (wrong, want) in [
            ("host = 'a.example'", "has `host` and `action`"),
            ("action = 'deny'", "has `host` and `action`"),
            (
                "host = 'a.example'\naction = ''",
                "\"allow\", \"ask\" or \"deny\"",
            ),
            ("host = '*.example'\naction = 'deny'", "one NAME"),
            ("host = '1.2.3.4'\naction = 'deny'", "one NAME"),
            ("host = 'A.example'\naction = 'deny'", "one NAME"),
            (
                "host = 'a.example'\naction = 'deny'\npaths = ['a']",
                "begins with `/`",
            ),
            (
                "host = 'a.example'\naction = 'deny'\npaths = ['/a?b']",
                "begins with `/`",
            ),
            (
                "host = 'a.example'\naction = 'deny'\npaths = ['/%2e']",
                "begins with `/`",
            ),
            ("host = 'a.example'\naction = 'deny'\npaths = []", "1 to"),
            ("host = 'a.example'\naction = 'deny'\nmethods = []", "1 to"),
            (
                "host = 'a.example'\naction = 'deny'\nmethods = ['get']",
                "capital",
            ),
            (
                "host = 'a.example'\naction = 'deny'\nmethods = ['TRACE']",
                "TRACE",
            ),
            ("host = 'a.example'\naction = 'deny'\nwhy = ''", "`why`"),
            (
                "host = 'a.example'\naction = 'deny'\nwhy = \"a\\nb\"",
                "`why`",
            ),
            ("host = 'a.example'\ntls = 'end'", "`tls` is \"pass\""),
            (
                "host = 'a.example'\ntls = 'pass'\naction = 'allow'",
                "beside `tls`",
            ),
            (
                "host = 'a.example'\ntls = 'pass'\nwhy = 'w'",
                "beside `tls`",
            ),
            ("preset = 'npm-read'\ntls = 'pass'", "beside `tls`"),
            ("tls = 'pass'", "beside `tls`"),
            ("preset = 'nmp-read'", "no preset `nmp-read`"),
            ("preset = 'npm-read'\naction = 'allow'", "beside `preset`"),
            ("preset = 'npm-read'\npaths = ['/']", "beside `preset`"),
            (
                "host = 'a.example'\naction = 'deny'\nother = 1",
                "unknown field",
            ),
        ] {
            let fault = rows(&row(wrong)).unwrap_err();
            assert!(fault.contains(want), "{wrong}: {fault}");
        }
    }

    #[test]
    fn host_that_passes_is_named_by_no_rule_and_no_credential() {
        let pass = |host: &str| row(&format!("host = '{host}'\ntls = 'pass'"));
        let deny = |host: &str| row(&format!("host = '{host}'\naction = 'deny'"));
        let hosts = allow("['*']");
        let rules = |own: &str, bound: &str| {
            HttpRules::new(&placed(own), &hosts, vec![placed(bound)]).map(|rules| rules.0.len())
        };
        assert_eq!(rules(&pass("a.example"), &deny("b.example")), Ok(1));
        assert_eq!(rules(&pass("a.example:443"), &deny("a.example:80")), Ok(1));
        for (one, other) in [
            (pass("a.example"), deny("a.example")),
            (pass("a.example:443"), deny("a.example")),
            (pass("a.example"), deny("a.example:8443")),
            (pass("registry.npmjs.org"), row("preset = 'npm-read'")),
        ] {
            // Whichever of them the file says, and also in one list.
            for refused in [
                rules(&one, &other),
                rules(&other, &one),
                rules(&(one.clone() + &other), "http = []"),
            ] {
                assert!(
                    matches!(refused, Err(HttpRulesError::RulePassed { .. })),
                    "{one} {other}: {refused:?}"
                );
            }
        }
        let passed = PassedHosts::of(&placed(&pass("a.example:443")), &[]);
        let check = |hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            passed.check_credential("own", &hosts)
        };
        assert_eq!(check(&["b.example:443", "a.example:80"]), Ok(()));
        let refused = check(&["b.example:443", "a.example:443"]);
        assert!(
            matches!(refused, Err(HttpRulesError::CredentialPassed { .. })),
            "{refused:?}"
        );
        let elsewhere =
            HttpRules::new(&placed(&pass("a.example")), &allow("['b.example']"), vec![]);
        assert!(matches!(elsewhere, Err(HttpRulesError::Host { .. })));
    }

    #[test]
    fn the_parts_of_a_rule_are_bounded() {
        let of = |key: &str, one: &str, count: usize| {
            let list = vec![format!("'{one}'"); count].join(",");
            rows(&row(&format!(
                "host = 'a.example'\naction = 'deny'\n{key} = [{list}]"
            )))
            .is_ok()
        };
        assert!(of("paths", "/a", limit::RULE_PATHS) && !of("paths", "/a", limit::RULE_PATHS + 1));
        let methods = limit::RULE_METHODS;
        assert!(of("methods", "GET", methods) && !of("methods", "GET", methods + 1));
        let longest = format!("/{}", "a".repeat(limit::RULE_PATH - 1));
        assert!(of("paths", &longest, 1) && !of("paths", &format!("{longest}a"), 1));
        let longest = "A".repeat(limit::METHOD);
        assert!(of("methods", &longest, 1) && !of("methods", &format!("{longest}A"), 1));
        let why = |length: usize| {
            let text = "w".repeat(length);
            rows(&row(&format!(
                "host = 'a.example'\naction = 'deny'\nwhy = '{text}'"
            )))
            .is_ok()
        };
        assert!(why(limit::RULE_WHY) && !why(limit::RULE_WHY + 1));
    }

    #[test]
    fn a_rule_of_a_profile_is_for_one_of_its_hosts() {
        let new = |hosts: &str, text: &str| {
            HttpRules::new(&placed(&row(text)), &allow(hosts), vec![]).map(drop)
        };
        let rule = |host: &str| format!("host = '{host}'\naction = 'deny'");
        for (hosts, host, fits) in [
            ("['a.example:443']", "a.example", true),
            ("['a.example:443']", "a.example:443", true),
            ("['a.example:443']", "a.example:80", false),
            ("['a.example']", "a.example:80", true),
            ("['*.example']", "a.example", true),
            ("['*']", "a.example", true),
            ("['b.example']", "a.example", false),
            ("[]", "a.example", false),
        ] {
            assert_eq!(new(hosts, &rule(host)).is_ok(), fits, "{hosts} {host}");
        }
        assert!(new("['pypi.org:443']", "preset = 'pypi-read'").is_ok());
        assert!(new("['a.example']", "preset = 'pypi-read'").is_err());
        assert!(new("['a.example']", "preset = 'pypi-read'\nhost = 'a.example'").is_ok());
        // What has no public address is opened by its own list.
        let private: WebTable =
            toml::from_str("private = ['a.example:443', '10.0.0.0/8']").unwrap();
        for (host, fits) in [
            ("a.example", true),
            ("a.example:80", false),
            ("b.example", false),
        ] {
            let rules = HttpRules::new(&placed(&row(&rule(host))), &private, vec![]);
            assert_eq!(rules.is_ok(), fits, "{host}");
        }
        // A file bounds hosts that some profile may have.
        let bound = vec![placed(&row(&rule("b.example")))];
        assert!(HttpRules::new(&[], &allow("[]"), bound).is_ok());
    }

    #[test]
    fn the_rules_of_a_session_are_bounded() {
        let new = |count: usize, path: usize| {
            let paths = format!("'/{}'", "a".repeat(path));
            let one = row(&format!(
                "host = 'a.example'\naction = 'deny'\npaths = [{paths}]"
            ));
            HttpRules::new(&placed(&one.repeat(count)), &allow("['*']"), vec![]).map(drop)
        };
        let most = limit::REQUEST_RULES;
        assert_eq!(new(most, 1), Ok(()));
        assert_eq!(new(most + 1, 1), Err(HttpRulesError::TooMany));
        let path = limit::RULE_PATH - 1;
        let each = RULE_BYTES_MAX / (path + 1 + 8 + "a.example".len() + 8 + 8 + 64);
        assert_eq!(new(each, path), Ok(()));
        assert_eq!(new(each + 1, path), Err(HttpRulesError::TooMany));
    }
}
