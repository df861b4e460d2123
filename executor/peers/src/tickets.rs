//! The line to the gateway of one `lazaret`: what the broker has permitted of the web, that gateway may fetch, and nothing else.
//!
//! `lazaret` makes the line before it confines itself, and has no end of it afterwards. Brokers of one spawner share this end; messages
//! keep their borders.

use broker_protocol::ticket::WebTicket;
use executor_sys::message;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use thiserror::Error;

/// This broker's end, if its client has a gateway that wants tickets.
#[derive(Clone, Debug, Default)]
pub struct TicketLine(Option<Rc<OwnedFd>>);

/// Why a permission has not reached the gateway.
#[derive(Debug, Error)]
pub enum TicketError {
    #[error("a ticket cannot be encoded: {0}")]
    Encode(#[from] broker_protocol::FrameError),
    /// The gateway has ended, or has not read earlier ones.
    #[error("`lazaret-gateway`, which makes web requests, takes no permission: {0}")]
    Line(#[from] io::Error),
}

impl TicketLine {
    pub fn new(line: OwnedFd) -> Self {
        Self(Some(Rc::new(line)))
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(|line| line.as_fd())
    }

    /// Lets the gateway make a web request. To be sent before the client hears that it may.
    ///
    /// # Errors
    /// If the gateway does not take it now.
    pub fn permit(&self, ticket: &WebTicket) -> Result<(), TicketError> {
        let Some(line) = &self.0 else {
            return Ok(());
        };
        message::send(line.as_fd(), &ticket.encode()?, &[])?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::ticket::TICKET_MAX;

    #[test]
    fn a_permission_arrives_and_a_gateway_that_reads_none_is_an_error() {
        let (ours, theirs) = message::pair().unwrap();
        let line = TicketLine::new(ours);
        let sent = WebTicket::fetch("https://a.example/");
        line.permit(&sent).unwrap();
        let mut message = [0; TICKET_MAX];
        let (length, _) = message::receive(theirs.as_fd(), &mut message).unwrap();
        let ticket = WebTicket::decode(&message[..length]).unwrap();
        assert_eq!(ticket, sent);
        let full = (0..100_000).find_map(|_| line.permit(&sent).err());
        assert!(matches!(full, Some(TicketError::Line(_))), "{full:?}");
        drop(theirs);
        assert!(line.permit(&sent).is_err());
        TicketLine::default().permit(&sent).unwrap();
    }
}
