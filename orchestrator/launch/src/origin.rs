//! Whether a path that a variable names may have come from a project.
//!
//! Agents pass on variables that a repository sets (`env` of Claude Code's settings, `.env` of Gemini CLI). So a variable may name a
//! program or a directory of settings only where no repository and no session can have put it.

use crate::caller::CallerDirectory;
use crate::central_root::folder_name;
use crate::start::NAME;
use crate::state_directory::{self, home, variable};
use nix::unistd::{Uid, User};
use policies::{FileFault, directories, path_steps, source};
use std::fs;
use std::path::{Component, Path, PathBuf};
use thiserror::Error;

/// The variable that names the executor to start.
pub(crate) const EXECUTOR: &str = "LAZARET_EXECUTOR";

/// A place that users other than this one and root may write to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherWriters {
    Accepted,
    Refused,
}

/// Why the value of a variable is not believed.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum Unbelieved {
    /// It depends on the working directory, or on what is made later.
    #[error(
        "{variable} is not an absolute path without `..`, so a project decides what it names; {REMEDY}"
    )]
    Relative { variable: &'static str },
    /// A session may write there, or it came with the project.
    #[error("{variable} names {path}, which lies in {root}: a project may have set it; {REMEDY}", path = .path.display(), root = .root.display())]
    InRoot {
        variable: &'static str,
        path: PathBuf,
        root: PathBuf,
    },
    /// It came with a repository, this project's or another.
    #[error("{variable} names {path}, which lies in the repository {root}: a project may have set it; {REMEDY}", path = .path.display(), root = .root.display())]
    InRepository {
        variable: &'static str,
        path: PathBuf,
        root: PathBuf,
    },
    /// Another program would take what is asked of the executor for something else, such as the name of a script.
    #[error("{EXECUTOR} names {path}, which is not called {NAME}; {REMEDY}", path = .0.display())]
    OtherProgram(PathBuf),
    /// Somebody else can change it.
    #[error("{variable} names {path}, which is not yours alone: {why}; {REMEDY}", path = .path.display())]
    Foreign {
        variable: &'static str,
        path: PathBuf,
        why: FileFault,
    },
}

const REMEDY: &str = "unset it, or name a place outside all projects that only you can write";

/// The directory of a central root in which commands write nothing.
const RECORDS: &str = ".lazaret";

/// Whether a variable names any such place. Most environments have none.
pub(crate) fn is_any_named() -> bool {
    let names = [
        EXECUTOR,
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_DATA_HOME",
    ];
    names.into_iter().any(|name| variable(name).is_some()) || account_home().is_none()
}

/// The places that a project may have chosen.
#[derive(Debug)]
pub(crate) struct Origins {
    roots: Vec<PathBuf>,
    /// The home of the account; not `HOME`, which is a variable like the others.
    home: PathBuf,
    /// Names of central roots, which say of which project they are: `NAME-HASH`, and `NAME-HASH-PROFILE`.
    central: Vec<String>,
}

impl Origins {
    /// Those of a session on `project` with the root `central`, as far as they are known.
    pub(crate) fn of(project: Option<&Path>, central: Option<&Path>) -> Self {
        let caller = match CallerDirectory::find() {
            CallerDirectory::At(directory) => Some(directory),
            CallerDirectory::Unknown | CallerDirectory::Lost => None,
        };
        let named = [project, central, caller.as_deref(), Some(Path::new("."))];
        let roots = named
            .into_iter()
            .flatten()
            .filter_map(|root| fs::canonicalize(root).ok());
        let home = account_home().unwrap_or_else(home);
        let home = fs::canonicalize(&home).unwrap_or(home);
        let data = directories::all_data(&home, &variable);
        let data = data.iter().filter_map(|data| fs::canonicalize(data).ok());
        Self::new(roots.collect(), home, &data.collect::<Vec<_>>())
    }

    /// With the central roots below `data`, to which sessions of all projects have written.
    fn new(found: Vec<PathBuf>, home: PathBuf, data: &[PathBuf]) -> Self {
        let central = data.iter().map(|data| data.join("projects"));
        // What lies beside the working directory may have come with it, as in an archive: below a home all of its top directory counts.
        let top =
            |root: &PathBuf| Some(home.join(root.strip_prefix(&home).ok()?.components().next()?));
        let tops: Vec<_> = found.iter().filter_map(top).collect();
        let holds_home = |root: &PathBuf| home.starts_with(root);
        let roots = found
            .into_iter()
            .chain(tops)
            .filter(|root| !holds_home(root));
        Self {
            roots: roots.chain(central.clone()).collect(),
            home,
            central: central.flat_map(names).collect(),
        }
    }

    /// Whether commands of an earlier session could write there: it was its project, or its central root.
    fn had_session(&self, directory: &Path) -> bool {
        let name = folder_name(directory);
        let is_of_it = |central: &String| {
            central
                .strip_prefix(&name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        fs::symlink_metadata(directory.join(RECORDS)).is_ok() || self.central.iter().any(is_of_it)
    }

    /// Checks all variables of ours that name a place.
    ///
    /// # Errors
    /// A project may have set one of them.
    pub(crate) fn check_environment(&self) -> Result<(), Unbelieved> {
        executor().map_or(Ok(()), |program| {
            self.check(EXECUTOR, &program, OtherWriters::Refused)?;
            match program.file_name() {
                Some(name) if name == NAME => Ok(()),
                Some(_) | None => Err(Unbelieved::OtherProgram(program)),
            }
        })?;
        let usual: directories::VariableLookup = &|_| None;
        let of_account = [
            directories::configuration,
            directories::state,
            directories::data,
        ];
        let of_account = of_account.map(|of| of(&self.home, usual));
        let used = [
            (
                "XDG_CONFIG_HOME",
                directories::configuration(&home(), &variable),
            ),
            ("XDG_STATE_HOME", state_directory::directory()),
            ("XDG_DATA_HOME", state_directory::data()),
        ];
        for ((name, used), usual) in used.into_iter().zip(of_account) {
            if used != usual {
                // Without the variable it lies below `HOME`, since the account has no home.
                let name = if variable(name).is_some() {
                    name
                } else {
                    "HOME"
                };
                let others = if name == "XDG_CONFIG_HOME" {
                    OtherWriters::Refused
                } else {
                    OtherWriters::Accepted
                };
                self.check(name, &used, others)?;
            }
        }
        Ok(())
    }

    /// Checks one.
    fn check(
        &self,
        variable: &'static str,
        named: &Path,
        others: OtherWriters,
    ) -> Result<(), Unbelieved> {
        if !named.is_absolute() || named.components().any(|part| part == Component::ParentDir) {
            return Err(Unbelieved::Relative { variable });
        }
        // Who can change a link on the way decides where it leads.
        path_steps(named)
            .into_iter()
            .try_for_each(|step| self.check_step(variable, step))?;
        let (path, found) = resolve(named);
        match source::check_place(&found) {
            Err(why) if others == OtherWriters::Refused => Err(Unbelieved::Foreign {
                variable,
                path,
                why,
            }),
            Err(_) | Ok(()) => Ok(()),
        }
    }

    fn check_step(&self, variable: &'static str, path: PathBuf) -> Result<(), Unbelieved> {
        if let Some(root) = self.roots.iter().find(|root| path.starts_with(root)) {
            return Err(Unbelieved::InRoot {
                variable,
                root: root.clone(),
                path,
            });
        }
        let above = path
            .ancestors()
            .filter(|above| !self.home.starts_with(above) && above.parent().is_some());
        if let Some(root) = above.clone().find(|above| self.had_session(above)) {
            return Err(Unbelieved::InRoot {
                variable,
                root: root.to_owned(),
                path,
            });
        }
        match above.clone().find(|above| is_repository(above)) {
            Some(root) => Err(Unbelieved::InRepository {
                variable,
                root: root.to_owned(),
                path,
            }),
            None => Ok(()),
        }
    }
}

/// The home of the account, if it has one.
pub(crate) fn account_home() -> Option<PathBuf> {
    let account = User::from_uid(Uid::effective()).ok().flatten()?;
    Some(account.dir).filter(|home| home.parent().is_some() && home.is_dir())
}

/// The executor that the variable names, if it names one.
pub fn executor() -> Option<PathBuf> {
    variable(EXECUTOR)
        .filter(|path| !path.is_empty())
        .map(PathBuf::from)
}

/// The path without links, and as much of it as exists.
fn resolve(path: &Path) -> (PathBuf, PathBuf) {
    for above in path.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(above), path.strip_prefix(above)) {
            // `join` with nothing would end in a slash.
            return (real.join(rest).components().collect(), real);
        }
    }
    (path.to_owned(), PathBuf::from("/"))
}

/// The names in a directory; none if it cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "names of directories of our own, before this process is confined"
)]
fn names(directory: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// Whether a directory may be a repository, whoever's and however incomplete.
pub(crate) fn is_repository(directory: &Path) -> bool {
    let has = |name: &str| fs::symlink_metadata(directory.join(name)).is_ok();
    has(".git")
        || [".hg", ".jj", ".svn"].into_iter().any(has)
        || ["HEAD", "objects", "refs"].into_iter().all(has)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "trees of the test's own")]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_link_that_a_project_can_change_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().canonicalize().unwrap().join(path);
        fs::create_dir_all(at("home/src/p")).unwrap();
        fs::create_dir_all(at("free/x")).unwrap();
        symlink(at("free"), at("home/src/p/link")).unwrap();
        symlink(at("home/src/p/link"), at("free/back")).unwrap();
        symlink(at("free/x"), at("free/own")).unwrap();
        let origins = Origins::new(vec![at("home/src/p")], at("home"), &[]);
        let check = |path: &str| origins.check("V", &at(path), OtherWriters::Accepted);
        for path in ["home/src/p/link", "home/src/p/link/x", "free/back/x"] {
            let found = check(path);
            assert!(
                matches!(found, Err(Unbelieved::InRoot { .. })),
                "{path}: {found:?}"
            );
        }
        assert_eq!(check("free/own"), Ok(()), "the control");
    }

    #[test]
    fn a_place_that_a_project_can_fill_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().canonicalize().unwrap().join(path);
        for directory in [
            "home/src/p/sub",
            "home/src/cfg",
            "home/.config",
            "other/.git",
            "bare/refs",
            "bare/objects",
            "free/x",
        ] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        fs::write(at("bare/HEAD"), "").unwrap();
        fs::write(at("free/program"), "").unwrap();
        fs::set_permissions(at("free/program"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(at("home/src/p"), at("free/link")).unwrap();
        let origins = Origins::new(vec![at("home/src/p/sub")], at("home"), &[]);
        let check = |path: PathBuf| origins.check("V", &path, OtherWriters::Refused);
        for path in [
            "home/src/p/sub/cfg",
            "home/src/cfg",
            "home/src/none",
            "free/link/x",
            "free/link/none/x",
        ] {
            assert!(
                matches!(check(at(path)), Err(Unbelieved::InRoot { .. })),
                "{path}: {:?}",
                check(at(path))
            );
        }
        for path in ["other/cfg", "other/a/b", "bare/x", "other"] {
            assert!(
                matches!(check(at(path)), Err(Unbelieved::InRepository { .. })),
                "{path}"
            );
        }
        for path in ["program".into(), at("free/none/../../other/x")] {
            assert_eq!(check(path), Err(Unbelieved::Relative { variable: "V" }));
        }
        for path in ["free/program", "free/none", "home/.config/x"] {
            assert_eq!(check(at(path)), Ok(()), "{path}");
        }
        fs::set_permissions(at("free"), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            check(at("free/program")),
            Err(Unbelieved::Foreign { .. })
        ));
        assert_eq!(
            origins.check("V", &at("free/program"), OtherWriters::Accepted),
            Ok(())
        );
    }

    #[test]
    fn a_place_that_an_earlier_session_could_fill_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().canonicalize().unwrap().join(path);
        let named = |of: &str, end: &str| format!("data/projects/{}{end}", folder_name(&at(of)));
        for directory in [
            "plain/sub",
            "state/sub",
            "never/sub",
            "named/.lazaret",
            &named("plain", ""),
            &named("state", "-rust"),
            &named("nev", ""),
        ] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        let check = |path: &str, data: &[PathBuf]| {
            let origins = Origins::new(vec![], at("home"), data);
            origins.check("V", &at(path), OtherWriters::Refused)
        };
        let central = named("plain", "") + "/caches/x";
        for path in [&central, "plain/sub/x", "plain", "state/sub", "named/x"] {
            let found = check(path, &[at("data")]);
            assert!(matches!(found, Err(Unbelieved::InRoot { .. })), "{path}");
        }
        assert_eq!(check("never/sub/x", &[at("data")]), Ok(()));
        for path in [&central, "plain/sub/x", "state/sub"] {
            assert_eq!(check(path, &[]), Ok(()), "{path}: the control");
        }
    }

    #[test]
    fn a_home_that_is_a_repository_is_no_project() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap().join("home");
        fs::create_dir_all(home.join(".git")).unwrap();
        fs::create_dir_all(home.join("cfg")).unwrap();
        let origins = Origins::new(vec![home.clone()], home.clone(), &[]);
        assert_eq!(
            origins.check("V", &home.join("cfg"), OtherWriters::Refused),
            Ok(())
        );
    }
}
