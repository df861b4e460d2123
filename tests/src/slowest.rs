//! How long each test has run, of which the longest are listed at the end: a suite is as fast as what its tests wait for.

use std::sync::Mutex;
use std::time::{Duration, Instant};

const LISTED: usize = 20;

static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Runs a test and keeps its time.
pub(crate) fn timed<T>(name: String, test: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = test();
    let mut times = TIMES.lock().expect("nobody panics while holding it");
    times.push((begun.elapsed(), name));
    result
}

/// Prints the longest, of more tests than are listed.
pub(crate) fn list() {
    let mut times = TIMES.lock().expect("nobody panics while holding it");
    if times.len() <= LISTED {
        return;
    }
    times.sort_by(|one, other| other.cmp(one));
    let all: Duration = times.iter().map(|(time, _)| *time).sum();
    eprintln!("slowest of {} s of tests:", all.as_secs());
    for (time, name) in &times[..LISTED] {
        eprintln!("    {:6.1} s  {name}", time.as_secs_f64());
    }
}
