"""Waiting that takes no time, and is written down."""

import asyncio
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Waits:
    """What a module waits for between its tries: `seconds` has each, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, **more: Any) -> None:
        self.seconds: list[float] = []
        instead = {"sleep": self._sleep} | more
        monkeypatch.setattr(module, "asyncio", SimpleNamespace(**vars(asyncio) | instead))

    async def _sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)
