//! The view that commands have of the project's files of secrets in dotenv form: nothing, placeholders for the values, or the file.
//!
//! `[profile.NAME.secrets]` says that by name; `[secrets]` of any file says how much of it any profile and any session may have at most.
//! File tools refuse such files in any case.

use crate::value::{ExceptPattern, ValueError};
use policies_guard::fold::{fold, fold_pattern};
use policies_guard::pattern::{Case, Pattern, has_signs};
use policies_targets::dotenv::is_dotenv_name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How commands see a file. Ordered: the last shows the most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretMode {
    /// Commands cannot open a file of this name.
    Hide,
    /// Its keys can be read, with placeholders for the values.
    #[default]
    Mask,
    /// Commands can read a file of this name.
    Show,
}

/// A pattern of names in dotenv form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

impl TryFrom<String> for SecretName {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let checked = ExceptPattern::try_from(text)?;
        // A name that is none could never match, and `*` is all that are.
        let fits = checked.as_str() == "*"
            || has_signs(checked.as_str())
            || is_dotenv_name(checked.as_str().as_bytes());
        if fits {
            Ok(Self(checked.as_str().to_owned()))
        } else {
            Err(ValueError::SecretName)
        }
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

/// The modes of one table, by name.
pub(crate) type SecretsTable = BTreeMap<SecretName, SecretMode>;

/// The modes of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SecretModes {
    /// Of its profile; where that says nothing, values are masked.
    pub own: SecretsTable,
    /// Of each file that bounds them.
    pub(crate) bounds: Vec<SecretsTable>,
    /// Files that the user reveals for the session: absolute, or relative to the project.
    pub revealed: Vec<String>,
}

impl SecretModes {
    /// How commands see a file of this name, unless its user reveals it for the session.
    pub fn of(&self, name: &[u8]) -> SecretMode {
        find(&self.own, name)
            .unwrap_or_default()
            .min(self.max(name))
    }

    /// The most that a session may get of it.
    pub fn max(&self, name: &[u8]) -> SecretMode {
        self.bounds
            .iter()
            .filter_map(|table| find(table, name))
            .min()
            .unwrap_or(SecretMode::Show)
    }
}

/// A name that is no pattern counts before patterns; of several patterns the one that shows the least.
fn find(table: &SecretsTable, name: &[u8]) -> Option<SecretMode> {
    let name = fold(name);
    let matching = |entry: &&SecretName| {
        Pattern::parse(&fold_pattern(&entry.0), Case::Ignored)
            .is_ok_and(|pattern| pattern.matches(&name))
    };
    let of = |signs: bool| {
        let entries = table
            .iter()
            .filter(move |(entry, _)| has_signs(&entry.0) == signs);
        entries
            .filter(|(entry, _)| matching(entry))
            .map(|(_, mode)| *mode)
            .min()
    };
    of(false).or_else(|| of(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, SecretMode)]) -> SecretsTable {
        let name = |text: &str| SecretName::try_from(text.to_owned()).unwrap();
        entries
            .iter()
            .map(|(text, mode)| (name(text), *mode))
            .collect()
    }

    #[test]
    fn values_are_masked_unless_the_profile_says_otherwise() {
        let modes = SecretModes::default();
        assert_eq!(
            (modes.of(b".env"), modes.max(b".env")),
            (SecretMode::Mask, SecretMode::Show)
        );
        let own = table(&[
            ("*", SecretMode::Hide),
            (".env.*", SecretMode::Show),
            (".env.{prod,ci}", SecretMode::Hide),
            (".ENV.ci", SecretMode::Mask),
        ]);
        let modes = SecretModes {
            own,
            ..SecretModes::default()
        };
        for (name, want) in [
            (".env", SecretMode::Hide),
            (".env.local", SecretMode::Hide),
            (".env.prod", SecretMode::Hide),
            (".env.CI", SecretMode::Mask),
        ] {
            assert_eq!(modes.of(name.as_bytes()), want, "{name}");
        }
    }

    #[test]
    fn no_profile_shows_more_than_every_file_permits() {
        let own = table(&[(".env*", SecretMode::Show)]);
        let bounds = vec![
            table(&[(".env.prod", SecretMode::Hide)]),
            table(&[
                (".env*", SecretMode::Mask),
                (".env.local", SecretMode::Show),
            ]),
        ];
        let modes = SecretModes {
            own,
            bounds,
            revealed: vec![],
        };
        for (name, want) in [
            (".env", SecretMode::Mask),
            (".env.prod", SecretMode::Hide),
            (".env.local", SecretMode::Show),
        ] {
            assert_eq!(
                (modes.of(name.as_bytes()), modes.max(name.as_bytes())),
                (want, want),
                "{name}"
            );
        }
    }

    #[test]
    fn only_names_in_dotenv_form_have_a_mode() {
        for text in ["id_rsa", "credentials.json", "a/.env", "", ".env["] {
            assert!(SecretName::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
