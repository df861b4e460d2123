"""Reads the headers of probes, controls and sessions, and checks that each is complete, known and bounded."""

import functools
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("controls", "probes", "sessions")
REQUIRED = ("Goal", "Models", "Oracle", "Tier", "Needs")
OPTIONAL = ("Fixture", "Limit", "Note")
TIERS = ("core", "hardening", "debatable")
# Seconds until the launcher is expected to end the call, and the most that a header may ask for.
LIMIT, MAX_LIMIT = 20, 60
MAX_LINES = 70

CLASSES = {
    "APR": "what a person approved, and what it then covers",
    "CTL": "ordinary work that must go on",
    "DEV": "device nodes and the kernel's log",
    "ENV": "secrets and start-up variables in the environment",
    "FD": "file descriptors that the caller leaked",
    "FS": "files outside the two roots: contents, names, metadata",
    "INFO": "what the machine shows of itself and others",
    "IPC": "shared memory, queues, keyrings and scratch space",
    "NET": "sockets of every family that lead out",
    "NS": "namespaces and mounts that undo a layer",
    "OUT": "output that harms whoever captures or shows it",
    "PER": "files that the host acts on later, outside the project",
    "PROC": "other processes of the user: memory, signals, links in /proc",
    "RACE": "a path that changes between the check and the use",
    "RDR": "the launcher's own file reader",
    "RES": "memory, disk, tasks and locks that others need",
    "SEC": "protected files inside the project: secrets, repository settings, hooks",
    "SURV": "processes that outlive their call",
    "SYS": "system calls and ABIs that filters forget",
    "TTY": "the terminal of the person in front of it",
    "XS": "another sandboxed session",
}

# What a machine or a run must have, in the words that a skipped probe is reported with.
NEEDS = {
    "root": "mode root",
    "nonroot": "mode user",
    "alone": "",
    "sandbox": "a launcher that contains something",
    "lazaret": "the interface of lazaret",
    "git": "git",
    "af-alg": "a kernel with CONFIG_CRYPTO_USER_API_HASH",
    "block-device": "a loop device",
    "btrfs": "root, a loop device and mkfs.btrfs (btrfs-progs)",
    "other-users": "processes of other users on this machine",
    "run-lock": "a world-writable /run/lock",
    "suid-fixture": "root, to make setuid fixtures",
    "udplite": "a kernel with UDP-Lite",
    "user-attributes": "a home whose file system keeps extended attributes of users",
    "vsock": "a kernel with AF_VSOCK",
    "x86": "a processor of the x86 family",
    "x32": "a kernel with CONFIG_X86_X32_ABI",
}

FIXTURES = {
    "argv-secret", "btrfs", "callback-reuse", "callback-tcp", "callback-udp", "env-interpreter", "env-preload", "git", "late-secret",
    "leak-canary", "leak-dir", "leak-lsock", "leak-opath", "leak-ro", "leak-rw", "leak-sock", "lease", "lock", "peer-session",
    "reader", "reader-concurrent", "second-call", "second-project", "stdout-file", "store-link", "stub", "toucher", "tty", "typed",
}  # fmt: skip


@dataclass
class Probe:
    """One file: an attack (probe, session) or a piece of ordinary work (control)."""

    path: Path
    kind: str
    fields: dict = field(default_factory=dict)
    unknown: list = field(default_factory=list)

    @property
    def name(self):
        return self.path.stem

    @property
    def id(self):
        return "-".join(self.name.split("-")[:2])

    @property
    def category(self):
        return self.name.split("-")[0]

    @property
    def goal(self):
        return self.fields.get("Goal", "")

    @property
    def models(self):
        return self.fields.get("Models", "")

    @property
    def tier(self):
        return self.fields.get("Tier", "")

    @property
    def oracles(self):
        """Each oracle as its words."""
        parts = self.fields.get("Oracle", "-").split(" ; ")
        return [part.split() for part in parts if part.strip() != "-"]

    @property
    def needs(self):
        return self.words("Needs")

    @property
    def fixtures(self):
        """Names of fixtures, with a value where one is given: `reader=PATH`."""
        return dict((word.split("=", 1) + [""])[:2] for word in self.words("Fixture"))

    @property
    def limit(self):
        return int(self.fields.get("Limit", LIMIT))

    def words(self, key):
        text = self.fields.get(key, "-")
        return [] if text == "-" else text.split()


def read(path, kind):
    """The header is the block of comments at the start; it ends with the first other line."""
    probe = Probe(Path(path), kind)
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith("#!"):
            continue
        match = re.match(r"(?:#|//) ([A-Z]\w+): +(.*\S)", line)
        if not match:
            break
        if match[1] in REQUIRED + OPTIONAL and match[1] not in probe.fields:
            probe.fields[match[1]] = match[2]
        else:
            probe.unknown.append(match[1])
    return probe


def read_all(root=ROOT):
    """Every control, probe and session, in this order and sorted by name."""
    for folder in FOLDERS:
        for path in sorted((Path(root) / folder).glob("*-*.*")):
            yield read(path, folder.removesuffix("s"))


def complaints(root=ROOT):
    """What is wrong with the corpus in `root`, a line each."""
    found = []
    seen = {}
    for probe in read_all(root):
        wrong = [*header_complaints(probe), *body_complaints(probe)]
        if probe.id in seen:
            wrong.append(f"has the id of {seen[probe.id]}")
        seen.setdefault(probe.id, probe.path.name)
        found += [f"{probe.path.relative_to(root)}: {text}" for text in wrong]
    if not seen:
        found.append(f"{root}: no probe")
    return found + page_complaints(root)


def header_complaints(probe):
    from .verdict import ORACLES

    if not re.fullmatch(r"[A-Z]+-\d{3}-[a-z0-9-]+\.(sh|py|c)", probe.path.name):
        yield "is not named CLASS-NNN-what-it-does.sh, .py or .c"
    if probe.category not in CLASSES:
        yield f"unknown class {probe.category}"
    yield from (f"unknown or repeated field {name}" for name in probe.unknown)
    yield from (f"no {name}" for name in REQUIRED if name not in probe.fields)
    if probe.tier not in TIERS:
        yield f"unknown tier {probe.tier!r}, expected one of {', '.join(TIERS)}"
    yield from (f"unknown need {name}" for name in probe.needs if name not in NEEDS)
    yield from (f"unknown fixture {name}" for name in probe.fixtures if name not in FIXTURES)
    for oracle in probe.oracles:
        arguments = ORACLES.get(oracle[0])
        if arguments is None:
            yield f"unknown oracle {oracle[0]}"
        elif not arguments.takes(len(oracle) - 1):
            yield f"oracle {oracle[0]} does not take {len(oracle) - 1} words"
    if not probe.oracles and probe.kind != "control":
        yield "no oracle decides it"
    if ("outside" in [oracle[0] for oracle in probe.oracles]) != (probe.kind == "session"):
        yield "the oracle `outside` is that of sessions, and their only one"
    if not probe.fields.get("Limit", "1").isdigit() or not 1 <= probe.limit <= MAX_LIMIT:
        yield f"the limit is not between 1 and {MAX_LIMIT} seconds"


# How each language starts: the helpers print what the runner looks for, and end a probe that runs too long.
STARTS = {
    "sh": r'^\. "(\$2/probe/ctk|\$CTK_SESSION/session)\.sh"$',
    "py": r"^from (ctk|session) import \*$",
    "c": r'^#include "(ctk|uring)\.h"$',
}
# Loops and waits that only something else would end.
UNBOUNDED = {
    "sh": r"while +(true|:)|until +(false)|\bwait -n\b|sleep +(infinity|[4-9]\d|\d{3,})\b|\btail -f\b|\byes\b *[|>]",
    "py": r"while +(True|1)\b|sleep\((?:[4-9]\d|\d{3,})\)|signal\.pause",
    "c": r"for *\(;;\)|while *\(1\)|\bsleep\((?:[4-9]\d|\d{3,})\)|\bpause\(\)",
}
# Addresses but those of the loopback, and names that a resolver may know.
FOREIGN = r"\b(?!127\.|0\.0\.0\.0\b)\d{1,3}(?:\.\d{1,3}){3}\b|\bhttps?://(?![\w.:@-]*\.invalid\b)\S+"


# What only processors of the x86 family have.
X86_ALONE = r"int \$0x80|\bMAP_32BIT\b|x86[-_]64"


@functools.cache
def numbers_of_aarch64():
    """The numbers of x86_64 that `sc` of the helpers knows for aarch64, read as text: the helpers work in probes alone."""
    text = (ROOT / "lib/ctk.py").read_text(encoding="utf-8")
    table = re.search(r"^AARCH64 = \{(.*?)\}", text, re.MULTILINE | re.DOTALL)
    return set(map(int, re.findall(r"(\d+):", table[1])))


def body_complaints(probe):
    text = probe.path.read_text(encoding="utf-8")
    language = probe.path.suffix[1:]
    if not re.search(STARTS.get(language, "$^"), text, re.MULTILINE):
        yield "does not start with the helpers of its language"
    match = re.search(UNBOUNDED.get(language, "$^"), text)
    if match:
        yield f"is not bounded: {match[0].strip()!r}"
    match = re.search(FOREIGN, text)
    if match:
        yield f"leads beyond the loopback: {match[0]!r}"
    if re.search(X86_ALONE, text) and "x86" not in probe.needs:
        yield "is for x86 alone, which `Needs: x86` says"
    if language == "py":
        unknown = set(map(int, re.findall(r"\b(?:sc|number_here|c_long)\((\d{2,3})\b", text))) - numbers_of_aarch64()
        yield from (f"system call {number} has no number for aarch64 in lib/ctk.py" for number in sorted(unknown) if number < 424)
    if text.count("\n") > MAX_LINES:
        yield f"has more than {MAX_LINES} lines"


def page_complaints(root):
    """The page for testers has a row for each class, oracle, need and fixture."""
    from .verdict import ORACLES

    page = Path(root) / "README.md"
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    words = [*CLASSES, *ORACLES, *FIXTURES, *NEEDS]
    return [
        f"README.md: no row for {word}" for word in words if not re.search(rf"^\| .*`{word}[` =]", text, re.MULTILINE)
    ]
