//! Finding what is left running where neither a PID namespace nor a Landlock scope gathers it.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;

/// Stops, then kills, every descendant of this process: one that is stopped cannot fork away meanwhile.
pub fn kill_all() {
    kill_trees(children(std::process::id() as i32));
}

/// Kills the children of this process that are not in `known`, and all below them; says whether there were any.
pub fn kill_strangers(known: &[i32]) -> bool {
    let mut strangers = children(std::process::id() as i32);
    strangers.retain(|pid| !known.contains(pid));
    let any = !strangers.is_empty();
    kill_trees(strangers);
    any
}

/// Every process below this one, as far as it can be seen.
pub fn all() -> Vec<i32> {
    let mut found = children(std::process::id() as i32);
    let mut seen = 0;
    while let Some(&pid) = found.get(seen) {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        found.extend(lists.flat_map(|list| numbers(&list)));
        seen += 1;
    }
    found
}

fn kill_trees(roots: Vec<i32>) {
    for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
        let mut left = roots.clone();
        while let Some(pid) = left.pop() {
            left.extend(children(pid));
            // One that has just ended is what is wanted.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// `/proc/PID/task/PID/children` (`CONFIG_PROC_CHILDREN`). What a second thread has forked is met again when its
/// parent is dead: it is then a child of this process, the subreaper.
fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    numbers(&list)
}

fn numbers(list: &str) -> Vec<i32> {
    list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}
