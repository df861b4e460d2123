//! `web_fetch`: a page as text. Each redirection is a new target, judged from the beginning. And an image, as it is.

use super::WebClient;
use super::guard::{self, Resolve};
use super::http::{self, BODY_MAX, Body};
use crate::domain::image::{self, Image};
use crate::domain::readable::{self, Kind, Readable};
use crate::domain::select::{SelectError, Selector};
use crate::domain::web::{Fetch, HttpError, Page, REDIRECTS_MAX, Target, WebError};
use policies::WebPolicy;
use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use std::net::{IpAddr, SocketAddr};

/// What we can show, best first.
const WANTED: &str =
    "text/html, application/xhtml+xml;q=0.9, text/*;q=0.8, application/json;q=0.8, */*;q=0.1";

/// The images that we show.
const IMAGES: &str = "image/png, image/jpeg, image/gif, image/webp";

/// Fetches a page, in whatever time the caller leaves.
pub async fn fetch<R: Resolve>(client: &WebClient<R>, fetch: &Fetch) -> Result<Page, WebError> {
    let policy = client.policy()?;
    let mut target = fetch.target.clone();
    for _ in 0..=REDIRECTS_MAX {
        let addresses = guard::admit(policy, &client.resolver, &target).await?;
        let response = client.http.get(&target, &addresses, http::accepting(WANTED)).await?;
        match leads_to(&response, &target)? {
            Some(next) => target = followed(policy, &target, next)?,
            None => return page(response, target, fetch.selector.as_ref()).await,
        }
    }
    Err(WebError::Redirects)
}

/// Fetches an image, in whatever time the caller leaves. What it is say its first bytes, and its server only that it is one.
pub async fn image<R: Resolve>(client: &WebClient<R>, target: &Target) -> Result<Image, WebError> {
    let addresses = guard::admit(client.policy()?, &client.resolver, target).await?;
    may_be_plain(target, addresses.iter().map(SocketAddr::ip))?;
    let response = client.http.get(target, &addresses, http::accepting(IMAGES)).await?;
    if let Some(to) = leads_to(&response, target)? {
        return Err(WebError::Moved { to });
    }
    let (media, _) = said(&response)?;
    if !["", "application/octet-stream"].contains(&media.as_str()) && !media.starts_with("image/") {
        return Err(WebError::NotImage(media.chars().take(100).collect()));
    }
    if response.content_length().is_some_and(|bytes| bytes > image::MOST) {
        return Err(WebError::LargeImage);
    }
    let Body { bytes: data, whole } = http::read(response, image::MOST as usize).await?;
    if !whole {
        return Err(WebError::LargeImage);
    }
    let media_type = image::check(&data, data.len() as u64).map_err(WebError::Image)?;
    Ok(Image { media_type, data })
}

/// An image comes without TLS only from this machine, where all `addresses` of its host have to be.
pub fn may_be_plain(target: &Target, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), WebError> {
    let here = addresses.into_iter().all(|address| address.to_canonical().is_loopback());
    if target.is_plain() && !here { Err(WebError::PlainImage) } else { Ok(()) }
}

/// Where an answer sends us, if it does.
fn leads_to(response: &Response, from: &Target) -> Result<Option<Target>, WebError> {
    if ![301, 302, 303, 307, 308].contains(&response.status().as_u16()) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    from.join(&location).map(Some).map_err(WebError::Redirect)
}

/// Another host is the model's choice, not the page's, unless the policy has named it.
fn followed(policy: &WebPolicy, from: &Target, next: Target) -> Result<Target, WebError> {
    if next.host() == from.host() || policy.names(next.host(), next.port()) {
        return Ok(next);
    }
    Err(WebError::OtherHost { to: next })
}

async fn page(response: Response, target: Target, wanted: Option<&Selector>) -> Result<Page, WebError> {
    let (media, charset) = said(&response)?;
    let declared = readable::kind(&media);
    if declared.is_none() && !media.is_empty() {
        return Err(WebError::NotText(media.chars().take(100).collect()));
    }
    let Body { bytes, whole } = http::read(response, BODY_MAX).await?;
    let kind = declared.unwrap_or(Kind::Plain);
    // UTF-16 has them too, but nobody who sends it leaves out to say so.
    if charset.is_none() && kind == Kind::Plain && !bytes.starts_with(b"\xff\xfe") && bytes.contains(&0) {
        return Err(WebError::NotText("binary, whatever it is called".into()));
    }
    let text = readable::decode(&bytes, charset.as_deref(), kind, !whole);
    let refused = |error| {
        let selector = wanted.map_or(String::new(), |wanted| wanted.text().to_owned());
        WebError::Select { selector, error }
    };
    let (read, elements, all) = match (kind, wanted) {
        (Kind::Html, None) => (readable::html(&text, &target, None), None, true),
        (Kind::Html, Some(wanted)) => {
            let (chosen, all) = wanted.find(&text).map_err(refused)?;
            (readable::html(&text, &target, Some(&chosen)), Some(chosen.len() as u64), all)
        }
        (Kind::Plain, None) => (Readable { title: None, text, whole: true }, None, true),
        (Kind::Plain, Some(_)) => return Err(refused(SelectError::NoHtml(media))),
    };
    let (title, whole) = (read.title, read.whole && whole && all);
    Ok(Page { target, media, title, text: read.text, elements, bytes: bytes.len() as u64, whole })
}

/// What an answer that went well says that it holds.
fn said(response: &Response) -> Result<(String, Option<String>), HttpError> {
    let status = response.status();
    if !status.is_success() {
        return Err(HttpError::Status(status.as_u16()));
    }
    let said = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Ok(media_type(said.unwrap_or_default()))
}

/// The media type in lower case, and the `charset` that is said with it.
fn media_type(said: &str) -> (String, Option<String>) {
    let mut parts = said.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset =
        parts.filter_map(|part| part.split_once('=')).find(|(name, _)| name.eq_ignore_ascii_case("charset"));
    (media, charset.map(|(_, value)| value.trim_matches('"').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_read_with_its_charset() {
        for (said, media, charset) in [
            ("text/html", "text/html", None),
            ("Text/HTML; charset=UTF-8", "text/html", Some("UTF-8")),
            ("text/plain;a=b; Charset=\"latin1\" ", "text/plain", Some("latin1")),
            ("", "", None),
        ] {
            assert_eq!(media_type(said), (media.to_owned(), charset.map(str::to_owned)), "{said}");
        }
    }
}
