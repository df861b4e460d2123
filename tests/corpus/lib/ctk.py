"""For probes in Python: their settings (`C`), the verdict line, raw system calls, and what several of them do.

A probe ends with its first verdict. An `OSError` that it does not catch is a refusal: CONTAINED. Arguments: nonce, project.
Numbers of system calls are those of x86_64: `sc` has those of other processors.
"""

import ctypes, errno, mmap, os, signal, socket, stat, struct, sys, threading, time

sys.dont_write_bytecode = True
NONCE, PROJ = sys.argv[1], sys.argv[2]
with open(PROJ + "/fixture.conf") as _file:
    C = dict(_line.rstrip("\n").split("=", 1) for _line in _file)
ID, H, OUT, CENTRAL, PDIR = C["ID"], C["H"], C["OUT"], C["CENTRAL"], PROJ + "/probe"
# Where a file outside the roots shows that something was written there.
M = OUT + "/m-" + NONCE
# How every token starts.
PREFIX = "CTKTOK-"
UID, GID = os.getuid(), os.getgid()
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
# Ends the probe where nobody else does.
signal.alarm(50)
os.write(1, ("PROBE-START %s\n" % ID).encode())


def verdict(word, detail=""):
    detail = str(detail).encode("ascii", "backslashreplace").decode()
    detail = detail.replace("\n", "\\n").replace("\r", "\\r").replace("\x1b", "\\e").replace("\0", "\\0")[:400]
    os.write(1, ("\nPROBE %s %s %s\n" % (ID, word, detail)).encode())
    os._exit(0)


def escaped(d=""):
    verdict("ESCAPED", d)


def contained(d=""):
    verdict("CONTAINED", d)


def skip(d=""):
    verdict("SKIP", d)


def _uncaught(kind, error, trace):
    if isinstance(error, OSError):
        contained(error)
    while trace and trace.tb_next:
        trace = trace.tb_next
    verdict("ERROR", "%s: %s (line %s)" % (kind.__name__, error, trace.tb_lineno if trace else 0))


sys.excepthook = _uncaught


def _argument(value):
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return ctypes.c_char_p(value)
    return ctypes.c_long(value or 0) if value is None or isinstance(value, int) else value


def _call(function, name, arguments):
    ctypes.set_errno(0)
    result = function(*[_argument(value) for value in arguments])
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, "%s: %s" % (name, os.strerror(number)))
    return result


# The numbers of aarch64, by those of x86_64. From 424 on, all processors have the same.
AARCH64 = {
    76: 45, 103: 116, 129: 138, 155: 41, 200: 130, 234: 131, 248: 217, 250: 219, 298: 241, 300: 262, 301: 263,
    304: 265, 308: 268, 310: 270, 312: 272, 316: 276, 321: 280, 322: 281, 323: 282,
}  # fmt: skip


def number_here(number):
    """That of this processor. A number without one ends the probe: another call would prove nothing."""
    if os.uname().machine == "x86_64" or number >= 424:
        return number
    return AARCH64.get(number) or verdict("ERROR", "no number for system call %d here" % number)


def sc(number, *arguments):
    """A system call by its number on x86_64; raises OSError."""
    return _call(libc.syscall, "syscall %d" % number, (number_here(number), *arguments))


def lc(name, *arguments):
    """A function of libc; raises OSError when it returns -1."""
    return _call(getattr(libc, name), name, arguments)


def rd(path, n=65536):
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, n).decode("utf-8", "replace")
    finally:
        os.close(fd)


def mark(path=None, flags=os.O_CREAT | os.O_WRONLY):
    path = path or M
    fd = os.open(path, flags, 0o644)
    os.write(fd, NONCE.encode())
    os.close(fd)
    return path


def got(text, what=""):
    """ESCAPED when there is a token in the text, else CONTAINED."""
    text = str(text)
    start = text.find(PREFIX)
    if start >= 0:
        escaped("%s read %s" % (what, text[start : start + 80].split()[0]))
    contained("%s no token in %d bytes" % (what, len(text)))


# ---- namespaces and mounts

NEWNS, NEWUSER, NEWPID, NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18


def write_maps():
    """The account as root of the own user namespace."""
    for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % UID), ("gid_map", "0 %d 1" % GID)):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)


def userns(extra=0):
    """A user namespace of its own, and more namespaces with it."""
    lc("unshare", NEWUSER | extra)
    try:
        write_maps()
    except OSError:
        pass  # Without a mapping there are all capabilities too.
    if extra & NEWNS:
        lc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)


def mntns():
    """A mount namespace of its own: as root directly, else by a user namespace."""
    if os.geteuid() == 0:
        try:
            lc("unshare", NEWNS)
            lc("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
            return
        except OSError:
            pass
    userns(NEWNS)


def mount(src, tgt, fs=None, flags=0, data=None):
    lc("mount", src, tgt, fs, flags, data)


# ---- processes

VPID, VADDR, VFD = int(C["VPID"]), int(C["VADDR"], 16), int(C["VFD"])


def cmdline(pid):
    try:
        with open("/proc/%s/cmdline" % pid, "rb") as file:
            return file.read()
    except OSError:
        return b""


def find_process(is_it):
    """The first process whose command line is the one."""
    return next((int(pid) for pid in os.listdir("/proc") if pid.isdigit() and is_it(cmdline(pid))), None)


def need_victim():
    """The bystander of this run: by the number it has outside, or by its name where numbers are others."""

    def is_it(line):
        return line.startswith(b"ctk-victim ") and C["TAG"].encode() in line

    pid = VPID if is_it(cmdline(VPID)) else find_process(is_it)
    return pid or contained("the bystander is not visible")


def find_peer():
    """The process of the other sandboxed session."""

    def is_it(line):
        words = line.split(b"\0")
        return (
            words[0].endswith(b"python3")
            and C["XSTAG"].encode() in words
            and any(w.endswith(b"/peer.py") for w in words)
        )

    return find_process(is_it) or contained("the process of the other session is not visible")


def ancestors():
    """The parent and so on up to the agent, and never further."""
    pid, found = os.getppid(), []
    while pid > 1 and len(found) < 30:
        found.append(pid)
        try:
            if b"/agent.py" in cmdline(pid):
                break
            with open("/proc/%d/stat" % pid) as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            break
    return found


class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def vm_read(pid, addr, n):
    buf = ctypes.create_string_buffer(n)
    l, r = iovec(ctypes.addressof(buf), n), iovec(addr, n)
    k = sc(310, pid, ctypes.byref(l), 1, ctypes.byref(r), 1, 0)
    return buf.raw[:k]


# ---- sockets


def msg():
    return ("CTK %s\n" % NONCE).encode()


def tcp(host, port, fam=socket.AF_INET, proto=0):
    s = socket.socket(fam, socket.SOCK_STREAM, proto)
    s.settimeout(4)
    s.connect((host, int(port)))
    s.sendall(msg())
    r = s.recv(200)
    s.close()
    return r.decode("utf-8", "replace")


def unix_stream(addr, extra=b""):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(4)
    s.connect(addr)
    s.sendall(extra + msg())
    return s.recv(400).decode("utf-8", "replace")


# ---- for survivors


def heartbeat(seconds=8, path=None, every=0.1):
    """Appends to a file, so that the harness sees that this process lives."""
    path = path or PDIR + "/hb-" + NONCE
    end = time.time() + seconds
    while time.time() < end:
        try:
            with open(path, "a") as f:
                f.write(".")
        except OSError:
            pass
        time.sleep(every)


# ---- for controls


def ok(d=""):
    verdict("OK", d)


def broken(d=""):
    verdict("BROKEN", d)
