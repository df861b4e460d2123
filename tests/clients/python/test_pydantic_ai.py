"""The conformance suite of workspaces for Pydantic AI."""

from __future__ import annotations

from pathlib import Path
from typing import AsyncIterator, Awaitable, Callable

import pytest
from pydantic_ai.messages import WorkspaceRef
from pydantic_ai.workspaces import WorkspaceBackend
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from lazaret_sandbox.pydantic_ai import LazaretWorkspace


class TestLazaret(WorkspaceBackendSuite):
    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def opened(self) -> AsyncIterator[list[LazaretWorkspace]]:
        made: list[LazaretWorkspace] = []
        yield made
        for workspace in made:
            await workspace.close()

    @pytest.fixture
    async def backend(self, folders: dict[str, Path], opened: list[LazaretWorkspace]) -> WorkspaceBackend:
        opened.append(LazaretWorkspace(folders["project"], central=folders["central"]))
        return opened[-1]

    @pytest.fixture
    def fresh_backend(
        self, folders: dict[str, Path], opened: list[LazaretWorkspace]
    ) -> Callable[[], WorkspaceBackend]:
        def make() -> WorkspaceBackend:
            opened.append(LazaretWorkspace(folders["project"], central=folders["central"]))
            return opened[-1]

        return make

    @pytest.fixture
    def attach_backend(
        self, folders: dict[str, Path], opened: list[LazaretWorkspace]
    ) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        def attach(ref: WorkspaceRef) -> WorkspaceBackend:
            opened.append(LazaretWorkspace(ref=ref, central=folders["central"]))
            return opened[-1]

        return attach

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: WorkspaceBackend) -> None:
            assert isinstance(backend, LazaretWorkspace) and backend.ref is not None
            await backend.close()
            Path(backend.ref.id).rename(backend.ref.id + ".gone")

        return destroy
