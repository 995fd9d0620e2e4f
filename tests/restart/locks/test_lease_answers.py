"""The Kubernetes lock: what it makes of each answer, of none, and of what others wrote."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from tests.kubernetes_api import NAMESPACE, FakeKubernetes, status
from tests.restart.locks.lease_cluster import KEY, cluster, pod, secure_cluster
from tests.restart.waits import Waits
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.clients.kubernetes import Api, KubernetesError
from vllm_watch.restart.locks import lease
from vllm_watch.restart.locks import record as records
from vllm_watch.settings.restart import LockSettings
from vllm_watch.state.attempt import Attempt


class Tries:
    """What is waited for between tries: nothing in truth, and each time as long as it may be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bounds: list[tuple[float, float]] = []
        self.waited = Waits(monkeypatch, lease)
        monkeypatch.setattr(lease.random, "uniform", self._uniform)

    def _uniform(self, least: float, most: float) -> float:
        self.bounds.append((least, most))
        return most


def again(after: str | None) -> dict[str, str] | None:
    return None if after is None else {"Retry-After": after}


def faster(after: str | None = None) -> web.Response:
    return status(409, "Conflict", "the object has been modified", again(after))


def away(after: str | None = None) -> web.Response:
    return status(500, "InternalError", "etcdserver: leader changed", again(after))


def forbidden() -> web.Response:
    return status(403, "Forbidden", "leases is forbidden")


def missing() -> web.Response:
    return status(404, "NotFound", "leases not found")


class Answers(list[Any]):
    """Answers in place of the server's own; None: its own look at the Lease."""

    def __init__(self, server: FakeKubernetes, answers: list[Any]) -> None:
        super().__init__(answers)
        self._server = server

    def pop(self, index: Any = -1) -> Any:
        made = super().pop(index)
        return web.json_response(self._server.objects[KEY]) if made is None else made()


ANSWERS: dict[str, tuple[list[Callable[[], web.Response] | None], bool | None, int, list[float]]] = {
    # what the server answers to looks and writes, in turns (None: its own): is it had, asked so often, after which waits
    "others are faster once": ([None, faster], True, 4, [0.2]),
    "others are faster each time": ([None, faster] * 6, None, 12, [0.2, 0.4, 0.8, 1.6, 3.2]),
    "it is away for a look": ([away], True, 3, [0.2]),
    "it is away for a write": ([None, away], True, 4, [0.2]),
    "it is away": ([away] * 9, None, 6, [0.2, 0.4, 0.8, 1.6, 3.2]),
    "it says when to come again": ([partial(away, "3")], True, 3, [3.0]),
    "it wants an hour": ([partial(away, "3600")], True, 3, [5.0]),
    "who is faster says nothing of when": ([None, partial(faster, "3")], True, 4, [0.2]),
    "the look is forbidden": ([forbidden], None, 1, []),
    "the write is forbidden": ([None, forbidden], None, 2, []),
    "it was deleted under the write": ([None, missing], True, 4, [0.2]),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
async def test_it_is_asked_again_where_that_may_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Each time later, unless the server says when; six times at most, and once where it has no rights."""
    answers, held, asked, waited = ANSWERS[case]
    async with cluster(tmp_path) as here:
        assert (await here.lock().acquire("w0", "a0")).held is True
        tries = Tries(monkeypatch)
        here.server.asked.clear()
        here.server.instead = Answers(here.server, answers)
        answer = await here.lock(slots=2).acquire("w1", "a1")
        assert (answer.held, len(here.server.asked)) == (held, asked), answer.text
        assert tries.waited.seconds == pytest.approx(waited)
        assert all(least == 0 for least, _ in tries.bounds)
        if case == "others are faster each time":
            assert (
                answer.text
                == "Lease default/gpu: others changed it 6 times; vllm-watch will try again"
            )
        if "forbidden" in case:
            assert "docs/locks.md" in answer.text


async def test_it_is_waited_for_twenty_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all its tries; that is said."""
    limits: list[float] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        limits.append(seconds)
        return asyncio.timeout(0)

    async with cluster(tmp_path) as here:
        Waits(monkeypatch, lease, timeout=timeout)
        answer = await here.lock().acquire("w1", "a1")
        assert (answer.held, answer.text) == (None, "Lease default/gpu: no answer within 20 s")
        assert limits == [20.0]


async def test_what_others_wrote_into_it_stays(tmp_path: Path) -> None:
    """A Lease that somebody made for it is taken, with his annotations; its transitions are counted on."""
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    async with cluster(tmp_path) as here:
        api = here.server.api(here.folder)
        annotations = {"team": "night"}
        await api.post(folder, {"metadata": {"name": "gpu", "annotations": annotations}, "spec": {"leaseTransitions": 7}})  # fmt: skip
        mine = here.lock(ttl_seconds=0.5)
        assert (await mine.acquire("w1", "a1")).held is True
        took = here.lease["spec"]
        assert (took["leaseTransitions"], took["leaseDurationSeconds"]) == (8, 1)
        assert took["acquireTime"] == took["renewTime"]
        assert (await mine.renew()).held is True
        kept = here.lease["spec"]
        assert kept["renewTime"] > took["renewTime"]
        assert [kept[key] for key in ("leaseTransitions", "acquireTime")] == [8, took["acquireTime"]]  # fmt: skip
        await mine.release()
        assert here.lease["spec"]["leaseTransitions"] == 8
        assert here.lease["metadata"]["annotations"]["team"] == "night"


@pytest.mark.parametrize(
    "made", [{}, {"spec": None}, {"spec": {}}, {"metadata": {"annotations": None}}]
)
async def test_empty_lease_is_free(tmp_path: Path, made: dict[str, Any]) -> None:
    """Whoever made it, with whatever left out."""
    async with cluster(tmp_path) as here:
        assert (await here.lock().acquire("w0", "a0")).held is True
        metadata = here.lease["metadata"]
        del metadata["annotations"], here.lease["spec"]
        here.lease.update({"metadata": metadata | made.get("metadata", {}), **{k: v for k, v in made.items() if k == "spec"}})  # fmt: skip
        assert (await here.lock().acquire("w1", "a1")).held is True
        assert here.lease["spec"]["holderIdentity"] == "w1"


NAMESPACES = {
    # the setting's, the service account's, and what else the watcher knows: where it is
    "as it is set": ("set", "account", "known", "set"),
    "of the service account": ("", "account", "known", "account"),
    "what the watcher knows": ("", "", "known", "known"),
    "nowhere": ("", "", "", None),
}


@pytest.mark.parametrize(("set_", "account", "known", "where"), NAMESPACES.values(), ids=NAMESPACES)
async def test_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_: str, account: str, known: str, where: str | None
) -> None:  # fmt: skip
    """The setting's before the pod's own."""
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", tmp_path / "pod")
    async with secure_cluster(tmp_path) as here:
        tools = replace(pod(here), namespace=known)
        (here.folder / "namespace").write_text(account)
        settings = LockSettings(kind="lease", name="gpu", namespace=set_)
        if where is None:
            with pytest.raises(
                KubernetesError, match="the namespace of the Lease is unknown"
            ) as raised:
                lease.make(settings, tools)
            assert not raised.value.sent
        else:
            await lease.make(settings, tools).acquire("w1", "a1")
            (asked, *_) = here.server.asked
            assert asked == f"GET /apis/coordination.k8s.io/v1/namespaces/{where}/leases/gpu"


async def test_asking_that_was_cancelled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write was carried out before its answer came: the next asking of this process gives the slot back."""
    post = Api.post

    async def unheard(self: Api, path: str, document: Any) -> Any:
        await post(self, path, document)
        await asyncio.Event().wait()

    async with cluster(tmp_path) as here:
        watcher = here.watcher()
        with monkeypatch.context() as patched:
            patched.setattr(Api, "post", unheard)
            asking = asyncio.create_task(here.lock(watcher).acquire("w1", "a1"))
            async with asyncio.timeout(10):
                while KEY not in here.server.objects:
                    await asyncio.sleep(0.01)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
        assert [slot["attempt_id"] for slot in here.record["slots"]] == ["a1"]
        assert (await here.lock(watcher, per_hour=1).acquire("w1", "a2")).held is True


@pytest.mark.parametrize("wrote", [False, True], ids=["not asked", "asked"])
async def test_what_was_held_before_is_not_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrote: bool
) -> None:
    """By an asking that failed: an earlier run's slot, or the own."""
    Tries(monkeypatch)
    async with cluster(tmp_path) as here:
        watcher = here.watcher()
        mine = here.lock(watcher if wrote else None)
        assert (await mine.acquire("w1", "a1")).held is True
        if wrote:
            here.server.cut_after_write = 99
            assert (await mine.acquire("w1", "a1")).held is None
            here.server.cut_after_write = 0
        else:
            here.server.instead += [forbidden()]
            assert (await here.lock(watcher).acquire("w1", "a1")).held is None
        refused = await here.lock(watcher).acquire("w1", "a2")
        assert (refused.held, refused.text) == (False, "held by w1 (a1)")


ATTEMPT = Attempt(
    id="a1", target="chat-0", group="chat", trigger="incident", hook="h", reason="no step", actor="w",
    state="helped", began_t=10.0, called_t=12.0, address="10.0.0.1:8000",
)  # fmt: skip

RELEASES = {
    # is the release carried out (its answer is lost), was it used: the next's hour is free after an hour
    "carried out": (True, True, None),
    "carried out, with an end": (True, True, ATTEMPT),
    "carried out, not used": (True, False, ATTEMPT),
    "not carried out, with an end": (False, True, ATTEMPT),
    "not carried out, not used": (False, False, ATTEMPT),
}


@pytest.mark.parametrize(("done", "used", "end"), RELEASES.values(), ids=RELEASES)
async def test_release_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool, used: bool, end: Attempt | None
) -> None:
    """The next asking makes up for what is missing, once: the end is known, and the hour is of the restart's end."""
    Tries(monkeypatch)
    ahead_s = [0.0]
    monkeypatch.setattr(lease, "time", SimpleNamespace(time=lambda: time.time() + ahead_s[0]))
    async with cluster(tmp_path) as here:
        watcher = here.watcher()
        mine = here.lock(watcher)
        assert (await mine.acquire("w1", "a1", replace(ATTEMPT, state="calling"))).held is True
        if done:
            here.server.cut_after_write = 99
        else:
            here.server.instead += [away() for _ in range(6)]
        await mine.release(used=used, ended=end)
        here.server.cut_after_write = 0
        here.server.instead.clear()
        ahead_s[0] = 1800.0
        next_one = here.lock(watcher, slots=2, per_hour=2)
        answer = await next_one.acquire("w1", "a2")
        assert answer.held is True
        known = {each.id: each.state for each in answer.others}
        assert known == ({"a1": "helped" if end else "uncertain"} if used else {})
        assert [each["attempt_id"] for each in here.record["slots"]] == ["a2"]
        t = [each["t"] for each in here.record["spent"] if each["attempt_id"] == "a1"]
        assert len(t) == used
        if done and used and end is None:
            assert t[0] < time.time() + 900
        assert (await next_one.renew()).held is True
        assert [each["attempt_id"] for each in here.record["spent"]][-1] == "a2"


@pytest.mark.parametrize(("others", "forgotten"), [(999, False), (1000, True)])
async def test_so_many_that_were_left_are_remembered(
    tmp_path: Path, others: int, forgotten: bool
) -> None:
    """A thousand; what was left before expires by itself."""
    async with cluster(tmp_path) as here:
        assert (await here.lock().acquire("w1", "a0")).held is True
        watcher = here.watcher()
        watcher.release_later("a0", 0.0, used=False)
        for number in range(others):
            watcher.release_later(f"b{number}", 0.0, used=False)
        assert (await here.lock(watcher).acquire("w1", "a1")).held is not forgotten


async def test_what_was_left_is_given_back_once(tmp_path: Path) -> None:
    """An attempt whose asking failed may be asked for again by the same process, and then keeps its slot."""
    async with cluster(tmp_path) as here:
        watcher = here.watcher()
        watcher.release_later("a1", 0.0, used=False)
        assert (await here.lock(watcher).acquire("w1", "a0")).held is True
        assert (await here.lock(watcher, slots=2).acquire("w1", "a1")).held is True
        assert (await here.lock(watcher, slots=3).acquire("w1", "a2")).held is True
        assert [each["attempt_id"] for each in here.record["slots"]] == ["a0", "a1", "a2"]


@pytest.mark.parametrize("answer", [faster, forbidden])
async def test_a_change_that_failed_may_have_been_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], web.Response]
) -> None:
    """Nobody is told that surely nothing was done."""
    Tries(monkeypatch)
    async with cluster(tmp_path) as here:
        assert (await here.lock().acquire("w0", "a0")).held is True
        here.server.instead = Answers(here.server, [None, answer] * 6)
        wrote: list[bool] = []
        with pytest.raises(KubernetesError) as raised:
            await here.watcher().change(
                lambda record, now: records.renew(record, "a0"), 60, lambda: wrote.append(True)
            )
        assert raised.value.sent
        assert len(wrote) == (6 if answer is faster else 1)
