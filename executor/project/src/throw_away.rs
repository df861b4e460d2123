//! An overlay over directories of the machine, whose upper layer disappears with the session: what
//! a command that runs a second time changes there is visible to nobody else.
//!
//! The broker mounts the overlays in its own mount namespace before it reads the directories. So
//! all later code, which finds what is protected, pins it and supervises calls, sees one tree with
//! one set of inode numbers, as in any session: what a broker writes into a root disappears too.

use broker_protocol::Layer;
use executor_layers::capabilities;
use executor_layers::mounts::make_private;
use executor_layers::namespaces;
use executor_spec::error::{At, SetupError};
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

/// Maximum number of files and directories created or changed below one directory: each uses kernel memory.
const FILES_MAX: u64 = 200_000;

/// Moves this process into its own user and mount namespace and puts overlays over `directories` there, none of which contains
/// another; each holds at most `bytes`. The process keeps the user's rights on files, and afterwards has no capability over them.
///
/// # Errors
/// The kernel's: it provides no user namespaces, or no overlay of these directories.
pub fn cover(directories: &[PathBuf], bytes: u64) -> Result<(), SetupError> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .at(Layer::UserNamespace, || {
            "unshare, for a session that is thrown away".into()
        })?;
    namespaces::map(uid, gid)?;
    make_private()?;
    for directory in directories {
        let step = || format!("put an overlay over {}", directory.display());
        cover_one(directory, bytes).at(Layer::MountNamespace, step)?;
    }
    capabilities::drop_but_to_map(uid)
}

/// The upper layer lies in a tmpfs that the overlay hides: no path leads to it. Everything is named
/// by descriptors, as mount options have no reliable way to quote a path.
fn cover_one(directory: &Path, bytes: u64) -> io::Result<()> {
    let open_directory = |path: &Path| -> io::Result<OwnedFd> {
        Ok(open(
            path,
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?)
    };
    let lower = open_directory(directory)?;
    let before = fs::metadata(directory)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let options = format!("mode=700,size={bytes},nr_inodes={FILES_MAX}");
    mount(
        Some("tmpfs"),
        directory,
        Some("tmpfs"),
        flags,
        Some(options.as_str()),
    )?;
    let [upper, work] = ["upper", "work"].map(|name| directory.join(name));
    fs::create_dir(&upper)?;
    fs::create_dir(&work)?;
    // The overlay's root has the attributes of its upper directory.
    fs::set_permissions(&upper, Permissions::from_mode(before.mode() & 0o7777))?;
    let (upper, work) = (open_directory(&upper)?, open_directory(&work)?);
    let [lower, upper, work] =
        [&lower, &upper, &work].map(|fd| format!("/proc/self/fd/{}", fd.as_raw_fd()));
    let options = format!("userxattr,lowerdir={lower},upperdir={upper},workdir={work}");
    Ok(mount(
        Some("overlay"),
        directory,
        Some("overlay"),
        flags,
        Some(options.as_str()),
    )?)
}
