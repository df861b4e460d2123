//! The entries `[[hooks]]` of the user's settings.

use crate::template::{Template, TemplateError};
use orchestrator_engine::hooks::HookEvent;
use orchestrator_tools::catalogue::{matches, may_match};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use thiserror::Error;

/// Maximum number of hooks in the settings.
pub(crate) const HOOKS_MAX: usize = 32;
/// Maximum number of a hook's arguments, and of the tools that it names.
const LIST_MAX: usize = 64;
/// Maximum bytes of each of these.
const ENTRY_MAX: usize = 4096;
/// Maximum bytes of a name.
const NAME_MAX: usize = 64;
/// Maximum time limit of a hook, in seconds.
const TIMEOUT_MAX_S: u32 = 600;

/// One hook in the settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookEntry {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// The event for which it runs.
    pub event: HookEvent,
    /// The file of its program; a relative path starts at the settings' directory.
    pub program: PathBuf,
    /// The program's arguments, with templates.
    #[serde(default)]
    pub args: Vec<String>,
    /// The tools for whose calls it runs, each by its name or as a prefix with `*`; all if absent.
    pub tools: Option<Vec<String>>,
    /// Time limit in seconds.
    #[serde(default = "five")]
    pub timeout_s: u32,
    /// The policy profile of its cell.
    #[serde(default = "read_only")]
    pub profile: String,
}

fn five() -> u32 {
    5
}

fn read_only() -> String {
    "read-only".to_owned()
}

/// Why an entry is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HookSettingsError {
    #[error("at most {HOOKS_MAX} hooks")]
    TooMany,
    #[error("the hook {0:?}: a name has 1 to {NAME_MAX} letters, digits, `-` and `_`")]
    Name(String),
    #[error("two hooks are called {0:?}")]
    Twice(String),
    #[error("the hook `{name}`: {field}: at most {LIST_MAX}, each of 1 to {ENTRY_MAX} bytes")]
    List { name: String, field: &'static str },
    #[error("the hook `{name}`: args: {error}")]
    Template { name: String, error: TemplateError },
    #[error("the hook `{name}`: there is no tool {tool:?}")]
    Tool { name: String, tool: String },
    #[error("the hook `{0}` is about no call, so it names no tools")]
    NoTools(String),
    #[error("the hook `{0}`: timeout_s: 1 to {TIMEOUT_MAX_S}")]
    Timeout(String),
}

/// Checks each entry and all of them together.
///
/// # Errors
/// If an entry is invalid.
pub fn check(entries: &[HookEntry]) -> Result<(), HookSettingsError> {
    if entries.len() > HOOKS_MAX {
        return Err(HookSettingsError::TooMany);
    }
    for (at, entry) in entries.iter().enumerate() {
        entry.check()?;
        if entries[..at]
            .iter()
            .any(|earlier| earlier.name == entry.name)
        {
            return Err(HookSettingsError::Twice(entry.name.clone()));
        }
    }
    Ok(())
}

impl HookEntry {
    fn check(&self) -> Result<(), HookSettingsError> {
        let name = || self.name.clone();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.bytes().all(plain) {
            return Err(HookSettingsError::Name(name()));
        }
        if !(1..=TIMEOUT_MAX_S).contains(&self.timeout_s) {
            return Err(HookSettingsError::Timeout(name()));
        }
        let is_list = |list: &[String]| {
            list.len() <= LIST_MAX && list.iter().all(|one| (1..=ENTRY_MAX).contains(&one.len()))
        };
        if !is_list(&self.args) {
            return Err(HookSettingsError::List {
                name: name(),
                field: "args",
            });
        }
        self.templates()?;
        let Some(tools) = &self.tools else {
            return Ok(());
        };
        if !self.event.has_tool() {
            return Err(HookSettingsError::NoTools(name()));
        }
        if tools.is_empty() || !is_list(tools) {
            return Err(HookSettingsError::List {
                name: name(),
                field: "tools",
            });
        }
        // A hook that never matches would be mistaken for a protection.
        match tools
            .iter()
            .find(|tool| !tool.ends_with('*') && !may_match(tool))
        {
            Some(tool) => Err(HookSettingsError::Tool {
                name: name(),
                tool: tool.clone(),
            }),
            None => Ok(()),
        }
    }

    /// The arguments with their templates.
    ///
    /// # Errors
    /// If a template does not exist.
    pub(crate) fn templates(&self) -> Result<Vec<Template>, HookSettingsError> {
        let wrong = |error| HookSettingsError::Template {
            name: self.name.clone(),
            error,
        };
        self.args
            .iter()
            .map(|text| Template::parse(text).map_err(wrong))
            .collect()
    }

    /// Whether it runs for `event`, of a call of `tool` if the event is about one.
    pub(crate) fn hears(&self, event: HookEvent, tool: Option<&str>) -> bool {
        let wanted = match (&self.tools, tool) {
            (Some(tools), Some(tool)) => tools.iter().any(|pattern| matches(pattern, tool)),
            (None, _) | (_, None) => true,
        };
        self.event == event && wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        hooks: Vec<HookEntry>,
    }

    fn entry(more: &str) -> Result<HookEntry, String> {
        let text =
            format!("[[hooks]]\nname = 'a'\nevent = 'before_tool'\nprogram = 'a.py'\n{more}");
        let file: File = toml::from_str(&text).map_err(|error| error.to_string())?;
        check(&file.hooks).map_err(|error| error.to_string())?;
        file.hooks.into_iter().next().ok_or_else(String::new)
    }

    #[test]
    fn an_entry_says_when_of_which_tools_and_for_how_long() {
        let plain = entry("").unwrap();
        assert_eq!((plain.timeout_s, plain.profile.as_str()), (5, "read-only"));
        assert!(plain.hears(HookEvent::BeforeTool, Some("anything")));
        assert!(!plain.hears(HookEvent::AfterTool, Some("anything")));
        let some = entry("tools = ['Bash', 'file_*', 'mcp__gh__push', 'subagent']").unwrap();
        for tool in [
            "bash",
            "file_write",
            "file_edit",
            "mcp__gh__push",
            "subagent",
        ] {
            assert!(some.hears(HookEvent::BeforeTool, Some(tool)), "{tool}");
        }
        for tool in ["grep", "mcp__gh__pull", "bash2"] {
            assert!(!some.hears(HookEvent::BeforeTool, Some(tool)), "{tool}");
        }
    }

    #[test]
    fn each_bound_of_an_entry_holds_at_its_edge() {
        let many = |count: usize| format!("args = [{}]", "'x',".repeat(count));
        assert!(entry(&many(LIST_MAX)).is_ok() && entry(&many(LIST_MAX + 1)).is_err());
        let long = |bytes: usize| format!("args = ['{}']", "x".repeat(bytes));
        assert!(entry(&long(ENTRY_MAX)).is_ok() && entry(&long(ENTRY_MAX + 1)).is_err());
        let time = |seconds: u32| entry(&format!("timeout_s = {seconds}"));
        assert!(time(1).is_ok() && time(TIMEOUT_MAX_S).is_ok());
        assert!(time(0).is_err() && time(TIMEOUT_MAX_S + 1).is_err());
        let named = |name: String| {
            check(&[HookEntry {
                name,
                ..entry("").unwrap()
            }])
        };
        assert!(named("n".repeat(NAME_MAX)).is_ok() && named("n".repeat(NAME_MAX + 1)).is_err());
        assert!(
            named(String::new()).is_err()
                && named("a/b".into()).is_err()
                && named("a b".into()).is_err()
        );
        let all = |count: usize| -> Vec<_> {
            (0..count)
                .map(|at| HookEntry {
                    name: format!("n{at}"),
                    ..entry("").unwrap()
                })
                .collect()
        };
        assert!(check(&all(HOOKS_MAX)).is_ok());
        assert_eq!(check(&all(HOOKS_MAX + 1)), Err(HookSettingsError::TooMany));
    }

    #[test]
    fn an_entry_that_would_guard_nothing_is_an_error() {
        for wrong in [
            "tools = ['bsh']",
            "tools = []",
            "args = ['{{files.path}}']",
            "arg = ['x']",
            "command = 'x'",
        ] {
            assert!(entry(wrong).is_err(), "{wrong}");
        }
        let twice = entry("").unwrap();
        assert_eq!(
            check(&[twice.clone(), twice]),
            Err(HookSettingsError::Twice("a".into()))
        );
        let end = HookEntry {
            event: HookEvent::SessionEnd,
            ..entry("tools = ['bash']").unwrap()
        };
        assert_eq!(check(&[end]), Err(HookSettingsError::NoTools("a".into())));
    }
}
