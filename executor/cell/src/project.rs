//! In the broker: what the commands of a project have made, kept from one session to the next, and what they have left in its
//! repositories, looked at when a call has ended.

mod committed_secrets;
mod created_record;
mod left_files;
mod tracked_secrets;
mod watch;

pub use committed_secrets::{OpenedFiles, open_created_files};
pub use created_record::CreatedRecord;
pub use tracked_secrets::ProjectRepository;
pub use watch::RepositoryWatch;
