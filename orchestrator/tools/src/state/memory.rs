//! The memory: values stored by name.

use super::file::{StateEffect, StateError, StateFile, changed, listing, parse};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of values.
pub const MAX: usize = 500;
/// Maximum bytes of one value as JSON.
pub(crate) const VALUE_MAX: usize = 16 << 10;

/// An action of the tool.
#[derive(Clone, Debug, PartialEq)]
pub enum MemoryStep {
    Get(String),
    Set {
        key: String,
        value: Value,
        category: Option<Category>,
    },
    Delete(String),
    List,
}

/// What kind of thing a value is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(description = "")]
pub enum Category {
    Fact,
    Preference,
    Context,
}

impl Category {
    fn name(self) -> &'static str {
        match self {
            Category::Fact => "fact",
            Category::Preference => "preference",
            Category::Context => "context",
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMemory {
    values: BTreeMap<String, MemoryValue>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryValue {
    value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<Category>,
}

/// Applies `action` to the file, if there is one.
///
/// # Errors
/// See [`StateError`].
pub fn apply(action: &MemoryStep, file: Option<&[u8]>) -> Result<StateEffect, StateError> {
    let mut memory: StoredMemory = parse(file)?;
    let missing = |key: &str| StateError::Missing(format!("value for {key:?}"));
    match action {
        MemoryStep::List => Ok(listing(&memory)),
        MemoryStep::Get(key) => {
            let found = memory.values.get(key).ok_or_else(|| missing(key))?;
            let text = found
                .value
                .as_str()
                .map_or_else(|| found.value.to_string(), str::to_owned);
            Ok(StateEffect {
                text,
                ..listing(&memory)
            })
        }
        MemoryStep::Set { key, .. }
            if memory.values.len() >= MAX && !memory.values.contains_key(key) =>
        {
            Err(StateError::Full {
                max: MAX,
                what: "values",
            })
        }
        MemoryStep::Set {
            key,
            value,
            category,
        } => {
            memory.values.insert(
                key.clone(),
                MemoryValue {
                    value: value.clone(),
                    category: *category,
                },
            );
            Ok(StateEffect {
                text: format!("stored {key}"),
                ..changed(&memory)?
            })
        }
        MemoryStep::Delete(key) => {
            memory.values.remove(key).ok_or_else(|| missing(key))?;
            Ok(StateEffect {
                text: format!("deleted {key}"),
                ..changed(&memory)?
            })
        }
    }
}

impl StateFile for StoredMemory {
    const PATH: &'static str = "state/memory.json";

    fn fault(&self) -> Option<&'static str> {
        let plain = |key: &String| {
            (1..=64).contains(&key.len())
                && key
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        match self {
            _ if self.values.len() > MAX => Some("too many values"),
            _ if !self.values.keys().all(plain) => {
                Some("a key with other characters than letters, digits, . _ -")
            }
            _ if self
                .values
                .values()
                .any(|found| found.value.to_string().len() > VALUE_MAX) =>
            {
                Some("a value is too long")
            }
            _ => None,
        }
    }

    fn listing(&self) -> (String, usize) {
        let line = |(key, found): (&String, &MemoryValue)| match found.category {
            Some(category) => format!("{key} ({})", category.name()),
            None => key.clone(),
        };
        let lines: Vec<_> = self.values.iter().map(line).collect();
        (
            if lines.is_empty() {
                "no values".to_owned()
            } else {
                lines.join("\n")
            },
            lines.len(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::StateCommand;
    use super::*;
    use serde_json::json;

    fn run(action: MemoryStep, kept: Option<&[u8]>) -> Result<StateEffect, StateError> {
        StateCommand::Memory(action).apply(kept)
    }

    fn set(key: &str, value: Value) -> MemoryStep {
        MemoryStep::Set {
            key: key.into(),
            value,
            category: None,
        }
    }

    #[test]
    fn a_value_is_stored_found_listed_and_deleted() {
        let kept = run(set("a", json!("text")), None).unwrap().save.unwrap();
        let category = MemoryStep::Set {
            key: "b".into(),
            value: json!([1]),
            category: Some(Category::Fact),
        };
        let kept = run(category, Some(&kept)).unwrap().save.unwrap();
        assert_eq!(
            run(MemoryStep::Get("a".into()), Some(&kept)).unwrap().text,
            "text"
        );
        assert_eq!(
            run(MemoryStep::Get("b".into()), Some(&kept)).unwrap().text,
            "[1]"
        );
        assert_eq!(
            run(MemoryStep::List, Some(&kept)).unwrap().text,
            "a\nb (fact)"
        );
        let kept = run(MemoryStep::Delete("a".into()), Some(&kept))
            .unwrap()
            .save
            .unwrap();
        for gone in [MemoryStep::Get("a".into()), MemoryStep::Delete("a".into())] {
            assert!(matches!(
                run(gone, Some(&kept)),
                Err(StateError::Missing(_))
            ));
        }
    }

    #[test]
    fn full_memory_refuses_new_names_and_accepts_new_values() {
        let values: BTreeMap<_, _> = (0..MAX)
            .map(|n| (format!("k{n}"), json!({"value": n})))
            .collect();
        let kept = json!({ "values": values }).to_string();
        assert!(matches!(
            run(set("new", json!(1)), Some(kept.as_bytes())),
            Err(StateError::Full { .. })
        ));
        assert!(run(set("k1", json!(1)), Some(kept.as_bytes())).is_ok());
    }

    #[test]
    fn names_and_values_of_a_stranger_are_bounded_too() {
        let long = json!({"values": {"k": {"value": "x".repeat(VALUE_MAX)}}});
        for corrupt in [
            json!({"values": {"../k": {"value": 1}}}),
            json!({"values": {"k": {"value": 1, "category": "\u{1b}"}}}),
            long,
        ] {
            let corrupt = corrupt.to_string();
            assert!(
                matches!(
                    run(MemoryStep::List, Some(corrupt.as_bytes())),
                    Err(StateError::Corrupt { .. })
                ),
                "{corrupt:.60}"
            );
        }
    }
}
