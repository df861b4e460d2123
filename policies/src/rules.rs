//! Rules of the policy files: allow, ask or deny by tool, parameter and command.
//!
//! Of one source the first rule that matches counts, those of a tool before those of `*`; of all sources the strictest
//! decides. So a later source can ask or deny where an earlier one does not, and never the other way round. A rule that allows
//! is read narrowly and one that asks or denies widely: `allow` compares exactly and counts only where it is certain; `ask`
//! and `deny` ignore the case of letters, and ask where they may match.

use crate::command::{CommandRule, Fit};
use crate::facts::{Facts, PARAMS, Param};
use crate::paths::{GlobError, PathGlob};
use crate::source::SourceKind;
use crate::value::{self, RuleTool};
use broker_protocol::Risk;
use policies_guard::Origin;
use policies_guard::pattern::{Case, Pattern};
use policies_targets::shell::{self, Unit};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The action of a rule on the calls that it matches. Ordered: a later one is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// They need no approval, but in a supervised session.
    Allow,
    /// They need approval, but in an autonomous session.
    Ask,
    Deny,
}

impl Action {
    /// The name in policy files.
    pub fn name(self) -> &'static str {
        match self {
            Action::Allow => "allow",
            Action::Ask => "ask",
            Action::Deny => "deny",
        }
    }

    /// How a rule of this action compares texts.
    fn case(self) -> Case {
        match self {
            Action::Allow => Case::Exact,
            Action::Ask | Action::Deny => Case::Ignored,
        }
    }
}

/// A rule as a file writes it. What it means as a whole is checked when the file is read, too.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleEntry {
    pub(crate) tool: RuleTool,
    pub(crate) action: Action,
    pub(crate) why: String,
    /// The least risk that its questions show.
    pub(crate) risk: Option<Risk>,
    /// For `bash`: a pattern of a program in the command line.
    pub program: Option<String>,
    /// Patterns of the program's first arguments.
    pub(crate) args: Option<Vec<String>>,
    /// Conditions on the parameters, all of which must hold.
    #[serde(default)]
    pub when: Vec<ConditionEntry>,
}

/// A condition as a file writes it: one test, with one value or several of which one must match.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionEntry {
    pub(crate) param: String,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub equals: Option<Vec<String>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub contains: Option<Vec<String>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub(crate) starts_with: Option<Vec<String>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub(crate) matches: Option<Vec<String>>,
}

/// Inconsistent combinations of keys in a rule.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RuleFault {
    #[error("a rule has a `why`: the reason that the user and the model get")]
    Why,
    #[error(
        "`program` and `args` are for rules with `tool = \"bash\"`, and `args` for those with `program`"
    )]
    Command,
    #[error(
        "a condition has one of `equals`, `contains`, `starts_with` and `matches`, and at least one value"
    )]
    Test,
    #[error("`{tool}` has no parameter `{param}` that a rule can name; it has: {known}")]
    Param {
        tool: String,
        param: String,
        known: String,
    },
    #[error("`risk` is for rules with `action = \"ask\"`: it is what the question shows")]
    Risk,
    #[error("{0}")]
    Glob(#[from] GlobError),
}

/// A rule, its conditions and patterns compiled.
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// Who wrote the file it stands in.
    pub source: SourceKind,
    /// The line where it begins.
    #[serde(skip)]
    pub origin: Origin,
    /// The tool's canonical name, or `*`.
    pub tool: String,
    pub action: Action,
    /// The reason that the user and the model get.
    pub why: String,
    /// The least risk that its questions show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Conditions on the parameters, all of which must hold.
    pub when: Vec<Condition>,
    /// For `bash`: which commands it is about.
    pub command: Option<CommandRule>,
}

impl PartialEq for Rule {
    /// Rules of the same line are the same.
    fn eq(&self, other: &Self) -> bool {
        (self.source, &self.origin) == (other.source, &other.origin)
    }
}

impl Eq for Rule {}

impl Rule {
    /// Compiles a rule of `source` that begins at `origin`.
    ///
    /// # Errors
    /// Its parts do not fit together, or one of its patterns is none.
    pub fn new(entry: &RuleEntry, source: SourceKind, origin: Origin) -> Result<Self, RuleFault> {
        if entry.why.trim().is_empty() {
            return Err(RuleFault::Why);
        }
        let (tool, action) = (entry.tool.as_str(), entry.action);
        let risk = entry.risk;
        if risk.is_some() && action != Action::Ask {
            return Err(RuleFault::Risk);
        }
        let when = entry
            .when
            .iter()
            .map(|condition| Condition::new(condition, tool, action.case()));
        let (when, command) = (when.collect::<Result<_, _>>()?, command_of(entry)?);
        Ok(Self {
            source,
            origin,
            tool: tool.to_owned(),
            action,
            why: entry.why.clone(),
            risk,
            when,
            command,
        })
    }

    /// The name in results: the source and the line.
    pub fn name(&self) -> String {
        format!("rule:{}:{}", self.source.name(), self.origin.line)
    }

    fn is_about(&self, facts: &Facts) -> bool {
        let named = self.tool == facts.tool || self.tool == "*";
        named
            && self
                .when
                .iter()
                .all(|condition| condition.holds(facts, self.action))
    }

    /// How it matches a part of a call that it is about.
    fn judge(&self, unit: Option<&Unit>) -> Option<RuleMatch<'_>> {
        let found = |action, doubt, whole| {
            Some(RuleMatch {
                action,
                rule: self,
                doubt,
                whole,
            })
        };
        let Some(command) = &self.command else {
            return found(self.action, None, true);
        };
        let fit = match unit? {
            Unit::Simple(simple) => command.fits(simple),
            Unit::Unparsed(reason) => Fit::Maybe(reason),
        };
        match (fit, self.action) {
            (Fit::Exactly, action) => found(action, None, true),
            (Fit::Widely, Action::Ask | Action::Deny) => found(self.action, None, false),
            (Fit::Maybe(doubt), Action::Ask | Action::Deny) => {
                found(Action::Ask, Some(doubt), false)
            }
            (Fit::Widely | Fit::Maybe(_), Action::Allow) | (Fit::No, _) => None,
        }
    }
}

fn command_of(entry: &RuleEntry) -> Result<Option<CommandRule>, RuleFault> {
    let args = entry.args.as_deref().unwrap_or_default();
    match &entry.program {
        Some(program) if entry.tool.as_str() == "bash" && !program.is_empty() => Ok(Some(
            CommandRule::new(program.clone(), args.to_vec(), entry.action.case())?,
        )),
        None if entry.args.is_none() => Ok(None),
        Some(_) | None => Err(RuleFault::Command),
    }
}

/// A condition on one parameter.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// The canonical name of the parameter.
    pub param: String,
    pub test: Test,
    /// One of these must match.
    pub values: Vec<String>,
    #[serde(skip)]
    matchers: Vec<ValueMatcher>,
    #[serde(skip)]
    case: Case,
}

/// How a parameter is compared with a value: see the keys of [`ConditionEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Test {
    Equals,
    Contains,
    StartsWith,
    Matches,
}

impl Test {
    /// The key in a policy file.
    pub fn name(self) -> &'static str {
        match self {
            Test::Equals => "equals",
            Test::Contains => "contains",
            Test::StartsWith => "starts_with",
            Test::Matches => "matches",
        }
    }
}

/// A value, compiled for its test.
#[derive(Clone, Debug)]
enum ValueMatcher {
    Equals,
    Contains,
    StartsWith,
    Glob(Pattern),
    Path(PathGlob),
}

/// Parameters whose values are paths.
const PATHS: [&str; 2] = ["path", "cwd"];

impl Condition {
    fn new(entry: &ConditionEntry, tool: &str, case: Case) -> Result<Self, RuleFault> {
        let param = &entry.param;
        if let Some((_, known)) = PARAMS.iter().find(|(name, _)| *name == tool)
            && !known.contains(&param.as_str())
        {
            let (tool, param, known) = (tool.to_owned(), param.clone(), known.join(", "));
            return Err(RuleFault::Param { tool, param, known });
        }
        let tests = [
            (Test::Equals, &entry.equals),
            (Test::Contains, &entry.contains),
            (Test::StartsWith, &entry.starts_with),
            (Test::Matches, &entry.matches),
        ];
        let mut given = tests
            .into_iter()
            .filter_map(|(test, values)| Some((test, values.as_ref()?)));
        let (Some((test, values)), None) = (given.next(), given.next()) else {
            return Err(RuleFault::Test);
        };
        if values.is_empty() {
            return Err(RuleFault::Test);
        }
        let matchers = values
            .iter()
            .map(|value| ValueMatcher::new(param, test, value, case));
        let matchers = matchers.collect::<Result<_, _>>()?;
        Ok(Self {
            param: param.clone(),
            test,
            values: values.clone(),
            matchers,
            case,
        })
    }

    /// Whether it holds of a call: for an `allow` of every value, for others of any. None holds of a parameter that is
    /// not given.
    fn holds(&self, facts: &Facts, action: Action) -> bool {
        let mut values = facts
            .values(&self.param)
            .map(|param| self.matches(param))
            .peekable();
        match action {
            Action::Allow => values.peek().is_some() && values.all(|matches| matches),
            Action::Ask | Action::Deny => values.any(|matches| matches),
        }
    }

    fn matches(&self, param: &Param) -> bool {
        let text = param.text();
        let mut values = self.values.iter().zip(&self.matchers);
        values.any(|(value, matcher)| {
            matcher.matches(param, text.as_bytes(), value.as_bytes(), self.case)
        })
    }
}

impl ValueMatcher {
    fn new(param: &str, test: Test, value: &str, case: Case) -> Result<Self, GlobError> {
        Ok(match test {
            Test::Equals => ValueMatcher::Equals,
            Test::Contains => ValueMatcher::Contains,
            Test::StartsWith => ValueMatcher::StartsWith,
            Test::Matches if PATHS.contains(&param) => {
                ValueMatcher::Path(PathGlob::parse(value, case)?)
            }
            Test::Matches => ValueMatcher::Glob(Pattern::parse(value, case)?),
        })
    }

    fn matches(&self, param: &Param, text: &[u8], value: &[u8], case: Case) -> bool {
        match self {
            ValueMatcher::Equals => case.same(text, value),
            ValueMatcher::StartsWith => text
                .get(..value.len())
                .is_some_and(|start| case.same(start, value)),
            ValueMatcher::Contains => {
                value.is_empty()
                    || text
                        .windows(value.len())
                        .any(|window| case.same(window, value))
            }
            ValueMatcher::Glob(pattern) => pattern.matches(text),
            ValueMatcher::Path(glob) => {
                matches!(param, Param::Path(path) if glob.matches(path.zone(), path.relative().as_bytes()))
            }
        }
    }
}

/// The verdict of the rules on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleMatch<'a> {
    pub(crate) action: Action,
    /// The rule that decides about the call.
    pub rule: &'a Rule,
    /// Why it is not certain that the rule is about the call, where it is not.
    pub doubt: Option<&'static str>,
    /// Whether the rule matches every part of the call exactly, and no other source has a rule of the same action.
    pub(crate) whole: bool,
}

/// The verdict of `rules` on a call; `None` where none matches. They are in the order of their sources.
pub(crate) fn judge<'a>(rules: &'a [Rule], facts: &Facts) -> Option<RuleMatch<'a>> {
    let mut about: Vec<&Rule> = rules.iter().filter(|rule| rule.is_about(facts)).collect();
    about.sort_by_key(|rule| (rule.source, rule.tool == "*"));
    // One for each simple command, where a rule asks for them; else one for the call as a whole.
    let command = facts
        .command
        .filter(|_| about.iter().any(|rule| rule.command.is_some()));
    let mut units: Vec<Option<Unit>> = command
        .map(shell::units)
        .into_iter()
        .flatten()
        .map(Some)
        .collect();
    if units.is_empty() {
        units.push(None);
    }
    let sources = about.chunk_by(|one, other| one.source == other.source);
    let matches = sources.filter_map(|rules| of_source(rules, &units));
    // An approval of one source's question is none of the other's.
    matches.reduce(|first, next| {
        let differ = first.action != next.action;
        let strictest = stricter(first, next);
        RuleMatch {
            whole: differ && strictest.whole,
            ..strictest
        }
    })
}

/// The verdict of one source: the strictest about any part, and `allow` only about all of them.
fn of_source<'a>(rules: &[&'a Rule], units: &[Option<Unit>]) -> Option<RuleMatch<'a>> {
    let matches: Vec<Option<RuleMatch>> = units
        .iter()
        .map(|unit| of_unit(rules, unit.as_ref()))
        .collect();
    let all = matches.iter().all(Option::is_some);
    let strictest = matches.iter().flatten().cloned().reduce(stricter)?;
    let same = |one: &Option<RuleMatch>| {
        one.as_ref()
            .is_some_and(|one| one.rule == strictest.rule && one.whole)
    };
    let whole = matches.iter().all(same);
    (all || strictest.action > Action::Allow).then_some(RuleMatch { whole, ..strictest })
}

/// The first rule that matches this part; those before it that may match make it no weaker.
fn of_unit<'a>(rules: &[&'a Rule], unit: Option<&Unit>) -> Option<RuleMatch<'a>> {
    let mut strictest = None;
    for rule in rules {
        let Some(next) = rule.judge(unit) else {
            continue;
        };
        let certain = next.doubt.is_none();
        strictest = Some(strictest.map_or(next.clone(), |first| stricter(first, next)));
        if certain {
            break;
        }
    }
    strictest
}

/// The stricter of two, and the first of equals.
fn stricter<'a>(first: RuleMatch<'a>, next: RuleMatch<'a>) -> RuleMatch<'a> {
    if next.action > first.action {
        next
    } else {
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::PolicyFile;
    use broker_protocol::{Bash, Command, Request, Stdin, limit};
    use policies_guard::steps;

    fn rules(text: &str) -> Vec<Rule> {
        let file = PolicyFile::parse("p", &format!("version = 1\n{text}")).unwrap();
        let rule = |entry: &toml::Spanned<RuleEntry>| {
            Rule::new(entry.get_ref(), SourceKind::User, Origin::default())
        };
        file.rule.iter().map(|entry| rule(entry).unwrap()).collect()
    }

    /// Rules that look at every word, on the longest lines there are.
    #[test]
    fn steps_are_at_most_signs_times_bytes() {
        let rules = rules(
            "[[rule]]\ntool='bash'\naction='deny'\nwhy='w'\nprogram='*a*a*b'\n\
             [[rule]]\ntool='bash'\naction='ask'\nwhy='w'\nprogram='*a*'\nargs=['*b*b*c', '-*x*y']\n\
             [[rule]]\ntool='bash'\naction='allow'\nwhy='w'\nwhen=[{param='command', matches='*a*a*c'}]\n",
        );
        let signs = 3 * "*b*b*c-*x*y".len();
        let mut highest = 0;
        for part in [
            "a;",
            "a a;",
            "ab -x ",
            "a --b=c ",
            "a b -",
            "aaaaaaaa",
            "a -x b;",
            "'a' \"b\" ",
        ] {
            let command = Command::Shell(part.repeat(limit::COMMAND / part.len()));
            let bytes = limit::COMMAND;
            let request = Request::Bash(Bash {
                command,
                directory: None,
                timeout_s: None,
                idle_timeout_s: None,
                stdin: Stdin::Null,
                live: false,
                background: false,
                split: false,
                attended: false,
            });
            let (steps, _) = steps::of(|| judge(&rules, &Facts::of(&request)));
            assert!(
                steps <= signs * bytes,
                "{part} took {steps}, with {signs} signs"
            );
            highest = highest.max(steps);
        }
        assert!(
            highest > 3 * limit::COMMAND,
            "what is counted are their steps: {highest}"
        );
    }
}
