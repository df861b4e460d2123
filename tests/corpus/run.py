#!/usr/bin/env python3
"""Attacks sandboxes for commands with a corpus of small programs, and compares what got out.

Without a name: plain `bash`, which must let everything out, and every launcher of launchers.toml that is in PATH; then the
comparison goes to results/table.md and results/table.json. README.md describes how a verdict is reached. Started as root it runs
each launcher as an ordinary user and as root; started by anybody else, as that user.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from harness import headers, lanes, launchers, table
from harness.verdict import BROKEN, CONTAINED, ERROR, ESCAPED, OK
from harness.world import Account, compiled

# Above it the users that root makes; their homes are theirs alone.
USER = "ctktest"


def main():
    options = arguments()
    if options.lint is not None:
        found = headers.complaints(Path(options.lint))
        print("\n".join(found) or "every probe is complete and bounded")
        return 1 if found else 0
    os.makedirs(f"{options.out}/build", exist_ok=True)
    if options.build:
        return build(options)
    sections = launchers.load(options.launchers)
    if options.control:
        options.name = [table.CONTROL]
    names = options.name or list(sections)
    unknown = [name for name in names if name not in sections]
    if unknown:
        raise SystemExit(f"no launcher {', '.join(unknown)}; there are: {' '.join(sections)}")
    probes = chosen(options)
    runs = [run for mode in modes(options) for name in names if (run := attack(sections, name, mode, probes, options))]
    # Who compares wants the table; only the control decides whether it may be believed.
    judged = runs if options.name else [run for run in runs if run["launcher"] == table.CONTROL]
    complaints = [text for run in judged for text in judge(run, known(options.known))]
    if len(names) > 1 and not options.only:
        compare(options, sections)
    for run in runs:
        print(f"{run['launcher']}-{run['mode']}: {run['seconds']} s; {table.summary(run['results'])}")
    print(
        "\n".join(
            ["", f"{len(complaints)} complaints:", *complaints] if complaints else ["", "Nothing to complain of."]
        )
    )
    return 1 if complaints or not runs else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("name", nargs="*", help="launchers, by their names in launchers.toml")
    add("--mode", choices=["user", "root"], help="one kind of user only")
    add("--only", metavar="GLOBS", help="a part, such as 'FS-*,NET-0*'")
    add("--control", action="store_true", help="plain bash: everything that runs here must get out")
    add("--known", metavar="FILE", help="attacks that are known to get out, with reasons (TOML)")
    add(
        "--launchers",
        metavar="FILE",
        action="append",
        default=[headers.ROOT / "launchers.toml"],
        help="more launchers; may be repeated",
    )
    add(
        "--path",
        metavar="DIR",
        action="append",
        default=[],
        help="looked into for programs before the system's; may be repeated",
    )
    add("--env", metavar="NAME=VALUE", action="append", default=[], help="a variable for the launcher; may be repeated")
    add(
        "--lanes",
        metavar="N",
        type=int,
        default=min(lanes.cpus() + 1, 6),
        help="probes side by side [default: %(default)s]",
    )
    add(
        "--user",
        metavar="NAME",
        default=USER,
        help="the dedicated user, whose home is overwritten [default: %(default)s]",
    )
    add(
        "--worlds",
        metavar="DIR",
        default="~/.ctk-world",
        help="where somebody who is not root has the homes of the lanes; lazaret believes no settings that lie beside "
        "a project in a directory of the caller's home, so for it take one outside [default: %(default)s]",
    )
    add(
        "--build",
        metavar="COMPILER",
        help="only compile the probes in C into the folder of the results, for a machine without a compiler: "
        "its processor is the compiler's target",
    )
    add("--out", metavar="DIR", default=headers.ROOT / "results", help="where results go [default: results]")
    add(
        "--lint",
        metavar="DIR",
        nargs="?",
        const=headers.ROOT,
        help="only check that every probe is complete and bounded",
    )
    return parser.parse_args()


def chosen(options):
    patterns = [pattern if pattern.endswith("*") else pattern + "*" for pattern in (options.only or "*").split(",")]
    probes = [
        probe for probe in headers.read_all() if any(fnmatch.fnmatch(probe.name, pattern) for pattern in patterns)
    ]
    if not probes:
        raise SystemExit(f"no probe is named {options.only}")
    return probes


def build(options):
    """Compiles fixtures and probes, and names those that the compiler's target cannot have."""
    target = subprocess.run([options.build, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    machine = target.split("-")[0]
    sources = [headers.ROOT / f"fixtures/{name}.c" for name in ("victim", "agentstub", "preload")]
    for probe in chosen(options):
        if machine != "x86_64" and "x86" in probe.needs:
            print(f"{probe.name}: needs {headers.NEEDS['x86']}, not compiled for {machine}")
        elif probe.path.suffix == ".c":
            sources.append(probe.path)
    for source in sources:
        compiled(source, f"{options.out}/build", options.build, machine)
    print(f"{len(sources)} programs for {machine} -> {options.out}/build")
    return 0


def modes(options):
    if os.getuid() != 0 and options.mode == "root":
        raise SystemExit("mode root needs root")
    return [options.mode] if options.mode else ["user", "root"] if os.getuid() == 0 else ["user"]


def accounts(options, mode):
    """One for each lane. Only root can have them under names of their own."""
    count = max(1, options.lanes)
    if os.getuid() == 0 and mode == "user":
        return [dedicated(options.user + (f"-{number}" if number > 1 else "")) for number in range(1, count + 1)]
    base = "/home/ctkroot" if mode == "root" else os.path.abspath(os.path.expanduser(options.worlds))
    caller = "root" if mode == "root" else os.environ.get("USER", str(os.getuid()))
    made = []
    for number in range(1, count + 1):
        home = f"{base}/{number}"
        os.makedirs(home, exist_ok=True)
        os.chmod(home, 0o755)
        made.append(Account(caller, os.getuid(), os.getgid(), home))
    return made


def dedicated(name):
    if not name.startswith("ctk"):
        raise SystemExit(
            "the name of the dedicated user starts with `ctk`: its home is overwritten, so it is nobody's own"
        )
    try:
        account = Account.named(name)
    except KeyError:
        subprocess.run(["useradd", "--create-home", "--shell", "/bin/bash", name], check=True)
        account = Account.named(name)
    os.chmod(account.home, 0o755)
    return account


def attack(sections, name, mode, probes, options):
    """All probes through one launcher in one mode; nothing when it is not here."""
    path = ":".join([*map(os.path.abspath, options.path), launchers.SYSTEM_PATH])
    users = accounts(options, mode)
    try:
        launcher = launchers.find(sections, name, mode, path, dict(pair.split("=", 1) for pair in options.env))
        version = launchers.version(launcher, users[0])
    except launchers.NotHere as error:
        print(f"--- {name}: {error}", flush=True)
        return None
    print(f"--- {name}-{mode}: {version}", flush=True)
    results, started = [], time.time()

    def report(result):
        results.append(result)
        note = f" [{result['note']}]" if result["note"] else ""
        print(
            f"{result['verdict']:<9} {result['name']:<36.36} {result['seconds']:5.1f}s {result['detail']:.110}{note}",
            flush=True,
        )

    lanes.run(probes, launcher, users, f"{options.out}/build", report)
    results.sort(key=lambda result: (result["kind"] != "control", result["name"]))
    run = dict(
        launcher=name, mode=mode, version=version, argv=launcher.argv, kernel=os.uname().release, date=time.strftime("%Y-%m-%d"),
        seconds=round(time.time() - started), complete=not options.only, totals=table.totals(results), results=results,
    )  # fmt: skip
    file = Path(options.out) / f"{name}-{mode}{'' if run['complete'] else '-partial'}.json"
    file.write_text(json.dumps(run, indent=1), encoding="utf-8")
    print(table.by_class(results), f"-> {file}", sep="\n", flush=True)
    return run


def known(path):
    """The list of what is known to get out: `[[open]]` with `probe`, `why`, `runs` unless it is every run, and `race`."""
    if not path:
        return []
    entries = launchers.read_toml(path).get("open", [])
    for entry in entries:
        if (
            not isinstance(entry.get("probe"), str)
            or not entry.get("why")
            or not isinstance(entry.get("runs", []), list)
            or not isinstance(entry.get("race", False), bool)
        ):
            raise SystemExit(f"{path}: {entry} needs probe and why")
    return entries


def judge(run, entries):
    """What is wrong in a run. In the control nothing may be held; in any other run nothing of the core may get out."""
    name = f"{run['launcher']}-{run['mode']}"
    for result in run["results"]:
        line = f"{name}: {result['verdict']} {result['name']}: {result['detail']} {result['note']}".rstrip()
        found = [entry for entry in entries if entry["probe"] == result["id"] and name in entry.get("runs", [name])]
        is_known, is_race = bool(found), any(entry.get("race", False) for entry in found)
        verdict, attacks = result["verdict"], result["kind"] != "control"
        if verdict == ERROR:
            yield line
        elif run["launcher"] == table.CONTROL:
            if verdict in (CONTAINED, BROKEN):
                yield line
        elif is_known and not is_race and verdict in (CONTAINED, OK):
            yield f"{line} (it holds now: take it off the list)"
        elif not is_known and (verdict == BROKEN or verdict == ESCAPED and attacks and result["tier"] == "core"):
            yield line
    ids = {result["id"] for result in run["results"]}
    if run["complete"]:
        yield from (
            f"{name}: no probe {entry['probe']}, which the list names" for entry in entries if entry["probe"] not in ids
        )


def compare(options, sections):
    comparison = table.Comparison(options.out, list(sections))
    (Path(options.out) / "table.md").write_text(comparison.markdown(), encoding="utf-8")
    (Path(options.out) / "table.json").write_text(json.dumps(comparison.json(), indent=1), encoding="utf-8")
    print(f"-> {options.out}/table.md, table.json")


if __name__ == "__main__":
    sys.exit(main())
