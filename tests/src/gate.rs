//! How many tests run at once: a fixed number, and more while the processors are idle, because those that run then wait for a time
//! limit, a timeout or each other.

use std::fs;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How often the processors are looked at, and so how often one test more than usual may begin.
const INTERVAL: Duration = Duration::from_millis(100);
/// Percentage of the processors' time that must have been idle since.
const IDLE_MIN: u64 = 30;

/// Decides when the next test may begin.
pub struct Gate {
    usual: usize,
    state: Mutex<State>,
}

struct State {
    running: usize,
    seen: Instant,
    times: Times,
}

/// A test that has begun, until it is dropped.
pub struct Begun<'gate>(&'gate Gate);

impl Gate {
    /// So many run even if all processors are in use.
    pub fn new(usual: usize) -> Self {
        let (seen, times) = (Instant::now(), Times::now().unwrap_or_default());
        Self {
            usual,
            state: Mutex::new(State {
                running: 0,
                seen,
                times,
            }),
        }
    }

    /// Waits until one more may run.
    pub fn enter(&self) -> Begun<'_> {
        while !self.tries_to_enter() {
            thread::sleep(INTERVAL / 2);
        }
        Begun(self)
    }

    fn tries_to_enter(&self) -> bool {
        let mut state = self.state.lock().expect("nobody panics while holding it");
        let enters = state.running < self.usual || state.has_room();
        state.running += usize::from(enters);
        enters
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0
            .state
            .lock()
            .expect("nobody panics while holding it")
            .running -= 1;
    }
}

impl State {
    fn has_room(&mut self) -> bool {
        if self.seen.elapsed() < INTERVAL {
            return false;
        }
        let before = std::mem::replace(&mut self.times, Times::now().unwrap_or_default());
        self.seen = Instant::now();
        let all = self.times.all.saturating_sub(before.all);
        let idle = self.times.idle.saturating_sub(before.idle);
        idle * 100 > all * IDLE_MIN
    }
}

/// Ticks of all processors since the machine's start.
#[derive(Clone, Copy, Default)]
struct Times {
    all: u64,
    idle: u64,
}

impl Times {
    /// `None` where the kernel does not say it: then no more than the usual number run.
    fn now() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        Self::of(text.lines().next()?, priority_is_low()?)
    }

    /// `own`: the tests run at a low priority themselves.
    fn of(line: &str, own: bool) -> Option<Self> {
        let ticks: Vec<u64> = line
            .strip_prefix("cpu ")?
            .split_ascii_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // Waiting for a disk counts: the processor is free meanwhile. So does what runs at a low priority and lets tests go first.
        let behind = if own { 0 } else { *ticks.get(1)? };
        let idle = behind + ticks.get(3)? + ticks.get(4)?;
        let all = ticks.iter().take(8).sum();
        Some(Self { all, idle })
    }
}

/// Whether this process has a nice value above 0: field 19 of `stat`, see proc(5).
fn priority_is_low() -> Option<bool> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, after_name) = text.rsplit_once(')')?;
    let nice: i32 = after_name.split_ascii_whitespace().nth(16)?.parse().ok()?;
    Some(nice > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_low_priority_and_waiting_for_a_disk_is_room() {
        let line = "cpu  10 5 20 30 40 0 0 0 7 7";
        for (own, idle) in [(false, 75), (true, 70)] {
            let times = Times::of(line, own).expect("a line of the kernel");
            assert_eq!((times.all, times.idle), (105, idle));
        }
        for line in ["cpu0 1 2 3 4 5", "cpu  1 2 3"] {
            assert!(Times::of(line, false).is_none());
        }
        assert!(priority_is_low().is_some());
    }

    #[test]
    fn the_usual_number_enters_and_one_more_when_one_has_ended() {
        let gate = Gate::new(1);
        let first = gate.enter();
        // The processors have just been looked at.
        assert!(!gate.tries_to_enter());
        drop(first);
        assert!(gate.tries_to_enter());
    }
}
