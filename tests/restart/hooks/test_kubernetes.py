"""The kubernetes hook against an API server with the real one's refusals."""

import asyncio
import json
from datetime import datetime

import pytest
from aiohttp import web
from pydantic import ValidationError

from tests.kubernetes_api import NAMESPACE, busy, certified, status
from tests.restart.hooks.calls import call
from tests.restart.hooks.fake_pods import STARTED, FakePods, budget, pod, workload
from tests.restart.waits import Waits
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.clients.kubernetes import KubernetesError
from vllm_watch.restart.hooks import base
from vllm_watch.restart.hooks import kubernetes as kubernetes_hook
from vllm_watch.settings.hooks import KubernetesHook

CALL = call(pod="llama-0", namespace=NAMESPACE)
SERVED = datetime.fromisoformat(STARTED).timestamp()
ROLLOUT = {"action": "rollout_restart", "workload": "deployment/llama"}


class Cluster:
    """One API server and the pod from which it is asked."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.environ = server.account(folder) | {"HOSTNAME": "vllm-watch-0"}

    def hook(self, **settings):
        tools = base.Tools(environ=self.environ)
        return kubernetes_hook.Hook(KubernetesHook(name="a", **settings), tools)

    def changes(self):
        """What was asked that may change something; dry runs and reviews are none."""
        return [
            each for each in self.server.asked
            if not each.startswith("GET") and "dryRun" not in each and "reviews" not in each
        ]  # fmt: skip


def answered(text):
    """An answer of HTTP 200 with this body."""
    answer = status(200, "", "")
    answer.text = text
    return answer


def looked(cluster, resource, name):
    """What a look at this object brings, as it is at this moment."""
    return answered(json.dumps(cluster.server.objects[resource, NAMESPACE, name]))


@pytest.fixture
async def cluster(tmp_path, monkeypatch):
    """An API server that knows one pod, and a service account to ask it."""
    folder = tmp_path / "pod"
    _, context = certified(folder)
    monkeypatch.setattr(kubernetes_api, "SERVICE_ACCOUNT", folder)
    monkeypatch.setattr(kubernetes_hook, "POLL_SECONDS", 0.05)
    async with FakePods().running(context) as server:
        server.add("pods", pod())
        yield Cluster(server, folder)


def meanwhile(monkeypatch, happens):
    """Something happens between the look at the pod and its eviction."""
    real = kubernetes_hook.eviction

    def late(found):
        happens()
        return real(found)

    monkeypatch.setattr(kubernetes_hook, "eviction", late)


async def test_observed_pod_is_evicted_and_seen_gone(cluster):
    """Its successor has the same name and another uid: then the old one is gone."""
    result = await cluster.hook().restart(CALL)
    assert (result.outcome, result.text) == ("done", "pod llama-0 was evicted; it is gone")
    assert cluster.server.evicted == ["llama-0"]
    assert await cluster.hook().refusal(CALL) is None


async def test_pod_that_took_the_name_is_spared(cluster, monkeypatch):
    """Between our look and our eviction the pod was replaced: the uid does not fit."""
    meanwhile(monkeypatch, lambda: cluster.server.add("pods", pod()))
    result = await cluster.hook().restart(CALL)
    assert result.outcome == "refused"
    assert "does not match the UID in record" in result.text
    assert cluster.server.evicted == []


async def test_budget_that_never_allows_it_is_a_refusal(cluster):
    cluster.server.add("poddisruptionbudgets", budget(0), "llama")
    result = await cluster.hook(timeout_seconds=1.5).restart(CALL)
    assert (result.outcome, "disruption budget" in result.text) == ("refused", True)
    assert cluster.server.evicted == []


async def test_two_budgets_are_a_refusal(cluster):
    """The API server answers that with 500, but has surely done nothing."""
    for name in ("one", "two"):
        cluster.server.add("poddisruptionbudgets", budget(1), name)
    assert "more than one PodDisruptionBudget" in await cluster.hook().refusal(CALL)
    assert (await cluster.hook().restart(CALL)).outcome == "refused"


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (status(404, "NotFound", "gone"), "refused"), (status(403, "Forbidden", "no"), "refused"),
        (status(409, "Conflict", "another"), "refused"), (status(500, "InternalError", "oh"), "uncertain"),
        (status(504, "Timeout", "late"), "uncertain"),
    ],
)  # fmt: skip
async def test_status_is_the_outcome(cluster, answer, outcome):
    """4xx did nothing; 5xx may have."""
    cluster.server.instead = [looked(cluster, "pods", "llama-0"), answer]
    assert (await cluster.hook().restart(CALL)).outcome == outcome


async def test_server_that_is_away_did_nothing(cluster):
    cluster.environ["KUBERNETES_SERVICE_PORT"] = "1"
    hook = cluster.hook()
    assert "a call to the API server" in await hook.refusal(CALL)
    assert (await hook.restart(CALL)).outcome == "failed"


def containers(**state):
    return {"phase": "Running", "containerStatuses": [{"name": "vllm", "state": state}]}


NOT_TO_BE_TOUCHED = {
    "is being deleted already": {"metadata": pod()["metadata"] | {"deletionTimestamp": STARTED}},
    "does not run: it is Pending": {"status": {"phase": "Pending"}},
    "about to restart pod llama-0 itself: vllm, CrashLoopBackOff": {
        "status": containers(waiting={"reason": "CrashLoopBackOff"})
    },
    "vllm in pod llama-0 has ended": {"status": containers(terminated={"exitCode": 0})},
    "it has no controller": {"metadata": {"ownerReferences": []}},
    "it has no controller ": {"metadata": {"ownerReferences": [{"kind": "StatefulSet"}]}},
    "its controller is a Job": {"metadata": {"ownerReferences": [{"kind": "Job", "controller": True}]}},
    "cannot be understood": {"status": {"phase": "Running", "containerStatuses": [{"state": "fine"}]}},
    "Pod cannot be understood": {"status": {"phase": "Running", "containerStatuses": [{"name": "vllm"}]}},
    "are not known": {"status": {"phase": "Running"}},
}  # fmt: skip


@pytest.mark.parametrize(("words", "changed"), NOT_TO_BE_TOUCHED.items())
async def test_pod_that_must_not_be_touched_is_left_alone(cluster, words, changed):
    """What ends, what waits, and what nothing would start again."""
    cluster.server.add("pods", pod(**changed))
    said = await cluster.hook().refusal(CALL)
    assert words.strip() in said
    result = await cluster.hook().restart(CALL)
    assert (result.outcome, result.text, cluster.changes()) == ("refused", said, [])


@pytest.mark.parametrize("kind", sorted(kubernetes_hook.CONTROLLERS))
async def test_pod_that_is_started_again_may_go(cluster, kind):
    metadata = {"ownerReferences": [{"kind": kind, "controller": True}]}
    cluster.server.add("pods", pod(metadata=metadata))
    assert (await cluster.hook().restart(CALL)).outcome == "done"


@pytest.mark.parametrize(
    ("started", "refused"),
    [(None, False), (SERVED - 1, False), (SERVED + 900, False), (SERVED - 60, True)],
)  # fmt: skip
async def test_pod_started_since_is_spared(cluster, started, refused):
    """A server cannot be older than the container that declares its port, whatever else runs beside it."""
    said = await cluster.hook().refusal(call(pod="llama-0", process_start_time=started))
    assert (said is not None) is refused
    assert said is None or "started after the observed server" in said


async def test_pod_of_which_nothing_is_known_to_run_is_spared(cluster):
    """It cannot be the observed server's."""
    cluster.server.add("pods", pod(status=containers()))
    said = await cluster.hook().refusal(call(pod="llama-0", process_start_time=SERVED))
    assert said == "the API server's Pod cannot be understood"


async def test_pod_and_namespace_must_be_known(cluster):
    hook = cluster.hook()
    assert "the pod of llama is not known" in await hook.refusal(call(namespace=NAMESPACE))
    assert await hook.refusal(call(pod="llama-0")) is None  # in our own namespace
    elsewhere = await cluster.hook(namespace="other").refusal(CALL)
    assert "pod llama-0 in namespace other is not available: HTTP 404" in elsewhere
    (cluster.folder / "namespace").unlink()
    assert "the namespace of llama is not known" in await hook.refusal(call(pod="llama-0"))


async def test_our_own_pod_is_ours_to_end_only_with_a_journal_that_stays(cluster):
    """With the pod the journal would go, and with it the budget."""
    cluster.environ["HOSTNAME"] = "llama-0"
    assert "it is the pod in which vllm-watch runs" in await cluster.hook().refusal(CALL)
    assert (await cluster.hook().restart(CALL)).outcome == "refused"
    assert await cluster.hook(state_outlives_pod=True).refusal(CALL) is None


async def test_rehearsal_asks_for_rights_and_tries_dry(cluster):
    """Every right is asked for, the eviction is tried without being done."""
    findings = await cluster.hook().rehearse(CALL)
    assert [(each.ok, each.text) for each in findings] == [
        (True, "we may get pods in default"), (True, "we may create pods/eviction in default"),
        (True, "the API server would evict pod llama-0 (dry run)"),
    ]  # fmt: skip
    assert (cluster.changes(), cluster.server.evicted) == ([], [])
    cluster.server.may_not.add("create pods/eviction")
    findings = await cluster.hook().rehearse(CALL)
    assert [each.ok for each in findings] == [True, False]
    assert "Role of docs/hooks/kubernetes.md" in findings[1].remedy
    cluster.server.may_not.clear()
    cluster.server.add("poddisruptionbudgets", budget(0), "llama")
    assert [each.ok for each in await cluster.hook().rehearse(CALL)] == [True, True, False]


async def test_rollout_begins_once_for_one_attempt(cluster):
    """The template carries the attempt: asked again, it changes nothing; another attempt begins anew."""
    cluster.server.add("deployments", workload(), "llama")
    result = await cluster.hook(timeout_seconds=1.0, **ROLLOUT).restart(CALL)
    assert (result.outcome, result.text) == (
        "done", "a rollout of deployment/llama has begun; it was still ending after 1 s",
    )  # fmt: skip
    found = cluster.server.objects["deployments", NAMESPACE, "llama"]
    template = found["spec"]["template"]["metadata"]
    assert template["annotations"] == {kubernetes_hook.ATTEMPT: CALL.attempt_id}
    assert (template["labels"], found["metadata"]["generation"]) == ({"app": "llama"}, 4)
    assert (await cluster.hook(**ROLLOUT).restart(call(namespace=NAMESPACE))).outcome == "done"
    assert found["metadata"]["generation"] == 4
    another = call(namespace=NAMESPACE, attempt_id="another")
    said = await cluster.hook(**ROLLOUT).refusal(another)
    assert said == "a rollout of Deployment llama is under way: 1 of 1 are up to date"
    assert cluster.server.evicted == []


ROLLED_OUT = {
    # what the server says of its patches: outcome, how many there are
    "a conflict": ([409], "done", 2),
    "a conflict each time": ([409] * 4, "refused", 4),
    "forbidden": ([403], "refused", 1),
}  # fmt: skip


@pytest.mark.parametrize(("said", "outcome", "patches"), ROLLED_OUT.values(), ids=ROLLED_OUT)
async def test_only_a_conflict_is_tried_again(cluster, said, outcome, patches):
    """Not for ever: the status of a workload changes with each of its pods."""
    cluster.server.add("deployments", workload(), "llama")
    look = looked(cluster, "deployments", "llama").text
    for each in said:
        cluster.server.instead += [answered(look), status(each, "", "no")]
    result = await cluster.hook(**ROLLOUT).restart(call(namespace=NAMESPACE))
    assert (result.outcome, len(cluster.changes())) == (outcome, patches)


NOT_TO_BE_ROLLED_OUT = {
    "is paused": {"paused": True},
    "scaled to zero": {"replicas": 0},
    "a rollout of Deployment llama is under way: 1 of 2": {"replicas": 2},
    "OnDelete": {"updateStrategy": {"type": "OnDelete"}},
    "only a part of it": {"updateStrategy": {"rollingUpdate": {"partition": 2}}},
    "does not belong to deployment/llama": {"selector": {"matchLabels": {"app": "other"}}},
    "pod llama-0 does not belong to deployment/llama": {
        "selector": {"matchLabels": {"app": "llama", "role": "decode"}}
    },
    "pod llama-0 does not belong": {
        "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
    },
}


@pytest.mark.parametrize(("words", "spec"), NOT_TO_BE_ROLLED_OUT.items())
async def test_workload_that_would_not_roll_is_left_alone(cluster, words, spec):
    """A patch that restarts nothing, or another's pods, is not sent."""
    cluster.server.add("deployments", workload(**spec), "llama")
    said = await cluster.hook(**ROLLOUT).refusal(CALL)
    assert words in said
    assert (await cluster.hook(**ROLLOUT).restart(CALL)).outcome == "refused"
    assert cluster.changes() == []


async def test_a_rollout_without_a_new_pod_yet_is_under_way(cluster):
    """Kubernetes leaves out a count of nothing."""
    found = workload()
    del found["status"]["updatedReplicas"]
    cluster.server.add("deployments", found, "llama")
    said = await cluster.hook(**ROLLOUT).refusal(CALL)
    assert said == "a rollout of Deployment llama is under way: 0 of 1 are up to date"


async def test_pod_without_labels_belongs_to_no_workload(cluster):
    cluster.server.add("deployments", workload(), "llama")
    bare = pod()
    bare["metadata"].pop("labels", None)
    cluster.server.add("pods", bare)
    said = await cluster.hook(**ROLLOUT).refusal(CALL)
    assert "does not belong to deployment/llama" in said


async def test_group_of_several_nodes_is_rolled_out_as_one(cluster):
    """A LeaderWorkerSet has a template for its leader and one for its workers, or one for all."""
    name = kubernetes_hook.LWS_NAME_LABEL
    owned = [{"kind": "StatefulSet", "controller": True}]
    cluster.server.add("pods", pod(metadata={"labels": {name: "llama"}, "ownerReferences": owned}))
    settings = ROLLOUT | {"workload": "leaderworkerset/llama"}
    for templates in ({"leaderTemplate": {}, "workerTemplate": {}}, {"workerTemplate": {}}):
        group = workload(leaderWorkerTemplate={"size": 2, **templates})
        cluster.server.add("leaderworkersets", group, "llama")
        result = await cluster.hook(timeout_seconds=0.5, **settings).restart(CALL)
        assert result.outcome == "done"
        found = cluster.server.objects["leaderworkersets", NAMESPACE, "llama"]
        for template in templates:
            metadata = found["spec"]["leaderWorkerTemplate"][template]["metadata"]
            assert metadata["annotations"] == {kubernetes_hook.ATTEMPT: CALL.attempt_id}
        assert found["spec"]["leaderWorkerTemplate"].keys() == {"size", *templates}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"action": "rollout_restart"}, "is missing for rollout_restart"),
        (ROLLOUT | {"workload": "job/llama"}, "job/llama' is not a workload"),
        (ROLLOUT | {"workload": "deployment/../x"}, "is not a workload"),
        ({"action": "delete"}, "action"),
    ],
)
def test_settings_that_cannot_be_are_named(keys, words):
    with pytest.raises(ValidationError) as error:
        KubernetesHook.model_validate({"name": "a", **keys})
    assert words in repr(error.value.errors())


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


LOST = {
    # what a look at the pod shows after an eviction that was sent and not answered
    "it was replaced": (lambda server: server.add("pods", pod()), "done"),
    "it ends": (lambda server: server.end("llama-0"), "done"),
    "it is gone": (lambda server: server.objects.pop(("pods", NAMESPACE, "llama-0")), "done"),
    "it runs": (lambda server: None, "uncertain"),
    "it cannot be understood": (
        lambda server: server.instead.append(answered('{"kind": "Pod", "metadata": []}')), "uncertain"),
    "it may not be seen": (lambda server: server.instead.append(status(403, "Forbidden", "no")), "uncertain"),
}  # fmt: skip


@pytest.mark.parametrize(("happens", "outcome"), LOST.values(), ids=LOST)
async def test_eviction_without_an_answer(cluster, monkeypatch, happens, outcome):
    """It was carried out where the pod goes; whatever else is seen, it may still be."""
    cluster.server.instead = [looked(cluster, "pods", "llama-0"), CutOff()]
    meanwhile(monkeypatch, lambda: happens(cluster.server))
    result = await cluster.hook().restart(CALL)
    assert result.outcome == outcome, result.text
    if outcome == "done":
        assert result.text == "pod llama-0 was evicted; it is gone"


async def test_eviction_without_an_answer_and_then_without_a_server(cluster, monkeypatch):
    """That nothing can be reached any more does not undo what was sent."""
    hook = cluster.hook()
    cluster.server.instead = [looked(cluster, "pods", "llama-0")]
    call, calls, left = kubernetes_api.Api.call, [], []

    async def away(self, method, path, *more):
        if method == "GET" and not left:
            return await call(self, method, path, *more)
        calls.append(path)
        raise KubernetesError("it cannot be reached", "wait", sent=len(calls) == 1)

    monkeypatch.setattr(kubernetes_api.Api, "call", away)
    meanwhile(monkeypatch, lambda: left.append(True))
    result = await hook.restart(CALL)
    assert (result.outcome, len(calls)) == ("uncertain", 2)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("action", ["evict", "rollout_restart"])
async def test_what_was_not_sent_did_nothing(cluster, monkeypatch, action, sent):
    """Also where the pod ends meanwhile, by somebody else's hand."""
    cluster.server.add("deployments", workload(), "llama")

    call = kubernetes_api.Api.call

    async def unheard(self, method, path, *more):
        if method == "GET":
            return await call(self, method, path, *more)
        if action == "evict" and not sent:
            cluster.server.objects["pods", NAMESPACE, "llama-0"]["metadata"] |= {"deletionTimestamp": STARTED}  # fmt: skip
        raise KubernetesError("no answer", "wait", sent=sent)

    monkeypatch.setattr(kubernetes_api.Api, "call", unheard)
    result = await cluster.hook(action=action, workload="deployment/llama").restart(CALL)
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
    "a rollout's conflict": (["workload", "conflict"], "failed", "the API server has not answered within 0.5 s"),
    "the look": (["look"], "uncertain", "the API server has not answered within 0.5 s"),
    "a budget's no": (["look", "busy"], "uncertain", "the API server has not answered within 0.5 s"),
    "the eviction": (["look", "yes"], "done", "pod llama-0 was evicted; it was still ending after 0.5 s"),
}  # fmt: skip


@pytest.mark.parametrize(("answers", "outcome", "text"), TIME_UP.values(), ids=TIME_UP)
async def test_server_that_falls_silent(cluster, monkeypatch, answers, outcome, text):
    """What was sent and not answered may have acted; what was agreed to has; after a conflict nothing has begun."""
    cluster.server.add("deployments", workload(), "llama")
    made = {
        "look": looked(cluster, "pods", "llama-0"), "busy": busy(1), "yes": answered("{}"),
        "workload": looked(cluster, "deployments", "llama"), "conflict": status(409, "Conflict", "modified"),
    }  # fmt: skip
    rolls, asked = "workload" in answers, call(namespace=NAMESPACE)
    silent = Silent()
    Waits(monkeypatch, kubernetes_hook, timeout=lambda seconds: silent.limit)
    if answers:
        told = [made[each] for each in answers]
        cluster.server.instead = Until(cluster.server, silent, told)
    else:
        cluster.server.pause = silent
    hook = cluster.hook(timeout_seconds=0.5, **(ROLLOUT if rolls else {}))
    result = await hook.restart(asked if rolls else CALL)
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
    call, looks = kubernetes_api.Api.call, []

    async def heard(self, method, path, *more):
        if method == "GET":
            looks.append(path)
            if len(looks) == 2:
                raise KubernetesError("no answer", "wait", sent=True)
        return await call(self, method, path, *more)

    monkeypatch.setattr(kubernetes_api.Api, "call", heard)
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
    cluster.server.instead = [answer]
    findings = await cluster.hook().rehearse(CALL)
    said = {each.text: each for each in findings}
    assert not said[words].ok
    assert said[words].remedy
    assert not any("dryRun" in each for each in cluster.server.asked)


async def test_rollout_restarts_a_pod_that_only_its_workload_makes_again(cluster):
    """An eviction would end it for ever."""
    cluster.server.add("deployments", workload(), "llama")
    cluster.server.add("pods", pod(metadata={"labels": {"app": "llama"}, "ownerReferences": []}))
    assert "has no controller" in await cluster.hook().refusal(CALL)
    assert await cluster.hook(**ROLLOUT).refusal(CALL) is None
