"""Format a batch as text, Markdown and JSON, with untrusted text made safe."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from vllm_watch.incidents import recurrence
from vllm_watch.incidents.incident import Incident
from vllm_watch.incidents.way import NEXT_RULE
from vllm_watch.notify import alert as phases
from vllm_watch.notify.alert import RESTART, Alert
from vllm_watch.notify.policy import Batch, Item
from vllm_watch.samples.target import WATCHER
from vllm_watch.settings.notifications import NotificationsSettings
from vllm_watch.story.base import RESTART_RUNBOOK, Story, runbook_path, severity_word, step_of
from vllm_watch.story.kinds import story_of
from vllm_watch.support.redaction import beginning, redacted
from vllm_watch.support.visible import visible_lines

ITEMS_SHOWN = 5
"""A message shows at most this many alerts."""

EVIDENCE_SHOWN = 3
NAME_MAX, ID_MAX, SENTENCE_MAX, TITLE_MAX = 80, 200, 400, 160

TEST = "test"

SCHEMA = 1
"""Version of the JSON format. Keys may be added, but never changed."""

_OF_INCIDENT = ("id", "target", "engine", "kind", "cause", "severity", "summary")

_OPENING = {
    phases.OPENED: "", phases.WORSE: "worse: ", phases.CHANGED: "cause found: ", phases.REMINDER: "still open: ",
    phases.RESOLVED: "resolved: ", phases.SAID: "", TEST: "test: ",
}  # fmt: skip
ENDED = {
    "healthy": "it recovered", "restarted": "the process restarted",
    "target_gone": "it is no longer watched", "superseded": "another incident took its place",
}  # fmt: skip

# Includes marks of chat services: ~~struck~~, ||hidden||, <!channel>.
_MARKS = re.compile(r"([\\`*_\[\]<>#|~&])")
_MENTION = re.compile(r"@(?=\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as text and JSON, with an idempotency key."""

    key: str
    phase: str
    severity: str
    title: str  # one line
    text: str
    markdown: str
    payload: Mapping[str, Any]


def message(
    key: str, batch: Batch, links: NotificationsSettings, *, dropped: int, t: float
) -> Message:
    """Return the message. `dropped` is the number of alerts that could not be sent."""
    shown = tuple(_without_secrets(each) for each in batch.items[:ITEMS_SHOWN])
    batch = replace(batch, items=(*shown, *batch.items[ITEMS_SHOWN:]))
    first = batch.items[0]
    title = clean(_title(batch), TITLE_MAX)
    paragraphs = _one(batch.items[0], links) if len(batch.items) == 1 else _many(batch, links)
    if dropped:
        paragraphs.append([f"{dropped} alerts could not be sent here since the last message."])
    return Message(
        key=key, phase="digest" if batch.digest else first.phase, severity=batch.severity,
        title=title,
        text="\n".join(["\n".join(lines) for lines in paragraphs]),
        markdown="\n\n".join("\n".join(map(_marked, lines)) for lines in paragraphs),
        payload=_payload(key, batch, title, paragraphs, links, dropped, t),
    )  # fmt: skip


def _without_secrets(item: Item) -> Item:
    alert, incident = item.alert, item.alert.incident
    evidence = [each for each in incident.evidence_for if each.text and each.name != NEXT_RULE][
        :EVIDENCE_SHOWN
    ]
    return replace(item, alert=replace(
        alert,
        group=clean(alert.group, NAME_MAX), restart=clean(alert.restart, SENTENCE_MAX),
        incident=replace(
            incident,
            id=clean(incident.id, ID_MAX), target=clean(incident.target, NAME_MAX),
            summary=clean(incident.summary, SENTENCE_MAX), stacks=clean(incident.stacks, SENTENCE_MAX),
            engine=None if incident.engine is None else clean(incident.engine, NAME_MAX),
            evidence_for=tuple(replace(each, text=clean(each.text, SENTENCE_MAX)) for each in evidence),
        ),
    ))  # fmt: skip


def trial_incident(what: str, t: float) -> Incident:
    """Return the incident of a test."""
    return Incident(
        id=f"test-{t:.0f}", target=WATCHER, engine=None, kind="test", cause="test", severity="info",
        summary=f"This is a test of {what}: nothing is wrong", opened_t=t, updated_t=t, began_t=t,
    )  # fmt: skip


def trial_message(name: str, links: NotificationsSettings, t: float) -> Message:
    """Return a test message."""
    alert = Alert(incident=trial_incident(f"the notifier {name}", t))
    batch = Batch(items=(Item(phase=TEST, alert=alert),))
    return message(f"test-{name}-{t:.3f}", batch, links, dropped=0, t=t)


def _title(batch: Batch) -> str:
    first, count = batch.items[0], len(batch.items)
    alert, incident = first.alert, first.alert.incident
    head = f"{severity_word(incident.severity).upper()} {_opening(first)}"
    if batch.digest:
        return f"{severity_word(batch.severity).upper()} {count} alerts at once: {_counts(batch.items)}"
    if alert.about == RESTART:
        return f"{head}{_name(incident)} {step_of(incident.cause).says}"
    if first.phase == TEST:
        return f"{head}{_name(incident)}: {incident.kind} ({incident.cause})"
    story = _story(incident)
    what = story.title_of(incident.cause)
    if first.phase == phases.RESOLVED:
        head = "RESOLVED "
    elif count == 1:
        return f"{head}{_name(incident)} {story.says_of(incident.cause)}"
    who = _name(incident) if count == 1 else f"{count} of {alert.group or 'all'}"
    return f"{head}{who}: {what}"


def _opening(item: Item) -> str:
    advised = item.phase == phases.CHANGED and item.alert.incident.restart_advised
    return "restart advised: " if advised else _OPENING[item.phase]


def _name(incident: Incident) -> str:
    engine = f" engine {incident.engine}" if incident.engine is not None else ""
    return f"{incident.target}{engine}"


def _plain(kind: str) -> str:
    return kind.replace("_", " ")


def _counts(items: Sequence[Item]) -> str:
    counted = Counter(
        f"{_opening(each)}{_plain(each.alert.incident.kind)} ({_plain(each.alert.incident.cause)})"
        for each in items
    )
    shown = [f"{count} {what}" for what, count in counted.most_common(ITEMS_SHOWN)]
    return ", ".join(shown) + (", …" if len(counted) > ITEMS_SHOWN else "")


# A paragraph is a list of lines; "- " begins an item.


def _one(item: Item, links: NotificationsSettings) -> list[list[str]]:
    alert, incident = item.alert, item.alert.incident
    found = [[_sentence(item)]]
    evidence = [f"- {each.text}" for each in incident.evidence_for]
    evidence += [f"- {incident.stacks}"] if incident.stacks else []
    if evidence and item.phase != phases.RESOLVED:
        found.append(evidence)
    last = []
    if item.phase not in (phases.RESOLVED, TEST):
        last += [
            f"{label}: {text}" for label, text in (
                ("Do", first_step(alert)), ("Restart", alert.restart),
            ) if text
        ]  # fmt: skip
        last.append(f"Runbook: {runbook(alert, links)}")
    if links.page_url is not None:
        last.append(f"Page: {page(links.page_url, incident.target)}")
    if alert.about != RESTART and item.phase != TEST:
        last.append(f"Id: {incident.id}")
    return [*found, *([last] if last else [])]


def _many(batch: Batch, links: NotificationsSettings) -> list[list[str]]:
    first, count = batch.items[0], len(batch.items)
    alert, incident = first.alert, first.alert.incident
    what = _counts(batch.items) if batch.digest else _story(incident).title_of(incident.cause)
    where = "" if batch.digest else f" in group {alert.group}"
    head = f"{_opening(first) if not batch.digest else ''}{count} alerts{where}: {what}."
    worst = [f"- {_sentence(each)}" for each in batch.items[:ITEMS_SHOWN]]
    more = count - len(worst)
    last = [f"and {more} more."] if more > 0 else []
    if not batch.digest and first.phase != phases.RESOLVED:
        last += [f"Do: {first_step(first.alert)}", f"Runbook: {runbook(first.alert, links)}"]
    if links.page_url is not None:
        last.append(f"Page: {links.page_url}")
    return [[head[0].upper() + head[1:]], worst, *([last] if last else [])]


def _sentence(item: Item) -> str:
    alert, incident = item.alert, item.alert.incident
    group = f" ({alert.group})" if alert.group != incident.target else ""
    place = _name(incident) + (group if alert.group else "")
    summary = incident.summary.rstrip(".")
    if item.phase == TEST:
        return f"{summary}."
    if alert.about == RESTART:
        step = step_of(incident.cause).says
        return f"{place} {step} ({clock(incident.opened_t)}). {_capital(summary)}."
    if item.phase != phases.RESOLVED:
        says = _story(incident).says_of(incident.cause)
        often = "" if incident.recurring is None else f" ({incident.recurring.text})"
        return f"{place} {says}, since {clock(incident.began_t)}. {_capital(summary)}{often}."
    ended = ENDED.get(incident.resolution or "", "it ended")
    over_t = incident.ended_t or incident.resolved_t
    until = "" if over_t is None else f" until {clock(over_t)}"
    late = " This could not be sent earlier." if item.late else ""
    cost = f" Requests lost: {incident.requests_lost}." if incident.requests_lost else ""
    what = _story(incident).title_of(incident.cause)
    return f"{place}: {what}, from {clock(incident.began_t)}{until}. {_capital(ended)}.{cost}{late}"


def _capital(text: str) -> str:
    return text if text.startswith("vllm") else text[:1].upper() + text[1:]


def first_step(alert: Alert) -> str:
    """Return the recommended first step."""
    if alert.about == RESTART:
        return step_of(alert.incident.cause).first_step
    incident = alert.incident
    return _story(incident).first_step_of(
        incident.cause, advised=incident.restart_advised, known=incident.texts
    )


def runbook(alert: Alert, links: NotificationsSettings) -> str:
    """Return the runbook's URL: under runbooks_url, else in the daemon, else in the repository."""
    found = RESTART_RUNBOOK if alert.about == RESTART else _story(alert.incident).runbook
    if links.runbooks_url is None and links.page_url is not None:
        return f"{links.page_url.rstrip('/')}/{runbook_path(found)}"
    return f"{(links.runbooks_url or 'docs').rstrip('/')}/{found}"


def _story(incident: Incident) -> Story:
    return story_of(incident.kind, incident.target)


def clock(t: float) -> str:
    """Format a time with its date, because messages may be read days later."""
    return datetime.fromtimestamp(t, UTC).strftime("%a %d %b %H:%M UTC")


def page(url: str, target: str) -> str:
    """Return the target's page URL."""
    return f"{url.rstrip('/')}/#{quote(f'target-{target}', safe='')}"


def _marked(line: str) -> str:
    item, text = ("- ", line[2:]) if line.startswith("- ") else ("", line)
    label, colon, rest = text.partition(": ")
    if rest.startswith(("https://", "http://")) and " " not in rest:
        return f"{item}{label}{colon}<{rest.replace('>', '%3E')}>  "
    return item + markdown(text) + ("" if item else "  ")


def _payload(
    key: str, batch: Batch, title: str, paragraphs: Sequence[Sequence[str]], links: NotificationsSettings,
    dropped: int, t: float,
) -> dict[str, Any]:  # fmt: skip
    first = batch.items[0]
    of_one: Callable[[Callable[[Alert], Any]], Any] = lambda get: (  # noqa: E731
        get(first.alert) if not batch.digest else None
    )
    return {
        "schema": SCHEMA,
        "key": key,
        "t": t,
        "phase": "digest" if batch.digest else first.phase,
        "severity": batch.severity,
        "count": len(batch.items),
        "dropped": dropped,
        "kind": of_one(lambda a: a.incident.kind),
        "cause": of_one(lambda a: a.incident.cause),
        "group": of_one(lambda a: a.group),
        "title": title,
        "text": "\n".join(line for lines in paragraphs for line in lines),
        "runbook": of_one(lambda a: runbook(a, links)),
        "page_url": links.page_url,
        "items": [_item(each) for each in batch.items[:ITEMS_SHOWN]],
        "ids": [clean(each.alert.id, ID_MAX) for each in batch.items],
    }


def _item(item: Item) -> dict[str, Any]:
    alert, incident = item.alert, item.alert.incident
    return {
        "phase": item.phase,
        "about": alert.about,
        **{name: getattr(incident, name) for name in _OF_INCIDENT},
        "evidence": [each.text for each in incident.evidence_for],
        "stacks": incident.stacks,
        "restart": alert.restart,
        "restart_advised": incident.restart_advised,
        "since_t": incident.opened_t,
        "ended_t": incident.resolved_t,
        "resolution": incident.resolution,
        "requests_lost": incident.requests_lost,
        "recurring": recurrence.plain(incident.recurring),
    }


def clean(text: str, characters_max: int) -> str:
    """Return one line without secrets."""
    words = redacted(" ".join(visible_lines(beginning(text, 2 * characters_max + 200)).split()))
    line = " ".join(map(_without_tail, words.split(" ")))
    return line if len(line) <= characters_max else line[: characters_max - 1].rstrip() + "…"


def _without_tail(word: str) -> str:
    scheme, mark, rest = word.partition("://")
    return scheme + mark + re.split(r"[?#]", rest, maxsplit=1)[0]


def markdown(line: str) -> str:
    """Escape a cleaned line."""
    return _MENTION.sub("@\u200b", _MARKS.sub(r"\\\1", line))
