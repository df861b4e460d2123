"""Runs probes side by side: a lane is a process with a world of its own, which is given one probe after the other."""

import fcntl
import multiprocessing
import os
import resource
import signal
import sys
import traceback
from contextlib import contextmanager
from multiprocessing.connection import wait

from . import verdict
from .attempt import Attempt
from .needs import has
from .sessions import Session
from .world import LIBC, World


class Lane:
    def __init__(self, context, number, account, cache, launcher):
        self.number = number
        self.connection, other = context.Pipe()
        arguments = (other, account, cache, launcher)
        self.process = context.Process(target=serve, args=arguments, name=f"ctk-lane-{number}")
        self.process.start()
        other.close()
        self.probe = None

    def give(self, probe):
        self.probe = probe
        self.connection.send(probe)

    def take(self):
        """The result of the probe it was given; one that ended the lane is an error with its name."""
        probe, self.probe = self.probe, None
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
            return verdict.describe(
                probe, verdict.ERROR, note=f"the lane ended with {self.process.exitcode}", seconds=0
            )

    @property
    def alive(self):
        return self.process.is_alive()

    def ready(self):
        """Waits until its world stands."""
        try:
            self.connection.recv()
        except EOFError:
            raise SystemExit("a lane did not start: its error is above") from None

    def stop(self):
        """Lets it finish its probe and remove its fixtures."""
        try:
            self.connection.send(None)
        except OSError:
            pass
        self.process.join(90)
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()


def serve(connection, account, cache, launcher):
    """The process of a lane."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A handler: programs would inherit that a signal is ignored, also from who started us.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    # PR_SET_PDEATHSIG: without the command nobody would end it.
    LIBC.prctl(1, signal.SIGTERM)
    # A launcher hands its limits down, and floods of descriptors need room to be seen.
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    world = World(account, cache)
    try:
        world.start()
        connection.send(None)
        while probe := connection.recv():
            connection.send(attempt(world, launcher, probe))
    finally:
        world.stop()


def attempt(world, launcher, probe):
    missing = [name for name in probe.needs if not has(name, world, launcher)]
    if missing:
        return verdict.describe(probe, verdict.SKIP, "needs " + ", ".join(missing), missing=missing, seconds=0)
    try:
        return (Session if probe.kind == "session" else Attempt)(world, launcher, probe).run()
    except Exception as error:
        traceback.print_exc()
        return verdict.describe(probe, verdict.ERROR, note=f"harness: {error!r}", seconds=0)


def run(probes, launcher, accounts, cache, report):
    """Gives `probes` to lanes, one for each account, and reports each result. Those that need it run alone, at the end."""
    # The fork context: a lane inherits what was read, and no thread runs yet.
    context = multiprocessing.get_context("fork")
    lanes = [Lane(context, number, account, cache, launcher) for number, account in enumerate(accounts)]
    together = [probe for probe in probes if "alone" not in probe.needs]
    alone = [probe for probe in probes if "alone" in probe.needs]
    try:
        for lane in lanes:
            lane.ready()
        with machine(fcntl.LOCK_SH):
            distribute(lanes, together, report)
        with machine(fcntl.LOCK_EX):
            distribute(lanes[:1], alone, report)
    finally:
        for lane in lanes:
            lane.stop()


@contextmanager
def machine(lock):
    """Waits until other runs of this corpus let us share the machine (LOCK_SH) or leave it to us (LOCK_EX)."""
    folder = os.open(os.path.dirname(os.path.abspath(__file__)), os.O_RDONLY)
    try:
        fcntl.flock(folder, lock)
        yield
    finally:
        os.close(folder)


def distribute(lanes, probes, report):
    waiting = list(probes)
    for lane in lanes:
        if waiting:
            lane.give(waiting.pop(0))
    while any(lane.probe for lane in lanes):
        ready = wait([lane.connection for lane in lanes if lane.probe])
        for lane in [lane for lane in lanes if lane.probe and lane.connection in ready]:
            report(lane.take())
            if waiting and lane.alive:
                lane.give(waiting.pop(0))
    for probe in waiting:
        report(verdict.describe(probe, verdict.ERROR, note="no lane is left", seconds=0))


def cpus():
    return len(os.sched_getaffinity(0))
