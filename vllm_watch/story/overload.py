"""Texts about overloaded engines."""

from vllm_watch.story.base import PEER_WAIT, Cause, Story

STORY = Story(
    title="Overloaded",
    says="has a standing queue",
    about="Requests wait long in a queue that does not shrink, in the engine or in the API server before it.",
    cost="New requests wait in a queue.",
    warning="more requests arrive than it can serve, and it is not known to be slower than usual",
    is_not="a stall or a collapse",
    first_step="Check the cause in the evidence: a replica helps only if slots or pages are used up.",
    restart="Do not restart it: that drops the queued requests, and their clients send them again.",
    causes={
        "demand": Cause(
            "more demand than it can serve", "more requests arrive than it can serve at its usual pace",
            first_step="Shed load at the gateway, then add replicas.",
        ),
        "peer_wait": PEER_WAIT,
        "deferred": Cause(
            "requests are deferred", "requests wait for a grammar or a LoRA slot, while slots and pages are free",
            first_step="Read its log for the grammar or the adapter that it waits for; turn such requests away at the gateway.",
            restart="No restart is advised: other requests are served, and the deferred ones would come back.",
        ),
        "small_cache": Cause(
            "smaller KV cache than before", "its KV cache is far smaller than before the last restart",
            first_step="Find the other holders of GPU memory at its start (vllm-watch gpus), end them, and restart it in a quiet moment.",
            restart="No restart is advised: while the memory is taken, the cache stays small.",
        ),
        "paused": Cause(
            "a pause does not end", "it was paused and never resumed",
            first_step="Ask the person who paused it; then POST /resume.",
            restart="A restart does not help: it drops the requests that wait for the end of the pause.",
        ),
        "unknown": Cause("cause unknown", "requests wait although slots and pages are free"),
        "api_overloaded": Cause(
            "requests wait in the API server", "requests wait in the API server before the engine sees them",
            first_step="Raise --api-server-count, or shed load at the gateway; if prompts or images are long, see who sends them.",
            restart="A restart does not help: the same load comes back.",
        ),
    },
    severities=("page", "ticket"),
    charts=(
        "requests_waiting",
        "current_generation_tokens_per_second",
        "time_to_first_token_p95_seconds",
    ),
)  # fmt: skip
