//! Makes a central root usable again that commands have closed or filled. Only they and Lazaret work there, and the user rarely looks; so
//! what a command does to it may not keep the next session from opening.

use executor_layers::leased_mounts::open_without_links;
use executor_layers::protected::{AlsoClosed, WhyClosed};
use executor_layers::undo_directory;
use executor_sys::random;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use std::io;
use std::os::fd::AsRawFd;
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
    Some(AlsoClosed { path: central.to_owned(), why: WhyClosed::ModeGivenBack })
}

/// Puts an empty directory in the place of a central root that has too many names of its own, with only Lazaret's records in it.
/// Returns what was done. It takes the same time however many names there are.
///
/// # Errors
/// The directory above it cannot be changed.
pub fn set_aside(central: &Path) -> io::Result<AlsoClosed> {
    let (parent, name) = central.parent().zip(central.file_name()).ok_or(Errno::EINVAL)?;
    let parent_directory = open_without_links(parent)?;
    let number = u64::from_le_bytes(random::bytes()?);
    let mut aside = name.to_owned();
    aside.push(format!(".set-aside-{number:016x}"));
    mkdirat(&parent_directory, aside.as_os_str(), Mode::S_IRWXU)?;
    let exchange = RenameFlags::RENAME_EXCHANGE;
    if let Err(errno) = renameat2(&parent_directory, name, &parent_directory, aside.as_os_str(), exchange) {
        let _ = unlinkat(&parent_directory, aside.as_os_str(), UnlinkatFlags::RemoveDir);
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
    Ok(AlsoClosed { path: central.to_owned(), why: WhyClosed::SetAside(there) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_set_aside_lies_beside_it_and_the_records_stay() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let central = folder.join("c");
        fs::create_dir_all(central.join(".lazaret")).unwrap();
        fs::write(central.join(".lazaret/project"), "/p").unwrap();
        fs::write(central.join("x"), "").unwrap();
        let WhyClosed::SetAside(there) = set_aside(&central).unwrap().why else { panic!() };
        assert_eq!(fs::read(central.join(".lazaret/project")).unwrap(), b"/p");
        assert!(!central.join("x").exists() && there.join("x").exists() && !there.join(".lazaret").exists());
        assert_eq!(there.parent(), Some(folder.as_path()));
    }

    #[test]
    fn a_closed_central_root_is_opened_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let central = folder.path().canonicalize().unwrap();
        assert_eq!(unlock(&central), None);
        fs::set_permissions(&central, Permissions::from_mode(0o010)).unwrap();
        assert!(unlock(&central).is_some());
        assert_eq!(fs::metadata(&central).unwrap().permissions().mode() & 0o7777, 0o710);
    }
}
