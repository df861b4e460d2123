"""Attacks of several steps, which run outside: calls of the launcher one after the other, or the user's own git in between."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time

from . import verdict
from .attempt import Attempt
from .processes import kill_all
from .world import PYTHON


class Session(Attempt):
    """The script runs as the account; its `cell` starts one call of the launcher in the script's project."""

    def run(self):
        started = time.time()
        try:
            self.prepare()
            output = self.script()
            return self.judged(output, time.time() - started)
        finally:
            kill_all(self.nonce)
            self.bystander.close()
            self.world.remove(self.folder)

    def script(self):
        world, probe = self.world, self.probe
        self.folder = world.home + "/session-" + self.nonce
        world.mkdir(self.folder)
        job = f"{world.scratch}/cell.json"
        values = {name: str(value) for name, value in self.values.items() if name != "project"}
        world.put(job, json.dumps(dict(argv=self.launcher.argv, values={**values, "timeout": "30"})))
        # A checkout may lie where the account cannot read.
        script = f"{world.scratch}/{probe.path.name}"
        shutil.copyfile(probe.path, script)
        os.chmod(script, 0o755)
        env = dict(
            self.env, CTK_SESSION=world.scratch, CTK_CELL=job, CTK_ID=probe.id, CTK_NONCE=self.nonce, CTK_FOLDER=self.folder,
            CTK_COMMAND=shlex.join(self.launcher.command()), PYTHONPATH=world.scratch,
        )  # fmt: skip
        start = ["/bin/bash"] if probe.path.suffix == ".sh" else [PYTHON, "-B"]
        process = subprocess.Popen(
            [*start, script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
            cwd=self.folder, start_new_session=True, **world.account.identity(),
        )  # fmt: skip
        try:
            return process.communicate(timeout=probe.limit)[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            kill_all(self.nonce)
            return process.communicate()[0].decode("utf-8", "replace")

    def judged(self, output, seconds):
        printed, detail = verdict.last_word(self.probe.id, output)
        note = "" if printed else "ended or was ended before its verdict"
        result = verdict.describe(
            self.probe,
            printed or verdict.ERROR,
            detail,
            note,
            inside=printed,
            evidence=["outside"] * (printed == verdict.ESCAPED),
        )
        result["seconds"] = round(seconds, 2)
        if not printed:
            result["tail"] = output[-600:]
        return result
