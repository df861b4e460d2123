//! Errors in an input, worded for the model: the field's path, what was expected and what was found.

use broker_protocol::{ErrorKind, Failed, PathError, TooLarge};
use serde_json::Value;
use thiserror::Error;

/// Maximum length of a value or field name in an error message, in bytes.
const SHOWN: usize = 80;

/// Why a tool does not accept an input.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum FieldError {
    /// The input is no JSON object.
    #[error("the input must be a JSON object, this is {0}")]
    NotAnObject(String),
    /// The tool has no such field.
    #[error("unknown field `{name}`, {}", among(.known, .meant.as_deref()))]
    Unknown {
        name: String,
        /// The fields that exist here.
        known: Vec<String>,
        /// The field that was probably meant.
        meant: Option<String>,
    },
    /// A required field is absent.
    #[error("missing field `{0}`")]
    Missing(String),
    /// A field is given under two of its names.
    #[error("field `{name}`: given twice, as `{name}` and as `{alias}`")]
    Twice { name: String, alias: String },
    /// A value breaks a rule.
    #[error("field `{name}`: {rule}, this is {found}")]
    Rule {
        name: String,
        /// The rule, such as "expected a string".
        rule: String,
        found: String,
    },
}

fn among(known: &[String], meant: Option<&str>) -> String {
    let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    let known = if names.is_empty() {
        "there are none".into()
    } else {
        format!("expected one of {}", names.join(", "))
    };
    meant.map_or(known.clone(), |meant| {
        format!("{known}; did you mean `{meant}`?")
    })
}

/// The entry of `known` that the writer of `name` probably meant.
pub fn meant<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let distance = |known: &str| strsim::damerau_levenshtein(known, name);
    let close = known.filter(|known| name.len() <= SHOWN && distance(known) <= 1 + name.len() / 4);
    close.min_by_key(|known| distance(known))
}

impl FieldError {
    /// An error for an unknown field below `parent` (a path that ends with a dot, or empty), where `known` fields exist.
    pub fn unknown(parent: &str, name: &str, known: Vec<String>) -> Self {
        let meant = meant(name, known.iter().map(String::as_str)).map(str::to_owned);
        let name = if name.len() > SHOWN {
            format!("a name of {} bytes", name.len())
        } else {
            name.to_owned()
        };
        Self::Unknown {
            name: format!("{parent}{name}"),
            known,
            meant,
        }
    }

    /// An error: `found` is not what field `name` expects.
    pub(crate) fn expected(name: &str, expected: &str, found: &Value) -> Self {
        Self::Rule {
            name: name.to_owned(),
            rule: format!("expected {expected}"),
            found: excerpt(found),
        }
    }
}

/// Why an input does not result in a plan.
#[derive(Debug, Error)]
pub enum InputError {
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A path is invalid or leads outside the zones.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A limit of the protocol is exceeded.
    #[error("field `{}`: {}", .0.field, .0.rule)]
    TooLarge(#[from] TooLarge),
}

impl From<InputError> for Failed {
    fn from(error: InputError) -> Self {
        let kind = match &error {
            InputError::Path(PathError::Outside(_)) => ErrorKind::Violation,
            InputError::Path(_) | InputError::Field(_) | InputError::TooLarge(_) => {
                ErrorKind::InvalidInput
            }
        };
        Failed {
            kind,
            message: error.to_string(),
        }
    }
}

/// A value for an error message: JSON of bounded length.
pub(crate) fn excerpt(value: &Value) -> String {
    let text = match value {
        Value::String(text) if text.len() > SHOWN => format!("a string of {} bytes", text.len()),
        Value::Array(items) if items.len() > 8 => format!("an array of {}", items.len()),
        // Measured before it is serialized: a rejected value may be large.
        Value::Object(fields) if fields.len() > 8 => {
            format!("an object of {} fields", fields.len())
        }
        value => value.to_string(),
    };
    if text.len() > SHOWN {
        "something longer".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_unknown_field_is_answered_with_those_there_are_and_the_one_that_was_meant() {
        let unknown = |name: &str, known: &[&str]| {
            FieldError::unknown(
                "edits[1].",
                name,
                known.iter().map(|name| (*name).into()).collect(),
            )
            .to_string()
        };
        assert_eq!(
            unknown("odl", &["old", "new"]),
            "unknown field `edits[1].odl`, expected one of `old`, `new`; did you mean `old`?"
        );
        assert_eq!(
            unknown("x", &[]),
            "unknown field `edits[1].x`, there are none"
        );
        assert_eq!(
            unknown("colour", &["old"]),
            "unknown field `edits[1].colour`, expected one of `old`"
        );
        let long = unknown(&"n".repeat(1000), &["old"]);
        assert_eq!(
            long,
            "unknown field `edits[1].a name of 1000 bytes`, expected one of `old`"
        );
    }

    #[test]
    fn a_value_in_a_message_is_bounded() {
        for (value, want) in [
            (json!("x".repeat(1000)), "a string of 1000 bytes"),
            (json!(vec![1; 1000]), "an array of 1000"),
            (json!({"a": "x".repeat(500)}), "something longer"),
            (json!([1, 2]), "[1,2]"),
        ] {
            assert_eq!(excerpt(&value), want);
        }
    }
}
