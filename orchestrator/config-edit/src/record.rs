//! A record of what was installed, so that it can be reverted: to the byte, unless something else has changed the files since.

use crate::Programs;
use crate::files;
use crate::recipes::USUAL_SERVER;
use orchestrator_launch::state_directory;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

#[derive(Debug, Serialize, Deserialize)]
pub struct InstallRecord {
    /// The way in which the client gets our tools.
    pub way: String,
    lazaret: String,
    lazaret_bash: String,
    /// The name of our server; the first releases had but one.
    #[serde(default = "usual_server")]
    server: String,
    /// The changed files, in the order of the recipe.
    pub files: Vec<ChangedFile>,
}

fn usual_server() -> String {
    USUAL_SERVER.to_owned()
}

/// A file that was changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ChangedFile {
    pub path: PathBuf,
    /// Its previous text; `None` if the file did not exist.
    pub before: Option<String>,
    /// The text after the change.
    pub after: String,
}

impl InstallRecord {
    /// A record of an installation made now, for these programs.
    pub fn new(way: &str, programs: &Programs, files: Vec<ChangedFile>) -> Self {
        let Programs {
            lazaret,
            lazaret_bash,
            server,
        } = programs.clone();
        Self {
            way: way.to_owned(),
            lazaret,
            lazaret_bash,
            server,
            files,
        }
    }

    /// The programs that it names.
    pub fn programs(&self) -> Programs {
        let (lazaret, lazaret_bash) = (self.lazaret.clone(), self.lazaret_bash.clone());
        Programs {
            lazaret,
            lazaret_bash,
            server: self.server.clone(),
        }
    }

    /// The path of a client's record; the client's settings are below `HOME`.
    pub fn path(client: &str) -> PathBuf {
        state_directory::of_home()
            .join("install")
            .join(format!("{client}.json"))
    }

    /// The record of a client, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(client: &str) -> io::Result<Option<Self>> {
        let Some(text) = files::read(&Self::path(client))? else {
            return Ok(None);
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(io::Error::from)
    }

    /// Writes it with mode 0600: settings contain keys.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, client: &str) -> io::Result<()> {
        let path = Self::path(client);
        let before = files::read(&path)?;
        files::replace(
            &path,
            before.as_deref(),
            Some(&serde_json::to_string(self)?),
        )
    }

    /// Removes the record of a client.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(client: &str) -> io::Result<()> {
        let path = Self::path(client);
        let before = files::read(&path)?;
        files::replace(&path, before.as_deref(), None)
    }
}
