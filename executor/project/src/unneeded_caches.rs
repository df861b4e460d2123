//! Removes the caches of projects that are gone, or that no session has used for long. All else in a central root stays.
//!
//! Caches are first moved beside the central roots, which takes a moment, and nobody waits for what follows. A root that a session has
//! is left alone: the session holds a lock on its record. What commands have put into caches is believed nowhere (`removal.rs`).

use crate::central_owner;
use crate::removal::{RemovalBudget, RemovalEnd, Removed, open_directory, remove};
use broker_protocol::{CLEANED, Cleaned, RemovedCache, Unused};
use executor_spec::sandbox::CACHES;
use executor_sys::random;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, fstat};
use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// Maximum number of central roots that are looked at.
const ROOTS_MAX: usize = 65_536;
/// How names begin under which removal goes on; no central root has such a name.
const BEGUN: &[u8] = b".gc-";
const DAY_S: u64 = 24 * 60 * 60;

/// The caches that are removed.
#[derive(Clone, Copy)]
pub struct Unneeded {
    /// Caches that no session has used for so many days are.
    pub days: u32,
    /// Whether caches of projects that are gone are, too.
    pub deleted: bool,
}

/// Removes caches in `projects`, and what an earlier run has left of some.
pub fn remove_unneeded(projects: &Path, which: Unneeded, budget: RemovalBudget) -> Cleaned {
    let mut report = Cleaned::default();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // The way there is the user's own, links in it too.
    let Ok(projects) = &fs::canonicalize(projects) else {
        // Nothing was ever kept.
        return report;
    };
    let opened = nix::fcntl::open(projects, flags, Mode::empty());
    let listed = opened.and_then(|directory| Ok((names(&directory)?, directory)));
    let (names, directory) = match listed {
        Ok(listed) => listed,
        Err(errno) => {
            report.fail(projects, errno);
            return report;
        }
    };
    report.unfinished = names.len() >= ROOTS_MAX;
    let mut sweep = Sweep {
        projects,
        directory,
        which,
        budget,
        report,
    };
    let (begun, roots): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|name| name.to_bytes().starts_with(BEGUN));
    for name in &begun {
        let place = sweep.place(name);
        sweep.remove(name, place, Unused::Begun);
    }
    for name in &roots {
        if sweep.is_spent() {
            break;
        }
        if let Err(errno) = sweep.root(name) {
            let place = sweep.place(name);
            sweep.report.fail(&place, errno);
        }
    }
    sweep.report
}

/// The entries of the directory of central roots.
fn names(directory: &OwnedFd) -> nix::Result<Vec<CString>> {
    let again = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut listed = Dir::from_fd(openat(directory, c".", again, Mode::empty())?)?;
    let mut names = Vec::new();
    for entry in listed.iter().take(ROOTS_MAX) {
        names.push(entry?.file_name().to_owned());
    }
    names.retain(|name| ![c".", c".."].contains(&name.as_c_str()));
    names.sort();
    Ok(names)
}

struct Sweep<'a> {
    projects: &'a Path,
    directory: OwnedFd,
    which: Unneeded,
    budget: RemovalBudget,
    report: Cleaned,
}

impl Sweep<'_> {
    fn place(&self, name: &CStr) -> PathBuf {
        self.projects.join(OsStr::from_bytes(name.to_bytes()))
    }

    fn is_spent(&mut self) -> bool {
        let spent = self.budget.entries == 0 || Instant::now() >= self.budget.until;
        self.report.unfinished |= spent;
        spent
    }

    /// Removes the caches of one central root, if nobody uses them.
    fn root(&mut self, name: &CStr) -> nix::Result<()> {
        let path = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let root = match openat(&self.directory, name, path, Mode::empty()) {
            // A file or a link is no central root of ours.
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::ENOENT) => return Ok(()),
            root => root?,
        };
        let has_caches = match openat(&root, CACHES, path, Mode::empty()) {
            Err(Errno::ENOTDIR | Errno::ELOOP | Errno::ENOENT) => false,
            found => fstat(&found?)?.st_dev == fstat(&root)?.st_dev,
        };
        if !has_caches {
            return Ok(());
        }
        let (project, lock) = match central_owner::lock_unused(&self.place(name)) {
            // Without a record nothing tells whose it is.
            Ok(None) => return Ok(()),
            Ok(Some(found)) => found,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.report.in_use += 1;
                return Ok(());
            }
            Err(error) => return Err(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
        };
        let Some(why) = self.unused(&project, lock.last_use().ok()) else {
            return Ok(());
        };
        // A command may have closed the root, or the caches, which a move would need.
        let caches = CString::new(CACHES).map_err(|_| Errno::EINVAL)?;
        let root = open_directory(&self.directory, name)?;
        open_directory(&root, &caches)?;
        let number = u64::from_le_bytes(random::bytes().map_err(|_| Errno::EIO)?);
        let begun = [BEGUN, format!("{number:016x}").as_bytes()].concat();
        let begun = CString::new(begun).map_err(|_| Errno::EINVAL)?;
        let keep = RenameFlags::RENAME_NOREPLACE;
        renameat2(
            &root,
            caches.as_c_str(),
            &self.directory,
            begun.as_c_str(),
            keep,
        )?;
        drop(lock);
        self.remove(&begun, project, why);
        Ok(())
    }

    /// Why the caches of `project`, last used then, are not needed; `None` if they may be.
    fn unused(&self, project: &Path, last: Option<SystemTime>) -> Option<Unused> {
        let missing = fs::symlink_metadata(project).err();
        let missing = missing.and_then(|error| error.raw_os_error());
        // What cannot be looked at is not gone.
        if self.which.deleted && matches!(missing, Some(libc::ENOENT | libc::ENOTDIR)) {
            return Some(Unused::Deleted);
        }
        let since = SystemTime::now().duration_since(last?).ok()?;
        let days = since.as_secs() / DAY_S;
        (days >= u64::from(self.which.days)).then_some(Unused::Days(days))
    }

    /// Removes what was moved away, and reports it as of `project`.
    fn remove(&mut self, name: &CStr, project: PathBuf, why: Unused) {
        let mut removed = Removed::default();
        let done = remove(&self.directory, name, &mut self.budget, &mut removed);
        match done {
            Ok(RemovalEnd::Done) => {}
            Ok(RemovalEnd::Spent) => self.report.unfinished = true,
            Err(errno) => {
                let place = self.place(name);
                self.report.fail(&place, errno);
            }
        }
        self.report.count += 1;
        if self.report.removed.len() < CLEANED {
            self.report.removed.push(RemovedCache {
                project: project.to_string_lossy().into_owned(),
                why,
                entries: removed.entries,
                bytes: removed.bytes,
            });
        }
    }
}
