"""A restart is of the process that it was decided about: not of the next one, whoever asked, and of none that cannot be known."""

import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from tests.restart.dispatching import FIRES, FREE, PERSON, Story
from tests.restart.world import REQUEST, TARGET, alive, until
from vllm_watch.restart import targets as targets_module
from vllm_watch.restart.verify import Process
from vllm_watch.settings.restart_times import ScheduleSettings

NIGHTLY = ScheduleSettings(name="nightly", cron="0 3 * * *", throughput_ratio_max=0.5)
SETTINGS_ALL: dict[str, Any] = {
    "triggers": ("incident", "schedule", "alertmanager"), "schedules": (NIGHTLY,), "cooldown_seconds": 0.0,
}  # fmt: skip
ALERT = replace(REQUEST, trigger="alertmanager", incident_id=None)
REQUESTS = {
    "an incident": REQUEST,
    "a schedule": replace(REQUEST, trigger="schedule", schedule="nightly", incident_id=None),
    "an alert": ALERT,
    "a person": PERSON,
}


@pytest.fixture(autouse=True)
def _quicker(quick, monkeypatch):
    monkeypatch.setattr(targets_module, "SCRAPE_SECONDS", 1.0)


def replaced(server):
    """Its own supervisor ends the process, and another serves."""
    os.kill(server.pid, signal.SIGKILL)
    server.start()


def ended(server):
    """Kill it; return once it is dead, which takes a moment."""
    pid = server.pid
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not alive(pid))


def in_the_drain(story, happens):
    keep = story.world.evidence.keep

    async def evidence(attempt):
        path = await keep(attempt)
        happens(story.server)
        return path

    story.world.evidence.keep = evidence


async def attempted(story, request):
    """Ask for it; return the attempt as it ended."""
    if request.trigger == "manual":
        await story.dispatcher.decide_now(request)
    else:
        story.dispatcher.submit(request)
    await story.until(lambda: story.dispatcher.attempts.outcomes)
    return await story.over()


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_process_that_took_its_place_in_the_drain_is_left_alone(server, request_):
    """Whoever asked; and a person is told to ask again."""
    async with Story(server, settings=SETTINGS_ALL) as story:
        in_the_drain(story, replaced)
        attempt = await attempted(story, request_)
        assert attempt.state == "cancelled"
        assert attempt.text.startswith("another process serves since 20")
        assert attempt.text.endswith("; ask again") is (request_ is PERSON)
        assert server.lines("called") == []


async def test_what_was_found_to_serve_and_is_gone_is_left_alone(server):
    """Whoever starts it again is at it."""
    replaced(server)
    async with Story(server, settings=SETTINGS_ALL) as story:
        in_the_drain(story, ended)
        attempt = await attempted(story, PERSON)
        assert (attempt.state, attempt.text) == (
            "cancelled", "the process to be restarted no longer answers; ask again",
        )  # fmt: skip
        assert server.lines("called") == []


async def test_without_a_scrape_since_it_was_decided_nothing_is_called(server):
    """A person's wish, too: it waits for a scrape, and not for ever."""
    async with Story(server) as story:
        story.world.board.targets[TARGET.name].interval_seconds = 0.1

        def blind(_):
            story.world.look = lambda name: None

        in_the_drain(story, blind)
        attempt = await attempted(story, PERSON)
        assert attempt.state == "cancelled"
        assert attempt.text.startswith("no scrape of chat-0 has ended since")
        assert server.lines("called") == []


async def test_a_request_is_about_the_process_that_served_when_it_was_made(server):
    """An alert waits for a blocker; the engine is replaced, and serves."""
    async with Story(server, answers=[FIRES], settings=SETTINGS_ALL) as story:
        alert = replace(ALERT, process=story.world.targets.process(TARGET.name))
        await story.decided(alert)
        replaced(server)
        story.answers[:] = [FREE]
        (pending,) = story.dispatcher.waiting(TARGET.name)
        await story.until(lambda: pending.decision and pending.decision.check == "trigger")
        assert pending.decision is not None
        assert pending.decision.text.startswith("another process serves since")
        assert server.lines("called") == []


@pytest.mark.parametrize("other", ["an alert", "a schedule"])
async def test_what_was_asked_for_before_a_restart_that_helped_is_done(server, other):
    """It was under way for an incident: once the cooldown is over, the fresh engine is left alone."""
    async with Story(server, settings=SETTINGS_ALL | {"schedules": ()}) as story:
        in_the_drain(
            story, lambda _: story.dispatcher.submit(replace(REQUESTS[other], schedule=None))
        )
        assert (await attempted(story, REQUEST)).state == "helped"
        assert story.dispatcher.waiting(TARGET.name) == []
        assert len(server.lines("called")) == 1


SAME: dict[str, tuple[dict[str, Any], dict[str, Any], bool | None]] = {
    # what was decided about, what the last scrape found, and whether it is the same
    "it began at the same time": ({"start_time": 1.0}, {"start_time": 1.0}, True),
    "it began later": ({"start_time": 1.0}, {"start_time": 2.0}, False),
    "it is silent": ({"start_time": 1.0}, {"start_time": 1.0, "up": False}, True),
    "another answered, and is silent": ({"start_time": 1.0}, {"start_time": 2.0, "up": False}, False),
    "it was silent, and answers": ({"start_time": 1.0, "up": False}, {"start_time": 1.0}, True),
    "what answers does not say when it began": ({"start_time": 1.0, "restarts": 0}, {"restarts": 0}, None),
    "it never answered, and does not": ({"up": False}, {"up": False}, True),
    "it never answered, and something does": ({"up": False}, {"start_time": 2.0}, None),
    "it never answered, and something does, without a time": ({"up": False}, {"restarts": 0}, None),
    "no times, counters go on": ({"restarts": 3}, {"restarts": 3}, True),
    "no times, counters began anew": ({"restarts": 3}, {"restarts": 4}, False),
    "no times, a PID": ({"pids": (7,), "restarts": 0}, {"pids": (7, 8), "restarts": 0}, True),
    "no times, another PID": ({"pids": (7,), "restarts": 0}, {"pids": (8,), "restarts": 0}, False),
}  # fmt: skip


@pytest.mark.parametrize(("was", "now", "same"), SAME.values(), ids=SAME)
def test_same_process(was, now, same):
    """By its start; where none is told by its PIDs, then by counters that go on."""
    assert Process(**{"up": True, **was}).is_same(Process(**{"up": True, **now})) is same


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_process_that_hangs_or_is_gone_is_restarted(server, request_):
    """A dead one says no start time: it is the last that answered."""
    ended(server)
    async with Story(server, settings=SETTINGS_ALL) as story:
        request = replace(request_, schedule=None)
        assert (await attempted(story, request)).state == "helped"
        assert len(server.lines("called")) == 1


async def test_a_restart_that_did_not_help_leaves_other_requests(server):
    """Theirs is still to be done, when the breaker lets it."""
    async with Story(server, script="does nothing", settings=SETTINGS_ALL) as story:
        in_the_drain(story, lambda _: story.dispatcher.submit(ALERT))
        assert (await attempted(story, REQUEST)).state == "did_not_help"
        assert len(story.dispatcher.waiting(TARGET.name)) == 1
