//! The hosts of the user's settings: named while settings are read, and told to the gateway before `lazaret` confines itself.

use crate::ask::{HeldKey, HostOrigin, LoginHosts, NamedRequest, SearchEngine};
use crate::key::Key;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use url::Url;

/// Hosts that settings have named so far.
#[derive(Clone, Debug)]
pub(crate) struct NamedHosts {
    pub named: BTreeSet<HostOrigin>,
    pub requests: BTreeSet<NamedRequest>,
    pub strangers: BTreeSet<HostOrigin>,
    pub logins: LoginHosts,
    pub engines: BTreeSet<SearchEngine>,
    pub keys: BTreeSet<HeldKey>,
    pub login_key: Option<u32>,
}

static NAMED: Mutex<NamedHosts> = Mutex::new(NamedHosts {
    named: BTreeSet::new(),
    requests: BTreeSet::new(),
    strangers: BTreeSet::new(),
    logins: LoginHosts::Recorded(BTreeSet::new()),
    engines: BTreeSet::new(),
    keys: BTreeSet::new(),
    login_key: None,
});

fn lock() -> MutexGuard<'static, NamedHosts> {
    NAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The user's settings name a server at the host of `url`. A host named after the gateway has begun is not served.
pub fn name_host(url: &Url) {
    lock().named.insert(HostOrigin::of(url));
}

/// The user's settings of a provider or a collector need this request, and no other to its host that is not named too.
pub fn name_request(request: NamedRequest) {
    lock().requests.insert(request);
}

/// Requests to a provider have this header, in which the gateway puts a key.
pub fn name_key(key: HeldKey) {
    lock().keys.insert(key);
}

/// The gateway encrypts tokens of logins by this key.
pub fn name_login_key(key: &Key) {
    lock().login_key = key.number();
}

/// A repository's settings name the host of `url`.
pub fn name_stranger(url: &Url) {
    lock().strangers.insert(HostOrigin::of(url));
}

/// The user's settings name this search engine.
pub fn name_engine(engine: SearchEngine) {
    lock().engines.insert(engine);
}

/// These hosts took part in a login at `server`.
pub fn name_login(server: &HostOrigin, hosts: impl IntoIterator<Item = HostOrigin>) {
    match &mut lock().logins {
        LoginHosts::Recorded(recorded) => {
            recorded.extend(hosts.into_iter().map(|host| (server.clone(), host)));
        }
        LoginHosts::Any => {}
    }
}

/// A person logs in: a server may refer to any host.
pub fn name_any_login() {
    lock().logins = LoginHosts::Any;
}

/// The hosts that were named.
pub(crate) fn named_hosts() -> NamedHosts {
    lock().clone()
}
