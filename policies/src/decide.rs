//! The decision on a request: a pure function of the session's policy and what is asked.
//!
//! Comes from a request whose paths are well-formed; goes to the broker, which does nothing that was not allowed here.
//! It decides on names as text. That a link or a rename does not make another name of the same file is kept by the
//! layers around the cell and the worker, and a request that passes here meets them all.

use crate::effective::{Access, EffectivePolicy, ProtectedName, Protection};
use broker_protocol::{Permission, Refused, Request, Risk, Zone, ZonePath};

/// The answer to a request.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be carried out, in a cell or by the file worker.
    Allow,
    /// It may not.
    Deny(Refused),
    /// It may, if who is asked says so.
    Ask(Question),
}

/// What has to be asked before a call runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The rule that asks.
    pub rule: String,
    /// Its reason, for who is asked.
    pub why: String,
    /// How much harm the call can do.
    pub risk: Risk,
}

impl Question {
    /// The refusal where nobody can be asked.
    pub fn unanswered(self) -> Refused {
        Refused {
            rule: self.rule,
            why: format!("{} Nobody is there to be asked.", self.why),
            violation: false,
        }
    }
}

/// Decides on `request`. Time limits are not refused: see [`EffectivePolicy::timeout`].
pub fn decide(policy: &EffectivePolicy, request: &Request) -> Verdict {
    match out_of_scope(policy, request).or_else(|| closed(policy, request)) {
        Some(refused) => Verdict::Deny(refused),
        None => ask(policy, request).map_or(Verdict::Allow, Verdict::Ask),
    }
}

fn out_of_scope(policy: &EffectivePolicy, request: &Request) -> Option<Refused> {
    let scope = policy.scope.as_ref()?;
    let tool = request.tool();
    let narrowed = |permission: &&Permission| permission.tool == tool && !permission.paths.is_empty();
    if scope.permits(tool) && !scope.permissions.iter().any(|permission| narrowed(&permission)) {
        return None;
    }
    let why = format!("The session's scope does not permit `{tool}` here.");
    Some(Refused { rule: format!("scope:{tool}"), why, violation: false })
}

fn closed(policy: &EffectivePolicy, request: &Request) -> Option<Refused> {
    match request {
        // What a command may touch is held by its cell.
        Request::Bash(bash) => bash.directory.as_ref().and_then(|directory| reading(policy, directory)),
        Request::FileRead(read) => reading(policy, &read.path),
        Request::FileList(list) => reading(policy, &list.path),
        Request::Glob(glob) => reading(policy, &glob.path),
        Request::Grep(grep) => reading(policy, &grep.path),
        Request::FileWrite(write) => writing(policy, &write.path),
        Request::FileEdit(edit) => writing(policy, &edit.path),
    }
}

fn ask(policy: &EffectivePolicy, request: &Request) -> Option<Question> {
    let (trust, risk) = (policy.trust, request.risk());
    trust.asks(risk).then(|| Question {
        rule: format!("trust:{}", trust.name()),
        why: format!("A {} session asks before calls of {} risk.", trust.name(), risk.name()),
        risk,
    })
}

fn reading(policy: &EffectivePolicy, path: &ZonePath) -> Option<Refused> {
    let name = policy.matcher.protection(path.relative().as_bytes())?;
    match name.protection {
        Protection::All => Some(protected(name)),
        Protection::Write => None,
    }
}

fn writing(policy: &EffectivePolicy, path: &ZonePath) -> Option<Refused> {
    let relative = path.relative().as_bytes();
    let name = policy.matcher.protection(relative).or_else(|| policy.matcher.leads_to(relative));
    name.map(protected).or_else(|| read_only(policy, path.zone()))
}

fn protected(name: &ProtectedName) -> Refused {
    Refused { rule: format!("protect:{}", name.pattern), why: name.why.clone(), violation: true }
}

/// The refusal of a write in a zone that the profile only reads. No violation: the name is not the point.
fn read_only(policy: &EffectivePolicy, zone: Zone) -> Option<Refused> {
    let access = match zone {
        Zone::Project => policy.project,
        Zone::Central => policy.central,
    };
    match access {
        Access::Write => None,
        Access::Read => Some(Refused {
            rule: format!("{}:read", zone.name()),
            why: format!(
                "The profile `{}` reads the {} root and changes nothing in it.",
                policy.profile,
                zone.name()
            ),
            violation: false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Policies};
    use broker_protocol::{
        Bash, Command, FileEdit, FileList, FileRead, FileWrite, Glob, Grep, Scope, Stdin, Trust,
    };

    fn policy(profile: &str) -> EffectivePolicy {
        let host = Host { home: "/home/u".into(), ..Host::default() };
        let policy = Policies::load(vec![]).unwrap().resolve(profile, &host).unwrap();
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
        })
    }

    /// Every request that reads `at`.
    fn readers(at: &str) -> Vec<Request> {
        vec![
            bash(Some(at)),
            Request::FileRead(FileRead { path: path(at), offset: None, limit: None }),
            Request::FileList(FileList { path: path(at), depth: 1, hidden: true, limit: 1 }),
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
            Request::FileEdit(FileEdit { path: path(at), edits: vec![], expected_sha256: None }),
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
    fn what_is_closed_altogether_is_neither_read_nor_written() {
        let policy = policy("default");
        for at in [".env", "sub/.ENV", ".env/x", "central:credential-store.json", "config/client_secret.txt"]
        {
            for request in readers(at).iter().chain(&writers(at)) {
                let refused = refusal(&policy, request).unwrap_or_else(|| panic!("{at} {}", request.tool()));
                assert!(refused.violation && refused.rule.starts_with("protect:") && !refused.why.is_empty());
            }
        }
    }

    #[test]
    fn what_is_closed_to_writing_is_read() {
        let policy = policy("default");
        for at in [".git/config", "a/.git/hooks/pre-commit", ".vscode/tasks.json", ".claude/settings.json"] {
            assert!(readers(at).iter().all(|request| refusal(&policy, request).is_none()), "{at}");
            assert!(writers(at).iter().all(|request| refusal(&policy, request).unwrap().violation), "{at}");
        }
    }

    #[test]
    fn no_file_is_written_in_the_place_of_a_directory_that_leads_to_a_protected_name() {
        let policy = policy("default");
        let refused = refusal(&policy, &writers("sub/.git")[0]).unwrap();
        assert!(refused.violation && refused.rule.starts_with("protect:.git/"), "{refused:?}");
        assert!(readers(".git").iter().all(|request| refusal(&policy, request).is_none()));
    }

    #[test]
    fn the_rest_of_both_zones_is_open() {
        let policy = policy("default");
        for at in ["", "src/main.rs", ".env.example", "secrets.py", ".git/HEAD", "central:outputs/1.log"] {
            for request in readers(at).iter().chain(&writers(at)) {
                assert_eq!(refusal(&policy, request), None, "{at} {}", request.tool());
            }
        }
        assert_eq!(decide(&policy, &bash(None)), Verdict::Allow);
    }

    #[test]
    fn a_reading_profile_refuses_writes_without_calling_them_a_violation() {
        let policy = policy("read-only");
        assert!(readers("src/a.rs").iter().all(|request| refusal(&policy, request).is_none()));
        for request in writers("src/a.rs") {
            let refused = refusal(&policy, &request).unwrap();
            assert_eq!((refused.rule.as_str(), refused.violation), ("project:read", false));
        }
        assert!(writers("central:x").iter().all(|request| refusal(&policy, request).is_none()));
        // The name weighs more than the profile.
        assert!(refusal(&policy, &writers(".env")[0]).unwrap().violation);
    }

    #[test]
    fn each_trust_asks_about_its_risks() {
        let requests = [
            bash(None),
            writers("a").remove(0),
            Request::FileRead(FileRead { path: path("a"), offset: None, limit: None }),
        ];
        for (trust, asked) in
            Trust::ALL.into_iter().zip([[true, true, true], [true, true, false], [false; 3]])
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
                    verdict => assert!(!asked && verdict == Verdict::Allow, "{trust:?} {}", request.tool()),
                }
            }
        }
    }

    #[test]
    fn a_scope_closes_what_it_does_not_name() {
        let policy = policy("default").narrow(Some(&Scope::default()), Trust::Autonomous).unwrap();
        assert_eq!(refusal(&policy, &bash(None)).unwrap().rule, "scope:bash");
        assert!(writers("a").iter().all(|request| refusal(&policy, request).is_some()));
        let read = Request::FileRead(FileRead { path: path("a"), offset: None, limit: None });
        assert_eq!(refusal(&policy, &read), None);
    }
}
