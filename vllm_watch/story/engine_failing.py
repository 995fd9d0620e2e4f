"""Texts about engines that fail requests."""

from vllm_watch.story.base import IF_ADVISED, Cause, Story

_UNSURE = "No restart is advised: weights, template and settings would be the same after it."

STORY = Story(
    title="Requests fail",
    says="is failing requests",
    about="The engine answers /health with 200 and fails its requests or returns unusable answers; a router that counts open requests sends it more.",
    cost="Requests fail or get unusable answers.",
    warning="other requests are answered",
    is_not="clients that hang up, ask for one token or send invalid requests (4xx), or a full queue that rejects requests",
    first_step="Take it out of the load balancer by hand (/health is 200), and read its log for the first error.",
    restart="No restart is advised: it is not known whether the engine causes the failures.",
    causes={
        "kv_transfer": Cause(
            "KV transfers fail", "KV does not arrive from another server",
            first_step="Check the server that sends the KV (prefill, store) and the network between; meanwhile take this one out of the load balancer.",
            restart="A restart does not help: the other side of the transfer is gone or cannot be reached.",
        ),
        "cuda_error": Cause(
            "CUDA error", "a CUDA error stays with the process until it ends",
            first_step=f"Take it out of the load balancer and look for Xid in dmesg{IF_ADVISED}",
            restart="No restart is advised yet, or the GPU needs repair first.",
        ),
        "empty_answers": Cause(
            "empty answers", "answers end after at most one token",
            first_step="Send it one prompt yourself; if the answer is empty, take it out of the load balancer and compare weights, chat template and quantization with a replica that answers.",
            restart=_UNSURE,
        ),
        "truncated_answers": Cause(
            "truncated answers", "answers end with length far below the max_tokens of their requests",
            first_step="Send it one prompt with max_tokens 100; if the answer is cut, take it out of the load balancer and compare its flags and its proxy's with those of a replica that answers.",
            restart=_UNSURE,
        ),
        "endless_answers": Cause(
            "endless answers", "answers no longer end by themselves, but at max_tokens",
            first_step="Read one answer; if it is babble, take it out of the load balancer and compare weights, chat template and KV cache settings with a replica that answers.",
            restart=_UNSURE,
        ),
    },
    charts=("requests_finished_per_second", "current_generation_tokens_per_second", "requests_running"),
)  # fmt: skip
