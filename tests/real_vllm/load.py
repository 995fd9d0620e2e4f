"""Requests with lengths we choose, sent to a real vLLM, and what came of them as the client saw it.

Closed loop: each client sends its next request when it has the answer to its last. Open loop: requests
arrive at a rate, whatever the server does, as users do. Both end by count or by time.

By hand: `python -m tests.real_vllm.load URL` keeps four clients busy for ten minutes.
"""

import asyncio
import contextlib
import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp

from tests.real_vllm.model import VOCAB_SIZE
from tests.real_vllm.server import MODEL_NAME

REQUEST_SECONDS_MAX = 120.0  # a stopped engine must not hold a client for ever
STOP_SECONDS_MAX = 10.0  # to abandon what is in flight
PAUSE_AFTER_FAILURE_SECONDS = (
    0.2  # a refused connection fails at once: a client must not spin on it
)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to ask: either `clients` (closed loop) or `requests_per_second` (open loop, Poisson)."""

    clients: int = 0
    requests_per_second: float = 0.0
    prompt_tokens: tuple[int, int] = (16, 64)  # least and most, drawn evenly
    output_tokens: tuple[int, int] = (16, 64)
    shared_prefix_tokens: int = (
        0  # the first so many are the same in each prompt: prefix cache hits
    )
    in_flight_max: int = 200  # an open loop against a hung engine must end somewhere
    requests_max: int = 10_000
    seconds_max: float = 600.0
    seed: int = 0


@dataclass
class Report:
    """What the client saw. Counts only grow; `sent` is `finished` + `failed` + what is in flight."""

    sent: int = 0
    finished: int = 0
    failed: int = 0
    prompt_tokens: int = 0  # of finished requests, as the server's `usage` says
    output_tokens: int = 0
    latencies_seconds: list[float] = field(
        default_factory=list
    )  # of finished requests, request to last byte


@dataclass(frozen=True)
class _Request:
    prompt: list[int]
    output_tokens: int


def _requests(load: Load) -> Iterator[_Request]:
    """The same requests for the same `seed`; token IDs below 10 are special to the tokenizer."""
    draw = random.Random(load.seed)
    prefix = [draw.randrange(10, VOCAB_SIZE) for _ in range(load.shared_prefix_tokens)]
    for _ in range(load.requests_max):
        rest = draw.randint(*load.prompt_tokens) - len(prefix)
        prompt = prefix + [draw.randrange(10, VOCAB_SIZE) for _ in range(rest)]
        yield _Request(prompt, draw.randint(*load.output_tokens))


class _Sender:
    def __init__(self, url: str, session: aiohttp.ClientSession, report: Report) -> None:
        self._url = f"{url}/v1/completions"
        self._session = session
        self._report = report

    async def send(self, request: _Request) -> None:
        """One completion of exactly the length asked; a failure is counted and slept off."""
        body = {
            "model": MODEL_NAME,
            "prompt": request.prompt,
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
        }
        self._report.sent += 1
        began = time.monotonic()
        try:
            async with self._session.post(self._url, json=body) as answer:
                answer.raise_for_status()
                usage = (await answer.json())["usage"]
        except (aiohttp.ClientError, TimeoutError):
            self._report.failed += 1
            await asyncio.sleep(PAUSE_AFTER_FAILURE_SECONDS)
            return
        self._report.finished += 1
        self._report.prompt_tokens += usage["prompt_tokens"]
        self._report.output_tokens += usage["completion_tokens"]
        self._report.latencies_seconds.append(time.monotonic() - began)


async def run_load(url: str, load: Load, report: Report) -> None:
    """Send until `requests_max` or `seconds_max` ends it, then wait for what is in flight."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS_MAX)
    connector = aiohttp.TCPConnector(limit=load.in_flight_max)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        sender = _Sender(url, session, report)
        await (_closed_loop if load.clients else _open_loop)(sender, load)


async def _closed_loop(sender: _Sender, load: Load) -> None:
    requests = _requests(load)  # shared: each is sent once, by whichever client is free
    ends = time.monotonic() + load.seconds_max

    async def client() -> None:
        for request in requests:
            if time.monotonic() > ends:
                return
            await sender.send(request)

    async with asyncio.TaskGroup() as clients:
        for _ in range(load.clients):
            clients.create_task(client())


async def _open_loop(sender: _Sender, load: Load) -> None:
    arrivals = random.Random(load.seed)
    due = time.monotonic()
    ends = due + load.seconds_max
    in_flight = asyncio.Semaphore(load.in_flight_max)

    async def send(request: _Request) -> None:
        try:
            await sender.send(request)
        finally:
            in_flight.release()

    async with asyncio.TaskGroup() as sends:
        for request in _requests(load):
            due += arrivals.expovariate(load.requests_per_second)
            if due > ends:
                return
            await asyncio.sleep(due - time.monotonic())
            await in_flight.acquire()
            sends.create_task(send(request))


@contextlib.contextmanager
def under_load(url: str, load: Load) -> Iterator[Report]:
    """Load for the length of the block; its end abandons what is in flight, as users close a page.

    It runs in a thread of its own: an engine whose clients wait for a test is an idle engine.
    """
    report = Report()
    loop = asyncio.new_event_loop()
    task = loop.create_task(run_load(url, load, report))

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, name="load", daemon=True)
    thread.start()
    try:
        yield report
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(STOP_SECONDS_MAX)
        loop.close()


if __name__ == "__main__":
    total = Report()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run_load(sys.argv[1], Load(clients=4), total))
    mean = sum(total.latencies_seconds) / max(total.finished, 1)
    print(
        f"{total.finished} of {total.sent} requests finished, {total.failed} failed, "
        f"{total.output_tokens} tokens, {mean:.3f} s a request"
    )
