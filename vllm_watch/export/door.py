"""The door: its address is taken before anything is looked at, and what serves there is loaded after.

An HTTP server with TLS, the page and all metrics takes as long to load as everything that the first look
needs. A watcher that starts beside its engine shall look first; who asks it meanwhile waits in the kernel.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_watch.export.address import bind

if TYPE_CHECKING:
    from vllm_watch.export.server import Server
    from vllm_watch.export.web_config import WebConfig

LOOKS_FIRST_SECONDS = 0.25
"""How long serving waits for a first look to end: an engine that answers does so in milliseconds, and people
and probes shall not wait for one that does not."""


class Door:
    """One address, from `take` to `close`."""

    def __init__(self, host: str, port: int, web_config: Path | None) -> None:
        self._host = host
        self.port = port  # the one asked for; after `take`, the one that is had
        self._web_config = web_config
        self.web: WebConfig | None = None  # None: there is none, or it was not read yet
        self._bound: socket.socket | None = None
        self._server: Server | None = None

    @property
    def scheme(self) -> str:
        """`http`, or `https` where the web configuration names a certificate."""
        return "http" if self.web is None else self.web.scheme

    def take(self) -> None:
        """Take the address. Raises ServeError, and ConfigError for a web configuration that is not usable."""
        if self._web_config is not None:
            from vllm_watch.export.web_config import WebConfig  # noqa: PLC0415 - brings TLS

            self.web = WebConfig(self._web_config)
            self.web.open()
        self._bound = bind(self._host, self.port)
        self.port = self._bound.getsockname()[1]

    async def open(self, make: Callable[[], "Server"], looked: asyncio.Event) -> None:
        """Serve with what `make` makes, once `looked` is set or that takes too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOKS_FIRST_SECONDS):
                await looked.wait()
        await asyncio.to_thread(_load)
        self._server = make()
        await self._server.start(self._bound)
        self._bound = None  # the server's own now

    async def close(self) -> None:
        """Serve no more, and free the address."""
        if self._server is not None:
            await self._server.stop()
        if self._bound is not None:
            self._bound.close()


def _load() -> None:
    """Import what serves; in a thread, so that looks that last go on meanwhile."""
    import vllm_watch.export.server  # noqa: F401, PLC0415
