//! The input of each tool as a struct: from it come the schema that a model reads, the check of what it sends, and the words
//! in both. Doc comments of a struct and its fields are what the model is told.

mod agent;
mod commands;
mod files;
mod notes;
mod web;

pub use agent::{Batch, FinishTask, INVOCATIONS_MAX, RunTests, Thinking, ViewImage};
pub use commands::{BackgroundKill, BackgroundList, BackgroundLog, Bash};
pub use files::{FileEdit, FileList, FileRead, FileWrite, Glob, Grep};
pub use notes::{Checkpoint, GoalComplete, GoalCreate, GoalList, GoalSwitch, Memory, TodoRead, TodoWrite};
pub use web::{WebFetch, WebSearch};
