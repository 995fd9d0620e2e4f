"""Simulated servers, their GPUs and a script of events, on one clock."""

from collections.abc import Callable, Iterator

from vllm_watch.lab.gpus import GpuRack
from vllm_watch.lab.vllm import SimulatedVllm

Script = Callable[["Scene"], Iterator[float]]
"""Acts on the scene, and yields the seconds to wait before its next action."""

START_SECONDS = 0.1
"""Seconds between two process starts. Restart logic identifies an engine by its start time."""


class Scene:
    """One simulation. Time begins at 0, and `begin_at` sets the Unix time of the beginning."""

    def __init__(
        self,
        servers: list[SimulatedVllm],
        rack: GpuRack | None = None,
        script: Script | None = None,
    ) -> None:
        self.servers = {server.name: server for server in servers}
        self.rack = rack
        self.t = 0.0
        self.epoch = 0.0
        self._script = script(self) if script else None
        self._wake_t = 0.0
        for number, server in enumerate(servers):
            server.process_start_t -= START_SECONDS * number

    def __getitem__(self, name: str) -> SimulatedVllm:
        return self.servers[name]

    def begin_at(self, epoch: float) -> None:
        self.epoch = epoch
        for server in self.servers.values():
            server.epoch = epoch

    def advance(self, until_t: float) -> None:
        self.play(until_t)
        for server in self.servers.values():
            server.advance(until_t)
        self.t = max(self.t, until_t)

    def play(self, until_t: float) -> None:
        while self._script is not None and self._wake_t <= until_t:
            for server in self.servers.values():
                server.advance(self._wake_t)
            self.t = self._wake_t
            wait_seconds = next(self._script, None)
            if wait_seconds is None:
                self._script = None
            else:
                self._wake_t += wait_seconds
