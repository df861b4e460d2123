//! The user for whom the executor runs, and what it was started with.

use executor_peers::TicketLine;
use executor_project::git_settings::{UserGit, own_files};
use executor_spec::ablation::Ablation;
use executor_spec::variables::Variables;
use nix::unistd::{Uid, User as Account};
use policies::secret::secrets;
use policies::{Host, directories};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;

use executor_audit::audit::{AuditError, AuditWriter};

#[derive(Clone, Debug)]
pub(crate) struct User {
    /// The environment that the executor was started with.
    pub variables: Variables,
    /// See [`directories::home`].
    pub home: PathBuf,
    /// The layers that this build leaves out, if it is a test build.
    pub ablation: Ablation,
    /// The file worker's program, opened at the start of the executor.
    pub worker: Rc<OwnProgram>,
    /// The gateway's program, opened then too.
    pub gateway: Rc<OwnProgram>,
    /// The line to the client's own gateway.
    pub tickets: TicketLine,
}

/// A program of ours next to this one.
#[derive(Debug)]
pub(crate) struct OwnProgram {
    path: PathBuf,
    file: io::Result<OwnedFd>,
}

impl OwnProgram {
    fn open(name: &str) -> Self {
        let own = std::env::current_exe().unwrap_or_default();
        let path = own.with_file_name(name);
        Self {
            file: File::open(&path).map(OwnedFd::from),
            path,
        }
    }

    /// Its file.
    ///
    /// # Errors
    /// It is not where it must be.
    pub(crate) fn file(&self) -> io::Result<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd).map_err(|error| {
            let message = format!("{} cannot be opened: {error}", self.path.display());
            io::Error::new(error.kind(), message)
        })
    }
}

impl User {
    /// The user of this process, with the variables of its environment.
    pub(crate) fn of_process(variables: Variables, ablation: Ablation) -> io::Result<Self> {
        // Without a user database, as in a container, this returns an error.
        let account = Account::from_uid(Uid::effective())
            .ok()
            .flatten()
            .map(|account| account.dir);
        let variable = |name: &str| variables.get(OsStr::new(name)).cloned();
        let home = directories::home(account, &|path| path.is_dir(), &variable);
        Ok(Self {
            variables,
            home,
            ablation,
            worker: Rc::new(OwnProgram::open("lazaret-worker")),
            gateway: Rc::new(OwnProgram::open("lazaret-gateway")),
            tickets: TicketLine::default(),
        })
    }

    /// Sends tickets on this line to the client's own gateway.
    pub(crate) fn with_tickets(self, tickets: TicketLine) -> Self {
        Self { tickets, ..self }
    }

    pub(crate) fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(OsStr::new(name)).cloned()
    }

    /// The program that traces commands, if it lies next to this one.
    pub(crate) fn tracer(&self) -> Option<PathBuf> {
        let path = self.worker.path.with_file_name("lazaret-trace");
        path.canonicalize().ok().filter(|path| path.is_file())
    }

    pub(crate) fn state(&self) -> PathBuf {
        directories::state(&self.home, &|name| self.variable(name))
    }

    /// The directory of the audit.
    pub(crate) fn audit(&self) -> PathBuf {
        self.state().join("audit")
    }

    pub(crate) fn open_audit(&self) -> Result<AuditWriter, AuditError> {
        let directory = self.audit();
        AuditWriter::open(&directory, secrets(&self.variables)).map_err(|error| {
            let advice = directories::advice(&directory, &self.home, &|name| self.variable(name));
            error.advised(advice)
        })
    }

    /// What the user's git reads everywhere, and what Lazaret does.
    pub(crate) fn git(&self) -> UserGit {
        let (home, files) = self.git_files();
        let own = directories::configuration(&self.home, &|name| self.variable(name));
        UserGit {
            home,
            files,
            own: own_files(&self.worker.path, &own),
        }
    }

    /// The home of the user's git, and the files that it reads everywhere (git-config(1), FILES and ENVIRONMENT).
    pub(crate) fn git_files(&self) -> (PathBuf, Vec<PathBuf>) {
        let named = |name: &str| {
            self.variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home = named("HOME").unwrap_or_else(|| self.home.clone());
        let configuration = named("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
        let mut files = vec![named("GIT_CONFIG_SYSTEM").unwrap_or_else(|| "/etc/gitconfig".into())];
        match named("GIT_CONFIG_GLOBAL") {
            Some(file) => files.push(file),
            None => files.extend([configuration.join("git/config"), home.join(".gitconfig")]),
        }
        (home, files)
    }

    /// The values that profiles may refer to.
    pub(crate) fn host(&self) -> Host {
        let text = |value: &OsString| value.to_str().map(str::to_owned);
        let variables = self
            .variables
            .iter()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect();
        Host {
            home: self.home.clone(),
            variables,
        }
    }
}
