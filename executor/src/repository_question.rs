//! Questions to a worker about the project's repository: when a session opens, and when calls have changed what git tracks.

use crate::machine;
use crate::user::User;
use broker_protocol::Tier;
use executor_project::AnsweringWorker;
use executor_project::ProjectRepository;
use executor_project::WorkerImage;
use executor_spec::sandbox::Rooted;
use executor_spec::worker::NameSpec;
use std::io;
use std::path::Path;

/// Starts a worker for questions about the session's project.
pub(crate) fn answerer(spec: &Rooted, user: &User) -> io::Result<AnsweringWorker> {
    let repository = ProjectRepository::of(spec);
    start(&spec.project, repository.as_ref(), (spec, user))
}

/// Starts one for questions about a repository.
pub(crate) fn answerer_of(
    of: &ProjectRepository,
    session: (&Rooted, &User),
) -> io::Result<AnsweringWorker> {
    start(&of.project, Some(of), session)
}

fn start(
    project: &Path,
    repository: Option<&ProjectRepository>,
    (spec, user): (&Rooted, &User),
) -> io::Result<AnsweringWorker> {
    let layers = machine::layers(Tier::Flat, spec.landlock_abi, &user.ablation);
    let image = WorkerImage {
        file: user.worker.file()?,
        layers,
        landlock_abi: spec.landlock_abi,
    };
    AnsweringWorker::start(project, repository, NameSpec::of(&spec.policy), image)
}
