//! The web tools' way out. Only the orchestrator has a network; a cell has none.
//!
//! `guard` judges a target and looks its name up once; `http` makes one request to the addresses that were judged;
//! `fetch` and `search` are the tools. What comes back is a stranger's: it is bounded while it is read, and read by
//! [`readable`](crate::domain::readable).

mod guard;
mod http;
mod fetch;
mod search;

use crate::domain::image::Image;
use crate::domain::web::{Ask, Fetch, Found, Page, Search, View, WebError};
use crate::ports::Web;
use guard::{Resolve, System};
use http::Http;
use policies::{PolicyError, WebPolicy};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Base URL of a SearXNG instance.
const SEARXNG_URL: &str = "SEARXNG_URL";
/// Key for Brave's API.
pub const BRAVE_KEY: &str = "BRAVE_SEARCH_API_KEY";
/// Base URL of Brave's API, if it is another.
const BRAVE_URL: &str = "BRAVE_SEARCH_URL";
/// Brave's own.
const BRAVE: &str = "https://api.search.brave.com";

/// Calls that are under way at once; each may hold an answer and its text.
const AT_ONCE: usize = 8;

/// The search engines, as the user has set them up. Not `Debug`: there is a key in it.
pub struct Settings {
    searxng: Option<String>,
    brave_key: Option<String>,
    brave: String,
}

impl Settings {
    /// Those of our environment.
    pub fn from_environment() -> Self {
        let value = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            searxng: value(SEARXNG_URL),
            brave_key: value(BRAVE_KEY),
            brave: value(BRAVE_URL).unwrap_or_else(|| BRAVE.to_owned()),
        }
    }
}

/// The web, as a policy lets it be seen.
pub struct WebClient<R = System> {
    /// The policy, or why there is none.
    policy: Result<WebPolicy, PolicyError>,
    settings: Settings,
    resolver: R,
    http: Http,
    /// What keeps answers in memory: [`AT_ONCE`] of them.
    turns: Semaphore,
}

impl WebClient {
    /// The web through this machine's resolver.
    pub fn new(policy: Result<WebPolicy, PolicyError>, settings: Settings) -> Self {
        Self::with(policy, settings, System)
    }
}

impl<R> WebClient<R> {
    fn with(policy: Result<WebPolicy, PolicyError>, settings: Settings, resolver: R) -> Self {
        Self { policy, settings, resolver, http: Http::default(), turns: Semaphore::new(AT_ONCE) }
    }

    /// What `work` comes to, in its turn, within so many seconds from now.
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

    /// Without a policy nothing is reached.
    fn policy(&self) -> Result<&WebPolicy, WebError> {
        self.policy.as_ref().map_err(|error| WebError::Policy(error.to_string()))
    }
}

/// Whether `policy` refuses what is asked, as far as that is known before anything is looked up or connected to.
pub fn foresee(policy: &WebPolicy, asked: &Ask) -> Result<(), WebError> {
    match asked {
        Ask::Search(_) => search::may_search(policy),
        Ask::Fetch(asked) => guard::foresee_all(policy, &asked.target),
        Ask::View(asked) => guard::foresee_all(policy, &asked.target)
            .and_then(|()| fetch::may_be_plain(&asked.target, asked.target.address())),
    }
}

impl<R: Resolve> Web for WebClient<R> {
    async fn search(&self, asked: &Search) -> Result<Found, WebError> {
        let _turn = self.turns.acquire().await;
        search::search(self, asked).await
    }

    async fn fetch(&self, asked: &Fetch) -> Result<Page, WebError> {
        self.within(asked.timeout_s, fetch::fetch(self, asked)).await
    }

    async fn view(&self, asked: &View) -> Result<Image, WebError> {
        self.within(asked.timeout_s, fetch::image(self, &asked.target)).await
    }
}

#[cfg(test)]
mod tests;
