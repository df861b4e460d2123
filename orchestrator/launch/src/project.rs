//! Chooses the project that a session works on, and where in it commands start.
//!
//! A user in a directory of a repository means the repository: a member of a workspace builds with files above it, and git looks
//! for `.git` there. So the root is that of the nearest enclosing repository, if it is the user's own, but never a home or a
//! directory above one.

use crate::caller::CallerDirectory;
use crate::state_directory::{home, variable};
use broker_protocol::{Failed, Zone, ZonePath, limit};
use nix::unistd::Uid;
use policies::leases::system_at;
use policies::{directories, source};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Length of the longest path, as `PATH_MAX` in `linux/limits.h`, plus the text around it.
const PATH_MAX: usize = 4096 + 16;

/// The project of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its root, absolute and without links, so that a project has the same central root by whatever path it is reached.
    pub root: PathBuf,
    /// The working directory of commands that name none; `None` for the root itself.
    pub directory: Option<ZonePath>,
    pub chosen: ProjectChoice,
}

/// How a project was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProjectChoice {
    /// It is the directory that `--project` names.
    Named,
    /// It is the repository around the working directory.
    Repository,
    /// It is the working directory itself.
    WorkingDirectory,
}

impl Project {
    /// The project selected by these options; `directory` replaces the current directory.
    ///
    /// # Errors
    /// If one of them does not exist, or the directory is not in the project.
    pub fn choose(project: Option<&Path>, directory: Option<&Path>) -> Result<Self, Failed> {
        let here = directory.unwrap_or(Path::new("."));
        let (root, here, chosen) = match project {
            Some(named) => {
                let here = match directory {
                    Some(directory) => Some(real(directory, "to start commands in")?),
                    // It may no longer exist, and need not be in the project.
                    None => fs::canonicalize(here).ok(),
                };
                (real(named, "as the project")?, here, ProjectChoice::Named)
            }
            None => {
                let here = real(here, "as the project")?;
                let variable: directories::VariableLookup = &variable;
                let mut closed = directories::homes(&home(), variable);
                closed.extend([
                    directories::configuration(&home(), variable),
                    directories::state(&home(), variable),
                ]);
                match repository_around(&here, &closed, Uid::effective().as_raw()) {
                    Some(root) => (root, Some(here), ProjectChoice::Repository),
                    None => (here.clone(), Some(here), ProjectChoice::WorkingDirectory),
                }
            }
        };
        let below = here
            .as_deref()
            .and_then(|here| here.strip_prefix(&root).ok());
        let directory = match (below, directory) {
            (Some(below), _) => in_project(below)?,
            (None, None) => None,
            (None, Some(given)) => {
                let (given, root) = (given.display(), root.display());
                return Err(Failed::invalid(format!(
                    "cannot start commands in {given}: it is not in the project {root}"
                )));
            }
        };
        Ok(Self {
            root,
            directory,
            chosen,
        })
    }

    /// The project of an agent that runs one command in `directory`. It is the project of the agent's own working directory, since
    /// `directory` is a path that commands can redirect. An agent in no project, such as one with a graphical interface, may have
    /// `said` its project in a variable; otherwise only the path is left.
    ///
    /// # Errors
    /// If the directory is not in that project, or the project cannot be determined.
    pub fn of_agent(
        caller: &CallerDirectory,
        said: Option<&Path>,
        directory: &Path,
    ) -> Result<Self, Failed> {
        let stands = match caller {
            CallerDirectory::At(stands) => stands,
            CallerDirectory::Unknown => return Self::choose(said, Some(directory)),
            CallerDirectory::Lost => {
                return Err(unknown_project(
                    "the working directory of the calling program cannot be read",
                ));
            }
        };
        if let Some(broken) = stands.ancestors().find(|path| is_broken_repository(path)) {
            let why = format!(
                "{} is not a complete repository",
                broken.join(".git").display()
            );
            return Err(unknown_project(&why));
        }
        let theirs = Self::choose(None, Some(stands))?;
        if theirs.chosen == ProjectChoice::WorkingDirectory && !may_be_project(&theirs.root) {
            return Self::choose(said, Some(directory));
        }
        let nearest = Self::choose(None, Some(directory))?;
        let within = theirs.chosen == ProjectChoice::WorkingDirectory
            && nearest.chosen == ProjectChoice::Repository
            && nearest.root.starts_with(&theirs.root);
        if nearest.root == theirs.root || within || is_worktree_of(&nearest.root, &theirs.root) {
            return Ok(nearest);
        }
        Self::choose(Some(&theirs.root), Some(directory)).map_err(|failed| Failed {
            message: format!(
                "{}, the working directory of the calling program; LAZARET_PROJECT names another",
                failed.message
            ),
            ..failed
        })
    }

    /// This project, as if `--project` had named it.
    pub(crate) fn into_named(self) -> Self {
        Self {
            chosen: ProjectChoice::Named,
            ..self
        }
    }

    /// Whether `said`, which an agent's variable names, is the project of the working directory or in it. Where the working directory
    /// can be no project, there is nothing else to go by.
    pub fn is_believed(said: &Path) -> bool {
        let Ok(here) = Self::choose(None, None) else {
            return true;
        };
        let known = here.chosen == ProjectChoice::Repository || may_be_project(&here.root);
        let said = fs::canonicalize(said).unwrap_or_else(|_| said.to_owned());
        !known || said.starts_with(&here.root) || is_worktree_of(&said, &here.root)
    }

    /// The fault that keeps this directory from being a project, as far as its path shows.
    fn fault(&self) -> Option<String> {
        match system_at(&self.root) {
            Some(system) => Some(format!("it would open {system} to commands")),
            None if holds_home(&self.root) => {
                Some("it contains your whole home directory".to_owned())
            }
            None => None,
        }
    }

    /// Whether the path allows a session on it at all; the executor makes the decision.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        let Some(why) = self.fault() else {
            return Ok(());
        };
        let root = self.root.display();
        Err(Failed::invalid(format!(
            "{root} cannot be the project: {why}; name another with --project"
        )))
    }

    /// Checks a project of which only a working directory was named: who names one does not think of a project.
    pub(crate) fn check_chosen_by_directory(&self) -> Result<(), Failed> {
        let Some(why) = self
            .fault()
            .filter(|_| self.chosen == ProjectChoice::WorkingDirectory)
        else {
            return Ok(());
        };
        let root = self.root.display();
        Err(Failed::invalid(format!(
            "cannot start commands in {root}: it is in no repository of yours, so it would be the project itself, and {why}; name \
             the project with --project, and a directory in it with --cwd"
        )))
    }

    /// Describes to people what was chosen and why.
    pub fn describe(&self) -> String {
        let how = match self.chosen {
            ProjectChoice::Named => "named by --project",
            ProjectChoice::Repository => "the repository around the working directory",
            ProjectChoice::WorkingDirectory => "the working directory, in no repository of yours",
        };
        let directory = self
            .directory
            .as_ref()
            .map_or(".".to_owned(), ZonePath::to_string);
        format!(
            "the project is {} ({how}); commands start in {directory}",
            self.root.display()
        )
    }
}

fn unknown_project(why: &str) -> Failed {
    Failed::invalid(format!(
        "cannot tell which project this is: {why}; name it with LAZARET_PROJECT"
    ))
}

/// Other paths of the project at `root`, through links: as it was `named`, as the shell names the working directory, and as the home
/// is named. The executor believes none that leads elsewhere.
pub(crate) fn other_names(root: &Path, named: Option<&Path>) -> Vec<String> {
    let here = variable("PWD").map(PathBuf::from);
    let named = named.map(|named| here.as_deref().unwrap_or(root).join(named));
    let around = here.iter().flat_map(|here| here.ancestors());
    let home = home();
    let at_home = fs::canonicalize(&home).ok();
    let at_home = at_home.and_then(|real| Some(home.join(root.strip_prefix(real).ok()?)));
    let all = named
        .as_deref()
        .into_iter()
        .chain(around)
        .chain(at_home.as_deref());
    let is_other = |path: &&Path| {
        let is_plain = !path.components().any(|part| part == Component::ParentDir);
        path.is_absolute() && is_plain && *path != root
    };
    let leads = |path: &&Path| fs::canonicalize(path).is_ok_and(|real| real == root);
    let mut names: Vec<String> = Vec::new();
    for path in all.filter(is_other).filter(leads) {
        let name = path.components().collect::<PathBuf>().into_os_string();
        if let Ok(name) = name.into_string()
            && !names.contains(&name)
            && names.len() < limit::PROJECT_NAMES
        {
            names.push(name);
        }
    }
    names
}

/// Whether this can be a project: a directory of the user's own that neither is nor contains a home.
fn may_be_project(directory: &Path) -> bool {
    let own =
        fs::metadata(directory).is_ok_and(|metadata| metadata.uid() == Uid::effective().as_raw());
    own && directory.parent().is_some() && !holds_home(directory)
}

fn holds_home(directory: &Path) -> bool {
    let variable: directories::VariableLookup = &variable;
    let homes = directories::homes(&home(), variable);
    homes.iter().any(|home| {
        fs::canonicalize(home)
            .as_ref()
            .unwrap_or(home)
            .starts_with(directory)
    })
}

/// A directory `.git` that git ignores, and that a command may have broken.
fn is_broken_repository(directory: &Path) -> bool {
    let git = directory.join(".git");
    git.is_dir() && fs::symlink_metadata(git.join("HEAD")).is_err()
}

/// Whether git created the worktree at `root` for the repository at `main`: each names the other.
pub(crate) fn is_worktree_of(root: &Path, main: &Path) -> bool {
    let named = |file: &Path| source::read_named(file, PATH_MAX).ok();
    let leads = || {
        let text = named(&root.join(".git"))?;
        let entry = fs::canonicalize(root.join(text.strip_prefix("gitdir:")?.trim())).ok()?;
        let known = entry.parent()? == fs::canonicalize(main.join(".git/worktrees")).ok()?;
        let back = fs::canonicalize(named(&entry.join("gitdir"))?.trim()).ok()?;
        Some(known && back == root.join(".git"))
    };
    leads().unwrap_or(false)
}

/// Resolves `path`; `what` names its use in the error.
///
/// # Errors
/// If it does not exist.
pub fn real(path: &Path, what: &str) -> Result<PathBuf, Failed> {
    fs::canonicalize(path).map_err(|error| {
        Failed::invalid(format!(
            "cannot use {} {what}: {error}; name another with --project",
            path.display()
        ))
    })
}

/// A directory of the project; `None` for its root.
fn in_project(below: &Path) -> Result<Option<ZonePath>, Failed> {
    let text = below.to_str().ok_or_else(|| {
        Failed::invalid(format!(
            "commands cannot start in {below:?}: it is not UTF-8; choose another with --cwd"
        ))
    })?;
    let path =
        ZonePath::new(Zone::Project, text).map_err(|error| Failed::invalid(error.to_string()))?;
    Ok(Some(path).filter(|path| !path.relative().is_empty()))
}

/// The root of the nearest repository around `directory`, as git finds it: on this file system, and the user's own. `None` if it is
/// or contains a path of `closed`: a home that is a repository for its settings is not the project of everything in it.
fn repository_around(directory: &Path, closed: &[PathBuf], user: u32) -> Option<PathBuf> {
    let device = fs::metadata(directory).ok()?.dev();
    for root in directory.ancestors() {
        if fs::metadata(root).ok()?.dev() != device || root.parent().is_none() {
            return None;
        }
        if !is_repository(root) {
            continue;
        }
        let holds = |closed: &PathBuf| {
            fs::canonicalize(closed)
                .as_ref()
                .unwrap_or(closed)
                .starts_with(root)
        };
        let own = [root.to_owned(), root.join(".git")];
        let own = own
            .iter()
            .all(|path| fs::metadata(path).is_ok_and(|metadata| metadata.uid() == user));
        // Another user's repository also ends the search, as it does for git.
        return (own && !closed.iter().any(holds)).then(|| root.to_owned());
    }
    None
}

/// Whether git would stop here: it ignores a directory `.git` that is no repository.
fn is_repository(directory: &Path) -> bool {
    let git = directory.join(".git");
    fs::metadata(&git).is_ok_and(|metadata| match metadata.is_dir() {
        true => fs::symlink_metadata(git.join("HEAD")).is_ok(),
        false => metadata.is_file(),
    })
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "trees of the test's own")]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new(repositories: &[&str], directories: &[&str]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for repository in repositories {
                fs::create_dir_all(tree.at(repository).join(".git")).unwrap();
                fs::write(
                    tree.at(repository).join(".git/HEAD"),
                    "ref: refs/heads/main\n",
                )
                .unwrap();
            }
            directories
                .iter()
                .for_each(|directory| fs::create_dir_all(tree.at(directory)).unwrap());
            tree
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn repository_of(&self, path: &str, closed: &[&str]) -> Option<PathBuf> {
            let closed: Vec<_> = closed.iter().map(|path| self.at(path)).collect();
            repository_around(&self.at(path), &closed, Uid::effective().as_raw())
        }
    }

    #[test]
    fn the_nearest_repository_counts() {
        let tree = Tree::new(
            &["r", "r/inner"],
            &["r/a/b", "r/inner/c", "r/empty/.git", "r/linked/x"],
        );
        for (directory, root) in [
            ("r", "r"),
            ("r/a/b", "r"),
            ("r/inner/c", "r/inner"),
            ("r/empty", "r"),
            ("r/.git", "r"),
        ] {
            assert_eq!(
                tree.repository_of(directory, &[]),
                Some(tree.at(root)),
                "{directory}"
            );
        }
        fs::write(
            tree.at("r/linked/.git"),
            "gitdir: ../.git/worktrees/linked\n",
        )
        .unwrap();
        assert_eq!(
            tree.repository_of("r/linked/x", &[]),
            Some(tree.at("r/linked"))
        );
    }

    #[test]
    fn no_home_and_nothing_of_another_user_is_chosen() {
        let tree = Tree::new(&["home", "home/r"], &["home/r/a", "home/other/a"]);
        assert_eq!(tree.repository_of("home/other/a", &["home"]), None);
        assert_eq!(
            tree.repository_of("home/other/a", &["elsewhere"]),
            Some(tree.at("home")),
            "control"
        );
        assert_eq!(
            tree.repository_of("home/other/a", &["home/.config/lazaret"]),
            None,
            "it holds the policy"
        );
        assert_eq!(
            tree.repository_of("home/r/a", &["home"]),
            Some(tree.at("home/r"))
        );
        let stranger = Uid::effective().as_raw() + 1;
        assert_eq!(repository_around(&tree.at("home/r/a"), &[], stranger), None);
    }

    #[test]
    fn options_say_otherwise() {
        let tree = Tree::new(&["r"], &["r/a/b", "other"]);
        let choose = |project: Option<&str>, directory: Option<&str>| {
            let [project, directory] =
                [project, directory].map(|path| path.map(|path| tree.at(path)));
            Project::choose(project.as_deref(), directory.as_deref())
        };
        let chosen = |project: Option<&str>, directory: Option<&str>| {
            let Project {
                root,
                directory,
                chosen,
            } = choose(project, directory).unwrap();
            (
                root,
                directory.map(|directory| directory.to_string()),
                chosen,
            )
        };
        assert_eq!(
            chosen(None, Some("r/a")),
            (tree.at("r"), Some("a".into()), ProjectChoice::Repository)
        );
        assert_eq!(
            chosen(None, Some("r")),
            (tree.at("r"), None, ProjectChoice::Repository)
        );
        assert_eq!(
            chosen(None, Some("other")),
            (tree.at("other"), None, ProjectChoice::WorkingDirectory)
        );
        assert_eq!(
            chosen(Some("r/a"), Some("r/a/b")),
            (tree.at("r/a"), Some("b".into()), ProjectChoice::Named)
        );
        assert_eq!(
            chosen(Some("r/a"), None),
            (tree.at("r/a"), None, ProjectChoice::Named),
            "it is not here"
        );
        assert!(
            choose(Some("r/a"), Some("other"))
                .unwrap_err()
                .message
                .contains("not in the project")
        );
        assert!(choose(None, Some("none")).is_err() && choose(Some("none"), None).is_err());
    }

    #[test]
    fn a_directory_that_would_be_the_project_is_no_complaint_about_a_project() {
        let check = |directory: &Path| {
            Project::choose(None, Some(directory))
                .unwrap()
                .check_chosen_by_directory()
        };
        let said = check(Path::new("/etc")).unwrap_err().message;
        assert!(
            said.starts_with("cannot start commands in /etc: it is in no repository"),
            "{said}"
        );
        let tree = Tree::new(&["r"], &["r/a", "other"]);
        assert_eq!(
            [check(&tree.at("r/a")), check(&tree.at("other"))],
            [Ok(()), Ok(())]
        );
    }

    #[test]
    fn an_agents_project_is_the_one_that_it_stands_in() {
        let tree = Tree::new(
            &["r", "r/inner", "plain/r", "broken"],
            &["r/a/b", "plain/sub", "other", "w", "x", "broken/a"],
        );
        for (worktree, back) in [("w", "w/.git"), ("x", "w/.git")] {
            let entry = tree.at("r/.git/worktrees").join(worktree);
            fs::create_dir_all(&entry).unwrap();
            fs::write(
                tree.at(worktree).join(".git"),
                format!("gitdir: {}\n", entry.display()),
            )
            .unwrap();
            fs::write(
                entry.join("gitdir"),
                format!("{}\n", tree.at(back).display()),
            )
            .unwrap();
        }
        fs::remove_file(tree.at("broken/.git/HEAD")).unwrap();
        let root = |stands: &str, directory: &str| {
            let chosen = Project::of_agent(
                &CallerDirectory::At(tree.at(stands)),
                None,
                &tree.at(directory),
            );
            chosen.map(|project| {
                project
                    .root
                    .strip_prefix(tree.at(""))
                    .unwrap()
                    .display()
                    .to_string()
            })
        };
        for (stands, directory, expected) in [
            ("r", "r", "r"),
            ("r/a", "r/a/b", "r"),
            ("r/a/b", "r", "r"),
            ("r", "r/inner", "r"),
            ("r/inner", "r/inner", "r/inner"),
            ("r", "w", "w"),
            ("plain", "plain/sub", "plain"),
            ("plain", "plain/r", "plain/r"),
        ] {
            assert_eq!(
                root(stands, directory).as_deref(),
                Ok(expected),
                "{stands}: {directory}"
            );
        }
        for (stands, directory) in [
            ("r", "other"),
            ("r/a", "plain/r"),
            ("r", "x"),
            ("r/inner", "r"),
            ("plain", "other"),
        ] {
            assert!(
                Project::choose(None, Some(&tree.at(directory))).is_ok(),
                "control: {directory}"
            );
            let failed = root(stands, directory).unwrap_err();
            assert!(
                failed.message.contains("LAZARET_PROJECT"),
                "{stands}: {directory}: {failed}"
            );
        }
        assert!(
            root("broken/a", "broken/a")
                .unwrap_err()
                .message
                .contains("not a complete repository")
        );
        let said = |caller, said: Option<&str>| {
            let said = said.map(|path| tree.at(path));
            Project::of_agent(&caller, said.as_deref(), &tree.at("r/a")).map(|project| project.root)
        };
        assert_eq!(said(CallerDirectory::Unknown, None), Ok(tree.at("r")));
        assert_eq!(
            said(CallerDirectory::At("/".into()), Some("r/a")),
            Ok(tree.at("r/a")),
            "it stands nowhere"
        );
        assert_eq!(
            said(CallerDirectory::At(tree.at("r")), Some("other")),
            Ok(tree.at("r")),
            "it stands somewhere"
        );
        assert!(said(CallerDirectory::Lost, Some("r")).is_err());
    }
}
