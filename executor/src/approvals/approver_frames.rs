//! The frames of approvers, and those to them.

use super::{ApprovalEvent, Approvals};
use crate::poll::{Token, Waited};
use broker_protocol::{CallId, Channel, FromApprover, Request, ToApprover, content};
use executor_peers::approvers::Approvers;

impl Approvals {
    /// Adds every descriptor that the approvers wait for.
    pub(crate) fn wait_for<'s>(&'s self, waited: &mut Waited<'s>) {
        if let Some(approvers) = &self.approvers {
            waited.add_input(Token::Approvers, approvers.fd());
            approvers
                .fds()
                .for_each(|(number, fd, flags)| waited.add(Token::Approver(number), fd, flags));
        }
    }

    /// Accepts new connections of approvers.
    pub(crate) fn admit(&mut self) {
        self.approvers.iter_mut().for_each(Approvers::admit);
    }

    /// Writes as much as the approvers' sockets accept now.
    pub(crate) fn flush(&mut self) {
        self.approvers.iter_mut().for_each(Approvers::flush);
    }

    /// Handles the frames that an approver has sent.
    pub(crate) fn receive(&mut self, number: u64) -> Vec<ApprovalEvent> {
        let frames = self
            .approvers
            .as_mut()
            .map(|approvers| approvers.receive(number))
            .unwrap_or_default();
        frames
            .into_iter()
            .filter_map(|frame| self.take(number, frame))
            .collect()
    }

    /// Lists every frame of an approver, and what handles it.
    fn take(&mut self, number: u64, frame: FromApprover) -> Option<ApprovalEvent> {
        let taken = match frame {
            FromApprover::Look { call } => {
                let begun = self
                    .approvers
                    .as_mut()
                    .is_some_and(|all| all.begin_preview(number, call));
                return begun.then_some(ApprovalEvent::Preview {
                    approver: number,
                    call,
                });
            }
            FromApprover::Grant(grant) => self.take_grant(&grant, Channel::Separate),
            FromApprover::Refuse { call, nonce } => {
                self.take_refusal(call, nonce, Channel::Separate)
            }
            FromApprover::Hello(_) => {
                let open: Vec<_> = self
                    .questions
                    .iter()
                    .map(|(call, open)| open.message(*call))
                    .collect();
                open.iter().for_each(|message| self.send(number, message));
                return None;
            }
            FromApprover::Grants => return self.send_grants(number, None),
            FromApprover::Revoke { grant } => return self.send_grants(number, Some(grant)),
        };
        taken
            .map_err(|not| self.send(number, &ToApprover::Ungranted(not)))
            .ok()
    }

    fn send_grants(&mut self, number: u64, revoked: Option<u64>) -> Option<ApprovalEvent> {
        let standing = self.list(revoked);
        self.send(number, &ToApprover::Grants(standing));
        None
    }

    /// Sends an approver a whole request; content that does not fit in a frame goes before it.
    pub(crate) fn send_request(&mut self, number: u64, call: CallId, request: &Request) {
        let mut request = request.clone();
        // A request that waits has been checked.
        let pieces = content::split(&mut request).unwrap_or_default();
        for bytes in pieces {
            self.send(number, &ToApprover::Content { call, bytes });
        }
        self.send(number, &ToApprover::Request { call, request });
    }

    /// Forwards a piece of the file that a call would change. It is not parsed.
    pub(crate) fn preview_part(&mut self, number: u64, call: CallId, bytes: Vec<u8>) {
        self.send(number, &ToApprover::Before { call, bytes });
    }

    /// The preview of a call is complete.
    pub(crate) fn end_preview(&mut self, number: u64, call: CallId) {
        if let Some(approvers) = &mut self.approvers {
            approvers.end_preview(number, call);
        }
    }

    fn send(&mut self, number: u64, message: &ToApprover) {
        if let Some(approvers) = &mut self.approvers {
            approvers.send(number, message);
        }
    }
}
