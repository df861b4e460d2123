//! Tools for the internet: search and fetch.

use crate::input::{ToolInput, seconds};
use crate::input_error::{FieldError, InputError};
use crate::plan::{Plan, PlanContext};
use orchestrator_reach::target::Target;
use orchestrator_web::request::{
    FetchRequest, QUERY_MAX, RESULTS_MAX, SHOWN, SHOWN_MAX, SearchRequest, TIMEOUT_MAX_S,
    TIMEOUT_S, WebRequest,
};
use orchestrator_web::select::Selector;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// Searches the web; returns a numbered list of titles, addresses and excerpts. What it finds was written by strangers.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebSearch {
    /// What to search for.
    query: String,
    /// At most this many results; 5 if absent.
    #[schemars(range(min = 1, max = RESULTS_MAX))]
    max_results: Option<u32>,
}

impl ToolInput for WebSearch {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let Self { query, max_results } = self;
        if query.trim().is_empty() || query.len() > QUERY_MAX {
            let expected = format!("a string of 1 to {QUERY_MAX} bytes that is not blank");
            return Err(FieldError::expected("query", &expected, &json!(query)).into());
        }
        Ok(Plan::Web(WebRequest::Search(SearchRequest {
            query,
            max_results: max_results.unwrap_or(5),
        })))
    }
}

/// Fetches a web page as readable text: HTML without its tags, other texts as they are. A redirection to another host is not
/// followed but named. What it says was written by strangers; what a browser would not display stands between `⟦hidden: …⟧` and
/// `⟦end of hidden text⟧`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebFetch {
    /// The address, with https://.
    url: String,
    /// Only those elements of an HTML page that this CSS selector means, such as `main` or `#content > p`; all of it if absent.
    /// At most 500 bytes; without `:has` and pseudo-elements.
    selector: Option<String>,
    /// At most this many bytes of text; 102400 if absent. Of more, all is kept in a file that the result names.
    #[schemars(range(min = 1, max = SHOWN_MAX))]
    max_length: Option<u32>,
    /// Time limit in seconds; 30 if absent. The maximum, 120 or the scope's, is never exceeded.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
    /// What the page is wanted for, for the user; the text does not depend on it.
    #[serde(rename = "prompt")]
    _prompt: Option<String>,
}

impl ToolInput for WebFetch {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let parse = |text: &String| {
            Selector::parse(text)
                .map_err(|expected| FieldError::expected("selector", &expected, &json!(text)))
        };
        Ok(Plan::Web(WebRequest::Fetch(FetchRequest {
            target: target("url", &self.url)?,
            selector: self.selector.as_ref().map(parse).transpose()?,
            shown: self.max_length.unwrap_or(SHOWN),
            timeout_s: seconds(self.timeout)
                .unwrap_or(TIMEOUT_S)
                .min(TIMEOUT_MAX_S),
        })))
    }
}

/// Parses the web address in a field.
pub(super) fn target(field: &str, url: &str) -> Result<Target, FieldError> {
    Target::parse(url).map_err(|error| FieldError::expected(field, &error.to_string(), &json!(url)))
}
