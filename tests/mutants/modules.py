"""What is mutated: what decides, acts or keeps. And the changes that no test can see."""

from dataclasses import dataclass

MODULES = (
    "restart/guard.py",
    "restart/checks.py",
    "restart/gates.py",
    "restart/attempts.py",
    "restart/ledger.py",
    "restart/dispatcher.py",
    "restart/verify.py",
    "restart/locks/file.py",
    "restart/locks/record.py",
    "restart/locks/lease.py",
    "restart/hooks/command.py",
    "restart/hooks/systemd.py",
    "restart/hooks/docker.py",
    "restart/hooks/kubernetes.py",
    "restart/hooks/webhook.py",
    "reclaim/reclaim.py",
    "reclaim/plan.py",
    "detectors/engine_down.py",
    "detectors/engine_stalled.py",
    "detectors/gpu_fault.py",
    "detectors/host_memory_growth.py",
    "detectors/overload.py",
    "detectors/stale_vram.py",
    "detectors/throughput_collapse.py",
    "detectors/collapse_engine.py",
    "detectors/collapse_causes.py",
    "incidents/lifecycle.py",
    "incidents/fleet.py",
    "signals/holders/track.py",
    "signals/holders/judge.py",
    "signals/holders/rules.py",
    "signals/window.py",
    "sources/exposition.py",
    "state/ledger.py",
    "state/worker.py",
    "state/journal.py",
    "notify/ledger.py",
    "export/passwords.py",
    "support/redaction.py",
)


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A change after which everything observable is as before."""

    module: str
    was: str
    now: str
    reason: str


_QUICKER = "it only spares work: without it the same is found, later"
_PAIRED = "a pair is of polls that have it; it is for the type"
_HAS_A_NUMBER = "what is found there always has a number; it is for the type"
EQUIVALENT: tuple[Equivalent, ...] = (
    Equivalent(
        "signals/window.py", "a.bounds is b.bounds or a.bounds == b.bounds", "(a.bounds == b.bounds)", _QUICKER,
    ),
    Equivalent(
        "signals/window.py", "then is not None and new is not None and new < then", "(then is not None and new is not None)", _QUICKER,
    ),
    Equivalent(
        "signals/window.py", "then is not None and new is not None and new.count < then.count",
        "(then is not None and new is not None)", _QUICKER,
    ),
    Equivalent("signals/window.py", "False", "True", _QUICKER),
    Equivalent("signals/window.py", "a.counts.request_success or {}", "(a.counts.request_success)", _PAIRED),
    Equivalent("signals/window.py", "b.counts.request_success or {}", "(b.counts.request_success)", _PAIRED),
    Equivalent("signals/window.py", "known is None or None not in counts", "(known is None)", _QUICKER),
    Equivalent("detectors/collapse_engine.py", "odd.value or 0.0", "(odd.value)", _HAS_A_NUMBER),
    Equivalent(
        "notify/ledger.py", "each.sent_t is None and each.message is None", "(each.message is None)",
        "what was sent or dropped has a message",
    ),
    Equivalent(
        "restart/locks/record.py", "slot.beat + 1", "(slot.beat - 1)",
        "a renewal only has to differ from the one before, and no code counts them",
    ),
    Equivalent(
        "restart/checks.py", "answer is not None and answer.allows is not True", "(answer.allows is not True)",
        "the guard checks what a hook has said once it was asked; it is for the type",
    ),
    Equivalent("restart/dispatcher.py", "8", "9", "a longer id of an attempt is as good"),
    Equivalent(
        "restart/gates.py", "which == LIVENESS and gate.kill is not None", "(which == LIVENESS)",
        "a kill that is still meant is there; it is for the type",
    ),
    Equivalent("reclaim/plan.py", "break", "continue", "it only spares work: what has reached the bound grows no more"),
    Equivalent(
        "notify/ledger.py", "break", "continue", "they are in order: what comes later is due later, and is not forgotten either",
    ),
    Equivalent(
        "state/journal.py", "1", "2", "one more than is asked for tells that there is more; two more tell no more than that",
    ),
    Equivalent(
        "support/redaction.py", "len(secret) >= _KNOWN_CHARACTERS_MIN and secret not in _known",
        "(len(secret) >= _KNOWN_CHARACTERS_MIN)", "what is known already is put where it is: " + _QUICKER,
    ),
    Equivalent(
        "incidents/fleet.py", "target is None or target.silent_s is None or target.dead or name in self._explained",
        "(target.silent_s is None or target.dead or name in self._explained)", "who is asked about was looked at before; it is for the type",
    ),
    Equivalent(
        "incidents/fleet.py", "target is None or target.silent_s is None",
        "(target.silent_s is None)", "who is called down was looked at before; it is for the type",
    ),
    Equivalent(
        "signals/holders/judge.py", "gpu.processes or ()", "(gpu.processes)",
        "where nobody is listed nothing is summed up before; it is for the type",
    ),
    Equivalent(
        "signals/holders/judge.py", "1", "2", "what is known sorts by no more than 0, and what is above that comes last",
    ),
    Equivalent(
        "detectors/engine_down.py", "self._began_s or 0.0", "(self._began_s)", "it is set at the first look; it is for the type",
    ),
    Equivalent(
        "detectors/stale_vram.py", 'judged.reason or "unknown"', "(judged.reason)", "what is stale has a reason; it is for the type",
    ),
    Equivalent(
        "detectors/stale_vram.py", 'judged.reason or "stale"', "(judged.reason)", "what is stale has a reason; it is for the type",
    ),
    Equivalent(
        "incidents/lifecycle.py", "self._followed and moment.up", "(moment.up)", "what follows goes over those that are followed",
    ),
    Equivalent(
        "restart/hooks/command.py", "status > 0", "(status >= 0)", "a status of 0 is judged before",
    ),
)  # fmt: skip
