"""Measures N sandboxes on this machine, idle and with one call a second each: load.py FOLDER-OF-PROGRAMS N SECONDS

Each is a `lazaret sandboxd` of its own, as in a pod of its own; calls are `true` by the legacy protocol, on a connection that is kept.
Prints what each of them takes of the machine, and how many that allows on a node (`--node-gib`, `--node-cpus`): the least of all limits.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
# What of a node's memory and processors is the system's own.
RESERVED_GIB, RESERVED_CPUS = 4, 1
# `maxPods` of the kubelet, unless it is configured.
KUBELET_PODS = 110
# Memory of the kernel for processes, which no process has in its own.
OF_KERNEL = ("Slab", "KernelStack", "PageTables", "Percpu")


def trees(roots: list[int]) -> list[list[int]]:
    """Each process with all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = []
    for root in roots:
        tree = [root]
        for pid in tree:
            tree += children.get(pid, [])
        found.append(tree)
    return found


def figures(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", text, re.MULTILINE)}


def used(roots: list[int]) -> Counter[str]:
    """What all of these take, by its name in the table below."""
    total: Counter[str] = Counter()
    namespaces: set[tuple[str, str]] = set()
    for pid in (pid for tree in trees(roots) for pid in tree):
        process = Path("/proc") / str(pid)
        try:
            memory = figures((process / "smaps_rollup").read_text().split("\n", 1)[1])
            descriptors = [os.readlink(one) for one in (process / "fd").iterdir()]
            spaces = {(one.name, os.readlink(one)) for one in (process / "ns").iterdir() if "_for_" not in one.name}
            mounts = len((process / "mountinfo").read_text().splitlines())
            threads = len(list((process / "task").iterdir()))
            times = (process / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        mount = next(space for space in spaces if space[0] == "mnt")
        total["mounts"] += mounts if mount not in namespaces else 0
        namespaces |= spaces
        total["processes"] += 1
        total["threads"] += threads
        total["KiB, shared pages by their share (PSS)"] += memory["Pss"]
        total["KiB of its own (private)"] += memory["Private_Clean"] + memory["Private_Dirty"]
        total["descriptors"] += len(descriptors)
        total["inotify instances"] += sum(one.startswith("anon_inode:inotify") for one in descriptors)
        # Children that were waited for count with their parents.
        total["ticks"] += sum(int(value) for value in times[11:15])
    own = {(one.name, os.readlink(one)) for one in Path("/proc/self/ns").iterdir()}
    for kind, _ in namespaces - own:
        total[f"{kind} namespaces"] += 1
    return total


def of_kernel() -> int:
    memory = figures(Path("/proc/meminfo").read_text())
    return sum(memory[name] for name in OF_KERNEL)


def limit(name: str) -> int:
    return int(Path("/proc/sys", *name.split("/")).read_text().split()[-1])


class Load:
    def __init__(self, programs: Path, folder: Path, count: int) -> None:
        self.servers, self.ports, self.starts = [], [], []
        for number in range(count):
            project = folder / str(number) / "project"
            project.mkdir(parents=True)
            words = ["--project", project, "--central", project.parent / "central"]
            words += [word for name in ("legacy", "rest", "grpc") for word in (f"--{name}-port", "0")]
            begun = time.monotonic()
            server = subprocess.Popen([programs / "lazaret", "sandboxd", *words], stdout=subprocess.PIPE, text=True)
            ready = json.loads(server.stdout.readline())
            self.starts.append(time.monotonic() - begun)
            self.servers.append(server)
            self.ports.append(int(ready["legacy"].rsplit(":", 1)[1]))
        self.times: list[float] = []
        self.wrong: list[object] = []

    def used(self) -> Counter[str]:
        return used([server.pid for server in self.servers])

    def call(self, number: int, end: float) -> None:
        time.sleep(number / len(self.ports))
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[number], timeout=60)
        while (begun := time.monotonic()) < end:
            connection.request("POST", "/execute", '{"command":"true"}', {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            self.times.append(time.monotonic() - begun)
            if answer.get("exit_code") != 0:
                self.wrong.append(answer)
            time.sleep(max(0.0, 1 - (time.monotonic() - begun)))

    def calls(self, seconds: float) -> Counter[str]:
        """One call a second each; what all take meanwhile."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self.call, args=(number, end)) for number in range(len(self.ports))]
        [thread.start() for thread in threads]
        time.sleep(seconds / 2)
        busy = self.used()
        [thread.join() for thread in threads]
        return busy

    def end(self) -> list[int]:
        for server in self.servers:
            server.terminate()
        return sorted({server.wait(60) for server in self.servers})


def allowed(each: dict[str, float], gib: float, cpus: float, milliseconds: float) -> dict[str, float]:
    """How many sandboxes each limit of a node allows; those of the kernel are this machine's."""
    kib = each["KiB, shared pages by their share (PSS)"] + each["KiB of the kernel"]
    limits = {
        "maxPods of the kubelet by default": KUBELET_PODS,
        f"memory ({gib - RESERVED_GIB:.0f} GiB)": (gib - RESERVED_GIB) * 2**20 / kib,
        f"processors ({cpus - RESERVED_CPUS:.0f}), one call a second each": (cpus - RESERVED_CPUS) * 1000 / milliseconds,
        "kernel/pid_max": limit("kernel/pid_max") / each["threads"],
        "kernel/threads-max": limit("kernel/threads-max") / each["threads"],
        "fs/file-max": limit("fs/file-max") / each["descriptors"],
    }
    for kind in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        if each.get(f"{kind} namespaces"):
            limits[f"user/max_{kind}_namespaces, one user"] = limit(f"user/max_{kind}_namespaces") / each[f"{kind} namespaces"]
    if each["inotify instances"]:
        limits["fs/inotify/max_user_instances, one user"] = limit("fs/inotify/max_user_instances") / each["inotify instances"]
    return dict(sorted(limits.items(), key=lambda item: item[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path)
    parser.add_argument("count", type=int)
    parser.add_argument("seconds", type=int)
    parser.add_argument("--node-gib", type=float, default=64)
    parser.add_argument("--node-cpus", type=float, default=16)
    options = parser.parse_args()
    count, seconds = options.count, options.seconds
    with tempfile.TemporaryDirectory(prefix="lazaret-load-", dir="/var/tmp") as folder:
        kernel = of_kernel()
        load = Load(options.programs, Path(folder), count)
        first = load.used()
        time.sleep(seconds / 2)
        idle = load.used()
        kernel = of_kernel() - kernel
        before = load.used()["ticks"]
        load.calls(seconds)
        after = load.used()["ticks"]
        ended = load.end()
    times, starts = sorted(load.times), sorted(load.starts)
    at = lambda values, part: values[min(len(values) - 1, int(len(values) * part))] * 1000
    milliseconds = (after - before) * 1000 / TICKS / len(times)
    of_idle = (idle["ticks"] - first["ticks"]) * 1000 / TICKS / count / (seconds / 2)
    each = {name: total / count for name, total in sorted(idle.items()) if name != "ticks"} | {"KiB of the kernel": kernel / count}
    print(f"{count} sandboxes, {len(times)} calls in {seconds} s, load {os.getloadavg()[0]:.0f}: p50 {at(times, 0.5):.1f} ms, "
          f"p99 {at(times, 0.99):.1f} ms; start p50 {at(starts, 0.5):.0f} ms; processor {milliseconds:.1f} ms a call, "
          f"{of_idle:.2f} ms a second idle; {len(load.wrong)} wrong answers; ends {ended}")
    for name, value in each.items():
        print(f"  {value:10.1f}  {name}, each")
    print(f"a node of {options.node_gib:.0f} GiB and {options.node_cpus:.0f} processors:")
    for name, value in allowed(each, options.node_gib, options.node_cpus, milliseconds).items():
        print(f"  {int(value):10}  {name}")
    return int(bool(load.wrong) or ended != [128 + 15])


if __name__ == "__main__":
    sys.exit(main())
