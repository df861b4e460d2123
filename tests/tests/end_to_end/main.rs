//! From the command line to the disk and back, as a user would see it, in every place of this machine.
#![allow(clippy::unwrap_used)]

mod bash;
mod command_line;
mod files;
mod undo;
mod background;
mod protected;
mod secrets;
mod limits;
mod projects;
mod git;
mod interactive;

use std::time::Duration;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);
