"""Wait for an event for a limited time."""

import asyncio
import contextlib


async def happens(event: asyncio.Event, seconds: float | None) -> bool:
    """Return True if the event is set within `seconds` (None: no limit)."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False
