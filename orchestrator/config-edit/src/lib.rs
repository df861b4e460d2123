#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod document;
mod json;
mod toml;
mod yaml;
mod text;
pub mod edit;
pub mod recipes;
pub mod agent_hook;
pub mod files;
pub mod record;
pub mod project;
pub mod agent_settings;
mod gain;
pub mod allow;
pub mod credential;

pub use document::{DocumentError, Format};
pub use edit::KeyEdit;
pub use recipes::{CLIENTS, FileRecipe, InstallWay, Programs, Recipe, RecipeClient, UserDirectory};
pub(crate) use toml::{Choices, add_to_list, set_key};
pub use toml::{choose, extend};
