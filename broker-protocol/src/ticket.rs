//! Tickets for web requests. The broker decides such a request and has no network; the client's gateway has it and decides nothing. A
//! ticket goes from the one to the other over a line of which the client has no end, so that a client which was taken over reaches
//! nothing that was not decided.

use crate::digest::Digest;
use crate::effect::Effect;
use crate::frame::{self, FrameError};
use serde::{Deserialize, Serialize};

/// Maximum bytes of a ticket on the line, each of which is one message.
pub const TICKET_MAX: usize = 64;

/// Permission for one web request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WebTicket {
    /// Of the URL, as the client has shown it to the broker: the gateway compares it with that of the request.
    Fetch(Digest),
    /// Of the words to search for.
    Search(Digest),
}

impl WebTicket {
    /// The ticket for an effect; `None` if that is no web request.
    pub fn of(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::WebFetch { url } => Some(Self::fetch(url)),
            Effect::WebSearch { query } => Some(Self::search(query)),
            Effect::Added { .. } => None,
        }
    }

    pub fn fetch(url: &str) -> Self {
        Self::Fetch(Digest::of(url.as_bytes()))
    }

    pub fn search(query: &str) -> Self {
        Self::Search(Digest::of(query.as_bytes()))
    }

    /// The message on the line.
    ///
    /// # Errors
    /// None of a ticket, which is short.
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        frame::encode_whole(self)
    }

    /// The ticket of a message.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(message: &[u8]) -> Result<Self, FrameError> {
        frame::decode_whole(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_fits_whatever_it_is_for() {
        let url = format!("https://a.example/{}", "x".repeat(1 << 20));
        for ticket in [WebTicket::fetch(&url), WebTicket::search(&url)] {
            let message = ticket.encode().unwrap();
            assert!(message.len() <= TICKET_MAX, "{}", message.len());
            assert_eq!(WebTicket::decode(&message).unwrap(), ticket);
            assert!(WebTicket::decode(&message[1..]).is_err());
        }
        assert_ne!(WebTicket::fetch("x"), WebTicket::search("x"));
        let other = Effect::Added {
            tool: "mcp__a__b".into(),
            risk: crate::scope::Risk::Low,
            input: "https://a.example/".into(),
        };
        assert_eq!(WebTicket::of(&other), None);
    }
}
