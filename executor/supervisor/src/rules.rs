//! What a supervised call may touch: areas, protected names, and the processes that exist for the cell.

use crate::areas::{Area, Areas};
use crate::entries::each_entry;
use crate::link_names::LinkNames;
use crate::loopback::draw_addresses;
use crate::made_directories::MadeDirectories;
use crate::object::{is, real};
use crate::pty::PtyClient;
use crate::socket_rules::SocketRules;
use crate::written_links::WrittenLinks;
use broker_protocol::{AttemptKind, Layer};
use executor_spec::caller_access::CallerAccess;
use executor_spec::created::{CreatedFiles, RenameLock};
use executor_spec::error::{At, SetupError};
use executor_spec::known_directories::{DirectoryMemory, KnownDirectories};
use executor_spec::leased_cell::ZoneLease;
use executor_spec::made_repositories::MadeRepositories;
use executor_spec::protected_objects::ProtectedObjects;
use executor_spec::readable_secret::{ReadableSecret, Seen};
use executor_spec::refusals::Cause;
use executor_spec::relay::RelayGate;
use executor_spec::sandbox::SandboxSpec;
use nix::Result;
use nix::sys::stat::FileStat;
use policies::Access;
use policies_guard::{Matcher, Protection, Rule, Verdict, WhenNew};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What the cells of a session may touch.
pub struct AccessRules {
    names: Matcher,
    /// The names protected in leased paths, if there are any.
    lease_names: Option<Matcher>,
    pub(crate) areas: Areas,
    /// The objects that were protected when the session opened, whatever their names.
    pub(crate) objects: ProtectedObjects,
    /// Files of secrets that commands can read.
    pub(crate) secrets: Vec<ReadableSecret>,
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
    /// The ports of this machine that they reach by it.
    machine_ports: Vec<u16>,
    /// Whether new names are refused, and looked at again after a call: always, but in a test build.
    enforces_names: bool,
    pub(crate) takes_misplaced: bool,
    /// When the session opened.
    opened: SystemTime,
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
            machine_ports: spec.policy.ports.connect.clone(),
            enforces_names: spec.ablation.enforces_names(),
            takes_misplaced: spec.ablation.takes_misplaced(),
            opened: SystemTime::now(),
        })
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
                .for_each(|secret| secret.seen = Seen::Real);
        }
        self.zone_leases = files;
    }

    /// Whether a lease lets this cell change the content of a file that names close: that file, at the path that was granted, and only
    /// as long as all names that protect it may be opened.
    fn is_leased(&self, real: &Path, stat: &FileStat) -> bool {
        let is_it = |file: &ZoneLease| {
            file.access == Access::Write
                && file.path == real
                && file.id == (stat.st_dev, stat.st_ino)
                && stat.st_nlink == 1
        };
        let opens = |(_, path): &(PathBuf, Vec<u8>)| {
            let names = self.names(real);
            names.protection(path).is_none() || names.opens(path)
        };
        self.zone_leases.iter().any(is_it) && self.protected_as(real).iter().all(opens)
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
        self.pty
            .iter()
            .map(PtyClient::descriptor)
            .chain(relay)
            .chain(common)
    }

    /// What comes of a verdict on a new name: test builds can let a refused one pass.
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

    pub(crate) fn relay(&self) -> Option<&RelayGate> {
        self.relay.as_ref()
    }

    /// The way to this port of this machine, if the policy opens it.
    pub(crate) fn way_to_machine(&self, port: u16) -> Option<(&RelayGate, NonZeroU16)> {
        let port = NonZeroU16::new(port)?;
        let gate = self.relay.as_ref()?;
        self.machine_ports
            .contains(&port.get())
            .then_some((gate, port))
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
    pub(crate) fn names(&self, real: &Path) -> &Matcher {
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
        } else if rule == Rule::Repository && kind == AttemptKind::Write {
            Cause::Repository
        } else {
            Cause::Protected
        })
    }

    /// Whether no such access is possible where `real` is, and no name protects it there.
    pub(crate) fn is_outside(&self, kind: AttemptKind, real: &Path) -> bool {
        match self.areas.of(real) {
            Some((_, Access::Write)) => false,
            Some((_, Access::Read)) => kind != AttemptKind::Read && self.protection(real).is_none(),
            None => true,
        }
    }

    /// Whether a file may grow to this size.
    pub(crate) fn fits(&self, size: i64) -> bool {
        self.file_size
            .is_none_or(|limit| u64::try_from(size).is_ok_and(|size| size <= limit))
    }

    /// May this file be opened, to be changed or only read?
    ///
    /// # Errors
    /// `ENOENT` for a process that does not exist for the cell; the kernel's.
    pub(crate) fn may_open(
        &self,
        object: &OwnedFd,
        real: &Path,
        stat: &FileStat,
        write: bool,
    ) -> Result<Verdict> {
        self.may_access(object, real, stat, write, WhenNew::Open)
    }

    /// `own`: up to which rule a protected name does not close a file that the session has created.
    fn may_access(
        &self,
        object: &OwnedFd,
        real: &Path,
        stat: &FileStat,
        write: bool,
        own: WhenNew,
    ) -> Result<Verdict> {
        self.check_process(real)?;
        let reach = self.areas.check_reach(real, stat, write);
        reach.and_try(|| self.may_access_here(object, real, stat, write, own))
    }

    /// The same, where the cell may see and change files.
    fn may_access_here(
        &self,
        object: &OwnedFd,
        real: &Path,
        stat: &FileStat,
        write: bool,
        own: WhenNew,
    ) -> Result<Verdict> {
        let closes = |protection: Option<Protection>| match protection {
            Some(Protection::All) => true,
            Some(Protection::Write) => write,
            None => false,
        };
        let keeps = || !is(stat, libc::S_IFDIR) && self.keeps_repository(real);
        let is_leased = write && self.is_leased(real, stat);
        let protected = || closes(self.protection_of_object(object, stat)) && !is_leased;
        let rule = if protected() || closes(self.objects.protection_of_place(real)) {
            Rule::Object
        } else if write && self.redirects(real, stat) {
            self.rule_of_redirect(real)
        } else if write && keeps() {
            Rule::KeptPart
        } else if closes(self.protection(real)) && !is_leased && !self.is_own(object, own)? {
            Rule::Name
        } else if closes(self.transit(real)) {
            return Ok(self.may_divert(real, object));
        } else {
            return Ok(Verdict::Allow);
        };
        Ok(Verdict::Refuse(rule))
    }

    /// Whether this is a file in a place where names below are protected: a file `.git` names the directory that is the repository.
    fn redirects(&self, real: &Path, stat: &FileStat) -> bool {
        is(stat, libc::S_IFREG) && self.leads_to_protected(real)
    }

    /// May this name be created, replaced, moved or removed?
    pub(crate) fn may_change(&self, real: &Path) -> Verdict {
        match self.areas.of(real) {
            Some((_, Access::Write)) => self.may_use(real),
            _ if self.areas.own_root => self.may_use(real),
            _ => Verdict::Refuse(Rule::Outside),
        }
    }

    /// Is this name unprotected, or has a cell of this session created it and may use it, or may one create it?
    fn may_use(&self, real: &Path) -> Verdict {
        let created = |name: &Path| self.created.has_at(name) || self.created.has_room(name);
        let is_closed =
            || self.protection(real).is_some() && !self.all_created(real, WhenNew::Open, created);
        self.check_place(real)
            .and(|| Verdict::refuse_if(is_closed(), Rule::Name))
    }

    /// May an empty directory be created with this name? No program acts on one, so a program that
    /// unpacks a tree loses only the files; but git fails on a directory where it expects a file.
    pub(crate) fn may_make(&self, real: &Path) -> Verdict {
        let created = |name: &Path| self.created.has_at(name) || self.created.has_room(name);
        let name = || match self.areas.of(real) {
            Some((_, Access::Write)) if self.all_created(real, WhenNew::Closed, created) => {
                Verdict::Allow
            }
            _ => self.may_change(real),
        };
        self.check_place(real)
            .and(|| Verdict::refuse_if(self.is_a_file_to_git(real), Rule::Name))
            .and(name)
    }

    /// May this name be removed? What a cell has created may be, even if git created it and it is closed.
    pub(crate) fn may_remove(&self, real: &Path) -> Verdict {
        self.check_place(real)
            .and(|| Verdict::refuse_if(self.keeps_repository(real), Rule::KeptPart))
            .and(|| self.may_remove_name(real))
    }

    fn may_remove_name(&self, real: &Path) -> Verdict {
        let writable = matches!(self.areas.of(real), Some((_, Access::Write)));
        // For most names this is all there is to ask.
        if (writable || self.areas.own_root) && self.protection(real).is_none() {
            return Verdict::Allow;
        }
        let created = || self.all_created(real, WhenNew::Closed, |name| self.created.has_at(name));
        if writable && (created() || self.is_loose_in_packages(real)) {
            return Verdict::Allow;
        }
        self.may_change(real)
    }

    /// Whether only names protect it that commands may remove where packages are installed.
    fn is_loose_in_packages(&self, real: &Path) -> bool {
        self.areas.zone_of_package(real).is_some()
            && self.protection(real) == Some(Protection::Write)
            && !self.is_closed_when_new(real)
    }

    /// What was protected by its place when the session opened was not created by a cell.
    fn check_place(&self, real: &Path) -> Verdict {
        let is_protected = self.objects.protection_of_place(real).is_some();
        Verdict::refuse_if(is_protected, Rule::Object)
    }

    /// Whether this file, which has a protected name, was created by the session, under names that are closed when new at most as
    /// far as `max`.
    fn is_own(&self, object: &OwnedFd, max: WhenNew) -> Result<bool> {
        let _lock = self.lock_renames()?;
        Ok(self.all_created(&real(object)?, max, |_| self.created.has(object)))
    }

    /// Whether each protected name in a path is closed when new at most as far as `max`, and was created by a
    /// cell of this session. For the path's own name, `last` decides that. Called under the lock.
    fn all_created(&self, real: &Path, max: WhenNew, last: impl Fn(&Path) -> bool) -> bool {
        self.protected_as(real).iter().all(|(named, path)| {
            let total = path.split(|byte| *byte == b'/').count();
            self.names(real)
                .closings(path)
                .into_iter()
                .all(|(count, new)| {
                    let name = total
                        .checked_sub(count)
                        .and_then(|above| named.ancestors().nth(above));
                    let made = |name| {
                        if count == total {
                            last(name)
                        } else {
                            self.created.has_at(name)
                        }
                    };
                    name.is_some_and(|name| self.is_within(new, name, max) && made(name))
                })
        })
    }

    /// Whether a protected name that says `new` is closed when new at most as far as `max`.
    fn is_within(&self, new: WhenNew, name: &Path, max: WhenNew) -> bool {
        match new {
            WhenNew::Open | WhenNew::Closed => new <= max,
            WhenNew::Harmless => new <= max || self.is_nobodys_place(name),
        }
    }

    /// Whether nobody has a habit of starting programs where `name` is: in packages, or in a directory that has come about since the
    /// session opened.
    fn is_nobodys_place(&self, name: &Path) -> bool {
        let is_new = |directory: &Path| {
            let born = directory
                .symlink_metadata()
                .and_then(|metadata| metadata.created());
            born.is_ok_and(|born| born > self.opened)
        };
        self.areas.zone_of_package(name).is_some() || name.parent().is_some_and(is_new)
    }

    /// Whether the content of a new file decides if it may have this name.
    pub(crate) fn is_judged(&self, real: &Path) -> bool {
        let writable = self
            .areas
            .of(real)
            .is_some_and(|(_, access)| access == Access::Write);
        let paths = self.protected_as(real);
        let strongest = |path: &[u8]| {
            self.names(real)
                .closings(path)
                .iter()
                .map(|(_, new)| *new)
                .max()
        };
        let ends = paths.iter().all(|(_, path)| {
            self.names(real).closings(path).is_empty() || self.ends_a_rule(real, path)
        });
        writable
            && ends
            && self.objects.protection_of_place(real).is_none()
            && paths.iter().filter_map(|(_, path)| strongest(path)).max() == Some(WhenNew::Harmless)
            && !self.is_nobodys_place(real)
    }

    /// Records what a cell has created, if its name is protected.
    pub(crate) fn remember(&self, real: &Path, object: impl AsFd) -> Result<()> {
        if self.is_recorded_at(real) {
            self.created.add(object)
        } else {
            Ok(())
        }
    }

    /// Records what was moved, if its name is protected, and only once: there is room for so many files only.
    pub(crate) fn remember_moved(&self, real: &Path, object: &OwnedFd) -> Result<()> {
        if self.is_recorded_at(real) && !self.created.has(object) {
            return self.created.add(object);
        }
        Ok(())
    }

    /// Whether what a cell has created is recorded under this name.
    fn is_recorded_at(&self, real: &Path) -> bool {
        let protected = self
            .protected_as(real)
            .iter()
            .any(|(_, path)| self.ends_a_rule(real, path));
        protected || self.transit(real).is_some()
    }

    /// May an object of this kind (`S_IF*`), other than an empty directory created here, have this name?
    ///
    /// Under protected names only files and directories are created. Neither a directory nor a link may come
    /// where names below are protected by their place: so no rename changes what is protected below a
    /// directory, and what was checked about a name in an open directory stays true.
    pub(crate) fn may_have(&self, real: &Path, kind: libc::mode_t) -> Verdict {
        let protects = || match kind {
            libc::S_IFDIR => self.reaches_below(real) || self.written_links.lead_through(real),
            libc::S_IFLNK => {
                self.reaches_below(real)
                    || self.written_links.lead_through(real)
                    || self.protection(real).is_some()
            }
            libc::S_IFREG => self.leads_to_protected(real),
            _ => {
                self.leads_to_protected(real)
                    || self.protection(real).is_some()
                    || self.is_read_by_git(real)
            }
        };
        self.may_change(real)
            .and(|| Verdict::refuse_if(protects(), Rule::Name))
    }

    /// May the directory `name` of `parent` be moved away? It may contain no name that is protected
    /// there, nor be the parent of what is protected by its path.
    ///
    /// # Errors
    /// Those of [`each_entry`].
    pub(crate) fn may_move(&self, parent: &OwnedFd, name: &OsStr, from: &Path) -> Result<Verdict> {
        if self.areas.lie_below(from) || self.objects.has_place_below(from) {
            return Ok(Verdict::Refuse(Rule::Object));
        }
        // In both tiers: what the host has created or replaced since the session opened is no mount.
        each_entry(
            parent,
            name,
            |_, path| Ok(self.may_remove(&from.join(path))),
        )
    }

    /// May this file get another name by a link?
    pub(crate) fn may_link(&self, object: &OwnedFd, real: &Path, stat: &FileStat) -> Verdict {
        let file = || {
            if self.protection_of_object(object, stat).is_some() {
                Verdict::Refuse(Rule::Object)
            } else if self.redirects(real, stat) {
                Verdict::Refuse(self.rule_of_redirect(real))
            } else if self.keeps_repository(real) {
                Verdict::Refuse(Rule::KeptPart)
            } else {
                // In the next session, its other name would be closed too.
                Verdict::refuse_if(self.protection(real).is_some(), Rule::SecondName)
            }
        };
        self.may_use(real)
            .and(|| self.may_divert(real, object))
            .and(file)
    }

    /// May a file with this state get a protected name? If it has another name as well, that would become closed too,
    /// and may be the user's source. To the caller, protected names look like a separate file system, so it copies.
    pub(crate) fn may_protect(
        &self,
        real: &Path,
        stat: &FileStat,
        names_max: libc::nlink_t,
    ) -> Verdict {
        let shared = is(stat, libc::S_IFREG) && stat.st_nlink > names_max;
        Verdict::refuse_if(shared && self.protection(real).is_some(), Rule::SecondName)
    }

    /// May the metadata of this file be changed? That of what the session has created, even under a name that is closed when new:
    /// `git init` tries a mode on the `config` that it has made, and takes a refusal for a file system without modes.
    ///
    /// # Errors
    /// Those of [`may_open`](Self::may_open).
    pub(crate) fn may_mark(
        &self,
        object: &OwnedFd,
        real: &Path,
        stat: &FileStat,
    ) -> Result<Verdict> {
        let access = self.may_access(object, real, stat, true, WhenNew::Closed)?;
        let is_writable = || matches!(self.areas.of(real), Some((_, Access::Write)));
        Ok(access.and(|| Verdict::refuse_if(!is_writable(), Rule::Outside)))
    }
}
