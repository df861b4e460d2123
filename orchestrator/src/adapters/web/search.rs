//! `web_search`: SearXNG, and where that has nothing Brave. Where the engines are is the user's own choice (the
//! environment, not a model's input), so no policy is asked whether their addresses are public: an instance of one's own
//! is on this machine. They are told a query, and nothing that a page says.

use super::guard::{self, Resolve};
use super::http::{self, BODY_MAX};
use super::{Settings, WebClient};
use crate::domain::readable;
use crate::domain::web::{EngineError, Found, Hit, HttpError, Provider, Search, Target, WebError};
use policies::WebPolicy;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// Seconds for one engine.
const PATIENCE_S: u64 = 10;
/// The engines behind SearXNG.
const ENGINES: &str = "bing,duckduckgo,brave";

/// Whether there is a search at all.
pub fn may_search(policy: &WebPolicy) -> Result<(), WebError> {
    if policy.searches() { Ok(()) } else { Err(WebError::SearchOff) }
}

/// Asks one engine after the other.
pub async fn search<R: Resolve>(client: &WebClient<R>, search: &Search) -> Result<Found, WebError> {
    may_search(client.policy()?)?;
    let searxng = ask(client, search, Provider::SearXng).await;
    if let Ok(hits) = &searxng
        && !hits.is_empty()
    {
        return Ok(found(Provider::SearXng, searxng.unwrap_or_default()));
    }
    match (searxng, ask(client, search, Provider::Brave).await) {
        (_, Ok(hits)) => Ok(found(Provider::Brave, hits)),
        // One that found nothing has answered.
        (Ok(hits), Err(_)) => Ok(found(Provider::SearXng, hits)),
        (Err(searxng), Err(brave)) => Err(WebError::NoEngine { searxng, brave }),
    }
}

fn found(provider: Provider, hits: Vec<Hit>) -> Found {
    Found { provider, hits }
}

async fn ask<R: Resolve>(
    client: &WebClient<R>,
    search: &Search,
    provider: Provider,
) -> Result<Vec<Hit>, EngineError> {
    let (target, headers) = request(&client.settings, search, provider)?;
    let asked = async {
        let addresses = guard::locate(&client.resolver, &target).await?;
        let response = client.http.get(&target, &addresses, headers).await?;
        match response.status().as_u16() {
            200 => http::read(response, BODY_MAX).await,
            status => Err(HttpError::Status(status)),
        }
    };
    let body = timeout(Duration::from_secs(PATIENCE_S), asked).await;
    let body = body.map_err(|_| EngineError::TimedOut(PATIENCE_S))?.map_err(EngineError::Http)?;
    let mut hits = parse(provider, &body.bytes).ok_or(EngineError::NotJson)?;
    hits.truncate(search.most as usize);
    if let Some(key) = &client.settings.brave_key {
        hits.iter_mut().for_each(|hit| hide(hit, key));
    }
    Ok(hits)
}

/// An engine that repeats our key does not make us print it.
fn hide(hit: &mut Hit, key: &str) {
    for text in [&mut hit.title, &mut hit.url, &mut hit.snippet] {
        if text.contains(key) {
            *text = text.replace(key, "[redacted]");
        }
    }
}

fn request(
    settings: &Settings,
    search: &Search,
    provider: Provider,
) -> Result<(Target, HeaderMap), EngineError> {
    let mut headers = http::accepting("application/json");
    let target = match provider {
        Provider::SearXng => {
            let base = settings.searxng.as_deref().ok_or(EngineError::NotSetUp(super::SEARXNG_URL))?;
            let query = [("q", search.query.as_str()), ("format", "json"), ("engines", ENGINES)];
            address(base, "search", &query)
                .ok_or(EngineError::Base(super::SEARXNG_URL, "write http(s)://HOST"))?
        }
        Provider::Brave => {
            let key = settings.brave_key.as_deref().ok_or(EngineError::NotSetUp(super::BRAVE_KEY))?;
            let count = search.most.to_string();
            let query = [("q", search.query.as_str()), ("count", &count)];
            let target = address(&settings.brave, "res/v1/web/search", &query)
                .filter(|target| !target.is_plain() || is_local(target))
                .ok_or(EngineError::Base(
                    super::BRAVE_URL,
                    "write https://HOST; the key would go over it unprotected",
                ))?;
            let mut key = HeaderValue::from_str(key)
                .map_err(|_| EngineError::Base(super::BRAVE_KEY, "it has characters that no key has"))?;
            key.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-subscription-token"), key);
            target
        }
    };
    Ok((target, headers))
}

/// Whether a request stays on this machine.
fn is_local(target: &Target) -> bool {
    target.host() == "localhost"
        || target.address().is_some_and(|address| address.to_canonical().is_loopback())
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
    /// Absent where nothing was found.
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

/// Reads an engine's answer; none if it is not what that engine says. Both put HTML into texts.
fn parse(provider: Provider, body: &[u8]) -> Option<Vec<Hit>> {
    let hit = |title: Option<String>, url: String, snippet: Option<String>| {
        let [title, snippet] = [title, snippet].map(|text| readable::fragment(&text.unwrap_or_default()));
        Hit { title: if title.is_empty() { url.clone() } else { title }, url, snippet }
    };
    Some(match provider {
        Provider::SearXng => {
            let answer: SearXng = serde_json::from_slice(body).ok()?;
            answer.results.into_iter().map(|one| hit(one.title, one.url, one.content)).collect()
        }
        Provider::Brave => {
            let answer: Brave = serde_json::from_slice(body).ok()?;
            let results = answer.web.map(|web| web.results).unwrap_or_default();
            results.into_iter().map(|one| hit(one.title, one.url, one.description)).collect()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(searxng: Option<&str>, key: Option<&str>, brave: &str) -> Settings {
        Settings {
            searxng: searxng.map(str::to_owned),
            brave_key: key.map(str::to_owned),
            brave: brave.into(),
        }
    }

    fn asked(settings: &Settings, provider: Provider) -> Result<(Target, HeaderMap), EngineError> {
        request(settings, &Search { query: "a b&c=ü".into(), most: 7 }, provider)
    }

    #[test]
    fn engines_are_asked_as_they_want_it() {
        let settings = settings(Some("http://[::1]:8888/sx/"), Some("KEY"), "https://api.search.brave.com");
        let (target, headers) = asked(&settings, Provider::SearXng).unwrap();
        let want =
            "http://[::1]:8888/sx/search?q=a+b%26c%3D%C3%BC&format=json&engines=bing%2Cduckduckgo%2Cbrave";
        assert_eq!(target.to_string(), want);
        assert!(!headers.contains_key("x-subscription-token"));
        let (target, headers) = asked(&settings, Provider::Brave).unwrap();
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
            let settings = settings(None, Some("KEY"), base);
            assert_eq!(asked(&settings, Provider::Brave).is_ok(), want, "{base}");
        }
        assert_eq!(
            asked(&settings(None, None, "https://b.example"), Provider::Brave).unwrap_err(),
            EngineError::NotSetUp("BRAVE_SEARCH_API_KEY")
        );
        assert!(asked(&settings(None, Some("K\nX: y"), "https://b.example"), Provider::Brave).is_err());
    }

    #[test]
    fn answers_are_read_and_others_are_no_answers() {
        let searxng = br#"{"query":"x","results":[{"title":"T","url":"https://t.example/","content":"<b>c</b> &amp; d","engine":"bing"},{"url":"https://u.example/"}]}"#;
        let hits = parse(Provider::SearXng, searxng).unwrap();
        assert_eq!((hits[0].title.as_str(), hits[0].snippet.as_str()), ("T", "c & d"));
        assert_eq!(hits[1].title, "https://u.example/");
        let brave = br#"{"web":{"results":[{"title":"T","url":"https://t.example/","description":"a <strong>b</strong>"}]}}"#;
        assert_eq!(parse(Provider::Brave, brave).unwrap()[0].snippet, "a b");
        assert_eq!(parse(Provider::Brave, br#"{"type":"search"}"#), Some(vec![]));
        for body in [&b"<html>"[..], b"", b"{}", b"{\"results\":7}", b"[]"] {
            assert_eq!(parse(Provider::SearXng, body), None);
        }
        assert_eq!(parse(Provider::SearXng, "[".repeat(1 << 20).as_bytes()), None);
    }
}
