//! Programs that a cell lacks but would have with another profile: the outcome names that profile.

use crate::relay::Finished;
use crate::user::User;
use broker_protocol::Ended;
use executor_layers::environment;
use policies::shell::{Unit, units};
use policies::{EffectivePolicy, Policies};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The exit code of a shell that did not find a program.
const NOT_FOUND: i32 = 127;
/// Maximum number of missing programs per command that are searched for.
const PROGRAMS_MAX: usize = 8;

/// The profiles of this user.
pub struct Profiles {
    pub policies: Policies,
    pub user: User,
}

impl Profiles {
    /// The profile with the fewest grants that shows a program which `finished` did not find under `policy`.
    pub fn with_missing_program(
        &self,
        finished: &Finished,
        policy: &EffectivePolicy,
    ) -> Option<String> {
        if !matches!(
            finished.end,
            Ok(Ended::NotStarted(libc::ENOENT) | Ended::Exited(NOT_FOUND))
        ) {
            return None;
        }
        // With an image, a profile cannot show programs of the machine.
        if policy.image.is_some() {
            return None;
        }
        let user = &self.user;
        let units = units(&finished.plan.command()?);
        let programs = units.iter().filter_map(|unit| match unit {
            Unit::Simple(simple) => simple.program(),
            Unit::Unparsed(_) => None,
        });
        // Shell builtins look missing too, but no profile shows them either.
        let mut missing = programs
            .filter(|program| !shows(policy, program, user))
            .take(PROGRAMS_MAX)
            .peekable();
        missing.peek()?;
        let (policies, host) = (&self.policies, user.host());
        let mut all: Vec<_> = policies
            .profiles()
            .filter_map(|name| policies.resolve(name, &host).ok())
            .collect();
        all.sort_by_key(|policy| policy.grants.len());
        missing.find_map(|program| {
            Some(
                all.iter()
                    .find(|policy| shows(policy, program, user))?
                    .profile
                    .clone(),
            )
        })
    }
}

/// Whether a cell under `policy` sees a program with this name or path.
fn shows(policy: &EffectivePolicy, program: &str, user: &User) -> bool {
    let visible = |path: &Path| {
        policy
            .grants
            .iter()
            .any(|grant| path.starts_with(&grant.path))
    };
    let is_program = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return visible(Path::new(program)) && is_program(Path::new(program));
    }
    let path = environment::search_path(&policy.environment, &user.variables, visible);
    std::env::split_paths(&path).any(|directory| is_program(&directory.join(program)))
}
