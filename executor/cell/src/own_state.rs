//! Where an agent that is in a cell as a whole keeps its state: directories of the central root. The user's own are not shown to it,
//! because what stands there is acted on outside of cells.

use crate::capture::central_directory;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::{Access, EffectivePolicy};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::Path;

/// The directory of the central root.
const DIRECTORY: &str = "agents";

/// The variables for a cell's environment: none where commands cannot write there. The directories are made, as some programs do
/// not make them; where that is not possible, the program says so.
pub fn variables(policy: &EffectivePolicy, central: &Path) -> Vec<(OsString, OsString)> {
    let state = &policy.environment.state;
    if state.is_empty() || policy.central != Access::Write || policy.paths.directories("bash").is_some() {
        return Vec::new();
    }
    let _ = make(central, state);
    let place = |variable: &String| central.join(DIRECTORY).join(variable);
    state.iter().map(|variable| (variable.into(), place(variable).into())).collect()
}

fn make(central: &Path, names: &BTreeSet<String>) -> io::Result<()> {
    let root = open(central, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let agents = central_directory(&root, DIRECTORY)?;
    names.iter().try_for_each(|name| central_directory(&agents, name).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::{Host, Policies};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn variables_of(profile: &str, central: &Path) -> Vec<(OsString, OsString)> {
        let host = Host { home: "/home/u".into(), ..Host::default() };
        variables(&Policies::load(vec![]).unwrap().resolve(profile, &host).unwrap(), central)
    }

    #[test]
    fn a_profile_has_the_directories_that_it_names() {
        let central = tempfile::tempdir().unwrap();
        assert!(variables_of("dev", central.path()).is_empty());
        let place = central.path().join("agents/CODEX_HOME");
        assert_eq!(variables_of("codex", central.path()), [("CODEX_HOME".into(), place.clone().into())]);
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
