//! What a supervised call may touch: areas, protected names, and the processes that exist for the cell.

use crate::areas::{Area, Areas};
use crate::flat::hosts_file::HostsFile;
use crate::flat::loopback::draw_addresses;
use crate::flat::pty::PtyClient;
use crate::link_names::LinkNames;
use crate::made_directories::MadeDirectories;
use crate::object::{Handle, errno};
use crate::socket_rules::SocketRules;
use crate::written_links::WrittenLinks;
use broker_protocol::{AttemptKind, CallId, Layer};
use executor_layers::seccomp::Supervision;
use executor_spec::caller_access::CallerAccess;
use executor_spec::created::{CreatedFiles, RenameLock};
use executor_spec::error::{At, SetupError};
use executor_spec::host_pool::HostPool;
use executor_spec::known_directories::{DirectoryMemory, KnownDirectories};
use executor_spec::leased_cell::ZoneLease;
use executor_spec::made_repositories::MadeRepositories;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::readable_secret::{ReadableSecret, SecretView};
use executor_spec::refusals::Cause;
use executor_spec::relay::{AGENT, Purpose, RelayGate};
use executor_spec::sandbox::SandboxSpec;
use nix::Result;
use nix::sys::stat::FileStat;
use policies::Access;
use policies_guard::{Change, Judge, Matcher, Rule, Verdict, judge};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A connection by way of the relay: where supervisors connect, and what for.
pub(crate) type RelayWay<'a> = (&'a RelayGate, Purpose<'a>);

/// Rules on the objects that the cells of a session may touch.
pub struct AccessRules {
    names: Matcher,
    /// The names protected in leased paths, if there are any.
    lease_names: Option<Matcher>,
    pub(crate) areas: Areas,
    /// The objects that were protected when the session opened, whatever their names.
    pub(crate) objects: ProtectedObjects,
    /// Files of secrets that commands can read.
    pub(crate) secrets: Vec<ReadableSecret>,
    /// Whether names are hidden, or `/tmp` is the session's own.
    hides: bool,
    /// Files of zones that leases open to this cell.
    zone_leases: Vec<ZoneLease>,
    file_size: Option<u64>,
    /// Maximum bytes that a call may write.
    pub(crate) written: Option<u64>,
    /// Whether protected names that existed when the session opened are mounts, which cannot be moved.
    pub(crate) pinned: bool,
    /// What cells have created under protected names, and the repositories they have created.
    pub(crate) created: CreatedFiles,
    /// Names that links of cells have given to files.
    pub(crate) link_names: LinkNames,
    /// Sockets that cells have bound, and those that the policy names.
    pub(crate) sockets: SocketRules,
    caller_access: CallerAccess,
    /// Whether the network is the session's own.
    own_network: bool,
    /// Where its cells have their loopback, if not.
    loopback_addresses: Option<[Ipv4Addr; 2]>,
    /// Directories that were repositories when the session opened.
    pub(crate) repositories: BTreeSet<PathBuf>,
    /// The directories in which a repository may come about, and the repositories that have.
    pub(crate) directories: MadeDirectories,
    pub(crate) made_repositories: MadeRepositories,
    /// The paths written in the `.git` files of worktrees that cells have added.
    pub(crate) written_links: WrittenLinks,
    /// Provides terminals, if the session has no devpts of its own.
    pty: Option<PtyClient>,
    /// How programs reach the relay, if the session has one.
    relay: Option<RelayGate>,
    /// The policy names keys of an ssh agent, so programs have one.
    has_agent: bool,
    /// The ports of this machine that they reach by it.
    machine_ports: Vec<u16>,
    /// Ports of this machine that are leased to this cell's program, besides those of the policy.
    leased_ports: RefCell<Vec<u16>>,
    /// The hosts that they reach by it without a request.
    pub(crate) hosts: HostPool,
    /// What they find of these in `/etc/hosts`, where no mount shows it.
    pub(crate) hosts_file: Option<HostsFile>,
    /// Whether new names are refused, and looked at again after a call: always, but in a test build.
    enforces_names: bool,
    pub(crate) takes_misplaced: bool,
    /// When the session opened.
    pub(crate) opened: SystemTime,
}

impl AccessRules {
    /// The rules for a session.
    ///
    /// # Errors
    /// The kernel has no memory for them.
    pub fn new(
        spec: &SandboxSpec,
        pty: Option<PtyClient>,
        relay: Option<RelayGate>,
    ) -> std::result::Result<Self, SetupError> {
        let step = || "make the supervisors' common memory".to_owned();
        let created = match &spec.found().created {
            Some(memory) => CreatedFiles::of(memory.try_clone().at(Layer::ProtectedNames, step)?),
            None => CreatedFiles::new().at(Layer::ProtectedNames, step)?,
        };
        let sockets = SocketRules::new(spec.policy.sockets.iter().cloned())
            .at(Layer::ProtectedNames, step)?;
        let repositories = spec.found().objects.repositories.clone();
        let memory = match &spec.found().directories {
            Some(memory) => memory.try_clone(),
            None => DirectoryMemory::new(&KnownDirectories::default()),
        };
        let memory = memory.at(Layer::ProtectedNames, step)?;
        let own_network = spec.has(Layer::NetworkNamespace);
        let drawn = (!own_network).then(draw_addresses).transpose();
        let loopback_addresses = drawn.at(Layer::ProtectedNames, step)?;
        Ok(Self {
            names: spec.policy.matcher.clone(),
            lease_names: None,
            hides: !spec.shows_names(),
            areas: Areas::new(spec),
            objects: spec.found().objects.clone(),
            secrets: spec.found().secrets.clone(),
            zone_leases: Vec::new(),
            file_size: spec.policy.limits.file_size,
            written: spec.policy.limits.written,
            pinned: spec.has(Layer::MountNamespace),
            created,
            link_names: LinkNames::new().at(Layer::ProtectedNames, step)?,
            sockets,
            caller_access: spec.caller_access,
            own_network,
            loopback_addresses,
            repositories,
            directories: MadeDirectories::of(&memory).at(Layer::ProtectedNames, step)?,
            made_repositories: MadeRepositories::of(&memory).at(Layer::ProtectedNames, step)?,
            written_links: WrittenLinks::new().at(Layer::ProtectedNames, step)?,
            pty,
            relay,
            has_agent: !spec.policy.ssh.is_empty(),
            machine_ports: spec.policy.ports.connect.clone(),
            leased_ports: RefCell::default(),
            hosts: spec.hosts.clone(),
            hosts_file: HostsFile::of(spec).at(Layer::ProtectedNames, step)?,
            enforces_names: spec.ablation.enforces_names(),
            takes_misplaced: spec.ablation.takes_misplaced(),
            opened: SystemTime::now(),
        })
    }

    /// The calls of this cell's program that are supervised. Keys in leased paths stay closed in every profile.
    pub fn supervision(&self) -> Supervision {
        match self.hides || self.lease_names.is_some() {
            true => Supervision::Whole,
            false => Supervision::Changes,
        }
    }

    /// Adds leased paths, and what is protected in them: by these names, and as objects; and the directories that are there.
    pub fn add_leased(
        &mut self,
        paths: impl Iterator<Item = (PathBuf, Access)>,
        names: Matcher,
        objects: ProtectedObjects,
        directories: KnownDirectories,
    ) {
        self.areas.add_leased(paths);
        self.lease_names = Some(names);
        self.directories.add_leased(directories);
        self.repositories
            .extend(objects.repositories.iter().cloned());
        self.objects.extend(objects);
    }

    /// Lets the programs of this cell read these files of secrets as they are, or change these files.
    pub fn open_in_zones(&mut self, files: Vec<ZoneLease>) {
        for file in &files {
            let secrets = self.secrets.iter_mut();
            secrets
                .filter(|secret| file.access == Access::Read && secret.path == file.path)
                .for_each(|secret| secret.seen = SecretView::Real);
        }
        self.zone_leases = files;
    }

    /// Whether a lease lets this cell change the content of this file, at the path that was granted.
    pub(crate) fn has_lease(&self, real: &Path, stat: &FileStat) -> bool {
        let is_it = |file: &ZoneLease| {
            file.access == Access::Write
                && file.path == real
                && file.id == (stat.st_dev, stat.st_ino)
                && stat.st_nlink == 1
        };
        self.zone_leases.iter().any(is_it)
    }

    /// Keeps the programs of this cell and those of others from connecting to each other's sockets:
    /// a descriptor passed that way would outlive the lease.
    ///
    /// # Errors
    /// The kernel has no memory for that.
    pub fn separate_sockets(&mut self) -> Result<()> {
        self.sockets = self.sockets.separate()?;
        Ok(())
    }

    /// The descriptors that a cell must keep open for its supervisor.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let common = [
            self.created.descriptor(),
            self.sockets.descriptor(),
            self.written_links.descriptor(),
            self.link_names.descriptor(),
            self.made_repositories.descriptor(),
        ];
        let common = common.into_iter().chain(self.directories.descriptors());
        let relay = self.relay.iter().flat_map(RelayGate::descriptors);
        let hosts_file = self.hosts_file.iter().map(HostsFile::descriptor);
        self.pty
            .iter()
            .map(PtyClient::descriptor)
            .chain(relay)
            .chain(hosts_file)
            .chain(common)
    }

    /// Applies a verdict on a new name: test builds can let a refused one pass.
    pub(crate) fn enforce(&self, verdict: Verdict) -> Verdict {
        if self.enforces_names {
            verdict
        } else {
            Verdict::Allow
        }
    }

    /// How supervisors get at their callers.
    pub(crate) fn caller_access(&self) -> CallerAccess {
        self.caller_access
    }

    /// Whether network addresses have no meaning outside the session.
    pub(crate) fn has_own_network(&self) -> bool {
        self.own_network
    }

    pub(crate) fn loopback_addresses(&self) -> Option<[Ipv4Addr; 2]> {
        self.loopback_addresses
    }

    /// A cell's program begins, for this call, to which these ports of this machine are leased.
    pub fn begin_call(&self, call: CallId, leased: &[u16]) {
        self.relay.iter().for_each(|gate| gate.begin_call(call));
        self.leased_ports.replace(leased.to_vec());
    }

    pub(crate) fn relay(&self) -> Option<&RelayGate> {
        self.relay.as_ref()
    }

    /// The way to the ssh agent, if this is its path and the session has one.
    pub(crate) fn way_to_agent(&self, path: &[u8]) -> Option<&RelayGate> {
        let is_agent = self.has_agent && path == AGENT.as_bytes();
        self.relay.as_ref().filter(|_| is_agent)
    }

    /// The way to this port of this machine, if the policy or a lease opens it.
    pub(crate) fn way_to_machine(&self, port: u16) -> Option<RelayWay<'_>> {
        let port = NonZeroU16::new(port)?;
        let gate = self.relay.as_ref()?;
        let way = (gate, Purpose::Machine(port));
        let is_open = |ports: &[u16]| ports.contains(&port.get());
        let is_open = is_open(&self.machine_ports) || is_open(&self.leased_ports.borrow());
        is_open.then_some(way)
    }

    /// The way to the host for which this address stands. The gateway decides about the port.
    pub(crate) fn way_to_host(&self, address: Ipv4Addr, port: u16) -> Option<RelayWay<'_>> {
        let host = self.hosts.host(address)?;
        let purpose = Purpose::Host(host, NonZeroU16::new(port)?);
        Some((self.relay.as_ref()?, purpose))
    }

    pub(crate) fn pty(&self) -> Option<&PtyClient> {
        self.pty.as_ref()
    }

    /// Waits for the lock on creating and moving names: what was checked about a name then stays true until it is used.
    /// The cell's own program cannot change it meanwhile, as its calls are handled one after the other.
    pub(crate) fn lock_renames(&self) -> Result<RenameLock<'_>> {
        self.created.lock_renames()
    }

    /// The names that are protected where `real` is.
    pub(crate) fn names_at(&self, real: &Path) -> &Matcher {
        let leased = matches!(self.areas.of(real), Some((Area::Leased(_), _)));
        self.lease_names
            .as_ref()
            .filter(|_| leased)
            .unwrap_or(&self.names)
    }

    /// How a refusal at `real` is described; `None` if a program copies instead.
    pub(crate) fn cause(&self, kind: AttemptKind, real: &Path, rule: Rule) -> Option<Cause> {
        if rule.leads_to_a_copy() {
            return None;
        }
        // Whatever else is against it: there nothing may be changed.
        Some(if self.is_outside(kind, real) {
            Cause::Outside
        } else if rule.is_of_new_repositories() && kind == AttemptKind::Write {
            Cause::Repository
        } else {
            Cause::Protected
        })
    }

    /// Whether no such access is possible where `real` is, and no name protects it there.
    pub(crate) fn is_outside(&self, kind: AttemptKind, real: &Path) -> bool {
        match self.areas.of(real) {
            Some((_, Access::Write)) => false,
            Some((_, Access::Read)) => {
                kind != AttemptKind::Read && self.judge().protection(real).is_none()
            }
            None => true,
        }
    }

    /// Whether a file may grow to this size.
    pub(crate) fn fits(&self, size: i64) -> bool {
        self.file_size
            .is_none_or(|limit| u64::try_from(size).is_ok_and(|size| size <= limit))
    }

    /// The verdict on a change.
    ///
    /// # Errors
    /// The kernel's; `ENOENT` for a process that does not exist for the cell.
    pub(crate) fn verdict<'c>(&'c self, change: Change<'c, Handle<'c>>) -> Result<Verdict> {
        judge(self, change).map_err(errno)
    }

    /// For single questions about names.
    pub(crate) fn judge(&self) -> Judge<'_, Self> {
        Judge::of(self)
    }

    /// Records what a cell has created, if its name is protected.
    pub(crate) fn remember(&self, real: &Path, object: impl AsFd) -> Result<()> {
        if self.judge().is_recorded_at(real) {
            self.created.add(object)
        } else {
            Ok(())
        }
    }

    /// Records what was moved, if its name is protected, and only once: there is room for so many files only.
    pub(crate) fn remember_moved(&self, real: &Path, object: &OwnedFd) -> Result<()> {
        if self.judge().is_recorded_at(real) && !self.created.has(object) {
            return self.created.add(object);
        }
        Ok(())
    }

    /// Records a directory that was just made: one that may become a repository, and in a zone any other.
    pub(crate) fn remember_directory(&self, real: &Path, made: impl AsFd) -> Result<()> {
        if self.judge().may_be_git(real) {
            self.created.add(&made)?;
        }
        if self.judge().is_in_zone(real) {
            self.directories.add(made);
        }
        Ok(())
    }

    /// Records a name that is about to be made, if it may become a repository.
    pub(crate) fn remember_repository(&self, real: &Path) -> Result<()> {
        if self.judge().may_become_repository(real) {
            self.made_repositories.add(real)
        } else {
            Ok(())
        }
    }
}
