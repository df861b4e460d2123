//! The line on which brokers tell this process's gateway what they have permitted of the web.
//!
//! Both ends go to these programs before this process confines itself, and none stays here: who takes this process over when it hears a
//! model can permit itself nothing.

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

/// Both ends, until they are given away.
#[derive(Debug)]
pub struct TicketPair(RefCell<PairState>);

#[derive(Debug)]
enum PairState {
    /// This command has no network, or its executor is somebody else's.
    Unsupported,
    Unmade,
    Made {
        brokers: OwnedFd,
        gateway: OwnedFd,
    },
    GivenAway,
}

impl TicketPair {
    /// For a command that may have a network, with an executor that is started here.
    pub(crate) fn unmade() -> Self {
        Self(RefCell::new(PairState::Unmade))
    }

    /// For commands that have no network, or another executor.
    pub(crate) fn unsupported() -> Self {
        Self(RefCell::new(PairState::Unsupported))
    }

    /// The end for an executor that is started; `None` if it has none.
    ///
    /// # Errors
    /// The kernel's, or the ends were given away.
    pub(crate) fn of_brokers(&self) -> io::Result<Option<OwnedFd>> {
        self.make()?;
        match &*self.0.borrow() {
            PairState::Unsupported => Ok(None),
            PairState::Made { brokers, .. } => brokers.try_clone().map(Some),
            PairState::Unmade | PairState::GivenAway => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The end for the gateway; `None` if web tools need no tickets. No end stays here.
    ///
    /// # Errors
    /// As for [`TicketPair::of_brokers`].
    pub(crate) fn give_away(&self) -> io::Result<Option<OwnedFd>> {
        self.make()?;
        if matches!(&*self.0.borrow(), PairState::Unsupported) {
            return Ok(None);
        }
        match self.0.replace(PairState::GivenAway) {
            PairState::Made { gateway, .. } => Ok(Some(gateway)),
            PairState::Unsupported | PairState::Unmade | PairState::GivenAway => {
                Err(io::ErrorKind::NotConnected.into())
            }
        }
    }

    fn make(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if matches!(*state, PairState::Unmade) {
            let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
            let (brokers, gateway) = socketpair(family, SockType::SeqPacket, None, flags)?;
            *state = PairState::Made { brokers, gateway };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{MsgFlags, recv, send};
    use std::os::fd::AsRawFd;

    #[test]
    fn both_ends_are_given_away_once() {
        let pair = TicketPair::unmade();
        let brokers = pair.of_brokers().unwrap().unwrap();
        let gateway = pair.give_away().unwrap().unwrap();
        assert!(pair.of_brokers().is_err() && pair.give_away().is_err());
        send(brokers.as_raw_fd(), b"x", MsgFlags::MSG_NOSIGNAL).unwrap();
        let mut message = [0; 8];
        let receive = |message: &mut [u8]| recv(gateway.as_raw_fd(), message, MsgFlags::empty());
        assert_eq!(receive(&mut message), Ok(1));
        drop(brokers);
        assert_eq!(receive(&mut message), Ok(0), "no other end is left");
        let none = TicketPair::unsupported();
        assert!(none.of_brokers().unwrap().is_none() && none.give_away().unwrap().is_none());
    }
}
