//! A policy file as it is written: TOML, where every key is known and every value is checked when it is parsed.
//!
//! Parses the texts of [`source`](crate::source); the result goes to [`resolve`](crate::resolve).
//! Values here are well-formed; what they mean together with other files is decided there.

use crate::credential_table::{self, CredentialName, CredentialTables};
use crate::error::PolicyError;
use crate::gateway::GatewayTable;
use crate::host::HostPath;
use crate::lease_bounds::LeasesTable;
use crate::limits::{self, LimitsTable};
use crate::opened::OpenedName;
use crate::rules::{Rule, RuleEntry};
use crate::secrets::SecretsTable;
use crate::source::{FILE_MAX, SourceKind};
use crate::ssh::{self, SshTables};
use crate::value::{
    self, ExceptPattern, ExceptedPath, LayerName, NameEntry, PassName, Prefix, ProfileChoice,
    ProfileName, ProjectFile, SetValue, TrustName, VariableName, Version,
};
use broker_protocol::Channel;
use policies_guard::Access;
use policies_guard::Origin;
use policies_guard::names::{Protection, WhenNew};
use policies_targets::http::{self, HttpFault};
use policies_targets::network::NetworkTable;
use policies_targets::web::WebTable;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use toml::Spanned;

/// Maximum number of forms of names in transit in one file.
pub(crate) const TRANSIT_MAX: usize = 256;
/// Maximum number of rules in one file.
pub const RULES_MAX: usize = 1024;
/// Maximum number of `[[auto]]` in one file.
pub(crate) const AUTO_MAX: usize = 64;
/// Maximum number of files in one `[[auto]]`.
pub(crate) const AUTO_FILES_MAX: usize = 8;

/// One policy file. An absent key changes nothing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyFile {
    pub version: Version,
    /// In the administrator's file: users may not define profiles.
    #[serde(default)]
    pub lock: bool,
    /// Layers without which no session opens, whatever its profile and in whatever tier.
    #[serde(default)]
    pub(crate) required: Vec<LayerName>,
    /// Limits that no profile exceeds: what a profile has is lowered to them.
    #[serde(default)]
    pub ceiling: LimitsTable,
    #[serde(default)]
    pub(crate) approval: ApprovalTable,
    /// Limits on the web tools in every profile.
    #[serde(default)]
    pub(crate) web: WebTable,
    /// Limits on the network of cells in every profile, and on what a session requests.
    #[serde(default)]
    pub network: NetworkTable,
    /// Where paths may be leased, in every profile.
    #[serde(default)]
    pub(crate) leases: LeasesTable,
    /// The most that commands see of files of secrets, in every profile and by `--reveal`.
    #[serde(default)]
    pub(crate) secrets: SecretsTable,
    /// The profiles that the file defines; or `profile = "NAME"`, in a file that defines none, for `default_profile`.
    #[serde(default)]
    pub profile: ProfileKey,
    /// The profile of a session that does not name one.
    pub default_profile: Option<Spanned<ProfileChoice>>,
    /// The directory in which each project has its central root.
    pub(crate) central_root: Option<HostPath>,
    /// Days for which the records of the audit are kept.
    pub(crate) audit_keep_days: Option<NonZeroU32>,
    /// Profiles chosen by the files of a project.
    #[serde(default)]
    pub auto: Vec<Spanned<AutoEntry>>,
    /// Credentials that a profile may name.
    #[serde(default)]
    pub credential: CredentialTables,
    /// Keys of the user's ssh agent that a profile may name.
    #[serde(default)]
    pub ssh: SshTables,
    /// The only names that credentials and `[ssh]` may have, in any file.
    pub(crate) allowed_credentials: Option<Vec<CredentialName>>,
    /// How connections of cells leave this machine.
    pub(crate) gateway: Option<Spanned<GatewayTable>>,
    /// Names that are closed in every profile.
    #[serde(default)]
    pub protect: Vec<Protect>,
    /// Temporary names that programs give a file before they rename it to a protected one.
    #[serde(default)]
    pub transit: Vec<Spanned<TransitEntry>>,
    /// Rules on single calls, in every profile.
    #[serde(default)]
    pub rule: Vec<Spanned<RuleEntry>>,
}

impl PolicyFile {
    /// Parses `text`, the content of `file`.
    ///
    /// # Errors
    /// The text is over [`FILE_MAX`], or invalid: with the line and column of the first fault.
    pub fn parse(file: &str, text: &str) -> Result<Self, PolicyError> {
        if text.len() > FILE_MAX {
            return Err(PolicyError::TooLarge {
                file: file.to_owned(),
                bytes: text.len(),
            });
        }
        let fault = |byte, message: String| {
            let (line, column) = place(text, byte);
            PolicyError::Text {
                file: file.to_owned(),
                line,
                column,
                message,
            }
        };
        let read: Self = toml::from_str(text).map_err(|error| {
            let (span, message) = (error.span().unwrap_or_default(), error.message());
            // Where the text is no TOML, the message does not name what it is about, such as a key that comes twice.
            let is_toml = toml::from_str::<de::IgnoredAny>(text).is_ok();
            let what = text
                .get(span.clone())
                .and_then(|what| what.split_whitespace().next());
            let what = what
                .filter(|_| !is_toml)
                .map_or_else(String::new, |what| format!(": {what}"));
            fault(span.start, format!("{message}{what}"))
        })?;
        read.check(fault)
    }

    /// `fault` makes an error from a byte's position and a message.
    fn check(self, fault: impl Fn(usize, String) -> PolicyError) -> Result<Self, PolicyError> {
        if let Some(form) = self.transit.get(TRANSIT_MAX) {
            let text = format!("a policy file has at most {TRANSIT_MAX} forms of names in transit");
            return Err(fault(form.span().start, text));
        }
        let is_empty = |form: &&Spanned<TransitEntry>| {
            let TransitEntry { before, after, .. } = form.get_ref();
            before.is_none() && after.is_none()
        };
        if let Some(form) = self.transit.iter().find(is_empty) {
            return Err(fault(
                form.span().start,
                "a form in transit has `before`, `after`, or both".to_owned(),
            ));
        }
        self.check_choices(&fault)?;
        if let Some((byte, wrong)) = credential_table::fault(&self.credential) {
            return Err(fault(byte, wrong.to_string()));
        }
        if let Some((byte, wrong)) = ssh::fault(&self.ssh) {
            return Err(fault(byte, wrong.to_string()));
        }
        if let Some((byte, wrong)) = self.fault_of_rules() {
            return Err(fault(byte, wrong.to_string()));
        }
        if let Some(table) = &self.gateway {
            let checked = table.get_ref().check();
            checked.map_err(|wrong| fault(table.span().start, wrong.to_string()))?;
        }
        if let Some(rule) = self.rule.get(RULES_MAX) {
            return Err(fault(
                rule.span().start,
                format!("a policy file has at most {RULES_MAX} rules"),
            ));
        }
        for rule in &self.rule {
            Rule::new(rule.get_ref(), SourceKind::Shipped, Origin::default())
                .map_err(|wrong| fault(rule.span().start, wrong.to_string()))?;
        }
        Ok(self)
    }

    /// The first rule for requests that is not valid, with its place.
    fn fault_of_rules(&self) -> Option<(usize, HttpFault)> {
        let profiles = self.profiles().map(|(_, profile)| &profile.network);
        let tables = profiles.chain([&self.network]);
        tables.flat_map(|table| &table.http).find_map(http::fault)
    }

    fn check_choices(
        &self,
        fault: impl Fn(usize, String) -> PolicyError,
    ) -> Result<(), PolicyError> {
        if let (Some(name), ProfileKey::Chosen(_)) = (&self.default_profile, &self.profile) {
            let text = "`profile` names the default already".to_owned();
            return Err(fault(name.span().start, text));
        }
        if let Some(entry) = self.auto.get(AUTO_MAX) {
            let text = format!("a policy file has at most {AUTO_MAX} `[[auto]]`");
            return Err(fault(entry.span().start, text));
        }
        match self
            .auto
            .iter()
            .find(|entry| entry.get_ref().files.len() > AUTO_FILES_MAX)
        {
            Some(entry) => Err(fault(
                entry.span().start,
                format!("a project is told by at most {AUTO_FILES_MAX} files"),
            )),
            None => Ok(()),
        }
    }

    /// The profiles that it defines.
    pub fn profiles(&self) -> impl Iterator<Item = (&ProfileName, &Profile)> {
        self.placed_profiles()
            .map(|(_, name, profile)| (name, profile))
    }

    /// Profiles, each with the byte of the text at which its name is.
    pub(crate) fn placed_profiles(&self) -> impl Iterator<Item = (usize, &ProfileName, &Profile)> {
        let defined = match &self.profile {
            ProfileKey::Defined(profiles) => Some(profiles),
            ProfileKey::Chosen(_) => None,
        };
        defined
            .into_iter()
            .flatten()
            .map(|(name, profile)| (name.span().start, name.get_ref(), profile))
    }

    /// The profile of a session that does not name one, if the file sets it.
    pub fn chosen(&self) -> Option<&ProfileChoice> {
        match &self.profile {
            ProfileKey::Chosen(name) => Some(name),
            ProfileKey::Defined(_) => self.default_profile.as_ref().map(Spanned::get_ref),
        }
    }
}

/// The value of a file's key `profile`.
#[derive(Clone, Debug)]
pub enum ProfileKey {
    /// `[profile.NAME]`: profiles that it defines.
    Defined(BTreeMap<Spanned<ProfileName>, Profile>),
    /// `profile = "NAME"`: the profile of a session that does not name one.
    Chosen(ProfileChoice),
}

impl Default for ProfileKey {
    fn default() -> Self {
        Self::Defined(BTreeMap::new())
    }
}

impl<'de> Deserialize<'de> for ProfileKey {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        /// Not an untagged enum: its errors would lack the position and the message.
        struct ProfileKeyVisitor;

        impl<'de> Visitor<'de> for ProfileKeyVisitor {
            type Value = ProfileKey;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("tables of profiles, or the name of one")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ProfileKey, E> {
                ProfileChoice::try_from(text.to_owned())
                    .map(ProfileKey::Chosen)
                    .map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ProfileKey, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(ProfileKey::Defined)
            }
        }

        input.deserialize_any(ProfileKeyVisitor)
    }
}

/// Chooses a profile for projects that have all of these files in their root; without files, for those that no other entry fits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoEntry {
    pub files: Vec<ProjectFile>,
    pub profile: ProfileName,
}

/// Line and column of a byte of `text`, both from 1, the column in characters.
pub fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    (line, column)
}

/// Permissions of a session that names this profile.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Profiles that this one extends, in order; `default` if the key is absent.
    #[serde(deserialize_with = "value::one_or_many")]
    pub extends: Option<Vec<ProfileName>>,
    pub project: Option<Spanned<Access>>,
    pub central: Option<Spanned<Access>>,
    /// Host paths outside the zones to add.
    pub(crate) grants: Vec<GrantEntry>,
    /// Host paths that commands may read as if the user had granted them when the session was opened: what is closed in leases stays
    /// closed in them.
    pub read: Vec<HostPath>,
    /// Host directories in which only the names may be listed.
    pub listed: Vec<HostPath>,
    /// Socket files of host programs, in the roots, to which cells may connect.
    pub(crate) sockets: Vec<HostPath>,
    /// An unpacked image whose root cells see in place of the machine's, and of all grants.
    pub(crate) image: Option<HostPath>,
    /// Git directories to which a project's `.git` file may lead although nothing in them leads back.
    pub(crate) git_directories: Vec<HostPath>,
    pub(crate) environment: Environment,
    /// Credentials that commands may use and not see.
    pub(crate) credentials: Vec<Spanned<CredentialName>>,
    /// Keys of the user's ssh agent that commands may use.
    pub(crate) ssh: Vec<Spanned<CredentialName>>,
    pub(crate) web: WebTable,
    pub network: NetworkTable,
    /// Whether names are hidden: `false` lets commands and file tools read what lies in the roots and in what is granted under any name.
    pub(crate) hide: Option<bool>,
    /// Protected names that commands and file tools may change in sessions of this profile.
    pub open: Vec<OpenedName>,
    /// The view that commands have of files of secrets in dotenv form, by name.
    pub(crate) secrets: SecretsTable,
    pub(crate) limits: LimitsTable,
    /// Layers without which no session of this profile opens, in whatever tier.
    pub(crate) required: Vec<LayerName>,
    /// Layers without which no session of this profile opens in a tier that could have them.
    pub(crate) expected: Vec<LayerName>,
}

/// A host path to grant, read-only.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrantEntry {
    pub path: HostPath,
    /// Whether it may be missing on this machine.
    #[serde(default)]
    pub(crate) optional: bool,
    /// Exceptions from it: patterns of paths in it.
    #[serde(default)]
    pub(crate) except: Vec<ExceptedPath>,
    /// For people who read the file.
    pub why: Option<String>,
}

/// Additions to a cell's environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Environment {
    /// Names of variables to copy from the executor's environment.
    pub pass: Vec<PassName>,
    /// Secrets to copy, each by its whole name.
    pub credentials: Vec<VariableName>,
    /// Variables that name directories of the profile's own state.
    pub state: Vec<VariableName>,
    pub set: BTreeMap<VariableName, SetValue>,
    /// Variables set only in a session without a network.
    pub offline: BTreeMap<VariableName, SetValue>,
    /// Directories to put at the front of `PATH`, before those of the profiles that this one extends.
    pub path: Vec<HostPath>,
}

/// How calls are approved, as a file writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ApprovalTable {
    /// The maximum of trust that a session may have.
    pub(crate) trust: Option<TrustName>,
    /// Seconds that a question waits for its answer.
    #[serde(deserialize_with = "limits::seconds")]
    pub(crate) timeout_s: Option<Option<u64>>,
    /// Where the broker accepts answers from.
    pub(crate) channel: Option<Channel>,
    /// Whether an approver must have a terminal, with a separate channel.
    pub(crate) terminal: Option<bool>,
}

/// Names to protect, for one reason: see [`ProtectedName`](policies_guard::names::ProtectedName).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protect {
    pub names: Vec<Spanned<NameEntry>>,
    #[serde(default)]
    pub(crate) except: Vec<ExceptPattern>,
    pub protection: Protection,
    #[serde(default)]
    pub new: WhenNew,
    /// Whether a profile's `open` may name it.
    #[serde(default)]
    pub(crate) opens: bool,
    pub why: String,
}

/// A form of names in transit: see [`TransitForm`](policies_guard::transit::TransitForm).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransitEntry {
    pub before: Option<Prefix>,
    pub after: Option<ExceptPattern>,
    #[serde(default)]
    pub(crate) except: Vec<ExceptPattern>,
    pub why: String,
    /// The document that describes it, for people who read the file.
    pub source: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Layer;

    fn fault(text: &str) -> (usize, usize, String) {
        match PolicyFile::parse("p.toml", text) {
            Err(PolicyError::Text {
                file,
                line,
                column,
                message,
            }) => {
                assert_eq!(file, "p.toml");
                (line, column, message)
            }
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_full_file_reads() {
        let file = PolicyFile::parse("p", include_str!("../tests/files/full.toml")).unwrap();
        assert!(file.lock);
        assert_eq!(file.required, [LayerName(Layer::Cgroup)]);
        assert_eq!(file.ceiling.timeout_max_s, Some(Some(300)));
        assert_eq!(file.ceiling.memory, Some(Some(4 << 30)));
        let (name, profile) = file.profiles().next().unwrap();
        assert_eq!(name.as_str(), "site");
        assert_eq!(profile.extends.as_ref().unwrap().len(), 2);
        assert_eq!(*profile.project.as_ref().unwrap().get_ref(), Access::Read);
        assert_eq!(profile.grants[0].path.text(), "${JAVA_HOME:-/opt/java}");
        assert_eq!(profile.limits.cpu_s, Some(None));
        assert_eq!(
            (file.web.search, profile.web.search),
            (Some(false), Some(true))
        );
        assert_eq!(
            profile.web.private.as_ref().unwrap()[0].text(),
            "localhost:8080"
        );
        assert_eq!(profile.environment.pass[1].as_str(), "MAVEN_*");
        assert_eq!((file.secrets.len(), profile.secrets.len()), (1, 2));
        assert_eq!(file.protect[0].protection, Protection::All);
        assert_eq!(file.protect[0].except[0].as_str(), "*.pub");
        assert_eq!(file.protect[0].new, WhenNew::Open);
    }

    #[test]
    fn the_default_profile_is_named_in_either_way_and_not_in_both() {
        let chosen = |text: &str| {
            let file = PolicyFile::parse("p", &format!("version = 1\n{text}")).unwrap();
            (
                file.chosen().map(|name| name.as_str().to_owned()),
                file.profiles().count(),
            )
        };
        assert_eq!(chosen(""), (None, 0));
        assert_eq!(chosen("profile = 'auto'"), (Some("auto".into()), 0));
        assert_eq!(
            chosen("default_profile = 'a'\n[profile.a]"),
            (Some("a".into()), 1)
        );
        assert_eq!(
            fault("version = 1\nprofile = 'a'\ndefault_profile = 'a'\n").0,
            3
        );
    }

    #[test]
    fn entries_of_auto_are_counted() {
        let entry = |files: usize| {
            let files = vec!["'f'"; files].join(", ");
            format!("[[auto]]\nprofile = 'go'\nfiles = [{files}]\n")
        };
        let file =
            |entries: usize, files: usize| format!("version = 1\n{}", entry(files).repeat(entries));
        assert_eq!(
            PolicyFile::parse("p", &file(AUTO_MAX, AUTO_FILES_MAX))
                .unwrap()
                .auto
                .len(),
            AUTO_MAX
        );
        assert!(fault(&file(AUTO_MAX + 1, 1)).2.contains("at most 64"));
        let many = fault(&file(1, AUTO_FILES_MAX + 1));
        assert_eq!(many, (2, 1, "a project is told by at most 8 files".into()));
    }

    /// A rule for `bash` with `more` on its eighth line.
    fn rule(more: &str) -> String {
        format!("version = 1\n\n[[rule]]\ntool = 'bash'\naction = 'ask'\nwhy = 'w'\n\n{more}\n")
    }

    #[test]
    fn rules_are_counted() {
        let rules = |count| {
            format!(
                "version = 1\n{}",
                "[[rule]]\ntool='*'\naction='ask'\nwhy='w'\n".repeat(count)
            )
        };
        assert_eq!(
            PolicyFile::parse("p", &rules(RULES_MAX))
                .unwrap()
                .rule
                .len(),
            RULES_MAX
        );
        let (line, _, message) = fault(&rules(RULES_MAX + 1));
        assert_eq!(line, 2 + 4 * RULES_MAX);
        assert!(message.contains("at most 1024 rules"), "{message}");
    }

    #[test]
    fn every_fault_names_line_and_column() {
        for (text, line, column, words) in [
            (
                "version = 1\n[profile.a]\nprojekt = \"read\"\n",
                3,
                1,
                "unknown field `projekt`",
            ),
            ("version = 1\ncolour = 1\n", 2, 1, "unknown field `colour`"),
            (
                "version = 1\n[profile.a]\nproject = \"rw\"\n",
                3,
                11,
                "unknown variant `rw`",
            ),
            (
                "version = 1\n[profile.a]\n  grants = [{ path = \"usr\" }]\n",
                3,
                22,
                "a host path begins",
            ),
            (
                "version = 1\n[profile.a]\ngrants = [{ path = \"/usr\", mode = 1 }]\n",
                3,
                28,
                "unknown field `mode`",
            ),
            (
                "version = 1\n[profile.a.limits]\nspill = \"1 MB\"\n",
                3,
                9,
                "expected a size",
            ),
            (
                "version = 1\n[profile.a.limits]\nfiles = 1\n",
                3,
                1,
                "unknown field `files`",
            ),
            (
                "version = 1\n[profile.a.environment.set]\nPATH = \"/x\"\n",
                3,
                1,
                "sets this variable itself",
            ),
            (
                "version = 1\n[profile.a.environment]\npass = [\"LANG\", \"*\"]\n",
                3,
                17,
                "a name to pass",
            ),
            (
                "version = 1\n[profile.\"a b\"]\n",
                2,
                10,
                "a profile's name",
            ),
            (
                "version = 1\nrequired = [\"seccomb\"]\n",
                2,
                13,
                "no layer of this name",
            ),
            (
                "version = 1\n[[protect]]\nnames = [\"é\", \"[\"]\nprotection = \"all\"\nwhy = \"\"",
                3,
                15,
                "is unmatched",
            ),
            (
                "version = 1\n[[protect]]\nnames = [\"a\"]\nnew = \"made\"\n",
                4,
                7,
                "unknown variant `made`",
            ),
            (
                "version = 1\n[approval]\ntrust = \"none\"\n",
                3,
                9,
                "a trust is `supervised`",
            ),
            (
                "version = 1\n[approval]\nchanel = \"relay\"\n",
                3,
                1,
                "unknown field `chanel`",
            ),
            (
                "version = 1\n[[rule]]\ntool = \"a b\"\n",
                3,
                8,
                "a tool's name is",
            ),
            (
                "version = 1\n[[rule]]\ntool = \"bash\"\naction = \"maybe\"\n",
                4,
                10,
                "unknown variant `maybe`",
            ),
            (
                "version = 1\n[[rule]]\ntool = \"bash\"\naction = \"ask\"\n",
                2,
                1,
                "missing field `why`",
            ),
            (
                "version = 1\n[[rule]]\nwhy = \"\"\ntool = \"bash\"\naction = \"ask\"\n",
                2,
                1,
                "a rule has a `why`",
            ),
            (
                "version = 1\n[[rule]]\ntool = \"*\"\nprogramm = \"git\"\n",
                4,
                1,
                "unknown field `programm`",
            ),
            (
                &rule("args = ['push']"),
                3,
                1,
                "`args` for those with `program`",
            ),
            (&rule("program = ''"), 3, 1, "`program` and `args` are"),
            (&rule("program = '[a'"), 3, 1, "is unmatched"),
            (&rule("program = 'a'\nargs = ['a]']"), 3, 1, "is unmatched"),
            (
                &rule("when = [{ param = 'path', equals = 'a' }]"),
                3,
                1,
                "`bash` has no parameter `path`",
            ),
            (
                &rule("when = [{ param = 'cwd' }]"),
                3,
                1,
                "a condition has one of",
            ),
            (
                &rule("when = [{ param = 'cwd', equals = [] }]"),
                3,
                1,
                "at least one value",
            ),
            (
                &rule("when = [{ param = 'cwd', equals = 'a', contains = 'b' }]"),
                3,
                1,
                "a condition has one of",
            ),
            (
                &rule("when = [{ param = 'cwd', matches = '../a' }]"),
                3,
                1,
                "a glob of paths is",
            ),
            (
                &rule("when = [{ param = 'cwd', equal = 'a' }]"),
                8,
                26,
                "unknown field `equal`",
            ),
            (
                &rule("when = [{ param = 'cwd', equals = 1 }]"),
                8,
                35,
                "a string, or a list",
            ),
            (
                "version = 1\n[web]\nallow = [\"*\", \"A.example\"]\n",
                3,
                15,
                "a host is `*`",
            ),
            (
                "version = 1\n[web]\nprivate = [\"localhost\"]\n",
                3,
                12,
                "a private place is",
            ),
            (
                "version = 1\n[profile.a.web]\nallowed = []\n",
                3,
                1,
                "unknown field `allowed`",
            ),
            (
                "version = 1\n[profile.auto]\n",
                2,
                10,
                "`auto` chooses a profile",
            ),
            ("version = 1\nprofile = 'a b'\n", 2, 11, "a profile's name"),
            (
                "version = 1\nprofile = 1\n",
                2,
                11,
                "tables of profiles, or the name of one",
            ),
            (
                "version = 1\ndefault_profile = ''\n",
                2,
                19,
                "a profile's name",
            ),
            (
                "version = 1\n[[auto]]\nprofile = 'auto'\nfiles = ['x']\n",
                3,
                11,
                "`auto` chooses",
            ),
            (
                "version = 1\n[[auto]]\nprofile = 'go'\nfiles = ['a/b']\n",
                4,
                10,
                "one name in its root",
            ),
            (
                "version = 1\n[[auto]]\nprofile = 'go'\n",
                2,
                1,
                "missing field `files`",
            ),
            ("version = 2\n", 1, 11, "`version = 1`"),
            ("lock = true\n", 1, 1, "missing field `version`"),
            ("version = 1\nversion = 1\n", 2, 1, "duplicate key: version"),
            (
                "version = 1\n[profile.a]\n[profile.b]\n[profile.a]\n",
                4,
                10,
                "duplicate key: a",
            ),
            ("version = \n", 1, 11, ""),
            (
                "version = 1\n[profile.a]\nextends = 3\n",
                3,
                11,
                "a string, or a list",
            ),
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
        let want = PolicyError::TooLarge {
            file: "p".into(),
            bytes: FILE_MAX + 1,
        };
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
