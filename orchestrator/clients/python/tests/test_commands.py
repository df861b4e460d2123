"""Commands: arguments, streams, input, directory, environment, limits."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import unittest

import lazaret_sandbox
from support import LIMIT_S, TIER, WithSession


class Commands(WithSession):
    def test_the_session_says_what_is_in_force(self) -> None:
        info = self.session.info
        self.assertEqual(info.project, str(self.project))
        self.assertEqual(info.central, str(self.central))
        self.assertIn("seccomp", info.layers)
        self.assertRegex(info.version or "", r"^\d+\.\d+\.\d+")
        if TIER:
            self.assertEqual(info.tier, TIER)
        self.assertEqual(self.session.run(["true"]).layers, info.layers)

    def test_streams_are_apart_and_the_exit_code_is_the_commands(self) -> None:
        done = self.session.run("echo out; echo err >&2; exit 7")
        self.assertEqual((done.exit_code, done.stdout, done.stderr), (7, b"out\n", b"err\n"))
        self.assertFalse(done.ok)
        self.assertEqual(self.session.run("kill -TERM $$").exit_code, 143)
        with self.assertRaises(lazaret_sandbox.CommandFailed) as failed:
            self.session.run("echo why >&2; exit 7", check=True)
        self.assertEqual((failed.exception.exit_code, failed.exception.stderr), (7, b"why\n"))

    def test_arguments_reach_the_program_as_they_are(self) -> None:
        words = ["", "a b", "$HOME `id` \"'\\", "*", "é✨", "line\nend", "\x01\x7f", "-n", "--"]
        done = self.session.run(["printf", "%s\\0", *words])
        self.assertEqual(done.stdout.decode().split("\0")[:-1], words)

    def test_arguments_that_are_not_text(self) -> None:
        done = self.session.run([b"printf", b"%s\\0", b"\xff\xfe", b"a"], stdin=b"unread")
        self.assertEqual(done.stdout, b"\xff\xfe\0a\0")
        done = self.session.run([b"sh", b"-c", b'printf "%s" "$1"; cat', b"sh", b"\xff"], stdin=b"\x00rest")
        self.assertEqual(done.stdout, b"\xff\x00rest")

    def test_arguments_of_a_mebibyte(self) -> None:
        words = [bytes([65 + number]).decode() * 65_536 for number in range(16)]
        done = self.session.run(["printf", "%s", *words])
        self.assertEqual((done.exit_code, len(done.stdout)), (0, 1 << 20))
        # A comparison that fails would be printed, which takes for ever.
        self.assertTrue(done.stdout == "".join(words).encode())
        done = self.session.run(["sh", "-c", "cat; echo $#", *words], stdin=b"x" * 300_000)
        self.assertTrue(done.stdout == b"x" * 300_000 + b"15\n")
        many = self.session.run(["sh", "-c", "echo $#", "sh", *("\x01" * 20 for _ in range(9_000))])
        self.assertEqual(many.stdout, b"9000\n")

    def test_arguments_beyond_the_limit_are_refused_here(self) -> None:
        for command in ([], ["a\0b"], ["x" * 1_000_000] * 3):
            with self.assertRaises(ValueError):
                self.session.run(command)

    def test_what_cannot_be_started_ends_as_in_a_shell(self) -> None:
        (self.project / "plain").write_text("text")
        for env in (None, {"A": "b"}):
            absent = self.session.run(["no-such-program"], env=env)
            self.assertEqual(absent.exit_code, 127)
            self.assertIn(b"no-such-program", absent.stderr)
            self.assertEqual(self.session.run(["./plain"], env=env).exit_code, 126)
        self.assertEqual(self.session.run(["true"], cwd="absent").exit_code, 127)

    def test_the_directory_is_the_calls_own(self) -> None:
        (self.project / "sub dir").mkdir()
        for cwd, expected in (
            (None, self.project),
            ("sub dir", self.project / "sub dir"),
            (self.project / "sub dir", self.project / "sub dir"),
            (self.central, self.central),
            ("/usr/bin", "/usr/bin"),
        ):
            with self.subTest(cwd=cwd):
                self.assertEqual(self.session.run(["pwd"], cwd=cwd).text, f"{expected}\n")
        # Where the cell's /tmp lies elsewhere, it is entered there.
        self.session.run(["bash", "-c", "mkdir /tmp/of-cell && echo here > /tmp/of-cell/file"])
        self.assertEqual(self.session.run(["cat", "file"], cwd="/tmp/of-cell").text, "here\n")
        own = self.session.run("echo $TMPDIR").text.strip()
        self.assertEqual(self.session.run(["cat", "file"], cwd=f"{own}/of-cell").text, "here\n")

    def test_the_environment_is_the_calls_own(self) -> None:
        env = {"WORD": "two words\n$HOME", "EMPTY": ""}
        script = 'printf "%s|%s" "$WORD" "${EMPTY-unset}"'
        self.assertEqual(self.session.run(script, env=env).text, "two words\n$HOME|")
        self.assertEqual(self.session.run(["sh", "-c", script], env=env).text, "two words\n$HOME|")
        self.assertEqual(self.session.run(script).text, "|unset")
        (self.project / "a=b").write_text("#!/bin/sh\necho $WORD")
        os.chmod(self.project / "a=b", 0o755)
        self.assertEqual(self.session.run(["./a=b"], env={"WORD": "w"}).text, "w\n")
        for name, value in (("", "x"), ("A=B", "x"), ("A", "\0")):
            with self.assertRaises(ValueError):
                self.session.run(["true"], env={name: value})

    def test_the_secrets_of_this_process_are_not_in_a_cell(self) -> None:
        os.environ["CLIENT_TEST_TOKEN"] = "swordfish-swordfish"
        self.addCleanup(os.environ.pop, "CLIENT_TEST_TOKEN")
        session = self.open()
        self.assertNotIn("CLIENT_TEST_TOKEN", session.run(["env"]).text)
        self.assertEqual(session.run(["echo", "swordfish-swordfish"]).text, "[redacted:CLIENT_TEST_TOKEN]\n")

    def test_input_is_bytes(self) -> None:
        data = bytes(range(256)) * 3
        for stdin in (b"", data, "text é"):
            expected = stdin.encode() if isinstance(stdin, str) else stdin
            self.assertEqual(self.session.run(["cat"], stdin=stdin).stdout, expected)
        self.assertEqual(self.session.run("read x || echo ended").stdout, b"ended\n")

    def test_input_at_its_limits(self) -> None:
        for size in (196_607, 196_608, 196_609, 9 << 20):
            data = os.urandom(1 << 16) * (size // (1 << 16) + 1)
            done = self.session.run(["sha256sum"], stdin=data[:size])
            self.assertEqual(done.text.split()[0], hashlib.sha256(data[:size]).hexdigest(), size)
        self.assertEqual(self.session.run('ls -A "${TMPDIR:-/tmp}" | grep -c ^tmp').stdout, b"0\n")

    def test_input_that_nobody_reads_holds_up_nobody(self) -> None:
        running = threading.Thread(
            target=lambda: [self.session.run(["sleep", "1"], stdin=b"x" * size) for size in (196_608, 9 << 20)]
        )
        running.start()
        for _ in range(5):
            self.assertEqual(self.session.run(["cat"], stdin=b"y" * 1000).stdout, b"y" * 1000)
        running.join(LIMIT_S)
        self.assertFalse(running.is_alive())

    def test_output_that_is_not_text_stays_as_it_is(self) -> None:
        data = b"\xff\x00\x1b[31m\xe2\x80\xae\r\n\xc3" * 5_000
        (self.project / "bytes").write_bytes(data)
        done = self.session.run("cat bytes; cat bytes >&2")
        self.assertTrue((done.stdout, done.stderr) == (data, data))

    def test_output_has_a_limit(self) -> None:
        script = ["head", "-c", "1000", "/dev/zero"]
        self.assertEqual(len(self.session.run(script, output_limit=1000).stdout), 1000)
        with self.assertRaises(lazaret_sandbox.OutputTooLarge) as large:
            self.session.run(script, output_limit=999)
        self.assertEqual((large.exception.limit, large.exception.stdout), (999, b"\0" * 999))
        with self.assertRaises(lazaret_sandbox.OutputTooLarge):
            self.session.run(["yes"], output_limit=100_000, timeout=500)

    def test_output_comes_while_the_command_runs(self) -> None:
        seen: list[tuple[str, bytes]] = []
        script = "echo ready; while [ ! -e go ]; do sleep 0.05; done; echo done >&2"

        def on_output(stream: str, chunk: bytes) -> None:
            seen.append((stream, chunk))
            (self.project / "go").touch()

        self.session.run(script, on_output=on_output, timeout=60).check()
        self.assertEqual(seen, [("stdout", b"ready\n"), ("stderr", b"done\n")])

    def test_a_callback_for_output_that_fails_ends_the_command(self) -> None:
        def on_output(_stream: str, _chunk: bytes) -> None:
            raise ValueError("no")

        with self.assertLogs("lazaret_sandbox", "ERROR"), self.assertRaises(lazaret_sandbox.Cancelled):
            self.session.run("echo x; sleep 500", on_output=on_output, timeout=500)

    def test_time_has_a_limit(self) -> None:
        with self.assertRaises(lazaret_sandbox.TimedOut) as ended:
            self.session.run("echo begun; sleep 500", timeout=3)
        self.assertEqual(ended.exception.stdout, b"begun\n")
        self.assertIsInstance(ended.exception, TimeoutError)
        # On a busy machine the command may not have begun by then.
        with self.assertRaises(lazaret_sandbox.TimedOut):
            self.session.run("sleep 500", timeout=0.3)
        with self.assertRaises(lazaret_sandbox.IdleTimedOut):
            self.session.run("echo begun; sleep 500", timeout=100, idle_timeout=1)
        # Read as seconds, whatever the number looks like.
        self.assertEqual(self.session.run(["true"], timeout=86_400_000).exit_code, 0)
        for timeout in (0, -1, float("nan"), float("inf")):
            with self.assertRaises(ValueError):
                self.session.run(["true"], timeout=timeout)

    def test_calls_run_at_once(self) -> None:
        script = "touch $1; while [ ! -e $2 ]; do sleep 0.05; done; echo $1"
        done: list[str] = []

        def one(own: str, other: str) -> None:
            done.append(self.session.run(["bash", "-c", script, "bash", own, other], timeout=60).text)

        threads = [threading.Thread(target=one, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        self.assertEqual(sorted(done), ["a\n", "b\n"])

    def test_a_call_is_cancelled(self) -> None:
        call = self.session.start("bash", {"command": "touch begun; sleep 500; touch after", "timeout": 500})
        self._until(lambda: (self.project / "begun").exists())
        call.cancel()
        with self.assertRaises(lazaret_sandbox.Cancelled):
            call.result()
        self.assertFalse((self.project / "after").exists())
        call.cancel()

    def test_a_call_is_fed_bit_by_bit(self) -> None:
        seen: list[bytes] = []
        call = self.session.start(
            "bash", {"command": ["cat"], "stdin": True}, on_output=lambda _, chunk: seen.append(chunk)
        )
        call.write(b"one\n")
        self._until(lambda: b"".join(seen) == b"one\n")
        call.write(b"two\n")
        call.end_input()
        self.assertEqual(call.result().text, "one\ntwo\n")

    def test_what_is_outside_is_not_there(self) -> None:
        secret = self.outside / "secret"
        secret.write_text("SECRET")
        self.assertEqual(secret.read_text(), "SECRET")
        done = self.session.run(["cat", str(secret)])
        self.assertNotIn(b"SECRET", done.stdout)
        self.assertNotEqual(done.exit_code, 0)
        self.session.run(["sh", "-c", f"echo x > {self.outside}/made"])
        self.assertFalse((self.outside / "made").exists())

    def test_a_violation_is_an_error_of_its_own(self) -> None:
        (self.outside / "secret").write_text("SECRET")
        events: list[lazaret_sandbox.SecurityEvent] = []
        session = self.open(on_security_event=events.append)
        with self.assertRaises(lazaret_sandbox.Violation) as refused:
            session.call("file_read", {"path": str(self.outside / "secret")})
        self.assertEqual((refused.exception.kind, refused.exception.layer), ("violation", "policy"))
        self.assertEqual(refused.exception.metadata["denied"][0]["by"]["name"], "roots")
        self.assertEqual([event.tool for event in events], ["file_read"])

    def _until(self, holds: object) -> None:
        end = time.monotonic() + LIMIT_S
        while not holds():  # type: ignore[operator]
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)


if __name__ == "__main__":
    unittest.main()
