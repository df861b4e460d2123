//! The caller of a supervised call: its memory, descriptors and directories.

use crate::object::errno;
use executor_spec::caller_access::{CallerAccess, MemoryAccess, SocketAccess};
use executor_sys::peer;
use executor_sys::proc::{self, Stat};
use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, umask};
use policies::Access;
use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Flags for a path descriptor, through which nothing can be read or written.
pub(crate) const PATH_ONLY: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// The process that called last, held by a pidfd, so that a later process with its number is not taken for it.
#[derive(Default)]
pub(crate) struct KnownProcess(RefCell<Option<(i32, OwnedFd)>>);

impl KnownProcess {
    /// Copies a descriptor of the process whose first thread is `thread`. `None` if there is no such process or descriptor.
    fn descriptor(&self, thread: i32, fd: i32) -> Option<OwnedFd> {
        let mut known = self.0.borrow_mut();
        let last = known.as_ref().filter(|(number, _)| *number == thread);
        if let Some(copy) =
            last.and_then(|(_, process)| peer::descriptor_of(process.as_fd(), fd).ok())
        {
            return Some(copy);
        }
        *known = peer::process(thread).ok().map(|process| (thread, process));
        let (_, process) = known.as_ref()?;
        peer::descriptor_of(process.as_fd(), fd).ok()
    }
}

/// A thread that waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerThread {
    pub(crate) thread: i32,
    /// How to get at it.
    pub access: CallerAccess,
}

impl CallerThread {
    /// Reads up to `length` bytes at `address`; fewer if its memory ends.
    pub(crate) fn bytes(&self, address: u64, length: usize) -> Result<Vec<u8>> {
        if address == 0 {
            return Err(Errno::EFAULT);
        }
        let mut bytes = vec![0; length];
        let read = match self.access.memory {
            // Not through `/proc`: the first file opened there for a process costs more than all the rest of a call.
            MemoryAccess::Calls => peer::read_memory(self.thread, address, &mut bytes),
            MemoryAccess::File => {
                memory(self.thread, Access::Read).and_then(|file| file.read_at(&mut bytes, address))
            }
        };
        bytes.truncate(read.map_err(fault)?);
        Ok(bytes)
    }

    /// Writes all of `bytes` at `address`.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let written = match self.access.memory {
            MemoryAccess::Calls => peer::write_memory(self.thread, address, bytes),
            MemoryAccess::File => {
                memory(self.thread, Access::Write).and_then(|file| file.write_at(bytes, address))
            }
        };
        match written.map_err(fault)? {
            written if written == bytes.len() => Ok(()),
            _ => Err(Errno::EFAULT),
        }
    }

    /// Reads exactly `N` 64-bit numbers at `address`.
    pub(crate) fn numbers<const N: usize>(&self, address: u64) -> Result<[i64; N]> {
        let bytes = self.bytes(address, N * 8)?;
        let mut numbers = [0; N];
        let mut chunks = bytes.chunks_exact(8);
        for number in &mut numbers {
            let chunk = chunks
                .next()
                .and_then(<[u8]>::first_chunk)
                .ok_or(Errno::EFAULT)?;
            *number = i64::from_le_bytes(*chunk);
        }
        Ok(numbers)
    }

    /// The C string at `address`, shorter than `PATH_MAX`.
    pub(crate) fn string(&self, address: u64) -> Result<CString> {
        const MAX: usize = libc::PATH_MAX as usize;
        // Most paths are short.
        for length in [256, MAX] {
            let mut bytes = self.bytes(address, length)?;
            if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
                bytes.truncate(end);
                return CString::new(bytes).map_err(|_| Errno::EINVAL);
            }
            if bytes.len() < length {
                return Err(Errno::EFAULT);
            }
        }
        Err(Errno::ENAMETOOLONG)
    }

    /// The file behind its descriptor `fd`, or its working directory, as a path descriptor.
    pub(crate) fn path_of(&self, fd: i32) -> Result<OwnedFd> {
        let link = match fd {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.thread),
            fd => format!("/proc/{}/fd/{fd}", self.thread),
        };
        open(link.as_str(), PATH_ONLY, Mode::empty()).map_err(|errno| match errno {
            Errno::ENOENT => Errno::EBADF,
            errno => errno,
        })
    }

    /// The directory to which its relative paths refer: the one behind its descriptor `fd`, or its working directory.
    pub(crate) fn directory(&self, fd: i32, known: &KnownProcess) -> Result<OwnedFd> {
        let may_take = fd >= 0 && self.access.sockets == SocketAccess::Taken;
        let copied = Some(fd)
            .filter(|_| may_take)
            .and_then(|fd| known.descriptor(self.thread, fd));
        copied.map_or_else(|| self.path_of(fd), Ok)
    }

    /// A copy of its descriptor.
    pub(crate) fn descriptor(&self, fd: i32) -> Result<OwnedFd> {
        match peer::descriptor(self.thread, fd).map_err(errno) {
            // Not the first thread of its process (`EINVAL`, `ENOENT` on later kernels). The
            // process is read only then: `status` costs more than all the rest of a call.
            Err(Errno::EINVAL | Errno::ENOENT) => {
                peer::descriptor(self.process()?, fd).map_err(errno)
            }
            answer => answer,
        }
    }

    pub(crate) fn process(&self) -> Result<i32> {
        proc::figure(self.thread, "status", "Tgid")
            .map(|number| number as i32)
            .ok_or(Errno::ESRCH)
    }

    /// Runs `make` with its file mode mask.
    pub(crate) fn with_mask<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mask = proc::line(format!("/proc/{}/status", self.thread), "Umask");
        let mask = mask
            .and_then(|text| libc::mode_t::from_str_radix(&text, 8).ok())
            .ok_or(Errno::ESRCH)?;
        let before = umask(Mode::from_bits_truncate(mask));
        let made = make();
        umask(before);
        made
    }

    /// Its controlling terminal, if one of its first three descriptors is that, the terminal is the
    /// cell's own, or `made` knows its device.
    pub(crate) fn terminal(
        &self,
        made: impl Fn(libc::dev_t) -> Option<OwnedFd>,
    ) -> Result<OwnedFd> {
        let number = Stat::of(self.thread).map_err(|_| Errno::ESRCH)?.terminal;
        if number == 0 {
            return Err(Errno::ENXIO);
        }
        let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xfff00);
        let is_it = |fd: &OwnedFd| {
            nix::sys::stat::fstat(fd.as_fd()).is_ok_and(|stat| {
                stat.st_mode & libc::S_IFMT == libc::S_IFCHR
                    && (
                        u64::from(libc::major(stat.st_rdev)),
                        u64::from(libc::minor(stat.st_rdev)),
                    ) == (major, minor)
            })
        };
        let own = (0..3).filter_map(|fd| self.descriptor(fd).ok()).find(is_it);
        // Works in a cell with its own terminals; elsewhere the name is invisible, or another terminal's.
        let by_name = || {
            let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
            open(format!("/dev/pts/{minor}").as_str(), flags, Mode::empty())
                .ok()
                .filter(is_it)
        };
        let by_device = || made(libc::makedev(major as u32, minor as u32));
        own.or_else(by_name).or_else(by_device).ok_or(Errno::ENXIO)
    }
}

/// The memory of the process of `thread`, which must be this one's descendant. The kernel decides on that as it does for
/// `process_vm_readv`.
pub(crate) fn memory(thread: i32, access: Access) -> io::Result<File> {
    File::options()
        .read(true)
        .write(access == Access::Write)
        .open(format!("/proc/{thread}/mem"))
}

/// The error of a call whose memory cannot be read. By its file, the kernel reports an address that is not mapped as `EIO`.
fn fault(error: io::Error) -> Errno {
    match errno(error) {
        Errno::EIO => Errno::EFAULT,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        if !peer::may_take_descriptors() {
            println!("a filter closes `pidfd_getfd` here: what it takes is not tested");
            return;
        }
        let mut child = Command::new("sleep")
            .arg("60")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let (number, known) = (child.id() as i32, KnownProcess::default());
        assert!(known.descriptor(number, 0).is_some() && known.descriptor(number, 99).is_none());
        let process = peer::process(number).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(known.descriptor(number, 0).is_none());
        // Simulates that this process has received the number.
        let own = std::process::id() as i32;
        *known.0.borrow_mut() = Some((own, process));
        let file = std::fs::File::open("/proc/self/cmdline").unwrap();
        assert!(
            known
                .descriptor(own, std::os::fd::AsRawFd::as_raw_fd(&file))
                .is_some()
        );
    }
}
