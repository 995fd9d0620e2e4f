"""One real vLLM for all tests: a start of it takes 20 seconds."""

from collections.abc import Iterator

import pytest

from tests.real_vllm.server import USUAL, RealVllm
from tests.real_vllm.ward import TIMES


@pytest.fixture(scope="session")
def shared_vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    """The server, in whatever state the last test left it."""
    with RealVllm(tmp_path_factory.mktemp("vllm")) as vllm:
        yield vllm


@pytest.fixture
def vllm(shared_vllm: RealVllm) -> RealVllm:
    """The server, serving."""
    if shared_vllm.size != USUAL or set(shared_vllm.processes()) != {"api_server", "engine_core"}:
        shared_vllm.restart()
    return shared_vllm


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show how soon each fault was told of: not asserted, since machines differ, but worth to be seen."""
    for line in TIMES:
        terminalreporter.write_line(line)
