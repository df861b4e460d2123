//! What `lazaret` and the client's gateway say to each other, besides HTTP.
//!
//! The control socket carries one [`Begin`], then one byte with a descriptor for each connection. Such a connection begins with an
//! [`ConnectionAsk`]; what follows is HTTP/1.1 for the host that it names, with the path alone in each request.

use crate::key::Key;
use orchestrator_reach::ReachError;
use policies::WebPolicy;
use policies::web::WebTable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Maximum bytes of a [`Begin`]: the tables of all profiles.
pub const BEGIN_MAX: usize = 16 << 20;
/// Maximum bytes of all keys of a gateway.
pub const KEYS_MAX: usize = 1 << 20;
/// Maximum bytes of an [`ConnectionAsk`]: the policy of a session and a URL.
pub const ASK_MAX: usize = 2 << 20;
/// Maximum bytes of a [`NetworkFault`].
pub(crate) const FAULT_MAX: usize = 64 << 10;

/// Maximum number of redirects that are followed for a page.
pub const REDIRECTS_MAX: usize = 10;
/// Media types that a request for a page, and one for an image, accepts.
pub const PAGES_ACCEPTED: [&str; 2] = [
    "text/html, application/xhtml+xml;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.1",
    "image/png, image/jpeg, image/gif, image/webp",
];
/// The one compression that is requested.
pub const PACKED: &str = "gzip";

/// The method of a request that asks for no more than whether the host may be reached.
pub const LOCATE: &str = "LOCATE";
/// In an answer of the gateway's own: the body is a [`NetworkFault`]. A host's header of this name does not pass.
pub const FAULT: &str = "lazaret-fault";

/// What the gateway serves, as it stands before `lazaret` confines itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Begin {
    /// The `web` tables of the profiles. Policies of sessions have one of them, and bounds.
    pub webs: Vec<WebTable>,
    /// The hosts of servers that the user's own settings name.
    pub named: Vec<HostOrigin>,
    /// All requests to the providers and collectors of the settings.
    pub requests: Vec<NamedRequest>,
    /// The hosts of servers that a repository's settings name.
    pub strangers: Vec<HostOrigin>,
    pub logins: LoginHosts,
    /// The search engines of the settings.
    pub engines: Vec<SearchEngine>,
    /// Whether web tools need tickets, which come on a line that follows as a descriptor. Not with an executor that somebody else has
    /// started.
    pub tickets: bool,
    /// Headers in which it puts keys, whose values come on a line that follows as a descriptor, if there are any.
    pub keys: Vec<HeldKey>,
    /// The number of the key on the same line by which tokens of logins at servers are encrypted, if settings name a server.
    pub login_key: Option<u32>,
    /// Whether the gateway is told of a company's network, over a socket that it has for that.
    pub company: bool,
}

/// The search of an engine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SearchEngine {
    /// Its URL without a query.
    pub url: String,
    /// Fields of its query besides the words (`q`) and how many results there may be (`count`).
    pub fixed: Vec<(String, String)>,
}

impl SearchEngine {
    /// The words of a search here, if `page` is one and says nothing else: not by its spelling either.
    pub fn words(&self, page: &url::Url) -> Option<String> {
        let mut bare = page.clone();
        bare.set_query(None);
        if bare.as_str() != self.url {
            return None;
        }
        let mut spelt = bare.clone();
        spelt.query_pairs_mut().extend_pairs(page.query_pairs());
        if spelt != *page {
            return None;
        }
        let (mut query, mut count) = (None, None);
        let mut fixed = Vec::new();
        for (name, value) in page.query_pairs() {
            match &*name {
                "q" if query.is_none() => query = Some(value.into_owned()),
                "count" if count.is_none() && is_number(&value) => count = Some(value),
                other => fixed.push((other.to_owned(), value.into_owned())),
            }
        }
        query.filter(|_| fixed == self.fixed)
    }
}

/// Whether `text` is a number of results, as it is usually written.
fn is_number(text: &str) -> bool {
    text.parse::<u8>()
        .is_ok_and(|number| number.to_string() == text)
}

/// A request that settings name: its method and its whole URL. Whoever is served at this host, nothing else is sent there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamedRequest {
    pub origin: HostOrigin,
    pub method: String,
    /// With its query.
    pub path: String,
}

impl NamedRequest {
    pub fn new(method: &str, url: &url::Url) -> Self {
        Self {
            origin: HostOrigin::of(url),
            method: method.to_owned(),
            path: path_with_query(url).to_owned(),
        }
    }
}

fn path_with_query(url: &url::Url) -> &str {
    &url[url::Position::BeforePath..url::Position::AfterQuery]
}

/// Requests in which a key is put: those for which the settings have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KeyUse {
    /// To a provider or a collector.
    Provider,
    Engine,
    /// To a server of the user's settings.
    Server,
    /// To where such a server refers for a login: the secret of a client, for a token.
    Login,
}

impl KeyUse {
    /// The use by requests of `by`, if these get keys in a header.
    pub fn of(by: &By) -> Option<Self> {
        match by {
            By::ProviderSettings => Some(Self::Provider),
            By::Engine => Some(Self::Engine),
            By::ServerSettings => Some(Self::Server),
            By::RepositorySettings | By::Model(_) | By::ModelOfImage(_) | By::ServerOf(_) => None,
        }
    }
}

/// The part of a request in which a key is put.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum KeyPlace {
    /// The header with this name, in lower case.
    Header(String),
    /// The path with its query.
    Path,
}

/// A place in requests to a host, in which the gateway puts a key: `lazaret` has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldKey {
    pub number: u32,
    pub used: KeyUse,
    pub origin: HostOrigin,
    pub place: KeyPlace,
    /// The text that `lazaret` sends there, with [`HeldKey::text`] for the key.
    pub template: String,
}

impl HeldKey {
    /// `key` as the whole value of the header `name`, if the gateway has it.
    pub fn whole(key: &Key, used: KeyUse, url: &url::Url, name: &str) -> Option<Self> {
        Some(Self {
            number: key.number()?,
            used,
            origin: HostOrigin::of(url),
            place: KeyPlace::Header(name.to_owned()),
            template: key.expose().to_owned(),
        })
    }

    /// The key with this number in the path and query of `url`, which has its text in them.
    pub fn in_path(number: u32, used: KeyUse, url: &url::Url) -> Self {
        Self {
            number,
            used,
            origin: HostOrigin::of(url),
            place: KeyPlace::Path,
            template: path_with_query(url).to_owned(),
        }
    }

    /// The text in place of the key `number`.
    pub fn text(number: u32) -> String {
        Key::held(number).expose().to_owned()
    }
}

/// A key on its way from the process that has found it to the gateway: a line of JSON.
#[derive(Serialize, Deserialize)]
pub struct KeyValue {
    pub number: u32,
    pub value: String,
}

/// Hosts to which servers refer for a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LoginHosts {
    /// Those that took part when a person logged in, each with the server that had referred to it.
    Recorded(BTreeSet<(HostOrigin, HostOrigin)>),
    /// Any, as a server refers to them: for a command with which a person logs in, and which hears no model.
    Any,
}

impl Default for LoginHosts {
    fn default() -> Self {
        Self::Recorded(BTreeSet::new())
    }
}

/// A scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostOrigin(String);

impl HostOrigin {
    /// The place of a URL that has a host.
    pub fn of(url: &url::Url) -> Self {
        Self(url.origin().ascii_serialization())
    }

    /// Its URL, without a path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a connection is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionAsk {
    pub by: By,
    /// Where it leads. Of the URL, the scheme, the host and the port count.
    pub url: String,
}

/// Who named a host, which decides at what addresses it may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// A model, within this policy of its session.
    Model(Box<WebPolicy>),
    /// The same, for an image: without TLS from this machine alone.
    ModelOfImage(Box<WebPolicy>),
    /// The user's settings of a provider or a collector: any address, for the requests that are named.
    ProviderSettings,
    /// The user's settings of a search engine: any address, for a search that a model has asked for.
    Engine,
    /// The user's settings of a server: any literal address; for a name, the addresses that a name may open. Without TLS only if
    /// none is public.
    ServerSettings,
    /// A repository's settings of a server: only public addresses, only with TLS.
    RepositorySettings,
    /// A server of the settings, which refers to it for a login: the same, and also addresses of the class that a server of the user's
    /// settings has.
    ServerOf(HostOrigin),
}

/// Why the gateway has no answer of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NetworkFault {
    #[error("{0}")]
    Reach(#[from] ReachError),
    /// An image without TLS from elsewhere.
    #[error("an image is fetched with https:// only, except from this machine itself")]
    PlainImage,
    #[error("{0} was not in the settings when this program started")]
    NotNamed(HostOrigin),
    #[error(
        "{} {}{} is no request that the settings name: a provider gets those of its interface, a collector those of its address (base_url may have another path), and every server `POST`, and `GET` and `DELETE` without a body",
        .0.method, .0.origin, .0.path
    )]
    NotRequest(NamedRequest),
    #[error("{0} took no part in the login; log in again: lazaret mcp login")]
    NotOfLogin(HostOrigin),
    #[error("a request for tokens of a login: {0}")]
    Login(String),
    #[error("the executor has not permitted this request, or too long ago")]
    NoTicket,
    #[error("no profile has this policy")]
    NotPolicy,
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("TLS failed: {0}")]
    Tls(String),
}
