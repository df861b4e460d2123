//! Which files of secrets the commands of a session can read, decided when it opens.

use crate::repository_question::answerer_of;
use crate::user::User;
use broker_protocol::ZonePath;
use executor_project::ProjectRepository;
use executor_project::masks::{self, Candidate, NotMasked};
use executor_project::protected::Discovery;
use executor_spec::readable_secret::{ReadableSecret, SecretView};
use executor_spec::sandbox::Rooted;
use executor_spec::worker::{InHead, RepositoryAnswer};
use policies::SecretMode;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum number of repositories inside the project that are asked what they track. A file in another one stays hidden.
const REPOSITORIES_MAX: usize = 4;
/// Maximum number of files that a notice names.
const NAMED_MAX: usize = 20;

/// A file that was to be revealed and is not.
#[derive(Debug, Error)]
#[error("--reveal {path}: {why}")]
pub(crate) struct NotRevealed {
    path: String,
    why: String,
}

/// Makes files of secrets readable: masked, or as they are where the policy says so. Returns them, and what people are
/// told about these files.
pub(crate) fn make_readable(
    found: &mut Discovery,
    spec: &Rooted,
    user: &User,
    root: impl Fn(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
) -> Result<(Vec<ReadableSecret>, Vec<String>), NotRevealed> {
    let mut files = masks::candidates(found, &spec.policy.secrets);
    let revealed = &spec.policy.secrets.revealed;
    let seen = spec.policy.paths.directories("bash");
    let is_seen = |path: &Path| {
        let below = |directory: &ZonePath| {
            path.starts_with(spec.zone(directory.zone()).0.join(directory.relative()))
        };
        seen.as_ref().is_none_or(|seen| seen.iter().any(below))
    };
    files.retain(|file| is_seen(&file.path));
    for path in revealed {
        reveal(path, &mut files, &spec.project).map_err(|why| NotRevealed {
            path: path.clone(),
            why,
        })?;
    }
    if files.iter().all(|file| file.mode == SecretMode::Hide) {
        return Ok((Vec::new(), Vec::new()));
    }
    let (readable, hidden) =
        masks::make_readable(found, files, |files| tracked(files, spec, user, &root));
    let unrevealed = revealed.iter().find_map(|path| {
        let real = fs::canonicalize(spec.project.join(path)).ok()?;
        let why = &hidden.iter().find(|(hidden, _)| *hidden == real)?.1;
        Some(NotRevealed {
            path: path.clone(),
            why: why.to_string(),
        })
    });
    match unrevealed {
        Some(unrevealed) => Err(unrevealed),
        None => Ok((readable.clone(), notices(&readable, &hidden))),
    }
}

/// Sets one of `files` to be shown.
fn reveal(path: &str, files: &mut [Candidate], project: &Path) -> Result<(), String> {
    let real = fs::canonicalize(project.join(path)).map_err(|error| error.to_string())?;
    let Some(file) = files.iter_mut().find(|file| file.path == real) else {
        return Err("only a file of secrets in dotenv form, such as `.env`, that is closed to commands can be revealed".to_owned());
    };
    if !file.may_be_revealed {
        return Err("`[secrets]` of a policy file keeps it from being revealed".to_owned());
    }
    file.mode = SecretMode::Show;
    Ok(())
}

/// Those of `files` that a repository tracks, or may track.
fn tracked(
    files: &[PathBuf],
    spec: &Rooted,
    user: &User,
    root: &impl Fn(&ProjectRepository, &[PathBuf]) -> Option<RepositoryAnswer>,
) -> BTreeSet<PathBuf> {
    let mut by_repository: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.starts_with(&spec.project)) {
        let inside = file
            .ancestors()
            .skip(1)
            .take_while(|path| *path != spec.project);
        let is_worktree = |path: &&Path| fs::symlink_metadata(path.join(".git")).is_ok();
        let worktree = inside
            .into_iter()
            .find(is_worktree)
            .unwrap_or(&spec.project);
        by_repository
            .entry(worktree.to_owned())
            .or_default()
            .push(file.clone());
    }
    let mut tracked = BTreeSet::new();
    let mut asked = 0;
    for (worktree, files) in by_repository {
        let answer = if worktree == spec.project {
            let Some(repository) = ProjectRepository::of(spec) else {
                continue;
            };
            root(&repository, &files)
        } else {
            asked += 1;
            Some(())
                .filter(|()| asked <= REPOSITORIES_MAX)
                .and_then(|()| ask(&worktree, &files, spec, user).ok().flatten())
        };
        match answer {
            Some(answer) => tracked.extend(tracked_by(&answer, &worktree, files)),
            None => tracked.extend(files),
        }
    }
    tracked
}

fn tracked_by(
    answer: &RepositoryAnswer,
    worktree: &Path,
    files: Vec<PathBuf>,
) -> impl Iterator<Item = PathBuf> {
    let in_index = |path: &Path| {
        let below = path
            .strip_prefix(worktree)
            .map(|below| below.as_os_str().as_bytes())
            .unwrap_or_default();
        answer
            .index
            .as_ref()
            .is_none_or(|index| index.iter().any(|name| name.path == below))
    };
    let is_tracked = |(file, in_head): (PathBuf, &InHead)| match in_head {
        InHead::Nothing => in_index(&file).then_some(file),
        InHead::Unknown | InHead::Other | InHead::Same => Some(file),
    };
    files
        .into_iter()
        .zip(&answer.files)
        .filter_map(is_tracked)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Asks a worker of its own about a repository inside the project. One whose `.git` is a file, such as a submodule, is not asked.
fn ask(
    worktree: &Path,
    files: &[PathBuf],
    spec: &Rooted,
    user: &User,
) -> io::Result<Option<RepositoryAnswer>> {
    let common = worktree.join(".git");
    if !fs::symlink_metadata(&common)?.is_dir() {
        return Ok(None);
    }
    let repository = ProjectRepository {
        project: worktree.to_owned(),
        own: common.clone(),
        common,
    };
    let answerer = answerer_of(&repository, (spec, user))?;
    let answer = answerer.repository(&repository, files);
    answerer.kill();
    Ok(answer)
}

/// What people are told: which files commands read, and why others stay hidden.
fn notices(readable: &[ReadableSecret], hidden: &[(PathBuf, NotMasked)]) -> Vec<String> {
    let masked = |file: &&ReadableSecret| matches!(file.seen, SecretView::Masked(_));
    let shown = readable
        .iter()
        .filter(|file| !masked(file))
        .map(|file| file.path.as_path());
    let shown = list(shown).map(|list| format!("commands can read these secrets: {list}"));
    let masked = list(
        readable
            .iter()
            .filter(masked)
            .map(|file| file.path.as_path()),
    );
    let masked = masked.map(|list| {
        format!(
            "commands see placeholders for the values in {list}; `--reveal PATH` shows them a file, and so does a lease (`wants`)"
        )
    });
    let hidden = hidden
        .iter()
        .take(NAMED_MAX)
        .map(|(path, why)| format!("{path:?} is hidden and not masked: {why}"));
    shown.into_iter().chain(masked).chain(hidden).collect()
}

fn list<'p>(paths: impl Iterator<Item = &'p Path>) -> Option<String> {
    let all: Vec<String> = paths.map(|path| format!("{path:?}")).collect();
    let more = all.len().saturating_sub(NAMED_MAX);
    let mut text = all
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    (!all.is_empty()).then_some(text)
}
