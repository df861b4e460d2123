//! Linked worktrees of the project's repository that commands have made: what removing one removes, so that `git worktree remove` works
//! in a later session too. Git deletes file by file; a refusal on the way would leave half of it.
//!
//! A worktree consists of `.git/worktrees/NAME` and the file `.git` in its own directory, which name each other. Nothing else counts as
//! one: files that say anything else were changed since, and stay closed.

use crate::record_file::read_short;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of worktrees that are looked at.
const MADE_WORKTREES_MAX: usize = 256;

/// The protection of a worktree, beside the names in it that commands may change anyway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorktreeParts {
    /// The directory in the repository: `.git/worktrees/NAME`.
    pub(crate) directory: PathBuf,
    /// `commondir` in it, and the `.git` of the worktree.
    pub(crate) links: [PathBuf; 2],
}

impl WorktreeParts {
    /// The whole content of the record.
    pub(crate) fn all(&self) -> [&Path; 3] {
        let [common, own] = &self.links;
        [&self.directory, common, own]
    }
}

/// The worktrees in a project of the repository in it, as git makes them.
pub(crate) fn worktrees_of(project: &Path) -> Vec<WorktreeParts> {
    let all = fs::read_dir(project.join(".git/worktrees"));
    let all = all.into_iter().flatten().flatten();
    all.take(MADE_WORKTREES_MAX)
        .filter_map(|entry| parts(project, entry.path()))
        .collect()
}

fn parts(project: &Path, directory: PathBuf) -> Option<WorktreeParts> {
    let read = |file: &Path| read_short(file, libc::PATH_MAX as u64);
    let common = directory.join("commondir");
    let back = read(&directory.join("gitdir"))?;
    let own = PathBuf::from(OsStr::from_bytes(back.strip_suffix(b"\n")?));
    let is_in_project = own.starts_with(project) && own.components().collect::<PathBuf>() == own;
    let leads_here = [b"gitdir: ", directory.as_os_str().as_bytes(), b"\n"].concat();
    let is_linked = is_in_project
        && own.file_name() == Some(OsStr::new(".git"))
        && read(&own)? == leads_here
        && read(&common)? == b"../..\n";
    is_linked.then_some(WorktreeParts {
        directory,
        links: [common, own],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Project(tempfile::TempDir);

    impl Project {
        fn at(&self, name: &str) -> PathBuf {
            fs::canonicalize(self.0.path()).unwrap().join(name)
        }

        fn put(&self, name: &str, text: &str) {
            fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
            fs::write(self.at(name), text).unwrap();
        }

        fn worktree(&self, name: &str) {
            let at = |name: &str| self.at(name).display().to_string();
            let directory = format!(".git/worktrees/{name}");
            self.put(&format!("{directory}/commondir"), "../..\n");
            let own = format!("{name}/.git");
            self.put(&format!("{directory}/gitdir"), &format!("{}\n", at(&own)));
            self.put(&own, &format!("gitdir: {}\n", at(&directory)));
        }

        fn found(&self) -> usize {
            worktrees_of(&self.at("")).len()
        }
    }

    fn project() -> Project {
        Project(tempfile::tempdir().unwrap())
    }

    #[test]
    fn only_what_names_each_other_is_a_worktree() {
        for (file, text) in [
            (".git/worktrees/w/commondir", "../../../evil\n"),
            (".git/worktrees/w/gitdir", "/elsewhere/.git\n"),
            (".git/worktrees/w/gitdir", "w/.git\n"),
            ("w/.git", "gitdir: ../evil\n"),
        ] {
            let project = project();
            project.worktree("w");
            assert_eq!(project.found(), 1, "the control");
            project.put(file, text);
            assert_eq!(project.found(), 0, "{file}: {text}");
        }
    }

    #[test]
    fn worktrees_are_looked_at_up_to_a_number() {
        let project = project();
        (0..=MADE_WORKTREES_MAX).for_each(|at| project.worktree(&format!("w{at}")));
        assert_eq!(project.found(), MADE_WORKTREES_MAX);
    }
}
