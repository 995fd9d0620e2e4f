"""Draw incidents, evidence, the first step, restarts and the watcher's state."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from vllm_watch.board.restarts import AttemptShown, Gate, RestartPlan, Waiting
from vllm_watch.cli.helpers.top import text
from vllm_watch.cli.helpers.top.rows import Row
from vllm_watch.cli.helpers.top.status import Status, ToldIncident
from vllm_watch.cli.helpers.top.text import Text
from vllm_watch.detectors.base import Evidence
from vllm_watch.incidents.incident import SEVERITIES, in_order
from vllm_watch.incidents.way import NEXT_RULE
from vllm_watch.story.base import severity_word, step_of
from vllm_watch.support.quantities import in_words
from vllm_watch.support.visible import visible

_WRONG_SHARE = 5  # a fifth of the height
_DETAIL_SHARE = 4
_LOW_HEIGHT = 16  # with fewer lines, the detail is one line
_LABEL_WIDTH = 11
_FINE = frozenset(("", "ok", "no_driver", "http"))  # http: answered with an error


def open_incidents(status: Status) -> list[ToldIncident]:
    """Return the open incidents, critical ones first."""
    found = {each.id: each for target in status.targets for each in target.incidents}
    found |= {each.id: each for each in (*status.incidents, *status.host.incidents)}
    return in_order(found.values())


def wrong(status: Status | None, width: int, height: int) -> Text:
    """Return one line for each open incident, worst first."""
    if status is None:
        return Text()
    incidents = open_incidents(status)
    if not incidents:
        unseen = sum(target.signals is None for target in status.targets)
        told = "No incident is open." + (f" {unseen} not scraped yet." if unseen else "")
        return Text(told if status.targets else "", "green", no_wrap=True, overflow="ellipsis")
    room = max(1, height // _WRONG_SHARE)
    shown = incidents if len(incidents) <= room else incidents[: max(1, room - 1)]
    lines = [_incident(each, status.t, width) for each in shown]
    if len(incidents) > len(shown) and room > 1:
        lines.append(Text(f" and {_counted(incidents[len(shown) :])} more", "dim"))
    return text.stacked(lines)


def _counted(incidents: list[ToldIncident]) -> str:
    counts = Counter(each.severity for each in incidents)
    return ", ".join(f"{counts[s]} {severity_word(s)}" for s in SEVERITIES if counts[s])


def _incident(incident: ToldIncident, t: float, width: int) -> Text:
    lasts = text.age(max(0.0, t - incident.began_t))
    engine = f"/{incident.engine}" if incident.engine else ""
    if incident.recovering:
        told = f" recovering {visible(incident.target)}{engine}  {recovery(incident, t)}"
        return text.cut(Text(told, "dim", no_wrap=True), width)
    shown = Text(f" {severity_word(incident.severity):8} ", text.SEVERITY_STYLES.get(incident.severity, ""), no_wrap=True)  # fmt: skip
    shown.append(f" {visible(incident.target)}{engine}", "bold")
    shown.append(f"  {visible(incident.title)}", "")
    if incident.recurring is not None:
        shown.append(f"  {incident.recurring.text}", "")
    since = f"{lasts}, since {text.clock(incident.began_t, t)}"
    shown.append(f"  {since}  ", "dim").append(visible(incident.summary), "dim")
    return text.cut(shown, width)


def detail(row: Row | None, status: Status | None, width: int, height: int) -> Text:
    """Return the row's state, evidence and first step."""
    if row is None or status is None:
        return Text()
    said = text.cut(_sentence(row, status.t), width)
    if height < _LOW_HEIGHT:
        return said
    rule = Text("─" * width, "bright_black")
    room = max(1, height // _DETAIL_SHARE - 2)
    lines = [text.cut(line, width) for line in _evidence_lines(row, status.t, width)[:room]]
    return text.stacked([rule, said, *lines, _facts(row, width)])


def worst_row(rows: Sequence[Row], status: Status | None) -> int:
    """Return the index of the worst incident's row, or 0 without incidents."""
    for incident in open_incidents(status) if status else ():
        for place, row in enumerate(rows):
            if row.target.name == incident.target and incident in incidents_of(row):
                return place
    return 0


def recovery(incident: ToldIncident, t: float) -> str:
    """Return the incident's kind, duration and end."""
    ended_t = incident.updated_t if incident.ended_t is None else incident.ended_t
    lasted, ago = (text.age(max(0.0, each)) for each in (ended_t - incident.began_t, t - ended_t))
    cost, lost = "", incident.requests_lost
    if lost:
        cost = f", {lost} request{'s' * (lost != 1)} lost"
    told = f"Recovered {ago} ago ({visible(incident.title)} for {lasted}{cost})"
    if incident.closes_t is None:
        return told
    return f"{told}; closes in {text.age(max(0.0, incident.closes_t - t))} if it stays healthy"


def _sentence(row: Row, t: float) -> Text:
    sentence = row.engine.state_text if row.engine else row.target.state_text
    incidents = incidents_of(row)
    if incidents:
        sentence = recovery(incidents[0], t) if incidents[0].recovering else incidents[0].summary
    sentence = visible(sentence or (row.target.signals and row.target.signals.why_not) or row.state)
    if row.stale and row.state != "down":  # the text of "down" includes the duration
        sentence = f"not scraped for {text.age(row.age_seconds)}: {sentence}"
    style = text.STATE_STYLES.get(row.state, "").replace(" on red", "").replace("white", "red")
    return Text(f"{visible(row.name)}: ", "bold", no_wrap=True).append(sentence, style)


def _evidence_lines(row: Row, t: float, width: int) -> list[Text]:
    """Put the first step near the top, because the last lines may be cut off."""
    incidents = incidents_of(row)
    lasting = next((each.id for each in incidents[:1] if not each.recovering), "")
    told = restart_lines(row.target.restart, t, lasting)
    restarts = [_labelled("restart", line) for line in told]
    if not incidents:
        return restarts
    worst = incidents[0]
    if worst.recovering:
        return [_labelled("was", worst.summary), *restarts]
    lines = [_labelled("also", worst.meanwhile)] if worst.meanwhile else []
    lines += _at_its_worst(worst, t)
    lines += [_labelled("cost", worst.cost)] if worst.cost else []
    lines += _wrapped("do", worst.to_do, width)
    lines += [_labelled("severity", worst.severity_reason)] if worst.severity_reason else []
    lines.append(_labelled("restart", worst.restart_outcome))
    lines += restarts
    lines += _wrapped("stacks", worst.stacks, width)
    for side, evidence in (("evidence", worst.evidence_for), ("against", worst.evidence_against)):
        lines += [_labelled(side, _said(each)) for each in evidence if each.name != NEXT_RULE]
    return lines


def _at_its_worst(incident: ToldIncident, t: float) -> list[Text]:
    most, first = incident.worst, next(iter(incident.evidence_for), None)
    if most is None or most.t == incident.updated_t or _share(most.evidence) == _share(first):
        return []
    return [_labelled("worst", f"{most.evidence.text}, at {text.clock(most.t, t)}")]


def _share(evidence: Evidence | None) -> str:
    return evidence.text.partition(", with ")[0] if evidence is not None else ""


def _wrapped(label: str, said: str, width: int) -> list[Text]:
    pieces = textwrap.wrap(said, max(20, width - _LABEL_WIDTH))
    return [_labelled("" if number else label, each) for number, each in enumerate(pieces)]


def incidents_of(row: Row) -> list[ToldIncident]:
    """Return the incidents of the engine or its server, worst first."""
    engine = row.engine.engine if row.engine else None
    return in_order(
        each for each in row.target.incidents if each.engine in (None, engine) or engine is None
    )


def _said(item: Evidence) -> str:
    said, expected = visible(item.text or item.name), item.expected
    told = _is_written(item.value, item.unit, said)
    if expected in {None, 0} or _is_written(expected, item.unit, said):
        return said
    if told and isinstance(item.value, int | float):  # the text contains the value
        return said
    number = "" if told or item.value is None else f"{_number(item.value, item.unit)}, "
    return f"{said} ({number}expected {_number(expected, item.unit)})"


def _number(value: float | str | None, unit: str) -> str:
    if not isinstance(value, int | float):
        return visible(str(value))
    return f"{value:.0%}" if unit == "ratio" else f"{value:.3g} {visible(unit)}".rstrip()


def _is_written(value: float | str | None, unit: str, said: str) -> bool:
    words = set(re.findall(r"\d+(?:\.\d+)?", said)) | set(said.split())
    if not isinstance(value, int | float):
        return str(value) in words
    number = value * 100 if unit == "ratio" else value
    long = unit == "s" and re.search(rf"\b{in_words(value)}", said)
    return bool(long) or not words.isdisjoint((f"{number:.0f}", f"{number:.1f}", f"{number:.3g}"))


def _labelled(label: str, said: str) -> Text:
    return Text(f"  {label:{_LABEL_WIDTH - 2}}", "dim", no_wrap=True).append(visible(said))


def _facts(row: Row, width: int) -> Text:
    signals, engine = row.target.signals, row.engine
    found = [row.model or "model unknown", row.target.url]
    if signals and signals.version:
        found.append(f"vLLM {signals.version}")
    if engine and engine.kv_cache_capacity_tokens is not None and not row.down:
        free, whole = engine.kv_cache_free_tokens, engine.kv_cache_capacity_tokens
        found.append(f"KV {text.count(free)} of {text.count(whole)} tokens free")
    if engine and engine.restarts:
        found.append(f"{engine.restarts} restart{'s' * (engine.restarts > 1)} seen")
    if row.target.restart is not None:
        found.append(f"restart mode {row.target.restart.mode}")
    return text.cut(Text(" · ".join(map(visible, found)), "dim", no_wrap=True), width)


def watcher(status: Status | None, width: int) -> Text:
    """Return one line about the watcher, with blind spots and errors first."""
    if status is None:
        return Text()
    troubles = [*watcher_troubles(status)]
    up = sum(bool(target.signals and target.signals.up) for target in status.targets)
    fine = [f"{up} of {len(status.targets)} targets answer"]
    if status.uptime_seconds is not None:
        fine.append(f"up {text.age(status.uptime_seconds)}")
    fine += ["state saved"] if status.store and status.store.ok else []
    shown = Text("watcher ", "dim", no_wrap=True)
    if troubles:
        shown.append(visible(" · ".join(troubles)), "yellow").append(" · ", "dim")
    return text.cut(shown.append(" · ".join(fine), "dim"), width)


def _blind(status: Status) -> Iterable[str]:
    blind: dict[str, list[str]] = {}
    for target in status.targets:
        for slug in (slug for slug, sight in target.detectors.items() if sight.state == "blind"):
            blind.setdefault(slug, []).append(target.name)
    for slug, names in sorted(blind.items(), key=lambda each: -len(each[1])):
        on = visible(names[0]) if len(names) == 1 else _targets(len(names))
        yield f"blind to {slug.replace('_', ' ')} on {on}"


def watcher_troubles(status: Status) -> Iterable[str]:
    """Yield the watcher's own troubles."""
    yield from filter(None, (status.not_ready, status.nothing_watched))
    late = sum(target.is_late(status.t) for target in status.targets)
    if late:
        yield f"{_targets(late)} not scraped recently"
    for name, source in status.sources.items():
        if source.outcome not in _FINE:
            yield f"{name}: {source.outcome}"
    yield from _blind(status)
    if status.store is not None and not status.store.ok:
        yield f"state is not saved ({status.store.because or 'unknown'})"
    if status.restarts is not None:
        if status.restarts.journal_trouble:
            yield f"no journal, no restarts ({status.restarts.journal_trouble})"
        if status.restarts.paused is not None:
            yield f"restarts are paused by {status.restarts.paused.actor}"


def _targets(count: int) -> str:
    return f"{count} target{'s' if count > 1 else ''}"


_TRIGGERS = {
    "incident": "for its incident", "schedule": "on schedule", "manual": "by hand", "alertmanager": "for an alert",
}  # fmt: skip


def restart_lines(plan: RestartPlan | None, t: float, incident: str | None = None) -> list[str]:
    """Return sentences about restarts, the most urgent first. If `incident` is given, dry runs for other incidents are omitted."""
    if plan is None:
        return []
    if plan.under_way is not None:
        attempt = plan.under_way
        who = f"by {attempt.actor} " if attempt.trigger == "manual" else ""
        began = text.age(max(0.0, t - attempt.began_timestamp_seconds))
        return [f"A restart {who}has been under way for {began}: {_ended(attempt.text)}"]
    told = [line for wish in plan.waiting for line in _wished(wish)]
    of_breaker = any(gate.gate == "breaker" for wish in plan.waiting for gate in wish.gates)
    if plan.last is not None and not of_breaker and _concerns(plan.last, incident):
        told.append(_past(plan.last, t))
    return told


def _concerns(attempt: AttemptShown, incident: str | None) -> bool:
    return attempt.state != "dry_run" or incident in (None, attempt.incident_id)


def _wished(wish: Waiting) -> list[str]:
    who = _TRIGGERS.get(wish.trigger, wish.trigger)
    if wish.verdict == "approve":
        approve = f": vllm-watch approve {wish.incident_id}" if wish.incident_id else ""
        return [f"A restart {who} waits for approval{approve}"]
    by = f" (approved by {wish.approved_by})" if wish.approved_by else ""
    also = [f"Also: {_refused(gate)}" for gate in wish.gates[1:]]
    return [f"No restart {who} now{by}: {_refused(wish)}", *also]


def _refused(one: Waiting | Gate) -> str:
    t, said = one.until_timestamp_seconds, _ended(one.text)
    if t is None or "Z" in one.text:
        return said
    return f"{said} Next check {datetime.fromtimestamp(t, UTC):%H:%M}Z."


def _past(attempt: AttemptShown, t: float) -> str:
    if attempt.state == "dry_run":
        return "A restart was advised and left to you (observe mode)."
    ended_t, payoff = attempt.ended_timestamp_seconds, attempt.payoff_ratio
    when = "" if ended_t is None else f", {text.age(max(0.0, t - ended_t))} ago,"
    why = f" ({attempt.text})" if attempt.text else ""
    gave = ""
    if payoff is not None:
        part = f"{text.percent(payoff)} of baseline throughput" if payoff > 0 else "no throughput"
        gave = f" It recovered {part}."
    ends = step_of(attempt.state).ended
    return f"The last restart{when} {ends}{why}.{gave}".replace(", now ago,", " just now")


def _ended(said: str) -> str:
    return said if said.endswith((".", "!", "?")) else f"{said}."
