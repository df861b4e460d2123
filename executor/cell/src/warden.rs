//! The warden: PID 1 of the session's namespaces if it has any. It applies the layers that all
//! cells share, makes cells on request, runs nothing else, and parses nothing but
//! the gateway's requests for published ports.

use crate::cell::{self, SessionRules};
use crate::children;
use crate::leased;
use crate::published::{self, Heard, PublishedPorts};
use broker_protocol::Layer;
use executor_layers::capabilities;
use executor_layers::descriptors;
use executor_layers::landlock::LandlockRules;
use executor_layers::mounts;
use executor_layers::namespaces;
use executor_layers::no_new_privileges::{self, NoNewPrivileges};
use executor_layers::seccomp;
use executor_spec::error::{At, SetupError, SetupPart};
use executor_spec::host_pool;
use executor_spec::known_directories::DirectoryMemory;
use executor_spec::relay::{CellNetwork, RelayGate, RelaySockets};
use executor_spec::sandbox::SandboxSpec;
use executor_spec::undo_directory;
use executor_spec::warden_message::{READY, RELAY, WardenMessage, WardenRequest};
use executor_supervisor::AccessRules;
use executor_supervisor::ipc_objects::{IpcRecord, IpcRecords};
use executor_supervisor::loopback_line::{LoopbackLine, LoopbackSwitch};
use executor_supervisor::pty::PtyMaker;
use executor_sys::idle::IdleTrim;
use executor_sys::message;
use executor_sys::process::{self, ChildState, Fork};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::exit;
use std::time::{Duration, Instant};

/// How long cells may take to kill their processes when the broker is gone.
const LAST_SWEEP: Duration = Duration::from_secs(1);
/// How long what the warden kills may take to end, where no PID namespace ends it.
const LAST_KILL: Duration = Duration::from_secs(10);

/// Runs the warden in its own process.
pub fn run_warden(spec: &SandboxSpec, socket: &OwnedFd, uid: Uid, gid: Gid) -> ! {
    // Done once, for every process of the session.
    process::default_other_signals();
    let mut records = IpcRecords::default();
    let served = serve(spec, socket, (uid, gid), &mut records);
    if !spec.has(Layer::PidNamespace) {
        children::end_by_themselves(Instant::now() + LAST_SWEEP);
        children::end_all(Instant::now() + LAST_KILL);
        records.end_all();
    }
    spec.scratch.remove();
    if let Err(error) = &served {
        // If the broker is gone too, there is nobody to notify.
        let _ = message::send(socket.as_fd(), &WardenMessage::encode_failure(error), &[]);
    }
    exit(i32::from(served.is_err()))
}

fn serve(
    spec: &SandboxSpec,
    socket: &OwnedFd,
    (uid, gid): (Uid, Gid),
    records: &mut IpcRecords,
) -> Result<(), SetupError> {
    let directories = spec
        .found()
        .directories
        .iter()
        .flat_map(DirectoryMemory::descriptors);
    let memory = spec
        .found()
        .created
        .iter()
        .chain(directories)
        .map(AsFd::as_fd);
    let kept: Vec<_> = [socket.as_fd()].into_iter().chain(memory).collect();
    descriptors::keep_only(&kept, spec.ablation.descriptors())?;
    let (nnp, for_worker) = set_up(spec, uid, gid)?;
    let rulesets = LandlockRules::open(spec)?.rulesets(spec)?;
    let shared = !spec.has(Layer::MountNamespace);
    let made = shared.then(PtyMaker::new).transpose();
    let (ptys, client) = made
        .at(SetupPart::Processes, || "socketpair".into())?
        .unzip();
    let (gate, published) = open_relay(spec, socket)?.unzip();
    let access = spec
        .is_supervised()
        .then(|| AccessRules::new(spec, client, gate))
        .transpose()?;
    if spec.has(Layer::Seccomp) {
        seccomp::confine_session(spec.tier, nnp)?;
    }
    let child_ends = children::end_signals()?;
    send(
        socket,
        &[READY],
        &for_worker.iter().map(AsFd::as_fd).collect::<Vec<_>>(),
    )?;
    drop(for_worker);
    let rules = SessionRules { rulesets, access };
    let mut warden = WardenLoop {
        spec,
        rules,
        ptys,
        loopback: (spec.is_supervised() && !spec.has(Layer::NetworkNamespace))
            .then(LoopbackSwitch::default),
        published: published.map(|line| {
            let ports = spec.policy.ports.publish.iter();
            PublishedPorts::new(line, ports.map(|port| port.cell).collect())
        }),
        records,
        nnp,
        socket,
        child_ends,
        cells: Vec::new(),
    };
    warden.serve()
}

/// Puts up the layers that are the same for all cells. Returns descriptors by which the file worker enters the session, the undo
/// directory's last.
fn set_up(
    spec: &SandboxSpec,
    uid: Uid,
    gid: Gid,
) -> Result<(NoNewPrivileges, Vec<OwnedFd>), SetupError> {
    let step = |step: &'static str| move || step.to_owned();
    prctl::set_name(c"lazaret-warden").at(SetupPart::Processes, step("name the warden"))?;
    let nnp = no_new_privileges::put_up(spec.layers)?;
    if spec.has(Layer::PidNamespace) {
        // The broker's death kills the warden, and the death of the warden, as PID 1, everything else.
        prctl::set_pdeathsig(Signal::SIGKILL).at(SetupPart::Processes, step("PR_SET_PDEATHSIG"))?;
    } else {
        // Processes that outlive their cell's first process are reparented to the warden, which kills them.
        prctl::set_child_subreaper(true)
            .at(SetupPart::Processes, step("PR_SET_CHILD_SUBREAPER"))?;
        process::resume_with_parents_death().at(SetupPart::Processes, step("PR_SET_PDEATHSIG"))?;
    }
    let more = (!spec.hosts.is_empty()).then_some(host_pool::OWN);
    namespaces::set_up(spec.layers, (uid, gid), more)?;
    let undo = if spec.has(Layer::MountNamespace) {
        mounts::build(spec)?
    } else {
        namespaces::close_user_namespaces(spec.layers)?;
        namespaces::bound_counters(spec.layers)?;
        undo_directory::open(&spec.central)
    };
    if spec.has(Layer::Capabilities) {
        capabilities::drop_bounding()?;
    }
    prctl::set_dumpable(false).at(Layer::Capabilities, step("PR_SET_DUMPABLE"))?;
    let mut for_worker = namespaces::open_own(spec.layers)?;
    for_worker.extend(undo);
    Ok((nnp, for_worker))
}

/// Makes the sockets of the session's relay, if it has one, and sends the gateway's to the broker.
fn open_relay(
    spec: &SandboxSpec,
    socket: &OwnedFd,
) -> Result<Option<(RelayGate, OwnedFd)>, SetupError> {
    if !spec.policy.has_gateway() {
        return Ok(None);
    }
    let network = match spec.has(Layer::NetworkNamespace) {
        true => CellNetwork::Own,
        false => CellNetwork::OfMachine,
    };
    let sockets = RelaySockets::open(network);
    let sockets = sockets.at(SetupPart::Processes, || "make the relay's sockets".into())?;
    send(socket, &[RELAY], &sockets.for_gateway())?;
    Ok(Some(sockets.into_gate(network)))
}

fn send(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd]) -> Result<(), SetupError> {
    message::send_waiting(socket.as_fd(), bytes, fds)
        .at(SetupPart::Processes, || "report to the broker".into())
}

struct WardenLoop<'a> {
    spec: &'a SandboxSpec,
    rules: SessionRules,
    /// Makes the terminals of programs, if cells use those of the machine.
    ptys: Option<PtyMaker>,
    /// Connects cells to each other, if they have no network namespace.
    loopback: Option<LoopbackSwitch>,
    /// Where the gateway asks for connections to published ports, if the session has one.
    published: Option<PublishedPorts>,
    /// System V objects that cells have made, if these are the machine's.
    records: &'a mut IpcRecords,
    nnp: NoNewPrivileges,
    socket: &'a OwnedFd,
    child_ends: SignalFd,
    /// First processes that are alive.
    cells: Vec<i32>,
}

impl WardenLoop<'_> {
    /// Serves requests until the broker is gone.
    fn serve(&mut self) -> Result<(), SetupError> {
        let step = || "wait for orders".to_owned();
        let mut idle = IdleTrim::default();
        loop {
            let ptys = self
                .ptys
                .as_ref()
                .map_or(self.socket.as_fd(), |ptys| ptys.socket.as_fd());
            let published = self.published.as_ref();
            let published = published.map_or(self.socket.as_fd(), PublishedPorts::descriptor);
            let fds = [
                self.socket.as_fd(),
                self.child_ends.as_fd(),
                ptys,
                published,
            ];
            let lines = self.loopback.iter().flat_map(LoopbackSwitch::descriptors);
            let fds = fds.into_iter().chain(lines);
            let mut ready: Vec<PollFd> = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            match idle.poll(&mut ready, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                result => result.at(SetupPart::Processes, step)?,
            };
            let is_ready = |fd: &PollFd| fd.any() == Some(true);
            let [requested, ended, asked, led_in] = [0, 1, 2, 3].map(|at| is_ready(&ready[at]));
            if ready[4..].iter().any(is_ready) {
                self.loopback.iter_mut().for_each(LoopbackSwitch::serve);
            }
            if ended {
                self.reap();
            }
            if asked && let Some(ptys) = &mut self.ptys {
                ptys.answer();
            }
            if led_in {
                self.lead_in();
            }
            if requested && !self.obey()? {
                return Ok(());
            }
        }
    }

    /// Makes one connection to a published port, or has the cell's supervisor make it.
    fn lead_in(&mut self) {
        match self.published.as_ref().map(PublishedPorts::next) {
            Some(Heard::Connection(request, fds)) => match &self.loopback {
                Some(switch) => switch.forward(request, &fds),
                None => published::connect(request, &fds[0]),
            },
            Some(Heard::Gone) => self.published = None,
            Some(Heard::Nothing) | None => {}
        }
    }

    /// Carries out one request; false when the broker is gone.
    fn obey(&mut self) -> Result<bool, SetupError> {
        let mut request = [0];
        let received = message::receive(self.socket.as_fd(), &mut request);
        match (received, request) {
            (Ok((1, _)), [b'c']) => self.make_cell(WardenRequest::Cell, Vec::new())?,
            (Ok((1, fds)), [b'l']) => self.make_cell(WardenRequest::LeasedCell, fds)?,
            (Ok((1, _)), [b't']) => self.make_terminal()?,
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Makes a cell; `leases` are the descriptors for its leases, if it has any.
    fn make_cell(&mut self, kind: WardenRequest, leases: Vec<OwnedFd>) -> Result<(), SetupError> {
        let (theirs, ours) = message::pair().at(SetupPart::Processes, || "socketpair".into())?;
        let line = self.loopback.is_some().then(message::pair).transpose();
        let line = line.at(SetupPart::Processes, || "socketpair".into())?;
        let (their_line, our_line) = line.unzip();
        let record = (!self.spec.has(Layer::IpcNamespace)).then(IpcRecord::new);
        let record = record
            .transpose()
            .at(SetupPart::Processes, || "memfd_create".into())?;
        let flags = namespaces::cell_flags(self.spec.layers);
        match process::fork(flags).at(SetupPart::Processes, || "fork".into())? {
            Fork::Parent(child) => {
                self.cells.push(child.pid);
                for (switch, line) in self.loopback.iter_mut().zip(their_line) {
                    switch.add(child.pid, line);
                }
                if let Some(record) = record {
                    self.records.add(child.pid, record);
                }
                let fds = [theirs.as_fd(), child.pidfd.as_fd()];
                send(self.socket, &[kind as u8], &fds)
            }
            Fork::Child => {
                let leased = match kind {
                    WardenRequest::LeasedCell => {
                        leased::receive(self.spec, &mut self.rules, leases)
                    }
                    WardenRequest::Cell | WardenRequest::Terminal => Ok(()),
                };
                let line = our_line.map(LoopbackLine::new);
                let rules = leased.map(|()| &self.rules);
                cell::run(self.spec, rules, &ours, line.as_ref(), record, self.nnp)
            }
        }
    }

    /// Makes a terminal of the devpts instance that this process sees: the session's own, if there is one.
    fn make_terminal(&self) -> Result<(), SetupError> {
        let step = || "make a terminal".to_owned();
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).at(SetupPart::Processes, step)?;
        grantpt(&master).at(SetupPart::Processes, step)?;
        unlockpt(&master).at(SetupPart::Processes, step)?;
        let name = ptsname_r(&master).at(SetupPart::Processes, step)?;
        let slave = open(name.as_str(), flags, Mode::empty()).at(SetupPart::Processes, step)?;
        send(
            self.socket,
            &[WardenRequest::Terminal as u8],
            &[master.as_fd(), slave.as_fd()],
        )
    }

    /// Reaps dead children. Without a PID namespace, an unknown living child was left by a killed cell, and is killed. It is not waited
    /// for: the kernel reports its end, after its own children have become children of this process.
    fn reap(&mut self) {
        while let Ok(Some(_)) = self.child_ends.read_signal() {}
        while let Ok(Some(change)) = process::reap_any() {
            children::detach(&change);
            if let ChildState::Exited(_) | ChildState::Killed(_) = change.state {
                self.cells.retain(|cell| *cell != change.pid);
                let switch = self.loopback.iter_mut();
                switch.for_each(|switch| switch.remove(change.pid));
                self.records.end(change.pid);
            }
        }
        if !self.spec.has(Layer::PidNamespace) {
            children::kill_unknown(&self.cells);
        }
    }
}
