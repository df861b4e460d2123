"""Whether this machine, this run and this launcher have what a probe needs."""

import gzip
import os
import shutil
import socket


def has(need, world, launcher):
    return CHECKS[need](world, launcher)


def has_socket(family, kind, protocol=0):
    try:
        socket.socket(family, kind, protocol).close()
        return True
    except OSError:
        return False


def kernel_has(option):
    try:
        with gzip.open("/proc/config.gz", "rt") as config:
            return option + "=y\n" in config.read()
    except OSError:
        return False


def filesystem(name):
    with open("/proc/filesystems") as file:
        return name in file.read().split()


def is_world_writable(path):
    try:
        return bool(os.stat(path).st_mode & 2)
    except OSError:
        return False


def others(world):
    """Processes of other users, as many as the probe wants to see."""
    count = 0
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            count += os.stat(f"/proc/{number}").st_uid != world.account.uid
        except OSError:
            pass
    return count > 3


def is_root():
    return os.getuid() == 0


CHECKS = {
    "root": lambda world, _: world.account.uid == 0,
    "nonroot": lambda world, _: world.account.uid != 0,
    "alone": lambda *_: True,
    "sandbox": lambda _, launcher: not launcher.is_control,
    "lazaret": lambda _, launcher: launcher.program == "lazaret",
    "git": lambda *_: shutil.which("git") is not None,
    "af-alg": lambda *_: has_socket(38, socket.SOCK_SEQPACKET),
    "block-device": lambda world, _: bool(world.block_device[1]),
    "btrfs": lambda *_: is_root() and filesystem("btrfs") and bool(shutil.which("mkfs.btrfs")),
    "other-users": lambda world, _: others(world),
    "run-lock": lambda *_: is_world_writable("/run/lock"),
    "suid-fixture": lambda world, _: world.suid,
    "udplite": lambda world, _: world.server_info["ports"]["udplite"] != 0,
    "vsock": lambda *_: has_socket(40, socket.SOCK_STREAM),
    "user-attributes": lambda world, _: world.keeps_attributes,
    "x86": lambda *_: os.uname().machine == "x86_64",
    "x32": lambda *_: kernel_has("CONFIG_X86_X32_ABI"),
}
