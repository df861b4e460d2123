"""Measures N sandboxes with one call a second each: load.py FOLDER-OF-PROGRAMS N SECONDS

Each is a `lazaret sandboxd` of its own, as in a pod of its own; calls are `true` by the legacy protocol, on a connection that is kept.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def resident(root: int) -> int:
    """KiB of a process and all below it, shared pages by their share."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    todo, total = [root], 0
    while todo:
        pid = todo.pop()
        todo += children.get(pid, [])
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def main() -> int:
    programs, count, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory(prefix="lazaret-load-", dir="/var/tmp") as folder:
        servers, ports, starts = [], [], []
        for number in range(count):
            project = Path(folder) / str(number) / "project"
            project.mkdir(parents=True)
            words = ["--project", project, "--central", project.parent / "central"]
            words += [word for name in ("legacy", "rest", "grpc") for word in (f"--{name}-port", "0")]
            begun = time.monotonic()
            server = subprocess.Popen([programs / "lazaret", "sandboxd", *words], stdout=subprocess.PIPE, text=True)
            ready = json.loads(server.stdout.readline())
            starts.append(time.monotonic() - begun)
            servers.append(server)
            ports.append(int(ready["legacy"].rsplit(":", 1)[1]))
        times: list[float] = []
        wrong: list[object] = []
        end = time.monotonic() + seconds

        def call(number: int) -> None:
            time.sleep(number / count)
            connection = http.client.HTTPConnection("127.0.0.1", ports[number], timeout=60)
            while (begun := time.monotonic()) < end:
                connection.request("POST", "/execute", '{"command":"true"}', {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
                times.append(time.monotonic() - begun)
                if answer.get("exit_code") != 0:
                    wrong.append(answer)
                time.sleep(max(0.0, 1 - (time.monotonic() - begun)))

        threads = [threading.Thread(target=call, args=(number,)) for number in range(count)]
        [thread.start() for thread in threads]
        time.sleep(seconds / 2)
        memory = [resident(server.pid) for server in servers[:20]]
        [thread.join() for thread in threads]
        for server in servers:
            server.terminate()
        ended = [server.wait(60) for server in servers]
    times.sort()
    starts.sort()
    at = lambda values, part: values[min(len(values) - 1, int(len(values) * part))] * 1000
    print(f"{count} sandboxes, {len(times)} calls in {seconds} s, load {os.getloadavg()[0]:.0f}: p50 {at(times, 0.5):.1f} ms, "
          f"p99 {at(times, 0.99):.1f} ms; start p50 {at(starts, 0.5):.0f} ms; {sum(memory) / len(memory) / 1024:.1f} MiB each; "
          f"{len(wrong)} wrong answers; ends {sorted(set(ended))}")
    return int(bool(wrong) or set(ended) != {128 + 15})


if __name__ == "__main__":
    sys.exit(main())
