//! The policy files of this machine and user, for what the orchestrator itself does: the web tools. What the executor
//! does, the executor decides by its own reading of the same files.

use nix::unistd::{Uid, User};
use policies::model::FILE_MAX;
use policies::{Host, Policies, Source, SourceKind, WebPolicy};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use thiserror::Error;

const SYSTEM_POLICY: &str = "/etc/lazaret/policy.toml";

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

/// What the web tools of a session with `profile` may do.
pub fn web(profile: &str) -> Result<WebPolicy, PolicyError> {
    // The account's home and not `HOME`, as the executor has it.
    let account = User::from_uid(Uid::effective()).ok().flatten();
    let home = account.map_or_else(|| "/".into(), |account| account.dir);
    let mut sources = Vec::new();
    for (path, kind) in [
        (PathBuf::from(SYSTEM_POLICY), SourceKind::System),
        (config_home(&home).join("lazaret/policy.toml"), SourceKind::User),
    ] {
        match read(&path) {
            Ok(text) => sources.push(Source { name: path.display().to_string(), kind, text }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(PolicyError::Read { path, source }),
        }
    }
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let host = Host { home, variables: std::env::vars_os().filter_map(text).collect() };
    Ok(Policies::load(sources)?.resolve(profile, &host)?.web)
}

/// As much as shows that a file is too large, and no more.
fn read(path: &Path) -> io::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "our own configuration, which lies in no zone")]
    let file = File::open(path)?;
    let mut text = String::new();
    file.take(FILE_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn config_home(home: &Path) -> PathBuf {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    named.filter(|path| path.is_absolute()).unwrap_or_else(|| home.join(".config"))
}
