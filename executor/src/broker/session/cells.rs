//! The places where commands run: those that wait for an order, and those on their way from the warden.

use super::super::command::CellHandle;
use super::lost;
use broker_protocol::Failed;
use std::collections::VecDeque;

/// Most places in a row that may end before they are used: something here kills every one.
const GONE_MAX: u32 = 16;
/// Most places kept ready between calls.
const SPARE_MAX: u8 = 4;

/// The places of a session in which nothing runs.
pub struct Cells {
    /// The one that was used last is first: it has the most in the processor's caches.
    ready: VecDeque<CellHandle>,
    /// Asked of the warden, and not come yet.
    asked: usize,
    /// How many are kept ready while nothing runs.
    spare: usize,
    /// How many in a row ended while they waited.
    gone: u32,
}

impl Cells {
    /// None yet; at most [`SPARE_MAX`] will be kept.
    pub fn new(spare: u8) -> Self {
        Self { ready: VecDeque::new(), asked: 0, spare: spare.min(SPARE_MAX).into(), gone: 0 }
    }

    /// How many more are to be asked for, so that as many calls as wait have one, and the spare ones are there if they are to
    /// be: while a command runs they are not, because what is made beside it slows it down.
    pub fn missing(&self, waiting: usize, spare: bool) -> usize {
        let wanted = waiting + if spare { self.spare } else { 0 };
        wanted.saturating_sub(self.asked + self.ready.len())
    }

    /// One was asked for.
    pub fn was_asked_for(&mut self) {
        self.asked += 1;
    }

    /// One has come.
    pub fn came(&mut self, cell: CellHandle) {
        self.asked = self.asked.saturating_sub(1);
        self.ready.push_back(cell);
    }

    /// One that waits for its order. What has been killed while it waited is passed over: no call has met it.
    pub fn take(&mut self) -> Result<Option<CellHandle>, Failed> {
        while let Some(cell) = self.ready.pop_front() {
            if !cell.is_gone() {
                self.gone = 0;
                return Ok(Some(cell));
            }
            self.gone += 1;
            if self.gone > GONE_MAX {
                return Err(lost("one cell after the other ends before it is used"));
            }
        }
        Ok(None)
    }

    /// Takes back the place of a command that is over. While others run more are kept than the spare ones: they will follow
    /// each other.
    pub fn take_back(&mut self, place: CellHandle, busy: bool) {
        self.ready.push_front(place);
        self.ready.truncate(if busy { SPARE_MAX.into() } else { self.spare });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warden;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// A cell, and its own end of its socket.
    fn cell() -> (CellHandle, OwnedFd) {
        let (socket, own) = warden::pair().unwrap();
        // Nobody asks here which process it is.
        (CellHandle { pidfd: socket.try_clone().unwrap(), socket }, own)
    }

    #[test]
    fn as_many_are_asked_for_as_calls_wait_for() {
        let mut cells = Cells::new(1);
        assert_eq!((cells.missing(0, false), cells.missing(0, true), cells.missing(3, true)), (0, 1, 4));
        cells.was_asked_for();
        assert_eq!((cells.missing(0, true), cells.missing(3, false)), (0, 2));
        let (handle, _own) = cell();
        cells.came(handle);
        assert_eq!((cells.missing(0, true), cells.missing(3, false)), (0, 2));
        assert_eq!(Cells::new(200).missing(0, true), usize::from(SPARE_MAX));
    }

    #[test]
    fn the_last_one_is_used_again_first_and_few_are_kept() {
        let mut cells = Cells::new(1);
        let (handles, _own): (Vec<CellHandle>, Vec<OwnedFd>) = (0..6).map(|_| cell()).unzip();
        let numbers: Vec<_> = handles.iter().map(|handle| handle.socket.as_raw_fd()).collect();
        handles.into_iter().for_each(|handle| cells.take_back(handle, true));
        assert_eq!(cells.missing(5, false), 1, "{SPARE_MAX} of six are there");
        assert_eq!(cells.take().unwrap().unwrap().socket.as_raw_fd(), numbers[5]);
        let (handle, _own) = cell();
        cells.take_back(handle, false);
        assert_eq!(cells.missing(5, false), 4, "one is kept while nothing runs");
    }

    #[test]
    fn those_that_are_gone_are_passed_over_and_too_many_end_the_session() {
        let mut cells = Cells::new(0);
        let (alive, _own) = cell();
        (0..GONE_MAX).for_each(|_| cells.came(cell().0));
        cells.came(alive);
        assert!(cells.take().unwrap().is_some());
        (0..=GONE_MAX).for_each(|_| cells.came(cell().0));
        assert!(cells.take().is_err());
    }
}
