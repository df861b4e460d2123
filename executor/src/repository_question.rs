//! What is asked about the project's repository: when a session opens, and when calls have changed what git tracks.

use crate::machine;
use crate::user::User;
use broker_protocol::Tier;
use executor_cell::{WorkerImage, repository};
use executor_layers::spec::SandboxSpec;
use executor_layers::worker::{NameSpec, RepositoryAnswer};
use executor_supervisor::ProjectRepository;
use std::io;
use std::path::PathBuf;

/// The program that answers questions, and what closes it.
pub fn worker_image<'u>(spec: &SandboxSpec, user: &'u User) -> io::Result<WorkerImage<'u>> {
    let layers = machine::layers(Tier::Flat, spec.landlock_abi, &user.ablation);
    Ok(WorkerImage { file: user.worker.file()?, layers, landlock_abi: spec.landlock_abi })
}

/// What a repository has of files with names of secrets, and which protected names its index has. `None` if nobody can say.
pub fn ask_repository(
    spec: &SandboxSpec,
    user: &User,
    of: &ProjectRepository,
    files: &[PathBuf],
) -> Option<RepositoryAnswer> {
    repository(of, files, NameSpec::of(&spec.policy), worker_image(spec, user).ok()?)
}
