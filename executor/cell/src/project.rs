//! In the broker: the record of what a project's commands have created, kept between sessions, and
//! the checks, after each call, of what they have left in its repositories.

mod committed_secrets;
mod created_record;
mod kept_repositories;
mod left_files;
mod locks;
mod quarantine;
mod repository_changes;
mod root_modes;
mod tracked_secrets;
mod watch;

pub use committed_secrets::{OpenedFiles, open_created_files};
pub use created_record::CreatedRecord;
pub use quarantine::conclude;
pub use root_modes::RootModes;
pub use tracked_secrets::ProjectRepository;
pub use watch::RepositoryWatch;
