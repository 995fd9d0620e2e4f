"""Watchers that are killed and suspended at any moment, over engines that also heal by themselves.

Rules, after every kill: no intent calls its hook twice, no call is without its intent on the disk, no budget is refilled, no
history is lost, and no engine is restarted that had served again for longer than a look takes to become old.
`make kills KILLS=200` plays more rounds.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest
import yaml

from tests import daemon_process
from tests.daemon_process import ROOT, daemon
from tests.etcd_process import etcd
from tests.kubernetes_api import FakeKubernetes, certified
from tests.restart.kill_engines import IN_POD, KINDS, Engine, Forks
from tests.restart.site import TOKEN, ask, is_up
from vllm_watch.state import file

KILLS = int(os.environ.get("VLLM_WATCH_TEST_KILLS", "2"))
SEED = int(os.environ.get("VLLM_WATCH_TEST_SEED", "18"))

OLD_SECONDS = 4.0
"""A look counts for a second at this pace; a machine that is busy with other tests needs some more to ask and to call."""

ACT_SECONDS = 1.0
"""From the moment that the call's row in the journal names to the act, of a command, say."""

UP_SECONDS = 120.0
"""Until a watcher serves and sees its engines: many rounds are played while the machine does other work."""

SPENT = ("calling", "verifying", "helped", "did_not_help", "failed", "uncertain")


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    monkeypatch.setattr(daemon_process, "START_SECONDS", UP_SECONDS)


class Watcher:
    """One watcher through all its runs, and what is known of its journal."""

    def __init__(self, folder, engines, python=sys.executable, environ=None, **restart):
        self.folder, self._engines = folder, engines
        self._slept = []  # (since, until): when it was stopped
        self.known = {}  # attempts that were in the journal after a kill, by id
        self._python, self._environ = python, environ or {}
        folder.mkdir()
        self._path = self._configure(restart)

    def _configure(self, restart):
        token = self.folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        quick = {
            "mode": "auto", "hook": self._engines[0].name, "cooldown_seconds": 1, "cooldown_load_times": 0, "new_version_seconds": 0, "peers": "none",
            "budget_per_hour": budget(), "budget_per_day": budget(), "drain": {"deadline_seconds": 1},
            "verify": {"start_seconds": 30, "settle_seconds": 1},
        }  # fmt: skip
        hooks = {}
        for each in self._engines:
            hooks.setdefault(each.kind, []).append(
                {"name": each.name, "timeout_seconds": 45, **each.hook}
            )
        config = {
            "state_dir": str(self.folder / "state"),
            "targets": [
                {
                    "name": each.name, "url": f"http://127.0.0.1:{each.port}", "group": each.name,
                    "restart": {"hook": each.name}, **each.target,
                }
                for each in self._engines
            ],
            "gpu": {"enabled": "off"},
            "scrape": {"health_interval_seconds": 0.5},
            "restart": quick | restart,
            "hooks": hooks,
            "api": {"tokens": [{"name": "anna", "file": str(token)}]},
        }  # fmt: skip
        path = self.folder / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    @asynccontextmanager
    async def running(self):
        """One run of it, once it sees all its engines."""
        environ = self._environ | {"PYTHONPATH": str(ROOT)}
        async with daemon(
            "--config", self._path, environ=environ, python=str(self._python)
        ) as process:
            assert process.url, process.lines
            await process.until(
                lambda status: all(is_up(status, each.name) for each in self._engines), UP_SECONDS
            )
            await ask(process, "/api/v1/resume", {"reason": "the next round"})
            yield process

    def journal(self):
        """The attempts on the disk, by id; the watcher is dead, and its files stay as they are."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.folder / "state", copy, ignore=shutil.ignore_patterns("evidence"))
        with closing(sqlite3.connect(copy / file.NAME)) as db:
            return {
                name: json.loads(said) for name, said in db.execute("SELECT id, said FROM attempt")
            }

    @asynccontextmanager
    async def asleep(self, process):
        """It is stopped in its tracks for a while."""
        began_t = time.time()
        process.process.send_signal(signal.SIGSTOP)
        yield
        self._slept.append((began_t, time.time()))
        process.process.send_signal(signal.SIGCONT)

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
        lost = [
            name
            for name, said in self.known.items()
            if said["state"] in SPENT and found.get(name, {}).get("state") not in SPENT
        ]
        assert lost == [], "history was lost"
        assert self.known.keys() <= found.keys()
        self.known = found


def budget():
    """Of an engine, so that the last rounds have none left."""
    return max(2, KILLS // 2)


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
        assert set(ids) <= {said["id"] for said in began}, (
            f"{engine.name}: a call without its intent"
        )
        assert len(engine.calls) <= len(began), f"{engine.name}: more calls than intents"
        assert len(began) <= budget(), f"{engine.name}: the budget was refilled"
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


async def left_alone(running, engines, chance):
    """The watchers may do their work."""


async def play(engines, watchers):
    """Each round: engines fall ill, something happens, and the watchers are killed, one after the other."""
    chance, done = random.Random(SEED), Counter()
    await asyncio.gather(*(each.heals() for each in engines))
    for number in range(1, KILLS + 1):
        async with AsyncExitStack() as stack:
            processes = await asyncio.gather(
                *(stack.enter_async_context(each.running()) for each in watchers)
            )
            for each in engines:
                each.falls_ill()
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            what = chance.choice((suspended, suspended, healed, left_alone))
            done[what.__name__] += 1
            await what(list(zip(watchers, processes, strict=True)), engines, chance)
            for each in chance.sample(processes, len(processes)):
                await asyncio.sleep(chance.uniform(0.0, 2.0))
                await each.end(signal.SIGKILL)
        await asyncio.gather(*(each.heals() for each in engines if not each.answers()))
        hold(engines, watchers)
        if number % 10 == 0 or number == KILLS:
            tell(number, done, engines, watchers)
    return done


def tell(number, done, engines, watchers):
    states = Counter(said["state"] for each in watchers for said in each.known.values())
    calls = {each.name: len(each.calls) for each in engines}
    told = {
        "t": round(time.time()),
        "kills": number * len(watchers),
        **done,
        "calls": calls,
        "attempts": dict(states),
    }
    print(json.dumps(told), flush=True)


@asynccontextmanager
async def engines_of(folder, kinds):
    """Engines with their services, open and not started."""
    async with AsyncExitStack() as stack:
        forks = Forks()
        stack.callback(forks.close)
        engines = []
        for kind in kinds:
            each = kind(folder / kind.kind, forks)
            await each.open()
            stack.push_async_callback(each.close)
            engines.append(each)
        yield engines


async def test_every_kind_of_hook(tmp_path):
    """One watcher over seven engines, each with a hook of its own kind."""
    async with engines_of(tmp_path, KINDS) as engines:
        by_kind = {each.kind: each for each in engines}
        path = f"{by_kind['systemd'].folder}:{os.environ['PATH']}"
        pods = by_kind["kubernetes"]
        watcher = Watcher(
            tmp_path / "watcher",
            engines,
            python=pods.python,
            environ={"PATH": path, **pods.environ},
        )
        await play(engines, [watcher])
        if KILLS >= 20:  # fewer may all heal before anybody calls
            assert all(each.calls for each in engines)


@asynccontextmanager
async def lease(folder):
    """A lock in a Lease, and what a watcher needs to reach it."""
    account = folder / "account"
    _, context = certified(account)
    async with FakeKubernetes().running(context) as server:
        python = folder / "python"
        python.write_text(IN_POD.format(python=sys.executable, folder=str(account)))
        python.chmod(0o755)
        yield {"kind": "lease"}, python, server.account(account)


@asynccontextmanager
async def keys(folder):
    """A lock in etcd."""
    async with etcd(folder) as (member,):
        yield {"kind": "etcd", "endpoints": [member.endpoint]}, Path(sys.executable), {}


@pytest.mark.parametrize("kind", [lease, keys], ids=["lease", "etcd"])
async def test_two_watchers_share_a_lock(tmp_path, kind):
    """Both watch one engine, each with a journal of its own; both are killed. The budget is one."""
    async with engines_of(tmp_path, [Engine]) as engines, kind(tmp_path) as (lock, python, environ):
        # More slots than watchers, or one that was killed would keep the other from acting for three TTLs.
        lock |= {"ttl_seconds": 60, "slots": 100, "restarts_per_hour_max": None}
        watchers = [
            Watcher(tmp_path / name, engines, python=python, environ=environ, lock=lock)
            for name in ("first", "second")
        ]
        await play(engines, watchers)
        if KILLS >= 20:
            assert engines[0].calls
