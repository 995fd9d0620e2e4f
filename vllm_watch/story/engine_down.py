"""How it is told that a server does not answer."""

from vllm_watch.story.base import Cause, Story

STORY = Story(
    title="Down",
    says="is down",
    about="The server does not answer.",
    is_not="a server that loads its weights, was drained, or was scaled to zero",
    first_step="Check whether its process is alive, and read its log: vllm-watch diagnose LOG.",
    causes={
        "crash": Cause(
            title="crash",
            seen="nothing listens where a server answered",
            first_step="Leave the restart to its supervisor; find out why it died: vllm-watch diagnose LOG.",
            restart="No restart is advised: its supervisor starts it again.",
        ),
        "api_hang": Cause(
            title="API hang",
            seen="it accepts connections and answers none",
            first_step="Dump the API server's stack (py-spy dump --pid PID), then restart it if a restart is advised.",
            restart="No restart is advised yet: it may recover by itself.",
        ),
        "unreachable": Cause(
            title="unreachable",
            seen="no connection comes about",
            first_step="Query it from its own host: if it answers there, the network is at fault.",
            restart="No restart is advised: it may be the network between us.",
        ),
        "engine_dead": Cause(
            title="engine dead behind a live API server",
            seen="its API server says that the engine is dead",
            first_step="Restart it unless a GPU is lost: the API server does not bring its engine back.",
            restart="No restart is advised: a GPU needs repair first.",
        ),
        "crash_loop": Cause(
            title="crash loop",
            seen="it starts again and again and does not last",
            first_step="Do not restart it: fix the first error in its log, vllm-watch diagnose LOG.",
            restart="A restart does not help: it crashes each time; its log says why.",
        ),
        "unknown": Cause(title="cause unknown", seen="it has not answered once since it is watched"),
    },
    charts=("generation_tokens_per_second", "requests_running", "requests_waiting"),
)  # fmt: skip
