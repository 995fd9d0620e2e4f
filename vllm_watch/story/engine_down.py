"""Texts about servers that are down."""

from vllm_watch.story.base import ELSE_IF_ADVISED, IF_ADVISED, SERVER_PID, Cause, Story

STORY = Story(
    title="Down",
    says="is down",
    about="The server does not answer.",
    cost="No request is answered.",
    warning="it has not lasted long enough to be certain",
    is_not="a server that loads its weights, was drained, or was scaled to zero",
    first_step="Check whether its process is alive, and run vllm-watch diagnose on its log.",
    causes={
        "crash": Cause(
            "crash", "nothing listens on its port any more",
            first_step="If its supervisor (systemd, Docker, Kubernetes) has not started it again within 2 minutes, and it was not stopped on purpose, start it yourself. Then find out why: run vllm-watch diagnose on its log.",
            restart="Nothing listens on its port: it needs a start, not a restart.",
        ),
        "api_hang": Cause(
            "API hang", "it accepts connections but answers none",
            first_step=f"Dump the API server's stack (py-spy dump --pid {SERVER_PID}){IF_ADVISED}",
            restart="No restart is advised yet: it may recover by itself.",
        ),
        "unreachable": Cause(
            "unreachable", "it cannot be reached",
            first_step="Query it from its own host: if it answers there, the network is at fault.",
            restart="No restart is advised: the network may be at fault, not the server.",
            cost="Unknown: users may reach it by another route.",
        ),
        "engine_dead": Cause(
            "engine dead behind a live API server", "its API server reports a dead engine",
            first_step=f"Look for a missing GPU (nvidia-smi -L); if one is missing, drain the node{ELSE_IF_ADVISED}",
            restart="No restart is advised: a GPU needs repair first.",
        ),
        "health_failing": Cause(
            "health check fails while it serves", "its health check fails, but tokens flow",
            first_step="Query /health yourself and read the API server's log; users are still served.",
            restart="No restart is advised: it serves, and a restart would cut its requests off.",
            cost="No request fails so far: tokens flow.",
        ),
        "crash_loop": Cause(
            "crash loop", "it keeps restarting and does not stay up",
            first_step="Do not restart it: fix the first error that vllm-watch diagnose finds in its log.",
            restart="A restart does not help: it crashes each time; its log has the reason.",
        ),
        "operation_stuck": Cause(
            "elastic scaling does not end", "it does not stop scaling",
            first_step="If its log has \"Scale failed\", restart all its ranks by hand; else wait for the scaling to end.",
            restart="No restart is advised as long as it may still be scaling.",
        ),
        "unknown": Cause("cause unknown", "it has never answered"),
    },
    charts=("current_generation_tokens_per_second", "requests_running", "requests_waiting"),
)  # fmt: skip
