//! An overlay over directories of the machine whose upper layer is gone with the session: what a command that runs a second time
//! changes there, nobody else sees.
//!
//! The broker covers the directories in a mount namespace of its own before it looks at them. So all that comes after, which finds
//! what is protected, pins it and supervises calls, sees one tree with one set of inode numbers, and is no other than in any session:
//! what a broker writes into a root is thrown away too.

use crate::capabilities;
use crate::error::{At, LayerError};
use crate::mounts::make_private;
use crate::namespaces;
use broker_protocol::Layer;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{getgid, getuid};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Files and directories that may be made or changed below one directory: each costs the kernel's memory.
const FILES_MAX: u64 = 200_000;

/// Moves this process into a user and a mount namespace of its own and covers `directories` there, which hold none of each other;
/// each takes `bytes` at most. It keeps the user's rights on files, and has no capability over them afterwards.
///
/// # Errors
/// The kernel's: it gives no user namespaces, or no overlay of what lies there.
pub fn cover(directories: &[PathBuf], bytes: u64) -> Result<(), LayerError> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .at(Layer::UserNamespace, || "unshare, for a session that is thrown away".into())?;
    namespaces::map(uid, gid)?;
    make_private()?;
    for directory in directories {
        let step = || format!("put an overlay over {}", directory.display());
        cover_one(directory, bytes).at(Layer::MountNamespace, step)?;
    }
    capabilities::drop_but_to_map(uid.is_root())
}

/// The upper layer lies in a tmpfs that the overlay hides: no path leads to it. All are named by descriptors, as options have no
/// sure way to quote a path.
fn cover_one(directory: &Path, bytes: u64) -> io::Result<()> {
    let open_directory = |path: &Path| -> io::Result<OwnedFd> {
        Ok(open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
    };
    let lower = open_directory(directory)?;
    let before = fs::metadata(directory)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let options = format!("mode=700,size={bytes},nr_inodes={FILES_MAX}");
    mount(Some("tmpfs"), directory, Some("tmpfs"), flags, Some(options.as_str()))?;
    let [upper, work] = ["upper", "work"].map(|name| directory.join(name));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    // The root of the overlay is as its upper directory is.
    fs::set_permissions(&upper, Permissions::from_mode(before.mode() & 0o7777))?;
    let (upper, work) = (open_directory(&upper)?, open_directory(&work)?);
    let [lower, upper, work] = [&lower, &upper, &work].map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let options = format!("userxattr,lowerdir={lower},upperdir={upper},workdir={work}");
    Ok(mount(Some("overlay"), directory, Some("overlay"), flags, Some(options.as_str()))?)
}
