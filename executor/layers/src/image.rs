//! The root of another system: what lies in an unpacked image, as views at the places that it has there, in place of all that a
//! policy grants of the machine.
//!
//! Links keep their text, and lead where that leads in the new root, which holds nothing of the machine's. Where something of the
//! session's own lies, it lies in place of the image's; a directory on the way to it is made anew, from its entries.

use crate::mounts;
use crate::spec::{View, ViewKind};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Most views of an image. Each is a mount or a link of every cell; a system has some twenty in its root.
const VIEWS_MAX: usize = 256;

/// Whether a directory holds what the root of a system does.
pub fn is_root(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).symlink_metadata().is_ok();
    has("etc") && (has("usr") || has("bin"))
}

/// What cells see of `image`, a path without links, beside what is theirs at `own`. Sorted.
///
/// # Errors
/// A directory cannot be listed, or there is too much in it.
pub fn views(image: &Path, own: &[&Path]) -> io::Result<Vec<View>> {
    let own: Vec<&Path> = own.iter().copied().chain(mounts::OWN.map(Path::new)).collect();
    let mut views = Vec::new();
    add(image, Path::new("/"), &own, &mut views)?;
    views.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(views)
}

/// Adds what is in `directory`, which lies at `place` in the new root.
fn add(directory: &Path, place: &Path, own: &[&Path], views: &mut Vec<View>) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", directory.display()));
    for entry in fs::read_dir(directory).map_err(named)? {
        let entry = entry.map_err(named)?;
        let (source, path, kind) =
            (entry.path(), place.join(entry.file_name()), entry.file_type().map_err(named)?);
        let leads_to_own = own.iter().any(|own| own.starts_with(&path));
        if leads_to_own {
            if kind.is_dir() && !own.contains(&path.as_path()) {
                add(&source, &path, own, views)?;
            }
        } else if kind.is_symlink() {
            views.push(View { path, kind: ViewKind::Link(fs::read_link(&source).map_err(named)?) });
        } else if kind.is_dir() || kind.is_file() {
            views.push(View { path, kind: ViewKind::Image });
        }
        if views.len() > VIEWS_MAX {
            let message = format!("{} has too many entries, of {VIEWS_MAX} in all", directory.display());
            return Err(io::Error::other(message));
        }
    }
    Ok(())
}

/// The paths of views, for a policy: what lies in the image is what it grants.
pub fn paths(views: &[View]) -> Vec<PathBuf> {
    views.iter().map(|view| view.path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_the_sessions_own_lies_in_place_of_the_images() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path();
        for name in ["usr/bin", "etc", "proc/x", "dev", "var/lib", "var/tmp/x", "home/u/x", "home/v", "srv"] {
            fs::create_dir_all(image.join(name)).unwrap();
        }
        fs::write(image.join("file"), "").unwrap();
        symlink("/etc/shadow", image.join("out")).unwrap();
        symlink("../../..", image.join("var/up")).unwrap();
        fs::remove_dir(image.join("srv")).unwrap();
        symlink("/etc", image.join("srv")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(image.join("socket")).unwrap();
        let found = views(image, &["/home/u", "/srv/project"].map(Path::new)).unwrap();
        let seen: Vec<_> = found.iter().map(|view| view.path.to_str().unwrap()).collect();
        assert_eq!(seen, ["/etc", "/file", "/home/v", "/out", "/usr", "/var/lib", "/var/up"]);
        let target = |path: &str| match &found.iter().find(|view| view.path == Path::new(path)).unwrap().kind
        {
            ViewKind::Link(text) => text.clone(),
            kind => panic!("{kind:?}"),
        };
        assert_eq!((target("/out"), target("/var/up")), ("/etc/shadow".into(), "../../..".into()));
        assert!(is_root(image) && !is_root(&image.join("usr")));
        for number in 0..VIEWS_MAX {
            fs::write(image.join(format!("f{number}")), "").unwrap();
        }
        assert!(views(image, &[]).unwrap_err().to_string().contains("too many entries"));
    }
}
