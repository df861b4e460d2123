//! Requests of the web tools: each needs a ticket of a broker, which has decided it. `lazaret` has no end of the line on which tickets
//! come, so one that was taken over reaches no address that was not decided, nor says anything to one that was.

use super::admit::AllowedHosts;
use broker_protocol::ticket::{TICKET_MAX, WebTicket};
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use orchestrator_http::ask::{
    By, NetworkFault, PACKED, PAGES_ACCEPTED, REDIRECTS_MAX, SearchEngine,
};
use orchestrator_http::user_agent;
use orchestrator_reach::target::Target;
use policies::WebPolicy;
use rustix::net::{RecvFlags, recv};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Maximum tickets that wait for their requests. Of more, the oldest is void.
pub(super) const HELD_MAX: usize = 1024;
/// How long a ticket is good: a request waits for others of `lazaret`, which take two minutes each.
const AGE: Duration = Duration::from_secs(600);

/// The headers in which a request for a page may say something: those that have one of a few values.
const FIXED: [(HeaderName, &[&str]); 2] = [
    (header::ACCEPT, &PAGES_ACCEPTED),
    (header::ACCEPT_ENCODING, &[PACKED]),
];

/// Tickets that have come, and those of redirects.
#[derive(Debug)]
pub(super) struct Tickets {
    line: AsyncFd<OwnedFd>,
    held: RefCell<VecDeque<HeldTicket>>,
}

#[derive(Debug)]
struct HeldTicket {
    ticket: WebTicket,
    until: Instant,
    /// Redirects that it may still be followed by.
    redirects: usize,
    /// The engines that have answered, by their places.
    engines: Vec<usize>,
}

/// A ticket for a page that was used, and may be followed by a redirect.
#[derive(Debug)]
pub(super) struct UsedTicket {
    page: Target,
    until: Instant,
    redirects: usize,
}

impl Tickets {
    /// Those that come on `line`. Needs a runtime.
    ///
    /// # Errors
    /// It is no socket.
    pub(super) fn new(line: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&line, true)?;
        Ok(Self {
            line: watch(line)?,
            held: RefCell::default(),
        })
    }

    /// Takes tickets as they come, so that brokers can always send further ones. It does not end.
    pub(super) async fn take(&self) {
        while let Ok(mut ready) = self.line.readable().await {
            if !self.take_sent() {
                break;
            }
            ready.clear_ready();
        }
        std::future::pending().await
    }

    /// Takes what was sent so far; false if no broker is left.
    fn take_sent(&self) -> bool {
        let mut message = [0; TICKET_MAX];
        loop {
            match recv(&self.line, &mut message[..], RecvFlags::empty()) {
                Ok((_, 0)) => return false,
                Ok((_, length)) => {
                    // What is no ticket permits nothing.
                    if let Some(ticket) = message
                        .get(..length)
                        .and_then(|message| WebTicket::decode(message).ok())
                    {
                        self.hold(HeldTicket {
                            ticket,
                            until: Instant::now() + AGE,
                            redirects: REDIRECTS_MAX,
                            engines: Vec::new(),
                        });
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    fn hold(&self, ticket: HeldTicket) {
        let mut held = self.held.borrow_mut();
        held.retain(|held| held.until > Instant::now());
        if held.len() >= HELD_MAX {
            held.pop_front();
        }
        held.push_back(ticket);
    }

    /// Uses the ticket for `page`.
    fn use_for_page(&self, page: Target) -> Option<UsedTicket> {
        let ticket = WebTicket::fetch(page.url().as_str());
        let mut held = self.held.borrow_mut();
        let at = held
            .iter()
            .position(|held| held.ticket == ticket && held.until > Instant::now())?;
        held.remove(at).map(|held| UsedTicket {
            page,
            until: held.until,
            redirects: held.redirects,
        })
    }

    /// Uses the ticket for a search at the engine with this place: each engine answers a search once.
    fn use_for_search(&self, query: &str, engine: usize) -> Option<()> {
        let ticket = WebTicket::search(query);
        let mut held = self.held.borrow_mut();
        let is_for = |held: &&mut HeldTicket| {
            held.ticket == ticket && held.until > Instant::now() && !held.engines.contains(&engine)
        };
        let found = held.iter_mut().find(is_for)?;
        found.engines.push(engine);
        Some(())
    }

    /// Lets `lazaret` follow a redirect of a page, once: to the same host, or to one that the policy names.
    pub(super) fn follow<B>(&self, used: &UsedTicket, policy: &WebPolicy, answer: &Response<B>) {
        let location = answer.headers().get(header::LOCATION);
        let (Some(location), true, 1..) =
            (location, answer.status().is_redirection(), used.redirects)
        else {
            return;
        };
        let location = String::from_utf8_lossy(location.as_bytes());
        let Ok(next) = used.page.join(&location) else {
            return;
        };
        if next.host() == used.page.host() || policy.names(next.host(), next.port()) {
            self.hold(HeldTicket {
                ticket: WebTicket::fetch(next.url().as_str()),
                until: used.until,
                redirects: used.redirects - 1,
                engines: Vec::new(),
            });
        }
    }
}

/// Deprecated for types whose descriptor may change or close while watched. An `OwnedFd` never does; the successor requires that as
/// an `unsafe` promise, because a trait cannot check it.
#[allow(deprecated)]
fn watch(line: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(line, Interest::READABLE)
}

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
        By::Settings | By::User | By::Stranger | By::ServerOf(_) => Ok(Permitted::Other),
    }
}

/// The address that a request gets, if it only gets.
fn whole(target: &Target, request: &Request<Incoming>) -> Result<Target, NetworkFault> {
    if request.method() != Method::GET || !request.body().is_end_stream() {
        return Err(NetworkFault::NoTicket);
    }
    let path = request.uri().path_and_query();
    let path = path.map_or("/", |path| path.as_str());
    let url = format!("{}{path}", target.url().origin().ascii_serialization());
    let whole = Target::parse(&url).map_err(|_| NetworkFault::NoTicket)?;
    // A path that becomes another one when it is parsed would be another one for the host too.
    let is_same = &whole.url()[url::Position::BeforePath..] == path;
    is_same.then_some(whole).ok_or(NetworkFault::NoTicket)
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
        let mut found = engines.filter_map(|(place, engine)| Some((place, words(engine, page)?)));
        found.next()
    }
}

/// The words of a search at `engine`, if `page` is one and says nothing else.
fn words(engine: &SearchEngine, page: &Target) -> Option<String> {
    let mut bare = page.url().clone();
    bare.set_query(None);
    if bare.as_str() != engine.url {
        return None;
    }
    let mut query = None;
    let mut fixed = Vec::new();
    for (name, value) in page.url().query_pairs() {
        match &*name {
            "q" if query.is_none() => query = Some(value.into_owned()),
            "count" if value.parse::<u8>().is_ok() => {}
            other => fixed.push((other.to_owned(), value.into_owned())),
        }
    }
    query.filter(|_| fixed == engine.fixed)
}
