"""A batch in words: what, where, since when, cause, evidence, what to do, and where to read on. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from vllm_watch.notify import policy
from vllm_watch.notify.batches import Batch, Item
from vllm_watch.notify.markup import clean, markdown
from vllm_watch.notify.matter import INCIDENT, RESTART, Matter
from vllm_watch.samples.target import WATCHER
from vllm_watch.story.base import Story
from vllm_watch.story.kinds import story_of
from vllm_watch.story.restart_steps import RUNBOOK, step_of

ITEMS_SHOWN = 5
"""The worst five: who can read more opens the page."""

EVIDENCE_SHOWN = 3
NAME_MAX, ID_MAX, SENTENCE_MAX, TITLE_MAX = 80, 200, 400, 160

TEST = "test"
"""The phase of a message that `vllm-watch notify test` sends."""

SCHEMA = 1
"""Of the JSON: keys are added, never changed."""

_OPENING = {
    policy.OPENED: "", policy.WORSE: "worse: ", policy.REMINDER: "still open: ",
    policy.RESOLVED: "resolved: ", policy.SAID: "", TEST: "test: ",
}  # fmt: skip
_ENDS = {
    "healthy": "it is well again", "restarted": "another process answers",
    "target_gone": "it is not watched any more", "superseded": "it became another trouble",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Links:
    """Where to read on; None: not configured."""

    page_url: str | None = None
    runbooks_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a notifier sends: once in words and once as JSON, with an idempotency key."""

    key: str
    phase: str
    severity: str
    title: str  # plain, one line
    text: str  # plain
    markdown: str  # CommonMark
    payload: Mapping[str, Any]


def message(key: str, batch: Batch, links: Links, *, dropped: int, t: float) -> Message:
    """Put a batch into words. `dropped`: how many matters could not be told since the last message."""
    shown = tuple(_without_secrets(each) for each in batch.items[:ITEMS_SHOWN])
    batch = replace(batch, items=(*shown, *batch.items[ITEMS_SHOWN:]))
    first = batch.items[0]
    title = clean(_title(batch), TITLE_MAX)
    paragraphs = _paragraphs(batch, links, dropped)
    return Message(
        key=key, phase="digest" if batch.digest else first.phase, severity=batch.severity,
        title=title,
        text="\n".join(["\n".join(lines) for lines in paragraphs]),
        markdown="\n\n".join("\n".join(map(_marked, lines)) for lines in paragraphs),
        payload=_payload(key, batch, title, paragraphs, links, dropped, t),
    )  # fmt: skip


def _without_secrets(item: Item) -> Item:
    """The texts of others as they may be shown: every one, since any may hold what should not be in it."""
    matter = item.matter
    return replace(item, matter=replace(
        matter,
        id=clean(matter.id, ID_MAX), target=clean(matter.target, NAME_MAX),
        group=clean(matter.group, NAME_MAX), summary=clean(matter.summary, SENTENCE_MAX),
        engine=None if matter.engine is None else clean(matter.engine, NAME_MAX),
        restart=clean(matter.restart, SENTENCE_MAX),
        evidence=tuple(clean(text, SENTENCE_MAX) for text in matter.evidence[:EVIDENCE_SHOWN]),
    ))  # fmt: skip


def trial_message(name: str, links: Links, t: float) -> Message:
    """What `vllm-watch notify test` sends: it cannot be taken for trouble."""
    matter = Matter(
        id=f"test-{t:.0f}", about=INCIDENT, t=t, target=WATCHER, kind="test", cause="test",
        severity="info", summary=f"This is a test of the notifier {name}: nothing is wrong",
    )  # fmt: skip
    batch = Batch(items=(Item(phase=TEST, matter=matter),), rows=())
    return message(f"test-{name}-{t:.3f}", batch, links, dropped=0, t=t)


# --- one line


def _title(batch: Batch) -> str:
    first, count = batch.items[0], len(batch.items)
    matter = first.matter
    head = f"{matter.severity.upper()} {_OPENING[first.phase]}"
    if batch.digest:
        return f"{batch.severity.upper()} {count} matters at once: {_counts(batch.items)}"
    if matter.about == RESTART:
        return f"{head}{_name(matter)} {step_of(matter.cause).says}"
    what = f"{_plain(matter.kind)} ({_plain(matter.cause)})"
    if count == 1:
        return f"{head}{_name(matter)}: {what}"
    return f"{head}{count} of {matter.group or 'all'}: {what}"


def _name(matter: Matter) -> str:
    engine = f" engine {matter.engine}" if matter.engine is not None else ""
    return f"{matter.target}{engine}"


def _plain(kind: str) -> str:
    return kind.replace("_", " ")


def _counts(items: Sequence[Item]) -> str:
    counted = Counter(
        f"{_OPENING[each.phase]}{_plain(each.matter.kind)} ({each.matter.cause})" for each in items
    )
    shown = [f"{count} {what}" for what, count in counted.most_common(ITEMS_SHOWN)]
    return ", ".join(shown) + (", …" if len(counted) > ITEMS_SHOWN else "")


# --- paragraphs: lists of lines; a line that begins with "- " is an item


def _paragraphs(batch: Batch, links: Links, dropped: int) -> list[list[str]]:
    found = _one(batch.items[0], links) if len(batch.items) == 1 else _many(batch, links)
    if dropped:
        found.append([f"{dropped} matters could not be told here since the last message."])
    return found


def _one(item: Item, links: Links) -> list[list[str]]:
    matter = item.matter
    found = [[_sentence(item)]]
    evidence = [f"- {text}" for text in matter.evidence]
    if evidence and item.phase != policy.RESOLVED:
        found.append(evidence)
    last = []
    if item.phase not in (policy.RESOLVED, TEST):
        last += [
            f"{label}: {text}" for label, text in (
                ("Restart", matter.restart), ("To do", first_step(matter)),
            ) if text
        ]  # fmt: skip
        last.append(f"Runbook: {runbook(matter, links)}")
    if links.page_url is not None:
        last.append(f"Page: {page(links.page_url, matter)}")
    if matter.about != RESTART and item.phase != TEST:
        last.append(f"Id: {matter.id}")
    return [*found, *([last] if last else [])]


def _many(batch: Batch, links: Links) -> list[list[str]]:
    first, count = batch.items[0], len(batch.items)
    matter = first.matter
    what = _counts(batch.items) if batch.digest else f"{_plain(matter.kind)} ({matter.cause})"
    where = "" if batch.digest else f" in group {matter.group}"
    head = f"{_OPENING[first.phase] if not batch.digest else ''}{count} matters{where}: {what}."
    worst = [f"- {_sentence(each)}" for each in batch.items[:ITEMS_SHOWN]]
    more = count - len(worst)
    last = [f"and {more} more."] if more > 0 else []
    if not batch.digest and first.phase != policy.RESOLVED:
        last += [f"To do: {first_step(matter)}", f"Runbook: {runbook(matter, links)}"]
    if links.page_url is not None:
        last.append(f"Page: {links.page_url}")
    return [[head[0].upper() + head[1:]], worst, *([last] if last else [])]


def _sentence(item: Item) -> str:
    """What, where, since when, cause."""
    matter = item.matter
    group = f" ({matter.group})" if matter.group != matter.target else ""
    place = _name(matter) + (group if matter.group else "")
    summary = matter.summary.rstrip(".")
    if item.phase == TEST:
        return f"{summary}."
    if matter.about == RESTART:
        step = step_of(matter.cause).says
        return f"{place} {step} ({clock(matter.t)}): {summary}."
    if item.phase != policy.RESOLVED:
        since = f"since {clock(matter.t)}, cause {matter.cause}"
        return f"{place} {_story(matter).says} {since}: {summary}."
    ended = _ENDS.get(matter.resolution or "", "it is over")
    until = "" if matter.ended_t is None else f" until {clock(matter.ended_t)}"
    late = " It could not be told while it lasted." if item.late else ""
    what = f"{_plain(matter.kind)} ({matter.cause})"
    return f"{place}: {what} from {clock(matter.t)}{until} is over: {ended}.{late}"


def first_step(matter: Matter) -> str:
    """What to do first, in one sentence."""
    if matter.about == RESTART:
        return step_of(matter.cause).first_step
    return _story(matter).first_step_of(matter.cause)


def runbook(matter: Matter, links: Links) -> str:
    """Where to read on: a link where the pages are served, else the path in the repository."""
    page = RUNBOOK if matter.about == RESTART else _story(matter).runbook
    return f"{(links.runbooks_url or 'docs').rstrip('/')}/{page}"


def _story(matter: Matter) -> Story:
    return story_of(matter.kind, matter.target)


def clock(t: float) -> str:
    """A moment as people on call write it, with the day: messages are read late."""
    return datetime.fromtimestamp(t, UTC).strftime("%a %d %b %H:%M UTC")


def page(url: str, matter: Matter) -> str:
    """The status page, opened at the target."""
    return f"{url.rstrip('/')}/#{quote(f'target-{matter.target}', safe='')}"


def _marked(line: str) -> str:
    item, text = ("- ", line[2:]) if line.startswith("- ") else ("", line)
    label, colon, rest = text.partition(": ")
    if rest.startswith(("https://", "http://")) and " " not in rest:
        return f"{item}{label}{colon}<{rest.replace('>', '%3E')}>  "
    return item + markdown(text) + ("" if item else "  ")


# --- JSON


def _payload(
    key: str, batch: Batch, title: str, paragraphs: Sequence[Sequence[str]], links: Links,
    dropped: int, t: float,
) -> dict[str, Any]:  # fmt: skip
    first = batch.items[0]
    of_one: Callable[[Callable[[Matter], Any]], Any] = lambda get: (  # noqa: E731
        get(first.matter) if not batch.digest else None
    )
    return {
        "schema": SCHEMA,
        "key": key,
        "t": t,
        "phase": "digest" if batch.digest else first.phase,
        "severity": batch.severity,
        "count": len(batch.items),
        "dropped": dropped,
        "kind": of_one(lambda m: m.kind),
        "cause": of_one(lambda m: m.cause),
        "group": of_one(lambda m: m.group),
        "title": title,
        "text": "\n".join(line for lines in paragraphs for line in lines),
        "runbook": of_one(lambda m: runbook(m, links)),
        "page_url": links.page_url,
        "items": [_item(each) for each in batch.items[:ITEMS_SHOWN]],
        "ids": [clean(each.matter.id, ID_MAX) for each in batch.items],
    }


def _item(item: Item) -> dict[str, Any]:
    matter = item.matter
    return {
        "phase": item.phase,
        "about": matter.about,
        "id": matter.id,
        "target": matter.target,
        "engine": matter.engine,
        "kind": matter.kind,
        "cause": matter.cause,
        "severity": matter.severity,
        "summary": matter.summary,
        "evidence": list(matter.evidence),
        "restart": matter.restart,
        "restart_advised": matter.restart_advised,
        "since_t": matter.t,
        "ended_t": matter.ended_t,
        "resolution": matter.resolution,
    }
