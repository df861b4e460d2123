//! Adds up the resource usage of all processes of a call, where the kernel limits only single processes.
//!
//! Reading costs some microseconds per process, so it is done ten times a second, and only where the policy
//! has a limit to compare with. Usage between two readings is missed: the machine stays usable, but a quota
//! is not exact to the byte. A cgroup, where there is one, limits memory and processes exactly.

use broker_protocol::{Limit, Usage};
use executor_sys::proc::{self, Stat};
use nix::sys::statvfs::statvfs;
use policies::Limits;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time between two readings, and before the first.
const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of processes that are read; more exceed any limit.
const PROCESSES_MAX: usize = 20_000;
/// Microseconds of the clock that `/proc` counts CPU in: `USER_HZ` is 100 on every architecture of ours.
const TICK_US: u64 = 10_000;

/// The resources that calls share with the rest of the machine.
#[derive(Debug)]
pub struct Capacity {
    /// Bytes of memory (`MemTotal`); `None` if it cannot be read.
    memory: Option<u64>,
    /// The directories whose file systems calls fill.
    roots: [PathBuf; 2],
    /// How much was free there, and when.
    free: Vec<(PathBuf, [u64; 2])>,
    measured: Option<Instant>,
}

/// What the processes of one call use, compared with the policy's limits.
#[derive(Debug)]
pub struct Account {
    bounds: Bounds,
    /// The roots, and the bytes that must stay free on the file system of each.
    free: Vec<(PathBuf, [u64; 2])>,
    /// Bytes written by each process seen so far.
    written: BTreeMap<i32, u64>,
    /// Whether the last reading missed a process.
    hides: bool,
    next: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    processes: Option<u64>,
    memory: Option<u64>,
    memory_share: Option<u64>,
    written: Option<u64>,
}

/// The sums of one reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    threads: u64,
    /// Memory of one process alone, backed by no file.
    private: u64,
    /// Memory of files or shared with other processes, counted for each.
    shared: u64,
    written: u64,
}

impl Capacity {
    /// The capacity of this machine for a session on `roots`.
    pub fn new(roots: [PathBuf; 2]) -> Self {
        let total = proc::line("/proc/meminfo", "MemTotal");
        let kib = total.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Self {
            memory: kib.map(|kib| kib * 1024),
            roots,
            free: Vec::new(),
            measured: None,
        }
    }

    /// Measures what is free ahead of the next call, which then begins without.
    pub fn measure(&mut self) {
        self.free = self
            .roots
            .iter()
            .filter_map(|root| Some((root.clone(), free(root)?)))
            .collect();
        self.measured = Some(Instant::now());
    }

    /// The roots, and how much of the space free now must stay free when a call may use `share` percent of it.
    fn reserve(&mut self, share: u64) -> Vec<(PathBuf, [u64; 2])> {
        if self
            .measured
            .is_none_or(|measured| measured.elapsed() > INTERVAL)
        {
            self.measure();
        }
        let left = |free: u64| free / 100 * 100u64.saturating_sub(share);
        self.free
            .iter()
            .map(|(root, free)| (root.clone(), free.map(left)))
            .collect()
    }
}

impl Account {
    /// An account for one cell; `None` if there is nothing to compare with.
    pub fn open(limits: &Limits, capacity: &mut Capacity) -> Option<Self> {
        let share = limits
            .memory_share
            .zip(capacity.memory)
            .map(|(share, total)| total / 100 * share);
        let bounds = Bounds {
            processes: limits.processes,
            memory: limits.memory,
            memory_share: share,
            written: limits.written,
        };
        let free = limits
            .disk_share
            .map(|share| capacity.reserve(share))
            .unwrap_or_default();
        let bounded = [bounds.processes, bounds.memory, share, bounds.written]
            .iter()
            .any(Option::is_some);
        let next = Instant::now() + INTERVAL;
        (bounded || !free.is_empty()).then(|| Self {
            bounds,
            free,
            written: BTreeMap::new(),
            hides: false,
            next,
        })
    }

    /// When the next reading is due.
    pub fn due(&self) -> Instant {
        self.next
    }

    /// Reads the cell behind `pidfd`; returns the limit it exceeds. A cell that is gone exceeds none.
    pub fn check(&mut self, pidfd: BorrowedFd, now: Instant) -> Option<Limit> {
        self.next = now + INTERVAL;
        if self
            .free
            .iter()
            .any(|(root, reserve)| is_short(root, reserve))
        {
            return Some(Limit::DiskShare);
        }
        let mut sum = Sum::default();
        // The cell's first process is not counted.
        let pids = proc::descendants(number(pidfd)?, PROCESSES_MAX);
        let stats: Vec<_> = pids.iter().filter_map(|pid| Stat::of(*pid).ok()).collect();
        // Before, there is only our own process that becomes the program: it cannot be read, and writes nothing.
        let mut hides = false;
        let has_begun = stats.iter().any(|stat| stat.has_executed);
        sum.threads = stats.iter().map(|stat| stat.threads).sum();
        for pid in &pids {
            let (private, shared) = memory(*pid).unwrap_or_default();
            (sum.private, sum.shared) = (sum.private + private, sum.shared + shared);
            if self.bounds.written.is_some() {
                match written(*pid) {
                    WrittenBytes::Bytes(bytes) => drop(self.written.insert(*pid, bytes)),
                    WrittenBytes::Unreadable => hides |= has_begun,
                    WrittenBytes::Gone => {}
                }
            }
        }
        sum.written = self
            .written
            .values()
            .fold(0, |sum, bytes| sum.saturating_add(*bytes));
        // Nobody knows how much: over any limit. A program that is just being executed hides it too, for a moment.
        if std::mem::replace(&mut self.hides, hides) && hides {
            sum.written = u64::MAX;
        }
        // Shared libraries must not count; telling them from shared memory costs more, so it is done only when a limit seems exceeded.
        if self.bounds.exceeded(sum).is_some() {
            sum.shared = pids
                .iter()
                .filter_map(|pid| shared_memory(*pid))
                .max()
                .unwrap_or_default();
        }
        self.bounds.exceeded(sum)
    }
}

/// Bytes and files that an ordinary user may still create on the file system of `path`. A file
/// system that does not count files reports none, and none are reserved there.
fn free(path: &Path) -> Option<[u64; 2]> {
    let stat = statvfs(path).ok()?;
    Some([
        stat.blocks_available() * stat.fragment_size(),
        stat.files_available(),
    ])
}

/// Whether less is free than the reserve.
fn is_short(root: &Path, reserve: &[u64; 2]) -> bool {
    free(root).is_some_and(|free| {
        free.iter()
            .zip(reserve)
            .any(|(free, reserve)| free < reserve)
    })
}

/// What the processes of the cell behind `pidfd` have used, as far as they are alive or were reaped
/// by one that is: CPU time of all, memory of the largest.
pub fn usage(pidfd: BorrowedFd) -> Usage {
    let mut usage = Usage::default();
    for pid in number(pidfd)
        .map(|root| proc::descendants(root, PROCESSES_MAX))
        .unwrap_or_default()
    {
        if let Ok(stat) = Stat::of(pid) {
            usage.user_us += TICK_US * stat.user_ticks;
            usage.system_us += TICK_US * stat.system_ticks;
        }
        usage.peak_kib = usage.peak_kib.max(memory(pid).unwrap_or_default().0 / 1024);
    }
    usage
}

impl Bounds {
    fn exceeded(&self, sum: Sum) -> Option<Limit> {
        let over = |used: u64, bound: Option<u64>| bound.is_some_and(|bound| used > bound);
        let memory = sum.private + sum.shared;
        let limits = [
            (over(memory, self.memory), Limit::Memory),
            (over(memory, self.memory_share), Limit::MemoryShare),
            (over(sum.written, self.written), Limit::Written),
            (over(sum.threads, self.processes), Limit::Processes),
        ];
        limits
            .into_iter()
            .find_map(|(over, limit)| over.then_some(limit))
    }
}

/// The number of the process behind `pidfd`.
fn number(pidfd: BorrowedFd) -> Option<i32> {
    proc::line(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()), "Pid")?
        .parse()
        .ok()
}

/// Resident bytes of a process from `/proc/PID/statm`: private ones, and those of files and shared memory.
fn memory(pid: i32) -> Option<(u64, u64)> {
    const PAGE: u64 = 4096;
    let pages = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = pages
        .split_whitespace()
        .skip(1)
        .map(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    Some((resident.saturating_sub(shared) * PAGE, shared * PAGE))
}

/// Resident shared memory in bytes: mappings without a file, `memfd`, `/dev/shm`, System V. Several processes may share it.
fn shared_memory(pid: i32) -> Option<u64> {
    let text = proc::line(format!("/proc/{pid}/status"), "RssShmem")?;
    Some(text.strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

/// How much a process has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenBytes {
    Bytes(u64),
    /// The process is there and does not say: its program may be executed and not read.
    Unreadable,
    Gone,
}

/// Bytes that a process has passed to `write` and similar calls or, if larger, has caused a file system to write (through mappings).
fn written(pid: i32) -> WrittenBytes {
    match written_as_said_by(pid) {
        WrittenBytes::Unreadable => {}
        known => return known,
    }
    // The first thread does not say for the others when it has ended.
    let mut all = WrittenBytes::Gone;
    for thread in proc::threads(pid) {
        match written_as_said_by(thread) {
            WrittenBytes::Bytes(bytes) => return WrittenBytes::Bytes(bytes),
            WrittenBytes::Unreadable if Stat::of(thread).is_ok_and(|stat| !stat.is_exiting) => {
                all = WrittenBytes::Unreadable;
            }
            WrittenBytes::Unreadable | WrittenBytes::Gone => {}
        }
    }
    all
}

/// The same for the process of a thread.
fn written_as_said_by(thread: i32) -> WrittenBytes {
    let text = match fs::read_to_string(format!("/proc/{thread}/io")) {
        Ok(text) => text,
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => return WrittenBytes::Gone,
            Some(_) | None => return WrittenBytes::Unreadable,
        },
    };
    let figure = |key: &str| {
        text.lines().find_map(|line| {
            line.strip_prefix(key)?
                .strip_prefix(": ")?
                .parse::<u64>()
                .ok()
        })
    };
    match (figure("wchar"), figure("write_bytes")) {
        (Some(passed), Some(caused)) => WrittenBytes::Bytes(passed.max(caused)),
        (None, _) | (_, None) => WrittenBytes::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reserved_as_bytes_are() {
        let root = std::env::temp_dir();
        let [bytes, files] = free(&root).unwrap();
        assert!(!is_short(&root, &[bytes / 2, files / 2]));
        assert!(
            is_short(&root, &[bytes.saturating_mul(2), 0])
                && is_short(&root, &[0, files + files / 2 + 1])
        );
    }

    #[test]
    fn a_limit_is_exceeded_one_above_it() {
        let bounds = Bounds {
            processes: Some(2),
            memory: Some(10),
            memory_share: Some(12),
            written: None,
        };
        let sum = |threads, private| Sum {
            threads,
            private,
            shared: 0,
            written: u64::MAX,
        };
        let shared = Sum {
            shared: 5,
            ..sum(2, 6)
        };
        assert_eq!(bounds.exceeded(shared), Some(Limit::Memory));
        assert_eq!(
            Bounds {
                memory: None,
                ..bounds
            }
            .exceeded(shared),
            None
        );
        assert_eq!(
            Bounds {
                memory: None,
                ..bounds
            }
            .exceeded(sum(2, 13)),
            Some(Limit::MemoryShare)
        );
        assert_eq!(bounds.exceeded(sum(2, 10)), None);
        assert_eq!(bounds.exceeded(sum(3, 10)), Some(Limit::Processes));
        assert_eq!(bounds.exceeded(sum(2, 11)), Some(Limit::Memory));
    }

    #[test]
    fn this_process_can_be_read() {
        let ours = std::process::id() as i32;
        assert!(
            memory(ours).is_some_and(|(private, shared)| private > 100_000 && shared > 100_000)
        );
        assert!(shared_memory(ours).is_some());
        let mut capacity = Capacity::new(["/".into(), "/proc/nothing".into()]);
        assert!(capacity.memory.is_some_and(|bytes| bytes > 1 << 26));
        assert_eq!(capacity.reserve(90).len(), 1);
        assert!(matches!(written(ours), WrittenBytes::Bytes(1..)));
        assert_eq!(written(i32::MAX), WrittenBytes::Gone);
    }
}
