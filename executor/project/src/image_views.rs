//! The root of another system: the contents of an unpacked image, as views at the paths they have
//! there, in place of everything that a policy grants of the machine.
//!
//! Links keep their text, and resolve in the new root, which contains nothing of the machine's. Where the session has
//! something of its own, that replaces the image's; a directory on the way to it is rebuilt from its entries.

use executor_layers::mounts;
use executor_spec::sandbox::{View, ViewKind};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of views of an image. Each is a mount or a link of every cell; a system has about twenty in its root.
const VIEWS_MAX: usize = 256;

/// Whether a directory has the entries of a system's root.
pub fn is_root(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
    has("etc") && (has("usr") || has("bin"))
}

/// The views of `image` that cells have, a path without links, besides their own paths in `own`. Sorted.
///
/// # Errors
/// A directory cannot be listed, or has too many entries.
pub fn views(image: &Path, own: &[&Path]) -> io::Result<Vec<View>> {
    let own: Vec<&Path> = own
        .iter()
        .copied()
        .chain(mounts::OWN.map(Path::new))
        .collect();
    let mut views = Vec::new();
    add(image, Path::new("/"), &own, &mut views)?;
    views.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(views)
}

/// Adds the contents of `directory`, which is at `place` in the new root.
fn add(directory: &Path, place: &Path, own: &[&Path], views: &mut Vec<View>) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
    };
    for entry in fs::read_dir(directory).map_err(named)? {
        let entry = entry.map_err(named)?;
        let (source, path, kind) = (
            entry.path(),
            place.join(entry.file_name()),
            entry.file_type().map_err(named)?,
        );
        let leads_to_own = own.iter().any(|own| own.starts_with(&path));
        if leads_to_own {
            if kind.is_dir() && !own.contains(&path.as_path()) {
                add(&source, &path, own, views)?;
            }
        } else if kind.is_symlink() {
            views.push(View {
                path,
                kind: ViewKind::Link(fs::read_link(&source).map_err(named)?),
            });
        } else if kind.is_dir() || kind.is_file() {
            views.push(View {
                path,
                kind: ViewKind::Image,
            });
        }
        if views.len() > VIEWS_MAX {
            let message = format!(
                "{} has too many entries, of {VIEWS_MAX} in all",
                directory.display()
            );
            return Err(io::Error::other(message));
        }
    }
    Ok(())
}

/// The paths of views, for a policy: it grants the contents of the image.
pub fn paths(views: &[View]) -> Vec<PathBuf> {
    views.iter().map(|view| view.path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn session_directories_replace_those_of_the_image() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path();
        for name in [
            "usr/bin",
            "etc",
            "proc/x",
            "dev",
            "var/lib",
            "var/tmp/x",
            "home/u/x",
            "home/v",
            "srv",
        ] {
            fs::create_dir_all(image.join(name)).unwrap();
        }
        fs::write(image.join("file"), "").unwrap();
        symlink("/etc/shadow", image.join("out")).unwrap();
        symlink("../../..", image.join("var/up")).unwrap();
        fs::remove_dir(image.join("srv")).unwrap();
        symlink("/etc", image.join("srv")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(image.join("socket")).unwrap();
        let found = views(image, &["/home/u", "/srv/project"].map(Path::new)).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|view| view.path.to_str().unwrap())
            .collect();
        assert_eq!(
            seen,
            [
                "/etc", "/file", "/home/v", "/out", "/usr", "/var/lib", "/var/up"
            ]
        );
        let target = |path: &str| match &found
            .iter()
            .find(|view| view.path == Path::new(path))
            .unwrap()
            .kind
        {
            ViewKind::Link(text) => text.clone(),
            kind => panic!("{kind:?}"),
        };
        assert_eq!(
            (target("/out"), target("/var/up")),
            ("/etc/shadow".into(), "../../..".into())
        );
        assert!(is_root(image) && !is_root(&image.join("usr")));
        for number in 0..VIEWS_MAX {
            fs::write(image.join(format!("f{number}")), "").unwrap();
        }
        assert!(
            views(image, &[])
                .unwrap_err()
                .to_string()
                .contains("too many entries")
        );
    }
}
