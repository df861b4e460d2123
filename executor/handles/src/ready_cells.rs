//! The cells that wait for an order, and how many more to make.

use crate::CellHandle;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Whether commands run or wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellLoad {
    Idle,
    Busy,
}

/// Maximum number of cells in a row that may end unused: beyond it, something on this machine kills every one.
const GONE_MAX: u32 = 16;
/// Maximum number of cells kept ready between calls.
const SPARE_MAX: u8 = 4;
/// A call that follows another within this time belongs to a sequence.
const AT_ONCE: Duration = Duration::from_millis(1);
/// How long after a call more cells than the spare ones are kept.
const LINGER: Duration = Duration::from_millis(250);

/// Something on this machine kills every cell that waits: more than 16 in a row have died.
#[derive(Debug, PartialEq, Eq)]
pub struct CellsKilled;

#[derive(Debug)]
pub struct ReadyCells {
    /// The most recently used cell is last: it may still be preparing for its next call.
    ready: VecDeque<CellHandle>,
    /// How many are requested from the warden and have not arrived.
    requested: usize,
    /// How many are kept ready while no command runs.
    spare: usize,
    /// Whether the last call followed immediately on the one before. Then the next probably will too, and finds a cell that was
    /// prepared while this one ran; for a single command, preparing another cell beside it would only slow it down.
    row: bool,
    /// When the last command ended.
    ended: Option<Instant>,
    /// How many ended in a row while they waited.
    gone: u32,
}

impl ReadyCells {
    /// None yet; at most `SPARE_MAX` will be kept.
    pub fn new(spare: u8) -> Self {
        let spare = spare.min(SPARE_MAX).into();
        Self {
            ready: VecDeque::new(),
            requested: 0,
            spare,
            row: false,
            ended: None,
            gone: 0,
        }
    }

    /// How many more to request, so that each waiting call has a cell, and the spare ones are ready
    /// when they should be: while nothing runs, or in a sequence of calls.
    pub fn missing(&self, waiting: usize, load: CellLoad) -> usize {
        let wanted = waiting
            + if load == CellLoad::Idle || self.row {
                self.spare
            } else {
                0
            };
        wanted.saturating_sub(self.requested + self.ready.len())
    }

    /// A command begins whose call arrived at `came`.
    pub fn command_begins(&mut self, came: Instant) {
        self.row = self
            .ended
            .is_some_and(|end| came.duration_since(end) < AT_ONCE);
    }

    /// A command has ended.
    pub fn command_ended(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// When unneeded cells are dropped, while nothing runs.
    pub fn deadline(&self) -> Option<Instant> {
        self.ended
            .filter(|_| self.ready.len() > self.spare)
            .map(|end| end + LINGER)
    }

    /// Drops cells that are not needed any more.
    pub fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|late| late <= now) {
            self.ready.truncate(self.spare);
        }
    }

    pub fn requested(&mut self) {
        self.requested += 1;
    }

    /// A requested cell will not arrive.
    pub fn lost_one(&mut self) {
        self.requested = self.requested.saturating_sub(1);
    }

    /// A requested cell has arrived.
    pub fn add(&mut self, cell: CellHandle) {
        self.requested = self.requested.saturating_sub(1);
        self.ready.push_back(cell);
    }

    /// Takes a cell that waits for its order. Cells killed while they waited are skipped: no call was in them.
    ///
    /// # Errors
    /// Too many of them in a row were killed.
    pub fn take(&mut self) -> Result<Option<CellHandle>, CellsKilled> {
        while let Some(cell) = self.ready.pop_front() {
            if !cell.is_gone() {
                self.gone = 0;
                return Ok(Some(cell));
            }
            self.gone += 1;
            if self.gone > GONE_MAX {
                return Err(CellsKilled);
            }
        }
        Ok(None)
    }

    /// Takes back the cell of a command that has ended. More than the spare ones are kept while
    /// other commands run, and one more in a sequence of calls.
    pub fn return_cell(&mut self, cell: CellHandle, load: CellLoad) {
        self.ready.push_back(cell);
        let kept = self.spare + usize::from(self.row && self.spare > 0);
        self.ready.truncate(match load {
            CellLoad::Busy => kept.max(SPARE_MAX.into()),
            CellLoad::Idle => kept,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use executor_sys::message;
    use std::os::fd::{AsRawFd, OwnedFd};

    /// A cell, and the cell's end of its socket.
    fn cell() -> (CellHandle, OwnedFd) {
        let (socket, own) = message::pair().unwrap();
        (
            CellHandle {
                pidfd: socket.try_clone().unwrap(),
                socket,
            },
            own,
        )
    }

    #[test]
    fn as_many_are_requested_as_calls_wait_for() {
        let mut cells = ReadyCells::new(1);
        assert_eq!(
            (
                cells.missing(0, CellLoad::Busy),
                cells.missing(0, CellLoad::Idle),
                cells.missing(3, CellLoad::Idle)
            ),
            (0, 1, 4)
        );
        cells.requested();
        assert_eq!(
            (
                cells.missing(0, CellLoad::Idle),
                cells.missing(3, CellLoad::Busy)
            ),
            (0, 2)
        );
        let (handle, _own) = cell();
        cells.add(handle);
        assert_eq!(
            (
                cells.missing(0, CellLoad::Idle),
                cells.missing(3, CellLoad::Busy)
            ),
            (0, 2)
        );
        assert_eq!(
            ReadyCells::new(200).missing(0, CellLoad::Idle),
            usize::from(SPARE_MAX)
        );
    }

    #[test]
    fn the_last_one_is_used_again_last_and_few_are_kept() {
        let mut cells = ReadyCells::new(1);
        let (handles, _own): (Vec<CellHandle>, Vec<OwnedFd>) = (0..6).map(|_| cell()).unzip();
        let first = handles[0].socket.as_raw_fd();
        handles
            .into_iter()
            .for_each(|handle| cells.return_cell(handle, CellLoad::Busy));
        assert_eq!(
            cells.missing(5, CellLoad::Busy),
            1,
            "{SPARE_MAX} of six are there"
        );
        assert_eq!(cells.take().unwrap().unwrap().socket.as_raw_fd(), first);
        let (handle, _own) = cell();
        cells.return_cell(handle, CellLoad::Idle);
        assert_eq!(
            cells.missing(5, CellLoad::Busy),
            4,
            "one is kept while nothing runs"
        );
    }

    #[test]
    fn calls_in_a_row_have_two_in_turn_until_it_is_over() {
        let mut cells = ReadyCells::new(1);
        let (one, _own) = cell();
        let numbers = [one.socket.as_raw_fd()];
        cells.add(one);
        let mut used = cells.take().unwrap().unwrap();
        cells.command_begins(Instant::now());
        assert_eq!(
            cells.missing(0, CellLoad::Busy),
            0,
            "the first call is none of a row"
        );
        cells.command_ended();
        cells.return_cell(used, CellLoad::Idle);
        used = cells.take().unwrap().unwrap();
        cells.command_begins(Instant::now());
        assert_eq!(
            (used.socket.as_raw_fd(), cells.missing(0, CellLoad::Busy)),
            (numbers[0], 1)
        );
        let (other, _own) = cell();
        cells.add(other);
        cells.command_ended();
        cells.return_cell(used, CellLoad::Idle);
        assert_ne!(
            cells.take().unwrap().unwrap().socket.as_raw_fd(),
            numbers[0]
        );
        let (other, _own) = cell();
        cells.return_cell(other, CellLoad::Idle);
        cells.tick(Instant::now());
        assert_eq!(
            cells.missing(2, CellLoad::Busy),
            1,
            "both are kept, and the spare one"
        );
        cells.tick(Instant::now() + LINGER);
        assert_eq!(cells.missing(2, CellLoad::Busy), 2);
        assert_eq!(cells.deadline(), None);
    }

    #[test]
    fn dead_cells_are_skipped_and_too_many_end_the_session() {
        let mut cells = ReadyCells::new(0);
        let (alive, _own) = cell();
        (0..GONE_MAX).for_each(|_| cells.add(cell().0));
        cells.add(alive);
        assert!(cells.take().unwrap().is_some());
        (0..=GONE_MAX).for_each(|_| cells.add(cell().0));
        assert!(cells.take().is_err());
    }
}
