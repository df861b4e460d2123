//! Rules of the policy files: what is allowed, asked or denied by tool, parameter and command.
//!
//! A source's first rule that fits counts, those of a tool before those of `*`; the strictest source decides. So a later source
//! can ask or deny where an earlier one does not, and never the other way round. A rule that opens is read narrowly and
//! one that closes widely: an `allow` compares exactly and holds only where it is sure; `ask` and `deny` ignore the case of
//! letters, and ask where they may fit.

use crate::decide::{Facts, PARAMS, Param};
use crate::model::{ConditionEntry, RuleEntry};
use crate::paths::{GlobError, PathGlob};
use crate::pattern::{Case, Pattern};
use crate::shell::{self, Simple, Unit, base_name};
use crate::source::SourceKind;
use serde::Deserialize;
use std::fmt;
use thiserror::Error;

/// What a rule says about the calls it fits. Ordered: a later one is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// They need not be asked about, unless everything is.
    Allow,
    /// They are asked about, unless nothing is.
    Ask,
    /// They are refused.
    Deny,
}

impl Action {
    /// The name in policies.
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

/// Where something stands that a policy says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, as people know it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A rule, ready to be asked.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Whose it is.
    pub source: SourceKind,
    /// Where it stands.
    pub origin: Origin,
    /// The tool's canonical name, or `*`.
    pub tool: String,
    /// What it says.
    pub action: Action,
    /// Why, for the user and the model.
    pub why: String,
    /// What must hold of the call's parameters.
    pub when: Vec<Condition>,
    /// Which commands it is about, for `bash`.
    pub command: Option<CommandRule>,
}

/// What must hold of one parameter.
#[derive(Clone, Debug)]
pub struct Condition {
    /// Its canonical name.
    pub param: String,
    /// How it is compared.
    pub test: Test,
    /// With what: one of these must fit.
    pub values: Vec<String>,
    matchers: Vec<Matcher>,
}

/// How a parameter is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of the keys.
pub enum Test {
    Equals,
    Contains,
    StartsWith,
    Matches,
}

impl Test {
    /// The key in a policy.
    pub fn name(self) -> &'static str {
        match self {
            Test::Equals => "equals",
            Test::Contains => "contains",
            Test::StartsWith => "starts_with",
            Test::Matches => "matches",
        }
    }
}

#[derive(Clone, Debug)]
enum Matcher {
    Text,
    Glob(Pattern),
    Path(PathGlob),
}

/// Which simple commands a rule is about.
#[derive(Clone, Debug)]
pub struct CommandRule {
    /// Pattern of the program. Without a `/`, also in any directory, for a rule that closes.
    pub program: String,
    /// Patterns of its first arguments.
    pub args: Vec<String>,
    program_pattern: Pattern,
    arg_patterns: Vec<Pattern>,
}

/// Parameters whose values are paths.
const PATHS: [&str; 2] = ["path", "cwd"];

impl Condition {
    /// Compiles a condition for a rule of `action`.
    ///
    /// # Errors
    /// One of `values` is no glob, where that is what is asked for.
    pub fn new(param: &str, test: Test, values: Vec<String>, action: Action) -> Result<Self, GlobError> {
        let matcher = |value: &String| {
            Ok(match test {
                Test::Matches if PATHS.contains(&param) => {
                    Matcher::Path(PathGlob::parse(value, action.case())?)
                }
                Test::Matches => Matcher::Glob(Pattern::parse(value, action.case())?),
                Test::Equals | Test::Contains | Test::StartsWith => Matcher::Text,
            })
        };
        let matchers = values.iter().map(matcher).collect::<Result<_, GlobError>>()?;
        Ok(Self { param: param.to_owned(), test, values, matchers })
    }

    /// Whether it holds of a call: for an `allow` of every value, for others of any. Of a parameter that is not given
    /// nothing holds.
    fn holds(&self, facts: &Facts, action: Action) -> bool {
        let mut values = facts.values(&self.param).map(|param| self.fits(param, action.case())).peekable();
        match action {
            Action::Allow => values.peek().is_some() && values.all(|fits| fits),
            Action::Ask | Action::Deny => values.any(|fits| fits),
        }
    }

    fn fits(&self, param: &Param, case: Case) -> bool {
        let text = param.text();
        let text = text.as_bytes();
        let holds = |(value, matcher): (&String, &Matcher)| {
            let value = value.as_bytes();
            match (self.test, matcher) {
                (_, Matcher::Path(glob)) => {
                    matches!(param, Param::Path(path) if glob.matches(path.zone(), path.relative().as_bytes()))
                }
                (_, Matcher::Glob(pattern)) => pattern.matches(text),
                (Test::Equals, _) => case.same(text, value),
                (Test::StartsWith, _) => text.get(..value.len()).is_some_and(|start| case.same(start, value)),
                (Test::Contains | Test::Matches, _) => contains(text, value, case),
            }
        };
        self.values.iter().zip(&self.matchers).any(holds)
    }
}

fn contains(text: &[u8], part: &[u8], case: Case) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| case.same(window, part))
}

/// Why a rule that is well-formed means nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum RuleFault {
    #[error("a rule has a `why`: it is what the user and the model are told")]
    Why,
    #[error("`program` and `args` are for rules with `tool = \"bash\"`, and `args` for those with `program`")]
    Command,
    #[error(
        "a condition has one of `equals`, `contains`, `starts_with` and `matches`, and at least one value"
    )]
    Test,
    #[error("`{tool}` has no parameter `{param}` that a rule can ask about; it has: {known}")]
    Param { tool: String, param: String, known: String },
    #[error("{0}")]
    Glob(#[from] GlobError),
}

impl Rule {
    /// Makes a rule of what stands in a file.
    ///
    /// # Errors
    /// What is written means nothing.
    pub fn new(entry: &RuleEntry, source: SourceKind, origin: Origin) -> Result<Self, RuleFault> {
        if entry.why.trim().is_empty() {
            return Err(RuleFault::Why);
        }
        let (tool, action) = (entry.tool.as_str(), entry.action);
        let when = entry.when.iter().map(|condition| condition_of(condition, tool, action));
        Ok(Self {
            source,
            origin,
            tool: tool.to_owned(),
            action,
            why: entry.why.clone(),
            when: when.collect::<Result<_, _>>()?,
            command: command_of(entry)?,
        })
    }
}

fn command_of(entry: &RuleEntry) -> Result<Option<CommandRule>, RuleFault> {
    let args = entry.args.as_deref().unwrap_or_default();
    match &entry.program {
        Some(program) if entry.tool.as_str() == "bash" && !program.is_empty() => {
            Ok(Some(CommandRule::new(program.clone(), args.to_vec(), entry.action)?))
        }
        None if entry.args.is_none() => Ok(None),
        _ => Err(RuleFault::Command),
    }
}

fn condition_of(entry: &ConditionEntry, tool: &str, action: Action) -> Result<Condition, RuleFault> {
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
    let mut given = tests.into_iter().filter_map(|(test, values)| Some((test, values.as_ref()?)));
    match (given.next(), given.next()) {
        (Some((test, values)), None) if !values.is_empty() => {
            Ok(Condition::new(param, test, values.clone(), action)?)
        }
        _ => Err(RuleFault::Test),
    }
}

/// How surely a rule is about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fit {
    No,
    /// Nobody knows, for this reason.
    Maybe(&'static str),
    /// It is about it as far as a rule that closes goes: another program of that name, a setting in front of it, options
    /// between its arguments, or a file that it writes may make it something else.
    Widely,
    Exactly,
}

impl CommandRule {
    /// Compiles a rule of `action` on commands.
    ///
    /// # Errors
    /// `program` or one of `args` is no pattern.
    pub fn new(program: String, args: Vec<String>, action: Action) -> Result<Self, GlobError> {
        let parse = |text: &String| Pattern::parse(text, action.case());
        let arg_patterns = args.iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { program_pattern: parse(&program)?, program, args, arg_patterns })
    }

    fn fits(&self, simple: &Simple) -> Fit {
        let Some(program) = simple.program() else { return Fit::No };
        let named = |name: &str| self.program_pattern.matches(name.as_bytes());
        let exactly = named(program);
        if !exactly && (self.program.contains('/') || !named(base_name(program))) {
            return Fit::No;
        }
        match self.arguments(base_name(program), &simple.words[1..]) {
            Fit::Exactly if !exactly || simple.marked => Fit::Widely,
            fit => fit,
        }
    }

    /// Whether these words are the arguments. Options that are not meant stand between them; one that is meant stands anywhere.
    fn arguments(&self, program: &str, words: &[Option<String>]) -> Fit {
        let mut words = words.iter();
        // Whether a word was passed over, and whether what was passed over or found can be read in another way.
        let (mut passed, mut unsure, mut found_unsure) = (false, false, false);
        let mut value = Value::No;
        for (at, (text, pattern)) in self.args.iter().zip(&self.arg_patterns).enumerate() {
            let meant = |word: &str| pattern.matches(word.as_bytes());
            let option = text.trim_start_matches('{').starts_with('-');
            loop {
                let word = match words.next() {
                    Some(Some(word)) => word,
                    // It may be this word, or others, or none.
                    Some(None) => return Fit::Maybe("only the shell knows its arguments"),
                    None => return if found_unsure { Fit::Maybe(TWO_WAYS) } else { Fit::No },
                };
                let before = std::mem::replace(&mut value, Value::No);
                if before != Value::Yes && meant(word) {
                    found_unsure |= unsure || (before == Value::Maybe && !option);
                    break;
                }
                passed = true;
                if before == Value::Yes {
                    continue;
                }
                if word == "--" && option {
                    return if found_unsure { Fit::Maybe(TWO_WAYS) } else { Fit::No };
                }
                if is_option(program, word) {
                    value = if at == 0 { Value::of(program, word) } else { Value::Maybe };
                } else if !option && before == Value::Maybe {
                    unsure = true;
                } else if !option {
                    return if found_unsure { Fit::Maybe(TWO_WAYS) } else { Fit::No };
                }
            }
        }
        match (found_unsure, passed) {
            (true, _) => Fit::Maybe(TWO_WAYS),
            (false, true) => Fit::Widely,
            (false, false) => Fit::Exactly,
        }
    }
}

const TWO_WAYS: &str = "a word may be an option's value or an argument";

/// Whether the next word belongs to an option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    No,
    Maybe,
    Yes,
}

/// Options with a value in a word of its own that stand before the subcommand, of programs of which these are all. From `git(1)`,
/// `cargo --help` and `docker --help`.
const VALUED: [(&str, &[&str]); 3] = [
    (
        "git",
        &[
            "-C",
            "-c",
            "--attr-source",
            "--config-env",
            "--git-dir",
            "--namespace",
            "--super-prefix",
            "--work-tree",
        ],
    ),
    ("cargo", &["-C", "-Z", "--color", "--config", "--explain"]),
    (
        "docker",
        &[
            "-H",
            "-c",
            "-l",
            "--config",
            "--context",
            "--host",
            "--log-level",
            "--tlscacert",
            "--tlscert",
            "--tlskey",
        ],
    ),
];

impl Value {
    fn of(program: &str, option: &str) -> Self {
        let known = VALUED.iter().find(|(name, _)| name.eq_ignore_ascii_case(program));
        match known {
            _ if option.contains('=') || option.starts_with('+') || option == "--" => Value::No,
            None => Value::Maybe,
            Some((_, valued)) if valued.contains(&option) => Value::Yes,
            Some(_) => Value::No,
        }
    }
}

/// Whether a word changes how a program works and is none of its arguments: `cargo +nightly` has one without a `-`.
fn is_option(program: &str, word: &str) -> bool {
    word.starts_with('-') || (program == "cargo" && word.starts_with('+'))
}

/// What the rules say about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opinion<'a> {
    /// What they say.
    pub action: Action,
    /// The rule that says so.
    pub rule: &'a Rule,
    /// Why the rule is not sure to be meant, where it is not.
    pub doubt: Option<&'static str>,
    /// Whether the rule is about every part of the call, each read as narrowly as by a rule that opens, and no other
    /// source's says the same.
    pub whole: bool,
}

impl PartialEq for Rule {
    /// A rule is where it stands.
    fn eq(&self, other: &Self) -> bool {
        (self.source, &self.origin) == (other.source, &other.origin)
    }
}

impl Eq for Rule {}

impl Rule {
    /// Its name in results: whose it is, and its line.
    pub fn name(&self) -> String {
        format!("rule:{}:{}", self.source.name(), self.origin.line)
    }

    /// What it says about a part of a call.
    fn says(&self, unit: Option<&Unit>) -> Option<Opinion<'_>> {
        let opinion = |action, doubt, whole| Some(Opinion { action, rule: self, doubt, whole });
        let Some(command) = &self.command else { return opinion(self.action, None, true) };
        let fit = match unit? {
            Unit::Simple(simple) => command.fits(simple),
            Unit::Unparsed(reason) => Fit::Maybe(reason),
        };
        match (fit, self.action) {
            (Fit::Exactly, action) => opinion(action, None, true),
            (Fit::Widely, Action::Ask | Action::Deny) => opinion(self.action, None, false),
            (Fit::Maybe(doubt), Action::Ask | Action::Deny) => opinion(Action::Ask, Some(doubt), false),
            (Fit::Widely | Fit::Maybe(_), Action::Allow) | (Fit::No, _) => None,
        }
    }
}

/// What `rules` say about a call; `None` where none is about it. They are in the order of their sources.
pub(crate) fn opinion<'a>(rules: &'a [Rule], facts: &Facts) -> Option<Opinion<'a>> {
    let about = |rule: &&Rule| {
        let named = rule.tool == facts.tool || rule.tool == "*";
        named && rule.when.iter().all(|condition| condition.holds(facts, rule.action))
    };
    let mut about: Vec<&Rule> = rules.iter().filter(about).collect();
    let about_commands = about.iter().any(|rule| rule.command.is_some());
    about.sort_by_key(|rule| (rule.source, rule.tool == "*"));
    // One for each simple command, where a rule asks for them; else one for the call as a whole.
    let units: Vec<Option<Unit>> = match facts.command.filter(|_| about_commands) {
        Some(command) => match shell::units(command) {
            units if units.is_empty() => vec![None],
            units => units.into_iter().map(Some).collect(),
        },
        None => vec![None],
    };
    let sources = about.chunk_by(|one, other| one.source == other.source);
    let opinions = sources.filter_map(|rules| of_source(rules, &units));
    // Who says yes to one source's question has not heard the other's.
    opinions.reduce(|first, next| {
        let whole = first.action != next.action;
        let strictest = stricter(first, next);
        Opinion { whole: whole && strictest.whole, ..strictest }
    })
}

/// What one source says: the strictest about any part, and `allow` only about all of them.
fn of_source<'a>(rules: &[&'a Rule], units: &[Option<Unit>]) -> Option<Opinion<'a>> {
    let opinions: Vec<Option<Opinion>> = units.iter().map(|unit| of_unit(rules, unit.as_ref())).collect();
    let all = opinions.iter().all(Option::is_some);
    let strictest = opinions.iter().flatten().cloned().reduce(stricter)?;
    let same =
        |one: &Option<Opinion>| one.as_ref().is_some_and(|one| one.rule == strictest.rule && one.whole);
    let whole = opinions.iter().all(same);
    (all || strictest.action > Action::Allow).then_some(Opinion { whole, ..strictest })
}

/// The first rule that is about this part; those before it that may be make it no weaker.
fn of_unit<'a>(rules: &[&'a Rule], unit: Option<&Unit>) -> Option<Opinion<'a>> {
    let mut opinion = None;
    for rule in rules {
        let Some(next) = rule.says(unit) else { continue };
        let sure = next.doubt.is_none();
        opinion = Some(opinion.map_or(next.clone(), |first| stricter(first, next)));
        if sure {
            break;
        }
    }
    opinion
}

/// The first of equals.
fn stricter<'a>(first: Opinion<'a>, next: Opinion<'a>) -> Opinion<'a> {
    if next.action > first.action { next } else { first }
}
