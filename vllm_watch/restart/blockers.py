"""Ask Prometheus whether a query or an alert blocks a restart.

Without an answer, the restart is blocked. Source: kured's alert gate.
"""

import asyncio
import json
import re
from typing import Any

import aiohttp

from vllm_watch.clients import http_answer
from vllm_watch.restart.facts import Answer
from vllm_watch.settings.restart import BlockersSettings
from vllm_watch.support import json_text, regular_file

ANSWER_BYTES_MAX = 4 << 20  # a longer result also blocks
_TOKEN_BYTES_MAX = 8192
_NAMED = 3


async def ask(settings: BlockersSettings, session: aiohttp.ClientSession) -> tuple[Answer, ...]:
    """Return one answer per query and one for the alerts. Never raises."""
    questions = [_query(settings, session, query) for query in settings.queries]
    if settings.alerts:
        questions.append(_alerts(settings, session))
    return tuple(await asyncio.gather(*questions))


async def _query(settings: BlockersSettings, session: aiohttp.ClientSession, query: str) -> Answer:
    name = f"query {query!r}"
    try:
        data = await _get(settings, session, "query", {"query": query})
        result = data["result"]
        series = result if data["resultType"] != "scalar" else [{"metric": {}}]
        if not isinstance(series, list):
            raise TypeError("the result is not a list")
        labels = [json.dumps(each["metric"], sort_keys=True) for each in series]
    except _TROUBLE as error:
        return _no_answer(name, error)
    if not labels:
        return Answer(name=name, allows=True, text="returns nothing")
    return Answer(name=name, allows=False, text=f"returns {_some(labels)}")


async def _alerts(settings: BlockersSettings, session: aiohttp.ClientSession) -> Answer:
    name = f"alerts {settings.alerts!r}"
    try:
        data = await _get(settings, session, "alerts", {})
        pattern = re.compile(settings.alerts)
        firing = sorted(
            {
                alert["labels"]["alertname"]
                for alert in data["alerts"]
                if alert["state"] == "firing" and pattern.fullmatch(alert["labels"]["alertname"])
            }
        )
    except (*_TROUBLE, re.error) as error:
        return _no_answer(name, error)
    if not firing:
        return Answer(name=name, allows=True, text="none fires")
    return Answer(name=name, allows=False, text=f"{_some(firing)} fires")


async def _get(
    settings: BlockersSettings, session: aiohttp.ClientSession, what: str, query: dict[str, str]
) -> dict[str, Any]:
    url = f"{str(settings.prometheus_url).rstrip('/')}/api/v1/{what}"
    headers = {}
    if settings.token_file is not None:
        token = await asyncio.to_thread(
            regular_file.read, settings.token_file, _TOKEN_BYTES_MAX, if_exposed="warned"
        )
        headers["Authorization"] = f"Bearer {token.decode().strip()}"
    timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds)
    async with session.get(
        url, params=query, headers=headers, timeout=timeout, allow_redirects=False
    ) as response:
        body = await http_answer.body(response, ANSWER_BYTES_MAX)
    if response.status != 200:  # noqa: PLR2004
        raise ValueError(f"answers with HTTP {response.status}")
    document = json_text.read(body)
    if document["status"] != "success":
        raise ValueError("does not answer with success")
    if document.get("warnings"):
        # Thanos warns if a store did not answer. That store may hold a series that blocks.
        raise ValueError(f"answers in part: {document['warnings']}")
    data: dict[str, Any] = document["data"]
    return data


_TROUBLE = (
    aiohttp.ClientError,
    TimeoutError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)


def _no_answer(name: str, error: Exception) -> Answer:
    text = "timed out" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
    return Answer(name=name, allows=None, text=f"gave no usable answer ({text[:200]})")


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
