//! `lazaret credential list`: what policy files define, and whether the sources are there.

use super::source;
use broker_protocol::Failed;
use clap::Args;
use orchestrator_launch::groups::Options;
use orchestrator_launch::launch::{ErrorForm, FrontEnd, Launch};
use orchestrator_launch::row::CommandRow;
use orchestrator_launch::stdio::print;
use orchestrator_launch::{exit, policy_files, state_directory};
use orchestrator_policy::show::source_json;
use policies::{Credential, CredentialSource, Policies};
use serde_json::{Value, json};

/// List them: their sources, hosts and profiles, and whether the source is there
///
/// No program is started and no file opened, so a source that is there may still give no value: `lazaret credential test` tries it.
#[derive(Args)]
pub(super) struct ListCredentials {
    /// Print a JSON array in place of text
    #[arg(long)]
    json: bool,
}

/// A credential of the policy files.
struct CredentialRow {
    credential: Credential,
    profiles: Vec<String>,
    /// Why its source is not there.
    missing: Option<String>,
}

impl FrontEnd for ListCredentials {
    const ROW: CommandRow = CommandRow::of_files(
        "credential list",
        "0; 1 a source is not there; 2 wrong arguments; 125 the policy cannot be used",
    );

    fn errors(&self) -> ErrorForm {
        ErrorForm::object(self.json)
    }

    fn main(self, launch: Launch) -> Result<u8, Failed> {
        let prepared = launch.prepare::<Self>(Options::default())?;
        let machine = policy_files::host();
        let files = policy_files::sources(prepared.files(), &machine);
        let policies = files.and_then(Policies::load)?;
        let all = policies.defined_credentials(&machine)?;
        let mut listed = Vec::new();
        for credential in all {
            let missing = source::check(&credential.from, &state_directory::variable).err();
            listed.push(CredentialRow {
                profiles: policies.profiles_with(&credential.name, &machine),
                missing: missing.map(|fault| fault.to_string()),
                credential,
            });
        }
        if self.json {
            let all: Vec<Value> = listed.iter().map(CredentialRow::json).collect();
            print::json(&all)?;
        } else {
            let text: String = listed.iter().map(CredentialRow::text).collect();
            let none = "no policy file defines a credential; `lazaret credential add` does\n";
            let text = if listed.is_empty() { none } else { &text };
            print::result(print::shown(text).as_bytes())?;
        }
        match listed.iter().any(|one| one.missing.is_some()) {
            true => Ok(exit::FAILED),
            false => Ok(exit::OK),
        }
    }
}

impl CredentialRow {
    fn text(&self) -> String {
        let Self {
            credential,
            profiles,
            missing,
        } = self;
        let preset = credential.preset.as_ref();
        let preset = preset.map_or(String::new(), |preset| format!(" (preset {preset})"));
        let profiles = match profiles.is_empty() {
            true => "none; a profile uses those that its `credentials` name".to_owned(),
            false => profiles.join(", "),
        };
        let there = missing.as_ref().map_or("there", String::as_str);
        format!(
            "{}{preset}\n  from: {}: {there}\n  hosts: {}\n  profiles: {profiles}\n  defined: {}\n",
            credential.name,
            describe(&credential.from),
            credential.hosts.join(", "),
            credential.origin
        )
    }

    fn json(&self) -> Value {
        let credential = &self.credential;
        json!({
            "name": credential.name,
            "preset": credential.preset,
            "from": source_json(&credential.from),
            "there": self.missing.is_none(),
            "why": self.missing,
            "hosts": credential.hosts,
            "profiles": self.profiles,
            "where": credential.origin.to_string(),
        })
    }
}

/// Describes a source to people, in a few words.
pub(super) fn describe(from: &CredentialSource) -> String {
    match from {
        CredentialSource::Command(words) => format!("the command `{}`", words.join(" ")),
        CredentialSource::File(path) => format!("the file {}", path.display()),
        CredentialSource::Systemd(name) => format!("the systemd credential {name}"),
        CredentialSource::Variable(name) => format!("the variable {name}"),
        CredentialSource::Session => {
            "a login of a program in a session; it ends with the session".to_owned()
        }
    }
}
