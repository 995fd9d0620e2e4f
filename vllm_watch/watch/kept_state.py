"""Export a Watch's state (watch.py), and restore it in the watcher's next run.

Facts about a process are restored only for that process. Pauses that an engine survived are
restored for its whole group, because they only make detectors more patient.
"""

from collections.abc import Mapping
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

_SERVER = ("version", "engine_kind", "process_start_time", "last_success_timestamp_seconds")


def of_server(signals: TargetSignals) -> dict[str, Any]:
    """Return the state of the server itself."""
    return {name: getattr(signals, name) for name in _SERVER} | {"models": list(signals.models)}


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


def answered_t(state: stored.Stored) -> float | None:
    """Return the Unix time of the last successful scrape. May raise stored.DAMAGE."""
    return stored.number_or_none(state["server"]["last_success_timestamp_seconds"])


def restored_signals(state: stored.Stored, target: str, away_s: float) -> TargetSignals:
    """Return the names and counts to show before the first scrape. May raise stored.DAMAGE."""
    server = state["server"]
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
    last_t = answered_t(state)
    return TargetSignals(
        target=target,
        t=stored.number(state["t"]),
        up=False,
        outcome="",
        state="unknown",
        state_text="not scraped since the watcher started",
        version=stored.text_or_none(server["version"]),
        engine_kind=stored.text_or_none(server["engine_kind"]),
        models=stored.texts(server["models"]),
        process_start_time=stored.number_or_none(server["process_start_time"]),
        last_success_timestamp_seconds=last_t if away_s <= AWAY_SECONDS_MAX else None,
        engines=engines,
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
    lost = []
    for slug, detector in detectors.items():
        if isinstance(detector, Remembers) and away_s <= LEARNT_SECONDS:
            try:
                memory = stored.mapping(state["detectors"][slug])
                detector.restore({k: v for k, v in memory.items() if k not in left_out}, away_s)
            except stored.DAMAGE as error:
                lost.append(f"{slug}: {error!r}")
    return lost


def inherit(detectors: Mapping[str, Detector], state: stored.Stored) -> list[str]:
    """Seed each detector with the state of another server of the group. Return errors of lost parts."""
    lost = []
    for slug, detector in detectors.items():
        if isinstance(detector, Inherits):
            try:
                detector.inherit(state["detectors"][slug])
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
