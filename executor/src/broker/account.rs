//! Adds up what the processes of a call use together, where the kernel bounds only single ones.
//!
//! A look costs some microseconds a process, so it is taken ten times a second, and only where the policy has a limit
//! to compare with. What comes and goes between two looks is not seen: the machine stays usable, a quota is not kept
//! to the byte. A cgroup, where there is one, bounds memory and processes exactly.

use broker_protocol::{Limit, Usage};
use policies::Limits;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Time between two looks, and before the first.
const INTERVAL: Duration = Duration::from_millis(100);
/// Processes looked at; more are over any limit.
const PROCESSES_MAX: usize = 20_000;

/// The account of one call.
#[derive(Debug)]
pub struct Account {
    bounds: Bounds,
    /// Bytes written by each process that was ever seen.
    written: BTreeMap<i32, u64>,
    next: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    processes: Option<u64>,
    memory: Option<u64>,
    written: Option<u64>,
}

/// What one look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    threads: u64,
    memory: u64,
    written: u64,
}

impl Account {
    /// An account for one cell; `None` if there is nothing to compare with.
    pub fn open(limits: &Limits) -> Option<Self> {
        let bounds = Bounds { processes: limits.processes, memory: limits.memory, written: limits.written };
        if [bounds.processes, bounds.memory, bounds.written].iter().all(Option::is_none) {
            return None;
        }
        Some(Self { bounds, written: BTreeMap::new(), next: Instant::now() + INTERVAL })
    }

    /// When the next look is due.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// Takes a look at the cell behind `pidfd`; returns the limit that is exceeded. A cell that is gone exceeds none.
    pub fn look(&mut self, pidfd: BorrowedFd, now: Instant) -> Option<Limit> {
        self.next = now + INTERVAL;
        let mut sum = Sum::default();
        // The cell's first process is not counted itself.
        for pid in descendants(number(pidfd)?) {
            sum.threads += threads(pid).unwrap_or_default();
            sum.memory += memory(pid).unwrap_or_default();
            if self.bounds.written.is_some() {
                self.written.insert(pid, written(pid).unwrap_or_default());
            }
        }
        sum.written = self.written.values().sum();
        self.bounds.exceeded(sum)
    }
}

/// What the processes of the cell behind `pidfd` have used, as far as they are alive or were waited for by one that is: CPU
/// of all, memory of the largest.
pub fn usage(pidfd: BorrowedFd) -> Usage {
    let mut usage = Usage::default();
    for pid in number(pidfd).map(descendants).unwrap_or_default() {
        let (user_us, system_us) = cpu(pid).unwrap_or_default();
        usage.user_us += user_us;
        usage.system_us += system_us;
        usage.peak_kib = usage.peak_kib.max(memory(pid).unwrap_or_default() / 1024);
    }
    usage
}

impl Bounds {
    fn exceeded(&self, sum: Sum) -> Option<Limit> {
        let over = |used: u64, bound: Option<u64>| bound.is_some_and(|bound| used > bound);
        let limits = [
            (over(sum.memory, self.memory), Limit::Memory),
            (over(sum.written, self.written), Limit::Written),
            (over(sum.threads, self.processes), Limit::Processes),
        ];
        limits.into_iter().find_map(|(over, limit)| over.then_some(limit))
    }
}

/// The number of the process behind `pidfd`.
fn number(pidfd: BorrowedFd) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok())
}

/// Every process below `root`, as this process numbers them.
fn descendants(root: i32) -> Vec<i32> {
    let mut all = children(root);
    let mut next = 0;
    while next < all.len() && all.len() < PROCESSES_MAX {
        all.extend(children(all[next]));
        next += 1;
    }
    all
}

/// The children of all threads of a process (`CONFIG_PROC_CHILDREN`).
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Threads of a process, from `/proc/PID/stat` (`man 5 proc_pid_stat`).
fn threads(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; fields are counted from the third, which follows it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(20 - 3)?.parse().ok()
}

/// Microseconds of CPU of a process and of those it has waited for, in user mode and in the kernel.
fn cpu(pid: i32) -> Option<(u64, u64)> {
    /// Microseconds of the clock that `/proc` counts CPU in: `USER_HZ` is 100 on every architecture of ours.
    const TICK: u64 = 10_000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut ticks = stat.rsplit_once(')')?.1.split_whitespace().skip(14 - 3).map(str::parse::<u64>);
    let [user, system, waited_user, waited_system] =
        [ticks.next()?, ticks.next()?, ticks.next()?, ticks.next()?];
    Some((TICK * (user.ok()? + waited_user.ok()?), TICK * (system.ok()? + waited_system.ok()?)))
}

/// Resident bytes of a process that are no file's, from `/proc/PID/statm`: libraries are shared by all.
fn memory(pid: i32) -> Option<u64> {
    const PAGE: u64 = 4096;
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = pages.split_whitespace().skip(1).map(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some(resident.saturating_sub(shared) * PAGE)
}

/// Bytes that a process has passed to `write` and its kin.
fn written(pid: i32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("wchar:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_exceeded_one_above_it() {
        let bounds = Bounds { processes: Some(2), memory: Some(10), written: None };
        let sum = |threads, memory| Sum { threads, memory, written: u64::MAX };
        assert_eq!(bounds.exceeded(sum(2, 10)), None);
        assert_eq!(bounds.exceeded(sum(3, 10)), Some(Limit::Processes));
        assert_eq!(bounds.exceeded(sum(2, 11)), Some(Limit::Memory));
    }

    #[test]
    fn this_process_can_be_read() {
        let ours = std::process::id() as i32;
        assert!(threads(ours).is_some_and(|threads| threads >= 1));
        assert!(memory(ours).is_some_and(|bytes| bytes > 100_000));
        assert!(written(ours).is_some());
        assert!(cpu(ours).is_some());
    }
}
