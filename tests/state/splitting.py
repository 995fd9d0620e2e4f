"""A story judged by one watcher from its beginning, and by one that is replaced again and again."""

import asyncio
import time

from benchmarks.lab.virtual import observe
from tests.told import said
from vllm_watch.lab.stories import STORIES
from vllm_watch.state.incidents import IncidentTable, Learnt
from vllm_watch.state.worker import Worker
from vllm_watch.watch.watch import Watch


def through_a_file(folder, state):
    """Write a state into a real state folder, and read it as the next process would."""

    async def write():
        worker = Worker(folder, lambda *_: None)
        learnt = Learnt(target=state["target"], group="g", saved_t=time.time(), state=state)
        IncidentTable(worker).put(learnt=learnt)
        await worker.close()

    async def read():
        worker = Worker(folder, lambda *_: None)
        contents = await IncidentTable(worker).open(0)
        await worker.close()
        return contents.learnt[0].state

    asyncio.run(write())
    return asyncio.run(read())


def judged(observations, *, splits=(), folder=None, away_looks=0):
    """The events of one target's observations; at each of `splits` (looks) the watcher is replaced, and
    misses `away_looks` of them."""
    watch, events, away = Watch("vllm"), [], 0
    for number, observation in enumerate(observations):
        if number in splits:
            state = through_a_file(folder, watch.export_state())
            watch, away = None, away_looks
        if away:
            away -= 1
            continue
        if watch is None:
            watch = Watch("vllm")
            assert watch.restore(state, observation.t) == []
        events += said(watch.observe(observation))
    assert watch.failures == {}
    return events, watch


def told(story, seconds, interval_s=5.0, faults=()):
    """The observations of a lab's story; `faults`: (second, "fault" | "clear", slug)."""
    scene = STORIES[story].build(1)
    due = sorted(faults)
    looks, t = [], 0.0
    while t <= seconds:
        scene.advance(t)
        while due and due[0][0] <= t:
            _, what, slug = due.pop(0)
            getattr(scene["vllm"], what)(slug)
        looks.append(observe(scene["vllm"], scene.rack.sample() if scene.rack else None))
        t += interval_s
    return looks
