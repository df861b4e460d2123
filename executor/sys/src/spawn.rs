//! Starts programs, in two ways: a stranger's in a process that was prepared before the program was known, and one of ours from
//! the descriptor of its file. `fork` costs 40 µs per MiB of the parent; here the new process shares its parent's memory until
//! it leaves it by `execve`.

use crate::errno::new_fd;
use crate::process::{self, Child};
use libc::{c_char, c_int, c_long, c_uint, c_void};
use std::borrow::Cow;
use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32};

/// Makes this process a program of the user's, with `environment` alone and in a process session of its own. The first word of
/// `command` is the program's path.
///
/// # Errors
/// That of `setsid` or `execve`, or an empty command.
pub fn become_server(command: &[CString], environment: &[CString]) -> io::Result<Infallible> {
    let program = command.first().ok_or(io::ErrorKind::InvalidInput)?;
    nix::unistd::setsid()?;
    Ok(nix::unistd::execve(program, command, environment)?)
}

/// Makes this process, which has one thread, a program of the user's that prints something: without input, without standard error, in
/// `/`, and with `environment` alone. Returns why that failed.
pub fn become_source(
    program: &CStr,
    arguments: &[CString],
    environment: &[CString],
    output: BorrowedFd,
) -> io::Error {
    let arrange = || -> io::Result<Infallible> {
        process::default_other_signals();
        process::reset_own_signals();
        nix::unistd::chdir("/")?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        for (fd, target) in [(null.as_fd(), 0), (output, 1), (null.as_fd(), 2)] {
            crate::fd::install(fd, target)?;
        }
        Ok(nix::unistd::execve(program, arguments, environment)?)
    };
    match arrange() {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

/// A program in the form that `execve` takes: made in advance, as a [`PreparedChild`] may not allocate.
pub struct Program<'a> {
    candidates: Vec<CString>,
    _arguments: Vec<CString>,
    argv: Vec<*const c_char>,
    _environment: Vec<Cow<'a, CStr>>,
    envp: Vec<*const c_char>,
    directory: CString,
}

impl<'a> Program<'a> {
    /// `candidates` are tried in order, as `execvp` does along `PATH`; before that, the process enters `directory`.
    pub fn new(
        candidates: Vec<CString>,
        arguments: Vec<CString>,
        environment: Vec<Cow<'a, CStr>>,
        directory: CString,
    ) -> Self {
        fn pointers<T: AsRef<CStr>>(strings: &[T]) -> Vec<*const c_char> {
            strings
                .iter()
                .map(|string| string.as_ref().as_ptr())
                .chain([std::ptr::null()])
                .collect()
        }
        // The bytes of a CString are on the heap, those of a borrowed one elsewhere: moving the containers moves neither.
        let (argv, envp) = (pointers(&arguments), pointers(&environment));
        Self {
            candidates,
            _arguments: arguments,
            argv,
            _environment: environment,
            envp,
            directory,
        }
    }
}

/// What a new process does before its program is known. It always becomes the leader of its own session.
pub struct ChildSetup<'a> {
    /// Resource limits, as `prlimit` takes them.
    pub limits: &'a [(c_uint, libc::rlimit)],
    /// A Landlock ruleset for a domain below its parent's.
    pub ruleset: Option<RawFd>,
    /// A filter that sends some calls to a listener.
    pub supervised: Option<&'a [libc::sock_filter]>,
}

/// How a prepared process becomes a program.
pub struct Exec<'a> {
    /// The program to execute.
    pub program: &'a Program<'a>,
    /// The sources of descriptors 0, 1 and 2.
    pub stdio: [RawFd; 3],
    /// The first of the descriptors that are closed.
    pub close_from: c_uint,
    /// Whether descriptor 0 becomes the controlling terminal.
    pub terminal: bool,
}

/// Stack memory for prepared processes, used by one after another.
pub struct SpawnStack {
    stack: Vec<u128>,
    shared: Box<Shared>,
}

/// A process that waits to become a program, so that the cost of preparing it is paid in advance.
/// It is killed if it is not started.
///
/// It shares the memory and the descriptors of this process, as after `vfork`. One of the two waits for the
/// other, except as [`start`](Self::start) describes.
pub struct PreparedChild<'s> {
    pid: i32,
    shared: &'s Shared,
}

/// Why a program was not started, with the error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnError {
    /// Its working directory cannot be entered.
    Directory(c_int),
    /// Another step has failed, most likely `execve`.
    Program(c_int),
}

/// The state shared by both processes.
#[derive(Default)]
struct Shared {
    /// The one of the two that is running.
    state: AtomicU32,
    /// An error number; negative if entering the directory failed.
    error: AtomicI32,
    listener: AtomicI32,
    /// The process that prepares it.
    parent: AtomicI32,
    setup: AtomicPtr<c_void>,
    exec: AtomicPtr<c_void>,
}

/// The child has left the shared memory: the kernel writes this.
const LEFT: u32 = 0;
/// The child runs its setup, the parent waits.
const PREPARING: u32 = 1;
const WAITING: u32 = 2;
/// The child becomes a program while the parent waits, or does what `start` allows.
const STARTING: u32 = 3;

impl Shared {
    fn hand_over(&self, state: u32) {
        self.state.store(state, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // SAFETY: wakes whoever waits at this address, which lives as long as both sides.
        unsafe { libc::syscall(libc::SYS_futex, self.state.as_ptr(), libc::FUTEX_WAKE, 1) };
    }

    /// In the child, which the kernel kills when its parent dies: nobody else would end this wait.
    fn wait_while(&self, state: u32) {
        while self.state.load(SeqCst) == state {
            self.wait_once(state, None);
        }
    }

    /// In the parent, while the child runs. If the parent's own parent dies meanwhile, the child is killed: it may hang in a file
    /// system that does not answer, and nobody else would end the wait for it.
    fn wait_for_child(&self, pid: i32, state: u32) {
        const INTERVAL: libc::timespec = libc::timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        // SAFETY: takes nothing.
        let parent = || unsafe { libc::getppid() };
        let before = parent();
        while self.state.load(SeqCst) == state {
            self.wait_once(state, Some(&INTERVAL));
            if parent() != before {
                // SAFETY: takes numbers only; the process is this one's child and not yet reaped.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }

    fn wait_once(&self, state: u32, timeout: Option<&libc::timespec>) {
        let timeout = timeout.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: waits while the value at this address, which lives as long as both sides, is `state`. The timeout lives for the
        // call. Whatever ends the wait, the caller looks at the value again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.state.as_ptr(),
                libc::FUTEX_WAIT,
                state,
                timeout,
            )
        };
    }
}

impl Default for SpawnStack {
    fn default() -> Self {
        const BYTES: usize = 256 * 1024;
        Self {
            stack: vec![0; BYTES / 16],
            shared: Box::default(),
        }
    }
}

impl SpawnStack {
    /// Creates a process and waits for its setup. Also returns the listener, if some of its calls are supervised.
    ///
    /// # Errors
    /// The error of the first step that failed in it.
    pub fn prepare(
        &mut self,
        setup: &ChildSetup,
    ) -> io::Result<(PreparedChild<'_>, Option<OwnedFd>)> {
        let Self { stack, shared } = self;
        let shared: &Shared = shared;
        shared.error.store(0, SeqCst);
        shared.listener.store(-1, SeqCst);
        shared.parent.store(std::process::id() as i32, SeqCst);
        shared
            .setup
            .store((&raw const *setup).cast_mut().cast(), SeqCst);
        shared.state.store(PREPARING, SeqCst);
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
        // SAFETY: the child runs on a stack of its own, whose end is aligned to 16 bytes. Stack and `shared` are borrowed by the
        // `PreparedChild`, which does not end before the child has left them. Both processes have one thread and do not run at the
        // same time in their common memory: the parent waits below until the child waits or has left it. Where `start` lets it go
        // on, what the child reads is borrowed, the child writes only to its stack, `shared` and errno, and both may enter the kernel.
        let pid = unsafe {
            let top = stack.as_mut_ptr_range().end.cast::<c_void>();
            let argument = (&raw const *shared).cast_mut().cast::<c_void>();
            let none = std::ptr::null_mut::<c_void>();
            libc::clone(
                prepared_child,
                top,
                flags,
                argument,
                none,
                none,
                shared.state.as_ptr(),
            )
        };
        if pid < 0 {
            shared.state.store(LEFT, SeqCst);
            return Err(io::Error::last_os_error());
        }
        shared.wait_for_child(pid, PREPARING);
        let listener = shared.listener.load(SeqCst);
        if shared.state.load(SeqCst) != WAITING {
            reap(pid);
            return Err(io::Error::from_raw_os_error(shared.error.load(SeqCst)));
        }
        // SAFETY: the child has made it in the descriptors both share, and leaves it to its parent.
        let listener = (listener >= 0).then(|| unsafe { OwnedFd::from_raw_fd(listener) });
        Ok((PreparedChild { pid, shared }, listener))
    }
}

impl Drop for PreparedChild<'_> {
    fn drop(&mut self) {
        if self.shared.state.load(SeqCst) == WAITING {
            // SAFETY: takes numbers only; the process is this one's child and not yet reaped.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            reap(self.pid);
        }
    }
}

impl PreparedChild<'_> {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Turns it into the program; returns its process number. Calls `meanwhile` when it has begun, and then waits until it is the
    /// program or has failed: a process that sleeps in there need not be woken for that. `meanwhile` may only wait. A call of it
    /// that fails may have a wrong error number, and a descriptor that it closes may be missing in the program.
    ///
    /// # Errors
    /// The error of the first step that failed, including those of `chdir` and `execve`.
    pub fn start(self, exec: &Exec, meanwhile: impl FnOnce()) -> Result<i32, SpawnError> {
        /// The other process reads what we have lent it until it has left our memory, also if `meanwhile` panics.
        struct Lent<'s>(&'s Shared, i32);
        impl Drop for Lent<'_> {
            fn drop(&mut self) {
                self.0.wait_for_child(self.1, STARTING);
            }
        }
        let shared = self.shared;
        shared
            .exec
            .store((&raw const *exec).cast_mut().cast(), SeqCst);
        // If it was killed while it waited, nothing would end a wait for it: its death counts as the program's.
        if shared
            .state
            .compare_exchange(WAITING, STARTING, SeqCst, SeqCst)
            .is_err()
        {
            return Ok(self.pid);
        }
        let lent = Lent(shared, self.pid);
        shared.wake();
        meanwhile();
        drop(lent);
        match shared.error.load(SeqCst) {
            0 => Ok(self.pid),
            errno => {
                reap(self.pid);
                Err(if errno < 0 {
                    SpawnError::Directory(-errno)
                } else {
                    SpawnError::Program(errno)
                })
            }
        }
    }
}

fn reap(pid: i32) {
    // SAFETY: the status is not wanted.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
}

/// Runs in the prepared process. It shares its parent's memory: it only makes system calls, and does not allocate.
extern "C" fn prepared_child(argument: *mut c_void) -> c_int {
    // SAFETY: `SpawnStack::prepare` passes a pointer to what outlives this process in this memory, and waits, with what `setup`
    // points to.
    let (shared, setup) = unsafe {
        let shared = &*argument.cast::<Shared>();
        (shared, &*shared.setup.load(SeqCst).cast::<ChildSetup>())
    };
    let end = |errno: c_int| -> ! {
        shared.error.store(errno, SeqCst);
        process::exit_now(127)
    };
    match die_with(shared.parent.load(SeqCst)).and_then(|()| set_up(setup)) {
        Ok(listener) => shared.listener.store(listener.unwrap_or(-1), SeqCst),
        Err(errno) => end(errno),
    }
    shared.hand_over(WAITING);
    shared.wait_while(WAITING);
    // SAFETY: `start` has stored a pointer to it, which it keeps until this process has left.
    let exec = unsafe { &*shared.exec.load(SeqCst).cast::<Exec>() };
    match arrange(exec) {
        Ok(()) => end(execute(exec.program)),
        Err(errno) => end(errno),
    }
}

fn last_errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

fn ok(result: c_long) -> Result<c_long, c_int> {
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(result)
    }
}

/// In a [`prepared_child`]: lets the kernel kill it, and later the program, when its parent dies. Where no PID namespace does that,
/// a process that sleeps until its parent wakes it would otherwise sleep for ever.
fn die_with(parent: i32) -> Result<(), c_int> {
    // SAFETY: take numbers only.
    unsafe {
        let signal = libc::SIGKILL as libc::c_ulong;
        ok(libc::prctl(libc::PR_SET_PDEATHSIG, signal).into())?;
        // One that died before is not reported.
        if libc::getppid() == parent {
            Ok(())
        } else {
            Err(libc::ESRCH)
        }
    }
}

/// In a [`prepared_child`]: returns the listener.
fn set_up(setup: &ChildSetup) -> Result<Option<RawFd>, c_int> {
    // SAFETY: system calls on values that live in the waiting parent. errno is the parent's, which waits.
    unsafe {
        ok(libc::setsid().into())?;
        process::reset_own_signals();
        for (resource, limit) in setup.limits {
            ok(libc::syscall(
                libc::SYS_prlimit64,
                0,
                *resource,
                limit,
                0usize,
            ))?;
        }
        if let Some(ruleset) = setup.ruleset {
            ok(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0))?;
        }
    }
    setup.supervised.map(listen).transpose()
}

/// In a [`prepared_child`]: adds a filter to this process and returns its listener.
fn listen(filter: &[libc::sock_filter]) -> Result<RawFd, c_int> {
    const SET_MODE_FILTER: c_uint = 1;
    // A call that is being answered is not restarted by a signal that does not kill (Linux 5.19).
    let killable =
        libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_ptr().cast_mut(),
    };
    let install = |flags: libc::c_ulong| {
        // SAFETY: the kernel copies the instructions, which are statics, and keeps no pointer.
        ok(unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                SET_MODE_FILTER,
                flags,
                &raw const program,
            )
        })
    };
    let listener = install(killable).or_else(|errno| match errno {
        libc::EINVAL => install(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
        errno => Err(errno),
    })?;
    Ok(listener as RawFd)
}

/// In a [`prepared_child`]: the error number is negative if entering the directory failed.
fn arrange(exec: &Exec) -> Result<(), c_int> {
    // SAFETY: system calls on values that `start` keeps until this process has left its parent's memory.
    unsafe {
        // From here on its descriptors are its own. Closes none. Not by `unshare`, which the filters of containers refuse.
        let (none, unshare) = (c_uint::MAX, libc::CLOSE_RANGE_UNSHARE);
        ok(libc::syscall(libc::SYS_close_range, none, none, unshare))?;
        for (target, fd) in exec.stdio.iter().enumerate() {
            ok(libc::dup2(*fd, target as c_int).into())?;
        }
        if exec.terminal {
            ok(libc::ioctl(0, libc::TIOCSCTTY, 0).into())?;
        }
        enter(&exec.program.directory).map_err(|errno| -errno)?;
        ok(libc::syscall(
            libc::SYS_close_range,
            exec.close_from,
            c_uint::MAX,
            0,
        ))?;
    }
    Ok(())
}

/// In a [`prepared_child`]: `chdir` by unsupervised calls, as nobody answers before it is the program.
fn enter(directory: &CStr) -> Result<(), c_int> {
    // SAFETY: a C string, and numbers; the descriptor is new.
    unsafe {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = ok(libc::openat(libc::AT_FDCWD, directory.as_ptr(), flags).into())? as c_int;
        ok(libc::fchdir(fd).into())?;
        ok(libc::close(fd).into()).map(drop)
    }
}

/// Tries each candidate, by an unsupervised call; like `execvp`, prefers the error for a program that may not run over a missing one.
fn execute(program: &Program) -> c_int {
    let mut error = libc::ENOENT;
    for candidate in &program.candidates {
        // SAFETY: all three arrays end with a null pointer, and `start` keeps them until this process has left.
        unsafe {
            let (path, argv, envp) = (
                candidate.as_ptr(),
                program.argv.as_ptr(),
                program.envp.as_ptr(),
            );
            libc::syscall(libc::SYS_execveat, libc::AT_FDCWD, path, argv, envp, 0);
        }
        let errno = last_errno();
        if errno != libc::ENOENT && errno != libc::ENOTDIR {
            error = errno;
        }
    }
    error
}

/// A program of ours to start, as its process sees it.
struct ProgramImage {
    file: RawFd,
    argv: [*const c_char; 2],
    envp: Vec<*const c_char>,
    stdin: RawFd,
    error: AtomicI32,
}

/// Starts the program in the open file `file` (an ELF file, which may be close-on-exec) with this `environment` and no more.
/// `stdin` becomes its descriptor 0; it keeps 1 and 2 of this process, and those that are not close-on-exec.
///
/// # Errors
/// The error of the first step that failed, including those of `clone` and `execveat`.
pub fn image(
    file: BorrowedFd,
    name: &CStr,
    environment: &[CString],
    stdin: BorrowedFd,
) -> io::Result<Child> {
    const BYTES: usize = 64 * 1024;
    let mut stack = vec![0u128; BYTES / 16];
    let argv = [name.as_ptr(), std::ptr::null()];
    let (file, stdin) = (file.as_raw_fd(), stdin.as_raw_fd());
    let image = ProgramImage {
        file,
        argv,
        envp: environment
            .iter()
            .map(|variable| variable.as_ptr())
            .chain([std::ptr::null()])
            .collect(),
        stdin,
        error: AtomicI32::new(0),
    };
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: the child runs on a stack of its own, whose end is aligned to 16 bytes. With CLONE_VFORK this process goes on
    // when the child has left their common memory, so stack and `image` outlive it there.
    let pid = unsafe {
        let top = stack.as_mut_ptr_range().end.cast::<c_void>();
        let argument = (&raw const image).cast_mut().cast::<c_void>();
        let none = std::ptr::null_mut::<c_void>();
        libc::clone(
            image_child,
            top,
            flags,
            argument,
            &raw mut pidfd,
            none,
            none,
        )
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: CLONE_PIDFD stored a new descriptor that nobody else owns.
    let pidfd = unsafe { new_fd(pidfd.into()) }?;
    match image.error.load(SeqCst) {
        0 => Ok(Child { pid, pidfd }),
        errno => {
            reap(pid);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

/// Shares its parent's memory: it only makes system calls, and does not allocate.
extern "C" fn image_child(argument: *mut c_void) -> c_int {
    // SAFETY: `image` passes a pointer to a value of its own, and waits.
    let image = unsafe { &*argument.cast::<ProgramImage>() };
    process::default_other_signals();
    process::reset_own_signals();
    // SAFETY: system calls on values that live in the waiting parent; both arrays end with a null pointer.
    unsafe {
        if libc::dup2(image.stdin, 0) == 0 {
            let (argv, envp) = (image.argv.as_ptr(), image.envp.as_ptr());
            libc::syscall(
                libc::SYS_execveat,
                image.file,
                c"".as_ptr(),
                argv,
                envp,
                libc::AT_EMPTY_PATH,
            );
        }
    }
    image.error.store(last_errno(), SeqCst);
    process::exit_now(127)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pid: i32, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap()
    }

    #[test]
    fn a_program_is_started_by_its_file_with_its_environment_alone() {
        let program = File::open("/bin/cat").unwrap();
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        for (given, want) in [
            (vec![], &b""[..]),
            (vec![c"A=1".to_owned(), c"B=2".to_owned()], b"A=1\0B=2\0"),
        ] {
            let child = image(program.as_fd(), c"cat", &given, far.as_fd()).unwrap();
            // The kernel shows its environment a moment after it lets us go on: it is there once the program waits for input.
            while !read(child.pid, "stat").contains(") S ") {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let environment = read(child.pid, "environ").into_bytes();
            assert_eq!(environment, want);
            process::pidfd_signal(child.pidfd.as_fd(), libc::SIGKILL).unwrap();
            reap(child.pid);
        }
        drop((near, far));
    }

    #[test]
    fn a_file_that_is_no_program_is_the_kernels_error() {
        let file = File::open("/etc/passwd").unwrap();
        let error = image(file.as_fd(), c"passwd", &[], file.as_fd()).unwrap_err();
        assert!(
            [libc::EACCES, libc::ENOEXEC].contains(&error.raw_os_error().unwrap()),
            "{error}"
        );
    }
}
