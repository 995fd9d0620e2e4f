"""What `engine_down` remembers when the watcher is restarted: how it last saw the server, and its habits.

A server that answered a minute ago and refuses now has gone. Without this memory it would be taken for
one that starts, for half an hour. But it went while nobody looked, perhaps together with the watcher,
on purpose: so it pages only when it stays away for longer than this server takes to start.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vllm_watch.detectors.demand import Demand
from vllm_watch.detectors.down_earlier import Earlier
from vllm_watch.detectors.down_witnesses import Run
from vllm_watch.signals import kept
from vllm_watch.signals.loading import Loading

STATE_VERSION = 1
"""Of the form in which its memory is kept: what was kept in another one is left out."""

AWAY_SECONDS_MAX = 600.0
"""A watcher that was away for longer knows no more of a server that refuses than one which has just begun:
it may have been stopped, moved or scaled to zero meanwhile. Updates and restarts of the watcher take less."""

ABSENCE_SECONDS_MAX = 7 * 86_400.0
"""Bound of what is learnt of absences: a week covers the weekend."""

LIVES_KEPT = 8
SILENCES_KEPT = 8
"""Bounds of what is remembered; what happened longer ago says little of today's server."""

OF_ADDRESS = ("earlier",)
"""What holds for the address at which the server was, and for no other."""

_TIMES = ("began_s", "answered_s", "up_since_s", "dead_s")
_FLAGS = ("busy", "crashed", "looping")


def export_state(of: Mapping[str, Any]) -> dict[str, Any]:
    """Return the detector's variables `of` as plain values."""
    run = of["_run"]
    return {
        "version": STATE_VERSION,
        **{name: of["_" + name] for name in (*_TIMES, *_FLAGS)},
        "lives": list(of["_lives"]),
        "demand": of["_demand"].export_state(),
        "loading": of["_loading"].export_state(),
        "run": None if run is None else asdict(run),
        "earlier": asdict(of["_earlier"]),
        "away_s": of["_away_s"],
        "silences": list(of["_silences"]),
    }


def restored(state: kept.Kept, away_seconds: float) -> dict[str, Any]:
    """The detector's variables, `away_seconds` after they were kept. Raises one of kept.DAMAGE."""
    variables, run = learnt(state), _run(state["run"])
    variables["_earlier"] = Earlier.restored(state.get("earlier"))  # kept since it counts
    demand = Demand.restored(kept.mapping(state["demand"]))
    followed: dict[str, Any] = {
        **{"_" + name: kept.maybe(state[name]) for name in _TIMES},
        **{"_" + name: kept.flag(state[name]) for name in _FLAGS},
        "_lives": deque(kept.numbers(state["lives"]), maxlen=LIVES_KEPT),
        "_run": run,
        "_demand": demand,
        "_loading": Loading.restored(kept.mapping(state["loading"])),
    }
    if away_seconds > AWAY_SECONDS_MAX:
        return variables
    if run is None:
        demand.known = False  # if it is gone now, it went while nobody looked
    return variables | followed


def learnt(state: kept.Kept) -> dict[str, Any]:
    """What holds for a day and for every server of a group. Raises one of kept.DAMAGE."""
    kept.version(state, STATE_VERSION)
    loading = Loading()
    loading.starts_s.extend(Loading.restored(kept.mapping(state["loading"])).starts_s)
    return {
        "_silences": deque(kept.numbers(state["silences"]), maxlen=SILENCES_KEPT),
        "_away_s": kept.number(state["away_s"], 0.0),
        "_loading": loading,
    }


def _run(told: Any) -> Run | None:
    """The row of looks without an answer that it was in."""
    if told is None:
        return None
    return Run(
        began_s=kept.number(told["began_s"]),
        said=kept.text(told["said"]),
        looks=kept.whole(told["looks"]),
        mute=kept.whole(
            told.get("mute", 0)
        ),  # this, mute_s and held: kept since they are told apart
        mute_s=kept.number(told.get("mute_s", told["began_s"])),
        held=kept.whole(told.get("held", 0)),
        refused=kept.whole(told["refused"]),
        silent=kept.whole(told["silent"]),
        told_to_end=kept.flag(told["told_to_end"]),
        unused=kept.flag(told["unused"]),
        reached_again=kept.flag(told.get("reached_again", False)),
    )
