//! The state that the to-do list, the memory and the goals keep between calls, as a pure function: from the file and a command to
//! the new file and a text.
//!
//! The executor reads and writes the files (`central:state`), and commands may write there too, so their content is untrusted. It
//! is parsed into types, and each text and list is bounded again. Invalid content is never shown; the error names the file to
//! remove.

mod file;
pub(crate) mod goal;
pub mod memory;
pub mod todo;

pub(crate) use file::{StateEffect, StateError};

use broker_protocol::StateTool;
use file::{changed, listing, parse};
use goal::Goals;

/// A command of one of these tools.
#[derive(Clone, Debug, PartialEq)]
pub enum StateCommand {
    TodoRead,
    TodoWrite(todo::TodoChange),
    Memory(memory::MemoryStep),
    GoalList,
    Goals(goal::GoalChange),
    Checkpoint(goal::Checkpoint),
}

impl StateCommand {
    /// The tool it belongs to.
    pub fn tool(&self) -> StateTool {
        match self {
            StateCommand::TodoRead => StateTool::TodoRead,
            StateCommand::TodoWrite(_) => StateTool::TodoWrite,
            StateCommand::Memory(_) => StateTool::Memory,
            StateCommand::GoalList => StateTool::GoalList,
            StateCommand::Goals(change) => change.tool(),
            StateCommand::Checkpoint(_) => StateTool::Checkpoint,
        }
    }

    /// Applies the command to the file, if there is one.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn apply(&self, file: Option<&[u8]>) -> Result<StateEffect, StateError> {
        match self {
            StateCommand::TodoRead => Ok(listing(&parse::<todo::Todos>(file)?)),
            StateCommand::TodoWrite(change) => {
                let mut todos: todo::Todos = parse(file)?;
                todos.change(change)?;
                changed(&todos)
            }
            StateCommand::Memory(action) => memory::apply(action, file),
            StateCommand::GoalList => Ok(listing(&parse::<Goals>(file)?)),
            StateCommand::Goals(change) => {
                let mut goals: Goals = parse(file)?;
                goals.change(change)?;
                changed(&goals)
            }
            StateCommand::Checkpoint(checkpoint) => {
                let mut goals: Goals = parse(file)?;
                goals.note(checkpoint)?;
                changed(&goals)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::limit;

    const COMMANDS: [StateCommand; 3] = [
        StateCommand::TodoRead,
        StateCommand::GoalList,
        StateCommand::Memory(memory::MemoryStep::List),
    ];

    #[test]
    fn a_file_that_a_stranger_wrote_is_an_error_that_names_the_file_and_quotes_nothing() {
        let long = format!(
            r#"{{"todos":[{{"content":"{}","status":"pending"}}]}}"#,
            "x".repeat(1001)
        );
        let many = format!(
            r#"{{"todos":[{}]}}"#,
            vec![r#"{"content":"x","status":"pending"}"#; todo::MAX + 1].join(",")
        );
        let deep = "[".repeat(200_000);
        let large = " ".repeat(limit::STATE + 1);
        for corrupt in [
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
            let error = StateCommand::TodoRead
                .apply(Some(corrupt.as_bytes()))
                .unwrap_err();
            let message = error.to_string();
            assert!(
                message.contains("central:state/todo.json") && message.len() < 200,
                "{message}"
            );
            assert!(
                !message.contains("evil") && !message.contains('\u{1b}'),
                "{message}"
            );
        }
        for command in COMMANDS {
            assert!(matches!(
                command.apply(Some(b"\xff\xfe")),
                Err(StateError::Corrupt { .. })
            ));
            assert_eq!(command.apply(None).unwrap().count, 0);
        }
    }

    #[test]
    fn reading_changes_nothing() {
        for command in COMMANDS {
            assert_eq!(command.apply(None).unwrap().save, None);
        }
    }
}
