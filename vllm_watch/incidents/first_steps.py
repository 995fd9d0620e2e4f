"""What to do first about each cause, in a sentence: for the terminal, and for who reads it on a phone.

The runbook says the rest.
"""

_STACK = "Take it out of the balancer: /health still says 200. Keep a stack (py-spy dump), then restart if it is advised."
_ASK = "Ask whose it is before you end it: what is not saved is lost."
OF_CAUSE = {
    "kv_pinning": "Find the long requests in the API log and abort them; limit max_tokens and prompts.",
    "preemption_thrash": "Fewer sequences (--max-num-seqs), shorter limits, more KV cache or more replicas.",
    "kv_leak": "Restart in a quiet moment, before users wait if you can.",
    "slow_engine": "Restart; if it stays slow, look at the host: CPU frequency, other tenants, PCIe, NCCL.",
    "thermal_throttle": "nvidia-smi -q -d PERFORMANCE,TEMPERATURE: fans, airflow, power supply, power limit.",
    "neighbour_contention": "Stop or move what the evidence names, or give the engine more CPUs where it waits for one; vllm-watch gpus shows who uses its GPU.",
    "hang": _STACK, "admission_deadlock": _STACK, "idle_wedged": _STACK,
    "crash": "Its supervisor brings it back; read the last lines of its log: vllm-watch diagnose LOG.",
    "unreachable": "Ask it from its own host: if it answers there, it is the network.",
    "api_hang": "Take a stack of the API server (py-spy dump), then restart if it is advised.",
    "crash_loop": "Do not restart it: read the first error of its log, vllm-watch diagnose LOG.",
    "engine_dead": "Restart it: the API server does not do that by itself.",
    "demand": "Add replicas, or shed load at the gateway.",
    "orphaned_worker": "vllm-watch gpus --reclaim PID ends it; nothing can reach it, so nothing is lost.",
    "idle_notebook": _ASK, "idle_process": _ASK,
    "zombie_context": "End its parent; what cannot be killed needs a reset of the GPU, or a reboot.",
    "unaccounted": "fuser -v /dev/nvidia* shows who has the GPU open; if nobody has, reset it when it is idle.",
    "xid": "Do what the evidence says for the code; dmesg -T | grep -i nvrm has its details.",
    "gpu_lost": "Reboot the host; check seat, power and risers.",
    "ecc": "Drain the engine and reset the GPU; if it comes again, have the GPU replaced.",
    "leak": "Compare its growth with the container's limit, and plan a restart before that.",
}  # fmt: skip

OF_KIND = {
    "engine_down": "Look whether its process lives, and at its log: vllm-watch diagnose LOG.",
    "engine_stalled": "Take it out of the balancer: /health still says 200. Then restart it.",
    "throughput_collapse": "Compare it with its peers on the status page before you restart it.",
    "overload": "Add replicas or send less: a restart only lengthens the queue.",
    "stale_vram": "vllm-watch gpus says who holds the memory, and the command for each.",
    "gpu_fault": "Read the code in the evidence: drain the host where it is the GPU; a restart of the engine does not mend one.",
    "host_memory_growth": "Plan a restart before the host's memory is full.",
    "target_unreadable": "Ask it from the watcher's host: curl URL/metrics. Users may be served all the same.",
}  # fmt: skip
"""Where the cause is not known (yet)."""


def first_step(kind: str, cause: str) -> str:
    """Return the advice; empty where there is none."""
    return OF_CAUSE.get(cause) or OF_KIND.get(kind, "")
