//! Where a project's central root lies, and by what name.

use crate::stdio::print::problem;
use broker_protocol::Digest;
use std::path::{Path, PathBuf};

/// The default central root of a project, below the directory for `projects`. If a profile's programs keep state in it, it belongs to
/// that profile alone. A directory with a name of the first releases is left alone: nothing in it tells which project it belongs to,
/// which is why the name was changed.
pub(crate) fn central_root(project: &Path, state_of: Option<&str>, projects: &Path) -> PathBuf {
    if let Some(profile) = state_of {
        return projects.join(format!("{}-{profile}", folder_name(project)));
    }
    let (central, former) = (
        projects.join(folder_name(project)),
        projects.join(former_name(project)),
    );
    if former.exists() && !central.exists() {
        let (former, central) = (former.display(), central.display());
        problem(&format!(
            "{former} has no record of its project, so it is no longer used; if its files belong to this project, move it to {central}"
        ));
    }
    central
}

/// A name that people recognise, followed by the SHA-256 of the path, so that no other project can get the same name.
pub(crate) fn folder_name(project: &Path) -> String {
    format!(
        "{}-{}",
        plain_name(project),
        Digest::of(project.as_os_str().as_encoded_bytes())
    )
}

/// The name used by the first releases, with 32 bits of FNV-1a, for which collisions can be made.
fn former_name(project: &Path) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = project
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, step);
    format!(
        "{}-{:08x}",
        plain_name(project),
        (hash >> 32) as u32 ^ hash as u32
    )
}

fn plain_name(project: &Path) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name = project
        .file_name()
        .unwrap_or("root".as_ref())
        .to_string_lossy();
    name.chars().map(plain).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_has_the_same_central_root_for_ever() {
        let name = folder_name(Path::new("/home/u/my app"));
        let digest = "01895cf7df474f6fee1b76e491e5ac14ad672db8ab56ec61c2afe525f46347bb";
        assert_eq!(name, format!("my_app-{digest}"));
        assert_eq!(former_name(Path::new("/home/u/my app")), "my_app-2e1880b0");
        assert_ne!(
            folder_name(Path::new("/a/x")),
            folder_name(Path::new("/b/x"))
        );
        assert!(folder_name(Path::new("/")).starts_with("root-"));
    }
}
