//! The names on the way of a path. Who can change one of them decides where the path leads.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on one way, as in the kernel (`MAXSYMLINKS` in `linux/namei.h`).
const LINKS_MAX: usize = 40;

enum Step {
    Root,
    Above,
    Name(OsString),
}

fn steps_of(path: &Path) -> impl DoubleEndedIterator<Item = Step> {
    path.components().filter_map(|part| match part {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Above),
        Component::Normal(name) => Some(Step::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    })
}

/// Each name that the kernel looks up for an absolute path, in a directory without links: those of its links, and of what these lead
/// to. What does not exist is where it would be made.
pub fn path_steps(path: &Path) -> Vec<PathBuf> {
    let mut left: VecDeque<Step> = steps_of(path).collect();
    let (mut here, mut found, mut links) = (PathBuf::from("/"), Vec::new(), 0);
    while let Some(step) = left.pop_front() {
        match step {
            Step::Root => here = PathBuf::from("/"),
            Step::Above => drop(here.pop()),
            Step::Name(name) => {
                let entry = here.join(name);
                found.push(entry.clone());
                match fs::read_link(&entry) {
                    Ok(target) if links < LINKS_MAX => {
                        links += 1;
                        steps_of(&target)
                            .rev()
                            .for_each(|step| left.push_front(step));
                    }
                    Ok(_) => return found,
                    Err(_) => here = entry,
                }
            }
        }
    }
    found
}

/// Whether an absolute path leads to or below one of these directories, or past a name there: who writes there decides where it leads.
pub fn leads_into<P: AsRef<Path>>(path: &Path, directories: &[P]) -> bool {
    let is_inside = |step: &PathBuf| directories.iter().any(|one| step.starts_with(one));
    path.is_absolute() && path_steps(path).iter().any(is_inside)
}

/// Whether each path of a list as `PATH` has it is absolute, exists and leads into none of these directories: what nobody who writes there
/// chooses.
pub fn are_outside<P: AsRef<Path>>(list: &OsStr, directories: &[P]) -> bool {
    std::env::split_paths(list)
        .all(|path| path.is_absolute() && path.exists() && !leads_into(&path, directories))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_way_has_its_links_and_what_they_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        let at = |path: &str| top.join(path);
        for directory in ["a", "b", "c/d"] {
            fs::create_dir_all(at(directory)).unwrap();
        }
        symlink(at("b/link"), at("a/link")).unwrap();
        symlink("../c", at("b/link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let of = |path: &str| -> Vec<PathBuf> {
            let steps = path_steps(&at(path)).into_iter();
            steps
                .filter(|step| *step != top && step.starts_with(&top))
                .collect()
        };
        assert_eq!(
            of("a/link/d/new/x"),
            [
                "a",
                "a/link",
                "b",
                "b/link",
                "c",
                "c/d",
                "c/d/new",
                "c/d/new/x"
            ]
            .map(at)
        );
        assert_eq!(of("a/../b"), ["a", "b"].map(at));
        assert_eq!(of("loop/x").len(), LINKS_MAX + 1);
        assert_eq!(path_steps(Path::new("/")), Vec::<PathBuf>::new());
    }
}
