//! The programs that build packages. Each is the ordinary one of its system; what is missing is named with its package.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use thiserror::Error;

/// Where to get a tool that is not on every machine.
const SOURCES: [(&str, &str); 11] = [
    ("cargo-zigbuild", "pip install cargo-zigbuild ziglang"),
    ("cargo-cyclonedx", "cargo install cargo-cyclonedx --locked"),
    ("readelf", "apt-get install binutils"),
    ("strip", "apt-get install binutils"),
    (
        "aarch64-linux-gnu-strip",
        "apt-get install binutils-aarch64-linux-gnu",
    ),
    (
        "x86_64-linux-gnu-strip",
        "apt-get install binutils-x86-64-linux-gnu",
    ),
    ("dpkg-deb", "apt-get install dpkg"),
    ("rpmbuild", "apt-get install rpm"),
    ("npm", "apt-get install npm"),
    ("debootstrap", "apt-get install debootstrap"),
    ("python3", "apt-get install python3"),
];

/// Why no package was made, or one does not do what it should.
#[derive(Debug, Error)]
pub enum DistError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("`{tool}` cannot be started: {source}{hint}")]
    NotStarted {
        tool: String,
        source: io::Error,
        hint: String,
    },
    #[error("`{command}` failed: {status}")]
    Failed { command: String, status: ExitStatus },
    #[error("{0}")]
    Wrong(String),
}

impl DistError {
    pub fn wrong(message: impl Into<String>) -> Self {
        Self::Wrong(message.into())
    }

    /// The error of a file operation on `path`.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| Self::File { path, source }
    }
}

/// Runs it, with its output as ours.
pub fn run(command: &mut Command) -> Result<(), DistError> {
    let status = command
        .status()
        .map_err(|error| not_started(command, error))?;
    check(command, status)
}

/// Runs it, and returns what it prints, without the last line feed.
pub fn text(command: &mut Command) -> Result<String, DistError> {
    command.stderr(std::process::Stdio::inherit());
    let output = command
        .output()
        .map_err(|error| not_started(command, error))?;
    check(command, output.status)?;
    let text = String::from_utf8(output.stdout)
        .map_err(|_| DistError::wrong(format!("`{}` prints no text", line(command))))?;
    Ok(text.trim_end_matches('\n').to_owned())
}

fn check(command: &Command, status: ExitStatus) -> Result<(), DistError> {
    if status.success() {
        return Ok(());
    }
    Err(DistError::Failed {
        command: line(command),
        status,
    })
}

fn not_started(command: &Command, source: io::Error) -> DistError {
    let tool = command.get_program().to_string_lossy().into_owned();
    let hint = SOURCES
        .iter()
        .find(|(name, _)| *name == tool)
        .map(|(_, hint)| format!(" (`{hint}`)"));
    DistError::NotStarted {
        tool,
        source,
        hint: hint.unwrap_or_default(),
    }
}

fn line(command: &Command) -> String {
    let words: Vec<OsString> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsString::from)
        .collect();
    words.join(" ".as_ref()).to_string_lossy().into_owned()
}
