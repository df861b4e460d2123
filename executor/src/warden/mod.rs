//! The warden: one a session, PID 1 of its namespaces. It makes cells and the file worker, and runs nothing else.
//!
//! It comes from [`start`], a fork of the broker; orders come down a socket, one byte each; what it makes goes up as
//! descriptors. It believes the broker. It holds capabilities only inside its own user namespace, under the session's
//! filter, and parses nothing.

pub mod cell;
pub mod report;
pub mod supervisor;
pub mod terminals;
pub mod worker;
mod descendants;
mod standing;

use crate::cell::plan::Walls;
use crate::cell::{
    At, LayerError, NoNewPrivileges, capabilities, descriptors, landlock, mounts, namespaces, seccomp,
};
use crate::rest::Rest;
use crate::sys::{self, Child, Fork, News, State};
use crate::work::undo::store;
use broker_protocol::Layer;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Gid, Uid, getgid, getuid};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::exit;
use std::time::{Duration, Instant};
use supervisor::TryOut;
use terminals::Terminals;

/// What the broker may ask of the warden, one byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ask {
    /// A cell: its socket and its pidfd come back.
    Cell = b'c',
    /// The file worker: its socket and its pidfd come back.
    Worker = b'w',
    /// A pseudo-terminal: both of its ends come back.
    Terminal = b't',
}

/// What comes up from the warden: a tag, and two descriptors or a report.
#[derive(Debug)]
pub enum Told {
    /// The walls of the session stand.
    Ready,
    /// What was asked for.
    Made(Ask, OwnedFd, OwnedFd),
    /// The machine lets no program be supervised, by this error number. The session is over.
    Unsupervised(i32),
    /// A layer could not be put up. The session is over.
    Failed {
        /// Which layer.
        layer: Layer,
        /// The kernel's error.
        errno: i32,
        /// What was tried, for people. Bounded, and shown only escaped.
        step: String,
    },
}

const READY: u8 = b'r';
const FAILED: u8 = b'f';
const UNSUPERVISED: u8 = b'u';
/// Bytes of the longest message from a warden.
const TOLD_MAX: usize = 512;

/// The broker's handle on a warden.
#[derive(Debug)]
pub struct Warden {
    /// Orders go down here; what is made comes up. One message each.
    pub socket: OwnedFd,
    /// The process.
    pub child: Child,
    /// Orders that are not carried out yet.
    owed: u32,
    /// Since when the oldest of them could have been.
    owed_since: Instant,
}

/// How long a warden may take for an order, which is some milliseconds of work: one that does not answer was stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the warden of a session. It reports [`Told::Ready`] or [`Told::Failed`] by itself.
pub fn start(walls: &Walls) -> io::Result<Warden> {
    let (ours, theirs) = pair()?;
    let (uid, gid) = (getuid(), getgid());
    match sys::fork(namespaces::session(walls.layers))? {
        Fork::Parent(child) => Ok(Warden { socket: ours, child, owed: 0, owed_since: Instant::now() }),
        Fork::Child => {
            // Once, for all that the session will start.
            sys::default_other_signals();
            if let Err(error) = run(walls, &theirs, uid, gid) {
                walls.scratch.remove();
                // The broker may be gone already; there is nobody else to tell.
                let _ = sys::send(theirs.as_fd(), &Told::encode_failure(&error), &[]);
            }
            exit(1)
        }
    }
}

/// A pair of connected sockets that keep messages apart.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

impl Warden {
    /// Sends an order.
    pub fn ask(&mut self, ask: Ask) -> io::Result<()> {
        if self.owed == 0 {
            self.owed_since = Instant::now();
        }
        self.owed += 1;
        sys::send(self.socket.as_fd(), &[ask as u8], &[])
    }

    /// When an order that is not carried out yet is late.
    pub fn deadline(&self) -> Option<Instant> {
        (self.owed > 0).then(|| self.owed_since + PATIENCE)
    }

    /// Receives one message.
    ///
    /// # Errors
    /// `WouldBlock` if none has come, `UnexpectedEof` if the warden is gone, `InvalidData` if it is not one of ours.
    pub fn hear(&mut self, wait: bool) -> io::Result<Told> {
        let mut buffer = [0; TOLD_MAX];
        let flags = if wait { 0 } else { libc::MSG_DONTWAIT };
        let (length, fds) = sys::receive(self.socket.as_fd(), &mut buffer, flags)?;
        let told = Told::decode(&buffer[..length], fds)?;
        if let Told::Made(..) = told {
            self.owed = self.owed.saturating_sub(1);
            self.owed_since = Instant::now();
        }
        Ok(told)
    }
}

impl Told {
    fn encode_failure(error: &LayerError) -> Vec<u8> {
        let mut bytes = vec![FAILED, error.layer as u8];
        bytes.extend_from_slice(&error.source.raw_os_error().unwrap_or(0).to_le_bytes());
        let text = match error.source.raw_os_error() {
            Some(_) => error.step.clone(),
            None => format!("{}: {}", error.step, error.source),
        };
        bytes.extend(text.bytes().take(TOLD_MAX - bytes.len()));
        bytes
    }

    fn decode(bytes: &[u8], fds: Vec<OwnedFd>) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let made = |ask| -> io::Result<Self> {
            let [first, second] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| invalid())?;
            Ok(Told::Made(ask, first, second))
        };
        match bytes {
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
            [READY] => Ok(Told::Ready),
            [b'c'] => made(Ask::Cell),
            [b'w'] => made(Ask::Worker),
            [b't'] => made(Ask::Terminal),
            [UNSUPERVISED, e0, e1, e2, e3] => {
                Ok(Told::Unsupervised(i32::from_le_bytes([*e0, *e1, *e2, *e3])))
            }
            [FAILED, layer, e0, e1, e2, e3, step @ ..] => Ok(Told::Failed {
                layer: *Layer::ALL.get(usize::from(*layer)).ok_or_else(invalid)?,
                errno: i32::from_le_bytes([*e0, *e1, *e2, *e3]),
                step: String::from_utf8_lossy(step).into_owned(),
            }),
            _ => Err(invalid()),
        }
    }
}

/// The warden's life, in its own process.
fn run(walls: &Walls, socket: &OwnedFd, uid: Uid, gid: Gid) -> Result<(), LayerError> {
    descriptors::keep_only(&[socket.as_fd()], walls.ablation.descriptors())?;
    let (nnp, own, tried) = settle(walls, uid, gid)?;
    let rulesets = landlock::Rules::open(walls)?.rulesets(walls)?;
    let shared = !walls.has(Layer::MountNamespace);
    let made = shared.then(Terminals::new).transpose();
    let (terminals, asker) = made.at(Layer::ProtectedNames, || "socketpair".into())?.unzip();
    let supervision = walls.is_supervised().then(|| supervisor::Rules::new(walls, asker)).transpose()?;
    if walls.has(Layer::Seccomp) {
        seccomp::confine_session(walls.tier, nnp)?;
    }
    if let Some(tried) = tried
        && let Err(refusal) = tried.finish()
    {
        let errno = refusal.raw_os_error().unwrap_or(libc::EPERM).to_le_bytes();
        tell(socket, &[&[UNSUPERVISED], &errno[..]].concat(), &[])?;
        exit(1)
    }
    let signals = child_signals()?;
    tell(socket, &[READY], &[])?;
    let children = Vec::new();
    let mut keeper = Keeper { walls, rulesets, supervision, terminals, own, nnp, socket, signals, children };
    keeper.serve()?;
    walls.scratch.remove();
    exit(0)
}

/// A warden's place before it is closed: what only the worker writes, and whether cells can be supervised.
type Settled = (NoNewPrivileges, Option<OwnedFd>, Option<TryOut>);

/// Puts up what is the same for all cells. Opens what only the worker writes, before its name is pinned.
fn settle(walls: &Walls, uid: Uid, gid: Gid) -> Result<Settled, LayerError> {
    let process = |step: &'static str| move || step.to_owned();
    prctl::set_name(c"lazaret-warden").at(Layer::Rlimits, process("name the warden"))?;
    let nnp = crate::cell::no_new_privileges(walls.layers)?;
    if walls.has(Layer::PidNamespace) {
        // The broker's death ends the warden, and the warden's death, as PID 1, everything else.
        prctl::set_pdeathsig(Signal::SIGKILL).at(Layer::PidNamespace, process("PR_SET_PDEATHSIG"))?;
    } else {
        // What outlives its cell's first process comes to the warden, which ends it.
        prctl::set_child_subreaper(true).at(Layer::Rlimits, process("PR_SET_CHILD_SUBREAPER"))?;
    }
    namespaces::settle(walls.layers, uid, gid)?;
    let tried = walls.is_supervised().then(|| TryOut::begin(walls.tier)).transpose();
    let tried = tried.at(Layer::ProtectedNames, process("fork"))?;
    let own = if walls.has(Layer::MountNamespace) {
        mounts::build(walls)?
    } else {
        namespaces::close_user_namespaces(walls.layers)?;
        store::open(&walls.central)
    };
    if walls.has(Layer::Capabilities) {
        capabilities::drop_bounding()?;
    }
    prctl::set_dumpable(false).at(Layer::Capabilities, process("PR_SET_DUMPABLE"))?;
    Ok((nnp, own, tried))
}

/// A descriptor that is readable when a child has ended.
fn child_signals() -> Result<SignalFd, LayerError> {
    let mut set = SigSet::empty();
    set.add(Signal::SIGCHLD);
    let step = || "signalfd".to_owned();
    set.thread_block().at(Layer::PidNamespace, step)?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC).at(Layer::PidNamespace, step)
}

/// Lets a program go that says that its parent traces it, and whose parent is ours or has become ours: nobody here would
/// let it go on. It goes on with the signal at which it stopped, but for the one that the kernel made only for its tracer.
fn let_go(news: &News) {
    if let State::Stopped(signal) = news.state {
        sys::let_go(news.pid, if signal == libc::SIGTRAP { 0 } else { signal });
    }
}

fn tell(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd]) -> Result<(), LayerError> {
    sys::send(socket.as_fd(), bytes, fds).at(Layer::PidNamespace, || "report to the broker".into())
}

/// A warden at work.
struct Keeper<'a> {
    walls: &'a Walls,
    rulesets: landlock::Rulesets,
    /// What the cells' supervisors go by.
    supervision: Option<supervisor::Rules>,
    /// What the cells' programs get, where the terminals of a cell are among the machine's.
    terminals: Option<Terminals>,
    /// Where the worker keeps what it replaces.
    own: Option<OwnedFd>,
    nnp: NoNewPrivileges,
    socket: &'a OwnedFd,
    signals: SignalFd,
    /// The cells and workers that are alive.
    children: Vec<i32>,
}

impl Keeper<'_> {
    /// Obeys until the broker is gone.
    fn serve(&mut self) -> Result<(), LayerError> {
        let step = || "wait for orders".to_owned();
        let mut rest = Rest::default();
        loop {
            let asked = self.terminals.as_ref().map_or(self.socket.as_fd(), |own| own.socket.as_fd());
            let fds = [self.socket.as_fd(), self.signals.as_fd(), asked];
            let mut ready = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            match rest.poll(&mut ready, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                result => result.at(Layer::PidNamespace, step)?,
            };
            let [ordered, ended, asked] = ready.map(|fd| fd.any() == Some(true));
            if ended {
                self.reap();
            }
            if asked && let Some(terminals) = &mut self.terminals {
                terminals.answer();
            }
            if ordered && !self.obey()? {
                return Ok(());
            }
        }
    }

    /// Carries out one order; false when the broker is gone.
    fn obey(&mut self) -> Result<bool, LayerError> {
        let mut order = [0];
        let heard = sys::receive(self.socket.as_fd(), &mut order, libc::MSG_DONTWAIT);
        match (heard, order) {
            (Ok((1, _)), [b'c']) => self.make_cell()?,
            (Ok((1, _)), [b'w']) => self.make_worker()?,
            (Ok((1, _)), [b't']) => self.make_terminal()?,
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn make_cell(&mut self) -> Result<(), LayerError> {
        let (theirs, ours) = pair().at(Layer::PidNamespace, || "socketpair".into())?;
        let flags = namespaces::cell(self.walls.layers);
        match sys::fork(flags).at(Layer::PidNamespace, || "fork".into())? {
            Fork::Parent(child) => self.made(Ask::Cell, &theirs, &child),
            Fork::Child => {
                let rules = cell::Rules { rulesets: &self.rulesets, supervision: self.supervision.as_ref() };
                cell::run(self.walls, &rules, ours, self.nnp)
            }
        }
    }

    fn make_worker(&mut self) -> Result<(), LayerError> {
        let (theirs, ours) = pair().at(Layer::PidNamespace, || "socketpair".into())?;
        match sys::fork(0).at(Layer::PidNamespace, || "fork".into())? {
            Fork::Parent(child) => self.made(Ask::Worker, &theirs, &child),
            Fork::Child => worker::run(self.walls, ours, self.own.as_ref(), self.nnp),
        }
    }

    fn made(&mut self, what: Ask, theirs: &OwnedFd, child: &Child) -> Result<(), LayerError> {
        self.children.push(child.pid);
        tell(self.socket, &[what as u8], &[theirs.as_fd(), child.pidfd.as_fd()])
    }

    /// A terminal of the instance this process sees: the session's own, where it has one.
    fn make_terminal(&self) -> Result<(), LayerError> {
        use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
        let step = || "make a terminal".to_owned();
        let flags = nix::fcntl::OFlag::O_RDWR | nix::fcntl::OFlag::O_NOCTTY | nix::fcntl::OFlag::O_CLOEXEC;
        let master = posix_openpt(flags).at(Layer::Descriptors, step)?;
        grantpt(&master).at(Layer::Descriptors, step)?;
        unlockpt(&master).at(Layer::Descriptors, step)?;
        let name = ptsname_r(&master).at(Layer::Descriptors, step)?;
        let slave = nix::fcntl::open(name.as_str(), flags, nix::sys::stat::Mode::empty())
            .at(Layer::Descriptors, step)?;
        tell(self.socket, &[Ask::Terminal as u8], &[master.as_fd(), slave.as_fd()])
    }

    /// Takes note of dead children. Where no PID namespace ends it, a stranger among the living is what a killed cell left
    /// behind.
    fn reap(&mut self) {
        while let Ok(Some(_)) = self.signals.read_signal() {}
        loop {
            while let Ok(Some(news)) = sys::news(false) {
                let_go(&news);
                if let State::Exited(_) | State::Killed(_) = news.state {
                    self.children.retain(|child| *child != news.pid);
                }
            }
            if self.walls.has(Layer::PidNamespace) || !descendants::kill_strangers(&self.children) {
                return;
            }
        }
    }
}
