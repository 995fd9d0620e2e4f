"""What incidents are called and whether a restart helps, in the words of the status page."""

from vllm_watch.incidents.first_steps import first_step
from vllm_watch.incidents.incident import SEVERITIES, Incident, in_order

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
    return f"{first_step(incident.kind, incident.cause)} Runbook: {runbook(incident)}"


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
