//! Sockets and watchers that the supervisor makes for its callers, where it cannot take theirs.

use crate::answer::SyscallAnswer;
use crate::flat::interfaces::is_datagram;
use crate::kept_sockets::{CallersSocket, WATCHERS_MAX, Watcher, is_watcher};
use crate::object::{errno, is};
use crate::supervised_call::SupervisedCall;
use executor_spec::caller_access::SocketAccess;
use executor_sys::notify::OnExec;
use executor_sys::{file, proc, socket};
use nix::Result;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::fstat;
use std::os::fd::{AsFd, OwnedFd};

impl SupervisedCall<'_> {
    /// `socket`: of UDP and netlink in the flat tier, and of all kinds where copies are kept.
    pub(crate) fn make_socket(
        &self,
        family: i32,
        kind: i32,
        protocol: i32,
    ) -> Result<SyscallAnswer> {
        if is_datagram(family, kind) && !self.rules.has_own_network() {
            return self.make_stand_in(kind);
        }
        if family == libc::AF_NETLINK {
            return self.make_netlink(kind);
        }
        self.keeps()?;
        let made = socket::make(family, kind, protocol).map_err(errno)?;
        self.kept.borrow_mut().retain(&made)?;
        self.notified
            .give(
                made.as_fd(),
                OnExec::close_if(kind & libc::SOCK_CLOEXEC != 0),
            )
            .map(SyscallAnswer::Value)
    }

    /// `inotify_init1`, where copies are kept.
    pub(crate) fn make_watcher(&self, flags: i32) -> Result<SyscallAnswer> {
        self.keeps()?;
        let made = file::watcher(flags).map_err(errno)?;
        let mut kept = self.kept.borrow_mut();
        kept.watchers
            .retain(|one| is_watcher(one.process, one.number));
        if kept.watchers.len() >= WATCHERS_MAX {
            return Err(Errno::EMFILE);
        }
        let number = self.notified.give(
            made.as_fd(),
            OnExec::close_if(flags & libc::IN_CLOEXEC != 0),
        )?;
        kept.watchers.push(Watcher {
            process: self.caller.process()?,
            number: number as i32,
            copy: made,
        });
        Ok(SyscallAnswer::Value(number))
    }

    /// These calls are supervised only where copies are kept.
    fn keeps(&self) -> Result<()> {
        match self.caller.access.sockets {
            SocketAccess::Kept => Ok(()),
            SocketAccess::Taken => Err(Errno::EPERM),
        }
    }

    /// The socket behind a descriptor of the caller.
    pub(crate) fn socket(&self, fd: i32) -> Result<CallersSocket> {
        if self.caller.access.sockets == SocketAccess::Taken {
            return self.caller.descriptor(fd).map(CallersSocket::Copy);
        }
        if fd < 0 {
            return Err(Errno::EBADF);
        }
        let stat = fstat(&self.caller.path_of(fd)?)?;
        if !is(&stat, libc::S_IFSOCK) {
            return Err(Errno::ENOTSOCK);
        }
        let copy = self
            .kept
            .borrow()
            .sockets
            .get(&stat.st_ino)
            .map(OwnedFd::try_clone)
            .transpose();
        Ok(copy
            .map_err(errno)?
            .map_or(CallersSocket::Other(stat.st_ino), CallersSocket::Copy))
    }

    /// The socket behind a descriptor of the caller; `errno` if there is no copy of it.
    pub(crate) fn unconnected_socket(&self, fd: i32, errno: Errno) -> Result<OwnedFd> {
        match self.socket(fd)? {
            CallersSocket::Copy(socket) => Ok(socket),
            CallersSocket::Other(_) => Err(errno),
        }
    }

    /// The watcher behind a descriptor of the caller.
    pub(crate) fn watcher(&self, fd: i32) -> Result<OwnedFd> {
        if self.caller.access.sockets == SocketAccess::Taken {
            return self.caller.descriptor(fd);
        }
        let (process, kept) = (self.caller.process()?, self.kept.borrow());
        // A process that has inherited it has it under the same number.
        let own = kept
            .watchers
            .iter()
            .rev()
            .find(|one| (one.process, one.number) == (process, fd));
        let inherited = || kept.watchers.iter().rev().find(|one| one.number == fd);
        let copy = own
            .or_else(inherited)
            .filter(|_| is_watcher(process, fd))
            .ok_or(Errno::EINVAL)?;
        copy.copy.try_clone().map_err(errno)
    }

    /// Closes a connected socket of the caller, of which there is no copy to shut down: a socket takes its place that can neither
    /// receive nor send. The kernel may not make the call, as the number may be a listener's by then.
    pub(crate) fn shut_other(&self, fd: i32) -> Result<SyscallAnswer> {
        let (dead, _) = socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let flags = proc::line(format!("/proc/{}/fdinfo/{fd}", self.caller.thread), "flags");
        let flags = flags
            .and_then(|flags| i32::from_str_radix(&flags, 8).ok())
            .ok_or(Errno::EBADF)?;
        self.notified.replace(
            dead.as_fd(),
            fd,
            OnExec::close_if(flags & libc::O_CLOEXEC != 0),
        )?;
        Ok(SyscallAnswer::Value(0))
    }
}
