//! The owner of a central root: `.lazaret/project` in it contains the real path of the one project that it serves.
//!
//! What a project's sessions store, another's must not read: replaced contents, outputs, notes.
//! Names of directories can collide and be given by hand; so the record is compared when a session
//! opens. `.lazaret` is a protected name, so no cell writes it.

use executor_spec::undo_directory;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;

/// The record's name in the undo directory.
const NAME: &str = "project";
/// Maximum bytes read of it: `PATH_MAX` of `linux/limits.h`, which no real path reaches.
const PATH_MAX: u64 = 4096;

/// Why a central root cannot serve a project.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// It serves another project, and contains what that one has stored.
    #[error(
        "the central root {} holds what was kept for the project {}; choose another with --central, or remove {}/{} if that \
         project is no more",
        .central.display(), .project.escape_debug(), .central.display(), record().display()
    )]
    Other {
        /// The central root that cannot be used.
        central: PathBuf,
        /// The project according to the record.
        project: String,
    },
    /// Its record is not a readable file.
    #[error("cannot use the owner record of the central root {}: {source}", .central.display())]
    Record {
        /// The central root that cannot be used.
        central: PathBuf,
        /// The kernel's error when opening or reading the record.
        source: io::Error,
    },
}

/// Where the record lies in a central root.
fn record() -> PathBuf {
    Path::new(undo_directory::NAME).join(NAME)
}

/// A lock on the record of a central root: sessions share it, and what takes the caches away has it alone.
#[derive(Debug)]
pub struct RootLock(Flock<File>);

impl RootLock {
    /// When a session last claimed the root.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn last_use(&self) -> io::Result<SystemTime> {
        self.0.metadata()?.modified()
    }
}

/// Claims `central` for `project`, both real paths, or confirms an earlier claim. A central root
/// without an undo directory stores nothing and needs no owner. The lock tells others that a session has the root; if it is missing,
/// the caches were being taken away just now, and nobody will do that again soon.
///
/// # Errors
/// It serves another project, or its record cannot be read or created.
pub fn claim(central: &Path, project: &Path) -> Result<Option<RootLock>, OwnerError> {
    let Some(directory) = undo_directory::open(central) else {
        return Ok(None);
    };
    confirm(central, &directory, project)?;
    let lock = lock(&directory, FlockArg::LockSharedNonblock).ok();
    if let Some(lock) = &lock {
        // Nothing depends on it in this session.
        let _ = lock.0.set_modified(SystemTime::now());
    }
    Ok(lock)
}

/// The projects that are recorded in the central roots in `directory`: commands of their sessions could write there.
pub fn projects(directory: &Path) -> Vec<PathBuf> {
    let roots = fs::read_dir(directory).into_iter().flatten().flatten();
    let recorded = roots.filter_map(|root| {
        let project = read(&undo_directory::open(&root.path())?).ok()?;
        Some(PathBuf::from(OsString::from_vec(project)))
    });
    recorded.filter(|project| project.is_absolute()).collect()
}

/// The project of a central root by its record, and the record locked for whoever takes its caches away. `None` if there is none.
///
/// # Errors
/// `EWOULDBLOCK` if a session has the root; the kernel's.
pub(crate) fn lock_unused(central: &Path) -> io::Result<Option<(PathBuf, RootLock)>> {
    let Some(directory) = undo_directory::open(central) else {
        return Ok(None);
    };
    let lock = match lock(&directory, FlockArg::LockExclusiveNonblock) {
        Err(Errno::ENOENT) => return Ok(None),
        locked => locked?,
    };
    let project = PathBuf::from(OsString::from_vec(read(&directory)?));
    Ok(project.is_absolute().then_some((project, lock)))
}

fn lock(directory: &OwnedFd, how: FlockArg) -> nix::Result<RootLock> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(open(directory, flags, Mode::empty())?);
    Flock::lock(file, how)
        .map(RootLock)
        .map_err(|(_, errno)| errno)
}

fn confirm(central: &Path, directory: &OwnedFd, project: &Path) -> Result<(), OwnerError> {
    let failed = |source| OwnerError::Record {
        central: central.to_owned(),
        source,
    };
    let wanted = project.as_os_str().as_bytes();
    let recorded = read(directory).map_err(failed)?;
    // The file is empty if its creator was killed before writing it.
    if recorded.is_empty() {
        return write(directory, wanted).map_err(failed);
    }
    if recorded == wanted {
        return Ok(());
    }
    let project = String::from_utf8_lossy(&recorded).into_owned();
    Err(OwnerError::Other {
        central: central.to_owned(),
        project,
    })
}

/// The recorded path; empty if there is none.
fn read(directory: &OwnedFd) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = match open(directory, flags, Mode::empty()) {
        Err(Errno::ENOENT) => return Ok(Vec::new()),
        opened => File::from(opened?),
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut recorded = Vec::new();
    file.take(PATH_MAX).read_to_end(&mut recorded)?;
    Ok(recorded)
}

fn write(directory: &OwnedFd, project: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let mut file = match open(directory, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
        // Where it cannot be recorded, nothing can be stored for undo either.
        Err(Errno::EROFS | Errno::EACCES | Errno::EPERM) => return Ok(()),
        opened => File::from(opened?),
    };
    file.write_all(project)
}

/// Follows no link: what programs outside have put there is not trusted.
fn open(directory: &OwnedFd, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(
        directory,
        NAME,
        OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(resolve),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_root_of_a_session_is_not_unused() {
        let central = tempfile::tempdir().unwrap();
        let (root, project) = (central.path(), Path::new("/p/a"));
        assert!(lock_unused(root).unwrap().is_none());
        undo_directory::make(root);
        assert!(lock_unused(root).unwrap().is_none());
        let sessions = [claim(root, project).unwrap(), claim(root, project).unwrap()];
        for session in sessions {
            let error = lock_unused(root).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            drop(session);
        }
        let (found, lock) = lock_unused(root).unwrap().unwrap();
        assert_eq!(found, project);
        let since = SystemTime::now().duration_since(lock.last_use().unwrap());
        assert!(since.unwrap().as_secs() < 60);
        // A session that opens meanwhile goes on without.
        assert!(claim(root, project).unwrap().is_none());
    }

    #[test]
    fn projects_of_all_central_roots_are_known() {
        let data = tempfile::tempdir().unwrap();
        for name in ["a", "b", "unclaimed"] {
            let central = data.path().join(name);
            fs::create_dir(&central).unwrap();
            undo_directory::make(&central);
            if name != "unclaimed" {
                claim(&central, &Path::new("/p").join(name)).unwrap();
            }
        }
        fs::write(data.path().join("file"), "").unwrap();
        let mut known = projects(data.path());
        known.sort();
        assert_eq!(known, [Path::new("/p/a"), Path::new("/p/b")]);
        assert!(projects(&data.path().join("absent")).is_empty());
    }

    #[test]
    fn a_central_root_serves_the_project_that_claimed_it() {
        let central = tempfile::tempdir().unwrap();
        let claim = |project: &str| claim(central.path(), Path::new(project));
        assert!(
            claim("/p/a").is_ok() && claim("/p/b").is_ok(),
            "without an undo directory nothing is kept"
        );
        undo_directory::make(central.path());
        let record = central.path().join(super::record());
        fs::write(&record, "").unwrap();
        assert!(claim("/p/a").is_ok());
        assert_eq!(fs::read(&record).unwrap(), b"/p/a");
        assert!(claim("/p/a").is_ok());
        for other in ["/p/b", "/p/a/", "/p/ab", "/p"] {
            assert!(
                matches!(claim(other), Err(OwnerError::Other { project, .. }) if project == "/p/a"),
                "{other}"
            );
        }
        fs::remove_file(&record).unwrap();
        assert!(claim("/p/b").is_ok() && claim("/p/a").is_err());
        fs::remove_file(&record).unwrap();
        symlink("/etc/hostname", &record).unwrap();
        assert!(matches!(claim("/p/a"), Err(OwnerError::Record { .. })));
        fs::remove_file(&record).unwrap();
        fs::create_dir(&record).unwrap();
        assert!(matches!(claim("/p/a"), Err(OwnerError::Record { .. })));
    }
}
