//! What is attacked outside: a directory with a secret in it, and a bystander, which are there for one run.

use super::Targets;
use crate::cell::descriptors;
use crate::sys::{self, Child, Fork};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid, getppid, mkdtemp, pause, pipe2};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::exit;

/// The bystander's socket in the directory.
pub const SOCKET: &str = "socket";
/// The files in the directory, each for one attack.
const FILES: [&str; 6] = ["secret", "written", "moved", "linked", "mode", "time"];
/// The control's own directory in it.
const OWN: &str = "own";
/// How long a bystander may take to die of a signal.
const LAST_BREATH_MS: u16 = 20;

/// The bystander's abstract socket: named after the directory, which nobody else has.
pub fn abstract_name(folder: &str) -> String {
    format!("lazaret:{folder}")
}

/// A directory and a process outside, gone with the value.
#[derive(Debug)]
pub struct Scene {
    folder: PathBuf,
    /// The bystander, forked after this was made, has it at the same address.
    secret: String,
    bystander: Option<Child>,
    tcp: u16,
    udp: u16,
}

impl Scene {
    /// Makes one in a new directory in `parent`.
    pub fn make(parent: &Path) -> io::Result<Self> {
        let mut scene = Self::lay(parent)?;
        scene.call_bystander()?;
        Ok(scene)
    }

    /// The directory, without a bystander yet.
    pub fn lay(parent: &Path) -> io::Result<Self> {
        let folder = mkdtemp(&parent.join("lazaret-attack-XXXXXX"))?;
        // From here on the value cleans up.
        let scene = Self { folder, secret: secret()?, bystander: None, tcp: 0, udp: 0 };
        fs::create_dir(scene.own())?;
        for name in FILES {
            fs::write(scene.path(name), &scene.secret)?;
            fs::set_permissions(scene.path(name), Permissions::from_mode(0o600))?;
        }
        Ok(scene)
    }

    /// What an attacker is told, who may write to `own`.
    pub fn targets(&self, own: &Path) -> Targets {
        Targets {
            outside: self.folder.display().to_string(),
            own: own.display().to_string(),
            secret: self.secret.clone(),
            bystander: self.bystander.as_ref().map_or(0, |bystander| bystander.pid),
            address: self.secret.as_ptr() as u64,
            tcp: self.tcp,
            udp: self.udp,
            variables: Vec::new(),
        }
    }

    /// A directory that the control may write to.
    pub fn own(&self) -> PathBuf {
        self.path(OWN)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn call_bystander(&mut self) -> io::Result<()> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        let broker = getpid();
        self.bystander = match sys::fork(0)? {
            Fork::Child => {
                let _ = stand_by(broker, &self.folder, &self.secret, write);
                exit(1)
            }
            Fork::Parent(child) => Some(child),
        };
        drop(write);
        let mut ports = [0; 4];
        File::from(read).read_exact(&mut ports)?;
        let [t0, t1, u0, u1] = ports;
        (self.tcp, self.udp) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([u0, u1]));
        Ok(())
    }

    /// Whether something was written to the file for that.
    pub fn is_written(&self) -> bool {
        fs::read(self.path("written")).ok().as_deref() != Some(self.secret.as_bytes())
    }

    /// Whether there is a new file.
    pub fn has_new_file(&self) -> bool {
        self.path("created").exists()
    }

    /// Whether the file to be moved is gone.
    pub fn has_lost_a_file(&self) -> bool {
        !self.path("moved").exists()
    }

    /// Whether a file has a second name.
    pub fn has_a_linked_file(&self) -> bool {
        fs::metadata(self.path("linked")).map_or(true, |metadata| metadata.nlink() != 1)
    }

    /// Whether a mode has changed.
    pub fn has_another_mode(&self) -> bool {
        fs::metadata(self.path("mode")).map_or(true, |metadata| metadata.mode() & 0o7777 != 0o600)
    }

    /// Whether a time was set back.
    pub fn has_another_time(&self) -> bool {
        fs::metadata(self.path("time")).map_or(true, |metadata| metadata.mtime() == 0)
    }

    /// Whether the bystander has ended.
    pub fn bystander_is_dead(&self) -> bool {
        self.bystander.as_ref().is_some_and(|bystander| {
            let mut ended = [PollFd::new(bystander.pidfd.as_fd(), PollFlags::POLLIN)];
            poll(&mut ended, PollTimeout::from(LAST_BREATH_MS)) != Ok(0)
        })
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(bystander) = self.bystander.take() {
            // It may have been killed by an attack.
            let _ = sys::pidfd_signal(bystander.pidfd.as_fd(), libc::SIGKILL);
            let _ = waitpid(Pid::from_raw(bystander.pid), None);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Thirty-two digits that nobody guesses.
fn secret() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The bystander's life: an ordinary process of this user, with a secret, that answers whoever reaches it.
fn stand_by(broker: Pid, folder: &Path, secret: &str, ready: OwnedFd) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != broker {
        return Ok(());
    }
    descriptors::keep_only(&[ready.as_fd()], &[]).map_err(|error| error.source)?;
    prctl::set_name(c"lazaret-canary")?;
    prctl::set_dumpable(true)?;
    sys::let_be_traced();
    // Where these cannot be had, the attacks on them fail in the control, and are said to be untested.
    let _ = put_into_environment(secret);
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let _file = UnixListener::bind(folder.join(SOCKET))?;
    let name = SocketAddr::from_abstract_name(abstract_name(&folder.to_string_lossy()))?;
    let _abstract = UnixListener::bind_addr(&name)?;
    let port = |address: io::Result<std::net::SocketAddr>| address.map_or(0, |address| address.port());
    let tcp_port = port(tcp.as_ref().map_or(Err(io::ErrorKind::NotFound.into()), TcpListener::local_addr));
    let udp_port = port(udp.as_ref().map_or(Err(io::ErrorKind::NotFound.into()), UdpSocket::local_addr));
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
        // Who has left needs no answer.
        let _ = udp.send_to(secret.as_bytes(), asker);
    }
}

/// Writes `secret` over the start of this process's environment block, which was wiped when the executor started.
fn put_into_environment(secret: &str) -> io::Result<()> {
    /// Fields of `/proc/PID/stat` after the name: `env_start` and `env_end` are its fields 50 and 51.
    const START: usize = 50 - 3;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let block: Vec<u64> = fields.skip(START).take(2).filter_map(|field| field.parse().ok()).collect();
    match block[..] {
        [start, end] if end.saturating_sub(start) >= secret.len() as u64 => {
            OpenOptions::new().write(true).open("/proc/self/mem")?.write_all_at(secret.as_bytes(), start)
        }
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_what_has_changed_outside_and_all_of_it_goes() {
        let parent = tempfile::tempdir().unwrap();
        let scene = Scene::lay(parent.path()).unwrap();
        let seen = |scene: &Scene| {
            [
                scene.is_written(),
                scene.has_new_file(),
                scene.has_lost_a_file(),
                scene.has_a_linked_file(),
                scene.has_another_mode(),
                scene.has_another_time(),
            ]
        };
        assert_eq!(seen(&scene), [false; 6]);
        let targets = scene.targets(&scene.own());
        for attack in [super::super::files::write, super::super::files::create, super::super::files::move_in]
        {
            attack(&targets).unwrap();
        }
        super::super::files::link_in(&targets).unwrap();
        super::super::files::change_mode(&targets).unwrap();
        super::super::files::change_time(&targets).unwrap();
        assert_eq!(seen(&scene), [true; 6]);
        drop(scene);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
