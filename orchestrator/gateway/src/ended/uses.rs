//! Which requests may use a credential, and which are refused.

use super::percent;
use broker_protocol::gateway::CredentialUse;
use hyper::header::HeaderMap;

/// How often a path is decoded before it is compared with what is refused: a server may decode it more often than once.
const DECODED: usize = 3;
/// Headers by which some servers are told another method than the one that is sent.
const OVERRIDES: [&str; 3] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
];

/// A request, as uses are written.
pub struct Wanted<'a> {
    pub place: &'a str,
    pub path: &'a str,
    methods: Vec<String>,
}

impl<'a> Wanted<'a> {
    /// The request of this head.
    pub fn new(place: &'a str, method: &str, path: &'a str, headers: &HeaderMap) -> Self {
        let mut methods = vec![method.to_owned()];
        for name in OVERRIDES {
            let values = headers.get_all(name).iter();
            methods.extend(values.map(|value| {
                String::from_utf8_lossy(value.as_bytes())
                    .trim()
                    .to_ascii_uppercase()
            }));
        }
        Self {
            place,
            path,
            methods,
        }
    }

    /// Whether it is one of `uses`, and whether that is one that needs no placeholder.
    pub fn fits(&self, uses: &[CredentialUse]) -> Option<Unasked> {
        if !is_plain(self.path) {
            return None;
        }
        let fitting = |one: &&CredentialUse| {
            !one.refused
                && self.is_at(one)
                && self.methods.iter().all(|method| names(one, method))
                && matches(&one.path, self.path)
        };
        let unasked: Vec<bool> = uses.iter().filter(fitting).map(|one| one.unasked).collect();
        (!unasked.is_empty()).then(|| Unasked(unasked.contains(&true)))
    }

    /// Whether `uses` refuse it, however its path is spelled.
    pub fn is_refused(&self, uses: &[CredentialUse]) -> bool {
        let spellings = spellings(self.path);
        uses.iter().any(|one| {
            one.refused
                && self.is_at(one)
                && self.methods.iter().any(|method| names(one, method))
                && spellings
                    .iter()
                    .any(|path| matches(&one.path.to_ascii_lowercase(), path))
        })
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

/// Whether a request gets the credential although it has no placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unasked(pub bool);

fn names(one: &CredentialUse, method: &str) -> bool {
    if one.methods.is_empty() {
        !matches!(method, "TRACE" | "CONNECT" | "OPTIONS")
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
            let is_dots = |part: &str| matches!(part, "." | "..");
            let holds_dots = decoded
                .split(['/', '\\'])
                .any(|inner| is_dots(inner.split(';').next().unwrap_or(inner)));
            !part.is_empty() && !holds_dots && !decoded.contains(['\\', '\0'])
        })
}

/// The forms in which a server may read `path`: decoded, without empty parts and dots, in lower case.
fn spellings(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    for times in 0..=DECODED {
        let text = decoded(path, times).replace('\\', "/").to_ascii_lowercase();
        for cut in [false, true] {
            let mut parts: Vec<&str> = Vec::new();
            for part in text.split('/') {
                // Parameters of one part, which some servers drop.
                let part = match part.split_once(';') {
                    Some((part, _)) if cut => part,
                    Some(_) | None => part,
                };
                match part {
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
    String::from_utf8_lossy(&bytes).into_owned()
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
        }
    }

    fn fits(uses: &[CredentialUse], method: &str, path: &str) -> bool {
        let headers = HeaderMap::new();
        Wanted::new("a.example:443", method, path, &headers)
            .fits(uses)
            .is_some()
    }

    fn refused(uses: &[CredentialUse], method: &str, path: &str) -> bool {
        let headers = HeaderMap::new();
        Wanted::new("a.example:443", method, path, &headers).is_refused(uses)
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
    fn a_header_that_names_another_method_counts_as_that_method() {
        let uses = [used("GET", "/a", false), used("POST", "/user/keys", true)];
        let mut headers = HeaderMap::new();
        headers.insert("x-http-method-override", "post".parse().unwrap());
        let wanted = |path| Wanted::new("a.example:443", "GET", path, &headers);
        assert!(wanted("/a").fits(&uses).is_none());
        assert!(wanted("/user/keys").is_refused(&uses));
    }

    #[test]
    fn a_use_of_one_host_is_none_at_another() {
        let mut one = used("", "/**", false);
        one.host = Some("b.example:443".into());
        assert!(!fits(std::slice::from_ref(&one), "GET", "/x"));
        one.host = Some("A.example:443".into());
        assert!(fits(&[one], "GET", "/x"));
    }
}
