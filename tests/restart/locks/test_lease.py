"""The Kubernetes lock, against a small API server with the versions and refusals of the real one."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.kubernetes_api import NAMESPACE, status
from tests.restart.locks.clock import Clock
from tests.restart.locks.lease_cluster import Cluster, cluster, pod, secure_cluster, until
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.clients.kubernetes import Access, Api, KubernetesError, in_cluster
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import lease
from vllm_watch.restart.locks.base import Held
from vllm_watch.restart.locks.lease import ANNOTATION, Lock, Shared
from vllm_watch.restart.locks.record import Limits
from vllm_watch.settings.restart import LockSettings

ROOT = Path(__file__).parents[3]


async def test_people_see_it_with_kubectl(tmp_path: Path) -> None:
    """Who holds it, for how long, and how often it changed hands."""
    async with cluster(tmp_path) as here:
        first = here.lock()
        assert (await first.acquire("w1", "a1")).held is True
        assert here.lease["spec"]["holderIdentity"] == "w1"
        assert here.lease["spec"]["leaseDurationSeconds"] == 60
        await first.release()
        assert here.lease["spec"]["holderIdentity"] is None
        assert (await here.lock().acquire("w2", "a2")).held is True
        assert here.lease["spec"]["leaseTransitions"] == 2


NEVER_A_YES = {
    "no rights": (lambda: status(403, "Forbidden", "leases is forbidden"), "docs/locks.md"),
    "a server with troubles": (lambda: status(500, "InternalError", "etcdserver: leader changed"), "leader changed"),
    "garbage": (lambda: web.Response(text="<html>"), "is not a Lease"),
    "a redirect": (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "HTTP 302"),
}  # fmt: skip


@pytest.mark.parametrize(("trouble", "said"), NEVER_A_YES.values(), ids=NEVER_A_YES)
async def test_what_could_not_be_asked_is_never_a_yes(
    tmp_path: Path, trouble: Callable[[], web.Response], said: str
) -> None:
    """It says why; and when the trouble is over the lock can be had."""
    async with cluster(tmp_path) as here:
        here.server.instead += [trouble() for _ in range(lease.TRIES_MAX)]
        mine = here.lock()
        answer = await mine.acquire("w1", "a1")
        assert (answer.held, mine.still_ours()) == (None, False)
        assert said in answer.text
        here.server.instead.clear()
        assert (await mine.acquire("w1", "a2")).held is True


async def test_wrong_token_is_never_a_yes(tmp_path: Path) -> None:
    """And it is said where rights are described."""
    async with cluster(tmp_path) as here:
        answer = await here.lock(here.watcher("another")).acquire("w1", "a1")
        assert (answer.held, here.server.objects) == (None, {})
        assert "HTTP 401" in answer.text


async def test_server_that_is_away_is_never_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when taking nor when renewing; a lease that is not renewed ends for its holder first."""
    async with cluster(tmp_path) as here:
        clock, mine = Clock(monkeypatch, lease), here.lock(ttl_seconds=5000)
        assert (await mine.acquire("w1", "a1")).held is True
    assert (await mine.renew()).held is None
    assert (await here.lock().acquire("w2", "a2")).held is None
    assert mine.still_ours()
    clock.passes(5000)
    assert not mine.still_ours()
    await mine.release()


async def test_answer_that_was_lost_takes_one_slot(tmp_path: Path) -> None:
    """The write was carried out and the connection cut: asking again finds it, and does not take two."""
    async with cluster(tmp_path) as here:
        here.server.cut_after_write = 1
        mine = here.lock(slots=2)
        assert (await mine.acquire("w1", "a1")).held is True
        assert [slot["attempt_id"] for slot in here.record["slots"]] == ["a1"]


async def test_slot_that_nobody_knows_he_has_is_given_back(tmp_path: Path) -> None:
    """Every answer was lost: the attempt is void, and this process's next one is not kept out by it."""
    async with cluster(tmp_path) as here:
        watcher = here.watcher()
        here.server.cut_after_write = 99
        assert (await here.lock(watcher).acquire("w1", "a1")).held is None
        here.server.cut_after_write = 0
        assert [slot["attempt_id"] for slot in here.record["slots"]] == ["a1"]
        assert (await here.lock(per_hour=2).acquire("w2", "a2")).held is False
        assert (await here.lock(watcher, per_hour=1).acquire("w1", "a3")).held is True


STRANGE = {
    "another program's": ({"spec": {"holderIdentity": "kube-scheduler"}}, "belongs to kube-scheduler"),
    "damaged": ({"metadata": {"annotations": {ANNOTATION: "{"}}}, "delete it when no restart is under way"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), STRANGE.values(), ids=STRANGE)
async def test_lease_that_is_not_ours_is_left_alone(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    """Nobody knows who holds it, and it says what to do."""
    async with cluster(tmp_path) as here:
        api = here.server.api(here.folder)
        folder = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        await api.post(folder, {"metadata": {"name": "gpu"}})
        assert (await api.patch(f"{folder}/gpu", change)).ok
        before = json.dumps(here.lease)
        answer = await here.lock().acquire("w1", "a1")
        assert answer.held is None
        assert said in answer.text
        assert json.dumps(here.lease) == before


async def test_namespace_that_is_missing_is_named(tmp_path: Path) -> None:
    """Not taken for others who were faster."""
    async with cluster(tmp_path) as here:
        shared = Shared(here.server.api(here.folder), "elsewhere", "gpu")
        answer = await here.lock(shared).acquire("w1", "a1")
        assert answer.held is None
        assert 'namespaces "elsewhere" not found' in answer.text


async def test_twenty_contend_for_three_slots(tmp_path: Path) -> None:
    """Each asks until it had its turn: never more than three hold, each gets it, none is spent twice."""
    holding: set[str] = set()
    worst, full = 0, asyncio.Event()
    async with cluster(tmp_path) as here:

        async def contend(number: int) -> None:
            nonlocal worst
            watcher, chance = here.watcher(), random.Random(number)
            mine = here.lock(watcher, slots=3)
            await until(lambda: mine.acquire(f"w{number}", f"a{number}"), 60)
            assert mine.still_ours()
            holding.add(f"w{number}")
            worst = max(worst, len(holding))
            if worst == 3:
                full.set()
            await full.wait()
            await asyncio.sleep(chance.random() * 0.2)
            holding.discard(f"w{number}")
            await mine.release()
            # A release that lost to the others too often goes with this watcher's next change.
            for again in range(20):
                if all(slot["holder"] != f"w{number}" for slot in here.record["slots"]):
                    return
                await until(partial(mine.acquire, f"w{number}", f"a{number}-{again}"), 60)
                await mine.release(used=False)

        async with asyncio.timeout(240):
            await asyncio.gather(*(contend(number) for number in range(20)))
        assert worst == 3
        assert len(here.record["spent"]) == 20
        assert here.record["slots"] == []


HOLD = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from tests.restart.locks.test_lease import held_by_a_process
asyncio.run(held_by_a_process(*sys.argv[1:]))
"""


async def held_by_a_process(url: str, token_file: str, name: str) -> None:
    """Runs in a process of its own: take the lock, renew it as attempts do, until killed."""
    access = Access(url=url, token_file=Path(token_file), namespace=NAMESPACE)
    mine = Lock(Shared(Api(access, Tools().session), NAMESPACE, "gpu"), Limits(slots=1), 0.9)
    print((await mine.acquire(name, f"attempt of {name}")).held, flush=True)
    while True:
        await asyncio.sleep(mine.ttl_seconds / 3)
        await mine.renew()
        print(mine.still_ours(), flush=True)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
async def test_process_that_dies_or_hangs_is_succeeded(tmp_path: Path, end: signal.Signals) -> None:
    """Its slot comes free after three times its TTL; one that wakes up again finds that it has lost."""
    async with cluster(tmp_path) as here:
        access = here.server.access(here.folder)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLD, access.url, str(access.token_file), "w1",
            stdout=asyncio.subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            assert (await process.stdout.readline()).strip() == b"True"
            watcher = here.watcher()
            assert (await here.lock(watcher).acquire("w2", "a2")).held is False
            process.send_signal(end)
            await until(lambda: here.lock(watcher).acquire("w2", "a2"))
            if end == signal.SIGSTOP:
                process.send_signal(signal.SIGCONT)
                async with asyncio.timeout(20):
                    while (await process.stdout.readline()).strip() != b"False":
                        pass
            assert [slot["holder"] for slot in here.record["slots"]] == ["w2"]
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@asynccontextmanager
async def kubectl(here: Cluster, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A second client, that is not ours."""
    process = await asyncio.create_subprocess_exec(
        "kubectl", f"--server={here.server.url}", f"--certificate-authority={here.folder}/ca.crt",
        f"--token={here.server.token}", f"--namespace={NAMESPACE}", f"--cache-dir={here.folder}/cache", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={"HOME": str(here.folder), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def said(here: Cluster, *arguments: str) -> str:
    async with kubectl(here, *arguments) as process:
        return (await process.communicate())[0].decode()


async def test_kubectl_sees_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pod, over TLS: people see the holder, may write beside us, watch, and say that nobody holds it."""
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", tmp_path / "pod")
    async with secure_cluster(tmp_path) as here:
        settings = LockSettings(kind="lease", name="gpu", slots=2, restarts_per_hour_max=None)
        mine = lease.make(settings, pod(here))
        assert (await mine.acquire("w1", "a1")).held is True
        assert "holderIdentity: w1" in await said(here, "get", "lease", "gpu", "-o", "yaml")
        assert "annotated" in await said(here, "annotate", "lease", "gpu", "team=night")
        async with kubectl(here, "get", "lease", "--watch-only", "-o", "name") as watching:
            while not any("watch=" in each for each in here.server.asked):
                await asyncio.sleep(0.1)
            assert (await mine.renew()).held is True
            assert watching.stdout is not None
            assert await watching.stdout.readline() == b"lease.coordination.k8s.io/gpu\n"
        assert here.lease["metadata"]["annotations"]["team"] == "night"
        other = lease.make(settings, pod(here))
        assert (await other.acquire("w2", "a2")).held is True
        assert "holderIdentity: w1, w2" in await said(here, "get", "lease", "gpu", "-o", "yaml")
        assert "deleted" in await said(here, "delete", "lease", "gpu")
        assert [(await each.renew()).held for each in (mine, other)] == [False, False]


async def test_attempts_of_one_process_share_what_they_have_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ghost is waited for once, although each asking is by an attempt of its own."""
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", tmp_path / "pod")
    async with secure_cluster(tmp_path) as here:
        await here_is_a_ghost(here)
        settings = LockSettings(kind="lease", name="gpu")
        number = iter(range(100))

        async def ask() -> Held:
            return await lease.make(settings, pod(here)).acquire("w2", f"a{next(number)}")

        assert (await ask()).held is False
        await until(ask)


async def here_is_a_ghost(here: Cluster) -> None:
    access = in_cluster(pod(here).environ, here.folder)
    ghost = Shared(Api(access, Tools().session), NAMESPACE, "gpu")
    assert (await Lock(ghost, Limits(slots=1), 0.5).acquire("w1", "ghost")).held is True


def test_outside_of_a_cluster_it_says_so() -> None:
    """And what to do."""
    with pytest.raises(KubernetesError, match="is not a Kubernetes pod"):
        lease.make(LockSettings(kind="lease"), Tools(environ={}))
