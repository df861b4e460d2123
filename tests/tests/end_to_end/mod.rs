//! From the command line to the disk and back, as a user would see it, in every place of this machine.

mod bash;
mod command_line;
mod files;
mod undo;
mod whole_git;
mod background;
mod protected;
mod secrets;
mod limits;
mod projects;
mod machines;
mod git;
mod repositories;
mod interactive;
