"""Waits for an event that end."""

import asyncio

from vllm_watch.support.waiting import happens


async def test_what_happens_in_time_and_what_does_not():
    """What has happened already needs no time."""
    event = asyncio.Event()
    assert not await happens(event, 0.01)
    asyncio.get_running_loop().call_soon(event.set)
    assert await happens(event, 60.0)
    assert await happens(event, 0.0)
