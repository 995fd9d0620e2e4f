"""What to do about each cause, in a sentence: the first line of the runbook, for who reads it on a phone."""

RUNBOOKS = {
    "target_unreadable": "alerts.md#vllmwatchtargetunreadable",
    "restart": "restart.md",
}
"""Pages of docs/; every other kind has docs/detectors/KIND.md."""

_OF_CAUSE = {
    ("engine_down", "crash"): "Its supervisor should start it again; if it does not, read its log: vllm-watch diagnose LOG.",
    ("engine_down", "unreachable"): "Ask it from another host: it may be the network, a proxy, or the watcher's own host.",
    ("engine_down", "api_hang"): "Take it out of the balancer and restart it; keep a stack of the API server first (py-spy dump).",
    ("engine_down", "crash_loop"): "Restarts do not help: read its log (vllm-watch diagnose LOG) and mend how it is started.",
    ("engine_down", "engine_dead"): "Restart it: the engine core is gone, and the server does not end by itself.",
    ("engine_stalled", "idle_wedged"): "Send it one request by hand; if none is answered, take it out of the balancer and restart it.",
    ("throughput_collapse", "kv_pinning"): "Few long requests hold the KV cache: let them end, or limit max_tokens.",
    ("throughput_collapse", "preemption_thrash"): "Lower --max-num-seqs or the longest request, or give it more KV cache.",
    ("throughput_collapse", "kv_leak"): "Restart it when its group can spare it: the lost pages come back only so.",
    ("throughput_collapse", "slow_engine"): "Restart it when its group can spare it; compare its GPU's clocks with a peer's.",
    ("throughput_collapse", "thermal_throttle"): "Look at the cooling of that host: nvidia-smi -q -d PERFORMANCE,TEMPERATURE.",
    ("throughput_collapse", "neighbour_contention"): "Another process uses its GPU: vllm-watch gpus names it.",
}  # fmt: skip

_OF_KIND = {
    "engine_down": "Look whether its process lives, and at its log: vllm-watch diagnose LOG.",
    "engine_stalled": "Take it out of the balancer: /health still says 200. Then restart it.",
    "throughput_collapse": "Compare it with its peers on the status page before you restart it.",
    "overload": "Add replicas or send less: a restart only lengthens the queue.",
    "stale_vram": "vllm-watch gpus says who holds the memory, and the command for each.",
    "gpu_fault": "Read the code in the evidence: drain the host where it is the GPU; a restart of the engine does not mend one.",
    "host_memory_growth": "Plan a restart before the host's memory is full.",
    "target_unreadable": "Ask it from the watcher's host: curl URL/metrics. Users may be served all the same.",
}  # fmt: skip

_OF_STEP = {
    "dry_run": "Nothing to do: this is what mode auto would have done.",
    "approval": "Look at it, then say yes on the status page, or vllm-watch approve INCIDENT (vllm-watch silence to refuse).",
    "refused": "The status page says all that is against it.",
    "breaker": "Read how the last attempt ended (vllm-watch journal); vllm-watch resume lets it try again.",
    "begun": "Nothing to do: how it ends is told.",
    "helped": "Nothing to do.",
    "did_not_help": "A restart is not the cure: read the evidence that it kept (vllm-watch journal).",
    "failed": "The hook did not do what it should: vllm-watch hook test NAME says why.",
    "uncertain": "See whether the server was restarted, and whether anything is left half done; then vllm-watch resume.",
    "cancelled": "Nothing to do: the hook was not called.",
}  # fmt: skip


def what_to_do(kind: str, cause: str) -> str:
    """Return the advice; empty where there is none."""
    if kind == "restart":
        return _OF_STEP.get(cause, "")
    return _OF_CAUSE.get((kind, cause)) or _OF_KIND.get(kind, "")


def runbook(kind: str, base_url: str | None) -> str:
    """Return where the runbook is: a link where the pages are served, else the path in the repository."""
    page = RUNBOOKS.get(kind, f"detectors/{kind}.md")
    return f"docs/{page}" if base_url is None else f"{base_url.rstrip('/')}/{page}"
