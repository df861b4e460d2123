//! `web_search`: SearXNG, and Brave if that finds nothing. The engines' addresses are the user's own choice (from the environment,
//! not from a model's input), so no policy checks whether they are public: the user's own instance may run on this machine. Engines
//! receive only the query, and nothing from pages.

use crate::base::is_exposed;
use crate::error::{EngineError, HttpError, WebError};
use crate::html::fragment;
use crate::http::{self, BODY_MAX};
use crate::reach::WebReach;
use crate::request::SearchRequest;
use ::http::header::{HeaderMap, HeaderName, HeaderValue};
use orchestrator_http::ask::{By, HeldKey, KeyUse, SearchEngine};
use orchestrator_http::key::Key;
use orchestrator_http::{name_engine, name_key};
use orchestrator_keys::held::hold_variable;
use orchestrator_reach::target::Target;
use orchestrator_text::known::BRAVE_KEY;
use orchestrator_text::secret_environment;
use policies::WebPolicy;
use serde::Deserialize;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// Base URL of a SearXNG instance.
const SEARXNG_URL: &str = "SEARXNG_URL";
/// Base URL of Brave's API, if it is not the default.
const BRAVE_URL: &str = "BRAVE_SEARCH_URL";
const BRAVE: &str = "https://api.search.brave.com";
/// The header with its key.
const BRAVE_HEADER: &str = "x-subscription-token";
/// Time limit for one engine, in seconds.
const PATIENCE_S: u64 = 10;
/// The engines that SearXNG is to use.
const ENGINES: &str = "bing,duckduckgo,brave";

/// The configured search engines. Not `Debug`: it contains a key.
pub struct SearchEngines {
    pub(crate) searxng: Option<String>,
    pub(crate) brave_key: Option<String>,
    pub(crate) brave: String,
}

impl SearchEngines {
    /// The engines that our environment configures.
    ///
    /// Where another process has the secrets, Brave's key is only a text that stands for it.
    pub fn from_environment() -> Self {
        if hold_variable(BRAVE_KEY).is_err() {
            // It is no key that a header can have: a search says that there is none.
            secret_environment::stand_in(BRAVE_KEY, "");
        }
        let value = |name| secret_environment::text(name).filter(|value| !value.is_empty());
        Self {
            searxng: value(SEARXNG_URL),
            brave_key: value(BRAVE_KEY),
            brave: brave_base(),
        }
    }

    /// Names them for the gateway.
    pub fn name_hosts(&self) {
        if let Some(searxng) = &self.searxng {
            EngineKind::SearXng.name_engine(searxng);
        }
        EngineKind::Brave.name_engine(&self.brave);
        let key = self.brave_key.as_deref().and_then(Key::new);
        key.iter().for_each(name_brave_key);
    }

    /// Adds the given engines where there are none of their kind.
    pub(crate) fn or(self, searxng: Option<String>, brave_key: Option<String>) -> Self {
        Self {
            searxng: self.searxng.or(searxng),
            brave_key: self.brave_key.or(brave_key),
            ..self
        }
    }
}

fn brave_base() -> String {
    let base = secret_environment::text(BRAVE_URL).filter(|base| !base.is_empty());
    base.unwrap_or_else(|| BRAVE.to_owned())
}

/// Has the gateway put `key`, if it has it, into searches by Brave.
pub fn name_brave_key(key: &Key) {
    let target = address(&brave_base(), EngineKind::Brave.path(), &[]);
    let target = target.filter(|target| !is_exposed(target.url()));
    if let Some(target) = target
        && let Some(held) = HeldKey::whole(key, KeyUse::Engine, target.url(), BRAVE_HEADER)
    {
        name_key(held);
    }
}

/// A search engine, or several behind one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    SearXng,
    Brave,
}

impl EngineKind {
    /// Names the engine at this base, which the user's settings have, for the gateway.
    pub fn name_engine(self, base: &str) {
        if let Some(url) = address(base, self.path(), &[]) {
            let fixed = self.fixed().iter();
            name_engine(SearchEngine {
                url: url.url().as_str().trim_end_matches('?').to_owned(),
                fixed: fixed
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            });
        }
    }

    /// The path of a search below the base.
    fn path(self) -> &'static str {
        match self {
            EngineKind::SearXng => "search",
            EngineKind::Brave => "res/v1/web/search",
        }
    }

    /// Fields that the query of a search has besides words and a number.
    fn fixed(self) -> &'static [(&'static str, &'static str)] {
        match self {
            EngineKind::SearXng => &[("format", "json"), ("engines", ENGINES)],
            EngineKind::Brave => &[],
        }
    }

    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::SearXng => "searxng",
            EngineKind::Brave => "brave",
        }
    }
}

/// One result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The page's title; without one, its URL.
    pub title: String,
    /// Where the page is.
    pub url: String,
    pub snippet: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResults {
    /// The engine that found it.
    pub provider: EngineKind,
    /// Best first; may be empty.
    pub hits: Vec<Hit>,
}

/// Whether the policy allows searches at all.
pub(crate) fn may_search(policy: &WebPolicy) -> Result<(), WebError> {
    if policy.searches() {
        Ok(())
    } else {
        Err(WebError::SearchOff)
    }
}

/// Queries one engine after the other.
pub(crate) async fn search(
    reach: &WebReach,
    engines: &SearchEngines,
    search: &SearchRequest,
) -> Result<SearchResults, WebError> {
    may_search(reach.policy()?)?;
    let searxng = ask(reach, engines, search, EngineKind::SearXng).await;
    if let Ok(hits) = &searxng
        && !hits.is_empty()
    {
        return Ok(results(EngineKind::SearXng, searxng.unwrap_or_default()));
    }
    match (
        searxng,
        ask(reach, engines, search, EngineKind::Brave).await,
    ) {
        (_, Ok(hits)) => Ok(results(EngineKind::Brave, hits)),
        // An empty result is an answer too.
        (Ok(hits), Err(_)) => Ok(results(EngineKind::SearXng, hits)),
        (Err(searxng), Err(brave)) => Err(WebError::NoEngine { searxng, brave }),
    }
}

fn results(provider: EngineKind, hits: Vec<Hit>) -> SearchResults {
    SearchResults { provider, hits }
}

async fn ask(
    reach: &WebReach,
    engines: &SearchEngines,
    search: &SearchRequest,
    provider: EngineKind,
) -> Result<Vec<Hit>, EngineError> {
    let (target, headers) = request(engines, search, provider)?;
    let asked = async {
        let response = http::get(&reach.gateway(), By::Engine, &target, headers).await?;
        match response.status().as_u16() {
            200 => http::read(response, BODY_MAX).await,
            status => Err(HttpError::Status(status)),
        }
    };
    let body = timeout(Duration::from_secs(PATIENCE_S), asked).await;
    let body = body
        .map_err(|_| EngineError::TimedOut(PATIENCE_S))?
        .map_err(EngineError::Http)?;
    let mut hits = parse(provider, &body.bytes).ok_or(EngineError::NotJson)?;
    hits.truncate(search.max_results as usize);
    if let Some(key) = &engines.brave_key {
        hits.iter_mut().for_each(|hit| hide(hit, key));
    }
    Ok(hits)
}

/// An engine that echoes our key must not make us print it.
fn hide(hit: &mut Hit, key: &str) {
    for text in [&mut hit.title, &mut hit.url, &mut hit.snippet] {
        if text.contains(key) {
            *text = text.replace(key, "[redacted]");
        }
    }
}

fn request(
    engines: &SearchEngines,
    search: &SearchRequest,
    provider: EngineKind,
) -> Result<(Target, HeaderMap), EngineError> {
    let mut headers = http::accepting("application/json");
    let target = match provider {
        EngineKind::SearXng => {
            let base = engines
                .searxng
                .as_deref()
                .ok_or(EngineError::NotSetUp(SEARXNG_URL))?;
            let words = [("q", search.query.as_str())];
            let query = [&words[..], provider.fixed()].concat();
            address(base, provider.path(), &query)
                .ok_or(EngineError::Base(SEARXNG_URL, "write http(s)://HOST"))?
        }
        EngineKind::Brave => {
            let key = engines
                .brave_key
                .as_deref()
                .ok_or(EngineError::NotSetUp(BRAVE_KEY))?;
            let count = search.max_results.to_string();
            let query = [("q", search.query.as_str()), ("count", &count)];
            let target = address(&engines.brave, provider.path(), &query)
                .filter(|target| !is_exposed(target.url()))
                .ok_or(EngineError::Base(
                    BRAVE_URL,
                    "write https://HOST; the key would go over it unprotected",
                ))?;
            let mut key = HeaderValue::from_str(key)
                .map_err(|_| EngineError::Base(BRAVE_KEY, "it has characters that no key has"))?;
            key.set_sensitive(true);
            headers.insert(HeaderName::from_static(BRAVE_HEADER), key);
            target
        }
    };
    Ok((target, headers))
}

fn address(base: &str, path: &str, query: &[(&str, &str)]) -> Option<Target> {
    let base = Url::parse(base).ok()?;
    let mut url = base.clone();
    url.set_path(&format!("{}/{path}", base.path().trim_end_matches('/')));
    url.set_query(None);
    url.query_pairs_mut().extend_pairs(query);
    Target::parse(url.as_str()).ok()
}

#[derive(Deserialize)]
struct SearXng {
    results: Vec<SearXngHit>,
}

#[derive(Deserialize)]
struct SearXngHit {
    #[serde(default)]
    title: Option<String>,
    url: String,
    #[serde(default)]
    content: Option<String>,
}

#[derive(Deserialize)]
struct Brave {
    /// Absent if nothing was found.
    web: Option<BraveWeb>,
}

#[derive(Deserialize)]
struct BraveWeb {
    results: Vec<BraveHit>,
}

#[derive(Deserialize)]
struct BraveHit {
    #[serde(default)]
    title: Option<String>,
    url: String,
    #[serde(default)]
    description: Option<String>,
}

/// Parses an engine's answer; `None` if it does not have that engine's format. Both put HTML into texts.
fn parse(provider: EngineKind, body: &[u8]) -> Option<Vec<Hit>> {
    let hit = |title: Option<String>, url: String, snippet: Option<String>| {
        let [title, snippet] = [title, snippet].map(|text| fragment(&text.unwrap_or_default()));
        Hit {
            title: if title.is_empty() { url.clone() } else { title },
            url,
            snippet,
        }
    };
    Some(match provider {
        EngineKind::SearXng => {
            let answer: SearXng = serde_json::from_slice(body).ok()?;
            answer
                .results
                .into_iter()
                .map(|one| hit(one.title, one.url, one.content))
                .collect()
        }
        EngineKind::Brave => {
            let answer: Brave = serde_json::from_slice(body).ok()?;
            let results = answer.web.map(|web| web.results).unwrap_or_default();
            results
                .into_iter()
                .map(|one| hit(one.title, one.url, one.description))
                .collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engines(searxng: Option<&str>, key: Option<&str>, brave: &str) -> SearchEngines {
        SearchEngines {
            searxng: searxng.map(str::to_owned),
            brave_key: key.map(str::to_owned),
            brave: brave.into(),
        }
    }

    fn asked(
        engines: &SearchEngines,
        provider: EngineKind,
    ) -> Result<(Target, HeaderMap), EngineError> {
        request(
            engines,
            &SearchRequest {
                query: "a b&c=ü".into(),
                max_results: 7,
            },
            provider,
        )
    }

    #[test]
    fn engines_are_asked_as_they_want_it() {
        let engines = engines(
            Some("http://[::1]:8888/sx/"),
            Some("KEY"),
            "https://api.search.brave.com",
        );
        let (target, headers) = asked(&engines, EngineKind::SearXng).unwrap();
        let want = "http://[::1]:8888/sx/search?q=a+b%26c%3D%C3%BC&format=json&engines=bing%2Cduckduckgo%2Cbrave";
        assert_eq!(target.to_string(), want);
        assert!(!headers.contains_key("x-subscription-token"));
        let (target, headers) = asked(&engines, EngineKind::Brave).unwrap();
        assert_eq!(
            target.to_string(),
            "https://api.search.brave.com/res/v1/web/search?q=a+b%26c%3D%C3%BC&count=7"
        );
        assert_eq!(headers["x-subscription-token"], "KEY");
        assert!(!format!("{headers:?}").contains("KEY"));
    }

    #[test]
    fn a_key_goes_nowhere_without_tls() {
        for (base, want) in [
            ("https://b.example", true),
            ("http://b.example", false),
            ("http://127.0.0.1:80", true),
            ("http://localhost:80", true),
            ("http://10.0.0.1", false),
            ("b.example", false),
            ("https://u:p@b.example", false),
        ] {
            let engines = engines(None, Some("KEY"), base);
            assert_eq!(asked(&engines, EngineKind::Brave).is_ok(), want, "{base}");
        }
        assert_eq!(
            asked(&engines(None, None, "https://b.example"), EngineKind::Brave).unwrap_err(),
            EngineError::NotSetUp("BRAVE_SEARCH_API_KEY")
        );
        assert!(
            asked(
                &engines(None, Some("K\nX: y"), "https://b.example"),
                EngineKind::Brave
            )
            .is_err()
        );
    }

    #[test]
    fn answers_are_read_and_others_are_no_answers() {
        let searxng = br#"{"query":"x","results":[{"title":"T","url":"https://t.example/","content":"<b>c</b> &amp; d","engine":"bing"},{"url":"https://u.example/"}]}"#;
        let hits = parse(EngineKind::SearXng, searxng).unwrap();
        assert_eq!(
            (hits[0].title.as_str(), hits[0].snippet.as_str()),
            ("T", "c & d")
        );
        assert_eq!(hits[1].title, "https://u.example/");
        let brave = br#"{"web":{"results":[{"title":"T","url":"https://t.example/","description":"a <strong>b</strong>"}]}}"#;
        assert_eq!(parse(EngineKind::Brave, brave).unwrap()[0].snippet, "a b");
        assert_eq!(
            parse(EngineKind::Brave, br#"{"type":"search"}"#),
            Some(vec![])
        );
        for body in [&b"<html>"[..], b"", b"{}", b"{\"results\":7}", b"[]"] {
            assert_eq!(parse(EngineKind::SearXng, body), None);
        }
        assert_eq!(
            parse(EngineKind::SearXng, "[".repeat(1 << 20).as_bytes()),
            None
        );
    }
}
