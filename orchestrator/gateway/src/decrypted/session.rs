//! What all connections of a session have in common.

use super::authority::Certifier;
use super::host::DecryptedHost;
use super::limits::Times;
use super::questions::Questions;
use super::reports::UseReports;
use super::rules::Rules;
use super::upstream::HostTls;
use super::values::{CredentialValues, Value};
use broker_protocol::gateway::{Attach, CredentialSpec, RequestRule};
use orchestrator_logins::RealToken;
use std::collections::HashMap;
use std::rc::Rc;

/// Credentials, their values and their hosts.
pub(super) struct CredentialSession {
    pub credentials: Vec<CredentialSpec>,
    pub values: CredentialValues,
    pub reports: Rc<UseReports>,
    pub(crate) questions: Questions,
    pub times: Times,
    pub(crate) tls: Rc<HostTls>,
    pub(crate) certifier: Option<Certifier>,
    /// The hosts of credentials; those of rules alone are made when they are connected to.
    pub hosts: HashMap<(String, u16), Rc<DecryptedHost>>,
    pub rules: Vec<Vec<RequestRule>>,
}

impl CredentialSession {
    /// Whether rules decide on the requests to a host.
    pub(super) fn has_rules(&self, host: &str) -> bool {
        let mut rules = self.rules.iter().flatten();
        rules.any(|rule| rule.host == plain(host))
    }

    /// A host whose connections are decrypted: it has a credential or a rule.
    pub(super) fn host(&self, host: &str, port: u16) -> Option<Rc<DecryptedHost>> {
        if let Some(known) = self.hosts.get(&(host.to_owned(), port)) {
            return Some(known.clone());
        }
        let rules = Rules::of(&self.rules, plain(host));
        let reports = self.reports.clone();
        (!rules.is_empty())
            .then(|| Rc::new(DecryptedHost::new(host.to_owned(), port, rules, reports)))
    }

    /// Whether programs log in at a host, or use there what a login gave them.
    pub(super) fn has_logins(&self, host: &DecryptedHost) -> bool {
        host.credentials.iter().any(|&credential| {
            let spec = self.credentials.get(usize::from(credential));
            spec.is_some_and(|spec| matches!(spec.attach, Attach::Login(_)))
        })
    }

    /// Has the answers of a credential's hosts searched for the values that are known now.
    pub(super) fn learn(&self, credential: u16) {
        for host in self.hosts.values() {
            if host.credentials.contains(&credential) {
                host.learn(&self.credentials, &self.values);
            }
        }
    }

    /// Adds a token of a login to what is searched for.
    pub(super) fn learn_token(&self, credential: u16, token: &RealToken) -> Option<Rc<Value>> {
        let (value, is_new) = self.values.learn_token(credential, token)?;
        if is_new {
            self.learn(credential);
        }
        Some(value)
    }

    /// A credential's name in the policy.
    pub(super) fn name(&self, credential: u16) -> &str {
        self.credentials
            .get(usize::from(credential))
            .map_or("", |spec| &spec.name)
    }
}

/// A host without the dot at its end, with which the same host is meant.
pub(super) fn plain(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}
