//! The decision on a request: a pure function of the session's policy and the request.
//!
//! Takes a request whose paths are well-formed; the broker does nothing that was not allowed here. Names are
//! decided as text. The layers around the cell and the worker ensure that a link or a rename does not give
//! another name to the same file, and they apply to every request that passes here.

use crate::effective::EffectivePolicy;
use crate::facts::{Facts, Touch};
use crate::rules::{self, Action, RuleMatch};
use crate::scope::Reach;
use broker_protocol::{Refused, Request, Risk, Trust, Zone, ZonePath};
use policies_guard::Access;
use policies_guard::Origin;
use policies_guard::names::{ProtectedName, Protection};
use std::path::Path;

/// The decision on a request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The broker carries it out.
    Allow,
    /// The broker refuses it, for this reason.
    Deny(Refused),
    /// The broker carries it out once it is approved.
    Ask(Question),
}

/// The question that a person approves before a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Name of the rule that asks.
    pub rule: String,
    /// The reason of that rule, for the person who answers.
    pub why: String,
    /// How much harm the call can do.
    pub risk: Risk,
    /// Whether the rule certainly covers the call, and all of it: only then may one approval cover other calls.
    pub whole: bool,
}

impl Question {
    /// The refusal if nobody can approve.
    pub fn unanswered(self) -> Refused {
        Refused {
            rule: self.rule,
            why: format!("{} No approver is available.", self.why),
            violation: false,
        }
    }
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement<'a> {
    pub verdict: Verdict,
    /// Name of the rule that decided; `None` for a call that is allowed because its risk needs no approval.
    pub rule: Option<String>,
    /// The reason of that rule.
    pub why: Option<String>,
    /// The line of that rule, if it is in a file.
    pub origin: Option<&'a Origin>,
}

impl<'a> Judgement<'a> {
    fn deny(refused: Refused, origin: Option<&'a Origin>) -> Self {
        let (rule, why) = (Some(refused.rule.clone()), Some(refused.why.clone()));
        Self {
            verdict: Verdict::Deny(refused),
            rule,
            why,
            origin,
        }
    }

    fn ask(question: Question, origin: Option<&'a Origin>) -> Self {
        let (rule, why) = (Some(question.rule.clone()), Some(question.why.clone()));
        Self {
            verdict: Verdict::Ask(question),
            rule,
            why,
            origin,
        }
    }
}

/// Decides on `request`. Time limits are not refused: see [`EffectivePolicy::timeout`].
pub fn decide(policy: &EffectivePolicy, request: &Request) -> Verdict {
    judge(policy, &Facts::of(request)).verdict
}

/// Decides on `request` as if the name of the file that it changes were open: a lease of that file stands for the profile's `open`.
/// Everything else is decided as by [`decide`].
pub fn decide_leased(policy: &EffectivePolicy, request: &Request) -> Verdict {
    judge_by(policy, &Facts::of(request), closed_beside_lease).verdict
}

/// Decides again on `request`, whose path leads to `real` after following links: the stricter of both decisions. A link
/// with an allowed name gives no access to a file that a rule denies, and a link with a denied name stays closed.
///
/// The file worker reports `real` before it acts. For a request without a path the decision is that of [`decide`].
pub fn decide_real(policy: &EffectivePolicy, request: &Request, real: &ZonePath) -> Verdict {
    let asked = Facts::of(request);
    let there = Facts::of(request).at(real);
    stricter(judge(policy, &asked).verdict, judge(policy, &there).verdict)
}

/// The stricter of the decisions on the requested name and on the real path. One approval covers
/// other calls only if one rule asks about both.
fn stricter(asked: Verdict, real: Verdict) -> Verdict {
    match (asked, real) {
        (Verdict::Deny(refused), Verdict::Allow | Verdict::Ask(_) | Verdict::Deny(_))
        | (Verdict::Allow | Verdict::Ask(_), Verdict::Deny(refused)) => Verdict::Deny(refused),
        (Verdict::Ask(asked), Verdict::Ask(real)) => {
            let whole = asked.whole && real.whole && asked.rule == real.rule;
            Verdict::Ask(Question { whole, ..real })
        }
        (Verdict::Ask(question), Verdict::Allow) | (Verdict::Allow, Verdict::Ask(question)) => {
            Verdict::Ask(Question {
                whole: false,
                ..question
            })
        }
        (Verdict::Allow, Verdict::Allow) => Verdict::Allow,
    }
}

/// Decides a call, with the reason. First what refuses: paths outside, the scope, protected names
/// and read-only zones; then the rules; then the session's trust.
pub fn judge<'a>(policy: &'a EffectivePolicy, facts: &Facts) -> Judgement<'a> {
    judge_by(policy, facts, closed)
}

/// Finds the name or the zone that closes a call's path.
type ClosingSearch = for<'a> fn(&'a EffectivePolicy, &Facts) -> Option<(Refused, &'a Origin)>;

fn judge_by<'a>(
    policy: &'a EffectivePolicy,
    facts: &Facts,
    closed: ClosingSearch,
) -> Judgement<'a> {
    if let Some(refused) = outside(policy, facts).or_else(|| out_of_scope(policy, facts)) {
        return Judgement::deny(refused, None);
    }
    if let Some((refused, origin)) = closed(policy, facts) {
        return Judgement::deny(refused, Some(origin));
    }
    match rules::judge(&policy.rules, facts) {
        Some(found) => by_rule(policy, facts, &found),
        None => by_trust(policy, facts),
    }
}

/// Applies a rule that does not deny: a supervised session asks despite an `allow`, an autonomous one does not ask despite an `ask`.
fn by_rule<'a>(policy: &'a EffectivePolicy, facts: &Facts, found: &RuleMatch<'a>) -> Judgement<'a> {
    let (rule, origin) = (found.rule.name(), Some(&found.rule.origin));
    let why = match (found.doubt, found.action) {
        (None, _) => found.rule.why.clone(),
        // It asks in any case, and the text of the first rule that might apply would speak of a push where there is no git.
        (Some(doubt), Action::Ask) if policy.trust.asks(facts.risk) => {
            format!(
                "{} No rule can be sure about it: {doubt}.",
                reason(policy.trust, facts.risk)
            )
        }
        (Some(doubt), Action::Ask | Action::Allow | Action::Deny) => {
            format!(
                "This rule may apply (it is not certain: {doubt}): {}",
                found.rule.why
            )
        }
    };
    match (found.action, policy.trust) {
        (Action::Deny, _) => Judgement::deny(
            Refused {
                rule,
                why,
                violation: false,
            },
            origin,
        ),
        (Action::Ask, Trust::Supervised | Trust::Guided) => Judgement::ask(
            Question {
                rule,
                why,
                risk: found
                    .rule
                    .risk
                    .map_or(facts.risk, |risk| risk.max(facts.risk)),
                whole: found.whole,
            },
            origin,
        ),
        (Action::Allow, Trust::Supervised) => by_trust(policy, facts),
        (Action::Ask, Trust::Autonomous) | (Action::Allow, Trust::Guided | Trust::Autonomous) => {
            Judgement {
                verdict: Verdict::Allow,
                rule: Some(rule),
                why: Some(why),
                origin,
            }
        }
    }
}

fn by_trust<'a>(policy: &EffectivePolicy, facts: &Facts) -> Judgement<'a> {
    let (trust, risk) = (policy.trust, facts.risk);
    if !trust.asks(risk) {
        return Judgement {
            verdict: Verdict::Allow,
            rule: None,
            why: None,
            origin: None,
        };
    }
    let rule = format!("trust:{}", trust.name());
    Judgement::ask(
        Question {
            rule,
            why: reason(trust, risk),
            risk,
            whole: true,
        },
        None,
    )
}

fn reason(trust: Trust, risk: Risk) -> String {
    format!(
        "A {} session asks before calls of {} risk.",
        trust.name(),
        risk.name()
    )
}

/// The refusal of a path below neither root, unless file tools may read it.
fn outside(policy: &EffectivePolicy, facts: &Facts) -> Option<Refused> {
    let (path, reads) = match facts.touch? {
        Touch::Read(path) | Touch::Search(path) => (path, true),
        Touch::Enter(path) | Touch::Write(path) => (path, false),
    };
    match path.zone() {
        Zone::Project | Zone::Central => return None,
        Zone::Granted => {}
    }
    let granted = Path::new(&path.to_string())
        .ancestors()
        .any(|path| policy.readable().any(|grant| grant.path == path));
    let why = match (granted, reads) {
        (true, true) => return None,
        (true, false) => "it is granted for reading only",
        (false, _) => {
            "it is in neither the project nor the central root, and the profile does not grant it to file tools"
        }
    };
    let why = format!("outside sandbox: {:?}: {why}", path.to_string());
    Some(Refused {
        rule: OUTSIDE.to_owned(),
        why,
        violation: true,
    })
}

/// The name of the rule that refuses a path outside.
pub(crate) const OUTSIDE: &str = "roots";

fn out_of_scope(policy: &EffectivePolicy, facts: &Facts) -> Option<Refused> {
    let scope = policy.scope.as_ref()?;
    let refuse = |why| {
        Some(Refused {
            rule: format!("scope:{}", facts.tool),
            why,
            violation: false,
        })
    };
    if !scope.permits(facts.tool) {
        return refuse(format!(
            "`{}` is not permitted in the scope of this session.",
            facts.tool
        ));
    }
    let (path, reach) = match facts.touch? {
        Touch::Read(path) | Touch::Write(path) => (path, Reach::Name),
        Touch::Search(path) => (path, Reach::Tree),
        // The cell enforces what a command may write.
        Touch::Enter(_) => return None,
    };
    if policy
        .paths
        .permits(facts.tool, path.zone(), path.relative().as_bytes(), reach)
    {
        return None;
    }
    let what = match reach {
        Reach::Name => "touch",
        Reach::Tree => "look below",
    };
    let (tool, paths) = (facts.tool, policy.paths.text(facts.tool));
    refuse(format!(
        "The scope of this session permits `{tool}` for {paths} only, so it may not {what} {path}."
    ))
}

fn closed<'a>(policy: &'a EffectivePolicy, facts: &Facts) -> Option<(Refused, &'a Origin)> {
    match facts.touch? {
        // The cell enforces what a command may touch.
        Touch::Enter(path) | Touch::Read(path) | Touch::Search(path) => reading(policy, path),
        Touch::Write(path) => writing(policy, path),
    }
}

/// Rules that close the path of a call that has a lease of the file there.
fn closed_beside_lease<'a>(
    policy: &'a EffectivePolicy,
    facts: &Facts,
) -> Option<(Refused, &'a Origin)> {
    match facts.touch? {
        Touch::Write(path) => {
            let leads = policy.matcher.leads_to(path.relative().as_bytes());
            leads
                .map(protected)
                .or_else(|| read_only(policy, path.zone()))
        }
        Touch::Enter(_) | Touch::Read(_) | Touch::Search(_) => closed(policy, facts),
    }
}

fn reading<'a>(policy: &'a EffectivePolicy, path: &ZonePath) -> Option<(Refused, &'a Origin)> {
    let name = policy.matcher.protection(path.relative().as_bytes())?;
    match name.protection {
        Protection::All => Some(protected(name)),
        Protection::Write => None,
    }
}

fn writing<'a>(policy: &'a EffectivePolicy, path: &ZonePath) -> Option<(Refused, &'a Origin)> {
    let relative = path.relative().as_bytes();
    let name = policy
        .matcher
        .protection(relative)
        .or_else(|| policy.matcher.leads_to(relative));
    name.map(protected)
        .or_else(|| read_only(policy, path.zone()))
}

/// The refusal of a protected name. No violation: the path is in the roots, and nothing was tried to leave them.
fn protected(name: &ProtectedName) -> (Refused, &Origin) {
    let rule = format!("protect:{}", name.pattern);
    (
        Refused {
            rule,
            why: name.why.clone(),
            violation: false,
        },
        &name.origin,
    )
}

/// The refusal of a write in a zone that the profile makes read-only. No violation: it is not about the name.
fn read_only(policy: &EffectivePolicy, zone: Zone) -> Option<(Refused, &Origin)> {
    let (access, origin) = match zone {
        Zone::Project => (policy.project, &policy.zones_from[0]),
        Zone::Central => (policy.central, &policy.zones_from[1]),
        // Already refused before this point.
        Zone::Granted => return None,
    };
    if access == Access::Write {
        return None;
    }
    let (profile, zone) = (&policy.profile, zone.name());
    let why = format!(
        "The profile `{profile}` allows commands to read the {zone} root, not to change it."
    );
    Some((
        Refused {
            rule: format!("{zone}:read"),
            why,
            violation: false,
        },
        origin,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Policies};
    use broker_protocol::{
        Bash, Command, FileEdit, FileList, FileRead, FileWrite, Glob, Grep, Scope, Stdin, Undo,
    };

    fn policy(profile: &str) -> EffectivePolicy {
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        let policy = Policies::load(vec![])
            .unwrap()
            .resolve(profile, &host)
            .unwrap();
        policy.narrow(None, Trust::Autonomous).unwrap()
    }

    fn path(text: &str) -> ZonePath {
        match text.strip_prefix("central:") {
            Some(rest) => ZonePath::new(Zone::Central, rest).unwrap(),
            None => ZonePath::new(Zone::Project, text).unwrap(),
        }
    }

    fn bash(directory: Option<&str>) -> Request {
        let directory = directory.map(path);
        let command = Command::Shell("cat .env".into());
        Request::Bash(Bash {
            command,
            directory,
            timeout_s: None,
            idle_timeout_s: None,
            stdin: Stdin::Null,
            live: false,
            background: false,
            split: false,
            attended: false,
        })
    }

    /// Every request that reads `at`.
    fn readers(at: &str) -> Vec<Request> {
        vec![
            bash(Some(at)),
            Request::FileRead(FileRead {
                path: path(at),
                offset: None,
                limit: None,
            }),
            Request::FileList(FileList {
                path: path(at),
                depth: 1,
                hidden: true,
                limit: 1,
            }),
            Request::Glob(Glob {
                pattern: "*".into(),
                path: path(at),
                hidden: true,
                ignored: true,
                limit: 1,
            }),
            Request::Grep(Grep {
                pattern: "x".into(),
                literal: true,
                ignore_case: false,
                path: path(at),
                include: None,
                ignored: true,
                context: 0,
                limit: 1,
                sort: broker_protocol::GrepSort::Path,
            }),
        ]
    }

    /// Every request that writes `at`.
    fn writers(at: &str) -> Vec<Request> {
        vec![
            Request::FileWrite(FileWrite {
                path: path(at),
                content: vec![],
                overwrite: true,
                expected_sha256: None,
            }),
            Request::FileEdit(FileEdit {
                path: path(at),
                edits: vec![],
                expected_sha256: None,
            }),
            Request::Undo(Undo {
                change: 1,
                path: path(at),
                force: true,
            }),
        ]
    }

    fn refusal(policy: &EffectivePolicy, request: &Request) -> Option<Refused> {
        match decide(policy, request) {
            Verdict::Allow => None,
            Verdict::Deny(refused) => Some(refused),
            Verdict::Ask(question) => panic!("{question:?}"),
        }
    }

    #[test]
    fn fully_protected_names_are_neither_read_nor_written() {
        let policy = policy("default");
        for at in [
            ".env",
            "sub/.ENV",
            ".env/x",
            "central:credential-store.json",
            "config/client_secret.txt",
        ] {
            for request in readers(at).iter().chain(&writers(at)) {
                let refused =
                    refusal(&policy, request).unwrap_or_else(|| panic!("{at} {}", request.tool()));
                assert!(
                    !refused.violation
                        && refused.rule.starts_with("protect:")
                        && !refused.why.is_empty()
                );
            }
        }
    }

    #[test]
    fn write_protected_names_are_read() {
        let policy = policy("default");
        for at in [
            ".git/config",
            "a/.git/hooks/pre-commit",
            ".vscode/tasks.json",
            ".claude/settings.json",
        ] {
            assert!(
                readers(at)
                    .iter()
                    .all(|request| refusal(&policy, request).is_none()),
                "{at}"
            );
            assert!(
                writers(at)
                    .iter()
                    .all(|request| !refusal(&policy, request).unwrap().violation),
                "{at}"
            );
        }
    }

    #[test]
    fn no_file_is_written_in_the_place_of_a_directory_that_leads_to_a_protected_name() {
        let policy = policy("default");
        let refused = refusal(&policy, &writers("sub/.git")[0]).unwrap();
        assert!(
            !refused.violation && refused.rule.starts_with("protect:.git/"),
            "{refused:?}"
        );
        assert!(
            readers(".git")
                .iter()
                .all(|request| refusal(&policy, request).is_none())
        );
    }

    #[test]
    fn the_rest_of_both_zones_is_open() {
        let policy = policy("default");
        for at in [
            "",
            "src/main.rs",
            ".env.example",
            "secrets.py",
            ".git/HEAD",
            "central:outputs/1.log",
        ] {
            for request in readers(at).iter().chain(&writers(at)) {
                assert_eq!(refusal(&policy, request), None, "{at} {}", request.tool());
            }
        }
        assert_eq!(decide(&policy, &bash(None)), Verdict::Allow);
    }

    #[test]
    fn a_read_only_profile_refuses_writes_without_a_violation() {
        let policy = policy("read-only");
        assert!(
            readers("src/a.rs")
                .iter()
                .all(|request| refusal(&policy, request).is_none())
        );
        for request in writers("src/a.rs") {
            let refused = refusal(&policy, &request).unwrap();
            assert_eq!(
                (refused.rule.as_str(), refused.violation),
                ("project:read", false)
            );
        }
        assert!(
            writers("central:x")
                .iter()
                .all(|request| refusal(&policy, request).is_none())
        );
        // The name takes precedence over the profile.
        assert_eq!(
            refusal(&policy, &writers(".env")[0]).unwrap().rule,
            "protect:.env"
        );
    }

    #[test]
    fn granted_path_is_read_and_other_outside_paths_are_violations() {
        let own = |grants: &str| {
            let text = format!("version = 1\n[profile.own]\ngrants = [{grants}]\n");
            let source = crate::PolicySource {
                name: "p".into(),
                kind: crate::SourceKind::User,
                text,
            };
            let host = Host {
                home: "/home/u".into(),
                ..Host::default()
            };
            Policies::load(vec![source])
                .unwrap()
                .resolve("own", &host)
                .unwrap()
        };
        let policy = own("{ path = '~/.tools', optional = true }")
            .narrow(None, Trust::Autonomous)
            .unwrap();
        let at = |text: &str| ZonePath::new(Zone::Granted, text).unwrap();
        let moved = |text: &str, request: &Request| {
            let mut request = request.clone();
            match &mut request {
                Request::Bash(bash) => bash.directory = Some(at(text)),
                Request::FileRead(read) => read.path = at(text),
                Request::FileList(list) => list.path = at(text),
                Request::Glob(glob) => glob.path = at(text),
                Request::Grep(grep) => grep.path = at(text),
                Request::FileWrite(write) => write.path = at(text),
                Request::FileEdit(edit) => edit.path = at(text),
                Request::Undo(undo) => undo.path = at(text),
                other => panic!("{other:?}"),
            }
            refusal(&policy, &request)
        };
        let outside = |text: &str, request: &Request| {
            let refused =
                moved(text, request).unwrap_or_else(|| panic!("{text} {}", request.tool()));
            assert!(refused.violation && refused.rule == "roots", "{refused:?}");
            assert!(refused.why.starts_with("outside sandbox"), "{refused:?}");
        };
        let (commands, reads): (Vec<_>, Vec<_>) = readers("a")
            .into_iter()
            .partition(|request| request.command().is_some());
        for granted in [
            "usr/include/stdio.h",
            "usr",
            "bin",
            "home/u/.tools/src/a.rs",
        ] {
            reads
                .iter()
                .for_each(|request| assert_eq!(moved(granted, request), None, "{granted}"));
            commands
                .iter()
                .chain(&writers("a"))
                .for_each(|request| outside(granted, request));
        }
        for closed in [
            "",
            "etc/passwd",
            "etc",
            "usrx",
            "home/u",
            "home/u/.toolsx",
            "home",
            "proc/self/environ",
        ] {
            reads
                .iter()
                .chain(&commands)
                .chain(&writers("a"))
                .for_each(|request| outside(closed, request));
        }
        let secret = moved("home/u/.tools/.ssh/id_rsa", &reads[0]).unwrap();
        assert!(secret.rule.starts_with("protect:"), "{secret:?}");
        // A link to a granted path, and one to a path outside.
        let real = |text| matches!(decide_real(&policy, &reads[0], &at(text)), Verdict::Deny(_));
        assert!(!real("usr/include/stdio.h") && real("etc/passwd") && real("home/u/.tools/.env"));
    }

    #[test]
    fn each_trust_asks_about_its_risks() {
        let requests = [
            bash(None),
            writers("a").remove(0),
            Request::FileRead(FileRead {
                path: path("a"),
                offset: None,
                limit: None,
            }),
        ];
        for (trust, asked) in
            Trust::ALL
                .into_iter()
                .zip([[true, true, true], [true, true, false], [false; 3]])
        {
            let policy = policy("default").narrow(None, trust).unwrap();
            for (request, asked) in requests.iter().zip(asked) {
                match decide(&policy, request) {
                    Verdict::Ask(question) => {
                        assert!(asked, "{trust:?} {}", request.tool());
                        assert_eq!(
                            (question.rule, question.risk),
                            (format!("trust:{}", trust.name()), request.risk())
                        );
                    }
                    verdict => assert!(
                        !asked && verdict == Verdict::Allow,
                        "{trust:?} {}",
                        request.tool()
                    ),
                }
            }
        }
    }

    /// The default profile under a user's file with these rules.
    #[test]
    fn rule_never_lowers_the_risk_of_its_question() {
        let text = |risk: &str| {
            format!("[[rule]]\ntool = '*'\naction = 'ask'\nwhy = 'Look.'\nrisk = '{risk}'\n")
        };
        let read = Request::FileRead(FileRead {
            path: path("a"),
            offset: None,
            limit: None,
        });
        for (risk, of_read) in [
            ("low", Risk::Low),
            ("medium", Risk::Medium),
            ("high", Risk::High),
        ] {
            let policy = ruled(&text(risk), Trust::Guided);
            let risk_of = |request: &Request| match decide(&policy, request) {
                Verdict::Ask(question) => Some(question.risk),
                Verdict::Allow | Verdict::Deny(_) => None,
            };
            assert_eq!(
                (risk_of(&read), risk_of(&bash(None))),
                (Some(of_read), Some(Risk::High))
            );
        }
    }

    fn ruled(rules: &str, trust: Trust) -> EffectivePolicy {
        let text = format!("version = 1\n{rules}");
        let own = crate::PolicySource {
            name: "p".into(),
            kind: crate::SourceKind::User,
            text,
        };
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        let policy = Policies::load(vec![own])
            .unwrap()
            .resolve("default", &host)
            .unwrap();
        policy.narrow(None, trust).unwrap()
    }

    /// The decisions of [`decide_real`] on requests for `asked` that lead to `real`, each with its rule; `None` means allowed.
    fn at(
        policy: &EffectivePolicy,
        asked: &str,
        real: &str,
    ) -> Vec<(&'static str, Option<String>)> {
        let requests = readers(asked).into_iter().chain(writers(asked));
        let decided = requests.map(|request| match decide_real(policy, &request, &path(real)) {
            Verdict::Allow => ("allow", None),
            Verdict::Ask(question) => ("ask", Some(question.rule)),
            Verdict::Deny(refused) => ("deny", Some(refused.rule)),
        });
        decided.collect()
    }

    #[test]
    fn link_is_judged_by_name_and_by_target() {
        let rules = "[[rule]]\ntool = '*'\naction = 'allow'\nwhy = 'w'\nwhen = [{ param = 'path', matches = 'docs/**' }]\n\
            [[rule]]\ntool = '*'\naction = 'deny'\nwhy = 'w'\nwhen = [{ param = 'path', matches = 'src/**' }]\n";
        let policy = ruled(rules, Trust::Guided);
        let verdicts = |asked, real| {
            at(&policy, asked, real)
                .into_iter()
                .map(|(verdict, _)| verdict)
                .collect::<Vec<_>>()
        };
        let [all_denied, bash] = ["deny", "ask"];
        // The first is a command, which has `cwd` and no `path`.
        assert_eq!(
            verdicts("docs/x", "src/main.sh"),
            [vec![bash], vec![all_denied; 7]].concat()
        );
        assert_eq!(
            verdicts("src/x", "docs/y"),
            [vec![bash], vec![all_denied; 7]].concat()
        );
        assert_eq!(
            verdicts("docs/x", "docs/y"),
            [vec![bash], vec!["allow"; 7]].concat()
        );
        let elsewhere = [
            "ask", "allow", "allow", "allow", "allow", "ask", "ask", "ask",
        ];
        assert_eq!(
            verdicts("docs/x", "other/y"),
            elsewhere,
            "what no rule allows is asked about by its risk"
        );
        assert_eq!(verdicts("other/y", "docs/x"), elsewhere);
        let control = decide(&policy, &writers("docs/x")[0]);
        assert_eq!(
            control,
            Verdict::Allow,
            "by its name alone it would be written"
        );
    }

    #[test]
    fn a_link_opens_no_protected_name_and_no_other_scope() {
        let autonomous = ruled("", Trust::Autonomous);
        assert!(
            at(&autonomous, "x", ".env")
                .iter()
                .all(|(verdict, _)| *verdict == "deny")
        );
        assert!(
            at(&autonomous, "x", ".git/config")
                .iter()
                .skip(5)
                .all(|(verdict, _)| *verdict == "deny")
        );
        assert!(
            at(&autonomous, "x", "y")
                .iter()
                .all(|(verdict, _)| *verdict == "allow")
        );
        let scope = broker_protocol::Permission {
            tool: "file_read".into(),
            allowed: true,
            paths: vec!["src/**".into()],
            timeout_s: None,
            network: false,
        };
        let scoped = autonomous
            .narrow(
                Some(&Scope {
                    permissions: vec![scope],
                }),
                Trust::Autonomous,
            )
            .unwrap();
        let read = Request::FileRead(FileRead {
            path: path("src/x"),
            offset: None,
            limit: None,
        });
        assert_eq!(decide(&scoped, &read), Verdict::Allow);
        assert!(matches!(
            decide_real(&scoped, &read, &path("notes/x")),
            Verdict::Deny(_)
        ));
    }

    #[test]
    fn a_question_about_two_places_holds_for_this_call() {
        let rule = |at: &str| {
            format!(
                "[[rule]]\ntool = 'file_read'\naction = 'ask'\nwhy = 'w'\nwhen = [{{ param = 'path', matches = '{at}/**' }}]\n"
            )
        };
        let policy = ruled(&(rule("a") + &rule("b")), Trust::Guided);
        let read = Request::FileRead(FileRead {
            path: path("a/x"),
            offset: None,
            limit: None,
        });
        let question = |real: &str| match decide_real(&policy, &read, &path(real)) {
            Verdict::Ask(question) => (question.whole, question.rule),
            verdict => panic!("{verdict:?}"),
        };
        let (of_a, of_b) = ("rule:user:2".to_owned(), "rule:user:7".to_owned());
        assert_eq!(question("a/y"), (true, of_a.clone()));
        assert_eq!(question("b/y"), (false, of_b));
        assert_eq!(question("c/y"), (false, of_a));
    }

    #[test]
    fn scope_closes_unnamed_tools() {
        let policy = policy("default")
            .narrow(Some(&Scope::default()), Trust::Autonomous)
            .unwrap();
        assert_eq!(refusal(&policy, &bash(None)).unwrap().rule, "scope:bash");
        assert!(
            writers("a")
                .iter()
                .all(|request| refusal(&policy, request).is_some())
        );
        let read = Request::FileRead(FileRead {
            path: path("a"),
            offset: None,
            limit: None,
        });
        assert_eq!(refusal(&policy, &read), None);
    }
}
