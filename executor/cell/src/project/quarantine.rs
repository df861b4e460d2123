//! In the broker: takes away what a call has misplaced (`executor_supervisor`'s `new_names.rs`), into a directory of the central root.
//!
//! Only the object that the call's supervisor names is taken, and only where that still lies; and nothing that was protected when the session
//! opened. What cannot be taken is reported, and stays. Nothing is taken without a result that names it.
//!
//! *Does not*: cross file systems, change modes to reach something, or wait for the lock on names.

use super::left_files::of_repository;
use broker_protocol::{Denial, Remedy, Zone};
use executor_layers::leased_mounts::open_without_links;
use executor_layers::spec::SandboxSpec;
use executor_layers::undo_directory;
use executor_supervisor::{CreatedFiles, Refusal, RenameLock, describe};
use executor_sys::random;
use nix::Result;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2};
use nix::sys::stat::{Mode, fstat, mkdirat};
use policies::Access;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// In the undo directory, whose name is protected: no call reaches what was taken away, or can keep anything from being taken.
const NAME: &str = "quarantine";
/// Maximum number of objects in it.
const TAKEN_MAX: usize = 256;
/// How often the lock is tried for, each time after a millisecond.
const LOCK_TRIES: usize = 5;

/// Describes a refusal for the result of its call, and takes away what the call has misplaced.
pub fn conclude(refusal: &Refusal, spec: &SandboxSpec) -> Denial {
    let Some((identity, path)) = refusal.misplaced() else { return describe(refusal, spec) };
    let why =
        "The call made it here, where your programs act on it by themselves and no call may make anything";
    match take(identity, path, spec) {
        Ok(name) => {
            let place = spec.central.join(undo_directory::NAME).join(NAME).join(&name);
            let advice = "look at it; if you trust it, you can move it back outside the sandbox";
            let why = format!("{why}. It is in quarantine: central:{}/{NAME}/{name}", undo_directory::NAME);
            let remedy = Remedy::Advice(format!("{advice}: {}", place.display()));
            of_repository(path, &why, remedy)
        }
        Err(Errno::ENOENT | Errno::ESTALE) => {
            let why = format!("{why}. It is no longer there, and nothing was taken away.");
            of_repository(path, &why, Remedy::Advice("see where it has gone".into()))
        }
        Err(errno) => {
            let why = format!("{why}. It could NOT be taken away and may still be there: {}.", errno.desc());
            of_repository(path, &why, Remedy::Advice("remove it if you do not trust it".into()))
        }
    }
}

/// Moves the object into quarantine; returns its name there.
fn take(identity: &[u8], path: &Path, spec: &SandboxSpec) -> Result<String> {
    // The path comes from a cell's first process.
    if !is_in_reach(path, spec) {
        return Err(Errno::EPERM);
    }
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::EINVAL)?;
    let parent = open_without_links(parent)?;
    let quarantine = open_quarantine(spec)?;
    let memory = spec.created.as_ref().ok_or(Errno::ENOLCK)?;
    let names = CreatedFiles::of(memory.try_clone().map_err(|_| Errno::EMFILE)?);
    let _lock = (0..LOCK_TRIES).find_map(|_| lock(&names)).ok_or(Errno::ENOLCK)?;
    check(&parent, name, identity, spec)?;
    let number = random::bytes().map_err(|_| Errno::EIO)?;
    let taken = format!("{:016x}", u64::from_le_bytes(number));
    let flags = RenameFlags::RENAME_NOREPLACE;
    renameat2(&parent, name, &quarantine, taken.as_str(), flags)?;
    // The user's programs do not know the lock: what is somebody else's goes back.
    if let Err(errno) = check(&quarantine, OsStr::new(&taken), identity, spec) {
        let back = renameat2(&quarantine, taken.as_str(), &parent, name, flags);
        // Where it cannot go back, the result says where it lies.
        return back.map_or(Ok(taken), |()| Err(errno));
    }
    Ok(taken)
}

fn lock(names: &CreatedFiles) -> Option<RenameLock<'_>> {
    let lock = names.try_lock_renames().ok();
    if lock.is_none() {
        sleep(Duration::from_millis(1));
    }
    lock
}

/// Whether calls may change names there, and Lazaret keeps nothing there.
fn is_in_reach(path: &Path, spec: &SandboxSpec) -> bool {
    let zones = [Zone::Project, Zone::Central].into_iter();
    let zones =
        zones.filter(|zone| spec.command_access(*zone) == Access::Write).map(|zone| spec.zone(zone).0);
    let linked = spec.linked.iter().filter(|_| spec.policy.project == Access::Write);
    let mut roots = zones.chain(linked.map(|linked| linked.common.as_path()));
    let own = spec.central.join(undo_directory::NAME);
    roots.any(|root| path != root && path.starts_with(root)) && !path.starts_with(own)
}

/// Checks that a name leads to this object, and that it was not protected when the session opened.
fn check(parent: &OwnedFd, name: &OsStr, identity: &[u8], spec: &SandboxSpec) -> Result<()> {
    let object = openat(parent, name, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty())?;
    if CreatedFiles::identity(&object).as_deref() != Some(identity) {
        return Err(Errno::ESTALE);
    }
    let stat = fstat(&object)?;
    let born = || File::from(object.try_clone().ok()?).metadata().ok()?.created().ok();
    match spec.objects.protection((stat.st_dev, stat.st_ino), born) {
        Some(_) => Err(Errno::EPERM),
        None => Ok(()),
    }
}

/// Opens the directory, which is created if necessary, if there is room.
fn open_quarantine(spec: &SandboxSpec) -> Result<OwnedFd> {
    undo_directory::make(&spec.central);
    let above = undo_directory::open(&spec.central).ok_or(Errno::ENOTDIR)?;
    match mkdirat(&above, NAME, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let directory = openat2(&above, NAME, OpenHow::new().flags(flags).resolve(inside))?;
    let entries = Dir::from_fd(directory.try_clone().map_err(|_| Errno::EMFILE)?)?.iter().count();
    // `.` and `..` are entries too.
    if entries >= TAKEN_MAX + 2 { Err(Errno::EDQUOT) } else { Ok(directory) }
}
