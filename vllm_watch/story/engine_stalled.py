"""Texts about stalled engines."""

from vllm_watch.story.base import CORE_PID, IF_ADVISED, PEER_WAIT, Cause, Story

STORY = Story(
    title="Stalled",
    says="is stalled",
    about="The engine has work and makes no progress, while /health answers 200.",
    cost="No request gets a token.",
    warning="it is not certain yet that users wait for it",
    is_not="a long prefill, a warm-up, a sleeping or a paused engine",
    first_step="Take it out of the load balancer by hand (/health is 200) and dump the engine core's stack "
    f"(py-spy dump --pid {CORE_PID}){IF_ADVISED}",
    restart="No restart is advised yet: it may recover, or a GPU needs repair.",
    causes={
        "hang": Cause("hang", "no scheduler step ends"),
        "admission_deadlock": Cause("admission deadlock", "the scheduler admits no request"),
        "livelock": Cause(
            "livelock", "it computes, but no token comes out",
            first_step="Find the request that runs without an answer (a very long prompt) and cancel it at its client; then lower "
            "--max-model-len if such prompts fill the KV cache.",
            restart="No restart is advised: the livelock ends with that request, and comes back if the request is sent again.",
        ),
        "peer_wait": PEER_WAIT,
        "stopped": Cause(
            "one of its processes is stopped", "one of its processes is stopped by a signal or a debugger",
            first_step="Ask who stopped it; then continue it (kill -CONT with the PID of the evidence), or restart all ranks of its group together.",
            restart="No restart is advised yet: it is enough to continue the process.",
        ),
        "rank_wait": Cause(
            "waits for another rank", "another rank of its group is stalled",
            first_step="Fix the rank that the evidence names.",
            restart="A restart does not help: this rank waits for another one.",
            warning="the rank that it waits for is at fault",
        ),
        "operation_stuck": Cause(
            "an operation does not end", "an operation that was started on purpose does not end",
            first_step="Find who put it to sleep, woke it or sent it weights; end that operation, or restart the engine by hand.",
            restart="No restart is advised: the operation may still be in progress.",
        ),
        "idle_wedged": Cause(
            "wedged while it seems idle", "it seems idle and does not answer", cost="The next request gets no answer."
        ),
    },
    charts=("current_generation_tokens_per_second", "requests_running", "requests_waiting"),
)  # fmt: skip
