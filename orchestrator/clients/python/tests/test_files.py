"""Files: what comes back is what was written, and each failure has its error."""

from __future__ import annotations

import contextlib
import os
import unittest

import lazaret_sandbox
from support import WithSession


class Files(WithSession):
    def test_what_is_written_is_read(self) -> None:
        for name, data in (
            ("plain", b"text\r\n"),
            ("empty", b""),
            ("bytes", bytes(range(256)) * 5000),
            ("new/folder/file", b"x"),
            ("-", b"dash"),
            ("-n name with\nline", b"odd"),
            (str(self.project / "absolute"), b"y"),
            (str(self.central / "central"), b"z"),
        ):
            with self.subTest(name=name):
                self.session.write_file(name, data)
                # A comparison of much that fails would be printed, which takes for ever.
                self.assertTrue(self.session.read_file(name) == data)
                self.assertTrue((self.project / name).read_bytes() == data)
        self.session.write_file("plain", "é")
        self.assertEqual((self.project / "plain").read_bytes(), "é".encode())

    def test_a_file_of_the_cells_own_stays_between_calls(self) -> None:
        name = self.session.run("mktemp -d").text.strip() + "/folder/file"
        self.session.write_file(name, b"kept")
        self.assertEqual(self.session.read_file(name), b"kept")

    def test_a_large_file_leaves_no_copy(self) -> None:
        data = os.urandom(1 << 20)
        self.session.write_file("large", data)
        self.assertTrue(self.session.read_file("large") == data)
        kept = [entry for _, _, files in os.walk(self.central / "outputs") for entry in files]
        self.assertEqual(kept, [])

    def test_each_failure_has_its_error(self) -> None:
        (self.project / "folder").mkdir()
        for number in (3, 4):
            os.mkfifo(self.project / f"pipe{number}")
        closed = self.project / "closed"
        closed.write_text("x")
        closed.chmod(0)
        for error, name in (
            (FileNotFoundError, "absent"),
            (FileNotFoundError, "https:/host/absent"),
            (IsADirectoryError, "folder"),
            (OSError, "pipe3"),
            (OSError, "/dev/zero"),
            (FileNotFoundError, "plain/below"),
        ):
            with self.subTest(name=name), self.assertRaises(error) as failed:
                self.session.read_file(name)
            self.assertEqual(failed.exception.filename, name)
        with self.assertRaises(PermissionError):
            self.session.read_file("closed")
        for error, name in ((IsADirectoryError, "folder"), (PermissionError, "closed"), (PermissionError, "/usr/made")):
            with self.subTest(name=name), self.assertRaises(error):
                self.session.write_file(name, b"x")
        for name in ("", "a\0b"):
            with self.assertRaises(ValueError):
                self.session.read_file(name)

    def test_a_read_has_a_limit(self) -> None:
        self.session.write_file("file", b"x" * 1000)
        self.assertEqual(len(self.session.read_file("file", limit=1000)), 1000)
        with self.assertRaises(lazaret_sandbox.FileTooLarge) as large:
            self.session.read_file("file", limit=999)
        self.assertEqual(large.exception.limit, 999)

    def test_a_write_has_a_limit(self) -> None:
        with self.assertRaises(ValueError):
            self.session.write_file("file", bytes((100 << 20) + 1))
        self.assertFalse((self.project / "file").exists())

    def test_what_is_outside_is_neither_read_nor_written(self) -> None:
        secret = self.outside / "secret"
        secret.write_text("SECRET")
        with self.assertRaises((FileNotFoundError, PermissionError)):
            self.session.read_file(secret)
        # The namespaced tier has folders of that name in the cell's own memory.
        with contextlib.suppress(PermissionError):
            self.session.write_file(self.outside / "made", b"x")
        self.assertFalse((self.outside / "made").exists())

    def test_the_file_tools_are_called_by_name(self) -> None:
        self.session.call("file_write", {"path": "note", "content": "one\n"})
        changed = self.session.call("file_edit", {"path": "note", "edits": [{"old": "one", "new": "two"}]})
        self.assertEqual((self.project / "note").read_text(), "two\n")
        self.assertIn("note", self.session.history().text)
        self.session.undo(changed.metadata["change"], "note")
        self.assertEqual((self.project / "note").read_text(), "one\n")
        with self.assertRaises(lazaret_sandbox.NotFound):
            self.session.call("file_read", {"path": "absent"})
        with self.assertRaises(lazaret_sandbox.InvalidInput):
            self.session.call("file_read", {"file": 1})
        with self.assertRaises(lazaret_sandbox.UnknownTool):
            self.session.call("no_such_tool")


if __name__ == "__main__":
    unittest.main()
