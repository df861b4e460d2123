"""Processes outside the sandbox: the bystander, and those that an attempt left."""

import os
import secrets
import signal
import subprocess
import time


class Bystander:
    """A process of the same account that has nothing to do with the sandbox, and records what is done to it."""

    def __init__(self, world):
        tokens = world.tokens
        self.record = f"{world.scratch}/bystander-{secrets.token_hex(8)}"
        world.put(self.record, "", 0o666)
        self.process = subprocess.Popen(
            ["ctk-victim " + tokens["VCMD"], world.outside, self.record], executable=world.scratch + "/victim",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/", env={"VICTIM_SECRET": tokens["VENV"], "PATH": "/usr/bin"},
            **world.account.identity(),
        )  # fmt: skip
        self.process.stdin.write(f"{tokens['VMEM']} {tokens['VFD']}\n".encode())
        self.process.stdin.flush()
        self.pid, self.secret, self.descriptor, self.target = self.process.stdout.readline().decode().split()

    def recorded(self):
        with open(self.record) as file:
            return file.read()

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        os.unlink(self.record)


def processes_with(word):
    """Numbers of the processes that have a word in their arguments or environment."""
    wanted, found = word.encode(), []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    continue
            for name in ("cmdline", "environ"):
                with open(f"/proc/{number}/{name}", "rb") as file:
                    if wanted in file.read():
                        found.append(int(number))
                        break
        except OSError:
            continue
    return found


def kill_all(word):
    """Ends the processes that have a word in their arguments or environment; again, since they may fork."""
    for _ in range(6):
        numbers = processes_with(word)
        if not numbers:
            return
        for number in numbers:
            try:
                os.kill(number, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.05)
