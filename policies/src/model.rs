//! A policy file as it is written: TOML, where every key is known and every value is checked while it is read.
//!
//! Comes from texts the broker has read; goes to [`resolve`](crate::resolve). A value that is here is well-formed; what
//! it means together with other files is decided there.

use crate::effective::{Access, Protection, WhenNew};
use crate::error::PolicyError;
use crate::host::HostPath;
use crate::quantity;
use crate::rules::{Action, Origin, Rule};
use crate::shipped;
use crate::source::{FILE_MAX, SourceKind};
use crate::value::{
    self, ExceptPattern, LayerName, NamePattern, PassName, ProfileName, RuleTool, SetValue, TrustName,
    VariableName, Version,
};
use crate::web::WebTable;
use broker_protocol::Channel;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// Most rules of one file.
pub const RULES_MAX: usize = 1024;

/// One policy file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    /// Version of the format.
    pub version: Version,
    /// In the administrator's file: users may define no profiles.
    #[serde(default)]
    pub lock: bool,
    /// Layers without which no session opens, whatever its profile.
    #[serde(default)]
    pub required: Vec<LayerName>,
    /// Limits no profile exceeds: what a profile has is lowered to them.
    #[serde(default)]
    pub ceiling: LimitsTable,
    /// How calls are approved, in every profile.
    #[serde(default)]
    pub approval: ApprovalTable,
    /// What bounds the web tools in every profile.
    #[serde(default)]
    pub web: WebTable,
    /// Profiles by name.
    #[serde(default)]
    pub profile: BTreeMap<ProfileName, Profile>,
    /// Names that are closed in every profile.
    #[serde(default)]
    pub protect: Vec<Protect>,
    /// What is allowed, asked or denied call by call, in every profile.
    #[serde(default)]
    pub rule: Vec<Spanned<RuleEntry>>,
}

impl PolicyFile {
    /// Reads `text`, which people know as `file`.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        if text.len() > FILE_MAX {
            return Err(PolicyError::TooLarge { file: file.to_owned(), bytes: text.len() });
        }
        let fault = |byte, message: String| {
            let (line, column) = place(text, byte);
            PolicyError::Text { file: file.to_owned(), line, column, message }
        };
        let read: Self = toml::from_str(text)
            .map_err(|error| fault(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        read.check_rules(fault)
    }

    /// Reads a shipped file. Only one that the tests would refuse is an error.
    pub(crate) fn shipped(file: &str, root: shipped::Value) -> Result<Self, PolicyError> {
        let fault =
            |_, message: String| PolicyError::Text { file: file.to_owned(), line: 1, column: 1, message };
        Self::deserialize(root).map_err(|error| fault(0, error.to_string()))?.check_rules(fault)
    }

    /// Refuses rules that mean nothing. `fault` makes an error of a byte's place and what is wrong there.
    fn check_rules(self, fault: impl Fn(usize, String) -> PolicyError) -> Result<Self, PolicyError> {
        let read = self;
        if let Some(rule) = read.rule.get(RULES_MAX) {
            return Err(fault(rule.span().start, format!("a policy file has at most {RULES_MAX} rules")));
        }
        for rule in &read.rule {
            Rule::new(rule.get_ref(), SourceKind::Shipped, Origin::default())
                .map_err(|wrong| fault(rule.span().start, wrong.to_string()))?;
        }
        Ok(read)
    }
}

/// Line and column of a byte of `text`, both from 1.
pub fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// A profile: what a session that names it may do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Profiles this one starts from, in order; `default` where the key is absent.
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub extends: Option<Vec<ProfileName>>,
    /// What a cell may do in the project root.
    pub project: Option<Spanned<Access>>,
    /// What a cell may do in the central root.
    pub central: Option<Spanned<Access>>,
    /// Host paths outside the zones to add.
    #[serde(default)]
    pub grants: Vec<GrantEntry>,
    /// Host directories of which only the names may be listed.
    #[serde(default)]
    pub listed: Vec<HostPath>,
    /// What to add to the environment.
    #[serde(default)]
    pub environment: Environment,
    /// What the web tools may reach.
    #[serde(default)]
    pub web: WebTable,
    /// Limits to set.
    #[serde(default)]
    pub limits: LimitsTable,
    /// Layers to require.
    #[serde(default)]
    pub required: Vec<LayerName>,
}

/// A host path to grant, read-only.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantEntry {
    /// Which.
    pub path: HostPath,
    /// Whether it may be missing.
    #[serde(default)]
    pub optional: bool,
    /// Why, for people who read the file.
    pub why: Option<String>,
}

/// Additions to a cell's environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Names to take over.
    #[serde(default)]
    pub pass: Vec<PassName>,
    /// Names to set. A value that begins with `~` or `${` is a host path and is expanded.
    #[serde(default)]
    pub set: BTreeMap<VariableName, SetValue>,
    /// Directories to put in front of `PATH`, before those of the profiles this one extends.
    #[serde(default)]
    pub path: Vec<HostPath>,
}

/// Limits as they are written: an absent key changes nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // Each is the field of its name in `Limits`; `Some(None)` is a written `"none"`.
pub struct LimitsTable {
    #[serde(default, deserialize_with = "quantity::seconds")]
    pub timeout_s: Option<u32>,
    #[serde(default, deserialize_with = "quantity::seconds")]
    pub timeout_max_s: Option<u32>,
    #[serde(default, deserialize_with = "quantity::capture")]
    pub capture: Option<u64>,
    #[serde(default, deserialize_with = "quantity::size")]
    pub spill: Option<u64>,
    #[serde(default, deserialize_with = "quantity::size_or_none")]
    pub output: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::count_or_none")]
    pub processes: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::size_or_none")]
    pub memory: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::count_or_none")]
    pub cpu_s: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::size_or_none")]
    pub file_size: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::size_or_none")]
    pub written: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::count_or_none")]
    pub open_files: Option<Option<u64>>,
    #[serde(default, deserialize_with = "quantity::size")]
    pub scratch: Option<u64>,
    #[serde(default, deserialize_with = "quantity::size")]
    pub undo: Option<u64>,
}

/// How calls are approved, as it is written: an absent key changes nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalTable {
    /// The most trust a session may have.
    pub trust: Option<TrustName>,
    /// Seconds that a question waits for its answer.
    #[serde(default, deserialize_with = "quantity::seconds")]
    pub timeout_s: Option<u32>,
    /// Where answers come from.
    pub channel: Option<Channel>,
}

/// Names to close, for one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protect {
    /// The names.
    pub names: Vec<Spanned<NamePattern>>,
    /// Single names that stay open though one of `names` matches them.
    #[serde(default)]
    pub except: Vec<ExceptPattern>,
    /// What is closed.
    pub protection: Protection,
    /// Whether a name that is not there is closed to commands too.
    #[serde(default)]
    pub new: WhenNew,
    /// Why, for the user and the model.
    pub why: String,
}

/// What is said about some calls. What it means together is checked when the file is read, too.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleEntry {
    /// A tool's canonical name, or `*` for all.
    pub tool: RuleTool,
    /// What is said.
    pub action: Action,
    /// Why, for the user and the model.
    pub why: String,
    /// For `bash`: a pattern of a program in the command line.
    pub program: Option<String>,
    /// Patterns of the program's first arguments.
    pub args: Option<Vec<String>>,
    /// What must hold of the parameters, all together.
    #[serde(default)]
    pub when: Vec<ConditionEntry>,
}

/// What must hold of one parameter: one test, with one value or several of which one must fit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // Each is the test of its name.
pub struct ConditionEntry {
    pub param: String,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub equals: Option<Vec<String>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub contains: Option<Vec<String>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub starts_with: Option<Vec<String>>,
    #[serde(default, deserialize_with = "value::one_or_many")]
    pub matches: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Layer;

    fn fault(text: &str) -> (usize, usize, String) {
        match PolicyFile::parse("p.toml", text) {
            Err(PolicyError::Text { file, line, column, message }) => {
                assert_eq!(file, "p.toml");
                (line, column, message)
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_full_file_reads() {
        let file = PolicyFile::parse("p", include_str!("../tests/full.toml")).unwrap();
        assert!(file.lock);
        assert_eq!(file.required, [LayerName(Layer::Cgroup)]);
        assert_eq!(file.ceiling.timeout_max_s, Some(300));
        assert_eq!(file.ceiling.memory, Some(Some(4 << 30)));
        let (name, profile) = file.profile.iter().next().unwrap();
        assert_eq!(name.as_str(), "site");
        assert_eq!(profile.extends.as_ref().unwrap().len(), 2);
        assert_eq!(*profile.project.as_ref().unwrap().get_ref(), Access::Read);
        assert_eq!(profile.grants[0].path.text(), "${JAVA_HOME:-/opt/java}");
        assert_eq!(profile.limits.cpu_s, Some(None));
        assert_eq!((file.web.search, profile.web.search), (Some(false), Some(true)));
        assert_eq!(profile.web.private.as_ref().unwrap()[0].text(), "localhost:8080");
        assert_eq!(profile.environment.pass[1].as_str(), "MAVEN_*");
        assert_eq!(file.protect[0].protection, Protection::All);
        assert_eq!(file.protect[0].except[0].as_str(), "*.pub");
        assert_eq!(file.protect[0].new, WhenNew::Open);
    }

    /// A rule for `bash` with `more` on its eighth line.
    fn rule(more: &str) -> String {
        format!("version = 1\n\n[[rule]]\ntool = 'bash'\naction = 'ask'\nwhy = 'w'\n\n{more}\n")
    }

    #[test]
    fn rules_are_counted() {
        let rules =
            |count| format!("version = 1\n{}", "[[rule]]\ntool='*'\naction='ask'\nwhy='w'\n".repeat(count));
        assert_eq!(PolicyFile::parse("p", &rules(RULES_MAX)).unwrap().rule.len(), RULES_MAX);
        let (line, _, message) = fault(&rules(RULES_MAX + 1));
        assert_eq!(line, 2 + 4 * RULES_MAX);
        assert!(message.contains("at most 1024 rules"), "{message}");
    }

    #[test]
    fn every_fault_has_its_place() {
        for (text, line, column, words) in [
            ("version = 1\n[profile.a]\nprojekt = \"read\"\n", 3, 1, "unknown field `projekt`"),
            ("version = 1\ncolour = 1\n", 2, 1, "unknown field `colour`"),
            ("version = 1\n[profile.a]\nproject = \"rw\"\n", 3, 11, "unknown variant `rw`"),
            ("version = 1\n[profile.a]\n  grants = [{ path = \"usr\" }]\n", 3, 22, "a host path begins"),
            (
                "version = 1\n[profile.a]\ngrants = [{ path = \"/usr\", mode = 1 }]\n",
                3,
                28,
                "unknown field `mode`",
            ),
            ("version = 1\n[profile.a.limits]\nspill = \"1 MB\"\n", 3, 9, "expected a size"),
            ("version = 1\n[profile.a.limits]\nfiles = 1\n", 3, 1, "unknown field `files`"),
            ("version = 1\n[profile.a.environment.set]\nPATH = \"/x\"\n", 3, 1, "sets this variable itself"),
            ("version = 1\n[profile.a.environment]\npass = [\"LANG\", \"*\"]\n", 3, 17, "a name to pass"),
            ("version = 1\n[profile.\"a b\"]\n", 2, 10, "a profile's name"),
            ("version = 1\nrequired = [\"seccomb\"]\n", 2, 13, "no layer of this name"),
            (
                "version = 1\n[[protect]]\nnames = [\"é\", \"[\"]\nprotection = \"all\"\nwhy = \"\"",
                3,
                15,
                "without its partner",
            ),
            ("version = 1\n[[protect]]\nnames = [\"a\"]\nnew = \"made\"\n", 4, 7, "unknown variant `made`"),
            ("version = 1\n[approval]\ntrust = \"none\"\n", 3, 9, "a trust is `supervised`"),
            ("version = 1\n[approval]\nchanel = \"relay\"\n", 3, 1, "unknown field `chanel`"),
            ("version = 1\n[[rule]]\ntool = \"a b\"\n", 3, 8, "a tool's name is"),
            (
                "version = 1\n[[rule]]\ntool = \"bash\"\naction = \"maybe\"\n",
                4,
                10,
                "unknown variant `maybe`",
            ),
            ("version = 1\n[[rule]]\ntool = \"bash\"\naction = \"ask\"\n", 2, 1, "missing field `why`"),
            (
                "version = 1\n[[rule]]\nwhy = \"\"\ntool = \"bash\"\naction = \"ask\"\n",
                2,
                1,
                "a rule has a `why`",
            ),
            ("version = 1\n[[rule]]\ntool = \"*\"\nprogramm = \"git\"\n", 4, 1, "unknown field `programm`"),
            (&rule("args = ['push']"), 3, 1, "`args` for those with `program`"),
            (&rule("program = ''"), 3, 1, "`program` and `args` are"),
            (&rule("program = '[a'"), 3, 1, "without its partner"),
            (&rule("program = 'a'\nargs = ['a]']"), 3, 1, "without its partner"),
            (&rule("when = [{ param = 'path', equals = 'a' }]"), 3, 1, "`bash` has no parameter `path`"),
            (&rule("when = [{ param = 'cwd' }]"), 3, 1, "a condition has one of"),
            (&rule("when = [{ param = 'cwd', equals = [] }]"), 3, 1, "at least one value"),
            (
                &rule("when = [{ param = 'cwd', equals = 'a', contains = 'b' }]"),
                3,
                1,
                "a condition has one of",
            ),
            (&rule("when = [{ param = 'cwd', matches = '../a' }]"), 3, 1, "a glob of paths is"),
            (&rule("when = [{ param = 'cwd', equal = 'a' }]"), 8, 26, "unknown field `equal`"),
            (&rule("when = [{ param = 'cwd', equals = 1 }]"), 8, 35, "a text, or a list"),
            ("version = 1\n[web]\nallow = [\"*\", \"A.example\"]\n", 3, 15, "a host is `*`"),
            ("version = 1\n[web]\nprivate = [\"localhost\"]\n", 3, 12, "a private place is"),
            ("version = 1\n[profile.a.web]\nallowed = []\n", 3, 1, "unknown field `allowed`"),
            ("version = 2\n", 1, 11, "`version = 1`"),
            ("lock = true\n", 1, 1, "missing field `version`"),
            ("version = 1\nversion = 1\n", 2, 1, "duplicate key"),
            ("version = \n", 1, 11, ""),
            ("version = 1\n[profile.a]\nextends = 3\n", 3, 11, "a text, or a list"),
        ] {
            let (at_line, at_column, message) = fault(text);
            assert_eq!((at_line, at_column), (line, column), "{text}: {message}");
            assert!(message.contains(words), "{text}: {message}");
        }
    }

    #[test]
    fn a_file_is_refused_above_its_largest_size() {
        let mut text = String::from("version = 1\n#");
        text.extend(std::iter::repeat_n('x', FILE_MAX - text.len()));
        assert!(PolicyFile::parse("p", &text).is_ok());
        text.push('x');
        let want = PolicyError::TooLarge { file: "p".into(), bytes: FILE_MAX + 1 };
        assert_eq!(PolicyFile::parse("p", &text).unwrap_err(), want);
    }

    #[test]
    fn hostile_nesting_is_an_error_and_not_a_crash() {
        let deep = format!("version = {}", "[".repeat(FILE_MAX / 2));
        assert!(PolicyFile::parse("p", &deep).is_err());
        let dotted = format!("version = 1\n{}a = 1", "a.".repeat(FILE_MAX / 4));
        assert!(PolicyFile::parse("p", &dotted).is_err());
    }
}
