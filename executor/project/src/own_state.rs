//! Where an agent that runs in a cell as a whole stores its state: directories of the central root. It does
//! not see the user's own directories, because programs outside cells act on their contents.

use crate::central_directory::{beneath, central_directory};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::credential_table::AgentStateFile;
use policies::{Access, EffectivePolicy};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Maximum size, in bytes, of a file whose placeholders are renewed.
const RENEWED_MAX: u64 = 64 << 10;
/// The parent of these directories in the central root.
const DIRECTORY: &str = "agents";

/// The variables for a cell's environment: none if commands cannot write there. The directories are
/// created, as some programs do not create them, and those of `files` that are in them; if that fails, the program reports it.
pub fn variables(
    policy: &EffectivePolicy,
    central: &Path,
    files: &[AgentStateFile],
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

fn make(central: &Path, names: &BTreeSet<String>, files: &[AgentStateFile]) -> io::Result<()> {
    let root = open(
        central,
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let agents = central_directory(&root, DIRECTORY)?;
    names.iter().try_for_each(|name| {
        let directory = central_directory(&agents, name)?;
        let mut of_it = files.iter().filter(|state| state.file.variable == *name);
        of_it.try_for_each(|file| write_first(&directory, file))
    })
}

/// Writes a file where nothing has its name, and renews the placeholders in one that is there.
fn write_first(directory: &OwnedFd, state: &AgentStateFile) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let name = &state.file.name;
    match beneath(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        Ok(made) => File::from(made).write_all(state.text().as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => renew(directory, state),
        Err(error) => Err(error),
    }
}

/// Commands write there: what is no file of its own stays as it is, and a large one.
fn renew(directory: &OwnedFd, state: &AgentStateFile) -> io::Result<()> {
    let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let file = File::from(beneath(directory, &state.file.name, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    // The other name of an inode may be a file outside.
    if !metadata.is_file() || metadata.nlink() != 1 || metadata.len() > RENEWED_MAX {
        return Ok(());
    }
    let mut stored = Vec::new();
    (&file).take(RENEWED_MAX).read_to_end(&mut stored)?;
    match state.renewed(&stored) {
        Some(renewed) => file.write_all_at(&renewed, 0),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::credential_table::{InitialFile, Shape};
    use policies::{Host, Policies};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A file of a session with this placeholder.
    fn state(placeholder: &str) -> AgentStateFile {
        let file = InitialFile {
            variable: "CODEX_HOME".into(),
            name: "first".into(),
            text: "text {placeholder}".into(),
            unless: Vec::new(),
        };
        let shape = Shape {
            prefix: String::new(),
            length: 40,
            ..Shape::default()
        };
        AgentStateFile::new(file, placeholder, &shape)
    }

    #[test]
    fn stored_placeholder_becomes_that_of_the_session_in_a_file_of_its_own() {
        let central = tempfile::tempdir().unwrap();
        let made = |placeholder: char| {
            let names = ["CODEX_HOME".to_owned()].into();
            let state = state(&placeholder.to_string().repeat(40));
            make(central.path(), &names, &[state])
        };
        let place = central.path().join("agents/CODEX_HOME/first");
        let (first, second) = ("a".repeat(40), "b".repeat(40));
        made('a').unwrap();
        // As the agent writes it.
        fs::write(
            &place,
            format!("{{\"key\": \"{first}\", \"other\": \"{first}b\"}}"),
        )
        .unwrap();
        made('b').unwrap();
        let renewed = fs::read_to_string(&place).unwrap();
        assert_eq!(renewed.matches(&second).count(), 2, "{renewed}");
        assert!(!renewed.contains(&first), "{renewed}");
        for unlike in ["B".repeat(40), "b".repeat(39), "c".repeat(70_000)] {
            fs::write(&place, &unlike).unwrap();
            made('a').unwrap();
            assert_eq!(fs::read_to_string(&place).unwrap(), unlike);
        }
        // The control: without its second name it is renewed.
        fs::write(&place, &first).unwrap();
        let other = central.path().join("other");
        fs::hard_link(&place, &other).unwrap();
        made('b').unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), first);
        fs::remove_file(other).unwrap();
        made('b').unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), second);
    }

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
            &[state(&"a".repeat(40))],
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
        assert_eq!(first().unwrap(), format!("text {}", "a".repeat(40)));
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
