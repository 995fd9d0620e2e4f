"""Waiting that takes no time, and is written down; and a clock that goes on when a test says so."""

import asyncio
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vllm_watch.restart.locks.base import boottime_s


class Waits:
    """What a module waits for between its tries: `seconds` has each, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, **more: Any) -> None:
        self.seconds: list[float] = []
        instead = {"sleep": self._sleep} | more
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(**vars(asyncio) | instead))

    async def _sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Clock:
    """What locks of these modules take for the host's clock: the real one, and so much more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self._ahead_s = 0.0
        for module in modules:
            monkeypatch.setattr(module, "boottime_s", lambda: boottime_s() + self._ahead_s)

    def passes(self, seconds: float) -> None:
        self._ahead_s += seconds
