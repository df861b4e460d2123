//! Mounts paths leased to one cell in that cell's own mount namespace. For a process of ours that enters the
//! session's user namespace and still sees the machine's tree: no process of the session does.
//!
//! What was approved is what is mounted: each path is opened again without following links, and
//! compared with the object in the question. Mounts below it are not included.

use executor_spec::pins::{Pin, PinMode};
use executor_sys::file::open_without_links;
use executor_sys::mount::{
    move_mount_to, open_tree_at, open_whole_tree_at, set_attributes, set_attributes_of_tree,
};
use libc::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, fstat, mkdirat};
use policies::Access;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of mounts that pin what is protected in one directory.
pub const LEASED_PINS_MAX: usize = 1024;
/// Where trees are assembled: a directory that every machine has. What the mount hides there is reached by descriptors.
const BASE: &str = "/usr";

/// One path to mount.
#[derive(Clone, Debug)]
pub struct LeasedMount {
    /// Absolute, without links.
    pub path: PathBuf,
    /// The access that commands have there.
    pub access: Access,
    /// Device and inode of the object there.
    pub id: (u64, u64),
    /// Mounts over protected names in it, parents first.
    pub pins: Vec<Pin>,
}

/// Clones the trees of all `mounts`, as the machine has them now.
///
/// # Errors
/// The kernel's; `ESTALE` if another object lies at a path.
pub fn take(user_namespace: BorrowedFd, mounts: &[LeasedMount]) -> io::Result<Vec<OwnedFd>> {
    setns(user_namespace, CloneFlags::CLONE_NEWUSER)?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    let opened = mounts.iter().map(|wanted| {
        let object = open_without_links(&wanted.path)?;
        let stat = fstat(&object)?;
        if (stat.st_dev, stat.st_ino) != wanted.id {
            return Err(Errno::ESTALE.into());
        }
        let tree = open_tree_at(object.as_fd())?;
        let closed = match wanted.access {
            Access::Read => MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            Access::Write => MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
        };
        set_attributes(tree.as_fd(), closed)?;
        Ok(tree)
    });
    let trees = opened.collect::<io::Result<Vec<_>>>()?;
    // The mount that hides the machine's directory comes after everything is open.
    let tmpfs = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(
        Some("tmpfs"),
        BASE,
        Some("tmpfs"),
        tmpfs,
        Some("mode=700,size=1m"),
    )?;
    let closed = ClosedObjects::make()?;
    let numbered = trees.into_iter().zip(mounts).enumerate();
    numbered
        .map(|(at, (tree, wanted))| pinned(at, tree, &wanted.pins, &wanted.path, &closed))
        .collect()
}

/// A file and a directory that nobody can open.
struct ClosedObjects {
    file: OwnedFd,
    directory: OwnedFd,
}

impl ClosedObjects {
    fn make() -> io::Result<Self> {
        let [file, directory] = ["file", "directory"].map(|name| Path::new(BASE).join(name));
        File::create(&file)?;
        fs::create_dir(&directory)?;
        for path in [&file, &directory] {
            fs::set_permissions(path, Permissions::from_mode(0o000))?;
        }
        Ok(Self {
            file: open_without_links(&file)?,
            directory: open_without_links(&directory)?,
        })
    }
}

/// The tree, with mounts over what is protected in it.
fn pinned(
    at: usize,
    tree: OwnedFd,
    pins: &[Pin],
    root: &Path,
    closed: &ClosedObjects,
) -> io::Result<OwnedFd> {
    if pins.is_empty() {
        return Ok(tree);
    }
    let place = Path::new(BASE).join(at.to_string());
    fs::create_dir(&place)?;
    let target = open_without_links(&place)?;
    move_mount_to(tree.as_fd(), target.as_fd())?;
    let root_fd = open_without_links(&place)?;
    for pin in pins {
        let below = pin.path.strip_prefix(root).map_err(io::Error::other)?;
        self::pin(root_fd.as_fd(), below, pin.mode, closed)?;
    }
    open_whole_tree_at(root_fd.as_fd())
}

fn pin(root: BorrowedFd, below: &Path, mode: PinMode, closed: &ClosedObjects) -> io::Result<()> {
    let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let target = match openat2(root, below, OpenHow::new().flags(flags).resolve(inside)) {
        // The host has removed it since; what it creates under this name later, it creates while the lease is in force.
        Err(Errno::ENOENT) => return Ok(()),
        target => target?,
    };
    let (source, attributes) = match mode {
        PinMode::KeepPlace => (target.as_fd(), 0),
        PinMode::KeepLink | PinMode::ReadOnly => (target.as_fd(), MOUNT_ATTR_RDONLY),
        // Secrets are masked in roots only.
        PinMode::Masked | PinMode::Hidden { directory: false } => {
            (closed.file.as_fd(), MOUNT_ATTR_RDONLY)
        }
        PinMode::Hidden { directory: true } => (closed.directory.as_fd(), MOUNT_ATTR_RDONLY),
    };
    let tree = open_whole_tree_at(source)?;
    set_attributes_of_tree(
        tree.as_fd(),
        attributes | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
    )?;
    move_mount_to(tree.as_fd(), target.as_fd())
}

/// Attaches the trees at their paths in a cell's mount namespace, in which no program is running yet.
///
/// # Errors
/// The kernel's; `ELOOP` or `ENOTDIR` if commands of the session have created something in the way.
pub fn attach(
    mount_namespace: BorrowedFd,
    mounts: &[LeasedMount],
    trees: &[OwnedFd],
) -> io::Result<()> {
    setns(mount_namespace, CloneFlags::CLONE_NEWNS)?;
    let mut all: Vec<_> = mounts.iter().zip(trees).collect();
    // A path inside another comes after it.
    all.sort_by_key(|(wanted, _)| wanted.path.as_os_str().len());
    remount_root(MsFlags::empty())?;
    for (wanted, tree) in all {
        let place = match fstat(tree)?.st_mode & libc::S_IFMT {
            libc::S_IFDIR => place(&wanted.path, libc::S_IFDIR)?,
            _ => place(&wanted.path, libc::S_IFREG)?,
        };
        move_mount_to(tree.as_fd(), place.as_fd())?;
    }
    remount_root(MsFlags::MS_RDONLY)
}

/// The session's own root is read-only except while mount points are created in it. Only the cell's
/// copy of the mount is changed, and it contains nothing else.
fn remount_root(flags: MsFlags) -> io::Result<()> {
    let flags =
        flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    Ok(mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?)
}

/// Opens what lies at `path`, which must be of this kind (`S_IFDIR` or `S_IFREG`), and creates it (empty) if it is missing. Commands can
/// write to some directories on the way: none of their links is followed.
fn place(path: &Path, wanted: libc::mode_t) -> io::Result<OwnedFd> {
    let names: Vec<_> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect();
    let mut at = OwnedFd::from(File::open("/")?);
    for (index, name) in names.iter().enumerate() {
        let name = name.as_os_str();
        let is_file = wanted == libc::S_IFREG && index + 1 == names.len();
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let kind = if is_file {
            OFlag::empty()
        } else {
            OFlag::O_DIRECTORY
        };
        let open = || {
            let inside = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS;
            openat2(
                &at,
                name,
                OpenHow::new().flags(flags | kind).resolve(inside),
            )
        };
        let found = match open() {
            Err(Errno::ENOENT) if is_file => {
                let new = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
                drop(openat(&at, name, new, Mode::empty())?);
                open()
            }
            Err(Errno::ENOENT) => {
                mkdirat(&at, name, Mode::from_bits_truncate(0o755))?;
                open()
            }
            found => found,
        };
        let next = found?;
        at = next;
    }
    let kind = fstat(&at)?.st_mode & libc::S_IFMT;
    if kind == wanted {
        Ok(at)
    } else {
        Err(Errno::ENOTDIR.into())
    }
}

/// A descriptor of this process's mount namespace.
///
/// # Errors
/// The kernel's.
pub fn own_namespace() -> io::Result<OwnedFd> {
    Ok(File::open("/proc/self/ns/mnt")?.into())
}
