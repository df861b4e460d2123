//! Which requests may use a credential, and which are refused.

use broker_protocol::gateway::{CredentialUse, RequestRule};
use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName};
use orchestrator_aws::Operations;
use orchestrator_http::percent;

/// How often a path is decoded before it is compared with what is refused: a server may decode it more often than once.
const DECODED: usize = 3;
/// Headers by which some servers are told another method than the one that is sent. Some read `_` as `-`.
const METHODS: [&str; 11] = [
    "-method",
    "request-method",
    "x-forwarded-method",
    "x-gdata-method",
    "x-goog-method-override",
    "x-http-method",
    "x-http-method-override",
    "x-http-verb",
    "x-method-override",
    "x-original-method",
    "x-requested-method",
];
/// The parameter of a query by which they are, too, as Rails, Laravel and Symfony have it.
const METHOD_PARAMETER: &str = "_method";
/// Parameters that mean it where their value is a method.
const METHOD_PARAMETERS: [&str; 5] = [
    "_httpmethod",
    "http_method",
    "httpmethod",
    "method",
    "x_http_method_override",
];
/// Headers by which some servers are told another path, or that a part of it is none. gunicorn believes those of CGI; by `Destination`
/// WebDAV changes a second one.
const PATHS: [&str; 22] = [
    "destination",
    "path-info",
    "path-translated",
    "request-uri",
    "script-name",
    "unencoded-url",
    "x-envoy-original-path",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-uri",
    "x-http-destinationurl",
    "x-invoke-path",
    "x-matched-path",
    "x-ms-original-url",
    "x-original-path",
    "x-original-uri",
    "x-original-url",
    "x-path-info",
    "x-request-path",
    "x-rewrite-url",
    "x-script-name",
    "x-waws-unencoded-url",
];

/// Ends of headers that name another path or a second one.
const BESIDE: [&str; 6] = [
    "-copy-from",
    "-copy-source",
    "-object-manifest",
    "-rename-source",
    "-symlink-target",
    "-override-url",
];
/// Headers of S3 for the same, which are looked at where requests are signed.
const COPIED: [&str; 2] = ["x-amz-copy-source", "x-amz-rename-source"];

/// A request, as uses are written.
pub struct RequestedUse<'a> {
    pub place: &'a str,
    pub path: &'a str,
    /// As it is sent, and those that servers may take instead.
    methods: Vec<String>,
    /// Paths that servers may take instead, or beside it.
    paths: Vec<String>,
    /// Objects of S3 that it names beside it. Who signs the request looks at them.
    copied: bool,
    /// The service of AWS that it is signed for, and the operations.
    signed: Option<(&'a str, &'a Operations)>,
}

impl<'a> RequestedUse<'a> {
    /// The request of this head.
    pub fn new(place: &'a str, method: &str, uri: &'a Uri, headers: &HeaderMap) -> Self {
        let said = |is_one: fn(&HeaderName) -> bool| {
            let headers = headers.iter().filter(move |(name, _)| is_one(name));
            headers.map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let query = decoded(uri.query().unwrap_or_default(), DECODED);
        let parameters = query.split(['&', ';']).filter_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            is_of_method(name, value).then(|| value.to_owned())
        });
        let instead = said(is_method).chain(parameters);
        let instead: Vec<String> = instead
            .flat_map(|value| {
                let names = value
                    .split(',')
                    .map(|name| name.trim().to_ascii_uppercase());
                names.collect::<Vec<_>>()
            })
            .collect();
        Self {
            place,
            path: uri.path(),
            methods: [vec![method.to_owned()], instead].concat(),
            paths: said(is_path).collect(),
            copied: headers.keys().any(|name| is_among(name, &COPIED)),
            signed: None,
        }
    }

    /// The same request, signed for a service.
    pub fn signed_for(mut self, service: &'a str, operations: &'a Operations) -> Self {
        self.signed = Some((service, operations));
        self
    }

    /// Whether it is one of `uses`, and whether that is one that needs no placeholder.
    pub fn fits(&self, uses: &[CredentialUse]) -> Option<Unasked> {
        // Methods are written in upper case (RFC 9110, section 9.1); some servers take others for them.
        let is_upper = |method: &String| method.bytes().all(|byte| byte.is_ascii_uppercase());
        if !is_plain(self.path) || self.has_other_paths() || !self.methods.iter().all(is_upper) {
            return None;
        }
        let fitting = |one: &&CredentialUse| self.may_use(one) && matches(&one.path, self.path);
        let unasked: Vec<bool> = uses.iter().filter(fitting).map(|one| one.unasked).collect();
        (!unasked.is_empty()).then(|| Unasked(unasked.contains(&true)))
    }

    /// Whether a use allows it, if its path is one of that use's.
    fn may_use(&self, one: &CredentialUse) -> bool {
        !one.refused
            && self.is_at(one)
            && self.is_signed_for(one)
            && self.methods.iter().all(|method| names(one, method))
    }

    /// Whether `uses` allow it, in whichever form a server reads its path.
    fn fits_in_all_forms(&self, uses: &[CredentialUse]) -> bool {
        let fits = |path: &String| {
            let mut uses = uses.iter();
            uses.any(|one| self.may_use(one) && matches(&one.path, path))
        };
        self.fits(uses).is_some() && readings(self.path).iter().all(fits)
    }

    /// The use that refuses it, however its path is spelled.
    pub fn refused<'u>(&self, uses: &'u [CredentialUse]) -> Option<&'u CredentialUse> {
        let paths = self.paths.iter().map(String::as_str);
        let spellings: Vec<String> = paths.chain([self.path]).flat_map(spellings).collect();
        let methods = self
            .methods
            .iter()
            .map(|method| method.to_ascii_uppercase());
        let methods: Vec<String> = methods.collect();
        let refuses = |one: &&CredentialUse| {
            one.refused
                && self.is_at(one)
                && self.may_be_signed_for(one)
                && methods.iter().any(|method| names(one, method))
                && spellings
                    .iter()
                    .any(|path| matches(&folded(&one.path), path))
        };
        let mut all = uses.iter().filter(refuses);
        let always = all.clone().find(|one| !one.otherwise);
        always.or_else(|| all.next().filter(|_| !self.fits_in_all_forms(uses)))
    }

    fn has_other_paths(&self) -> bool {
        !self.paths.is_empty() || self.copied && self.signed.is_none()
    }

    pub fn method(&self) -> &str {
        self.methods.first().map_or("", String::as_str)
    }

    /// Whether a rule that allows fits it, in whichever of these forms a server reads it.
    pub fn is_allowed_by(&self, rule: &RequestRule) -> bool {
        let is_named = |method: &String| match rule.methods.is_empty() {
            true => !OFF.contains(&method.as_str()),
            false => rule.methods.contains(method),
        };
        let fits = |path: &String| {
            let mut paths = rule.paths.iter();
            rule.paths.is_empty() || paths.any(|pattern| matches(pattern, path))
        };
        is_plain(self.path)
            && !self.has_other_paths()
            && self.methods.iter().all(is_named)
            && readings(self.path).iter().all(fits)
    }

    /// Whether a rule that denies fits it, in any of these forms.
    pub fn is_denied_by(&self, rule: &RequestRule) -> bool {
        let methods = self
            .methods
            .iter()
            .map(|method| method.to_ascii_uppercase());
        let named = methods
            .into_iter()
            .any(|method| rule.methods.is_empty() || rule.methods.contains(&method));
        let instead = self.paths.iter().map(String::as_str);
        let forms: Vec<String> = instead.chain([self.path]).flat_map(spellings).collect();
        let patterns = rule.paths.iter().map(|pattern| folded(pattern));
        let patterns: Vec<String> = patterns
            .map(|pattern| match pattern.trim_end_matches('/') {
                "" => "/".to_owned(),
                trimmed => trimmed.to_owned(),
            })
            .collect();
        let fits = |path: &String| patterns.iter().any(|pattern| matches(pattern, path));
        named && (patterns.is_empty() || forms.iter().any(fits))
    }

    /// Whether it is for the service of a use that allows, and for its operations alone.
    fn is_signed_for(&self, one: &CredentialUse) -> bool {
        match (&one.service, self.signed) {
            (None, _) => one.actions.is_empty(),
            (Some(_), None) => false,
            (Some(service), Some((signed, operations))) => {
                let is_named = |name| one.actions.contains(name);
                let names = &operations.names;
                let is_one = operations.is_known && !names.is_empty() && names.iter().all(is_named);
                service == signed && (one.actions.is_empty() || is_one)
            }
        }
    }

    /// Whether it is for the service of a use that refuses, and may be for one of its operations.
    fn may_be_signed_for(&self, one: &CredentialUse) -> bool {
        match (&one.service, self.signed) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(service), Some((signed, operations))) => {
                let is =
                    |name: &String| one.actions.iter().any(|own| own.eq_ignore_ascii_case(name));
                let may_be = !operations.is_known || operations.names.iter().any(is);
                service == signed && (one.actions.is_empty() || may_be)
            }
        }
    }

    fn is_at(&self, one: &CredentialUse) -> bool {
        one.host.as_ref().is_none_or(|host| {
            host.eq_ignore_ascii_case(self.place)
                || self
                    .place
                    .rsplit_once(':')
                    .is_some_and(|(name, _)| host.eq_ignore_ascii_case(name))
        })
    }
}

/// Whether a header names another method or path than a request's own, as some servers read it.
pub fn names_other_request(name: &HeaderName) -> bool {
    is_method(name) || is_path(name)
}

fn is_method(name: &HeaderName) -> bool {
    is_among(name, &METHODS)
}

fn is_path(name: &HeaderName) -> bool {
    is_among(name, &PATHS) || is_beside(name)
}

/// Whether a header names an object that the request copies, moves or stands for, as stores of objects have it.
fn is_beside(name: &HeaderName) -> bool {
    let name = name.as_str().replace('_', "-");
    !COPIED.contains(&&*name) && BESIDE.iter().any(|end| name.ends_with(end))
}

fn is_among(name: &HeaderName, names: &[&str]) -> bool {
    names.contains(&&*name.as_str().replace('_', "-"))
}

/// A text without differences of case and width, as the most lenient servers compare: by capital letters too, as `ſ` has `S`.
fn folded(text: &str) -> String {
    let upper = text.chars().map(narrow).flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).collect()
}

/// The ASCII character that is as wide as two in East Asian texts (Unicode, "Halfwidth and Fullwidth Forms").
fn narrow(one: char) -> char {
    let ascii = u32::from(one).checked_sub(0xfee0);
    let is_wide = ('\u{ff01}'..='\u{ff5e}').contains(&one);
    ascii
        .filter(|_| is_wide)
        .and_then(char::from_u32)
        .unwrap_or(one)
}

/// Whether a server may take its method from this parameter of a query. PHP drops spaces before a name and what follows a zero byte, and reads
/// other characters as `_`.
fn is_of_method(name: &str, value: &str) -> bool {
    let name = name.split('\0').next().unwrap_or_default();
    let name = name.trim_start_matches(|one: char| one == '+' || one.is_whitespace());
    let name = name.to_ascii_lowercase();
    let name = name.replace(['.', '[', '-', '+', ' '], "_");
    let is_method = || {
        let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
        let is = |one: &&str| value.trim().eq_ignore_ascii_case(one);
        known.iter().chain(&OFF).any(is)
    };
    name == METHOD_PARAMETER || METHOD_PARAMETERS.contains(&&*name) && is_method()
}

/// Whether a request gets the credential although it has no placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unasked(pub bool);

/// Methods that only who names them means.
pub const OFF: [&str; 5] = ["TRACE", "TRACK", "DEBUG", "CONNECT", "OPTIONS"];

fn names(one: &CredentialUse, method: &str) -> bool {
    if one.methods.is_empty() {
        !OFF.contains(&method)
    } else {
        one.methods.iter().any(|named| named == method)
    }
}

/// Whether all servers read this path alike: no part of it is empty, `.` or `..`, or holds a separator, however it is encoded.
fn is_plain(path: &str) -> bool {
    let Some(parts) = path.strip_prefix('/') else {
        return false;
    };
    let parts = parts.strip_suffix('/').unwrap_or(parts);
    path == "/"
        || parts.split('/').all(|part| {
            let decoded = decoded(part, DECODED);
            let holds_dots = decoded
                .split(['/', '\\'])
                .any(|inner| matches!(PathReading::Bare.read(inner).trim_start(), "." | ".."));
            !part.is_empty() && !holds_dots && !decoded.contains(['\\', '\0'])
        })
}

/// How a server may read a part of a path.
#[derive(Clone, Copy)]
enum PathReading {
    AsItIs,
    /// Without its parameters, and without spaces at its end.
    Bare,
    /// Without dots at its end, too.
    Trimmed,
    /// Without a format's extension, too.
    WithoutExtension,
}

impl PathReading {
    const ALL: [Self; 4] = [
        Self::AsItIs,
        Self::Bare,
        Self::Trimmed,
        Self::WithoutExtension,
    ];

    fn read(self, part: &str) -> &str {
        let cut = part.split([';', '?', '#', '&', '\0']).next();
        // A byte that is no text is one of those in another charset.
        let is_space = |one: char| {
            one.is_whitespace() || one.is_control() || matches!(one, '\u{feff}' | '\u{fffd}')
        };
        let bare = cut.unwrap_or_default().trim_end_matches(is_space);
        let trimmed = || bare.trim_end_matches(|one| one == '.' || is_space(one));
        match self {
            Self::AsItIs => part,
            Self::Bare => bare,
            Self::Trimmed | Self::WithoutExtension if matches!(part, "." | "..") => part,
            Self::Trimmed => trimmed(),
            Self::WithoutExtension => match trimmed().rsplit_once('.') {
                Some((name, _)) if !name.is_empty() => name,
                Some(_) | None => trimmed(),
            },
        }
    }
}

/// The forms in which a server may read a path that [`is_plain`]: decoded, without what some drop of its parts.
fn readings(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    for times in 0..=DECODED {
        let text = decoded(path, times);
        for reading in [PathReading::AsItIs, PathReading::Trimmed] {
            let mut parts = text.split('/').map(|part| reading.read(part)).peekable();
            let mut form = String::new();
            parts.next();
            while let Some(part) = parts.next() {
                // Empty at the end only, where a slash has a meaning of its own.
                if !part.is_empty() || parts.peek().is_none() {
                    form.extend(["/", part]);
                }
            }
            if !all.contains(&form) {
                all.push(form);
            }
        }
    }
    all
}

/// The forms in which a server may read `path`: decoded, without empty parts and dots, [`folded`].
fn spellings(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    for times in 0..=DECODED {
        let text = folded(&decoded(path, times).replace('\\', "/"));
        for reading in PathReading::ALL {
            let mut parts: Vec<&str> = Vec::new();
            for part in text.split('/') {
                match reading.read(part) {
                    "" | "." => {}
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            let spelling = format!("/{}", parts.join("/"));
            if !all.contains(&spelling) {
                all.push(spelling);
            }
        }
    }
    all
}

fn decoded(text: &str, times: usize) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..times {
        let next = percent::decoded(&bytes);
        if next == bytes {
            break;
        }
        bytes = next;
    }
    String::from_utf8_lossy(&shortest(&bytes)).into_owned()
}

/// ASCII in place of longer forms of it, which no UTF-8 has and some servers read.
fn shortest(mut bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    loop {
        let (one, rest) = match bytes {
            [first @ (0xc0 | 0xc1), last @ 0x80..0xc0, rest @ ..] => {
                ((first & 1) << 6 | last & 0x3f, rest)
            }
            [0xe0, high @ (0x80 | 0x81), last @ 0x80..0xc0, rest @ ..] => {
                ((high & 1) << 6 | last & 0x3f, rest)
            }
            [one, rest @ ..] => (*one, rest),
            [] => return all,
        };
        all.push(one);
        bytes = rest;
    }
}

/// Whether a path is as `pattern` says: `*` stands for one part, a final `/**` for any rest.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, open) = match pattern.strip_suffix("/**") {
        Some(pattern) => (pattern, true),
        None => (pattern, false),
    };
    let (mut wanted, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), parts.next()) {
            (Some("*"), Some(part)) if !part.is_empty() => {}
            (Some(wanted), Some(part)) if wanted == part => {}
            (None, None) => return true,
            (None, Some(_)) => return open,
            (Some(_), _) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(method: &str, path: &str, refused: bool) -> CredentialUse {
        CredentialUse {
            host: None,
            methods: if method.is_empty() {
                vec![]
            } else {
                vec![method.into()]
            },
            path: path.into(),
            unasked: false,
            refused,
            otherwise: false,
            why: None,
            service: None,
            actions: vec![],
        }
    }

    fn uses_of(preset: &str) -> Vec<CredentialUse> {
        let mut all = policies::credential_table::presets();
        let (_, preset) = all.find(|(name, _)| *name == preset).unwrap();
        preset.uses.iter().map(|one| one.request()).collect()
    }

    fn fits(uses: &[CredentialUse], method: &str, path: &str) -> bool {
        let headers = HeaderMap::new();
        RequestedUse::new("a.example:443", method, &path.parse().unwrap(), &headers)
            .fits(uses)
            .is_some()
    }

    fn refused(uses: &[CredentialUse], method: &str, path: &str) -> bool {
        let headers = HeaderMap::new();
        RequestedUse::new("a.example:443", method, &path.parse().unwrap(), &headers)
            .refused(uses)
            .is_some()
    }

    #[test]
    fn a_star_is_one_part_and_two_are_any_rest() {
        let uses = [
            used("GET", "/*/*/info/refs", false),
            used("", "/repos/**", false),
        ];
        for (method, path, want) in [
            ("GET", "/o/r.git/info/refs", true),
            ("POST", "/o/r.git/info/refs", false),
            ("GET", "/o//info/refs", false),
            ("GET", "/o/p/r.git/info/refs", false),
            ("POST", "/repos/o/r", true),
            ("GET", "/repos", true),
            ("GET", "/reposx", false),
            ("GET", "/repos/o/heads%2Fx", true),
            ("OPTIONS", "/repos/o/r", false),
            ("TRACE", "/repos/o/r", false),
        ] {
            assert_eq!(fits(&uses, method, path), want, "{method} {path}");
        }
    }

    #[test]
    fn a_path_that_servers_read_in_two_ways_is_no_use() {
        let uses = [used("", "/repos/**", false)];
        for path in [
            "/repos/../user/keys",
            "/repos/%2e%2e/user/keys",
            "/repos/.%2E/user/keys",
            "/repos/x%2F..%2F..%2Fuser",
            "/repos/%252e%252e/user",
            "/repos//x",
            "/repos/x\\y",
            "/repos/%5c..",
            "/repos/..;x/user",
            "*",
        ] {
            assert!(!fits(&uses, "GET", path), "{path}");
        }
    }

    #[test]
    fn every_spelling_of_a_refused_path_is_refused() {
        let uses = [
            used("POST", "/user/keys", true),
            used("", "/repos/**", false),
        ];
        for path in [
            "/user/keys",
            "/user/keys/",
            "//user/keys",
            "/User/Keys",
            "/user%2Fkeys",
            "/%75ser/keys",
            "/%2575ser/keys",
            "/repos/../user/keys",
            "/repos/%2e%2e/user/keys",
            "/user;x=1/keys",
            "/./user/keys",
        ] {
            assert!(refused(&uses, "POST", path), "{path}");
        }
        assert!(!refused(&uses, "GET", "/user/keys"));
        assert!(!refused(&uses, "POST", "/user/keys/1"));
    }

    #[test]
    fn request_that_no_use_allows_is_refused_in_every_form() {
        let rest = CredentialUse {
            methods: vec!["POST".into(), "PUT".into()],
            otherwise: true,
            ..used("", "/**", true)
        };
        let uses = [
            used("GET", "/**", false),
            used("PUT", "/repos/*/*/issues/**", false),
            used("POST", "/repos/*/*/issues/**", false),
            used("POST", "/repos/*/*/issues/lock", true),
            rest,
        ];
        for (method, path, want) in [
            ("POST", "/repos/o/r/issues", false),
            ("POST", "/repos/o/r/issues/1/a%20b", false),
            ("GET", "/repos/o/r/transfer", false),
            ("POST", "/repos/o/r/issues/lock", true),
            ("POST", "/repos/o/r/transfer", true),
            ("post", "/repos/o/r/issues", true),
            ("POST", "/repos/o/r/issues/../transfer", true),
            // It is a collaborator of the name `issues` to a server that decodes the path first.
            ("PUT", "/repos/o%2Fr/collaborators/issues", true),
        ] {
            assert_eq!(refused(&uses, method, path), want, "{method} {path}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-http-method-override", "POST".parse().unwrap());
        let uri = "/repos/o/r/transfer".parse().unwrap();
        let wanted = RequestedUse::new("a.example:443", "GET", &uri, &headers);
        assert!(wanted.refused(&uses).is_some());
    }

    #[test]
    fn operations_of_aws_are_signed_by_name() {
        let uses = uses_of("aws");
        let (headers, uri) = (HeaderMap::new(), "/".parse().unwrap());
        for (service, action, want) in [
            ("logs", "PutLogEvents", true),
            ("logs", "PutAccountPolicy", false),
            ("logs", "PutSubscriptionFilter", false),
            ("logs", "PutIntegration", false),
            ("sns", "Publish", true),
            ("sns", "Subscribe", false),
            ("sns", "ConfirmSubscription", false),
            ("sns", "SetSubscriptionAttributes", false),
            ("sqs", "SendMessage", true),
            ("sqs", "AddPermission", false),
            ("kinesis", "PutRecord", true),
            ("kinesis", "PutResourcePolicy", false),
            ("monitoring", "PutMetricData", true),
            ("monitoring", "PutMetricStream", false),
            ("dynamodb", "PutItem", true),
            ("dynamodb", "EnableKinesisStreamingDestination", false),
            // Of other services, for a host that does not look at the one that was signed for.
            ("logs", "PutUserPolicy", false),
            ("sns", "ResetServiceSpecificCredential", false),
            ("sqs", "Subscribe", false),
        ] {
            let operations = Operations {
                names: [action.to_owned()].into(),
                is_known: true,
            };
            let wanted = RequestedUse::new("a.example:443", "POST", &uri, &headers)
                .signed_for(service, &operations);
            let is_signed = wanted.refused(&uses).is_none() && wanted.fits(&uses).is_some();
            assert_eq!(is_signed, want, "{service} {action}");
        }
    }

    /// At Verdaccio the revision may be missing.
    #[test]
    fn packages_of_npm_are_not_taken_away_by_a_path() {
        let uses = uses_of("npm");
        for (method, path, want) in [
            ("PUT", "/victim", false),
            ("PUT", "/@scope/victim", false),
            ("PUT", "/@scope%2fvictim", false),
            ("PUT", "/victim/-rev/1-0", true),
            ("PUT", "/victim/-rev", true),
            ("PUT", "/victim/%2drev", true),
            ("PUT", "/victim/-rev/", true),
            ("PUT", "/@scope/victim/-rev", true),
            ("DELETE", "/@scope/victim/-rev/1-0", true),
            ("DELETE", "/victim/-/victim-1.0.0.tgz", true),
        ] {
            assert_eq!(refused(&uses, method, path), want, "{method} {path}");
        }
    }

    /// Each write of GitHub's REST interface, as its description lists them, and older names that it still answers.
    #[test]
    fn writes_that_the_preset_of_github_does_not_list_are_refused() {
        let uses = uses_of("github");
        let headers = HeaderMap::new();
        let judged = |method: &str, path: &str| {
            let uri = path.parse().unwrap();
            let wanted = RequestedUse::new("api.github.com:443", method, &uri, &headers);
            (
                wanted.refused(&uses).is_some(),
                wanted.fits(&uses).is_some(),
            )
        };
        let table = include_str!("github_writes.txt");
        for line in table.lines() {
            let [verdict, method, path] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let is_refused = verdict == "refused";
            let (refused, fits) = judged(method, &path.replace('*', "x"));
            assert_eq!(refused, is_refused, "{line}");
            assert!(refused || fits, "{line}");
        }
        assert!(table.lines().count() > 450);
        // What no description has.
        assert!(judged("POST", "/new").0 && judged("DELETE", "/repos/x/x/new/x").0);
        assert_eq!(judged("GET", "/repos/x/x/hooks"), (false, true));
        assert_eq!(judged("POST", "/graphql"), (false, true));
    }

    #[test]
    fn a_header_that_names_another_method_counts_as_that_method() {
        let uses = [used("GET", "/a", false), used("POST", "/user/keys", true)];
        let mut headers = HeaderMap::new();
        headers.insert("x-http-method-override", "post".parse().unwrap());
        let (a, keys) = ("/a".parse().unwrap(), "/user/keys".parse().unwrap());
        let wanted = |uri| RequestedUse::new("a.example:443", "GET", uri, &headers);
        assert!(wanted(&a).fits(&uses).is_none());
        assert!(wanted(&keys).refused(&uses).is_some());
    }

    #[test]
    fn other_names_for_a_method_or_a_path_count_as_these() {
        let uses = [used("", "/**", false), used("POST", "/user/keys", true)];
        let one = |method: &str, uri: &str, header: Option<(&'static str, &str)>| {
            let mut headers = HeaderMap::new();
            if let Some((name, value)) = header {
                headers.insert(name, value.parse().unwrap());
            }
            let uri = uri.parse().unwrap();
            let wanted = RequestedUse::new("a.example:443", method, &uri, &headers);
            (
                wanted.refused(&uses).is_some(),
                wanted.fits(&uses).is_some(),
            )
        };
        for (method, uri, header) in [
            ("post", "/user/keys", None),
            ("Post", "/user/keys", None),
            ("GET", "/user/keys?_method=post", None),
            ("GET", "/user/keys?a=1&%5fmethod=POST", None),
            ("GET", "/user/keys?+_method=POST", None),
            ("GET", "/user/keys?%20.method=POST", None),
            ("GET", "/user/keys?[method=POST", None),
            ("GET", "/user/keys?_method%00x=POST", None),
            ("GET", "/user/keys?_HttpMethod=POST", None),
            ("GET", "/user/keys?httpMethod=post", None),
            ("GET", "/user/keys?method=post", None),
            ("GET", "/user/keys?X-HTTP-Method-Override=POST", None),
            ("GET", "/user/..%20/user/keys?_method=POST", None),
            (
                "GET",
                "/user/keys",
                Some(("x_http_method_override", "POST")),
            ),
            ("GET", "/user/keys", Some(("x-http-method", "GET, post"))),
            ("POST", "/a", Some(("x-original-url", "/user/keys"))),
            ("POST", "/a", Some(("x-rewrite-url", "/user/keys?x"))),
            // Longer forms of `/` and of letters.
            ("POST", "/a/..%c0%afuser/keys", None),
            ("POST", "/a/..%e0%80%afuser/keys", None),
            ("POST", "/user/%c1%abeys", None),
            ("POST", "/user/%ef%bd%8beys", None),
            // What `ſ` and the Kelvin sign are without case.
            ("POST", "/u%c5%bfer/keys", None),
            ("POST", "/user/%e2%84%aaeys", None),
        ] {
            let (refused, _) = one(method, uri, header);
            assert!(refused, "{method} {uri} {header:?}");
        }
        for (method, uri, header) in [
            ("get", "/a", None),
            ("TRACK", "/a", None),
            ("GET", "/a", Some(("x-original-url", "/b"))),
            ("GET", "/a", Some(("script_name", "/b"))),
            ("COPY", "/a", Some(("destination", "/b"))),
            ("PUT", "/a", Some(("x-copy-from", "/b"))),
            ("PUT", "/a", Some(("x-ms-rename-source", "/b"))),
            ("PUT", "/a", Some(("x-amz-copy-source", "/b"))),
            ("GET", "/a", Some(("x-forwarded-prefix", "/b"))),
        ] {
            assert_eq!(
                one(method, uri, header),
                (false, false),
                "{method} {uri} {header:?}"
            );
        }
        for control in ["/a?method=fast", "/a?methods=POST", "/a?a_method=POST"] {
            assert_eq!(one("GET", control, None), (false, true), "{control}");
        }
        for dots in ["/a/..%20/b", "/a/..%09/b", "/a/%20../b", "/a/.%20/b"] {
            assert_eq!(one("GET", dots, None), (false, false), "{dots}");
        }
    }

    #[test]
    fn a_refusal_holds_for_what_servers_drop_from_a_path() {
        let uses = [used("POST", "/user/keys", true)];
        for end in [
            "%20",
            "%09",
            "%0a",
            "%a0",
            "%ef%bb%bf",
            ".",
            "%2e",
            ".json",
            "%3fx",
            "%23",
            "%253fx",
            "%26x",
            ";a=1",
            "/",
        ] {
            let path = format!("/user/keys{end}");
            assert!(refused(&uses, "POST", &path), "{path}");
        }
        assert!(!refused(&uses, "POST", "/user/keysx"));
    }

    #[test]
    fn use_of_one_host_does_not_apply_to_another() {
        let mut one = used("", "/**", false);
        one.host = Some("b.example:443".into());
        assert!(!fits(std::slice::from_ref(&one), "GET", "/x"));
        one.host = Some("A.example:443".into());
        assert!(fits(&[one], "GET", "/x"));
    }
}
