//! The requests of web tools.

use crate::select::Selector;
use broker_protocol::Effect;
use orchestrator_reach::target::Target;

pub(crate) use orchestrator_http::ask::REDIRECTS_MAX;

/// Maximum length of a query, in bytes. Engines cut it much earlier.
pub const QUERY_MAX: usize = 2000;
/// Maximum number of results of one search: Brave's maximum.
pub const RESULTS_MAX: u32 = 20;
/// Default number of bytes of text that a fetch shows.
pub const SHOWN: u32 = 100 * 1024;
/// Maximum number of bytes of text that a fetch shows.
pub const SHOWN_MAX: u32 = 1 << 20;
/// Default time limit of a fetch in seconds, from resolving the name to the last byte.
pub const TIMEOUT_S: u32 = 30;
/// Maximum time limit of a fetch, in seconds.
pub const TIMEOUT_MAX_S: u32 = 120;

/// A request of a web tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebRequest {
    /// `web_search`.
    Search(SearchRequest),
    /// `web_fetch`.
    Fetch(FetchRequest),
    /// `view_image` of an address.
    View(ViewRequest),
}

impl WebRequest {
    /// The effect that the executor decides on: an image is fetched like a page.
    pub fn effect(&self) -> Effect {
        match self {
            WebRequest::Search(search) => Effect::WebSearch {
                query: search.query.clone(),
            },
            WebRequest::Fetch(FetchRequest { target, .. })
            | WebRequest::View(ViewRequest { target, .. }) => Effect::WebFetch {
                url: target.to_string(),
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest {
    /// Not empty, at most [`QUERY_MAX`] bytes.
    pub query: String,
    /// Maximum number of results, 1 to [`RESULTS_MAX`].
    pub max_results: u32,
}

/// A page to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// Where the page is.
    pub target: Target,
    /// Selects elements of an HTML page; all if absent.
    pub selector: Option<Selector>,
    /// Maximum bytes of text to show, 1 to [`SHOWN_MAX`].
    pub shown: u32,
    /// Time limit in seconds, 1 to [`TIMEOUT_MAX_S`].
    pub timeout_s: u32,
}

/// An image to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRequest {
    /// Where the image is.
    pub target: Target,
    /// Time limit in seconds, 1 to [`TIMEOUT_MAX_S`].
    pub timeout_s: u32,
}
