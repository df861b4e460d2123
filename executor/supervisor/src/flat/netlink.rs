//! Requests for interfaces by netlink in the flat tier (`getifaddrs`, `if_nameindex`): answered like those by `ioctl`
//! (`interfaces.rs`), with the loopback alone.
//!
//! In place of a socket of netlink a program gets one end of a pair of Unix sockets. Nothing can be sent by it: a request that names
//! the kernel as its receiver is taken from the caller's memory, and the answer is in the socket before the call returns. Any other
//! way of sending ends with `EPIPE`, so that no program waits for an answer.

use crate::answer::SyscallAnswer;
use crate::flat::interfaces::{ADDRESS, INDEX, LOOPBACK, MTU, NAME, QUEUE};
use crate::object::errno;
use crate::supervised_call::SupervisedCall;
use crate::tcp::inode;
use executor_spec::host_pool;
use executor_sys::notify::OnExec;
use executor_sys::{random, socket};
use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, send, shutdown, socketpair,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};

/// Maximum number of bytes of a request. The longest that is answered has 32.
const REQUEST_MAX: u64 = 256;
/// `sizeof(struct nlmsghdr)` and of `struct sockaddr_nl`.
const HEADER_LEN: usize = 16;
const NAME_LEN: usize = 12;

impl SupervisedCall<'_> {
    /// `socket` of `NETLINK_ROUTE`.
    pub(crate) fn make_netlink(&self, kind: i32) -> Result<SyscallAnswer> {
        let flags =
            SockFlag::SOCK_CLOEXEC | SockFlag::from_bits_truncate(kind & libc::SOCK_NONBLOCK);
        let (theirs, ours) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        shutdown(ours.as_raw_fd(), Shutdown::Read)?;
        // Programs look at the sender's name as one of netlink, in which zeros are the kernel.
        let unique = random::bytes::<16>().map_err(errno)?;
        let name = [
            &(libc::AF_UNIX as u16).to_ne_bytes()[..],
            &[0; NAME_LEN - 2],
            &unique,
        ];
        socket::bind(ours.as_fd(), &name.concat()).map_err(errno)?;
        self.netlink.borrow_mut().add(inode(&theirs)?, ours)?;
        Ok(SyscallAnswer::Descriptor(
            theirs,
            OnExec::close_if(kind & libc::SOCK_CLOEXEC != 0),
        ))
    }

    /// `sendto` with the address of a socket of netlink.
    pub(crate) fn send_netlink(&self, fd: i32, request: u64, length: u64) -> Result<SyscallAnswer> {
        let netlink = self.netlink.borrow();
        let other = netlink.other_end(inode(&self.caller.path_of(fd)?)?);
        let other = other.ok_or(Errno::EINVAL)?;
        if length > REQUEST_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let request = self.caller.bytes(request, length as usize)?;
        let process = self.caller.process()?;
        self.check()?;
        let more = (!self.rules.hosts.is_empty()).then_some(host_pool::OWN);
        for answer in answers(&request, process, more).ok_or(Errno::EINVAL)? {
            send(other.as_raw_fd(), &answer, MsgFlags::MSG_DONTWAIT).map_err(|_| Errno::ENOBUFS)?;
        }
        Ok(SyscallAnswer::Value(length as i64))
    }

    /// The name of a socket that stands in for one of netlink: its owner's process.
    pub(crate) fn netlink_name(&self, fd: i32) -> Option<Vec<u8>> {
        let netlink = self.netlink.borrow();
        if netlink.is_empty() {
            return None;
        }
        netlink.other_end(inode(&self.caller.path_of(fd).ok()?).ok()?)?;
        let process = self.caller.process().ok()?;
        let family = (libc::AF_NETLINK as u16).to_ne_bytes();
        Some([&family[..], &[0; 2], &process.to_ne_bytes(), &[0; 4]].concat())
    }
}

/// The messages that the kernel would send where the loopback has this address besides its own; `None` if this is no request.
fn answers(request: &[u8], process: i32, more: Option<Ipv4Addr>) -> Option<Vec<Vec<u8>>> {
    let (header, body) = request.split_first_chunk::<HEADER_LEN>()?;
    let [_, _, _, _, a, b, c, d, sequence @ ..] = header;
    let (asked, flags) = (u16::from_ne_bytes([*a, *b]), u16::from_ne_bytes([*c, *d]));
    let sequence = *sequence.first_chunk::<4>()?;
    let family = i32::from(*body.first()?);
    let message = |kind: u16, flags: i32, body: &[u8]| {
        let length = (HEADER_LEN + body.len()) as u32;
        let flags = flags as u16;
        [
            &length.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &sequence,
            &process.to_ne_bytes(),
            body,
        ]
        .concat()
    };
    let is_dump = i32::from(flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
    let found: Vec<Vec<u8>> = match asked {
        libc::RTM_GETLINK if is_dump => {
            vec![message(libc::RTM_NEWLINK, libc::NLM_F_MULTI, &link())]
        }
        libc::RTM_GETADDR if is_dump => addresses(more)
            .into_iter()
            .filter(|(of, _)| [libc::AF_UNSPEC, *of].contains(&family))
            .map(|(_, body)| message(libc::RTM_NEWADDR, libc::NLM_F_MULTI, &body))
            .collect(),
        _ => {
            let refused = (-libc::EOPNOTSUPP).to_ne_bytes();
            let body = [&refused[..], header].concat();
            return Some(vec![message(libc::NLMSG_ERROR as u16, 0, &body)]);
        }
    };
    let done = message(
        libc::NLMSG_DONE as u16,
        libc::NLM_F_MULTI,
        &0_i32.to_ne_bytes(),
    );
    Some(found.into_iter().chain([done]).collect())
}

/// `struct ifinfomsg` of the loopback, with its attributes.
fn link() -> Vec<u8> {
    const FLAGS: i32 = libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING | libc::IFF_LOWER_UP;
    [
        vec![0; 2],
        LOOPBACK.to_ne_bytes().to_vec(),
        INDEX.to_ne_bytes().to_vec(),
        FLAGS.to_ne_bytes().to_vec(),
        vec![0; 4],
        attribute(libc::IFLA_IFNAME, &[NAME, &[0]].concat()),
        attribute(libc::IFLA_TXQLEN, &QUEUE.to_ne_bytes()),
        attribute(libc::IFLA_MTU, &MTU.to_ne_bytes()),
        attribute(libc::IFLA_ADDRESS, &[0; 6]),
        attribute(libc::IFLA_BROADCAST, &[0; 6]),
    ]
    .concat()
}

/// `struct ifaddrmsg` of its addresses, with their attributes; each with its family.
fn addresses(more: Option<Ipv4Addr>) -> Vec<(i32, Vec<u8>)> {
    const PERMANENT: u8 = libc::IFA_F_PERMANENT as u8;
    let header = |family: i32, length: u8| {
        let start = [family as u8, length, PERMANENT, libc::RT_SCOPE_HOST];
        [&start[..], &INDEX.to_ne_bytes()].concat()
    };
    let four = |address: [u8; 4], length| {
        let parts = [
            header(libc::AF_INET, length),
            attribute(libc::IFA_ADDRESS, &address),
            attribute(libc::IFA_LOCAL, &address),
            attribute(libc::IFA_LABEL, &[NAME, &[0]].concat()),
        ];
        (libc::AF_INET, parts.concat())
    };
    let six = [
        header(libc::AF_INET6, 128),
        attribute(libc::IFA_ADDRESS, &Ipv6Addr::LOCALHOST.octets()),
    ];
    let more = more.map(|address| four(address.octets(), 32));
    [four(ADDRESS, 8)]
        .into_iter()
        .chain(more)
        .chain([(libc::AF_INET6, six.concat())])
        .collect()
}

/// `struct rtattr`, padded.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    const HEADER: usize = 4;
    let length = (HEADER + value.len()) as u16;
    let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(HEADER), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(kind: u16, flags: i32, family: u8) -> Vec<u8> {
        let flags = (flags as u16).to_ne_bytes();
        [
            &20_u32.to_ne_bytes()[..],
            &kind.to_ne_bytes(),
            &flags,
            &[1, 2, 3, 4],
            &[0; 4],
            &[family, 0, 0, 0],
        ]
        .concat()
    }

    fn kinds(request: &[u8]) -> Vec<u16> {
        let all = answers(request, 77, None).unwrap();
        for answer in &all {
            let length = u32::from_ne_bytes(*answer.first_chunk().unwrap()) as usize;
            assert!(
                length == answer.len() && length.is_multiple_of(4),
                "{answer:?}"
            );
            assert_eq!(
                (&answer[8..12], &answer[12..16]),
                (&[1, 2, 3, 4][..], &77_i32.to_ne_bytes()[..])
            );
        }
        all.iter()
            .map(|answer| u16::from_ne_bytes([answer[4], answer[5]]))
            .collect()
    }

    #[test]
    fn dumps_of_links_and_addresses_are_answered_and_nothing_else() {
        let dump = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
        assert_eq!(kinds(&request(libc::RTM_GETLINK, dump, 0)), [16, 3]);
        assert_eq!(kinds(&request(libc::RTM_GETADDR, dump, 0)), [20, 20, 3]);
        assert_eq!(kinds(&request(libc::RTM_GETADDR, dump, 10)), [20, 3]);
        let more = answers(
            &request(libc::RTM_GETADDR, dump, 2),
            77,
            Some(host_pool::OWN),
        );
        let more = more.unwrap();
        assert!(more.len() == 3 && more[1].windows(4).any(|part| part == [198, 18, 0, 1]));
        assert_eq!(kinds(&request(libc::RTM_GETADDR, dump, 40)), [3]);
        for (kind, flags) in [
            (libc::RTM_GETLINK, 1),
            (libc::RTM_GETROUTE, dump),
            (libc::RTM_NEWLINK, dump),
            (0, dump),
        ] {
            assert_eq!(kinds(&request(kind, flags, 0)), [2], "{kind}");
        }
        for length in 0..17 {
            assert_eq!(
                answers(&request(libc::RTM_GETLINK, dump, 0)[..length], 77, None),
                None,
                "{length}"
            );
        }
    }
}
