"""Watchers that are killed and suspended at any moment, over engines that also heal by themselves.

Rules, after every kill: no intent calls its hook twice, no call is without its intent on the disk, no budget is refilled, no
history is lost, and no engine is restarted that had served again for longer than a look takes to become old.
`make kills KILLS=200` kills more, at several sites at once.
"""

import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, closing

from tests.kubernetes_api import FakeKubernetes, certified
from tests.restart.forked_daemon import Daemons
from tests.restart.kill_engines import KINDS, Engine
from tests.restart.site import SERVER, ask, configured, is_up, plan
from tests.restart.world import Forking
from vllm_watch.state import file

KILLS = int(os.environ.get("VLLM_WATCH_TEST_KILLS", "2"))
SEED = int(os.environ.get("VLLM_WATCH_TEST_SEED", "18"))
SITES = int(os.environ.get("VLLM_WATCH_TEST_SITES", "1"))  # at the same time: a round mostly waits
MANY = KILLS >= 20  # fewer may all heal before anybody calls

OLD_SECONDS = 4.0
"""A look counts for a second at this pace; a machine that is busy with other tests needs some more to ask and to call."""

ACT_SECONDS = 1.0
"""From the moment that the call's row in the journal names to the act, of a command, say."""

AT_WORK_SECONDS = 15.0
"""Until a restart is under way, if any will be."""

UP_SECONDS = 120.0
"""Until a watcher serves and sees its engines: many rounds are played while the machine does other work."""

SPENT = ("calling", "verifying", "helped", "did_not_help", "failed", "uncertain")


class Watcher:
    """One watcher through all its runs, and what is known of its journal."""

    def __init__(self, folder, engines, budget, daemons, *, account=None, environ=None, **restart):
        self.folder, self._engines, self.budget = folder, engines, budget
        self._slept = []  # (since, until): when it was stopped
        self.known = {}  # attempts that were in the journal after a kill, by id
        self._daemons, self._account, self._environ = daemons, account, environ
        self._numbers = itertools.count(1)
        folder.mkdir()
        self._path = self._configure(restart)

    def _configure(self, restart):
        hooks, targets = {}, []
        for each in self._engines:
            hook = {"name": each.name, "timeout_seconds": 45, **each.hook}
            hooks.setdefault(each.kind, []).append(hook)
            targets.append({
                "name": each.name, "url": f"http://127.0.0.1:{each.port}", "group": each.name,
                "restart": {"hook": each.name}, **each.target,
            })  # fmt: skip
        budget = {"budget_per_hour": self.budget, "budget_per_day": self.budget}
        named = {"mode": "auto", "hook": self._engines[0].name}
        return configured(self.folder, targets, hooks, **named, **budget, **restart)

    @asynccontextmanager
    async def running(self):
        """One run of it, once it sees all its engines."""
        process = await self._daemons.start(
            self.folder / f"log{next(self._numbers)}", "--config", self._path,
            environ=self._environ, account=self._account,
        )  # fmt: skip
        try:
            await process.serving(UP_SECONDS)
            for each in self._engines:
                each.watcher_url = process.url
            await process.until(
                lambda status: all(is_up(status, each.name) for each in self._engines), UP_SECONDS
            )
            await ask(process, "/api/v1/resume", {"reason": "the next round"})
            yield process
        finally:
            await process.end()

    def journal(self):
        """The attempts on the disk, by id; the watcher is dead, and its files stay as they are."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "state", copy, ignore=shutil.ignore_patterns("evidence"))
        with closing(sqlite3.connect(copy / file.NAME)) as db:
            rows = db.execute("SELECT id, said FROM attempt").fetchall()
        return {name: json.loads(said) for name, said in rows}

    @asynccontextmanager
    async def asleep(self, process):
        """It is stopped in its tracks for a while."""
        began_t = time.time()
        process.send(signal.SIGSTOP)
        yield
        self._slept.append((began_t, time.time()))
        process.send(signal.SIGCONT)

    def slept_between(self, target, well_t, t):
        """Was it stopped between its last question and the call, which nothing but the callee can notice?"""
        called = [
            said["called_t"] for said in self.known.values()
            if said["target"] == target and (said["called_t"] or t) < well_t
        ]  # fmt: skip
        return any(
            begin_t - ACT_SECONDS < each <= begin_t < end_t <= t
            for each in called
            for begin_t, end_t in self._slept
        )

    def check(self):
        """What must hold of this watcher's journal after a kill."""
        found = self.journal()
        spent = {name for name, said in self.known.items() if said["state"] in SPENT}
        lost = [name for name in spent if found.get(name, {}).get("state") not in SPENT]
        assert lost == [], "history was lost"
        assert self.known.keys() <= found.keys()
        self.known = found


def rounds(site, watchers):
    """How many a site plays: each round kills all its watchers."""
    kills = KILLS // SITES + (site < KILLS % SITES)
    return -(-kills // watchers) if MANY else kills


def budget(played):
    """Of an engine, so that the last rounds have none left."""
    return max(2, played // 4)


def hold(engines, watchers):
    """What must hold of all that was done until now."""
    attempts = {}
    for each in watchers:
        each.check()
        attempts |= each.known
    for engine in engines:
        began = [
            said for said in attempts.values()
            if said["target"] == engine.name and said["called_t"] is not None
        ]  # fmt: skip
        ids = [attempt for _, attempt in engine.calls if attempt is not None]
        assert len(ids) == len(set(ids)), f"{engine.name}: an intent called twice"
        intents = {said["id"] for said in began}
        assert set(ids) <= intents, f"{engine.name}: a call without its intent"
        assert len(engine.calls) <= len(began), f"{engine.name}: more calls than intents"
        # One that was written down as called, and then let be, was never called: its hook had no word of it.
        spent = [said for said in began if said["state"] in SPENT]
        assert len(spent) <= watchers[0].budget, f"{engine.name}: the budget was refilled"
        late = [
            t - since_t
            for t, _ in engine.calls
            for since_t, until_t in engine.well
            if since_t + OLD_SECONDS < t < until_t
            and not any(each.slept_between(engine.name, since_t, t) for each in watchers)
        ]
        assert late == [], f"{engine.name}: restarted though it had served for so many seconds"


async def some_heal(engines, chance, share):
    await asyncio.gather(*(each.heals() for each in engines if chance.random() < share))


async def suspended(running, engines, chance):
    """A watcher sleeps; engines may heal meanwhile."""
    watcher, process = chance.choice(running)
    async with watcher.asleep(process):
        await asyncio.gather(
            some_heal(engines, chance, 0.7), asyncio.sleep(chance.uniform(2.0, 7.0))
        )


async def healed(running, engines, chance):
    """Engines heal while the watchers look."""
    await some_heal(engines, chance, 0.5)


async def at_work(running, engines, chance):
    """A watcher may work until one of its restarts is under way."""
    _, process = chance.choice(running)
    name, until = chance.choice(engines).name, time.monotonic() + AT_WORK_SECONDS
    while not plan(await process.status(), name).get("under_way") and time.monotonic() < until:
        await asyncio.sleep(0.05)


async def play(site, played, engines, watchers):
    """Each round: engines fall ill, something happens, and the watchers are killed, one after the other."""
    chance, done = random.Random(f"{SEED} {site}"), Counter()
    await asyncio.gather(*(each.heals() for each in engines))
    for number in range(1, played + 1):
        async with AsyncExitStack() as stack:
            processes = await asyncio.gather(
                *(stack.enter_async_context(each.running()) for each in watchers)
            )
            for each in engines:
                each.falls_ill()
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            what = chance.choice((suspended, healed, at_work, at_work))
            done[what.__name__] += 1
            await what(list(zip(watchers, processes, strict=True)), engines, chance)
            for each in chance.sample(processes, len(processes)):
                await asyncio.sleep(chance.uniform(0.0, 2.0))
                await each.end()
        await asyncio.gather(*(each.heals() for each in engines if not each.answers()))
        hold(engines, watchers)
        if number % 10 == 0 or number == played:
            tell(site, number, done, engines, watchers)
    return {each.name: len(each.calls) for each in engines}


def tell(site, number, done, engines, watchers):
    states = Counter(said["state"] for each in watchers for said in each.known.values())
    told = {
        "t": round(time.time()), "site": site, "kills": number * len(watchers), **done,
        "calls": {each.name: len(each.calls) for each in engines},
        "none left": [each.name for each in engines if len(each.calls) >= watchers[0].budget],
        "attempts": dict(states),
    }  # fmt: skip
    print(json.dumps(told), flush=True)


async def play_all(one, folder, *more):
    """All sites at once; each must hold, and every engine is restarted at one of them."""
    folders = [folder / str(site) for site in range(SITES)]
    for each in folders:
        each.mkdir()
    async with asyncio.TaskGroup() as group:
        sites = [group.create_task(one(site, each, *more)) for site, each in enumerate(folders)]
    calls = sum((Counter(each.result()) for each in sites), Counter())
    print(json.dumps({"calls": calls}), flush=True)
    if MANY:
        assert all(calls[name] for name in sites[0].result())


@asynccontextmanager
async def engines_of(folder, kinds):
    """(engines with their services, open and not started, and who starts watchers)."""
    async with AsyncExitStack() as stack:
        forks, daemons = Forking(SERVER, "--fork"), Daemons()
        stack.callback(forks.close)
        stack.callback(daemons.close)
        engines = []
        for kind in kinds:
            each = kind(folder / kind.kind, forks)
            await each.open()
            stack.push_async_callback(each.close)
            engines.append(each)
        yield engines, daemons


async def every_hook(site, folder):
    """One watcher over six engines, each with a hook of its own kind."""
    async with engines_of(folder, KINDS) as (engines, daemons):
        by_kind = {each.kind: each for each in engines}
        path = f"{by_kind['systemd'].folder}:{os.environ['PATH']}"
        pods, played = by_kind["kubernetes"], rounds(site, 1)
        watcher = Watcher(
            folder / "watcher", engines, budget(played), daemons,
            account=pods.account, environ={"PATH": path, **pods.environ},
        )  # fmt: skip
        return await play(site, played, engines, [watcher])


async def test_every_kind_of_hook(tmp_path):
    await play_all(every_hook, tmp_path)


@asynccontextmanager
async def lease(folder):
    """A lock in a Lease, and what a watcher needs to reach it."""
    account = folder / "account"
    _, context = certified(account)
    async with FakeKubernetes().running(context) as server:
        yield {"kind": "lease"}, {"account": account, "environ": server.account(account)}


async def two_watchers(site, folder):
    """Both watch one engine, each with a journal of its own; both are killed. The budget is one."""
    played = rounds(site, 2)
    async with engines_of(folder, [Engine]) as (engines, daemons), lease(folder) as (lock, reach):
        # More slots than watchers, or one that was killed would keep the other from acting for three TTLs.
        lock |= {"ttl_seconds": 60, "slots": 100, "restarts_per_hour_max": None}
        watchers = [
            Watcher(folder / name, engines, budget(played), daemons, lock=lock, **reach)
            for name in ("first", "second")
        ]
        return await play(site, played, engines, watchers)


async def test_two_watchers_share_a_lock(tmp_path):
    await play_all(two_watchers, tmp_path)
