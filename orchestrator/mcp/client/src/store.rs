//! Files kept between sessions in the state directory, for the user alone: each server's pins and log, and which repositories'
//! files were accepted.

use crate::settings::{ServerSettings, SettingsOwner};
use broker_protocol::Digest;
use orchestrator_http::ask::HostOrigin;
use orchestrator_launch::state_directory;
use orchestrator_records::kept;
use policies::directories;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that lists the accepted files of repositories.
const ACCEPTED: &str = "accepted.json";

/// The directory of all these files.
pub fn directory() -> PathBuf {
    state_directory::directory().join("servers")
}

/// The user's own server settings.
pub fn user_file() -> PathBuf {
    let folder = directories::configuration(&state_directory::home(), &state_directory::variable);
    folder.join("mcp.json")
}

/// A repository's server settings, below the project root.
pub const REPOSITORY_FILE: &str = ".mcp.json";

/// The directory for the files of a server that sees nothing of the project: one for each server and project.
pub(crate) fn central(server: &str, project: &str) -> PathBuf {
    let name = format!("{server}-{}", Digest(Sha256::digest(project).into()));
    state_directory::data().join("servers").join(name)
}

/// Creates the directory, so that files in it can still be written after the confinement.
///
/// # Errors
/// Errors of the file system; also if others have access to the directory.
pub fn prepare() -> io::Result<PathBuf> {
    let directory = directory();
    kept::prepare(&directory)?;
    Ok(directory)
}

/// Creates the directory of what [`ServerFiles::login_hosts`] has: only a command by which a person logs in may write there.
///
/// # Errors
/// Errors of the file system; also if others have access to the directory.
pub fn prepare_logins() -> io::Result<PathBuf> {
    let directory = logins();
    kept::prepare(&directory)?;
    Ok(directory)
}

/// The key of the tokens in stored logins: in no directory that a command writes, nor reads once it is confined.
pub(crate) fn login_key() -> PathBuf {
    state_directory::directory().join("login-key")
}

fn logins() -> PathBuf {
    state_directory::directory().join("logins")
}

/// The files of one server. `owner` is the project whose repository configures it, or nothing for the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles(PathBuf);

impl ServerFiles {
    /// The place of a server.
    pub fn of(server: &str, owner: Option<&str>) -> Self {
        let name = match owner {
            None => server.to_owned(),
            // A server's name contains no dot.
            Some(project) => format!("{server}.{}", Digest(Sha256::digest(project).into())),
        };
        Self(directory().join(name))
    }

    /// The place of a server in the settings for `project`.
    pub(crate) fn of_server(server: &ServerSettings, project: &str) -> Self {
        match server.whose {
            SettingsOwner::User => Self::of(&server.name, None),
            SettingsOwner::Repository => Self::of(&server.name, Some(project)),
        }
    }

    fn file(&self, ending: &str) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    /// The stored pins, if there are any.
    pub(crate) fn pins(&self) -> Option<String> {
        kept::read(&self.file(".pins"))
    }

    /// Writes pins, replacing those stored before.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write_pins(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".pins"), text)
    }

    /// The tools of a running server that wait to be accepted, in the form of pins.
    pub fn waiting(&self) -> Option<String> {
        kept::read(&self.file(".waiting"))
    }

    /// Writes the tools that wait to be accepted.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write_waiting(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".waiting"), text)
    }

    /// Removes the tools that wait to be accepted.
    pub(crate) fn forget_waiting(&self) {
        self.remove(".waiting");
    }

    /// The log as it was stored.
    pub fn log(&self) -> String {
        kept::read(&self.file(".log")).unwrap_or_default()
    }

    /// Writes a log, replacing the one stored before.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write_log(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".log"), text)
    }

    /// The stored login, if there is one.
    pub fn login(&self) -> Option<String> {
        kept::read(&self.file(".login"))
    }

    /// Writes a login, replacing the one stored before.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write_login(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".login"), text)
    }

    /// The hosts that took part when a person logged in.
    pub(crate) fn login_hosts(&self) -> Vec<HostOrigin> {
        let text = kept::read(&self.login_hosts_file()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Writes these hosts, replacing those stored before.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write_login_hosts(&self, hosts: &BTreeSet<HostOrigin>) -> io::Result<()> {
        let text = serde_json::to_string(hosts).map_err(io::Error::other)?;
        kept::replace(&self.login_hosts_file(), &text)
    }

    /// Not beside the server's other files: sessions write those.
    fn login_hosts_file(&self) -> PathBuf {
        logins().join(self.0.file_name().unwrap_or_default())
    }

    /// The server's last challenge, if it refused us.
    pub(crate) fn challenge(&self) -> Option<String> {
        kept::read(&self.file(".challenge"))
    }

    /// Writes the challenge, replacing the one stored before.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn write_challenge(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".challenge"), text)
    }

    /// A file to lock while the login is renewed.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn lock_file(&self) -> io::Result<File> {
        let mut options = File::options();
        options
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW);
        options.open(self.file(".lock"))
    }

    /// Removes the login, the hosts that took part in it, and the challenge.
    pub fn forget_login(&self) {
        self.remove(".login");
        remove(&self.login_hosts_file());
        self.forget_challenge();
    }

    /// Removes the stored challenge.
    pub(crate) fn forget_challenge(&self) {
        self.remove(".challenge");
    }

    /// Removes all files of the server.
    pub fn forget(&self) {
        [".pins", ".waiting", ".log", ".login", ".challenge", ".lock"]
            .iter()
            .for_each(|ending| self.remove(ending));
        remove(&self.login_hosts_file());
    }

    fn remove(&self, ending: &str) {
        remove(&self.file(ending));
    }
}

/// A missing file needs no removal.
#[expect(
    clippy::disallowed_methods,
    reason = "our own records, in neither root"
)]
fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}

/// Whether the user has accepted this text as the settings of the repository at `project`.
pub fn is_accepted(project: &str, text: &str) -> bool {
    accepted().get(project).and_then(Value::as_str) == Some(digest(text).as_str())
}

/// Accepts it, replacing any other text of that repository.
///
/// # Errors
/// Those of the file system.
pub fn accept(project: &str, text: &str) -> io::Result<()> {
    let mut all = accepted();
    all.insert(project.to_owned(), digest(text).into());
    kept::replace(&directory().join(ACCEPTED), &Value::Object(all).to_string())
}

fn accepted() -> serde_json::Map<String, Value> {
    kept::read(&directory().join(ACCEPTED))
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default()
}

/// SHA-256 of a file's text.
pub fn digest(text: &str) -> String {
    Digest(Sha256::digest(text).into()).to_string()
}
