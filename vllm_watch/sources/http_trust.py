"""Whom to trust over TLS, and as whom to come: made of files once, and anew when they change."""

import asyncio
import errno
import ssl
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from vllm_watch.settings.tls import TlsConfig, TlsFileError
from vllm_watch.sources import own_trouble

REFUSED_SECONDS = 60.0
"""After a certificate was refused, what this host trusts is read anew, no more often than this: it may
have been mended, or could not be read before for want of a file descriptor."""

LOOK_SECONDS = 5.0
"""Files are looked at again so often, as connections are made."""

CONTEXTS_MAX = 200
"""Kept at once; the authorities of a system are a megabyte in each."""

_log = structlog.get_logger()

_Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(slots=True)
class _Made:
    context: ssl.SSLContext
    stamp: _Stamp  # of its files, as they are or as they last could not be used
    made_s: float
    looked_s: float
    looking: "asyncio.Future[ssl.SSLContext] | None" = None


class Trust:
    """What connections begin with, by how they are configured. One event loop, and the threads that read for it."""

    def __init__(self) -> None:
        self._made: dict[TlsConfig, _Made] = {}
        # Held by threads alone: a thousand targets read the same files once.
        self._lock = threading.Lock()

    async def context(self, tls: TlsConfig) -> ssl.SSLContext:
        """Make it, or take the one there is. Raises TlsFileError, and OSError where no thread can be had."""
        made, now_s = self._made.get(tls), time.monotonic()
        try:
            if made is None:
                return await asyncio.to_thread(self._current, tls)
            if tls.files and now_s - made.looked_s >= LOOK_SECONDS:
                # Not waited for: threads may be busy with names that do not resolve, and this one serves.
                made.looked_s = now_s
                loop = asyncio.get_running_loop()
                made.looking = loop.run_in_executor(None, self._current, tls)
                made.looking.add_done_callback(lambda looked: looked.cancelled() or looked.exception())  # fmt: skip
        except RuntimeError as error:  # no thread can be begun
            if made is None:
                raise OSError(errno.ENOMEM, str(error)) from error
        return made.context

    def refused(self, tls: TlsConfig) -> None:
        """A handshake failed: whom this host trusts may have changed, which no stamp tells."""
        made = self._made.get(tls)
        if made is None or tls.ca_file is not None:
            return
        if time.monotonic() - made.made_s >= REFUSED_SECONDS:
            self._made.pop(tls, None)

    def _current(self, tls: TlsConfig) -> ssl.SSLContext:
        with self._lock:
            stamp = tuple(_stamp(file) for file in tls.files)
            known = self._made.get(tls)
            if known is not None and known.stamp == stamp:
                return known.context
            try:
                context = tls.context()
            except TlsFileError as error:
                if known is None:
                    raise
                if own_trouble.of_error(error) is None:
                    # Half renewed: the certificate, and not its key yet. What there is serves until they fit.
                    _log.warning("tls_files_not_renewed", cause=str(error), remedy=error.remedy)
                    known.stamp = stamp
                return known.context
            while len(self._made) >= CONTEXTS_MAX:
                self._made.pop(next(iter(self._made)), None)
            now_s = time.monotonic()
            self._made[tls] = _Made(context, stamp, now_s, now_s)
            return context


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ctime_ns, found.st_size, found.st_ino  # of a change of rights, too
