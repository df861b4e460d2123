//! Where an agent that runs in a cell as a whole stores its state: directories of the central root. It does
//! not see the user's own directories, because programs outside cells act on their contents.

use crate::central_directory::central_directory;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::{Access, EffectivePolicy};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The parent of these directories in the central root.
const DIRECTORY: &str = "agents";

/// The variables for a cell's environment: none if commands cannot write there. The directories are
/// created, as some programs do not create them; if that fails, the program reports it.
pub fn variables(policy: &EffectivePolicy, central: &Path) -> Vec<(OsString, OsString)> {
    let state = &policy.environment.state;
    if state.is_empty()
        || policy.central != Access::Write
        || policy.paths.directories("bash").is_some()
    {
        return Vec::new();
    }
    let _ = make(central, state);
    let place = |variable: &String| central.join(DIRECTORY).join(variable);
    state
        .iter()
        .map(|variable| (variable.into(), place(variable).into()))
        .collect()
}

fn make(central: &Path, names: &BTreeSet<String>) -> io::Result<()> {
    let root = open(
        central,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let agents = central_directory(&root, DIRECTORY)?;
    names
        .iter()
        .try_for_each(|name| central_directory(&agents, name).map(drop))
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
    }

    #[test]
    fn nothing_is_made_where_a_link_leads() {
        let (central, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(elsewhere.path(), central.path().join("agents")).unwrap();
        variables_of("codex", central.path());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
