"""Judge servers as the daemon does, but by their metrics in Prometheus."""

import asyncio
import json
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from vllm_watch import config as configuration
from vllm_watch.cli.helpers.history import page, text
from vllm_watch.cli.helpers.history.judged import Judged, compared
from vllm_watch.cli.helpers.progress import Progress
from vllm_watch.errors import WatchError
from vllm_watch.incidents.incident import IncidentEvent, published
from vllm_watch.sources.prometheus_history import GONE_SECONDS, History, StoredTarget
from vllm_watch.support.visible import visible_lines
from vllm_watch.watch.watch import Watch

_TOLD_EVERY = 200  # scrapes per progress update


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The arguments. Times are in Unix seconds."""

    url: str
    since_t: float
    until_t: float
    match: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext | bool
    config_file: Path | None
    as_json: bool
    report: Path | None


def judge(order: Order) -> None:
    """Judge and print. Raises WatchError."""
    config = configuration.load(order.config_file, environ=os.environ)
    asyncio.run(_judge(order, config))


async def _judge(order: Order, config: configuration.Config) -> None:
    progress = Progress()
    async with aiohttp.ClientSession() as session:
        history = History(order.url, session, order.headers, order.tls)
        targets = await history.targets(order.match, order.since_t, order.until_t)
        if not targets:
            raise WatchError(f"{order.url} has stored nothing of vLLM's in that time", "check --since and --match, and that it scrapes vLLM's /metrics")  # fmt: skip
        judged = []
        for number, target in enumerate(targets):

            def tell(t: float, number: int = number, target: StoredTarget = target) -> None:
                share = (number + (t - order.since_t) / max(1.0, order.until_t - order.since_t)) / len(targets)  # fmt: skip
                progress.tell(f"{share:4.0%}  {target.name}, up to {text.clock(t)}")

            judged.append(await _of_target(history, target, order, config, tell))
        firings = await history.firing(order.since_t, order.until_t)
        watched = await history.watched(order.since_t, order.until_t)
    progress.close()
    found = compared(judged, firings, watched)
    if order.report is not None:
        said = page.page(judged, found, order.url, order.since_t, order.until_t)
        try:
            await asyncio.to_thread(order.report.write_text, said)
        except OSError as error:
            raise WatchError(f"{order.report} cannot be written: {error.strerror}", "name a file in a folder that can be written") from None  # fmt: skip
    if order.as_json:
        return
    lines = [text.summary(judged, found, order.until_t - order.since_t), ""]
    for each in found.found:
        lines += text.incident(each)
    if found.needless:
        lines += ["", "alerts at healthy times:"]
        lines += [f"  {text.clock(each.begin_t)}  {each.name}, {text.duration(each.end_t - each.begin_t)}" for each in found.needless]  # fmt: skip
    lines += ["", "cannot be seen there:", *(f"  {each}" for each in text.blind_spots(judged))]
    print(visible_lines("\n".join(lines)))


async def _of_target(
    history: History, target: StoredTarget, order: Order, config: configuration.Config, tell: Callable[[float], None]
) -> Judged:  # fmt: skip
    watch = Watch(target.name, config.signals, config.slo, thresholds=config.detectors)
    judged = Judged(target)
    async for observation in history.observations(target, order.since_t, order.until_t):
        if not judged.looks % _TOLD_EVERY:
            tell(observation.t)
        events = watch.observe(observation)
        judged.add(observation, events)
        _print(events, order)
    if judged.last_t is not None and judged.last_t < order.until_t - GONE_SECONDS:
        # The server disappeared, or is no longer scraped.
        events = watch.close(judged.last_t)
        judged.learn(events)
        _print(events, order)
    return judged


def _print(events: list[IncidentEvent], order: Order) -> None:
    if order.as_json:
        for event in events:
            print(json.dumps(published(event)))
