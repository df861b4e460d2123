//! The places where commands run: those that wait for an order, and those on their way from the warden.

use super::super::command::CellHandle;
use super::lost;
use broker_protocol::Failed;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Most places in a row that may end before they are used: something here kills every one.
const GONE_MAX: u32 = 16;
/// Most places kept ready between calls.
const SPARE_MAX: u8 = 4;
/// A call that follows another within this time is one of a row.
const AT_ONCE: Duration = Duration::from_millis(1);
/// How long after a call more places are kept than the spare ones.
const LINGER: Duration = Duration::from_millis(250);

/// The places of a session in which nothing runs.
pub struct Cells {
    /// The one that was used last is last: it may still be preparing for its next call.
    ready: VecDeque<CellHandle>,
    /// Asked of the warden, and not come yet.
    asked: usize,
    /// How many are kept ready while nothing runs.
    spare: usize,
    /// Whether the last call came at once after the one before it. Then the next will too, and finds a place that was prepared
    /// while this one ran; what is made beside a single command would only slow it down.
    row: bool,
    /// When the last command ended.
    ended: Option<Instant>,
    /// How many in a row ended while they waited.
    gone: u32,
}

impl Cells {
    /// None yet; at most [`SPARE_MAX`] will be kept.
    pub fn new(spare: u8) -> Self {
        let spare = spare.min(SPARE_MAX).into();
        Self { ready: VecDeque::new(), asked: 0, spare, row: false, ended: None, gone: 0 }
    }

    /// How many more are to be asked for, so that as many calls as wait have one, and the spare ones are there if it is their
    /// time: when nothing runs, or in a row.
    pub fn missing(&self, waiting: usize, idle: bool) -> usize {
        let wanted = waiting + if idle || self.row { self.spare } else { 0 };
        wanted.saturating_sub(self.asked + self.ready.len())
    }

    /// A command begins whose call came at `came`.
    pub fn begins(&mut self, came: Instant) {
        self.row = self.ended.is_some_and(|end| came.duration_since(end) < AT_ONCE);
    }

    /// A command has ended.
    pub fn ends(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// When places are given back that nobody needs, while nothing runs.
    pub fn deadline(&self) -> Option<Instant> {
        self.ended.filter(|_| self.ready.len() > self.spare).map(|end| end + LINGER)
    }

    /// Gives back places that nobody needs any more.
    pub fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|late| late <= now) {
            self.ready.truncate(self.spare);
        }
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

    /// Takes back the place of a command that is over. More are kept than the spare ones while others run, and one more in a
    /// row.
    pub fn take_back(&mut self, place: CellHandle, busy: bool) {
        self.ready.push_back(place);
        let kept = self.spare + usize::from(self.row && self.spare > 0);
        self.ready.truncate(if busy { kept.max(SPARE_MAX.into()) } else { kept });
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
    fn the_last_one_is_used_again_last_and_few_are_kept() {
        let mut cells = Cells::new(1);
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
        let mut cells = Cells::new(1);
        let (one, _own) = cell();
        let numbers = [one.socket.as_raw_fd()];
        cells.came(one);
        let mut place = cells.take().unwrap().unwrap();
        cells.begins(Instant::now());
        assert_eq!(cells.missing(0, false), 0, "the first call is none of a row");
        cells.ends();
        cells.take_back(place, false);
        place = cells.take().unwrap().unwrap();
        cells.begins(Instant::now());
        assert_eq!((place.socket.as_raw_fd(), cells.missing(0, false)), (numbers[0], 1));
        let (other, _own) = cell();
        cells.came(other);
        cells.ends();
        cells.take_back(place, false);
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
        let mut cells = Cells::new(0);
        let (alive, _own) = cell();
        (0..GONE_MAX).for_each(|_| cells.came(cell().0));
        cells.came(alive);
        assert!(cells.take().unwrap().is_some());
        (0..=GONE_MAX).for_each(|_| cells.came(cell().0));
        assert!(cells.take().is_err());
    }
}
