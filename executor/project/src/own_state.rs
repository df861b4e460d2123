//! Where an agent that runs in a cell as a whole stores its state: directories of the central root. It does
//! not see the user's own directories, because programs outside cells act on their contents.

use crate::central_directory::{beneath, central_directory};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::credential_table::InitialFile;
use policies::{Access, EffectivePolicy};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The parent of these directories in the central root.
const DIRECTORY: &str = "agents";

/// The variables for a cell's environment: none if commands cannot write there. The directories are
/// created, as some programs do not create them, and those of `files` that are in them; if that fails, the program reports it.
pub fn variables(
    policy: &EffectivePolicy,
    central: &Path,
    files: &[InitialFile],
) -> Vec<(OsString, OsString)> {
    let state = &policy.environment.state;
    if state.is_empty()
        || policy.central != Access::Write
        || policy.paths.directories("bash").is_some()
    {
        return Vec::new();
    }
    let _ = make(central, state, files);
    let place = |variable: &String| central.join(DIRECTORY).join(variable);
    state
        .iter()
        .map(|variable| (variable.into(), place(variable).into()))
        .collect()
}

fn make(central: &Path, names: &BTreeSet<String>, files: &[InitialFile]) -> io::Result<()> {
    let root = open(
        central,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let agents = central_directory(&root, DIRECTORY)?;
    names.iter().try_for_each(|name| {
        let directory = central_directory(&agents, name)?;
        let mut of_it = files.iter().filter(|file| file.variable == *name);
        of_it.try_for_each(|file| write_first(&directory, file))
    })
}

/// Writes a file where nothing has its name.
fn write_first(directory: &OwnedFd, file: &InitialFile) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    match beneath(directory, &file.name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(made) => File::from(made).write_all(file.text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::{Host, Policies};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn variables_of(profile: &str, central: &Path) -> Vec<(OsString, OsString)> {
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        variables(
            &Policies::load(vec![])
                .unwrap()
                .resolve(profile, &host)
                .unwrap(),
            central,
            &[InitialFile {
                variable: "CODEX_HOME".into(),
                name: "first".into(),
                text: "text".into(),
                unless: Vec::new(),
            }],
        )
    }

    #[test]
    fn a_profile_has_the_directories_that_it_names() {
        let central = tempfile::tempdir().unwrap();
        assert!(variables_of("dev", central.path()).is_empty());
        let place = central.path().join("agents/CODEX_HOME");
        assert_eq!(
            variables_of("codex", central.path()),
            [("CODEX_HOME".into(), place.clone().into())]
        );
        assert!(place.is_dir());
        let first = || fs::read_to_string(place.join("first"));
        assert_eq!(first().unwrap(), "text");
        fs::write(place.join("first"), "the agent's").unwrap();
        variables_of("codex", central.path());
        assert_eq!(first().unwrap(), "the agent's");
        fs::remove_file(place.join("first")).unwrap();
        symlink(central.path().join("other"), place.join("first")).unwrap();
        variables_of("codex", central.path());
        assert!(first().is_err() && !central.path().join("other").exists());
        variables_of("claude", central.path());
        let other = central.path().join("agents/CLAUDE_CONFIG_DIR");
        assert_eq!(fs::read_dir(other).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_made_where_a_link_leads() {
        let (central, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(elsewhere.path(), central.path().join("agents")).unwrap();
        variables_of("codex", central.path());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
