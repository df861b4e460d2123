//! The user's ssh agent, for sessions whose policy lets it sign (`[ssh]`): connections to it, and the hosts' keys that the user knows. Nothing here
//! speaks the agent's protocol; the gateway does.

use crate::owner::{Owner, SourceError};
use crate::source::FileSource;
use broker_protocol::gateway::{SshSpec, known_host_name};
use broker_protocol::limit;
use executor_sys::process::euid;
use executor_sys::socket;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixAddr, connect, getsockopt};
use policies::leads_into;
use policies::ssh::SshKeys;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Maximum bytes of one of the files.
const FILE_MAX: u64 = 4 << 20;
/// The files that ssh reads without settings, in the user's home and in the system's directory. A key that one of them revokes is no host's.
const USER_FILES: [&str; 2] = [".ssh/known_hosts", ".ssh/known_hosts2"];
const SYSTEM_FILES: [&str; 2] = ["ssh_known_hosts", "ssh_known_hosts2"];
const SYSTEM: &str = "/etc/ssh";

/// Why there is no connection to the user's agent.
#[derive(Debug, Error)]
pub enum AgentError {
    #[error("SSH_AUTH_SOCK of the user is not set")]
    Unset,
    #[error("the user's ssh agent at {0} cannot be reached: {1}")]
    Unreached(String, io::Error),
    #[error("SSH_AUTH_SOCK leads to where commands can write: {0}")]
    Writable(String),
    #[error("the ssh agent at {0} belongs to somebody else")]
    Foreign(String),
}

/// Why the user's `known_hosts` cannot be used.
#[derive(Debug, Error)]
enum KnownHostsError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("there is no {}", .0.display())]
    None(PathBuf),
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} has more than {FILE_MAX} bytes", .0.display())]
    TooLong(PathBuf),
    #[error("the revoked keys have more than {max} bytes", max = limit::KNOWN_HOSTS)]
    Revoked,
}

/// The user's agent and known hosts, as far as a session has to do with them.
#[derive(Debug, Default)]
pub struct UserSsh {
    specs: Vec<SshSpec>,
    known_hosts: String,
    agent: Option<PathBuf>,
    writable: Vec<PathBuf>,
}

impl UserSsh {
    /// Finds what these keys need, with what people are told about it.
    pub(crate) fn find(keys: &[SshKeys], owner: &Owner) -> (Self, Vec<String>) {
        if keys.is_empty() {
            return Default::default();
        }
        let found = read_files(Path::new(SYSTEM), owner);
        let found = found.and_then(|text| lines_for(keys, &text));
        let (known_hosts, mut notices) = match found {
            Ok(lines) => (lines, Vec::new()),
            Err(why) => (
                String::new(),
                vec![format!(
                    "`[ssh]`: no key of a host is known, so no login is signed: {why}"
                )],
            ),
        };
        let agent = owner.variables.get(OsStr::new("SSH_AUTH_SOCK"));
        let agent = agent.map(PathBuf::from).filter(|path| path.is_absolute());
        if agent.is_none() {
            notices.push(format!("`[ssh]`: {}", AgentError::Unset));
        }
        let found = Self {
            known_hosts,
            specs: keys.iter().map(spec).collect(),
            agent,
            writable: owner.writable.clone(),
        };
        (found, notices)
    }

    /// The part that the gateway gets.
    pub fn specs(&self) -> &[SshSpec] {
        &self.specs
    }

    /// Keys of the hosts, as lines of `known_hosts`.
    pub fn known_hosts(&self) -> &str {
        &self.known_hosts
    }

    /// Connects to the user's agent. It does not wait.
    ///
    /// # Errors
    /// Why there is no connection.
    pub fn connect(&self) -> Result<OwnedFd, AgentError> {
        let path = self.agent.as_ref().ok_or(AgentError::Unset)?;
        let name = || path.display().to_string();
        let failed = |error: io::Error| AgentError::Unreached(name(), error);
        let real = path.canonicalize().map_err(failed)?;
        if leads_into(path, &self.writable) {
            return Err(AgentError::Writable(name()));
        }
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let socket = socket::make(libc::AF_UNIX, kind, 0).map_err(failed)?;
        let kernel = |errno: Errno| failed(errno.into());
        let address = UnixAddr::new(&real).map_err(kernel)?;
        connect(socket.as_raw_fd(), &address).map_err(kernel)?;
        let peer = getsockopt(&socket, PeerCredentials).map_err(kernel)?;
        match peer.uid() == euid() {
            true => Ok(socket),
            false => Err(AgentError::Foreign(name())),
        }
    }
}

fn spec(keys: &SshKeys) -> SshSpec {
    SshSpec {
        name: keys.name.clone(),
        hosts: keys.hosts.clone(),
        user: keys.user.clone(),
        keys: keys.keys.clone(),
        signs: keys.sign.is_some(),
    }
}

/// The lines of the files that are there. One that cannot be read, or not be believed, could revoke a key: then no host is known.
fn read_files(system: &Path, owner: &Owner) -> Result<String, KnownHostsError> {
    let of_user = USER_FILES.map(|name| owner.home.join(name));
    let of_system = SYSTEM_FILES.map(|name| system.join(name));
    let mut text = String::new();
    let mut is_any = false;
    for path in of_user.iter().chain(&of_system) {
        if let Some(lines) = read(path, owner)? {
            is_any = true;
            text.push_str(&lines);
            // The last line of a file may have no end.
            text.push('\n');
        }
    }
    let [first, ..] = of_user;
    is_any.then_some(text).ok_or(KnownHostsError::None(first))
}

/// The text of a file, if there is one.
fn read(path: &Path, owner: &Owner) -> Result<Option<String>, KnownHostsError> {
    let source = FileSource::new(path.to_owned(), owner).and_then(|source| source.file());
    let file = match source {
        Ok((file, _)) => File::from(file),
        Err(SourceError::Unopened(_, why)) if why.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(why) => return Err(why.into()),
    };
    let mut text = String::new();
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    let length = read.map_err(|error| KnownHostsError::Read {
        path: path.to_owned(),
        error,
    })?;
    match length as u64 > FILE_MAX {
        // The rest could revoke a key.
        true => Err(KnownHostsError::TooLong(path.to_owned())),
        false => Ok(Some(text)),
    }
}

/// The lines that name one of the hosts, or may: a hashed name is compared by the gateway. Revoked keys come first and all of them, as the
/// rest is cut where it is too long.
fn lines_for(keys: &[SshKeys], text: &str) -> Result<String, KnownHostsError> {
    let hosts = keys.iter().flat_map(|keys| &keys.hosts);
    let names: Vec<String> = hosts.map(|place| name_of(place)).collect();
    let is_named = |line: &&str| {
        let first = first_word(line);
        let mut listed = first.split(',');
        first.starts_with("|1|")
            || listed.any(|name| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
    };
    let is_revocation = |line: &&str| first_word(line).starts_with("@revoked");
    let revoked = text.lines().filter(is_revocation);
    let named = text.lines().filter(is_named);
    let mut found = String::new();
    for line in revoked {
        found.push_str(line);
        found.push('\n');
    }
    if found.len() > limit::KNOWN_HOSTS {
        return Err(KnownHostsError::Revoked);
    }
    for line in named {
        if found.len() + line.len() < limit::KNOWN_HOSTS {
            found.push_str(line);
            found.push('\n');
        }
    }
    Ok(found)
}

/// The first word of a line, as the gateway parts words.
fn first_word(line: &str) -> &str {
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    words.next().unwrap_or_default()
}

/// A `HOST:PORT` of the policy, as `known_hosts` names it.
fn name_of(place: &str) -> String {
    let parts = place.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host, port.parse().ok()?)));
    parts.map_or_else(
        || place.to_owned(),
        |(host, port)| known_host_name(host, port),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_spec::variables::Variables;
    use policies::ssh::LoginRule;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_lines_that_may_name_a_host_are_taken() {
        let keys = SshKeys {
            name: "one".into(),
            hosts: vec!["a.example:22".into(), "b.example:2222".into()],
            user: "git".into(),
            keys: vec![],
            login: LoginRule::Ask,
            sign: None,
            origin: Default::default(),
        };
        let text = "c.example ssh-ed25519 A\n\
                    A.example,192.0.2.1 ssh-ed25519 B\n\
                    [b.example]:2222 ssh-ed25519 C\n\
                    b.example ssh-ed25519 D\n\
                    |1|x|y ssh-ed25519 E\n\
                    @revoked * ssh-ed25519 F\n \
                    \t@revoked c ssh-ed25519 G\n\
                    \x20 a.example ssh-ed25519 H\n";
        let one = [keys];
        let letters = lines_for(&one, text).unwrap();
        let letters: String = letters
            .lines()
            .filter_map(|line| line.chars().last())
            .collect();
        assert_eq!(letters, "FGBCEH");
        // A revoked key that has no room would be a host's again.
        let revoked = "@revoked * ssh-ed25519 F\n".repeat(limit::KNOWN_HOSTS / 24);
        assert!(lines_for(&one, &(revoked + text)).is_err());
    }

    #[test]
    fn each_file_of_ssh_counts_and_none_that_cannot_be_believed() {
        let folder = tempfile::tempdir().unwrap();
        let (home, system) = (folder.path().join("home"), folder.path().join("system"));
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::create_dir_all(&system).unwrap();
        let variables = Variables::default();
        let owner = Owner {
            home: &home,
            variables: &variables,
            writable: Vec::new(),
        };
        assert!(read_files(&system, &owner).is_err());
        let of_user = USER_FILES.map(|name| home.join(name));
        let of_system = SYSTEM_FILES.map(|name| system.join(name));
        let all: Vec<_> = of_user.iter().chain(&of_system).collect();
        for (path, line) in all.iter().zip(["one", "two", "three", "four"]) {
            fs::write(path, line).unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        let text = read_files(&system, &owner).unwrap();
        assert_eq!(text, "one\ntwo\nthree\nfour\n");
        for path in all {
            fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            assert!(read_files(&system, &owner).is_err(), "{}", path.display());
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
            assert!(read_files(&system, &owner).is_err(), "{}", path.display());
            fs::remove_dir(path).unwrap();
        }
    }
}
