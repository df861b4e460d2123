//! In the broker: the record of what a project's commands have created, kept between sessions, and
//! the checks, after each call, of what they have left in its repositories.

mod committed_secrets;
mod created_record;
mod hidden_changes;
mod kept_repositories;
mod left_files;
mod locks;
mod other_repositories;
mod quarantine;
mod repository_changes;
mod root_modes;
mod tracked_secrets;
mod unreported;
mod watch;

pub use committed_secrets::{OpenedFiles, open_created_files};
pub use created_record::CreatedRecord;
pub use other_repositories::OtherRepositories;
pub use quarantine::{Misplaced, describe_refusals};
pub use root_modes::RootModes;
pub use tracked_secrets::ProjectRepository;
pub use unreported::{leave_unreported, take_unreported};
pub use watch::RepositoryWatch;
