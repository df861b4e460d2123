//! What was installed: kept so that it can be taken back, to the byte where nothing else has changed the files since.

use crate::Programs;
use crate::files;
use orchestrator_records::state_directory;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;

/// An installation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    /// How the client gets our tools.
    pub way: String,
    lazaret: String,
    lazaret_bash: String,
    /// Its files, in the order of the recipe.
    pub files: Vec<Changed>,
}

/// A file that was changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// Its text before; `None` where there was no such file.
    pub before: Option<String>,
    /// Its text after.
    pub after: String,
}

impl Record {
    /// Of what was installed now, by these programs.
    pub fn new(way: &str, programs: &Programs, files: Vec<Changed>) -> Self {
        let Programs { lazaret, lazaret_bash } = programs.clone();
        Self { way: way.to_owned(), lazaret, lazaret_bash, files }
    }

    /// The programs that were named in it.
    pub fn programs(&self) -> Programs {
        Programs { lazaret: self.lazaret.clone(), lazaret_bash: self.lazaret_bash.clone() }
    }

    /// Where that of a client is: its settings lie below `HOME`.
    pub fn path(client: &str) -> PathBuf {
        state_directory::of_home().join("install").join(format!("{client}.json"))
    }

    /// That of a client, if there is one.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(client: &str) -> io::Result<Option<Self>> {
        let Some(text) = files::read(&Self::path(client))? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(io::Error::from)
    }

    /// Writes it, mode 0600: settings have keys in them.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, client: &str) -> io::Result<()> {
        let path = Self::path(client);
        let before = files::read(&path)?;
        files::replace(&path, before.as_deref(), Some(&serde_json::to_string(self)?))
    }

    /// Removes that of a client.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(client: &str) -> io::Result<()> {
        let path = Self::path(client);
        let before = files::read(&path)?;
        files::replace(&path, before.as_deref(), None)
    }
}
