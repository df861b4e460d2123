//! `lazaret policy`: what the policy files say, without a session and without running anything.
//!
//! The broker reads the same files by the same code and decides by the same function; what is printed here is its answer
//! before it is asked.

use super::exit;
use super::place::{Place, read_text};
use super::say::{self, internal, invalid};
use crate::adapters::state;
use crate::adapters::web::foresee;
use crate::application::batch::nested;
use crate::application::registry::{Entry, Registry, UNASKED};
use crate::domain::catalogue::{TOOLS, WEB_TOOLS, canonical, known_as};
use crate::domain::request::{Invocation, Plan};
use crate::domain::scope_file;
use crate::domain::small::BATCH;
use crate::domain::web;
use broker_protocol::{Command as Run, ErrorKind, Failed, Open, Refused, Request, Risk, Roots, Trust};
use clap::{Args, Subcommand};
use nix::unistd::{Uid, User};
use policies::shell::{self, Unit};
use policies::{
    Access, EffectivePolicy, Facts, Host, Judgement, Policies, Protection, Rule, Source, SourceKind, Verdict,
    WebPolicy, WhenNew, judge, source,
};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Ask the policy, without running anything
///
/// The files are those of the broker: the shipped ones, /etc/lazaret/policy.toml and lazaret/policy.toml below
/// $XDG_CONFIG_HOME or ~/.config.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  lazaret policy check\n  lazaret policy check my-policy.toml agent.yaml\n  \
                        lazaret policy explain bash '{\"command\":\"rm -rf x\"}'\n  lazaret policy matrix --scope agent.yaml\n  \
                        lazaret policy show --profile rust --json\n\n\
                        Exit code: 0, whatever the verdict; 1 if a file that was checked is wrong; 2 for wrong input;\n\
                        125 if the policy itself cannot be used."
)]
pub struct Policy {
    #[command(subcommand)]
    question: Question,
}

#[derive(Subcommand)]
enum Question {
    /// Say whether files are policies or scopes, and if not, where they are wrong
    Check {
        /// Files to check, each as if it were the user's policy or a session's scope [default: those in use]
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Say what comes of a call, by which rule, why, and where that rule stands
    Explain {
        /// Name of the tool
        tool: String,
        /// Its input, a JSON object
        #[arg(value_name = "JSON")]
        input: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what each trust asks, allows and denies, for every tool
    Matrix {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Print the policy of a session
    Show {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

impl Policy {
    /// Answers; returns our exit code.
    pub fn main(self, place: &Place) -> Result<u8, Failed> {
        match self.question {
            Question::Check { files, json } => check(place, &files, json),
            Question::Explain { tool, input, json } => explain(place, &tool, &input, json),
            Question::Matrix { json } => matrix(place, json),
            Question::Show { json } => show(place, json),
        }
    }
}

/// What this machine is to a policy. The home is the account's and not `HOME`, as the broker has it.
fn host() -> Result<Host, Failed> {
    let account =
        User::from_uid(Uid::effective()).map_err(|errno| internal(format!("your account: {errno}")))?;
    let account = account.ok_or_else(|| internal("your account has no entry in the user database".into()))?;
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    Ok(Host { home: account.dir, variables: std::env::vars_os().filter_map(text).collect() })
}

/// The administrator's and the user's files that there are.
fn sources(host: &Host) -> Result<Vec<Source>, Failed> {
    source::read(&host.home, &state::variable).map_err(|error| wrong(error.into()))
}

/// The policy of a session here. Where no trust is asked for, that of a session that nobody has chosen one for.
fn policy(place: &Place) -> Result<EffectivePolicy, Failed> {
    let host = host()?;
    let policies = Policies::load(sources(&host)?).map_err(wrong)?;
    let policy = policies.resolve(place.profile(), &host).map_err(wrong)?;
    let trust = place.trust().unwrap_or(policy.trust);
    policy.narrow(place.scope()?.as_ref(), trust).map_err(wrong)
}

fn wrong(error: policies::PolicyError) -> Failed {
    Failed { kind: error.kind(), message: error.to_string() }
}

// check

fn check(place: &Place, files: &[PathBuf], json: bool) -> Result<u8, Failed> {
    let host = host()?;
    let results: Vec<(String, Result<Vec<String>, String>)> = match files {
        [] => {
            let own = sources(&host)?;
            let names = own.iter().map(|source| source.name.clone()).collect::<Vec<_>>().join(" and ");
            let names = if names.is_empty() { "the shipped policy".to_owned() } else { names };
            vec![(
                names,
                agree(own, &host).and_then(|notes| place.scope().map(|_| notes).map_err(|f| f.message)),
            )]
        }
        files => files.iter().map(|file| (file.display().to_string(), check_file(file, &host))).collect(),
    };
    let bad = results.iter().any(|(_, result)| result.is_err());
    if json {
        let row = |(file, result): &(String, Result<Vec<String>, String>)| json!({ "file": file, "ok": result.is_ok(), "notes": result.as_ref().ok(), "error": result.as_ref().err() });
        say::json(&results.iter().map(row).collect::<Vec<Value>>())?;
    } else {
        let line = |(file, result): &(String, Result<Vec<String>, String>)| match result {
            Ok(notes) => {
                notes.iter().fold(format!("{file}: ok\n"), |text, note| format!("{text}  note: {note}\n"))
            }
            Err(error) => format!("{error}\n"),
        };
        say::result(say::shown(&results.iter().map(line).collect::<String>()).as_bytes())?;
    }
    Ok(if bad { exit::FAILED } else { exit::OK })
}

/// A file by itself: a scope, or a policy beside the administrator's. Returns what is worth a look.
fn check_file(file: &Path, host: &Host) -> Result<Vec<String>, String> {
    let text = read_text(file).map_err(|failed| failed.message)?;
    if is_scope(file, &text) {
        let scope = scope_file::parse(&file.to_string_lossy(), &text).map_err(|error| error.to_string())?;
        policies::ScopePaths::new(&scope).map_err(|error| format!("{}: {error}", file.display()))?;
        let unknown = scope.permissions.iter().filter(|permission| canonical(&permission.tool).is_empty());
        return Ok(unknown
            .map(|permission| format!("no tool of ours is called `{}`", permission.tool))
            .collect());
    }
    let mut sources = sources(host).map_err(|failed| failed.message)?;
    sources.retain(|source| source.kind != SourceKind::User);
    sources.push(Source { name: file.display().to_string(), kind: SourceKind::User, text });
    agree(sources, host)
}

fn is_scope(file: &Path, text: &str) -> bool {
    let ends = |end: &str| file.extension().is_some_and(|extension| extension == end);
    let says = |line: &str| line.trim_start_matches(['[', '\'', '"']).starts_with("tool_permissions");
    ends("yaml") || ends("yml") || text.lines().any(says)
}

/// Whether these and the shipped files make a policy of every profile.
fn agree(sources: Vec<Source>, host: &Host) -> Result<Vec<String>, String> {
    let policies = Policies::load(sources).map_err(|error| error.to_string())?;
    let mut notes = Vec::new();
    for profile in policies.profiles() {
        let policy = policies.resolve(profile, host).map_err(|error| error.to_string())?;
        notes = policy.rules.iter().filter_map(note).collect();
    }
    Ok(notes)
}

/// A rule that may never be asked: its tool or parameter is none of ours.
fn note(rule: &Rule) -> Option<String> {
    if rule.tool == "*" || Request::TOOLS.contains(&rule.tool.as_str()) {
        return None;
    }
    let name = known_as(canonical(&rule.tool));
    if name.is_empty() {
        return Some(format!("{}: no tool of ours is called `{}`", rule.origin, rule.tool));
    }
    if UNASKED.contains(&name) {
        return Some(format!(
            "{}: nobody is asked about `{name}`, so no rule is heard; a scope is",
            rule.origin
        ));
    }
    (name != rule.tool).then(|| {
        format!("{}: `{}` is another name of `{name}`, which rules must use", rule.origin, rule.tool)
    })
}

// explain

fn explain(place: &Place, tool: &str, input: &str, json: bool) -> Result<u8, Failed> {
    let input: Value =
        serde_json::from_str(input).map_err(|error| invalid(format!("the input is not JSON: {error}")))?;
    let policy = policy(place)?;
    let Open { project, central, .. } = place.open(0)?;
    let asked = match asked(tool, input, &Roots { project, central }, &policy.web) {
        Ok(asked) => asked,
        Err(failed) => {
            say::problem(&failed.message);
            return Ok(exit::USAGE);
        }
    };
    let facts: Vec<Facts> = asked.iter().map(Asked::facts).collect();
    let told: Vec<Told> =
        asked.iter().zip(&facts).map(|(asked, facts)| Told::new(asked, facts, &policy)).collect();
    if json {
        say::json(&all_to_json(&told))?;
    } else {
        let pages: Vec<String> = told.iter().map(Told::page).collect();
        say::result(say::shown(&pages.join("\n")).as_bytes())?;
    }
    Ok(exit::OK)
}

/// One call, as far as it is decided on.
struct Asked {
    tool: String,
    risk: Risk,
    /// What the executor is asked, if it is.
    request: Option<Request>,
    /// Why nothing comes of it whatever the executor says: its path is outside, or the policy for hosts refuses its address.
    refused: Option<Failed>,
}

impl Asked {
    fn facts(&self) -> Facts<'_> {
        self.request.as_ref().map_or_else(|| Facts::bare(&self.tool, self.risk), Facts::of)
    }
}

/// What a call comes to: itself, and after it what is called by it.
fn asked(tool: &str, input: Value, roots: &Roots, hosts: &WebPolicy) -> Result<Vec<Asked>, Failed> {
    let entry = Registry::default().get(tool)?;
    let mut first = Asked { tool: entry.name().to_owned(), risk: entry.risk(), request: None, refused: None };
    let plan = match &entry {
        Entry::Web(tool) => web::parse(tool, input).map(Plan::Web),
        Entry::Added(added) => Ok(Plan::Request(Request::Effect(added.effect(&input)))),
        Entry::BuiltIn(tool) => tool.plan(input, roots),
    };
    let plan = match plan.map_err(Failed::from) {
        Err(failed) if failed.kind == ErrorKind::Violation => {
            first.refused = Some(failed);
            return Ok(vec![first]);
        }
        plan => plan?,
    };
    if let Plan::Web(ask) = &plan {
        first.refused = foresee(hosts, ask).map_err(Failed::from).err();
    }
    if let Plan::Batch(calls) = plan {
        let mut all = vec![first];
        for Invocation { tool, input } in calls {
            if canonical(&tool) == BATCH.name {
                return Err(nested());
            }
            all.append(&mut asked(&tool, input, roots, hosts)?);
        }
        return Ok(all);
    }
    first.request = plan.request();
    Ok(vec![first])
}

/// The decision on a call of `tool`, of which the executor knows `facts`. A scope has to permit both; of tools that nobody
/// is asked about only it decides.
fn decided<'a>(policy: &'a EffectivePolicy, tool: &str, facts: &Facts) -> Judgement<'a> {
    if policy.scope.as_ref().is_some_and(|scope| !scope.permits(tool)) {
        return judge(policy, &Facts::bare(tool, facts.risk));
    }
    if UNASKED.contains(&facts.tool) {
        let why = "It changes nothing by itself, so nobody is asked.".to_owned();
        return Judgement { verdict: Verdict::Allow, rule: None, why: Some(why), origin: None };
    }
    judge(policy, facts)
}

/// The decision on a call that is refused before or after the executor is asked.
fn refused<'a>(failed: &Failed) -> Judgement<'a> {
    let violation = failed.kind == ErrorKind::Violation;
    let (rule, why) = (failed.kind.name().to_owned(), failed.message.clone());
    let verdict = Verdict::Deny(Refused { rule: rule.clone(), why: why.clone(), violation });
    Judgement { verdict, rule: Some(rule), why: Some(why), origin: None }
}

struct Told<'a> {
    tool: &'a str,
    facts: &'a Facts<'a>,
    policy: &'a EffectivePolicy,
    judgement: Judgement<'a>,
}

/// A batch with its calls, or one call.
fn all_to_json(told: &[Told]) -> Value {
    let mut calls = told.iter().map(Told::to_json);
    let mut first = calls.next().unwrap_or_default();
    if told.first().is_some_and(|told| told.tool == BATCH.name) {
        first["calls"] = calls.collect();
    }
    first
}

impl<'a> Told<'a> {
    fn new(asked: &'a Asked, facts: &'a Facts<'a>, policy: &'a EffectivePolicy) -> Self {
        let decided = decided(policy, &asked.tool, facts);
        // A scope comes before a path; and a host is looked at when the executor has given leave.
        let judgement = match (&decided.verdict, &asked.refused) {
            (Verdict::Deny(_), _) | (_, None) => decided,
            (_, Some(failed)) => refused(failed),
        };
        Self { tool: &asked.tool, facts, policy, judgement }
    }

    fn why(&self) -> String {
        self.judgement.why.clone().unwrap_or_else(|| {
            let (trust, risk) = (self.policy.trust.name(), self.facts.risk.name());
            format!("No rule is about it, and a {trust} session does not ask before calls of {risk} risk.")
        })
    }

    fn page(&self) -> String {
        let rule = self.judgement.rule.as_deref().unwrap_or("-");
        let place = self.judgement.origin.map_or("built in".to_owned(), ToString::to_string);
        let mut page = format!(
            "tool     {}\nverdict  {}\nrule     {rule}\nwhy      {}\nwhere    {place}\ntrust    {}\nrisk     {}\n",
            self.tool,
            verdict(&self.judgement.verdict),
            self.why(),
            self.policy.trust.name(),
            self.facts.risk.name(),
        );
        for unit in self.units() {
            page.push_str(&format!("command  {}\n", unit_text(&unit)));
        }
        page
    }

    fn units(&self) -> Vec<Unit> {
        self.facts.command.map(|command: &Run| shell::units(command)).unwrap_or_default()
    }

    fn to_json(&self) -> Value {
        let unit = |unit: &Unit| match unit {
            Unit::Simple(simple) => json!({ "words": simple.words, "marked": simple.marked }),
            Unit::Unparsed(reason) => json!({ "unparsed": reason }),
        };
        json!({
            "tool": self.tool,
            "verdict": verdict(&self.judgement.verdict),
            "rule": self.judgement.rule,
            "why": self.why(),
            "file": self.judgement.origin.map(|origin| &origin.file),
            "line": self.judgement.origin.map(|origin| origin.line),
            "risk": self.facts.risk.name(),
            "trust": self.policy.trust.name(),
            "profile": self.policy.profile,
            "commands": self.units().iter().map(unit).collect::<Vec<_>>(),
        })
    }
}

fn unit_text(unit: &Unit) -> String {
    match unit {
        Unit::Simple(simple) => {
            let word =
                |word: &Option<String>| word.as_ref().map_or("(?)".to_owned(), |word| format!("{word:?}"));
            simple.words.iter().map(word).collect::<Vec<_>>().join(" ")
        }
        Unit::Unparsed(reason) => format!("not parsed: {reason}"),
    }
}

fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Ask(_) => "ask",
        Verdict::Deny(_) => "deny",
    }
}

// matrix

fn matrix(place: &Place, json: bool) -> Result<u8, Failed> {
    let policy = policy(place)?;
    let own = TOOLS.iter().map(|tool| (tool.name, tool.risk));
    let all = own.chain(WEB_TOOLS.iter().map(|tool| (tool.name, tool.risk)));
    let rows = all
        .map(|(tool, risk)| Ok(((tool, risk.name()), row(&policy, tool, risk)?)))
        .collect::<Result<Vec<_>, Failed>>()?;
    if json {
        let row = |((tool, risk), [supervised, guided, autonomous]): &((&str, &str), [&str; 3])| json!({ "tool": tool, "risk": risk, "supervised": supervised, "guided": guided, "autonomous": autonomous });
        say::json(&rows.iter().map(row).collect::<Vec<Value>>())?;
        return Ok(exit::OK);
    }
    let mut table =
        format!("{:<17}{:<8}{:<12}{:<8}{}\n", "TOOL", "RISK", "SUPERVISED", "GUIDED", "AUTONOMOUS");
    for ((tool, risk), [supervised, guided, autonomous]) in rows {
        table.push_str(&format!("{tool:<17}{risk:<8}{supervised:<12}{guided:<8}{autonomous}\n"));
    }
    say::result(table.as_bytes())?;
    Ok(exit::OK)
}

/// What comes of a call of which only the tool is known, by trust: of rules those count that ask about nothing else.
fn row(policy: &EffectivePolicy, tool: &str, risk: Risk) -> Result<[&'static str; 3], Failed> {
    let mut row = [""; 3];
    for (cell, trust) in row.iter_mut().zip(Trust::ALL) {
        let policy = policy.clone().narrow(policy.scope.as_ref(), trust).map_err(wrong)?;
        *cell = verdict(&decided(&policy, tool, &Facts::bare(known_as(tool), risk)).verdict);
    }
    Ok(row)
}

// show

fn show(place: &Place, json: bool) -> Result<u8, Failed> {
    let policy = policy(place)?;
    let value = to_json(&policy);
    match json {
        true => say::json(&value)?,
        false => {
            let page =
                toml::to_string_pretty(&without_nulls(value)).map_err(|error| internal(error.to_string()))?;
            say::result(say::shown(&page).as_bytes())?;
        }
    }
    Ok(exit::OK)
}

fn to_json(policy: &EffectivePolicy) -> Value {
    let access = |access: Access| match access {
        Access::Read => "read",
        Access::Write => "write",
    };
    let limits = &policy.limits;
    json!({
        "profile": policy.profile,
        "digest": policy.digest.to_string(),
        "project": access(policy.project),
        "central": access(policy.central),
        "trust": policy.trust.name(),
        "approval": {
            "trust": policy.approval.ceiling.name(),
            "timeout_s": policy.approval.timeout_s,
            "channel": policy.approval.channel.name(),
        },
        "required": policy.required.iter().map(|layer| layer.name()).collect::<Vec<_>>(),
        "listed": policy.listed,
        "limits": {
            "timeout_s": limits.timeout_s,
            "timeout_max_s": limits.timeout_max_s,
            "capture": limits.capture,
            "spill": limits.spill,
            "output": limits.output,
            "processes": limits.processes,
            "memory": limits.memory,
            "cpu_s": limits.cpu_s,
            "file_size": limits.file_size,
            "written": limits.written,
            "open_files": limits.open_files,
            "scratch": limits.scratch,
        },
        "environment": {
            "pass": policy.environment.pass,
            "set": policy.environment.set,
            "path": policy.environment.path,
        },
        "scope": policy.scope.as_ref().map(|scope| scope.permissions.iter().map(permission_json).collect::<Vec<_>>()),
        "grants": policy.grants.iter().map(|grant| json!({ "path": grant.path, "optional": grant.optional })).collect::<Vec<_>>(),
        "rule": policy.rules.iter().map(rule_json).collect::<Vec<_>>(),
        "protect": policy.protected.iter().map(|name| json!({
            "name": name.pattern,
            "except": name.except,
            "protection": match name.protection { Protection::Write => "write", Protection::All => "all" },
            "new": match name.new { WhenNew::Open => "open", WhenNew::Closed => "closed" },
            "why": name.why,
            "where": name.origin.to_string(),
        })).collect::<Vec<_>>(),
    })
}

fn permission_json(permission: &broker_protocol::Permission) -> Value {
    json!({
        "tool": permission.tool,
        "allowed": permission.allowed,
        "paths": permission.paths,
        "timeout_s": permission.timeout_s,
        "network": permission.network,
    })
}

fn rule_json(rule: &Rule) -> Value {
    let condition = |condition: &policies::rules::Condition| json!({ "param": condition.param, condition.test.name(): condition.values });
    json!({
        "tool": rule.tool,
        "action": rule.action.name(),
        "program": rule.command.as_ref().map(|command| &command.program),
        "args": rule.command.as_ref().map(|command| &command.args),
        "when": rule.when.iter().map(condition).collect::<Vec<_>>(),
        "why": rule.why,
        "where": rule.origin.to_string(),
    })
}

/// The same without what is not there: TOML has no word for it.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(values) => {
            let some = values.into_iter().filter(|(_, value)| !value.is_null());
            some.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(values) => values.into_iter().map(without_nulls).collect(),
        value => value,
    }
}
