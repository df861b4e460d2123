//! Where a value comes from, and its way into a pipe for the gateway. Nothing here reads a value.

use broker_protocol::{Digest, limit};
use executor_spec::variables::Variables;
use executor_sys::file::pipe_with;
use executor_sys::process::euid;
use executor_sys::random;
use nix::fcntl::{OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{AccessFlags, access, write};
use policies::{CredentialSource, EffectivePolicy, directories};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Variables that a program gets, besides those whose names begin with one of [`BEGINNINGS`].
const NAMES: [&str; 6] = ["USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", BUS];
/// The address of the user's D-Bus, by which a keyring is reached.
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";
const BEGINNINGS: [&str; 2] = ["LC_", "XDG_"];

/// Why a source gives no value.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error("{0}: {1}")]
    Unopened(String, io::Error),
    #[error("{0} is no regular file")]
    NotRegular(String),
    #[error("{0} belongs to somebody else")]
    Foreign(String),
    #[error("{0}: others may write it; `chmod go-w` closes it to them")]
    Shared(String),
    #[error("{0}: others may read it; `chmod go-r` closes it to them")]
    Readable(String),
    #[error("{0} leads to where commands can write")]
    Writable(String),
    #[error("{0} leads to where commands can read")]
    Granted(String),
    #[error("{0} is empty")]
    Empty(String),
    #[error("{0} has more than {kib} KiB", kib = limit::CREDENTIAL >> 10)]
    TooLarge(String),
    #[error("CREDENTIALS_DIRECTORY, which systemd sets for a service, is not set")]
    NoDirectory,
    #[error("the variable {0} is not set, or is empty")]
    Unset(String),
    #[error("there is no program `{0}` in a directory of PATH in which commands cannot write")]
    NoProgram(String),
    #[error("`{0}` has printed nothing")]
    Silent(String),
    #[error("`{0}` has ended with the exit code {1}")]
    Exited(String, i32),
    #[error("`{0}` was killed by the signal {1}")]
    Killed(String, i32),
    #[error("its program has run for more than 10 seconds")]
    TooLong,
    #[error("its program was started less than 30 seconds ago")]
    TooSoon,
    #[error("its program cannot be watched: {0}")]
    Unwatched(#[from] io::Error),
}

/// The user whose credentials they are, and where commands of the session can write.
#[derive(Clone, Debug)]
pub struct Owner<'o> {
    pub(crate) home: &'o Path,
    /// The environment of the broker.
    pub(crate) variables: &'o Variables,
    /// Directories without links, in which nothing is believed.
    pub(crate) writable: Vec<PathBuf>,
}

impl<'o> Owner<'o> {
    /// The owner of this home and environment, whose commands write below `writable`; those of other sessions have written to other
    /// projects' central roots.
    pub fn new(home: &'o Path, variables: &'o Variables, mut writable: Vec<PathBuf>) -> Self {
        let named = |name: &str| variables.get(OsStr::new(name)).cloned();
        let central = directories::all_data(home, &named);
        writable.extend(central.iter().filter_map(|path| path.canonicalize().ok()));
        Self {
            home,
            variables,
            writable,
        }
    }
}

/// A source that the user has.
#[derive(Debug)]
pub(crate) enum UserSource {
    File(FileSource),
    Command(CommandSource),
    Memory(MemorySource),
}

/// A value in memory that is read by the kernel alone, for each gateway of the session.
#[derive(Debug)]
pub(crate) struct MemorySource {
    memory: OwnedFd,
    length: usize,
}

impl MemorySource {
    /// A key of logins, for one session: 64 hexadecimal digits.
    pub(crate) fn key() -> io::Result<Self> {
        Self::of(Digest(random::bytes::<32>()?).to_string().as_bytes())
    }

    /// The value of a variable.
    fn of_variable(name: &str, variables: &Variables) -> Result<Self, SourceError> {
        let value = variables.get(OsStr::new(name));
        match value.map(|value| value.as_bytes()) {
            None | Some(b"") => Err(SourceError::Unset(name.to_owned())),
            Some(value) if value.len() > limit::CREDENTIAL => {
                Err(SourceError::TooLarge(format!("the variable {name}")))
            }
            Some(value) => Ok(Self::of(value)?),
        }
    }

    fn of(text: &[u8]) -> io::Result<Self> {
        let memory = memfd_create("credential", MFdFlags::MFD_CLOEXEC)?;
        match write(&memory, text)? {
            length if length == text.len() => Ok(Self { memory, length }),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// A pipe that holds it.
    pub(crate) fn open(&self) -> Result<OwnedFd, SourceError> {
        Ok(pipe_with(self.memory.as_fd(), self.length)?)
    }
}

/// A file that contains a value.
#[derive(Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    writable: Vec<PathBuf>,
}

/// A program that prints one.
#[derive(Debug)]
pub(crate) struct CommandSource {
    path: PathBuf,
    pub(crate) arguments: Vec<CString>,
    pub(crate) environment: Vec<CString>,
    writable: Vec<PathBuf>,
}

/// The file that a value comes from, if it comes from one and that can be named.
fn file_of(from: &CredentialSource, variables: &Variables) -> Option<PathBuf> {
    match from {
        CredentialSource::File(path) => Some(path.clone()),
        CredentialSource::Systemd(name) => {
            let directory = variables.get(OsStr::new("CREDENTIALS_DIRECTORY"));
            let directory = directory.map(Path::new).filter(|path| path.is_absolute());
            directory.map(|directory| directory.join(name))
        }
        CredentialSource::Command(_)
        | CredentialSource::Variable(_)
        | CredentialSource::Session => None,
    }
}

/// Why commands of a session with this policy may not read at or below `path`: they would have what its gateway takes from a file there.
pub fn kept_at(path: &Path, policy: &EffectivePolicy, variables: &Variables) -> Option<String> {
    let proxy = policy.gateway.proxy.iter();
    let login = proxy.filter_map(|proxy| Some(("proxy login", proxy.login.as_ref()?)));
    let own = policy.credentials.iter();
    let mut sources = own.map(|own| (own.name.as_str(), &own.from)).chain(login);
    let is_there = |from| file_of(from, variables).is_some_and(|file| leads_below(&file, path));
    let (name, _) = sources.find(|(_, from)| is_there(from))?;
    Some(format!(
        "commands would read the value of the credential `{name}` in it"
    ))
}

/// Whether a file, or what it leads to, lies at or below `path`, or below what that leads to.
fn leads_below(file: &Path, path: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    file.starts_with(path) || real(file).starts_with(real(path))
}

impl UserSource {
    /// The source, if it is there.
    pub(crate) fn of(from: &CredentialSource, owner: &Owner) -> Result<Self, SourceError> {
        match from {
            CredentialSource::File(_) | CredentialSource::Systemd(_) => {
                let path = file_of(from, owner.variables).ok_or(SourceError::NoDirectory)?;
                FileSource::new(path, owner).map(Self::File)
            }
            CredentialSource::Command(words) => CommandSource::new(words, owner).map(Self::Command),
            CredentialSource::Variable(name) => {
                MemorySource::of_variable(name, owner.variables).map(Self::Memory)
            }
            CredentialSource::Session => Ok(Self::Memory(MemorySource::key()?)),
        }
    }
}

impl UserSource {
    /// The source of a credential of this policy, if it is there and commands cannot read it.
    pub(crate) fn of_policy(
        from: &CredentialSource,
        policy: &EffectivePolicy,
        owner: &Owner,
    ) -> Result<Self, SourceError> {
        let source = Self::of(from, owner)?;
        match &source {
            Self::File(file) => file.check_grants(policy)?,
            Self::Command(_) | Self::Memory(_) => {}
        }
        Ok(source)
    }

    /// The source of a key of logins, if it is there and nobody else can read it.
    pub(crate) fn of_logins(
        from: &CredentialSource,
        policy: &EffectivePolicy,
        owner: &Owner,
    ) -> Result<Self, SourceError> {
        let source = Self::of_policy(from, policy, owner)?;
        match &source {
            Self::File(file) => file.check_readers()?,
            Self::Command(_) | Self::Memory(_) => {}
        }
        Ok(source)
    }
}

impl FileSource {
    pub(crate) fn new(path: PathBuf, owner: &Owner) -> Result<Self, SourceError> {
        let source = Self {
            path,
            writable: owner.writable.clone(),
        };
        source.file().map(|_| source)
    }

    /// Whether no grant of the policy lets commands read the value themselves. One of `/` is of an image and not of this machine.
    fn check_grants(&self, policy: &EffectivePolicy) -> Result<(), SourceError> {
        let mut grants = policy.grants.iter();
        let shows = |path: &Path| path != Path::new("/") && leads_below(&self.path, path);
        match grants.any(|grant| shows(&grant.path)) {
            true => Err(SourceError::Granted(self.path.display().to_string())),
            false => Ok(()),
        }
    }

    /// Whether nobody else can read it, as the key of what lies in files has to be.
    pub(crate) fn check_readers(&self) -> Result<(), SourceError> {
        let (file, _) = self.file()?;
        let stat = fstat(&file).map_err(io::Error::from)?;
        match stat.st_mode & 0o044 {
            0 => Ok(()),
            _ => Err(SourceError::Readable(self.path.display().to_string())),
        }
    }

    /// The file and its size, if it may be believed.
    pub(crate) fn file(&self) -> Result<(OwnedFd, usize), SourceError> {
        let name = || self.path.display().to_string();
        let unopened = |error: io::Error| SourceError::Unopened(name(), error);
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file =
            open(&self.path, flags, Mode::empty()).map_err(|errno| unopened(errno.into()))?;
        let stat = fstat(&file).map_err(|errno| unopened(errno.into()))?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(SourceError::NotRegular(name()));
        }
        if ![0, euid()].contains(&stat.st_uid) {
            return Err(SourceError::Foreign(name()));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(SourceError::Shared(name()));
        }
        // Of the file that is open, whatever its path leads to by now.
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        if is_below(&real.map_err(unopened)?, &self.writable) {
            return Err(SourceError::Writable(name()));
        }
        Ok((file, usize::try_from(stat.st_size).unwrap_or(usize::MAX)))
    }

    /// A pipe with its content.
    pub(crate) fn open(&self) -> Result<OwnedFd, SourceError> {
        let (file, size) = self.file()?;
        let name = || self.path.display().to_string();
        match size {
            0 => Err(SourceError::Empty(name())),
            size if size > limit::CREDENTIAL => Err(SourceError::TooLarge(name())),
            size => {
                pipe_with(file.as_fd(), size).map_err(|error| SourceError::Unopened(name(), error))
            }
        }
    }
}

impl CommandSource {
    fn new(words: &[String], owner: &Owner) -> Result<Self, SourceError> {
        let word = words.first().map_or("", String::as_str);
        let path = search_path(owner);
        let found = match Path::new(word).is_absolute() {
            true => PathBuf::from(word),
            false => {
                let places = std::env::split_paths(&path).map(|directory| directory.join(word));
                let is_usable = |path: &PathBuf| check_program(path, &owner.writable).is_ok();
                let found = places.into_iter().find(is_usable);
                found.ok_or_else(|| SourceError::NoProgram(word.to_owned()))?
            }
        };
        check_program(&found, &owner.writable)?;
        check_arguments(words, &owner.writable)?;
        let arguments = words
            .iter()
            .filter_map(|word| CString::new(word.as_str()).ok());
        Ok(Self {
            path: found,
            arguments: arguments.collect(),
            environment: environment(path, owner),
            writable: owner.writable.clone(),
        })
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The program's path, if it may still be started.
    pub(crate) fn program(&self) -> Result<CString, SourceError> {
        check_program(&self.path, &self.writable)?;
        let path = CString::new(self.path.as_os_str().as_bytes());
        path.map_err(|error| SourceError::Unopened(self.name(), error.into()))
    }
}

/// Whether `path` is a program that commands cannot have written.
fn check_program(path: &Path, writable: &[PathBuf]) -> Result<(), SourceError> {
    let name = || path.display().to_string();
    let real = path.canonicalize();
    let real = real.map_err(|error| SourceError::Unopened(name(), error))?;
    if is_below(&real, writable) || is_below(path, writable) {
        return Err(SourceError::Writable(name()));
    }
    if !real.is_file() {
        return Err(SourceError::NotRegular(name()));
    }
    if interpreter(&real).is_some_and(|path| leads_inside(&path, writable)) {
        return Err(SourceError::Writable(name()));
    }
    access(&real, AccessFlags::X_OK).map_err(|errno| SourceError::Unopened(name(), errno.into()))
}

/// The program that the first line of a script names.
fn interpreter(script: &Path) -> Option<PathBuf> {
    /// Bytes of such a line that the kernel reads (`BINPRM_BUF_SIZE` in `linux/binfmts.h`).
    const LINE: u64 = 256;
    let mut line = Vec::new();
    let file = fs::File::open(script).ok()?;
    file.take(LINE).read_to_end(&mut line).ok()?;
    let line = line
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = line.split(|byte| byte.is_ascii_whitespace());
    let word = words.find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

/// Whether no word of a command names where commands can write, alone or within other text such as an option or a script, and none leads
/// there by a link: an interpreter runs what it names.
fn check_arguments(words: &[String], writable: &[PathBuf]) -> Result<(), SourceError> {
    let is_inside = |word: &&String| {
        let value = word.split_once('=').map_or("", |(_, value)| value);
        mentions(word, writable)
            || [word.as_str(), value]
                .into_iter()
                .any(|path| leads_inside(Path::new(path), writable))
    };
    match words.iter().find(is_inside) {
        Some(word) => Err(SourceError::Writable(word.clone())),
        None => Ok(()),
    }
}

/// Whether a text has the path of one of these directories in it.
fn mentions(text: &str, directories: &[PathBuf]) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c));
    let is_there = |directory: &str| {
        text.match_indices(directory)
            .any(|(at, _)| is_end(&text[at + directory.len()..]))
    };
    directories
        .iter()
        .filter_map(|path| path.to_str())
        .any(is_there)
}

/// Whether an absolute path leads to where commands can write, as it is written or by links. One whose end does not exist yet leads
/// where the part of it leads that does.
fn leads_inside(path: &Path, writable: &[PathBuf]) -> bool {
    let real = path.ancestors().find_map(|part| part.canonicalize().ok());
    path.is_absolute()
        && (is_below(path, writable) || real.is_some_and(|real| is_below(&real, writable)))
}

pub(crate) fn is_below(path: &Path, directories: &[PathBuf]) -> bool {
    directories
        .iter()
        .any(|directory| path.starts_with(directory))
}

/// The user's `PATH` without directories in which commands can write.
fn search_path(owner: &Owner) -> OsString {
    let own = owner.variables.get(OsStr::new("PATH")).cloned();
    let is_usable = |directory: &PathBuf| {
        let real = directory.canonicalize();
        let is_writable = real.map_or(true, |real| is_below(&real, &owner.writable));
        directory.is_absolute() && !is_writable
    };
    let own = own.unwrap_or_default();
    let directories = std::env::split_paths(&own).filter(is_usable);
    std::env::join_paths(directories).unwrap_or_default()
}

/// The socket of a D-Bus address that names one and nothing else: other forms start programs, or are escaped.
fn bus(address: &OsStr) -> Option<&Path> {
    let path = address.as_bytes().strip_prefix(b"unix:path=")?;
    let path = path.split(|byte| *byte == b',').next()?;
    let is_plain = !address.as_bytes().iter().any(|byte| b"%;".contains(byte));
    is_plain.then(|| Path::new(OsStr::from_bytes(path)))
}

/// The environment of a program. A project may have set variables of the user's: what leads to where commands can write is left out.
fn environment(path: OsString, owner: &Owner) -> Vec<CString> {
    let is_passed = |name: &OsString| {
        let Some(name) = name.to_str() else {
            return false;
        };
        NAMES.contains(&name)
            || BEGINNINGS
                .iter()
                .any(|beginning| name.starts_with(beginning))
    };
    // A list of paths in a variable is passed as a whole or not at all.
    let is_outside = |value: &OsString| {
        let inside = |path: PathBuf| leads_inside(&path, &owner.writable);
        !std::env::split_paths(value).any(inside)
    };
    let is_believed = |name: &OsString, value: &OsString| match name.to_str() {
        Some(BUS) => bus(value).is_some_and(|path| !leads_inside(path, &owner.writable)),
        Some(_) | None => is_outside(value),
    };
    let passed = owner.variables.iter();
    let passed = passed.filter(|(name, value)| is_passed(name) && is_believed(name, value));
    let own = [
        (OsString::from("HOME"), owner.home.as_os_str().to_owned()),
        ("PATH".into(), path),
    ];
    let all = passed
        .map(|(name, value)| (name.clone(), value.clone()))
        .chain(own);
    all.filter_map(|(mut entry, value)| {
        entry.push("=");
        entry.push(value);
        CString::new(entry.as_bytes()).ok()
    })
    .collect()
}
