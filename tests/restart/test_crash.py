"""Killed with SIGKILL at every step of an attempt, a watcher's next run knows what was under way.

One attempt is run to its end and lists the points it passes (watcher.py). Then it is run once for each of
them, killed there, and a second watcher starts on the same folder, with the same incident still open.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.restart.watcher import Watchers, on_disk
from tests.restart.world import hanging

KILLED = -9
AT_ONCE = 3  # most of a run is waiting


def _crash(watchers, folder, point):
    """One point, and what two watchers left there."""
    with hanging(folder) as server:
        status = watchers.run(server, point)
        between, calls = on_disk(folder), len(server.lines("called"))
        again = watchers.run(server, "")
        said = json.loads((folder / "report").read_text()) if again == 0 else {}
        attempts = on_disk(folder)
        return SimpleNamespace(
            point=point, status=status, again=again,  # of the first and of the second
            was=between[0].state if between else None,  # state on disk between the two; None: nothing was written
            first=attempts[0] if between else None,
            attempts=attempts,  # at last
            calls_before=calls,  # of the hook, by the first
            called=[tuple(line.split()) for line in server.lines("called")],  # of both: attempt, PID of the watcher
            ended=server.lines("ended"),  # attempts that ended a server
            checks=said.get("checks", []),  # what stood against the request when the second first decided
            written=[tuple(each) for each in said.get("written", [])],  # ids and states that the second wrote
            at_calls=server.lines("on_disk"),  # states on disk when the hook was called
            evidence=sorted(each.name for each in (folder / "evidence").glob("*")),
            serves=server.signals().state == "serving",  # at last
            log=(folder / "log").read_text(),
        )  # fmt: skip


@pytest.fixture(scope="module")
def crashes(tmp_path_factory):
    """What came of a crash at each point of an attempt."""
    folder = tmp_path_factory.mktemp("crashes")
    pool = [Watchers() for _ in range(AT_ONCE)]
    try:
        whole = _crash(pool[0], folder / "whole", "none")
        assert (whole.status, whole.was) == (0, "helped"), whole.log
        points = (folder / "whole" / "points").read_text().splitlines()
        points = points[: points.index("after lock.release 1") + 1]
        # How often a lock is renewed is a matter of how long the run takes: the first time stands for all.
        points = [each for each in points if "lock.renew" not in each or each.endswith(" 1")]

        def share(number):
            mine = range(number, len(points), AT_ONCE)
            return [_crash(pool[number], folder / str(each), points[each]) for each in mine]

        with ThreadPoolExecutor(AT_ONCE) as threads:
            yield [crash for some in threads.map(share, range(AT_ONCE)) for crash in some]
    finally:
        for each in pool:
            each.close()


def test_every_point_was_reached(crashes):
    """Each watcher died where it was told to, the next one came to an end, and no step was left out."""
    assert {crash.point: crash.status for crash in crashes if crash.status != KILLED} == {}
    assert {crash.point: crash.log[-2000:] for crash in crashes if crash.again != 0} == {}
    passed = Counter(crash.point.rsplit(" ", 1)[0] for crash in crashes)
    for step in ("write", "hook.refusal", "hook.restart", "lock.acquire", "targets.next_scrape", "evidence.keep"):  # fmt: skip
        assert passed[f"before {step}"] == passed[f"after {step}"] > 0
    assert passed["before write"] >= 4  # intent, calling, verifying, its end
    assert {"hook called", "hook ended", "hook started"} <= set(passed)
    states = {crash.was for crash in crashes}
    assert states == {None, "intent", "calling", "verifying", "helped"}


def test_hook_is_never_called_again(crashes):
    """No attempt is known to two watchers' hooks, and no server is ended twice."""
    for crash in crashes:
        callers = {attempt: {pid for id_, pid in crash.called if id_ == attempt}
                   for attempt, _ in crash.called}  # fmt: skip
        assert all(len(pids) == 1 for pids in callers.values()), crash
        assert len(crash.ended) <= 1, crash
        if crash.was not in (None, "intent"):
            assert len(crash.called) == crash.calls_before, crash


def test_call_is_on_the_disk_before_it_is_made(crashes):
    """A next watcher would have found at each call that it might have been made."""
    assert {state for crash in crashes for state in crash.at_calls} == {"calling"}


def test_what_was_not_called_is_cancelled(crashes):
    """An intent is given up, costs nothing, and the request, which still stands, is fulfilled once."""
    for crash in crashes:
        if crash.was == "intent":
            assert crash.calls_before == 0, crash
            assert [each.state for each in crash.attempts] == ["cancelled", "helped"], crash
            assert crash.attempts[0].text == "the watcher ended before the hook was called"
        elif crash.was is None:
            assert [each.state for each in crash.attempts] == ["helped"], crash


def test_what_may_have_been_called_is_uncertain_and_verified(crashes):
    """Between intent and outcome: it is said loudly, the breaker opens, and it is seen what came of it."""
    for crash in (crash for crash in crashes if crash.was == "calling"):
        assert crash.first is not None
        mine = (state for id_, state in crash.written if id_ == crash.first.id)
        assert next(mine) == "uncertain"
        assert "restart_uncertain" in crash.log, crash
        assert {"under_way", "breaker"} <= set(crash.checks), crash
        assert len(crash.attempts) == 1, crash
        assert crash.first.state == ("helped" if crash.serves else "did_not_help"), crash
        # The hook's command dies with its watcher, with all that it had started: it has helped only
        # where the command had ended. A lock is renewed by the clock, so before or after that.
        done = crash.point in ("after hook.restart 2", "before write 5")
        assert crash.serves == done or "lock.renew" in crash.point, crash


def test_verification_goes_on(crashes):
    """What had been called for certain ends as if nothing had happened."""
    found = [crash for crash in crashes if crash.was == "verifying"]
    assert found
    for crash in found:
        assert [each.state for each in crash.attempts] == ["helped"], crash
        assert "under_way" in crash.checks, crash


def test_budget_is_never_refilled(crashes):
    """Whatever may have touched the server counts, for the next run as well."""
    for crash in crashes:
        spent = [each for each in crash.attempts if each.spent]
        assert len(spent) == 1, crash
        if crash.was not in (None, "intent"):
            assert {"cooldown", "budget"} <= set(crash.checks), crash
            assert crash.first is not None
            assert crash.first.called_t == spent[0].called_t


def test_evidence_is_whole(crashes):
    """One archive for each attempt that came so far, and none that is half written."""
    for crash in crashes:
        assert set(crash.evidence) <= {f"{each.target}-{each.id}.tar" for each in crash.attempts}, (
            crash
        )
        assert len(crash.evidence) >= 1, crash
