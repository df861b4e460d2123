//! Where a value comes from, and its way into a pipe for the gateway. Nothing here reads a value.

use crate::owner::{Owner, SourceError, is_below};
use crate::program::UserPrograms;
use broker_protocol::{Digest, limit};
use executor_spec::variables::Variables;
use executor_sys::file::pipe_with;
use executor_sys::process::euid;
use executor_sys::random;
use nix::fcntl::{OFlag, open};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::write;
use policies::{CredentialSource, EffectivePolicy, leads_into};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Variables that a program gets, besides those whose names begin with one of [`BEGINNINGS`].
const NAMES: [&str; 6] = ["USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", BUS];
/// The address of the user's D-Bus, by which a keyring is reached.
const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";
const BEGINNINGS: [&str; 2] = ["LC_", "XDG_"];

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
    programs: UserPrograms,
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
            Self::File(file) => {
                file.check_grants(policy)?;
                file.check_links()?;
            }
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

    /// Whether it has one name: another one may lie in a root.
    fn check_links(&self) -> Result<(), SourceError> {
        let (file, _) = self.file()?;
        let stat = fstat(&file).map_err(io::Error::from)?;
        match stat.st_nlink {
            0 | 1 => Ok(()),
            _ => Err(SourceError::Linked(self.path.display().to_string())),
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
        // The way to it, and the file that is open, whatever its path leads to by now.
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let is_inside = leads_into(&self.path, &self.writable);
        if is_inside || is_below(&real.map_err(unopened)?, &self.writable) {
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
        let programs = UserPrograms::of(owner);
        let words = words.iter().map(|word| match word.strip_prefix("~/") {
            Some(rest) => owner.home.join(rest).display().to_string(),
            None => word.clone(),
        });
        let words: Vec<String> = words.collect();
        let path = programs.find(&words)?;
        let arguments = words
            .iter()
            .filter_map(|word| CString::new(word.as_str()).ok());
        Ok(Self {
            path,
            arguments: arguments.collect(),
            environment: environment(&programs, owner),
            programs,
        })
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The program's path, if it may still be started.
    pub(crate) fn program(&self) -> Result<CString, SourceError> {
        self.programs.check(&self.path)?;
        let path = CString::new(self.path.as_os_str().as_bytes());
        path.map_err(|error| SourceError::Unopened(self.name(), error.into()))
    }
}

/// The socket of a D-Bus address that names one and nothing else: other forms start programs, or are escaped.
fn bus(address: &OsStr) -> Option<&Path> {
    let path = address.as_bytes().strip_prefix(b"unix:path=")?;
    let path = path.split(|byte| *byte == b',').next()?;
    let is_plain = !address.as_bytes().iter().any(|byte| b"%;".contains(byte));
    is_plain.then(|| Path::new(OsStr::from_bytes(path)))
}

/// The environment of a program. A project may have set variables of the user's: what leads to where commands can write is left out.
fn environment(programs: &UserPrograms, owner: &Owner) -> Vec<CString> {
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
        let inside = |path: PathBuf| leads_into(&path, &owner.writable);
        !std::env::split_paths(value).any(inside)
    };
    let is_believed = |name: &OsString, value: &OsString| match name.to_str() {
        Some(BUS) => bus(value).is_some_and(|path| !leads_into(path, &owner.writable)),
        Some(_) | None => is_outside(value),
    };
    let passed = owner.variables.iter();
    let passed = passed.filter(|(name, value)| is_passed(name) && is_believed(name, value));
    let passed = passed.map(|(name, value)| (name.clone(), value.clone()));
    let home = (OsString::from("HOME"), owner.home.as_os_str().to_owned());
    programs.environment(passed.chain([home]))
}
