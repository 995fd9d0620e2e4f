"""Servers for tests that ask for one, of which nothing outlives the test; and waits that are short."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.restart.site import Site
from tests.restart.world import Server, hanging
from vllm_watch.restart import dispatcher, restart, verify


@pytest.fixture(autouse=True)
def _plain_tracebacks() -> None:
    """Rich ones, of errors that tests provoke many times, take longer than the tests."""
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that hangs."""
    with hanging(tmp_path) as server:
        yield server


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A server that a real daemon may restart."""
    with Site(tmp_path) as running:
        yield running


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds in life takes a part of one."""
    monkeypatch.setattr(dispatcher, "ASK_SECONDS", 0.05)
    monkeypatch.setattr(dispatcher, "AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(restart, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(restart, "BLIND_SECONDS", 0.01)
    monkeypatch.setattr(verify, "STOP_SECONDS", 0.3)
