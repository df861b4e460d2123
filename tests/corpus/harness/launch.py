"""The agent process and the launcher that it starts: their pipes, their terminal, and how they ended."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import threading
import time

from .processes import kill_all
from .world import PYTHON

# Above this many bytes of output the launcher is ended.
FLOOD = 80 << 20
HEAD, TAIL = 4 << 20, 256 << 10


class Stream:
    """Reads a descriptor to its end in a thread, counts all of it and keeps the beginning and the end."""

    def __init__(self, descriptor):
        self.descriptor, self.size, self.head, self.tail = descriptor, 0, b"", b""
        self.closed_at = None
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while True:
            try:
                data = os.read(self.descriptor, 1 << 18)
            except OSError:
                break
            if not data:
                break
            self.size += len(data)
            if len(self.head) < HEAD:
                self.head += data
            else:
                self.tail = (self.tail + data)[-TAIL:]
        self.closed_at = time.time()

    def data(self):
        return self.head + self.tail

    def close(self):
        self.thread.join(1.0)
        if not self.thread.is_alive():
            os.close(self.descriptor)


class Terminal:
    """A pseudo-terminal of the harness, which the agent gets as its controlling terminal."""

    def __init__(self, world):
        self.master, self.slave = pty.openpty()
        self.path = os.ttyname(self.slave)
        os.chmod(self.path, 0o600)
        world.own(self.path)
        self.modes = self.local_modes()
        self.written = Stream(os.dup(self.master))

    def local_modes(self):
        return termios.tcgetattr(self.slave)[3] & (termios.ECHO | termios.ICANON)

    def foreground(self):
        return struct.unpack("i", fcntl.ioctl(self.master, termios.TIOCGPGRP, struct.pack("i", 0)))[0]

    def pending_input(self):
        fcntl.fcntl(self.slave, fcntl.F_SETFL, os.O_NONBLOCK)
        try:
            return os.read(self.slave, 4096)
        except OSError:
            return b""

    def close(self):
        os.close(self.slave)
        os.close(self.master)
        self.written.close()


class Launch:
    """The agent process, and the launcher that it starts when it is given its job."""

    def __init__(self, world, env, terminal=None):
        self.terminal, self.status, self.flooded, self.is_over = terminal, [], False, False
        status_read, status_write = os.pipe()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        self.status_write = status_write
        self.agent = subprocess.Popen(
            [PYTHON, "-B", world.scratch + "/agent.py"], stdin=subprocess.PIPE, stdout=out_write, stderr=err_write,
            pass_fds=[status_write], env=env, cwd="/", **world.account.identity(),
        )  # fmt: skip
        self.status_number = status_write
        for descriptor in (status_write, out_write, err_write):
            os.close(descriptor)
        self.out, self.err = Stream(out_read), Stream(err_read)
        threading.Thread(target=self.read_status, args=(status_read,), daemon=True).start()

    def read_status(self, descriptor):
        with os.fdopen(descriptor) as lines:
            for line in lines:
                self.status.append({**json.loads(line), "at": time.time()})

    def start(self, job, argv, timeout, typed=None):
        """Hands over the job and waits until the launcher has ended, or floods."""
        try:
            self.run(job, argv, timeout, typed)
        finally:
            self.is_over = True

    def run(self, job, argv, timeout, typed):
        self.started = time.time()
        text = json.dumps({**job, "argv": argv, "timeout": timeout, "status": self.status_number}) + "\n"
        self.agent.stdin.write(text.encode())
        self.agent.stdin.flush()
        end = self.started + timeout + 12
        while time.time() < end and not self.reported("exit") and not self.reported("spawn_error"):
            if max(self.out.size, self.err.size) > FLOOD:
                self.flooded = True
                kill_all(job["nonce"])
                time.sleep(0.3)
                return
            if typed and time.time() - self.started > 0.8:
                os.write(self.terminal.master, typed.encode())
                typed = None
            if self.agent.poll() is not None:
                time.sleep(0.1)
                return
            time.sleep(0.01)

    def wait_for_pipes(self, seconds):
        end = time.time() + seconds
        while time.time() < end and not self.flooded and None in (self.out.closed_at, self.err.closed_at):
            time.sleep(0.01)

    def reported(self, key):
        return next((line for line in self.status if key in line), None)

    @property
    def ended(self):
        return self.reported("exit") or {}

    @property
    def timed_out(self):
        return bool(self.ended.get("timeout")) or not self.ended

    @property
    def size(self):
        return self.out.size + self.err.size

    def data(self):
        return self.out.data() + self.err.data()

    def close(self):
        try:
            self.agent.stdin.close()
        except OSError:
            pass
        try:
            self.agent.wait(3)
        except subprocess.TimeoutExpired:
            self.agent.kill()
            self.agent.wait()
        self.out.close()
        self.err.close()
        if self.terminal:
            self.terminal.close()
