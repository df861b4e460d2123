//! Permissions of files to define keys of the ssh agent, and of profiles to name them.

use crate::credential_table::CredentialName;
use crate::error::{PolicyError, SshMisuse};
use crate::model::PolicyFile;
use crate::resolve::Policies;
use crate::source::SourceKind;
use crate::ssh::SshKeys;
use broker_protocol::limit;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

impl Policies {
    /// Checks that no keys are defined twice or against an administrator's list, and that profiles of the machine and the user name only
    /// those that their file or an earlier one defines.
    pub(crate) fn check_ssh(&self) -> Result<(), PolicyError> {
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for (file, content) in self.general() {
            let fault = |name: &Spanned<CredentialName>, why| {
                let (line, column) = file.place(name.span().start);
                PolicyError::Ssh {
                    file: file.name().to_owned(),
                    line,
                    column,
                    name: name.get_ref().as_str().to_owned(),
                    why,
                }
            };
            for name in content.ssh.keys() {
                let text = name.get_ref().as_str();
                if let Some(by) = self.forbids_credential(text) {
                    let by = by.to_owned();
                    return Err(fault(name, SshMisuse::Forbidden { by }));
                }
                if let Some(earlier) = known.insert(text, file.name()) {
                    let earlier = earlier.to_owned();
                    return Err(fault(name, SshMisuse::Taken { earlier }));
                }
            }
            // A shipped profile names what a user may define.
            if file.kind() == SourceKind::Shipped {
                continue;
            }
            if let Some((profile, name)) = undefined(content, &known) {
                let profile = profile.to_owned();
                return Err(fault(name, SshMisuse::Undefined { profile }));
            }
        }
        Ok(())
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
}

/// The first name in a profile of a file that neither it nor an earlier one defines.
fn undefined<'f>(
    content: &'f PolicyFile,
    known: &BTreeMap<&str, &str>,
) -> Option<(&'f str, &'f Spanned<CredentialName>)> {
    content.profiles().find_map(|(profile, table)| {
        let mut names = table.ssh.iter();
        let name = names.find(|name| !known.contains_key(name.get_ref().as_str()))?;
        Some((profile.as_str(), name))
    })
}
