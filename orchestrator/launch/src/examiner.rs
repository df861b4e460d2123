//! Whether a project's settings for agents undo Lazaret, for programs that do not read these settings themselves: because they can no
//! longer open files, or because they have no parsers for them. Another process does.

use crate::agent_files::{AgentFileKind, DIRECTORIES_MAX, FILES};
use crate::caller::CallerDirectory;
use crate::origin::{account_home, is_repository};
use crate::start::{self, FileReader};
use crate::state_directory::variable;
use broker_protocol::Failed;
use orchestrator_confine::Files;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Checks the settings around `project`, the working directory and the caller's, as the program beside ours judges them. Where there is
/// no file of any agent, which is looked at here, it is not started.
///
/// # Errors
/// If something undoes Lazaret, or that cannot be told.
pub fn check(files: &Files, project: &Path) -> Result<(), Failed> {
    let places = with_caller(&[project]);
    if !has_files(&directories(places.iter().map(PathBuf::as_path))?) {
        return Ok(());
    }
    let project = project.to_str().ok_or_else(|| {
        Failed::invalid(format!(
            "{} is not UTF-8; use a root whose path is",
            project.display()
        ))
    })?;
    Examiner::beside(files)?.check(project)
}

/// Whether a file that an agent may read is in one of these directories, or that cannot be told.
fn has_files(directories: &[PathBuf]) -> bool {
    // Variables count only for clients that are known.
    let read = FILES
        .iter()
        .filter(|place| !matches!(place.kind, AgentFileKind::Variables));
    let names: BTreeSet<&str> = read
        .map(|place| place.path.split('/').next().unwrap_or_default())
        .collect();
    let is_there = |path: PathBuf| match fs::symlink_metadata(path) {
        Ok(_) => true,
        // An agent of the same user does not get there either.
        Err(error) => !matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied
        ),
    };
    directories
        .iter()
        .any(|directory| names.iter().any(|name| is_there(directory.join(name))))
}

/// These places, the working directory and that of the caller.
pub fn with_caller(places: &[&Path]) -> Vec<PathBuf> {
    let caller = match CallerDirectory::find() {
        CallerDirectory::At(directory) => Some(directory),
        // Our own working directory is all that is known.
        CallerDirectory::Unknown | CallerDirectory::Lost => None,
    };
    let places = places.iter().map(|place| place.to_path_buf());
    places.chain([PathBuf::from(".")]).chain(caller).collect()
}

/// The places and all directories above them, up to a home.
///
/// # Errors
/// If there are too many.
pub fn directories<'p>(places: impl Iterator<Item = &'p Path>) -> Result<Vec<PathBuf>, Failed> {
    let mut homes: Vec<PathBuf> = account_home().into_iter().collect();
    // A project may have set `HOME`; where a repository is, it is no home.
    homes.extend(
        variable("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute() && !is_repository(home)),
    );
    let homes: Vec<PathBuf> = homes
        .into_iter()
        .map(|home| fs::canonicalize(&home).unwrap_or(home))
        .collect();
    let mut all: Vec<PathBuf> = Vec::new();
    for place in places.filter_map(|place| fs::canonicalize(place).ok()) {
        // What lies in a home is its user's; no session opens there.
        for directory in place
            .ancestors()
            .take_while(|directory| !homes.iter().any(|home| home == directory))
        {
            if !all.iter().any(|known| known == directory) {
                all.push(directory.to_owned());
            }
        }
    }
    match all.len() > DIRECTORIES_MAX {
        true => Err(Failed::invalid(format!(
            "the project lies below more than {DIRECTORIES_MAX} directories: its settings for agents are not examined"
        ))),
        false => Ok(all),
    }
}

/// Examines projects for a program that can no longer open files itself: in a process of its own, started before.
#[derive(Debug)]
pub struct Examiner(FileReader);

impl Examiner {
    /// Starts it, for the settings of `client` alone, if it is known.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(files: &Files, client: Option<&str>) -> Result<Self, Failed> {
        let started = start::start_examiner(files, None, client);
        started.map(Self).map_err(not_started)
    }

    /// Starts that of the program beside ours, which has the parsers of settings.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn beside(files: &Files) -> Result<Self, Failed> {
        let program = start::main_program().map_err(not_started)?;
        let started = start::start_examiner(files, Some(program.clone()), None);
        started.map(Self).map_err(|error| {
            Failed::internal(format!(
                "cannot start {}, which examines the project's settings for agents: {error}",
                program.display()
            ))
        })
    }

    /// Whether nothing undoes Lazaret in the project at `root` and the working directory.
    ///
    /// # Errors
    /// If something does, or there is no answer.
    pub fn check(&mut self, root: &str) -> Result<(), Failed> {
        let question = serde_json::Value::from(root).to_string();
        let answer = self.0.ask(&question).map_err(|error| {
            Failed::internal(format!(
                "no answer from what examines the project's settings for agents: {error}"
            ))
        })?;
        match serde_json::from_str::<Option<String>>(&answer) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(Failed::invalid(why)),
            Err(error) => Err(Failed::internal(format!(
                "what examines the project has failed: {error}"
            ))),
        }
    }
}

fn not_started(error: io::Error) -> Failed {
    Failed::internal(format!("cannot start what examines projects: {error}"))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "trees of the test's own")]
mod tests {
    use super::*;

    #[test]
    fn each_agents_file_is_seen_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let here = [folder.path().to_owned()];
        for name in ["README.md", ".env", "src"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(!has_files(&here));
        let read = FILES
            .iter()
            .filter(|place| !matches!(place.kind, AgentFileKind::Variables));
        for place in read {
            let path = folder.path().join(place.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink("nowhere", &path).unwrap();
            assert!(has_files(&here), "{}", place.path);
            fs::remove_file(&path).unwrap();
            let top = place.path.split('/').next().unwrap();
            if top != place.path {
                fs::remove_dir_all(folder.path().join(top)).unwrap();
            }
        }
        assert!(!has_files(&here));
    }
}
