//! The key exchanges of connections that the gateway carries now, each with the host that it has connected to.

use crate::exchange::{ExchangeReader, SeenExchange};
use broker_protocol::CallId;
use std::cell::RefCell;
use std::rc::Rc;

/// Exchanges of live connections. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeenExchanges(Rc<RefCell<LiveConnections>>);

#[derive(Debug, Default)]
struct LiveConnections {
    last: u64,
    seen: Vec<LiveExchange>,
}

#[derive(Debug)]
struct LiveExchange {
    connection: u64,
    place: SeenPlace,
    exchange: SeenExchange,
}

/// The host of a connection, and the call whose program uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeenPlace {
    pub host: String,
    pub port: u16,
    pub call: CallId,
}

/// Reads what the host of one connection sends. Its exchange counts until this is dropped.
#[derive(Debug)]
pub struct WatchedConnection {
    all: SeenExchanges,
    connection: u64,
    place: SeenPlace,
    reader: ExchangeReader,
}

impl SeenExchanges {
    /// Begins to watch a connection of this call to a checked address of `host`.
    pub(crate) fn watch(&self, host: &str, port: u16, call: CallId) -> WatchedConnection {
        let mut live = self.0.borrow_mut();
        live.last += 1;
        WatchedConnection {
            all: self.clone(),
            connection: live.last,
            place: SeenPlace {
                host: host.to_owned(),
                port,
                call,
            },
            reader: ExchangeReader::new(),
        }
    }

    /// The live connection in which a host has sent this exchange.
    pub(super) fn find(&self, exchange: &SeenExchange) -> Option<(u64, SeenPlace)> {
        let live = self.0.borrow();
        let found = live.seen.iter().find(|one| one.exchange == *exchange)?;
        Some((found.connection, found.place.clone()))
    }

    pub(super) fn is_live(&self, connection: u64) -> bool {
        let live = self.0.borrow();
        live.seen.iter().any(|one| one.connection == connection)
    }
}

impl WatchedConnection {
    /// Takes the next bytes of the host, before the program has them.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(exchange) = self.reader.push(bytes) else {
            return;
        };
        self.all.0.borrow_mut().seen.push(LiveExchange {
            connection: self.connection,
            place: self.place.clone(),
            exchange,
        });
    }
}

impl Drop for WatchedConnection {
    fn drop(&mut self) {
        let mut live = self.all.0.borrow_mut();
        live.seen.retain(|one| one.connection != self.connection);
    }
}
