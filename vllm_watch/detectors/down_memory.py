"""What `engine_down` remembers when the watcher is restarted: how it last saw the server, and its habits.

A server that answered a minute ago and refuses now has gone. Without this memory it would be taken for
one that starts, for half an hour. But it went while nobody looked, perhaps together with the watcher,
on purpose: so it pages only when it stays away for longer than this server takes to start.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vllm_watch.signals import kept
from vllm_watch.signals.state import START_SECONDS

STATE_VERSION = 1

AWAY_SECONDS_MAX = 600.0
"""A watcher that was away for longer knows no more of a server that refuses than one which has just begun:
it may have been stopped, moved or scaled to zero meanwhile. Updates and restarts of the watcher take less."""

LIVES_KEPT = 8
SILENCES_KEPT = 8

_TIMES = ("began_s", "answered_s", "up_since_s", "dead_s", "process_start")
_FLAGS = ("busy", "crashed", "looping")
_COUNTS = ("looks", "refused", "silent")


def export_state(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return the detector's variables `of` as plain values."""
    run = of["_run"]
    return {
        "version": STATE_VERSION,
        **{name: of["_" + name] for name in (*_TIMES, *_FLAGS)},
        "in_flight": of["_in_flight"],
        "lives": list(of["_lives"]),
        "demand": asdict(of["_demand"]),
        "run": None if run is None else asdict(run),
        "load_s": of["_load_s"],
        "silences": list(of["_silences"]),
    }


def learnt(state: kept.Kept) -> dict[str, Any]:
    """What holds for a day and for every server of a group. Raises one of kept.DAMAGE, as the others do."""
    kept.version(state, STATE_VERSION)
    silences = deque(kept.numbers(state["silences"]), maxlen=SILENCES_KEPT)
    load_s = min(kept.number(state["load_s"], 0.0), START_SECONDS)
    return {"_load_s": load_s, "_silences": silences}


def followed(state: kept.Kept) -> dict[str, Any]:
    """What was being followed, by the detector's variables."""
    return {
        **{"_" + name: kept.maybe(state[name]) for name in _TIMES},
        **{"_" + name: kept.flag(state[name]) for name in _FLAGS},
        "_in_flight": kept.number(state["in_flight"]),
        "_lives": deque(kept.numbers(state["lives"]), maxlen=LIVES_KEPT),
    }


def run(state: kept.Kept) -> dict[str, Any] | None:
    """The row of looks without an answer that it was in."""
    told = state["run"]
    if told is None:
        return None
    counts = {name: kept.whole(told[name]) for name in _COUNTS}
    return {"began_s": kept.number(told["began_s"]), "said": kept.text(told["said"]), **counts}


def demand(state: kept.Kept) -> dict[str, Any]:
    """For how long nobody had asked anything."""
    told = state["demand"]
    return {
        "idle_s": kept.number(told["idle_s"]),
        "since_s": kept.maybe(told["since_s"]),
        "finished": kept.maybe(told["finished"]),
        "canaries": kept.number(told["canaries"]),
    }
