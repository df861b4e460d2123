//! The user's ssh agent, for sessions whose policy lets it sign (`[ssh]`): connections to it, and the hosts' keys that the user knows. Nothing here
//! speaks the agent's protocol; the gateway does.

use crate::source::{FileSource, Owner, SourceError, is_below};
use broker_protocol::gateway::{SshSpec, known_host_name};
use broker_protocol::limit;
use executor_sys::process::euid;
use executor_sys::socket;
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixAddr, connect, getsockopt};
use policies::ssh::SshKeys;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use thiserror::Error;

/// Maximum bytes of the user's file.
const FILE_MAX: u64 = 4 << 20;

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
    #[error("{0}")]
    Source(#[from] SourceError),
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error("it has more than {FILE_MAX} bytes")]
    TooLong,
    #[error("its revoked keys have more than {max} bytes", max = limit::KNOWN_HOSTS)]
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
        let path = owner.home.join(".ssh/known_hosts");
        let found = read(path, owner).and_then(|text| lines_for(keys, &text));
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
        if is_below(&real, &self.writable) || is_below(path, &self.writable) {
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

fn read(path: PathBuf, owner: &Owner) -> Result<String, KnownHostsError> {
    let (file, _) = FileSource::new(path, owner)?.file()?;
    let mut text = String::new();
    let length = File::from(file)
        .take(FILE_MAX + 1)
        .read_to_string(&mut text)?;
    match length as u64 > FILE_MAX {
        // The rest could revoke a key.
        true => Err(KnownHostsError::TooLong),
        false => Ok(text),
    }
}

/// The lines that name one of the hosts, or may: a hashed name is compared by the gateway. Revoked keys come first and all of them, as the
/// rest is cut where it is too long.
fn lines_for(keys: &[SshKeys], text: &str) -> Result<String, KnownHostsError> {
    let hosts = keys.iter().flat_map(|keys| &keys.hosts);
    let names: Vec<String> = hosts.map(|place| name_of(place)).collect();
    let is_named = |line: &&str| {
        let first = line.split_ascii_whitespace().next().unwrap_or_default();
        let mut listed = first.split(',');
        first.starts_with("|1|")
            || listed.any(|name| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
    };
    let revoked = text.lines().filter(|line| line.starts_with("@revoked"));
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
    use policies::ssh::LoginRule;

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
                    @revoked * ssh-ed25519 F\n";
        let one = [keys];
        let letters = lines_for(&one, text).unwrap();
        let letters: String = letters
            .lines()
            .filter_map(|line| line.chars().last())
            .collect();
        assert_eq!(letters, "FBCE");
        // A revoked key that has no room would be a host's again.
        let revoked = "@revoked * ssh-ed25519 F\n".repeat(limit::KNOWN_HOSTS / 24);
        assert!(lines_for(&one, &(revoked + text)).is_err());
    }
}
