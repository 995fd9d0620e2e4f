"""Judge servers as the daemon does, but by their metrics in Prometheus, and compare the incidents with alerts."""

import argparse
import asyncio
import json
import os
import ssl
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import aiohttp

from vllm_watch import __version__
from vllm_watch import config as configuration
from vllm_watch.cli.helpers.terminal import Progress
from vllm_watch.errors import WatchError
from vllm_watch.incidents.incident import Incident, IncidentEvent, published
from vllm_watch.samples.observation import Observation
from vllm_watch.samples.target import LOOPBACK
from vllm_watch.sources.prometheus_history import (
    GONE_SECONDS,
    Firing,
    History,
    Labels,
    StoredTarget,
)
from vllm_watch.story.kinds import story_of
from vllm_watch.support.visible import visible_lines
from vllm_watch.watch.watch import Watch

_IDENTITY = ("job", "instance", "namespace", "group", "target")

INCIDENTS_MAX = 1000
"""At most this many incidents per target are kept. The worst servers have some hundred incidents in weeks."""

NEAR_SECONDS = 300.0
"""An incident and its alerts are at most this far apart. Alert rules wait for their `for` duration, and are evaluated between scrapes."""


@dataclass(slots=True)
class Judged:
    """One target's history."""

    target: StoredTarget
    looks: int = 0
    failed: int = 0
    last_t: float | None = None
    incidents: dict[str, Incident] = field(default_factory=dict)  # id → last state
    _gaps: Counter[int] = field(default_factory=Counter)  # seconds between scrapes

    def add(self, observation: Observation, events: Iterable[IncidentEvent]) -> None:
        if self.last_t is not None and len(self._gaps) < INCIDENTS_MAX:
            self._gaps[round(observation.t - self.last_t)] += 1
        self.last_t = observation.t
        self.looks += 1
        self.failed += observation.scrape.outcome != "ok"
        self.learn(events)

    def learn(self, events: Iterable[IncidentEvent]) -> None:
        for event in events:
            if event.incident.id in self.incidents or len(self.incidents) < INCIDENTS_MAX:
                self.incidents[event.incident.id] = event.incident

    @property
    def interval_seconds(self) -> float | None:
        return float(self._gaps.most_common(1)[0][0]) if self._gaps else None


@dataclass(frozen=True, slots=True)
class Found:
    """One incident. `until_t` is None while it is open. `unseen_seconds` is the time without an alert."""

    target: str
    incident: Incident
    until_t: float | None
    unseen_seconds: float
    alerts: tuple[str, ...]

    @property
    def began_t(self) -> float:
        return self.incident.began_t


@dataclass(frozen=True, slots=True)
class Compared:
    """Incidents and alerts. `needless` alerts fired without an incident."""

    found: tuple[Found, ...]
    firings: tuple[Firing, ...]
    needless: tuple[Firing, ...]


def compared(
    judged: Sequence[Judged], firings: Sequence[Firing], watched: Sequence[Labels]
) -> Compared:
    """Match alerts to incidents. `watched` has the labels of vllm_watch_target_info."""
    of_target = [(one, _about(one.target.labels, firings, watched)) for one in judged]
    concerned = {id(each) for _, its in of_target for each in its}
    found, needed = [], set()
    for one, its in of_target:
        for incident in one.incidents.values():
            over_t = incident.ended_t or incident.resolved_t
            until_t = over_t or one.last_t or incident.began_t
            near = [
                each for each in its
                if each.begin_t <= until_t + NEAR_SECONDS and each.end_t >= incident.began_t - NEAR_SECONDS
            ]  # fmt: skip
            needed |= {id(each) for each in near}
            seen_s = _covered([(each.begin_t, each.end_t) for each in near], incident.began_t, until_t)  # fmt: skip
            names = tuple(dict.fromkeys(each.name for each in near))
            unseen_s = max(0.0, until_t - incident.began_t - seen_s)
            found.append(Found(one.target.name, incident, over_t, unseen_s, names))
    found.sort(key=lambda each: each.began_t)
    ours = tuple(each for each in firings if id(each) in concerned)
    return Compared(tuple(found), ours, tuple(each for each in ours if id(each) not in needed))


def _about(given: Labels, firings: Sequence[Firing], watched: Sequence[Labels]) -> list[Firing]:
    its = [info for info in watched if _is_at(given, info)]
    return [
        each for each in firings
        if _concerns(each, given) or any(_names(each.labels, info) for info in its)
    ]  # fmt: skip


def _concerns(firing: Firing, given: Labels) -> bool:
    labels = firing.labels
    for name in ("instance", "pod"):
        if name in labels and name in given:
            return labels[name] == given[name]
    if "job" in labels and "job" in given:
        return labels["job"] == given["job"]
    return "vllm" in firing.name.lower()


def _names(labels: Labels, info: Labels) -> bool:
    if "target" not in labels and ("job" not in labels or "instance" in labels):
        return False  # an alert about the watcher or other software
    return all(info.get(name, "") == labels[name] for name in _IDENTITY if name in labels)


def _is_at(given: Labels, info: Labels) -> bool:
    """Return True if both label sets name the same server. A loopback address means the watcher's host."""
    if info.get("pod") and "pod" in given:
        return all(info.get(name) == given[name] for name in ("pod", "namespace") if name in given)
    host, port = _host_and_port(info.get("address", ""))
    if host == "localhost":
        host, _ = _host_and_port(info.get("instance", ""))
    return (host, port) == _host_and_port(given.get("instance", ""))


def _host_and_port(instance: str) -> tuple[str, str]:
    host, _, port = instance.rpartition(":")
    return ("localhost" if host.strip("[]") in LOOPBACK else host.lower()), port


def _covered(spans: list[tuple[float, float]], begin_t: float, end_t: float) -> float:
    covered, at_t = 0.0, begin_t
    for first_t, last_t in sorted(spans):
        first_t, last_t = max(first_t, at_t), min(last_t, end_t)  # noqa: PLW2901
        if last_t > first_t:
            covered += last_t - first_t
            at_t = last_t
    return covered


_LIVE_SECONDS = 5.0  # the daemon's scrape interval


def summary(judged: Sequence[Judged], compared: Compared, seconds: float) -> str:
    """Return one line with the number of incidents per kind."""
    head = f"{duration(seconds)}, {len(judged)} server{'s' * (len(judged) != 1)}"
    kinds = Counter(each.incident.kind for each in compared.found if each.incident.severity != "info")  # fmt: skip
    parts = []
    for kind, number in kinds.most_common():
        unseen_s = sum(each.unseen_seconds for each in compared.found if each.incident.kind == kind)
        unseen = f" ({duration(unseen_s)} unseen by your alerts)" if unseen_s else ""
        parts.append(f"{number} × {story_of(kind).title}{unseen}")
    said = f"{head}: {', '.join(parts) or 'nothing was wrong that can be seen there'}"
    fired, needless = len(compared.firings), len(compared.needless)
    if not fired:
        return f"{said}; none of your rules fired for them"
    return f"{said}; your rules fired {fired} time{'s' * (fired != 1)}, {needless} of them at healthy times"


def blind_spots(judged: Sequence[Judged]) -> list[str]:
    """Return sentences about the limits of this history."""
    intervals = sorted(each.interval_seconds for each in judged if each.interval_seconds)
    lines = []
    if intervals:
        slowest, later = intervals[-1], ""
        if slowest > _LIVE_SECONDS:
            later = f", and a stall or collapse is reported about {2 * (slowest - _LIVE_SECONDS):g} s later than with a scrape every {_LIVE_SECONDS:g} s"
        lines.append(f"Scraped every {slowest:g} s: events shorter than {3 * slowest:g} s are not seen{later}.")  # fmt: skip
    lines.append("Why a scrape failed is not stored: one that failed at once is taken for refused, one that took over 5 s for a hang.")  # fmt: skip
    lines.append("GPUs and who holds their memory, processes, logs, /health and canaries are not stored: faults of GPUs, stale memory and an engine that seems idle and does not answer are not seen.")  # fmt: skip
    empty = [each.target.name for each in judged if not each.looks]
    if empty:
        lines.append(f"No samples in that time of {', '.join(empty[:5])}{' …' if len(empty) > 5 else ''}.")  # fmt: skip # noqa: PLR2004
    return lines


def incident_lines(found: Found) -> list[str]:
    """Return the incident's time, cause and alerts."""
    told, story = found.incident, story_of(found.incident.kind)
    cause = story.causes.get(told.cause)
    until = "still open at the end" if found.until_t is None else f"{clock(found.until_t)}, {duration(found.until_t - found.began_t)}"  # fmt: skip
    alerts = f"alerts: {', '.join(found.alerts)}; " if found.alerts else "no alert; "
    where = found.target if told.engine in (None, "0") else f"{found.target}/{told.engine}"
    return [
        f"{clock(found.began_t)} to {until}  {where}  {story.title}: {told.cause.replace('_', ' ')} ({told.severity})",
        f"  {told.summary}",
        f"  {alerts}unseen for {duration(found.unseen_seconds)}",
        f"  first step: {(cause and cause.first_step) or story.first_step}",
    ]


def clock(t: float) -> str:
    """Format Unix seconds as UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(t))


def duration(seconds: float) -> str:
    """Format seconds in the two largest units."""
    whole = round(seconds)
    days, hours, minutes = whole // 86400, whole // 3600 % 24, whole // 60 % 60
    if days:
        return f"{days} day{'s' * (days != 1)}" + (f" {hours} h" if hours else "")
    if hours:
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{minutes} min" if minutes else f"{whole} s"


_ROWS_MAX = 2000
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330; background: #fff }
h1 { font-size: 1.3rem } h2 { font-size: 1.05rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; vertical-align: top; padding: .35rem .6rem; border-bottom: 1px solid #d5dae3 }
.page { color: #a4161a; font-weight: 600 } .ticket { color: #8a5a00 } svg { width: 100%; height: 1rem; background: #e7efe9 } rect { fill: #a4161a }
small { color: #566 }
@media (prefers-color-scheme: dark) { body { color: #dfe5ee; background: #151a22 } td, th { border-color: #333b48 } svg { background: #22332a } }
"""


def page(
    judged: Sequence[Judged], compared: Compared, source: str, start_t: float, end_t: float
) -> str:
    """Return the HTML."""
    rows = "".join(_row(each) for each in compared.found[:_ROWS_MAX])
    lines = "".join(_line(each, compared, start_t, end_t) for each in judged)
    blind = "".join(f"<li>{escape(each)}</li>" for each in blind_spots(judged))
    fired = "".join(
        f"<tr><td>{clock(each.begin_t)}</td><td>{duration(each.end_t - each.begin_t)}</td><td>{escape(each.name)}</td>"
        f"<td>{escape(each.labels.get('instance') or each.labels.get('pod') or '')}</td></tr>"
        for each in compared.needless[:_ROWS_MAX]
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>vLLM history</title><style>{_STYLE}</style>
<h1>{escape(summary(judged, compared, end_t - start_t))}</h1>
<p>{clock(start_t)} to {clock(end_t)} UTC, from {escape(source)}, judged by vllm-watch {__version__}.</p>
<h2>Servers</h2><table><tr><th>Server</th><th>Scrapes</th><th>Every</th><th>When something was wrong</th></tr>{lines}</table>
<h2>Incidents</h2><table><tr><th>Began (UTC)</th><th>Lasted</th><th>Server</th><th>What</th><th>Your alerts</th></tr>{rows}</table>
<h2>Alerts that fired at healthy times</h2><table><tr><th>Began (UTC)</th><th>Lasted</th><th>Alert</th><th>Of</th></tr>{fired}</table>
<h2>Limits of this history</h2><ul>{blind}</ul>
</html>
"""


def _row(found: Found) -> str:
    head, what, alerts, step = incident_lines(found)
    title = head.rpartition("  ")[2]
    lasted = "still open" if found.until_t is None else duration(found.until_t - found.began_t)
    return (
        f"<tr><td>{clock(found.began_t)}</td><td>{lasted}</td><td>{escape(found.target)}</td>"
        f'<td><span class="{escape(found.incident.severity)}">{escape(title)}</span><br>{escape(what.strip())}<br>'
        f"<small>{escape(step.strip())}</small></td><td>{escape(alerts.strip())}</td></tr>"
    )


def _line(one: Judged, compared: Compared, start_t: float, end_t: float) -> str:
    whole = max(end_t - start_t, 1.0)
    bars = "".join(
        f'<rect x="{1000 * (each.began_t - start_t) / whole:.1f}" width="{max(2.0, 1000 * ((each.until_t or end_t) - each.began_t) / whole):.1f}" height="10"/>'
        for each in compared.found if each.target == one.target.name
    )  # fmt: skip
    every = f"{one.interval_seconds:g} s" if one.interval_seconds else "–"
    failed = f" ({one.failed} failed)" if one.failed else ""
    return (
        f"<tr><td>{escape(one.target.name)}</td><td>{one.looks}{failed}</td><td>{every}</td>"
        f'<td><svg viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="times of incidents">{bars}</svg></td></tr>'
    )


_TOLD_EVERY = 200  # scrapes per progress update


def judge(
    arguments: argparse.Namespace, headers: Mapping[str, str], tls: ssl.SSLContext | bool
) -> None:
    """Judge and print. `since` and `until` are in Unix seconds. Raises WatchError."""
    url, since_t, until_t = arguments.prometheus, arguments.since, arguments.until
    config = configuration.load(arguments.config, environ=os.environ)
    judged, found = asyncio.run(_judge(arguments, headers, tls, config))
    if arguments.report is not None:
        try:
            arguments.report.write_text(page(judged, found, url, since_t, until_t))
        except OSError as error:
            cause = f"{arguments.report} cannot be written: {error.strerror}"
            raise WatchError(cause, "name a file in a folder that can be written") from None
    if arguments.json:
        return
    lines = [summary(judged, found, until_t - since_t), ""]
    for each in found.found:
        lines += incident_lines(each)
    if found.needless:
        lines += ["", "alerts at healthy times:"]
        lines += [f"  {clock(each.begin_t)}  {each.name}, {duration(each.end_t - each.begin_t)}" for each in found.needless]  # fmt: skip
    lines += ["", "cannot be seen there:", *(f"  {each}" for each in blind_spots(judged))]
    print(visible_lines("\n".join(lines)))


async def _judge(
    arguments: argparse.Namespace, headers: Mapping[str, str], tls: ssl.SSLContext | bool, config: configuration.Config
) -> tuple[list[Judged], Compared]:  # fmt: skip
    url, since_t, until_t = arguments.prometheus, arguments.since, arguments.until
    progress = Progress()
    async with aiohttp.ClientSession() as session:
        history = History(url, session, headers, tls)
        targets = await history.targets(arguments.match or "", since_t, until_t)
        if not targets:
            raise WatchError(f"{url} has stored nothing of vLLM's in that time", "check --since and --match, and that it scrapes vLLM's /metrics")  # fmt: skip
        judged = [Judged(target) for target in targets]
        for number, one in enumerate(judged):
            watch = Watch(one.target.name, config.signals, config.slo, thresholds=config.detectors)
            async for observation in history.observations(one.target, since_t, until_t):
                if not one.looks % _TOLD_EVERY:
                    passed = (observation.t - since_t) / max(1.0, until_t - since_t)
                    told = f"{one.target.name}, up to {clock(observation.t)}"
                    progress.tell(f"{(number + passed) / len(judged):4.0%}  {told}")
                events = watch.observe(observation)
                one.add(observation, events)
                _print(events, arguments)
            if one.last_t is not None and one.last_t < until_t - GONE_SECONDS:
                # The server disappeared, or is no longer scraped.
                events = watch.close(one.last_t)
                one.learn(events)
                _print(events, arguments)
        firings = await history.firing(since_t, until_t)
        watched = await history.labels("vllm_watch_target_info", since_t, until_t)
    progress.close()
    return judged, compared(judged, firings, watched)


def _print(events: list[IncidentEvent], arguments: argparse.Namespace) -> None:
    if arguments.json:
        for event in events:
            print(json.dumps(published(event)))
