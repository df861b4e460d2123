//! Questions to a worker about the project's repository: when a session opens, and when calls have changed what git tracks.

use crate::machine;
use crate::user::User;
use broker_protocol::Tier;
use executor_project::Answerer;
use executor_project::ProjectRepository;
use executor_project::WorkerImage;
use executor_project::git_settings::{self, NamedPath};
use executor_project::protected::ProtectError;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::sandbox::Rooted;
use executor_spec::worker::{IndexFault, NameSpec, RepositoryAnswer};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What the user's git settings name in a directory that is writable besides the session's zones.
pub fn git_settings_in(
    root: &Path,
    objects: &ProtectedObjects,
    (spec, user): (&Rooted, &User),
) -> Result<BTreeSet<NamedPath>, ProtectError> {
    let answerer =
        answerer(spec, user).map_err(|source| ProtectError::SettingsUnread { source })?;
    git_settings::named(&user.git(), root, objects, &|texts| {
        answerer.settings(texts)
    })
}

/// The indexes of these repositories, all below `root`, and what the last commit has of each protected name in one. An index of which no
/// worker speaks is unreadable.
pub fn indexes_below(
    root: &Path,
    directories: &[PathBuf],
    (spec, user): (&Rooted, &User),
) -> Vec<RepositoryAnswer> {
    let of = |own: &PathBuf| ProjectRepository {
        project: root.into(),
        common: root.into(),
        own: own.clone(),
    };
    let start = |own: &PathBuf| answerer_of(root, Some(&of(own)), (spec, user)).ok();
    let of_last_commit = |answerer: &Answerer, own: &PathBuf| {
        let answer = answerer.repository(&of(own), &[])?;
        let names = answer.index.iter().flatten();
        let files = names.map(|name| root.join(OsStr::from_bytes(&name.path)));
        let files: Vec<PathBuf> = files.collect();
        // Most indexes have no protected name. One with a name outside is not used, and that name says why.
        if files.is_empty() || matches!(answer.fault, Some(IndexFault::Outside(_))) {
            return Some(answer);
        }
        // Branches and objects lie in the repository's common directory, which a worker gets when it starts.
        let repository = ProjectRepository {
            common: common_of(own).to_owned(),
            ..of(own)
        };
        let answerer = answerer_of(root, Some(&repository), (spec, user)).ok()?;
        let files = answerer.repository(&repository, &files)?.files;
        Some(RepositoryAnswer { files, ..answer })
    };
    let mut all = directories.first().and_then(start);
    let mut ask = |own| {
        let answer = all.as_ref().and_then(|all| of_last_commit(all, own));
        // Another one may have cost this worker its life, or it is late once on a busy machine.
        answer.or_else(|| {
            all = start(own);
            of_last_commit(all.as_ref()?, own)
        })
    };
    let unreadable = || RepositoryAnswer {
        fault: Some(IndexFault::Unreadable),
        ..RepositoryAnswer::default()
    };
    directories
        .iter()
        .map(|own| ask(own).unwrap_or_else(unreadable))
        .collect()
}

/// The directory with the branches and objects of a repository: `worktrees/NAME` has those of the directory above.
fn common_of(own: &Path) -> &Path {
    let worktrees = own
        .parent()
        .filter(|above| above.file_name() == Some(OsStr::new("worktrees")));
    worktrees.and_then(Path::parent).unwrap_or(own)
}

/// Starts a worker for questions about the session's project.
pub fn answerer(spec: &Rooted, user: &User) -> io::Result<Answerer> {
    answerer_of(
        &spec.project,
        ProjectRepository::of(spec).as_ref(),
        (spec, user),
    )
}

fn answerer_of(
    project: &Path,
    repository: Option<&ProjectRepository>,
    (spec, user): (&Rooted, &User),
) -> io::Result<Answerer> {
    let layers = machine::layers(Tier::Flat, spec.landlock_abi, &user.ablation);
    let image = WorkerImage {
        file: user.worker.file()?,
        layers,
        landlock_abi: spec.landlock_abi,
    };
    Answerer::start(project, repository, NameSpec::of(&spec.policy), image)
}
