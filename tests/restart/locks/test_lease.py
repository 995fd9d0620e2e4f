"""The Kubernetes lock, against a small API server with the versions and refusals of the real one."""

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from tests.kubernetes_api import NAMESPACE, FakeKubernetes, certified, status
from tests.restart.locks.test_contract import KEY, cluster
from tests.restart.waits import Clock, Waits
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.clients.kubernetes import Api, KubernetesError
from vllm_watch.restart.hooks.base import Tools
from vllm_watch.restart.locks import lease
from vllm_watch.restart.locks.lease import ANNOTATION
from vllm_watch.restart.locks.record import Release
from vllm_watch.settings.restart import LockSettings
from vllm_watch.state.attempt import Attempt


@pytest.fixture
async def here(tmp_path):
    async with cluster(tmp_path) as one:
        yield one


NEVER_A_YES = {
    "no rights": (lambda: status(403, "Forbidden", "leases is forbidden"), "docs/locks.md"),
    "a server with troubles": (lambda: status(500, "InternalError", "etcdserver: leader changed"), "leader changed"),
    "garbage": (lambda: web.Response(text="<html>"), "is not a Lease"),
    "a redirect": (lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "HTTP 302"),
}  # fmt: skip


@pytest.mark.parametrize(("trouble", "said"), NEVER_A_YES.values(), ids=NEVER_A_YES)
async def test_what_could_not_be_asked_is_never_a_yes(here, trouble, said):
    """It says why; and when the trouble is over the lock can be had."""
    here.server.instead += [trouble() for _ in range(lease.TRIES_MAX)]
    mine = here.lock()
    answer = await mine.acquire("w1", "a1")
    assert (answer.held, mine.still_ours()) == (None, False)
    assert said in answer.text
    here.server.instead.clear()
    assert (await mine.acquire("w1", "a2")).held is True


async def test_server_that_is_away_is_never_a_yes(tmp_path, monkeypatch):
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


async def test_answer_that_was_lost_takes_one_slot(here):
    """The write was carried out and the connection cut: asking again finds it, and does not take two."""
    here.server.cut_after_write = 1
    mine = here.lock(slots=2)
    assert (await mine.acquire("w1", "a1")).held is True
    assert [slot["attempt_id"] for slot in here.kept["slots"]] == ["a1"]


async def test_slot_that_nobody_knows_he_has_is_given_back(here):
    """Every answer was lost: the attempt is void, and this process's next one is not kept out by it."""
    watcher = here.watcher()
    here.server.cut_after_write = 99
    assert (await here.lock(watcher).acquire("w1", "a1")).held is None
    here.server.cut_after_write = 0
    assert [slot["attempt_id"] for slot in here.kept["slots"]] == ["a1"]
    assert (await here.lock(per_hour=2).acquire("w2", "a2")).held is False
    assert (await here.lock(watcher, per_hour=1).acquire("w1", "a3")).held is True


@pytest.mark.parametrize("again", [False, True], ids=["one run", "the next run"])
@pytest.mark.parametrize("written", [False, True])
async def test_a_further_question_without_an_answer_gives_nothing_back(
    here, monkeypatch, again, written
):
    """The slot was taken before, perhaps in an earlier run: this process's next change leaves it alone."""
    Tries(monkeypatch)
    watcher = here.watcher()
    mine = here.lock(watcher)
    assert (await mine.acquire("w1", "a1")).held is True
    if again:
        watcher = here.watcher()
        mine = here.lock(watcher)
    if written:
        here.server.cut_after_write = 99
    else:
        here.server.instead += [status(500, "", "") for _ in range(lease.TRIES_MAX)]
    assert (await mine.acquire("w1", "a1")).held is None
    here.server.cut_after_write = 0
    assert (await here.lock(watcher, slots=2).acquire("w1", "a2")).held is True
    assert [slot["attempt_id"] for slot in here.kept["slots"]] == ["a1", "a2"]


STRANGE = {
    "another program's": ({"spec": {"holderIdentity": "kube-scheduler"}}, "belongs to kube-scheduler"),
    "damaged": ({"metadata": {"annotations": {ANNOTATION: "{"}}}, "delete it when no restart is under way"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), STRANGE.values(), ids=STRANGE)
async def test_lease_that_is_not_ours_is_left_alone(here, change, said):
    """Nobody knows who holds it, and it says what to do."""
    api = here.server.api(here.folder)
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    await api.call("POST", folder, {"metadata": {"name": "gpu"}})
    assert (await api.call("PATCH", f"{folder}/gpu", change)).ok
    before = json.dumps(here.lease)
    answer = await here.lock().acquire("w1", "a1")
    assert answer.held is None
    assert said in answer.text
    assert json.dumps(here.lease) == before


def test_outside_of_a_cluster_it_says_so():
    with pytest.raises(KubernetesError, match="is not a Kubernetes pod"):
        lease.make(LockSettings(kind="lease"), Tools(environ={}))


class Tries:
    """What is waited for between tries: nothing in truth, and each time as long as it may be."""

    def __init__(self, monkeypatch):
        self.bounds: list[tuple[float, float]] = []
        self.waited = Waits(monkeypatch, lease)
        monkeypatch.setattr(lease.random, "uniform", self._uniform)

    def _uniform(self, least, most):
        self.bounds.append((least, most))
        return most


class Answers(list[Any]):
    """Answers in place of the server's own, by status and by what it says of when; None: its own look at the Lease."""

    def __init__(self, server, answers):
        super().__init__(answers)
        self._server = server

    def pop(self, index=-1):
        made = super().pop(index)
        if made is None:
            return web.json_response(self._server.objects[KEY])
        number, *after = made if isinstance(made, tuple) else (made,)
        return status(number, "", "said so", {"Retry-After": after[0]} if after else None)


ANSWERS: dict[str, tuple[list[Any], bool | None, int, list[float]]] = {
    # what the server answers to looks and writes, in turns (None: its own): is it had, asked so often, after which waits
    "others are faster once": ([None, 409], True, 4, [0.2]),
    "others are faster each time": ([None, 409] * 6, None, 12, [0.2, 0.4, 0.8, 1.6, 3.2]),
    "it is away": ([500] * 9, None, 6, [0.2, 0.4, 0.8, 1.6, 3.2]),
    "it wants an hour": ([(500, "3600")], True, 3, [5.0]),
    "the look is forbidden": ([403], None, 1, []),
    "the write is forbidden": ([None, 403], None, 2, []),
    "it was deleted under the write": ([None, 404], True, 4, [0.2]),
}  # fmt: skip


@pytest.mark.parametrize("case", ANSWERS)
async def test_it_is_asked_again_where_that_may_help(here, monkeypatch, case):
    """Each time later, unless the server says when; six times at most, and once where it has no rights."""
    answers, held, asked, waited = ANSWERS[case]
    assert (await here.lock().acquire("w0", "a0")).held is True
    tries = Tries(monkeypatch)
    here.server.asked.clear()
    here.server.instead = Answers(here.server, answers)
    answer = await here.lock(slots=2).acquire("w1", "a1")
    assert (answer.held, len(here.server.asked)) == (held, asked), answer.text
    assert tries.waited.seconds == pytest.approx(waited)
    assert all(least == 0 for least, _ in tries.bounds)
    if case == "others are faster each time":
        assert "others changed it 6 times; vllm-watch will try again" in answer.text
    if "forbidden" in case:
        assert "docs/locks.md" in answer.text


async def test_what_others_wrote_into_it_stays(here):
    """A Lease that somebody made for it is taken, with his annotations; its transitions are counted on."""
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    api = here.server.api(here.folder)
    annotations = {"team": "night"}
    await api.call("POST", folder, {"metadata": {"name": "gpu", "annotations": annotations}, "spec": {"leaseTransitions": 7}})  # fmt: skip
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


NAMESPACES = {
    # the setting's, the service account's, and what else the watcher knows: where it is
    "as it is set": ("set", "account", "known", "set"),
    "of the service account": ("", "account", "known", "account"),
    "what the watcher knows": ("", "", "known", "known"),
    "nowhere": ("", "", "", None),
}


@pytest.mark.parametrize(("set_", "account", "known", "where"), NAMESPACES.values(), ids=NAMESPACES)
async def test_namespace(tmp_path, monkeypatch, set_, account, known, where):
    folder = tmp_path / "pod"
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    _, context = certified(folder)
    async with FakeKubernetes().running(context) as server:
        tools = Tools(environ=server.account(folder), namespace=known)
        (folder / "namespace").write_text(account)
        settings = LockSettings(kind="lease", name="gpu", namespace=set_)
        if where is None:
            with pytest.raises(
                KubernetesError, match="namespace of the Lease is unknown"
            ) as raised:
                lease.make(settings, tools)
            assert not raised.value.sent
        else:
            await lease.make(settings, tools).acquire("w1", "a1")
            (asked, *_) = server.asked
            assert asked == f"GET /apis/coordination.k8s.io/v1/namespaces/{where}/leases/gpu"


async def test_asking_that_was_cancelled_leaves_nothing(here, monkeypatch):
    """The write was carried out before its answer came: the next asking of this process gives the slot back."""
    call = Api.call

    async def unheard(self, method, path, *more):
        answer = await call(self, method, path, *more)
        if method == "POST":
            await asyncio.Event().wait()
        return answer

    watcher = here.watcher()
    with monkeypatch.context() as patched:
        patched.setattr(Api, "call", unheard)
        asking = asyncio.create_task(here.lock(watcher).acquire("w1", "a1"))
        async with asyncio.timeout(10):
            while KEY not in here.server.objects:
                await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert [slot["attempt_id"] for slot in here.kept["slots"]] == ["a1"]
    assert (await here.lock(watcher, per_hour=1).acquire("w1", "a2")).held is True


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
async def test_release_without_an_answer(here, monkeypatch, done, used, end):
    """The next asking makes up for what is missing, once: the end is known, and the hour is of the restart's end."""
    Tries(monkeypatch)
    ahead_s = [0.0]
    monkeypatch.setattr(lease, "time", SimpleNamespace(time=lambda: time.time() + ahead_s[0]))
    watcher = here.watcher()
    mine = here.lock(watcher)
    assert (await mine.acquire("w1", "a1", replace(ATTEMPT, state="calling"))).held is True
    if done:
        here.server.cut_after_write = 99
    else:
        here.server.instead += [status(500, "", "") for _ in range(6)]
    await mine.release(used=used, ended=end)
    here.server.cut_after_write = 0
    here.server.instead.clear()
    ahead_s[0] = 1800.0
    next_one = here.lock(watcher, slots=2, per_hour=2)
    answer = await next_one.acquire("w1", "a2")
    assert answer.held is True
    known = {each.id: each.state for each in answer.others}
    assert known == ({"a1": "helped" if end else "uncertain"} if used else {})
    assert [each["attempt_id"] for each in here.kept["slots"]] == ["a2"]
    t = [each["t"] for each in here.kept["spent"] if each["attempt_id"] == "a1"]
    assert len(t) == used
    if done and used and end is None:
        assert t[0] < time.time() + 900
    ahead_s[0] = 2700.0
    assert (await next_one.renew()).held is True
    assert [each["t"] for each in here.kept["spent"] if each["attempt_id"] == "a1"] == t
    assert [each["attempt_id"] for each in here.kept["spent"]][-1] == "a2"


async def test_a_thousand_that_were_left_are_remembered(here):
    assert (await here.lock().acquire("w1", "a0")).held is True
    watcher = here.watcher()
    watcher.release_later(Release("a0", used=False))
    for number in range(1000):
        watcher.release_later(Release(f"b{number}", used=False))
    assert (await here.lock(watcher).acquire("w1", "a1")).held is False


async def test_it_is_waited_for_twenty_seconds(here, monkeypatch):
    limits: list[float] = []

    def timeout(seconds):
        limits.append(seconds)
        return asyncio.timeout(0)

    Waits(monkeypatch, lease, timeout=timeout)
    answer = await here.lock().acquire("w1", "a1")
    assert (answer.held, answer.text) == (None, "Lease default/gpu: no answer within 20 s")
    assert limits == [20.0]


async def test_wrong_token_is_never_a_yes(here):
    """And it is said where rights are described."""
    answer = await here.lock(here.watcher("another")).acquire("w1", "a1")
    assert (answer.held, here.server.objects) == (None, {})
    assert "HTTP 401" in answer.text
