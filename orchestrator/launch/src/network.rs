//! The gateway of a command with a network: started and told what it serves before this process gives up files and programs.

use crate::policy_files::PolicyFiles;
use crate::secrets;
use crate::start::{CERTIFICATES, start_company, start_gateway};
use crate::stdio::print;
use orchestrator_confine::Files;
use policies::PolicyError;
use policies::web::WebTable;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Tells a gateway what it serves: the hosts that settings have named, policies with these tables, and whether it is told of a
/// company's network by somebody else; with its end of the line for tickets, and with that on which keys come.
pub(crate) type BeginNetwork =
    fn(UnixStream, Vec<WebTable>, bool, Option<OwnedFd>, Option<OwnedFd>) -> io::Result<()>;

/// Why a command has no network.
#[derive(Debug, Error)]
pub enum OwnNetworkError {
    #[error("`lazaret-gateway` cannot be started: {0}; install it beside `lazaret`")]
    Gateway(io::Error),
    #[error("the policy cannot be used: {0}")]
    Policy(#[from] PolicyError),
    #[error("`lazaret-executor` cannot be started, which reads `[gateway]` of the policy: {0}")]
    Executor(io::Error),
    /// In the words of the executor.
    #[error("{0}")]
    Company(String),
    #[error("`lazaret-executor` does not say what is in `[gateway]` of the policy")]
    Unsaid,
}

/// Facts that decide by which way the requests of this process go.
pub(crate) struct NetworkPolicy<'p> {
    pub policy: &'p PolicyFiles,
    /// The executor, if it is not the installed one.
    pub executor: Option<PathBuf>,
    /// The project, in which commands can write.
    pub project: Option<&'p Path>,
}

/// Starts it, for the hosts that settings have named so far and for policies with these tables. If it cannot be started, the command
/// goes on, and each request says that there is no network.
pub(crate) fn begin(
    files: &Files,
    begin: Option<BeginNetwork>,
    way: NetworkPolicy<'_>,
    webs: impl FnOnce() -> Vec<WebTable>,
    tickets: io::Result<Option<OwnedFd>>,
) {
    let Some(begin) = begin else { return };
    let begun = way.company(files).and_then(|company| {
        let is_company = company.is_some();
        let started = start_gateway(files, company.as_ref(), &way.certificates());
        let begun = started
            .and_then(|control| begin(control, webs(), is_company, tickets?, secrets::keys()));
        begun.map_err(OwnNetworkError::Gateway)
    });
    if let Err(error) = begun {
        print::problem(&format!("there is no network: {error}"));
    }
}

impl NetworkPolicy<'_> {
    /// The variables that name certificates of hosts, but for those that lead into the project: a command could choose what hosts prove
    /// themselves by.
    fn certificates(&self) -> Vec<&'static str> {
        let is_used = |name: &&str| {
            let value = std::env::var_os(name);
            let is_outside =
                value.is_none_or(|value| policies::are_outside(&value, self.project.as_slice()));
            if !is_outside {
                print::problem(&format!(
                    "{name} is not used: it leads into the project, or has no absolute path of what exists"
                ));
            }
            is_outside
        };
        CERTIFICATES.into_iter().filter(is_used).collect()
    }

    /// The gateway's end of the socket over which it is told of the policy's `[gateway]`, if there is one.
    pub(crate) fn company(&self, files: &Files) -> Result<Option<UnixStream>, OwnNetworkError> {
        if !self.policy.has_company()? {
            return Ok(None);
        }
        let written: Vec<PathBuf> = self.project.iter().map(|path| path.to_path_buf()).collect();
        let (socket, said) = start_company(files, self.executor.as_deref(), &written)
            .map_err(OwnNetworkError::Executor)?;
        match (said.strip_prefix('+'), said.strip_prefix('-')) {
            (Some(notices), _) => {
                notices.lines().for_each(print::problem);
                Ok(Some(socket))
            }
            (None, Some(why)) => Err(OwnNetworkError::Company(why.to_owned())),
            (None, None) => Err(OwnNetworkError::Unsaid),
        }
    }
}
