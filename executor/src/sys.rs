//! Every `unsafe` block of this crate but those of the self-attack (`attack/sys.rs`): system calls that nix does not wrap,
//! each as a thin function whose error is the kernel's. Nothing here decides anything.

use libc::{c_char, c_int, c_long, c_uint, c_void};
use nix::errno::Errno;
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors in one message.
pub const FDS_MAX: usize = 4;

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// What a fork returns.
pub enum Fork {
    /// In the new process.
    Child,
    /// In the old one.
    Parent(Child),
}

/// A child process, by its number and by a descriptor that cannot come to mean another process.
#[derive(Debug)]
pub struct Child {
    /// Its number in the caller's PID namespace.
    pub pid: i32,
    /// Its pidfd.
    pub pidfd: OwnedFd,
}

/// `fork` with `CLONE_NEW*` flags: the child is a copy of this process, which must have one thread.
pub fn fork(namespaces: c_int) -> io::Result<Fork> {
    let mut pidfd: c_int = -1;
    let flags = namespaces | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: without CLONE_VM the child has its own copy of all memory, as after fork(2); this program has one
    // thread, so no lock is held by a thread that the copy lacks. `pidfd` outlives the call.
    let pid = check(unsafe { clone_raw(flags as u64, &mut pidfd) })?;
    if pid == 0 {
        return Ok(Fork::Child);
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor that nobody else owns.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok(Fork::Parent(Child { pid: pid as i32, pidfd }))
}

#[cfg(target_arch = "x86_64")]
unsafe fn clone_raw(flags: u64, pidfd: &mut c_int) -> c_long {
    // SAFETY: the caller's; the argument order is that of x86_64 (`man 2 clone`, "C library/kernel differences").
    unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, pidfd as *mut c_int, 0usize, 0usize) }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn clone_raw(flags: u64, pidfd: &mut c_int) -> c_long {
    // SAFETY: the caller's; most architectures, arm64 among them, have `tls` before `child_tid`, both unused here.
    unsafe { libc::syscall(libc::SYS_clone, flags, 0usize, pidfd as *mut c_int, 0usize, 0usize) }
}

/// A program ready to be started by [`spawn`]: nothing is allocated between fork and exec.
pub struct Program<'a> {
    candidates: Vec<CString>,
    _arguments: Vec<CString>,
    argv: Vec<*const c_char>,
    _environment: Vec<Cow<'a, CStr>>,
    envp: Vec<*const c_char>,
    directory: CString,
}

impl<'a> Program<'a> {
    /// `candidates` are tried in order, as `execvp` does along `PATH`.
    pub fn new(
        candidates: Vec<CString>,
        arguments: Vec<CString>,
        environment: Vec<Cow<'a, CStr>>,
        directory: CString,
    ) -> Self {
        fn pointers<T: AsRef<CStr>>(texts: &[T]) -> Vec<*const c_char> {
            texts.iter().map(|text| text.as_ref().as_ptr()).chain([std::ptr::null()]).collect()
        }
        // The text of a CString lies on the heap, that of a borrowed one elsewhere: moving what holds it moves neither.
        let (argv, envp) = (pointers(&arguments), pointers(&environment));
        Self { candidates, _arguments: arguments, argv, _environment: environment, envp, directory }
    }
}

/// What a new process does between its start and its program.
pub struct Spawn<'a> {
    /// The program.
    pub program: &'a Program<'a>,
    /// Whether it ends just before its program would start.
    pub rehearsal: bool,
    /// Its descriptors 0, 1 and 2.
    pub stdio: [RawFd; 3],
    /// The first of the descriptors that are closed.
    pub closed: c_uint,
    /// Whether descriptor 0 becomes its controlling terminal.
    pub terminal: bool,
    /// Limits it sets on itself.
    pub limits: &'a [(c_uint, libc::rlimit)],
    /// A Landlock ruleset it confines itself with once more, so that it is below its parent's domain.
    pub ruleset: Option<RawFd>,
    /// The filter it puts on itself last, whose calls its parent answers.
    pub supervised: Option<Supervised<'a>>,
}

/// How a program is supervised.
pub struct Supervised<'a> {
    /// Traps the calls that are answered by whoever holds the listener.
    pub trapped: &'a [libc::sock_filter],
    /// Where the listener is sent.
    pub socket: BorrowedFd<'a>,
}

/// Shared with the child while the parent waits for it to start.
struct Start<'a> {
    spawn: &'a Spawn<'a>,
    error: c_int,
}

/// Starts a program as a child, in its own session, by `vfork` and `execve`; returns its process id.
///
/// # Errors
/// The error of the first step that failed in the child, among them that of `execve`.
pub fn spawn(spawn: &Spawn) -> io::Result<i32> {
    const STACK: usize = 64 * 1024;
    let mut stack = vec![0u128; STACK / 16];
    let mut start = Start { spawn, error: 0 };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs on its own stack, whose end is aligned to 16 bytes, and the parent is stopped until the
    // child has called execve or _exit (CLONE_VFORK), so `start` and all it points to outlive the child's use.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        libc::clone(child, top, flags, (&raw mut start).cast::<c_void>())
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    if start.error != 0 {
        // SAFETY: reaps the child that has just exited; the status is not wanted.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        return Err(io::Error::from_raw_os_error(start.error));
    }
    Ok(pid)
}

/// Starts our own code as a child, in a copy of this process, prepared as [`spawn`] prepares for a program.
///
/// # Errors
/// The fork's. A preparation that fails is the child's exit code 1.
pub fn spawn_own(spawn: &Spawn, work: impl FnOnce() -> io::Result<()>) -> io::Result<i32> {
    match fork(0)? {
        Fork::Parent(child) => Ok(child.pid),
        Fork::Child => {
            let done = prepare(spawn).map_err(io::Error::from_raw_os_error).and_then(|()| work());
            std::process::exit(i32::from(done.is_err()))
        }
    }
}

/// The child's side of [`spawn`]. It shares the parent's memory: it calls the kernel only, and allocates nothing.
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to its `Start` and waits.
    let start = unsafe { &mut *argument.cast::<Start>() };
    start.error = match prepare(start.spawn) {
        Err(errno) => errno,
        Ok(()) if start.spawn.rehearsal => 0,
        Ok(()) => exec(start.spawn.program),
    };
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

fn prepare(spawn: &Spawn) -> Result<(), c_int> {
    // SAFETY: system calls on values that live in the stopped parent. errno is the parent's, which is waiting.
    unsafe {
        let errno = || *libc::__errno_location();
        let ok = |result: c_int| if result < 0 { Err(errno()) } else { Ok(()) };
        if libc::setsid() < 0 {
            return Err(errno());
        }
        for (target, fd) in spawn.stdio.iter().enumerate() {
            ok(libc::dup2(*fd, target as c_int))?;
        }
        if spawn.terminal {
            ok(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
        }
        for (resource, limit) in spawn.limits {
            ok(libc::syscall(libc::SYS_prlimit64, 0, *resource, limit, 0usize) as c_int)?;
        }
        ok(libc::chdir(spawn.program.directory.as_ptr()))?;
        if let Some(ruleset) = spawn.ruleset {
            ok(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0) as c_int)?;
        }
        if let Some(supervised) = &spawn.supervised {
            supervise(supervised)?;
        }
        ok(libc::syscall(libc::SYS_close_range, spawn.closed, c_uint::MAX, 0) as c_int)?;
        reset_signals();
        Ok(())
    }
}

/// Puts the filter on, and sends the listener to the parent. In the child of [`spawn`]: calls the kernel only.
fn supervise(supervised: &Supervised) -> Result<(), c_int> {
    const SET_MODE_FILTER: c_uint = 1;
    // A call whose answer is under way is not begun again by a signal that does not kill (Linux 5.19).
    let steady = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let program = libc::sock_fprog {
        len: supervised.trapped.len() as u16,
        filter: supervised.trapped.as_ptr().cast_mut(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the kernel copies the instructions, which are statics, and keeps no pointer. errno is the stopped
        // parent's.
        unsafe {
            let fd = libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const program);
            if fd < 0 { Err(*libc::__errno_location()) } else { Ok(fd as RawFd) }
        }
    };
    let listener = install(steady).or_else(|errno| match errno {
        libc::EINVAL => install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
        errno => Err(errno),
    })?;
    send_descriptor(supervised.socket, listener)
}

/// Sends one descriptor without taking memory, as the child of [`spawn`] must.
fn send_descriptor(socket: BorrowedFd, fd: RawFd) -> Result<(), c_int> {
    let mut control = [0u64; 8];
    let mut byte = [0u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a msghdr of zeros is valid; every pointer in it lives for the call. The control buffer is aligned for
    // cmsghdr and has room for one descriptor. errno is the stopped parent's.
    unsafe {
        let mut header = std::mem::zeroed::<libc::msghdr>();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as c_uint) as _;
        let message = libc::CMSG_FIRSTHDR(&header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as c_uint) as _;
        libc::CMSG_DATA(message).cast::<RawFd>().write_unaligned(fd);
        let sent = libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL);
        if sent < 0 { Err(*libc::__errno_location()) } else { Ok(()) }
    }
}

/// Default dispositions and an empty mask: Rust ignores SIGPIPE, and this program blocks SIGCHLD.
fn reset_signals() {
    // SAFETY: plain system calls on local values. The dispositions are the child's own (no CLONE_SIGHAND).
    unsafe {
        for signal in [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]
        {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

/// Tries each candidate; like `execvp`, a program that may not be run is the error to report over one that is missing.
fn exec(program: &Program) -> c_int {
    let mut error = libc::ENOENT;
    for candidate in &program.candidates {
        // SAFETY: all three arrays end with a null pointer and live in the stopped parent.
        let errno = unsafe {
            libc::execve(candidate.as_ptr(), program.argv.as_ptr(), program.envp.as_ptr());
            *libc::__errno_location()
        };
        if errno != libc::ENOENT && errno != libc::ENOTDIR {
            error = errno;
        }
    }
    error
}

/// The Landlock ABI of the kernel; 0 where it has none or it is switched off.
pub fn landlock_abi() -> u32 {
    const VERSION: c_uint = 1;
    // SAFETY: with this flag the call takes no pointer and creates nothing.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Confines this thread, the only one, with a Landlock ruleset.
pub fn landlock_restrict_self(ruleset: BorrowedFd) -> io::Result<()> {
    // SAFETY: the call takes a descriptor and flags.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) }).map(drop)
}

/// Adds a seccomp filter to this process. It cannot be taken away.
pub fn seccomp(filter: &[libc::sock_filter]) -> io::Result<()> {
    const SET_MODE_FILTER: c_uint = 1;
    let length = u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the kernel copies `len` instructions from `filter` and keeps no pointer.
    check(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) }).map(drop)
}

/// How many seccomp filters this process has: 0 none, 1 strict, 2 some (`/proc/self/status`, `Seccomp`).
pub fn seccomp_mode() -> io::Result<c_int> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::prctl(libc::PR_GET_SECCOMP) }.into()).map(|mode| mode as c_int)
}

/// Tries to make a socket, and closes it again.
pub fn try_socket(family: c_int, kind: c_int, protocol: c_int) -> Result<(), Errno> {
    // SAFETY: takes numbers only; the descriptor is new and nobody else's.
    let made = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    // SAFETY: see above.
    Errno::result(made).map(|fd| drop(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Tries to call `clone3`, with arguments of no size, which a kernel that has it refuses with `EINVAL`.
pub fn try_clone3() -> Result<(), Errno> {
    // SAFETY: the kernel reads nothing from arguments of no size, and starts nothing.
    Errno::result(unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<c_void>(), 0usize) }).map(drop)
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: c_uint) -> io::Result<()> {
    close_range(first, c_uint::MAX)
}

/// Closes the descriptors `first` to `last`, both included. The caller must not own any of them as a value.
pub fn close_range(first: c_uint, last: c_uint) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

/// Takes over a descriptor that this process was started with.
///
/// # Errors
/// `EBADF` if it is not open.
pub fn inherited(fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: duplicates by number; the result is new and nobody else's.
    let new = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) }.into())?;
    // SAFETY: see above.
    Ok(unsafe { OwnedFd::from_raw_fd(new as RawFd) })
}

/// Makes descriptor `target` mean what `fd` means.
pub fn install(fd: BorrowedFd, target: RawFd) -> io::Result<()> {
    // SAFETY: `target` is one of 0, 1, 2, which no value of this program owns.
    check(unsafe { libc::dup2(fd.as_raw_fd(), target) }.into()).map(drop)
}

/// `open_tree` with `OPEN_TREE_CLONE`: a detached copy of the mounts at and below `path`.
pub fn open_tree(path: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as c_uint;
    // SAFETY: `path` is a C string.
    let fd = check(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })?;
    // SAFETY: a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Attaches a detached mount at `target`.
pub fn move_mount(mount: BorrowedFd, target: &CStr) -> io::Result<()> {
    const FROM_EMPTY_PATH: c_uint = 4;
    let (from, empty) = (mount.as_raw_fd(), c"".as_ptr());
    // SAFETY: both paths are C strings.
    check(unsafe {
        libc::syscall(libc::SYS_move_mount, from, empty, libc::AT_FDCWD, target.as_ptr(), FROM_EMPTY_PATH)
    })
    .map(drop)
}

/// Adds mount attributes (`MOUNT_ATTR_*`) to the mount at `fd`, and to those below it if `recursive`.
pub fn mount_attributes(fd: BorrowedFd, attributes: u64, recursive: bool) -> io::Result<()> {
    let attributes = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let size = size_of_val(&attributes);
    // SAFETY: the structure lives for the call and `size` is its size.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd.as_raw_fd(),
            c"".as_ptr(),
            flags as c_uint,
            &raw const attributes,
            size,
        )
    })
    .map(drop)
}

/// Sends a signal to the process behind a pidfd.
pub fn pidfd_signal(pidfd: BorrowedFd, signal: c_int) -> io::Result<()> {
    // SAFETY: no siginfo is passed.
    check(unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, 0usize, 0) })
        .map(drop)
}

/// Sends `signal` to all processes this one may signal, itself and PID 1 excepted.
pub fn kill_all(signal: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::kill(-1, signal) }.into()).map(drop)
}

/// Ends this process, and runs nothing on the way: it has no files to flush, and the kernel takes the rest.
pub fn leave(code: c_int) -> ! {
    // SAFETY: takes a number only and does not return.
    unsafe { libc::_exit(code) }
}

/// Sends a message with descriptors.
pub fn send(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<()> {
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control = if raw.is_empty() { &[][..] } else { &rights[..] };
    let parts = [io::IoSlice::new(bytes)];
    sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// A received message: how many bytes, and its descriptors.
pub type Received = (usize, Vec<OwnedFd>);

/// Receives one message into `buffer`. Zero bytes mean that the peer is gone.
///
/// # Errors
/// `EMSGSIZE` if the message had more bytes or descriptors than fit; those that did are closed.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8], flags: c_int) -> io::Result<Received> {
    const CONTROL: usize = 64;
    let mut control = [0u64; CONTROL / 8];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: a msghdr of zeros is valid; every pointer in it lives for the call. The control buffer is aligned for
    // cmsghdr and has room for FDS_MAX descriptors.
    unsafe {
        let mut header = std::mem::zeroed::<libc::msghdr>();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = libc::CMSG_SPACE((FDS_MAX * size_of::<RawFd>()) as c_uint) as _;
        let bytes =
            check(libc::recvmsg(socket.as_raw_fd(), &mut header, flags | libc::MSG_CMSG_CLOEXEC) as c_long)?;
        let fds = take_fds(&header);
        if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        Ok((bytes as usize, fds))
    }
}

/// Owns every descriptor that came with a message.
///
/// # Safety
/// `header` was filled by `recvmsg`, and this is called once for it.
unsafe fn take_fds(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the CMSG macros walk the control buffer that the kernel filled; each descriptor in it is new.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                let count = ((*message).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                fds.extend((0..count).map(|i| OwnedFd::from_raw_fd(data.add(i).read_unaligned())));
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    fds
}

/// A call of a supervised program, waiting for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    /// The kernel's name for it.
    pub id: u64,
    /// The thread that made it.
    pub thread: i32,
    /// Its number.
    pub call: c_long,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// Asks the kernel to run the caller next when it is answered, where it can (Linux 6.6).
pub fn notice_switch(listener: BorrowedFd) {
    const SYNC_WAKE_UP: u64 = 1;
    // SAFETY: takes a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Takes the next call. The listener must be readable.
///
/// # Errors
/// `ENOENT` if its caller has died meanwhile.
pub fn notice_receive(listener: BorrowedFd) -> io::Result<Notice> {
    // SAFETY: a seccomp_notif of zeros is valid, and the kernel wants it so; it lives for the call.
    let notif = unsafe {
        let mut notif = std::mem::zeroed::<libc::seccomp_notif>();
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        check(libc::ioctl(listener.as_raw_fd(), request, &raw mut notif).into())?;
        notif
    };
    let (thread, call) = (notif.pid as i32, notif.data.nr.into());
    Ok(Notice { id: notif.id, thread, call, arguments: notif.data.args })
}

/// Whether a call still waits: what was read of its caller before was the caller's.
pub fn notice_waits(listener: BorrowedFd, id: u64) -> bool {
    // SAFETY: the number lives for the call.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
}

/// Answers a call with a value, or with an error number. Never lets it go on by itself.
pub fn notice_answer(listener: BorrowedFd, id: u64, answer: Result<i64, c_int>) -> io::Result<()> {
    let (val, error) = answer.map_or_else(|errno| (0, -errno), |value| (value, 0));
    let response = libc::seccomp_notif_resp { id, val, error, flags: 0 };
    let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
    // SAFETY: the structure lives for the call.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const response) }.into()).map(drop)
}

/// Answers a call with a descriptor of ours, which becomes one of the caller's.
pub fn notice_descriptor(listener: BorrowedFd, id: u64, fd: BorrowedFd, on_exec: bool) -> io::Result<()> {
    const FLAG_SEND: u32 = 2;
    let answer = libc::seccomp_notif_addfd {
        id,
        flags: FLAG_SEND,
        srcfd: fd.as_raw_fd() as u32,
        newfd: 0,
        newfd_flags: if on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    let request = libc::SECCOMP_IOCTL_NOTIF_ADDFD;
    // SAFETY: the structure lives for the call.
    check(unsafe { libc::ioctl(listener.as_raw_fd(), request, &raw const answer) }.into()).map(drop)
}

/// A copy of descriptor `fd` of the process `pid`.
pub fn descriptor_of(pid: i32, fd: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: numbers; each result is a new descriptor.
    unsafe {
        let process = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        let process = OwnedFd::from_raw_fd(process as RawFd);
        let copy = check(libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0))?;
        Ok(OwnedFd::from_raw_fd(copy as RawFd))
    }
}

/// `setxattr`, following links.
pub fn set_attribute(path: &CStr, name: &CStr, value: &[u8], flags: c_int) -> io::Result<()> {
    let (path, name) = (path.as_ptr(), name.as_ptr());
    // SAFETY: C strings, and a value with its length.
    check(unsafe { libc::setxattr(path, name, value.as_ptr().cast(), value.len(), flags) }.into()).map(drop)
}

/// `removexattr`, following links.
pub fn remove_attribute(path: &CStr, name: &CStr) -> io::Result<()> {
    // SAFETY: C strings.
    check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }.into()).map(drop)
}

/// `utimensat` of the file itself behind a descriptor, which may be one for its path only.
pub fn set_times(fd: BorrowedFd, times: &[libc::timespec; 2]) -> io::Result<()> {
    // SAFETY: a C string, and two times that live for the call.
    check(
        unsafe { libc::utimensat(fd.as_raw_fd(), c"".as_ptr(), times.as_ptr(), libc::AT_EMPTY_PATH) }.into(),
    )
    .map(drop)
}

/// Adds a watch for the file at `path` to an inotify descriptor.
pub fn watch(inotify: BorrowedFd, path: &CStr, mask: u32) -> io::Result<i32> {
    // SAFETY: a C string.
    check(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), mask) }.into())
        .map(|watch| watch as i32)
}

/// Copies one byte from a pipe to another without taking it out; 0 is the end of the first.
pub fn tee(from: BorrowedFd, to: BorrowedFd) -> io::Result<usize> {
    // SAFETY: takes numbers only.
    let copied = unsafe { libc::tee(from.as_raw_fd(), to.as_raw_fd(), 1, libc::SPLICE_F_NONBLOCK) };
    check(copied as c_long).map(|copied| copied as usize)
}

/// Brings up the loopback interface of this process's network namespace.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: a socket is created and owned; ifreq of zeros is valid, and its name ends with a NUL.
    unsafe {
        let socket = check(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let socket = OwnedFd::from_raw_fd(socket as RawFd);
        let mut request = std::mem::zeroed::<libc::ifreq>();
        request.ifr_name[0] = b'l' as c_char;
        request.ifr_name[1] = b'o' as c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as _;
        check(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &request).into()).map(drop)
    }
}

/// Sets the size of a terminal.
pub fn terminal_size(terminal: BorrowedFd, rows: u16, columns: u16) -> io::Result<()> {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the structure lives for the call.
    check(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) }.into()).map(drop)
}

/// Overwrites the environment block that this process was started with: it stays readable in `/proc` otherwise.
/// Afterwards the environment is empty.
pub fn wipe_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut c_char;
    }
    // SAFETY: the program has one thread and holds no reference into its environment. Each entry is a C string in
    // memory that the kernel made writable for this process.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            libc::memset((*entry).cast(), 0, libc::strlen(*entry));
            entry = entry.add(1);
        }
        environ = std::ptr::null_mut();
    }
}

/// Gives memory that is free back to the kernel, where the C library can.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// The effective user id.
pub fn euid() -> u32 {
    nix::unistd::geteuid().as_raw()
}
