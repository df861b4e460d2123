//! Permissions of files to define a credential, and of profiles to name it.

use crate::credential_table::CredentialName;
use crate::credentials::{Credential, credential, source};
use crate::error::{CredentialMisuse, PolicyError};
use crate::host::Host;
use crate::model::PolicyFile;
use crate::resolve::Policies;
use crate::source::SourceKind;
use broker_protocol::limit;
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

impl Policies {
    /// Checks that no credential is defined twice or against an administrator's list, and that profiles of the machine and the user
    /// name only those that their file or an earlier one defines.
    pub(crate) fn check_credentials(&self) -> Result<(), PolicyError> {
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for (file, content) in self.general() {
            let fault = |name: &Spanned<CredentialName>, why| {
                let (line, column) = file.place(name.span().start);
                PolicyError::Credential {
                    file: file.name().to_owned(),
                    line,
                    column,
                    credential: name.get_ref().as_str().to_owned(),
                    why,
                }
            };
            for name in content.credential.keys() {
                let text = name.get_ref().as_str();
                if let Some(by) = self.forbids_credential(text) {
                    let by = by.to_owned();
                    return Err(fault(name, CredentialMisuse::Forbidden { by }));
                }
                if let Some(earlier) = known.insert(text, file.name()) {
                    let earlier = earlier.to_owned();
                    return Err(fault(name, CredentialMisuse::Taken { earlier }));
                }
            }
            // A shipped profile names what a user may define.
            if file.kind() == SourceKind::Shipped {
                continue;
            }
            for (profile, table) in content.profiles() {
                let is_known =
                    |name: &&Spanned<CredentialName>| known.contains_key(name.get_ref().as_str());
                if let Some(name) = table.credentials.iter().find(|name| !is_known(name)) {
                    let (profile, text) = (profile.as_str(), name.get_ref().as_str());
                    let why = CredentialMisuse::Undefined {
                        profile: profile.to_owned(),
                        name: text.to_owned(),
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

    /// All credentials that files define, whether a profile names them or not.
    ///
    /// # Errors
    /// The path of a source cannot be used here.
    pub fn defined_credentials(&self, host: &Host) -> Result<Vec<Credential>, PolicyError> {
        self.defined(host, |_| true)
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
