//! Denials of a call, for its result: the object, the layer or rule, the reason, and the remedy.
//!
//! A denial is for people, models and records; no decision depends on one. Its texts may contain
//! what a hostile program chose, a path or a name: they must be cleaned before display.

use crate::hello::Layer;
use crate::lease::Leased;
use crate::limit::{self, TooLarge, at_most};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something denied to a call, `count` times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The access that was attempted.
    pub what: Attempt,
    /// The mechanism or rule that denied it.
    pub by: Barrier,
    /// The reason, as a sentence; at most [`limit::DENIAL_TEXT`] bytes, like every text here.
    pub why: String,
    /// The change that would open it.
    pub remedy: Remedy,
    /// The lease that would allow it, if one may be requested: somebody can answer.
    pub lease: Option<Leased>,
    /// How often it was tried; at least 1.
    pub count: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The kind of access.
    pub kind: AttemptKind,
    /// Its object: a path (bytes that are not UTF-8 replaced), `HOST:PORT`, a limit's key, or a tool's name.
    pub target: String,
}

/// The kinds of access that can be denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AttemptKind {
    /// To open a file or a directory to read it.
    Read,
    /// To change a file, or to make, move or remove a name.
    Write,
    /// To change a mode, an owner, times or attributes.
    Metadata,
    /// To run a program.
    Run,
    /// To reach `HOST:PORT` or `ADDRESS:PORT`, or a Unix socket by its path.
    Connect,
    /// To find the address of a name, by DNS.
    Resolve,
    SystemCall,
    /// To use more of a resource than a limit allows.
    Use,
    Call,
}

/// The mechanism or rule that denied an access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Barrier {
    /// A layer around the cell, and the rule that made it deny this, if there is one.
    Layer(Layer, Option<PolicyRule>),
    /// A limit, by its key in a policy.
    Limit(String),
    /// A rule of the policy, before anything was started.
    Rule(PolicyRule),
    /// The list of hosts that a session may reach.
    Hosts(Option<PolicyRule>),
    /// The gateway of the session, or what stands between it and a host, for the reason that the denial has.
    Gateway,
}

/// A rule of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRule {
    /// Its name, as in an [`Outcome::Refused`](crate::Outcome::Refused).
    pub name: String,
    /// `FILE:LINE`, if the rule is in a file.
    pub at: Option<String>,
}

/// Changes that would allow a denied access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Remedy {
    /// Lines for the user's policy, which can be appended to it.
    Policy(String),
    /// An option of the command line.
    Option(String),
    /// Advice to the user, in words.
    Advice(String),
    Nothing,
}

impl Denial {
    /// The denial of something that was attempted once. Texts are cut at [`limit::DENIAL_TEXT`] bytes.
    pub fn new(
        kind: AttemptKind,
        target: impl Into<String>,
        by: Barrier,
        why: impl Into<String>,
        remedy: Remedy,
    ) -> Self {
        let mut denial = Self {
            what: Attempt {
                kind,
                target: target.into(),
            },
            by,
            why: why.into(),
            remedy,
            lease: None,
            count: 1,
        };
        denial.texts_mut().into_iter().for_each(limit::cut);
        denial
    }

    /// Adds the lease that may be requested for it.
    pub fn with_lease(mut self, lease: Option<Leased>) -> Self {
        self.lease = lease;
        self.texts_mut().into_iter().for_each(limit::cut);
        self
    }

    /// The denial of a call of `tool` by the scope of its session.
    pub fn by_scope(tool: &str, why: impl Into<String>) -> Self {
        let rule = PolicyRule {
            name: format!("scope:{tool}"),
            at: None,
        };
        Self::new(
            AttemptKind::Call,
            tool,
            Barrier::Rule(rule),
            why,
            Remedy::by_scope(),
        )
    }

    /// Cleans every text for one row. Lines for a policy stay lines: what a program chose can begin none in them.
    pub fn clean(&mut self, clean: impl Fn(&str) -> String) {
        let lines = match &self.remedy {
            Remedy::Policy(lines) => {
                let lines: Vec<String> = lines.lines().map(&clean).collect();
                Some(Remedy::Policy(lines.join("\n")))
            }
            Remedy::Option(_) | Remedy::Advice(_) | Remedy::Nothing => None,
        };
        self.texts_mut()
            .into_iter()
            .for_each(|text| *text = clean(text));
        if let Some(lines) = lines {
            self.remedy = lines;
        }
    }

    fn texts(&self) -> Vec<String> {
        self.clone()
            .texts_mut()
            .into_iter()
            .map(std::mem::take)
            .collect()
    }

    /// Every text, for cleaning: it may contain what a program chose.
    pub fn texts_mut(&mut self) -> Vec<&mut String> {
        let mut texts = vec![&mut self.what.target, &mut self.why];
        match &mut self.by {
            Barrier::Limit(key) => texts.push(key),
            Barrier::Rule(rule) | Barrier::Layer(_, Some(rule)) | Barrier::Hosts(Some(rule)) => {
                texts.push(&mut rule.name);
                texts.extend(&mut rule.at);
            }
            Barrier::Layer(_, None) | Barrier::Hosts(None) | Barrier::Gateway => {}
        }
        match &mut self.lease {
            Some(Leased::Host(text) | Leased::Read(text) | Leased::Write(text)) => texts.push(text),
            Some(Leased::Port(_)) | None => {}
        }
        match &mut self.remedy {
            Remedy::Policy(text) | Remedy::Option(text) | Remedy::Advice(text) => texts.push(text),
            Remedy::Nothing => {}
        }
        texts
    }
}

impl AttemptKind {
    pub const ALL: [AttemptKind; 9] = [
        AttemptKind::Read,
        AttemptKind::Write,
        AttemptKind::Metadata,
        AttemptKind::Run,
        AttemptKind::Connect,
        AttemptKind::Resolve,
        AttemptKind::SystemCall,
        AttemptKind::Use,
        AttemptKind::Call,
    ];

    /// The name in JSON, and before the target in texts.
    pub fn name(self) -> &'static str {
        match self {
            AttemptKind::Read => "read",
            AttemptKind::Write => "write",
            AttemptKind::Metadata => "metadata",
            AttemptKind::Run => "run",
            AttemptKind::Connect => "connect",
            AttemptKind::Resolve => "resolve",
            AttemptKind::SystemCall => "system_call",
            AttemptKind::Use => "use",
            AttemptKind::Call => "call",
        }
    }
}

impl Remedy {
    /// The remedy for what a session's scope denies.
    pub fn by_scope() -> Self {
        Remedy::Option("a scope (--scope) that permits it".into())
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.target)
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Barrier::Layer(layer, None) => write!(f, "layer {}", layer.name()),
            Barrier::Layer(layer, Some(rule)) => write!(f, "layer {}, {rule}", layer.name()),
            Barrier::Limit(key) => write!(f, "limit {key}"),
            Barrier::Rule(rule) => rule.fmt(f),
            Barrier::Hosts(None) => f.write_str("hosts"),
            Barrier::Hosts(Some(rule)) => write!(f, "hosts, {rule}"),
            Barrier::Gateway => f.write_str("gateway"),
        }
    }
}

impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.name)?;
        self.at.iter().try_for_each(|at| write!(f, " ({at})"))
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // On rows of their own, to be copied.
            Remedy::Policy(lines) => write!(f, "in your policy:\n{lines}\n"),
            Remedy::Option(option) => write!(f, "with {option}"),
            Remedy::Advice(text) => f.write_str(text),
            Remedy::Nothing => f.write_str("no option allows this"),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            by,
            why,
            remedy,
            lease: _,
            count,
        } = self;
        write!(f, "{what}")?;
        if *count > 1 {
            write!(f, " ({count} times)")?;
        }
        write!(f, ": {why} [{by}; {remedy}]")
    }
}

/// The denials of one call: the first [`limit::DENIALS`] different ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denials {
    list: Vec<Denial>,
    /// How many further denials there were, which are not listed.
    more: u64,
}

impl Denials {
    /// Adds a denial. A repeated one is counted.
    pub fn push(&mut self, denial: Denial) {
        let same = |other: &&mut Denial| (&other.what, &other.by) == (&denial.what, &denial.by);
        if let Some(known) = self.list.iter_mut().find(same) {
            known.count = known.count.saturating_add(denial.count);
        } else if self.list.len() < limit::DENIALS {
            self.list.push(denial);
        } else {
            self.more = self.more.saturating_add(denial.count.into());
        }
    }

    /// Adds a denial if none of the others has the same target.
    pub fn push_new(&mut self, denial: Denial) {
        if !self
            .list
            .iter()
            .any(|known| known.what.target == denial.what.target)
        {
            self.push(denial);
        }
    }

    /// Counts denials that are not listed.
    pub fn add_unnamed(&mut self, count: u64) {
        self.more = self.more.saturating_add(count);
    }

    /// Adds the denials of another request of the same call.
    pub fn append(&mut self, other: Denials) {
        other.list.into_iter().for_each(|denial| self.push(denial));
        self.add_unnamed(other.more);
    }

    /// The denials, in order of first occurrence.
    pub fn list(&self) -> &[Denial] {
        &self.list
    }

    /// Mutable access, for cleaning the texts.
    pub fn list_mut(&mut self) -> &mut [Denial] {
        &mut self.list
    }

    /// How many further denials there were, which are not listed.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// Whether nothing was denied.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.more == 0
    }

    /// Checks every limit that the type itself does not enforce.
    pub fn check(&self) -> Result<(), TooLarge> {
        at_most("denied", self.list.len(), limit::DENIALS, "denials")?;
        let mut texts = self.list.iter().flat_map(Denial::texts);
        texts.try_for_each(|text| at_most("denied", text.len(), limit::DENIAL_TEXT, "bytes"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(target: &str) -> Denial {
        let rule = PolicyRule {
            name: "protect:.env".into(),
            at: Some("shipped protected:7".into()),
        };
        let by = Barrier::Layer(Layer::ProtectedNames, Some(rule));
        Denial::new(
            AttemptKind::Read,
            target,
            by,
            "It holds secrets.",
            Remedy::Nothing,
        )
    }

    #[test]
    fn the_same_is_counted_and_only_so_many_are_named() {
        let mut denials = Denials::default();
        for _ in 0..3 {
            (0..limit::DENIALS).for_each(|number| denials.push(denial(&number.to_string())));
        }
        assert_eq!((denials.list().len(), denials.more()), (limit::DENIALS, 0));
        assert!(denials.list().iter().all(|denial| denial.count == 3));
        denials.push(denial("one more"));
        denials.push(denial("0"));
        assert_eq!(
            (
                denials.list().len(),
                denials.more(),
                denials.list()[0].count
            ),
            (limit::DENIALS, 1, 4)
        );
        let mut both = Denials::default();
        both.append(denials.clone());
        both.append(denials);
        assert_eq!((both.list()[0].count, both.more()), (8, 2));
        assert!(both.check().is_ok());
        let other = Denial {
            by: Barrier::Limit("written".into()),
            ..denial("0")
        };
        let mut both = Denials::default();
        [denial("0"), other]
            .into_iter()
            .for_each(|denial| both.push(denial));
        assert_eq!(both.list().len(), 2);
    }

    #[test]
    fn each_text_is_cut_one_byte_over_its_limit_and_no_character_is() {
        let exact = "x".repeat(limit::DENIAL_TEXT);
        assert_eq!(denial(&exact).what.target, exact);
        for long in [
            "x".repeat(limit::DENIAL_TEXT + 1),
            "é".repeat(limit::DENIAL_TEXT),
        ] {
            let target = denial(&long).what.target;
            assert!(
                target.len() <= limit::DENIAL_TEXT && target.ends_with('…'),
                "{target}"
            );
        }
        let mut denials = Denials::default();
        denials.push(denial(""));
        for at in 0..denials.list_mut()[0].texts_mut().len() {
            let mut one = denials.clone();
            *one.list_mut()[0].texts_mut()[at] = "x".repeat(limit::DENIAL_TEXT);
            assert_eq!(one.check(), Ok(()));
            one.list_mut()[0].texts_mut()[at].push('x');
            assert!(one.check().is_err(), "text {at}");
        }
        denials.list = vec![denial(""); limit::DENIALS];
        assert_eq!(denials.check(), Ok(()));
        denials.list.push(denial(""));
        assert!(denials.check().is_err());
    }

    #[test]
    fn a_denial_is_one_line() {
        let text = Denial {
            count: 2,
            ..denial(".env")
        }
        .to_string();
        let want = "read .env (2 times): It holds secrets. [layer protected-names, rule protect:.env (shipped \
                    protected:7); no option allows this]";
        assert_eq!(text, want);
        let mut lines = Denial {
            remedy: Remedy::Policy("[profile.mine]\nopen = ['a']".into()),
            ..denial("two\nrows")
        };
        lines.clean(|text| text.replace('\n', "\\n"));
        assert!(
            lines
                .to_string()
                .ends_with("; in your policy:\n[profile.mine]\nopen = ['a']\n]"),
            "{lines}"
        );
        assert_eq!(lines.what.target, "two\\nrows");
        let names: std::collections::HashSet<_> = AttemptKind::ALL.map(AttemptKind::name).into();
        assert_eq!(names.len(), AttemptKind::ALL.len());
    }
}
