//! A start without secrets: a process that will hear a model has none in its environment, and so none in its memory.
//!
//! Variables that look like secrets stay on the stack of a process for as long as it runs. So they go into a file of memory, and this
//! program becomes itself again without them. That file goes to what needs the whole environment, and to the redactor, a process
//! of its own that searches texts for them; here it is closed before the confinement.

use crate::secret_file::{self, inherited};
use crate::start;
use nix::sys::prctl;
use orchestrator_confine::{Files, Needs, Unconfined};
use orchestrator_text::known::{self, COLLECTOR_HEADERS};
use orchestrator_text::redact::{Redactor, RedactorError};
use orchestrator_text::redactor_process::{self, SecretSource};
use orchestrator_text::secret_environment;
use policies::secret::{SEALED_TOKEN, SEALED_TOKEN_MAX, holds_secret, secrets};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use thiserror::Error;

/// How long the gateway may take to receive the keys, and to read a token.
const GATEWAY_TIME: Duration = Duration::from_secs(10);

/// Why a command cannot be started without secrets in its memory.
#[derive(Debug, Error)]
pub enum WithoutSecretsError {
    #[error("the secrets of the environment cannot be put aside: {0}")]
    PutAside(io::Error),
    #[error("the process that searches texts for secrets cannot be started: {0}")]
    Start(io::Error),
    #[error("the program that gets the whole environment cannot be started: {0}")]
    Become(io::Error),
    #[error("the process that starts gateways cannot serve: {0}")]
    Gateways(io::Error),
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
        .filter(|(name, _)| holds_secret(name) || COLLECTOR_HEADERS.iter().any(|one| name == one))
        .collect();
    if !hidden.is_empty() {
        let error = put_aside(files, &hidden);
        return Err(WithoutSecretsError::PutAside(error));
    }
    if let Some(file) = inherited(files).map_err(WithoutSecretsError::PutAside)? {
        secret_environment::install(file).map_err(WithoutSecretsError::PutAside)?;
    }
    let (socket, keys) = start::start_redactor(files).map_err(WithoutSecretsError::Start)?;
    *lock() = Some(keys);
    known::install(Redactor::remote(socket)?);
    Ok(())
}

/// The line on which keys come for the gateway, until that gets it.
static KEYS: Mutex<Option<OwnedFd>> = Mutex::new(None);

fn lock() -> MutexGuard<'static, Option<OwnedFd>> {
    KEYS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The gateway's end of the line on which keys come; it does not stay here.
pub(crate) fn keys() -> Option<OwnedFd> {
    lock().take()
}

/// Before the confinement: of what the gateway got, nothing is left here; nor of what it did not get.
pub(crate) fn give_up() {
    drop(keys());
    secret_environment::close();
    // Without it, all text is withheld.
    let _ = known::redactor().confine();
}

/// Returns only if that fails.
fn put_aside(files: &Files, hidden: &[(OsString, OsString)]) -> io::Error {
    // Inherited by the program that this one becomes.
    let _file = match secret_file::create(hidden) {
        Ok(file) => file,
        Err(error) => return error,
    };
    let names = hidden.iter().map(|(name, _)| name);
    start::become_without(files, names)
}

/// Answers a question for a key, which it writes to a line.
pub type KeySearch = Box<dyn FnMut(&Files, &[u8], &mut dyn Write) -> io::Result<Value>>;

/// Keys for the process that asks, while this one may still read files.
struct HeldKeys {
    /// Until it is confined.
    finding: Option<(Unconfined, KeySearch)>,
    /// Keys that wait for the gateway, which does not run yet.
    found: Vec<u8>,
    /// To the gateway, which also reads tokens that are encrypted; `None` once an answer is missing: the next would be taken for it.
    line: Option<BufReader<UnixStream>>,
}

impl HeldKeys {
    /// The answer of the gateway, a line too.
    fn ask_gateway(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        let line = self.line.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        line.get_ref().write_all(&[text, b"\n"].concat())?;
        let mut answer = Vec::new();
        let mut bounded = line.take(SEALED_TOKEN_MAX as u64);
        bounded.read_until(b'\n', &mut answer)?;
        match answer.pop() {
            Some(b'\n') => Ok(answer),
            Some(_) | None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl SecretSource for HeldKeys {
    fn find(&mut self, query: &[u8]) -> io::Result<Value> {
        let (unconfined, search) = self.finding.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        search(unconfined.files(), query, &mut self.found)
    }

    fn open(&mut self, text: &[u8]) -> Option<Vec<u8>> {
        let is_sealed = text.starts_with(SEALED_TOKEN.as_bytes());
        let is_line = text.len() <= SEALED_TOKEN_MAX && text.iter().all(u8::is_ascii_graphic);
        if !is_sealed || !is_line {
            return None;
        }
        let answer = self.ask_gateway(text).inspect_err(|_| self.line = None);
        // An empty one is of a key that nobody has: nothing is sent in its place.
        answer.ok().filter(|token| !token.is_empty())
    }

    fn confine(&mut self) -> io::Result<()> {
        let (unconfined, _) = self.finding.take().ok_or(io::ErrorKind::Unsupported)?;
        let found = std::mem::take(&mut self.found);
        let length = u32::try_from(found.len()).unwrap_or(u32::MAX);
        let text = [&length.to_be_bytes()[..], &found].concat();
        // Where no gateway wants them, nobody has the other end.
        let sent = self
            .line
            .as_ref()
            .map(|line| line.get_ref().write_all(&text));
        drop(sent);
        drop(found);
        // The line has a descriptor of its own.
        rustix::stdio::dup2_stdout(io::stdin())?;
        // Who reads the diagnostics of its user waits for no other process.
        rustix::stdio::dup2_stderr(io::stdin())?;
        secret_environment::close();
        // Nobody of its user reads its memory.
        prctl::set_dumpable(false)?;
        unconfined.confine(&Needs::default());
        Ok(())
    }
}

/// Finds keys for the process at the other end of standard input, and searches its texts for them and for the secrets of its environment,
/// until it has ended. Keys go to standard output.
///
/// # Errors
/// If it cannot search for all of them.
pub(crate) fn serve_redactor(
    unconfined: Unconfined,
    search: Option<fn() -> KeySearch>,
) -> Result<(), WithoutSecretsError> {
    let begun = WithoutSecretsError::Start;
    let files = unconfined.files();
    if let Some(file) = inherited(files).map_err(begun)? {
        secret_environment::install(file).map_err(begun)?;
    }
    let all = secret_environment::all().map_err(begun)?;
    known::install(Redactor::new(secrets(
        all.iter().map(|(name, value)| (name, value)),
    ))?);
    drop(all);
    prctl::set_name(c"lazaret-secrets").map_err(|errno| begun(errno.into()))?;
    let [socket, line] =
        [io::stdin().as_fd(), io::stdout().as_fd()].map(|end| end.try_clone_to_owned());
    let line = UnixStream::from(line.map_err(begun)?);
    for limit in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
        limit(&line, Some(GATEWAY_TIME)).map_err(begun)?;
    }
    let search = search.ok_or_else(|| begun(io::ErrorKind::Unsupported.into()))?();
    let source = HeldKeys {
        finding: Some((unconfined, search)),
        found: Vec::new(),
        line: Some(BufReader::new(line)),
    };
    let socket = UnixStream::from(socket.map_err(begun)?);
    redactor_process::serve(socket, known::redactor(), source).map_err(begun)
}
