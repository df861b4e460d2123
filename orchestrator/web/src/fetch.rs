//! `web_fetch`: fetches a page as text. Each redirect is a new target that is checked from the beginning. Also fetches images, unchanged.

use crate::decode::{self, PageEnd, TextKind};
use crate::error::{HttpError, WebError};
use crate::html::{self, PageText};
use crate::http::{self, BODY_MAX, DecompressedBody};
use crate::reach::WebReach;
use crate::request::{FetchRequest, REDIRECTS_MAX};
use crate::select::{SelectError, Selector};
use crate::work::{self, Unfinished};
use ::http::header::{CONTENT_TYPE, LOCATION};
use orchestrator_http::Response;
use orchestrator_http::ask::{By, PAGES_ACCEPTED};
use orchestrator_reach::target::Target;
use orchestrator_results::image::{self, Image};
use policies::WebPolicy;
use std::net::IpAddr;

/// The `Accept` headers for pages and for images.
const PAGES: &str = PAGES_ACCEPTED[0];
const IMAGES: &str = PAGES_ACCEPTED[1];

/// A page that has been fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its address after redirects.
    pub target: Target,
    /// The media type from the server, such as `text/html`.
    pub media: String,
    /// Its title, if it is HTML and has one.
    pub title: Option<String>,
    /// The requested text, as far as it was read.
    pub text: String,
    /// How many elements the selector matched, if there was one.
    pub elements: Option<u64>,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Whether the page was read completely.
    pub complete: bool,
}

/// Fetches a page. The caller limits the time.
pub(crate) async fn fetch(reach: &WebReach, fetch: &FetchRequest) -> Result<Page, WebError> {
    let policy = reach.policy()?;
    let mut target = fetch.target.clone();
    for _ in 0..=REDIRECTS_MAX {
        let by = By::Model(Box::new(policy.clone()));
        let response = http::get(&reach.gateway(), by, &target, http::accepting(PAGES)).await?;
        match redirection(&response, &target)? {
            Some(next) => target = follow(policy, &target, next)?,
            None => return page(response, target, fetch.selector.as_ref()).await,
        }
    }
    Err(WebError::Redirects)
}

/// Fetches an image. The caller limits the time. The first bytes determine its type; of the server's media type, only that it is an
/// image counts.
pub(crate) async fn image(reach: &WebReach, target: &Target) -> Result<Image, WebError> {
    let by = By::ModelOfImage(Box::new(reach.policy()?.clone()));
    let response = http::get(&reach.gateway(), by, target, http::accepting(IMAGES)).await?;
    if let Some(to) = redirection(&response, target)? {
        return Err(WebError::Moved { to });
    }
    let (media, _) = content_type(&response)?;
    if !["", "application/octet-stream"].contains(&media.as_str()) && !media.starts_with("image/") {
        return Err(WebError::NotImage(media.chars().take(100).collect()));
    }
    if response
        .content_length()
        .is_some_and(|bytes| bytes > image::MAX)
    {
        return Err(WebError::LargeImage);
    }
    let DecompressedBody {
        bytes: data,
        complete,
    } = http::read(response, image::MAX as usize).await?;
    if !complete {
        return Err(WebError::LargeImage);
    }
    let media_type = image::check(&data, data.len() as u64).map_err(WebError::Image)?;
    Ok(Image { media_type, data })
}

/// An image may come without TLS only from this machine: then all `addresses` of its host have to be local.
pub(crate) fn may_be_plain(
    target: &Target,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> Result<(), WebError> {
    let here = addresses
        .into_iter()
        .all(|address| address.to_canonical().is_loopback());
    if target.is_plain() && !here {
        Err(WebError::PlainImage)
    } else {
        Ok(())
    }
}

/// The target of a redirect, if the response is one.
fn redirection(response: &Response, from: &Target) -> Result<Option<Target>, WebError> {
    if ![301, 302, 303, 307, 308].contains(&response.status().as_u16()) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else {
        return Ok(None);
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    from.join(&location).map(Some).map_err(WebError::Redirect)
}

/// A redirect to another host is for the model to decide, not for the page, unless the policy names the host.
fn follow(policy: &WebPolicy, from: &Target, next: Target) -> Result<Target, WebError> {
    if next.host() == from.host() || policy.names(next.host(), next.port()) {
        return Ok(next);
    }
    Err(WebError::OtherHost { to: next })
}

async fn page(
    response: Response,
    target: Target,
    selector: Option<&Selector>,
) -> Result<Page, WebError> {
    let (media, charset) = content_type(&response)?;
    let declared = decode::kind(&media);
    if declared.is_none() && !media.is_empty() {
        return Err(WebError::NotText(media.chars().take(100).collect()));
    }
    let DecompressedBody { bytes, complete } = http::read(response, BODY_MAX).await?;
    let kind = declared.unwrap_or(TextKind::Plain);
    // UTF-16 has NUL bytes too, but whoever sends UTF-16 declares it.
    let is_utf16 = charset.is_some() || bytes.starts_with(b"\xff\xfe");
    if !is_utf16 && kind == TextKind::Plain && bytes.contains(&0) {
        return Err(WebError::NotText("binary, whatever it is called".into()));
    }
    let length = bytes.len() as u64;
    let end = if complete {
        PageEnd::Complete
    } else {
        PageEnd::Cut
    };
    let (base, wanted, media_of_text) = (target.clone(), selector.cloned(), media.clone());
    let read = work::aside(move |stop| {
        let text = decode::decode(&bytes, charset.as_deref(), kind, end);
        match (kind, &wanted) {
            (TextKind::Html, selector) => html::read(&text, &base, selector.as_ref(), stop),
            (TextKind::Plain, None) => Ok(PageText {
                text,
                complete: true,
                ..PageText::default()
            }),
            (TextKind::Plain, Some(_)) => Err(SelectError::NotHtml(media_of_text)),
        }
    });
    let read = read
        .await
        .map_err(|Unfinished| HttpError::Broken("the session ends".into()))?;
    let PageText {
        title,
        text,
        elements,
        complete: all,
    } = read.map_err(|error| {
        let selector = selector.map_or(String::new(), |selector| selector.text().to_owned());
        WebError::Select { selector, error }
    })?;
    Ok(Page {
        target,
        media,
        title,
        text,
        elements,
        bytes: length,
        complete: complete && all,
    })
}

/// The content type of a successful response.
fn content_type(response: &Response) -> Result<(String, Option<String>), HttpError> {
    let status = response.status();
    if !status.is_success() {
        return Err(HttpError::Status(status.as_u16()));
    }
    let header = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    Ok(media_type(header.unwrap_or_default()))
}

/// The media type in lower case, and its `charset`.
fn media_type(header: &str) -> (String, Option<String>) {
    let mut parts = header.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| name.eq_ignore_ascii_case("charset"));
    (
        media,
        charset.map(|(_, value)| value.trim_matches('"').to_owned()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_read_with_its_charset() {
        for (header, media, charset) in [
            ("text/html", "text/html", None),
            ("Text/HTML; charset=UTF-8", "text/html", Some("UTF-8")),
            (
                "text/plain;a=b; Charset=\"latin1\" ",
                "text/plain",
                Some("latin1"),
            ),
            ("", "", None),
        ] {
            assert_eq!(
                media_type(header),
                (media.to_owned(), charset.map(str::to_owned)),
                "{header}"
            );
        }
    }
}
