//! What the file worker returns, and links that its calls meet.

use super::Session;
use crate::authorise::{PreviewRequest, authorise_preview};
use crate::fault::{failed, unencoded};
use crate::files::{WorkerEvent, WorkerJob};
use broker_protocol::{CallId, ErrorKind, Failed, FromBroker, Usage, ZonePath};

/// Maximum number of targets to which the links of one call are followed. A glob follows two; links that change add more.
const PLACES_MAX: usize = 4;

impl Session {
    pub(super) fn collect_from_worker(&mut self) -> Result<(), Failed> {
        // Where a link leads is decided, and recorded.
        if !self.files.has_events() || !self.audit.try_lock()? {
            return Ok(());
        }
        for event in self.files.take_events() {
            match event {
                WorkerEvent::Part(WorkerJob::Call(id), bytes) => {
                    let part = FromBroker::Part { call: id, bytes };
                    self.calls
                        .entry(id)
                        .and_modify(|call| call.outbox.push(part));
                }
                WorkerEvent::Ended(WorkerJob::Call(id), outcome, usage) => {
                    if self.calls.get(&id).is_some_and(|call| call.awaits_check) {
                        self.record_created();
                    }
                    self.calls
                        .entry(id)
                        .and_modify(|call| call.end(*outcome, usage));
                }
                WorkerEvent::Elsewhere(WorkerJob::Call(id), real) => self.follow(id, real)?,
                WorkerEvent::Elsewhere(
                    WorkerJob::Preview {
                        approver,
                        call,
                        followed,
                    },
                    real,
                ) => match followed {
                    false => self.preview(approver, call, Some(real))?,
                    true => self.end_preview(approver, call),
                },
                WorkerEvent::Part(WorkerJob::Preview { approver, call, .. }, bytes) => {
                    self.show_part(approver, call, bytes);
                }
                WorkerEvent::Ended(WorkerJob::Preview { approver, call, .. }, ..) => {
                    self.end_preview(approver, call);
                }
            }
        }
        Ok(())
    }

    /// Reads, for the client, the file that a waiting call would change, if the policy allows that without a question.
    pub(crate) fn preview_for_client(&mut self, id: CallId) -> Result<(), Failed> {
        let looked = self
            .calls
            .get_mut(&id)
            .is_none_or(|call| std::mem::replace(&mut call.looked, true));
        if looked {
            self.end_preview(None, id);
            return Ok(());
        }
        self.preview(None, id, None)
    }

    fn show_part(&mut self, approver: Option<u64>, call: CallId, bytes: Vec<u8>) {
        match approver {
            Some(approver) => self.approvals.preview_part(approver, call, bytes),
            None => self.outbox.push(FromBroker::Before { call, bytes }),
        }
    }

    fn end_preview(&mut self, approver: Option<u64>, call: CallId) {
        match approver {
            Some(approver) => self.approvals.end_preview(approver, call),
            None => self.outbox.push(FromBroker::Seen { call }),
        }
    }

    /// Decides again on a call whose path leads to `real`: it starts again with that target, waits for an approval, or is refused.
    fn follow(&mut self, id: CallId, real: ZonePath) -> Result<(), Failed> {
        let Some(mut call) = self.calls.remove(&id) else {
            return Ok(());
        };
        let Some(request) = call.take_from_worker() else {
            return Err(Failed::internal(format!(
                "the call {id} is not the file worker's"
            )));
        };
        if call.real.len() == PLACES_MAX {
            let message = "the links on the path change while they are followed; try again";
            call.end(failed(ErrorKind::Io, message), Usage::default());
            self.calls.insert(id, call);
            return Ok(());
        }
        call.real.push(real);
        self.begin(call, request, None)
    }

    /// Reads the file that a waiting call would change, for an approver or, without one, for the client; at `target` if a link has led
    /// there since. Links that change meanwhile are not followed again.
    pub(super) fn preview(
        &mut self,
        approver: Option<u64>,
        id: CallId,
        target: Option<ZonePath>,
    ) -> Result<(), Failed> {
        let granted = match self.calls.get(&id).map(|call| (call, call.asked())) {
            Some((call, Some(request))) => {
                let wanted = PreviewRequest {
                    approver,
                    call: id,
                    request,
                    real: target.as_ref().map_or(&call.real, std::slice::from_ref),
                    followed: target.is_some(),
                };
                authorise_preview(wanted, &self.spec.policy, &mut self.audit)?
            }
            Some((_, None)) | None => None,
        };
        match granted {
            Some(preview) => self.files.preview(preview).map_err(unencoded),
            None => {
                self.end_preview(approver, id);
                Ok(())
            }
        }
    }
}
