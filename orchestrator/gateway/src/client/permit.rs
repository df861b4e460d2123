//! What a `lazaret` that was taken over may still send: of the web tools, requests with a ticket, which say nothing of their own; to
//! providers and collectors, the requests of their interfaces.

use super::admit::AllowedHosts;
use super::tickets::{Tickets, UsedTicket};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use orchestrator_http::ask::{By, HostOrigin, NamedRequest, NetworkFault, PACKED, PAGES_ACCEPTED};
use orchestrator_http::user_agent;
use orchestrator_reach::target::Target;

/// The headers in which a request for a page may say something: those that have one of a few values.
const FIXED: [(HeaderName, &[&str]); 2] = [
    (header::ACCEPT, &PAGES_ACCEPTED),
    (header::ACCEPT_ENCODING, &[PACKED]),
];

/// What a request of the web tools is, by its ticket.
#[derive(Debug)]
pub(super) enum Permitted {
    Page(UsedTicket),
    Other,
}

/// Checks a request of `by` to the host of `target`, and removes from it what nobody has decided.
///
/// # Errors
/// If it needs a ticket and has none.
pub(super) fn permit(
    tickets: Option<&Tickets>,
    allowed: &AllowedHosts,
    by: &By,
    target: &Target,
    request: &mut Request<Incoming>,
) -> Result<Permitted, NetworkFault> {
    match by {
        By::Model(_) | By::ModelOfImage(_) => {
            let Some(tickets) = tickets else {
                return Ok(Permitted::Other);
            };
            let page = whole(target, request)?;
            tickets.take_sent();
            let used = tickets.use_for_page(page);
            let used = used.ok_or(NetworkFault::NoTicket)?;
            only_fixed(request.headers_mut());
            Ok(Permitted::Page(used))
        }
        By::Engine => {
            let page = whole(target, request)?;
            let (engine, query) = allowed.search(&page).ok_or(NetworkFault::NoTicket)?;
            let Some(tickets) = tickets else {
                return Ok(Permitted::Other);
            };
            tickets.take_sent();
            let used = tickets.use_for_search(&query, engine);
            used.ok_or(NetworkFault::NoTicket)?;
            Ok(Permitted::Other)
        }
        By::ProviderSettings => {
            check_body(target, request)?;
            allowed.check_request(named(target, request))?;
            Ok(Permitted::Other)
        }
        By::ServerSettings | By::RepositorySettings | By::ServerOf(_) => {
            check_body(target, request)?;
            Ok(Permitted::Other)
        }
    }
}

/// Refuses methods that no interface of ours has, and a body where it may not be read: the host would take it for the next request.
fn check_body(target: &Target, request: &Request<Incoming>) -> Result<(), NetworkFault> {
    let is_plain = [Method::GET, Method::DELETE].contains(request.method());
    let is_read = *request.method() == Method::POST;
    match is_read || is_plain && request.body().is_end_stream() {
        true => Ok(()),
        false => Err(NetworkFault::NotRequest(named(target, request))),
    }
}

fn named(target: &Target, request: &Request<Incoming>) -> NamedRequest {
    NamedRequest {
        origin: HostOrigin::of(target.url()),
        method: request.method().to_string(),
        path: path_of(request).to_owned(),
    }
}

/// The address that a request gets, if it only gets.
fn whole(target: &Target, request: &Request<Incoming>) -> Result<Target, NetworkFault> {
    if request.method() != Method::GET || !request.body().is_end_stream() {
        return Err(NetworkFault::NoTicket);
    }
    let path = path_of(request);
    let url = format!("{}{path}", target.url().origin().ascii_serialization());
    let whole = Target::parse(&url).map_err(|_| NetworkFault::NoTicket)?;
    // A path that becomes another one when it is parsed would be another one for the host too.
    let is_same = &whole.url()[url::Position::BeforePath..] == path;
    is_same.then_some(whole).ok_or(NetworkFault::NoTicket)
}

fn path_of(request: &Request<Incoming>) -> &str {
    let path = request.uri().path_and_query();
    path.map_or("/", |path| path.as_str())
}

fn only_fixed(headers: &mut HeaderMap) {
    let mut fixed = HeaderMap::new();
    for (name, values) in &FIXED {
        let sent = headers.get(name).and_then(|value| value.to_str().ok());
        let value = values.iter().find(|value| sent == Some(**value));
        fixed.extend(value.map(|value| (name.clone(), HeaderValue::from_static(value))));
    }
    fixed.insert(header::USER_AGENT, user_agent());
    *headers = fixed;
}

impl AllowedHosts {
    /// Checks a request to a provider or a collector: their hosts also fetch and remove models, and a query could say something.
    fn check_request(&self, request: NamedRequest) -> Result<(), NetworkFault> {
        match self {
            #[cfg(feature = "test-support")]
            Self::All => Ok(()),
            Self::Begun(begin) if begin.requests.contains(&request) => Ok(()),
            Self::Begun(_) => Err(NetworkFault::NotRequest(request)),
        }
    }

    /// The place of the engine whose search `page` is, and the words.
    fn search(&self, page: &Target) -> Option<(usize, String)> {
        let begin = match self {
            #[cfg(feature = "test-support")]
            Self::All => {
                let query = page.url().query_pairs().find(|(name, _)| name == "q");
                return query.map(|(_, query)| (0, query.into_owned()));
            }
            Self::Begun(begin) => begin,
        };
        let engines = begin.engines.iter().enumerate();
        let mut found =
            engines.filter_map(|(place, engine)| Some((place, engine.words(page.url())?)));
        found.next()
    }
}
