"""A running `lazaret serve --ui` with a script as its model, in a folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import urllib.request
from pathlib import Path

from browser import LIMIT_S


class Sidecar:
    def __init__(self, program: Path, turns: list[dict], *arguments: str, hooks: dict[str, tuple[str, str]] | None = None) -> None:
        """`hooks` has by their names the tool that each is told of before a call, and a program of Python."""
        self.folder = tempfile.TemporaryDirectory()
        home = Path(self.folder.name)
        self.project = home / "project"
        self.project.mkdir()
        script = home / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        command = [program, "serve", "--ui", "--project", self.project, "--listen", "127.0.0.1:0",
                   "--provider", "mock", "--script", script, *arguments]
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_STATE_HOME": str(home / "state"),
                       "XDG_CONFIG_HOME": str(home / "config")}
        for name, (tool, source) in (hooks or {}).items():
            self.add_hook(program, environment, name, tool, source)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.ready = json.loads(self.process.stdout.readline())
        self.port = int(self.ready["address"].rsplit(":", 1)[1])
        self.token = self.ready["token"]

    @staticmethod
    def add_hook(program: Path, environment: dict[str, str], name: str, tool: str, source: str) -> None:
        """Writes a hook into the settings of this home, and accepts it as its user would."""
        settings = Path(environment["XDG_CONFIG_HOME"]) / "lazaret"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / f"{name}.py").write_text(f"#!/usr/bin/env python3\nimport json, sys\ntold = json.load(sys.stdin)\n{source}\n")
        with (settings / "agent.toml").open("a") as file:
            file.write(f'[[hooks]]\nname = "{name}"\nevent = "before_tool"\nprogram = "{name}.py"\ntools = ["{tool}"]\ntimeout_s = 30\n')
        subprocess.run([program, "chat-hooks", "accept", "--yes", name], env=environment, check=True, stdout=subprocess.DEVNULL)

    def __enter__(self) -> Sidecar:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        assert self.process.wait(LIMIT_S) == 0
        self.folder.cleanup()

    def get(self, path: str, token: bool = True) -> tuple[dict, str]:
        """The headers and the body of what is at a path."""
        request = urllib.request.Request(self.ready["url"] + path)
        if token:
            request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}, answer.read().decode()
