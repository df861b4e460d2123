//! Values by name.

use super::{Effect, Kept, StateError, changed, open, told};
use crate::domain::field::KEY;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Values that are kept.
pub const MOST: usize = 500;
/// Bytes of one value as JSON.
pub const VALUE: usize = 16 << 10;

/// What to do.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // The tool's own words.
pub enum Action {
    Get(String),
    Set { key: String, value: Value, category: Option<String> },
    Delete(String),
    List,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Memory {
    values: BTreeMap<String, Kind>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kind {
    value: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    category: Option<String>,
}

/// Carries `action` out on what is kept.
pub fn apply(action: &Action, kept: Option<&[u8]>) -> Result<Effect, StateError> {
    let mut memory: Memory = open(kept)?;
    let missing = |key: &str| StateError::Missing(format!("value for {key:?}"));
    match action {
        Action::List => Ok(told(&memory)),
        Action::Get(key) => {
            let kept = memory.values.get(key).ok_or_else(|| missing(key))?;
            let text = kept.value.as_str().map_or_else(|| kept.value.to_string(), str::to_owned);
            Ok(Effect { text, ..told(&memory) })
        }
        Action::Set { key, .. } if memory.values.len() >= MOST && !memory.values.contains_key(key) => {
            Err(StateError::Full { most: MOST, what: "values" })
        }
        Action::Set { key, value, category } => {
            memory.values.insert(key.clone(), Kind { value: value.clone(), category: category.clone() });
            Ok(Effect { text: format!("{key} is kept"), ..changed(&memory)? })
        }
        Action::Delete(key) => {
            memory.values.remove(key).ok_or_else(|| missing(key))?;
            Ok(Effect { text: format!("{key} is forgotten"), ..changed(&memory)? })
        }
    }
}

impl Kept for Memory {
    const FILE: &'static str = "state/memory.json";

    fn fault(&self) -> Option<&'static str> {
        let plain = |key: &String| {
            (1..=KEY).contains(&key.len())
                && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        };
        let category = |kind: &Kind| {
            kind.category.as_deref().is_none_or(|name| ["fact", "preference", "context"].contains(&name))
        };
        match self {
            _ if self.values.len() > MOST => Some("too many values"),
            _ if !self.values.keys().all(plain) => Some("a name is not one"),
            _ if !self.values.values().all(category) => Some("a category is not one"),
            _ if self.values.values().any(|kind| kind.value.to_string().len() > VALUE) => {
                Some("a value is too long")
            }
            _ => None,
        }
    }

    fn told(&self) -> (String, usize) {
        let line = |(key, kind): (&String, &Kind)| match &kind.category {
            Some(category) => format!("{key} ({category})"),
            None => key.clone(),
        };
        let lines: Vec<_> = self.values.iter().map(line).collect();
        (if lines.is_empty() { "nothing is kept".to_owned() } else { lines.join("\n") }, lines.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::*;
    use serde_json::json;

    fn run(action: Action, kept: Option<&[u8]>) -> Result<Effect, StateError> {
        Order::Memory(action).apply(kept)
    }

    fn set(key: &str, value: Value) -> Action {
        Action::Set { key: key.into(), value, category: None }
    }

    #[test]
    fn a_value_is_kept_found_listed_and_forgotten() {
        let kept = run(set("a", json!("text")), None).unwrap().keep.unwrap();
        let category = Action::Set { key: "b".into(), value: json!([1]), category: Some("fact".into()) };
        let kept = run(category, Some(&kept)).unwrap().keep.unwrap();
        assert_eq!(run(Action::Get("a".into()), Some(&kept)).unwrap().text, "text");
        assert_eq!(run(Action::Get("b".into()), Some(&kept)).unwrap().text, "[1]");
        assert_eq!(run(Action::List, Some(&kept)).unwrap().text, "a\nb (fact)");
        let kept = run(Action::Delete("a".into()), Some(&kept)).unwrap().keep.unwrap();
        for gone in [Action::Get("a".into()), Action::Delete("a".into())] {
            assert!(matches!(run(gone, Some(&kept)), Err(StateError::Missing(_))));
        }
    }

    #[test]
    fn it_is_full_at_its_edge_and_a_name_may_still_get_another_value() {
        let values: BTreeMap<_, _> = (0..MOST).map(|n| (format!("k{n}"), json!({"value": n}))).collect();
        let kept = json!({ "values": values }).to_string();
        assert!(matches!(run(set("new", json!(1)), Some(kept.as_bytes())), Err(StateError::Full { .. })));
        assert!(run(set("k1", json!(1)), Some(kept.as_bytes())).is_ok());
    }

    #[test]
    fn names_and_values_of_a_stranger_are_bounded_too() {
        let long = json!({"values": {"k": {"value": "x".repeat(VALUE)}}});
        for spoilt in [
            json!({"values": {"../k": {"value": 1}}}),
            json!({"values": {"k": {"value": 1, "category": "\u{1b}"}}}),
            long,
        ] {
            let spoilt = spoilt.to_string();
            assert!(
                matches!(run(Action::List, Some(spoilt.as_bytes())), Err(StateError::Spoilt { .. })),
                "{spoilt:.60}"
            );
        }
    }
}
