"""A backend for Deep Agents (`deepagents`): its shell and its file tools in cells.

    with lazaret_sandbox.Session(project) as session:
        agent = create_deep_agent(model, backend=LazaretSandbox(session))

The file tools of the framework are commands that need `python3` in the cell.
"""

from __future__ import annotations

import posixpath

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from . import _merged
from .session import Session


class LazaretSandbox(BaseSandbox):
    """A session as a sandbox. Who opened the session closes it."""

    def __init__(self, session: Session, *, timeout: int | None = None) -> None:
        """`timeout` in seconds is for commands that name none; without it the policy's default holds."""
        self._session = session
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self._session.info.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        # 0 means no limit to the framework: then the policy's maximum holds.
        seconds = 86_400 if timeout == 0 else timeout if timeout is not None else self._timeout
        done = _merged.run(self._session, command, timeout=seconds)
        return ExecuteResponse(output=done.output, exit_code=done.exit_code, truncated=done.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._upload(path, content)) for path, content in files]

    def _upload(self, path: str, content: bytes) -> str | None:
        if not posixpath.isabs(path):
            return "invalid_path"
        try:
            self._session.write_file(path, content)
        except (OSError, ValueError) as error:
            return _error(error)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        if not posixpath.isabs(path):
            return FileDownloadResponse(path=path, error="invalid_path")
        try:
            return FileDownloadResponse(path=path, content=self._session.read_file(path))
        except (OSError, ValueError) as error:
            return FileDownloadResponse(path=path, error=_error(error))


def _error(error: OSError | ValueError) -> str:
    """The framework's name of an error, or else its text."""
    for kind, name in (
        (FileNotFoundError, "file_not_found"),
        (IsADirectoryError, "is_directory"),
        (PermissionError, "permission_denied"),
        (NotADirectoryError, "invalid_path"),
        (ValueError, "invalid_path"),
    ):
        if isinstance(error, kind):
            return name
    return str(error)
