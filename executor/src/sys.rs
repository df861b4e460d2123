//! Every `unsafe` block of this crate: system calls that nix does not wrap, each as a thin function whose error is the
//! kernel's. Nothing here decides anything. What the self-attack (`attack/`) alone needs stands at the end.

use libc::{c_char, c_int, c_long, c_uint, c_void};
use nix::errno::Errno;
use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

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

/// A program ready to be started by a [`Starter`], which may allocate nothing.
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

/// What a process does before it knows its program.
pub struct Before<'a> {
    /// Limits it sets on itself.
    pub limits: &'a [(c_uint, libc::rlimit)],
    /// A Landlock ruleset it confines itself with once more, so that it is below its parent's domain.
    pub ruleset: Option<RawFd>,
    /// The filter it puts on itself, if any, some of whose calls whoever holds the listener answers.
    pub trapped: Option<&'a [libc::sock_filter]>,
}

/// What it does when it knows.
pub struct Order<'a> {
    /// The program.
    pub program: &'a Program<'a>,
    /// Its descriptors 0, 1 and 2.
    pub stdio: [RawFd; 3],
    /// The first of the descriptors that are closed.
    pub closed: c_uint,
    /// Whether descriptor 0 becomes its controlling terminal.
    pub terminal: bool,
}

/// Memory for the processes that are to be programs, one after the other.
pub struct Stage {
    stack: Vec<u128>,
    shared: Box<Shared>,
}

/// A process that has put on what a program stands under, and waits to become one: what a program costs to prepare is
/// paid before it is wanted. One that is not started is killed.
///
/// It shares the memory and the descriptors of this process, as after `vfork`. One of the two always waits for the other.
pub struct Starter<'s> {
    pid: i32,
    shared: &'s Shared,
}

/// Why a program was not started; with the error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstarted {
    /// Its directory cannot be entered.
    Directory(c_int),
    /// Another step has failed, most likely `execve`.
    Program(c_int),
}

impl Unstarted {
    fn errno(self) -> c_int {
        let (Self::Directory(errno) | Self::Program(errno)) = self;
        errno
    }
}

/// What both sides of a [`Starter`] see.
#[derive(Default)]
struct Shared {
    /// Whose turn it is.
    state: AtomicU32,
    /// An error number; that of the directory is negative.
    error: AtomicI32,
    listener: AtomicI32,
    /// The process that runs [`Self::work`].
    child: AtomicI32,
    before: AtomicPtr<c_void>,
    order: AtomicPtr<c_void>,
    work: AtomicPtr<c_void>,
}

/// Our own code in the place of a program.
type Work<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// The new process has left the shared memory: the kernel writes this.
const LEFT: u32 = 0;
/// The new process prepares, and its parent waits.
const PREPARING: u32 = 1;
/// The new process waits.
const WAITING: u32 = 2;
/// It starts its program, and its parent waits.
const STARTING: u32 = 3;

impl Shared {
    fn pass(&self, state: u32) {
        self.state.store(state, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // SAFETY: wakes whoever waits at this address, which lives as long as both sides.
        unsafe { libc::syscall(libc::SYS_futex, self.state.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    fn wait_while(&self, state: u32) {
        while self.state.load(Ordering::SeqCst) == state {
            let forever = std::ptr::null::<libc::timespec>();
            // SAFETY: waits while the value at this address, which lives as long as both sides, is `state`. Whatever ends the
            // wait, the value is looked at again.
            unsafe { libc::syscall(libc::SYS_futex, self.state.as_ptr(), libc::FUTEX_WAIT, state, forever) };
        }
    }
}

impl Stage {
    /// Room for one process at a time.
    pub fn new() -> Self {
        const STACK: usize = 256 * 1024;
        Self { stack: vec![0; STACK / 16], shared: Box::default() }
    }

    /// Makes a process, in its own session, and the listener for its trapped calls, if any are. It lives until it is started
    /// or let go of.
    ///
    /// # Errors
    /// The error of the first step that failed in it.
    pub fn starter(&mut self, before: &Before) -> io::Result<(Starter<'_>, Option<OwnedFd>)> {
        let Self { stack, shared } = self;
        let shared: &Shared = shared;
        shared.error.store(0, Ordering::SeqCst);
        shared.listener.store(-1, Ordering::SeqCst);
        shared.child.store(0, Ordering::SeqCst);
        shared.before.store((&raw const *before).cast_mut().cast(), Ordering::SeqCst);
        shared.work.store(std::ptr::null_mut(), Ordering::SeqCst);
        shared.state.store(PREPARING, Ordering::SeqCst);
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        // SAFETY: the child runs on a stack of its own, whose end is aligned to 16 bytes. Stack and `shared` are borrowed by the
        // `Starter`, which does not end before the child has left them. Both processes have one thread and never run at the
        // same time in their common memory: the parent waits below until the child waits or has left it.
        let pid = unsafe {
            let top = stack.as_mut_ptr_range().end.cast::<c_void>();
            let argument = (&raw const *shared).cast_mut().cast::<c_void>();
            let none = std::ptr::null_mut::<c_void>();
            libc::clone(starter, top, flags, argument, none, none, shared.state.as_ptr())
        };
        if pid < 0 {
            shared.state.store(LEFT, Ordering::SeqCst);
            return Err(io::Error::last_os_error());
        }
        shared.wait_while(PREPARING);
        let listener = shared.listener.load(Ordering::SeqCst);
        if shared.state.load(Ordering::SeqCst) != WAITING {
            reap(pid);
            return Err(io::Error::from_raw_os_error(shared.error.load(Ordering::SeqCst)));
        }
        // SAFETY: the child has made it in the descriptors both share, and leaves it to its parent.
        let listener = (listener >= 0).then(|| unsafe { OwnedFd::from_raw_fd(listener) });
        Ok((Starter { pid, shared }, listener))
    }
}

impl Drop for Starter<'_> {
    fn drop(&mut self) {
        if self.shared.state.load(Ordering::SeqCst) == WAITING {
            // SAFETY: takes numbers only; the process is this one's child and not yet reaped.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            reap(self.pid);
        }
    }
}

impl Starter<'_> {
    /// Its process.
    pub fn process(&self) -> i32 {
        self.pid
    }

    /// Makes it its program; returns its process id.
    ///
    /// # Errors
    /// The error of the first step that failed, among them those of `chdir` and `execve`.
    pub fn start(self, order: &Order) -> Result<i32, Unstarted> {
        let shared = self.shared;
        shared.order.store((&raw const *order).cast_mut().cast(), Ordering::SeqCst);
        // Who was killed while it waited has left, and nobody would end a wait for it: its end is the program's.
        let turn = shared.state.compare_exchange(WAITING, STARTING, Ordering::SeqCst, Ordering::SeqCst);
        if turn.is_err() {
            return Ok(self.pid);
        }
        shared.wake();
        shared.wait_while(STARTING);
        match shared.error.load(Ordering::SeqCst) {
            0 => Ok(self.pid),
            errno => {
                reap(self.pid);
                Err(if errno < 0 { Unstarted::Directory(-errno) } else { Unstarted::Program(errno) })
            }
        }
    }

    /// Runs our own code where a program would run, in a copy of this process's memory; returns its process id. Of the
    /// order all but the program counts.
    ///
    /// # Errors
    /// The fork's, or `ESRCH` if it was killed before. A preparation that fails is the child's exit code 1.
    pub fn start_own(self, order: &Order, mut work: Work) -> io::Result<i32> {
        let shared = self.shared;
        shared.work.store((&raw mut work).cast(), Ordering::SeqCst);
        self.start(order).map(reap).map_err(|why| io::Error::from_raw_os_error(why.errno()))?;
        match shared.child.load(Ordering::SeqCst) {
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            child => Ok(child),
        }
    }
}

/// Takes note of a child that has ended or is about to.
fn reap(pid: i32) {
    // SAFETY: the status is not wanted.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// A starter's life. It shares its parent's memory: it calls the kernel only, and allocates nothing.
extern "C" fn starter(argument: *mut c_void) -> c_int {
    // SAFETY: `Stage::starter` passes a pointer to what outlives this process in this memory, and waits, with what `before`
    // points to.
    let (shared, before) = unsafe {
        let shared = &*argument.cast::<Shared>();
        (shared, &*shared.before.load(Ordering::SeqCst).cast::<Before>())
    };
    let end = |errno: c_int| -> ! {
        shared.error.store(errno, Ordering::SeqCst);
        // SAFETY: ends this process without running its parent's exit handlers.
        unsafe { libc::_exit(127) }
    };
    match prepare(before) {
        Ok(listener) => shared.listener.store(listener.unwrap_or(-1), Ordering::SeqCst),
        Err(errno) => end(errno),
    }
    shared.pass(WAITING);
    shared.wait_while(WAITING);
    // SAFETY: `start` has stored a pointer to the order, and waits with it; `start_own` one to the work, and waits too.
    let (order, work) = unsafe {
        let order = &*shared.order.load(Ordering::SeqCst).cast::<Order>();
        (order, shared.work.load(Ordering::SeqCst).cast::<Work>().as_mut())
    };
    if let Some(work) = work {
        let mut unused = -1;
        // SAFETY: without CLONE_VM the child has its own copy of all memory, and its parent's parent waits. Nobody else
        // is there to hold a lock.
        let pid = unsafe { clone_raw((libc::CLONE_PARENT | libc::SIGCHLD) as u64, &mut unused) };
        match pid {
            0 => {
                let done = settle(order).is_ok_and(|()| work().is_ok());
                std::process::exit(i32::from(!done));
            }
            pid if pid < 0 => end(last_error()),
            pid => shared.child.store(pid as i32, Ordering::SeqCst),
        }
        end(0);
    }
    match settle(order) {
        Ok(()) => end(exec(order.program)),
        Err(errno) => end(errno),
    }
}

fn last_error() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

fn ok(result: c_long) -> Result<c_long, c_int> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

/// What can be done before the order; returns the listener. In a [`starter`]: calls the kernel only.
fn prepare(before: &Before) -> Result<Option<RawFd>, c_int> {
    // SAFETY: system calls on values that live in the waiting parent. errno is the parent's, which waits.
    unsafe {
        ok(libc::setsid().into())?;
        reset_signals();
        for (resource, limit) in before.limits {
            ok(libc::syscall(libc::SYS_prlimit64, 0, *resource, limit, 0usize))?;
        }
        if let Some(ruleset) = before.ruleset {
            ok(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0))?;
        }
    }
    before.trapped.map(trap).transpose()
}

/// Puts a filter on this process and returns its listener. In a [`starter`]: calls the kernel only.
fn trap(filter: &[libc::sock_filter]) -> Result<RawFd, c_int> {
    const SET_MODE_FILTER: c_uint = 1;
    // A call whose answer is under way is not begun again by a signal that does not kill (Linux 5.19).
    let steady = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the kernel copies the instructions, which are statics, and keeps no pointer.
        ok(unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, flags, &raw const program) })
    };
    let listener = install(steady).or_else(|errno| match errno {
        libc::EINVAL => install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
        errno => Err(errno),
    })?;
    Ok(listener as RawFd)
}

/// What needs the order; the error number, negative where it is the directory's. In a [`starter`] or a copy of one: calls the
/// kernel only.
fn settle(order: &Order) -> Result<(), c_int> {
    // SAFETY: system calls on values that live in the waiting parent.
    unsafe {
        // From here on its descriptors are its own.
        ok(libc::syscall(libc::SYS_unshare, libc::CLONE_FILES))?;
        for (target, fd) in order.stdio.iter().enumerate() {
            ok(libc::dup2(*fd, target as c_int).into())?;
        }
        if order.terminal {
            ok(libc::ioctl(0, libc::TIOCSCTTY, 0).into())?;
        }
        ok(libc::chdir(order.program.directory.as_ptr()).into()).map_err(|errno| -errno)?;
        ok(libc::syscall(libc::SYS_close_range, order.closed, c_uint::MAX, 0))?;
    }
    Ok(())
}

/// Signals of which this program's processes have a disposition of their own, or whose inherited one is meant for them.
const OWN: [c_int; 6] =
    [libc::SIGPIPE, libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Gives all other signals their default, for this process and those it starts. Who started us may ignore some, as Python does
/// SIGXFSZ, and then a program that a limit ends would not end.
pub fn default_other_signals() {
    // The kernel's `struct sigaction` for SIG_DFL, at its longest. The C library's `signal` refuses two that it uses itself.
    let default = [0_u64; 4];
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| !OWN.contains(signal)) {
        // SAFETY: the kernel reads a value that lives until the call returns; no handler is set. It refuses SIGKILL and SIGSTOP.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0usize, 8usize) };
    }
}

/// Default dispositions and an empty mask: Rust ignores SIGPIPE, and this program blocks SIGCHLD.
fn reset_signals() {
    // SAFETY: plain system calls on local values. The dispositions are the child's own (no CLONE_SIGHAND).
    unsafe {
        for signal in OWN {
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

/// News of a child.
pub struct News {
    /// Its number.
    pub pid: i32,
    /// What has become of it.
    pub state: State,
    /// What it has used, with those it has waited for.
    pub used: Used,
}

/// What has become of a child.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has exited with this code.
    Exited(c_int),
    /// This signal has ended it.
    Killed(c_int),
    /// It has stopped at this signal, because it wants to be traced.
    Stopped(c_int),
}

/// What processes have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Microseconds of CPU in user mode.
    pub user_us: u64,
    /// The same in the kernel.
    pub system_us: u64,
    /// Largest resident memory of one of them, in KiB.
    pub peak_kib: u64,
}

/// The next news of any child; `None` if there are none yet and it is not to wait. Not by nix, whose signals have names: those
/// of real time have none.
///
/// # Errors
/// `ECHILD` if there is no child.
pub fn news(wait: bool) -> nix::Result<Option<News>> {
    let (mut status, flags) = (0, if wait { 0 } else { libc::WNOHANG });
    // SAFETY: status and usage live for the call; a usage of zeros is valid.
    let (pid, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        (Errno::result(libc::wait4(-1, &raw mut status, flags, &raw mut usage))?, usage)
    };
    let micros = |time: libc::timeval| time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_usec.unsigned_abs();
    let used = Used {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        peak_kib: usage.ru_maxrss.unsigned_abs(),
    };
    let state = match status {
        status if libc::WIFEXITED(status) => State::Exited(libc::WEXITSTATUS(status)),
        status if libc::WIFSIGNALED(status) => State::Killed(libc::WTERMSIG(status)),
        status => State::Stopped(libc::WSTOPSIG(status)),
    };
    Ok((pid > 0).then_some(News { pid, state, used }))
}

/// How the kernel schedules this process, and its class of input and output: `struct sched_attr` (`man 2 sched_setattr`) and the
/// result of `ioprio_get`.
pub fn scheduling() -> io::Result<([u64; 7], c_long)> {
    const PROCESS: c_int = 1;
    let mut attributes = [0u64; 7];
    // SAFETY: the attributes are given with their size and live for the call.
    check(unsafe {
        libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size_of_val(&attributes), 0)
    })?;
    // SAFETY: takes numbers only.
    let io = unsafe { libc::syscall(libc::SYS_ioprio_get, PROCESS, 0) };
    Ok((attributes, io))
}

/// Lets a child go that has made this process its tracer and has stopped: it goes on with `signal`, or without one at 0.
pub fn let_go(pid: i32, signal: c_int) {
    // SAFETY: takes numbers only. One that has died meanwhile is no longer traced.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, 0usize, signal as usize) };
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

/// Copies memory of the process of `thread` that begins at `address`; fewer bytes where its memory ends.
pub fn read_memory(thread: i32, address: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel writes at most `bytes.len()` bytes to `bytes`, and checks the other process's address.
    let read = unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    check(read as c_long).map(|read| read as usize)
}

/// Copies `bytes` to the memory of the process of `thread` at `address`; fewer where its memory ends.
pub fn write_memory(thread: i32, address: u64, bytes: &[u8]) -> io::Result<usize> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
    // SAFETY: the kernel reads `bytes` and does not write them, and checks the other process's address.
    let written = unsafe { libc::process_vm_writev(thread, &raw const local, 1, &raw const remote, 1, 0) };
    check(written as c_long).map(|written| written as usize)
}

/// Binds a socket to an address in the kernel's form.
pub fn bind(socket: BorrowedFd, address: &[u8]) -> io::Result<()> {
    let length = address.len() as libc::socklen_t;
    // SAFETY: the address is given with its length and lives for the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), length) }.into()).map(drop)
}

/// Connects a socket to an address in the kernel's form.
pub fn connect(socket: BorrowedFd, address: &[u8]) -> io::Result<()> {
    let length = address.len() as libc::socklen_t;
    // SAFETY: the address is given with its length and lives for the call.
    check(unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), length) }.into()).map(drop)
}

/// Makes a socket listen.
pub fn listen(socket: BorrowedFd, backlog: c_int) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }.into()).map(drop)
}

/// The address of a socket, or of its peer, in the kernel's form.
pub fn socket_name(socket: BorrowedFd, peer: bool) -> io::Result<Vec<u8>> {
    let mut name = vec![0u8; size_of::<libc::sockaddr_storage>()];
    let mut length = name.len() as libc::socklen_t;
    let (fd, to) = (socket.as_raw_fd(), name.as_mut_ptr().cast());
    // SAFETY: the buffer is given with its length, and both live for the call.
    let result = unsafe {
        if peer { libc::getpeername(fd, to, &mut length) } else { libc::getsockname(fd, to, &mut length) }
    };
    check(result.into())?;
    name.truncate(length as usize);
    Ok(name)
}

/// An option of a socket that is one number.
pub fn socket_option(socket: BorrowedFd, level: c_int, name: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: the number is given with its size and lives for the call.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &mut length) }.into())?;
    Ok(value)
}

/// Sets an option of a socket to some numbers.
pub fn set_socket_option(socket: BorrowedFd, level: c_int, name: c_int, value: &[c_int]) -> io::Result<()> {
    let length = size_of_val(value) as libc::socklen_t;
    // SAFETY: the numbers are given with their size and live for the call.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), length) }.into())
        .map(drop)
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

/// A descriptor for the place of the slave of a terminal: nothing can be read by it, and no end is open by it.
pub fn terminal_place(master: BorrowedFd) -> io::Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: takes numbers only; the descriptor is new.
    unsafe {
        let place = check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER as _, flags).into())?;
        Ok(OwnedFd::from_raw_fd(place as RawFd))
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

/// Gives back what this process does not need to go on: memory that is free, and the program's code and constants, which
/// the kernel reads again from its file, or has in its cache, when they are next used.
pub fn give_back() {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    trim_memory();
    let (start, end) = (&raw const __executable_start, &raw const etext);
    let (start, length) = (start.cast_mut().cast::<c_void>(), end.addr() - start.addr());
    // SAFETY: the linker says where the program's file is mapped, and begins it at a page. Up to `etext` nothing is written:
    // each page comes back as it was. A refusal leaves everything as it is.
    unsafe {
        libc::madvise(start, length, libc::MADV_DONTNEED);
    }
}

/// The effective user id.
pub fn euid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

// From here on: what the attacks do.

fn close(fd: c_long) {
    // SAFETY: the caller has just got this descriptor from the kernel, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(fd as RawFd) });
}

/// Whether a descriptor is open.
pub fn is_open(fd: RawFd) -> bool {
    // SAFETY: asks about a number; nothing is closed or changed.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

/// Lets any process of this user trace this one, where a security module asks for that.
pub fn let_be_traced() {
    // SAFETY: takes numbers only. Without Yama it fails, and is not needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Traces a process, reads a word of its memory, and lets it go.
pub fn peek(pid: c_int, address: u64) -> io::Result<c_long> {
    // SAFETY: PTRACE_ATTACH and PTRACE_DETACH take no memory of ours, PTRACE_PEEKDATA an address in the other process;
    // its result is a word and not an error when errno stays 0. No status is asked for.
    unsafe {
        check(libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0))?;
        check(libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL).into())?;
        *libc::__errno_location() = 0;
        let word = libc::ptrace(libc::PTRACE_PEEKDATA, pid, address, 0);
        let error = io::Error::last_os_error();
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
        if error.raw_os_error() == Some(0) { Ok(word) } else { Err(error) }
    }
}

/// A child in a user namespace of its own, by the call whose flags a filter cannot see. It ends at once.
pub fn clone3_user_namespace() -> io::Result<()> {
    // `struct clone_args` of `linux/sched.h`, first version: flags, pidfd, child_tid, parent_tid, exit_signal, stack,
    // stack_size, tls.
    let arguments = [libc::CLONE_NEWUSER as u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
    // SAFETY: the arguments are given with their size and live for the call; without CLONE_VM this is a fork. The child
    // has nothing to clean up; of its end no status is asked for.
    unsafe {
        let pid = check(libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)))?;
        if pid == 0 {
            libc::_exit(0);
        }
        check(libc::waitpid(pid as c_int, std::ptr::null_mut(), 0).into()).map(drop)
    }
}

/// Makes an io_uring.
pub fn io_uring() -> io::Result<()> {
    // `struct io_uring_params` is 120 bytes, which the kernel fills.
    let mut parameters = [0u64; 15];
    // SAFETY: the parameters have the size of the structure and live for the call.
    check(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) }).map(close)
}

/// Makes a BPF map: an array of one entry.
pub fn bpf_map() -> io::Result<()> {
    const MAP_CREATE: c_int = 0;
    // Type array, key 4 bytes, value 8 bytes, one entry.
    let attributes: [u32; 4] = [2, 4, 8, 1];
    // SAFETY: the attributes are given with their size and live for the call.
    let map =
        unsafe { libc::syscall(libc::SYS_bpf, MAP_CREATE, attributes.as_ptr(), size_of_val(&attributes)) };
    check(map).map(close)
}

/// Adds a key to this process's keyring.
pub fn add_key() -> io::Result<()> {
    const PROCESS_KEYRING: c_int = -2;
    let (kind, name) = (c"user".as_ptr(), c"lazaret".as_ptr());
    // SAFETY: type and description are C strings, the payload is given with its length; all live for the call.
    let key = unsafe { libc::syscall(libc::SYS_add_key, kind, name, b"x".as_ptr(), 1usize, PROCESS_KEYRING) };
    check(key).map(drop)
}

/// Opens a userfaultfd for faults of user mode.
pub fn userfaultfd() -> io::Result<()> {
    const USER_MODE_ONLY: c_int = 1;
    // SAFETY: takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY) }).map(close)
}

/// Opens a counter of this process's task clock.
pub fn perf_event() -> io::Result<()> {
    // `struct perf_event_attr`, first version (64 bytes): type software, config task clock, without kernel and
    // hypervisor.
    let mut attributes = [0u64; 8];
    attributes[0] = 1 | (64 << 32);
    attributes[1] = 1;
    attributes[5] = 1 << 5 | 1 << 6;
    // SAFETY: the attributes say their own size and live for the call.
    let event = unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0usize) };
    check(event).map(close)
}

/// Types a letter into a terminal, which becomes the controlling one if it can.
pub fn push_key(terminal: BorrowedFd) -> io::Result<()> {
    let key = b'x';
    // SAFETY: TIOCSCTTY takes a number, and that it failed is seen by the next call; TIOCSTI reads one byte, which lives
    // for the call.
    unsafe {
        libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0);
        check(libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const key).into()).map(drop)
    }
}

/// `getpid` by the x32 ABI: the same entry with bit 30 of the number set.
#[cfg(target_arch = "x86_64")]
pub fn x32() -> io::Result<()> {
    // SAFETY: `getpid` takes no argument.
    check(unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) }).map(drop)
}

/// `getpid` by the i386 entry, where it has number 20.
#[cfg(target_arch = "x86_64")]
pub fn int80() -> io::Result<()> {
    let result: i64;
    // SAFETY: `getpid` takes no argument and writes no memory; the kernel keeps all registers but those named.
    unsafe {
        std::arch::asm!(
            "int 0x80", inlateout("rax") 20i64 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if result > 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result as i32)) }
}

/// Other architectures have no second set of numbers.
#[cfg(not(target_arch = "x86_64"))]
pub fn x32() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}

/// Nor this entry.
#[cfg(not(target_arch = "x86_64"))]
pub fn int80() -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::ENOSYS))
}
