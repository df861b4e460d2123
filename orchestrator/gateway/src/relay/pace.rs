//! Limits the rate of decisions on connections: each decision is recorded, so a program that wants more has to wait.

use std::cell::Cell;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Maximum burst of connections after a pause.
const BURST: u32 = 512;
/// Interval between connections after a burst: 50 a second.
const INTERVAL: Duration = Duration::from_millis(20);

pub(super) struct Pace {
    /// When the bucket will be full again: each turn moves it by [`INTERVAL`].
    full: Cell<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            full: Cell::new(Instant::now()),
        }
    }
}

impl Pace {
    pub(super) async fn turn(&self) {
        sleep_until(self.next(Instant::now())).await;
    }

    /// Whether there is a turn now, which is taken then.
    pub(super) fn has_turn(&self) -> bool {
        let (full, now) = (self.full.get(), Instant::now());
        let has = self.next(now) <= now;
        if !has {
            self.full.set(full);
        }
        has
    }

    /// The time of the next turn.
    fn next(&self, now: Instant) -> Instant {
        let full = self.full.get().max(now) + INTERVAL;
        self.full.set(full);
        full - INTERVAL * BURST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_what_follows_waits() {
        let (pace, now) = (Pace::default(), Instant::now() + Duration::from_secs(60));
        assert!((0..BURST).all(|_| pace.next(now) <= now));
        let last = (0..100).map(|_| pace.next(now)).last().unwrap();
        assert_eq!(last, now + INTERVAL * 100);
        assert!(!pace.has_turn() && pace.full.get() == now + INTERVAL * (BURST + 100));
        // A pause refills the bucket.
        assert!((0..BURST).all(|_| pace.next(last + INTERVAL * BURST) <= last + INTERVAL * BURST));
    }
}
