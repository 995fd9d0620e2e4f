"""One request to a simulated engine, and the workload that sent it."""

from collections.abc import Callable

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
POOLING = "/v1/embeddings"


class Request:
    """Sizes are in tokens, and times in seconds of the simulation's clock."""

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
        """`output_tokens` is 0 for pooling. `external_tokens` were computed by another instance."""
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

        self.client: Workload | None = None  # sends the next request
        self.queued_t = arrival_t
        self.scheduled_t = -1.0  # time of the first scheduling, or -1
        self.first_token_t = -1.0
        self.last_token_t = -1.0
        self.finish_t = -1.0
        self.generated_tokens = 0
        self.preemptions = 0
        self.started_cached_tokens = 0
        self.prefill_target_tokens = prompt_tokens  # more after a preemption
        self.computed_tokens = 0
        self.blocks = 0  # during prefill only
        self.phase = 0
        self.decode_start_step = -1  # -1: not decoding
        self.kv_start_tokens = 0
        self.finish_step = -1


class Workload:
    """Base class of request senders."""

    def arrivals(self, until_t: float) -> list[Request]:
        """Return the requests since the last call and up to `until_t`, in order."""
        return []

    def finished(self, request: Request) -> Request | None:
        """Return the client's next request, or None."""
        return None

    def rejected(self, request: Request, t: float) -> None:
        """Handle a request that the server refused or lost at `t`."""
