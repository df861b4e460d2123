//! Makes the requests of web tools, within limits of concurrency and time.

use crate::error::WebError;
use crate::fetch::{self, Page};
use crate::reach::WebReach;
use crate::request::{FetchRequest, SearchRequest, ViewRequest, WebRequest};
use crate::search::{self, SearchResults};
use orchestrator_http::ClientGateway;
use orchestrator_reach::guard;
use orchestrator_results::image::Image;
use policies::{PolicyError, WebPolicy};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

pub use crate::search::SearchEngines;

/// Maximum number of requests in progress; each may hold a response and its text.
const AT_ONCE: usize = 8;

/// Makes web requests that a policy allows.
pub struct WebClient {
    reach: WebReach,
    engines: SearchEngines,
    /// Bounds the responses in memory to [`AT_ONCE`].
    turns: Semaphore,
}

impl WebClient {
    /// Uses this process's gateway. Without a policy, the error of which tells why, nothing can be reached.
    pub fn new(policy: Result<WebPolicy, PolicyError>, engines: SearchEngines) -> Self {
        Self::with_gateway(policy, engines, None)
    }

    /// Also uses these engines of the user's settings: a SearXNG instance and a key for Brave, where the environment has none.
    pub fn or_engines(self, searxng: Option<String>, brave_key: Option<String>) -> Self {
        Self {
            engines: self.engines.or(searxng, brave_key),
            ..self
        }
    }

    pub(crate) fn with_gateway(
        policy: Result<WebPolicy, PolicyError>,
        engines: SearchEngines,
        gateway: Option<ClientGateway>,
    ) -> Self {
        Self {
            reach: WebReach::new(policy, gateway),
            engines,
            turns: Semaphore::new(AT_ONCE),
        }
    }

    /// Queries the search engines.
    ///
    /// # Errors
    /// [`WebError::SearchOff`], [`WebError::NoEngine`].
    pub async fn search(&self, search: &SearchRequest) -> Result<SearchResults, WebError> {
        let _turn = self.turns.acquire().await;
        search::search(&self.reach, &self.engines, search).await
    }

    /// Fetches a page as text.
    ///
    /// # Errors
    /// All except those of searches and images.
    pub async fn fetch(&self, wanted: &FetchRequest) -> Result<Page, WebError> {
        self.within(wanted.timeout_s, fetch::fetch(&self.reach, wanted))
            .await
    }

    /// Fetches an image.
    ///
    /// # Errors
    /// All except those of searches and pages.
    pub async fn view(&self, wanted: &ViewRequest) -> Result<Image, WebError> {
        self.within(wanted.timeout_s, fetch::image(&self.reach, &wanted.target))
            .await
    }

    async fn within<T>(
        &self,
        seconds: u32,
        work: impl Future<Output = Result<T, WebError>>,
    ) -> Result<T, WebError> {
        let in_turn = async {
            let _turn = self.turns.acquire().await;
            work.await
        };
        let done = timeout(Duration::from_secs(seconds.into()), in_turn).await;
        done.unwrap_or(Err(WebError::TimedOut(seconds)))
    }
}

/// Whether `policy` refuses a request, as far as that is known before resolving a name or connecting.
///
/// # Errors
/// The refusal.
pub fn foresee(policy: &WebPolicy, request: &WebRequest) -> Result<(), WebError> {
    match request {
        WebRequest::Search(_) => search::may_search(policy),
        WebRequest::Fetch(fetch) => Ok(guard::foresee_all(policy, &fetch.target)?),
        WebRequest::View(view) => guard::foresee_all(policy, &view.target)
            .map_err(WebError::from)
            .and_then(|()| fetch::may_be_plain(&view.target, view.target.address())),
    }
}
