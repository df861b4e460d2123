//! Layers `landlock-files`, `landlock-network`, `landlock-scopes`: what a process may do, by path and right, kept by
//! the kernel whatever the mounts look like.
//!
//! *Guarantees*: files outside the views cannot be opened, listed, run, made, removed or renamed, reads included;
//! mounting is refused; processes outside the domain cannot be traced (all ABIs) or signalled, and abstract sockets
//! outside it not reached (ABI 6). In the flat tier TCP is closed to programs (ABI 4), and open to the supervisor, which
//! makes their calls; in the namespaced tier a cell may talk to itself, and the network namespace is the wall. *Does not*: cover metadata (`chmod`, `stat`, `utime`), UDP or other
//! families, pathname sockets before ABI 9. *Needs*: Linux 5.13; every right of the running kernel is asked for, and
//! nothing less is accepted. *Order*: after the mounts, before seccomp. *Fails*: the session does not open. *Tested by*:
//! `files_outside_stay_closed`, `other_processes_are_out_of_reach`, corpus `FS-*`, `PROC-*`, `NET-013`.

use super::plan::{DEVICES, ViewKind, Walls};
use super::{At, LayerError, NoNewPrivileges};
use crate::sys;
use broker_protocol::{Layer, LayerSet, Zone};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use policies::Access;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// What the processes of a cell confine themselves with.
pub struct Rulesets {
    /// The first, and with it all below it.
    pub first: OwnedFd,
    /// What it starts, once more, where no PID namespace protects the first from that: a domain below its own. TCP is
    /// closed here, and in the first only where that supervises nothing.
    pub program: Option<OwnedFd>,
}

/// A session's rules, with their paths opened once.
pub struct Rules {
    abi: ABI,
    layers: LayerSet,
    paths: Vec<(OwnedFd, BitFlags<AccessFs>)>,
}

/// The newest ABI that both the kernel and this build know.
fn known(abi: u32) -> Option<ABI> {
    Some(match abi {
        0 => return None,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        _ => ABI::V9,
    })
}

impl Rules {
    /// Opens every path of the walls as it is seen from here: in the namespaced tier, after the new root is in place.
    pub fn open(walls: &Walls) -> Result<Self, LayerError> {
        let abi = known(walls.landlock_abi)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
            .at(Layer::LandlockFiles, || "the kernel has no Landlock".into())?;
        let mut rules = Self { abi, layers: walls.layers, paths: Vec::new() };
        for view in &walls.views {
            match view.kind {
                ViewKind::Zone(_) => {}
                // Each rule is paid for by each cell. Settings, which nobody runs, need none where the root may be read.
                ViewKind::System if rules.own_root() && view.path.starts_with("/etc") => {}
                ViewKind::System => rules.add(&view.path, AccessFs::from_read(abi))?,
                ViewKind::Link(_) => rules.add_link(&view.path)?,
                ViewKind::Device => {}
            }
        }
        let zones = [Zone::Project, Zone::Central].into_iter().filter(|_| walls.held.is_none());
        for (root, access) in zones.map(|which| walls.zone(which)) {
            rules.add(root, zone(access, abi))?;
        }
        for directory in walls.held() {
            let step = || format!("open {directory} for a rule");
            let fd = walls.open_held(directory).at(Layer::LandlockFiles, step)?;
            rules.paths.push((fd, zone(walls.zone(directory.zone()).1, abi)));
        }
        let listed = walls.policy.listed.iter().filter(|_| !walls.has(Layer::MountNamespace));
        for path in listed.filter(|path| path.is_dir()) {
            rules.add(path, AccessFs::ReadDir.into())?;
        }
        rules.add_scratch(walls)?;
        rules.add_devices()?;
        rules.add_proc()?;
        Ok(rules)
    }

    /// Whether these are rules for a root of the session's own, and not for the host's.
    fn own_root(&self) -> bool {
        self.layers.has(Layer::MountNamespace)
    }

    fn add_scratch(&mut self, walls: &Walls) -> Result<(), LayerError> {
        let all = zone(Access::Write, self.abi);
        self.add(&walls.scratch.home, all)?;
        self.add(&walls.scratch.tmp, all)?;
        walls.scratch.shared().map_or(Ok(()), |shared| self.add(&shared, all))?;
        if self.own_root() {
            for path in ["/var/tmp", "/dev/shm", "/run"] {
                self.add(Path::new(path), all)?;
            }
            // The root is a session's own and holds nothing that is not listed, so it may be read; that goes for each
            // cell's own `/proc` too, which is not there yet.
            self.add(Path::new("/"), AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        Ok(())
    }

    fn add_devices(&mut self) -> Result<(), LayerError> {
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        for path in DEVICES {
            self.add(Path::new(path), device & AccessFs::from_all(self.abi))?;
        }
        if self.own_root() {
            // An instance of its own: the terminals in it are the session's.
            self.add(Path::new("/dev/pts"), (device | AccessFs::ReadDir) & AccessFs::from_all(self.abi))?;
        }
        Ok(())
    }

    /// A link in the flat tier stands for what it points at; in the namespaced tier its target is seen or not by itself.
    fn add_link(&mut self, path: &Path) -> Result<(), LayerError> {
        if !self.own_root() && path.exists() {
            self.add(path, AccessFs::from_read(self.abi))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), LayerError> {
        let step = || format!("open {} for a rule", path.display());
        let fd =
            open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).at(Layer::LandlockFiles, step)?;
        let stat = nix::sys::stat::fstat(&fd).at(Layer::LandlockFiles, step)?;
        let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let access = if directory { access } else { access & AccessFs::from_file(self.abi) };
        self.paths.push((fd, access));
        Ok(())
    }

    /// The rulesets, to be made once and used by each cell.
    pub fn rulesets(&self, walls: &Walls) -> Result<Rulesets, LayerError> {
        // A supervisor binds and connects in its program's place.
        let first = match walls.is_supervised() {
            true => self.layers.without(Layer::LandlockNetwork),
            false => self.layers,
        };
        let below = !walls.has(Layer::PidNamespace);
        let program = below.then(|| self.ruleset(self.layers)).transpose()?;
        Ok(Rulesets { first: self.ruleset(first)?, program })
    }

    fn ruleset(&self, layers: LayerSet) -> Result<OwnedFd, LayerError> {
        let built = self.build(layers).map_err(io::Error::other);
        built
            .at(Layer::LandlockFiles, || "build the ruleset".into())?
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
            .at(Layer::LandlockFiles, || "the kernel made no ruleset".into())
    }

    fn build(&self, layers: LayerSet) -> Result<Option<OwnedFd>, RulesetError> {
        let mut ruleset = empty(self.abi, layers)?;
        for (path, access) in self.paths.iter().filter(|_| layers.has(Layer::LandlockFiles)) {
            ruleset = ruleset.add_rule(PathBeneath::new(path, *access))?;
        }
        Ok(ruleset.into())
    }

    fn add_proc(&mut self) -> Result<(), LayerError> {
        self.add(Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)
    }
}

/// The file worker's ruleset: the zones, and `/proc` to ask for the name of what it opened. Nothing may be run.
pub fn worker_ruleset(walls: &Walls) -> Result<OwnedFd, LayerError> {
    let abi = known(walls.landlock_abi)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
        .at(Layer::LandlockFiles, || "the kernel has no Landlock".into())?;
    // Without a network of any kind, whatever the tier.
    let layers = walls.layers.with(Layer::LandlockNetwork);
    let mut rules = Rules { abi, layers, paths: Vec::new() };
    for view in &walls.views {
        if let ViewKind::Zone(access) = view.kind {
            rules.add(&view.path, zone(access, abi) & !BitFlags::from(AccessFs::Execute))?;
        }
    }
    rules.add_proc()?;
    rules.ruleset(layers)
}

/// A ruleset that handles every right the ABI has, or an error: never silently fewer.
fn empty(abi: ABI, layers: LayerSet) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    if layers.has(Layer::LandlockFiles) {
        ruleset = ruleset.handle_access(AccessFs::from_all(abi))?;
    }
    if layers.has(Layer::LandlockNetwork) && abi >= ABI::V4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    if layers.has(Layer::LandlockScopes) {
        ruleset = ruleset.scope(Scope::from_all(abi))?;
    }
    ruleset.create()
}

/// Anything a user may do to files, but not to devices: making them takes a capability, and their ioctls are theirs.
fn zone(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let device = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    match access {
        Access::Read => AccessFs::from_read(abi),
        Access::Write => AccessFs::from_all(abi) & !device,
    }
}

/// Confines this process, which has one thread.
pub fn restrict(ruleset: &OwnedFd, _: NoNewPrivileges) -> Result<(), LayerError> {
    sys::landlock_restrict_self(ruleset.as_fd()).at(Layer::LandlockFiles, || "landlock_restrict_self".into())
}
