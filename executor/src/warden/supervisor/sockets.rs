//! Binds and connects the caller's sockets: those of TCP on a loopback of the cell's own (`loopback.rs`), and Unix sockets
//! by paths inside the zones and the scratch space only.
//!
//! Abstract names have no owner and are the whole machine's: they are refused.

use super::call::Call;
use super::find::by_descriptor;
use super::tcp::family;
use super::waiting::Waiting;
use super::{Answer, Result, rules, with_mask};
use nix::errno::Errno;
use nix::sys::socket::{UnixAddr, bind};
use nix::unistd::{chdir, fchdir};
use std::os::fd::AsRawFd;

impl Call<'_> {
    /// `connect`.
    pub fn connect(&self, socket: i32, address: u64, length: u64) -> Result<Answer> {
        let address = self.socket_address(address, length)?;
        if is_internet(&address) {
            return self.connect_tcp(socket, &address);
        }
        let path = socket_path(&address)?;
        let object = self.search().find(libc::AT_FDCWD, path, true)?.object.ok_or(Errno::ENOENT)?;
        if self.rules.area(&rules::real(&object)?).is_none() {
            return Err(Errno::EACCES);
        }
        let address = UnixAddr::new(by_descriptor(&object).as_str())?;
        let socket = self.caller.descriptor(socket)?;
        self.check()?;
        Waiting::connect(socket, object, address)
    }

    /// `bind`.
    pub fn bind(&self, socket: i32, address: u64, length: u64) -> Result<Answer> {
        let address = self.socket_address(address, length)?;
        if is_internet(&address) {
            return self.bind_tcp(socket, &address);
        }
        let found = self.search().find(libc::AT_FDCWD, socket_path(&address)?, false)?;
        if found.object.is_some() {
            return Err(Errno::EADDRINUSE);
        }
        let _turn = self.rules.turn()?;
        let real = found.real()?;
        self.rules.may_have(&real, libc::S_IFSOCK)?;
        self.rules.area(&real).ok_or(Errno::EACCES)?;
        let address = UnixAddr::new(&found.last())?;
        let socket = self.caller.descriptor(socket)?;
        self.check()?;
        // An address is too short for the path of every directory.
        fchdir(&found.parent)?;
        let bound = with_mask(self.caller.mask()?, || bind(socket.as_raw_fd(), &address));
        chdir("/")?;
        bound.map(|()| Answer::Value(0))
    }

    /// An address of the caller, read once.
    fn socket_address(&self, address: u64, length: u64) -> Result<Vec<u8>> {
        let most = size_of::<libc::sockaddr_storage>();
        // A length is 32 bits to the kernel.
        let length =
            usize::try_from(length as i32).ok().filter(|length| *length <= most).ok_or(Errno::EINVAL)?;
        let bytes = self.caller.bytes(address, length)?;
        self.check()?;
        if bytes.len() < length { Err(Errno::EFAULT) } else { Ok(bytes) }
    }
}

fn is_internet(address: &[u8]) -> bool {
    matches!(family(address), Some(libc::AF_INET | libc::AF_INET6))
}

fn socket_path(address: &[u8]) -> Result<&[u8]> {
    match family(address).ok_or(Errno::EINVAL)? {
        libc::AF_UNIX if address.len() <= size_of::<libc::sockaddr_un>() => {}
        libc::AF_UNIX => return Err(Errno::EINVAL),
        _ => return Err(Errno::EAFNOSUPPORT),
    }
    let path = address[2..].split(|byte| *byte == 0).next().unwrap_or_default();
    if path.is_empty() { Err(Errno::EACCES) } else { Ok(path) }
}
