//! A host whose connections are decrypted: its credentials, and the values that its answers are searched for.

use super::refusal::RequestRefusal;
use super::reports::UseReports;
use super::rules::Rules;
use super::search::Needles;
use super::values::CredentialValues;
use broker_protocol::gateway::{CredentialSpec, CredentialVerdict};
use broker_protocol::{CallId, ConnectionVerdict};
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
pub(super) struct DecryptedHost {
    pub host: String,
    pub port: u16,
    /// By their places in the session's credentials.
    pub credentials: Vec<u16>,
    pub rules: Rules,
    pub reports: Rc<UseReports>,
    needles: RefCell<Rc<Needles>>,
}

impl DecryptedHost {
    pub(super) fn new(host: String, port: u16, rules: Rules, reports: Rc<UseReports>) -> Self {
        Self {
            rules,
            host,
            port,
            credentials: Vec::new(),
            reports,
            needles: RefCell::default(),
        }
    }
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// The values that its answers are searched for at present.
    pub(super) fn needles(&self) -> Rc<Needles> {
        self.needles.borrow().clone()
    }

    /// Takes over the values that are known now.
    pub(super) fn learn(&self, all: &[CredentialSpec], values: &CredentialValues) {
        let known = self.credentials.iter().flat_map(|&credential| {
            let placeholder = &all[usize::from(credential)].placeholder;
            let known = values.known(credential).into_iter();
            known.map(|value| (value, placeholder.clone()))
        });
        *self.needles.borrow_mut() = Rc::new(Needles::new(known.collect()));
    }
}

/// A host with the call whose program has connected to it: what is reported of it is of that call.
pub(super) struct CalledHost {
    pub of_session: Rc<DecryptedHost>,
    pub call: Option<CallId>,
}

impl Deref for CalledHost {
    type Target = DecryptedHost;

    fn deref(&self) -> &DecryptedHost {
        &self.of_session
    }
}

impl CalledHost {
    /// Counts a use of a value that will be sent. When this returns, the first of its kind is in the audit.
    pub(super) async fn record(&self, credential: u16, method: &str, verdict: CredentialVerdict) {
        self.count(credential, method, verdict);
        self.reports.firsts_recorded().await;
    }

    pub(super) fn count(&self, credential: u16, method: &str, verdict: CredentialVerdict) {
        let place = (&*self.host, self.port);
        self.reports
            .count(self.call, credential, place, method, verdict);
        if verdict == CredentialVerdict::Echoed {
            let why = format!(
                "the answer of {} contained the value of a credential, and was cut off before it",
                self.place()
            );
            self.reports
                .refuse(self.call, place, ConnectionVerdict::RequestRefused, &why);
        }
    }

    /// Tells the people who run the command of a refusal, if it is one that they can do something about.
    pub(super) fn tell(&self, refusal: &RequestRefusal) {
        if let Some(verdict) = refusal.verdict() {
            let place = (&*self.host, self.port);
            self.reports
                .refuse(self.call, place, verdict, &refusal.to_string());
        }
    }
}
