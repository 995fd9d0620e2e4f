"""How it is told that an engine has more work than it can do."""

from vllm_watch.story.base import Cause, Story

STORY = Story(
    title="Overloaded",
    says="is overloaded",
    about="The engine is healthy, but it, or the API server before it, cannot keep up with the requests.",
    is_not="a stall or a collapse",
    first_step="Shed load at the gateway, then add replicas.",
    restart="Do not restart it: that drops the queued requests, and their clients send them again.",
    causes={
        "demand": Cause(
            "more demand than it can serve",
            "more requests arrive than it can serve at its usual pace",
        ),
        "api_overloaded": Cause(
            "API server overloaded",
            "requests wait in the API server before the engine sees them",
            "Raise --api-server-count, or shed load at the gateway; if prompts or images are long, see who sends them.",
            "A restart does not help: the same load comes back.",
        ),
    },
    severities=("page", "ticket"),
    charts=("requests_waiting", "generation_tokens_per_second", "time_to_first_token_p95_seconds"),
)
