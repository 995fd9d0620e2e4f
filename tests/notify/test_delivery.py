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
    "429": [429, 200],
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
