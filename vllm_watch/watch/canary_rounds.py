"""When one target's canary is sent: beside its looks, never two at a time, and never often.

It is sent only to an engine that judgement wants to hear of: one that looks idle, now and then, and one
that is suspected, soon. What it brings waits here for the next look.
"""

import asyncio
import random
from collections.abc import Mapping

import structlog

from vllm_watch.settings.stages import CanarySettings
from vllm_watch.sources.canary import Asked, CanarySource

_log = structlog.get_logger()

GAP_SECONDS_MIN = 10.0
"""From the beginning of one canary to that of the next of the same server, whatever is suspected: the
hard limit on what a canary can cost is six tokens a minute."""

REFUSED_SECONDS = 600.0
"""A server that refused a canary (a wrong key or name, no such endpoint) is asked again after this: it
takes a person to mend it, or another start of the server."""

TRUSTED_SECONDS_MAX = 1.0
"""Where nobody switched canaries on, the first must be answered within this: an idle engine takes milliseconds
for a token. A server that takes longer does something else with it than we know."""

UNTRUSTED_SECONDS = 3600.0
"""Such a server is tried again after this: it may have been cold, or have got a key since."""

JITTER = 0.1
"""The interval varies by this share, so that the canaries of many targets and watchers do not meet."""


class CanaryRounds:
    """Sends the canaries of one target. To be called from the event loop."""

    def __init__(self, target: str, settings: CanarySettings, source: CanarySource) -> None:
        self._target = target
        self._interval_seconds = settings.interval_seconds
        self._asked_for = settings.enabled is True
        self._trusted = self._asked_for
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._brought: Asked | None = None
        self._not_before_s = 0.0
        self._due_s: dict[str, float] = {}  # by engine
        self._said: str | None = None

    def take(self) -> Asked | None:
        """Return what came since the look before, once."""
        brought, self._brought = self._brought, None
        return brought

    def send(
        self, wanted: Mapping[str, bool], model: str | None, engines: int, now_s: float
    ) -> None:
        """Send a canary if one is due. `wanted`: engine → is it suspected?; `engines`: of the server."""
        least = 0.0 if self._asked_for else 0.5  # who did not ask for it is not surprised at once
        first_s = now_s + random.uniform(least, 1.0) * self._interval_seconds  # noqa: S311 - no secret
        # An engine that is busy now and then keeps its turn; one that was busy for long begins anew.
        oldest_s = now_s - self._interval_seconds
        kept = {name: due_s for name, due_s in self._due_s.items() if due_s > oldest_s}
        self._due_s = dict.fromkeys(wanted, first_s) | kept
        if self._task is not None or self._brought is not None or now_s < self._not_before_s:
            return
        due = [
            name for name, urgent in wanted.items()
            if (urgent and self._trusted) or now_s >= self._due_s[name]
        ]  # fmt: skip
        if not due:
            return
        engine = min(due, key=lambda name: (not wanted[name], self._due_s[name]))
        self._not_before_s = now_s + GAP_SECONDS_MIN
        share = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret
        self._due_s[engine] = now_s + share * self._interval_seconds
        asked = self._ask(model, engine if engines > 1 else None, now_s)
        self._task = asyncio.create_task(asked, name=f"canary {self._target}")

    async def stop(self) -> None:
        """Hang up on what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _ask(self, model: str | None, engine: str | None, now_s: float) -> None:
        try:
            asked = await self._source.ask(model, engine)
            if not self._asked_for and not self._trust(asked):
                self._not_before_s = now_s + UNTRUSTED_SECONDS
                return
            if asked is not None and asked.canary.outcome == "refused":
                self._not_before_s = now_s + REFUSED_SECONDS
            self._brought = asked
            self._tell(asked)
        except Exception:  # noqa: BLE001 - without a canary the looks go on
            self._not_before_s = now_s + REFUSED_SECONDS
            _log.exception("canary_failed", target=self._target)
        finally:
            self._task = None

    def _trust(self, asked: Asked | None) -> bool:
        """Nobody switched canaries on: may this server be judged by them? Only one that has answered well."""
        if asked is None:  # it sleeps: nothing was sent
            return True
        canary = asked.canary
        if not self._trusted:
            self._trusted = canary.ok and canary.latency_s <= TRUSTED_SECONDS_MAX
        elif canary.outcome == "refused":
            self._trusted = False
        return self._trusted

    def _tell(self, asked: Asked | None) -> None:
        """Say a misconfiguration once, and again when it is another one."""
        if asked is None:
            return
        if asked.problem is None:
            if asked.canary.ok:
                self._said = None
            return
        if asked.problem.cause != self._said:
            self._said = asked.problem.cause
            _log.warning(
                "canary_refused", target=self._target,
                cause=asked.problem.cause, remedy=asked.problem.remedy,
            )  # fmt: skip
