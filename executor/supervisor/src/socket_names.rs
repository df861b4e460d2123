//! The names of Unix sockets: they are bound by their last component, as an address is too short
//! for the path of every directory, and report the path that their program requested.

use std::collections::VecDeque;

/// Maximum number of sockets remembered; beyond it, the oldest report only their last component.
const NAMES_MAX: usize = 1024;

/// Addresses of the sockets that a cell's programs have bound.
#[derive(Default)]
pub(crate) struct SocketNames(VecDeque<NamedSocket>);

struct NamedSocket {
    /// Inode of the socket, not of its file.
    inode: u64,
    /// The address that the kernel has.
    bound: Vec<u8>,
    /// The address that its program passed, including the terminating zero.
    asked: Vec<u8>,
}

impl SocketNames {
    /// Remembers a socket that was just bound.
    pub(crate) fn add(&mut self, inode: u64, bound: Vec<u8>, asked: Vec<u8>) {
        self.0.retain(|name| name.inode != inode);
        if self.0.len() >= NAMES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(NamedSocket {
            inode,
            bound,
            asked,
        });
    }

    /// The address to report to a program, given the kernel's. An accepted socket has its listener's address,
    /// and its peer sees that too: such addresses are recognised only if no two end in the same name.
    pub(crate) fn asked(&self, inode: u64, kernel: Vec<u8>) -> Vec<u8> {
        let mut same = self.0.iter().filter(|name| name.bound == kernel);
        let own = same.clone().find(|name| name.inode == inode);
        let only = same
            .next()
            .filter(|first| same.all(|name| name.asked == first.asked));
        own.or(only).map_or(kernel, |name| name.asked.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[(u64, &str, &str)]) -> SocketNames {
        let mut names = SocketNames::default();
        of.iter()
            .for_each(|(inode, bound, asked)| names.add(*inode, (*bound).into(), (*asked).into()));
        names
    }

    #[test]
    fn a_socket_says_what_was_asked_and_no_other_does() {
        let names = names(&[(1, "s", "/a/s"), (2, "s", "/b/s"), (3, "t", "/c/t")]);
        for (inode, kernel, said) in [
            (1, "s", "/a/s"),
            (2, "s", "/b/s"),
            (9, "s", "s"),
            (9, "t", "/c/t"),
            (1, "", ""),
            (3, "u", "u"),
        ] {
            assert_eq!(
                names.asked(inode, kernel.into()),
                said.as_bytes(),
                "{inode} {kernel}"
            );
        }
    }

    #[test]
    fn a_number_that_is_used_again_is_the_new_sockets() {
        assert_eq!(
            names(&[(1, "s", "/a/s"), (1, "s", "/b/s")]).asked(1, "s".into()),
            b"/b/s"
        );
    }

    #[test]
    fn no_more_are_remembered_than_its_bound() {
        let mut names = SocketNames::default();
        for inode in 0..=NAMES_MAX as u64 {
            names.add(inode, format!("{inode}").into(), b"asked".to_vec());
        }
        assert_eq!(
            (names.0.len(), names.asked(0, b"0".to_vec())),
            (NAMES_MAX, b"0".to_vec())
        );
    }
}
