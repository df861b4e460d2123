//! The web tools: what may be asked, what comes back, what can go wrong, and how each is told. No byte moves here.

use super::answer::{Answer, Asked, Details, Told};
use super::catalogue::Tool;
use super::clean::Cleaner;
use super::field::{FieldError, Input};
use super::image::{self, Image};
use super::request::InputError;
use super::select::{SelectError, Selector};
use broker_protocol::{Effect, ErrorKind, Failed};
use core::net::IpAddr;
use policies::address::Class;
use serde_json::Value;
use std::fmt;
use thiserror::Error;
use url::{Host, Url};

/// Longest query, in bytes. Engines cut far earlier.
pub const QUERY_MAX: usize = 2000;
/// Most results of one search: what Brave gives at once.
pub const RESULTS_MAX: u32 = 20;
/// Longest URL, in bytes.
pub const URL_MAX: usize = 8192;
/// Bytes of text that a fetch shows if it is not told otherwise.
pub const SHOWN: u32 = 100 * 1024;
/// Most bytes of text that a fetch shows.
pub const SHOWN_MAX: u32 = 1 << 20;
/// Seconds of a fetch, from the first look at a name to the last byte, if it is not told otherwise.
pub const TIMEOUT_S: u32 = 30;
/// Most seconds of a fetch; one that asks for more has these, and is told so.
pub const TIMEOUT_MAX_S: u32 = 120;
/// Most redirections that are followed.
pub const REDIRECTS_MAX: usize = 10;

/// Makes a web request from checked input.
pub type Build = fn(Input) -> Result<Ask, InputError>;

/// What is asked of the web.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// `web_search`.
    Search(Search),
    /// `web_fetch`.
    Fetch(Fetch),
    /// `view_image` of an address.
    View(View),
}

impl Ask {
    /// What the executor decides on: an image is fetched like a page.
    pub fn effect(&self) -> Effect {
        match self {
            Ask::Search(search) => Effect::WebSearch { query: search.query.clone() },
            Ask::Fetch(Fetch { target, .. }) | Ask::View(View { target, .. }) => {
                Effect::WebFetch { url: target.to_string() }
            }
        }
    }
}

/// A search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// What for; not empty, at most [`QUERY_MAX`] bytes.
    pub query: String,
    /// Most results, 1 to [`RESULTS_MAX`].
    pub most: u32,
}

/// A page to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// From where.
    pub target: Target,
    /// What of an HTML page is wanted, if not all.
    pub selector: Option<Selector>,
    /// Most bytes of text to show, 1 to [`SHOWN_MAX`].
    pub shown: u32,
    /// Seconds for all of it, 1 to [`TIMEOUT_MAX_S`].
    pub timeout_s: u32,
}

/// An image to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// From where.
    pub target: Target,
    /// Seconds for all of it, 1 to [`TIMEOUT_MAX_S`].
    pub timeout_s: u32,
}

/// Parses a call of a web tool.
pub fn parse(tool: &Tool<Build>, input: Value) -> Result<Ask, InputError> {
    (tool.build)(Input::check(tool.fields, input)?)
}

/// Builds a [`Search`].
pub fn search(mut input: Input) -> Result<Ask, InputError> {
    let query = input.text("query").unwrap_or_default();
    let broken = |rule: String, found: String| FieldError::Rule { name: "query".into(), rule, found };
    match query.len() {
        _ if query.trim().is_empty() => {
            Err(broken("a text that is not empty".into(), format!("{query:?}")).into())
        }
        1..=QUERY_MAX => Ok(Ask::Search(Search { most: input.small("max_results").unwrap_or(5), query })),
        bytes => Err(broken(format!("at most {QUERY_MAX} bytes"), format!("a text of {bytes} bytes")).into()),
    }
}

/// Builds a [`Fetch`].
pub fn fetch(mut input: Input) -> Result<Ask, InputError> {
    let url = input.text("url").unwrap_or_default();
    let target = Target::parse(&url).map_err(|error| broken("url", error.to_string(), &url))?;
    let selector = input.text("selector");
    let read = |text: &String| Selector::parse(text).map_err(|rule| broken("selector", rule, text));
    let selector = selector.as_ref().map(read).transpose()?;
    let shown = input.small("max_length").unwrap_or(SHOWN);
    let timeout_s = input.seconds("timeout").unwrap_or(TIMEOUT_S).min(TIMEOUT_MAX_S);
    Ok(Ask::Fetch(Fetch { target, selector, shown, timeout_s }))
}

/// Builds a [`View`] of the address in `field`.
pub fn view(field: &str, url: &str) -> Result<Ask, InputError> {
    let target = Target::parse(url).map_err(|error| broken(field, error.to_string(), url))?;
    Ok(Ask::View(View { target, timeout_s: TIMEOUT_S }))
}

/// Whether `text` is meant as an address of the web, and not as a path.
pub fn is_address(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| ["http", "https"].iter().any(|own| scheme.eq_ignore_ascii_case(own)))
}

fn broken(name: &str, rule: String, text: &str) -> FieldError {
    let found =
        if text.len() > 200 { format!("a text of {} bytes", text.len()) } else { format!("{text:?}") };
    FieldError::Rule { name: name.into(), rule, found }
}

/// Where to go: `http` or `https`, a host, no user and no fragment. The host is as the URL standard reads it, so each
/// spelling of an address (`0x7f.1`, `2130706433`, full-width digits, a dot at the end) has become the address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target(Url);

/// Why a text is no [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum TargetError {
    #[error("a URL with https:// and a host")]
    NoUrl,
    #[error("a URL of at most {URL_MAX} bytes")]
    TooLong,
    #[error("a URL that begins with https:// (or http://)")]
    Scheme,
    #[error("a URL without a user name or password")]
    User,
}

impl Target {
    /// Reads a whole URL.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if text.len() > URL_MAX {
            return Err(TargetError::TooLong);
        }
        Url::parse(text).map_err(|_| TargetError::NoUrl).and_then(Self::of)
    }

    /// Reads where a redirection leads, from here.
    pub fn join(&self, location: &str) -> Result<Self, TargetError> {
        if location.len() > URL_MAX {
            return Err(TargetError::TooLong);
        }
        self.0.join(location).map_err(|_| TargetError::NoUrl).and_then(Self::of)
    }

    fn of(mut url: Url) -> Result<Self, TargetError> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err(TargetError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::User);
        }
        // A dot at the end means the same host, and would pass by every comparison of names.
        let name = url.domain().and_then(|name| name.strip_suffix('.')).map(str::to_owned);
        if let Some(name) = name {
            url.set_host(Some(&name)).map_err(|_| TargetError::NoUrl)?;
        }
        url.set_fragment(None);
        let whole = url.domain().is_none_or(|name| !name.is_empty() && !name.ends_with('.'));
        if url.host().is_none() || !whole || url.as_str().len() > URL_MAX {
            return Err(TargetError::NoUrl);
        }
        Ok(Self(url))
    }

    /// The URL.
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// The host as text; IPv6 in brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    /// The address, where the host is one.
    pub fn address(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The port, the scheme's own if none is given.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or(443)
    }

    /// Whether without TLS.
    pub fn is_plain(&self) -> bool {
        self.0.scheme() == "http"
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A search engine, or several behind one door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// A SearXNG instance.
    SearXng,
    /// Brave's API.
    Brave,
}

impl Provider {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Provider::SearXng => "searxng",
            Provider::Brave => "brave",
        }
    }
}

/// One result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The page's title.
    pub title: String,
    /// Where it is.
    pub url: String,
    /// What it says, in part.
    pub snippet: String,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Who found it.
    pub provider: Provider,
    /// What, best first; may be none.
    pub hits: Vec<Hit>,
}

/// A page that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Where it was, after redirections.
    pub target: Target,
    /// The media type it came as, such as `text/html`.
    pub media: String,
    /// Its title, if it is HTML and has one.
    pub title: Option<String>,
    /// Its text, all that was read and is wanted.
    pub text: String,
    /// How many elements were chosen, if any were to be.
    pub elements: Option<u64>,
    /// Bytes that were read, unpacked.
    pub bytes: u64,
    /// Whether that is all there is.
    pub whole: bool,
}

/// Why an engine gave nothing.
#[derive(Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum EngineError {
    #[error("not set up ({0} is not set)")]
    NotSetUp(&'static str),
    #[error("{0} is no base URL for it: {1}")]
    Base(&'static str, &'static str),
    #[error("no answer within {0} s")]
    TimedOut(u64),
    #[error("{0}")]
    Http(HttpError),
    #[error("its answer is not the JSON that was asked for")]
    NotJson,
}

/// Why a request over HTTP failed.
#[derive(Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum HttpError {
    #[error("the name cannot be resolved: {0}")]
    Resolve(String),
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the connection went to an address that was not checked")]
    Strayed,
    #[error("HTTP status {0}")]
    Status(u16),
    #[error("the answer broke off: {0}")]
    Broken(String),
    #[error("the answer is packed in a way that was not asked for ({0})")]
    Packed(String),
    #[error("no TLS: {0}")]
    Tls(String),
}

/// Why a web tool did not do what was asked.
#[derive(Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum WebError {
    #[error("the policy switches web_search off")]
    SearchOff,
    #[error("no search engine answered. SearXNG: {searxng}. Brave: {brave}")]
    NoEngine { searxng: EngineError, brave: EngineError },
    #[error("the policy does not allow the host {host} at port {port}")]
    Host { host: String, port: u16 },
    #[error("the policy allows {host} only with https://")]
    Plain { host: String },
    #[error("{host} is at {address}, a {} address, and no line of the policy opens it", .class.name())]
    Address { host: String, address: IpAddr, class: Class },
    #[error("the page redirects to another host, {to}; fetch that if it is what you want")]
    OtherHost { to: Target },
    #[error("the page redirects to what is no web address: not {0}")]
    Redirect(TargetError),
    #[error("more than {REDIRECTS_MAX} redirections")]
    Redirects,
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("the page is not text but {0}")]
    NotText(String),
    #[error("an image comes with https:// only, but from this machine itself")]
    PlainImage,
    #[error("the image is elsewhere, at {to}; ask for that if it is what you want")]
    Moved { to: Target },
    #[error("this is no image but {0}")]
    NotImage(String),
    #[error("the image has more than {} bytes; at most so many are shown", image::MOST)]
    LargeImage,
    #[error("{0}")]
    Image(Failed),
    #[error("the selector {selector:?}: {error}")]
    Select { selector: String, error: SelectError },
    #[error("not done within {0} s")]
    TimedOut(u32),
    #[error("the policy cannot be read: {0}")]
    Policy(String),
}

impl WebError {
    fn kind(&self) -> ErrorKind {
        match self {
            WebError::SearchOff
            | WebError::Host { .. }
            | WebError::Plain { .. }
            | WebError::PlainImage
            | WebError::Moved { .. }
            | WebError::OtherHost { .. } => ErrorKind::DeniedPolicy,
            WebError::NotImage(_) | WebError::LargeImage => ErrorKind::InvalidInput,
            WebError::Image(failed) => failed.kind,
            WebError::Address { .. } => ErrorKind::Violation,
            WebError::Http(HttpError::Status(404 | 410)) => ErrorKind::NotFound,
            WebError::Select { error: SelectError::Nothing, .. } => ErrorKind::NotFound,
            WebError::Select { error: SelectError::TooMuch, .. } => ErrorKind::ResourceLimit,
            WebError::TimedOut(_) => ErrorKind::Timeout,
            WebError::Policy(_) => ErrorKind::Internal,
            WebError::NoEngine { .. }
            | WebError::Redirect(_)
            | WebError::Redirects
            | WebError::Http(_)
            | WebError::Select { error: SelectError::NoHtml(_), .. }
            | WebError::NotText(_) => ErrorKind::Io,
        }
    }
}

impl From<WebError> for Failed {
    fn from(error: WebError) -> Self {
        Failed { kind: error.kind(), message: error.to_string() }
    }
}

impl Found {
    /// The results as a numbered list.
    pub fn tell(&self) -> Answer {
        let entry = |(index, hit): (usize, &Hit)| {
            let mut entry = format!("{}. {}\n   {}", index + 1, line(&hit.title, 300), line(&hit.url, 2000));
            if !hit.snippet.is_empty() {
                entry.push_str("\n   ");
                entry.push_str(&line(&hit.snippet, 1000));
            }
            entry
        };
        let list: Vec<String> = self.hits.iter().enumerate().map(entry).collect();
        let text = if list.is_empty() { "no results".to_owned() } else { list.join("\n\n") };
        let details =
            Details::Searched { provider: self.provider.name(), result_count: self.hits.len() as u64 };
        told("web_search", text, details)
    }
}

impl Page {
    /// All of its text, of which as much is shown as was asked for, and the time that it might have taken.
    pub fn tell(self, asked: &Fetch) -> Told {
        let Page { target, media, title, text, elements, bytes, whole } = self;
        let (url, timeout) = (target.to_string(), asked.timeout_s);
        let details = Details::Fetched { url, media_type: media, title, elements, bytes, timeout };
        Told { answer: told("web_fetch", text, details), most: asked.shown as usize, whole }
    }
}

impl View {
    /// The image that was found there.
    pub fn tell(&self, image: Image) -> Answer {
        let (media_type, size) = (image.media_type, image.data.len() as u64);
        let text = format!("{media_type}, {size} bytes: {}", self.target);
        let (url, timeout) = (self.target.to_string(), self.timeout_s);
        let mut answer = told("view_image", text, Details::Viewed { url, media_type, size, timeout });
        answer.image = Some(image);
        answer
    }
}

fn told(tool: &'static str, text: String, details: Details) -> Answer {
    Answer::said(&Asked::only(tool), text, details)
}

/// A stranger's text on one line, at most `most` characters of it: nothing in it can pass for another entry.
fn line(text: &str, most: usize) -> String {
    let clean = Cleaner::default().clean(text.as_bytes()).into_owned();
    let text = String::from_utf8_lossy(&clean);
    let mut line = String::new();
    for c in text.split_whitespace().flat_map(|word| [" ", word]).flat_map(str::chars).skip(1) {
        if line.len() >= most {
            line.push('…');
            break;
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalogue::web_tool;
    use broker_protocol::Roots;
    use serde_json::json;

    fn ask(tool: &str, input: Value) -> Result<Ask, Failed> {
        parse(web_tool(tool).unwrap(), input).map_err(Failed::from)
    }

    fn target(text: &str) -> Result<String, TargetError> {
        Target::parse(text).map(|target| target.to_string())
    }

    #[test]
    fn every_spelling_of_an_address_is_the_address() {
        for (text, want) in [
            ("http://127.0.0.1/", "127.0.0.1"),
            ("http://0x7f.1/", "127.0.0.1"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://017700000001/", "127.0.0.1"),
            ("http://0177.0.0.01/", "127.0.0.1"),
            ("http://127.1/", "127.0.0.1"),
            ("http://127.0.0.1./", "127.0.0.1"),
            ("http://1２7。0．0.1/", "127.0.0.1"),
            ("http://%31%32%37.0.0.1/", "127.0.0.1"),
            ("http:\\\\127.0.0.1/", "127.0.0.1"),
            ("http:127.0.0.1", "127.0.0.1"),
            ("http://[::ffff:127.0.0.1]/", "[::ffff:7f00:1]"),
            ("http://[0:0:0:0:0:0:0:1]/", "[::1]"),
            ("http://0/", "0.0.0.0"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target.host(), want, "{text}");
            assert!(target.address().is_some(), "{text}");
        }
        for (text, want) in [
            ("https://LOCALHOST./x", "localhost"),
            ("https://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/", "localhost"),
            ("https://bücher.example/", "xn--bcher-kva.example"),
            ("https://a\tb.example/", "ab.example"),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!((target.host(), target.address()), (want, None), "{text}");
        }
    }

    #[test]
    fn what_is_no_place_to_go_is_refused() {
        for (text, want) in [
            ("", TargetError::NoUrl),
            ("example.org", TargetError::NoUrl),
            ("//example.org", TargetError::NoUrl),
            ("https://", TargetError::NoUrl),
            ("https://../", TargetError::NoUrl),
            ("https://a../", TargetError::NoUrl),
            ("http://256.1.1.1/", TargetError::NoUrl),
            ("http://0x7f.1.1.1.1/", TargetError::NoUrl),
            ("http://[::1%25eth0]/", TargetError::NoUrl),
            ("file:///etc/passwd", TargetError::Scheme),
            ("ftp://example.org/", TargetError::Scheme),
            ("data:text/html,x", TargetError::Scheme),
            ("gopher://127.0.0.1/", TargetError::Scheme),
            ("https://u@example.org/", TargetError::User),
            ("https://example.org:443@127.0.0.1/", TargetError::User),
            ("https://:p@example.org/", TargetError::User),
        ] {
            assert_eq!(target(text), Err(want), "{text}");
        }
        let most = format!("https://a.example/{}", "x".repeat(URL_MAX - 18));
        assert_eq!((most.len(), target(&most).is_ok()), (URL_MAX, true));
        assert_eq!(target(&format!("{most}x")), Err(TargetError::TooLong));
        // Escaped, it would be longer than it was.
        assert_eq!(target(&format!("https://a.example/{}", "é".repeat(4000))), Err(TargetError::NoUrl));
    }

    #[test]
    fn inputs_have_their_bounds() {
        let Ok(Ask::Search(search)) = ask("web_search", json!({"query": "x"})) else { panic!() };
        assert_eq!(search.most, 5);
        let Ok(Ask::Search(search)) =
            ask("web_search", json!({"query": "x".repeat(QUERY_MAX), "numResults": 20}))
        else {
            panic!()
        };
        assert_eq!(search.most, RESULTS_MAX);
        let Ok(Ask::Fetch(fetch)) = ask("fetch_url", json!({"url": "https://a.example/#x", "maxLength": 7}))
        else {
            panic!()
        };
        assert_eq!(
            (fetch.target.to_string().as_str(), fetch.shown, fetch.timeout_s),
            ("https://a.example/", 7, 30)
        );
        for (tool, input, message) in [
            ("web_search", json!({"query": " "}), "field `query`: a text that is not empty, this is \" \""),
            (
                "web_search",
                json!({"query": "x".repeat(QUERY_MAX + 1)}),
                "field `query`: at most 2000 bytes, this is a text of 2001 bytes",
            ),
            (
                "web_search",
                json!({"query": "x", "max_results": 21}),
                "field `max_results`: a whole number between 1 and 20, this is 21",
            ),
            (
                "web_search",
                json!({"query": "x", "max_results": 0}),
                "field `max_results`: a whole number between 1 and 20, this is 0",
            ),
            (
                "web_fetch",
                json!({"url": "https://a.example", "timeout": 0}),
                "field `timeout`: a whole number from 1 on, this is 0",
            ),
            (
                "web_fetch",
                json!({"url": "https://a.example", "max_length": 1_048_577}),
                "field `max_length`: a whole number between 1 and 1048576, this is 1048577",
            ),
            (
                "web_fetch",
                json!({"url": "https://a.example", "selector": "a >"}),
                "field `selector`: a CSS selector (Dangling combinator in selector), this is \"a >\"",
            ),
            (
                "web_fetch",
                json!({"url": "https://a.example", "selector": "x".repeat(501)}),
                "field `selector`: at most 500 bytes, this is a text of 501 bytes",
            ),
            (
                "web_fetch",
                json!({"url": "https://a.example", "selector": 1}),
                "field `selector`: a text, this is 1",
            ),
            (
                "web_fetch",
                json!({"url": "file:///etc/passwd"}),
                "field `url`: a URL that begins with https:// (or http://), this is \"file:///etc/passwd\"",
            ),
        ] {
            let failed = ask(tool, input).unwrap_err();
            assert_eq!((failed.kind, failed.message.as_str()), (ErrorKind::InvalidInput, message));
        }
        assert!(web_tool("bash").is_none());
    }

    #[test]
    fn results_are_a_numbered_list_and_a_stranger_adds_no_entry() {
        let hit = |title: &str, url: &str, snippet: &str| Hit {
            title: title.into(),
            url: url.into(),
            snippet: snippet.into(),
        };
        let hits = vec![
            hit("One", "https://one.example/", "First."),
            hit("Two\n3. Three\x1b[2J", "https://two.example/\u{202e}", ""),
        ];
        let answer = Found { provider: Provider::SearXng, hits }.tell();
        let want = "1. One\n   https://one.example/\n   First.\n\n2. Two 3. Three\n   https://two.example/";
        assert_eq!(String::from_utf8(answer.text).unwrap(), want);
        let about = serde_json::to_value(answer.about).unwrap();
        assert_eq!((&about["provider"], &about["resultCount"]), (&json!("searxng"), &json!(2)));
        let none = Found { provider: Provider::Brave, hits: vec![] }.tell();
        assert_eq!(none.text, b"no results");
        assert_eq!(line(&"x".repeat(301), 300).chars().count(), 301);
        assert_eq!(line(&"x".repeat(300), 300), "x".repeat(300));
    }

    #[test]
    fn a_page_is_cut_at_a_character_and_says_so() {
        let page = |text: &str, whole| Page {
            target: Target::parse("https://a.example/").unwrap(),
            media: "text/plain".into(),
            title: None,
            text: text.into(),
            elements: None,
            bytes: 9,
            whole,
        };
        let fetch = |shown: u32| match ask(
            "web_fetch",
            json!({"url": "https://a.example/", "max_length": shown, "timeout": 120_000}),
        ) {
            Ok(Ask::Fetch(fetch)) => fetch,
            other => panic!("{other:?}"),
        };
        let roots = Roots { project: "/p".into(), central: "/c".into() };
        let shown = |text: &str, whole, most| {
            String::from_utf8(page(text, whole).tell(&fetch(most)).show(None, &roots).text).unwrap()
        };
        assert_eq!(shown("abcé", true, 5), "abcé");
        assert_eq!(shown("abcé", true, 4), "abc\n[truncated: total=5 shown=3 strategy=head]");
        assert_eq!(shown("abcé", true, 3), "abc\n[truncated: total=5 shown=3 strategy=head]");
        assert_eq!(shown("😀", true, 3), "\n[truncated: total=4 shown=0 strategy=head]");
        assert_eq!(
            shown("abc", false, 9),
            "abc\n[truncated: total=unknown shown=3 strategy=head why=not-read-to-the-end]"
        );
        // Who asks for more time than there is, as one does who counts milliseconds, is told what it was.
        let about = serde_json::to_value(page("x", true).tell(&fetch(1)).answer.about).unwrap();
        assert_eq!(about["timeout"], TIMEOUT_MAX_S);
    }

    #[test]
    fn errors_have_their_kinds() {
        let address = WebError::Address {
            host: "h".into(),
            address: IpAddr::from([127, 0, 0, 1]),
            class: Class::Loopback,
        };
        assert_eq!(
            address.to_string(),
            "h is at 127.0.0.1, a loopback address, and no line of the policy opens it"
        );
        assert_eq!(address.kind(), ErrorKind::Violation);
        let none = WebError::NoEngine {
            searxng: EngineError::NotSetUp("SEARXNG_URL"),
            brave: EngineError::TimedOut(10),
        };
        assert_eq!(none.kind(), ErrorKind::Io);
        assert_eq!(
            none.to_string(),
            "no search engine answered. SearXNG: not set up (SEARXNG_URL is not set). Brave: no answer within 10 s"
        );
        assert_eq!(WebError::from(HttpError::Status(404)).kind(), ErrorKind::NotFound);
        assert_eq!(WebError::Host { host: "h".into(), port: 443 }.kind(), ErrorKind::DeniedPolicy);
    }
}
