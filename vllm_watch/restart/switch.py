"""Restarts, where anything asks for them: a watcher that only watches loads and starts nothing of them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vllm_watch.board.board import Board
from vllm_watch.config import Config
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.samples.target import Target
from vllm_watch.settings.restart import RestartSettings

if TYPE_CHECKING:
    from aiohttp import web

    from vllm_watch.export.auth import Auth
    from vllm_watch.restart.daemon_world import LogTail, Recording
    from vllm_watch.restart.journal import Journal
    from vllm_watch.restart.wiring import Restarts


def wanted(config: Config) -> bool:
    """Is there anything to do: a target that may be restarted, or people who may ask?"""
    if config.restart.mode != "off" or config.api.tokens:
        return True
    return any(config.restart_for(target).mode != "off" for target in config.targets)


class Switch:
    """Off until a configuration asks for restarts; on from then until `stop`."""

    def __init__(
        self, config: Config, board: Board, recording: "Recording", journal: "Journal | None",
        log_tail: "LogTail",
    ) -> None:  # fmt: skip
        self._log_tail = log_tail
        self._board, self._recording, self._journal = board, recording, journal
        self._restarts: Restarts | None = None
        self._opened = self._started = False
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Use this configuration from now on."""
        if self._restarts is not None:
            self._restarts.configure(config)
        elif wanted(config):
            from vllm_watch.restart.wiring import Restarts  # noqa: PLC0415 - brings a scheduler

            self._restarts = Restarts(
                config, self._board, self._recording, self._journal, self._log_tail
            )

    @property
    def auth(self) -> "Auth | None":
        """Who may ask; None: there are no tokens."""
        return None if self._restarts is None else self._restarts.auth

    def routes(self) -> "list[web.RouteDef]":
        """What people and Alertmanager may ask."""
        return [] if self._restarts is None else self._restarts.routes()

    async def open(self) -> None:
        """Read what holds, once."""
        if self._restarts is not None and not self._opened:
            self._opened = True
            await self._restarts.open()

    async def start(self) -> None:
        """Begin, once; the targets must be known."""
        if self._restarts is not None and not self._started:
            self._started = True
            await self._restarts.start()

    async def stop(self) -> None:
        """End all of it."""
        if self._restarts is not None:
            await self._restarts.stop()

    def follow(self, targets: Iterable[tuple[Target, RestartSettings]]) -> None:
        """These are the targets from now on, and this is what holds for them."""
        if self._restarts is not None:
            self._restarts.follow(targets)

    def saw(self, name: str, events: Sequence[IncidentEvent]) -> None:
        """A look at a target has ended, and this was told of incidents."""
        if self._restarts is not None:
            self._restarts.saw(name, events)

    def silenced(self, incident_id: str) -> bool:
        """Does a person want to hear no more of this incident?"""
        return self._restarts is not None and self._restarts.silenced(incident_id)
