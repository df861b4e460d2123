//! Permissions of files to define a credential or a key of the ssh agent, and of profiles to name it.

use crate::credential_table::CredentialName;
use crate::credentials::{Credential, CredentialSource, credential, source};
use crate::error::{Definition, DefinitionMisuse, PolicyError};
use crate::host::Host;
use crate::model::{PolicyFile, Profile};
use crate::resolve::Policies;
use crate::source::SourceKind;
use crate::ssh::SshKeys;
use broker_protocol::limit;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

impl Definition {
    /// The table `[credential.NAME]` or `[ssh.NAME]`, as a file writes it.
    fn table(&self) -> String {
        match self {
            Self::Credential(name) => format!("`[credential.{name}]`"),
            Self::Ssh(name) => format!("`[ssh.{name}]`"),
        }
    }
}

/// Tables of one kind in the files of a policy.
struct DefinitionKind {
    of: fn(String) -> Definition,
    defined: fn(&PolicyFile) -> Vec<&Spanned<CredentialName>>,
    named: fn(&Profile) -> &[Spanned<CredentialName>],
}

const CREDENTIALS: DefinitionKind = DefinitionKind {
    of: Definition::Credential,
    defined: |content| content.credential.keys().collect(),
    named: |profile| &profile.credentials,
};

const SSH: DefinitionKind = DefinitionKind {
    of: Definition::Ssh,
    defined: |content| content.ssh.keys().collect(),
    named: |profile| &profile.ssh,
};

impl Policies {
    /// Checks that no credential and no key of ssh is defined twice or against an administrator's list, and that profiles of the machine
    /// and the user name only those that their file or an earlier one defines.
    pub(crate) fn check_definitions(&self) -> Result<(), PolicyError> {
        self.check_kind(&CREDENTIALS)?;
        self.check_kind(&SSH)
    }

    fn check_kind(&self, kind: &DefinitionKind) -> Result<(), PolicyError> {
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for (file, content) in self.general() {
            let fault = |name: &Spanned<CredentialName>, why| {
                let (line, column) = file.place(name.span().start);
                PolicyError::Definition {
                    file: file.name().to_owned(),
                    line,
                    column,
                    definition: (kind.of)(name.get_ref().as_str().to_owned()),
                    why,
                }
            };
            for name in (kind.defined)(content) {
                let text = name.get_ref().as_str();
                if let Some(by) = self.forbids_credential(text) {
                    let by = by.to_owned();
                    return Err(fault(name, DefinitionMisuse::Forbidden { by }));
                }
                if let Some(earlier) = known.insert(text, file.name()) {
                    let earlier = earlier.to_owned();
                    return Err(fault(name, DefinitionMisuse::Taken { earlier }));
                }
            }
            // A shipped profile names what a user may define.
            if file.kind() == SourceKind::Shipped {
                continue;
            }
            for (profile, table) in content.profiles() {
                let is_known =
                    |name: &&Spanned<CredentialName>| known.contains_key(name.get_ref().as_str());
                if let Some(name) = (kind.named)(table).iter().find(|name| !is_known(name)) {
                    let why = DefinitionMisuse::Undefined {
                        profile: profile.as_str().to_owned(),
                        what: (kind.of)(name.get_ref().as_str().to_owned()).table(),
                    };
                    return Err(fault(name, why));
                }
            }
        }
        Ok(())
    }

    /// The file whose list of credentials leaves out `name`.
    pub(crate) fn forbids_credential(&self, name: &str) -> Option<&str> {
        let leaves_out = |content: &PolicyFile| {
            let list = content.allowed_credentials.as_ref();
            list.is_some_and(|list| !list.iter().any(|allowed| allowed.as_str() == name))
        };
        let mut files = self.general();
        let found = files.find(|(_, content)| leaves_out(content));
        found.map(|(file, _)| file.name())
    }

    /// The credentials that `names`, those of a profile, have as far as they are defined.
    pub(crate) fn credentials(
        &self,
        names: &BTreeSet<String>,
        profile: &str,
        host: &Host,
    ) -> Result<Vec<Credential>, PolicyError> {
        let found = self.defined(host, |name| names.contains(name))?;
        match found.len() > limit::CREDENTIALS {
            true => Err(PolicyError::Credentials {
                profile: profile.to_owned(),
                max: limit::CREDENTIALS,
            }),
            false => Ok(found),
        }
    }

    /// The keys that `names`, those of a profile, have as far as they are defined.
    pub(crate) fn ssh_keys(
        &self,
        names: &BTreeSet<String>,
        profile: &str,
    ) -> Result<Vec<SshKeys>, PolicyError> {
        let mut found = Vec::new();
        for (file, content) in self.general() {
            let origins = file.origins();
            for (name, table) in &content.ssh {
                if names.contains(name.get_ref().as_str()) {
                    found.push(table.keys(name.get_ref(), origins(name.span().start)));
                }
            }
        }
        match found.len() > limit::SSH_KEYS {
            true => Err(PolicyError::SshKeys {
                profile: profile.to_owned(),
                max: limit::SSH_KEYS,
            }),
            false => Ok(found),
        }
    }
    /// All credentials that files define, whether a profile names them or not.
    ///
    /// # Errors
    /// The path of a source cannot be used here.
    pub fn defined_credentials(&self, host: &Host) -> Result<Vec<Credential>, PolicyError> {
        self.defined(host, |_| true)
    }

    /// The variables of the user's from which credentials come: no command gets them, whatever its profile passes.
    ///
    /// # Errors
    /// Those of [`Self::defined_credentials`].
    pub fn withheld(&self, host: &Host) -> Result<BTreeSet<String>, PolicyError> {
        let defined = self.defined_credentials(host)?.into_iter();
        let names = defined.filter_map(|one| match one.from {
            CredentialSource::Variable(name) => Some(name),
            CredentialSource::Command(_)
            | CredentialSource::File(_)
            | CredentialSource::Systemd(_)
            | CredentialSource::Session => None,
        });
        Ok(names.collect())
    }

    /// The profiles whose sessions have the credential `name`, those that cannot be resolved left out.
    pub fn profiles_with(&self, name: &str, host: &Host) -> Vec<String> {
        let has = |profile: &&str| {
            let policy = self.resolve(profile, host);
            policy.is_ok_and(|policy| policy.credentials.iter().any(|one| one.name == name))
        };
        let found = self.profiles().filter(has);
        found.map(str::to_owned).collect()
    }

    fn defined(
        &self,
        host: &Host,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<Credential>, PolicyError> {
        let mut found = Vec::new();
        for (file, content) in self.general() {
            let origins = file.origins();
            for (name, table) in &content.credential {
                let text = name.get_ref().as_str();
                if !is_wanted(text) {
                    continue;
                }
                let (line, column) = file.place(name.span().start);
                let completed = table.complete().map_err(|fault| PolicyError::Text {
                    file: file.name().to_owned(),
                    line,
                    column,
                    message: fault.to_string(),
                })?;
                let from = source(table.from.as_ref(), host);
                let from = from.map_err(|(path, why)| PolicyError::CredentialPath {
                    credential: text.to_owned(),
                    path,
                    why,
                })?;
                let origin = origins(name.span().start);
                found.push(credential(name.get_ref(), table, from, completed, origin));
            }
        }
        Ok(found)
    }
}
