//! The decision on a request: a pure function of the session's policy and what is asked.
//!
//! Comes from a request whose paths are well-formed; goes to the broker, which does nothing that was not allowed here.
//! It decides on names as text. That a link or a rename does not make another name of the same file is kept by the
//! layers around the cell and the worker, and a request that passes here meets them all.

use crate::effective::{Access, EffectivePolicy, ProtectedName, Protection};
use crate::rules::{self, Action, Opinion, Origin};
use crate::scope::Reach;
use broker_protocol::{Bash, Command, Effect, Refused, Request, Risk, Trust, Zone, ZonePath};
use std::borrow::Cow;

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
    /// Whether the rule is surely about the call, and about all of it: only then is a yes to one such call one to others.
    pub whole: bool,
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

/// What a decision looks at: all of a call that matters to a policy.
pub struct Facts<'a> {
    /// Canonical name of the tool.
    pub tool: &'a str,
    /// How much harm the call can do.
    pub risk: Risk,
    /// The path it touches, where it touches one.
    pub touch: Option<Touch<'a>>,
    /// The command it runs, where it runs one.
    pub command: Option<&'a Command>,
    /// Its parameters by canonical name, as far as a rule may ask about them.
    pub params: Vec<(&'a str, Param<'a>)>,
}

/// What is done with a path.
#[derive(Clone, Copy, Debug)]
pub enum Touch<'a> {
    /// A command runs there.
    Enter(&'a ZonePath),
    /// It is read.
    Read(&'a ZonePath),
    /// What lies below it may be shown.
    Search(&'a ZonePath),
    /// It is written.
    Write(&'a ZonePath),
}

/// The value of a parameter.
#[derive(Clone, Debug)]
pub enum Param<'a> {
    /// A text.
    Text(Cow<'a, str>),
    /// The content of a file.
    Bytes(&'a [u8]),
    /// A path.
    Path(&'a ZonePath),
}

impl Param<'_> {
    /// The value as a rule compares it; a path with its zone, if that is not the project.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Param::Text(text) => Cow::Borrowed(text),
            Param::Bytes(bytes) => String::from_utf8_lossy(bytes),
            Param::Path(path) => Cow::Owned(path.to_string()),
        }
    }
}

/// Parameters that rules may ask about, for each tool that the broker knows.
pub const PARAMS: [(&str, &[&str]); 9] = [
    ("bash", &["command", "cwd"]),
    ("file_read", &["path"]),
    ("file_write", &["path", "content"]),
    ("file_edit", &["path", "old", "new"]),
    ("file_list", &["path"]),
    ("glob", &["path", "pattern"]),
    ("grep", &["path", "pattern", "include"]),
    ("web_search", &["query"]),
    ("web_fetch", &["url"]),
];

impl<'a> Facts<'a> {
    /// Facts of a tool of which nothing else is known.
    pub fn bare(tool: &'a str, risk: Risk) -> Self {
        Self { tool, risk, touch: None, command: None, params: Vec::new() }
    }

    /// The facts of a request.
    pub fn of(request: &'a Request) -> Self {
        let mut facts = Self::bare(request.tool(), request.risk());
        match request {
            Request::Bash(bash) => facts.add_command(bash),
            Request::FileRead(read) => facts.touch(Touch::Read(&read.path)),
            Request::FileBytes(bytes) => facts.touch(Touch::Read(&bytes.path)),
            // Its file is not the client's to choose: nothing of it is a path that a scope or a rule could name.
            Request::State(_) => {}
            Request::FileList(list) => facts.touch(Touch::Search(&list.path)),
            Request::Glob(glob) => {
                facts.touch(Touch::Search(&glob.path));
                facts.add_text("pattern", &glob.pattern);
            }
            Request::Grep(grep) => {
                facts.touch(Touch::Search(&grep.path));
                facts.add_text("pattern", &grep.pattern);
                grep.include.iter().for_each(|include| facts.add_text("include", include));
            }
            Request::FileWrite(write) => {
                facts.touch(Touch::Write(&write.path));
                facts.params.push(("content", Param::Bytes(&write.content)));
            }
            Request::FileEdit(edit) => {
                facts.touch(Touch::Write(&edit.path));
                for edit in &edit.edits {
                    facts.add_text("old", &edit.old);
                    facts.add_text("new", &edit.new);
                }
            }
            Request::Undo(undo) => facts.touch(Touch::Write(&undo.path)),
            Request::Effect(Effect::WebSearch { query }) => facts.add_text("query", query),
            Request::Effect(Effect::WebFetch { url }) => facts.add_text("url", url),
            Request::Effect(Effect::Added { input, .. }) => facts.add_text("input", input),
            // They name no path, and show what the session's own calls did.
            Request::BackgroundList
            | Request::BackgroundLog(_)
            | Request::BackgroundKill(_)
            | Request::History(_) => {}
        }
        facts
    }

    fn add_command(&mut self, bash: &'a Bash) {
        self.command = Some(&bash.command);
        let text = match &bash.command {
            Command::Shell(text) => Cow::Borrowed(text.as_str()),
            Command::Arguments(arguments) => {
                let texts: Vec<_> =
                    arguments.iter().map(|argument| String::from_utf8_lossy(argument)).collect();
                Cow::Owned(texts.join(" "))
            }
        };
        self.params.push(("command", Param::Text(text)));
        if let Some(directory) = &bash.directory {
            self.touch = Some(Touch::Enter(directory));
            self.params.push(("cwd", Param::Path(directory)));
        }
    }

    fn touch(&mut self, touch: Touch<'a>) {
        let (Touch::Enter(path) | Touch::Read(path) | Touch::Search(path) | Touch::Write(path)) = touch;
        self.touch = Some(touch);
        self.params.push(("path", Param::Path(path)));
    }

    fn add_text(&mut self, name: &'a str, text: &'a str) {
        self.params.push((name, Param::Text(Cow::Borrowed(text))));
    }

    /// The values of a parameter: several where a call has several.
    pub fn values<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Param<'a>> {
        self.params.iter().filter(move |(own, _)| *own == name).map(|(_, value)| value)
    }
}

/// A decision, and where the rule stands that made it, if that is in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement<'a> {
    /// The decision.
    pub verdict: Verdict,
    /// The rule that made it, for a verdict that has one: an `allow` by default has none.
    pub rule: Option<String>,
    /// Why, by that rule.
    pub why: Option<String>,
    /// Where the rule stands.
    pub origin: Option<&'a Origin>,
}

impl<'a> Judgement<'a> {
    fn deny(refused: Refused, origin: Option<&'a Origin>) -> Self {
        let (rule, why) = (Some(refused.rule.clone()), Some(refused.why.clone()));
        Self { verdict: Verdict::Deny(refused), rule, why, origin }
    }

    fn ask(question: Question, origin: Option<&'a Origin>) -> Self {
        let (rule, why) = (Some(question.rule.clone()), Some(question.why.clone()));
        Self { verdict: Verdict::Ask(question), rule, why, origin }
    }
}

/// Decides on `request`. Time limits are not refused: see [`EffectivePolicy::timeout`].
pub fn decide(policy: &EffectivePolicy, request: &Request) -> Verdict {
    judge(policy, &Facts::of(request)).verdict
}

/// Decides on a call, and says by which rule. First what closes, scope, names and zones; then the rules; then how much the
/// session is trusted.
pub fn judge<'a>(policy: &'a EffectivePolicy, facts: &Facts) -> Judgement<'a> {
    if let Some(refused) = out_of_scope(policy, facts) {
        return Judgement::deny(refused, None);
    }
    if let Some((refused, origin)) = closed(policy, facts) {
        return Judgement::deny(refused, Some(origin));
    }
    let opinion = rules::opinion(&policy.rules, facts);
    match opinion {
        Some(opinion) if opinion.action == Action::Deny => {
            let (rule, why) = (opinion.rule.name(), opinion.rule.why.clone());
            Judgement::deny(Refused { rule, why, violation: false }, Some(&opinion.rule.origin))
        }
        Some(opinion) => by_opinion(policy, facts, &opinion),
        None => by_trust(policy, facts),
    }
}

/// What a rule that does not deny comes to: a session that is not trusted asks all the same, one that is asks nothing.
fn by_opinion<'a>(policy: &'a EffectivePolicy, facts: &Facts, opinion: &Opinion<'a>) -> Judgement<'a> {
    let (rule, origin) = (opinion.rule.name(), Some(&opinion.rule.origin));
    let why = match opinion.doubt {
        None => opinion.rule.why.clone(),
        Some(doubt) => format!("This may be meant, though that is not sure ({doubt}): {}", opinion.rule.why),
    };
    match (opinion.action, policy.trust) {
        (Action::Allow, Trust::Supervised) => by_trust(policy, facts),
        (Action::Ask, Trust::Supervised | Trust::Guided) => {
            Judgement::ask(Question { rule, why, risk: facts.risk, whole: opinion.whole }, origin)
        }
        _ => Judgement { verdict: Verdict::Allow, rule: Some(rule), why: Some(why), origin },
    }
}

fn by_trust<'a>(policy: &EffectivePolicy, facts: &Facts) -> Judgement<'a> {
    let (trust, risk) = (policy.trust, facts.risk);
    if !trust.asks(risk) {
        return Judgement { verdict: Verdict::Allow, rule: None, why: None, origin: None };
    }
    let rule = format!("trust:{}", trust.name());
    let why = format!("A {} session asks before calls of {} risk.", trust.name(), risk.name());
    Judgement::ask(Question { rule, why, risk, whole: true }, None)
}

fn out_of_scope(policy: &EffectivePolicy, facts: &Facts) -> Option<Refused> {
    let scope = policy.scope.as_ref()?;
    let refuse = |why| Some(Refused { rule: format!("scope:{}", facts.tool), why, violation: false });
    if !scope.permits(facts.tool) {
        return refuse(format!("`{}` is not permitted in the scope of this session.", facts.tool));
    }
    let (path, reach) = match facts.touch? {
        Touch::Read(path) | Touch::Write(path) => (path, Reach::Name),
        Touch::Search(path) => (path, Reach::Tree),
        // What a command may write is held by its cell.
        Touch::Enter(_) => return None,
    };
    if policy.paths.permits(facts.tool, path.zone(), path.relative().as_bytes(), reach) {
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
        // What a command may touch is held by its cell.
        Touch::Enter(path) | Touch::Read(path) | Touch::Search(path) => reading(policy, path),
        Touch::Write(path) => writing(policy, path),
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
    let name = policy.matcher.protection(relative).or_else(|| policy.matcher.leads_to(relative));
    name.map(protected).or_else(|| read_only(policy, path.zone()))
}

fn protected(name: &ProtectedName) -> (Refused, &Origin) {
    let rule = format!("protect:{}", name.pattern);
    (Refused { rule, why: name.why.clone(), violation: true }, &name.origin)
}

/// The refusal of a write in a zone that the profile only reads. No violation: the name is not the point.
fn read_only(policy: &EffectivePolicy, zone: Zone) -> Option<(Refused, &Origin)> {
    let (access, origin) = match zone {
        Zone::Project => (policy.project, &policy.zones_from[0]),
        Zone::Central => (policy.central, &policy.zones_from[1]),
    };
    if access == Access::Write {
        return None;
    }
    let (profile, zone) = (&policy.profile, zone.name());
    let why = format!("The profile `{profile}` reads the {zone} root and changes nothing in it.");
    Some((Refused { rule: format!("{zone}:read"), why, violation: false }, origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Policies};
    use broker_protocol::{FileEdit, FileList, FileRead, FileWrite, Glob, Grep, Scope, Stdin, Undo};

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
            background: false,
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
            Request::Undo(Undo { change: 1, path: path(at), force: true }),
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
