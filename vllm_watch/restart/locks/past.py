"""Recent attempts of all watchers that share a lock, stored in the lock's record.

An attempt is `uncertain` if its slot expired without a result.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from vllm_watch.state.attempt import ENDED_STATES, OPEN_STATES, Attempt

PAST_MAX = 500
"""At most this many attempts are kept. They take about 100,000 bytes, and a Lease can hold 250,000."""

TARGET_PAST_MAX = 50
"""At most this many attempts are kept per target. A restart budget above this is not enforced across watchers."""

_LOOPBACK = "localhost:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One attempt, as other watchers see it."""

    id: str
    target: str
    group: str
    address: str  # host:port; "" for a pod
    host: str  # host of a localhost address; "" for other addresses
    trigger: str
    state: str
    began_t: float
    called_t: float | None = None
    incident_id: str | None = None


def past(attempt: Attempt | None, host: str) -> Past | None:
    """Return the attempt in the form that watchers share; `host` is the host of this watcher."""
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
    """Return the other attempts that concern `host`. The attempt ids of slot holders are in `held`."""
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
    """Replace or append the attempt, and drop the oldest attempts beyond the limits."""
    if one is None:
        return tuple(pasts)
    others = [each for each in pasts if each.id != one.id]
    same = [each for each in others if _of(each) == _of(one)]
    forgotten = {each.id for each in same[: max(0, len(same) + 1 - TARGET_PAST_MAX)]}
    return (*(each for each in others if each.id not in forgotten), one)[-PAST_MAX:]


def first(pasts: tuple[Past, ...], one: Past | None) -> tuple[Past, ...]:
    """Append a new attempt, unless it is already recorded."""
    known = one is not None and any(each.id == one.id for each in pasts)
    return pasts if known else put(pasts, one)


def ended(
    pasts: tuple[Past, ...], attempt_id: str, one: Past | None, *, used: bool
) -> tuple[Past, ...]:
    """Record the result of an attempt, or remove one that called no hook."""
    if used:
        return put(pasts, one)
    return tuple(each for each in pasts if each.id != attempt_id)


def without_ghosts(pasts: Iterable[Past], held: Collection[str]) -> tuple[Past, ...]:
    """Remove attempts that lost their slot before they called a hook."""
    return tuple(each for each in pasts if each.state != "intent" or each.id in held)


def from_json(document: Any) -> tuple[Past, ...]:
    """Raises ValueError if vllm-watch did not write it."""
    try:
        pasts = tuple(Past(**each) for each in document)
    except TypeError as error:
        raise ValueError(str(error)[:200]) from None
    if len(pasts) > PAST_MAX or not all(map(_valid, pasts)):
        raise ValueError("the attempts in it are not ours")
    return pasts


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
