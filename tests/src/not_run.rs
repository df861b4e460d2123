//! Tests that were not run, which are listed at the end: one that returns would count as passed.

use std::panic::resume_unwind;
use std::sync::Mutex;

/// The payload of [`not_run`]: the reason.
pub(crate) struct NotRun(pub String);

/// The names of those of this process, with the reasons.
static ALL: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Ends the test that calls it, on a machine that lacks what it needs.
pub fn not_run(reason: impl Into<String>) -> ! {
    resume_unwind(Box::new(NotRun(reason.into())))
}

pub(crate) fn count(name: String, reason: impl Into<String>) {
    let mut all = ALL.lock().expect("nobody panics while holding it");
    all.push((name, reason.into()));
}

/// Prints them and returns how many they are.
pub(crate) fn list() -> usize {
    let all = ALL.lock().expect("nobody panics while holding it");
    if !all.is_empty() {
        eprintln!("not run, though called ok above: {}", all.len());
    }
    for (name, reason) in all.iter() {
        eprintln!("    {name}: {reason}");
    }
    all.len()
}
