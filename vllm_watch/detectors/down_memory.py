"""Keeps the state of `engine_down` across restarts of the watcher."""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vllm_watch.detectors.demand import Demand
from vllm_watch.detectors.down_earlier import Earlier
from vllm_watch.detectors.down_health import Health
from vllm_watch.detectors.down_share import Share
from vllm_watch.detectors.down_witnesses import Run
from vllm_watch.signals import stored
from vllm_watch.signals.loading import Loading

STATE_VERSION = 1

AWAY_SECONDS_MAX = 600.0
"""If no watcher ran for longer than this, only learnt values are restored. An update of the watcher
takes less."""

ABSENCE_SECONDS_MAX = 7 * 86_400.0
"""Absences are learnt up to this length. A server may be away for a weekend."""

LIVES_KEPT = 8
SILENCES_KEPT = 8
"""At most this many uptimes and survived hangs are kept."""

OF_ADDRESS = ("earlier",)
"""State that is valid only for this address."""

_TIMES = ("began_s", "answered_s", "up_since_s")
_FLAGS = ("busy", "crashed", "looping")


def export_state(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return the detector's variables as plain values."""
    run = of["_run"]
    return {
        "version": STATE_VERSION,
        **{name: of["_" + name] for name in (*_TIMES, *_FLAGS)},
        "dead_s": of["_health"].failed_s,
        "lives": list(of["_lives"]),
        "demand": of["_demand"].export_state(),
        "loading": of["_loading"].export_state(),
        "share": of["_share"].export_state(),
        "run": None if run is None else asdict(run),
        "earlier": asdict(of["_earlier"]),
        "away_s": of["_away_s"],
        "silences": list(of["_silences"]),
    }


def restored(state: stored.Stored, away_seconds: float) -> dict[str, Any]:
    """Return the detector's variables by name."""
    variables, run = learnt(state), _run(state["run"])
    variables["_earlier"] = Earlier.restored(state.get("earlier"))
    demand = Demand.restored(stored.mapping(state["demand"]))
    followed: dict[str, Any] = {
        **{"_" + name: stored.number_or_none(state[name]) for name in _TIMES},
        **{"_" + name: stored.flag(state[name]) for name in _FLAGS},
        "_health": Health(failed_s=stored.number_or_none(state["dead_s"])),
        "_lives": deque(stored.numbers(state["lives"]), maxlen=LIVES_KEPT),
        "_run": run,
        "_share": Share.restored(state.get("share")),
        "_demand": demand,
        "_loading": Loading.restored(stored.mapping(state["loading"])),
    }
    if away_seconds > AWAY_SECONDS_MAX:
        return variables
    if run is None:
        demand.known = False  # the server may have ended meanwhile
    return variables | followed


def learnt(state: stored.Stored) -> dict[str, Any]:
    """Return variables that remain valid after a long absence, and for other servers of the group."""
    stored.version(state, STATE_VERSION)
    loading = Loading()
    loading.starts_s.extend(Loading.restored(stored.mapping(state["loading"])).starts_s)
    return {
        "_silences": deque(stored.numbers(state["silences"]), maxlen=SILENCES_KEPT),
        "_away_s": stored.number(state["away_s"], 0.0),
        "_loading": loading,
    }


def _run(told: Any) -> Run | None:
    if told is None:
        return None
    return Run(
        began_s=stored.number(told["began_s"]),
        said=stored.text(told["said"]),
        looks=stored.count(told["looks"]),
        mute=stored.count(told.get("mute", 0)),
        mute_s=stored.number(told.get("mute_s", told["began_s"])),
        held=stored.count(told.get("held", 0)),
        refused=stored.count(told["refused"]),
        silent=stored.count(told["silent"]),
        told_to_end=stored.flag(told["told_to_end"]),
        unused=stored.flag(told["unused"]),
        reached_again=stored.flag(told.get("reached_again", False)),
    )
