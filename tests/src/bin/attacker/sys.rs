//! Every `unsafe` block of the attacker: one system call each, errno as an error.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A result of a system call in the C way.
fn checked(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn owned(descriptor: i64) -> OwnedFd {
    // SAFETY: the caller has just got this descriptor from the kernel, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(descriptor as i32) }
}

fn text(word: &str) -> io::Result<CString> {
    CString::new(word).map_err(io::Error::other)
}

pub fn truncate(path: &str) -> io::Result<()> {
    let path = text(path)?;
    // SAFETY: the path is a C string that lives until the call returns.
    checked(unsafe { libc::truncate(path.as_ptr(), 0) }.into()).map(drop)
}

pub fn set_xattr(path: &str, name: &str, value: &[u8]) -> io::Result<()> {
    let (path, name) = (text(path)?, text(name)?);
    // SAFETY: path and name are C strings, the value is given with its length, and all live until the call returns.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    checked(result.into()).map(drop)
}

pub fn set_time(path: &str, seconds: i64) -> io::Result<()> {
    let path = text(path)?;
    let time = libc::timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    // SAFETY: the path is a C string, two times are given as asked for, and both live until the call returns.
    checked(
        unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), [time, time].as_ptr(), 0) }.into(),
    )
    .map(drop)
}

/// Makes the null device a second time.
pub fn make_device(path: &str) -> io::Result<()> {
    let path = text(path)?;
    // SAFETY: the path is a C string that lives until the call returns.
    checked(
        unsafe { libc::mknod(path.as_ptr(), libc::S_IFCHR | 0o600, libc::makedev(1, 3)) }.into(),
    )
    .map(drop)
}

/// Opens a file by its handle, past every folder on the way.
pub fn open_by_handle(path: &str) -> io::Result<File> {
    const ROOM: usize = 128;
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        handle: [u8; ROOM],
    }
    let path = text(path)?;
    let mut handle = Handle {
        bytes: ROOM as u32,
        kind: 0,
        handle: [0; ROOM],
    };
    let mut mount = 0;
    // SAFETY: the handle says how much room it has, and it, the path and the mount number live until the call returns.
    checked(unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            path.as_ptr(),
            (&raw mut handle).cast(),
            &mut mount,
            0,
        )
        .into()
    })?;
    let root = File::open("/")?;
    // SAFETY: the handle was filled by the kernel and lives until the call returns.
    let opened = unsafe {
        libc::open_by_handle_at(root.as_raw_fd(), (&raw mut handle).cast(), libc::O_RDONLY)
    };
    Ok(owned(checked(opened.into())?).into())
}

pub fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: `socket` takes plain numbers.
    checked(unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) }.into()).map(owned)
}

fn name_of(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    }
}

const NAME: u32 = size_of::<libc::sockaddr_in>() as u32;

pub fn connect_v4(socket: &OwnedFd, address: SocketAddrV4) -> io::Result<()> {
    let address = name_of(address);
    // SAFETY: the address is given with its size and lives until the call returns.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), NAME) }.into())
        .map(drop)
}

/// Connects to no address, which undoes a connection.
pub fn disconnect(socket: &OwnedFd) -> io::Result<()> {
    let nowhere = [0u8; 16];
    // SAFETY: the address is given with its size and lives until the call returns.
    checked(unsafe { libc::connect(socket.as_raw_fd(), nowhere.as_ptr().cast(), 16) }.into())
        .map(drop)
}

pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the bytes are given with their number and live until the call returns.
    checked(unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) } as i64)
        .map(drop)
}

/// Connects and sends in one call.
pub fn send_to(socket: &OwnedFd, address: SocketAddrV4, bytes: &[u8]) -> io::Result<()> {
    let address = name_of(address);
    let (fd, from, length) = (socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
    // SAFETY: bytes and address are given with their sizes and live until the call returns.
    let sent = unsafe {
        libc::sendto(
            fd,
            from,
            length,
            libc::MSG_FASTOPEN,
            (&raw const address).cast(),
            NAME,
        )
    };
    checked(sent as i64).map(drop)
}

/// The same by a message.
pub fn send_message(socket: &OwnedFd, address: SocketAddrV4, bytes: &[u8]) -> io::Result<()> {
    let mut address = name_of(address);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a message of zeros is valid; what it points to is given with its size and lives until the call returns.
    let sent = unsafe {
        let mut message = std::mem::zeroed::<libc::msghdr>();
        message.msg_name = (&raw mut address).cast();
        message.msg_namelen = NAME;
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_FASTOPEN)
    };
    checked(sent as i64).map(drop)
}

/// From now on `connect` only takes note of the address, and the first bytes go there.
pub fn connect_with_data(socket: &OwnedFd) -> io::Result<()> {
    let (on, level) = (1i32, libc::IPPROTO_TCP);
    let option = libc::TCP_FASTOPEN_CONNECT;
    // SAFETY: the number is given with its size and lives until the call returns.
    checked(
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), 4) }
            .into(),
    )
    .map(drop)
}

/// An address that another thread changes all the time, in the kernel's form.
#[repr(C)]
pub struct Raced(AtomicU64, u64);

impl Raced {
    /// Connects to what it is when the kernel looks.
    pub fn connect(&self, socket: &OwnedFd) -> io::Result<()> {
        // SAFETY: the address is given with its size and outlives the call; that it changes meanwhile is what is wanted.
        checked(
            unsafe { libc::connect(socket.as_raw_fd(), (&raw const *self).cast(), NAME) }.into(),
        )
        .map(drop)
    }
}

/// Runs `work` while a thread changes an address from one to the other and back.
pub fn while_changing<T>(
    one: SocketAddrV4,
    other: SocketAddrV4,
    work: &mut dyn FnMut(&Raced) -> T,
) -> T {
    let word = |address: SocketAddrV4| {
        let name = name_of(address);
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&name.sin_family.to_ne_bytes());
        bytes[2..4].copy_from_slice(&name.sin_port.to_ne_bytes());
        bytes[4..].copy_from_slice(&name.sin_addr.s_addr.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    };
    let (raced, done) = (Raced(AtomicU64::new(word(one)), 0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                raced.0.store(word(other), Ordering::Relaxed);
                raced.0.store(word(one), Ordering::Relaxed);
            }
        });
        let result = work(&raced);
        done.store(true, Ordering::Relaxed);
        result
    })
}

pub fn signal(pid: i64, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` takes plain numbers.
    checked(unsafe { libc::kill(pid as i32, signal) }.into()).map(drop)
}

pub fn trace(pid: i64) -> io::Result<()> {
    // SAFETY: PTRACE_SEIZE takes no memory: address and data are numbers.
    checked(unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid as i32, 0, 0) }).map(drop)
}

pub fn allow_tracing() {
    // SAFETY: PR_SET_PTRACER takes plain numbers; where Yama is absent it fails, and is not needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

pub fn ignore_hangup() {
    // SAFETY: SIG_IGN is no function of ours; nothing runs in a signal handler.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

pub fn read_memory(pid: i64, address: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16];
    let ours = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let theirs = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: bytes.len(),
    };
    // SAFETY: the kernel writes at most 16 bytes to our vector, which has them; the other address is in another process.
    let result = unsafe { libc::process_vm_readv(pid as i32, &ours, 1, &theirs, 1, 0) };
    checked(result as i64)?;
    Ok(bytes)
}

pub fn steal_descriptor(pid: i64, descriptor: i32) -> io::Result<File> {
    // SAFETY: `pidfd_open` takes plain numbers.
    let process = owned(checked(unsafe {
        libc::syscall(libc::SYS_pidfd_open, pid as i32, 0)
    })?);
    // SAFETY: `pidfd_getfd` takes plain numbers.
    let stolen =
        unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) };
    checked(stolen).map(|descriptor| owned(descriptor).into())
}

pub fn make_nice(pid: i64) -> io::Result<()> {
    // SAFETY: `setpriority` takes plain numbers.
    checked(unsafe { libc::setpriority(libc::PRIO_PROCESS, pid as u32, 19) }.into()).map(drop)
}

pub fn limit_core(pid: i64) -> io::Result<()> {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the new limit lives until the call returns, and the old one is not asked for.
    let result =
        unsafe { libc::prlimit(pid as i32, libc::RLIMIT_CORE, &none, std::ptr::null_mut()) };
    checked(result.into()).map(drop)
}

pub fn set_affinity(pid: i64) -> io::Result<()> {
    let first: u64 = 1;
    // SAFETY: the mask is one word, as its size says, and lives until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            pid as i32,
            size_of::<u64>(),
            &raw const first,
        )
    };
    checked(result).map(drop)
}

/// A child in a user namespace of its own, which ends at once.
pub fn clone_into_user_namespace() -> io::Result<()> {
    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
    // SAFETY: without CLONE_VM this is a fork: a null stack keeps the copied one, and no other argument is a pointer.
    reap(checked(unsafe {
        libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0)
    })?)
}

/// The same through the call whose flags a filter cannot see.
pub fn clone3_into_user_namespace() -> io::Result<()> {
    // `struct clone_args` of `linux/sched.h`, first version: flags, pidfd, child_tid, parent_tid, exit_signal, stack,
    // stack_size, tls.
    let arguments = [
        libc::CLONE_NEWUSER as u64,
        0,
        0,
        0,
        libc::SIGCHLD as u64,
        0,
        0,
        0,
    ];
    // SAFETY: the arguments are given with their size and live until the call returns; without CLONE_VM it is a fork.
    reap(checked(unsafe {
        libc::syscall(
            libc::SYS_clone3,
            arguments.as_ptr(),
            size_of_val(&arguments),
        )
    })?)
}

fn reap(pid: i64) -> io::Result<()> {
    if pid == 0 {
        // SAFETY: this is the child, which has nothing to clean up.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: no status is asked for.
    checked(unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) }.into()).map(drop)
}

pub fn io_uring() -> io::Result<()> {
    // `struct io_uring_params` is 120 bytes, which the kernel fills.
    let mut parameters = [0u64; 15];
    // SAFETY: the parameters have the size of the structure and live until the call returns.
    checked(unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) })
        .map(owned)
        .map(drop)
}

pub fn userfaultfd() -> io::Result<()> {
    const USER_MODE_ONLY: i32 = 1;
    // SAFETY: `userfaultfd` takes plain numbers.
    checked(unsafe { libc::syscall(libc::SYS_userfaultfd, USER_MODE_ONLY) })
        .map(owned)
        .map(drop)
}

pub fn bpf_map() -> io::Result<()> {
    const MAP_CREATE: i32 = 0;
    // Type array, key 4 bytes, value 8 bytes, one entry.
    let attributes: [u32; 4] = [2, 4, 8, 1];
    // SAFETY: the attributes are given with their size and live until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_CREATE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    };
    checked(result).map(owned).map(drop)
}

/// `KEY_SPEC_PROCESS_KEYRING`: its keys are gone with this process.
pub const PROCESS_KEYRING: i32 = -2;
/// `KEY_SPEC_USER_KEYRING`: its keys stay.
pub const USER_KEYRING: i32 = -4;

pub fn add_key(description: &CStr, keyring: i32) -> io::Result<()> {
    // SAFETY: type and description are C strings, the payload is given with its length, all live until the call returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            description.as_ptr(),
            b"x".as_ptr(),
            1,
            keyring,
        )
    };
    checked(result).map(drop)
}

pub fn perf_event() -> io::Result<()> {
    // `struct perf_event_attr`, first version (64 bytes): a software counter of task clock, user mode only.
    let mut attributes = [0u64; 8];
    attributes[0] = 1 | (64 << 32);
    attributes[1] = 1;
    attributes[5] = 1 << 5 | 1 << 6;
    // SAFETY: the attributes say their own size and live until the call returns.
    let result =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, 0) };
    checked(result).map(owned).map(drop)
}

pub fn fanotify() -> io::Result<()> {
    // The only class that a user without rights may ask for.
    const REPORT_FID: u32 = 0x200;
    // SAFETY: `fanotify_init` takes plain numbers.
    checked(unsafe { libc::fanotify_init(REPORT_FID, 0) }.into())
        .map(owned)
        .map(drop)
}

pub fn push_key(terminal: &OwnedFd) -> io::Result<()> {
    // SAFETY: TIOCSCTTY takes a number; that it may fail is seen by the next call.
    unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) };
    let key: u8 = b'x';
    // SAFETY: TIOCSTI reads one byte, which lives until the call returns.
    checked(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSTI, &raw const key) }.into())
        .map(drop)
}

/// Reads a System V segment of at least 16 bytes.
pub fn shared_memory(key: i64) -> io::Result<String> {
    // SAFETY: `shmget` takes plain numbers.
    let segment = checked(unsafe { libc::shmget(key as i32, 0, 0) }.into())?;
    // SAFETY: the kernel chooses the address; the mapping is read only.
    let address = unsafe { libc::shmat(segment as i32, std::ptr::null(), libc::SHM_RDONLY) };
    if address as isize == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the segment has been mapped at this address and has at least 16 bytes, as this function asks for.
    let bytes = unsafe { std::slice::from_raw_parts(address.cast::<u8>(), 16) };
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

/// `getpid` by the x32 ABI: the same entry with bit 30 of the number set.
#[cfg(target_arch = "x86_64")]
pub fn x32_getpid() -> io::Result<i64> {
    // SAFETY: `getpid` takes no argument.
    checked(unsafe { libc::syscall(0x4000_0000 | libc::SYS_getpid) })
}

/// `getpid` by the i386 entry, where it has number 20.
#[cfg(target_arch = "x86_64")]
pub fn int80_getpid() -> io::Result<i64> {
    let result: i64;
    // SAFETY: `getpid` takes no argument and writes no memory; the kernel keeps all registers but those named.
    unsafe {
        std::arch::asm!(
            "int 0x80", inlateout("rax") 20i64 => result,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    match result {
        1.. => Ok(result),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn x32_getpid() -> io::Result<i64> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_arch = "x86_64"))]
pub fn int80_getpid() -> io::Result<i64> {
    Err(io::ErrorKind::Unsupported.into())
}
