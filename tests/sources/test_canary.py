"""A canary on real sockets: what is sent, and how each way to end is told apart."""

import asyncio
import json

import pytest

from tests.sources.wire import answering, wire
from vllm_watch.lab.live import Live
from vllm_watch.lab.scene import Scene
from vllm_watch.lab.vllm import SimulatedVllm
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import CanarySettings, ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.canary import CanarySource

TOKEN = json.dumps({"choices": [{"index": 0, "text": " world"}]})


async def ask(url, *, model="example/model-8b", engine=None, scrape=None, named=""):
    """One canary; the timeout is the shortest that can be set."""
    canary = CanarySettings(enabled=True, timeout_seconds=2.0, model=named)
    async with http.Session() as session:
        target = Target(name="t", url=url)
        source = CanarySource(
            target, canary.model, canary.timeout_seconds, scrape or ScrapeSettings(), session
        )
        return await source.ask(model, engine)


def posted(server, route="/v1/completions"):
    return next(request for request in server.requests if request.path == route)


async def answered(status, body):
    """What a canary makes of one answer."""
    async with wire() as server:
        server.on("/v1/completions", answering(body, status=status))
        return await ask(server.url)


def error(message, **more):
    return json.dumps({"error": {"message": message, **more}})


NO_MODEL = error("The model `x` does not exist.", type="NotFoundError", param="model", code=404)

ANSWERS = {  # status, body → outcome, outcome of the call, a word of the remedy
    "a token": ("200 OK", TOKEN, "ok", "ok", None),
    "a page instead": ("200 OK", "<html>", "refused", "ok", "canary.enabled"),
    "no key, or a wrong one": ("401 Unauthorized", '{"error":"Unauthorized"}', "refused", "http", "scrape.api_key_file"),
    "another model": ("404 Not Found", NO_MODEL, "refused", "http", "canary.model"),
    "no such route, nor the chat's": ("404 Not Found", '{"detail":"Not Found"}', "refused", "http", "canary.enabled"),
    "a pooling model": ("400 Bad Request", error("The model does not support Completions API"), "refused", "http", "canary.enabled"),
    "rate limit": ("429 Too Many Requests", "", "busy", "http", None),
    "overloaded, or paused": ("503 Service Unavailable", "{}", "busy", "http", None),
    "the engine died": ("500 Internal Server Error", error("EngineDeadError"), "failed", "http", None),
    "a proxy waited in vain": ("504 Gateway Timeout", "", "unanswered", "http", None),
    "a proxy did not reach it": ("502 Bad Gateway", "", "failed", "http", None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "body", "outcome", "of_call", "remedy"), ANSWERS.values(), ids=ANSWERS
)
async def test_an_answer(status, body, outcome, of_call, remedy):
    """Only silence is a sign of a hang; what an operator can mend comes with a remedy."""
    canary, call, problem = await answered(status, body)
    assert (canary.outcome, canary.ok, call.outcome) == (outcome, outcome == "ok", of_call)
    assert (problem is not None) == (remedy is not None)
    assert remedy is None or remedy in problem.remedy
    if body is NO_MODEL:  # in the server's own words
        assert canary.error == "HTTP 404: The model `x` does not exist."


async def test_silence_is_unanswered_and_hangs_up():
    """After the timeout the connection is closed, so that the server may drop the request."""
    gone = asyncio.Event()

    async def silence(request):
        await request.reader.read()
        gone.set()

    async with wire() as server:
        server.on("/v1/completions", silence)
        canary, call, _ = await ask(server.url)
        await asyncio.wait_for(gone.wait(), 10)
    assert (canary.outcome, canary.ok, call.outcome) == ("unanswered", False, "read_timeout")
    assert canary.latency_s >= 2.0


async def test_a_connection_that_breaks_or_never_comes_about_tells_nothing():
    """That is for /metrics to judge."""

    async def broken(request):
        request.reset()

    async with wire() as server:
        server.on("/v1/completions", broken)
        url = server.url
        assert (await ask(url)).canary.outcome == "failed"
    assert (await ask(url)).canary.outcome == "unreached"


async def test_what_is_sent():
    """One token, recognisable, of the model that is served, with nothing of anybody in it."""
    async with wire() as server:
        server.on("/v1/completions", TOKEN)
        await ask(server.url)
        await ask(server.url, model=None)
        await ask(server.url, named="served")
    bodies = [json.loads(request.body) for request in server.requests if request.body]
    assert bodies[0] == {
        "model": "example/model-8b", "prompt": "Hello", "max_tokens": 1, "temperature": 0,
        "ignore_eos": True, "stream": False,
    }  # fmt: skip
    assert "model" not in bodies[1]
    assert bodies[2]["model"] == "served"
    headers = posted(server).headers
    assert headers["x-request-id"].startswith("vllm-watch-canary-")
    assert "authorization" not in headers
    assert "x-data-parallel-rank" not in headers


async def test_the_key_is_read_anew_each_time(tmp_path):
    """It may be changed without a restart; without a readable one nothing is sent."""
    key = tmp_path / "key"
    key.write_text("s3cret\n")
    scrape = ScrapeSettings(api_key_file=key)
    async with wire() as server:
        server.on("/v1/completions", TOKEN)
        assert (await ask(server.url, scrape=scrape)).canary.ok
        assert posted(server).headers["authorization"] == "Bearer s3cret"
        key.unlink()
        refused = await ask(server.url, scrape=scrape)
    assert refused.canary.outcome == "refused"
    assert "s3cret" not in refused.problem.cause


async def test_a_server_with_chat_only_is_asked_by_chat():
    async with wire() as server:
        server.on("/v1/chat/completions", TOKEN)
        assert (await ask(server.url)).canary.ok


@pytest.mark.parametrize("switch", ["/is_sleeping", "/is_paused"])
async def test_what_sleeps_is_not_asked(switch):
    """It is looked at in the moment before: a request could wake or break it."""
    async with wire() as server:
        server.on(switch, json.dumps({switch[1:]: True}))
        server.on("/v1/completions", TOKEN)
        assert await ask(server.url) is None
        server.on(switch, json.dumps({switch[1:]: False}))
        assert (await ask(server.url)).canary.ok


async def test_of_several_engines_the_one_that_is_addressed_answers():
    vllm = SimulatedVllm("a", num_engines=2)
    live = Live(Scene([vllm]))
    (target,) = await live.start()
    try:
        vllm.fault("hang", engine=1)
        first, second = await ask(target.url, engine="0"), await ask(target.url, engine="1")
    finally:
        await live.stop()
    assert [(asked.canary.engine, asked.canary.outcome) for asked in (first, second)] == [
        ("0", "ok"),
        ("1", "unanswered"),
    ]
