"""What a real engine says of itself at a moment, read past the daemon: is it really in that state?

A test that waits for a verdict must know first that there is something to find, or a load that was too
light for the machine at hand would look like a detector that is blind.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.real_vllm.by_hand import parse

READ_SECONDS_MAX = 10.0  # a thousand waiting clients make an API server late


@dataclass(frozen=True, kw_only=True)
class Moment:
    """One /metrics body, in the numbers that tell one fault from another. Counts are since the start."""

    at_s: float  # monotonic
    running: float
    waiting: float
    kv_usage: float  # ratio
    generated: float  # tokens
    steps: float
    preempted: float


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What was done between two moments, per second; and how it stood at their end."""

    generated: float
    steps: float
    preempted: float
    last: Moment


def moment(url: str) -> Moment:
    """Read it now.

    Raises:
        OSError: it does not answer.
    """
    with urllib.request.urlopen(f"{url}/metrics", timeout=READ_SECONDS_MAX) as answer:
        series = parse(answer.read().decode())

    def total(name: str) -> float:
        return sum(series.get(name, {}).values())

    return Moment(
        at_s=time.monotonic(),
        running=total("vllm:num_requests_running"),
        waiting=total("vllm:num_requests_waiting"),
        kv_usage=total("vllm:kv_cache_usage_perc"),
        generated=total("vllm:generation_tokens_total"),
        steps=total("vllm:iteration_tokens_total_count"),
        preempted=total("vllm:num_preemptions_total"),
    )


def pace(url: str, seconds: float) -> Pace:
    """Watch it for so long."""
    first = moment(url)
    time.sleep(seconds)
    last = moment(url)
    passed = last.at_s - first.at_s
    return Pace(
        generated=(last.generated - first.generated) / passed,
        steps=(last.steps - first.steps) / passed,
        preempted=(last.preempted - first.preempted) / passed,
        last=last,
    )


def comes_to(
    url: str, is_so: Callable[[Pace], bool], seconds_max: float, every_seconds: float = 2.0
) -> Pace:
    """Wait until a stretch of `every_seconds` is so; fails with what the last one was."""
    deadline = time.monotonic() + seconds_max
    found: Pace | None = None
    while time.monotonic() < deadline:
        try:
            found = pace(url, every_seconds)
        except (urllib.error.URLError, OSError):
            continue
        if is_so(found):
            return found
    raise AssertionError(f"the load never brought the engine there in {seconds_max:.0f} s: {found}")


@dataclass(frozen=True)
class Turns:
    """How long the main thread of a process has had a CPU, and how long it has waited for one, in seconds."""

    had: float
    waited: float

    def waited_share(self, since: "Turns") -> float:
        """Of the time in which it had something to do, the share in which others had the CPU."""
        had, waited = self.had - since.had, self.waited - since.waited
        return waited / (had + waited) if had + waited > 0 else 0.0


def turns(pid: int) -> Turns:
    """Ask the kernel (proc(5), schedstat); one that does not tell is taken to let nobody wait."""
    try:
        had, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except FileNotFoundError:
        return Turns(0.0, 0.0)
    return Turns(int(had) / 1e9, int(waited) / 1e9)
