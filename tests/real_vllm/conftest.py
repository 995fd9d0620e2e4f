"""One real vLLM for all tests: a start of it takes 20 seconds."""

from collections.abc import Iterator

import pytest

from tests.real_vllm.server import RealVllm


@pytest.fixture(scope="session")
def shared_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    """The server, in whatever state the last test left it."""
    with RealVllm(tmp_path_factory.mktemp("vllm")) as vllm:
        yield vllm


@pytest.fixture
def vllm(shared_vllm: RealVllm) -> RealVllm:
    """The server, serving."""
    if set(shared_vllm.processes()) != {"api_server", "engine_core"}:
        shared_vllm.restart()
    return shared_vllm
