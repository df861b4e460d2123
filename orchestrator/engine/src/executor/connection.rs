//! An open session: many calls at once over one socket.
//!
//! One task reads. Senders write directly; only what the socket does not accept waits for that task. Everything lives on one
//! thread, so the state is a plain [`RefCell`], never borrowed across an `await`.

use crate::executor::error::ExecutorError;
use crate::executor::running_request::{RequestControl, RunningRequest};
use crate::executor::shared_requests::{Connections, RequestSlot, SharedRequests, run, watch};
use crate::unreported::ConnectionFindings;
use broker_protocol::{
    CallId, ConnectionReport, Decoder, Denial, ErrorKind, Failed, Opened, Request, Roots,
    SessionGrant, Spill, ToBroker, Traced, Wants, content, limit,
};
use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// How often to check whether the executor has closed a session that ends.
const CLOSED_POLL: Duration = Duration::from_millis(5);

/// An open session with the executor.
pub struct ExecutorConnection {
    link: Rc<SharedRequests>,
    roots: Roots,
    opened: Opened,
    reader: JoinHandle<()>,
    /// Bounds the calls in progress, as the protocol does.
    places: Arc<Semaphore>,
}

impl ExecutorConnection {
    /// Takes over a non-blocking socket on which a session is open. `decoder` holds bytes received so far. Needs a local runtime.
    pub(crate) fn new(socket: UnixStream, decoder: Decoder, opened: Opened) -> io::Result<Self> {
        let read = watch(socket.try_clone()?, Interest::READABLE)?;
        let (state, dirty, drained) = (RefCell::default(), Notify::new(), Notify::new());
        let (leases, found) = (RefCell::default(), ConnectionFindings::default());
        let link = Rc::new(SharedRequests {
            write: socket,
            state,
            dirty,
            drained,
            leases,
            found,
            connections: RefCell::default(),
        });
        let reader = tokio::task::spawn_local(run(link.clone(), read, decoder));
        let roots = Roots {
            project: opened.project.clone(),
            central: opened.central.clone(),
        };
        let places = Arc::new(Semaphore::new(limit::CALLS));
        Ok(Self {
            link,
            roots,
            opened,
            reader,
            places,
        })
    }

    /// What the executor reported of the session.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Calls `hear` with each report of a cell's connection, beginning with those that have come already.
    pub(crate) fn hear_connections(&self, hear: impl Fn(&ConnectionReport) + 'static) {
        let mut connections = self.link.connections.borrow_mut();
        if let Connections::Unheard(reports) = &*connections {
            reports.iter().for_each(&hear);
        }
        *connections = Connections::Heard(Rc::new(hear));
    }

    /// What was found in the project and nobody has taken yet.
    pub(crate) fn found(&self) -> ConnectionFindings {
        self.link.found.clone()
    }

    /// The grants that last for the session, after revoking one of them if given.
    ///
    /// # Errors
    /// If the executor is gone.
    pub(crate) async fn standing_grants(
        &self,
        revoke: Option<u64>,
    ) -> Result<Vec<SessionGrant>, Failed> {
        let (sender, grants) = oneshot::channel();
        let message = revoke.map_or(ToBroker::Grants, |grant| ToBroker::Revoke { grant });
        self.link.send(&message)?;
        self.link.state.borrow_mut().grant_lists.push_back(sender);
        grants.await.map_err(|_| ExecutorError::Lost.into())
    }

    /// Which of these failed calls the cell denied.
    ///
    /// # Errors
    /// If the executor is gone.
    pub async fn explain(&self, traced: Vec<Traced>) -> Result<Vec<Option<Denial>>, Failed> {
        let (sender, explained) = oneshot::channel();
        let count = traced.len();
        self.link.send(&ToBroker::Explain(traced))?;
        self.link
            .state
            .borrow_mut()
            .explanations
            .push_back((count, sender));
        explained.await.map_err(|_| ExecutorError::Lost.into())
    }

    /// Whether calls can still be made.
    pub fn is_alive(&self) -> bool {
        self.link.state.borrow().end.is_none()
    }
}

impl Drop for ExecutorConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl ExecutorConnection {
    /// Says that nothing more comes, which ends the session, and waits until the executor has closed its side.
    pub(crate) async fn close(&self) {
        // One that is closed already has nothing to be told.
        let _ = self.link.write.shutdown(Shutdown::Write);
        while self.is_alive() {
            sleep(CLOSED_POLL).await;
        }
    }

    /// Where the two zones lie.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Starts a request with `wants` beyond what the session has. Waits while the protocol's limit of requests or the backlog is reached.
    ///
    /// # Errors
    /// If the executor is gone.
    pub async fn start(
        &self,
        mut request: Request,
        wants: Wants,
    ) -> Result<RunningRequest, Failed> {
        let pieces = content::split(&mut request).map_err(|error| Failed {
            kind: ErrorKind::InvalidInput,
            message: error.to_string(),
        })?;
        // The semaphore is never closed, so this succeeds in the end.
        let place = self.places.clone().acquire_owned().await.ok();
        self.link.room().await;
        let slot = Rc::new(RequestSlot::default());
        let call = self.link.enter(slot.clone());
        let control = RequestControl {
            link: self.link.clone(),
            call,
            slot,
        };
        control.slot.hear_leases(call, &self.link.leases.borrow());
        let begin = match wants.is_empty() {
            true => ToBroker::Call { call, request },
            false => ToBroker::WantingCall {
                call,
                request,
                wants,
            },
        };
        // Without a pause: the broker takes the pieces of one call at a time.
        let pieces = pieces
            .into_iter()
            .map(|bytes| ToBroker::Content { call, bytes });
        let sent = pieces
            .chain([begin])
            .try_for_each(|message| self.link.send(&message));
        if let Err(failed) = sent {
            self.link.state.borrow_mut().calls.remove(&call);
            return Err(failed);
        }
        Ok(RunningRequest {
            control,
            uncredited: 0,
            ended: false,
            place,
        })
    }

    /// Lets the executor save text that the effect of `call` produced; `None` if it was not saved, such as an empty text.
    pub async fn save_output(&self, call: CallId, text: &[u8]) -> Option<Spill> {
        let mut pieces = text.chunks(limit::CHUNK).peekable();
        pieces.peek()?;
        while let Some(piece) = pieces.next() {
            self.link.room().await;
            let last = pieces.peek().is_none();
            self.link
                .send(&ToBroker::Keep {
                    call,
                    bytes: piece.to_vec(),
                    last,
                })
                .ok()?;
        }
        let (sender, saved) = oneshot::channel();
        self.link.state.borrow_mut().saves.insert(call, sender);
        saved.await.ok()?
    }
}
