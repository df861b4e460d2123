//! The target outside: a directory with a secret in it, and a bystander process. Both are removed when the value is dropped.

use crate::sys::{self, Fork};
use crate::targets::Targets;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid, mkdtemp, pause, pipe2};
use std::cell::Cell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::{Duration, Instant};

/// The bystander's socket in the directory.
pub(crate) const SOCKET: &str = "socket";
/// One file for each attack that changes one.
const FILES: [&str; 6] = ["secret", "written", "moved", "linked", "mode", "time"];
/// The control's own directory.
const OWN: &str = "own";
/// How long a signal may take to kill a bystander: it needs a processor to die.
const DEATH_TIMEOUT: Duration = Duration::from_millis(500);

/// The name of the bystander's abstract socket: the end of the directory's path, which is unique.
/// The whole path may be too long for an address.
pub(crate) fn abstract_name(directory: &Path) -> Vec<u8> {
    let path = directory.as_os_str().as_encoded_bytes();
    [b"lazaret:", &path[path.len().saturating_sub(64)..]].concat()
}

#[derive(Debug)]
pub(crate) struct Fixture {
    directory: PathBuf,
    /// The bystander, forked after this was created, has it at the same address.
    secret: String,
    bystander: Option<Bystander>,
}

#[derive(Debug)]
struct Bystander {
    process: Pid,
    /// Whether its end was seen: since then its number may be another process's.
    is_reaped: Cell<bool>,
    tcp: u16,
    udp: u16,
}

impl Fixture {
    /// Creates a fixture in a new directory in `parent`.
    pub(crate) fn make(parent: &Path) -> io::Result<Self> {
        let directory = mkdtemp(&parent.join("attack-XXXXXX"))?;
        // From here on, dropping the value cleans up.
        let mut fixture = Self {
            directory,
            secret: random_digits()?,
            bystander: None,
        };
        fs::create_dir(fixture.path(OWN))?;
        for name in FILES {
            fs::write(fixture.path(name), &fixture.secret)?;
            fs::set_permissions(fixture.path(name), Permissions::from_mode(0o600))?;
        }
        fixture.bystander = Some(Bystander::start(&fixture.directory, &fixture.secret)?);
        Ok(fixture)
    }

    /// What an attacker needs to know. Its own directory is that of the control.
    pub(crate) fn targets(&self) -> Targets {
        let bystander = self.bystander.as_ref();
        Targets {
            outside: self.directory.clone(),
            own: self.path(OWN),
            secret: self.secret.clone(),
            bystander: bystander.map_or(0, |bystander| bystander.process.as_raw()),
            address: self.secret.as_ptr() as u64,
            tcp: bystander.map_or(0, |bystander| bystander.tcp),
            udp: bystander.map_or(0, |bystander| bystander.udp),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn is_written(&self) -> bool {
        fs::read(self.path("written")).ok().as_deref() != Some(self.secret.as_bytes())
    }

    pub(crate) fn has_new_file(&self) -> bool {
        self.path("created").exists()
    }

    pub(crate) fn has_lost_a_file(&self) -> bool {
        !self.path("moved").exists()
    }

    pub(crate) fn has_a_linked_file(&self) -> bool {
        fs::metadata(self.path("linked")).map_or(true, |metadata| metadata.nlink() != 1)
    }

    pub(crate) fn has_another_mode(&self) -> bool {
        fs::metadata(self.path("mode")).map_or(true, |metadata| metadata.mode() & 0o7777 != 0o600)
    }

    pub(crate) fn has_another_time(&self) -> bool {
        fs::metadata(self.path("time")).map_or(true, |metadata| metadata.mtime() == 0)
    }

    pub(crate) fn bystander_is_dead(&self) -> bool {
        let until = Instant::now() + DEATH_TIMEOUT;
        self.bystander.as_ref().is_some_and(|bystander| {
            while !bystander.is_dead() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            bystander.is_dead()
        })
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(bystander) = self
            .bystander
            .take()
            .filter(|bystander| !bystander.is_dead())
        {
            let _ = kill(bystander.process, Signal::SIGKILL);
            let _ = waitpid(bystander.process, None);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

impl Bystander {
    fn start(directory: &Path, secret: &str) -> io::Result<Self> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        let parent = getpid();
        let process = match sys::fork()? {
            Fork::Child => {
                drop(read);
                let Err(error) = stand_by(parent, directory, secret, write) else {
                    exit(0)
                };
                eprintln!("lazaret-attack: no bystander: {error}");
                exit(1)
            }
            Fork::Parent(child) => child,
        };
        drop(write);
        let mut ports = [0; 4];
        let ready = File::from(read).read_exact(&mut ports);
        let [t0, t1, u0, u1] = ports;
        let (tcp, udp) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([u0, u1]));
        ready.map(|()| Self {
            process,
            is_reaped: Cell::new(false),
            tcp,
            udp,
        })
    }

    fn is_dead(&self) -> bool {
        let alive = || {
            matches!(
                waitpid(self.process, Some(WaitPidFlag::WNOHANG)),
                Ok(WaitStatus::StillAlive)
            )
        };
        if !self.is_reaped.get() && !alive() {
            self.is_reaped.set(true);
        }
        self.is_reaped.get()
    }
}

/// 32 hexadecimal digits.
fn random_digits() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs the bystander: an ordinary process of this user, with a secret, that answers whoever reaches it.
fn stand_by(parent: Pid, directory: &Path, secret: &str, ready: OwnedFd) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        return Ok(());
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // Its copies would keep open a pipe whose end the peer of its parent waits for.
    sys::redirect(null.as_fd())?;
    prctl::set_name(c"lazaret-canary")?;
    prctl::set_dumpable(true)?;
    sys::allow_tracers();
    // If these cannot be created, the attacks on them fail in the control, and are reported as untested.
    let _ = put_into_environment(secret);
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    // An address is too short for the path of every directory.
    std::env::set_current_dir(directory)?;
    let _file = UnixListener::bind(SOCKET)?;
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(abstract_name(directory))?)?;
    let port =
        |address: io::Result<std::net::SocketAddr>| address.map_or(0, |address| address.port());
    let tcp_port = port(
        tcp.as_ref()
            .map_or(Err(io::ErrorKind::NotFound.into()), TcpListener::local_addr),
    );
    let udp_port = port(
        udp.as_ref()
            .map_or(Err(io::ErrorKind::NotFound.into()), UdpSocket::local_addr),
    );
    let [t0, t1] = tcp_port.to_le_bytes();
    let [u0, u1] = udp_port.to_le_bytes();
    File::from(ready).write_all(&[t0, t1, u0, u1])?;
    let Ok(udp) = udp else {
        pause();
        return Ok(());
    };
    let mut question = [0; 64];
    loop {
        let (_, asker) = udp.recv_from(&mut question)?;
        // A peer that has left needs no answer.
        let _ = udp.send_to(secret.as_bytes(), asker);
    }
}

/// Writes `secret` over the start of this process's environment block, which is at least as long: it contains the canary's name and value.
fn put_into_environment(secret: &str) -> io::Result<()> {
    /// Fields of `/proc/PID/stat` after the name: `env_start` and `env_end` are its fields 50 and 51.
    const START: usize = 50 - 3;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let block: Vec<u64> = fields
        .skip(START)
        .take(2)
        .filter_map(|field| field.parse().ok())
        .collect();
    match block[..] {
        [start, end] if end.saturating_sub(start) >= secret.len() as u64 => OpenOptions::new()
            .write(true)
            .open("/proc/self/mem")?
            .write_all_at(secret.as_bytes(), start),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{files, processes};

    #[test]
    fn evidence_is_every_change_outside_and_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let fixture = Fixture::make(parent.path()).unwrap();
        let seen = |fixture: &Fixture| {
            [
                fixture.is_written(),
                fixture.has_new_file(),
                fixture.has_lost_a_file(),
                fixture.has_a_linked_file(),
                fixture.has_another_mode(),
                fixture.has_another_time(),
                fixture.bystander_is_dead(),
            ]
        };
        assert_eq!(seen(&fixture), [false; 7]);
        let targets = fixture.targets();
        let attacks = [
            files::write,
            files::create,
            files::move_in,
            files::link_in,
            files::change_mode,
            files::change_time,
            processes::kill,
        ];
        attacks.iter().for_each(|attack| attack(&targets).unwrap());
        assert_eq!(seen(&fixture), [true; 7]);
        drop(fixture);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
