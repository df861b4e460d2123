//! Processes that a program has left running when it ended. They are killed with the cell, so the result of the call names them.

use broker_protocol::limit;
use executor_sys::proc::{self, Stat};
use std::fs::File;
use std::io::Read;

/// Maximum number of names.
pub const NAMES_MAX: usize = 4;
/// Maximum bytes of one name.
pub const NAME_MAX: usize = 32;
/// Bytes of the longest encoded [`Leftover`].
pub(crate) const LEFTOVER_MAX: usize = 2 + NAMES_MAX * (NAME_MAX + 1);

/// Processes that were still running when the program of a call had ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftover {
    /// How many; [`limit::LEFT_RUNNING`] means that many or more.
    pub count: u8,
    /// The names of the first ones, without repetition. The program has chosen them.
    pub names: Vec<Vec<u8>>,
}

impl Leftover {
    /// Finds the descendants of this process. Those that are ending already do not count.
    pub fn find() -> Self {
        let mut leftover = Self::default();
        // To count all would make the kill wait.
        let max = usize::from(limit::LEFT_RUNNING);
        let found = proc::descendants(std::process::id() as i32, max);
        let is_running = |pid: &i32| Stat::of(*pid).is_ok_and(|stat| !stat.is_exiting);
        for pid in found.into_iter().filter(is_running).take(max) {
            leftover.count += 1;
            let name = name(pid);
            if leftover.names.len() < NAMES_MAX && !leftover.names.contains(&name) {
                leftover.names.push(name);
            }
        }
        leftover
    }

    /// The message: the count, the number of names, and each name with its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.count, self.names.len() as u8];
        for name in &self.names {
            bytes.push(name.len() as u8);
            bytes.extend(name);
        }
        bytes
    }

    /// Decodes it; `None` if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [count, number, rest @ ..] = bytes else {
            return None;
        };
        let mut rest = rest;
        let mut names = Vec::new();
        for _ in 0..*number {
            let (length, more) = rest.split_first()?;
            let (name, more) = more.split_at_checked(usize::from(*length))?;
            names.push(name.to_vec());
            rest = more;
        }
        let fits = *count <= limit::LEFT_RUNNING
            && names.len() <= NAMES_MAX
            && names.len() <= usize::from(*count)
            && names.iter().all(|name| name.len() <= NAME_MAX);
        (fits && rest.is_empty()).then_some(Self {
            count: *count,
            names,
        })
    }
}

/// The file name of a process's first argument, which says more than the kernel's name of an interpreter's thread.
fn name(pid: i32) -> Vec<u8> {
    let first = first_argument(pid).unwrap_or_default();
    let name = first.rsplit(|byte| *byte == b'/').next();
    let mut name = name.filter(|name| !name.is_empty()).map_or_else(
        || std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default(),
        <[u8]>::to_vec,
    );
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    name.truncate(NAME_MAX);
    name
}

fn first_argument(pid: i32) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    file.take(libc::PATH_MAX as u64)
        .read_to_end(&mut bytes)
        .ok()?;
    bytes.split(|byte| *byte == 0).next().map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_read_back_and_nothing_else_does() {
        let none = Leftover::default();
        let full = Leftover {
            count: limit::LEFT_RUNNING,
            names: vec![vec![b'x'; NAME_MAX]; NAMES_MAX],
        };
        for leftover in [none, full.clone()] {
            let bytes = leftover.encode();
            assert!(bytes.len() <= LEFTOVER_MAX);
            assert_eq!(Leftover::decode(&bytes), Some(leftover));
            assert_eq!(Leftover::decode(&[&*bytes, b"x"].concat()), None);
            assert_eq!(Leftover::decode(&bytes[..bytes.len() - 1]), None);
        }
        let long = Leftover {
            names: vec![vec![b'x'; NAME_MAX + 1]],
            ..full.clone()
        };
        let many = Leftover {
            names: vec![Vec::new(); NAMES_MAX + 1],
            ..full
        };
        assert_eq!(Leftover::decode(&long.encode()), None);
        assert_eq!(Leftover::decode(&many.encode()), None);
        assert_eq!(Leftover::decode(&[0, 1, 0]), None);
    }
}
