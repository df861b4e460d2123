//! The one reader of `/proc/PID`. It reads the process that has this number at the moment.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The flag of a process that has executed nothing since it was forked (`PF_FORKNOEXEC`).
const FORKED_ONLY: u64 = 0x40;
/// The flag of a thread that is ending or has ended (`PF_EXITING`).
const EXITING: u64 = 0x4;

/// Fields of `/proc/PID/stat` (`man 5 proc_pid_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Process number of the parent.
    pub parent: i32,
    /// The process session, by the number of its leader.
    pub session: i32,
    /// Device number of the controlling terminal in the kernel's old form, where the upper bits of
    /// the minor are above the major; 0 if there is none.
    pub terminal: u64,
    /// Whether it has executed a program since it was forked.
    pub has_executed: bool,
    /// Whether this thread, of a process its first one, is ending or has ended.
    pub is_exiting: bool,
    /// CPU time in user mode in ticks of 10 ms (`USER_HZ`), including the children it has waited for.
    pub user_ticks: u64,
    /// The same in kernel mode.
    pub system_ticks: u64,
    /// How many threads it has.
    pub threads: u64,
    /// Ticks between the machine's start and its own, which distinguish it from a later process with its number.
    pub started: u64,
}

impl Stat {
    /// Of the process or thread `pid`.
    ///
    /// # Errors
    /// There is no such process, or it cannot be read.
    pub fn of(pid: i32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn parse(text: &str) -> Option<Self> {
        // The second field, a name in parentheses, may contain anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // Numbers as in the manual, which counts from 1.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(4 - 3)?.parse().ok()?,
            session: fields.get(6 - 3)?.parse().ok()?,
            terminal: field(7)?,
            has_executed: field(9)? & FORKED_ONLY == 0,
            is_exiting: field(9)? & EXITING != 0,
            user_ticks: field(14)? + field(16)?,
            system_ticks: field(15)? + field(17)?,
            threads: field(20)?,
            started: field(22)?,
        })
    }
}

/// The text after `key` in a file of lines such as `/proc/PID/status`.
pub fn line(path: impl AsRef<Path>, key: &str) -> Option<String> {
    // Such a file does not report its length: with enough capacity for most, it is read at once instead of in growing pieces.
    let mut text = String::with_capacity(4096);
    fs::File::open(path).ok()?.read_to_string(&mut text).ok()?;
    Some(
        text.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?
            .trim()
            .to_owned(),
    )
}

/// The same as a number, from `/proc/PID/FILE`.
pub fn figure(pid: i32, file: &str, key: &str) -> Option<u64> {
    line(format!("/proc/{pid}/{file}"), key)?.parse().ok()
}

/// The threads of a process.
pub fn threads(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .filter_map(|thread| thread.file_name().to_str()?.parse().ok())
        .collect()
}

/// The children of all threads of a process (`CONFIG_PROC_CHILDREN`).
pub fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = lists.flat_map(|list| {
        list.split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect::<Vec<i32>>()
    });
    numbers.collect()
}

/// Every descendant of `root`, as far as they can be read; stops once there are `max`.
pub fn descendants(root: i32, max: usize) -> Vec<i32> {
    let mut found = children(root);
    let mut next = 0;
    while next < found.len() && found.len() < max {
        found.extend(children(found[next]));
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{self, Child, Fork};
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;
    use std::os::fd::AsFd;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let text =
            "42 (a) R 1 (b)) S 17 42 42 34817 -1 4194560 1 2 3 4 5 6 7 8 20 0 9 0 998877 10 20";
        let want = Stat {
            parent: 17,
            session: 42,
            terminal: 34817,
            has_executed: true,
            is_exiting: false,
            user_ticks: 5 + 7,
            system_ticks: 6 + 8,
            threads: 9,
            started: 998_877,
        };
        assert_eq!(Stat::parse(text), Some(want));
        let other = Stat::parse(&text.replace("4194560", "4194628")).unwrap();
        assert_eq!(
            other,
            Stat {
                has_executed: false,
                is_exiting: true,
                ..want
            }
        );
        assert_eq!(Stat::parse("42 (x) S"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn this_process_can_be_read() {
        let pid = std::process::id() as i32;
        let stat = Stat::of(pid).unwrap();
        assert!(stat.threads >= 1 && stat.started > 0);
        assert_eq!(figure(pid, "status", "Tgid"), Some(pid as u64));
        assert_eq!(figure(pid, "status", "Tgi"), None);
        assert!(threads(pid).contains(&pid) && threads(i32::MAX).is_empty());
        assert!(Stat::of(i32::MAX).is_err() && children(i32::MAX).is_empty());
    }

    #[test]
    fn a_search_for_descendants_ends_at_its_bound() {
        let wait = |_| match process::fork(0).unwrap() {
            Fork::Child => loop {
                nix::unistd::pause();
            },
            Fork::Parent(child) => child,
        };
        let children: Vec<Child> = (0..4).map(wait).collect();
        let found = descendants(std::process::id() as i32, usize::MAX);
        assert!(children.iter().all(|child| found.contains(&child.pid)));
        for child in &children {
            process::pidfd_signal(child.pidfd.as_fd(), libc::SIGKILL).unwrap();
            waitpid(Pid::from_raw(child.pid), None).unwrap();
        }
    }
}
