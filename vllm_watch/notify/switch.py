"""Load the notification modules only if a notifier is configured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_watch.board.board import Board
from vllm_watch.config import Config
from vllm_watch.incidents.incident import IncidentEvent

if TYPE_CHECKING:
    from vllm_watch.notify.notifications import Notifications
    from vllm_watch.state.ledger import LedgerTable


@dataclass(slots=True, eq=False)
class NotifySwitch:
    """Off until a notifier is configured, then on until `stop`."""

    config: Config
    board: Board
    silenced: Callable[[str], bool]
    table: "LedgerTable | None"
    _notifications: "Notifications | None" = field(default=None, init=False)

    async def start(self) -> None:
        settings = self.config.notifications_linked
        if self._notifications is None and settings.each():
            from vllm_watch.notify.ledger import Ledger  # noqa: PLC0415
            from vllm_watch.notify.notifications import Notifications  # noqa: PLC0415

            ledger = Ledger(self.table)
            self._notifications = Notifications(settings, self.board, self.silenced, ledger)
            await self._notifications.start()

    async def configure(self, config: Config) -> None:
        self.config = config
        if self._notifications is None:
            await self.start()
        else:
            await self._notifications.configure(config.notifications_linked)

    async def test(self, name: str) -> tuple[int, Mapping[str, Any]]:
        from vllm_watch.notify.kinds import trial  # noqa: PLC0415

        return await trial(self.config.notifications_linked, name)

    async def stop(self) -> None:
        if self._notifications is not None:
            await self._notifications.stop()

    def saw(self, _: str, events: Sequence[IncidentEvent]) -> None:
        if self._notifications is not None:
            self._notifications.saw(events)
