"""The API server's memory grows and does not level off: a leak, which ends in the kernel killing it.

Every server grows after its start, while caches fill and pools warm up, and then levels off. A leak
goes on as fast as it began. So the growth of three equal parts of half an hour is compared.

Source: vLLM #50150 (production pods grew to 64 GiB), #52089. Runbook: docs/detectors/host_memory_growth.md.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from vllm_watch.detectors.base import CLEAR, FIRING, UNKNOWN, Evidence, Verdict, View
from vllm_watch.signals import kept

KIND = "host_memory_growth"

STATE_VERSION = 1


class Settings(BaseModel):
    """What growth is called a leak."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window_seconds: float = Field(1800.0, ge=300)
    """Long enough that growth which levels off within hours is seen to slow down in it."""

    growth_bytes_min: float = Field(256 * 2**20, gt=0)
    """Over the window. Healthy servers under steady load move by 10 to 60 MiB in half an hour."""

    growth_ratio_min: float = Field(0.02, ge=0)
    """... and of what it holds: a server of 100 GiB (weights cached in host memory) moves by more."""

    steadiness_min: float = Field(0.85, gt=0, le=1)
    """The last part must have grown by this share of the first: whatever levels off with a time constant
    of less than two hours falls below it. Measured: leaks 0.95 to 1.1, fillings 0.3 to 0.75."""

    part_share_min: float = Field(0.2, gt=0, lt=1)
    """Each third must hold this share of the growth: one jump is no leak."""

    cleared_share: float = Field(0.5, gt=0, lt=1)
    """It is over when the slope has fallen below this share of what it was."""


BIN_SECONDS = 60.0
"""Of each minute the least is kept: what single requests need for a moment is no growth."""

BINS_SHARE_MIN = 0.8
"""Of the window's minutes, so many must have been seen."""

BYTES_PER_CONNECTION = 128 * 1024.0
"""What one open connection may explain: a server with 2,000 waiting clients was seen to hold 45 to
60 KiB more for each."""

EDGE_BINS = 3
"""Minutes whose median stands for one edge of a part."""

YOUNG_SECONDS = 600.0
"""Until so long after the start of its process a server allocates what it will keep."""


@dataclass(frozen=True, slots=True)
class _Minute:
    number: int  # on the timeline
    bytes: float  # least in that minute, less what its connections explain


class Detector:
    """Follows the resident memory of one API server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._minutes: deque[_Minute] = deque(maxlen=int(settings.window_seconds / BIN_SECONDS) + 1)
        self._least: _Minute | None = None  # of the minute that runs
        self._started: float | None = None  # of the process
        self._verdict = Verdict(state=UNKNOWN, kind=KIND)
        self._slope = 0.0  # bytes per second, when it last fired
        self._resident = 0.0

    def update(self, view: View) -> Sequence[Verdict]:
        reading = view.observation.reading
        if reading is None:
            return (Verdict(state=UNKNOWN, kind=KIND),)
        server = reading.server
        if server.process_resident_memory_bytes is None:
            said = "this server does not tell its memory"
            return (Verdict(state=UNKNOWN, kind=KIND, summary=said),)
        if server.process_start_time != self._started:
            anew = self._started is not None
            self._started, self._slope = server.process_start_time, 0.0
            self._forget(Verdict(state=CLEAR if anew else UNKNOWN, kind=KIND))
        elif not view.known:
            self._forget(Verdict(state=UNKNOWN, kind=KIND))
        if self._started is None or view.observation.t - self._started >= YOUNG_SECONDS:
            self._resident = server.process_resident_memory_bytes
            connections = BYTES_PER_CONNECTION * (server.process_open_fds or 0.0)
            self._take(view.at_s, self._resident - connections)
        return (self._verdict,)

    def export_state(self, at_s: float) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "started": self._started,
            "minutes": [[each.number, each.bytes] for each in self._minutes],
            "slope": self._slope,
        }

    def restore(self, state: kept.Kept, away_seconds: float) -> None:
        """Go on with the minutes seen; they are forgotten at the first look at another process."""
        kept.version(state, STATE_VERSION)
        started, slope = kept.maybe(state["started"]), kept.number(state["slope"], 0.0)
        minutes = [kept.numbers(each, 2) for each in state["minutes"]]
        if started is None:
            return  # whether it is the same process will not be known
        self._started, self._slope = started, slope
        self._minutes.extend(_Minute(int(number), least) for number, least in minutes)

    def _forget(self, verdict: Verdict) -> None:
        self._minutes.clear()
        self._least, self._verdict = None, verdict

    def _take(self, at_s: float, value: float) -> None:
        number = int(at_s // BIN_SECONDS)
        least = self._least
        if least is None or least.number != number:
            if least is not None:
                self._minutes.append(least)
                self._judge()
            self._least = _Minute(number, value)
        elif value < least.bytes:
            self._least = _Minute(number, value)

    def _judge(self) -> None:
        """Once a minute."""
        whole = int(self._settings.window_seconds / BIN_SECONDS)
        last = self._minutes[-1].number
        while self._minutes[0].number < last - whole:
            self._minutes.popleft()
        if (
            len(self._minutes) < BINS_SHARE_MIN * whole
            or last - self._minutes[0].number < whole - 1
        ):
            return
        growths = _growths(list(self._minutes), whole / 3.0)
        grown = sum(growths)
        slope = grown / self._settings.window_seconds
        if self._slope and slope < self._settings.cleared_share * self._slope:
            self._slope = 0.0
        if self._is_leak(growths, grown):
            self._slope = max(self._slope, slope)
            self._verdict = self._leak(growths, slope)
        elif self._slope:
            self._verdict = Verdict(state=UNKNOWN, kind=KIND)  # slower, yet it grows
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
        per_hour = slope * 3600.0
        mib = [growth / 2**20 for growth in growths]
        parts = ", ".join(f"{each:.0f}" for each in mib)
        minutes = self._settings.window_seconds / len(growths) / 60.0
        doubles_h = self._resident / per_hour
        return Verdict(
            state=FIRING,
            kind=KIND,
            cause="leak",
            severity="ticket",
            restart_advised=True,
            summary=f"the API server holds {self._resident / 2**30:.1f} GiB and grows by "
            f"{per_hour / 2**30:.2f} GiB an hour without levelling off",
            evidence_for=(
                Evidence(
                    name="growth_per_hour",
                    value=round(per_hour),
                    unit="bytes",
                    expected=0.0,
                    text=f"at this rate it holds twice as much in {doubles_h:.1f} h",
                ),
                Evidence(
                    name="steadiness",
                    value=round(growths[-1] / growths[0], 2),
                    expected=self._settings.steadiness_min,
                    text=f"{parts} MiB in the last three times {minutes:.0f} min",
                ),
            ),
        )


def _growths(minutes: Sequence[_Minute], third: float) -> list[float]:
    """Growth in each third of the window, `third` minutes long, from the medians of the minutes at its edges."""
    last = len(minutes) - EDGE_BINS
    edges = [minutes[i : i + EDGE_BINS] for i in (0, last // 3, 2 * last // 3, last)]
    at = [median(each.number for each in edge) for edge in edges]
    size = [median(each.bytes for each in edge) for edge in edges]
    return [
        (size[i + 1] - size[i]) / max(1.0, at[i + 1] - at[i]) * third for i in range(len(at) - 1)
    ]
