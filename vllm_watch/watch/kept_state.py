"""Export a Watch's state (watch.py), and restore it in the watcher's next run.

Facts about a process are restored only for that process. Pauses that an engine survived are
restored for its whole group, because they only make detectors more patient.
"""

from collections.abc import Callable, Mapping
from typing import Any

from vllm_watch.detectors.base import Detector, Inherits, Remembers
from vllm_watch.detectors.engine_down import OF_ADDRESS
from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.observation import Reading, ServerSample
from vllm_watch.signals import stored
from vllm_watch.signals.engine import EngineTracker
from vllm_watch.signals.life import AWAY_SECONDS_MAX, Life, life_of
from vllm_watch.signals.loading import Loading
from vllm_watch.signals.progress import Progress
from vllm_watch.signals.records import EngineSignals, TargetSignals

VERSION = 1
"""Version of the format. State in another format is ignored."""

LEARNT_SECONDS = 7 * 86400.0
"""Detector state is dropped if no watcher ran for longer than this, because vLLM is released about
weekly."""

SERVER: stored.Fields = {
    "version": stored.text_or_none,
    "engine_kind": stored.text_or_none,
    "process_start_time": stored.number_or_none,
    "last_success_timestamp_seconds": stored.number_or_none,
    "models": stored.texts,
}
"""The state of the server itself: fields of TargetSignals."""


def of_engines(
    trackers: Mapping[str, EngineTracker], reading: Reading | None
) -> dict[str, dict[str, Any]]:
    """Return each engine's identity and counts at the last scrape."""
    states = {}
    for name, tracker in trackers.items():
        last = tracker.window.newest
        if last is not None and reading is not None:
            states[name] = {
                "life": life_of(last, reading.server).export_state(),
                "model_name": last.model_name or "",
                "restarts": tracker.restarts,
                "last_progress_t": tracker.last_progress_t,
                "progress": tracker.progress.export_state(),
            }
    return states


def of_detectors(detectors: Mapping[str, Detector], at_s: float) -> dict[str, Any]:
    """Return the state of all detectors that keep one."""
    return {
        slug: detector.export_state(at_s)
        for slug, detector in detectors.items()
        if isinstance(detector, Remembers)
    }


def away_seconds(state: stored.Stored, target: str, t: float) -> float:
    """Return the seconds since the state was saved. Raises one of stored.DAMAGE for another target's state."""
    stored.version(state, VERSION)
    if state["target"] != target:
        raise ValueError(f"it belongs to {state['target']!r}")
    return max(0.0, t - stored.number(state["t"]))


def restored_signals(state: stored.Stored, target: str) -> TargetSignals:
    """Return the names and counts to show before the first scrape. May raise stored.DAMAGE."""
    engines = {
        name: EngineSignals(
            engine=name,
            model_name=stored.text(each["model_name"]),
            last_progress_timestamp_seconds=stored.number_or_none(each["last_progress_t"]),
            restarts=stored.count(each["restarts"]),
        )
        for name, each in stored.mapping(state["engines"]).items()
        if Life.restore(each["life"]) and stored.part(Progress)(each.get("progress"))
    }
    return TargetSignals(
        target=target,
        t=stored.number(state["t"]),
        up=False,
        outcome="",
        state="unknown",
        state_text="not scraped since the watcher started",
        engines=engines,
        **stored.checked(state["server"], SERVER),
    )


def restored_loading(state: stored.Stored, away_s: float) -> Loading:
    """Return the durations of starts and, after a short absence, the last loading state. May raise stored.DAMAGE."""
    known = Loading.restored(stored.mapping(state["loading"]))
    if away_s <= AWAY_SECONDS_MAX:
        return known
    loading = Loading()
    loading.starts_s.extend(known.starts_s)
    return loading


def restore_detectors(
    detectors: Mapping[str, Detector], state: stored.Stored, away_s: float, address: str | None
) -> list[str]:
    """Restore each detector, and return errors of lost parts. State that holds only for the server's address is dropped if `address` differs."""
    left_out = () if state.get("address") == address else OF_ADDRESS

    def restore(detector: Remembers, kept: Any) -> None:
        memory = stored.mapping(kept)
        detector.restore({k: v for k, v in memory.items() if k not in left_out}, away_s)

    return _given(detectors, Remembers, state, restore) if away_s <= LEARNT_SECONDS else []


def inherit(detectors: Mapping[str, Detector], state: stored.Stored) -> list[str]:
    """Seed each detector with the state of another server of the group. Return errors of lost parts."""
    return _given(detectors, Inherits, state, lambda detector, kept: detector.inherit(kept))


def _given(
    detectors: Mapping[str, Detector], contract: type, state: stored.Stored,
    give: Callable[[Any, Any], None],
) -> list[str]:  # fmt: skip
    lost = []
    for slug, detector in detectors.items():
        if isinstance(detector, contract):
            try:
                give(detector, state["detectors"][slug])
            except stored.DAMAGE as error:
                lost.append(f"{slug}: {error!r}")
    return lost


def resume(
    tracker: EngineTracker, before: stored.Stored, sample: EngineSample, server: ServerSample
) -> None:
    """Continue the counts of an earlier run. A restart since then is also counted."""
    ended = Life.restore(before["life"]).ended_before(life_of(sample, server))
    tracker.restarts = int(before["restarts"]) + ended
    tracker.last_progress_t = before["last_progress_t"]
    tracker.progress.restore(None if ended else before.get("progress"))
