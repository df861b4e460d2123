//! The input of each tool as a struct. The schema that a model reads, the validation and the wording of both come from it. Doc
//! comments of a struct and its fields are sent to the model.

mod agent;
mod commands;
mod files;
mod notes;
mod web;

pub use agent::{Batch, FinishTask, INVOCATIONS_MAX, RunTests, Thinking, ViewImage};
pub use commands::{BackgroundKill, BackgroundList, BackgroundLog, Bash};
pub use files::{FileEdit, FileList, FileRead, FileWrite, Glob, Grep};
pub use notes::{
    Checkpoint, GoalComplete, GoalCreate, GoalList, GoalSwitch, Memory, TodoRead, TodoWrite,
};
pub use web::{WebFetch, WebSearch};
