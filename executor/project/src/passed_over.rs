//! Names that git operations of a session have passed over, because no command may change them: a later commit may take in the
//! difference, so results name them as long as they are as they were.

use broker_protocol::{Finding, FindingKind};
use executor_spec::refusals::{Cause, Refusal, TARGET_MAX};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum number of names that are kept; further ones are named only by the call that has passed them over.
const KEPT_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct PassedOverNames(BTreeMap<PathBuf, Kept>);

#[derive(Debug)]
struct Kept {
    /// Device, inode, size and change time; `None` if it is missing.
    state: Option<[i64; 5]>,
    /// Whether it was passed over since the last check, which has named it.
    is_new: bool,
}

impl PassedOverNames {
    /// Adds those among the refusals of a call that lie in the repository of `project` itself, and forgets those that git has again as
    /// they are.
    pub(crate) fn add(&mut self, refusals: &[Refusal], project: &Path) {
        for refusal in refusals {
            let is_one = matches!(refusal.cause, Cause::NotWritten | Cause::NotRemoved);
            let path = refusal.path();
            if refusal.cause == Cause::AsWritten {
                self.0.remove(path);
            }
            let has_room = self.0.len() < KEPT_MAX || self.0.contains_key(path);
            // A longer path may have been cut.
            let is_whole = refusal.target.len() < TARGET_MAX;
            if is_one && has_room && is_whole && is_in_repository_of(project, path) {
                let kept = Kept {
                    state: state(path),
                    is_new: true,
                };
                self.0.insert(path.to_owned(), kept);
            }
        }
    }

    /// Names that earlier calls have passed over and that are as they were, if a commit may have come about since (`has_committed`).
    pub(crate) fn check(
        &mut self,
        project: &Path,
        has_committed: impl FnOnce() -> bool,
    ) -> Option<Finding> {
        self.0.retain(|path, kept| state(path) == kept.state);
        let has_committed = !self.0.is_empty() && has_committed();
        let mut found: Option<Finding> = None;
        for (path, kept) in &mut self.0 {
            if std::mem::take(&mut kept.is_new) || !has_committed {
                continue;
            }
            let name = path.strip_prefix(project).unwrap_or(path).to_string_lossy();
            match &mut found {
                Some(found) => found.add_object(name),
                None => {
                    let why = "An earlier git operation of this session has passed it over, and it is as it was then: a commit of this call \
                               that has it takes back what git had there.";
                    let advice = "look at `git show --stat` and `git status` before you push";
                    found =
                        Some(Finding::new(FindingKind::PassedOver, name, why).with_advice(advice));
                }
            }
        }
        found
    }
}

/// Whether a path lies in a project, and in no repository below it.
fn is_in_repository_of(project: &Path, path: &Path) -> bool {
    let above = path.ancestors().skip(1);
    let mut between = above.take_while(|above| *above != project);
    let is_of_another = between.any(|above| above.join(".git").symlink_metadata().is_ok());
    path.starts_with(project) && !is_of_another
}

fn state(path: &Path) -> Option<[i64; 5]> {
    let found = path.symlink_metadata().ok()?;
    let numbers = [found.dev(), found.ino(), found.size()].map(u64::cast_signed);
    let [device, inode, size] = numbers;
    Some([device, inode, size, found.ctime(), found.ctime_nsec()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::AttemptKind;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    fn refusal(path: &Path) -> Refusal {
        Refusal {
            kind: AttemptKind::Write,
            cause: Cause::NotWritten,
            object: None,
            target: path.as_os_str().as_bytes().to_vec(),
            count: 1,
        }
    }

    #[test]
    fn names_are_named_by_later_commits_until_they_change() {
        let folder = tempfile::tempdir().unwrap();
        let (project, path) = (folder.path(), folder.path().join("there"));
        fs::write(&path, "one").unwrap();
        let mut names = PassedOverNames::default();
        names.add(
            &[refusal(&path), refusal(&project.join("missing"))],
            project,
        );
        assert_eq!(
            names.check(project, || true),
            None,
            "the call itself names them"
        );
        assert_eq!(names.check(project, || false), None);
        let count = |found: Option<Finding>| found.map_or(0, |found| found.count);
        assert_eq!(count(names.check(project, || true)), 2);
        fs::write(&path, "other").unwrap();
        assert_eq!(count(names.check(project, || true)), 1);
        names.add(
            &[Refusal {
                cause: Cause::AsWritten,
                ..refusal(&project.join("missing"))
            }],
            project,
        );
        assert_eq!(count(names.check(project, || true)), 0);
    }

    #[test]
    fn names_of_other_repositories_and_more_than_are_kept_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path();
        fs::create_dir_all(project.join("a/.git")).unwrap();
        let mut names = PassedOverNames::default();
        let other = Path::new("/elsewhere/x");
        names.add(&[refusal(&project.join("a/b/x")), refusal(other)], project);
        assert!(names.0.is_empty());
        let paths = (0..=KEPT_MAX).map(|number| refusal(&project.join(number.to_string())));
        names.add(&paths.collect::<Vec<_>>(), project);
        assert_eq!(names.0.len(), KEPT_MAX);
    }
}
