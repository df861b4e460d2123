//! Package managers that a profile keeps offline: they ask for no host, so none is refused that a result could name. A failed command of
//! theirs gets the option that opens their registry instead.

use crate::named::simple_commands;
use broker_protocol::{AttemptKind, Barrier, Command, Denial, PolicyRule, Remedy};
use policies::network::Leasing;
use policies::shell::{SimpleCommand, base_name, is_runner};
use policies::{EffectivePolicy, network};

/// The denials for package managers in a failed command whose registries its profile keeps them from. From its command line and the
/// profile, never from its output: it can have failed for another reason, which the text allows for.
pub fn kept_offline(command: &Command, policy: &EffectivePolicy) -> Vec<Denial> {
    let commands = simple_commands(command);
    let clients: Vec<&str> = commands.iter().flat_map(clients).collect();
    let mut denials = Vec::new();
    for variable in policy.environment.offline.keys() {
        let mut kept = clients
            .iter()
            .filter_map(|client| network::preset_kept_from(variable, client));
        if let Some((preset, host)) = kept.next()
            && let Some((name, Some(port))) = host.one()
        {
            let why = format!(
                "The profile `{}` sets {variable}, so nothing is fetched: if a package is missing, that is why.",
                policy.profile
            );
            let rule = PolicyRule {
                name: format!("offline:{variable}"),
                at: None,
            };
            // What bounds the hosts of every session bounds a preset too.
            let remedy = match network::remedy(&policy.network, Leasing::NotOffered, name, port) {
                Remedy::Option(_) => Remedy::Option(format!("--allow-net {preset}")),
                remedy @ (Remedy::Policy(_) | Remedy::Advice(_) | Remedy::Nothing) => remedy,
            };
            let by = Barrier::Hosts(Some(rule));
            let target = format!("{name}:{port}");
            denials.push(Denial::new(AttemptKind::Connect, target, by, why, remedy));
        }
    }
    denials
}

/// The words of a command that may be a package manager: its program, or any where the program runs what its arguments say.
fn clients(command: &SimpleCommand) -> impl Iterator<Item = &str> {
    let program = command.program().unwrap_or_default();
    let runs_any = is_runner(program) || base_name(program).starts_with("python");
    let count = if runs_any { command.words.len() } else { 1 };
    let words = command.words.iter().take(count);
    words.flatten().map(|word| base_name(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::{Host, Policies};

    fn of(line: &str, profile: &str) -> Vec<String> {
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        let policies = Policies::load(Vec::new()).unwrap();
        let policy = policies.resolve(profile, &host).unwrap();
        let denials = kept_offline(&Command::Shell(line.into()), &policy).into_iter();
        denials.map(|denial| denial.remedy.to_string()).collect()
    }

    #[test]
    fn a_client_that_its_profile_keeps_offline_is_given_the_option_of_its_registry() {
        for (line, profile, preset) in [
            (".venv/bin/pip install attrs", "python", "pypi"),
            ("cd a && python3 -m pip3.13 install attrs", "python", "pypi"),
            ("uv sync", "dev", "pypi"),
            ("FOO=1 timeout 9 cargo build", "rust", "crates"),
            ("bash -c 'cargo build'", "dev", "crates"),
            ("go build ./...", "go", "go"),
            ("pnpm install", "node", "npm"),
        ] {
            assert_eq!(
                of(line, profile),
                [format!("with --allow-net {preset}")],
                "{line}"
            );
        }
        for (line, profile) in [
            ("grep -r cargo .", "rust"),
            ("pip install attrs", "rust"),
            ("cargo build", "default"),
            // It asks in spite of the profile, and what it is refused is named.
            ("npm install", "node"),
        ] {
            assert_eq!(of(line, profile), [] as [String; 0], "{line}");
        }
    }
}
