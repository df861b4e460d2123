//! The to-do list.

use super::file::{StateError, StateFile, is_long};
use crate::accept::KEY;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of entries.
pub const MAX: usize = 200;
/// Maximum characters of one entry.
const CONTENT: usize = 1000;

/// The entries.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Todos {
    todos: Vec<Todo>,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Todo {
    /// The work to do.
    #[schemars(length(min = 1, max = CONTENT))]
    content: String,
    /// How far it is.
    status: TodoStatus,
    /// medium if absent.
    #[serde(default)]
    priority: Priority,
    /// A name for it, if it needs one.
    #[schemars(regex(pattern = KEY))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Status")]
enum TodoStatus {
    Pending,
    InProgress,
    Completed,
    Canceled,
}

/// How much an entry or a goal matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(description = "")]
pub enum Priority {
    Low,
    #[default]
    Medium,
    High,
}

impl TodoStatus {
    fn name(self) -> &'static str {
        match self {
            TodoStatus::Pending => "pending",
            TodoStatus::InProgress => "in_progress",
            TodoStatus::Completed => "completed",
            TodoStatus::Canceled => "canceled",
        }
    }
}

impl Priority {
    /// The name, as an input has it.
    pub fn name(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Medium => "medium",
            Priority::High => "high",
        }
    }
}

/// A change of the list.
#[derive(Clone, Debug, PartialEq)]
pub enum TodoChange {
    /// Replace the whole list.
    Replace(Vec<Todo>),
    /// Add an entry.
    Add(String),
    /// Complete an entry, selected by its ID or its position from 1.
    Complete(String),
    /// Remove an entry, selected in the same way.
    Remove(String),
}

impl Todos {
    /// Makes a change.
    pub fn change(&mut self, change: &TodoChange) -> Result<(), StateError> {
        match change {
            TodoChange::Replace(todos) => self.todos.clone_from(todos),
            TodoChange::Add(_) if self.todos.len() >= MAX => {
                return Err(StateError::Full {
                    max: MAX,
                    what: "entries",
                });
            }
            TodoChange::Add(content) => {
                let (content, status) = (content.clone(), TodoStatus::Pending);
                self.todos.push(Todo {
                    content,
                    status,
                    priority: Priority::Medium,
                    id: None,
                });
            }
            TodoChange::Complete(id) => {
                let at = self.find(id)?;
                self.todos[at].status = TodoStatus::Completed;
            }
            TodoChange::Remove(id) => {
                let at = self.find(id)?;
                self.todos.remove(at);
            }
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<usize, StateError> {
        let by_id = self
            .todos
            .iter()
            .position(|todo| todo.id.as_deref() == Some(id));
        let place = || {
            id.parse::<usize>()
                .ok()?
                .checked_sub(1)
                .filter(|at| *at < self.todos.len())
        };
        by_id
            .or_else(place)
            .ok_or_else(|| StateError::Missing(format!("entry {id:?}")))
    }
}

impl StateFile for Todos {
    const PATH: &'static str = "state/todo.json";

    fn fault(&self) -> Option<&'static str> {
        let long = |todo: &Todo| {
            is_long(&todo.content, CONTENT) || todo.id.as_ref().is_some_and(|id| is_long(id, 64))
        };
        if self.todos.len() > MAX {
            Some("too many entries")
        } else {
            self.todos
                .iter()
                .any(long)
                .then_some("an entry is too long")
        }
    }

    fn listing(&self) -> (String, usize) {
        let line = |(at, todo): (usize, &Todo)| {
            let (status, priority) = (todo.status.name(), todo.priority.name());
            format!("{}. [{status}] ({priority}) {}", at + 1, todo.content)
        };
        let lines: Vec<_> = self.todos.iter().enumerate().map(line).collect();
        (
            if lines.is_empty() {
                "nothing to do".to_owned()
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

    fn apply(change: TodoChange, kept: Option<&[u8]>) -> (Vec<u8>, String) {
        let effect = StateCommand::TodoWrite(change).apply(kept).unwrap();
        (effect.save.unwrap(), effect.text)
    }

    #[test]
    fn a_list_is_replaced_and_read_back() {
        let list = json!([{"content": "a", "status": "in_progress", "priority": "high"}, {"content": "b", "status": "canceled"}]);
        let (kept, text) = apply(
            TodoChange::Replace(serde_json::from_value(list).unwrap()),
            None,
        );
        assert_eq!(text, "1. [in_progress] (high) a\n2. [canceled] (medium) b");
        let read = StateCommand::TodoRead.apply(Some(&kept)).unwrap();
        assert_eq!((read.text, read.count, read.save), (text, 2, None));
    }

    #[test]
    fn an_entry_is_added_completed_and_removed() {
        let (kept, _) = apply(TodoChange::Add("one".into()), None);
        let (kept, _) = apply(TodoChange::Add("two".into()), Some(&kept));
        let (kept, text) = apply(TodoChange::Complete("2".into()), Some(&kept));
        assert_eq!(
            text,
            "1. [pending] (medium) one\n2. [completed] (medium) two"
        );
        let (kept, text) = apply(TodoChange::Remove("1".into()), Some(&kept));
        assert_eq!(text, "1. [completed] (medium) two");
        for id in ["0", "2", "x", "-1"] {
            let error = StateCommand::TodoWrite(TodoChange::Remove(id.into()))
                .apply(Some(&kept))
                .unwrap_err();
            assert!(matches!(error, StateError::Missing(_)), "{id}");
        }
    }

    #[test]
    fn the_list_is_full_at_its_edge() {
        let one: Vec<Todo> =
            serde_json::from_value(json!([{"content": "x", "status": "pending"}])).unwrap();
        let (kept, _) = apply(TodoChange::Replace(vec![one[0].clone(); MAX - 1]), None);
        let (kept, _) = apply(TodoChange::Add("last".into()), Some(&kept));
        let error = StateCommand::TodoWrite(TodoChange::Add("more".into()))
            .apply(Some(&kept))
            .unwrap_err();
        assert_eq!(
            error,
            StateError::Full {
                max: MAX,
                what: "entries"
            }
        );
    }
}
