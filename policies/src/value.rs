//! Single values of a policy file, each checked while it is read.

use crate::host::HostPath;
use crate::tool::{self, NeverMatches};
use broker_protocol::{Layer, Trust, limit};
use policies_guard::fold::fold_pattern;
use policies_guard::pattern::{Case, Pattern, PatternError, has_signs};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use thiserror::Error;

/// Longest pattern of a protected name, in bytes.
pub const PATTERN_MAX: usize = 255;
/// Longest name of a profile, in bytes.
pub(crate) const PROFILE_NAME_MAX: usize = 64;
/// In place of a profile's name: the one for what the project is. See [`choice`](crate::choice).
pub const AUTO: &str = "auto";

/// Why a value is not what its key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ValueError {
    #[error("this build reads `version = 1`")]
    Version,
    #[error("a profile's name is 1 to {PROFILE_NAME_MAX} letters, digits, `-`, `_` and `.`")]
    ProfileName,
    #[error("`auto` chooses a profile by what the project is; give this one another name")]
    Auto,
    #[error("a file that identifies a project is 1 to {PATTERN_MAX} bytes, one name in its root")]
    ProjectFile,
    #[error("there is no layer of this name; there are: {}", Layer::ALL.map(Layer::name).join(", "))]
    Layer,
    #[error("a trust is `supervised` (or `ask`), `guided` (or `auto`) or `autonomous` (or `yolo`)")]
    Trust,
    #[error("a variable's name is letters, digits and `_`, and does not begin with a digit")]
    VariableName,
    #[error(
        "a name to pass is letters, digits and `_`, does not begin with a digit, and may end with `*`"
    )]
    PassName,
    #[error("the executor sets this variable itself")]
    Reserved,
    #[error("a variable's value has no NUL byte")]
    Nul,
    #[error("a value that begins with `~` or `${{` is a host path, and this is not one")]
    Path,
    #[error(
        "a protected name is 1 to {PATTERN_MAX} bytes: names between `/`, without `.` or `..`; with `/` before them they are those of a root; `**` stands for any number of names, once, and not at an end"
    )]
    Pattern,
    #[error("{0}")]
    Glob(PatternError),
    #[error("a tool's name is 1 to {max} letters, digits, `_`, `-` and `.`; `*` means all", max = limit::TOOL_NAME)]
    Tool,
    #[error("rules know this tool as `{0}`")]
    Alias(&'static str),
    #[error("rules do not apply to this tool; only a session's scope does")]
    Unasked,
    #[error("an exception is one name, without `/`")]
    Except,
    #[error("a name to open is one or more names between `/`, none of them a pattern")]
    OpenedName,
    #[error("this is no name of a file of secrets in dotenv form, such as `.env`, `.env.*` or `*`")]
    SecretName,
    #[error(
        "what a grant excepts is a path in it of at most {EXCEPT_NAMES_MAX} names or patterns, without `.`, `..` and `**`"
    )]
    Excepted,
    #[error(
        "what stands before a name is 1 to {PATTERN_MAX} bytes, without `/` and the signs of patterns"
    )]
    Prefix,
}

/// The format's version, which is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Version;

impl TryFrom<i64> for Version {
    type Error = ValueError;

    fn try_from(version: i64) -> Result<Self, ValueError> {
        if version == 1 {
            Ok(Self)
        } else {
            Err(ValueError::Version)
        }
    }
}

/// Reads a type from a string by its `TryFrom<String>`.
macro_rules! read_from_text {
    ($name:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                policies_targets::text::read(input)
            }
        }
    };
}

/// Makes a checked text type: it is read from a string by `$check`, which returns its canonical form or a `$fault`, and read out with
/// `as_str`. Without a `$fault` the check is of the text as it is written.
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        checked_text!($(#[$doc])* $name, ValueError, |text| {
            let check: fn(&str) -> Result<(), ValueError> = $check;
            check(&text).map(|()| text)
        });
    };
    ($(#[$doc:meta])* $name:ident, $fault:ty, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = $fault;

            fn try_from(text: String) -> Result<Self, $fault> {
                let check: fn(String) -> Result<String, $fault> = $check;
                check(text).map(Self)
            }
        }

        $crate::value::read_from_text!($name);
    };
}
pub(crate) use {checked_text, read_from_text};

read_from_text!(LayerName);
read_from_text!(TrustName);
read_from_text!(SetValue);
read_from_text!(HostPath);

checked_text!(
    /// The name of a profile.
    ProfileName,
    |text| if text == AUTO { Err(ValueError::Auto) } else { check_profile_name(text) }
);

checked_text!(
    /// The name of a profile, or [`AUTO`].
    ProfileChoice,
    check_profile_name
);

fn check_profile_name(text: &str) -> Result<(), ValueError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let fits = (1..=PROFILE_NAME_MAX).contains(&text.len());
    if fits && text.bytes().all(allowed) {
        Ok(())
    } else {
        Err(ValueError::ProfileName)
    }
}

checked_text!(
    /// The name of a file in the root of projects of some kind.
    ProjectFile,
    |text| {
        let fits = (1..=PATTERN_MAX).contains(&text.len());
        if fits && !text.contains(['/', '\0']) && ![".", ".."].contains(&text) {
            return Ok(());
        }
        Err(ValueError::ProjectFile)
    }
);

checked_text!(
    /// The name of an environment variable that a profile sets.
    VariableName,
    |text| {
        if !is_variable(text) {
            return Err(ValueError::VariableName);
        }
        // What the executor sets after the profile would make these a lie.
        if ["PATH", "HOME", "TMPDIR"].contains(&text) { Err(ValueError::Reserved) } else { Ok(()) }
    }
);

checked_text!(
    /// The name of an environment variable to take over, or its beginning and a `*`. A `*` alone is none: a cell's
    /// environment is built from nothing.
    PassName,
    |text| {
        if is_variable(text.strip_suffix('*').unwrap_or(text)) { Ok(()) } else { Err(ValueError::PassName) }
    }
);

checked_text!(
    /// One or more names between slashes, each with `*`, `?`, `[a-z]` and `{a,b}`; `**` for any number of names. With a slash before them
    /// they are those of a root.
    NamePattern,
    |text| {
        let names: Vec<&str> = text.strip_prefix('/').unwrap_or(text).split('/').collect();
        let deep = names.iter().filter(|name| **name == "**").count();
        let at_an_end = names.first() == Some(&"**") || names.last() == Some(&"**");
        let odd = names.iter().any(|name| ["", ".", ".."].contains(name));
        if text.len() > PATTERN_MAX || text.contains('\0') || odd || deep > 1 || at_an_end {
            return Err(ValueError::Pattern);
        }
        names.iter().filter(|name| **name != "**").try_for_each(|name| check_glob(name))
    }
);

checked_text!(
    /// One name with `*`, `?`, `[a-z]` and `{a,b}`.
    ExceptPattern,
    |text| {
        if text.is_empty() || text.len() > PATTERN_MAX || text.contains(['/', '\0']) {
            return Err(ValueError::Except);
        }
        check_glob(text)
    }
);

/// Maximum names in a path that a grant excepts.
pub(crate) const EXCEPT_NAMES_MAX: usize = 8;

checked_text!(
    /// A path in a granted directory that is not granted with it: names and patterns of names.
    ExceptedPath,
    |text| {
        let names = text.split('/');
        let fits = text.len() <= PATTERN_MAX && names.clone().count() <= EXCEPT_NAMES_MAX && !text.contains('\0');
        if !fits || names.clone().any(|name| matches!(name, "" | "." | ".." | "**")) {
            return Err(ValueError::Excepted);
        }
        names.into_iter().try_for_each(check_glob)
    }
);

checked_text!(
    /// The text before a name in transit: part of a name, and no pattern.
    Prefix,
    |text| {
        let plain = !text.contains(['/', '\0', '*', '?', '[', ']', '{', '}', '\\']);
        if plain && (1..=PATTERN_MAX).contains(&text.len()) { Ok(()) } else { Err(ValueError::Prefix) }
    }
);

/// A protected name as a file writes it: a pattern, or `{ name = PATTERN, source = TEXT }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameEntry {
    pub pattern: NamePattern,
    /// The document that says what a host does with it, for people who read the file.
    pub source: Option<String>,
}

impl<'de> Deserialize<'de> for NameEntry {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct NameTable {
            name: NamePattern,
            source: String,
        }

        struct NameEntryVisitor;

        impl<'de> Visitor<'de> for NameEntryVisitor {
            type Value = NameEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a pattern, or a table of `name` and `source`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<NameEntry, E> {
                let pattern = NamePattern::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(NameEntry {
                    pattern,
                    source: None,
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NameEntry, A::Error> {
                let NameTable { name, source } =
                    NameTable::deserialize(MapAccessDeserializer::new(map))?;
                Ok(NameEntry {
                    pattern: name,
                    source: Some(source),
                })
            }
        }

        input.deserialize_any(NameEntryVisitor)
    }
}

/// Both as written and as it will be compared: characters that are left out of a comparison may have been all of it.
fn check_glob(name: &str) -> Result<(), ValueError> {
    let folded = fold_pattern(name);
    if folded.is_empty() {
        return Err(ValueError::Pattern);
    }
    // Most names are no patterns, and fold to themselves.
    let different = folded.as_ref() != name;
    [name, &folded]
        .into_iter()
        .take(1 + usize::from(different))
        .filter(|text| has_signs(text))
        .try_for_each(|text| Pattern::parse(text, Case::Ignored).map(drop))
        .map_err(ValueError::Glob)
}

fn is_variable(text: &str) -> bool {
    let named = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    named
        && text
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit())
}

checked_text!(
    /// The tool of a rule: the name that the broker decides on, or `*`.
    RuleTool,
    |text| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let named = (1..=limit::TOOL_NAME).contains(&text.len()) && text.bytes().all(plain);
        if !named && text != "*" {
            return Err(ValueError::Tool);
        }
        match tool::never_matches(text) {
            Some(NeverMatches::KnownAs(known)) => Err(ValueError::Alias(known)),
            Some(NeverMatches::Unasked) => Err(ValueError::Unasked),
            None => Ok(()),
        }
    }
);

/// A layer by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayerName(pub Layer);

impl TryFrom<String> for LayerName {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        Layer::ALL
            .into_iter()
            .find(|layer| layer.name() == text)
            .map(Self)
            .ok_or(ValueError::Layer)
    }
}

/// A trust by its name, or by the one that other systems have for it, in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustName(pub Trust);

impl TryFrom<String> for TrustName {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        match text.to_ascii_lowercase().as_str() {
            "supervised" | "ask" => Ok(Self(Trust::Supervised)),
            "guided" | "auto" => Ok(Self(Trust::Guided)),
            "autonomous" | "yolo" => Ok(Self(Trust::Autonomous)),
            _ => Err(ValueError::Trust),
        }
    }
}

/// The value of a variable that a profile sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetValue {
    /// The text as it stands.
    Text(String),
    /// A path of this machine.
    Path(HostPath),
}

impl TryFrom<String> for SetValue {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        if text.contains('\0') {
            return Err(ValueError::Nul);
        }
        if text.starts_with('~') || text.starts_with("${") {
            return HostPath::try_from(text)
                .map(Self::Path)
                .map_err(|_| ValueError::Path);
        }
        Ok(Self::Text(text))
    }
}

/// `"a"` or `["a", "b"]`. Not an untagged enum: its errors would lose their place and their words.
pub(crate) fn one_or_many<'de, D, T>(input: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<String, Error: fmt::Display> + Deserialize<'de>,
{
    struct Texts<T>(PhantomData<T>);

    impl<'de, T: TryFrom<String, Error: fmt::Display> + Deserialize<'de>> Visitor<'de> for Texts<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string, or a list of strings")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            T::try_from(text.to_owned())
                .map(|one| vec![one])
                .map_err(E::custom)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    input.deserialize_any(Texts(PhantomData)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_checked_when_they_are_read() {
        let pattern = |text: &str| NamePattern::try_from(text.to_owned());
        for text in [
            ".env",
            ".git/hooks",
            ".git/modules/**/hooks",
            "*.{pem,key}",
            "a b",
            "/auth.json",
            "/a/**/b",
            &"n".repeat(PATTERN_MAX),
        ] {
            assert!(pattern(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "/",
            "//a",
            "/**/a",
            "a/",
            "a//b",
            "a/../b",
            "./a",
            "**",
            "**/a",
            "a/**",
            "a/**/b/**/c",
            "a\0",
        ] {
            assert_eq!(pattern(text), Err(ValueError::Pattern), "{text}");
        }
        assert_eq!(
            pattern(&"n".repeat(PATTERN_MAX + 1)),
            Err(ValueError::Pattern)
        );
        assert_eq!(
            pattern("a[b"),
            Err(ValueError::Glob(PatternError::Unpaired))
        );
        assert_eq!(
            pattern("x/{a,b/y"),
            Err(ValueError::Glob(PatternError::Unpaired))
        );
        assert_eq!(
            pattern("{\u{200b}}"),
            Err(ValueError::Glob(PatternError::Unpaired))
        );
        assert_eq!(pattern("a/\u{200b}"), Err(ValueError::Pattern));
        assert_eq!(
            ExceptPattern::try_from("a/b".to_owned()),
            Err(ValueError::Except)
        );
        for (path, fits) in [
            ("var", true),
            ("installs/*/*/{data,var}", true),
            ("/var", false),
            ("var/", false),
            ("", false),
            ("../x", false),
            ("a/**/b", false),
            ("1/2/3/4/5/6/7/8", true),
            ("1/2/3/4/5/6/7/8/9", false),
        ] {
            assert_eq!(
                ExceptedPath::try_from(path.to_owned()).is_ok(),
                fits,
                "{path}"
            );
        }
    }

    #[test]
    fn a_profile_name_is_short_and_plain() {
        let name = |text: &str| ProfileName::try_from(text.to_owned());
        assert!(name("read-only").is_ok());
        assert!(name(&"n".repeat(PROFILE_NAME_MAX)).is_ok());
        for text in ["", "a/b", "a b", "é", &"n".repeat(PROFILE_NAME_MAX + 1)] {
            assert_eq!(name(text), Err(ValueError::ProfileName), "{text}");
        }
        assert_eq!(name(AUTO), Err(ValueError::Auto));
        assert!(ProfileChoice::try_from(AUTO.to_owned()).is_ok());
    }

    #[test]
    fn marker_file_of_a_project_is_one_name() {
        let file = |text: &str| ProjectFile::try_from(text.to_owned());
        assert!(file("Cargo.toml").is_ok() && file(&"n".repeat(PATTERN_MAX)).is_ok());
        for text in [
            "",
            ".",
            "..",
            "a/b",
            "/etc",
            "a\0",
            &"n".repeat(PATTERN_MAX + 1),
        ] {
            assert_eq!(file(text), Err(ValueError::ProjectFile), "{text}");
        }
    }
}
