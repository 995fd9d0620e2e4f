"""Builds the verdicts on an unresponsive server, and words their evidence."""

from collections.abc import Sequence
from functools import partial

from vllm_watch.detectors.base import FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.demand import Demand
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.signals.loading import START_SECONDS, Loading
from vllm_watch.support.quantities import in_words, requests

KIND = "engine_down"

NEEDS = Needs(
    sharpens=(
        Need(("health",), "an engine core that dies is found only when its API server ends too"),
        Need(("running", "waiting"), "a crash under load resembles the end of an idle server, so it pages late"),
        Need(("finished",), "a server that was drained before it was stopped seems crashed"),
        Need(("prompted",), "a server that was emptied before it was stopped may look crashed"),
    ),
)  # fmt: skip


SCALING_SECONDS = 600.0
"""Elastic scaling takes at most this many seconds. vLLM drains requests for two minutes
(`drain_timeout`) and then moves ranks. After a failure, it returns 503 forever."""

SIGN_SECONDS = 60.0
"""A failed health check explains a crash if it is at most this many seconds old."""


firing = partial(Verdict, state=FIRING, kind=KIND)
well = partial(firing, severity="page", present=False)  # at this poll, after it was found down


def unknown(summary: str) -> Verdict:
    """Return an unknown verdict."""
    return Verdict(state=UNKNOWN, kind=KIND, summary=summary)


def never_up(waited_s: float, said: str) -> Verdict:
    """Judge a server that has refused connections since the first poll."""
    if waited_s < START_SECONDS:
        why = "vLLM refuses connections until its weights are loaded"
        return unknown(f"refused for {in_words(waited_s)}; {why}")
    return firing(
        cause="unknown",
        severity="ticket",
        summary=f"never seen to answer, and it has refused for {waited_s / 60:.0f} min",
        evidence_for=(seconds("seconds_refused", waited_s, START_SECONDS, said),),
    )


def health_failed(text: str) -> Evidence:
    """Return evidence of a dead engine core."""
    return Evidence(name="health_status", value=503.0, expected=200.0, text=text)


def signs(view: View, dead_s: float | None) -> tuple[Evidence, ...]:
    """Return evidence of a crash. `dead_s` is when /health last failed."""
    if dead_s is None or view.at_s - dead_s >= SIGN_SECONDS:
        return ()
    return (health_failed("/health reported a dead engine core, just before"),)


def planned(demand: Demand, *, told_to_end: bool) -> tuple[Evidence, ...]:
    """Return evidence that the server was stopped on purpose."""
    drained = demand.drained
    said = [drained] if drained is not None else []
    if told_to_end:
        text = "its port closed while its process kept running: it was asked to stop"
        said.append(Evidence(name="process_alive", value=1.0, text=text))
    return tuple(said)


def slow_load(loading: Loading, at_s: float, began_s: float) -> tuple[Evidence, ...]:
    """Return evidence of a slow start."""
    longest_s, loads_s = loading.longest_s, loading.for_s(at_s)
    taken_s = at_s - began_s if loads_s is None else loads_s
    if longest_s is None or taken_s < loading.patience_s(0.0):
        return ()
    text = f"loading for {in_words(taken_s)}; its longest start so far took {in_words(longest_s)}"
    if loads_s is None:
        text = f"down for {in_words(taken_s)} and no new process seen yet; its longest start so far took {in_words(longest_s)}"
    return (seconds("seconds_to_load", taken_s, longest_s, text),)


def how_it_crashed(demand: Demand, *, at_work: bool) -> str:
    """Describe a crash."""
    if not demand.known:
        return "its port refuses connections; it was not scraped for a while before"
    count, about = (demand.at_work, "about ") if at_work else (demand.in_flight, "")
    text = f"its port refuses connections; {about}{requests(count)} {'was' if round(count) == 1 else 'were'} in flight"
    return f"{text}, and new ones still arrived" if at_work else text


def how_it_loops(loading: Loading, starts: int, lives: Sequence[float]) -> str:
    """Describe a crash loop."""
    if loading.attempts >= starts:
        return f"started {loading.attempts} times and never answered"
    last = ", ".join(map(in_words, list(lives)[-3:]))
    return f"crashed again: it ran for {last}, then refused connections"


def left_behind(core: str | None) -> tuple[Evidence, ...]:
    """Return evidence of an engine core that was left behind."""
    if core is None:
        return ()
    text = f"its engine core was left behind and still holds GPU memory: {core}"
    return (Evidence(name="left_core", value=core, text=text),)


def why_not_a_crash(demand: Demand, *, idle: bool) -> tuple[Evidence, ...]:
    """Return evidence that few or no users are affected."""
    if not demand.known:
        text = "it was not scraped for a while before: it may have been stopped on purpose"
        return (Evidence(name="requests_in_flight", value=None, text=text),)
    text = "few or no requests were in flight: it may have been stopped on purpose"
    said = [Evidence(name="requests_in_flight", value=demand.in_flight, text=text)]
    if idle:
        text = f"no request came for {in_words(demand.idle_s)} before: it may be scaled to zero"
        said.append(Evidence(name="seconds_idle", value=round(demand.idle_s), unit="s", text=text))
    return tuple(said)


def seconds(name: str, value: float, expected: float, text: str) -> Evidence:
    """Return a duration as evidence."""
    return Evidence(name=name, value=round(value, 1), unit="s", expected=expected, text=text)
