//! What is kept of servers from one session to the next, in the state directory, for nobody else: the pins and the log of each, and
//! which repositories' files were accepted.

use broker_protocol::Digest;
use orchestrator_records::{kept, state_directory};
use policies::directories;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::io;
use std::path::PathBuf;

/// The file that says which repositories' files were accepted.
const ACCEPTED: &str = "accepted.json";

/// The directory of all this.
pub fn directory() -> PathBuf {
    state_directory::directory().join("servers")
}

/// The user's own settings of servers.
pub fn user_file() -> PathBuf {
    let folder = directories::configuration(&state_directory::home(), &state_directory::variable);
    folder.join("mcp.json")
}

/// A repository's settings of servers, below the project root.
pub const REPOSITORY_FILE: &str = ".mcp.json";

/// Where a server that sees nothing of the project has its own files: one place for each server and project.
pub fn central(server: &str, project: &str) -> PathBuf {
    let name = format!("{server}-{}", Digest(Sha256::digest(project).into()));
    state_directory::data().join("servers").join(name)
}

/// Makes the directory, so that files can be written there later, when nothing else can.
///
/// # Errors
/// Those of the file system; what is not ours alone is refused.
pub fn prepare() -> io::Result<PathBuf> {
    let directory = directory();
    kept::prepare(&directory)?;
    Ok(directory)
}

/// The files of one server. `owner` is the project whose repository has it, or nothing for a user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(PathBuf);

impl Place {
    /// That of a server.
    pub fn of(server: &str, owner: Option<&str>) -> Self {
        let name = match owner {
            None => server.to_owned(),
            // A server's name has no dot.
            Some(project) => format!("{server}.{}", Digest(Sha256::digest(project).into())),
        };
        Self(directory().join(name))
    }

    fn file(&self, ending: &str) -> PathBuf {
        let mut name = self.0.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    /// The pins as they were written, if there are any.
    pub fn pins(&self) -> Option<String> {
        kept::read(&self.file(".pins"))
    }

    /// Writes pins in the place of those before.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_pins(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".pins"), text)
    }

    /// The log as it was written.
    pub fn log(&self) -> String {
        kept::read(&self.file(".log")).unwrap_or_default()
    }

    /// Writes a log in the place of the one before.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_log(&self, text: &str) -> io::Result<()> {
        kept::replace(&self.file(".log"), text)
    }

    /// Forgets what is kept. What is not there needs no forgetting.
    #[expect(clippy::disallowed_methods, reason = "our own records, in neither root")]
    pub fn forget(&self) {
        for ending in [".pins", ".log"] {
            let _ = std::fs::remove_file(self.file(ending));
        }
    }
}

/// Whether the user has accepted this text as the settings of the repository at `project`.
pub fn is_accepted(project: &str, text: &str) -> bool {
    accepted().get(project).and_then(Value::as_str) == Some(digest(text).as_str())
}

/// Accepts it, in the place of any other of that repository.
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
