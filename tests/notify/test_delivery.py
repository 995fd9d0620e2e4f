"""One notifier at work against a real receiver: every way in which one fails, and what is told all the same."""

import asyncio
import sqlite3
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from tests.notify.telling import desk, incident, receiver, settings, step
from tests.sources.wire import wire
from vllm_watch.incidents.incident import IncidentEvent
from vllm_watch.notify import delivery as delivery_module
from vllm_watch.state import file
from vllm_watch.state import ledger as state_ledger
from vllm_watch.state.incidents import IncidentTable


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(delivery_module, "AGAIN_SECONDS_FIRST", 0.05)


def now(**more):
    return incident(t=time.time(), **more)


async def test_from_the_opening_to_the_end():
    """Opened, worse, resolved: one message each, however often it is offered."""
    async with receiver() as it, desk(settings(it.url)) as one:
        ticket, page = now(severity="ticket"), now()
        for number, alert in enumerate((ticket, page), 1):
            one.offer(alert)
            one.offer(alert)
            await one.heard("sent", times=number)
            one.offer(alert)
        one.offer(now(ended_t=time.time(), resolution="healthy"))
        await it.until(3)
        assert [each["phase"] for each in it.got] == ["opened", "worse", "resolved"]
        await one.heard("sent", times=3)
        assert one.delivery.queue == 0


FAILURES = {
    # what: (statuses, then taken; are messages sent again the same, with the same key)
    "500": [500, 200],
    "502, 504": [502, 504, 200],
    "401: the token was replaced": [401, 200],
    "404: the receiver was not there yet": [404, 200],
    "429": [429, 200],
    "301": [301, 200],
    "400 once": [400, 200],
}


@pytest.mark.parametrize("statuses", FAILURES.values(), ids=FAILURES)
async def test_what_is_not_taken_is_sent_again(statuses):
    """With the same key, so that a receiver that took it for all its answer can tell."""
    async with receiver() as it, desk(settings(it.url)) as one:
        it.statuses = list(statuses)
        one.offer(now())
        await one.heard("sent")
        assert len({headers["Idempotency-Key"] for headers, _ in it.requests}) == 1
        assert len(it.got) == len(statuses)
        failed = [each for each in one.reports if each.outcome == "failed"]
        assert len(failed) == len(statuses) - 1
        assert f"answered {statuses[0]}" in failed[0].because
        assert one.reports[-1].because is None


async def test_what_may_have_been_taken_stays_as_it_was():
    """Whatever comes meanwhile, and however the next tries end: else it would be told twice."""
    async with receiver() as it, desk(settings(it.url)) as one:
        it.statuses = [500, 404, 401, 200]
        first = now()
        one.offer(first)
        await one.heard("failed")
        one.offer(first, now(name="b", target="chat-1"))
        await one.heard("sent", times=2)
        assert [each["ids"] for each in it.got] == [["stall-a"]] * 4 + [["b"]]


async def test_retry_after_is_waited_for():
    """A receiver that asks for time is given it."""
    async with receiver() as it, desk(settings(it.url)) as one:
        it.statuses, it.headers = [429, 200], {"Retry-After": "2"}
        began = time.monotonic()
        one.offer(now())
        await one.heard("failed")
        await one.heard("sent")
        assert time.monotonic() - began >= 2


async def test_a_receiver_that_is_away_comes_back():
    """Nothing listens; what happened meanwhile is told when something does, in as few messages as it takes."""
    async with wire() as gone:
        url = gone.url
    async with desk(settings(f"{url}/told")) as one:
        one.offer(now(target="chat-0"))
        assert "cannot be reached" in (await one.heard("failed")).because
        one.offer(now(target="chat-0"), now(name="b", target="chat-1"))
        await one.heard("failed", times=2)
        async with wire() as back:
            got = []

            async def taken(request):
                got.append(request.body)
                await request.answer()

            back.on("/told", taken)
            one.delivery._notifier._settings = settings(f"{back.url}/told")
            await one.heard("sent")
            assert len(got) == 1
            assert b"2 of chat" in got[0]


async def test_a_receiver_that_hangs_is_cut_off():
    """After its timeout it is tried again."""
    async with receiver() as it, desk(settings(it.url, timeout_seconds=0.5)) as one:
        it.statuses = [0, 200]
        one.offer(now())
        assert "but not answered within" in (await one.heard("failed")).because
        await one.heard("sent")


async def test_a_huge_answer_and_one_that_is_cut_off():
    """The beginning of an answer is enough; one that breaks is tried again."""
    async with wire() as server, desk(settings(f"{server.url}/told")) as one:
        answers = iter(["huge", "cut"])

        async def answer(request):
            kind = next(answers, "ok")
            if kind == "huge":
                await request.answer(b"x" * 5_000_000, status="500 No")
            elif kind == "cut":
                await request.raw(b"HTTP/1.1 200 OK\r\nContent-Len")
                request.reset()
            else:
                await request.answer()

        server.on("/told", answer)
        one.offer(now())
        await one.heard("sent")
        assert len(server.requests) == 3
        assert all(len(each.because or "") < 1000 for each in one.reports)


async def test_a_redirect_is_not_followed():
    """A message with evidence goes where it was meant to go, or nowhere."""
    async with receiver() as other, receiver() as it, desk(settings(it.url)) as one:
        it.statuses, it.headers = [307], {"Location": other.url}
        one.offer(now())
        assert "redirects are not followed" in (await one.heard("failed")).because
        assert other.got == []


async def test_a_message_that_its_receiver_will_not_have_does_not_hold_up_the_next():
    """After three refusals it is dropped, which the next message says."""
    async with receiver() as it, desk(settings(it.url)) as one:
        it.statuses = [422, 422, 422, 200]
        one.offer(now())
        assert (await one.heard("dropped")).number == 1
        one.offer(now(), now(name="b", target="chat-1"))
        await one.heard("sent")
        assert it.got[-1]["dropped"] == 1
        assert "1 alerts could not be sent here" in it.got[-1]["text"]
        one.offer(now(name="c", target="chat-2"))
        await one.heard("sent", times=2)
        assert it.got[-1]["dropped"] == 0


async def test_tries_become_rarer_and_differ():
    """Twice as long each time, between half of it and all of it."""
    async with receiver() as it, desk(settings(it.url)) as one:
        it.statuses, failed, waits = [500], one.delivery._failed, []

        async def noted(*args, **how):
            waits.append(await failed(*args, **how))
            return waits[-1]

        one.delivery._failed = noted
        one.offer(now())
        await one.heard("failed", times=5)
        assert len(waits) >= 4
        for number, wait in enumerate(waits):
            assert 0.05 * 2**number / 2 <= wait <= 0.05 * 2**number


async def test_a_new_alert_does_not_hurry_a_notifier_that_fails():
    """What comes meanwhile waits with the rest: a receiver that is down is not hammered."""
    async with receiver() as it, desk(settings(it.url)) as one:
        it.statuses, it.headers = [500], {"Retry-After": "3000"}
        one.offer(now())
        await one.heard("failed")
        for number in range(50):
            one.offer(now(name=f"s{number}", target=f"chat-{number}"))
            await asyncio.sleep(0.005)
        assert len(it.got) == 1
        assert one.delivery.queue == 51


async def test_what_turns_out_to_be_part_of_a_greater_one_is_not_told():
    """Before its window ended: 200 engines that fall silent with one another are the watcher's one page."""
    async with receiver() as it, desk(settings(it.url, group_seconds=0.5)) as one:
        singles = [now(name=f"d{n}", target=f"chat-{n}", kind="engine_down") for n in range(200)]
        one.offer(*singles[:3])
        held = [
            replace(each, incident=replace(each.incident, severity="ticket"), inhibited=True)
            for each in singles
        ]
        common = now(name="c", target="vllm-watch", group="", kind="engine_down", engine=None)
        one.offer(*held, common)
        await one.heard("sent")
        one.offer(*held[1:], singles[0], common)  # one of them stays away when the others are back
        await one.heard("sent", times=2)
        assert [each["ids"] for each in it.got] == [["c"], ["d0"]]


async def test_what_is_silenced_before_it_is_told_is_not_told():
    """Somebody was quicker than the window."""
    async with receiver() as it, desk(settings(it.url, group_seconds=0.5)) as one:
        one.offer(now())
        one.offer(now(silenced=True))
        one.offer(now(name="later", target="chat-1", group="other"))
        await one.heard("sent")
        assert ([each["ids"] for each in it.got], one.delivery.queue) == ([["later"]], 0)


async def test_steps_of_a_restart_are_told():
    """What was done and how it ended, each once."""
    async with receiver() as it, desk(settings(it.url)) as one:
        for name in ("begun", "begun", "helped"):
            one.offer(step(name, t=time.time()))
            await asyncio.sleep(0.05)
        await it.until(2)
        assert it.titles == ["WARNING chat-0 is being restarted",
                             "WARNING chat-0 was restarted, and it helped"]  # fmt: skip


# --- the next run of the watcher


async def test_what_was_told_is_not_told_again(tmp_path):
    """By the next run of the watcher over the same folder; only what is new."""
    async with receiver() as it:
        async with desk(settings(it.url), tmp_path) as one:
            one.offer(now(), step(t=time.time()))
            await one.heard("sent", times=2)
        async with desk(settings(it.url), tmp_path) as one:
            assert [each.id for each in one.ledger.lasting("a")] == ["stall-a"]
            one.offer(now(), step(t=time.time()), now(name="b", target="chat-1"))
            await one.heard("sent")
        assert len(it.got) == 3
        assert it.got[-1]["ids"] == ["b"]


async def test_what_is_sent_is_on_the_disk(tmp_path):
    """Before it is sent, under the key of its message, and behind the incident that it tells of."""
    seen = []

    def witness(message):
        with closing(sqlite3.connect(tmp_path / file.NAME)) as db:
            rows = db.execute("SELECT phase, message FROM notice").fetchall()
            incidents = db.execute("SELECT id FROM incident WHERE resolved_t IS NULL").fetchall()
        seen.append((message["key"], rows, incidents))

    async with receiver() as it, desk(settings(it.url), tmp_path) as one:
        it.witness = witness
        alert = now()
        IncidentTable(one.worker).put(
            [IncidentEvent("opened", alert.incident.opened_t, alert.incident)]
        )
        one.offer(alert)
        await one.heard("sent")
    [(key, rows, incidents)] = seen
    assert (rows, incidents) == ([("opened", key)], [("stall-a",)])


async def test_a_disk_that_hangs_holds_no_message_up(tmp_path, monkeypatch):
    """A page that is told twice is better than none."""
    monkeypatch.setattr(state_ledger, "WRITE_SECONDS", 0.1)
    go_on = threading.Event()
    async with receiver() as it, desk(settings(it.url), tmp_path) as one:
        one.worker.put("hangs", lambda _: go_on.wait())
        one.offer(now())
        await it.until(1)
        await one.heard("sent")
        go_on.set()


async def test_what_waited_is_told_by_the_next_run(tmp_path):
    """Also what is over by then, and was never told."""
    async with receiver() as it:
        it.statuses = [500]
        async with desk(settings(it.url), tmp_path) as one:
            one.offer(now())
            await one.heard("failed")
            one.offer(now(ended_t=time.time(), resolution="healthy"))
        it.statuses = [200]
        async with desk(settings(it.url), tmp_path) as one:
            await one.heard("sent", times=2)
        assert len({headers["Idempotency-Key"] for headers, _ in it.requests[:-1]}) == 1
        assert [each["phase"] for each in it.got[-2:]] == ["opened", "resolved"]


async def test_the_hours_messages_are_counted_across_runs(tmp_path):
    """A watcher that restarts again and again sends no more than one that does not."""
    async with receiver() as it:
        for run in range(4):
            async with desk(settings(it.url, messages_per_hour_max=2), tmp_path) as one:
                one.offer(now(name=f"s{run}", group=f"g{run}", severity="ticket"))
                if run < 2:
                    await one.heard("sent")
                else:
                    assert await one.delivery._step() > 1  # second until there is a message again
                    assert one.delivery.queue == run - 1
        assert len(it.got) == 2
