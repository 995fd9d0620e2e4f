"""Answer exec probes of engines.

The answer is "ok", "kill" or "no". "kill" and "no" are followed by the server's start time, which
probes must check. Do not use httpGet probes, which would restart engines while the watcher is down.
"""

import asyncio
import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from aiohttp import web

from vllm_watch.board.board import TargetEntry
from vllm_watch.board.restarts import Probes
from vllm_watch.export.answers import TimedResponse, refusal
from vllm_watch.export.callers import is_proxied, is_this_host
from vllm_watch.export.status import to_json
from vllm_watch.sources.sockets import is_loopback

# Probes depend on these words, see docs/hooks/gate.md.
WORDS = {"liveness": "kill", "readiness": "no"}

_ASKED = re.compile(r"[0-9A-Za-z.-]{0,40}")
_STARTED_MAX = 1e11
_NAME_SECONDS = 1.0  # for resolving the engine's name; a probe waits 2 s


class Gatekeeper(Protocol):
    """Decides the answers to probes."""

    async def answer(
        self, target: str, which: str, started_t: float | None, source: str
    ) -> float | None:
        """Return the start time of the server to kill or avoid, or None for "ok"."""

    def probes(self, target: str) -> Probes: ...


def routes(gatekeeper: Gatekeeper, targets: Mapping[str, TargetEntry]) -> list[web.RouteDef]:
    """Return the probes' routes."""
    return [
        web.get("/gate/{which:liveness|readiness}", partial(_answer, gatekeeper, targets)),
        web.get("/gate/probes", partial(_probes, gatekeeper, targets)),
    ]


async def _answer(
    gatekeeper: Gatekeeper, targets: Mapping[str, TargetEntry], request: web.Request
) -> web.StreamResponse:  # fmt: skip
    target, which = request.query.get("target", ""), request.match_info["which"]
    if target not in targets:
        return _not_watched(target)
    asked = request.query.get("asked", "")
    if not _ASKED.fullmatch(asked):
        return refusal(400, "asked is not a short word", "Send letters and digits, or leave it out")
    meant_t = None
    if await _is_at_engine(request, targets[target].target.url):
        meant_t = await gatekeeper.answer(
            target, which, _unix(request.query.get("started", "")), request.remote or "unknown"
        )
    said = "ok" if meant_t is None else f"{WORDS[which]} {meant_t:.0f}"
    return TimedResponse(text=f"{said} {asked}".strip() + "\n", content_type="text/plain")


async def _probes(
    gatekeeper: Gatekeeper, targets: Mapping[str, TargetEntry], request: web.Request
) -> web.StreamResponse:  # fmt: skip
    target = request.query.get("target", "")
    if target not in targets:
        return _not_watched(target)
    probes = gatekeeper.probes(target)
    document = {
        "liveness_asked_seconds": probes.liveness_asked_seconds,
        "starts": list(probes.starts),
    }
    return TimedResponse(body=to_json(document).encode(), content_type="application/json")


async def _is_at_engine(request: web.Request, url: str) -> bool:
    if is_this_host(request):
        return True
    loop, host = asyncio.get_running_loop(), urlsplit(url).hostname
    if host is not None and is_loopback(host):  # in a sidecar, the probe may use the pod's address
        own = request.transport and request.transport.get_extra_info("sockname")
        same = bool(own and own[0] == request.remote and not is_loopback(own[0]))
        return same and not is_proxied(request)
    try:
        async with asyncio.timeout(_NAME_SECONDS):
            found = await loop.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return False
    return request.remote in {address[0] for *_, address in found}


def _not_watched(target: str) -> web.Response:
    return refusal(
        404, f"No target is named {target[:100]!r}", "Ask with ?target=NAME; see /api/v1/status"
    )


def _unix(text: str) -> float | None:
    try:
        value = float(text[:30])
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < _STARTED_MAX else None
