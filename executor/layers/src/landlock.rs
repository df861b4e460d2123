//! Layers `landlock-files`, `landlock-network`, `landlock-scopes`: what a process may do, by path
//! and access right, enforced by the kernel whatever the mounts look like.
//!
//! *Guarantees*: files outside the views cannot be opened, listed, run, made, removed or renamed, reads included;
//! mounting is refused; processes outside the domain cannot be traced (all ABIs) or signalled, and abstract sockets
//! outside it not reached (ABI 6). In the flat tier TCP is closed to programs (ABI 4), and open to the supervisor, which
//! makes their calls; in the namespaced tier a cell may talk to itself, and the network namespace closes
//! the rest. *Does not*: cover metadata (`chmod`, `stat`, `utime`), UDP or other families, pathname sockets before ABI 9. *Needs*: Linux 5.13; every right of the running kernel is asked for, and
//! nothing less is accepted. *Order*: after the mounts, before seccomp. *Fails*: the session does not open. *Tested by*:
//! `files_outside_stay_closed`, `other_processes_are_out_of_reach`, corpus `FS-*`, `PROC-*`, `NET-013`.

use crate::no_new_privileges::NoNewPrivileges;
use broker_protocol::{Layer, LayerSet, Zone};
use executor_spec::caller_access::MemoryAccess;
use executor_spec::error::{At, Privilege, SetupError};
use executor_spec::sandbox::{DEVICES, SandboxSpec, ViewKind};
use executor_spec::worker::WorkerSpec;
use executor_sys::confine;
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

/// The rulesets of a session's cells, made once and used by each cell.
pub struct Rulesets {
    /// For the first process, and so for all its descendants.
    pub first: OwnedFd,
    /// For the programs it starts, where no PID namespace protects the first process from them: a domain
    /// below its own. TCP is closed here; in the first ruleset only if that process does not supervise.
    pub program: Option<OwnedFd>,
}

/// The rules of a session or of a file worker, with their paths opened once.
pub struct LandlockRules {
    abi: ABI,
    layers: LayerSet,
    paths: Vec<(OwnedFd, BitFlags<AccessFs>)>,
    /// `/proc`, if the first process writes its callers' memory through files there.
    memory_files: Option<OwnedFd>,
}

/// The newest ABI that both the kernel and this build support.
fn known(abi: u32) -> Result<ABI, SetupError> {
    Ok(match abi {
        0 => {
            let error = io::Error::from_raw_os_error(libc::ENOSYS);
            return Err(error).at(Layer::LandlockFiles, || "the kernel has no Landlock".into());
        }
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

impl LandlockRules {
    /// Opens every path of the spec as seen from here: in the namespaced tier, after the new root is in place.
    ///
    /// # Errors
    /// The kernel has no Landlock, or a path cannot be opened.
    pub fn open(spec: &SandboxSpec) -> Result<Self, SetupError> {
        let abi = known(spec.landlock_abi)?;
        let mut rules = Self {
            abi,
            layers: spec.layers,
            paths: Vec::new(),
            memory_files: None,
        };
        for view in &spec.views {
            match view.kind {
                ViewKind::Zone(_) => {}
                // Each rule costs time in each cell. Settings, which nobody executes, need none where the root can be read.
                ViewKind::System if rules.own_root() && view.path.starts_with("/etc") => {}
                ViewKind::System | ViewKind::Image => {
                    rules.add(&view.path, AccessFs::from_read(abi))?
                }
                ViewKind::Link(_) => rules.add_link(&view.path)?,
                ViewKind::Device => {}
                ViewKind::Repository(access) => rules.add_repository(spec, access)?,
            }
        }
        let zones = [Zone::Project, Zone::Central]
            .into_iter()
            .filter(|_| spec.command_directories.is_none());
        for (root, access) in zones.map(|which| spec.zone(which)) {
            rules.add(root, zone(access, abi))?;
        }
        for directory in spec.command_directories() {
            let step = || format!("open {directory} for a rule");
            let fd = spec
                .open_directory(directory)
                .at(Layer::LandlockFiles, step)?;
            rules
                .paths
                .push((fd, zone(spec.zone(directory.zone()).1, abi)));
        }
        let listed = spec
            .policy
            .listed
            .iter()
            .filter(|_| !spec.has(Layer::MountNamespace));
        for path in listed.filter(|path| path.is_dir()) {
            rules.add(path, AccessFs::ReadDir.into())?;
        }
        rules.add_scratch(spec)?;
        // A root of the session's own can be read as a whole.
        let certificates = spec.certificates().filter(|_| !rules.own_root());
        let certificates: Vec<_> = certificates.map(|(_, seen)| seen).collect();
        for path in certificates {
            rules.add(&path, AccessFs::ReadFile.into())?;
        }
        rules.add_devices()?;
        rules.add_proc()?;
        if spec.caller_access.memory == MemoryAccess::File {
            let proc = open("/proc", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
            rules.memory_files =
                Some(proc.at(Layer::LandlockFiles, || "open /proc for a rule".into())?);
        }
        Ok(rules)
    }

    /// Adds a leased path, by a descriptor opened from here.
    ///
    /// # Errors
    /// The kernel's (`fstat`).
    pub fn add_leased(&mut self, fd: OwnedFd, access: Access) -> Result<(), SetupError> {
        self.add_opened(fd, zone(access, self.abi), || {
            "look at what is granted".into()
        })
    }

    /// Whether the rules are for the session's own root, and not for the host's.
    fn own_root(&self) -> bool {
        self.layers.has(Layer::MountNamespace)
    }

    /// Adds a repository that lies elsewhere: its files may be written, as git creates some next to
    /// the settings, but directories may only be created inside those that are open.
    fn add_repository(&mut self, spec: &SandboxSpec, access: Access) -> Result<(), SetupError> {
        let Some(linked) = &spec.linked else {
            return Ok(());
        };
        let all = zone(access, self.abi);
        let directories = AccessFs::MakeDir | AccessFs::RemoveDir | AccessFs::MakeSym;
        let special = AccessFs::MakeFifo | AccessFs::MakeSock;
        if linked.own == linked.common {
            return self.add(&linked.common, all & !special);
        }
        self.add(&linked.common, all & !directories & !special)?;
        let open = linked.shared_directories();
        open.chain([linked.own.clone()])
            .try_for_each(|path| self.add(&path, all & !special))
    }

    fn add_scratch(&mut self, spec: &SandboxSpec) -> Result<(), SetupError> {
        let all = zone(Access::Write, self.abi);
        self.add(&spec.scratch.home, all)?;
        self.add(&spec.scratch.tmp, all)?;
        spec.scratch
            .shared()
            .map_or(Ok(()), |shared| self.add(&shared, all))?;
        spec.temporary().try_for_each(|path| self.add(path, all))?;
        if self.own_root() {
            for path in ["/var/tmp", "/dev/shm", "/run"] {
                self.add(Path::new(path), all)?;
            }
            // The root is the session's own and contains nothing that is not listed, so it may be
            // read; that includes each cell's own `/proc`, which does not exist yet.
            self.add(Path::new("/"), AccessFs::ReadFile | AccessFs::ReadDir)?;
        }
        Ok(())
    }

    fn add_devices(&mut self) -> Result<(), SetupError> {
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        for path in DEVICES {
            self.add(Path::new(path), device & AccessFs::from_all(self.abi))?;
        }
        if self.own_root() {
            // The devpts is the session's own, and so are the terminals in it.
            self.add(
                Path::new("/dev/pts"),
                (device | AccessFs::ReadDir) & AccessFs::from_all(self.abi),
            )?;
        }
        Ok(())
    }

    /// In the flat tier a link stands for its target; in the namespaced tier the target has a view of its own or none.
    fn add_link(&mut self, path: &Path) -> Result<(), SetupError> {
        if !self.own_root() && path.exists() {
            self.add(path, AccessFs::from_read(self.abi))?;
        }
        Ok(())
    }

    fn add(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), SetupError> {
        let step = || format!("open {} for a rule", path.display());
        let fd = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
        let fd = fd.at_privileged(Layer::LandlockFiles, Privilege::OwnRoot, step)?;
        self.add_opened(fd, access, step)
    }

    fn add_opened(
        &mut self,
        fd: OwnedFd,
        access: BitFlags<AccessFs>,
        step: impl Fn() -> String,
    ) -> Result<(), SetupError> {
        let stat = nix::sys::stat::fstat(&fd).at(Layer::LandlockFiles, step)?;
        let directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let access = if directory {
            access
        } else {
            access & AccessFs::from_file(self.abi)
        };
        self.paths.push((fd, access));
        Ok(())
    }

    /// The rulesets of these rules.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rulesets(&self, spec: &SandboxSpec) -> Result<Rulesets, SetupError> {
        // A supervisor binds and connects on behalf of its program.
        let first = match spec.is_supervised() {
            true => self.layers.without(Layer::LandlockNetwork),
            false => self.layers,
        };
        let below = !spec.has(Layer::PidNamespace);
        let program = below.then(|| self.ruleset(self.layers, None)).transpose()?;
        // Not for a program that has no rules of its own.
        let memory = self.memory_files.as_ref().filter(|_| below);
        Ok(Rulesets {
            first: self.ruleset(first, memory)?,
            program,
        })
    }

    fn ruleset(&self, layers: LayerSet, memory: Option<&OwnedFd>) -> Result<OwnedFd, SetupError> {
        let built = self.build(layers, memory).map_err(io::Error::other);
        built
            .at(Layer::LandlockFiles, || "build the ruleset".into())?
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))
            .at(Layer::LandlockFiles, || "the kernel made no ruleset".into())
    }

    fn build(
        &self,
        layers: LayerSet,
        memory: Option<&OwnedFd>,
    ) -> Result<Option<OwnedFd>, RulesetError> {
        let mut ruleset = empty(self.abi, layers)?;
        if let Some(proc) = memory.filter(|_| layers.has(Layer::LandlockFiles)) {
            ruleset = ruleset.add_rule(PathBeneath::new(proc, AccessFs::WriteFile))?;
        }
        for (path, access) in self
            .paths
            .iter()
            .filter(|_| layers.has(Layer::LandlockFiles))
        {
            ruleset = ruleset.add_rule(PathBeneath::new(path, *access))?;
        }
        Ok(ruleset.into())
    }

    fn add_proc(&mut self) -> Result<(), SetupError> {
        self.add(Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir)
    }
}

/// The file worker's ruleset: the zones, the granted paths besides them, and `/proc` to read the
/// paths of opened files. Nothing may be executed.
///
/// # Errors
/// The kernel has no Landlock, or a path cannot be opened.
pub(crate) fn worker_ruleset(spec: &WorkerSpec) -> Result<OwnedFd, SetupError> {
    let abi = known(spec.landlock_abi)?;
    // Without any network, whatever the tier.
    let layers = spec.layers.with(Layer::LandlockNetwork);
    let mut rules = LandlockRules {
        abi,
        layers,
        paths: Vec::new(),
        memory_files: None,
    };
    for root in spec.roots() {
        let access = if root.writable {
            Access::Write
        } else {
            Access::Read
        };
        rules.add(
            Path::new(&root.path),
            zone(access, abi) & !BitFlags::from(AccessFs::Execute),
        )?;
    }
    // A link may lead to something invisible here.
    for path in spec.granted().iter().filter(|path| path.exists()) {
        rules.add(path, AccessFs::ReadFile | AccessFs::ReadDir)?;
    }
    rules.add_proc()?;
    rules.ruleset(layers, None)
}

/// A ruleset that handles every right that the ABI has, or an error: never silently fewer.
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

/// Everything a user may do to files, but not to devices: creating them takes a capability, and ioctls act on the device.
fn zone(access: Access, abi: ABI) -> BitFlags<AccessFs> {
    let device = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    match access {
        Access::Read => AccessFs::from_read(abi),
        Access::Write => AccessFs::from_all(abi) & !device,
    }
}

/// Confines this process, which must have one thread.
///
/// # Errors
/// The kernel's.
pub(crate) fn restrict(ruleset: &OwnedFd, _: NoNewPrivileges) -> Result<(), SetupError> {
    confine::landlock_restrict_self(ruleset.as_fd())
        .at(Layer::LandlockFiles, || "landlock_restrict_self".into())
}
