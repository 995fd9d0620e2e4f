"""One request to a simulated engine: what the client asked for, what became of it, and who sends the next."""

from collections.abc import Callable

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
POOLING = "/v1/embeddings"


class Request:
    """Sizes in tokens, times in seconds of the scene's clock.

    A mutable, slotted class and no dataclass: the lab makes 20,000 of them in a second. The engine
    owns everything below the first line of `__init__`.
    """

    __slots__ = (
        "arrival_t", "blocks", "cached_tokens", "client", "computed_tokens", "decode_start_step",
        "external_tokens", "finish_reason", "finish_step", "finish_t", "first_token_t",
        "generated_tokens", "handler", "kv_start_tokens", "last_token_t", "lora", "max_tokens",
        "on_finish", "output_tokens", "phase", "preemptions", "prefill_target_tokens",
        "prompt_tokens", "queued_t", "scheduled_t", "started_cached_tokens",
    )  # fmt: skip

    def __init__(
        self,
        prompt_tokens: int,
        output_tokens: int,
        *,
        cached_tokens: int = 0,
        external_tokens: int = 0,
        arrival_t: float = 0.0,
        lora: str | None = None,
        max_tokens: int = 1024,
        handler: str = COMPLETIONS,
        finish_reason: str = "stop",
        on_finish: Callable[["Request"], None] | None = None,
    ) -> None:
        """`output_tokens` 0 is a pooling request; `cached_tokens` is the prefix that the cache may hold.

        `external_tokens` of the prompt come computed from another instance (disaggregated prefill).
        `on_finish` is called once, whatever the end: see `finish_reason`.
        """
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.cached_tokens = cached_tokens
        self.external_tokens = external_tokens
        self.arrival_t = arrival_t
        self.lora = lora
        self.max_tokens = max_tokens
        self.handler = handler
        self.finish_reason = finish_reason
        self.on_finish = on_finish

        self.client: Workload | None = None  # whom to ask what comes next
        self.queued_t = arrival_t
        self.scheduled_t = -1.0  # first time; -1: never
        self.first_token_t = -1.0
        self.last_token_t = -1.0
        self.finish_t = -1.0
        self.generated_tokens = 0
        self.preemptions = 0
        self.started_cached_tokens = 0  # what the cache really held when it was first scheduled
        self.prefill_target_tokens = prompt_tokens  # with the generated ones after a preemption
        self.computed_tokens = 0
        self.blocks = 0  # held during prefill; while decoding they follow from the step count
        self.phase = 0
        self.decode_start_step = -1  # -1: not decoding
        self.kv_start_tokens = 0  # slots in use when decoding began
        self.finish_step = -1


class Workload:
    """The contract of whoever sends requests; by itself it is silence."""

    def arrivals(self, until_t: float) -> list[Request]:
        """The requests that arrive since the last call and up to `until_t`, in order."""
        return []

    def finished(self, request: Request) -> Request | None:
        """What its client sends next, if that depends on this end."""
        return None

    def rejected(self, request: Request, t: float) -> None:
        """The server did not take it, or lost it, at `t`."""
