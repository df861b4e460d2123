//! Tickets for requests of the web tools, from the brokers, which have decided them. `lazaret` has no end of the line on which they come.

use broker_protocol::ticket::{TICKET_MAX, WebTicket};
use hyper::header;
use hyper::{Response, StatusCode};
use orchestrator_http::ask::REDIRECTS_MAX;
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
    pub(super) fn take_sent(&self) -> bool {
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
    pub(super) fn use_for_page(&self, page: Target) -> Option<UsedTicket> {
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
    pub(super) fn use_for_search(&self, query: &str, engine: usize) -> Option<()> {
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
        let (Some(location), true, 1..) = (location, is_followed(answer.status()), used.redirects)
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

/// Whether `lazaret` follows an answer with this status.
fn is_followed(status: StatusCode) -> bool {
    [301, 302, 303, 307, 308].contains(&status.as_u16())
}

/// Deprecated for types whose descriptor may change or close while watched. An `OwnedFd` never does; the successor requires that as
/// an `unsafe` promise, because a trait cannot check it.
#[allow(deprecated)]
fn watch(line: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(line, Interest::READABLE)
}
