"""Launchers: how a sandbox is started, where its program is, and which version it is. They are data: `launchers.toml`."""

import json
import os
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass, field

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Limits that a launcher may be asked for; the probes of RES and OUT go beyond them.
LIMITS = dict(max_pids=128, max_mem_mb=256, max_out_mb=16, max_file_mb=64, max_fds=1024)
KEYS = {
    "like",
    "title",
    "get",
    "program",
    "version",
    "argv",
    "reader",
    "own_timeout",
    "files",
    "make",
    "policy",
    "env",
    "root",
}


class NotHere(Exception):
    """This launcher cannot be run on this machine, and why."""


@dataclass
class Launcher:
    name: str
    argv: list
    title: str = ""
    get: str = ""
    program: str = ""
    version: list = field(default_factory=list)
    reader: list = field(default_factory=list)
    own_timeout: bool = False
    files: dict = field(default_factory=dict)
    make: list = field(default_factory=list)
    policy: list = field(default_factory=list)
    env: dict = field(default_factory=dict)
    found: str = ""
    path: str = SYSTEM_PATH

    @property
    def is_control(self):
        """Whether it contains nothing, so that every attack must work."""
        return not self.program

    def values(self):
        bin = os.path.dirname(self.found)
        return dict(program=self.found, bin=bin, prefix=os.path.dirname(bin))

    def command(self):
        """The words of its command up to its program, which sessions that drive the program itself start with."""
        words = fill(self.argv, {**self.values(), "cmd": []})
        return words[: words.index(self.found) + 1] if self.found in words else []


def read_toml(path):
    with open(path, "rb") as stream:
        return tomllib.load(stream)


def load(files):
    """The sections of all files; a later file replaces sections of an earlier one."""
    sections = {}
    for file in files:
        sections.update(read_toml(file))
    for name, section in sections.items():
        unknown = set(section) - KEYS
        if unknown or "argv" not in section:
            raise SystemExit(f"launcher {name}: " + (f"unknown keys {sorted(unknown)}" if unknown else "no argv"))
    return sections


def find(sections, name, mode, path, env):
    """The launcher `name` for a mode. Raises `NotHere` when its program is in no directory of `path`."""
    section = dict(sections[name])
    base = dict(sections.get(section.pop("like", ""), {}))
    merged = {**{key: base[key] for key in ("title", "get", "program", "version") if key in base}, **section}
    merged.pop("like", None)
    merged.update(merged.pop("root", {}) if mode == "root" else {})
    merged.pop("root", None)
    launcher = Launcher(name=name, path=path, **merged)
    launcher.env = {**launcher.env, **env}
    if launcher.program:
        launcher.found = shutil.which(launcher.program, path=path) or ""
        if not launcher.found:
            raise NotHere(f"{launcher.program} is not installed; get it by: {launcher.get}")
    return launcher


def version(launcher, account):
    """The first line that its version command prints when the account runs it. Raises `NotHere` when it cannot."""
    if not launcher.version:
        return launcher.title
    command = fill(launcher.version, launcher.values())
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=30,
            cwd="/",
            env={"PATH": launcher.path, "HOME": account.home},
            **account.identity(),
        )
    except OSError as error:
        raise NotHere(f"{account.name} cannot execute {error.filename or command[0]}: {error.strerror}") from error
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    if done.returncode:
        raise NotHere(f"{shlex.join(command)} ended with {done.returncode}: {' '.join(lines)[-200:]}")
    return " ".join([launcher.title, lines[0]] if lines and launcher.title not in lines[0] else lines[:1])


def fill(words, values):
    """Puts values in place of `{name}`. The word `{cmd}` becomes as many words as the command has."""
    filled = []
    for word in words:
        if word == "{cmd}":
            filled += values["cmd"]
            continue
        for name, value in values.items():
            word = word.replace("{%s}" % name, str(value))
        filled.append(word)
    return filled


def for_command(values, command):
    return {**values, "cmd": command, "cmdstr": shlex.join(command)}


def for_path(values, path):
    """For a reader; without one of its own a launcher runs `cat`."""
    return {**for_command(values, ["/bin/cat", "--", path]), "path": path, "path_json": json.dumps(path)}
