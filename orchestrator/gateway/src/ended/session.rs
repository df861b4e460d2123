//! What all connections of a session have in common.

use super::authority::Certifier;
use super::host::EndedHost;
use super::limits::Times;
use super::reports::Reports;
use super::upstream::HostTls;
use super::values::Values;
use broker_protocol::gateway::CredentialSpec;
use std::collections::HashMap;
use std::rc::Rc;

/// Credentials, their values and their hosts.
pub struct Session {
    pub credentials: Vec<CredentialSpec>,
    pub values: Values,
    pub reports: Rc<Reports>,
    pub times: Times,
    pub tls: Rc<HostTls>,
    pub certifier: Option<Certifier>,
    pub hosts: HashMap<(String, u16), Rc<EndedHost>>,
}

impl Session {
    /// A credential's name in the policy.
    pub fn name(&self, credential: u16) -> &str {
        self.credentials
            .get(usize::from(credential))
            .map_or("", |spec| &spec.name)
    }
}
