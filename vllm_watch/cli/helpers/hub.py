"""Fetch small files from the Hugging Face Hub."""

import asyncio

import aiohttp

from vllm_watch.clients import http_answer
from vllm_watch.errors import WatchError

SECONDS = 10.0
"""Timeout for all files together."""


async def fetch(urls: list[str], bytes_max: int) -> list[bytes | WatchError]:
    """Return the content of each URL, or an error."""
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=True) as session:
        return await asyncio.gather(*(_fetched(session, url, bytes_max) for url in urls))


async def _fetched(session: aiohttp.ClientSession, url: str, bytes_max: int) -> bytes | WatchError:
    if not url.startswith(("https://", "http://")):
        cause = f"HF_ENDPOINT: {url} is not a web address"
        return WatchError(cause, "leave it out, or write https://HOST")
    try:
        async with session.get(url) as answer:
            if answer.ok:
                return await http_answer.body(answer, bytes_max)
            remedy = "check the name; for a gated model, give a local copy of its config.json"
            return WatchError(f"{url} answers {answer.status}", remedy)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        timed_out = isinstance(error, TimeoutError)
        why = f"incomplete after {SECONDS:g} s" if timed_out else str(error)
        remedy = "give the model's folder or its config.json instead"
        return WatchError(f"{url} cannot be reached: {why}", remedy)
