"""Sessions: approvals, tools of the client's own, violations, and every way to the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
from unittest import mock
from pathlib import Path
from typing import Any, Mapping

import lazaret_sandbox
from support import COMMAND, LIMIT_S, Folders, WithSession, fake, is_alive


class Approvals(WithSession):
    def test_an_answer_counts_for_what_was_asked(self) -> None:
        asked: list[lazaret_sandbox.Approval] = []
        answers = iter(["no", "once", "no", "session"])

        def answer(approval: lazaret_sandbox.Approval) -> str:
            asked.append(approval)
            return next(answers)

        session = self.open(trust="guided", on_approval=answer)
        self.assertEqual((session.info.trust, session.info.channel), ("guided", "relay"))
        with self.assertRaises(lazaret_sandbox.DeniedByUser):
            session.run(["touch", "made"])
        self.assertFalse((self.project / "made").exists())
        session.run(["touch", "made"], check=True)
        self.assertTrue((self.project / "made").exists())
        with self.assertRaises(lazaret_sandbox.Denied):
            session.run(["touch", "more"])
        session.run(["touch", "more"], check=True)
        session.run(["touch", "again"], check=True)
        self.assertEqual(len(asked), 4)
        self.assertEqual((asked[0].tool, asked[0].input["command"]), ("bash", ["touch", "made"]))  # type: ignore[index]
        self.assertRegex(asked[0].digest, "^[0-9a-f]{64}$")
        grants = session.grants()
        self.assertEqual([grant["tool"] for grant in grants], ["bash"])
        self.assertEqual(session.revoke(grants[0]["grant"]), [])

    def test_without_a_callback_or_with_one_that_fails_the_answer_is_no(self) -> None:
        def fail(_: lazaret_sandbox.Approval) -> str:
            raise ValueError("broken")

        for callback in (None, fail, lambda _: True, lambda _: "yes", lambda _: lazaret_sandbox.Minutes(0), lambda _: ["once"]):
            session = self.open(trust="guided", on_approval=callback)
            with self.subTest(callback=callback), self.assertRaises(lazaret_sandbox.DeniedByUser):
                if callback is None:
                    session.run(["touch", "made"])
                with self.assertLogs("lazaret_sandbox", "ERROR"):
                    session.run(["touch", "made"])
            self.assertFalse((self.project / "made").exists())

    def test_minutes_and_a_no_that_stops_are_answers(self) -> None:
        answers: list[lazaret_sandbox.Answer] = [lazaret_sandbox.Minutes(1), "no_and_stop"]
        session = self.open(trust="guided", on_approval=lambda _: answers.pop(0))
        # It wants nothing, so it is allowed this once.
        session.run(["touch", "made"], check=True)
        self.assertTrue((self.project / "made").exists())
        with self.assertRaises(lazaret_sandbox.DeniedByUser):
            session.run(["touch", "more"])
        self.assertEqual(session.grants(), [])

    def test_the_calls_of_a_batch_are_asked_about_one_by_one(self) -> None:
        parts: list[int | None] = []

        def answer(approval: lazaret_sandbox.Approval) -> str:
            parts.append(approval.part)
            return "once" if approval.part == 0 else "no"

        session = self.open(trust="guided", on_approval=answer)
        calls = [{"tool_name": "bash", "parameters": {"command": f"touch {name}"}} for name in ("a", "b")]
        session.call("batch", {"invocations": calls})
        self.assertEqual(sorted(parts, key=str), [0, 1])
        self.assertEqual(sorted(os.listdir(self.project)), ["a"])


class OwnTools(WithSession):
    SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

    def tool(self, handler: Any, **more: Any) -> lazaret_sandbox.Tool:
        return lazaret_sandbox.Tool("deploy", "Deploys.", self.SCHEMA, handler, **more)

    def test_a_tool_of_the_clients_own_is_called(self) -> None:
        def deploy(given: Mapping[str, Any]) -> lazaret_sandbox.ToolReply:
            return lazaret_sandbox.ToolReply(f"deployed {given['name']}", {"name": given["name"]})

        self.session.register(self.tool(deploy))
        self.assertIn("deploy", [tool["name"] for tool in self.session.tools()])
        result = self.session.call("deploy", {"name": "x"})
        self.assertEqual(result.text, "deployed x")
        with self.assertRaises(lazaret_sandbox.InvalidInput):
            self.session.call("deploy", {})
        self.session.unregister("deploy")
        with self.assertRaises(lazaret_sandbox.UnknownTool):
            self.session.call("deploy", {"name": "x"})

    def test_a_tool_may_call_the_session(self) -> None:
        self.session.register(self.tool(lambda _: self.session.run("echo inner").text))
        self.assertEqual(self.session.call("deploy", {"name": "x"}).text, "inner\n")

    def test_errors_of_a_tool_have_their_kind(self) -> None:
        def missing(_: Mapping[str, Any]) -> str:
            raise lazaret_sandbox.ToolError("no such host", "not_found")

        def broken(_: Mapping[str, Any]) -> str:
            raise KeyError("password=hunter2")

        self.session.register(self.tool(missing))
        with self.assertRaises(lazaret_sandbox.NotFound) as failed:
            self.session.call("deploy", {"name": "x"})
        self.assertIn("no such host", str(failed.exception))
        self.session.unregister("deploy")
        self.session.register(self.tool(broken))
        with self.assertLogs("lazaret_sandbox", "ERROR"), self.assertRaises(lazaret_sandbox.IoError) as failed:
            self.session.call("deploy", {"name": "x"})
        self.assertNotIn("hunter2", str(failed.exception))
        with self.assertRaises(ValueError):
            lazaret_sandbox.ToolError("no", "violation")

    def test_a_name_of_lazarets_own_is_refused(self) -> None:
        shadow = lazaret_sandbox.Tool("bash", "x", self.SCHEMA, lambda _: "mine")
        with self.assertRaises(lazaret_sandbox.InvalidInput):
            self.session.register(shadow)
        self.assertEqual(self.session.call("bash", {"command": "echo real"}).text, "real\n")

    def test_a_tool_stops_when_its_call_does(self) -> None:
        async def scenario() -> bool:
            begun, stopped = asyncio.Event(), asyncio.Event()

            async def wait(_: Mapping[str, Any]) -> str:
                begun.set()
                try:
                    await asyncio.sleep(LIMIT_S)
                except asyncio.CancelledError:
                    stopped.set()
                    raise
                return "late"

            async with lazaret_sandbox.AsyncSession(**self.options()) as session:
                await session.register(self.tool(wait))
                call = await session.start("deploy", {"name": "x"})
                await asyncio.wait_for(begun.wait(), LIMIT_S)
                call.cancel()
                with self.assertRaises(lazaret_sandbox.Cancelled):
                    await call.result()
                await asyncio.wait_for(stopped.wait(), LIMIT_S)
                return stopped.is_set()

        self.assertTrue(asyncio.run(scenario()))


class WithAsyncio(Folders):
    def test_calls_run_at_once(self) -> None:
        async def scenario() -> list[str]:
            async with lazaret_sandbox.AsyncSession(**self.options()) as session:
                script = "touch $1; while [ ! -e $2 ]; do sleep 0.05; done; echo $1"
                pairs = (("a", "b"), ("b", "a"))
                runs = (session.run(["bash", "-c", script, "bash", *pair], timeout=60) for pair in pairs)
                return [done.text for done in await asyncio.gather(*runs)]

        self.assertEqual(asyncio.run(scenario()), ["a\n", "b\n"])

    def test_a_cancelled_task_ends_its_command(self) -> None:
        async def scenario() -> None:
            async with lazaret_sandbox.AsyncSession(**self.options()) as session:
                script = "touch begun; while [ ! -e go ]; do sleep 0.05; done; touch after"
                task = asyncio.create_task(session.run(script, timeout=500))
                while not (self.project / "begun").exists():
                    await asyncio.sleep(0.02)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                # Both are children of the same session: when the second has ended, the order to end the first was carried out.
                with self.assertRaises(lazaret_sandbox.Cancelled):
                    second = await session.start("bash", {"command": "sleep 500", "timeout": 500})
                    second.cancel()
                    await second.result()
                (self.project / "go").touch()
                await session.run("sleep 0.3")

        asyncio.run(scenario())
        self.assertFalse((self.project / "after").exists())

    def test_callbacks_may_be_coroutines(self) -> None:
        async def scenario() -> str:
            async def answer(_: lazaret_sandbox.Approval) -> str:
                await asyncio.sleep(0)
                return "once"

            chunks: list[bytes] = []

            async def on_output(_: str, chunk: bytes) -> None:
                await asyncio.sleep(0)
                chunks.append(chunk)

            options = self.options(trust="guided", on_approval=answer)
            async with lazaret_sandbox.AsyncSession(**options) as session:
                await session.run("echo x", on_output=on_output, check=True)
            return b"".join(chunks).decode()

        self.assertEqual(asyncio.run(scenario()), "x\n")


class Ends(WithSession):
    def test_closing_leaves_nothing(self) -> None:
        session = self.open()
        started = session.start("bash", {"command": "sleep 500", "timeout": 500})
        pids = [session.pid, *_below(session.pid)]
        self.assertGreater(len(pids), 2)
        session.close()
        self._gone(pids)
        with self.assertRaises((RuntimeError, lazaret_sandbox.SessionEnded)):
            started.result()
        with self.assertRaises((RuntimeError, lazaret_sandbox.SessionEnded)):
            session.run(["true"])
        session.close()

    def test_a_session_that_is_killed_ends_its_calls(self) -> None:
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.session.run("touch begun; sleep 500", timeout=500)
            except lazaret_sandbox.SessionEnded as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        while not (self.project / "begun").exists():
            time.sleep(0.02)
        pids = _below(self.session.pid)
        os.kill(self.session.pid, signal.SIGKILL)
        thread.join(LIMIT_S)
        self.assertEqual([error.exit_code for error in errors], [-9])  # type: ignore[attr-defined]
        self._gone(pids)
        with self.assertRaises(lazaret_sandbox.SessionEnded):
            self.session.run(["true"])

    def test_a_lost_executor_is_replaced(self) -> None:
        before = self.session.info.id
        call = self.session.start("bash", {"command": "touch begun; sleep 500", "timeout": 500})
        while not (self.project / "begun").exists():
            time.sleep(0.02)
        # Below `lazaret` is what makes brokers, and below that the broker.
        for spawner in _children(self.session.pid):
            for broker in _children(spawner):
                os.kill(broker, signal.SIGKILL)
        with self.assertRaises(lazaret_sandbox.ExecutorLost):
            call.result()
        self.assertEqual(self.session.run(["echo", "on"]).text, "on\n")
        self.assertNotEqual(self.session.info.id, before)

    def test_a_program_that_dies_takes_its_session_along(self) -> None:
        script = f"""
            import os, sys, lazaret_sandbox
            session = lazaret_sandbox.Session({str(self.project)!r}, central={str(self.central)!r}, program={COMMAND!r}).open()
            session.start("bash", {{"command": "sleep 500", "timeout": 500}})
            print(session.pid, flush=True)
            sys.stdin.read()
            os._exit(9)
        """
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(lazaret_sandbox.__file__).parents[1])},
        )
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        pids = [pid, *_below(pid)]
        self.assertTrue(is_alive(pid))
        child.communicate()
        self._gone(pids)

    def test_too_many_violations_end_a_session(self) -> None:
        session = self.open(max_violations=1)
        with self.assertRaises(lazaret_sandbox.Violation):
            session.call("file_read", {"path": str(self.outside / "secret")})
        for _ in range(2):
            with self.assertRaises(lazaret_sandbox.TooManyViolations):
                session.run(["touch", "made"])
        self.assertFalse((self.project / "made").exists())

    def test_what_opens_no_session_says_why(self) -> None:
        with self.assertRaises(lazaret_sandbox.SessionRefused) as refused:
            lazaret_sandbox.Session(**self.options(project="/")).open()
        self.assertTrue(refused.exception.kind)
        with self.assertRaises(lazaret_sandbox.LazaretError) as wrong:
            lazaret_sandbox.Session(**self.options(profile="no-such-profile")).open()
        self.assertIn("no-such-profile", str(wrong.exception) + getattr(wrong.exception, "diagnostics", ""))
        with self.assertRaises(lazaret_sandbox.NotInstalled):
            lazaret_sandbox.Session(program="/no/such/program").open()
        # What every cell has names no program.
        with mock.patch.dict(os.environ, {"LAZARET": "1", "PATH": "/no/such/folder"}):
            with self.assertRaisesRegex(lazaret_sandbox.NotInstalled, "^lazaret cannot be started"):
                lazaret_sandbox.Session().open()
        with self.assertRaises(RuntimeError):
            lazaret_sandbox.Session(**self.options()).run(["true"])

    def _gone(self, pids: list[int]) -> None:
        end = time.monotonic() + LIMIT_S
        while left := [pid for pid in pids if is_alive(pid)]:
            self.assertLess(time.monotonic(), end, f"still there: {left}")
            time.sleep(0.02)


READY = (
    '{"event":"ready","protocol":%d,"session":{"id":"1","project":"/p","cwd":".","central":"/c","profile":"d",'
    '"policy":"0","tier":"flat","layers":[],"trust":null,"channel":null,"maxViolations":null}}'
)


class FakePrograms(unittest.TestCase):
    """A program that does not keep to the lines ends the session and nothing else."""

    def opened(self, after: str, protocol: int = 1) -> lazaret_sandbox.Session:
        script = f"import sys\nprint({READY % protocol!r}, flush=True)\nline = sys.stdin.readline()\n{after}"
        session = lazaret_sandbox.Session(program=fake(script))
        self.addCleanup(session.close)
        return session.open()

    def test_lines_that_are_none_end_the_session(self) -> None:
        for after in (
            "print('no JSON', flush=True)",
            "print('[1]', flush=True)",
            "print('{}', flush=True)",
            "sys.stdout.buffer.write(bytes([255, 10])); sys.stdout.flush()",
            "print('{\"event\":\"output\",\"id\":1,\"stream\":\"stdout\",\"chunkBase64\":\"?\"}', flush=True)",
            "print('{\"event\":\"approval\",\"id\":1}', flush=True)",
            "print('{\"event\":\"result\",\"id\":null,\"error\":{\"message\":\"x\"}}', flush=True)",
            "print('x' * (65 << 20), end='', flush=True)",
            "sys.exit(7)",
        ):
            with self.subTest(after=after):
                session = self.opened(after + "\nsys.stdin.read()")
                # Only the last one is no fault of the lines, and so is not logged.
                if after.startswith("sys.exit"):
                    with self.assertRaises(lazaret_sandbox.SessionEnded) as ended:
                        session.call("bash", {"command": "true"})
                    self.assertEqual(ended.exception.exit_code, 7)
                    continue
                with self.assertLogs("lazaret_sandbox", "ERROR"), self.assertRaises(lazaret_sandbox.SessionEnded):
                    session.call("bash", {"command": "true"})

    def test_another_version_of_the_lines_is_refused(self) -> None:
        with self.assertLogs("lazaret_sandbox", "ERROR"), self.assertRaises(lazaret_sandbox.SessionEnded) as refused:
            self.opened("", protocol=2)
        self.assertIsInstance(refused.exception.__cause__, lazaret_sandbox.ProtocolError)

    def test_events_that_are_new_are_passed_over(self) -> None:
        answer = '{"event":"result","id":1,"status":"success","result":"fine","metadata":{"new":1},"new":2}'
        session = self.opened(f"print('{{\"event\":\"new\",\"id\":1}}'); print({answer!r}, flush=True)\nsys.stdin.read()")
        self.assertEqual(session.call("bash", {"command": "true"}).text, "fine")

    def test_hooks_are_heard_and_a_callback_that_fails_ends_nothing(self) -> None:
        ran = '{"event":"hook","id":1,"hook":{"hook":"guard","event":"before_tool","outcome":"allowed"}}'
        answer = '{"event":"result","id":1,"status":"success","result":"fine","metadata":{}}'
        script = f"import sys\nprint({READY % 1!r}, flush=True)\nsys.stdin.readline()\nprint({ran!r}); print({answer!r}, flush=True)"
        heard: list[Mapping[str, Any]] = []

        def hear(hook: Mapping[str, Any]) -> None:
            heard.append(hook)
            raise RuntimeError("not today")

        session = lazaret_sandbox.Session(program=fake(script + "\nsys.stdin.read()"), on_hook=hear)
        self.addCleanup(session.close)
        with self.assertLogs("lazaret_sandbox", "ERROR"):
            self.assertEqual(session.open().call("bash", {"command": "true"}).text, "fine")
        self.assertEqual([hook["hook"] for hook in heard], ["guard"])

    def test_a_call_that_is_too_long_is_refused_here(self) -> None:
        session = self.opened("sys.stdin.read()")
        for given in ({"command": "x" * (32 << 20)}, {"command": "\ud800"}):
            with self.assertRaises(ValueError):
                session.call("bash", given)

    def test_a_program_that_does_not_end_is_ended(self) -> None:
        script = f"""
            import signal, sys, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print({READY % 1!r}, flush=True)
            while True: time.sleep(1)
        """
        session = lazaret_sandbox.Session(program=fake(textwrap.dedent(script))).open()
        pid = session.pid
        session.close()
        self.assertFalse(is_alive(pid))


def _parents() -> dict[int, int]:
    """The parent of each process, as far as this one sees them."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                pass
    return parents


def _children(pid: int) -> list[int]:
    return [child for child, parent in _parents().items() if parent == pid]


def _below(pid: int) -> list[int]:
    """The processes that descend from one."""
    parents, found = _parents(), {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


if __name__ == "__main__":
    unittest.main()
