//! Prepares and starts a stranger's program, in a child of this process, which is [`Confined`].

use broker_protocol::{Layer, Variable};
use executor_layers::ladder::Confined;
use executor_layers::seccomp::Supervision;
use executor_layers::{limits, seccomp};
use executor_spec::cell_order::CellPlan;
use executor_spec::sandbox::SandboxSpec;
use executor_sys::spawn::{ChildSetup, Exec, PreparedChild, Program, SpawnError, SpawnStack};
use nix::unistd::Pid;
use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Starts the programs of one first process.
pub(crate) struct ProgramSpawner<'s> {
    spec: &'s SandboxSpec,
    confined: Confined,
    limits: Vec<(libc::c_uint, libc::rlimit)>,
}

impl<'s> ProgramSpawner<'s> {
    pub(crate) fn new(spec: &'s SandboxSpec, confined: Confined) -> Self {
        let limits = match spec.has(Layer::Rlimits) {
            true => limits::rlimits(&spec.policy.limits, spec.tier),
            false => Vec::new(),
        };
        Self {
            spec,
            confined,
            limits,
        }
    }

    /// Prepares the process that will become a program, and returns the listener for its supervised calls, if there are any.
    pub(crate) fn prepare<'p>(
        &self,
        stack: &'p mut SpawnStack,
        supervision: Supervision,
    ) -> io::Result<(PreparedChild<'p>, Option<OwnedFd>)> {
        // A domain below this one costs a second walk for each file that is opened in the cell.
        let ruleset = self.confined.program_ruleset().map(|fd| fd.as_raw_fd());
        let (tier, sockets) = (self.spec.tier, self.spec.caller_access.sockets);
        let supervised = self
            .spec
            .is_supervised()
            .then(|| seccomp::supervised(tier, sockets, supervision));
        stack.prepare(&ChildSetup {
            limits: &self.limits,
            ruleset,
            supervised,
        })
    }

    /// Turns the prepared process into the program of `plan`. `meanwhile` may only wait.
    pub(crate) fn start(
        &self,
        child: PreparedChild,
        plan: &CellPlan,
        stdio: &[OwnedFd; 3],
        meanwhile: impl FnOnce(),
    ) -> Result<Pid, SpawnError> {
        let invalid =
            |error: io::Error| SpawnError::Program(error.raw_os_error().unwrap_or(libc::EINVAL));
        let program = &self.program(plan).map_err(invalid)?;
        let stdio = stdio.each_ref().map(AsRawFd::as_raw_fd);
        let close_from = if self.spec.has(Layer::Descriptors) {
            3
        } else {
            libc::c_uint::MAX
        };
        let terminal = plan.terminal.is_some();
        child
            .start(
                &Exec {
                    program,
                    stdio,
                    close_from,
                    terminal,
                },
                meanwhile,
            )
            .map(Pid::from_raw)
    }

    /// The program of a plan, as arguments for `execve`.
    pub(crate) fn program(&self, plan: &CellPlan) -> io::Result<Program<'_>> {
        let CellPlan {
            call: _,
            arguments,
            terminal,
            directory,
            environment: own,
            unset,
            connect: _,
        } = plan;
        let entries = self.spec.environment.iter().map(CString::as_c_str);
        let named = |entry: &CStr, name: &str| {
            entry
                .to_bytes()
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="))
        };
        let kept = entries
            .filter(|entry| terminal.is_none() || !named(entry, "TERM"))
            .filter(|entry| !own.iter().any(|variable| named(entry, &variable.name)))
            .filter(|entry| !unset.iter().any(|name| named(entry, name)));
        let mut environment: Vec<Cow<CStr>> = kept.map(Cow::Borrowed).collect();
        environment.push(CString::new(format!("PWD={directory}"))?.into());
        for Variable { name, value } in own {
            environment.push(CString::new(format!("{name}={value}"))?.into());
        }
        if let Some(term) = terminal {
            environment.push(CString::new(format!("TERM={term}"))?.into());
        }
        let arguments: Vec<CString> = arguments
            .iter()
            .map(|argument| CString::new(argument.as_slice()))
            .collect::<Result<_, _>>()?;
        let name = arguments
            .first()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?
            .clone();
        let directory = CString::new(directory.as_str())?;
        Ok(Program::new(
            candidates(name, &environment)?,
            arguments,
            environment,
            directory,
        ))
    }
}

/// The paths where a program may be: its own, or one in each directory of `PATH`. An empty name has none.
fn candidates(name: CString, environment: &[Cow<CStr>]) -> io::Result<Vec<CString>> {
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return Ok(vec![name]);
    }
    let path = environment
        .iter()
        .find_map(|entry| entry.to_bytes().strip_prefix(b"PATH="))
        .unwrap_or_default();
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    // Checking that a file exists costs a microsecond, a failing `execve` ten.
    let files =
        std::env::split_paths(OsStr::from_bytes(path)).map(|directory| directory.join(name));
    files
        .skip_while(|file| !file.exists())
        .map(|file| Ok(CString::new(file.into_os_string().as_bytes())?))
        .collect()
}
