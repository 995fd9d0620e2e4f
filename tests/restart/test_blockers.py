"""Blockers against a real Prometheus, and against servers that fail in every way: all those block."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from tests.dashboards.prometheus import wait_for
from tests.ports import free_port
from vllm_watch.restart import backends
from vllm_watch.settings.restart import BlockersSettings

CONFIG = "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\n"
RULES = """\
groups:
  - name: test
    interval: 1s
    rules:
      - {alert: NodeDown, expr: vector(1)}
      - {alert: NodeSlow, expr: vector(1), for: 1h}
"""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """A real Prometheus in which NodeDown fires and NodeSlow is pending."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "prometheus.yaml").write_text(CONFIG)
    (folder / "rules.yaml").write_text(RULES)
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        ["prometheus", f"--config.file={folder / 'prometheus.yaml'}", "--log.level=error",
         f"--web.listen-address={url.removeprefix('http://')}", f"--storage.tsdb.path={folder / 'data'}"],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(f"{url}/-/ready", process, 30)
        for _ in range(200):
            answer = asked(BlockersSettings(prometheus_url=url, alerts="NodeDown"))[0]
            if answer.allows is False:
                break
            subprocess.run(["sleep", "0.1"], check=True)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def asked(settings):
    async def ask():
        async with aiohttp.ClientSession() as session:
            return await backends.ask(settings, session)

    return asyncio.run(ask())


QUESTIONS = {
    "a query that returns nothing": ({"queries": ["absent(up) * 0 > 1"]}, True, "returns nothing"),
    "... something": (
        {"queries": ['label_replace(vector(1), "node", "n1", "", "")']}, False, 'returns {"node": "n1"}'),
    "... a scalar": ({"queries": ["1"]}, False, "returns {}"),
    "... that cannot be read": ({"queries": ["sum("]}, None, "HTTP 400"),
    "an alert that fires": ({"alerts": "NodeDown"}, False, "NodeDown fires"),
    "... that is pending": ({"alerts": "NodeSlow"}, True, "none fires"),
    "a part of its name": ({"alerts": "Node"}, True, "none fires"),
    "any": ({"alerts": "Node.*"}, False, "NodeDown fires"),
    "no regular expression": ({"alerts": "("}, None, "gave no usable answer"),
}  # fmt: skip


@pytest.mark.parametrize(("asks", "free", "words"), QUESTIONS.values(), ids=QUESTIONS)
def test_question(prometheus, asks, free, words):
    """Whatever a query returns blocks, and an alert that fires whose whole name matches; what cannot be read was not answered."""
    settings = BlockersSettings.model_validate({"prometheus_url": prometheus, **asks})
    (answer,) = asked(settings)
    assert (answer.allows, words in answer.text) == (free, True), answer


async def _silent(request):
    await asyncio.sleep(60)
    raise AssertionError("the client has gone")


async def _endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"[" * 65536)


def _says(body, status=200):
    async def handler(request):
        headers = {"Location": "/api/v1/other"} if status == 302 else None
        return web.Response(text=body, status=status, headers=headers)

    return handler


BAD = {
    "silent": (_silent, "timed out"),
    "endless": (_endless, "more than 4,194,304 bytes"),
    "redirect": (_says("", 302), "HTTP 302"),
    "not JSON": (_says("<html>"), "JSONDecodeError"),
    "not an object": (_says("[1]"), "TypeError"),
    "another API": (_says('{"ok": true}'), "KeyError"),
    "no success": (_says('{"status": "error"}'), "does not answer with success"),
    "a partial response": (
        _says('{"status": "success", "warnings": ["store-1 is away"], "data": {"resultType": "vector", "result": []}}'),
        "answers in part: ['store-1 is away']"),
    "odd result": (
        _says('{"status": "success", "data": {"resultType": "vector", "result": "x"}}'), "not a list"),
}  # fmt: skip


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def told_by(handler, **asks):
    """What is made of the answers of a server like that."""
    app = web.Application()
    app.router.add_get("/api/v1/{what}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        settings = BlockersSettings(prometheus_url=url, timeout_seconds=1, **asks)
        async with aiohttp.ClientSession() as session:
            return await backends.ask(settings, session)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(("handler", "words"), BAD.values(), ids=BAD)
async def test_bad_answer_is_no_answer(handler, words):
    """An error, a lie and silence all leave it unknown, within the timeout."""
    answers = await told_by(handler, queries=("up",), alerts="x")
    assert [answer.allows for answer in answers] == [None, None]
    assert words in answers[0].text


async def test_token_is_sent_and_never_told(tmp_path):
    """The bearer token comes from its file at each question; without the file nothing is asked."""
    token, seen = tmp_path / "token", []
    token.write_text("s3cret\n")

    async def handler(request):
        seen.append(request.headers["Authorization"])
        return web.Response(status=403)

    answers = [*await told_by(handler, queries=("up",), token_file=token)]
    token.unlink()
    answers += await told_by(handler, queries=("up",), token_file=token)
    assert seen == ["Bearer s3cret"]
    assert [answer.allows for answer in answers] == [None, None]
    assert "s3cret" not in str(answers)
