"""What answered in the place of vLLM, each as a real small server: page, `top`, log and `check-config --ask` say the same."""

import asyncio
import json
import os
import resource
import ssl
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import yaml

from tests.daemon_process import daemon
from tests.export.certificates import Authority
from tests.fake_vllm import BODY
from tests.ports import free_port
from tests.sources.wire import answering, wire
from vllm_watch.samples.observation import Call
from vllm_watch.samples.target import Target
from vllm_watch.settings.stages import ScrapeSettings
from vllm_watch.sources import http
from vllm_watch.sources.host_servers import Neighbours
from vllm_watch.sources.processes import ProcessListing
from vllm_watch.sources.vllm import VllmSource

PATIENCE_SECONDS = 60.0
CPU_SECONDS_MAX = 20  # most of it is the start of Python
SCALING_BODY = '{"error":"The model is currently scaling. Please try again later."}'  # vLLM 0.32's
HTML = "<!DOCTYPE html><html><head><title>Sign in</title></head><body></body></html>"


def only_with(key):
    async def handler(request):
        if request.headers.get("authorization") == f"Bearer {key}":
            await request.answer(BODY.read_text())
        else:
            await request.answer(status="401 Unauthorized")

    return handler


async def look(url, **settings):
    scrape = ScrapeSettings.model_validate({"timeout_seconds": 20, **settings})
    async with http.Session() as session:
        return (await VllmSource(Target(name="t", url=url), scrape, session).observe()).observation


async def command(*arguments):
    """(exit status, stdout, stderr)."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_watch", *map(str, arguments), stdout=-1, stderr=-1,
        env=os.environ | {"COLUMNS": ""},  # nothing is cut off in a pipe
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
    return process.returncode, out.decode(), err.decode()


ANSWERS = [
    (answering(status="401 Unauthorized"), "HTTP 401: API key required: put it in a file and set scrape.api_key_file"),
    (answering(status="403 Forbidden"), "HTTP 403: API key required"),
    (answering(status="302 Found", headers={"Location": "https://sso.example.org/login"}),
     "HTTP 302: it redirects to https://sso.example.org/login"),
    (answering(HTML, headers={"Content-Type": "text/html"}), "an HTML page titled 'Sign in' was sent, not metrics"),
    (answering(HTML), "an HTML page titled 'Sign in' was sent, not metrics"),
    (answering(status="404 Not Found"), "HTTP 404: nothing at /metrics"),
    (answering('{"error": "not ready"}', status="503 Service Unavailable"), "HTTP 503"),
    (answering('{"detail": "x"}\n'), "line 1"),
]  # fmt: skip
"""Wrong starts: a page that shows no engine shows the sentence."""

SCALES = answering(SCALING_BODY, status="503 Service Unavailable")
BODIES = [
    ("vllm_watch_build_info{version=\"1\"} 1\n", "vllm-watch, not of vLLM: give the URL"),
    ("go_goroutines 3\nprometheus_build_info{version=\"3\"} 1\n", "the metrics of Prometheus"),
    ("sglang:num_running_reqs 1\n", "the metrics of SGLang"),
    ("tgi_queue_size 1\n", "the metrics of Text Generation Inference"),
    ("llamacpp:requests_processing 1\n", "the metrics of llama.cpp"),
    ("nv_inference_count 1\n", "the metrics of Triton"),
]  # fmt: skip


@pytest.mark.parametrize(("handler", "sentence"), ANSWERS)
async def test_an_answer_that_is_no_metrics(handler, sentence):
    async with wire(metrics=handler) as server:
        seen = await look(server.url)
    assert seen.reading is None
    assert sentence in seen.scrape.error


async def test_read_says_the_same_and_exits_with_1():
    """Something did answer: that it scales, by vLLM's own word."""
    async with wire(metrics=SCALES) as server:
        seen = await look(server.url)
        status, out, _ = await command("read", server.url, "--json")
    assert (seen.reading, status, json.loads(out)["vllm"]) == (None, 1, False)
    for said in (seen.scrape.error, json.loads(out)["why_not"]):
        assert "HTTP 503: vLLM reports that it is scaling" in said


async def test_a_key_is_shown_to_who_asks_for_one(tmp_path):
    """Asked without first; a wrong key is said to be wrong."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("one\n")
    wrong.write_text("two\n")
    async with wire(metrics=only_with("one")) as server:
        assert (await look(server.url, api_key_file=right)).reading.vllm
        shown = [r.headers.get("authorization") for r in server.requests if r.path == "/metrics"]
        refused = await look(server.url, api_key_file=wrong)
        status, _, _ = await command("read", server.url, "--api-key-file", right)
    assert shown == [None, "Bearer one"]
    assert refused.scrape.error == "HTTP 401: the server refused the key in scrape.api_key_file"
    assert status == 0


SPEAKS_TLS = "the server speaks TLS, but its URL is plain HTTP: write https:// in its URL"
SPEAKS_PLAIN_HTTP = "the server speaks plain HTTP, but its URL is https: write http:// in its URL"


@asynccontextmanager
async def wrong_schemes(folder):
    """The URLs, each with the wrong scheme, of a server of TLS and of one of plain HTTP."""

    async def refuse(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*Authority(folder).signs("server").as_strings)
    secure = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=context)
    plain = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with secure, plain:
        ports = [each.sockets[0].getsockname()[1] for each in (secure, plain)]
        yield f"http://127.0.0.1:{ports[0]}", f"https://127.0.0.1:{ports[1]}"


async def test_a_url_with_the_wrong_scheme(tmp_path):
    """A server of TLS ends the connection without a word; OpenSSL's words for the other help nobody. No engine is down."""
    async with wrong_schemes(tmp_path) as urls:
        for url, sentence in zip(urls, (SPEAKS_TLS, SPEAKS_PLAIN_HTTP), strict=True):
            seen = await look(url)
            assert (seen.scrape.outcome, seen.scrape.error) == ("tls", sentence)
        status, _, err = await command("read", urls[0])
    assert status == 2
    assert "write https:// in its URL" in err


async def test_where_processes_are_not_seen_none_is_missed(tmp_path):
    """Another target of this host answers, and its process is not seen either: the watcher is in a container."""
    beside, call = Neighbours(ProcessListing(tmp_path), tmp_path), Call(outcome="refused", error="refused")  # fmt: skip
    this, other, none = "http://127.0.0.1:1", "http://127.0.0.1:2", "no vLLM API server is seen"
    for _ in range(2):
        assert none in (await beside.explain(call, this)).error
        beside.answered(this)
    beside.answered(other)
    assert await beside.explain(call, this) == call
    await beside.explain(call, other)  # it has gone, too: no witness any more
    assert none in (await beside.explain(call, this)).error


@pytest.mark.parametrize("filler", [" ", "<title", "<title>", "<title> "])
def test_no_page_keeps_us_busy(filler):
    """64 KB of blanks after <title> took a quarter of an hour; here the CPU time is bounded from outside."""
    program = f"""
from vllm_watch.sources.what_answered import page
print(page("text/html", b"<html><title>" + {filler!r}.encode() * 65536))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX)),
    )  # fmt: skip
    assert done.stdout.startswith("an HTML page"), done


@asynccontextmanager
async def wrong_starts(folder):
    """Name → (URL, what is to be said of it)."""
    found = {}
    async with AsyncExitStack() as servers:
        for number, (handler, sentence) in enumerate([*ANSWERS, *BODIES]):
            server = await servers.enter_async_context(wire(metrics=handler))
            found[f"answer-{number}"] = (server.url, sentence)
        secure, plain = await servers.enter_async_context(wrong_schemes(folder))
        found |= {"secure": (secure, SPEAKS_TLS), "plain": (plain, SPEAKS_PLAIN_HTTP)}
        found["nobody"] = (
            f"http://127.0.0.1:{free_port()}",
            "no vLLM API server is seen on this host",
        )
        found["no-name"] = ("http://no-such-host.invalid:8000", "the host name does not resolve")
        yield found


async def test_every_wrong_start_gets_its_sentence_wherever_people_look(tmp_path):
    """A watcher that found something else than vLLM says what it is, and what to change."""
    proc = tmp_path / "proc"
    proc.mkdir()
    file = tmp_path / "watch.yaml"
    async with wrong_starts(tmp_path) as wrong:
        targets = [{"name": name, "url": url} for name, (url, _) in wrong.items()]
        file.write_text(yaml.safe_dump({"targets": targets, "procfs": str(proc)}))
        asked = await command("check-config", file, "--ask")
        async with daemon("--config", file) as process:
            status = await process.until(
                lambda status: all(each["signals"] for each in status["targets"]), PATIENCE_SECONDS
            )
            top = await command("top", "--once", "--url", process.url)
    page = {each["name"]: each["signals"]["state_text"] for each in status["targets"]}
    logged = {each["target"]: json.dumps(each) for each in process.lines if "because" in each}
    for name, (_, sentence) in wrong.items():
        assert sentence in page[name]
        assert sentence in top[1], name
        assert json.dumps(sentence)[1:-1] in logged[name]
        (line,) = (each for each in asked[2].splitlines() if each.startswith(f"{name}: "))
        assert sentence in line
    assert asked[0] == 1


@pytest.mark.parametrize("arguments", [("run", "--target"), ("read",)])
async def test_the_address_of_the_openai_api_is_refused(arguments):
    """/v1 too much is said before anything is asked, in the same words."""
    status, _, err = await command(*arguments, "http://127.0.0.1:8000/v1")
    assert status == 2
    assert "leave /v1 out" in err
