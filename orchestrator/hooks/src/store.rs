//! Which hooks the user has accepted: the SHA-256 of entry and program together, in the state directory.

use crate::settings::HookEntry;
use broker_protocol::Digest;
use orchestrator_launch::state_directory;
use orchestrator_records::kept;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use std::io;
use std::path::PathBuf;

fn directory() -> PathBuf {
    state_directory::directory().join("hooks")
}

fn file() -> PathBuf {
    directory().join("accepted.json")
}

/// The directory for a hook's own files: one for each hook and project.
pub(crate) fn central(hook: &str, project: &str) -> PathBuf {
    state_directory::data()
        .join("hooks")
        .join(format!("{hook}-{}", Digest(Sha256::digest(project).into())))
}

/// The SHA-256 of a program.
pub fn digest(program: &[u8]) -> Digest {
    Digest(Sha256::digest(program).into())
}

/// SHA-256 of an entry with its program. Sorted: moving a field of [`HookEntry`] must not ask the user again.
fn fingerprint(entry: &HookEntry, program: &[u8]) -> String {
    let mut text = json!({ "entry": entry, "program": digest(program).to_string() });
    text.sort_all_objects();
    digest(text.to_string().as_bytes()).to_string()
}

/// The hooks that the user has accepted.
#[derive(Debug, Default)]
pub struct AcceptedHooks(Map<String, Value>);

impl AcceptedHooks {
    /// Reads the stored record, if there is one.
    pub fn read() -> Self {
        Self(
            kept::read(&file())
                .and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or_default(),
        )
    }

    /// Whether any hook with this name was accepted.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether exactly this entry was accepted with this program.
    pub fn has(&self, entry: &HookEntry, program: &[u8]) -> bool {
        self.0.get(&entry.name).and_then(Value::as_str)
            == Some(fingerprint(entry, program).as_str())
    }

    /// Accepts it, replacing any other hook with its name.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn accept(&mut self, entry: &HookEntry, program: &[u8]) -> io::Result<()> {
        self.0
            .insert(entry.name.clone(), fingerprint(entry, program).into());
        kept::prepare(&directory())?;
        kept::replace(&file(), &Value::Object(self.0.clone()).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orchestrator_engine::hooks::HookEvent;

    #[test]
    fn any_change_makes_another_hook() {
        let entry = HookEntry {
            name: "a".into(),
            event: HookEvent::BeforeTool,
            program: "/x".into(),
            args: vec!["one".into(), "two".into()],
            tools: None,
            timeout_s: 5,
            profile: "read-only".into(),
        };
        let others = [
            HookEntry {
                event: HookEvent::AfterTool,
                ..entry.clone()
            },
            HookEntry {
                program: "/y".into(),
                ..entry.clone()
            },
            HookEntry {
                args: vec!["one two".into()],
                ..entry.clone()
            },
            HookEntry {
                tools: Some(vec!["bash".into()]),
                ..entry.clone()
            },
            HookEntry {
                timeout_s: 6,
                ..entry.clone()
            },
            HookEntry {
                profile: "dev".into(),
                ..entry.clone()
            },
        ];
        let known = "4a7d972f997521386091d69306b6312c10e27542b1f208274912603f0bea5b27";
        assert_eq!(
            fingerprint(&entry, b"p"),
            known,
            "what was accepted before is still accepted"
        );
        let accepted = AcceptedHooks(Map::from_iter([(
            "a".to_owned(),
            fingerprint(&entry, b"p").into(),
        )]));
        assert!(accepted.has(&entry, b"p") && !accepted.has(&entry, b"q"));
        assert!(!others.iter().any(|other| accepted.has(other, b"p")));
    }
}
