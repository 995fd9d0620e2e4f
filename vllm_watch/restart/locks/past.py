"""The last attempts of all who share a lock, as its record holds them: what one found not to help, the others know. Pure.

An attempt is put down as `intent` with its slot, as `calling` before its hook is called, and as it ended when the slot
is given back. Whose slot is gone without that may have acted: it is `uncertain`.
"""

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from vllm_watch.state.attempt import ENDED_STATES, OPEN_STATES, Attempt

PAST_MAX = 500
"""Of all targets: a hundred thousand bytes, where a Lease may have two and a half of these."""

TARGET_PAST_MAX = 50
"""Of one target: a budget that is larger is not held across watchers."""

_LOOPBACK = "localhost:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What others must know of one attempt."""

    id: str
    target: str
    group: str
    address: str  # host:port; "" for a pod
    host: str  # who reaches it under that address; "": everybody
    trigger: str
    state: str  # as an Attempt's
    began_t: float  # Unix seconds
    called_t: float | None = None
    incident_id: str | None = None


def past(attempt: Attempt | None, host: str) -> Past | None:
    """Return what others must know; `host` is this watcher's, whose `localhost` is nobody else's."""
    if attempt is None:
        return None
    return Past(
        id=attempt.id, target=attempt.target, group=attempt.group, address=attempt.address,
        host=host if attempt.address.startswith(_LOOPBACK) else "", trigger=attempt.trigger,
        state=attempt.state, began_t=attempt.began_t, called_t=attempt.called_t, incident_id=attempt.incident_id,
    )  # fmt: skip


def others(
    pasts: Iterable[Past], held: Collection[str], host: str, attempt_id: str
) -> tuple[Attempt, ...]:
    """Return all that concern the watcher of `host` but for this attempt; `held`: attempts that have a slot now."""
    return tuple(
        Attempt(
            id=each.id, target=each.target, group=each.group, address=each.address, trigger=each.trigger,
            state=each.state if each.id in held or each.state in ENDED_STATES else "uncertain",
            began_t=each.began_t, called_t=each.called_t, incident_id=each.incident_id,
            hook="", reason="", actor="", text="known from the lock",
        )
        for each in pasts
        if each.host in ("", host) and each.id != attempt_id and (each.id in held or each.state != "intent")
    )  # fmt: skip


def put(pasts: Iterable[Past], one: Past | None) -> tuple[Past, ...]:
    """Put one down in the place of what was said of it before, and forget the oldest where there are too many."""
    if one is None:
        return tuple(pasts)
    others = [each for each in pasts if each.id != one.id]
    same = [each for each in others if _of(each) == _of(one)]
    forgotten = {each.id for each in same[: max(0, len(same) + 1 - TARGET_PAST_MAX)]}
    return (*(each for each in others if each.id not in forgotten), one)[-PAST_MAX:]


def first(pasts: tuple[Past, ...], one: Past | None) -> tuple[Past, ...]:
    """Put down one that begins; what is known of it already says more."""
    known = one is not None and any(each.id == one.id for each in pasts)
    return pasts if known else put(pasts, one)


def ended(
    pasts: tuple[Past, ...], attempt_id: str, one: Past | None, *, used: bool
) -> tuple[Past, ...]:
    """Put down how one ended; what surely touched nothing is forgotten."""
    if used:
        return put(pasts, one)
    return tuple(each for each in pasts if each.id != attempt_id)


def without_ghosts(pasts: Iterable[Past], held: Collection[str]) -> tuple[Past, ...]:
    """Forget those that never came to their call, and have no slot any more."""
    return tuple(each for each in pasts if each.state != "intent" or each.id in held)


def from_json(document: Any) -> tuple[Past, ...]:
    """Read them. Raises ValueError for what nobody of us has written."""
    try:
        pasts = tuple(Past(**each) for each in document)
    except TypeError as error:
        raise ValueError(str(error)[:200]) from None
    if len(pasts) > PAST_MAX or not all(map(_valid, pasts)):
        raise ValueError("the attempts in it are not ours")
    return pasts


def to_json(pasts: Iterable[Past]) -> list[dict[str, Any]]:
    """Return them as `from_json` reads them."""
    return [asdict(each) for each in pasts]


def _of(one: Past) -> tuple[str, ...]:
    return one.host, one.address, one.target, one.group


def _valid(one: Past) -> bool:
    words = (
        one.id,
        one.target,
        one.group,
        one.address,
        one.host,
        one.trigger,
        one.incident_id or "",
    )
    times = (one.began_t, one.called_t or 0.0)
    return (
        all(isinstance(each, str) for each in words)
        and all(isinstance(each, int | float) for each in times)
        and one.state in OPEN_STATES + ENDED_STATES
    )
