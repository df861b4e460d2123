//! The policy files of this machine and user, for what the orchestrator itself does: the web tools, and which
//! tools are shown. What the executor
//! does, the executor decides by its own reading of the same files.

use super::state;
use policies::model::FILE_MAX;
use policies::{EffectivePolicy, Host, Policies, Source, resolve};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there is no policy.
#[derive(Debug, Error)]
pub enum PolicyError {
    /// A file is there and cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What the files say is no policy.
    #[error(transparent)]
    Policy(#[from] policies::PolicyError),
}

/// The policy of a session with `profile`, without what a scope makes of it.
pub fn load(profile: &str) -> Result<EffectivePolicy, PolicyError> {
    let home = state::home();
    let mut sources = Vec::new();
    for (path, kind) in resolve::files(&home, &state::variable) {
        match read(&path) {
            Ok(text) => sources.push(Source { name: path.display().to_string(), kind, text }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(PolicyError::Read { path, source }),
        }
    }
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let host = Host { home, variables: std::env::vars_os().filter_map(text).collect() };
    Ok(Policies::load(sources)?.resolve(profile, &host)?)
}

/// As much as shows that a file is too large, and no more.
fn read(path: &Path) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "our own configuration, which lies in no zone")]
    let file = File::open(path)?;
    let mut text = String::new();
    file.take(FILE_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}
