"""Detects a memory leak of the API server before the kernel kills the server.

Leaks grow at a steady pace, while caches and pools level off, so the growth of three equal periods
is compared. Source: vLLM #50150, #52089, #44175; allocators: vLLM-Omni #6462.
"""

from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import Any, ClassVar, NamedTuple

from pydantic import Field

from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.detectors.needs import Need, Needs
from vllm_watch.settings.base import Settings as Base
from vllm_watch.signals import stored
from vllm_watch.signals.scales import FEW, MINUTE_SECONDS, MOST_SHARE
from vllm_watch.signals.throughput import LEARNT_SECONDS

KIND = "host_memory_growth"

NEEDS = Needs(
    must=(Need(("resident_memory",), "the server's memory is not seen"),),
    sharpens=(
        Need(("process_start",), "memory that a young server fills may be called a leak"),
        Need(("open_fds",), "memory of many connections counts as growth"),
        Need(("media_cache",), "a filling cache of images resembles a leak"),
    ),
)  # fmt: skip

STATE_VERSION = 2


class Settings(Base):
    """Criteria of a leak."""

    window_seconds: float = Field(1800.0, ge=300)
    """Growth is measured over this many seconds, in three equal periods. A filling cache slows down
    in that time."""

    growth_bytes_min: float = Field(256 * 2**20, gt=0)
    """A leak grows by this much in window_seconds. Healthy servers under steady load vary by 10 to
    60 MiB in half an hour."""

    growth_ratio_min: float = Field(0.02, ge=0)
    """A leak also grows by this share of resident memory. A server that caches 100 GiB of weights
    varies by more than growth_bytes_min."""

    steadiness_min: float = Field(0.85, gt=0, le=1)
    """In the last of the three periods, a leak grows by at least this share of its growth in the
    first. Measured ratios are 0.95 to 1.1 for leaks, and 0.3 to 0.75 for filling caches."""

    part_share_min: float = Field(0.2, gt=0, lt=1)
    """At least this share of a leak's growth falls into each of the three periods. A single jump is
    not a leak."""

    cleared_share: float = Field(0.5, gt=0, lt=1)
    """A leak has ended when its slope is below this share of its steepest slope."""

    media_cache_bytes: float = Field(5 * 2**30, gt=0)
    """Growth below this is not a leak if the server takes images, audio or video. vLLM's
    multi-modal cache takes 4 GiB in each process (--mm-processor-cache-gb), and an allocator loses
    up to a quarter."""

    restart_growth_bytes: float = Field(2**30, gt=0)
    """A restart must free at least this many bytes. Some hundred MiB are not worth aborted
    requests."""

    restart_ahead_seconds: float = Field(86_400.0, gt=0)
    """A restart is advised if memory runs out within this many seconds. Most services have a quiet
    hour once a day."""

    host_bytes: float = Field(32 * 2**30, gt=0)
    """Assumed memory of the host. Hosts of one small data-centre GPU (L4, A10) begin at 16 to 32
    GiB. A process above half of this is assumed to have room to double."""


BYTES_PER_CONNECTION = 128 * 1024.0
"""This much growth per additional connection is not a leak. A server with 2,000 waiting clients
held 45 to 60 KiB for each."""


class _Minute(NamedTuple):
    number: int
    bytes: float  # minimum
    fds: float  # maximum


def _minute(state: Any) -> _Minute:
    number, least, fds = stored.numbers(state, 3)
    return _Minute(int(number), least, fds)


class Detector(stored.Kept):
    """Follows one API server's memory."""

    KEPT: ClassVar[stored.Fields] = {
        "started": stored.number_or_none,
        "minutes": lambda state: [_minute(each) for each in state],
        "first": lambda state: None if state is None else _minute(state),
        **dict.fromkeys(("fds_most", "slope"), stored.amount),
        "advised": stored.flag,
    }

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._minutes: deque[_Minute] = deque(
            maxlen=int(settings.window_seconds / MINUTE_SECONDS) + 1
        )
        self._least: _Minute | None = None
        self._started: float | None = None
        self._first: _Minute | None = None
        self._fds_most = 0.0
        self._media: bool | None = None
        self._verdict = Verdict(state=UNKNOWN, kind=KIND)
        self._slope = 0.0  # bytes per second
        self._advised = False
        self._resident = 0.0

    def update(self, view: View) -> Sequence[Verdict]:
        reading = view.observation.reading
        if reading is None:
            return (Verdict(state=UNKNOWN, kind=KIND),)
        server = reading.server
        if server.process_resident_memory_bytes is None:
            said = "this server does not report its memory"
            return (Verdict(state=UNKNOWN, kind=KIND, summary=said),)
        if server.process_start_time != self._started:
            again = self._started is not None
            self._started = server.process_start_time
            self._reset_growth()
            self._forget(Verdict(state=CLEAR if again else UNKNOWN, kind=KIND))
        elif not view.known:
            if self._started is None:
                self._reset_growth()  # the process may be another one
            self._forget(Verdict(state=UNKNOWN, kind=KIND))
        asked = [each.mm_cache_queries for each in reading.engines]
        known = [count for count in asked if count is not None]
        self._media = any(count > 0 for count in known) if known else None
        # A young server still allocates permanent memory.
        if self._started is None or view.observation.t - self._started >= LEARNT_SECONDS:
            self._resident = server.process_resident_memory_bytes
            self._take(view.at_s, self._resident, server.process_open_fds or 0.0)
        return (self._verdict,)

    def export_state(self, at_s: float = 0.0) -> dict[str, Any]:
        return {"version": STATE_VERSION, **super().export_state()}

    def restore(self, state: stored.Stored, away_seconds: float = 0.0) -> None:
        stored.version(state, STATE_VERSION)
        values = self.read(state)
        if values["_started"] is not None:
            self._minutes.extend(values.pop("_minutes"))
            vars(self).update(values)

    def _reset_growth(self) -> None:
        self._slope, self._advised = 0.0, False
        self._first, self._fds_most = None, 0.0

    def _forget(self, verdict: Verdict) -> None:
        self._minutes.clear()
        self._least, self._verdict = None, verdict

    def _take(self, at_s: float, value: float, fds: float) -> None:
        number = int(at_s // MINUTE_SECONDS)
        least = self._least
        self._fds_most = max(self._fds_most, fds)
        if least is None or least.number != number:
            if least is not None:
                self._minutes.append(least)
                self._first = self._first or least
                self._judge()
            self._least = _Minute(number, value, fds)
        else:
            self._least = _Minute(number, min(value, least.bytes), max(fds, least.fds))

    def _judge(self) -> None:
        whole = int(self._settings.window_seconds / MINUTE_SECONDS)
        last = self._minutes[-1].number
        while self._minutes[0].number < last - whole:
            self._minutes.popleft()
        if len(self._minutes) < MOST_SHARE * whole or last - self._minutes[0].number < whole - 1:
            return
        growths = _growths(list(self._minutes), whole / 3.0)
        grown = sum(growths)
        slope = grown / self._settings.window_seconds
        if slope < self._settings.cleared_share * self._slope:
            self._slope, self._advised = 0.0, False
        if self._is_leak(growths, grown):
            self._verdict = self._leak(growths, slope)
        elif self._slope:
            self._verdict = Verdict(state=UNKNOWN, kind=KIND)  # growth has slowed down
        else:
            self._verdict = Verdict(state=CLEAR, kind=KIND)

    def _is_leak(self, growths: Sequence[float], grown: float) -> bool:
        settings = self._settings
        least = max(settings.growth_bytes_min, settings.growth_ratio_min * self._resident)
        return (
            grown >= least
            and min(growths) >= settings.part_share_min * grown
            and growths[-1] >= settings.steadiness_min * growths[0]
        )

    def _leak(self, growths: Sequence[float], slope: float) -> Verdict:
        settings, since = self._settings, self._grown_since_first()
        if self._media and since < settings.media_cache_bytes:
            said = "it grows within its cache limit of images, audio or video"
            return Verdict(state=UNKNOWN, kind=KIND, summary=said)
        self._slope = max(self._slope, slope)
        room = max(settings.host_bytes - self._resident, self._resident)
        left_s = room / slope
        held_back = self._against_restart(since, left_s)
        self._advised = self._advised or not held_back
        per_hour, least = slope * 3600.0, settings.steadiness_min
        text = f"at this rate it holds twice as much in {self._resident / per_hour:.1f} h"
        pace = _bytes("growth_per_hour", per_hour, 0.0, text)
        *parts, last = (f"{growth / 2**20:.0f}" for growth in growths)
        minutes = settings.window_seconds / len(growths) / 60.0
        text = f"it grew by {', '.join(parts)} and {last} MiB in the last three {minutes:.0f}-minute periods"
        ratio = round(growths[-1] / growths[0], 2)
        steady = Evidence(name="steadiness", value=ratio, expected=least, text=text)
        whole = (self._resident + room) / 2**30
        text = f"at this rate it holds {whole:.0f} GiB in {left_s / 3600.0:.1f} h; its host's memory is not known"
        left = _time_left(left_s, settings, text)
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="leak",
            severity="ticket",
            restart_advised=self._advised,
            summary=f"the API server holds {self._resident / 2**30:.1f} GiB and grows by "
            f"{per_hour / 2**30:.2f} GiB an hour without levelling off",
            evidence_for=(pace, steady, left),
            evidence_against=() if self._advised else held_back,
        )

    def _grown_since_first(self) -> float:
        first, last = self._first, self._minutes[-1]
        if first is None:
            return 0.0
        return last.bytes - first.bytes - BYTES_PER_CONNECTION * (self._fds_most - first.fds)

    def _against_restart(self, since: float, left_s: float) -> tuple[Evidence, ...]:
        settings = self._settings
        needed, why = settings.restart_growth_bytes, "a smaller gain is not worth aborted requests"
        if self._media is not False:
            needed, why = settings.media_cache_bytes, "a multi-modal cache may fill up to that"
        said = []
        if since < needed:
            text = f"a restart is advised when it has grown by {needed / 2**30:.0f} GiB: {why}"
            said.append(_bytes("grown", since, round(needed), text))
        ahead_s = settings.restart_ahead_seconds
        if left_s > ahead_s:
            text = f"a restart is advised when its memory lasts less than {ahead_s / 3600.0:.0f} h"
            said.append(_time_left(left_s, settings, text))
        return tuple(said)


def _bytes(name: str, value: float, expected: float, text: str) -> Evidence:
    return Evidence(name=name, value=round(value), unit="bytes", expected=expected, text=text)


def _time_left(left_s: float, settings: Settings, text: str) -> Evidence:
    ahead_s = settings.restart_ahead_seconds
    return Evidence(name="time_left", value=round(left_s), unit="s", expected=ahead_s, text=text)


def _growths(minutes: Sequence[_Minute], third: float) -> list[float]:
    last = len(minutes) - FEW
    begins = (0, last // 3, 2 * last // 3, last)
    most = list(accumulate((each.fds for each in minutes), max))
    edges = [minutes[i : i + FEW] for i in begins]
    at = [median(each.number for each in edge) for edge in edges]
    size = [median(each.bytes for each in edge) for edge in edges]
    fds = [median(most[i : i + FEW]) for i in begins]
    return [
        (size[i + 1] - size[i] - BYTES_PER_CONNECTION * (fds[i + 1] - fds[i]))
        / max(1.0, at[i + 1] - at[i])
        * third
        for i in range(len(at) - 1)
    ]
