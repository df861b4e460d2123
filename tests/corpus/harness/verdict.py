"""What proves an escape, seen from outside, and the verdict that follows from it."""

import fcntl
import glob
import os
import re
import stat
import struct
from dataclasses import dataclass
from typing import Callable

from .outside import contents, is_mounted, mode_of, snapshot

ESCAPED, CONTAINED, SKIP, ERROR, OK, BROKEN = "ESCAPED", "CONTAINED", "SKIP", "ERROR", "OK", "BROKEN"
VERDICTS = (ESCAPED, CONTAINED, SKIP, ERROR, OK, BROKEN)
# Oracles that compare a path, their first word, with what it was before.
COMPARES = ("modified", "exists", "gone", "inode-flag")


@dataclass
class Oracle:
    """`holds` decides from an attempt and the oracle's words whether it got out; `None`: the probe's own finding counts."""

    words: tuple
    holds: Callable | None

    def takes(self, count):
        return count in self.words if self.words else True


def token(attempt, name):
    return attempt.world.tokens[name] in attempt.text


def marker(attempt, path="OUT/m-{NONCE}"):
    path = attempt.world.place(path.replace("{NONCE}", attempt.nonce).encode().decode("unicode_escape"))
    return attempt.nonce.encode() in contents(path)


def exists(attempt, path):
    path = attempt.world.place(path)
    return attempt.before.get(path) is None and (os.path.lexists(path) or bool(glob.glob(path)))


def gone(attempt, path):
    path = attempt.world.place(path)
    return attempt.before.get(path) is not None and not os.path.lexists(path)


def modified(attempt, path):
    path = attempt.world.place(path)
    return attempt.before.get(path) is not None and snapshot(path) != attempt.before[path]


def erased(attempt, name, path):
    return attempt.world.tokens[name].encode() not in contents(attempt.world.place(path))


def hit(attempt, name):
    return any(attempt.nonce in text for listener, text in attempt.hits if listener == name)


def victim(attempt, *words):
    return " ".join(words)[:60] in attempt.bystander.recorded()


def peer(attempt):
    return attempt.nonce.encode() in contents(attempt.world.second + "/probe/message")


def agent_signal(attempt):
    return bool(attempt.launch.reported("signal"))


def tty(attempt, what):
    terminal = attempt.launch.terminal
    if what == "injected":
        return attempt.nonce.encode() in terminal.pending_input()
    if what == "written":
        return attempt.nonce.encode() in terminal.written.data()
    return terminal.foreground() != attempt.launch.agent.pid


def device(attempt, path):
    mode = mode_of(attempt.world.place(path))
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)


def xattr(attempt, path, name):
    try:
        return name in os.listxattr(attempt.world.place(path))
    except OSError:
        return False


def inode_flag(attempt, path):
    """FS_NODUMP_FL, by FS_IOC_GETFLAGS."""
    try:
        with open(attempt.world.place(path)) as file:
            return bool(struct.unpack("i", fcntl.ioctl(file, 0x80086601, struct.pack("i", 0))[:4])[0] & 0x40)
    except OSError:
        return False


def mounted(attempt, path):
    return is_mounted(attempt.world.place(path))


def policy(attempt):
    return any(attempt.nonce.encode() in contents(path) for path in attempt.policy)


def user_key(attempt):
    return attempt.world.ask_server(op="key", name="ctk-left-" + attempt.nonce)["found"]


def raw(attempt, *words):
    return bytes.fromhex("".join(words)) in attempt.data


def pipe_held(attempt, seconds):
    launch = attempt.launch
    closed = launch.out.closed_at
    return closed is None or closed - launch.started >= float(seconds)


def exit_code(attempt, code):
    return attempt.launch.ended.get("exit") == int(code)


ORACLES = {
    "token": Oracle((1,), token),
    "marker": Oracle((0, 1), marker),
    "exists": Oracle((1,), exists),
    "gone": Oracle((1,), gone),
    "modified": Oracle((1,), modified),
    "erased": Oracle((2,), erased),
    "hit": Oracle((1,), hit),
    "victim": Oracle((2,), victim),
    "peer": Oracle((0,), peer),
    "agent-signal": Oracle((0,), agent_signal),
    "survivor": Oracle((0,), lambda attempt: attempt.survived),
    "tty": Oracle((1,), tty),
    "bytes": Oracle((1,), lambda attempt, count: attempt.launch.size >= int(count)),
    "raw": Oracle((), raw),
    "hang": Oracle((0,), lambda attempt: attempt.launch.timed_out),
    "pipe-held": Oracle((1,), pipe_held),
    "device": Oracle((1,), device),
    "xattr": Oracle((2,), xattr),
    "inode-flag": Oracle((1,), inode_flag),
    "mounted": Oracle((1,), mounted),
    "policy": Oracle((0,), policy),
    "user-key": Oracle((0,), user_key),
    "reader-token": Oracle((1,), lambda attempt, name: attempt.world.tokens[name].encode() in attempt.reader.data),
    "reader-hang": Oracle((0,), lambda attempt: attempt.reader.timed_out),
    "reader-bytes": Oracle((1,), lambda attempt, count: attempt.reader.size >= int(count)),
    "reader-raw": Oracle((), lambda attempt, *words: bytes.fromhex("".join(words)) in attempt.reader.data),
    "exit": Oracle((1,), exit_code),
    "text": Oracle((1,), lambda attempt, word: word in attempt.text),
    "self-report": Oracle((0,), None),
    "outside": Oracle((0,), None),
}


def judge(attempt):
    """The result of an attempt, as it is written to the results file."""
    probe, launch = attempt.probe, attempt.launch
    inside, detail = last_word(probe.id, attempt.text)
    evidence, undecided = [], False
    for words in probe.oracles:
        oracle = ORACLES[words[0]]
        arguments = [word.replace("{NONCE}", attempt.nonce) for word in words[1:]]
        if oracle.holds is None:
            undecided = True
        elif oracle.holds(attempt, *arguments):
            evidence.append(" ".join(words))
    refused = launch.reported("spawn_error")
    if refused:
        verdict, note = ERROR, refused["spawn_error"]
    elif attempt.failure and not evidence:
        verdict, note = ERROR, attempt.failure
    elif probe.kind == "control":
        verdict, note = judge_control(probe, inside, evidence, attempt.text)
    else:
        verdict, note = judge_attack(probe, inside, evidence, undecided, attempt.text)
    if attempt.reader.reads:
        detail = f"{attempt.reader}; {detail}"
    result = describe(probe, verdict, detail, note, inside=inside, evidence=evidence)
    result.update(seconds=round(launch.ended.get("at", launch.started) - launch.started, 2), bytes=launch.size)
    result.update(exit=launch.ended.get("exit"), timed_out=launch.timed_out)
    if verdict in (ERROR, BROKEN):
        result["tail"] = attempt.text[-600:]
    left = attempt.left_running()
    if left and "survivor" not in evidence:
        result["left_running"] = left
    return result


def last_word(identifier, text):
    """The last verdict that a probe printed, also inside JSON."""
    pattern = rf'PROBE {re.escape(identifier)} (ESCAPED|CONTAINED|SKIP|ERROR|OK|BROKEN) ?([^\n"\\]*)'
    found = re.findall(pattern, text)
    return (found[-1][0], found[-1][1].strip()) if found else (None, "")


def judge_control(probe, inside, evidence, text):
    if "PROBE-START " + probe.id not in text:
        return ERROR, not_started(text)
    if inside == OK and (evidence or not probe.oracles):
        return OK, ""
    return BROKEN, {None: "no verdict line", OK: "the check from outside failed"}.get(inside, "")


def judge_attack(probe, inside, evidence, undecided, text):
    if evidence:
        claimed = inside in (ESCAPED, None) or "reader" in probe.fixtures
        return ESCAPED, "" if claimed else f"the probe printed {inside}"
    if inside is None:
        started = "PROBE-START " + probe.id in text
        return (CONTAINED, "killed before its verdict") if started else (ERROR, not_started(text))
    if inside in (SKIP, ERROR) or undecided:
        return inside, ""
    return CONTAINED, "claimed inside, not confirmed outside" if inside == ESCAPED else ""


def not_started(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "the launcher did not start it" + (": " + lines[-1][:200] if lines else "")


def describe(probe, verdict, detail="", note="", **more):
    return dict(
        id=probe.id, name=probe.name, category=probe.category, kind=probe.kind, tier=probe.tier, goal=probe.goal,
        models=probe.models, verdict=verdict, detail=detail[:400], note=note, **more,
    )  # fmt: skip
