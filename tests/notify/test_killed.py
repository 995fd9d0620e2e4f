"""kill -9 between any two steps: everything is told at least once, at most twice, and then by the same key."""

import asyncio
import sys
from collections import Counter

import pytest

from tests.daemon_process import ROOT
from tests.notify.telling import receiver

STEPS = 14
"""Two messages: a look, a flush before, one when it is begun, the sending, one when it was taken."""


async def run(url, folder, last):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.notify.killed", url, folder, str(last), cwd=ROOT
    )
    return await asyncio.wait_for(process.wait(), 60)


@pytest.mark.parametrize("last", range(STEPS))
async def test_killed_at(tmp_path, last):
    """The next run tells what was not told; the one after it nothing."""
    async with receiver() as it:
        assert await run(it.url, tmp_path, last) == -9
        assert await run(it.url, tmp_path, -1) == 0
        sent = len(it.got)
        assert await run(it.url, tmp_path, -1) == 0
        assert len(it.got) == sent  # all of it was told
        times = Counter(name for each in it.got for name in each["ids"])
        assert set(times) == {"stall-a", "b"}
        assert max(times.values()) <= 2
        assert sent <= 3
        keys = {}
        for each in it.got:
            keys.setdefault(tuple(each["ids"]), set()).add(each["key"])
        assert all(len(each) == 1 for each in keys.values())
