#![doc = include_str!("../README.md")]
//!
//! What `lazaret` may still do once it has an executor, and `lazaret-gateway` before it serves. It listens to a model all day, so it gives up what it no longer needs:
//! whoever compromises it gets no more than the connection to the executor.
//!
//! *Guarantees*: no file can be opened, created, moved or removed except those of [`Needs`], no program started, no memory made
//! executable, no process traced, no Unix socket connected, no connection made. Where Landlock has
//! scopes (ABI 6), no process outside can be signalled. *Does not*: hide names and metadata (`stat`), choose what the gateway is
//! asked for, revoke open descriptors. With `--socket`,
//! before ABI 9, Unix sockets can be connected. *Needs*: Landlock (Linux 5.13), seccomp. *Order*: when the executor is reached and
//! our files are read, before there is a second thread: what reads files needs [`Files`], which [`Unconfined::confine`] takes. *Fails*: what is missing is reported by `doctor` and in every result, and
//! the work goes on: this protects the user from us, not from a command. *Tested by*: `each_right_that_is_given_up_is_gone`,
//! `a_taken_over_orchestrator_gets_nothing`.
#![forbid(unsafe_code)]

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use seccompiler::sock_filter;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use thiserror::Error;

mod filters {
    include!(concat!(env!("OUT_DIR"), "/filters.rs"));
}

/// The newest Landlock ABI that this build knows. An older kernel supports a part of it.
const NEWEST: ABI = ABI::V9;

/// Locations of certificates. Each may be missing. Not `/etc/ssl` as a whole, because it also contains keys.
const CERTIFICATES: [&str; 14] = [
    "/etc/ssl/certs",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted",
    "/etc/ca-certificates/extracted",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/var/lib/ca-certificates",
];

/// Locations of the resolver's settings. Each may be missing.
const RESOLVER: [&str; 8] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    // The resolver's file is replaced when the network changes; a rule for the file alone would be lost with the old one.
    "/run/systemd/resolve",
    "/run/resolvconf",
];

/// Variables that name other certificates; the library that loads certificates reads them.
const CERTIFICATE_VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What a command still needs.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Files and directories to read. A missing one is left out.
    pub read: Vec<PathBuf>,
    /// Directories in which we write files.
    pub write: Vec<PathBuf>,
    /// Whether it asks a gateway, or serves a socket that it bound before: threads that read pages, and accepting.
    pub web: bool,
    /// Whether connections are accepted at sockets that listen already: no other right of the network comes with it.
    pub serves: bool,
    /// The socket of an executor that may have to be reached again.
    pub socket: Option<PathBuf>,
}

/// Why a layer of the confinement is not in force.
#[derive(Debug, Error)]
pub enum NotConfined {
    /// Landlock applies to a thread and its children, so confining one of several threads would confine nothing.
    #[error("there are {0} threads already")]
    Threads(u64),
    #[error("/proc cannot be read: {0}")]
    NoProc(#[from] io::Error),
    #[error("the kernel has it, and it is not switched on")]
    NotEnabled,
    #[error("the kernel has none (Linux 5.13)")]
    NotImplemented,
    #[error(transparent)]
    Landlock(#[from] RulesetError),
    #[error(transparent)]
    Filter(#[from] seccompiler::Error),
}

/// The result of the confinement.
#[derive(Debug)]
pub struct Confinement {
    /// Landlock's ABI, or why it is not in force.
    pub landlock: Result<u32, NotConfined>,
    /// Number of instructions of the filter, or why it is not in force.
    pub seccomp: Result<usize, NotConfined>,
}

impl Confinement {
    /// The missing layers, as text; empty if everything is in force.
    pub fn missing(&self) -> Vec<String> {
        let landlock = self
            .landlock
            .as_ref()
            .err()
            .map(|why| format!("landlock: {why}"));
        let seccomp = self
            .seccomp
            .as_ref()
            .err()
            .map(|why| format!("seccomp: {why}"));
        landlock.into_iter().chain(seccomp).collect()
    }
}

/// The confinement of this process, once it is in force.
static IN_FORCE: OnceLock<Confinement> = OnceLock::new();

/// What could not be confined, as text; empty before the confinement, and where everything is in force.
pub fn missing() -> &'static [String] {
    static MISSING: OnceLock<Vec<String>> = OnceLock::new();
    match IN_FORCE.get() {
        Some(in_force) => MISSING.get_or_init(|| in_force.missing()),
        None => &[],
    }
}

/// The confinement of this process; `None` before it is in force, and in commands that need no executor.
pub fn in_force() -> Option<&'static Confinement> {
    IN_FORCE.get()
}

/// Limit on this process's descriptors: the executor's. The kernel counts descriptors in flight on sockets per user and checks the
/// count against the sender's limit, so a cell that leaves its own unread would otherwise keep us from opening another session.
const DESCRIPTORS: u64 = 65_536;

/// Where it fails, a session that cannot be opened says why. Not before: programs that this process has started keep the usual limit.
fn allow_descriptors() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(
        Resource::RLIMIT_NOFILE,
        soft.max(hard.min(DESCRIPTORS)),
        hard,
    )
}

/// The right to read files and to start programs, which confinement takes. What needs it asks for a reference to it, so it cannot be
/// called too late.
#[derive(Debug)]
pub struct Files(());

/// This process before its confinement.
#[derive(Debug)]
pub struct Unconfined(Files);

/// Proof that this process has confined itself: the runtime, sessions and signals require it.
#[derive(Clone, Copy, Debug)]
pub struct ConfinementProof(());

#[cfg(feature = "test-support")]
impl ConfinementProof {
    /// For tests against brokers of their own, in a process that stays as it is.
    pub fn of_test() -> Self {
        Self(())
    }
}

impl Unconfined {
    /// This process, at its start. The command line's start alone calls it (`clippy.toml`): everybody else is lent [`Files`].
    pub fn of_process() -> Self {
        Self(Files(()))
    }

    /// What reads files before the confinement takes this.
    pub fn files(&self) -> &Files {
        &self.0
    }

    /// Confines this process permanently. [`in_force`] says which parts are missing.
    pub fn confine(self, needs: &Needs) -> ConfinementProof {
        IN_FORCE.get_or_init(|| {
            let _ = allow_descriptors();
            if_alone(|| landlock(needs), filter(needs))
        });
        ConfinementProof(())
    }

    /// Confines an approver to its terminal and to the sockets in or below the parents of `directories`: a directory itself may be
    /// created later. It installs no filter: a session's client is recognised by its filters, and an approver must have fewer.
    ///
    /// Also returns Landlock's ABI, or why it is not in force.
    pub fn confine_approver(
        self,
        directories: &[PathBuf],
    ) -> (ConfinementProof, Result<u32, NotConfined>) {
        let in_force = has_one_thread().and_then(|()| {
            let parents = directories.iter().filter_map(|path| path.parent());
            let rules: Vec<_> = parents
                .map(|path| (path.to_owned(), AccessFs::ReadDir | AccessFs::ResolveUnix))
                .chain(terminal_rules())
                .collect();
            restrict(ruleset(AccessNet::BindTcp | AccessNet::ConnectTcp, rules))
        });
        (ConfinementProof(()), in_force)
    }
}

/// Confines the program `lazaret-gateway` permanently: it reads the resolver's settings, connects to anywhere, and serves the sockets that
/// it has.
pub fn confine_gateway() -> Confinement {
    confine_to(RESOLVER.map(PathBuf::from).into())
}

/// The same for the gateway of a `lazaret`, which also reads the machine's certificates, when it first needs them.
pub fn confine_client_gateway() -> Confinement {
    let named = CERTIFICATE_VARIABLES.iter().filter_map(std::env::var_os);
    let files = RESOLVER.iter().chain(&CERTIFICATES).map(PathBuf::from);
    confine_to(files.chain(named.map(PathBuf::from)).collect())
}

fn confine_to(files: Vec<PathBuf>) -> Confinement {
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    let files = files.into_iter().map(|path| (path, look)).collect();
    if_alone(
        || restrict(ruleset(AccessNet::BindTcp.into(), files)),
        &filters::GATEWAY,
    )
}

/// Confines this process, if it has one thread.
fn if_alone(
    landlock: impl FnOnce() -> Result<u32, NotConfined>,
    filter: &[sock_filter],
) -> Confinement {
    // The filter last, since it forbids Landlock's system calls.
    Confinement {
        landlock: has_one_thread().and_then(|()| landlock()),
        seccomp: has_one_thread().and_then(|()| install(filter)),
    }
}

fn has_one_thread() -> Result<(), NotConfined> {
    // A directory's link count is two plus its subdirectories, which here are the threads.
    match fs::metadata("/proc/self/task")?.nlink() {
        3 => Ok(()),
        links => Err(NotConfined::Threads(links.saturating_sub(2))),
    }
}

fn filter(needs: &Needs) -> &'static [sock_filter] {
    match needs {
        Needs {
            socket: Some(_), ..
        } => &filters::ORCHESTRATOR_WEB_UNIX,
        Needs { web: true, .. } => &filters::ORCHESTRATOR_WEB,
        Needs { serves: true, .. } => &filters::ORCHESTRATOR_SERVE,
        Needs { .. } => &filters::ORCHESTRATOR,
    }
}

fn install(filter: &[sock_filter]) -> Result<usize, NotConfined> {
    seccompiler::apply_filter(filter)?;
    Ok(filter.len())
}

fn landlock(needs: &Needs) -> Result<u32, NotConfined> {
    restrict(ruleset(
        AccessNet::BindTcp | AccessNet::ConnectTcp,
        rules(needs),
    ))
}

fn restrict(ruleset: Result<RulesetCreated, RulesetError>) -> Result<u32, NotConfined> {
    match ruleset?.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi as u32),
        LandlockStatus::NotEnabled => Err(NotConfined::NotEnabled),
        LandlockStatus::NotImplemented => Err(NotConfined::NotImplemented),
    }
}

/// Refuses these uses of the network, and all of the disk but `rules`.
fn ruleset(
    network: BitFlags<AccessNet>,
    rules: Vec<(PathBuf, BitFlags<AccessFs>)>,
) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(network)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (path, access) in rules {
        // A missing path cannot be opened anyway, and one that we cannot access is not ours.
        let Ok(fd) = PathFd::new(&path) else { continue };
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(NEWEST)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(fd, access))?;
    }
    Ok(ruleset)
}

fn rules(needs: &Needs) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let look = AccessFs::ReadFile | AccessFs::ReadDir;
    let work = AccessFs::from_all(NEWEST) & !(devices() | AccessFs::Execute);
    let mut rules: Vec<_> = needs.read.iter().map(|path| (path.clone(), look)).collect();
    rules.extend(needs.write.iter().map(|path| (path.clone(), work)));
    rules.extend(terminal_rules());
    if let Some(folder) = needs.socket.as_deref().and_then(Path::parent) {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        rules.push((folder.to_owned(), AccessFs::ResolveUnix.into()));
    }
    rules
}

fn devices() -> BitFlags<AccessFs> {
    AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev
}

fn terminal_rules() -> impl Iterator<Item = (PathBuf, BitFlags<AccessFs>)> {
    terminals().map(|path| {
        (
            path,
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
        )
    })
}

/// Our own standard streams that are devices: `cli::streams` reopens them.
fn terminals() -> impl Iterator<Item = PathBuf> {
    let streams = (0..3).map(|fd| PathBuf::from(format!("/proc/self/fd/{fd}")));
    streams
        .filter(|path| fs::metadata(path).is_ok_and(|stream| stream.file_type().is_char_device()))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::getppid;
    use std::io::{self, Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::sync::Arc;
    use std::thread;

    /// The targets of attacks: a project, a key, servers. Programs are attempted in `taken_over`, in the running program.
    struct Fixture {
        folder: PathBuf,
        tcp: TcpListener,
        udp: UdpSocket,
        _unix: UnixListener,
        _datagrams: UnixDatagram,
    }

    impl Fixture {
        fn new(name: &str) -> Arc<Self> {
            let folder =
                std::env::temp_dir().join(format!("lazaret-confine-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            for part in ["project/sub", "home/.ssh", "state"] {
                fs::create_dir_all(folder.join(part)).unwrap();
            }
            fs::write(folder.join("project/file"), "content").unwrap();
            fs::write(folder.join("project/gone"), "content").unwrap();
            fs::write(folder.join("home/.ssh/id_ed25519"), "key").unwrap();
            fs::set_permissions(
                folder.join("home/.ssh/id_ed25519"),
                fs::Permissions::from_mode(0o600),
            )
            .unwrap();
            Arc::new(Self {
                tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
                udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
                _unix: UnixListener::bind(folder.join("bus")).unwrap(),
                _datagrams: UnixDatagram::bind(folder.join("log")).unwrap(),
                folder,
            })
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.join(path)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    type Attack = fn(&Fixture) -> io::Result<()>;

    const ATTACKS: [(&str, Attack); 17] = [
        ("read a project file", |scene| {
            fs::read(scene.at("project/file")).map(drop)
        }),
        ("read it through our own directory", |scene| {
            let up = "../".repeat(30);
            fs::read(PathBuf::from(up).join(scene.at("project/file").strip_prefix("/").unwrap()))
                .map(drop)
        }),
        ("list the project", |scene| {
            fs::read_dir(scene.at("project")).map(drop)
        }),
        ("write a project file", |scene| {
            fs::write(scene.at("project/new"), "x")
        }),
        ("change a project file", |scene| {
            fs::OpenOptions::new()
                .append(true)
                .open(scene.at("project/file"))
                .map(drop)
        }),
        ("cut a project file", |scene| {
            nix::unistd::truncate(&scene.at("project/gone"), 0).map_err(io::Error::from)
        }),
        ("remove a project file", |scene| {
            fs::remove_file(scene.at("project/gone"))
        }),
        ("move a project file", |scene| {
            fs::rename(scene.at("project/file"), scene.at("project/sub/file"))
        }),
        ("make a directory", |scene| {
            fs::create_dir(scene.at("project/made"))
        }),
        ("make a link", |scene| {
            std::os::unix::fs::symlink("/", scene.at("project/link"))
        }),
        ("read a key", |scene| {
            fs::read(scene.at("home/.ssh/id_ed25519")).map(drop)
        }),
        ("read a process's environment", |_| {
            fs::read(format!("/proc/{}/environ", getppid())).map(drop)
        }),
        ("signal a process", |_| {
            kill(getppid(), None).map_err(io::Error::from)
        }),
        ("connect to a bus", |scene| {
            UnixStream::connect(scene.at("bus")).map(drop)
        }),
        ("send to a log", |scene| {
            UnixDatagram::unbound()?
                .send_to(b"x", scene.at("log"))
                .map(drop)
        }),
        ("send from a pair", |scene| {
            UnixDatagram::pair()?
                .0
                .send_to(b"x", scene.at("log"))
                .map(drop)
        }),
        ("listen", |_| TcpListener::bind("127.0.0.1:0").map(drop)),
    ];

    const NETWORK: [(&str, Attack); 2] = [
        ("connect", |scene| {
            TcpStream::connect(scene.tcp.local_addr()?).map(drop)
        }),
        ("send a datagram", |scene| {
            UdpSocket::bind("127.0.0.1:0")?
                .send_to(b"x", scene.udp.local_addr()?)
                .map(drop)
        }),
    ];

    /// What a command needs that reads pages or serves.
    const THREADS: [(&str, Attack); 1] = [("start a thread", |_| {
        thread::Builder::new().spawn(|| ()).map(drop)
    })];

    /// Confines the thread of one attack, and no other of this program.
    fn confine_thread(needs: &Needs) -> Confinement {
        Confinement {
            landlock: landlock(needs),
            seccomp: install(filter(needs)),
        }
    }

    /// Makes the attacks on a thread, which first confines itself if requested.
    fn attack(
        scene: &Arc<Fixture>,
        attacks: &'static [(&str, Attack)],
        needs: Option<Needs>,
    ) -> Vec<io::Result<()>> {
        let scene = scene.clone();
        let attacker = thread::spawn(move || {
            if let Some(needs) = needs {
                assert_eq!(confine_thread(&needs).missing(), [""; 0]);
            }
            attacks.iter().map(|(_, attack)| attack(&scene)).collect()
        });
        attacker.join().unwrap()
    }

    #[test]
    fn each_right_that_is_given_up_is_gone() {
        let mut held = 0;
        let all = [
            ("files", &ATTACKS[..]),
            ("network", &NETWORK[..]),
            ("threads", &THREADS[..]),
        ];
        for (name, attacks) in all {
            // The confined attacks come first, because unconfined ones change the fixture.
            let scene = Fixture::new(name);
            let mut needs = vec![Needs::default()];
            if name != "threads" {
                needs.push(Needs {
                    web: true,
                    read: vec![scene.at("state")],
                    write: vec![scene.at("state")],
                    ..Needs::default()
                });
            }
            // Who accepts connections gets no other right.
            needs.push(Needs {
                serves: true,
                ..Needs::default()
            });
            for needs in needs {
                for ((attack, _), got) in
                    attacks
                        .iter()
                        .zip(attack(&scene, attacks, Some(needs.clone())))
                {
                    assert!(got.is_err(), "{attack} worked with {needs:?}");
                    held += 1;
                }
            }
            for ((attack, _), got) in attacks.iter().zip(attack(&scene, attacks, None)) {
                assert!(got.is_ok(), "{attack} does not work without walls: {got:?}");
            }
        }
        println!("{held} attempts refused; each works in a thread that is not confined");
    }

    #[test]
    fn needed_files_still_work_when_confined() {
        let scene = Fixture::new("needs");
        let needs = Needs {
            web: true,
            read: vec![scene.at("home")],
            write: vec![scene.at("state")],
            ..Needs::default()
        };
        let worker = scene.clone();
        let work = move || {
            assert_eq!(confine_thread(&needs).missing(), [""; 0]);
            assert_eq!(
                fs::read_to_string(worker.at("home/.ssh/id_ed25519")).unwrap(),
                "key"
            );
            assert!(fs::write(worker.at("home/new"), "x").is_err());
            fs::create_dir(worker.at("state/d")).unwrap();
            fs::write(worker.at("state/d/log"), "line").unwrap();
            fs::rename(worker.at("state/d/log"), worker.at("state/log")).unwrap();
            assert_eq!(fs::read_to_string(worker.at("state/log")).unwrap(), "line");
            let (mut accepted, _) = worker.tcp.accept().unwrap();
            accepted.set_nodelay(true).unwrap();
            accepted.read_exact(&mut [0]).unwrap();
            thread::spawn(|| ()).join().unwrap();
        };
        let address = scene.tcp.local_addr().unwrap();
        let client = thread::spawn(move || {
            TcpStream::connect(address)
                .unwrap()
                .write_all(b"x")
                .unwrap()
        });
        thread::spawn(work).join().unwrap();
        client.join().unwrap();
    }

    #[test]
    fn connections_are_accepted_and_answered_where_that_is_needed() {
        for serves in [true, false] {
            let scene = Fixture::new(if serves { "serves" } else { "serves-not" });
            let address = scene.tcp.local_addr().unwrap();
            let mut client = TcpStream::connect(address).unwrap();
            let accepting = thread::spawn(move || {
                let needs = Needs {
                    serves,
                    ..Needs::default()
                };
                assert_eq!(confine_thread(&needs).missing(), [""; 0]);
                let (mut stream, _) = scene.tcp.accept()?;
                stream.set_nodelay(true)?;
                stream.write_all(b"x")
            });
            assert_eq!(accepting.join().unwrap().is_ok(), serves);
            if serves {
                client.read_exact(&mut [0]).unwrap();
            }
        }
    }
}
