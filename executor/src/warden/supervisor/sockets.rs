//! Binds and connects the caller's Unix sockets, by paths inside the zones and the scratch space only.
//!
//! Abstract names have no owner and are the whole machine's: they are refused.

use super::call::Call;
use super::find::by_descriptor;
use super::waiting::Waiting;
use super::{Answer, Result, rules, with_mask};
use nix::errno::Errno;
use nix::sys::socket::{UnixAddr, bind};
use nix::unistd::{chdir, fchdir};
use std::os::fd::AsRawFd;

impl Call<'_> {
    /// `connect`.
    pub fn connect(&self, socket: i32, address: u64, length: u64) -> Result<Answer> {
        let path = self.socket_path(address, length)?;
        let object = self.search().find(libc::AT_FDCWD, &path, true)?.object.ok_or(Errno::ENOENT)?;
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
        let path = self.socket_path(address, length)?;
        let found = self.search().find(libc::AT_FDCWD, &path, false)?;
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

    fn socket_path(&self, address: u64, length: u64) -> Result<Vec<u8>> {
        let most = size_of::<libc::sockaddr_un>();
        let length = usize::try_from(length).ok().filter(|length| *length <= most).ok_or(Errno::EINVAL)?;
        let bytes = self.caller.bytes(address, length)?;
        self.check()?;
        let (family, path) = bytes.split_first_chunk().ok_or(Errno::EINVAL)?;
        if i32::from(u16::from_ne_bytes(*family)) != libc::AF_UNIX {
            return Err(Errno::EAFNOSUPPORT);
        }
        let path = path.split(|byte| *byte == 0).next().unwrap_or_default();
        if path.is_empty() { Err(Errno::EACCES) } else { Ok(path.to_vec()) }
    }
}
