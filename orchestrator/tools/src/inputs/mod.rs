//! The input of each tool as a struct. The schema that a model reads, the validation and the wording of both come from it. Doc
//! comments of a struct and its fields are sent to the model.

mod agent;
mod commands;
mod files;
mod notes;
mod web;

pub use agent::{Batch, Thinking};
pub(crate) use agent::{FinishTask, INVOCATIONS_MAX, RunTests, ViewImage};
pub use commands::Bash;
pub(crate) use commands::{BackgroundKill, BackgroundList, BackgroundLog};
pub(crate) use files::Glob;
pub use files::{FileEdit, FileList, FileRead, FileWrite, Grep};
pub(crate) use notes::{
    Checkpoint, GoalComplete, GoalCreate, GoalList, GoalSwitch, Memory, TodoRead, TodoWrite,
};
pub(crate) use web::{WebFetch, WebSearch};
