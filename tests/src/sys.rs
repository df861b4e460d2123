//! Every `unsafe` block of the test harness: thin, each with its reason.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};

/// Runs `action` when this process ends by returning from `main` or by `exit`.
pub fn at_exit(action: extern "C" fn()) {
    // SAFETY: `atexit` keeps a pointer to a function of this program, which exists as long as the process.
    unsafe { libc::atexit(action) };
}

/// A copy of this process, which must have one thread.
pub fn fork() -> nix::Result<nix::unistd::ForkResult> {
    // SAFETY: without other threads no lock is held that the copy could never take.
    unsafe { nix::unistd::fork() }
}

/// Has freed memory returned to the kernel at once. A test reads outputs of many megabytes, and every program that is started later
/// costs a copy of the tables of what this process still has.
pub fn return_freed_memory() {
    // SAFETY: `mallopt` takes two numbers, and no other thread runs yet.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 20);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
    }
}

/// Tells ext4 that the directories in this one have nothing to do with each other, as `chattr +T` does: they are spread over the
/// disk. Without a journal, ext4 looks at every inode freed nearby within the last minutes whenever it makes one, and a test run
/// frees thousands. Other file systems refuse; they do not need it.
pub fn spread_directories(folder: BorrowedFd<'_>) {
    const TOP_OF_HIERARCHIES: libc::c_int = 0x0002_0000; // `FS_TOPDIR_FL` of linux/fs.h
    let mut flags: libc::c_int = 0;
    // SAFETY: both requests take one `int`, which lives until the call returns.
    unsafe {
        if libc::ioctl(folder.as_raw_fd(), libc::FS_IOC_GETFLAGS, &mut flags) == 0 {
            flags |= TOP_OF_HIERARCHIES;
            libc::ioctl(folder.as_raw_fd(), libc::FS_IOC_SETFLAGS, &flags);
        }
    }
}

/// A descriptor of the process with this number, which becomes readable when the process ends.
pub fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain numbers.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Makes the command the leader of a new session whose controlling terminal is its standard input.
pub fn with_controlling_terminal(command: &mut Command) {
    let take_terminal = || {
        // SAFETY: `setsid` takes no argument and touches no memory of ours.
        if unsafe { libc::setsid() } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: TIOCSCTTY takes an integer argument; descriptor 0 is the terminal that the command was given.
        if unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and reads errno; it takes no lock and no memory.
    unsafe { command.pre_exec(take_terminal) };
}

/// Gives the command the default actions for hang-up, interrupt and quit, which it would ignore if this process does: under `nohup`, or in
/// a script's background. Only for commands that such a signal is to end: whoever ignores them wants all others to go on.
pub fn with_default_signals(command: &mut Command) {
    let hear = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: the default action is no function of ours.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes system calls and reads errno; it takes no lock and no memory.
    unsafe { command.pre_exec(hear) };
}

/// Sets the size of a terminal; the kernel notifies its foreground processes.
pub fn set_terminal_size(terminal: BorrowedFd<'_>, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: TIOCSWINSZ reads one `winsize`, which lives until the call returns.
    if unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets child processes inherit a descriptor, as a careless caller would.
pub fn let_inherit(descriptor: impl AsFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes a number.
    if unsafe { libc::fcntl(descriptor.as_fd().as_raw_fd(), libc::F_SETFD, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A System V shared memory segment that every user may read; removed with the value.
#[derive(Debug)]
pub struct SharedSegment {
    pub key: i32,
    id: i32,
}

/// Keys that no test uses again: what has just been removed must not be another test's meanwhile. Those of each process are its own,
/// as far as they go.
fn keys() -> impl Iterator<Item = i32> {
    static NEXT: AtomicI32 = AtomicI32::new(0);
    let own = i32::try_from(std::process::id() % 1_000_000).unwrap_or_default();
    std::iter::repeat_with(move || {
        1_000_000_000 + own * 1000 + NEXT.fetch_add(1, Ordering::Relaxed) % 1000
    })
    .take(100)
}

impl SharedSegment {
    /// Creates a segment of one page, with an unused key.
    pub fn make() -> io::Result<Self> {
        for key in keys() {
            // SAFETY: `shmget` takes plain numbers.
            let id = unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o666) };
            if id >= 0 {
                return Ok(Self { key, id });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }
}

impl Drop for SharedSegment {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID ignores its third argument.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A set of one System V semaphore, with the value 1, and a queue with one message, under the same key; removed with the value.
#[derive(Debug)]
pub struct IpcPair {
    pub key: i32,
    pub semaphores: i32,
    pub queue: i32,
}

impl IpcPair {
    /// Creates both with a key that neither uses, for every user.
    pub fn make() -> io::Result<Self> {
        const FLAGS: i32 = libc::IPC_CREAT | libc::IPC_EXCL | 0o666;
        for key in keys() {
            // SAFETY: both calls take plain numbers.
            let (semaphores, queue) =
                unsafe { (libc::semget(key, 1, FLAGS), libc::msgget(key, FLAGS)) };
            let error = io::Error::last_os_error();
            let made = Self {
                key,
                semaphores,
                queue,
            };
            if semaphores >= 0 && queue >= 0 {
                made.fill()?;
                return Ok(made);
            }
            drop(made);
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(error);
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }

    fn fill(&self) -> io::Result<()> {
        let message = [1_u64, u64::from_le_bytes(*b"original")];
        // SAFETY: SETVAL takes a number; the message lives for the call, and its eight bytes follow its type.
        let results = unsafe {
            [
                libc::semctl(self.semaphores, 0, libc::SETVAL, 1),
                libc::msgsnd(self.queue, message.as_ptr().cast(), 8, libc::IPC_NOWAIT),
            ]
        };
        if results == [0, 0] {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }
}

impl Drop for IpcPair {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID ignores what comes after it; a number below 0 is no object's.
        unsafe {
            libc::semctl(self.semaphores, 0, libc::IPC_RMID);
            libc::msgctl(self.queue, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
}

/// A connected pair that, to each end, appears to be made by user `uid` of group `gid`. Needs root if that is another user.
pub fn socket_pair_of(uid: u32, gid: u32) -> io::Result<(UnixStream, UnixStream)> {
    const SAME: libc::uid_t = u32::MAX;
    let made = std::thread::spawn(move || {
        // SAFETY: plain numbers. The bare system calls change this thread only, which ends below; the library's own
        // functions would change every thread.
        let changed = unsafe {
            libc::syscall(libc::SYS_setresgid, SAME, gid, SAME) == 0
                && libc::syscall(libc::SYS_setresuid, SAME, uid, SAME) == 0
        };
        if changed {
            UnixStream::pair()
        } else {
            Err(io::Error::last_os_error())
        }
    });
    made.join().unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread that makes a socket pair has panicked",
        ))
    })
}
