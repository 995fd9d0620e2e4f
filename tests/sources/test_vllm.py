"""One server asked over real sockets: what an Observation holds, and what is asked when."""

import asyncio
import json
import threading
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.sources.wire import answering, wire
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.reading import Reader
from vllm_watch.sources.vllm import VllmSource
from vllm_watch.support.redaction import HIDDEN, redact_always
from vllm_watch.support.threads import compute

CAPTURES = Path(__file__).parent / "captures"
BODY = (CAPTURES / "0.33.0-v1.txt").read_text()
VERSION = json.dumps({"version": "0.33.0"})
MODELS = json.dumps(
    {"data": [{"id": "example/model-8b", "max_model_len": 8192}, {"id": "sql-lora", "parent": "x"}]}
)


async def look(server, times=1, **settings):
    """The last of `times` looks at a server."""
    async with looking(server, **settings) as source:
        for _ in range(times):
            result = await source.observe()
    return result


@asynccontextmanager
async def looking(server, **settings):
    """What looks at a server."""
    scrape = ScrapeSettings(**{"interval_seconds": 1.0, "health_interval_seconds": 0.1} | settings)
    async with http.Session() as session:
        yield VllmSource(Target(name="t", url=server.url), scrape, session)


def asked(server, path):
    return [request for request in server.requests if request.path == path]


async def test_a_look_brings_all_that_is_known_of_a_server():
    """Metrics, health, version, models and the longest context, with how each call ended."""
    async with wire(metrics=BODY, health="", version=VERSION) as server:
        server.on("/v1/models", MODELS)
        result = await look(server)

    seen = result.observation
    assert (seen.scrape.outcome, seen.health.status, seen.target) == ("ok", 200, "t")
    assert result.body == BODY
    assert seen.reading.engines[0].requests_running == 18.0
    known = seen.reading.server
    assert (known.version, known.models, known.max_model_len) == (
        "0.33.0",
        ("example/model-8b", "sql-lora"),
        8192,
    )
    assert [source for source, _ in result.calls] == ["metrics", "health", "version", "models"]


async def test_an_openmetrics_answer_is_read_as_such():
    """A front end that only speaks OpenMetrics is understood by its content type."""
    body = (CAPTURES / "0.8.2-v1-openmetrics.txt").read_text()
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    async with wire(metrics=answering(body, headers={"Content-Type": kind})) as server:
        reading = (await look(server)).observation.reading
    assert reading.engines[0].generation_tokens == 28944.0


async def test_version_and_models_are_asked_again_only_when_the_server_is_new():
    """Once at first, and once more when its process began anew."""
    bodies = [BODY] * 3 + [BODY.replace("1.79523333263e+09", "1.79523399999e+09")] * 2

    async def metrics(request):
        await request.answer(bodies.pop(0))

    async with wire(metrics=metrics, version=VERSION) as server:
        server.on("/v1/models", MODELS)
        async with looking(server) as source:
            counts = []
            for _ in range(5):
                result = await source.observe()
                counts.append(len(asked(server, "/version")))
    assert "process_start_time_seconds 1.79523333263e+09" in BODY
    assert counts == [1, 1, 1, 2, 2]
    assert result.observation.reading.server.version == "0.33.0"  # known in between, too


async def test_the_key_goes_to_the_guarded_path_and_nowhere_else(tmp_path):
    """vLLM guards /v1 only; the key is read from its file and sent to nothing else."""
    key = tmp_path / "key"
    key.write_text("sekret\n")
    async with wire(metrics=BODY, health="", version=VERSION) as server:
        server.on("/v1/models", MODELS)
        await look(server, api_key_file=key)
        with_key = [
            r.path for r in server.requests if "sekret" in r.headers.get("authorization", "")
        ]
    assert with_key == ["/v1/models"]


async def test_a_missing_key_leaves_the_models_unknown():
    """A 401 for the models is no reason to call the server unwell."""
    async with wire(metrics=BODY, version=VERSION) as server:
        server.on("/v1/models", answering(status="401 Unauthorized"))
        result = await look(server)
    assert result.observation.scrape.outcome == "ok"
    assert result.observation.reading.server.models is None
    assert dict(result.calls)["models"].status == 401


async def test_sleep_and_pause_are_asked_where_the_server_has_them():
    """In development mode the switches are asked with each health check; elsewhere once."""
    switches = {"is_sleeping": '{"is_sleeping": false}', "is_paused": '{"is_paused": true}'}
    async with wire(metrics=BODY, health="", version=VERSION, **switches) as server:
        async with looking(server) as source:
            await source.observe()
            source._next_health_s = 0.0
            known = (await source.observe()).observation.reading.server
        assert len(asked(server, "/is_paused")) == 2
    assert (known.sleeping, known.paused) == (False, True)

    async with wire(metrics=BODY, health="", version=VERSION) as server:
        async with looking(server) as source:
            await source.observe()
            source._next_health_s = 0.0
            await source.observe()
        assert len(asked(server, "/is_paused")) == 1


IDLE = BODY.replace("num_requests_running{", "num_requests_idle{")


@pytest.mark.parametrize(("body", "times"), [(BODY, 2), (IDLE, 1)])
async def test_an_engine_that_stands_still_is_asked_at_once_whether_it_is_paused(body, times):
    """However rarely its health is asked: a pause must not be taken for a hang."""
    async with wire(
        metrics=body, health="", version=VERSION, is_paused='{"is_paused": true}'
    ) as server:
        await look(server, times=2, health_interval_seconds=600.0)
        assert len(asked(server, "/is_paused")) == times


async def test_a_switch_that_fails_once_is_asked_again():
    """Only a server that does not have it is not."""
    statuses = ["503 Service Unavailable", "200 OK"]

    async def paused(request):
        await request.answer('{"is_paused": true}', status=statuses.pop(0))

    async with wire(metrics=BODY, health="", version=VERSION, is_paused=paused) as server:
        assert (await look(server, times=2)).observation.reading.server.paused is True


@pytest.mark.parametrize(("seconds", "paused"), [(50.0, True), (70.0, None)])
async def test_a_switch_that_no_longer_answers_is_unknown_after_a_minute(
    seconds, paused, monkeypatch
):
    """A core that hung while it woke up must not count as paused for ever."""
    async with (
        wire(metrics=BODY, health="", version=VERSION, is_paused='{"is_paused": true}') as server,
        looking(server, health_interval_seconds=600.0) as source,
    ):
        await source.observe()
        server.on("/is_paused", "no JSON")
        clock = time.monotonic
        # However long ago it answered, the minute begins with the first failure.
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 400.0)
        assert (await source.observe()).observation.reading.server.paused is True
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 400.0 + seconds)
        known = (await source.observe()).observation.reading.server
        assert known.paused is paused
        assert len(asked(server, "/is_paused")) == 3


@pytest.mark.parametrize(
    ("status", "recovering"),
    [
        ({"status": "unhealthy", "fault_info": "TimeoutError"}, "TimeoutError of engine 0"),
        ({"status": "unhealthy", "fault_info": "\x1b[2J\ud800"}, r"\x1b[2J\ud800 of engine 0"),
        ({"status": "healthy"}, None),
        ({"status": "dead"}, None),
    ],
)
async def test_a_fault_that_vllm_waits_to_be_recovered_from(status, recovering):
    """As vLLM 0.32 answers with --enable-fault-tolerance; what is dead is beyond it."""
    said = json.dumps({"schema_version": 1, "total_engines": 1, "engines": [{"id": 0} | status]})
    routes = {"fault_tolerance/status": said}
    async with wire(metrics=BODY, health="", **routes) as server, looking(server) as source:
        known = (await source.observe()).observation.reading.server
        assert known.recovering == recovering
        server.on("/fault_tolerance/status", "no JSON")
        source._next_health_s = 0.0
        known = (await source.observe()).observation.reading.server
        assert known.recovering is None


async def test_only_get_is_ever_sent():
    """Some of vLLM's paths change the engine when they are posted to."""
    async with wire(metrics=BODY, health="", version=VERSION) as server:
        await look(server)
        sent = {(request.method, request.path) for request in server.requests}
        headers = asked(server, "/metrics")[0].headers
    paths = "/metrics /health /version /v1/models /is_sleeping /is_paused /fault_tolerance/status"
    assert sent == {("GET", path) for path in paths.split()}
    # A mere mention of OpenMetrics would bring it from vLLM up to 0.8.4; on loopback packing only costs the engine.
    assert headers["accept"] == "text/plain;version=0.0.4"
    assert headers["accept-encoding"] == "identity"


async def test_an_old_servers_redirect_is_followed_once():
    """From the second look on, the new place is asked directly; after an upgrade the configured one again."""
    there = answering(status="307 Temporary Redirect", headers={"Location": "/metrics/"})
    async with wire(metrics=there) as server:
        server.on("/metrics/", BODY)
        async with looking(server) as source:
            assert (await source.observe()).observation.scrape.outcome == "ok"
            assert (await source.observe()).observation.scrape.outcome == "ok"
            assert len(asked(server, "/metrics")) == 1
            server.on("/metrics", BODY)
            del server.routes["/metrics/"]
            outcomes = [(await source.observe()).observation.scrape.outcome for _ in range(2)]
    assert outcomes == ["http", "ok"]


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        ("<html><body>login</body></html>\n", "text/html", "an HTML page was sent, not metrics"),
        (BODY[:-20], "text/plain", "the body ends in the middle of a line"),
        (BODY + "broken{ 1\n", "text/plain", "is not the Prometheus text format"),
        (b"caf\xe9 1\n", "text/plain", "byte 3 of the body is not UTF-8"),
    ],
)
async def test_a_body_that_cannot_be_read_is_garbled_and_says_how(body, content_type, words):
    """The scrape's outcome is garbled, nothing was read, and no body is kept as if it were one."""
    async with wire(metrics=answering(body, headers={"Content-Type": content_type})) as server:
        result = await look(server)
    assert result.observation.scrape.outcome == "garbled"
    assert words in result.observation.scrape.error
    assert result.observation.reading is None
    assert result.body is None


@pytest.mark.parametrize(
    "answer", ["[]", '"x"', "{}", "not json", '{"data": 5}', '{"data": [1]}', "[" * 100_000]
)
async def test_nonsense_from_the_small_endpoints_harms_nothing(answer):
    """/version and /v1/models may say anything; the metrics are read all the same."""
    async with wire(metrics=BODY, version=answer, is_paused=answer) as server:
        server.on("/v1/models", answer)
        result = await look(server)
    assert result.observation.scrape.outcome == "ok"
    assert result.observation.reading.server.version is None
    assert dict(result.calls)["version"].outcome == "garbled"


async def test_a_hanging_health_does_not_lose_the_metrics():
    """The two are asked at the same time; each ends by itself."""

    async def silence(request):
        await request.reader.read()

    async with wire(metrics=BODY, health=silence) as server:
        seen = (await look(server, timeout_seconds=2.0)).observation
    assert seen.scrape.outcome == "ok"
    assert seen.health.outcome == "read_timeout"


async def test_time_is_not_that_at_which_its_turn_came():
    """Of several answers that come at once, each is as old as it is, however long the others are worked on."""

    async def observe(source):
        await source._metrics()
        unix_s, monotonic_s = source._arrived
        waited_s = time.time() - unix_s, time.monotonic() - monotonic_s
        time.sleep(0.2)
        return waited_s

    async with wire(metrics=BODY) as server, looking(server) as source:
        others = [VllmSource(source.target, ScrapeSettings(), source._session) for _ in range(3)]
        waited = await asyncio.gather(*map(observe, [source, *others]))
    # Whichever was last has waited for three others.
    assert max(unix_s for unix_s, _ in waited) >= 0.15
    assert max(monotonic_s for _, monotonic_s in waited) >= 0.15


@pytest.mark.parametrize(
    ("body", "beside"),
    [
        (BODY, False),
        (BODY + "# a comment\n" * 5000, True),
        (BODY + "".join(f'vllm:x{{a="{i:0100}"}} 1\n' for i in range(1000)), True),
    ],
    ids=["a usual body", "many lines", "many bytes"],
)
async def test_a_large_body_is_read_beside_the_event_loop(body, beside, monkeypatch):
    """Its series may be new at each look, and to learn them takes up to a quarter of a second."""
    threads = []
    read = Reader.read

    def watched(*args, **more):
        threads.append(threading.get_ident())
        return read(*args, **more)

    monkeypatch.setattr(Reader, "read", watched)
    async with wire(metrics=body) as server:
        result = await look(server)
    assert result.observation.reading is not None
    assert (threads != [threading.get_ident()]) is beside


async def test_what_computes_beside_the_loop_leaves_it_free_and_comes_one_by_one():
    """Four engines that send all they may would otherwise leave the loop one turn of five."""
    begun, go_on = [], threading.Event()

    def work(name):
        begun.append(name)
        assert go_on.wait(30)
        return name

    tasks = [asyncio.create_task(compute(partial(work, name))) for name in range(4)]
    while not begun:
        await asyncio.sleep(0.01)
    assert len(begun) == 1
    go_on.set()  # by the loop, which runs meanwhile
    assert await asyncio.gather(*tasks) == [0, 1, 2, 3]
    with pytest.raises(ZeroDivisionError):
        await compute(lambda: 1 / 0)


async def test_an_engine_cannot_show_our_key_as_a_name():
    """It knows the key that it is asked with, and could call a model so."""
    key = "Kq0123456789Zw"
    redact_always(key)
    body = 'vllm:num_requests_running{engine="0",model_name="m ' + key + '"} 1\n'
    async with wire(metrics=body, version='{"version": "' + key + '"}') as server:
        server.on("/v1/models", '{"data": [{"id": "m ' + key + '"}]}')
        reading = (await look(server)).observation.reading
    assert (reading.server.version, reading.server.models) == (HIDDEN, (f"m {HIDDEN}",))
    assert reading.engines[0].model_name == f"m {HIDDEN}"


@pytest.mark.parametrize("length", ["1e999", "-1e999", "NaN", "1" + "0" * 4000, "1" + "0" * 5000])
async def test_a_length_that_no_model_has_is_unknown(length):
    """Neither an error nor a number that nobody can print."""
    async with wire(metrics=BODY, version=VERSION) as server:
        server.on("/v1/models", f'{{"data": [{{"id": "m", "max_model_len": {length}}}]}}')
        seen = (await look(server)).observation
    assert seen.reading.server.max_model_len is None
    assert seen.reading.server.version == "0.33.0"
