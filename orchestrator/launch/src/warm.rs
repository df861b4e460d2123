//! Messages between a client and `lazaret warm`: the client describes the session that it wants, with all that its executor would
//! get from it, and is served by a broker that was started for exactly that, or starts its own as ever.
//!
//! The description is compared as a whole, octet by octet. Properties of the client's process, which are no values of its own, the broker
//! compares itself (`surroundings.rs` of the executor), as it decides by itself whether its sandbox is the one that the session needs:
//! nobody believes a client.
//!
//! **The proof.** The kernel shows nobody whether a process is in a Landlock domain; but from inside one nothing can be read of a
//! process outside it (`PTRACE_MODE_READ`). So `lazaret warm` holds a file in memory with a random name at a descriptor that only such a
//! read shows, and a client has to say the name: a program that another sandbox confines gets no session outside of it.

use crate::session_options::SessionOptions;
use crate::start;
use broker_protocol::{Open, frame};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket, sockopt,
};
use nix::unistd::Uid;
use orchestrator_confine::Files;
use orchestrator_text::random;
use policies::directories;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::state_directory::{home, variable};

/// Maximum bytes of what a client says. It has to fit into a socket's buffer: nobody waits for a reader.
pub(crate) const KNOCK_MAX: usize = 128 << 10;
/// The number of the descriptor that proves. No program gets so many by itself, and none has fewer as its limit.
pub(crate) const PROOF_FD: i32 = 200;
/// How long a client waits for its broker; then it starts its own executor.
const ANSWER: Duration = Duration::from_millis(500);
/// How long anybody waits for what a person has asked for.
const REPORT: Duration = Duration::from_secs(10);
/// How long a client may take to say what it wants once it is connected: no longer, as nobody else is heard meanwhile.
const KNOCKING: Duration = Duration::from_secs(1);
/// The name of the socket in its directory.
pub const SOCKET: &str = "socket";
/// Programs of the executor, beside it.
const BESIDE: [&str; 2] = ["lazaret-worker", "lazaret-gateway"];

/// A client's message: its first and only one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knock {
    /// Read by the client from the process that listens.
    pub proof: String,
    pub asked: KnockFor,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KnockFor {
    Session(Box<WantedBroker>),
    Status,
    Stop,
}

/// All that an executor gets from the client that starts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WantedBroker {
    /// The client's release and commit.
    pub release: String,
    pub programs: Vec<ProgramState>,
    /// `NAME=value`, sorted, so that two of them can be compared.
    pub environment: Vec<Vec<u8>>,
    /// The request, as the protocol encodes it.
    pub open: Vec<u8>,
}

/// A program's file, as it was found: an upgrade makes another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProgramState {
    pub path: PathBuf,
    /// Device, inode, length, and when it was last changed.
    state: Option<(u64, u64, u64, i64, i64)>,
}

impl ProgramState {
    fn of(path: PathBuf) -> Self {
        let state = fs::metadata(&path).ok().map(|file| {
            let changed = (file.ctime(), file.ctime_nsec());
            (file.dev(), file.ino(), file.len(), changed.0, changed.1)
        });
        Self { path, state }
    }

    /// Whether it still is this file.
    pub fn is_there(&self) -> bool {
        *self == Self::of(self.path.clone())
    }
}

impl WantedBroker {
    /// All that the executor of this process would get with `open`; `None` if that is too long to be said.
    fn of_process(options: &SessionOptions, open: &Open) -> Option<Self> {
        let executor = start::program(options.executor().as_deref());
        let beside = BESIDE.map(|name| executor.with_file_name(name));
        let programs = std::iter::once(executor).chain(beside);
        Some(Self {
            release: broker_protocol::release(option_env!("LAZARET_COMMIT")),
            programs: programs.map(ProgramState::of).collect(),
            environment: start::executors_environment(&options.credentials()),
            open: frame::encode_whole(open).ok()?,
        })
    }
}

/// Where the socket may lie.
pub fn directories_of_user() -> Vec<PathBuf> {
    directories::warm(&home(), Uid::effective().as_raw(), &variable)
}

/// The socket of this user's `lazaret warm`, if there is one.
pub fn socket_path() -> Option<PathBuf> {
    let is_private = |directory: &PathBuf| {
        fs::symlink_metadata(directory).is_ok_and(|it| {
            it.is_dir() && it.uid() == Uid::effective().as_raw() && it.mode() & 0o777 == 0o700
        })
    };
    let found = directories_of_user().into_iter().find(is_private);
    found.map(|it| it.join(SOCKET)).filter(|path| path.exists())
}

/// The socket of a `lazaret warm` that may have a broker for these options: none with an executor that listens by itself.
pub fn socket_for(options: &SessionOptions) -> Option<PathBuf> {
    let path = socket_path()?;
    options.endpoint().socket().is_none().then_some(path)
}

/// The state of the service that a command of this login would find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarmService {
    Absent,
    Serves,
    /// Brokers share the limits of the group of processes in which it was started, so a command of another group starts its own.
    OtherGroup,
    /// One listens that cannot be asked.
    Silent,
}

impl WarmService {
    /// Asks the one that listens, if one does.
    pub fn find(_: &Files) -> Self {
        let Some(path) = socket_path() else {
            return Self::Absent;
        };
        #[expect(clippy::disallowed_methods, reason = "the kernel's, and no file")]
        let group = |process: &str| fs::read_to_string(format!("/proc/{process}/cgroup"));
        let asked = knock(&path, KnockFor::Status).and_then(|mut stream| {
            stream.set_read_timeout(Some(ANSWER))?;
            stream.read_exact(&mut [0])?;
            let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
            Ok(group("self")? == group(&peer.pid().to_string())?)
        });
        match asked {
            Ok(true) => Self::Serves,
            Ok(false) => Self::OtherGroup,
            // Nobody listens any more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Self::Absent,
            Err(_) => Self::Silent,
        }
    }
}

/// A broker that stood ready for the session of `open`, if there is one. Its sandbox is used if it is what would be built now.
pub fn take(_: &Files, path: &Path, options: &SessionOptions, open: &Open) -> Option<UnixStream> {
    let asked = KnockFor::Session(Box::new(WantedBroker::of_process(options, open)?));
    let mut stream = knock(path, asked).ok()?;
    let mut answer = [0];
    stream.read_exact(&mut answer).ok()?;
    // From the broker, which answers in its own time.
    stream.set_read_timeout(None).ok()?;
    (answer == *b"y").then_some(stream)
}

/// Connects to `lazaret warm` and says something. Reads have a time limit.
///
/// # Errors
/// None listens there, another user's does, or this process may not read it.
pub fn knock(path: &Path, asked: KnockFor) -> io::Result<UnixStream> {
    let mut stream = connect_now(path)?;
    let peer = getsockopt(&stream, sockopt::PeerCredentials)?;
    if peer.uid() != Uid::effective().as_raw() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let proof = proof(&peer.pid().to_string())?;
    let limit = match asked {
        KnockFor::Session(_) => ANSWER,
        KnockFor::Status | KnockFor::Stop => REPORT,
    };
    let said = frame::encode_whole(&Knock { proof, asked }).map_err(io::Error::other)?;
    if said.len() > KNOCK_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let length = u32::try_from(said.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_le_bytes()[..], &said].concat())?;
    Ok(stream)
}

/// Proof that the caller may read `process`.
///
/// # Errors
/// It may not, or that is no `lazaret warm`.
pub fn proof(process: &str) -> io::Result<String> {
    let link = fs::read_link(format!("/proc/{process}/fd/{PROOF_FD}"))?;
    let link = link.into_os_string().into_string();
    link.map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Receives a client's message, within its limits.
///
/// # Errors
/// It says nothing in time, too much, or something else.
pub fn hear(stream: &mut UnixStream) -> io::Result<Knock> {
    stream.set_read_timeout(Some(KNOCKING))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > KNOCK_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut said = vec![0; length];
    stream.read_exact(&mut said)?;
    frame::decode_whole(&said).map_err(io::Error::other)
}

/// Connects without waiting where more wait than may.
fn connect_now(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket: OwnedFd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    match connect(socket.as_raw_fd(), &UnixAddr::new(path)?) {
        Ok(()) => {}
        Err(Errno::EAGAIN) => return Err(io::ErrorKind::WouldBlock.into()),
        Err(errno) => return Err(errno.into()),
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The line to a broker that is to stand ready, as the broker's standard input.
///
/// # Errors
/// The kernel's (`socketpair`).
pub fn line() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::sys::socket::socketpair(
        AddressFamily::Unix,
        SockType::SeqPacket,
        None,
        SockFlag::SOCK_CLOEXEC,
    )?)
}

/// Hands a client over to a broker that stands ready.
///
/// # Errors
/// It has ended.
pub fn hand_over(line: &impl AsFd, client: &UnixStream) -> io::Result<()> {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let rights = [client.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&rights)];
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    let parts = [io::IoSlice::new(b"c")];
    sendmsg::<()>(line.as_fd().as_raw_fd(), &parts, &message, flags, None)?;
    Ok(())
}

/// The file whose name clients read to prove that they may. It lives as long as this process.
#[derive(Debug)]
pub struct Proof(String);

impl Proof {
    /// Makes the file under a random name, at its descriptor.
    ///
    /// # Errors
    /// The kernel's, or the descriptor is taken.
    pub fn make() -> io::Result<Self> {
        let name = random::hex::<16>()?;
        let file = memfd_create(name.as_str(), MFdFlags::MFD_CLOEXEC)?;
        // Never closed.
        let placed = fcntl(&file, FcntlArg::F_DUPFD_CLOEXEC(PROOF_FD))?;
        if placed != PROOF_FD {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        proof("self").map(Self)
    }

    /// Whether `knock` shows that its sender can read this process.
    pub fn is_shown_by(&self, knock: &Knock) -> bool {
        knock.proof == self.0
    }
}
