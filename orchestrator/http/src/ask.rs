//! What `lazaret` and the client's gateway say to each other, besides HTTP.
//!
//! The control socket carries one [`Begin`], then one byte with a descriptor for each connection. Such a connection begins with an
//! [`ConnectionAsk`]; what follows is HTTP/1.1 for the host that it names, with the path alone in each request.

use orchestrator_reach::ReachError;
use policies::WebPolicy;
use policies::web::WebTable;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum bytes of a [`Begin`]: the tables of all profiles.
pub const BEGIN_MAX: usize = 16 << 20;
/// Maximum bytes of an [`ConnectionAsk`]: the policy of a session and a URL.
pub const ASK_MAX: usize = 2 << 20;
/// Maximum bytes of a [`NetworkFault`].
pub const FAULT_MAX: usize = 64 << 10;

/// The method of a request that asks for no more than whether the host may be reached.
pub const LOCATE: &str = "LOCATE";
/// In an answer of the gateway's own: the body is a [`NetworkFault`]. A host's header of this name does not pass.
pub const FAULT: &str = "lazaret-fault";

/// What the gateway serves, as it stands before `lazaret` confines itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Begin {
    /// The `web` tables of the profiles. Policies of sessions have one of them, and bounds.
    pub webs: Vec<WebTable>,
    /// The hosts of the user's own settings.
    pub named: Vec<HostOrigin>,
    /// Whether the gateway is told of a company's network, over a socket that it has for that.
    pub company: bool,
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
    /// The user's settings of a provider, a search engine or a collector: any address.
    Settings,
    /// The user's settings of a server: any literal address; for a name, the addresses that a name may open. Without TLS only if
    /// none is public.
    User,
    /// An untrusted source: only public addresses, only with TLS.
    Stranger,
    /// A server of the user's settings, which refers to it for a login: the same, and also addresses of the class that the server has.
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
    #[error("no profile has this policy")]
    NotPolicy,
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("TLS failed: {0}")]
    Tls(String),
}
