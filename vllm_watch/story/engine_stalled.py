"""How it is told that an engine has work and does none of it."""

from vllm_watch.story.base import Cause, Story

STORY = Story(
    title="Stalled",
    says="is stalled",
    about="The engine has work and makes no progress, while /health answers 200.",
    is_not="a long prefill, a warm-up, a sleeping or a paused engine",
    first_step="Take it out of the load balancer (/health still says 200) and dump the engine core's stack (py-spy dump --pid PID); "
    "restart it if a restart is advised.",
    restart="No restart is advised yet: it may recover, or a GPU needs repair.",
    causes={
        "hang": Cause("hang", "no scheduler step ends"),
        "admission_deadlock": Cause("admission deadlock", "the scheduler admits no request"),
        "idle_wedged": Cause("wedged while it looks idle", "it looks idle and does not answer"),
    },
    charts=("generation_tokens_per_second", "requests_running", "requests_waiting"),
)  # fmt: skip
