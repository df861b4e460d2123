//! Programs that a cell lacks: the outcome names a profile that shows one, or else the option that shows what the user's `PATH` finds.

use crate::authorise::open_wanted;
use crate::running_command::FinishedCommand;
use crate::user::User;
use broker_protocol::paste::shell_word;
use broker_protocol::{AttemptKind, Barrier, Denial, Ended, Layer, Leased, Remedy, Tier, Wants};
use executor_denials::simple_commands;
use executor_layers::environment;
use executor_spec::sandbox::SandboxSpec;
use policies::{EffectivePolicy, Policies};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The exit codes of a shell that did not find a program, or could not start it.
const NOT_FOUND: i32 = 127;
const NOT_STARTED: i32 = 126;
/// Maximum number of missing programs per command that are searched for.
const PROGRAMS_MAX: usize = 8;

/// The profiles of this user.
pub(crate) struct Profiles {
    pub policies: Policies,
    pub user: User,
}

impl Profiles {
    /// The profile with the fewest grants that shows a program which `finished` did not find under `policy`.
    pub(crate) fn with_missing_program(
        &self,
        finished: &FinishedCommand,
        policy: &EffectivePolicy,
    ) -> Option<String> {
        let is_missing = matches!(
            finished.end,
            Ok(Ended::NotStarted(libc::ENOENT) | Ended::Exited(NOT_FOUND))
        );
        if !is_missing {
            return None;
        }
        let missing = self.missing(finished, policy);
        if missing.is_empty() {
            return None;
        }
        let (policies, host) = (&self.policies, self.user.host());
        let mut all: Vec<_> = policies
            .profiles()
            .filter_map(|name| policies.resolve(name, &host).ok())
            .collect();
        all.sort_by_key(|policy| policy.grants.len());
        missing.iter().find_map(|program| {
            Some(
                all.iter()
                    .find(|policy| shows(policy, program, &self.user))?
                    .profile
                    .clone(),
            )
        })
    }

    /// The programs of `finished` that a cell under `policy` does not show. Shell builtins look like that too, but lie in no directory of
    /// a `PATH`.
    fn missing(&self, finished: &FinishedCommand, policy: &EffectivePolicy) -> Vec<String> {
        // With an image, neither a profile nor an option can show programs of the machine.
        if policy.image.is_some() {
            return Vec::new();
        }
        let command = finished.plan.command();
        let commands = command.map(|command| simple_commands(&command));
        let mut programs: Vec<_> = commands
            .iter()
            .flatten()
            .filter_map(|simple| simple.program().map(str::to_owned))
            .collect();
        programs.retain(|program| !shows(policy, program, &self.user));
        programs.truncate(PROGRAMS_MAX);
        programs
    }

    /// Denials for programs that `finished` did not find, and the user's shell would, each with the option that shows it.
    pub(crate) fn in_search_path(
        &self,
        finished: &FinishedCommand,
        spec: &SandboxSpec,
    ) -> Vec<Denial> {
        let granted = |path: &Path| {
            let mut granted = finished.plan.granted.iter();
            granted.any(|granted| granted.shows(path))
        };
        // In the flat tier a link to what is not shown cannot be started.
        let is_missing = matches!(
            finished.end,
            Ok(Ended::NotStarted(libc::ENOENT | libc::EACCES)
                | Ended::Exited(NOT_FOUND | NOT_STARTED))
        );
        let mut denials = Vec::new();
        if !is_missing {
            return denials;
        }
        for program in self.missing(finished, &spec.policy) {
            let path = self.user.variables.get(OsStr::new("PATH"));
            let trees = path.and_then(|path| trees_of(path, &program));
            let closed = trees.iter().flatten().filter(|(_, tree)| !granted(tree));
            denials.extend(closed.map(|(file, tree)| self.denial(file, tree, spec)));
        }
        denials
    }

    /// The denial of the program `file`, which `tree` shows.
    fn denial(&self, file: &Path, tree: &Path, spec: &SandboxSpec) -> Denial {
        let layer = match spec.tier {
            Tier::Namespaced => Layer::MountNamespace,
            Tier::Flat => Layer::LandlockFiles,
        };
        let text = tree.to_string_lossy().into_owned();
        let lease = Leased::Read(text.clone());
        let mut wants = Wants::default();
        wants.push(lease.clone());
        let (remedy, lease) = match open_wanted(&wants, spec, &self.user) {
            Ok(_) => (
                Remedy::Option(format!("--read {}", shell_word(&text))),
                Some(lease),
            ),
            Err(refused) => (
                Remedy::Advice(format!("no option opens it: {}", refused.why)),
                None,
            ),
        };
        let why = "Your PATH finds this program, and commands do not see it.";
        let by = Barrier::Layer(layer, None);
        Denial::new(AttemptKind::Run, file.to_string_lossy(), by, why, remedy).with_lease(lease)
    }
}

/// The directories that a cell must see to run what a shell with this `PATH` would start for `program`, a name without a directory;
/// each behind the name of the program that lies in it.
fn trees_of(path: &OsStr, program: &str) -> Option<Vec<(PathBuf, PathBuf)>> {
    if program.contains('/') {
        return None;
    }
    let file = std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|file| is_program(file))?;
    let directory = fs::canonicalize(file.parent()?).ok()?;
    let real = fs::canonicalize(&file).ok()?;
    let mut trees = vec![(file, directory.clone())];
    if !real.starts_with(&directory) {
        let tree = package_of(&real)?;
        trees.retain(|(_, directory)| !directory.starts_with(&tree));
        trees.push((real, tree));
    }
    Some(trees)
}

/// The directory of what a program belongs to, which a link in a `PATH` leads to: a package of Node, or what its `bin` lies in.
fn package_of(program: &Path) -> Option<PathBuf> {
    let parts: Vec<Component> = program.components().collect();
    let modules = parts
        .iter()
        .rposition(|part| part.as_os_str() == "node_modules");
    if let Some(at) = modules {
        let is_scope = parts
            .get(at + 1)
            .is_some_and(|part| part.as_os_str().as_encoded_bytes().starts_with(b"@"));
        let end = at + if is_scope { 3 } else { 2 };
        return (end < parts.len()).then(|| parts[..end].iter().collect());
    }
    let directory = program.parent()?;
    let prefix = directory.parent()?;
    // A hidden directory, such as `.cargo`, has settings and tokens beside its programs.
    let is_hidden = |path: &Path| {
        path.file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."))
    };
    let is_bin = directory.ends_with("bin") || directory.ends_with("sbin");
    let tree = if is_bin && !is_hidden(prefix) {
        prefix
    } else {
        directory
    };
    Some(tree.to_owned())
}

/// A cell's `PATH` if it sees paths beyond its profile: `granted` tells which.
pub(crate) fn search_path(
    spec: &SandboxSpec,
    user: &User,
    granted: impl Fn(&Path) -> bool,
) -> Option<String> {
    let roots = [&spec.project, &spec.central];
    let visible = |directory: &Path| {
        let in_roots = roots.iter().any(|root| directory.starts_with(root));
        in_roots || sees(&spec.policy, directory) || granted(directory)
    };
    // A path is granted by its real name, and a directory of `PATH` may be a link.
    let mut ours = user.variables.clone();
    let path = ours.get_mut(OsStr::new("PATH"))?;
    let real = |directory: PathBuf| match fs::canonicalize(&directory) {
        Ok(real) if !visible(&directory) && granted(&real) => real,
        Ok(_) | Err(_) => directory,
    };
    *path = std::env::join_paths(std::env::split_paths(path).map(real)).ok()?;
    let built: OsString = environment::search_path(&spec.policy.environment, &ours, visible);
    built.into_string().ok()
}

/// Whether the grants of a policy show a path.
fn sees(policy: &EffectivePolicy, path: &Path) -> bool {
    let mut grants = policy.grants.iter();
    grants.any(|grant| path.starts_with(&grant.path))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Whether a cell under `policy` sees a program with this name or path.
fn shows(policy: &EffectivePolicy, program: &str, user: &User) -> bool {
    let visible = |path: &Path| sees(policy, path);
    if program.contains('/') {
        return visible(Path::new(program)) && is_program(Path::new(program));
    }
    let path = environment::search_path(&policy.environment, &user.variables, visible);
    std::env::split_paths(&path).any(|directory| is_program(&directory.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::symlink;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn the_directories_of_a_program_are_its_own_and_that_of_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        let bin = home.join("bin");
        program(&bin.join("plain"));
        program(&home.join("share/tool/bin/tool"));
        program(&home.join(".tool/bin/hidden"));
        program(&home.join("lib/node_modules/@vendor/agent/dist/cli.js"));
        for (name, target) in [
            ("tool", "../share/tool/bin/tool"),
            ("agent", "../lib/node_modules/@vendor/agent/dist/cli.js"),
            ("hidden", "../.tool/bin/hidden"),
            ("gone", "../share/gone"),
        ] {
            symlink(target, bin.join(name)).unwrap();
        }
        fs::write(bin.join("data"), "").unwrap();
        let trees = |name: &str| -> Vec<PathBuf> {
            let trees = trees_of(bin.as_os_str(), name).into_iter().flatten();
            trees.map(|(_, tree)| tree).collect()
        };
        assert_eq!(trees("plain"), std::slice::from_ref(&bin));
        assert_eq!(trees("tool"), [bin.clone(), home.join("share/tool")]);
        assert_eq!(trees("hidden"), [bin.clone(), home.join(".tool/bin")]);
        let package = home.join("lib/node_modules/@vendor/agent");
        assert_eq!(trees("agent"), [bin.clone(), package]);
        for absent in ["gone", "data", "none", "./plain"] {
            assert_eq!(trees(absent), [] as [PathBuf; 0], "{absent}");
        }
    }
}
