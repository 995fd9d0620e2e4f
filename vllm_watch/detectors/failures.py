"""How requests ended lately: served, failed, or in a way that leaves it open whose fault it was."""

from collections import deque
from collections.abc import Sequence
from operator import add, attrgetter, lt, sub
from typing import NamedTuple

from vllm_watch.samples.engine import EngineSample
from vllm_watch.samples.record import record

WINDOW_SECONDS = 30.0
"""Shares are taken over so long: half a minute of nothing but errors after hours of none is half of the window
after a quarter of a minute."""

ENDS_MIN = 10.0
"""... and over no fewer requests, ..."""

RUN_MIN = 3.0
"""... or these, where nothing but failures came, ..."""

WINDOW_SECONDS_MAX = 300.0
"""... unless these came longer ago. Where nothing fails for so long, and nothing succeeds, nobody asks any more."""

PRESENT_SECONDS = 15.0
"""A request that was served since the last failure is a sign of recovery only if none fails for so long."""

SERVER_ERROR = "5xx"

KvCounts = tuple[tuple[str, float], ...]  # by family

_RISING = attrgetter("errors", "done", "tokens", "aborted", "repeated")


@record
class Ends:
    """Counters of ended requests since the start of an engine, or of a server of several."""

    errors: float = 0.0  # that the engine ended with an error
    api: float = 0.0  # answers 5xx, less refusals of admission, which are 503 on purpose
    explained: float = 0.0  # ... of which engines have counted an error themselves
    done: float = 0.0  # by a stop or by length
    aborted: float = 0.0
    repeated: float = 0.0  # ended for repetition, where a client has asked for that check
    tokens: float = 0.0
    kv_failures: KvCounts = ()


def of_engine(sample: EngineSample, *, alone: bool) -> Ends:
    """Of one engine; what the API server answered is its doing only if it is `alone` behind it."""
    by = sample.request_success or {}
    return Ends(
        errors=by.get("error", 0.0),
        api=_server_errors(sample) if alone else 0.0,
        done=by.get("stop", 0.0) + by.get("length", 0.0),
        aborted=by.get("abort", 0.0),
        repeated=by.get("repetition", 0.0),
        tokens=sample.generation_tokens or 0.0,
        kv_failures=tuple((sample.kv_failures or {}).items()),
    )


def of_server(samples: Sequence[EngineSample]) -> Ends:
    """Of a server of several engines: what failed before an engine has seen it."""
    each = [of_engine(sample, alone=False) for sample in samples]
    return Ends(
        api=_server_errors(samples[0]),
        explained=sum(ends.errors for ends in each),
        done=sum(ends.done for ends in each),
        tokens=sum(ends.tokens for ends in each),
    )


def _server_errors(sample: EngineSample) -> float:
    refused = sum((sample.admission_rejections or {}).values())
    return (sample.http_responses or {}).get(SERVER_ERROR, 0.0) - refused


class _Counts(NamedTuple):
    """How much was counted, in one scrape or since the engine is followed."""

    errors: float
    api: float
    explained: float
    done: float
    tokens: float
    doubtful: float  # aborted while no token was made, or repeated
    ended: float  # requests, however


_NOTHING = _Counts(*[0.0] * len(_Counts._fields))


class Failures:
    """Follows one engine, or one server."""

    def __init__(self) -> None:
        self._begin(None, 0)

    def _begin(self, ends: Ends | None, restarts: int) -> None:
        # Each scrape of the window with what was counted up to and with it, and what was counted before them.
        self._looks: deque[tuple[float, _Counts]] = deque()
        self._counted = self._before = _NOTHING
        self._last, self._restarts = ends, restarts
        self._api_most = 0.0 if ends is None else ends.api
        self._kv_then: dict[str, float] = {}
        self._since_s: float | None = None  # the first look that saw a failure
        self._until_s = 0.0  # the last one
        self._last_end_s = 0.0
        self.failed = self.doubtful = self.served = self.tokens = 0.0  # within the window
        self.kv_failed: dict[str, float] = {}  # transfers that failed since the first failure

    def look(self, at_s: float, ends: Ends, restarts: int, *, asleep: bool = False) -> None:
        """Take one look; counters that began anew say nothing of the time before, nor does one `asleep` on purpose."""
        last, self._last = self._last, ends
        if last is None or asleep or restarts != self._restarts or _fell(last, ends):
            self._begin(ends, restarts)
            return
        # A refusal is counted before its 503 is: only a new height is a failure.
        api, self._api_most = max(0.0, ends.api - self._api_most), max(ends.api, self._api_most)
        tokens = ends.tokens - last.tokens
        hung_up = 0.0 if tokens or not ends.tokens else ends.aborted - last.aborted
        errors, explained = ends.errors - last.errors, ends.explained - last.explained
        done, doubtful = ends.done - last.done, hung_up + ends.repeated - last.repeated
        ended = max(errors, api - explained) + done + doubtful
        newest = _Counts(errors, api, explained, done, tokens, doubtful, ended)
        self._counted = _Counts._make(map(add, self._counted, newest))
        self._looks.append((at_s, self._counted))
        self._add_up(at_s, generates=ends.tokens > 0)
        self._follow(at_s, newest, ends.kv_failures, last.kv_failures)

    def _add_up(self, at_s: float, *, generates: bool) -> None:
        looks, now = self._looks, self._counted
        while looks[0][0] <= at_s - WINDOW_SECONDS:
            first_s, then = looks[0]
            enough = now.ended - then.ended >= (ENDS_MIN if now.done > then.done else RUN_MIN)
            if not enough and first_s > at_s - WINDOW_SECONDS_MAX:
                break
            self._before = then
            looks.popleft()
        lately = _Counts._make(map(sub, now, self._before))
        self.tokens = lately.tokens
        empty = max(0.0, lately.done - lately.tokens) if generates else 0.0
        self.failed = max(lately.errors, lately.api - lately.explained, 0.0) + empty
        self.served, self.doubtful = lately.done - empty, lately.doubtful

    def _follow(self, at_s: float, newest: _Counts, kv: KvCounts, kv_before: KvCounts) -> None:
        if newest.ended:
            self._last_end_s = at_s
        empty = newest.done > 0 and not self.tokens and self.failed > 0
        if newest.errors or newest.api > newest.explained or newest.doubtful or empty:
            if self._since_s is None:
                self._since_s, self._kv_then = at_s, dict(kv_before)
            self._until_s = at_s
        elif self._since_s is not None and self.quiet(at_s):
            self._since_s = None
        self.kv_failed = {
            name: count - self._kv_then.get(name, 0.0)
            for name, count in (() if self._since_s is None else kv)
            if count > self._kv_then.get(name, 0.0)
        }

    def quiet(self, at_s: float) -> bool:
        """Has nothing failed for a while, in which something ended, or in which nobody asked any more?"""
        if self._since_s is None:
            return True
        ago_s = at_s - self._until_s
        return ago_s > WINDOW_SECONDS_MAX or (
            ago_s > WINDOW_SECONDS and self._last_end_s > self._until_s
        )

    def present(self, at_s: float) -> bool:
        """Do requests still fail, as far as any end?"""
        return at_s - self._until_s <= PRESENT_SECONDS or self._last_end_s <= self._until_s

    @property
    def began_s(self) -> float | None:
        """When the first of them failed; None while none did."""
        return self._since_s

    @property
    def lasted_s(self) -> float:
        """From the first failure to the last."""
        return 0.0 if self._since_s is None else self._until_s - self._since_s

    def share(self, *, doubtful: bool = False) -> float:
        """Of what ended within the window, how much has failed; with what is `doubtful`, or without."""
        failed = self.failed + (self.doubtful if doubtful else 0.0)
        return failed / (failed + self.served) if failed else 0.0

    @property
    def text(self) -> str:
        """The same in words."""
        odd = self.doubtful if not self.failed else 0.0
        failed, how = (odd, "ended without an answer") if odd else (self.failed, "failed")
        none = ", and no token was generated" if not self.tokens else ""
        return f"{failed:.0f} of {failed + self.served:.0f} requests {how} of late{none}"


def _fell(last: Ends, ends: Ends) -> bool:
    return any(map(lt, _RISING(ends), _RISING(last)))
