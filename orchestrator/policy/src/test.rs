//! `lazaret policy test`: compares a file of expected verdicts with the policy, for the tests of a team's own policy.

use crate::explain::{self, CallPlace, DecidableCall, Explanation};
use crate::sessions::narrowed;
use broker_protocol::{Failed, Scope};
use orchestrator_launch::exit;
use orchestrator_launch::launch::Prepared;
use orchestrator_launch::session_options::{SessionOptions, read_text};
use orchestrator_launch::stdio::print;
use policies::value::TrustName;
use policies::{Action, EffectivePolicy, Facts, Verdict};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::Path;
use toml::Spanned;

/// Maximum number of expectations in a file.
const EXPECTATIONS_MAX: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectations {
    version: u32,
    #[serde(default)]
    expect: Vec<Spanned<Expectation>>,
}

/// A call or a host, and the verdict on it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    tool: Option<String>,
    input: Option<Map<String, Value>>,
    /// `NAME:PORT`, to which a command connects.
    host: Option<String>,
    verdict: Action,
    /// The rule that must decide.
    rule: Option<String>,
    profile: Option<String>,
    trust: Option<TrustName>,
}

/// One expectation, and the policy's verdict.
struct Tested {
    line: usize,
    /// The call or the host, for people.
    subject: String,
    expected: Action,
    expected_rule: Option<String>,
    /// The verdict and its rule, or why there is none.
    found: Result<(Action, Option<String>), Failed>,
}

/// A session with the command's options, which is read once for all expectations.
struct TestSession<'o> {
    options: &'o SessionOptions,
    scope: Result<Option<Scope>, Failed>,
    place: Result<CallPlace, Failed>,
}

pub(super) fn test(prepared: &Prepared, file: &Path, json: bool) -> Result<u8, Failed> {
    let text = read_text(prepared.files(), file)?;
    let name = file.display().to_string();
    let expectations = parse(&name, &text)?;
    let options = prepared.options();
    // A policy that cannot be used decides nothing, and no expectation is about that.
    options.policy().map_err(Failed::from)?;
    let session = TestSession {
        options,
        scope: options.scope(),
        place: CallPlace::of(options),
    };
    let tested = expectations.iter();
    let tested: Vec<Tested> = tested
        .map(|entry| Tested::new(entry, &text, &session))
        .collect();
    if json {
        let rows: Vec<Value> = tested.iter().map(|one| one.to_json(&name)).collect();
        print::json(&rows)?;
    } else {
        print::result(print::shown(&page(&name, &tested)).as_bytes())?;
    }
    Ok(if tested.iter().all(Tested::holds) {
        exit::OK
    } else {
        exit::FAILED
    })
}

fn parse(name: &str, text: &str) -> Result<Vec<Spanned<Expectation>>, Failed> {
    let invalid = |why: String| Failed::invalid(format!("{name}: {why}"));
    let file: Expectations = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
    if file.version != 1 {
        return Err(invalid(format!(
            "version {} is unknown; write `version = 1`",
            file.version
        )));
    }
    if file.expect.is_empty() {
        return Err(invalid(
            "it expects nothing: there is no `[[expect]]`".into(),
        ));
    }
    if file.expect.len() > EXPECTATIONS_MAX {
        return Err(invalid(format!(
            "it has more than {EXPECTATIONS_MAX} expectations; use several files"
        )));
    }
    Ok(file.expect)
}

fn page(name: &str, tested: &[Tested]) -> String {
    let mut page: String = tested.iter().map(|one| one.text(name)).collect();
    let failed = tested.iter().filter(|one| !one.holds()).count();
    let held = tested.len() - failed;
    page.push_str(&format!("{held} as expected, {failed} not\n"));
    page
}

impl Expectation {
    /// The policy that it is about: that of the command's options where it names nothing else.
    fn policy(&self, session: &TestSession) -> Result<EffectivePolicy, Failed> {
        let policy = match &self.profile {
            Some(profile) => session.options.files().resolve(profile),
            None => session.options.policy(),
        };
        let trust = self.trust.map(|trust| trust.0).or(session.options.trust());
        let scope = session.scope.as_ref().map_err(Failed::clone)?;
        narrowed(policy.map_err(Failed::from)?, scope.as_ref(), trust)
    }

    /// The verdict on what it is about, and the rule that decides.
    fn judge(&self, session: &TestSession) -> Result<(Action, Option<String>), Failed> {
        let policy = self.policy(session)?;
        match (&self.tool, &self.input, &self.host) {
            (Some(tool), input, None) => {
                let input = Value::Object(input.clone().unwrap_or_default());
                let place = session.place.as_ref().map_err(Failed::clone)?;
                judge_call(tool, input, &policy, place)
            }
            (None, None, Some(host)) => judge_host(host, &policy).map(|verdict| (verdict, None)),
            _ => Err(Failed::invalid(
                "an expectation is about a `tool` with its `input`, or about a `host`",
            )),
        }
    }

    fn subject(&self) -> String {
        let text = match (&self.tool, &self.host) {
            (Some(tool), _) => {
                let input = self.input.clone().map(Value::Object).unwrap_or(json!({}));
                format!("{tool} {input}")
            }
            (None, Some(host)) => format!("host {host}"),
            (None, None) => "nothing".to_owned(),
        };
        match &self.profile {
            Some(profile) => format!("{text} in {profile}"),
            None => text,
        }
    }
}

/// The strictest verdict on a call and, of a batch, on the calls in it.
fn judge_call(
    tool: &str,
    input: Value,
    policy: &EffectivePolicy,
    place: &CallPlace,
) -> Result<(Action, Option<String>), Failed> {
    let calls = explain::decidable(tool, input, &place.context(), &policy.web)?;
    let facts: Vec<Facts> = calls.iter().map(DecidableCall::facts).collect();
    let verdicts = calls.iter().zip(&facts).map(|(call, facts)| {
        let judgement = Explanation::new(call, facts, policy).judgement;
        (action_of(&judgement.verdict), judgement.rule)
    });
    let strictest = verdicts.rev().max_by_key(|(verdict, _)| *verdict);
    Ok(strictest.unwrap_or((Action::Deny, None)))
}

fn action_of(verdict: &Verdict) -> Action {
    match verdict {
        Verdict::Allow => Action::Allow,
        Verdict::Ask(_) => Action::Ask,
        Verdict::Deny(_) => Action::Deny,
    }
}

/// Whether commands may connect to a host; addresses are only known when they do.
fn judge_host(host: &str, policy: &EffectivePolicy) -> Result<Action, Failed> {
    let invalid = || Failed::invalid(format!("`{host}` is not a host with a port, as NAME:443"));
    let (name, port) = host.rsplit_once(':').ok_or_else(invalid)?;
    let port = port.parse().map_err(|_| invalid())?;
    Ok(if policy.network.allows(name, port) {
        Action::Allow
    } else {
        Action::Deny
    })
}

impl Tested {
    fn new(entry: &Spanned<Expectation>, text: &str, session: &TestSession) -> Self {
        let before = text.get(..entry.span().start).unwrap_or_default();
        let expectation = entry.get_ref();
        Self {
            line: before.matches('\n').count() + 1,
            subject: expectation.subject(),
            expected: expectation.verdict,
            expected_rule: expectation.rule.clone(),
            found: expectation.judge(session),
        }
    }

    fn holds(&self) -> bool {
        self.found.as_ref().is_ok_and(|(verdict, rule)| {
            *verdict == self.expected
                && (self.expected_rule.is_none() || self.expected_rule == *rule)
        })
    }

    fn text(&self, file: &str) -> String {
        let Self { line, subject, .. } = self;
        let found = match &self.found {
            Ok((verdict, rule)) => with_rule(*verdict, rule.as_deref()),
            Err(failed) => failed.message.clone(),
        };
        if self.holds() {
            return format!("ok      {file}:{line}: {subject}: {found}\n");
        }
        let expected = with_rule(self.expected, self.expected_rule.as_deref());
        format!("FAILED  {file}:{line}: {subject}: expected {expected}, found {found}\n")
    }

    fn to_json(&self, file: &str) -> Value {
        let found = self.found.as_ref().ok();
        json!({
            "file": file,
            "line": self.line,
            "subject": self.subject,
            "ok": self.holds(),
            "expected": { "verdict": self.expected.name(), "rule": self.expected_rule },
            "verdict": found.map(|(verdict, _)| verdict.name()),
            "rule": found.and_then(|(_, rule)| rule.as_ref()),
            "error": self.found.as_ref().err().map(|failed| &failed.message),
        })
    }
}

fn with_rule(verdict: Action, rule: Option<&str>) -> String {
    let verdict = verdict.name();
    rule.map_or(verdict.to_owned(), |rule| format!("{verdict} by {rule}"))
}
