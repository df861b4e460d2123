#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod protected;
pub mod discovery;
pub mod repository_programs;
pub mod linked_repository;
mod links;
pub mod git_settings;
pub mod git_identity;
pub mod git_ignore;
pub mod home_links;
pub mod grant_exceptions;
pub mod masks;
pub mod central_owner;
pub mod caches;
pub mod network;
pub mod image;
pub mod throw_away;
mod questions;
mod asking;
mod committed_secrets;
mod created_record;
mod finding;
mod hidden_changes;
mod kept_repositories;
mod left_files;
mod locks;
mod other_repositories;
mod quarantine;
mod record_file;
mod replacements;
mod repository_changes;
mod root_modes;
mod tracked_secrets;
mod tree;
mod unreported;
mod watch;

pub use asking::StartWorker;
pub use committed_secrets::{OpenedFiles, open_created_files};
pub use created_record::CreatedRecord;
pub use other_repositories::OtherRepositories;
pub use quarantine::Misplaced;
pub use questions::{Answerer, WorkerImage};
pub use root_modes::RootModes;
pub use tracked_secrets::ProjectRepository;
pub use unreported::{leave_unreported, take_unreported};
pub use watch::{Look, RepositoryWatch};
