"""What was told and done, held against the truth: everything that must never happen is said here."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.soak.truth import Truth
from vllm_watch.samples.target import WATCHER
from vllm_watch.state.attempt import Attempt

HOUR, DAY = 3600.0, 86_400.0

ROUNDING_SECONDS = 0.01
"""Between the clock as we read it and Unix time as the watcher does."""

WITHOUT_TOKENS = ("engine_down", "engine_stalled")
"""Kinds that say that no token is made. The others that a restart cures are of engines that make too few."""

BROKEN_MAX = 50
"""So many breaches are kept of a seed: the first ones say what is wrong."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the configuration allows a group."""

    cooldown_s: float
    per_hour: int
    per_day: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the hook."""

    t: float
    run: int  # which run of the watcher made it
    attempt: str
    target: str
    group: str
    trigger: str
    incident: str | None


@dataclass(slots=True)
class Books:
    """One seed's. Times are of the soak's clock."""

    truth: Truth
    limits: Mapping[str, Limits]  # by group
    broken: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    opened: Counter[tuple[str, str]] = field(default_factory=Counter)  # target, kind
    latest: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by id, as last told
    resets: list[float] = field(default_factory=list)  # when a person closed the breakers
    tokens_moved: dict[str, bool] = field(default_factory=dict)  # by target, at its last look
    pages: int = 0
    advised: set[str] = field(default_factory=set)  # ids for which a restart was advised
    ended_before: dict[str, str] = field(
        default_factory=dict
    )  # attempts before this run, and how they ended

    def breach(self, t: float, text: str) -> None:
        """Something that must never happen has."""
        if len(self.broken) < BROKEN_MAX:
            self.broken.append(f"{t / HOUR:.3f} h {text}")

    # --- incidents

    def told(self, events: Iterable[Mapping[str, Any]], t: float) -> None:
        """These were published."""
        for event in events:
            before = self.latest.get(event["id"])
            self.latest[event["id"]] = dict(event)
            if event["event"] == "opened":
                if before is not None and before["event"] != "resolved":
                    self.breach(t, f"{event['id']} was opened twice")
                self.opened[event["target"], event["kind"]] += 1
            if event["event"] != "resolved" and event["target"] != WATCHER:
                self._judge(event, before, t)

    def _judge(self, event: Mapping[str, Any], before: Mapping[str, Any] | None, t: float) -> None:
        target, what = event["target"], f"{event['kind']}/{event['cause']}"
        paged = before is not None and before["severity"] == "page"
        if event["severity"] == "page" and not paged:
            self.pages += 1
            if not self.truth.may_page(target, t):
                self.breach(t, f"{target} is healthy and pages: {what}: {event['summary']}")
        if event["restart_advised"] and event["id"] not in self.advised:
            self.advised.add(event["id"])
            if not self.truth.may_restart(target, t):
                self.breach(
                    t,
                    f"{target}: a restart that cures nothing is advised: {what}: {event['summary']}",
                )

    @property
    def open(self) -> dict[str, Mapping[str, Any]]:
        """What is open, by id."""
        return {name: each for name, each in self.latest.items() if each["event"] != "resolved"}

    def looked(self, target: str, t: float, seconds: float) -> None:
        """`seconds` more of the target were seen: is what is wrong with it found in time?"""
        for trouble in self.truth.open(target):
            if trouble.within_s is None or trouble.found:
                continue
            told = [each for each in self.open.values() if each["target"] == target]
            if any(each["severity"] == "page" for each in told):
                trouble.found = True
                continue
            trouble.seen_s += seconds
            noted = any(each["kind"] == "engine_down" for each in told)
            if trouble.noted_s is not None and not noted and trouble.seen_s > trouble.noted_s:
                trouble.noted_s = None  # said once
                self.breach(
                    t, f"{target}: {trouble.slug} is not even a ticket after {trouble.seen_s:.0f} s"
                )
            if trouble.seen_s > trouble.within_s:
                trouble.found = True  # said once
                self.breach(
                    t, f"{target}: {trouble.slug} is not told after {trouble.seen_s:.0f} s of it"
                )

    def blinded(self, target: str | None = None, forget: Iterable[str] = ()) -> None:
        """The watcher did not see for a while: its time for what is wrong begins anew, and does not count for `forget`."""
        for trouble in self.truth.troubles:
            if trouble.end_t is None and target in (None, trouble.target):
                trouble.seen_s = 0.0
                if trouble.slug in forget:
                    trouble.within_s = None

    # --- restarts

    def called(self, call: Call, *, paused: bool, forbidden: bool) -> None:
        """The hook is called."""
        t = call.t
        kind = self.latest.get(call.incident or "", {}).get("kind")
        if kind in WITHOUT_TOKENS and self.tokens_moved.get(call.target):
            self.breach(
                t, f"{call.target} is restarted for {kind}, and its last look saw tokens move"
            )
        if call.trigger == "incident" and not self.truth.may_restart(call.target, t):
            self.breach(t, f"{call.target} is healthy and is restarted ({call.incident})")
        if paused:
            self.breach(t, f"{call.target} is restarted while restarts are paused")
        if forbidden:
            self.breach(t, f"{call.target} is restarted in a window that forbids it")
        earlier = [each for each in self.calls if each.attempt == call.attempt]
        if any(each.run != call.run for each in earlier):
            self.breach(t, f"attempt {call.attempt} is called again by another run of the watcher")
        if not earlier:
            self._spend(call)
        self.calls.append(call)

    def _spend(self, call: Call) -> None:
        t, limits = call.t, self.limits[call.group]
        firsts: dict[str, Call] = {}
        for each in self.calls:
            firsts.setdefault(each.attempt, each)
        group = [each for each in firsts.values() if each.group == call.group]
        if any(t - each.t < limits.cooldown_s - ROUNDING_SECONDS for each in group):
            self.breach(t, f"{call.group} is restarted within its cooldown")
        for limit, seconds, name in ((limits.per_hour, HOUR, "hour"), (limits.per_day, DAY, "day")):
            spent = sum(each.t > t - seconds + ROUNDING_SECONDS for each in group)
            if spent >= limit:
                self.breach(
                    t, f"{call.group} is restarted {spent + 1} times in a {name} of {limit}"
                )
        reset_t = max((each for each in self.resets if each <= t), default=-1.0)
        same = [
            each for each in firsts.values() if each.incident and each.incident == call.incident
        ]
        if any(each.t > reset_t for each in same):
            self.breach(t, f"incident {call.incident} gets a second restart")

    # --- what is kept and shown

    def kept(
        self, rows: Mapping[str, Mapping[str, Any]], attempts: Collection[str], t: float
    ) -> None:
        """After a run of the watcher: is all that was told, and all that was done, in the state folder?"""
        for name, event in self.latest.items():
            if event["target"] == WATCHER:
                continue  # of the moment: it is found anew
            row = rows.get(name)
            if row is None:
                self.breach(t, f"{name} was told and is not kept")
            elif event["event"] == "resolved" and row["event"] != "resolved":
                self.breach(t, f"{name} was told as ended and is kept as {row['event']}")
        for call in self.calls:
            if call.attempt not in attempts:
                self.breach(t, f"attempt {call.attempt} was called and is not in the journal")

    def exported(self, metrics: Mapping[str, float], attempts: Iterable[Attempt]) -> list[str]:
        """Return what /metrics says otherwise than what was told and written down."""
        wrong = []
        told: defaultdict[str, float] = defaultdict(float)
        for (target, kind), count in self.opened.items():
            if target != WATCHER:
                told[f'vllm_watch_incidents_total{{target="{target}",kind="{kind}"}}'] = count
        for event in self.open.values():
            if event["target"] == WATCHER:
                continue  # of the moment, and not kept
            labels = {
                name: event[name] or ""
                for name in ("target", "engine", "kind", "cause", "severity")
            }
            told[f"vllm_watch_incident_open{{{_labels(labels)}}}"] = 1.0
        for each in attempts:  # these are counted since the watcher began
            if not each.open and self.ended_before.get(each.id) != each.state:
                labels = {"target": each.target, "trigger": each.trigger, "outcome": each.state}
                told[f"vllm_watch_restarts_total{{{_labels(labels)}}}"] += 1.0
        for name in sorted({*told, *metrics}):
            said = metrics.get(name, 0.0)
            if said != told[name]:
                wrong.append(f"{name} is {said:g}, and {told[name]:g} by the records")
        return wrong


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


FAMILIES = (
    "vllm_watch_incidents_total{",
    "vllm_watch_incident_open{",
    "vllm_watch_restarts_total{",
)


def read_metrics(text: str) -> dict[str, float]:
    """The series that are held against the records; zeros say nothing."""
    found = {}
    for line in text.splitlines():
        if line.startswith(FAMILIES):
            name, _, value = line.rpartition(" ")
            if float(value) and f'target="{WATCHER}"' not in name:
                found[name] = float(value)
    return found
