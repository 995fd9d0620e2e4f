"""Record in the journal which settings a reload changed."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from vllm_watch.config import Config
from vllm_watch.errors import JournalError
from vllm_watch.state.journal import Entry, Journal
from vllm_watch.support.redaction import excerpt

_log = structlog.get_logger()

CHARACTERS_MAX = 2000
_VALUE_CHARACTERS_MAX = 80


async def note(journal: Journal, actor: str, source: str, old: Config, new: Config) -> None:
    """Write the reload to the journal. Never raises: the new configuration is already in use."""
    before, after = diff(old, new)
    entry = Entry(
        t=time.time(), actor=actor, source=source, action="reload", before=before, after=after
    )
    try:
        await journal.note(entry)
    except JournalError as error:
        _log.error("reload_not_journaled", cause=error.cause)


def diff(old: Config, new: Config) -> tuple[str, str]:
    """Return the old and new values of changed keys."""
    before, after = dict(_leaves(_plain(old), "")), dict(_leaves(_plain(new), ""))
    changed = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    return _text(before, changed), _text(after, changed)


def _plain(config: Config) -> dict[str, Any]:
    plain = config.model_dump(mode="json", exclude={"targets"})
    plain["targets"] = {
        target.name: target.model_dump(mode="json", exclude_unset=True) for target in config.targets
    }
    return plain


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(below, f"{path}.{key}" if path else str(key))
    else:
        yield path, excerpt(str(value), _VALUE_CHARACTERS_MAX)


def _text(values: Mapping[str, str], keys: list[str]) -> str:
    lines = [f"{key}: {values.get(key, 'not set')}" for key in keys]
    return "; ".join(lines)[:CHARACTERS_MAX] or "nothing changed"
