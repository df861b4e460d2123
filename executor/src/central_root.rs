//! Makes roots usable again that commands have closed or filled: what a command does may not keep the next session from opening.
//!
//! In a central root only commands and Lazaret work, and the user rarely looks. In a project root commands can make any number of files
//! with protected names that are open when new, such as `.env.1`; of too many, the newest are set aside.

use executor_spec::also_closed::{AlsoClosed, WhyClosed};
use executor_spec::undo_directory;
use executor_sys::file::open_without_links;
use executor_sys::random;
use nix::errno::Errno;
use nix::fcntl::{
    AT_FDCWD, AtFlags, OFlag, OpenHow, RenameFlags, ResolveFlag, openat, openat2, renameat2,
};
use nix::sys::stat::{FchmodatFlags, Mode, fchmod, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use policies_guard::{Matcher, WhenNew};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Gives its owner, this user, all access to a central root. Returns what was done, if it was needed.
pub fn unlock(central: &Path) -> Option<AlsoClosed> {
    let directory = open_without_links(central).ok()?;
    let stat = fstat(&directory).ok()?;
    let mode = Mode::from_bits_truncate(stat.st_mode & 0o7777);
    if mode.contains(Mode::S_IRWXU) || stat.st_uid != geteuid().as_raw() {
        return None;
    }
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let follow = FchmodatFlags::FollowSymlink;
    fchmodat(AT_FDCWD, path.as_str(), mode | Mode::S_IRWXU, follow).ok()?;
    Some(AlsoClosed {
        path: central.to_owned(),
        why: WhyClosed::ModeGivenBack,
    })
}

/// Puts an empty directory in the place of a central root that has too many names of its own, with only Lazaret's records in it.
/// Returns what was done. It takes the same time however many names there are.
///
/// # Errors
/// The directory above it cannot be changed.
pub fn set_aside(central: &Path) -> io::Result<AlsoClosed> {
    let (parent, name) = central
        .parent()
        .zip(central.file_name())
        .ok_or(Errno::EINVAL)?;
    let parent_directory = open_without_links(parent)?;
    let number = u64::from_le_bytes(random::bytes()?);
    let mut aside = name.to_owned();
    aside.push(format!(".set-aside-{number:016x}"));
    mkdirat(&parent_directory, aside.as_os_str(), Mode::S_IRWXU)?;
    let exchange = RenameFlags::RENAME_EXCHANGE;
    if let Err(errno) = renameat2(
        &parent_directory,
        name,
        &parent_directory,
        aside.as_os_str(),
        exchange,
    ) {
        let _ = unlinkat(
            &parent_directory,
            aside.as_os_str(),
            UnlinkatFlags::RemoveDir,
        );
        return Err(errno.into());
    }
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = |name| openat(&parent_directory, name, flags, Mode::empty());
    let (old, new) = (open(aside.as_os_str())?, open(name)?);
    let own = undo_directory::NAME;
    if fstatat(&old, own, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
        renameat2(&old, own, &new, own, RenameFlags::RENAME_NOREPLACE)?;
    }
    let there: PathBuf = parent.join(aside);
    Ok(AlsoClosed {
        path: central.to_owned(),
        why: WhyClosed::SetAside(there),
    })
}

/// Protected files directly in a project root that stay where they are; the newer ones are set aside.
const STAYING: usize = 1024;

/// Moves the newest of the protected files that commands may have made directly in the project root into the quarantine of the central
/// root, in a directory that nobody can enter. Returns what was done.
///
/// # Errors
/// There are not so many, or they cannot be moved.
pub fn set_aside_newest(project: &Path, central: &Path, names: &Matcher) -> io::Result<AlsoClosed> {
    let may_be_made = |name: &OsStr| {
        let closings = names.closings(name.as_bytes());
        !closings.is_empty() && closings.iter().all(|(_, new)| *new == WhenNew::Open)
    };
    let entries = fs::read_dir(project)?
        .flatten()
        .filter(|entry| may_be_made(&entry.file_name()));
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    let mut paths: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    if paths.len() <= STAYING {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    paths.sort_by_cached_key(|path| executor_spec::birth_time::born(path));
    let (from, records) = (
        open_without_links(project)?,
        undo_directory::open(central).ok_or(Errno::ENOENT)?,
    );
    let number = format!("{:016x}", u64::from_le_bytes(random::bytes()?));
    let holder = Path::new("quarantine").join(&number);
    match mkdirat(&records, "quarantine", Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    mkdirat(&records, &holder, Mode::S_IRWXU)?;
    let beneath = OpenHow::new()
        .flags(OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    let to = openat2(&records, &holder, beneath)?;
    for name in paths
        .iter()
        .skip(STAYING)
        .filter_map(|path| path.file_name())
    {
        renameat2(&from, name, &to, name, RenameFlags::RENAME_NOREPLACE)?;
    }
    fchmod(&to, Mode::empty())?;
    let there = central.join(undo_directory::NAME).join(holder);
    Ok(AlsoClosed {
        path: project.to_owned(),
        why: WhyClosed::SetAside(there),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_set_aside_lies_beside_it_and_the_records_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let central = folder.join("c");
        fs::create_dir_all(central.join(".lazaret")).unwrap();
        fs::write(central.join(".lazaret/project"), "/p").unwrap();
        fs::write(central.join("x"), "").unwrap();
        let WhyClosed::SetAside(there) = set_aside(&central).unwrap().why else {
            panic!()
        };
        assert_eq!(fs::read(central.join(".lazaret/project")).unwrap(), b"/p");
        assert!(
            !central.join("x").exists()
                && there.join("x").exists()
                && !there.join(".lazaret").exists()
        );
        assert_eq!(there.parent(), Some(folder.as_path()));
    }

    #[test]
    fn a_closed_central_root_is_opened_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let central = folder.path().canonicalize().unwrap();
        assert_eq!(unlock(&central), None);
        fs::set_permissions(&central, Permissions::from_mode(0o010)).unwrap();
        assert!(unlock(&central).is_some());
        assert_eq!(
            fs::metadata(&central).unwrap().permissions().mode() & 0o7777,
            0o710
        );
    }
}
