//! What is asked of the web.

use crate::select::Selector;
use crate::target::Target;
use broker_protocol::Effect;

/// Longest query, in bytes. Engines cut far earlier.
pub const QUERY_MAX: usize = 2000;
/// Most results of one search: what Brave gives at once.
pub const RESULTS_MAX: u32 = 20;
/// Bytes of text that a fetch shows by default.
pub const SHOWN: u32 = 100 * 1024;
/// Most bytes of text that a fetch shows.
pub const SHOWN_MAX: u32 = 1 << 20;
/// Seconds of a fetch, from the first look at a name to the last byte, by default.
pub const TIMEOUT_S: u32 = 30;
/// Most seconds of a fetch.
pub const TIMEOUT_MAX_S: u32 = 120;
/// Most redirections that are followed.
pub const REDIRECTS_MAX: usize = 10;

/// A request of a web tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebRequest {
    /// `web_search`.
    Search(Search),
    /// `web_fetch`.
    Fetch(Fetch),
    /// `view_image` of an address.
    View(View),
}

impl WebRequest {
    /// What the executor decides on: an image is fetched like a page.
    pub fn effect(&self) -> Effect {
        match self {
            WebRequest::Search(search) => Effect::WebSearch { query: search.query.clone() },
            WebRequest::Fetch(Fetch { target, .. }) | WebRequest::View(View { target, .. }) => {
                Effect::WebFetch { url: target.to_string() }
            }
        }
    }
}

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// Not empty, at most [`QUERY_MAX`] bytes.
    pub query: String,
    /// Most results, 1 to [`RESULTS_MAX`].
    pub max_results: u32,
}

/// A page to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Where the page is.
    pub target: Target,
    /// Which elements of an HTML page are wanted, if not all.
    pub selector: Option<Selector>,
    /// Most bytes of text to show, 1 to [`SHOWN_MAX`].
    pub shown: u32,
    /// Seconds for all of it, 1 to [`TIMEOUT_MAX_S`].
    pub timeout_s: u32,
}

/// An image to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Where the image is.
    pub target: Target,
    /// Seconds for all of it, 1 to [`TIMEOUT_MAX_S`].
    pub timeout_s: u32,
}
