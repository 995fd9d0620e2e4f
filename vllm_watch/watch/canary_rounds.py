"""Send one target's canaries: once per interval to idle engines, at once to engines that may hang."""

import asyncio
import random
from collections.abc import Mapping

import structlog

from vllm_watch.samples.observation import CanaryCall
from vllm_watch.settings.stages import CanarySettings
from vllm_watch.sources.canary import Asked, CanarySource

_log = structlog.get_logger()

GAP_SECONDS_MIN = 10.0
"""Minimum seconds between canaries. They cost at most six tokens a minute."""

REFUSED_SECONDS = 600.0
"""Seconds to wait after a refusal. Only an operator or a restart can fix its cause, such as a
wrong key or model."""

TRUSTED_SECONDS_MAX = 1.0
"""Unless canaries are enabled explicitly, the first answer must come within this time."""

UNTRUSTED_SECONDS = 3600.0
"""A server slower than TRUSTED_SECONDS_MAX is tried again after this time, because it may have been
cold."""

JITTER = 0.1
"""Share by which the interval varies, so that canaries do not coincide."""


class CanaryRounds:
    """Sends the canaries of one target. Not thread-safe."""

    def __init__(self, target: str, settings: CanarySettings, source: CanarySource) -> None:
        self._target = target
        self._interval_seconds = settings.interval_seconds
        self._enabled = settings.enabled is True
        self._trusted = self._enabled
        self._source = source
        self._task: asyncio.Task[None] | None = None
        self._result: Asked | None = None
        self._not_before_s = 0.0
        self._due_s: dict[str, float] = {}
        self._logged_cause: str | None = None

    def take(self) -> Asked | None:
        result, self._result = self._result, None
        return result

    def send(
        self, wanted: Mapping[str, bool], model: str | None, engines: int, now_s: float
    ) -> None:
        least = 0.0 if self._enabled else 0.5  # by default, wait at least half an interval
        first_s = now_s + random.uniform(least, 1.0) * self._interval_seconds  # noqa: S311
        # An engine that was busy for less than an interval keeps its due time.
        oldest_s = now_s - self._interval_seconds
        kept = {name: due_s for name, due_s in self._due_s.items() if due_s > oldest_s}
        self._due_s = dict.fromkeys(wanted, first_s) | kept
        if self._task is not None or self._result is not None or now_s < self._not_before_s:
            return
        due = [
            name for name, urgent in wanted.items()
            if (urgent and self._trusted) or now_s >= self._due_s[name]
        ]  # fmt: skip
        if not due:
            return
        engine = min(due, key=lambda name: (not wanted[name], self._due_s[name]))
        self._not_before_s = now_s + GAP_SECONDS_MIN
        share = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311
        self._due_s[engine] = now_s + share * self._interval_seconds
        asked = self._ask(model, engine if engines > 1 else None, now_s)
        self._task = asyncio.create_task(asked, name=f"canary {self._target}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _ask(self, model: str | None, engine: str | None, now_s: float) -> None:
        try:
            asked = await self._source.ask(model, engine)
            if asked is None:  # the engine sleeps
                return
            if not self._enabled and not self._trust(asked.canary):
                self._not_before_s = now_s + UNTRUSTED_SECONDS
                return
            if asked.canary.outcome == "refused":
                self._not_before_s = now_s + REFUSED_SECONDS
            self._result = asked
            self._log_refusal(asked)
        except Exception:  # noqa: BLE001 - scrapes must continue
            self._not_before_s = now_s + REFUSED_SECONDS
            _log.exception("canary_failed", target=self._target)
        finally:
            self._task = None

    def _trust(self, canary: CanaryCall) -> bool:
        if not self._trusted:
            self._trusted = canary.ok and canary.latency_s <= TRUSTED_SECONDS_MAX
        elif canary.outcome == "refused":
            self._trusted = False
        return self._trusted

    def _log_refusal(self, asked: Asked) -> None:
        problem = asked.problem
        if problem is not None and problem.cause != self._logged_cause:
            said = {"cause": problem.cause, "remedy": problem.remedy}
            _log.warning("canary_refused", target=self._target, **said)
            self._logged_cause = problem.cause
        elif problem is None and asked.canary.ok:
            self._logged_cause = None
