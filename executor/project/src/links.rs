//! Resolves links step by step: the links on the way matter as much as the target.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Links that the kernel follows in one path (`MAXSYMLINKS`, `include/linux/namei.h`).
const LINKS_MAX: usize = 40;

/// The result of resolving a path that begins in a directory without links.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The links on the way, each in its real directory.
    pub(crate) between: Vec<PathBuf>,
    /// Directories left through `..`, which need not exist: a link in place of one would lead elsewhere.
    pub(crate) left: Vec<PathBuf>,
    /// The real path at the end, which need not exist; `None` if there are too many links to follow.
    pub end: Option<PathBuf>,
}

/// Follows `path`, which is absolute or begins in `directory`.
pub(crate) fn follow(directory: &Path, path: &Path) -> Destination {
    let mut here = directory.to_owned();
    let (mut between, mut left) = (Vec::new(), Vec::new());
    let mut ahead: VecDeque<OsString> = VecDeque::new();
    put_in_front(&mut ahead, &mut here, path);
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            left.push(here.clone());
            here.pop();
            continue;
        }
        let next = here.join(&name);
        // If it cannot be read, it is not a link, or one that nobody can follow.
        let Ok(target) = fs::read_link(&next) else {
            here = next;
            continue;
        };
        between.push(next);
        if between.len() > LINKS_MAX {
            return Destination {
                between,
                left,
                end: None,
            };
        }
        put_in_front(&mut ahead, &mut here, &target);
    }
    Destination {
        between,
        left,
        end: Some(here),
    }
}

/// Puts the components of `path` before those still to resolve; an absolute path starts again at the root.
fn put_in_front(ahead: &mut VecDeque<OsString>, here: &mut PathBuf, path: &Path) {
    if path.is_absolute() {
        *here = PathBuf::from("/");
    }
    for component in path.components().rev() {
        match component {
            Component::Normal(name) => ahead.push_front(name.to_owned()),
            Component::ParentDir => ahead.push_front("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
}

/// The path that a file contains after `before`, without the line end.
pub(crate) fn target_in(file: &Path, before: &[u8]) -> Option<PathBuf> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(file)
        .ok()?;
    let mut text = Vec::new();
    file.take(2 * libc::PATH_MAX as u64)
        .read_to_end(&mut text)
        .ok()?;
    let path = text.strip_prefix(before)?.trim_ascii();
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_link_on_a_path_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let root = &folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("conf/real")).unwrap();
        symlink("conf/now/prod", root.join(".env")).unwrap();
        symlink("real", root.join("conf/now")).unwrap();
        let found = follow(root, Path::new(".env"));
        assert_eq!(found.between, [root.join(".env"), root.join("conf/now")]);
        assert_eq!(
            found.end,
            Some(root.join("conf/real/prod")),
            "it need not exist"
        );
        symlink("../conf/./now/..", root.join("conf/up")).unwrap();
        assert_eq!(
            follow(root, Path::new("conf/up")).end,
            Some(root.join("conf"))
        );
        symlink(root.join("conf"), root.join("absolute")).unwrap();
        assert_eq!(
            follow(root, Path::new("absolute/x")).end,
            Some(root.join("conf/x"))
        );
    }

    #[test]
    fn a_circle_has_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        symlink("two", root.join("one")).unwrap();
        symlink("one", root.join("two")).unwrap();
        let found = follow(&root, Path::new("one"));
        assert_eq!((found.end, found.between.len()), (None, LINKS_MAX + 1));
    }
}
