//! Rules for requests: whether one goes to its host at all. Whoever reads a request differently than we do must not get what no rule
//! allows, so a rule that allows fits each form in which a server may read a request, and a rule that denies any of them.

use super::refusal::RequestRefusal;
use broker_protocol::gateway::{RequestRule, RuleAction};
use orchestrator_effects::RequestedUse;

/// Most characters of a path in a refusal.
const SHOWN: usize = 128;

/// The rules of one host, in the lists of a session: each list must allow a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Vec<Vec<NumberedRule>>);

/// A rule with its place in all lists of the session together.
type NumberedRule = (u16, RequestRule);

impl Rules {
    /// Those that name `host`, at whatever port.
    pub(super) fn of(lists: &[Vec<RequestRule>], host: &str) -> Self {
        let mut numbers = 0..;
        let own = lists.iter().map(|list| {
            let rules = list.iter().zip(numbers.by_ref());
            let rules = rules.filter(|(rule, _)| rule.host == host);
            rules
                .map(|(rule, number)| (number, rule.clone()))
                .collect::<Vec<_>>()
        });
        Self(own.filter(|list| !list.is_empty()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Judges a request to `port`. Returns the rules that ask about it, of each list one at most.
    ///
    /// # Errors
    /// A rule denies it, or a list that names its host has no rule for it.
    pub(super) fn judge(
        &self,
        wanted: &RequestedUse,
        port: u16,
    ) -> Result<Vec<&NumberedRule>, RequestRefusal> {
        let judged = self.0.iter().map(|list| judge_by(list, wanted, port));
        let asking: Result<Vec<_>, _> = judged.collect();
        Ok(asking?.into_iter().flatten().collect())
    }
}

/// Judges a request by one list. Returns the rule that asks about it.
fn judge_by<'r>(
    list: &'r [NumberedRule],
    wanted: &RequestedUse,
    port: u16,
) -> Result<Option<&'r NumberedRule>, RequestRefusal> {
    let is_here = |rule: &&NumberedRule| rule.1.port.is_none_or(|own| own == port);
    for numbered @ (_, rule) in list.iter().filter(is_here) {
        match rule.action {
            RuleAction::Allow if wanted.is_allowed_by(rule) => return Ok(None),
            RuleAction::Deny if wanted.is_denied_by(rule) => return Err(denied(wanted, rule)),
            // A server may read it as what is asked about, and no question could say what it is.
            RuleAction::Ask if wanted.is_denied_by(rule) => {
                return match wanted.is_allowed_by(rule) {
                    true => Ok(Some(numbered)),
                    false => Err(without_rule(wanted, rule)),
                };
            }
            RuleAction::Allow | RuleAction::Ask | RuleAction::Deny => {}
        }
    }
    // A list without a rule for the host is none of these.
    let first = list.first();
    first.map_or(Ok(None), |(_, first)| Err(without_rule(wanted, first)))
}

fn denied(wanted: &RequestedUse, rule: &RequestRule) -> RequestRefusal {
    RequestRefusal::Denied {
        place: wanted.place.to_owned(),
        method: beginning(wanted.method()),
        path: beginning(wanted.path),
        at: rule.name.clone(),
        why: rule.why.clone(),
    }
}

fn without_rule(wanted: &RequestedUse, first: &RequestRule) -> RequestRefusal {
    RequestRefusal::NoRule {
        place: wanted.place.to_owned(),
        method: beginning(wanted.method()),
        path: beginning(wanted.path),
        at: first.name.clone(),
    }
}

pub(super) fn beginning(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderMap;

    fn rule(action: RuleAction, methods: &[&str], paths: &[&str]) -> RequestRule {
        RequestRule {
            host: "a.example".into(),
            port: None,
            methods: methods.iter().map(|&method| method.into()).collect(),
            paths: paths.iter().map(|&path| path.into()).collect(),
            action,
            why: Some("because".into()),
            name: "p:1".into(),
        }
    }

    fn allow(methods: &[&str], paths: &[&str]) -> RequestRule {
        rule(RuleAction::Allow, methods, paths)
    }

    fn deny(methods: &[&str], paths: &[&str]) -> RequestRule {
        rule(RuleAction::Deny, methods, paths)
    }

    fn judge_with(
        lists: &[Vec<RequestRule>],
        (method, uri): (&str, &str),
        header: Option<(&'static str, &str)>,
    ) -> Result<Vec<u16>, RequestRefusal> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        let uri = uri.parse().unwrap();
        let wanted = RequestedUse::new("a.example:443", method, &uri, &headers);
        let rules = Rules::of(lists, "a.example");
        rules.judge(&wanted, 443).map(|asking| {
            let numbers = asking.into_iter().map(|(number, _)| *number);
            numbers.collect()
        })
    }

    fn passes(lists: &[Vec<RequestRule>], method: &str, uri: &str) -> bool {
        judge_with(lists, (method, uri), None).is_ok_and(|asking| asking.is_empty())
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_none_denies() {
        let lists = [vec![
            deny(&["GET"], &["/a/secret"]),
            allow(&["GET"], &["/a/**", "/b"]),
            allow(&[], &["/a/secret", "/any"]),
        ]];
        for (method, path, want) in [
            ("GET", "/a/x", true),
            ("GET", "/b?a=1", true),
            ("GET", "/a/secret", false),
            ("POST", "/a/secret", true),
            ("POST", "/a/x", false),
            ("GET", "/c", false),
            ("DELETE", "/any", true),
            ("TRACE", "/any", false),
        ] {
            assert_eq!(passes(&lists, method, path), want, "{method} {path}");
        }
        let denied = judge_with(&lists, ("GET", "/a/secret"), None).unwrap_err();
        assert!(denied.to_string().contains("p:1") && denied.to_string().contains("because"));
        let nothing = judge_with(&lists, ("PUT", "/c?token=x"), None).unwrap_err();
        let nothing = nothing.to_string();
        assert!(nothing.contains("PUT /c at a.example:443"), "{nothing}");
        assert!(!nothing.contains("token"), "{nothing}");
    }

    #[test]
    fn every_list_that_names_the_host_must_allow() {
        let wide = vec![allow(&[], &[])];
        let narrow = vec![allow(&["GET"], &["/a/**"])];
        assert!(
            passes(std::slice::from_ref(&wide), "PUT", "/x"),
            "the control"
        );
        for lists in [[wide.clone(), narrow.clone()], [narrow, wide.clone()]] {
            assert!(passes(&lists, "GET", "/a/x"));
            assert!(!passes(&lists, "PUT", "/a/x") && !passes(&lists, "GET", "/x"));
        }
        let mut other = allow(&["GET"], &["/a"]);
        other.host = "b.example".into();
        assert!(passes(&[wide, vec![other]], "PUT", "/x"), "another host's");
        assert!(Rules::of(&[], "a.example").is_empty());
    }

    #[test]
    fn a_rule_of_one_port_closes_the_others() {
        let mut rule = allow(&[], &[]);
        rule.port = Some(443);
        assert!(passes(&[vec![rule.clone()]], "GET", "/"));
        rule.port = Some(80);
        assert!(!passes(&[vec![rule]], "GET", "/"));
    }

    #[test]
    fn no_spelling_gets_through_what_allows_something_else() {
        let lists = [vec![allow(&["GET"], &["/public/*", "/public/deep/**"])]];
        for path in [
            "/public/x",
            "/public/x?y=/../z",
            "/public/a%20b",
            "/public/deep/a/b",
        ] {
            assert!(passes(&lists, "GET", path), "the control: {path}");
        }
        for path in [
            "/public/../secret",
            "/public/%2e%2e/secret",
            "/public/%252e%252e/secret",
            "/public/..;/secret",
            "/public/x%2fsecret",
            "/public/x%252fsecret",
            "/public/x%5csecret",
            "/public//x",
            "//public/x",
            "/public/;x",
            "/public/;x/secret",
            "/public/./x",
            "/public/",
            "/public",
            "/Public/x",
            "/secret?/public/x",
            "/secret?x=/public/x",
            "/secret;/public/x",
            "*",
        ] {
            assert!(!passes(&lists, "GET", path), "{path}");
        }
        for method in ["get", "Get", "HEAD", "POST", "GETS"] {
            assert!(!passes(&lists, method, "/public/x"), "{method}");
        }
        for header in [
            ("x-http-method-override", "DELETE"),
            ("x_method_override", "delete"),
            ("x-original-url", "/secret"),
            ("x-rewrite-url", "/secret"),
        ] {
            let judged = judge_with(&lists, ("GET", "/public/x"), Some(header));
            assert!(judged.is_err(), "{header:?}");
        }
        assert!(!passes(&lists, "GET", "/public/x?_method=DELETE"));
    }

    #[test]
    fn denied_path_is_denied_in_every_spelling() {
        let lists = [vec![
            deny(&["POST", "DELETE"], &["/admin/**", "/keys/"]),
            allow(&[], &[]),
        ]];
        for path in ["/x", "/adminx", "/keysx"] {
            assert!(passes(&lists, "POST", path), "the control: {path}");
        }
        for path in [
            "/admin",
            "/admin/x",
            "/ADMIN/x",
            "/%61dmin/x",
            "/%2561dmin/x",
            "//admin/x",
            "/./admin/x",
            "/y/../admin/x",
            "/y/%2e%2e/admin/x",
            "/admin;a=b/x",
            "/admin%2fx",
            "/admin.json",
            "/keys",
            "/keys/",
            "/keys%20",
        ] {
            assert!(!passes(&lists, "POST", path), "{path}");
        }
        assert!(!passes(&lists, "post", "/admin/x"));
        let header = Some(("x-http-method-override", "DELETE"));
        assert!(judge_with(&lists, ("GET", "/admin/x"), header).is_err());
        assert!(judge_with(&lists, ("GET", "/x"), Some(("x-original-url", "/admin/x"))).is_err());
        // A rule that names no method denies all, those too that no rule allows unless it names them.
        let all = [vec![deny(&[], &["/admin"]), allow(&["OPTIONS"], &[])]];
        assert!(passes(&all, "OPTIONS", "/x") && !passes(&all, "OPTIONS", "/admin"));
    }

    #[test]
    fn a_rule_that_asks_fits_every_spelling_and_lets_one_through() {
        let ask = |paths: &[&str]| rule(RuleAction::Ask, &["POST"], paths);
        let lists = [
            vec![allow(&[], &[])],
            vec![deny(&[], &["/no"]), ask(&["/push", "/no"]), allow(&[], &[])],
        ];
        let judged = |method, uri| judge_with(&lists, (method, uri), None);
        assert_eq!(judged("POST", "/push?a=b"), Ok(vec![2]));
        assert_eq!(judged("GET", "/push"), Ok(vec![]), "the control");
        assert_eq!(judged("POST", "/other"), Ok(vec![]), "the control");
        assert!(judged("POST", "/no").is_err());
        // The rule after it would allow all of these.
        for path in [
            "/%70ush",
            "/Push",
            "//push",
            "/x/../push",
            "/push;a",
            "/push.json",
        ] {
            assert!(judged("POST", path).is_err(), "{path}");
        }
        assert!(judged("post", "/push").is_err());
        let header = Some(("x-http-method-override", "POST"));
        assert!(judge_with(&lists, ("GET", "/push"), header).is_err());
        let both = [vec![ask(&[])], vec![deny(&[], &["/x"]), ask(&["/push"])]];
        assert_eq!(judge_with(&both, ("POST", "/push"), None), Ok(vec![0, 2]));
    }
}
