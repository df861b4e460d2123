//! Finds what a command names that its cell closes without any report: in the namespaced tier reads
//! are not supervised, and in neither tier does the kernel report a set-user-ID program.
//!
//! Only for a command that failed, and only what it spells out. A file that the cell does not show
//! is reported as not shown and nothing more, so nobody learns whether it exists: except that nothing is reported where the user could not
//! read it either and its name is public.

use crate::describe::{outside, protected_at};
use crate::host_modes::is_closed_outside_too;
use broker_protocol::{AttemptKind, Barrier, Command, Denial, Layer, Remedy, Tier};
use executor_spec::sandbox::{SandboxSpec, ViewKind};
use policies::shell::{SimpleCommand, Unit, base_name, units};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of words of a command that are examined.
const WORDS_MAX: usize = 256;
/// Shells whose `-c` is a command line.
const SHELLS: [&str; 4] = ["bash", "dash", "sh", "zsh"];
/// Directories that a cell has for itself, and those of the kernel.
const OWN: [&str; 7] = [
    "/tmp",
    "/var/tmp",
    "/run",
    "/dev",
    "/proc",
    "/sys",
    "/.outside",
];
/// The mode bit of a set-user-ID program.
const SET_USER_ID: u32 = 0o4000;

/// The denials for what `command` names. It started in `directory`, failed, and also saw the leased paths in `granted`.
pub fn named(
    command: &Command,
    directory: &Path,
    spec: &SandboxSpec,
    granted: &dyn Fn(&Path) -> bool,
) -> Vec<Denial> {
    let words = words(command);
    // After these the directory of relative paths is unknown.
    let moves = words
        .iter()
        .any(|(word, first)| *first && ["cd", "pushd"].contains(&word.as_str()));
    let mut seen = BTreeSet::new();
    let mut denials = Vec::new();
    for (word, is_program) in words.into_iter().take(WORDS_MAX) {
        if !seen.insert((word.clone(), is_program)) {
            continue;
        }
        denials.extend(if is_program {
            privileged(&word, spec)
        } else {
            None
        });
        if spec.tier == Tier::Namespaced && (word.starts_with('/') || !moves) {
            let path = plain(&directory.join(&word)).filter(|path| !granted(path));
            denials.extend(path.and_then(|path| hidden(&word, &path, spec)));
        }
    }
    denials
}

/// The words that can be recognised, each with whether it is a program.
fn words(command: &Command) -> Vec<(String, bool)> {
    let simple = simple_commands(command).into_iter();
    simple.flat_map(|simple| known(simple.words)).collect()
}

/// The commands that can be recognised; for a shell's `-c` those of its command line.
pub fn simple_commands(command: &Command) -> Vec<SimpleCommand> {
    let mut commands = Vec::new();
    for unit in units(command) {
        let Unit::Simple(simple) = unit else { continue };
        if let [Some(shell), Some(option), Some(line), ..] = &simple.words[..]
            && let (true, "-c") = (SHELLS.contains(&base_name(shell)), option.as_str())
        {
            let inner = units(&Command::Shell(line.clone())).into_iter();
            commands.extend(inner.filter_map(|unit| match unit {
                Unit::Simple(simple) => Some(simple),
                Unit::Unparsed(_) => None,
            }));
        } else {
            commands.push(simple);
        }
    }
    commands
}

fn known(words: Vec<Option<String>>) -> impl Iterator<Item = (String, bool)> {
    words
        .into_iter()
        .enumerate()
        .filter_map(|(at, word)| Some((word?, at == 0)))
}

/// A program that runs without the rights that its file's set-user-ID bit would give it.
fn privileged(program: &str, spec: &SandboxSpec) -> Option<Denial> {
    let path = spec
        .environment
        .iter()
        .find_map(|entry| entry.to_str().ok()?.strip_prefix("PATH="));
    let found = match program.contains('/') {
        true => Some(PathBuf::from(program)).filter(|path| path.is_absolute()),
        false => {
            let files =
                std::env::split_paths(path.unwrap_or_default()).map(|folder| folder.join(program));
            files.into_iter().find(|file| file.exists())
        }
    }?;
    // There the cell sees the host's files.
    let system = spec
        .views
        .iter()
        .any(|view| view.kind == ViewKind::System && found.starts_with(&view.path));
    let is_privileged =
        || fs::metadata(&found).is_ok_and(|file| file.permissions().mode() & SET_USER_ID != 0);
    if !system || !is_privileged() {
        return None;
    }
    let why = "It is a set-user-ID program, which in a cell does not get its owner's rights.";
    let by = Barrier::Layer(Layer::NoNewPrivileges, None);
    Some(Denial::new(
        AttemptKind::Run,
        found.to_string_lossy(),
        by,
        why,
        Remedy::Nothing,
    ))
}

/// The denial for a path that the cell hides, or shows closed.
fn hidden(word: &str, path: &Path, spec: &SandboxSpec) -> Option<Denial> {
    if spec.found().pins.iter().any(|pin| pin.hides(path)) {
        return Some(protected_at(AttemptKind::Read, path, spec));
    }
    let is_hidden = word.starts_with('/') && is_path_of_host(path) && !is_shown(path, spec);
    (is_hidden && !is_closed_outside_too(path)).then(|| outside(path, spec))
}

/// Whether the first component is a directory of the machine, which is no secret: a pattern such as `/x/d` is no path.
fn is_path_of_host(path: &Path) -> bool {
    let mut parts = path.components().skip(1);
    let first = parts.next().map(|first| Path::new("/").join(first));
    parts.next().is_some() && first.is_some_and(|first| first.is_dir())
}

fn is_shown(path: &Path, spec: &SandboxSpec) -> bool {
    let views = spec.views.iter().map(|view| view.path.as_path());
    let own = OWN
        .iter()
        .map(Path::new)
        .chain([spec.scratch.tmp.as_path()]);
    let zones = [spec.project.as_path(), spec.central.as_path()];
    let mut shown = views.chain(zones);
    // A home directory is empty except for these, and may lie in a directory of the cell's own.
    let mut own = own.filter(|_| !path.starts_with(&spec.scratch.home));
    // The parents of what is shown exist too.
    shown.any(|shown| path.starts_with(shown) || shown.starts_with(path))
        || own.any(|own| path.starts_with(own) || own.starts_with(path))
}

/// The path without `.` and `..`; `None` if it leaves the root. Links are not followed.
pub(crate) fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => plain.pop().then_some(())?,
            Component::CurDir | Component::Prefix(_) => {}
            Component::RootDir | Component::Normal(_) => plain.push(part),
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_shells_command_line_are_found_in_both_forms() {
        let line = "cat /etc/shadow \"$x\" && ls /home/u/.ssh";
        let want = ["cat", "/etc/shadow", "ls", "/home/u/.ssh"];
        let arguments = |words: &[&str]| {
            Command::Arguments(words.iter().map(|w| w.as_bytes().to_vec().into()).collect())
        };
        for command in [
            Command::Shell(line.into()),
            arguments(&["/bin/bash", "-c", line]),
        ] {
            let words = words(&command);
            assert_eq!(
                words
                    .iter()
                    .map(|(word, _)| word.as_str())
                    .collect::<Vec<_>>(),
                want
            );
            assert_eq!(
                words.iter().map(|(_, first)| *first).collect::<Vec<_>>(),
                [true, false, true, false]
            );
        }
        assert_eq!(words(&arguments(&["cat", "-c", "a b"])).len(), 3);
    }

    #[test]
    fn paths_are_recognised_among_other_words() {
        assert!(
            is_path_of_host(Path::new("/etc/shadow")) && is_path_of_host(Path::new("/usr/none/x"))
        );
        for other in ["/", "/etc", "/s/a/b/", "/nothing-here/x"] {
            assert!(!is_path_of_host(Path::new(other)), "{other}");
        }
        assert_eq!(plain(Path::new("/a/./b/../c")), Some("/a/c".into()));
        assert_eq!(plain(Path::new("/..")), None);
    }
}
