"""The standard tests of sandboxes for Deep Agents."""

from __future__ import annotations

from typing import Iterator

import pytest
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_tests.integration_tests import SandboxIntegrationTests

import lazaret_sandbox
from lazaret_sandbox.deepagents import LazaretSandbox


class TestLazaret(SandboxIntegrationTests):
    @property
    def sandbox_root_dir(self) -> str:
        return self._root

    @pytest.fixture(scope="class")
    def sandbox(self, request: pytest.FixtureRequest, session: lazaret_sandbox.Session) -> Iterator[SandboxBackendProtocol]:
        # By its name /tmp is closed in the flat tier.
        request.cls._root = f"{session.info.project}/sandbox"
        yield LazaretSandbox(session)

    @pytest.fixture(autouse=True)
    def sandbox_test_root(self, request: pytest.FixtureRequest, sandbox: SandboxBackendProtocol) -> str:
        return self.sandbox_path(request.node.name.replace("/", "_").replace(" ", "_"))
