"""What incidents are called and what to do about them, in the words of the status page."""

from vllm_watch.export.incidents import SEVERITIES, Incident, in_order

KINDS = {
    "throughput_collapse": "Collapsed", "engine_stalled": "Stalled", "engine_down": "Down", "overload": "Overloaded",
    "stale_vram": "Stale GPU memory", "gpu_fault": "GPU fault", "host_memory_growth": "Host memory grows",
}  # fmt: skip
CAUSES = {
    "kv_pinning": "few requests hold the KV cache", "preemption_thrash": "preemptions thrash", "kv_leak": "the KV cache leaks",
    "slow_engine": "each step is slower", "thermal_throttle": "the GPU is slowed by heat or power",
    "neighbour_contention": "a neighbour takes the GPU or the CPU", "unknown": "cause unknown", "hang": "hang",
    "admission_deadlock": "admission deadlock", "idle_wedged": "wedged while it looks idle", "crash": "crash",
    "unreachable": "unreachable", "api_hang": "the API hangs", "crash_loop": "crash loop",
    "engine_dead": "the engine is dead, its API is up", "demand": "more demand than it can serve",
    "orphaned_worker": "an orphaned worker", "idle_notebook": "an idle notebook", "zombie_context": "a context whose process is gone",
    "unaccounted": "held by no process", "idle_process": "an idle process", "xid": "Xid error", "gpu_lost": "the GPU is lost",
    "ecc": "memory errors", "leak": "leak",
}  # fmt: skip
_STACK = "Keep a stack (py-spy dump of the engine core), then restart if it is advised."
_ASK = "Ask whose it is before you end it: what is not saved is lost."
STEPS = {
    "kv_pinning": "Find the long requests in the API log and abort them; limit max_tokens and prompts.",
    "preemption_thrash": "Fewer sequences (--max-num-seqs), shorter limits, more KV cache or more replicas.",
    "kv_leak": "Restart in a quiet moment, before users wait if you can.",
    "slow_engine": "Restart; if it stays slow, look at the host: CPU frequency, other tenants, PCIe, NCCL.",
    "thermal_throttle": "nvidia-smi -q -d PERFORMANCE,TEMPERATURE: fans, airflow, power supply, power limit.",
    "neighbour_contention": "Stop or move the process that the evidence names.",
    "unknown": "Look at the evidence: what is not known yet may be told in a minute.",
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
"""What to do first, by cause; the runbook says the rest."""

STYLES = {"page": "bold white on red", "ticket": "bold yellow", "info": "cyan"}


NO_RESTART_OF_DOWN = {
    "crash": "No restart is advised: its supervisor starts it again.",
    "unreachable": "No restart is advised: it may be the network between us.",
    "crash_loop": "A restart does not help: it crashes each time. Its log says why (vllm-watch diagnose).",
}
"""Why a restart by us is no cure for a server that is down, by its cause."""


def _words(slug: str) -> str:
    return slug.replace("_", " ")


def title(incident: Incident) -> str:
    """Return kind and cause: "Stalled: hang"."""
    kind = KINDS.get(incident.kind) or _words(incident.kind).capitalize()
    return f"{kind}: {CAUSES.get(incident.cause) or _words(incident.cause)}"


def step(incident: Incident) -> str:
    """Return what to do first."""
    return f"{STEPS.get(incident.cause, STEPS['unknown'])} Runbook: {runbook(incident)}"


def advice(incident: Incident) -> str:
    """Return whether a restart helps; never more than is known."""
    if incident.restart_advised:
        return "A restart is known to cure this."
    if incident.cause == "unknown":
        return "Whether a restart helps is not known."
    if incident.kind == "engine_down" and incident.cause in NO_RESTART_OF_DOWN:
        return NO_RESTART_OF_DOWN[incident.cause]
    if incident.kind == "engine_stalled":
        return "No restart is advised yet: it may recover by itself."
    return "A restart does not help here."


def runbook(incident: Incident) -> str:
    """Return the page that says what to do, relative to the repository."""
    return f"docs/detectors/{incident.kind}.md"


def rank(incidents: tuple[Incident, ...]) -> int:
    """Return how bad the worst of them is: 0 wakes people, larger is better, the last is none."""
    worst = next(iter(in_order(incidents)), None)
    if worst is None:
        return len(SEVERITIES) + 1
    return SEVERITIES.index(worst.severity) if worst.severity in SEVERITIES else len(SEVERITIES)
