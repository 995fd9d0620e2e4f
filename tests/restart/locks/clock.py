"""A clock that goes on when a test says so."""

from types import ModuleType

import pytest

from vllm_watch.restart.locks.base import boottime_s


class Clock:
    """What locks of these modules take for the host's clock: the real one, and so much more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self._ahead_s = 0.0
        for module in modules:
            monkeypatch.setattr(module, "boottime_s", lambda: boottime_s() + self._ahead_s)

    def passes(self, seconds: float) -> None:
        self._ahead_s += seconds
