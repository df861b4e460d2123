//! The list of things to do.

use super::{Kept, StateError, is_long};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Entries that are kept.
pub const MOST: usize = 200;
/// Characters of one entry.
const CONTENT: usize = 1000;

/// How far an entry is.
pub const STATUS: [&str; 4] = ["pending", "in_progress", "completed", "canceled"];

/// All entries.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Todos {
    todos: Vec<Todo>,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Todo {
    content: String,
    status: Status,
    #[serde(default)]
    priority: Level,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Pending,
    InProgress,
    Completed,
    Canceled,
}

/// How much it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Little.
    Low,
    /// As usual.
    #[default]
    Medium,
    /// Much.
    High,
}

impl Level {
    /// By a name that was checked.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("low") => Level::Low,
            Some("high") => Level::High,
            _ => Level::Medium,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Low => "low",
            Level::Medium => "medium",
            Level::High => "high",
        }
    }
}

/// What to do with the list.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Another list.
    Replace(Vec<Todo>),
    /// One entry more.
    Add(String),
    /// An entry is done: by its id, or its place from 1.
    Complete(String),
    /// An entry goes.
    Remove(String),
}

/// The entries of a list that the catalogue has checked.
pub fn from_checked(list: Value) -> Vec<Todo> {
    serde_json::from_value(list).unwrap_or_default()
}

impl Todos {
    /// Changes the list.
    pub fn change(&mut self, change: &Change) -> Result<(), StateError> {
        match change {
            Change::Replace(todos) => self.todos.clone_from(todos),
            Change::Add(_) if self.todos.len() >= MOST => {
                return Err(StateError::Full { most: MOST, what: "entries" });
            }
            Change::Add(content) => {
                let (content, status) = (content.clone(), Status::Pending);
                self.todos.push(Todo { content, status, priority: Level::Medium, id: None });
            }
            Change::Complete(id) => {
                let at = self.find(id)?;
                self.todos[at].status = Status::Completed;
            }
            Change::Remove(id) => {
                let at = self.find(id)?;
                self.todos.remove(at);
            }
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<usize, StateError> {
        let by_id = self.todos.iter().position(|todo| todo.id.as_deref() == Some(id));
        let place = || id.parse::<usize>().ok()?.checked_sub(1).filter(|at| *at < self.todos.len());
        by_id.or_else(place).ok_or_else(|| StateError::Missing(format!("entry {id:?}")))
    }
}

impl Kept for Todos {
    const FILE: &'static str = "state/todo.json";

    fn fault(&self) -> Option<&'static str> {
        let long = |todo: &Todo| {
            is_long(&todo.content, CONTENT) || todo.id.as_ref().is_some_and(|id| is_long(id, 64))
        };
        if self.todos.len() > MOST {
            Some("too many entries")
        } else {
            self.todos.iter().any(long).then_some("an entry is too long")
        }
    }

    fn told(&self) -> (String, usize) {
        let line = |(at, todo): (usize, &Todo)| {
            let status = STATUS[todo.status as usize];
            format!("{}. [{status}] ({}) {}", at + 1, todo.priority.name(), todo.content)
        };
        let lines: Vec<_> = self.todos.iter().enumerate().map(line).collect();
        (if lines.is_empty() { "nothing to do".to_owned() } else { lines.join("\n") }, lines.len())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Order;
    use super::*;
    use serde_json::json;

    fn apply(change: Change, kept: Option<&[u8]>) -> (Vec<u8>, String) {
        let effect = Order::TodoWrite(change).apply(kept).unwrap();
        (effect.keep.unwrap(), effect.text)
    }

    #[test]
    fn a_list_is_replaced_and_read_back() {
        let list = json!([{"content": "a", "status": "in_progress", "priority": "high"}, {"content": "b", "status": "canceled"}]);
        let (kept, text) = apply(Change::Replace(from_checked(list)), None);
        assert_eq!(text, "1. [in_progress] (high) a\n2. [canceled] (medium) b");
        let read = Order::TodoRead.apply(Some(&kept)).unwrap();
        assert_eq!((read.text, read.count, read.keep), (text, 2, None));
    }

    #[test]
    fn an_entry_is_added_completed_and_removed() {
        let (kept, _) = apply(Change::Add("one".into()), None);
        let (kept, _) = apply(Change::Add("two".into()), Some(&kept));
        let (kept, text) = apply(Change::Complete("2".into()), Some(&kept));
        assert_eq!(text, "1. [pending] (medium) one\n2. [completed] (medium) two");
        let (kept, text) = apply(Change::Remove("1".into()), Some(&kept));
        assert_eq!(text, "1. [completed] (medium) two");
        for id in ["0", "2", "x", "-1"] {
            let error = Order::TodoWrite(Change::Remove(id.into())).apply(Some(&kept)).unwrap_err();
            assert!(matches!(error, StateError::Missing(_)), "{id}");
        }
    }

    #[test]
    fn the_list_is_full_at_its_edge() {
        let one = from_checked(json!([{"content": "x", "status": "pending"}]));
        let (kept, _) = apply(Change::Replace(vec![one[0].clone(); MOST - 1]), None);
        let (kept, _) = apply(Change::Add("last".into()), Some(&kept));
        let error = Order::TodoWrite(Change::Add("more".into())).apply(Some(&kept)).unwrap_err();
        assert_eq!(error, StateError::Full { most: MOST, what: "entries" });
    }
}
