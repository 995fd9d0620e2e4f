"""Requests to a simulated server, and seeded generators that send them."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from heapq import heapify, heappop, heappush
from random import Random

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
POOLING = "/v1/embeddings"


class Workload:
    """A sender of requests. This base class sends none."""

    def arrivals(self, until_t: float) -> list["Request"]:
        """Return the requests since the last call and up to `until_t`, in order."""
        return []

    def finished(self, request: "Request") -> "Request | None":
        """Return the client's next request, or None."""
        return None

    def rejected(self, request: "Request", t: float) -> None:
        """Handle a request that the server refused or lost at `t`."""


_NOBODY = Workload()


@dataclass(slots=True, eq=False)
class Request:
    """Sizes are in tokens, and times in seconds of the simulation's clock."""

    prompt_tokens: int
    output_tokens: int  # 0 for pooling
    _: KW_ONLY
    cached_tokens: int = 0
    external_tokens: int = 0  # computed by another instance
    arrival_t: float = 0.0
    lora: str | None = None
    max_tokens: int = 1024
    handler: str = COMPLETIONS
    finish_reason: str = "stop"
    on_finish: Callable[["Request"], None] | None = None

    client: Workload = _NOBODY  # sends the next request
    queued_t: float = field(init=False)
    scheduled_t: float = -1.0  # time of the first scheduling, or -1
    first_token_t: float = -1.0
    last_token_t: float = -1.0
    finish_t: float = -1.0
    generated_tokens: int = 0
    preemptions: int = 0
    started_cached_tokens: int = 0
    prefill_target_tokens: int = field(init=False)  # more than the prompt after a preemption
    computed_tokens: int = 0
    blocks: int = 0  # during prefill only
    phase: int = 0
    decode_start_step: int = -1  # -1: not decoding
    kv_start_tokens: int = 0
    finish_step: int = -1

    def __post_init__(self) -> None:
        self.queued_t = self.arrival_t
        self.prefill_target_tokens = self.prompt_tokens


# Sizes come from a table, because new draws would take ten times as long.
_SHAPES = 512


class Sizes:
    """Draws requests of log-normal size, some with a shared prefix."""

    def __init__(
        self,
        rng: Random,
        *,
        prompt_tokens: int = 400,
        prompt_tokens_max: int = 6000,
        output_tokens: int = 160,
        spread: float = 0.6,
        cached_share: float = 0.4,
        max_tokens: int = 1024,
        external: bool = False,
        loras: Sequence[str] = (),
    ) -> None:
        """Tokens are medians, and `spread` is the sigma of their logarithm. `output_tokens` is 0 for pooling."""
        self._rng = rng
        self._handlers = (POOLING,) if output_tokens == 0 else (COMPLETIONS, CHAT, CHAT)
        self._max_tokens = 1 if output_tokens == 1 else max_tokens  # for a proxy's prefill
        self._external = external
        self._loras: Sequence[str | None] = loras or (None,)
        self._shapes = []
        for _ in range(_SHAPES):
            prompt = max(1, int(prompt_tokens * rng.lognormvariate(0.0, spread)))
            prompt = min(prompt, prompt_tokens_max)
            output = output_tokens
            if output_tokens > 1:
                drawn = int(output_tokens * rng.lognormvariate(0.0, spread))
                output = min(max(1, drawn), max_tokens)
            self._shapes.append((prompt, output, int(prompt * cached_share)))

    def draw(self, arrival_t: float) -> Request:
        rng = self._rng
        number = int(rng.random() * 1_000_003)  # one draw for several choices
        prompt, output, cached = self._shapes[number % _SHAPES]
        return Request(
            prompt,
            output,
            cached_tokens=cached,
            external_tokens=prompt - 1 if self._external else 0,
            arrival_t=arrival_t,
            lora=self._loras[number % len(self._loras)],
            max_tokens=self._max_tokens,
            handler=self._handlers[number % len(self._handlers)],
            finish_reason="length" if output == self._max_tokens else "stop",
        )


class OpenLoop(Workload):
    """A Poisson process of arrivals, independent of the server's answers."""

    def __init__(
        self,
        rng: Random,
        sizes: Sizes,
        per_second: float,
        shape: Callable[[float], float] | None = None,
    ) -> None:
        """`shape` returns the share of `per_second` (0 to 1) at a given time."""
        self._rng = rng
        self._sizes = sizes
        self._shape = shape
        self._next_t: float | None = None
        self._now = 0.0
        self.per_second = per_second

    def arrivals(self, until_t: float) -> list[Request]:
        arrived: list[Request] = []
        if self.per_second > 0.0:
            rng, shape, rate = self._rng, self._shape, self.per_second
            t = self._now + rng.expovariate(rate) if self._next_t is None else self._next_t
            while t <= until_t:
                if shape is None or rng.random() < shape(t):
                    arrived.append(self._sizes.draw(t))
                t += rng.expovariate(rate)
            self._next_t = t
        else:
            self._next_t = None
        self._now = until_t
        return arrived


class ClosedLoop(Workload):
    """Clients that wait for their answer, pause, and send again."""

    RETRY_SECONDS = 1.0

    def __init__(self, rng: Random, sizes: Sizes, clients: int, think_seconds: float = 1.0) -> None:
        self._rng = rng
        self._sizes = sizes
        self._think_seconds = think_seconds
        self._sends = [rng.random() * think_seconds for _ in range(clients)]
        heapify(self._sends)

    def arrivals(self, until_t: float) -> list[Request]:
        arrived = []
        while self._sends and self._sends[0] <= until_t:
            arrived.append(self._sizes.draw(heappop(self._sends)))
        return arrived

    def finished(self, request: Request) -> Request | None:
        return self._sizes.draw(request.finish_t + self._rng.expovariate(1.0 / self._think_seconds))

    def rejected(self, request: Request, t: float) -> None:
        heappush(self._sends, t + self.RETRY_SECONDS)


_CALM_SHARE, _CALM_SECONDS, _BURST_SECONDS = 0.15, 60.0, 20.0


def bursty(rng: Random) -> Callable[[float], float]:
    """Return a shape that alternates between full rate and a low one."""
    bursting, change_t = False, rng.expovariate(1.0 / _CALM_SECONDS)

    def share(t: float) -> float:
        nonlocal bursting, change_t
        while t >= change_t:
            bursting = not bursting
            change_t += rng.expovariate(1.0 / (_BURST_SECONDS if bursting else _CALM_SECONDS))
        return 1.0 if bursting else _CALM_SHARE

    return share
