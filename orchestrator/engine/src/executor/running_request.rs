//! One request in progress: its events, and what steers it.

use crate::executor::shared_requests::{CREDIT, RequestEvent, RequestSlot, SharedRequests};
use crate::pending::ApprovalAnswer;
use broker_protocol::{CallId, Challenge, Grant, Lease, Signal, ToBroker, limit};
use std::collections::BTreeSet;
use std::rc::Rc;
use tokio::sync::OwnedSemaphorePermit;

/// A request in progress. Dropping it before its end cancels it.
pub struct RunningRequest {
    pub(super) control: RequestControl,
    /// Bytes of consumed output that are not credited yet.
    pub(super) uncredited: u32,
    pub(super) ended: bool,
    /// Its permit among the requests in progress.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

/// Which of the paths leased during a command were the command's.
#[derive(Clone, Copy)]
pub enum HadPaths {
    /// All: it was cancelled, perhaps because one of its leases ended.
    All,
    /// Only those still leased: it was not cancelled, as it would have been when a lease of its own ended.
    NotOver,
    /// None: it runs in the background, where no path is leased.
    None,
}

impl RunningRequest {
    /// The number by which the executor knows it.
    pub fn number(&self) -> CallId {
        self.control.call
    }

    /// The paths and hosts leased to it so far.
    pub fn leased(&self, paths: HadPaths) -> Vec<String> {
        let leased = self.control.slot.leased.borrow();
        let had = |(lease, over): &&(Lease, bool)| match (lease.opens.host(), paths) {
            (Some(_), _) => true,
            (None, HadPaths::All) => true,
            (None, HadPaths::NotOver) => !over || lease.alone,
            (None, HadPaths::None) => false,
        };
        let had: BTreeSet<_> = leased
            .values()
            .filter(had)
            .map(|(lease, _)| lease.opens.to_string())
            .collect();
        had.into_iter().collect()
    }

    /// A handle that steers it while somebody else follows its events.
    pub fn control(&self) -> RequestControl {
        self.control.clone()
    }

    /// The next event. [`RequestEvent::Ended`] is the last. Cancel-safe.
    pub async fn next(&mut self) -> RequestEvent {
        loop {
            let next = self.control.slot.events.borrow_mut().pop_front();
            if let Some(event) = next {
                self.ended = matches!(event, RequestEvent::Ended(_));
                if self.ended {
                    self.place = None;
                }
                return event;
            }
            self.control.slot.arrived.notified().await;
        }
    }

    /// Reports that `bytes` of output were consumed, so that the executor may send as many again.
    pub fn taken(&mut self, bytes: usize) {
        self.uncredited = self
            .uncredited
            .saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let slot = &self.control.slot;
        if self.uncredited < CREDIT || slot.ended.get() {
            return;
        }
        slot.window
            .set(slot.window.get().saturating_add(self.uncredited));
        self.control.send(|call| ToBroker::Credit {
            call,
            bytes: self.uncredited,
        });
        self.uncredited = 0;
    }

    /// Requests its end, which arrives as its outcome.
    pub fn cancel(&self) {
        self.control.cancel();
    }

    /// Requests the file that it would change; answered by [`RequestEvent::Seen`].
    pub(crate) fn request_preview(&self) {
        self.control.send(|call| ToBroker::Look { call });
    }

    pub fn answer(&self, challenge: &Challenge, approval: ApprovalAnswer) {
        let Challenge { digest, nonce, .. } = *challenge;
        self.control.send(|call| match approval {
            ApprovalAnswer::Yes(extent) => ToBroker::Grant(Grant {
                call,
                digest,
                nonce,
                extent,
            }),
            ApprovalAnswer::No => ToBroker::Refuse { call },
        });
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        if !self.ended {
            self.control.cancel();
        }
    }
}

/// Steers a request. Has no effect after its end.
#[derive(Clone)]
pub struct RequestControl {
    pub(super) link: Rc<SharedRequests>,
    pub(super) call: CallId,
    pub(super) slot: Rc<RequestSlot>,
}

impl RequestControl {
    /// Requests its end, once.
    pub fn cancel(&self) {
        if !self.slot.cancelled.replace(true) {
            self.send(|call| ToBroker::Cancel { call });
        }
    }

    /// Requests its end at once, if it was cancelled before.
    pub(crate) fn cancel_again(&self) {
        if self.slot.cancelled.get() {
            self.send(|call| ToBroker::Cancel { call });
        }
    }

    /// Sends a signal to its main process.
    pub fn signal(&self, signal: Signal) {
        self.send(|call| ToBroker::Signal { call, signal });
    }

    /// Reports the new size of the window.
    pub fn resize(&self, rows: u16, columns: u16) {
        self.send(|call| ToBroker::Resize {
            call,
            rows,
            columns,
        });
    }

    /// Ends its standard input.
    pub fn end_input(&self) {
        self.send(|call| ToBroker::InputEnd { call });
    }

    /// Feeds its standard input as fast as it accepts it. Only one task at a time may feed a call.
    pub async fn feed(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.slot.ended.get() {
            let room = (self.slot.input.get() as usize)
                .min(limit::CHUNK)
                .min(bytes.len());
            if room == 0 {
                self.slot.input_room.notified().await;
                continue;
            }
            let (now, later) = bytes.split_at(room);
            self.slot.input.set(self.slot.input.get() - room as u32);
            self.send(|call| ToBroker::Input {
                call,
                bytes: now.to_vec(),
            });
            bytes = later;
        }
    }

    /// A failure to send is not reported here: if the connection has ended, the request's outcome reports it.
    fn send(&self, message: impl FnOnce(CallId) -> ToBroker) {
        if !self.slot.ended.get() {
            let _ = self.link.send(&message(self.call));
        }
    }
}
