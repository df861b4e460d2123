//! The session of the client's project. The program decides which that is, since it has the user's options.
#![expect(
    deprecated,
    reason = "a later version of the protocol has no roots; clients of today's have"
)]

use crate::log::LogLevel;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::Session;
use orchestrator_text::escape;
use orchestrator_text::known::redactor;
use rmcp::model::LoggingLevel;
use rmcp::{Peer, RoleServer};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

/// How long a client may take to list its roots.
const ROOTS: Duration = Duration::from_secs(10);
/// Maximum number of roots to look at.
const ROOTS_MAX: usize = 64;
/// How much of an unused root to quote.
const URI_COLUMNS: usize = 200;

/// A client's request for a session.
pub struct SessionRequest {
    /// The directories that the client names as its roots, in its order; empty if it names none.
    pub roots: Vec<PathBuf>,
    /// Receives the session, or the reason why there is none.
    pub reply: oneshot::Sender<Result<Session, Failed>>,
}

/// Sends requests for sessions.
pub(crate) type SessionRequests = UnboundedSender<SessionRequest>;

/// Opens the sessions of one client, for the project that it works on.
pub trait SessionOpener {
    /// The purpose of a session: with an equal one, the session stays.
    type Order: PartialEq;
    /// Everything that ends with a session.
    type Companion;

    /// The order of a client with these roots.
    ///
    /// # Errors
    /// If no session can be for them.
    fn order(&self, roots: Vec<PathBuf>) -> Result<Self::Order, Failed>;

    fn open(
        &mut self,
        order: &Self::Order,
    ) -> impl Future<Output = Result<(Session, Self::Companion), Failed>>;

    fn close(&self, companion: Self::Companion) -> impl Future<Output = ()>;
}

/// Answers a client's requests until it is gone. A session for another project replaces the client's, which ends with its last call.
pub async fn open_sessions(
    mut opener: impl SessionOpener,
    mut requests: UnboundedReceiver<SessionRequest>,
) {
    let mut current = None;
    while let Some(SessionRequest { roots, reply }) = requests.recv().await {
        let session = answer(&mut opener, roots, &mut current).await;
        // The client may be gone.
        let _ = reply.send(session.map_err(|failed| Failed {
            message: redactor().text(&failed.message).into_owned(),
            ..failed
        }));
    }
    if let Some((_, _, companion)) = current {
        opener.close(companion).await;
    }
}

async fn answer<O: SessionOpener>(
    opener: &mut O,
    roots: Vec<PathBuf>,
    current: &mut Option<(O::Order, Session, O::Companion)>,
) -> Result<Session, Failed> {
    let order = opener.order(roots)?;
    if let Some((of, session, _)) = current
        && *of == order
    {
        return Ok(session.clone());
    }
    let (session, companion) = opener.open(&order).await?;
    if let Some((_, _, before)) = current.replace((order, session.clone(), companion)) {
        opener.close(before).await;
    }
    Ok(session)
}

/// The session of the client's project.
pub(crate) struct Projects {
    sessions: SessionRequests,
    current: Mutex<Option<Session>>,
}

impl Projects {
    pub(crate) fn new(sessions: SessionRequests) -> Self {
        Self {
            sessions,
            current: Mutex::default(),
        }
    }

    /// The session, opened for the first call.
    pub(crate) async fn session(
        &self,
        peer: &Peer<RoleServer>,
        log: &LogLevel,
    ) -> Result<Session, Failed> {
        let mut current = self.current.lock().await;
        if let Some(session) = &*current {
            return Ok(session.clone());
        }
        let (reply, answer) = oneshot::channel();
        let request = SessionRequest {
            roots: roots(peer, log).await,
            reply,
        };
        let gone = || Failed {
            kind: ErrorKind::ExecutorLost,
            message: "lazaret is ending".into(),
        };
        self.sessions.send(request).map_err(|_| gone())?;
        let session = answer.await.map_err(|_| gone())??;
        Ok(current.insert(session).clone())
    }

    /// Called when the client's roots have changed: the next call asks for them again. Calls in progress continue in their session.
    pub(crate) async fn forget(&self) {
        *self.current.lock().await = None;
    }
}

async fn roots(peer: &Peer<RoleServer>, log: &LogLevel) -> Vec<PathBuf> {
    if peer
        .peer_info()
        .is_none_or(|client| client.capabilities.roots.is_none())
    {
        return Vec::new();
    }
    // A client that does not answer has named no roots.
    let Ok(Ok(listed)) = timeout(ROOTS, peer.list_roots()).await else {
        return Vec::new();
    };
    let mut roots = Vec::new();
    for root in listed.roots.iter().take(ROOTS_MAX) {
        match path(&root.uri) {
            Some(path) => roots.push(path),
            None => {
                let uri = escape::fitted(&root.uri, URI_COLUMNS);
                let note = format!(
                    "the root {uri} is not used: it is no directory of this machine (file:///...)"
                );
                log.send(peer, LoggingLevel::Warning, json!(note)).await;
            }
        }
    }
    roots
}

/// The local directory of a root.
fn path(uri: &str) -> Option<PathBuf> {
    url::Url::parse(uri)
        .ok()
        .filter(|url| url.scheme() == "file")?
        .to_file_path()
        .ok()
}
