//! Mount namespaces for cells, one cell after the other: what all cells of a session see alike is not put together again for
//! each of them. A cell cannot change its room: it has no capability, its rules and its filter refuse.

use crate::cell::plan::Walls;
use crate::cell::{At, LayerError, mounts};
use broker_protocol::Layer;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, chroot, fchdir};
use std::os::fd::{AsFd, OwnedFd};

/// Rooms that are kept for cells to come: what many calls at once needed is given back.
const FREE_MAX: usize = 2;
/// Cells that one room is for: each leaves its `/proc` behind, of a namespace that is gone, below that of the next.
const USES_MAX: u32 = 16;

/// A mount namespace.
pub struct Room {
    namespace: OwnedFd,
    /// Its root, to which entering does not lead where the executor was started in a root of its own.
    root: OwnedFd,
    uses: u32,
}

impl Room {
    /// The one this process is in.
    fn here() -> nix::Result<Self> {
        let namespace = open("/proc/self/ns/mnt", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        let root = open("/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok(Self { namespace, root, uses: 0 })
    }

    /// Makes this process see what is in it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn enter(&self) -> Result<(), LayerError> {
        let enter = || {
            setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNS)?;
            fchdir(&self.root)?;
            chroot(".")?;
            chdir("/")
        };
        enter().at(Layer::MountNamespace, || "enter a mount namespace".into())
    }
}

/// The rooms of a session.
pub struct Rooms {
    /// The warden's own.
    home: Room,
    free: Vec<Room>,
    /// With the process that ends last in each.
    taken: Vec<(i32, Room)>,
}

impl Rooms {
    /// None but the warden's, in which it is.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new() -> Result<Self, LayerError> {
        let home = Room::here().at(Layer::MountNamespace, || "hold the warden's mount namespace".into())?;
        Ok(Self { home, free: Vec::new(), taken: Vec::new() })
    }

    /// A room in which nobody is.
    ///
    /// # Errors
    /// One cannot be made: the warden may not be where it was.
    pub fn free(&mut self, walls: &Walls) -> Result<Room, LayerError> {
        if let Some(room) = self.free.pop() {
            return Ok(room);
        }
        unshare(CloneFlags::CLONE_NEWNS).at(Layer::MountNamespace, || "unshare".into())?;
        mounts::hold(walls)?;
        let room = Room::here().at(Layer::MountNamespace, || "hold a mount namespace".into())?;
        self.home.enter()?;
        Ok(room)
    }

    /// The process `first` and all that it starts are in `room`.
    pub fn take(&mut self, room: Room, first: i32) {
        self.taken.push((first, Room { uses: room.uses + 1, ..room }));
    }

    /// The process `first` has ended, and all below it before.
    pub fn leave(&mut self, first: i32) {
        let left = self.taken.iter().position(|(pid, _)| *pid == first);
        let room = left.map(|at| self.taken.swap_remove(at).1);
        let kept = room.filter(|room| room.uses < USES_MAX && self.free.len() < FREE_MAX);
        self.free.extend(kept);
    }
}
