"""What alerts become of recorded faults, as a table: of a real vLLM, and of the lab where no recording is.

python -m tests.alerts.recorded    rewrites the table of times in recorded_times.md; needs promtool
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.lab.virtual import observations
from tests.alerts import chain
from tests.alerts.stories import ROOT
from vllm_watch.samples.observation import Observation

FOLDER = ROOT / "tests/alerts/recordings"
PAGE = ROOT / "tests/alerts/recorded_times.md"
BEGIN, END = "<!-- Made by tests/alerts/recorded.py. -->\n", "<!-- End. -->\n"
NAME, GROUP = "vllm", "chat"  # as the lab calls its server
LAB_SECONDS, LAB_INTERVAL_SECONDS = 460.0, 5.0
LAB_FAULT_SECONDS = 120.0  # when the troubles of its stories begin
OWN = f"{NAME} ({GROUP})"
ENGINE = f"{NAME} engine 0 ({GROUP})"
SLOW = f"{ENGINE} has collapsed: "


@dataclass(frozen=True, slots=True)
class Told:
    """An alert that is expected: what was done and when, in seconds of the recording, and what people are told.

    `within_s`: at the latest so long after it the alert fires. `ends`: does it, before the recording does?
    `behind`: the alert that holds it back (deploy/alertmanager.yml).
    """

    alert: str
    severity: str
    cause: str
    at_s: float
    within_s: float
    summary: str
    ends: bool = True
    behind: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording of a real vLLM (a file) or a story of the lab, and every alert that becomes of it."""

    name: str
    told: tuple[Told, ...] = ()
    real: bool = False

    def looks(self) -> Iterator[Observation]:
        if self.real:
            return chain.looks(FOLDER / f"{self.name}.jsonl.gz", NAME)
        return observations(self.name, LAB_SECONDS, LAB_INTERVAL_SECONDS)

    def exported(self) -> chain.Exported:
        interval_seconds = 1.0 if self.real else LAB_INTERVAL_SECONDS
        return chain.exported(self.looks(), GROUP, interval_seconds)


@cache
def played(story: Recorded) -> tuple[chain.Exported, list[chain.Alert]]:
    """What was exported of it and which alerts fired: always the same, so it is worked out once."""
    found = story.exported()
    with tempfile.TemporaryDirectory() as folder:
        return found, chain.alerts(found, Path(folder))


def _down(cause: str, at_s: float, within_s: float, said: str, severity: str = "page", *, ends: bool = True) -> Told:  # fmt: skip
    return Told("VllmEngineDown", severity, cause, at_s, within_s, f"{OWN} is down: {said} ({cause}).", ends)  # fmt: skip


def _collapse(cause: str, at_s: float, within_s: float, said: str, severity: str = "page", *, ends: bool = True) -> Told:  # fmt: skip
    return Told("VllmThroughputCollapse", severity, cause, at_s, within_s, f"{SLOW}{said} ({cause}).", ends)  # fmt: skip


def _stall(cause: str, at_s: float, within_s: float, said: str) -> Told:
    return Told("VllmEngineStalled", "page", cause, at_s, within_s, f"{ENGINE} is stalled: {said} ({cause}).")  # fmt: skip


STEPS = "no scheduler step ends"
LISTENS = "nothing listens on its port any more"
ANSWERS = "it accepts connections but answers none"
LONGER = "each step takes longer"
HOLD = "a few requests, or none, hold the KV cache"

REAL = (
    Recorded("busy", real=True),
    # Slow for 4 s after it was found, a hang of 11 s, an API that answers again: over before an evaluation, so no alert.
    Recorded("slow_hang_pinning", (
        _collapse("kv_pinning", 358.0, 75.0, HOLD, "ticket", ends=False),  # the recording ends within two minutes
    ), real=True),
    Recorded("kv_pinning_crash", (_down("crash", 208.0, 30.0, LISTENS),), real=True),
    Recorded("preemption_thrash", (
        _collapse("preemption_thrash", 69.0, 75.0, "long requests preempt each other", "ticket"),
    ), real=True),
)  # fmt: skip

UNREADABLE = "VllmWatchTargetUnreadable"


def _unreadable(how: str, at_s: float = LAB_FAULT_SECONDS, *, ends: bool = True, behind: str = "VllmEngineDown") -> Told:  # fmt: skip
    said = f"w:9470 scrapes {NAME} but cannot read its metrics: {how}."
    return Told(UNREADABLE, "ticket", "", at_s, 150.0, said, ends, behind)


def _lab(story: str, *told: Told) -> Recorded:
    return Recorded(story, told)


AT = LAB_FAULT_SECONDS
LAB = (
    _lab("hang", _stall("hang", AT, 30.0, STEPS)),
    _lab("crash", _down("crash", AT, 30.0, LISTENS), _unreadable("refused")),
    # A silent API server is a ticket first; its page then holds that back (deploy/alertmanager.yml), as a slow engine's does.
    _lab("api_hang", _down("api_hang", AT, 30.0, ANSWERS, "ticket"), _down("api_hang", AT, 45.0, ANSWERS),
         _unreadable("read_timeout")),
    _lab("engine_dead",
         _down("engine_dead", AT, 30.0, "its API server reports a dead engine"),
         _down("crash", 300.0, 30.0, LISTENS)),  # by then it is ended and started anew
    _lab("slow", _collapse("slow_engine", AT, 45.0, LONGER, "ticket"), _collapse("slow_engine", AT, 75.0, LONGER)),
    _lab("leak", _collapse("kv_leak", AT, 120.0, "pages of the KV cache leak")),
    # Long prompts take the pages of others for a minute or two, so it is a ticket at first.
    _lab("pinning", _collapse("kv_pinning", AT, 60.0, HOLD, "ticket"), _collapse("kv_pinning", AT, 210.0, HOLD)),
    _lab("admission_deadlock",
         _stall("admission_deadlock", AT, 90.0, "the scheduler admits no request")),
    _lab("overload", Told("VllmOverloaded", "ticket", "demand", AT, 60.0,
         f"{ENGINE} has a standing queue: more requests arrive than it can serve at its usual pace (demand).",
         ends=False)),
    _lab("orphaned_worker",
         _down("crash", AT, 30.0, LISTENS, ends=False),
         Told("VllmStaleVram", "ticket", "orphaned_worker", AT, 90.0,
              f"host:{chain.HOST} has stale GPU memory: a vLLM worker whose server is gone holds it (orphaned_worker).",
              ends=False),
         _unreadable("refused", ends=False)),
    _lab("scale_to_zero", _unreadable("refused", 300.0, ends=False, behind="")),
    *map(_lab, (
        "healthy", "pooling", "prefill_only", "decode_only", "sleep_wake", "pause", "elastic_scale_up", "lora", "speculative",
        "several_api_servers", "legacy", "rolling_update", "sigterm_update", "cold_start",
    )),
)  # fmt: skip


def rows() -> list[str]:
    """The table of the page: what was done, and how long it took until the incident was open and the alert fired."""
    made = []
    for each in (*REAL, *LAB):
        if not each.told:
            continue
        found, fired = played(each)
        for told in each.told:
            if told.behind or not told.cause:
                continue
            (alert,) = (a for a in fired if _is(a, told))
            like = (
                e
                for e in found.events
                if (e["cause"], e["severity"]) == (told.cause, told.severity)
            )
            opened = min(e["t"] for e in like) - found.began_t
            whose = "vLLM" if each.real else "lab"
            made.append(
                f"| {each.name} ({whose}) | `{told.alert}` {told.severity}, {told.cause} "
                f"| {opened - told.at_s:.0f} | {alert.first_s - told.at_s:.0f} |"
            )
    return made


def _is(alert: chain.Alert, told: Told) -> bool:
    return (alert.name, alert.labels["severity"], alert.labels.get("cause", "")) == (
        told.alert, told.severity, told.cause,
    )  # fmt: skip


def page() -> str:
    """Return recorded_times.md with the table of the code."""
    table = "\n".join(rows())
    head = "| recording | alert | incident | alert |\n|---|---|---|---|\n"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return f"{before}{BEGIN}{head}{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.exit(0)
