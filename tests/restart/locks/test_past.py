"""What all who share a lock know of the last attempts: bounded, strict, and only of engines that are theirs."""

from dataclasses import asdict, replace

import pytest

from vllm_watch.restart.locks import past as pasts
from vllm_watch.restart.locks.past import PAST_MAX, TARGET_PAST_MAX, Past
from vllm_watch.state.attempt import Attempt

MADE = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="h", reason="no step", actor="w",
    state="calling", began_t=10.0, called_t=12.0, incident_id="i1", address="10.0.0.1:8000",
)  # fmt: skip


def one(attempt_id: str = "a1", **changed: object) -> Past:
    found = pasts.past(replace(MADE, id=attempt_id, **changed), "host-1")  # type: ignore[arg-type]
    assert found is not None
    return found


def states(known: tuple[Past, ...], *held: str, host: str = "host-1") -> list[tuple[str, str]]:
    return [(each.id, each.state) for each in pasts.others(known, held, host, "mine")]


def test_it_comes_back_as_it_was() -> None:
    """Through JSON; and as an attempt that counts from its call."""
    (read,) = pasts.from_json([asdict(one())])
    assert read == one()
    (attempt,) = pasts.others([read], {"a1"}, "host-2", "mine")
    assert (attempt.acted_t, attempt.incident_id, attempt.state) == (12.0, "i1", "calling")


def test_local_address_is_of_its_host() -> None:
    """Every sidecar calls its engine localhost."""
    known = (one(address="localhost:8000"),)
    assert states(known, "a1") == [("a1", "calling")]
    assert states(known, "a1", host="host-2") == []


def test_who_has_no_slot_and_no_end_is_uncertain() -> None:
    """One that never came to its call has done nothing."""
    known = (one("a1"), one("a2", state="intent"), one("a3", state="helped"), one("mine"))
    assert states(known) == [("a1", "uncertain"), ("a3", "helped")]
    assert states(known, "a1", "a2") == [("a1", "calling"), ("a2", "intent"), ("a3", "helped")]
    assert [each.id for each in pasts.without_ghosts(known, ())] == ["a1", "a3", "mine"]


def test_it_begins_once_and_ends_once() -> None:
    """A further question does not take back that it was called; what touched nothing is forgotten."""
    known = pasts.first((), one(state="intent"))
    known = pasts.put(known, one())
    assert pasts.first(known, one(state="intent")) == known
    assert pasts.ended(known, "a1", one(state="helped"), used=True) == (one(state="helped"),)
    assert pasts.ended(known, "a1", None, used=True) == known
    assert pasts.ended(known, "a1", one(state="cancelled"), used=False) == ()


def test_it_is_bounded() -> None:
    """The oldest of a target goes first, then the oldest of all."""
    known: tuple[Past, ...] = (one("other", address="10.0.0.2:8000"),)
    for number in range(TARGET_PAST_MAX + 3):
        known = pasts.put(known, one(f"a{number}"))
    assert [each.id for each in known] == [
        "other",
        *(f"a{n}" for n in range(3, TARGET_PAST_MAX + 3)),
    ]
    for number in range(PAST_MAX):
        known = pasts.put(known, one(f"b{number}", address=f"10.0.1.1:{number}"))
    assert len(known) == PAST_MAX
    assert known[0].id == "b0"


NOT_OURS = {
    "no list": 5,
    "a word": ["x"],
    "a field too few": [{"id": "x"}],
    "a field too many": [asdict(one()) | {"more": 1}],
    "a state that there is not": [asdict(one()) | {"state": "fine"}],
    "a time in words": [asdict(one()) | {"began_t": "now"}],
    "too many": [asdict(one())] * (PAST_MAX + 1),
}


@pytest.mark.parametrize("document", NOT_OURS.values(), ids=NOT_OURS)
def test_what_is_not_ours_is_not_read(document: object) -> None:
    """It is a no."""
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        pasts.from_json(document)
