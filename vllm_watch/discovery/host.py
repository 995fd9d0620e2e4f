"""Find targets on this host.

A server remains a target after its process has ended, because the process may have crashed.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from vllm_watch.settings.target import TargetConfig
from vllm_watch.sources.engine_processes import PORT_DEFAULT
from vllm_watch.sources.host_servers import (
    CONSUMER,
    NONE_FOUND,
    PRODUCER,
    REMEDY,
    HostServer,
    servers,
    shown,
)
from vllm_watch.sources.processes import ProcessListing

_log = structlog.get_logger()


class HostTargets:
    """All servers found so far in one procfs tree."""

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        self._listing = ProcessListing(procfs)
        self._found: dict[str, HostServer] | None = None  # by URL; None: not searched yet

    @property
    def found_none(self) -> bool:
        """True if a search has found nothing."""
        return self._found == {}

    async def read(self) -> list[TargetConfig]:
        seen = await servers(self._listing, self._procfs, known=self._found or {})
        if seen is None:  # not read in time
            return targets_of(self._found or {})
        new = [each for each in seen if each.url not in (self._found or {})]
        if new:
            found = ", ".join(shown(each) for each in new)
            text = f"found {len(new)} vLLM server{'s' * (len(new) > 1)}: {found}"
            _log.info("vllm_found", servers=[each.url for each in new], text=text)
        elif self._found is None:
            _log.warning("no_vllm_found", because=NONE_FOUND, remedy=REMEDY)
        self._found = (self._found or {}) | {each.url: each for each in new}
        return targets_of(self._found)


def targets_of(found: Mapping[str, HostServer]) -> list[TargetConfig]:
    """Return the targets. A decode server gets the prefill servers of its model as peers."""
    producers: dict[str, list[str]] = defaultdict(list)
    for each in found.values():
        if each.kv_role == PRODUCER:
            producers[each.model].append(_target(each.url).name)
    return [
        _target(each.url, producers[each.model] if each.kv_role == CONSUMER else ())
        for each in found.values()
    ]


def _target(url: str, peers: Sequence[str] = ()) -> TargetConfig:
    """The server at the default port has the name `vllm` for compatibility."""
    parts = urlsplit(url)
    name = f"vllm-{parts.port}" if parts.hostname == "127.0.0.1" else ""
    name = "vllm" if name == f"vllm-{PORT_DEFAULT}" else name
    return TargetConfig(url=url, name=name, peers=tuple(peers))
