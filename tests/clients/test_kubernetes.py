"""The client of the API server: what it sends, whom it trusts, and what it says when nobody answers."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.kubernetes_api import NAMESPACE, FakeKubernetes, busy, certified
from vllm_watch.clients import kubernetes as kubernetes_api
from vllm_watch.clients.kubernetes import Api, KubernetesError, in_cluster

LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@asynccontextmanager
async def pod(tmp_path):
    """A pod's files, and the API server of its cluster, over TLS."""
    folder = tmp_path / "serviceaccount"
    _, context = certified(folder)
    async with FakeKubernetes().running(context) as server:
        environ = server.account(folder)
        environ["KUBERNETES_SERVICE_PORT_HTTPS"] = environ.pop("KUBERNETES_SERVICE_PORT")
        yield server, in_cluster(environ, folder=folder)


async def test_every_verb(tmp_path):
    """Created, read, listed, replaced and patched; each refusal is an answer."""
    async with pod(tmp_path) as (_, api):
        assert api.namespace == NAMESPACE
        created = await api.call("POST", LEASES, {"metadata": {"name": "a"}})
        assert (created.status, created.ok) == (201, True)
        again = await api.call("POST", LEASES, {"metadata": {"name": "a"}})
        assert (again.status, again.said()) == (409, 'HTTP 409 leases "a" already exists')
        found = (await api.call("GET", f"{LEASES}/a")).document
        assert (await api.call("PUT", f"{LEASES}/a", found)).ok
        stale = await api.call("PUT", f"{LEASES}/a", found)
        assert (stale.status, stale.document["reason"]) == (409, "Conflict")
        patched = await api.call("PATCH", f"{LEASES}/a", {"metadata": {"labels": {"b": "c"}}})
        assert patched.document["metadata"]["labels"] == {"b": "c"}
        listed = await api.call("GET", LEASES, query={"fieldSelector": "metadata.name=a"})
        assert [each["metadata"]["name"] for each in listed.document["items"]] == ["a"]


async def test_token_is_read_anew(tmp_path):
    """Kubernetes replaces it about once an hour."""
    async with pod(tmp_path) as (server, api):
        server.token = "the next one"
        assert (await api.call("GET", LEASES)).status == 401
        assert api.token_file is not None
        api.token_file.write_text("the next one\n")
        assert (await api.call("GET", LEASES)).ok


async def test_busy_server_says_when(tmp_path):
    async with pod(tmp_path) as (server, api):
        server.instead.append(busy(7))
        answer = await api.call("GET", LEASES)
        assert (answer.status, answer.retry_after_seconds) == (429, 7.0)
        assert answer.said() == "HTTP 429 Too many requests, please try again later."


async def test_server_that_somebody_else_signed_is_not_spoken_to(tmp_path):
    """Neither is one whose certificate nobody gave us: surely nothing was sent."""
    async with pod(tmp_path) as (server, api):
        other, _ = certified(tmp_path / "other")
        for ca_file in (other, None):
            stranger = Api(url=server.url, token_file=api.token_file, ca_file=ca_file)
            with pytest.raises(KubernetesError, match="a call to the API server") as caught:
                await stranger.call("GET", LEASES)
            assert caught.value.sent is False
        assert server.asked == []


async def test_what_was_sent_and_not_answered_may_have_been_done(tmp_path, monkeypatch):
    """A refused connection is not that."""
    monkeypatch.setattr(kubernetes_api, "CALL_SECONDS", 0.5)
    async with pod(tmp_path) as (server, api):
        server.cut_after_write = 9
        with pytest.raises(KubernetesError) as caught:
            await api.call("POST", LEASES, {"metadata": {"name": "a"}})
        assert caught.value.sent is True
        server.pause = asyncio.Event()
        with pytest.raises(KubernetesError, match=r"no answer within 0.5 s") as caught:
            await api.call("GET", LEASES)
        assert caught.value.sent is True
    with pytest.raises(KubernetesError) as caught:
        await api.call("GET", LEASES)
    assert caught.value.sent is False


FILES = {
    # which file, what is in it (None: it is gone), what is said
    "no token": ("token", None, "token"),
    "an empty token": ("token", b"\n", "holds no token"),
    "a token of two lines": ("token", b"a\nb", "holds no token"),
    "a token of garbage": ("token", b"\xff" * 9, "ascii"),
    "a token that is endless": ("token", "/dev/zero", "is a device"),
    "a certificate that is none": ("ca.crt", b"x", "cannot be used"),
}


@pytest.mark.parametrize(("name", "body", "said"), FILES.values(), ids=FILES)
async def test_files_that_cannot_be_used(tmp_path, name, body, said):  # fmt: skip
    async with pod(tmp_path) as (server, api):
        file = tmp_path / "serviceaccount" / name
        file.unlink()
        if isinstance(body, str):
            file.symlink_to(body)
        elif body is not None:
            file.write_bytes(body)
        with pytest.raises(KubernetesError, match=said) as caught:
            await api.call("GET", LEASES)
        assert caught.value.sent is False
        assert server.asked == []


async def test_answer_without_end_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(kubernetes_api, "ANSWER_BYTES_MAX", 20)
    async with pod(tmp_path) as (_, api):
        with pytest.raises(KubernetesError, match="more than 20 bytes"):
            await api.call("GET", LEASES)


def test_address_of_an_ipv6_cluster(tmp_path):
    """Is written in brackets; a pod without a token is told so."""
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(KubernetesError, match="holds no token"):
        in_cluster(environ, folder=tmp_path)
    (tmp_path / "token").write_text("t")
    api = in_cluster(environ, folder=tmp_path)
    assert (api.url, api.ca_file, api.namespace) == ("https://[fd00::1]:6443", None, "")


async def test_watch_tells_each_event_until_the_server_ends_it(tmp_path):
    """In order, whole, from the version on that was asked for; then the answer is empty."""
    async with pod(tmp_path) as (_, api):
        for name in ("a", "b"):
            await api.call("POST", LEASES, {"metadata": {"name": name}})
        told: list[tuple[str, str]] = []
        query = {"watch": "1", "resourceVersion": "1", "timeoutSeconds": "1"}

        def take(event):
            told.append((event["type"], event["object"]["metadata"]["name"]))
            return True

        ended = await api.follow(LEASES, query, 1.0, take)
        assert (ended.status, ended.document, told) == (200, {}, [("ADDED", "b")])
        missing = await api.follow("/api/v1/nothing", query, 1.0, take)
        assert missing.status == 404
        enough = {"watch": "1", "resourceVersion": "0", "timeoutSeconds": "60"}
        assert (await api.follow(LEASES, enough, 60.0, lambda event: take(event) and False)).ok
        assert told == [("ADDED", "b"), ("ADDED", "a")]


async def test_watch_that_says_nothing_any_more_is_given_up(tmp_path, monkeypatch):
    """A connection that died without a word, and one whose event has no end."""
    monkeypatch.setattr(kubernetes_api, "CALL_SECONDS", 0.5)
    async with pod(tmp_path) as (server, api):
        query = {"watch": "1", "timeoutSeconds": "60"}
        with pytest.raises(KubernetesError, match="a call to the API server"):
            await api.follow(LEASES, query, 0.5, lambda _: True)
        server.cut()
        monkeypatch.setattr(kubernetes_api, "CALL_SECONDS", 30.0)
        monkeypatch.setattr(kubernetes_api, "ANSWER_BYTES_MAX", 20)
        following = asyncio.create_task(api.follow(LEASES, query, 30.0, lambda _: True))
        async with asyncio.timeout(30):
            while len(server.asked) < 2 or not server.streams:
                await asyncio.sleep(0.02)
        await server.say(b"x" * 30)
        with pytest.raises(KubernetesError, match="more than 20 bytes"):
            await following
