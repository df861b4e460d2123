"""What the tests share: where `lazaret` is, and folders to work in.

LAZARET_TEST_COMMAND is the program with what stands before it, one word a line; LAZARET_TEST_TIER the tier that a session must get.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import lazaret_sandbox

COMMAND = os.environ.get("LAZARET_TEST_COMMAND", os.environ.get("LAZARET", "lazaret")).split("\n")
TIER = os.environ.get("LAZARET_TEST_TIER")
LIMIT_S = 60.0
"""How long anything is waited for that must come."""


class Folders(unittest.TestCase):
    """A project, a central root, and a folder outside both."""

    def setUp(self) -> None:
        base = Path(tempfile.mkdtemp(prefix="lazaret-client-", dir=os.environ.get("LAZARET_TEST_FOLDER"))).resolve()
        self.addCleanup(shutil.rmtree, base, ignore_errors=True)
        self.project, self.central, self.outside = (base / name for name in ("project", "central", "outside"))
        for folder in (self.project, self.central, self.outside):
            folder.mkdir()

    def options(self, **more: Any) -> dict[str, Any]:
        return {"project": self.project, "central": self.central, "program": COMMAND, **more}


class WithSession(Folders):
    """The same with an open session."""

    session: lazaret_sandbox.Session

    def setUp(self) -> None:
        super().setUp()
        self.session = self.open()

    def open(self, **options: Any) -> lazaret_sandbox.Session:
        session = lazaret_sandbox.Session(**self.options(**options)).open()
        self.addCleanup(session.close)
        return session


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def fake(script: str) -> list[str]:
    """A program that is not `lazaret`: Python, with `script`."""
    return [sys.executable, "-c", script]
