"""The kubernetes hook where an answer is lost, late, or of no use: what may have been done is never said to be undone."""

import asyncio

import pytest
from aiohttp import web

from tests.kubernetes_api import NAMESPACE, busy, status
from tests.restart.hooks.calls import call
from tests.restart.hooks.fake_pods import STARTED, pod, workload
from tests.restart.hooks.kubernetes_cluster import (
    CALL,
    ROLLOUT,
    answered,
    asked_from_a_pod,
    looked,
)
from tests.restart.waits import Waits
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.clients.kubernetes import KubernetesError
from vllm_watch.restart.hooks import kubernetes as kubernetes_hook


@pytest.fixture
async def cluster(tmp_path, monkeypatch):
    async with asked_from_a_pod(tmp_path, monkeypatch) as found:
        yield found


POLL_SECONDS = 2.0


@pytest.fixture
def waits(cluster, monkeypatch):
    """What is waited for between tries, by its true measures; it takes no time."""
    monkeypatch.setattr(kubernetes_hook, "POLL_SECONDS", POLL_SECONDS)
    return Waits(monkeypatch, kubernetes_hook).seconds


class CutOff(web.Response):
    """No answer, and nothing was done; the request was sent."""

    async def prepare(self, request):
        request.transport.abort()
        return await super().prepare(request)


def meanwhile(monkeypatch, happens):
    """Something happens between the look at the pod and its eviction."""
    real = kubernetes_hook.eviction

    def late(found):
        happens()
        return real(found)

    monkeypatch.setattr(kubernetes_hook, "eviction", late)


def replaced(cluster):
    cluster.server.add("pods", pod())


def ends(cluster):
    cluster.server.end("llama-0")


def gone(cluster):
    del cluster.server.objects["pods", NAMESPACE, "llama-0"]


def stays(cluster):
    pass


def unreadable(cluster):
    cluster.server.instead.append(answered('{"kind": "Pod", "metadata": []}'))


def forbidden(cluster):
    cluster.server.instead.append(status(403, "Forbidden", "no"))


LOST = {
    # what a look at the pod shows after an eviction that was sent and not answered
    "it was replaced": (replaced, "done"),
    "it ends": (ends, "done"),
    "it is gone": (gone, "done"),
    "it runs": (stays, "uncertain"),
    "it cannot be understood": (unreadable, "uncertain"),
    "it may not be seen": (forbidden, "uncertain"),
}


@pytest.mark.parametrize(("happens", "outcome"), LOST.values(), ids=LOST)
async def test_eviction_without_an_answer(cluster, monkeypatch, happens, outcome):
    """It was carried out where the pod goes; whatever else is seen, it may still be."""
    cluster.server.instead = [looked(cluster, "pods", "llama-0"), CutOff()]
    meanwhile(monkeypatch, lambda: happens(cluster))
    result = await cluster.hook().restart(CALL)
    assert result.outcome == outcome, result.text
    if outcome == "done":
        assert result.text == "pod llama-0 was evicted; it is gone"


async def test_eviction_without_an_answer_and_then_without_a_server(cluster, monkeypatch):
    """That nothing can be reached any more does not undo what was sent."""
    hook = cluster.hook()
    cluster.server.instead = [looked(cluster, "pods", "llama-0")]
    calls = []

    async def away(self, path, *_):
        calls.append(path)
        raise KubernetesError("it cannot be reached", "wait", sent=len(calls) == 1)

    monkeypatch.setattr(kubernetes_api.Api, "post", away)
    meanwhile(monkeypatch, lambda: monkeypatch.setattr(kubernetes_api.Api, "get", away))
    result = await hook.restart(CALL)
    assert (result.outcome, len(calls)) == ("uncertain", 2)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("action", ["evict", "rollout_restart"])
async def test_what_was_not_sent_did_nothing(cluster, monkeypatch, action, sent):
    """Also where the pod ends meanwhile, by somebody else's hand."""
    cluster.server.add("deployments", workload(), "llama")

    async def unheard(self, *_):
        if action == "evict" and not sent:
            cluster.server.objects["pods", NAMESPACE, "llama-0"]["metadata"] |= {"deletionTimestamp": STARTED}  # fmt: skip
        raise KubernetesError("no answer", "wait", sent=sent)

    for verb in ("post", "patch"):
        monkeypatch.setattr(kubernetes_api.Api, verb, unheard)
    hook = cluster.hook(action=action, workload="deployment/llama")
    result = await hook.restart(CALL)
    assert (result.outcome, result.text) == ("uncertain" if sent else "failed", "no answer")


class Silent(asyncio.Event):
    """A server that answers no more; with the first thing that it is asked then the time of the call is up."""

    def __init__(self):
        super().__init__()
        self.limit = asyncio.timeout(None)

    async def wait(self):
        self.limit.reschedule(asyncio.get_running_loop().time())
        await super().wait()


class Until(list):
    """Answers in place of the server's; after the last of them it is silent."""

    def __init__(self, server, silent, answers):
        super().__init__(answers)
        self._server, self._silent = server, silent

    def pop(self, index):
        given = super().pop(index)
        if not self:
            self._server.pause = self._silent
        return given


TIME_UP = {
    # answered before the server falls silent: outcome, words
    "nothing": ([], "failed", "the API server has not answered within 0.5 s"),
    "the look": (["look"], "uncertain", "the API server has not answered within 0.5 s"),
    "a budget's no": (["look", "busy"], "uncertain", "the API server has not answered within 0.5 s"),
    "the eviction": (["look", "yes"], "done", "pod llama-0 was evicted; it was still ending after 0.5 s"),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "outcome", "text"), TIME_UP.values(), ids=TIME_UP)
async def test_server_that_falls_silent(cluster, monkeypatch, answers, outcome, text):
    """What was sent and not answered may have acted; what was agreed to has."""
    made = {"look": looked(cluster, "pods", "llama-0"), "busy": busy(1), "yes": answered("{}")}
    silent = Silent()
    Waits(monkeypatch, kubernetes_hook, timeout=lambda seconds: silent.limit)
    if answers:
        told = [made[each] for each in answers]
        cluster.server.instead = Until(cluster.server, silent, told)
    else:
        cluster.server.pause = silent
    result = await cluster.impatient(0.5).restart(CALL)
    assert (result.outcome, result.text) == (outcome, text)


AGAIN = {
    # what a server that is busy asks for, in seconds: what is waited for
    None: 10.0, "0": 10.0, "1": 1.0, "3": 3.0,
}  # fmt: skip


@pytest.mark.parametrize(("asked", "waited"), AGAIN.items())
async def test_eviction_is_asked_for_again(cluster, waits, asked, waited):
    """As late as the server says, and where it says nothing, ten seconds later."""
    headers = None if asked is None else {"Retry-After": asked}
    no = status(429, "TooManyRequests", "it would violate the budget", headers)
    cluster.server.instead = [looked(cluster, "pods", "llama-0"), no]
    result = await cluster.hook().restart(CALL)
    assert (result.outcome, waits[0]) == ("done", waited)
    assert set(waits[1:]) <= {POLL_SECONDS}


async def test_the_end_of_the_pod_is_seen(cluster, waits, monkeypatch):
    """What cannot be seen for a while is no end, nor is the pod that still ends."""
    get, looks = kubernetes_api.Api.get, []

    async def heard(self, path, *_):
        looks.append(path)
        if len(looks) == 2:
            raise KubernetesError("no answer", "wait", sent=True)
        return await get(self, path)

    monkeypatch.setattr(kubernetes_api.Api, "get", heard)
    still, again = (looked(cluster, "pods", "llama-0") for _ in range(2))
    oh, gone = status(500, "InternalError", "oh"), status(404, "NotFound", "gone")
    cluster.server.instead = [still, answered("{}"), oh, again, gone]
    result = await cluster.hook().restart(CALL)
    assert (result.outcome, result.text) == ("done", "pod llama-0 was evicted; it is gone")
    assert (waits, len(looks)) == ([POLL_SECONDS] * 3, 5)


@pytest.mark.parametrize(("answer", "words"), [
    (status(500, "InternalError", "oh"), "it is unknown whether we may get pods in default: HTTP 500 oh"),
    (answered("{}"), "we may not get pods in default"),
    (answered('{"status": {"allowed": "yes"}}'), "we may not get pods in default"),
])  # fmt: skip
async def test_right_that_is_not_said_is_none(cluster, answer, words):
    """Nothing is tried then."""
    cluster.server.instead = [answer]
    findings = await cluster.hook().rehearse(CALL)
    said = {each.text: each for each in findings}
    assert not said[words].ok
    assert said[words].remedy
    assert not any("dryRun" in each for each in cluster.server.asked)


async def test_rehearsal_says_what_is_in_the_way(cluster):
    """A right that is there needs no remedy; a pod that nothing would make again does."""
    cluster.server.add("pods", pod(metadata={"ownerReferences": []}))
    findings = await cluster.hook().rehearse(CALL)
    assert [(each.ok, each.remedy is None) for each in findings] == [
        (True, True), (True, True), (False, False),
    ]  # fmt: skip


async def test_rollout_of_a_target_without_a_pod_needs_no_right_to_see_it(cluster):
    """What is not asked for is not needed; all its pods are restarted."""
    cluster.server.add("deployments", workload(), "llama")
    [*rights, plan] = await cluster.hook(**ROLLOUT).rehearse(call(namespace=NAMESPACE))
    assert cluster.server.reviewed == ["get deployments", "patch deployments"]
    assert [each.ok for each in rights] == [True, True]
    assert plan.text == "a rollout of deployment/llama can begin; all its pods are restarted"


async def test_rollout_restarts_a_pod_that_only_its_workload_makes_again(cluster):
    """An eviction would end it for ever."""
    cluster.server.add("deployments", workload(), "llama")
    cluster.server.add("pods", pod(metadata={"labels": {"app": "llama"}, "ownerReferences": []}))
    assert "has no controller" in await cluster.hook().refusal(CALL)
    assert await cluster.hook(**ROLLOUT).refusal(CALL) is None
