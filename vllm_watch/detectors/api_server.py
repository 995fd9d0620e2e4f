"""Detects an API server that delays requests.

The delay is a request's latency minus its times in queue, prefill and decode. Source: vLLM's
documentation of --api-server-count.
"""

from operator import sub
from typing import Any, NamedTuple

from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.collapse_causes import PASSES_SECONDS
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Reading
from vllm_watch.signals import stored
from vllm_watch.signals.scales import (
    DAYTIME_SECONDS,
    HALF_MINUTE_SECONDS,
    MANY,
    MOST_SHARE,
    SMALL_SHARE,
    TEN_MINUTES_SECONDS,
    TWICE,
)
from vllm_watch.signals.throughput import LEARNT_SECONDS, Mean
from vllm_watch.support import quantities

CAUSE = "api_overloaded"

LIMIT_SECONDS = 10.0
"""A longer mean delay is a finding. Users leave after about ten seconds (Nielsen, 1993)."""


class _Totals(NamedTuple):
    requests: float
    outside_s: float  # may fall by rounding
    queued_s: float
    steps: float
    media: float


class ApiServer:
    """Follows one target's API server."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._begun: tuple[float, _Totals, float | None] | None = None
        self._usual, self._usual_media = Mean(DAYTIME_SECONDS), Mean(DAYTIME_SECONDS)
        self._since_s: float | None = None
        self._verdict = Verdict(state=UNKNOWN, kind=kind)

    def export_state(self) -> dict[str, Any]:
        return {"usual": self._usual.export_state(), "media": self._usual_media.export_state()}

    def restore(self, state: stored.Stored, away_seconds: float) -> None:
        self._usual.restore(state["usual"], away_seconds)
        self._usual_media.restore(state["media"], away_seconds)

    def update(self, view: View) -> tuple[Verdict, ...]:
        reading = view.observation.reading
        totals = None if reading is None else _totals(reading.engines)
        if reading is None or totals is None:
            return ()
        cpu_s = reading.server.process_cpu_seconds
        began_s, before, cpu_before_s = self._begun or (view.at_s, totals, cpu_s)
        seconds, grown = view.at_s - began_s, _Totals(*map(sub, totals, before))
        fell = min(grown.requests, grown.queued_s, grown.steps) < 0.0
        if self._begun is None or not view.known or fell:
            self._begun, self._since_s = (view.at_s, totals, cpu_s), None
            return (self._verdict,)
        if seconds < HALF_MINUTE_SECONDS or (grown.requests < MANY and seconds < TEN_MINUTES_SECONDS):  # fmt: skip
            return (self._verdict,)
        self._begun = view.at_s, totals, cpu_s
        known = cpu_s is not None and cpu_before_s is not None
        cores = (cpu_s - cpu_before_s) / seconds if known else None  # type: ignore[operator]
        if grown.requests < MANY:
            self._since_s, self._verdict = None, Verdict(state=CLEAR, kind=self._kind)
        else:
            self._verdict = self._judge(view.at_s, seconds, grown, cores, reading)
        return (self._verdict,)

    def _judge(
        self, at_s: float, seconds: float, grown: _Totals, cores: float | None, reading: Reading
    ) -> Verdict:
        # Subtract one step, because a request also waits for the running step to end.
        outside_s = (grown.outside_s / grown.requests) - seconds / max(grown.steps, 1.0)
        media = grown.media / grown.requests
        firing = self._verdict.state == FIRING
        long = outside_s >= LIMIT_SECONDS / (2.0 if firing else 1.0)
        if not long or outside_s < grown.queued_s / grown.requests:
            self._since_s = None
            self._usual.add(max(0.0, outside_s), seconds)
            self._usual_media.add(media, seconds)
            return Verdict(state=CLEAR, kind=self._kind)
        if self._since_s is None:
            self._since_s = at_s
        lasted_s, usual_s = at_s - self._since_s, self._usual.value
        # The requests of a one-minute burst finish sooner.
        if lasted_s < PASSES_SECONDS and not firing:
            return Verdict(state=UNKNOWN, kind=self._kind)
        learnt = self._usual.weight >= LEARNT_SECONDS
        new = learnt and outside_s >= TWICE * usual_s
        images = media > TWICE * self._usual_media.value + SMALL_SHARE
        bound = cores is None or cores >= MOST_SHARE
        text = f"Requests spend {outside_s:.0f} s in the API server, {grown.queued_s / grown.requests:.1f} s in the engine's queue"
        return Verdict(
            state=FIRING,
            kind=self._kind,
            cause=CAUSE if bound else "unknown",
            severity="page" if new and bound and not images else "ticket",
            summary=text,
            since_seconds=lasted_s,
            measure=outside_s,
            evidence_for=(
                Evidence(
                    name="api_server_seconds", value=round(outside_s, 1), unit="s",
                    expected=round(usual_s, 1) if learnt else None, text=text,
                ),
                *_evidence(cores, reading),
            ),
        )  # fmt: skip


def _evidence(cores: float | None, reading: Reading) -> tuple[Evidence, ...]:
    said = []
    if cores is not None:
        limit = ": its event loop is at its limit" if cores >= MOST_SHARE else ""
        text = f"the API server's process uses {quantities.cores(cores)}{limit}"
        said.append(Evidence(name="api_server_cpu_cores", value=round(cores, 2), text=text))
    fds = reading.server.process_open_fds
    if fds is not None:
        held = sum((each.requests_running or 0.0) + (each.requests_waiting or 0.0) for each in reading.engines)  # fmt: skip
        text = f"{fds:.0f} open file descriptors, {held:.0f} requests in the engine"
        said.append(Evidence(name="open_fds", value=fds, text=text))
    return tuple(said)


def _totals(engines: tuple[EngineSample, ...]) -> _Totals | None:
    requests = outside_s = queued_s = steps = media = 0.0
    for each in engines:
        whole, queue, decode = each.e2e_latency, each.queue_time, each.decode_time
        if whole is None or queue is None or decode is None or each.prefill_time is None:
            return None
        if None in (whole.sum, queue.sum, decode.sum, each.prefill_time.sum) or each.iteration_tokens is None:  # fmt: skip
            return None
        inside_s = (queue.sum or 0.0) + (each.prefill_time.sum or 0.0) + (decode.sum or 0.0)
        requests += whole.count
        outside_s += (whole.sum or 0.0) - inside_s
        queued_s += queue.sum or 0.0
        steps += each.iteration_tokens.count
        media += each.mm_cache_queries or 0.0
    return _Totals(requests, outside_s, queued_s, steps, media) if engines else None
