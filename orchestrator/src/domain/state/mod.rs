//! What the small tools keep between calls, as a pure function: what is kept and an order become what to keep and what to
//! say.
//!
//! The executor reads and writes it (`central:state`), and commands may write there too: what comes back is a stranger's.
//! It is parsed into types, each text and each list is bounded again, and what does not fit is an error that says which
//! file to remove; it is never shown as it is.

pub mod goal;
pub mod memory;
pub mod todo;

use broker_protocol::{ErrorKind, Failed, StateTool, limit};
use goal::Goals;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// What is asked of a small tool.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // Each is its tool's.
pub enum Order {
    TodoRead,
    TodoWrite(todo::Change),
    Memory(memory::Action),
    GoalList,
    Goals(goal::Change),
    Checkpoint(goal::Checkpoint),
}

/// What comes of an order.
#[derive(Debug, PartialEq)]
pub struct Effect {
    /// What to keep from now on, if that changes.
    pub keep: Option<Vec<u8>>,
    /// What the model is told.
    pub text: String,
    /// How many things are kept.
    pub count: u64,
}

/// Why an order has no effect.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// What is kept is not what a tool wrote.
    #[error("central:{file} does not hold what this tool keeps ({why}); remove it to begin anew")]
    Spoilt {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such thing.
    #[error("there is no {0}")]
    Missing(String),
    /// There is no room for more.
    #[error("no more than {most} {what} are kept; remove some first")]
    Full {
        /// How many.
        most: usize,
        /// Of what.
        what: &'static str,
    },
}

impl From<StateError> for Failed {
    fn from(error: StateError) -> Self {
        let kind = match error {
            StateError::Spoilt { .. } => ErrorKind::Io,
            StateError::Missing(_) => ErrorKind::NotFound,
            StateError::Full { .. } => ErrorKind::ResourceLimit,
        };
        Failed { kind, message: error.to_string() }
    }
}

impl Order {
    /// The tool it is asked of.
    pub fn tool(&self) -> StateTool {
        match self {
            Order::TodoRead => StateTool::TodoRead,
            Order::TodoWrite(_) => StateTool::TodoWrite,
            Order::Memory(_) => StateTool::Memory,
            Order::GoalList => StateTool::GoalList,
            Order::Goals(change) => change.tool(),
            Order::Checkpoint(_) => StateTool::Checkpoint,
        }
    }

    /// Carries it out on what is kept.
    pub fn apply(&self, kept: Option<&[u8]>) -> Result<Effect, StateError> {
        match self {
            Order::TodoRead => Ok(told(&open::<todo::Todos>(kept)?)),
            Order::TodoWrite(change) => {
                let mut todos: todo::Todos = open(kept)?;
                todos.change(change)?;
                changed(&todos)
            }
            Order::Memory(action) => memory::apply(action, kept),
            Order::GoalList => Ok(told(&open::<Goals>(kept)?)),
            Order::Goals(change) => {
                let mut goals: Goals = open(kept)?;
                goals.change(change)?;
                changed(&goals)
            }
            Order::Checkpoint(checkpoint) => {
                let mut goals: Goals = open(kept)?;
                goals.note(checkpoint)?;
                changed(&goals)
            }
        }
    }
}

/// Something that is kept.
trait Kept: Default + Serialize + DeserializeOwned {
    /// Its file.
    const FILE: &'static str;

    /// What breaks a bound, if anything does.
    fn fault(&self) -> Option<&'static str>;

    /// It in words, and how many things it holds.
    fn told(&self) -> (String, usize);
}

/// Parses what is kept, and checks it again.
fn open<K: Kept>(kept: Option<&[u8]>) -> Result<K, StateError> {
    let Some(bytes) = kept else { return Ok(K::default()) };
    let spoilt = |why: &str| StateError::Spoilt { file: K::FILE, why: why.to_owned() };
    if bytes.len() > limit::STATE {
        return Err(spoilt("it is too long"));
    }
    // What is wrong in detail would quote the stranger who wrote it.
    let parsed: K = serde_json::from_slice(bytes).map_err(|error| {
        spoilt(&format!("line {}, column {} is not what belongs there", error.line(), error.column()))
    })?;
    match parsed.fault() {
        Some(fault) => Err(spoilt(fault)),
        None => Ok(parsed),
    }
}

fn told<K: Kept>(kept: &K) -> Effect {
    let (text, count) = kept.told();
    Effect { keep: None, text, count: count as u64 }
}

fn changed<K: Kept>(kept: &K) -> Result<Effect, StateError> {
    let bytes = serde_json::to_vec_pretty(kept).unwrap_or_default();
    if bytes.len() > limit::STATE {
        return Err(StateError::Full { most: limit::STATE, what: "bytes" });
    }
    Ok(Effect { keep: Some(bytes), ..told(kept) })
}

/// Whether a text is longer than what its tool takes.
fn is_long(text: &str, most: usize) -> bool {
    text.len() > most && text.chars().take(most + 1).count() > most
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [Order; 3] = [Order::TodoRead, Order::GoalList, Order::Memory(memory::Action::List)];

    #[test]
    fn what_a_stranger_left_is_an_error_that_names_the_file_and_quotes_nothing() {
        let long = format!(r#"{{"todos":[{{"content":"{}","status":"pending"}}]}}"#, "x".repeat(1001));
        let many = format!(
            r#"{{"todos":[{}]}}"#,
            vec![r#"{"content":"x","status":"pending"}"#; todo::MOST + 1].join(",")
        );
        let deep = "[".repeat(200_000);
        let large = " ".repeat(limit::STATE + 1);
        for spoilt in [
            "",
            "[]x",
            "null",
            "\u{1b}]52;c;x\u{7}",
            "{\"todos\":[{\"evil\":1}]}",
            &long,
            &many,
            &deep,
            &large,
        ] {
            let error = Order::TodoRead.apply(Some(spoilt.as_bytes())).unwrap_err();
            let message = error.to_string();
            assert!(message.contains("central:state/todo.json") && message.len() < 200, "{message}");
            assert!(!message.contains("evil") && !message.contains('\u{1b}'), "{message}");
        }
        for order in ORDERS {
            assert!(matches!(order.apply(Some(b"\xff\xfe")), Err(StateError::Spoilt { .. })));
            assert_eq!(order.apply(None).unwrap().count, 0);
        }
    }

    #[test]
    fn reading_changes_nothing() {
        for order in ORDERS {
            assert_eq!(order.apply(None).unwrap().keep, None);
        }
    }
}
