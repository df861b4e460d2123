//! The cells that wait for an order, and how many more are to be made.

use crate::fault::lost;
use broker_protocol::Failed;
use executor_cell::CellHandle;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most cells in a row that may end before they are used: something here kills every one.
const GONE_MAX: u32 = 16;
/// Most cells kept ready between calls.
const SPARE_MAX: u8 = 4;
/// A call that follows another within this time is one of a row.
const AT_ONCE: Duration = Duration::from_millis(1);
/// How long after a call more cells are kept than the spare ones.
const LINGER: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct ReadyCells {
    /// The one that was used last is last: it may still be preparing for its next call.
    ready: VecDeque<CellHandle>,
    /// Requested from the warden, and not come yet.
    requested: usize,
    /// How many are kept ready while nothing runs.
    spare: usize,
    /// Whether the last call came at once after the one before it. Then the next will too, and finds a cell that was prepared
    /// while this one ran; what is made beside a single command would only slow it down.
    row: bool,
    /// When the last command ended.
    ended: Option<Instant>,
    /// How many in a row ended while they waited.
    gone: u32,
}

impl ReadyCells {
    /// None yet; at most [`SPARE_MAX`] will be kept.
    pub fn new(spare: u8) -> Self {
        let spare = spare.min(SPARE_MAX).into();
        Self { ready: VecDeque::new(), requested: 0, spare, row: false, ended: None, gone: 0 }
    }

    /// How many more are to be requested, so that as many calls as wait have one, and the spare ones are there if it is their
    /// time: when nothing runs, or in a row.
    pub fn missing(&self, waiting: usize, idle: bool) -> usize {
        let wanted = waiting + if idle || self.row { self.spare } else { 0 };
        wanted.saturating_sub(self.requested + self.ready.len())
    }

    /// A command begins whose call came at `came`.
    pub fn command_begins(&mut self, came: Instant) {
        self.row = self.ended.is_some_and(|end| came.duration_since(end) < AT_ONCE);
    }

    /// A command has ended.
    pub fn command_ended(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// When cells are given back that nobody needs, while nothing runs.
    pub fn deadline(&self) -> Option<Instant> {
        self.ended.filter(|_| self.ready.len() > self.spare).map(|end| end + LINGER)
    }

    /// Gives back cells that nobody needs any more.
    pub fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|late| late <= now) {
            self.ready.truncate(self.spare);
        }
    }

    pub fn requested(&mut self) {
        self.requested += 1;
    }

    /// One that was requested will not come.
    pub fn lost_one(&mut self) {
        self.requested = self.requested.saturating_sub(1);
    }

    /// One has come that was requested.
    pub fn add(&mut self, cell: CellHandle) {
        self.requested = self.requested.saturating_sub(1);
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

    /// Takes back the cell of a command that is over. More are kept than the spare ones while others run, and one more in a
    /// row.
    pub fn take_back(&mut self, cell: CellHandle, busy: bool) {
        self.ready.push_back(cell);
        let kept = self.spare + usize::from(self.row && self.spare > 0);
        self.ready.truncate(if busy { kept.max(SPARE_MAX.into()) } else { kept });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_sys::message;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// A cell, and its own end of its socket.
    fn cell() -> (CellHandle, OwnedFd) {
        let (socket, own) = message::pair().unwrap();
        (CellHandle { pidfd: socket.try_clone().unwrap(), socket }, own)
    }

    #[test]
    fn as_many_are_requested_as_calls_wait_for() {
        let mut cells = ReadyCells::new(1);
        assert_eq!((cells.missing(0, false), cells.missing(0, true), cells.missing(3, true)), (0, 1, 4));
        cells.requested();
        assert_eq!((cells.missing(0, true), cells.missing(3, false)), (0, 2));
        let (handle, _own) = cell();
        cells.add(handle);
        assert_eq!((cells.missing(0, true), cells.missing(3, false)), (0, 2));
        assert_eq!(ReadyCells::new(200).missing(0, true), usize::from(SPARE_MAX));
    }

    #[test]
    fn the_last_one_is_used_again_last_and_few_are_kept() {
        let mut cells = ReadyCells::new(1);
        let (handles, _own): (Vec<CellHandle>, Vec<OwnedFd>) = (0..6).map(|_| cell()).unzip();
        let first = handles[0].socket.as_raw_fd();
        handles.into_iter().for_each(|handle| cells.take_back(handle, true));
        assert_eq!(cells.missing(5, false), 1, "{SPARE_MAX} of six are there");
        assert_eq!(cells.take().unwrap().unwrap().socket.as_raw_fd(), first);
        let (handle, _own) = cell();
        cells.take_back(handle, false);
        assert_eq!(cells.missing(5, false), 4, "one is kept while nothing runs");
    }

    #[test]
    fn calls_in_a_row_have_two_in_turn_until_it_is_over() {
        let mut cells = ReadyCells::new(1);
        let (one, _own) = cell();
        let numbers = [one.socket.as_raw_fd()];
        cells.add(one);
        let mut used = cells.take().unwrap().unwrap();
        cells.command_begins(Instant::now());
        assert_eq!(cells.missing(0, false), 0, "the first call is none of a row");
        cells.command_ended();
        cells.take_back(used, false);
        used = cells.take().unwrap().unwrap();
        cells.command_begins(Instant::now());
        assert_eq!((used.socket.as_raw_fd(), cells.missing(0, false)), (numbers[0], 1));
        let (other, _own) = cell();
        cells.add(other);
        cells.command_ended();
        cells.take_back(used, false);
        assert_ne!(cells.take().unwrap().unwrap().socket.as_raw_fd(), numbers[0]);
        let (other, _own) = cell();
        cells.take_back(other, false);
        cells.tick(Instant::now());
        assert_eq!(cells.missing(2, false), 1, "both are kept, and the spare one");
        cells.tick(Instant::now() + LINGER);
        assert_eq!(cells.missing(2, false), 2);
        assert_eq!(cells.deadline(), None);
    }

    #[test]
    fn those_that_are_gone_are_passed_over_and_too_many_end_the_session() {
        let mut cells = ReadyCells::new(0);
        let (alive, _own) = cell();
        (0..GONE_MAX).for_each(|_| cells.add(cell().0));
        cells.add(alive);
        assert!(cells.take().unwrap().is_some());
        (0..=GONE_MAX).for_each(|_| cells.add(cell().0));
        assert!(cells.take().is_err());
    }
}
