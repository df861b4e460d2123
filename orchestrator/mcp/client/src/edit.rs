//! Edits the user's settings: adds or removes a server. Comments and order stay.

use crate::settings::{self, SettingsOwner};
use broker_protocol::paste::shell_word;
use orchestrator_config_edit::edit::{KeyEdit, apply, revert};
use orchestrator_config_edit::{DocumentError, Format};
use serde_json::Value;
use thiserror::Error;

/// The key of all servers.
const SERVERS: &str = "mcpServers";

/// Why the settings cannot be changed.
#[derive(Debug, Error)]
pub enum ChangeError {
    #[error("a server `{0}` exists already; remove it first: `lazaret mcp remove {name}`", name = shell_word(.0))]
    Taken(String),
    #[error("there is no server `{0}`")]
    Missing(String),
    #[error(transparent)]
    Edit(#[from] DocumentError),
    /// The result could not be parsed again.
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
}

/// The settings with one more server.
///
/// # Errors
/// If there is one with this name, or the text or the server is invalid.
pub fn add(text: &str, name: &str, entry: &Value) -> Result<String, ChangeError> {
    if entry_of(text, name).is_some() {
        return Err(ChangeError::Taken(name.to_owned()));
    }
    let changed = apply(Format::Json, text, &[edit(name, entry.clone())])?;
    settings::parse(&changed, SettingsOwner::User)?;
    Ok(changed)
}

/// The settings without one server.
///
/// # Errors
/// If there is none with this name, or the text is invalid.
pub fn remove(text: &str, name: &str) -> Result<String, ChangeError> {
    let entry = entry_of(text, name).ok_or_else(|| ChangeError::Missing(name.to_owned()))?;
    Ok(revert(
        Format::Json,
        text,
        "{\"mcpServers\":{}}",
        &[edit(name, entry)],
    )?)
}

fn edit(name: &str, value: Value) -> KeyEdit {
    KeyEdit::Set {
        path: vec![SERVERS.to_owned(), name.to_owned()],
        value,
    }
}

fn entry_of(text: &str, name: &str) -> Option<Value> {
    serde_json::from_str::<Value>(text)
        .ok()?
        .get(SERVERS)?
        .get(name)
        .cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_server_comes_and_goes_and_the_rest_stays() {
        let before =
            "{\n  \"other\": 1,\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" }\n  }\n}\n";
        let with = add(before, "b", &json!({ "command": "y", "args": ["z"] })).unwrap();
        assert_eq!(
            settings::parse(&with, SettingsOwner::User).unwrap().len(),
            2
        );
        assert!(matches!(
            add(&with, "b", &json!({ "command": "y" })),
            Err(ChangeError::Taken(_))
        ));
        let without = remove(&with, "b").unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&without).unwrap(),
            serde_json::from_str::<Value>(before).unwrap()
        );
        assert!(matches!(
            remove(&without, "b"),
            Err(ChangeError::Missing(_))
        ));
        let first = add("", "a", &json!({ "command": "x" })).unwrap();
        assert_eq!(
            settings::parse(&first, SettingsOwner::User).unwrap()[0].name,
            "a"
        );
        assert!(matches!(
            add("", "a__b", &json!({ "command": "x" })),
            Err(ChangeError::Settings(_))
        ));
    }
}
