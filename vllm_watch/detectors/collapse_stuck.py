"""Finds requests that run for minutes without a token, although others are served.

A stuck request neither decodes nor prefills.
"""

from collections import deque
from statistics import median

from vllm_watch.detectors.base import Evidence
from vllm_watch.signals.blocks import Block

STUCK_MIN, STUCK_SHARE_MIN = 3.0, 0.2
"""A finding needs this many stuck requests, and a share that exceeds the usual share by this
much."""

USUAL_MINUTES_MIN, USUAL_MINUTES = 10, 60
"""The usual share is the median of at least USUAL_MINUTES_MIN and at most USUAL_MINUTES samples."""

MINUTES = 10
"""Requests must be stuck for this many consecutive minutes. No healthy request waits this long for
a token."""

TOKENS_MAX = 1.1
"""An engine is judged only if a step yields at most this many tokens per request. Speculative
decoding yields more."""

_MINUTE_SECONDS = 60.0
"""Each sample covers this many seconds of work."""


class Stuck:
    """Follows one engine."""

    def __init__(self) -> None:
        self._sums = [0.0, 0.0, 0.0, 0.0]  # seconds, running, decoding, prefilling
        self._tokens: deque[float] = deque(maxlen=USUAL_MINUTES)  # per step and running request
        self._usual: deque[float] = deque(maxlen=USUAL_MINUTES)  # shares of stuck requests
        self._minutes: deque[tuple[float, float]] = deque(maxlen=MINUTES)  # excess share, running

    def add(self, block: Block) -> None:
        if not block.steps or block.first_token_seconds is None or block.generated <= 0.0:
            self._minutes.clear()
            self._sums = [0.0, 0.0, 0.0, 0.0]
            return
        decoding = block.generated * block.seconds / block.steps
        prefilling = block.first_token_seconds / block.seconds
        for index, value in enumerate((1.0, block.running, decoding, prefilling)):
            self._sums[index] += value * block.seconds
        seconds, running, decoding, prefilling = self._sums
        if seconds >= _MINUTE_SECONDS:
            self._sums = [0.0, 0.0, 0.0, 0.0]
            if running > 0.0:
                self._close(running / seconds, decoding / running, prefilling / running)

    def _close(self, running: float, decoding: float, prefilling: float) -> None:
        self._tokens.append(decoding)
        if median(self._tokens) > TOKENS_MAX:
            self._minutes.clear()
            return
        share = max(0.0, 1.0 - decoding - prefilling)
        beyond = share - median(self._usual) if self._usual else 0.0
        if len(self._usual) >= USUAL_MINUTES_MIN:
            self._minutes.append((beyond, running))
        if beyond < 0.5 * STUCK_SHARE_MIN:
            self._usual.append(share)

    def found(self) -> Evidence | None:
        if len(self._minutes) < MINUTES:
            return None
        share = min(beyond for beyond, _ in self._minutes)
        running = self._minutes[-1][1]
        count = share * running
        if share < STUCK_SHARE_MIN or count < STUCK_MIN:
            return None
        text = f"{count:.0f} of {running:.0f} running requests have got no token for {MINUTES} minutes, while others come and go"
        return Evidence(name="requests_stuck", value=round(count), expected=0.0, text=text)
