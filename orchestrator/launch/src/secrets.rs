//! A start without secrets: a process that will hear a model has none in its environment, and so none in its memory.
//!
//! Variables that look like secrets stay on the stack of a process for as long as it runs. So they go into a file of memory, and this
//! program becomes itself again without them. That file goes to what needs the whole environment, and to the redactor, a process
//! of its own that searches texts for them; here it is closed before the confinement.

use crate::start;
use nix::sys::prctl;
use nix::unistd;
use orchestrator_confine::{Files, Needs, Unconfined};
use orchestrator_text::known;
use orchestrator_text::redact::{Redactor, RedactorError};
use orchestrator_text::redactor_process;
use orchestrator_text::secret_environment;
use policies::secret::{holds_secret, secrets};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use thiserror::Error;

/// The file's name, as the kernel shows it: `/memfd:NAME (deleted)`.
const NAME: &str = "lazaret-secrets";

/// Why a command cannot be started without secrets in its memory.
#[derive(Debug, Error)]
pub enum WithoutSecretsError {
    #[error("the secrets of the environment cannot be put aside: {0}")]
    PutAside(io::Error),
    #[error("the process that searches texts for secrets cannot be started: {0}")]
    Start(io::Error),
    #[error("the program that gets the whole environment cannot be started: {0}")]
    Become(io::Error),
    #[error("{0}")]
    Redactor(#[from] RedactorError),
}

/// Becomes this program again without the secrets of the environment, if it has any. Then starts the redactor, which knows them.
///
/// # Errors
/// If a secret would stay here.
pub fn begin(unconfined: &Unconfined) -> Result<(), WithoutSecretsError> {
    let files = unconfined.files();
    let hidden: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| holds_secret(name))
        .collect();
    if !hidden.is_empty() {
        let error = put_aside(files, &hidden);
        return Err(WithoutSecretsError::PutAside(error));
    }
    match inherited(files).map_err(WithoutSecretsError::PutAside)? {
        Some(file) => {
            secret_environment::install(file).map_err(WithoutSecretsError::PutAside)?;
            let socket = start::start_redactor(files).map_err(WithoutSecretsError::Start)?;
            known::install(Redactor::remote(socket)?);
        }
        None => known::install(Redactor::new(Vec::new())?),
    }
    Ok(())
}

/// Returns only if that fails.
fn put_aside(files: &Files, hidden: &[(OsString, OsString)]) -> io::Error {
    // Inherited by the program that this one becomes.
    let file = match memfd_create(NAME, MemfdFlags::empty()) {
        Ok(file) => File::from(file),
        Err(errno) => return errno.into(),
    };
    if let Err(error) = (&file).write_all(&secret_environment::packed(hidden)) {
        return error;
    }
    let names = hidden.iter().map(|(name, _)| name);
    start::become_without(files, names)
}

/// The file that this process was started with.
#[expect(
    clippy::disallowed_methods,
    reason = "descriptors of this process, before it hears anybody"
)]
fn inherited(_: &Files) -> io::Result<Option<File>> {
    let wanted = format!("/memfd:{NAME} (deleted)");
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|target| target == Path::new(&wanted)) {
            // Opened again, because nobody owns what was inherited, and no program that is started from now on gets it unasked.
            let file = File::open(&path)?;
            let number = path
                .file_name()
                .and_then(|name| name.to_str()?.parse::<i32>().ok());
            number.map(unistd::close).transpose()?;
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// A descriptor of the file, which a program that is started while it exists inherits.
pub(crate) fn inheritable() -> io::Result<Option<OwnedFd>> {
    let duplicate = secret_environment::with_file(|file| unistd::dup(file));
    Ok(duplicate.transpose()?)
}

/// The secrets of the environment that this process, which hears nobody, was started without.
///
/// # Errors
/// If there is no such file.
pub(crate) fn read(files: &Files) -> io::Result<Vec<(OsString, OsString)>> {
    let file = inherited(files)?.ok_or(io::ErrorKind::NotFound)?;
    secret_environment::install(file)?;
    let all = secret_environment::all();
    secret_environment::close();
    all
}

/// Searches texts of the process at the other end of standard input for the secrets of its environment, until it has ended.
///
/// # Errors
/// If it cannot search for all of them, or is not confined.
pub fn serve_redactor(unconfined: Unconfined) -> Result<(), WithoutSecretsError> {
    let begun = WithoutSecretsError::Start;
    let all = read(unconfined.files()).map_err(begun)?;
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(begun)?;
    let redactor = Redactor::new(secrets(all.iter().map(|(name, value)| (name, value))))?;
    drop(all);
    prctl::set_name(c"lazaret-secrets").map_err(|errno| begun(errno.into()))?;
    // Nobody of its user reads its memory.
    prctl::set_dumpable(false).map_err(|errno| begun(errno.into()))?;
    unconfined.confine(&Needs::default());
    redactor_process::serve(UnixStream::from(socket), &redactor).map_err(begun)
}
