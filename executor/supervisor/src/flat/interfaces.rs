//! Interfaces of the network in the flat tier: a cell sees those of a network of its own, which are the loopback alone.
//!
//! Programs ask for them by `ioctl` on a socket of UDP, which they only need as a descriptor (`NetworkInterface` of Java,
//! `if_nametoindex`). In place of that socket they get a Unix stream, which they could make themselves: it has no address of the
//! network, sends to none and receives from none. The requests are answered here. So nothing of the machine is seen, and neither this
//! process nor a program has a socket of UDP: to the kernel these calls have no other answer (`answered.json`), and this process gets
//! `ENOSYS`.

use crate::answer::SyscallAnswer;
use crate::object::{errno, is};
use crate::supervised_call::SupervisedCall;
use executor_sys::notify::OnExec;
use executor_sys::socket;
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::fstat;

/// The one interface: its name, and its index on every machine.
pub(crate) const NAME: &[u8] = b"lo";
pub(crate) const INDEX: i32 = 1;
pub(crate) const MTU: i32 = 65_536;
pub(crate) const QUEUE: i32 = 1_000;
pub(crate) const ADDRESS: [u8; 4] = [127, 0, 0, 1];
const MASK: [u8; 4] = [255, 0, 0, 0];

/// `sizeof(struct ifreq)` and of the name at its beginning.
const REQUEST_LEN: usize = 40;
const NAME_LEN: usize = libc::IFNAMSIZ;
/// `ARPHRD_LOOPBACK`.
pub(crate) const LOOPBACK: u16 = 772;

/// Whether a socket of this family and kind is one of UDP.
pub(crate) fn is_datagram(family: i32, kind: i32) -> bool {
    /// `SOCK_TYPE_MASK` of the kernel.
    const KIND: i32 = 0xf;
    matches!(family, libc::AF_INET | libc::AF_INET6) && kind & KIND == libc::SOCK_DGRAM
}

impl SupervisedCall<'_> {
    /// `socket` of UDP: a socket that can send nothing.
    pub(crate) fn make_stand_in(&self, kind: i32) -> Result<SyscallAnswer> {
        let kind = libc::SOCK_STREAM | kind & libc::SOCK_NONBLOCK | kind & libc::SOCK_CLOEXEC;
        let made = socket::make(libc::AF_UNIX, kind, 0).map_err(errno)?;
        Ok(SyscallAnswer::Descriptor(
            made,
            OnExec::close_if(kind & libc::SOCK_CLOEXEC != 0),
        ))
    }

    /// `ioctl` of a socket that asks for interfaces.
    pub(crate) fn interfaces(&self, fd: i32, request: u32, at: u64) -> Result<SyscallAnswer> {
        if !is(&fstat(&self.caller.path_of(fd)?)?, libc::S_IFSOCK) {
            return Err(Errno::ENOTTY);
        }
        let request = libc::c_ulong::from(request);
        if request == libc::SIOCGIFCONF {
            return self.list_interfaces(at);
        }
        let asked = self.caller.bytes(at, REQUEST_LEN)?;
        self.check()?;
        let asked: [u8; REQUEST_LEN] = asked.try_into().map_err(|_| Errno::EFAULT)?;
        self.caller.write(at, &answer(request, asked)?)?;
        Ok(SyscallAnswer::Value(0))
    }

    /// `SIOCGIFCONF`: as much of the list as there is room for, or without a buffer its length.
    fn list_interfaces(&self, at: u64) -> Result<SyscallAnswer> {
        let list = self.caller.bytes(at, 16)?;
        self.check()?;
        let (room, buffer) = list.split_first_chunk::<4>().ok_or(Errno::EFAULT)?;
        let buffer: &[u8; 8] = buffer.last_chunk().ok_or(Errno::EFAULT)?;
        let (room, buffer) = (i32::from_ne_bytes(*room), u64::from_ne_bytes(*buffer));
        let fits = usize::try_from(room).is_ok_and(|room| room >= REQUEST_LEN);
        if buffer != 0 && fits {
            self.caller.write(buffer, &with_address(ADDRESS))?;
        }
        let length = if buffer == 0 || fits { REQUEST_LEN } else { 0 };
        self.caller.write(at, &(length as u32).to_ne_bytes())?;
        Ok(SyscallAnswer::Value(0))
    }
}

/// The kernel's answer over a request, with the loopback as the only interface.
fn answer(request: libc::c_ulong, asked: [u8; REQUEST_LEN]) -> Result<[u8; REQUEST_LEN]> {
    let number = |number: i32| with(&number.to_ne_bytes());
    if request == libc::SIOCGIFNAME {
        let index = asked[NAME_LEN..]
            .first_chunk()
            .map(|bytes| i32::from_ne_bytes(*bytes));
        let is_it = index == Some(INDEX);
        return if is_it {
            Ok(number(INDEX))
        } else {
            Err(Errno::ENODEV)
        };
    }
    let name = asked[..NAME_LEN].split(|byte| *byte == 0).next();
    if name != Some(NAME) {
        return Err(Errno::ENODEV);
    }
    const FLAGS: i32 = libc::IFF_UP | libc::IFF_LOOPBACK | libc::IFF_RUNNING;
    match request {
        libc::SIOCGIFFLAGS => Ok(with(&(FLAGS as u16).to_ne_bytes())),
        libc::SIOCGIFADDR | libc::SIOCGIFDSTADDR => Ok(with_address(ADDRESS)),
        libc::SIOCGIFBRDADDR => Ok(with_address([0; 4])),
        libc::SIOCGIFNETMASK => Ok(with_address(MASK)),
        libc::SIOCGIFMTU => Ok(number(MTU)),
        libc::SIOCGIFHWADDR => Ok(with(&LOOPBACK.to_ne_bytes())),
        libc::SIOCGIFINDEX => Ok(number(INDEX)),
        libc::SIOCGIFTXQLEN => Ok(number(QUEUE)),
        // The filter passes none on.
        _ => Err(Errno::EPERM),
    }
}

/// `struct ifreq` of the interface with these bytes after its name.
fn with(value: &[u8]) -> [u8; REQUEST_LEN] {
    let mut request = [0; REQUEST_LEN];
    request[..NAME.len()].copy_from_slice(NAME);
    request[NAME_LEN..NAME_LEN + value.len()].copy_from_slice(value);
    request
}

fn with_address(address: [u8; 4]) -> [u8; REQUEST_LEN] {
    let family = (libc::AF_INET as u16).to_ne_bytes();
    with(&[&family[..], &[0, 0], &address].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_loopback_is_described() {
        let asked = |name: &[u8]| {
            let mut asked = [7; REQUEST_LEN];
            asked[..name.len()].copy_from_slice(name);
            asked
        };
        let mtu = answer(libc::SIOCGIFMTU, asked(b"lo\0")).unwrap();
        assert_eq!(mtu[NAME_LEN..NAME_LEN + 4], 65_536_i32.to_ne_bytes());
        for name in [&b"eth0\0"[..], b"lo", b"\0", b"lo:1\0"] {
            assert_eq!(answer(libc::SIOCGIFMTU, asked(name)), Err(Errno::ENODEV));
        }
        // One that sets something has no answer.
        assert_eq!(answer(0x8914, asked(b"lo\0")), Err(Errno::EPERM));
        for (index, name) in [(1, Ok(&b"lo\0"[..])), (2, Err(Errno::ENODEV))] {
            let mut asked = [0; REQUEST_LEN];
            asked[NAME_LEN..NAME_LEN + 4].copy_from_slice(&i32::to_ne_bytes(index));
            let named = answer(libc::SIOCGIFNAME, asked);
            assert_eq!(
                named.as_ref().map(|named| &named[..3]),
                name.as_ref().map(|name| *name)
            );
        }
    }

    #[test]
    fn only_udp_has_a_stand_in() {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        assert!(is_datagram(libc::AF_INET, libc::SOCK_DGRAM | flags));
        assert!(is_datagram(libc::AF_INET6, libc::SOCK_DGRAM));
        assert!(
            !is_datagram(libc::AF_INET, libc::SOCK_STREAM)
                && !is_datagram(libc::AF_INET, libc::SOCK_RAW)
        );
        assert!(
            !is_datagram(libc::AF_UNIX, libc::SOCK_DGRAM)
                && !is_datagram(libc::AF_NETLINK, libc::SOCK_DGRAM)
        );
    }
}
