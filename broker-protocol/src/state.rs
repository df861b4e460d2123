//! The small files that tools like `memory` have between calls.

use crate::digest::Digest;
use crate::limit::{self, TooLarge, at_most};
use crate::path::{Zone, ZonePath};
use serde::{Deserialize, Serialize};

/// Reads or replaces what a small tool keeps between calls: one file for each kind, below `central:state`. It is no secret
/// and no authority: a command may write there too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The tool that asks. It decides which file.
    pub tool: StateTool,
    /// The replacement; absent, the state is read.
    pub change: Option<StateChange>,
}

/// The tools that keep something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateTool {
    TodoRead,
    TodoWrite,
    Memory,
    GoalCreate,
    GoalSwitch,
    GoalComplete,
    GoalList,
    Checkpoint,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateChange {
    /// All of it, at most [`limit::STATE`] bytes.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
    /// Digest of the state it replaces; absent, there must be none.
    pub expected_sha256: Option<Digest>,
}

impl StateTool {
    /// Every tool, in the order of their numbers.
    pub const ALL: [StateTool; 8] = [
        StateTool::TodoRead,
        StateTool::TodoWrite,
        StateTool::Memory,
        StateTool::GoalCreate,
        StateTool::GoalSwitch,
        StateTool::GoalComplete,
        StateTool::GoalList,
        StateTool::Checkpoint,
    ];

    /// The tool's canonical name.
    pub fn name(self) -> &'static str {
        match self {
            StateTool::TodoRead => "todo_read",
            StateTool::TodoWrite => "todo_write",
            StateTool::Memory => "memory",
            StateTool::GoalCreate => "goal_create",
            StateTool::GoalSwitch => "goal_switch",
            StateTool::GoalComplete => "goal_complete",
            StateTool::GoalList => "goal_list",
            StateTool::Checkpoint => "checkpoint",
        }
    }

    /// The file of its state, below the central root.
    pub fn file(self) -> &'static str {
        match self {
            StateTool::TodoRead | StateTool::TodoWrite => "state/todo.json",
            StateTool::Memory => "state/memory.json",
            StateTool::GoalCreate
            | StateTool::GoalSwitch
            | StateTool::GoalComplete
            | StateTool::GoalList
            | StateTool::Checkpoint => "state/goals.json",
        }
    }

    /// Whether it only reads.
    pub fn only_reads(self) -> bool {
        matches!(self, StateTool::TodoRead | StateTool::GoalList)
    }
}

impl State {
    /// The file of its state.
    pub fn path(&self) -> ZonePath {
        ZonePath::known(Zone::Central, self.tool.file())
    }

    pub(crate) fn check(&self) -> Result<(), TooLarge> {
        match &self.change {
            Some(_) if self.tool.only_reads() => Err(TooLarge {
                field: "change",
                rule: format!("`{}` only reads", self.tool.name()),
            }),
            Some(change) => at_most("content", change.content.len(), limit::STATE, "bytes"),
            None => Ok(()),
        }
    }
}
