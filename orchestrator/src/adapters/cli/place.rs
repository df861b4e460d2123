//! Where a session works: the options that every command has.

use super::say::{internal, invalid};
use crate::adapters::executor::Endpoint;
use crate::adapters::policy;
use crate::adapters::runlog::RunLog;
use crate::adapters::state;
use crate::domain::scope_file;
use broker_protocol::{Failed, Open, Scope, Trust};
use clap::Args;
use policies::value::{TrustName, ValueError};
use policies::{EffectivePolicy, PolicyError};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes that are read of a policy or scope, one more than either may have.
const TEXT_MAX: u64 = policies::FILE_MAX as u64 + 1;

/// Options of every command.
#[derive(Args, Clone)]
#[command(next_help_heading = "Where")]
pub struct Place {
    /// The project root: what commands and tools may work on [default: the current directory]
    #[arg(long, global = true, value_name = "DIR")]
    project: Option<PathBuf>,
    /// The central root, for spilled output and notes
    /// [default: lazaret/projects/NAME-HASH below $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, global = true, value_name = "DIR")]
    central: Option<PathBuf>,
    /// The policy profile
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    profile: String,
    /// The executor to start [default: the one installed with lazaret] [env: LAZARET_EXECUTOR]
    #[arg(long, global = true, value_name = "PATH", conflicts_with = "socket")]
    executor: Option<PathBuf>,
    /// The socket of an executor that listens already
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// A file of tool permissions (YAML or TOML) that narrows the session; `none` for no scope
    #[arg(long, global = true, value_name = "FILE", help_heading = "Narrowing")]
    scope: Option<PathBuf>,
    /// How much is asked before a call: supervised (or ask), guided (or auto), autonomous (or yolo) [default: autonomous,
    /// nothing is asked; `policy` answers for guided]
    #[arg(long, global = true, value_name = "LEVEL", help_heading = "Narrowing", value_parser = trust)]
    trust: Option<Trust>,
    /// Keep no log of this run; the executor's audit is kept all the same
    #[arg(long, global = true)]
    no_log: bool,
}

fn trust(text: &str) -> Result<Trust, ValueError> {
    TrustName::try_from(text.to_owned()).map(|trust| trust.0)
}

impl Place {
    /// Where the executor is.
    pub fn endpoint(&self) -> Endpoint {
        let named =
            || std::env::var_os("LAZARET_EXECUTOR").filter(|path| !path.is_empty()).map(PathBuf::from);
        match &self.socket {
            Some(socket) => Endpoint::Socket(socket.clone()),
            None => Endpoint::Program(self.executor.clone().or_else(named)),
        }
    }

    /// The policy of this profile. Reads the policy files: before we confine ourselves.
    pub fn policy(&self) -> Result<EffectivePolicy, PolicyError> {
        policy::load(&self.profile)
    }

    /// The log of this run.
    pub fn log(&self) -> RunLog {
        RunLog::begin(self.no_log)
    }

    /// The session to ask for, with `spare` cells kept ready.
    pub fn open(&self, spare: u8) -> Result<Open, Failed> {
        let project = self.project()?;
        let central = match &self.central {
            Some(central) => std::path::absolute(central).map_err(|error| internal(error.to_string()))?,
            None => state::data().join("projects").join(own_name(&project)),
        };
        self.open_in(project, central, spare)
    }

    /// The same for other roots.
    pub fn open_in(&self, project: PathBuf, central: PathBuf, spare: u8) -> Result<Open, Failed> {
        let [project, central] = [text(project)?, text(central)?];
        let profile = self.profile.clone();
        // What a person types is not asked about again.
        let trust = self.trust.unwrap_or(Trust::Autonomous);
        Ok(Open { project, central, profile, spare, scope: self.scope()?, trust, capture: None })
    }

    /// The scope of the session, if there is to be one.
    pub fn scope(&self) -> Result<Option<Scope>, Failed> {
        let Some(path) = self.scope.as_ref().filter(|path| path.as_os_str() != "none") else {
            return Ok(None);
        };
        let text = read_text(path)?;
        let scope = scope_file::parse(&path.to_string_lossy(), &text);
        scope.map(Some).map_err(|error| invalid(error.to_string()))
    }

    /// The trust that was asked for, if one was.
    pub fn trust(&self) -> Option<Trust> {
        self.trust
    }

    /// The name of the policy profile.
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// The project root without links, so that one project has one central root however it is reached.
    fn project(&self) -> Result<PathBuf, Failed> {
        let given = self.project.as_deref().unwrap_or(Path::new("."));
        fs::canonicalize(given).map_err(|error| {
            invalid(format!(
                "cannot use {} as the project: {error}; name another with --project",
                given.display()
            ))
        })
    }
}

/// The text of a file that the user has named. What is longer than any such file may be is not read to its end.
#[expect(clippy::disallowed_methods, reason = "the user's own configuration, and no file of a project")]
pub fn read_text(path: &Path) -> Result<String, Failed> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_MAX).read_to_string(&mut text));
    read.map_err(|error| invalid(format!("cannot read {}: {error}", path.display())))?;
    Ok(text)
}

fn text(path: PathBuf) -> Result<String, Failed> {
    let refused = |path: OsString| invalid(format!("{path:?} is not UTF-8; use a root whose path is"));
    path.into_os_string().into_string().map_err(refused)
}

/// A folder name that people recognise and that two projects of one name do not share.
fn own_name(project: &Path) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name = project.file_name().unwrap_or("root".as_ref()).to_string_lossy();
    let name: String = name.chars().map(plain).take(64).collect();
    let hash = fnv(project.as_os_str().as_encoded_bytes());
    format!("{name}-{:08x}", (hash >> 32) as u32 ^ hash as u32)
}

/// FNV-1a, because it must be the same in every release; nothing depends on its being hard to collide.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_keeps_its_central_root_for_ever() {
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(own_name(Path::new("/home/u/my app")), "my_app-2e1880b0");
        assert_ne!(own_name(Path::new("/a/x")), own_name(Path::new("/b/x")));
        assert!(own_name(Path::new("/")).starts_with("root-"));
    }
}
